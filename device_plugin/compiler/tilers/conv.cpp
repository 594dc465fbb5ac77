// Convolution: checks, groups, and the choice between tensor and vector engine.
#include "device_plugin/compiler/tilers/conv_geometry.h"
#include "device_plugin/compiler/tilers/tilers.h"

namespace trnsim::compiler {
namespace {

// Fills a view with a constant (results over no input at all).
void fill(const View& v, const View* bias, const KernelContext& context, TileBuilder& tile) {
  MapKernel map;
  map.domain = v.sizes;
  map.num_kept = static_cast<int32_t>(v.sizes.size());
  Expr e;
  if (bias != nullptr) {
    View b = *bias;
    b.sizes = v.sizes;
    b.strides.assign(v.sizes.size(), 0);
    b.strides[1] = bias->strides[0];
    map.inputs.push_back(b);
    e.op = ExprOp::kInput;
  }
  map.exprs.push_back(e);
  map.outputs.push_back({v, 0});
  tile_map(map, context, tile);
}

}  // namespace

void tile_conv(const ConvKernel& kernel, const KernelContext& context, TileBuilder& tile) {
  const size_t axes = kernel.weight.sizes.size() - 2;
  if (kernel.weight.sizes.size() < 3 || axes > 3) {
    throw_unsupported("convolution over " + std::to_string(axes) + " spatial axes (1 to 3 are)");
  }
  for (const View* v : {&kernel.input, &kernel.weight, &kernel.out}) {
    if (isa::is_integer(v->dtype)) {
      throw_unsupported("convolution of " + std::string(isa::dtype_name(v->dtype)) +
                        " tensors (the tensor engine multiplies floating point only); cast to a float dtype");
    }
  }
  using Mode = ConvKernel::Mode;
  const View& result = kernel.mode == Mode::kForward     ? kernel.out
                       : kernel.mode == Mode::kInputGrad ? kernel.input
                                                         : kernel.weight;
  if (result.numel() == 0) return;
  if (kernel.input.numel() == 0 || kernel.weight.numel() == 0 || kernel.out.numel() == 0) {
    const bool bias = kernel.mode == Mode::kForward && kernel.bias.buffer >= 0;
    fill(result, bias ? &kernel.bias : nullptr, context, tile);
    return;
  }
  const auto bytes = [](const View& v) {
    return static_cast<uint64_t>(v.numel()) * isa::dtype_bytes(v.dtype);
  };
  const uint64_t products = static_cast<uint64_t>(kernel.out.numel()) *
                            static_cast<uint64_t>(kernel.weight.numel() / kernel.weight.sizes[0]);
  tile.add_work(2 * products, bytes(kernel.input) + bytes(kernel.weight) + bytes(kernel.out));
  if (kernel.groups > 1 && kernel.weight.sizes[1] == 1) {
    depthwise(kernel, context, tile);
    return;
  }
  for (const ConvProblem& p : conv_problems(kernel)) {
    if (kernel.mode == Mode::kWeightGrad) {
      weight_gradient(p, context, tile);
    } else {
      correlate(p, kernel.mode == Mode::kInputGrad, context, tile);
    }
  }
}

}  // namespace trnsim::compiler
