#include "device_plugin/compiler/fusion/map_form.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "device_plugin/compiler/lower.h"

namespace trnsim::compiler::fusion {
namespace {

bool same_expr(const Expr& a, const Expr& b) {
  return a.op == b.op && a.dtype == b.dtype && a.cast_to == b.cast_to && a.a == b.a && a.b == b.b &&
         a.c == b.c && a.index == b.index && a.value == b.value &&
         std::signbit(a.value) == std::signbit(b.value) && a.reduce == b.reduce;
}

void for_each_view(MapForm& form, const std::function<void(View&)>& fn) {
  for (auto& i : form.inputs) fn(i.view);
  for (auto& o : form.outputs) fn(o.view);
}

void drop_axis(MapForm& form, size_t axis) {
  const auto at = static_cast<std::ptrdiff_t>(axis);
  form.sizes.erase(form.sizes.begin() + at);
  form.reduced.erase(form.reduced.begin() + at);
  for_each_view(form, [&](View& v) { v.strides.erase(v.strides.begin() + at); });
  for (Expr& e : form.exprs) {  // the only index of the axis is 0
    if (e.op != ExprOp::kIota) continue;
    if (e.index == static_cast<int32_t>(axis)) {
      e.op = ExprOp::kConst;
      e.index = 0;
      e.value = 0;
    } else if (e.index > static_cast<int32_t>(axis)) {
      --e.index;
    }
  }
}

// A reduction needs one reduced axis, even of size 1.
void drop_single_axes(MapForm& form) {
  size_t reduced = static_cast<size_t>(std::count(form.reduced.begin(), form.reduced.end(), true));
  for (size_t axis = form.rank(); axis-- > 0;) {
    if (form.sizes[axis] != 1) continue;
    if (form.reduced[axis] && --reduced == 0) {
      reduced = 1;
      continue;
    }
    drop_axis(form, axis);
  }
}

bool has_iota(const MapForm& form, size_t axis) {
  return std::any_of(form.exprs.begin(), form.exprs.end(), [&](const Expr& e) {
    return e.op == ExprOp::kIota && e.index == static_cast<int32_t>(axis);
  });
}

void reorder(MapForm& form, const std::vector<size_t>& order) {
  MapForm old = form;
  std::vector<int32_t> position(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    form.sizes[i] = old.sizes[order[i]];
    form.reduced[i] = old.reduced[order[i]];
    position[order[i]] = static_cast<int32_t>(i);
  }
  for_each_view(form, [&](View& v) {
    const std::vector<int64_t> strides = v.strides;
    for (size_t i = 0; i < order.size(); ++i) v.strides[i] = strides[order[i]];
  });
  for (Expr& e : form.exprs) {
    if (e.op == ExprOp::kIota) e.index = position[static_cast<size_t>(e.index)];
  }
}

void merge_neighbours(MapForm& form) {
  for (size_t axis = form.rank(); axis-- > 1;) {
    const size_t outer = axis - 1;
    if (form.reduced[outer] != form.reduced[axis] || has_iota(form, outer) || has_iota(form, axis)) continue;
    bool one_run = true;
    for_each_view(
        form, [&](View& v) { one_run = one_run && v.strides[outer] == v.strides[axis] * form.sizes[axis]; });
    if (!one_run) continue;
    form.sizes[outer] *= form.sizes[axis];
    for_each_view(form, [&](View& v) { v.strides[outer] = v.strides[axis]; });
    form.sizes.erase(form.sizes.begin() + static_cast<std::ptrdiff_t>(axis));
    form.reduced.erase(form.reduced.begin() + static_cast<std::ptrdiff_t>(axis));
    for_each_view(form,
                  [&](View& v) { v.strides.erase(v.strides.begin() + static_cast<std::ptrdiff_t>(axis)); });
    for (Expr& e : form.exprs) {
      if (e.op == ExprOp::kIota && e.index > static_cast<int32_t>(axis)) --e.index;
    }
  }
}

}  // namespace

bool MapForm::reduces() const { return std::find(reduced.begin(), reduced.end(), true) != reduced.end(); }

int64_t MapForm::elements() const {
  int64_t n = 1;
  for (int64_t s : sizes) n *= s;
  return n;
}

int64_t MapForm::row_length() const {
  int64_t n = 1;
  for (size_t d = 0; d < rank(); ++d) n *= reduced[d] ? sizes[d] : 1;
  return n;
}

void MapForm::split(size_t axis, int64_t inner) {
  const auto at = static_cast<std::ptrdiff_t>(axis);
  sizes[axis] /= inner;
  sizes.insert(sizes.begin() + at + 1, inner);
  const bool role = reduced[axis];
  reduced.insert(reduced.begin() + at + 1, role);
  for_each_view(*this, [&](View& v) {
    const int64_t step = v.strides[axis];
    v.strides[axis] = step * inner;
    v.strides.insert(v.strides.begin() + at + 1, step);
  });
  // index = outer index * inner + inner index
  std::vector<Expr> old = std::move(exprs);
  exprs.clear();
  std::vector<int32_t> renamed;
  auto push = [&](Expr e) {
    exprs.push_back(e);
    return static_cast<int32_t>(exprs.size() - 1);
  };
  for (Expr e : old) {
    for (int32_t* o : {&e.a, &e.b, &e.c}) {
      if (*o >= 0) *o = renamed[static_cast<size_t>(*o)];
    }
    if (e.op != ExprOp::kIota || e.index < static_cast<int32_t>(axis)) {
      renamed.push_back(push(e));
      continue;
    }
    if (e.index > static_cast<int32_t>(axis)) {
      ++e.index;
      renamed.push_back(push(e));
      continue;
    }
    const int32_t outer_index = push(e);
    Expr count;
    count.dtype = e.dtype;
    count.value = static_cast<double>(inner);
    Expr scaled;
    scaled.op = ExprOp::kMul;
    scaled.dtype = e.dtype;
    scaled.a = outer_index;
    scaled.b = push(count);
    const int32_t high = push(scaled);
    Expr low = e;
    ++low.index;
    Expr sum;
    sum.op = ExprOp::kAdd;
    sum.dtype = e.dtype;
    sum.a = high;
    sum.b = push(low);
    renamed.push_back(push(sum));
  }
  for (Output& o : outputs) o.expr = renamed[static_cast<size_t>(o.expr)];
}

std::optional<MapForm> form_of(const MapKernel& kernel) {
  MapForm form;
  form.sizes = kernel.domain;
  for (int64_t s : kernel.domain) {
    if (s == 0) return std::nullopt;
  }
  const bool reduces = std::any_of(kernel.exprs.begin(), kernel.exprs.end(),
                                   [](const Expr& e) { return e.op == ExprOp::kReduce; });
  const size_t kept = static_cast<size_t>(kernel.num_kept);
  for (size_t d = 0; d < kernel.domain.size(); ++d) form.reduced.push_back(d >= kept);
  if (!reduces && kept != kernel.domain.size()) return std::nullopt;
  form.exprs = kernel.exprs;
  for (const View& v : kernel.inputs) form.inputs.push_back({v, -1, {}});
  for (const auto& o : kernel.outputs) {
    const bool row = o.view.sizes.size() != kernel.domain.size();
    View v = o.view;
    v.strides.resize(kernel.domain.size(), 0);
    form.outputs.push_back({v, o.expr, row, -1});
    // what the store converts is a node of its own everywhere else
    if (form.exprs[static_cast<size_t>(o.expr)].dtype != compute_dtype(o.view.dtype)) return std::nullopt;
  }
  drop_single_axes(form);
  return form;
}

std::optional<MapForm> form_of(const MoveKernel& kernel) {
  if (kernel.dst.numel() == 0) return std::nullopt;
  MapForm form;
  form.sizes = kernel.dst.sizes;
  form.reduced.assign(form.sizes.size(), false);
  form.inputs.push_back({kernel.src, -1, {}});
  Expr in;
  in.op = ExprOp::kInput;
  in.dtype = compute_dtype(kernel.src.dtype);
  form.exprs.push_back(in);
  if (kernel.src.dtype != kernel.dst.dtype) {
    const Dtype to = compute_dtype(kernel.dst.dtype);
    if (to != in.dtype || (to != Dtype::kF32 && isa::dtype_bytes(kernel.dst.dtype) < 4)) {
      Expr cast;
      cast.op = ExprOp::kCast;
      cast.dtype = to;
      cast.cast_to = kernel.dst.dtype;
      cast.a = 0;
      form.exprs.push_back(cast);
    }
  }
  form.outputs.push_back({kernel.dst, static_cast<int32_t>(form.exprs.size() - 1), false, -1});
  drop_single_axes(form);
  return form;
}

bool is_copy(const MapForm& form) {
  return form.inputs.size() == 1 && form.outputs.size() == 1 && !form.reduces() &&
         form.exprs[static_cast<size_t>(form.outputs[0].expr)].op == ExprOp::kInput &&
         form.inputs[0].view.dtype == form.outputs[0].view.dtype;
}

void prune(MapForm& form) {
  std::vector<bool> live(form.exprs.size(), false);
  for (const auto& o : form.outputs) live[static_cast<size_t>(o.expr)] = true;
  for (size_t i = form.exprs.size(); i-- > 0;) {
    if (!live[i]) continue;
    for (int32_t o : {form.exprs[i].a, form.exprs[i].b, form.exprs[i].c}) {
      if (o >= 0) live[static_cast<size_t>(o)] = true;
    }
  }
  std::vector<int32_t> input_at(form.inputs.size(), -1), expr_at(form.exprs.size(), -1);
  std::vector<MapForm::Input> inputs;
  std::vector<Expr> exprs;
  for (size_t i = 0; i < form.exprs.size(); ++i) {
    if (!live[i]) continue;
    Expr e = form.exprs[i];
    for (int32_t* o : {&e.a, &e.b, &e.c}) {
      if (*o >= 0) *o = expr_at[static_cast<size_t>(*o)];
    }
    if (e.op == ExprOp::kInput) {
      int32_t& at = input_at[static_cast<size_t>(e.index)];
      if (at < 0) {
        at = static_cast<int32_t>(inputs.size());
        inputs.push_back(form.inputs[static_cast<size_t>(e.index)]);
      }
      e.index = at;
    }
    expr_at[i] = static_cast<int32_t>(exprs.size());
    exprs.push_back(e);
  }
  for (auto& o : form.outputs) o.expr = expr_at[static_cast<size_t>(o.expr)];
  form.inputs = std::move(inputs);
  form.exprs = std::move(exprs);
  const bool reduces = std::any_of(form.exprs.begin(), form.exprs.end(),
                                   [](const Expr& e) { return e.op == ExprOp::kReduce; });
  const bool rows =
      std::any_of(form.outputs.begin(), form.outputs.end(), [](const auto& o) { return o.row; });
  if (!reduces && !rows) form.reduced.assign(form.rank(), false);
}

MapKernel kernel_of(const MapForm& original) {
  MapForm form = original;
  prune(form);
  drop_single_axes(form);
  std::vector<size_t> order;
  for (bool role : {false, true}) {
    for (size_t d = 0; d < form.rank(); ++d) {
      if (form.reduced[d] == role) order.push_back(d);
    }
  }
  reorder(form, order);
  merge_neighbours(form);
  MapKernel kernel;
  kernel.domain = form.sizes;
  kernel.num_kept = static_cast<int32_t>(std::count(form.reduced.begin(), form.reduced.end(), false));
  for (auto& i : form.inputs) {
    i.view.sizes = form.sizes;
    kernel.inputs.push_back(std::move(i.view));
  }
  kernel.exprs = std::move(form.exprs);
  for (auto& o : form.outputs) {
    o.view.sizes = form.sizes;
    if (o.row) {
      o.view.sizes.resize(static_cast<size_t>(kernel.num_kept));
      o.view.strides.resize(static_cast<size_t>(kernel.num_kept));
    }
    kernel.outputs.push_back({std::move(o.view), o.expr});
  }
  return kernel;
}

ExprMerger::ExprMerger(std::vector<Expr>& into) : into_(into), table_(256) {
  for (size_t i = 0; i < into.size(); ++i)
    table_[hash(into[i]) % table_.size()].push_back(static_cast<int32_t>(i));
}

size_t ExprMerger::hash(const Expr& e) {
  size_t h = static_cast<size_t>(e.op);
  auto mix = [&](size_t v) { h = h * 1000003u ^ v; };
  mix(static_cast<size_t>(e.dtype));
  mix(static_cast<size_t>(e.cast_to));
  for (int32_t v : {e.a, e.b, e.c, e.index}) mix(static_cast<size_t>(v));
  mix(std::hash<double>{}(e.value));
  return h;
}

int32_t ExprMerger::add(const Expr& e) {
  std::vector<int32_t>& bucket = table_[hash(e) % table_.size()];
  for (int32_t i : bucket) {
    if (same_expr(into_[static_cast<size_t>(i)], e)) return i;
  }
  into_.push_back(e);
  bucket.push_back(static_cast<int32_t>(into_.size() - 1));
  return bucket.back();
}

int32_t rounded(ExprMerger& merger, const std::vector<Expr>& exprs, const std::vector<MapForm::Input>& inputs,
                int32_t expr, Dtype dtype) {
  const Expr e = exprs[static_cast<size_t>(expr)];
  if (isa::dtype_bytes(dtype) >= 4 || dtype == Dtype::kBool) return expr;
  if (e.op == ExprOp::kCast && e.cast_to == dtype) return expr;
  if (e.op == ExprOp::kInput && static_cast<size_t>(e.index) < inputs.size() &&
      inputs[static_cast<size_t>(e.index)].view.dtype == dtype)
    return expr;
  Expr cast;
  cast.op = ExprOp::kCast;
  cast.dtype = e.dtype;
  cast.cast_to = dtype;
  cast.a = expr;
  return merger.add(cast);
}

}  // namespace trnsim::compiler::fusion
