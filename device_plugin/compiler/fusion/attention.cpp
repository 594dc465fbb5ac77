// A product, a softmax over its rows, and a product with the probabilities become one attention kernel, whose scores never
// leave the chip.
//
// Legal when nobody else reads the scores or the probabilities (a training graph that keeps them for the gradient stays as
// it is), both are FP32 in the graph (narrower ones were rounded in between, and stay), the softmax is PyTorch's (rows of
// -inf give NaN) or the safe one (they give 0), and what the kernel reads is not written over later. Between the scores and the softmax there may be a factor and a mask that is
// added; a mask made of index values alone that is 0 up to a diagonal and -inf beyond becomes a band. Factors and casts in
// front of query, key and value go into the scale and into the loads. Taken from kMinScores scores on: below, a group of
// small products is as fast.
#include <algorithm>
#include <cmath>

#include "device_plugin/compiler/fusion/align.h"
#include "device_plugin/compiler/fusion/band.h"
#include "device_plugin/compiler/fusion/join.h"
#include "device_plugin/compiler/fusion/passes.h"
#include "device_plugin/compiler/fusion/views.h"

namespace trnsim::compiler::fusion {
namespace {

constexpr int64_t kMinScores = 64 * 64;  // per head
constexpr int64_t kMaxHeadSize = 128;

// ---- the softmax of a map's rows
bool is_op(const MapForm& f, int32_t e, ExprOp op) {
  return e >= 0 && f.exprs[static_cast<size_t>(e)].op == op;
}
const Expr& at(const MapForm& f, int32_t e) { return f.exprs[static_cast<size_t>(e)]; }
bool is_number(const MapForm& f, int32_t e, double v) {
  return is_op(f, e, ExprOp::kConst) && at(f, e).value == v;
}

// `e`, or select(top == -inf, instead, e): `bare` is e without the guard.
bool guarded(const MapForm& f, int32_t e, int32_t top, double instead, int32_t& bare) {
  bare = e;
  if (!is_op(f, e, ExprOp::kSelect)) return false;
  const Expr& s = at(f, e);
  const bool blind =
      is_op(f, s.a, ExprOp::kEq) && at(f, s.a).a == top && is_number(f, at(f, s.a).b, -HUGE_VAL);
  if (!blind || !is_number(f, s.b, instead)) return false;
  bare = s.c;
  return true;
}

enum class Softmax : uint8_t { kNone, kPlain, kSafe };
Softmax softmax_of(const MapForm& f) {
  if (f.inputs.size() != 1 || f.outputs.size() != 1 || f.outputs[0].row || !f.reduces())
    return Softmax::kNone;
  const int32_t out = f.outputs[0].expr;
  // exp(x - max) times the inverse of its sum, or divided by it.
  const bool divides = is_op(f, out, ExprOp::kDiv);
  if (!divides && (!is_op(f, out, ExprOp::kMul) || !is_op(f, at(f, out).b, ExprOp::kReciprocal)))
    return Softmax::kNone;
  const int32_t e = at(f, out).a, row_sum = divides ? at(f, out).b : at(f, at(f, out).b).a;
  if (!is_op(f, e, ExprOp::kExp) || !is_op(f, at(f, e).a, ExprOp::kSub)) return Softmax::kNone;
  const Expr& shifted = at(f, at(f, e).a);
  int32_t top = -1;
  for (size_t i = 0; i < f.exprs.size(); ++i) {
    const Expr& r = f.exprs[i];
    if (r.op == ExprOp::kReduce && r.reduce == ReduceOp::kMax && r.a == shifted.a)
      top = static_cast<int32_t>(i);
  }
  if (!is_op(f, shifted.a, ExprOp::kInput) || top < 0) return Softmax::kNone;
  int32_t subtracted, sum;
  const bool safe = guarded(f, shifted.b, top, 0, subtracted);
  const bool safe_sum = guarded(f, row_sum, top, 1, sum);
  const bool right = subtracted == top && is_op(f, sum, ExprOp::kReduce) &&
                     at(f, sum).reduce == ReduceOp::kSum && at(f, sum).a == e && safe == safe_sum;
  return !right ? Softmax::kNone : safe ? Softmax::kSafe : Softmax::kPlain;
}

// ---- operands
struct Operand {
  View view;
  std::vector<int> values;
  double factor = 1;
};

// A cast to FP32, a factor, or both, of one tensor.
bool scales(const MapForm& f, double& factor) {
  if (f.inputs.size() != 1 || f.outputs.size() != 1 || f.reduces() || f.outputs[0].view.dtype != Dtype::kF32)
    return false;
  factor = 1;
  int32_t e = f.outputs[0].expr;
  while (!is_op(f, e, ExprOp::kInput)) {
    const Expr& x = at(f, e);
    if (x.op == ExprOp::kMul && is_op(f, x.b, ExprOp::kConst)) {
      factor *= at(f, x.b).value;
    } else if (x.op != ExprOp::kCast || x.cast_to != Dtype::kF32) {
      return false;
    }
    e = x.a;
  }
  return isa::is_float(f.inputs[0].view.dtype) && f.inputs[0].view.dtype != Dtype::kF64;
}

// What stands in front of an operand, taken into it.
Operand behind(Flow& flow, Operand o, bool allow_factor) {
  const int n = flow.only_writer(o.values);
  double factor = 1;
  if (n < 0 || !flow.node(n).map || !scales(*flow.node(n).map, factor) || (factor != 1 && !allow_factor))
    return o;
  const MapForm& f = *flow.node(n).map;
  const std::optional<View> seen = seen_through(f, o.view);
  if (!seen) return o;
  return {*seen, f.inputs[0].values(), o.factor * factor};
}

// Batch axes as [batch, heads]: `sizes` are those of the finer of the two products.
std::optional<View> as_heads(const View& v, const std::vector<int64_t>& batch) {
  const size_t have = v.sizes.size() - 2;
  View w = v;
  if (have == 1 && batch.size() == 2) {
    w.sizes.insert(w.sizes.begin(), batch[0]);
    w.sizes[1] = batch[1];
    w.strides.insert(w.strides.begin(), v.strides[0] * batch[1]);
  } else if (have != batch.size()) {
    return std::nullopt;
  }
  while (w.sizes.size() < 4) {
    w.sizes.insert(w.sizes.begin(), 1);
    w.strides.insert(w.strides.begin(), 0);
  }
  return w.sizes.size() == 4 ? std::optional<View>(w) : std::nullopt;
}

View transposed(View v) {
  const size_t r = v.sizes.size();
  std::swap(v.sizes[r - 1], v.sizes[r - 2]);
  std::swap(v.strides[r - 1], v.strides[r - 2]);
  return v;
}

bool same_layout(const View& a, const View& b) {
  if (a.sizes != b.sizes || a.buffer != b.buffer || a.offset != b.offset || a.dtype != b.dtype) return false;
  for (size_t d = 0; d < a.sizes.size(); ++d) {
    if (a.sizes[d] > 1 && a.strides[d] != b.strides[d]) return false;
  }
  return true;
}

// The epilogue of the scores: accumulator * factor + mask. `mask`: the input that is added, 0: none.
bool scores_of(const DotKernel& dot, double& factor, int& mask) {
  factor = 1;
  mask = 0;
  if (dot.epilogue.empty()) return true;
  int32_t e = static_cast<int32_t>(dot.epilogue.size()) - 1;
  auto expr = [&](int32_t i) -> const Expr& { return dot.epilogue[static_cast<size_t>(i)]; };
  if (expr(e).op == ExprOp::kAdd) {
    int32_t a = expr(e).a, b = expr(e).b;
    if (expr(a).op == ExprOp::kInput && expr(a).index > 0) std::swap(a, b);
    if (expr(b).op != ExprOp::kInput || expr(b).index == 0 || expr(b).dtype != Dtype::kF32) return false;
    mask = expr(b).index;
    e = a;
  }
  while (expr(e).op == ExprOp::kMul && expr(expr(e).b).op == ExprOp::kConst) {
    factor *= expr(expr(e).b).value;
    e = expr(e).a;
  }
  return expr(e).op == ExprOp::kInput && expr(e).index == 0;
}

// The keys a query sees, when the mask is made of index values.
bool causal_mask(Flow& flow, const View& mask, const std::vector<int>& values, int64_t& ahead) {
  const int n = flow.only_writer(values);
  if (n < 0 || !flow.node(n).map) return false;
  const MapForm& f = *flow.node(n).map;
  const size_t r = mask.sizes.size();
  for (size_t d = 0; d + 2 < r; ++d) {
    if (mask.sizes[d] > 1 && mask.strides[d] != 0) return false;
  }
  int row = -1, column = -1;
  for (size_t d = 0; d < f.rank() && f.outputs.size() == 1; ++d) {
    const int64_t step = f.outputs[0].view.strides[d];
    if (f.sizes[d] == mask.sizes[r - 2] && step == mask.strides[r - 2]) row = static_cast<int>(d);
    if (f.sizes[d] == mask.sizes[r - 1] && step == mask.strides[r - 1]) column = static_cast<int>(d);
  }
  if (row < 0 || column < 0 || row == column || f.outputs[0].view.offset != mask.offset) return false;
  const std::optional<Band> band = band_of(f, row, column);
  if (!band || band->low != 0 || band->high != -HUGE_VAL) return false;
  ahead = band->last;
  return true;
}

bool fuse(Flow& flow, int n) {
  const FlowNode& node = flow.node(n);
  const DotKernel& second = std::get<DotKernel>(node.kernel);
  // The result may be cast, no more.
  if (!second.extra.empty() || second.epilogue.size() > 1) return false;
  const int rows = flow.only_writer(node.reads[0]);
  if (rows < 0 || !flow.node(rows).map || flow.only_reader(node.reads[0][0]) != n) return false;
  const MapForm& map = *flow.node(rows).map;
  const Softmax kind = softmax_of(map);
  if (kind == Softmax::kNone || !map.inputs[0].others.empty()) return false;
  const std::vector<int> scores{map.inputs[0].value};
  const int product = flow.only_writer(scores);
  if (product < 0 || flow.node(product).map || flow.only_reader(scores[0]) != rows) return false;
  const FlowNode& first_node = flow.node(product);
  const auto* first = std::get_if<DotKernel>(&first_node.kernel);
  double factor;
  int mask;
  if (!first || first->out.dtype != Dtype::kF32 || second.a.dtype != Dtype::kF32 ||
      !scores_of(*first, factor, mask))
    return false;

  // The probabilities lie like the scores, rows of the softmax are rows of the product.
  const std::optional<View> seen = seen_through(map, second.a);
  const size_t r1 = first->out.sizes.size(), r2 = second.out.sizes.size();
  if (!seen || r1 < 3 || r2 < 3) return false;
  std::vector<int64_t> batch(first->out.sizes.begin(), first->out.sizes.end() - 2);
  if (r2 > r1) batch.assign(second.out.sizes.begin(), second.out.sizes.end() - 2);
  const std::optional<View> written = as_heads(first->out, batch), read = as_heads(*seen, batch);
  if (!written || !read || !same_layout(*written, *read)) return false;
  const int64_t keys = first->out.sizes[r1 - 1], queries = first->out.sizes[r1 - 2];
  if (map.row_length() != keys || queries * keys < kMinScores) return false;
  for (size_t d = 0; d < map.rank(); ++d) {
    const int64_t step = map.inputs[0].view.strides[d];
    if (map.reduced[d] && map.sizes[d] > 1 && (map.sizes[d] != keys || step != first->out.strides[r1 - 1]))
      return false;
  }

  // Query, key and value without what stands in front, all or none.
  Operand q{first->a, first_node.reads[0], 1}, k{transposed(first->b), first_node.reads[1], 1},
      v{second.b, node.reads[1], 1};
  const Operand q0 = behind(flow, q, true), k0 = behind(flow, k, true), v0 = behind(flow, v, false);
  if (q0.view.dtype == k0.view.dtype && k0.view.dtype == v0.view.dtype) {
    q = q0;
    k = k0;
    v = v0;
  } else if (q.view.dtype != k.view.dtype || k.view.dtype != v.view.dtype) {
    return false;
  }
  if (q.view.sizes.back() > kMaxHeadSize || v.view.sizes.back() > kMaxHeadSize) return false;

  AttentionKernel attention;
  const std::optional<View> q4 = as_heads(q.view, batch), k4 = as_heads(k.view, batch),
                            v4 = as_heads(v.view, batch), out4 = as_heads(second.out, batch);
  if (!q4 || !k4 || !v4 || !out4) return false;
  attention.q = *q4;
  attention.k = *k4;
  attention.v = *v4;
  attention.out = *out4;
  attention.scale = factor * q.factor * k.factor;
  std::vector<std::vector<int>> reads{q.values, k.values, v.values};
  if (mask > 0) {
    const View& m = first->extra[static_cast<size_t>(mask - 1)];
    const std::vector<int>& values = first_node.reads[1 + static_cast<size_t>(mask)];
    const bool causal = causal_mask(flow, m, values, attention.ahead);
    attention.blind_is_nan = kind == Softmax::kPlain;
    if (!causal) {
      const std::optional<View> m4 = as_heads(m, batch);
      if (!m4) return false;
      attention.mask = *m4;
      reads.push_back(values);
    }
  }
  for (const auto& values : reads) {
    for (int x : values) {
      if (flow.value(x).overwritten) return false;
    }
  }
  for (const View* x : {&attention.q, &attention.k, &attention.v}) {
    if (flow.memory_of(x->buffer) == flow.memory_of(attention.out.buffer)) return false;
  }

  FlowNode& target = flow.node(n);
  target.location =
      joined_location(joined_location(first_node.location, flow.node(rows).location), target.location);
  const std::vector<std::vector<int>> old = target.reads;
  const int result = target.writes.back();
  reads.emplace_back();
  target.kernel = std::move(attention);
  target.reads = reads;
  target.writes.assign(reads.size(), -1);
  target.writes.back() = result;
  for (const auto& values : reads) {
    for (int x : values) flow.add_reader(x, n);
  }
  flow.release(old[0][0], n);  // the softmax and the scores go with it
  for (int x : old[1]) {
    const bool still = std::any_of(reads.begin(), reads.end(), [&](const auto& values) {
      return std::find(values.begin(), values.end(), x) != values.end();
    });
    if (!still) flow.release(x, n);
  }
  return true;
}

}  // namespace

void recognise_attention(Flow& flow) {
  const std::vector<int> order = flow.order();
  for (int n : order) {
    if (n >= 0 && flow.node(n).alive && !flow.node(n).map &&
        std::holds_alternative<DotKernel>(flow.node(n).kernel))
      fuse(flow, n);
  }
}

}  // namespace trnsim::compiler::fusion
