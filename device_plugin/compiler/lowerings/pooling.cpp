// Pooling windows, adaptive pooling and interpolation. Adaptive average pools and interpolations are linear
// along each axis, so they run as products with a small constant matrix.
#include <algorithm>
#include <cmath>

#include "device_plugin/compiler/lowerings/linear.h"

namespace trnsim::compiler {
namespace {

struct PoolArgs {
  std::vector<int64_t> kernel, stride, padding, dilation;
};

PoolArgs pool_args(LowerContext& c, int first, size_t spatial, bool has_dilation) {
  PoolArgs a;
  a.kernel = c.ints(first, spatial);
  a.stride = c.ints(first + 1, spatial);
  if (a.stride.empty()) a.stride = a.kernel;
  a.padding = c.ints(first + 2, spatial);
  a.dilation = has_dilation ? c.ints(first + 3, spatial) : std::vector<int64_t>(spatial, 1);
  return a;
}

// (self, kernel_size, stride, padding, dilation, ceil_mode) -> (out, indices)
template <size_t spatial>
void lower_max_pool(LowerContext& c) {
  PoolArgs a = pool_args(c, 1, spatial, true);
  WindowKernel k;
  k.mode = WindowKernel::Mode::kMaxForward;
  k.input = c.in(0);
  k.out = c.out(0);
  if (c.wanted(1)) k.indices = c.out(1);
  k.kernel = a.kernel;
  k.stride = a.stride;
  k.padding = a.padding;
  k.dilation = a.dilation;
  if (!view_empty(k.out)) c.emit(std::move(k));
}

// (grad, self, kernel_size, stride, padding, dilation, ceil_mode, indices)
template <size_t spatial>
void lower_max_pool_backward(LowerContext& c) {
  PoolArgs a = pool_args(c, 2, spatial, true);
  WindowKernel k;
  k.mode = WindowKernel::Mode::kMaxBackward;
  k.out = c.in(0);
  k.input = c.out(0);
  k.indices = c.in(7);
  k.kernel = a.kernel;
  k.stride = a.stride;
  k.padding = a.padding;
  k.dilation = a.dilation;
  if (view_empty(k.input)) return;
  if (view_empty(k.out))
    c.fill(k.input, 0);
  else
    c.emit(std::move(k));
}

// `first` is the argument with the kernel size; then stride, padding, ceil_mode, count_include_pad,
// divisor_override
template <size_t spatial, bool backward>
void lower_avg_pool(LowerContext& c) {
  constexpr int first = backward ? 2 : 1;
  PoolArgs a = pool_args(c, first, spatial, false);
  WindowKernel k;
  k.mode = backward ? WindowKernel::Mode::kAvgBackward : WindowKernel::Mode::kAvgForward;
  k.input = backward ? c.out(0) : c.in(0);
  k.out = backward ? c.in(0) : c.out(0);
  k.kernel = a.kernel;
  k.stride = a.stride;
  k.padding = a.padding;
  k.dilation = a.dilation;
  k.count_include_pad = c.flag(first + 4);
  if (c.num_args() > first + 5) k.divisor = c.int_or(first + 5, 0);
  const View& written = backward ? k.input : k.out;
  if (view_empty(written)) return;
  if (backward && view_empty(k.out)) {
    c.fill(written, 0);
    return;
  }
  if (isa::is_float(written.dtype)) {
    c.emit(std::move(k));
    return;
  }
  // Integers divide towards zero. A quotient that is whole comes out one rounding short at most, which the factor
  // undoes; the next fraction below it is further away for every sum under 2^22.
  View x = c.scratch(Dtype::kF32, k.input.sizes), quotient = c.scratch(Dtype::kF32, k.out.sizes),
       result = k.out;
  c.copy(x, k.input);
  k.input = x;
  k.out = quotient;
  c.emit(std::move(k));
  MapBuilder m(c, result.sizes);
  m.output(result, m.unary(ExprOp::kTrunc, m.input(quotient) * (1 + 0x1p-22)));
  m.emit();
}

// ---- linear resampling: one matrix [out, in] per axis
// ------------------------------------------------------------

using Matrix = std::vector<float>;

Matrix transposed(const Matrix& m, int64_t rows, int64_t columns) {
  Matrix t(m.size());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c)
      t[static_cast<size_t>(c * rows + r)] = m[static_cast<size_t>(r * columns + c)];
  }
  return t;
}

float& at(Matrix& m, int64_t columns, int64_t r, int64_t c) {
  return m[static_cast<size_t>(r * columns + c)];
}

// Mean over [floor(o * in / out), ceil((o + 1) * in / out)).
Matrix adaptive_matrix(int64_t in, int64_t out) {
  Matrix m(static_cast<size_t>(in * out));
  for (int64_t o = 0; o < out; ++o) {
    int64_t begin = o * in / out, end = ((o + 1) * in + out - 1) / out;
    for (int64_t i = begin; i < end; ++i) at(m, in, o, i) = 1.0f / static_cast<float>(end - begin);
  }
  return m;
}

enum class Mode { kNearest, kNearestExact, kLinear, kCubic };

float cubic_weight(double x) {
  const double a = -0.75;
  x = std::abs(x);
  if (x <= 1) return static_cast<float>(((a + 2) * x - (a + 3)) * x * x + 1);
  if (x < 2) return static_cast<float>(((a * x - 5 * a) * x + 8 * a) * x - 4 * a);
  return 0;
}

// `scale` (output / input) given by the user replaces the ratio of the sizes unless corners are aligned.
Matrix interpolation_matrix(int64_t in, int64_t out, Mode mode, bool align_corners,
                            std::optional<double> scale) {
  Matrix m(static_cast<size_t>(in * out));
  // FP32 as in PyTorch, so that nearest picks the same sample
  float step = scale && *scale > 0 ? static_cast<float>(1.0 / *scale)
                                   : static_cast<float>(in) / static_cast<float>(out);
  if (align_corners && mode != Mode::kNearest && mode != Mode::kNearestExact) {
    step = out > 1 ? static_cast<float>(in - 1) / static_cast<float>(out - 1) : 0.0f;
  }
  for (int64_t o = 0; o < out; ++o) {
    float of = static_cast<float>(o);
    if (mode == Mode::kNearest || mode == Mode::kNearestExact) {
      float position = mode == Mode::kNearest ? of * step : (of + 0.5f) * step;
      at(m, in, o, std::min(static_cast<int64_t>(std::floor(position)), in - 1)) = 1;
      continue;
    }
    float x = align_corners ? of * step : (of + 0.5f) * step - 0.5f;
    if (mode == Mode::kLinear) {
      x = std::max(x, 0.0f);
      int64_t i = std::min(static_cast<int64_t>(x), in - 1);
      float t = std::min(x - static_cast<float>(i), 1.0f);
      at(m, in, o, i) += 1 - t;
      at(m, in, o, std::min(i + 1, in - 1)) += t;
    } else {
      int64_t i = static_cast<int64_t>(std::floor(x));
      double t = static_cast<double>(x) - static_cast<double>(i);
      for (int64_t tap = -1; tap <= 2; ++tap) {
        at(m, in, o, std::clamp<int64_t>(i + tap, 0, in - 1)) += cubic_weight(t - static_cast<double>(tap));
      }
    }
  }
  return m;
}

// Antialiased: the filter is as wide as the step when the image shrinks, and its weights sum to 1.
Matrix antialias_matrix(int64_t in, int64_t out, Mode mode, bool align_corners, std::optional<double> scale) {
  Matrix m(static_cast<size_t>(in * out));
  double step = align_corners ? (out > 1 ? static_cast<double>(in - 1) / static_cast<double>(out - 1) : 0.0)
                : scale && *scale > 0 ? 1.0 / *scale
                                      : static_cast<double>(in) / static_cast<double>(out);
  const double radius = mode == Mode::kCubic ? 2 : 1;
  double support = step >= 1 ? radius * step : radius, inverse = step >= 1 ? 1.0 / step : 1.0;
  auto filter = [&](double x) {
    x = std::abs(x);
    if (mode == Mode::kLinear) return std::max(1.0 - x, 0.0);
    const double a = -0.5;
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0.0;
  };
  for (int64_t o = 0; o < out; ++o) {
    double center = step * (static_cast<double>(o) + 0.5);
    int64_t begin = std::max<int64_t>(static_cast<int64_t>(center - support + 0.5), 0);
    int64_t end = std::min<int64_t>(static_cast<int64_t>(center + support + 0.5), in);
    double total = 0;
    for (int64_t i = begin; i < end; ++i) total += filter((static_cast<double>(i) - center + 0.5) * inverse);
    for (int64_t i = begin; i < end && total != 0; ++i) {
      double w = filter((static_cast<double>(i) - center + 0.5) * inverse);
      at(m, in, o, i) = static_cast<float>(w / total);
    }
  }
  return m;
}

// Weights as PyTorch's byte images have them: 16-bit fixed point of the finest step that holds the largest one. It
// decides which way a tie rounds; FP32 holds the weights and their sums exactly.
Matrix fixed_point(Matrix m) {
  float largest = 0;
  for (float w : m) largest = std::max(largest, w);
  int bits = 0;
  while (bits < 22 && std::floor(0.5 + std::ldexp(largest, bits + 1)) < 32768) ++bits;
  for (float& w : m)
    w = static_cast<float>(std::ldexp(std::trunc(std::ldexp(w, bits) + (w < 0 ? -0.5 : 0.5)), -bits));
  return m;
}

// Applies one matrix per trailing axis; `matrices[i]` belongs to axis rank - n + i.
void resample(LowerContext& c, View x, const View& out, const std::vector<Matrix>& matrices) {
  if (view_empty(out)) return;
  if (view_empty(x)) {
    c.fill(out, 0);
    return;
  }
  int rank = static_cast<int>(x.sizes.size()), n = static_cast<int>(matrices.size());
  for (int i = n - 1; i >= 0; --i) {  // innermost first
    int axis = rank - n + i;
    std::vector<int64_t> sizes = x.sizes;
    sizes[static_cast<size_t>(axis)] = out.sizes[static_cast<size_t>(axis)];
    bool rounds = out.dtype == Dtype::kU8;
    View next = i == 0 && !rounds ? out : c.scratch(Dtype::kF32, sizes);
    const Matrix& weights = matrices[static_cast<size_t>(i)];
    emit_resample(c, x, next, axis, rounds ? fixed_point(weights) : weights);
    if (rounds) {  // images: every pass gives the nearest byte, as on the CPU
      MapBuilder m(c, sizes);
      View bytes = i == 0 ? out : c.scratch(Dtype::kF32, sizes);
      Ex nearest = m.unary(ExprOp::kFloor, m.input(next) + 0.5);
      m.output(bytes,
               m.binary(ExprOp::kMin, m.binary(ExprOp::kMax, nearest, m.constant(0)), m.constant(255)));
      m.emit();
      next = bytes;
    }
    x = next;
  }
}

template <size_t spatial>
void lower_adaptive_avg_pool(LowerContext& c) {
  View x = c.in(0), out = c.out(0);
  std::vector<Matrix> matrices;
  for (size_t d = x.sizes.size() - spatial; d < x.sizes.size(); ++d) {
    matrices.push_back(adaptive_matrix(x.sizes[d], out.sizes[d]));
  }
  resample(c, x, out, matrices);
}

template <size_t spatial>
void lower_adaptive_avg_pool_backward(LowerContext& c) {  // (grad, self)
  View g = c.in(0), out = c.out(0);
  std::vector<Matrix> matrices;
  for (size_t d = g.sizes.size() - spatial; d < g.sizes.size(); ++d) {
    matrices.push_back(transposed(adaptive_matrix(out.sizes[d], g.sizes[d]), g.sizes[d], out.sizes[d]));
  }
  resample(c, g, out, matrices);
}

// How often every sample is repeated, per axis; nothing where it is not the same for all. [out, in] per axis.
std::optional<std::vector<int64_t>> repeats_of(const std::vector<Matrix>& matrices, const View& small,
                                               const View& large) {
  std::vector<int64_t> repeats;
  for (size_t i = 0; i < matrices.size(); ++i) {
    const size_t d = small.sizes.size() - matrices.size() + i;
    const int64_t in = small.sizes[d], out = large.sizes[d];
    if (in == 0 || out % in != 0) return std::nullopt;
    repeats.push_back(out / in);
    for (int64_t o = 0; o < out; ++o)
      if (matrices[i][static_cast<size_t>(o * in + o * in / out)] != 1) return std::nullopt;
  }
  return repeats;
}

// Repeated samples are a copy, and their gradients the sums of those of the copies.
void repeat_samples(LowerContext& c, View small, View large, const std::vector<int64_t>& repeats,
                    bool backward) {
  const View result = small;
  std::vector<int> order, copies;
  for (size_t i = repeats.size(); i-- > 0;) {
    const int d = static_cast<int>(result.sizes.size() - repeats.size() + i);
    large = view_split_dim(large, d, repeats[i]);
    small = view_unsqueezed(small, d + 1, repeats[i]);
  }
  if (!backward) return c.copy(large, small);
  const size_t outer = result.sizes.size() - repeats.size();
  for (size_t d = 0; d < large.sizes.size(); ++d)
    (d > outer && (d - outer) % 2 == 1 ? copies : order).push_back(static_cast<int>(d));
  order.insert(order.end(), copies.begin(), copies.end());
  large = view_permuted(large, order);
  MapBuilder m(c, large.sizes, static_cast<int>(result.sizes.size()));
  m.row_output(result, m.reduce(ReduceOp::kSum, m.cast(m.input(large), Dtype::kF32)));
  m.emit();
}

// (self, output_size, [align_corners,] scales..)  and  (grad, output_size, input_size, [align_corners,]
// scales..)
template <size_t spatial, Mode mode, bool backward, bool antialias = false>
void lower_upsample(LowerContext& c) {
  constexpr bool has_corners = mode == Mode::kLinear || mode == Mode::kCubic;
  View x = c.in(0), out = c.out(0);
  int next = backward ? 3 : 2;
  bool corners = has_corners && c.flag(next);
  if (has_corners) ++next;
  const View& small = backward ? out : x;
  const View& large = backward ? x : out;
  std::vector<Matrix> matrices;
  for (size_t i = 0; i < spatial; ++i) {
    size_t d = small.sizes.size() - spatial + i;
    int scale_arg = next + static_cast<int>(i);
    std::optional<double> scale;
    if (scale_arg < c.num_args() && !c.is_none(scale_arg)) scale = c.constant_or_refuse(scale_arg, "scale");
    Matrix m = antialias ? antialias_matrix(small.sizes[d], large.sizes[d], mode, corners, scale)
                         : interpolation_matrix(small.sizes[d], large.sizes[d], mode, corners, scale);
    matrices.push_back(std::move(m));
  }
  if (mode == Mode::kNearest || mode == Mode::kNearestExact) {
    if (const auto repeats = repeats_of(matrices, small, large))
      return repeat_samples(c, small, large, *repeats, backward);
  }
  for (size_t i = 0; backward && i < spatial; ++i) {
    const size_t d = small.sizes.size() - spatial + i;
    matrices[i] = transposed(matrices[i], large.sizes[d], small.sizes[d]);
  }
  resample(c, x, out, matrices);
}

constexpr uint64_t const_from(int first, int count) { return ((uint64_t{1} << count) - 1) << first; }

TRNSIM_LOWER(std::vector<LowerRow>{
    {"aten::max_pool2d_with_indices", lower_max_pool<2>},
    {"aten::max_pool3d_with_indices", lower_max_pool<3>},
    {"aten::max_pool2d_with_indices_backward", lower_max_pool_backward<2>},
    {"aten::max_pool3d_with_indices_backward", lower_max_pool_backward<3>},
    {"aten::avg_pool1d", lower_avg_pool<1, false>},
    {"aten::avg_pool2d", lower_avg_pool<2, false>},
    {"aten::avg_pool3d", lower_avg_pool<3, false>},
    {"aten::avg_pool2d_backward", lower_avg_pool<2, true>},
    {"aten::avg_pool3d_backward", lower_avg_pool<3, true>},
    {"aten::_adaptive_avg_pool2d", lower_adaptive_avg_pool<2>},
    {"aten::_adaptive_avg_pool3d", lower_adaptive_avg_pool<3>},
    {"aten::_adaptive_avg_pool2d_backward", lower_adaptive_avg_pool_backward<2>},
    {"aten::_adaptive_avg_pool3d_backward", lower_adaptive_avg_pool_backward<3>},
    {"aten::upsample_nearest1d", lower_upsample<1, Mode::kNearest, false>, const_from(2, 1)},
    {"aten::upsample_nearest2d", lower_upsample<2, Mode::kNearest, false>, const_from(2, 2)},
    {"aten::upsample_nearest3d", lower_upsample<3, Mode::kNearest, false>, const_from(2, 3)},
    {"aten::_upsample_nearest_exact1d", lower_upsample<1, Mode::kNearestExact, false>, const_from(2, 1)},
    {"aten::_upsample_nearest_exact2d", lower_upsample<2, Mode::kNearestExact, false>, const_from(2, 2)},
    {"aten::_upsample_nearest_exact3d", lower_upsample<3, Mode::kNearestExact, false>, const_from(2, 3)},
    {"aten::upsample_linear1d", lower_upsample<1, Mode::kLinear, false>, const_from(3, 1)},
    {"aten::upsample_bilinear2d", lower_upsample<2, Mode::kLinear, false>, const_from(3, 2)},
    {"aten::upsample_trilinear3d", lower_upsample<3, Mode::kLinear, false>, const_from(3, 3)},
    {"aten::upsample_bicubic2d", lower_upsample<2, Mode::kCubic, false>, const_from(3, 2)},
    {"aten::upsample_nearest1d_backward", lower_upsample<1, Mode::kNearest, true>, const_from(3, 1)},
    {"aten::upsample_nearest2d_backward", lower_upsample<2, Mode::kNearest, true>, const_from(3, 2)},
    {"aten::upsample_nearest3d_backward", lower_upsample<3, Mode::kNearest, true>, const_from(3, 3)},
    {"aten::_upsample_nearest_exact1d_backward", lower_upsample<1, Mode::kNearestExact, true>,
     const_from(3, 1)},
    {"aten::_upsample_nearest_exact2d_backward", lower_upsample<2, Mode::kNearestExact, true>,
     const_from(3, 2)},
    {"aten::_upsample_nearest_exact3d_backward", lower_upsample<3, Mode::kNearestExact, true>,
     const_from(3, 3)},
    {"aten::upsample_linear1d_backward", lower_upsample<1, Mode::kLinear, true>, const_from(4, 1)},
    {"aten::upsample_bilinear2d_backward", lower_upsample<2, Mode::kLinear, true>, const_from(4, 2)},
    {"aten::upsample_trilinear3d_backward", lower_upsample<3, Mode::kLinear, true>, const_from(4, 3)},
    {"aten::upsample_bicubic2d_backward", lower_upsample<2, Mode::kCubic, true>, const_from(4, 2)},
    {"aten::_upsample_bilinear2d_aa", lower_upsample<2, Mode::kLinear, false, true>, const_from(3, 2)},
    {"aten::_upsample_bicubic2d_aa", lower_upsample<2, Mode::kCubic, false, true>, const_from(3, 2)},
    {"aten::_upsample_bilinear2d_aa_backward", lower_upsample<2, Mode::kLinear, true, true>,
     const_from(4, 2)},
    {"aten::_upsample_bicubic2d_aa_backward", lower_upsample<2, Mode::kCubic, true, true>, const_from(4, 2)},
});

}  // namespace
}  // namespace trnsim::compiler
