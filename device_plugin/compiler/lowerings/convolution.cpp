// Convolutions, forward and backward, plain and transposed.
#include "device_plugin/compiler/lower.h"

namespace trnsim::compiler {
namespace {

struct ConvArgs {
  std::vector<int64_t> stride, padding, dilation;
  bool transposed;
  int64_t groups;
};

// stride, padding, dilation, transposed, output_padding, groups from argument `first` on
ConvArgs conv_args(LowerContext& c, int first, size_t spatial) {
  ConvArgs a;
  a.stride = c.ints(first, spatial);
  a.padding = c.ints(first + 1, spatial);
  a.dilation = c.ints(first + 2, spatial);
  a.transposed = c.flag(first + 3);
  a.groups = c.int_arg(first + 5);
  if (spatial > 3) c.refuse("more than 3 spatial axes");
  return a;
}

// The transposed convolution is the input gradient of the plain one: `input` and `out` swap their roles.
void emit_conv(LowerContext& c, ConvKernel::Mode mode, const ConvArgs& a, const View& input,
               const View& weight, const View& out, const View& bias = {}) {
  ConvKernel k;
  k.mode = mode;
  k.input = input;
  k.weight = weight;
  k.out = out;
  k.bias = bias;
  k.stride = a.stride;
  k.padding = a.padding;
  k.dilation = a.dilation;
  k.groups = a.groups;
  const View& written = mode == ConvKernel::Mode::kForward     ? out
                        : mode == ConvKernel::Mode::kInputGrad ? input
                                                               : weight;
  if (view_empty(written)) return;
  bool nothing_to_add = mode == ConvKernel::Mode::kForward     ? view_empty(input) || view_empty(weight)
                        : mode == ConvKernel::Mode::kInputGrad ? view_empty(out) || view_empty(weight)
                                                               : view_empty(out) || view_empty(input);
  if (nothing_to_add) {
    c.fill(written, 0);
    return;
  }
  c.emit(std::move(k));
}

View channel_view(const View& bias, size_t rank) {  // [C] -> [C, 1..]
  View v = bias;
  while (v.sizes.size() < rank - 1) v = view_unsqueezed(v, static_cast<int>(v.sizes.size()));
  return v;
}

// (input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
void lower_convolution(LowerContext& c) {
  View input = c.in(0), weight = c.in(1), out = c.out(0);
  if (input.sizes.size() < 3) c.refuse("an input without batch and channel axes");
  ConvArgs a = conv_args(c, 3, input.sizes.size() - 2);
  bool has_bias = !c.is_none(2);
  if (!a.transposed) {
    emit_conv(c, ConvKernel::Mode::kForward, a, input, weight, out, has_bias ? c.in(2) : View{});
    return;
  }
  if (!has_bias) {
    emit_conv(c, ConvKernel::Mode::kInputGrad, a, out, weight, input);
    return;
  }
  View sum = c.scratch(out.dtype == Dtype::kF64 ? Dtype::kF32 : out.dtype, out.sizes);
  emit_conv(c, ConvKernel::Mode::kInputGrad, a, sum, weight, input);
  MapBuilder m(c, out.sizes);
  m.output(out, m.input(sum) + m.input(channel_view(c.in(2), out.sizes.size())));
  m.emit();
}

// `first`: the argument with the strides. Results: grad_input, grad_weight, grad_bias.
template <int first>
void lower_convolution_backward(LowerContext& c) {
  View grad = c.in(0), input = c.in(1), weight = c.in(2);
  ConvArgs a = conv_args(c, first, input.sizes.size() - 2);
  if (c.wanted(0)) {
    if (a.transposed)
      emit_conv(c, ConvKernel::Mode::kForward, a, grad, weight, c.out(0));
    else
      emit_conv(c, ConvKernel::Mode::kInputGrad, a, c.out(0), weight, grad);
  }
  if (c.wanted(1)) {
    if (a.transposed)
      emit_conv(c, ConvKernel::Mode::kWeightGrad, a, grad, c.out(1), input);
    else
      emit_conv(c, ConvKernel::Mode::kWeightGrad, a, input, c.out(1), grad);
  }
  if (c.wanted(2) && view_empty(grad)) {  // which may have no channels where the bias has some
    if (!view_empty(c.out(2))) c.fill(c.out(2), 0);
  } else if (c.wanted(2)) {
    std::vector<int64_t> dims{0};
    for (size_t d = 2; d < grad.sizes.size(); ++d) dims.push_back(static_cast<int64_t>(d));
    Reduction r(grad.sizes, dims);
    MapBuilder m(c, r.domain, r.num_kept);
    m.row_output(c.out(2), m.reduce(ReduceOp::kSum, m.cast(m.input(r.full(grad)), Dtype::kF32)));
    m.emit();
  }
}

TRNSIM_LOWER(std::vector<LowerRow>{
    {"aten::convolution", lower_convolution},
    {"aten::convolution_overrideable", lower_convolution},
    {"aten::_convolution", lower_convolution},
    {"aten::convolution_backward", lower_convolution_backward<4>},  // has bias_sizes before the strides
    {"aten::convolution_backward_overrideable", lower_convolution_backward<3>},
});

}  // namespace
}  // namespace trnsim::compiler
