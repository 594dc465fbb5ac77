// Maps behind a matrix product or a convolution into its epilogue: bias, normalisation by given statistics, activation,
// residual, scale, cast, quantisation.
//
// Legal when the map alone reads the product, iterates over its elements in any order, has one result, and needs no
// index and no reduction; batch axes may fall into several, the axes of the matrix may not. The product is rounded to the
// dtype it would have been stored in. The result must not lie in memory that the product reads its operands from (an
// epilogue operand may lie there in place). Taken when every operand of the map runs along the matrix as its result does.
#include <algorithm>

#include "device_plugin/compiler/fusion/join.h"
#include "device_plugin/compiler/fusion/passes.h"
#include "device_plugin/compiler/fusion/views.h"

namespace trnsim::compiler::fusion {
namespace {

// The accumulator as an operand: its strides tell the axes of the product.
constexpr int32_t kAccumulatorBuffer = -2;

// A kernel that can have an epilogue: matrix products, convolutions and their input gradients.
struct Product {
  View* result;
  size_t result_use, first_extra;  // positions among uses_of()
  std::vector<View>* extra;
  std::vector<Expr>* epilogue;
  Dtype operands;
};
std::optional<Product> product_of(Kernel& kernel) {
  const size_t last = uses_of(kernel).size() - 1;
  if (auto* dot = std::get_if<DotKernel>(&kernel))
    return Product{&dot->out, last, 2, &dot->extra, &dot->epilogue, dot->a.dtype};
  auto* conv = std::get_if<ConvKernel>(&kernel);
  if (conv == nullptr || conv->mode == ConvKernel::Mode::kWeightGrad) return std::nullopt;
  // One channel per group is the Vector engine's, which has no spare time for it.
  if (conv->groups > 1 && conv->weight.sizes[1] == 1) return std::nullopt;
  for (const View* v : {&conv->input, &conv->weight, &conv->out})
    if (v->numel() == 0) return std::nullopt;
  const bool forward = conv->mode == ConvKernel::Mode::kForward;
  return Product{forward ? &conv->out : &conv->input,
                 forward ? last : 0,
                 conv->bias.buffer >= 0 ? size_t{3} : size_t{2},
                 &conv->extra,
                 &conv->epilogue,
                 conv->weight.dtype};
}

MapForm form_of_result(FlowNode& node, const Product& product) {
  MapForm f;
  f.sizes = product.result->sizes;
  f.reduced.assign(f.sizes.size(), false);
  View accumulator;
  accumulator.buffer = kAccumulatorBuffer;
  accumulator.sizes = f.sizes;
  accumulator.strides = row_major(f.sizes);
  f.inputs.push_back({accumulator, -1, {}});
  for (size_t i = 0; i < product.extra->size(); ++i) {
    const std::vector<int>& values = node.reads[product.first_extra + i];
    f.inputs.push_back({(*product.extra)[i], values.front(), {values.begin() + 1, values.end()}});
  }
  f.exprs = *product.epilogue;
  if (f.exprs.empty()) {
    Expr e;
    e.op = ExprOp::kInput;
    f.exprs.push_back(e);
  }
  f.outputs.push_back(
      {*product.result, static_cast<int32_t>(f.exprs.size() - 1), false, node.writes[product.result_use]});
  return f;
}

// The axes of the product in the joined form: batch axes (which may have fallen into several), rows, columns.
using Groups = std::vector<std::vector<int>>;

// Along the same axis of the matrix as the result, or the same value for all of it.
bool runs_alike(const View& v, const View& out) {
  const size_t r = out.sizes.size();
  for (size_t d : {r - 2, r - 1}) {
    if (out.sizes[d] > 1 && std::abs(out.strides[d]) == 1 && v.strides[d] != 1 && v.strides[d] != 0)
      return false;
  }
  return true;
}

// A joined form as what becomes of the sums of a product.
struct AfterSum {
  size_t accumulator;       // the sum among the inputs
  Groups groups;            // axes of the form, by axis of the product
  std::vector<Expr> exprs;  // inputs numbered as the epilogue's: the sum, then the others in order
};
std::optional<AfterSum> after_sum(const MapForm& joined, const std::vector<int64_t>& sizes) {
  AfterSum a;
  for (a.accumulator = 0; a.accumulator < joined.inputs.size(); ++a.accumulator)
    if (joined.inputs[a.accumulator].view.buffer == kAccumulatorBuffer) break;
  if (a.accumulator == joined.inputs.size() || joined.outputs.size() != 1 ||
      joined.outputs[0].expr + 1 != static_cast<int32_t>(joined.exprs.size()) ||
      !group_axes(joined, joined.inputs[a.accumulator].view, sizes, a.groups))
    return std::nullopt;
  a.exprs = joined.exprs;
  for (Expr& e : a.exprs) {
    if (e.op == ExprOp::kIota || e.op == ExprOp::kReduce) return std::nullopt;
    if (e.op != ExprOp::kInput) continue;
    const auto i = static_cast<size_t>(e.index);
    e.index = i == a.accumulator ? 0 : static_cast<int32_t>(i < a.accumulator ? i + 1 : i);
  }
  return a;
}

// A view of the joined form with one axis per group, of these sizes; nothing where it does not move in equal steps.
std::optional<View> grouped_view(const MapForm& joined, const View& v, const Groups& groups,
                                 const std::vector<int64_t>& sizes) {
  View w = v;
  w.sizes = sizes;
  w.strides.clear();
  for (const auto& group : groups) {
    const std::optional<int64_t> step = merged_stride(joined, v, group);
    if (!step) return std::nullopt;
    w.strides.push_back(*step);
  }
  return w;
}

std::optional<Kernel> with_epilogue(const ConvKernel& conv, const View& result, const MapForm& joined) {
  std::optional<AfterSum> after = after_sum(joined, result.sizes);
  if (!after) return std::nullopt;
  const auto view_of = [&](const View& v) { return grouped_view(joined, v, after->groups, result.sizes); };
  const std::optional<View> written = view_of(joined.outputs[0].view);
  if (!written) return std::nullopt;
  ConvKernel fused = conv;
  (conv.mode == ConvKernel::Mode::kForward ? fused.out : fused.input) = *written;
  fused.extra.clear();
  for (size_t i = 0; i < joined.inputs.size(); ++i) {
    if (i == after->accumulator) continue;
    const std::optional<View> v = view_of(joined.inputs[i].view);
    if (!v) return std::nullopt;
    // Spatial axes: all broadcast, or runs where the result has them.
    size_t still = 0, moving = 0;
    for (size_t d = 2; d < v->sizes.size(); ++d) {
      if (v->sizes[d] == 1) continue;
      ++(v->strides[d] == 0 ? still : moving);
      if (written->strides[d] == 1 && v->strides[d] != 1 && v->strides[d] != 0) return std::nullopt;
    }
    if (still > 0 && moving > 0) return std::nullopt;
    fused.extra.push_back(*v);
  }
  fused.epilogue = std::move(after->exprs);
  return fused;
}

std::optional<Kernel> with_epilogue(const DotKernel& dot, const MapForm& joined) {
  std::optional<AfterSum> after = after_sum(joined, dot.out.sizes);
  if (!after) return std::nullopt;
  const size_t r = dot.out.sizes.size();
  // Batch axes one by one, then rows and columns.
  Groups axes;
  std::vector<std::pair<size_t, int64_t>> batch;  // axis of the product, elements of it per step
  for (size_t d = 0; d + 2 < r; ++d) {
    int64_t step = dot.out.sizes[d];
    for (int a : after->groups[d]) {
      step /= joined.sizes[static_cast<size_t>(a)];
      axes.push_back({a});
      batch.emplace_back(d, step);
    }
  }
  axes.push_back(after->groups[r - 2]);
  axes.push_back(after->groups[r - 1]);
  std::vector<int64_t> sizes;
  for (const auto& group : axes) {
    int64_t n = 1;
    for (int a : group) n *= joined.sizes[static_cast<size_t>(a)];
    sizes.push_back(n);
  }
  const auto view_of = [&](const View& v) { return grouped_view(joined, v, axes, sizes); };
  DotKernel result;
  auto factor = [&](const View& v) {
    View w = v;
    w.sizes.clear();
    w.strides.clear();
    for (size_t i = 0; i < batch.size(); ++i) {
      w.sizes.push_back(sizes[i]);
      w.strides.push_back(v.strides[batch[i].first] * batch[i].second);
    }
    for (size_t d : {r - 2, r - 1}) {
      w.sizes.push_back(v.sizes[d]);
      w.strides.push_back(v.strides[d]);
    }
    return w;
  };
  result.a = factor(dot.a);
  result.b = factor(dot.b);
  const std::optional<View> written = view_of(joined.outputs[0].view);
  if (!written) return std::nullopt;
  result.out = *written;
  for (size_t i = 0; i < joined.inputs.size(); ++i) {
    if (i == after->accumulator) continue;
    const std::optional<View> v = view_of(joined.inputs[i].view);
    if (!v || !runs_alike(*v, result.out)) return std::nullopt;
    result.extra.push_back(*v);
  }
  result.epilogue = std::move(after->exprs);
  return result;
}

bool fuse_one(Flow& flow, int n) {
  FlowNode& node = flow.node(n);
  const std::optional<Product> product = product_of(node.kernel);
  if (!product || !isa::is_float(product->operands) || product->result->numel() == 0) return false;
  const int reader = flow.only_reader(node.writes[product->result_use], n);
  if (reader < 0 || !flow.node(reader).map) return false;
  const MapForm& map = *flow.node(reader).map;
  if (map.reduces() || map.outputs.size() != 1) return false;
  std::optional<Joined> joined = join_maps(flow, form_of_result(node, *product), reader, false);
  if (!joined || !joined->keeps_first) return false;
  const auto* dot = std::get_if<DotKernel>(&node.kernel);
  std::optional<Kernel> fused =
      dot ? with_epilogue(*dot, joined->form)
          : with_epilogue(std::get<ConvKernel>(node.kernel), *product->result, joined->form);
  if (!fused) return false;
  // The factors must not lie where the result goes.
  const Product after = *product_of(*fused);
  const std::vector<Use> uses = uses_of(*fused);
  const size_t end_extra = after.first_extra + after.extra->size();
  const auto is_extra = [&](size_t k) { return k >= after.first_extra && k < end_extra; };
  for (size_t k = 0; k < uses.size(); ++k) {
    if (k == after.result_use || is_extra(k)) continue;
    if (flow.memory_of(uses[k].view->buffer) == flow.memory_of(after.result->buffer) &&
        meet(*uses[k].view, *after.result) != Meeting::kDisjoint)
      return false;
  }
  if (!flow.adjacent(n, reader)) return false;

  FlowNode& target = flow.node(reader);
  const size_t behind = product->first_extra + product->extra->size();  // what follows the extra operands
  target.reads = {node.reads.begin(), node.reads.begin() + static_cast<long>(product->first_extra)};
  for (const auto& i : joined->form.inputs) {
    if (i.view.buffer == kAccumulatorBuffer) continue;
    target.reads.push_back(i.values());
  }
  target.reads.insert(target.reads.end(), node.reads.begin() + static_cast<long>(behind), node.reads.end());
  target.writes.assign(target.reads.size(), -1);
  target.writes[after.result_use] = joined->form.outputs[0].value;
  target.location = joined_location(node.location, target.location);
  target.kernel = std::move(*fused);
  target.map.reset();
  flow.absorb(n, reader);
  return true;
}

}  // namespace

void fuse_epilogues(Flow& flow) {
  const std::vector<int> order = flow.order();
  for (int n : order) {
    while (n >= 0 && flow.node(n).alive && !flow.node(n).map && fuse_one(flow, n)) n = flow.find(n);
  }
}

}  // namespace trnsim::compiler::fusion
