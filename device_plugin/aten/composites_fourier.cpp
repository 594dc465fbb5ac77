// Fourier transforms as products with matrices of cosines and sines, which is what the tensor engine is good at. Long
// lengths are split at a divisor; long primes become convolutions.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "device_plugin/aten/complex_pair.h"
#include "device_plugin/aten/composite_kernel.h"

namespace trnsim::aten {
namespace {

using at::Tensor;

constexpr int64_t kDirect = 128;        // lengths up to here are one product
constexpr int64_t kPrimeDirect = 1024;  // primes up to here, too

// exp(sign 2 pi i k / n) for every k of `numerators` (already modulo n), computed in double.
Pair roots(const Tensor& numerators, int64_t n, double sign, const Tensor& like) {
  const Tensor angle = numerators.to(at::kDouble) * (sign * 2 * std::numbers::pi / static_cast<double>(n));
  return {angle.cos().to(at::kFloat).to(like.device()), angle.sin().to(at::kFloat).to(like.device())};
}

// x [.., n] with the matrix w [n, m]
Pair multiplied(const Pair& x, const Pair& w) {
  const Tensor both = at::cat({x.re, x.im}, -1);
  const Tensor re = at::cat({w.re, -w.im}, 0), im = at::cat({w.im, w.re}, 0);
  return {at::matmul(both, re), at::matmul(both, im)};
}

int64_t divisor_of(int64_t n) {  // the largest one up to kDirect; 1: none
  for (int64_t d = kDirect; d > 1; --d)
    if (n % d == 0) return d;
  return 1;
}

Pair transformed(const Pair& x, double sign);

// Bluestein: n k = (n^2 + k^2 - (k - n)^2) / 2 turns the sum into a convolution, which may be longer.
Pair convolved(const Pair& x, double sign) {
  const int64_t n = x.re.size(-1);
  int64_t length = 1;
  while (length < 2 * n - 1) length *= 2;
  const Tensor k = at::arange(n, at::kLong);
  const Pair chirp = roots((k * k).remainder(2 * n), 2 * n, sign, x.re);
  const Pair start = times(x, chirp);
  const at::DimVector pad{0, length - n};
  const Pair a{at::constant_pad_nd(start.re, pad, 0), at::constant_pad_nd(start.im, pad, 0)};
  auto kernel = [&](const Tensor& part, double factor) {
    const Tensor gap = at::zeros({length - 2 * n + 1}, part.options());
    return at::cat({part, gap, part.slice(0, 1).flip({0})}) * factor;
  };
  const Pair b{kernel(chirp.re, 1), kernel(chirp.im, -1)};
  const Pair product = times(transformed(a, -1), transformed(b, -1));
  const Pair back = transformed(product, 1);
  const double scale = 1.0 / static_cast<double>(length);
  return times({back.re.slice(-1, 0, n) * scale, back.im.slice(-1, 0, n) * scale}, chirp);
}

// Along the last axis, without scaling.
Pair transformed(const Pair& x, double sign) {
  const int64_t n = x.re.size(-1);
  if (n <= 1) return x;
  const int64_t first = n <= kDirect ? n : divisor_of(n);
  if (first == n || (first == 1 && n <= kPrimeDirect)) {
    const Tensor k = at::arange(n, at::kLong);
    return multiplied(x, roots((k.unsqueeze(1) * k.unsqueeze(0)).remainder(n), n, sign, x.re));
  }
  if (first == 1) return convolved(x, sign);
  // n = first rest: element a rest + b goes to frequency p + first q.
  const int64_t rest = n / first;
  auto split = [&](const Tensor& t) {
    std::vector<int64_t> sizes = t.sizes().vec();
    sizes.back() = first;
    sizes.push_back(rest);
    return t.reshape(sizes).transpose(-1, -2).contiguous();  // [.., b, a]
  };
  Pair y = transformed({split(x.re), split(x.im)}, sign);  // [.., b, p]
  const Tensor b = at::arange(rest, at::kLong).unsqueeze(1), p = at::arange(first, at::kLong).unsqueeze(0);
  y = times(y, roots((b * p).remainder(n), n, sign, x.re));
  const Pair z =
      transformed({y.re.transpose(-1, -2).contiguous(), y.im.transpose(-1, -2).contiguous()}, sign);
  auto joined = [&](const Tensor& t) { return t.transpose(-1, -2).reshape(x.re.sizes()); };  // [.., q, p]
  return {joined(z.re), joined(z.im)};
}

Pair along(const Pair& x, int64_t dim, double sign) {
  auto moved = [&](const Tensor& t) { return t.movedim(dim, -1).contiguous(); };
  const Pair y = transformed({moved(x.re), moved(x.im)}, sign);
  return {y.re.movedim(-1, dim), y.im.movedim(-1, dim)};
}

// 0: none, 1: divided by the root of the number of elements, 2: by the number
double scale_of(int64_t normalization, int64_t elements) {
  const auto n = static_cast<double>(elements);
  return normalization == 0 ? 1 : normalization == 1 ? 1 / std::sqrt(n) : 1 / n;
}

int64_t elements_of(const Tensor& t, at::IntArrayRef dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= t.size(d);
  return n;
}

Pair in_float(const Tensor& t) {
  const Pair p = pair_of(t);
  return {p.re.to(at::kFloat), p.im.to(at::kFloat)};
}

Tensor result(const Pair& p, double scale, c10::ScalarType real) {
  auto part = [&](const Tensor& t) { return (scale == 1 ? t : t * scale).to(real); };
  return complex_of(part(p.re), part(p.im));
}

Tensor complex_to_complex(const Tensor& self, at::IntArrayRef dim, int64_t normalization, bool forward) {
  Pair p = in_float(self);
  for (int64_t d : dim) p = along(p, d, forward ? -1 : 1);
  return result(p, scale_of(normalization, elements_of(self, dim)), c10::toRealValueType(self.scalar_type()));
}

Tensor real_to_complex(const Tensor& self, at::IntArrayRef dim, int64_t normalization, bool onesided) {
  Pair p = in_float(self);
  const int64_t last = dim.back();
  p = along(p, last, -1);
  if (onesided) {
    const int64_t half = self.size(last) / 2 + 1;
    p = {p.re.slice(last, 0, half), p.im.slice(last, 0, half)};
  }
  for (int64_t d : dim.slice(0, dim.size() - 1)) p = along(p, d, -1);
  return result(p, scale_of(normalization, elements_of(self, dim)), self.scalar_type());
}

// The spectrum of a real signal is given by its first half.
Tensor complex_to_real(const Tensor& self, at::IntArrayRef dim, int64_t normalization, int64_t last_size) {
  Pair p = in_float(self);
  for (int64_t d : dim.slice(0, dim.size() - 1)) p = along(p, d, 1);
  const int64_t last = dim.back(), half = last_size / 2 + 1, mirrored = last_size - half;
  auto whole = [&](const Tensor& t, bool negated) {
    const Tensor tail = t.slice(last, 1, 1 + mirrored).flip({last});
    return at::cat({t.slice(last, 0, half), negated ? tail.neg() : tail}, last);
  };
  p = along({whole(p.re, false), whole(p.im, true)}, last, 1);
  const int64_t elements = elements_of(self, dim.slice(0, dim.size() - 1)) * last_size;
  const double scale = scale_of(normalization, elements);
  return (scale == 1 ? p.re : p.re * scale).contiguous().to(c10::toRealValueType(self.scalar_type()));
}

}  // namespace

Composites fourier_composites() {
  return {composite("aten::_fft_c2c", &complex_to_complex, {.complex = true}),
          composite("aten::_fft_r2c", &real_to_complex, {.complex = true}),
          composite("aten::_fft_c2r", &complex_to_real, {.complex = true})};
}

}  // namespace trnsim::aten
