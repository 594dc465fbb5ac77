// Data movement without arithmetic: copies, concatenation, padding, flips, and gradients of views.
#include <algorithm>
#include <numeric>

#include "device_plugin/compiler/cost.h"
#include "device_plugin/compiler/lower.h"

namespace trnsim::compiler {
namespace {

int dim_arg(LowerContext& c, int arg, const View& v) {
  return static_cast<int>(wrap_dim(c.int_arg(arg), static_cast<int64_t>(v.sizes.size())));
}

void lower_copy(LowerContext& c) {  // (self, src, non_blocking): self is not read
  if (!c.is_tensor(1)) {            // a scalar from the host
    View out = c.out(0);
    MapBuilder m(c, out.sizes);
    m.output(out, m.operand(1));
    m.emit();
    return;
  }
  c.copy(c.out(0), c.in(1));
}

void lower_copy_of_first(LowerContext& c) { c.copy(c.out(0), c.in(0)); }

// Any view_copy whose result has the same elements in row-major order.
void lower_reshape_copy(LowerContext& c) {
  View x = c.in(0), out = c.out(0);
  if (auto v = view_reshaped(x, out.sizes)) return c.copy(out, *v);
  if (auto v = view_reshaped(out, x.sizes)) return c.copy(*v, x);
  View s = c.scratch(x.dtype, x.sizes);
  c.copy(s, x);
  c.copy(out, *view_reshaped(s, out.sizes));
}

// Pieces of `out` along axis `d`, one after the other. Where they would be short runs in memory they lie one behind the
// other first, in scratch, and are moved to their places together: a move can write runs that hold all of them.
void place_pieces(LowerContext& c, View out, int d, std::vector<View> pieces) {
  constexpr int64_t kSmallBytes = 8192;
  const Dtype type = out.dtype;
  if (isa::dtype_bytes(type) == 1 &&
      std::all_of(pieces.begin(), pieces.end(), [&](const View& v) { return v.dtype == type; })) {
    out.dtype = Dtype::kU8;  // bits: chips move types that they do not compute with
    for (View& v : pieces) v.dtype = Dtype::kU8;
  }
  const auto axis = static_cast<size_t>(d);
  int64_t unit = 0, inner = static_cast<int64_t>(isa::dtype_bytes(out.dtype));
  for (const View& v : pieces) unit = std::gcd(unit, v.sizes.at(axis));
  for (size_t a = axis + 1; a < out.sizes.size(); ++a) inner *= out.sizes[a];
  const int64_t run = out.sizes[axis] * inner, count = static_cast<int64_t>(pieces.size());
  const bool interleave = count > 1 && unit > 0 && run / count * 2 <= kFullRunBytes &&
                          out.numel() * static_cast<int64_t>(isa::dtype_bytes(out.dtype)) > kSmallBytes;
  if (interleave) {  // [units, ..., elements of a unit, ...]
    std::vector<int> order{d};
    for (int a = 0; a <= static_cast<int>(out.sizes.size()); ++a)
      if (a != d) order.push_back(a);
    const auto in_units = [&](const View& v) { return view_permuted(view_split_dim(v, d, unit), order); };
    const View all = in_units(out);
    const View scratch = c.scratch(out.dtype, all.sizes);
    int64_t at = 0;
    for (const View& v : pieces) {
      const View units = in_units(v);
      c.copy(view_sliced(scratch, 0, at, units.sizes[0]), units);
      at += units.sizes[0];
    }
    c.copy(all, scratch);
    return;
  }
  int64_t at = 0;
  for (const View& v : pieces) {
    c.copy(view_sliced(out, d, at, v.sizes[axis]), v);
    at += v.sizes[axis];
  }
}

void lower_cat(LowerContext& c) {  // (tensors, dim)
  const View out = c.out(0);
  std::vector<View> pieces;
  for (const View& v : c.in_list(0))
    if (v.sizes.size() != 1 || v.sizes[0] != 0) pieces.push_back(v);  // not the legacy empty tensor
  place_pieces(c, out, dim_arg(c, 1, out), pieces);
}

void lower_stack(LowerContext& c) {
  const View out = c.out(0);
  const int d = dim_arg(c, 1, out);
  std::vector<View> pieces;
  for (const View& v : c.in_list(0)) pieces.push_back(view_unsqueezed(v, d));
  place_pieces(c, out, d, pieces);
}

void lower_repeat(LowerContext& c) {  // (self, repeats)
  View x = c.in(0), out = c.out(0);
  if (view_empty(out)) return;
  while (x.sizes.size() < out.sizes.size()) x = view_unsqueezed(x, 0);
  // out axis [r * n] seen as [r, n]; the source repeats with stride 0
  View src = x, dst = out;
  for (int d = static_cast<int>(out.sizes.size()) - 1; d >= 0; --d) {
    size_t i = static_cast<size_t>(d);
    dst = view_split_dim(dst, d, x.sizes[i]);
    src = view_unsqueezed(src, d, out.sizes[i] / x.sizes[i]);
  }
  // axes of size 1 on both sides would only add rank
  View s = src, t = dst;
  s.sizes.clear(), s.strides.clear(), t.sizes.clear(), t.strides.clear();
  for (size_t i = 0; i < dst.sizes.size(); ++i) {
    if (dst.sizes[i] == 1) continue;
    s.sizes.push_back(src.sizes[i]);
    s.strides.push_back(src.strides[i]);
    t.sizes.push_back(dst.sizes[i]);
    t.strides.push_back(dst.strides[i]);
  }
  c.copy(t, s);
}

void lower_flip(LowerContext& c) {  // (self, dims)
  View v = c.in_unaliased(0);
  for (int64_t d : c.ints(1)) {
    int w = static_cast<int>(wrap_dim(d, static_cast<int64_t>(v.sizes.size())));
    if (!v.sizes.empty()) v = view_flipped(v, w);
  }
  c.copy(c.out(0), v);
}

void copy_rolled(LowerContext& c, const View& dst, const View& src, const std::vector<int64_t>& shift,
                 size_t d) {
  while (d < shift.size() && shift[d] == 0) ++d;
  if (d == shift.size()) return c.copy(dst, src);
  int axis = static_cast<int>(d);
  int64_t n = src.sizes[d], s = shift[d];
  copy_rolled(c, view_sliced(dst, axis, s, n - s), view_sliced(src, axis, 0, n - s), shift, d + 1);
  copy_rolled(c, view_sliced(dst, axis, 0, s), view_sliced(src, axis, n - s, s), shift, d + 1);
}

void lower_roll(LowerContext& c) {  // (self, shifts, dims)
  View x = c.in_unaliased(0), out = c.out(0);
  if (view_empty(out)) return;
  std::vector<int64_t> shifts = c.ints(1), dims = c.ints(2);
  if (dims.empty()) {  // rolls the flattened tensor
    View flat = c.scratch(x.dtype, {x.numel()}), rolled = c.scratch(x.dtype, {x.numel()});
    c.copy(*view_reshaped(flat, x.sizes), x);
    int64_t n = x.numel();
    copy_rolled(c, rolled, flat, {((shifts.at(0) % n) + n) % n}, 0);
    return c.copy(out, *view_reshaped(rolled, out.sizes));
  }
  std::vector<int64_t> shift(x.sizes.size(), 0);
  for (size_t i = 0; i < dims.size(); ++i) {
    size_t d = static_cast<size_t>(wrap_dim(dims[i], static_cast<int64_t>(x.sizes.size())));
    int64_t n = x.sizes[d];
    shift[d] = (((shift[d] + shifts.at(i)) % n) + n) % n;
  }
  copy_rolled(c, out, x, shift, 0);
}

// Row index >= column index - diagonal is kept (tril); upper swaps the comparison. Everything else is 0.
template <bool lower>
void lower_triangle(LowerContext& c) {  // (self, diagonal)
  View out = c.out(0);
  int rank = static_cast<int>(out.sizes.size());
  MapBuilder m(c, out.sizes);
  Ex x = m.operand(0);
  Ex row = m.iota(rank - 2) + static_cast<double>(c.int_arg(1)), column = m.iota(rank - 1);
  m.output(out, m.select(lower ? column <= row : column >= row, x, m.constant(0, x.dtype)));
  m.emit();
}

// Pad widths in PyTorch's order: last axis first, (before, after); negative widths crop.
struct Pads {
  std::vector<int64_t> before, after;
  Pads(const std::vector<int64_t>& pad, size_t rank) : before(rank, 0), after(rank, 0) {
    for (size_t i = 0; i + 1 < pad.size(); i += 2) {
      before[rank - 1 - i / 2] = pad[i];
      after[rank - 1 - i / 2] = pad[i + 1];
    }
  }
};

void lower_constant_pad(LowerContext& c) {  // (self, pad, value)
  View x = c.in(0), out = c.out(0);
  if (view_empty(out)) return;
  Pads pads(c.ints(1), x.sizes.size());
  View inner = out;
  bool covers = true;
  for (size_t d = 0; d < x.sizes.size(); ++d) {
    int axis = static_cast<int>(d);
    int64_t crop_before = std::max<int64_t>(-pads.before[d], 0),
            crop_after = std::max<int64_t>(-pads.after[d], 0);
    int64_t n = std::max<int64_t>(x.sizes[d] - crop_before - crop_after, 0);
    x = view_sliced(x, axis, crop_before, n);
    inner = view_sliced(inner, axis, std::max<int64_t>(pads.before[d], 0), n);
    covers = covers && n == out.sizes[d];
  }
  if (!covers) {
    MapBuilder m(c, out.sizes);
    m.output(out, m.cast(m.operand(2), compute_dtype(out.dtype)));
    m.emit();
  }
  c.copy(inner, x);
}

// Reflection and replication: one axis after another, each from the already padded outer axes.
enum class Border { kReflect, kReplicate };

void pad_axis(LowerContext& c, const View& out, const View& src, int axis, int64_t before, int64_t after,
              Border border) {
  size_t d = static_cast<size_t>(axis);
  int64_t n = src.sizes[d];
  int64_t crop_before = std::max<int64_t>(-before, 0), crop_after = std::max<int64_t>(-after, 0);
  before = std::max<int64_t>(before, 0);
  after = std::max<int64_t>(after, 0);
  c.copy(view_sliced(out, axis, before, n - crop_before - crop_after),
         view_sliced(src, axis, crop_before, n - crop_before - crop_after));
  auto edge = [&](int64_t at, int64_t count, int64_t source, int64_t step) {
    if (count <= 0) return;
    View s = view_sliced(src, axis, source, count);
    s.strides[d] = src.strides[d] * step;
    c.copy(view_sliced(out, axis, at, count), s);
  };
  bool reflect = border == Border::kReflect;
  edge(0, before, reflect ? before : 0, reflect ? -1 : 0);
  edge(before + n - crop_before - crop_after, after, reflect ? n - 2 : n - 1, reflect ? -1 : 0);
}

template <Border border>
void lower_border_pad(LowerContext& c) {  // (self, padding)
  View x = c.in(0), out = c.out(0);
  if (view_empty(out)) return;
  Pads pads(c.ints(1), x.sizes.size());
  std::vector<int> axes;
  for (size_t d = 0; d < x.sizes.size(); ++d) {
    if (pads.before[d] || pads.after[d]) axes.push_back(static_cast<int>(d));
  }
  if (axes.empty()) return c.copy(out, x);
  for (size_t i = 0; i < axes.size(); ++i) {
    size_t d = static_cast<size_t>(axes[i]);
    std::vector<int64_t> sizes = x.sizes;
    sizes[d] = out.sizes[d];
    View next = i + 1 == axes.size() ? out : c.scratch(x.dtype, sizes);
    pad_axis(c, next, x, axes[i], pads.before[d], pads.after[d], border);
    x = next;
  }
}

// Adds the gradient of the padding to the elements that it repeats; `axis` shrinks from `g` to `out`.
void unpad_axis(LowerContext& c, const View& out, const View& g, int axis, int64_t before, int64_t after,
                Border border) {
  size_t d = static_cast<size_t>(axis);
  int64_t n = out.sizes[d];
  int64_t crop_before = std::max<int64_t>(-before, 0), crop_after = std::max<int64_t>(-after, 0);
  before = std::max<int64_t>(before, 0);
  after = std::max<int64_t>(after, 0);
  if (crop_before || crop_after) c.fill(out, 0);
  int64_t inner = n - crop_before - crop_after;
  c.copy(view_sliced(out, axis, crop_before, inner), view_sliced(g, axis, before, inner));
  auto add = [&](View target, const View& part) {
    if (view_empty(target)) return;
    MapBuilder m(c, target.sizes);
    m.output(target, m.input(target) + m.input(part));
    m.emit();
  };
  auto edge = [&](int64_t at, int64_t count, int64_t target) {
    View part = view_sliced(g, axis, at, count);
    if (border == Border::kReflect) {  // mirrored: no element is met twice
      View t = view_sliced(out, axis, target, count);
      t.strides[d] = -t.strides[d];
      return add(t, part);
    }
    // One element is repeated `count` times: it takes their sum.
    std::vector<int> order;
    for (int a = 0; a < static_cast<int>(part.sizes.size()); ++a)
      if (a != axis) order.push_back(a);
    order.push_back(axis);
    const View repeats = view_permuted(part, order), row = view_selected(out, axis, target);
    if (view_empty(row)) return;
    MapBuilder m(c, repeats.sizes, static_cast<int>(order.size()) - 1);
    m.row_output(row, m.row_input(row) + m.reduce(ReduceOp::kSum, m.input(repeats)));
    m.emit();
  };
  bool reflect = border == Border::kReflect;
  if (before > 0) edge(0, before, reflect ? before : 0);
  if (after > 0) edge(before + inner, after, reflect ? n - 2 : n - 1);
}

template <Border border>
void lower_border_pad_backward(LowerContext& c) {  // (grad, self, padding)
  View g = c.in(0), out = c.out(0);
  if (view_empty(out)) return;
  if (view_empty(g)) return c.fill(out, 0);
  Pads pads(c.ints(2), out.sizes.size());
  // FP32 between the axes, so that sums round once.
  View sum = c.scratch(compute_dtype(g.dtype), g.sizes);
  c.copy(sum, g);
  for (size_t d = 0; d < out.sizes.size(); ++d) {
    if (!pads.before[d] && !pads.after[d]) continue;
    std::vector<int64_t> sizes = sum.sizes;
    sizes[d] = out.sizes[d];
    View next = c.scratch(sum.dtype, sizes);
    unpad_axis(c, next, sum, static_cast<int>(d), pads.before[d], pads.after[d], border);
    sum = next;
  }
  c.copy(out, sum);
}

// Channels [g, n] become [n, g].
void lower_channel_shuffle(LowerContext& c) {  // (self, groups)
  View x = c.in_unaliased(0), out = c.out(0);
  if (view_empty(out)) return;
  int64_t groups = c.int_arg(1), each = x.sizes[1] / groups;
  View src = view_split_dim(x, 1, each), dst = view_split_dim(out, 1, groups);
  std::swap(src.sizes[1], src.sizes[2]);
  std::swap(src.strides[1], src.strides[2]);
  c.copy(dst, src);
}

// ---- writing into a view
// ----------------------------------------------------------------------------------------

// out = self with the window replaced by src
void scatter_window(LowerContext& c, const View& window) {
  if (!c.aliases(0)) c.copy(c.out(0), c.in(0));
  c.copy(window, c.in(1));
}

struct SliceRange {
  int64_t start, length, step;
};
SliceRange slice_range(LowerContext& c, int start_arg, int64_t n) {
  int64_t start = c.int_or(start_arg, 0), end = c.int_or(start_arg + 1, n), step = c.int_or(start_arg + 2, 1);
  if (start < 0) start += n;
  if (end < 0) end += n;
  start = std::clamp<int64_t>(start, 0, n);
  end = std::clamp<int64_t>(end, start, n);
  return {start, (end - start + step - 1) / step, step};
}

void lower_slice_scatter(LowerContext& c) {  // (self, src, dim, start, end, step)
  View out = c.out(0);
  int d = dim_arg(c, 2, out);
  SliceRange r = slice_range(c, 3, out.sizes[static_cast<size_t>(d)]);
  scatter_window(c, view_sliced(out, d, r.start, r.length, r.step));
}

int64_t wrap_index(int64_t i, int64_t n) { return i < 0 ? i + n : i; }

void lower_select_scatter(LowerContext& c) {  // (self, src, dim, index)
  View out = c.out(0);
  int d = dim_arg(c, 2, out);
  scatter_window(c, view_selected(out, d, wrap_index(c.int_arg(3), out.sizes[static_cast<size_t>(d)])));
}

View diagonal_of(LowerContext& c, View v, int offset_arg) {  // (offset, dim1, dim2)
  int a = dim_arg(c, offset_arg + 1, v), b = dim_arg(c, offset_arg + 2, v);
  int64_t offset = c.int_arg(offset_arg);
  std::vector<int> order;
  for (int d = 0; d < static_cast<int>(v.sizes.size()); ++d) {
    if (d != a && d != b) order.push_back(d);
  }
  order.push_back(a);
  order.push_back(b);
  v = view_permuted(v, order);
  int row = static_cast<int>(order.size()) - 2;
  int axis = offset >= 0 ? row + 1 : row;
  int64_t skip = std::min(std::abs(offset), v.sizes[static_cast<size_t>(axis)]);
  return view_diagonal(view_sliced(v, axis, skip, v.sizes[static_cast<size_t>(axis)] - skip));
}

void lower_diagonal_scatter(LowerContext& c) { scatter_window(c, diagonal_of(c, c.out(0), 2)); }
void lower_diagonal_copy(LowerContext& c) { c.copy(c.out(0), diagonal_of(c, c.in(0), 1)); }

void lower_diagonal_backward(LowerContext& c) {  // (grad, input_sizes, offset, dim1, dim2)
  c.fill(c.out(0), 0);
  c.copy(diagonal_of(c, c.out(0), 2), c.in(0));
}

void lower_slice_backward(LowerContext& c) {  // (grad, input_sizes, dim, start, end, step)
  View out = c.out(0);
  int d = dim_arg(c, 2, out);
  SliceRange r = slice_range(c, 3, out.sizes[static_cast<size_t>(d)]);
  if (r.length != out.sizes[static_cast<size_t>(d)]) c.fill(out, 0);
  c.copy(view_sliced(out, d, r.start, r.length, r.step), c.in(0));
}

void lower_select_backward(LowerContext& c) {  // (grad, input_sizes, dim, index)
  View out = c.out(0);
  int d = dim_arg(c, 2, out);
  if (out.sizes[static_cast<size_t>(d)] != 1) c.fill(out, 0);
  c.copy(view_selected(out, d, wrap_index(c.int_arg(3), out.sizes[static_cast<size_t>(d)])), c.in(0));
}

// Window element j of window i came from i * step + j; windows may overlap, so their gradients add up.
void lower_unfold_backward(LowerContext& c) {  // (grad, input_sizes, dim, size, step)
  View g = c.in(0), out = view_at_least_1d(c.out(0));
  if (g.sizes.size() == out.sizes.size()) g = view_unsqueezed(g, 0);  // of a tensor without axes
  int d = dim_arg(c, 2, out);
  int64_t size = c.int_arg(3), step = c.int_arg(4);
  if (view_empty(out)) return;
  c.fill(out, 0);
  if (view_empty(g)) return;
  int last = static_cast<int>(g.sizes.size()) - 1;
  for (int64_t j = 0; j < size; ++j) {
    View target = view_sliced(out, d, j, g.sizes[static_cast<size_t>(d)], step);
    View part = view_selected(g, last, j);
    MapBuilder m(c, target.sizes);
    m.output(target, m.input(target) + m.input(part));
    m.emit();
  }
}

void lower_slice_copy(LowerContext& c) {  // (self, dim, start, end, step)
  View x = c.in(0);
  int d = dim_arg(c, 1, x);
  SliceRange r = slice_range(c, 2, x.sizes[static_cast<size_t>(d)]);
  c.copy(c.out(0), view_sliced(x, d, r.start, r.length, r.step));
}

void lower_permute_copy(LowerContext& c) {  // (self, dims)
  View x = c.in(0);
  std::vector<int> order;
  for (int64_t d : c.ints(1))
    order.push_back(static_cast<int>(wrap_dim(d, static_cast<int64_t>(x.sizes.size()))));
  c.copy(c.out(0), view_permuted(x, order));
}

void lower_transpose_copy(LowerContext& c) {  // (self, dim0, dim1)
  View x = c.in(0);
  if (x.sizes.empty()) return c.copy(c.out(0), x);
  int a = dim_arg(c, 1, x), b = dim_arg(c, 2, x);
  std::swap(x.sizes[static_cast<size_t>(a)], x.sizes[static_cast<size_t>(b)]);
  std::swap(x.strides[static_cast<size_t>(a)], x.strides[static_cast<size_t>(b)]);
  c.copy(c.out(0), x);
}

void lower_split_copy(LowerContext& c) {  // (self, split_sizes, dim), one result per piece
  View x = c.in(0);
  int d = dim_arg(c, 2, x);
  int64_t at = 0;
  for (int i = 0; i < c.num_results(); ++i) {
    int64_t n = c.out_type(i).sizes[static_cast<size_t>(d)];
    c.copy(c.out(i), view_sliced(x, d, at, n));
    at += n;
  }
}

// [.., C * r * r, H, W] <-> [.., C, H * r, W * r]
template <bool shuffle>
void lower_pixel_shuffle(LowerContext& c) {
  int64_t r = c.int_arg(1);
  View wide = shuffle ? c.out(0) : c.in(0), deep = shuffle ? c.in(0) : c.out(0);
  if (view_empty(wide)) return;
  int rank = static_cast<int>(wide.sizes.size());
  int ch = rank - 3;
  View w = view_split_dim(view_split_dim(wide, rank - 1, r), rank - 2, r);  // .., C, H, r, W, r
  View p = view_split_dim(view_split_dim(deep, ch, r), ch, r);              // .., C, r, r, H, W
  std::vector<int> order;
  for (int d = 0; d <= ch; ++d) order.push_back(d);
  for (int d : {ch + 3, ch + 1, ch + 4, ch + 2}) order.push_back(d);
  p = view_permuted(p, order);
  if (shuffle)
    c.copy(w, p);
  else
    c.copy(p, w);
}

// im2col(self, kernel_size, dilation, padding, stride): one strided copy per kernel element.
void lower_im2col(LowerContext& c) {
  View x = c.in(0), out = c.out(0);
  std::vector<int64_t> k = c.ints(1, 2), dilation = c.ints(2, 2), pad = c.ints(3, 2), stride = c.ints(4, 2);
  if (x.sizes.size() == 3) {
    x = view_unsqueezed(x, 0);
    out = view_unsqueezed(out, 0);
  }
  int64_t h = x.sizes[2], w = x.sizes[3];
  if (pad[0] || pad[1]) {
    View p = c.scratch(x.dtype, {x.sizes[0], x.sizes[1], h + 2 * pad[0], w + 2 * pad[1]});
    c.fill(p, 0);
    c.copy(view_sliced(view_sliced(p, 2, pad[0], h), 3, pad[1], w), x);
    x = p;
  }
  int64_t oh = (x.sizes[2] - dilation[0] * (k[0] - 1) - 1) / stride[0] + 1;
  int64_t ow = (x.sizes[3] - dilation[1] * (k[1] - 1) - 1) / stride[1] + 1;
  View o = view_split_dim(view_split_dim(out, 2, ow), 1, k[0] * k[1]);  // N, C, k*k, OH, OW
  for (int64_t i = 0; i < k[0]; ++i) {
    for (int64_t j = 0; j < k[1]; ++j) {
      View s =
          view_sliced(view_sliced(x, 2, i * dilation[0], oh, stride[0]), 3, j * dilation[1], ow, stride[1]);
      c.copy(view_selected(o, 2, i * k[1] + j), s);
    }
  }
}

// col2im(self, output_size, kernel_size, dilation, padding, stride): the sum of the overlapping patches
void lower_col2im(LowerContext& c) {
  View x = c.in(0), out = c.out(0);
  std::vector<int64_t> k = c.ints(2, 2), dilation = c.ints(3, 2), pad = c.ints(4, 2), stride = c.ints(5, 2);
  if (x.sizes.size() == 2) {
    x = view_unsqueezed(x, 0);
    out = view_unsqueezed(out, 0);
  }
  int64_t h = out.sizes[2] + 2 * pad[0], w = out.sizes[3] + 2 * pad[1];
  int64_t oh = (h - dilation[0] * (k[0] - 1) - 1) / stride[0] + 1;
  int64_t ow = (w - dilation[1] * (k[1] - 1) - 1) / stride[1] + 1;
  View sum = c.scratch(Dtype::kF32, {out.sizes[0], out.sizes[1], h, w});
  c.fill(sum, 0);
  View p = view_split_dim(view_split_dim(x, 2, ow), 1, k[0] * k[1]);
  for (int64_t i = 0; i < k[0]; ++i) {
    for (int64_t j = 0; j < k[1]; ++j) {
      View t =
          view_sliced(view_sliced(sum, 2, i * dilation[0], oh, stride[0]), 3, j * dilation[1], ow, stride[1]);
      MapBuilder m(c, t.sizes);
      m.output(t, m.input(t) + m.input(view_selected(p, 2, i * k[1] + j)));
      m.emit();
    }
  }
  c.copy(out, view_sliced(view_sliced(sum, 2, pad[0], out.sizes[2]), 3, pad[1], out.sizes[3]));
}

TRNSIM_LOWER(std::vector<LowerRow>{
    {"aten::copy", lower_copy},
    {"aten::contiguous", lower_copy_of_first},
    {"aten::expand_copy", lower_copy_of_first},
    {"aten::view_copy", lower_reshape_copy},
    {"aten::_reshape_copy", lower_reshape_copy},
    {"aten::unsqueeze_copy", lower_reshape_copy},
    {"aten::squeeze_copy", lower_reshape_copy},
    {"aten::squeeze_copy.dim", lower_reshape_copy},
    {"aten::slice_copy.Tensor", lower_slice_copy},
    {"aten::permute_copy", lower_permute_copy},
    {"aten::transpose_copy.int", lower_transpose_copy},
    {"aten::diagonal_copy", lower_diagonal_copy},
    {"aten::split_with_sizes_copy", lower_split_copy},
    {"aten::cat", lower_cat},
    {"aten::stack", lower_stack},
    {"aten::repeat", lower_repeat},
    {"aten::flip", lower_flip},
    {"aten::roll", lower_roll},
    {"aten::tril", lower_triangle<true>},
    {"aten::triu", lower_triangle<false>},
    {"aten::constant_pad_nd", lower_constant_pad},
    {"aten::reflection_pad1d", lower_border_pad<Border::kReflect>},
    {"aten::reflection_pad2d", lower_border_pad<Border::kReflect>},
    {"aten::reflection_pad3d", lower_border_pad<Border::kReflect>},
    {"aten::replication_pad1d", lower_border_pad<Border::kReplicate>},
    {"aten::replication_pad2d", lower_border_pad<Border::kReplicate>},
    {"aten::replication_pad3d", lower_border_pad<Border::kReplicate>},
    {"aten::reflection_pad1d_backward", lower_border_pad_backward<Border::kReflect>},
    {"aten::reflection_pad2d_backward", lower_border_pad_backward<Border::kReflect>},
    {"aten::reflection_pad3d_backward", lower_border_pad_backward<Border::kReflect>},
    {"aten::replication_pad1d_backward", lower_border_pad_backward<Border::kReplicate>},
    {"aten::replication_pad2d_backward", lower_border_pad_backward<Border::kReplicate>},
    {"aten::replication_pad3d_backward", lower_border_pad_backward<Border::kReplicate>},
    {"aten::slice_scatter", lower_slice_scatter},
    {"aten::select_scatter", lower_select_scatter},
    {"aten::diagonal_scatter", lower_diagonal_scatter},
    {"aten::diagonal_backward", lower_diagonal_backward},
    {"aten::slice_backward", lower_slice_backward},
    {"aten::select_backward", lower_select_backward},
    {"aten::unfold_backward", lower_unfold_backward},
    {"aten::pixel_shuffle", lower_pixel_shuffle<true>},
    {"aten::pixel_unshuffle", lower_pixel_shuffle<false>},
    {"aten::channel_shuffle", lower_channel_shuffle},
    {"aten::native_channel_shuffle", lower_channel_shuffle},
    {"aten::im2col", lower_im2col},
    {"aten::col2im", lower_col2im},
});

}  // namespace
}  // namespace trnsim::compiler
