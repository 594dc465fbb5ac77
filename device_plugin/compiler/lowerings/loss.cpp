// Losses over classes, and the check of the gradient scaler.
#include <limits>

#include "device_plugin/compiler/lowerings/pointwise.h"

namespace trnsim::compiler {
namespace {

// nll_loss: one map over [N, C, s..]; the class axis is compared with the target instead of gathered, so
// forward and backward are one kernel each. Axis 0 is missing when the input is a single sample.
struct ClassLoss {
  ClassLoss(LowerContext& c, const View& shape, int target_arg, int weight_arg, int64_t ignore, Reduction& r,
            MapBuilder& m)
      : axis(shape.sizes.size() == 1 ? 0 : 1) {
    size_t rank = shape.sizes.size();
    View target = c.in(target_arg);
    if (rank == 1 && target.sizes.size() == 1) target = view_selected(target, 0, 0);
    Ex t = m.input(r.full(view_unsqueezed(target, axis)));
    int position = 0;  // of the class axis in the permuted domain
    while (r.order[static_cast<size_t>(position)] != axis) ++position;
    hit = m.iota(position) == t && t != static_cast<double>(ignore);
    weight = m.constant(1);
    if (!c.is_none(weight_arg)) {
      View w = c.in(weight_arg);
      while (w.sizes.size() < rank - static_cast<size_t>(axis)) {
        w = view_unsqueezed(w, static_cast<int>(w.sizes.size()));
      }
      weight = m.cast(m.input(r.full(w)), Dtype::kF32);
    }
  }
  int axis;
  Ex hit, weight;
};

// The program stops on a target that is no class: the largest one above the classes, or the smallest below 0.
void check_target(LowerContext& c, const View& target, int64_t classes, int64_t ignore) {
  if (view_empty(target)) return;
  const View row = c.scratch(Dtype::kI32, {});
  MapBuilder m(c, target.sizes, 0);
  Ex t = m.input(target), zero = m.constant(0, Dtype::kI32);
  Ex counts = t != static_cast<double>(ignore);
  Ex above =
      m.select(t >= static_cast<double>(classes) && counts, t - static_cast<double>(classes - 1), zero);
  Ex below = m.select(t < 0.0 && counts, t, zero);
  Ex high = m.reduce(ReduceOp::kMax, above), low = m.reduce(ReduceOp::kMin, below);
  m.row_output(row, m.select(high > 0.0, high, low));
  m.emit();
  c.emit(CheckKernel{row, {"IndexError: Target {} is out of bounds."}, classes});
}

// (self, target, weight, reduction, ignore_index) -> (output, total_weight)
void lower_nll_loss(LowerContext& c) {
  View x = c.in(0);
  check_target(c, c.in(1), x.sizes[x.sizes.size() == 1 ? 0 : 1], c.int_arg(4));
  int64_t reduction = c.int_arg(3);
  bool rows = reduction == 0;
  std::vector<int64_t> dims;
  if (rows) dims.push_back(x.sizes.size() == 1 ? 0 : 1);
  Reduction r(x.sizes, dims);  // no dims: all of them
  MapBuilder m(c, r.domain, r.num_kept);
  ClassLoss l(c, x, 1, 2, c.int_arg(4), r, m);
  Ex v = m.cast(m.input(r.full(x)), Dtype::kF32);
  Ex zero = m.constant(0);
  Ex sum = m.reduce(ReduceOp::kSum, m.select(l.hit, -(v * l.weight), zero));
  if (rows) {
    m.row_output(c.out(0), sum);
    m.emit();
    if (c.wanted(1) && c.out_type(1).numel() > 0) c.fill(c.out(1), 0);
    return;
  }
  Ex total = m.reduce(ReduceOp::kSum, m.select(l.hit, l.weight, zero));
  m.row_output(c.out(0), reduction == 1 ? sum / total : sum);
  if (c.wanted(1)) m.row_output(c.out(1), total);
  m.emit();
}

// (grad_output, self, target, weight, reduction, ignore_index, total_weight)
void lower_nll_loss_backward(LowerContext& c) {
  View out = c.out(0);
  if (view_empty(out)) return;
  int64_t reduction = c.int_arg(4);
  Reduction r(out.sizes, {}, false);  // reduces nothing
  MapBuilder m(c, out.sizes);
  ClassLoss l(c, out, 2, 3, c.int_arg(5), r, m);
  View grad = c.in(0);
  if (reduction == 0) grad = view_unsqueezed(grad, l.axis);
  Ex g = -(m.cast(m.input(grad), Dtype::kF32) * l.weight);
  if (reduction == 1) g = g / m.cast(m.operand(6), Dtype::kF32);
  m.output(out, m.select(l.hit, g, m.constant(0)));
  m.emit();
}

// The check of the gradient scaler.
// (self [tensors], found_inf, inv_scale) -> (tensors.., found_inf)
void lower_unscale(LowerContext& c) {
  std::vector<View> tensors = c.in_list(0);
  int last = static_cast<int>(tensors.size());
  std::vector<View> flags;
  for (int i = 0; i < last; ++i) {
    View x = tensors[static_cast<size_t>(i)];
    View flag = c.scratch(Dtype::kF32, {});
    flags.push_back(flag);
    MapBuilder f(c, x.sizes, 0);  // before the in-place update below
    Ex bad =
        !(f.unary(ExprOp::kAbs, f.cast(f.input(x), Dtype::kF32)) < std::numeric_limits<double>::infinity());
    f.row_output(flag, f.cast(f.reduce(ReduceOp::kAny, bad), Dtype::kF32));
    f.emit();
    View scale = c.in(2);
    if (!view_empty(x)) {
      MapBuilder m(c, x.sizes);
      m.output(c.out(i), m.input(x) * m.input(*view_reshaped(scale, {})));
      m.emit();
    }
  }
  View found = c.out(last);
  MapBuilder m(c, found.sizes);
  Ex any = m.operand(1);
  for (const View& f : flags) any = m.binary(ExprOp::kMax, any, m.input(f));
  m.output(found, any);
  m.emit();
}

TRNSIM_LOWER(std::vector<LowerRow>{
    {"aten::nll_loss_forward", lower_nll_loss},
    {"aten::nll_loss_backward", lower_nll_loss_backward},
    {"aten::nll_loss2d_forward", lower_nll_loss},
    {"aten::nll_loss2d_backward", lower_nll_loss_backward},
    {"aten::_amp_foreach_non_finite_check_and_unscale", lower_unscale},
});

}  // namespace
}  // namespace trnsim::compiler
