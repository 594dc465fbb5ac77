// Maps behind a matrix product into its epilogue: bias, activation, residual, scale, cast, quantisation.
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

MapForm form_of_result(const FlowNode& node) {
  const DotKernel& dot = std::get<DotKernel>(node.kernel);
  MapForm f;
  f.sizes = dot.out.sizes;
  f.reduced.assign(f.sizes.size(), false);
  View accumulator;
  accumulator.buffer = kAccumulatorBuffer;
  accumulator.sizes = f.sizes;
  accumulator.strides = row_major(f.sizes);
  f.inputs.push_back({accumulator, -1, {}});
  for (size_t i = 0; i < dot.extra.size(); ++i) {
    const std::vector<int>& values = node.reads[2 + i];  // after both factors
    f.inputs.push_back({dot.extra[i], values.front(), {values.begin() + 1, values.end()}});
  }
  f.exprs = dot.epilogue;
  if (f.exprs.empty()) {
    Expr e;
    e.op = ExprOp::kInput;
    f.exprs.push_back(e);
  }
  f.outputs.push_back({dot.out, static_cast<int32_t>(f.exprs.size() - 1), false, node.writes.back()});
  return f;
}

// The only kernel that reads the product.
int only_reader(Flow& flow, int dot) {
  const FlowValue& v = flow.value(flow.node(dot).writes.back());
  if (v.escapes) return -1;
  int reader = -1;
  for (int r : v.readers) {
    const int n = flow.find(r);
    if (n == dot || n == reader || !flow.node(n).alive) continue;
    if (reader >= 0) return -1;
    reader = n;
  }
  return reader;
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

std::optional<DotKernel> with_epilogue(const DotKernel& dot, const MapForm& joined) {
  size_t accumulator = 0;
  while (accumulator < joined.inputs.size() && joined.inputs[accumulator].view.buffer != kAccumulatorBuffer)
    ++accumulator;
  if (accumulator == joined.inputs.size() || joined.outputs.size() != 1) return std::nullopt;
  Groups groups;
  if (!group_axes(joined, joined.inputs[accumulator].view, dot.out.sizes, groups)) return std::nullopt;
  const size_t r = dot.out.sizes.size();
  // Batch axes one by one, then rows and columns.
  Groups axes;
  std::vector<std::pair<size_t, int64_t>> batch;  // axis of the product, elements of it per step
  for (size_t d = 0; d + 2 < r; ++d) {
    int64_t step = dot.out.sizes[d];
    for (int a : groups[d]) {
      step /= joined.sizes[static_cast<size_t>(a)];
      axes.push_back({a});
      batch.emplace_back(d, step);
    }
  }
  axes.push_back(groups[r - 2]);
  axes.push_back(groups[r - 1]);
  std::vector<int64_t> sizes;
  for (const auto& group : axes) {
    int64_t n = 1;
    for (int a : group) n *= joined.sizes[static_cast<size_t>(a)];
    sizes.push_back(n);
  }
  bool legal = true;
  auto view_of = [&](const View& v) {
    View w = v;
    w.sizes = sizes;
    w.strides.clear();
    for (const auto& group : axes) {
      const std::optional<int64_t> step = merged_stride(joined, v, group);
      legal = legal && step;
      w.strides.push_back(step.value_or(0));
    }
    return w;
  };
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
  result.out = view_of(joined.outputs[0].view);
  std::vector<int32_t> index(joined.inputs.size(), 0);
  for (size_t i = 0; i < joined.inputs.size(); ++i) {
    if (i == accumulator) continue;
    result.extra.push_back(view_of(joined.inputs[i].view));
    index[i] = static_cast<int32_t>(result.extra.size());
    legal = legal && runs_alike(result.extra.back(), result.out);
  }
  result.epilogue = joined.exprs;
  for (Expr& e : result.epilogue) {
    legal = legal && e.op != ExprOp::kIota && e.op != ExprOp::kReduce;
    if (e.op == ExprOp::kInput) e.index = index[static_cast<size_t>(e.index)];
  }
  if (!legal || joined.outputs[0].expr + 1 != static_cast<int32_t>(joined.exprs.size())) return std::nullopt;
  return result;
}

bool fuse_one(Flow& flow, int n) {
  const int reader = only_reader(flow, n);
  if (reader < 0 || !flow.node(reader).map) return false;
  const FlowNode& node = flow.node(n);
  const DotKernel& dot = std::get<DotKernel>(node.kernel);
  const MapForm& map = *flow.node(reader).map;
  if (!isa::is_float(dot.a.dtype) || map.reduces() || map.outputs.size() != 1 || dot.out.numel() == 0)
    return false;
  std::optional<Joined> joined = join_maps(flow, form_of_result(node), reader, false);
  if (!joined || !joined->keeps_first) return false;
  std::optional<DotKernel> fused = with_epilogue(dot, joined->form);
  if (!fused) return false;
  for (const View* factor : {&fused->a, &fused->b}) {
    if (flow.memory_of(factor->buffer) == flow.memory_of(fused->out.buffer) &&
        meet(*factor, fused->out) != Meeting::kDisjoint)
      return false;
  }
  if (!flow.adjacent(n, reader)) return false;

  FlowNode& target = flow.node(reader);
  target.reads = {node.reads[0], node.reads[1]};
  for (const auto& i : joined->form.inputs) {
    if (i.view.buffer == kAccumulatorBuffer) continue;
    target.reads.push_back({i.value});
    target.reads.back().insert(target.reads.back().end(), i.others.begin(), i.others.end());
  }
  target.reads.emplace_back();
  target.writes.assign(target.reads.size(), -1);
  target.writes.back() = joined->form.outputs[0].value;
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
    while (n >= 0 && flow.node(n).alive && !flow.node(n).map &&
           std::holds_alternative<DotKernel>(flow.node(n).kernel) && fuse_one(flow, n)) {
      n = flow.find(n);
    }
  }
}

}  // namespace trnsim::compiler::fusion
