// Windows at irregular places (adaptive and fractional pooling, unpooling) and sampling at given coordinates.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/accumulate.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <functional>
#include <tuple>
#include <vector>

#include "device_plugin/aten/composite_kernel.h"

namespace trnsim::aten {
namespace {

using at::Tensor;
using Pooled = std::tuple<Tensor, Tensor>;  // values, flat indices

at::TensorOptions integers(const Tensor& like) { return like.options().dtype(at::kLong); }

// [.., spatial] with the trailing axes flattened.
Tensor flat_planes(const Tensor& t, int64_t spatial) { return t.flatten(t.dim() - spatial, -1); }

std::vector<int64_t> with_trailing(const Tensor& t, int64_t spatial, at::IntArrayRef sizes) {
  std::vector<int64_t> result = t.sizes().slice(0, static_cast<size_t>(t.dim() - spatial)).vec();
  result.insert(result.end(), sizes.begin(), sizes.end());
  return result;
}

// The maximum of every window and where it is. `places` [.., windows, elements of a window]: flat positions.
Pooled largest_of(const Tensor& windows, const Tensor& places, at::IntArrayRef out_sizes) {
  auto [value, choice] = windows.max(-1);
  const Tensor index = places.gather(-1, choice.unsqueeze(-1)).squeeze(-1);
  return {value.reshape(out_sizes), index.reshape(out_sizes)};
}

Tensor scattered(const Tensor& grad, const Tensor& self, const Tensor& indices, int64_t spatial) {
  const Tensor sums = at::zeros_like(flat_planes(self, spatial), at::MemoryFormat::Contiguous);
  if (grad.numel() == 0) return sums.reshape(self.sizes());
  return sums.scatter_add(-1, flat_planes(indices, spatial), flat_planes(grad, spatial))
      .reshape(self.sizes());
}

// ---- adaptive
// -------------------------------------------------------------------------------------------------------
// Window o covers [floor(o * in / out), ceil((o + 1) * in / out)). Shorter windows repeat their last element, which
// changes no maximum.
Pooled adaptive_max_pool(const Tensor& self, at::IntArrayRef output_size, int64_t spatial) {
  const std::vector<int64_t> sizes = with_trailing(self, spatial, output_size);
  if (c10::multiply_integers(sizes) == 0)
    return {at::empty(sizes, self.options()), at::empty(sizes, integers(self))};
  Tensor places = at::zeros({1, 1}, at::kLong);
  for (int64_t d = 0; d < spatial; ++d) {
    const int64_t in = self.size(self.dim() - spatial + d), out = output_size[static_cast<size_t>(d)];
    auto begin = [&](int64_t o) { return o * in / out; };
    auto end = [&](int64_t o) { return ((o + 1) * in + out - 1) / out; };
    int64_t longest = 0;
    for (int64_t o = 0; o < out; ++o) longest = std::max(longest, end(o) - begin(o));
    Tensor axis = at::empty({out, longest}, at::kLong);
    for (int64_t o = 0; o < out; ++o)
      for (int64_t j = 0; j < longest; ++j)
        axis.data_ptr<int64_t>()[o * longest + j] = std::min(begin(o) + j, end(o) - 1);
    places =
        (places.reshape({places.size(0), 1, places.size(1), 1}) * in + axis.reshape({1, out, 1, longest}))
            .reshape({places.size(0) * out, places.size(1) * longest});
  }
  const Tensor index = places.to(self.device());
  const std::vector<int64_t> shape = with_trailing(self, spatial, {places.size(0), places.size(1)});
  const Tensor windows = flat_planes(self, spatial).index_select(-1, index.reshape({-1})).reshape(shape);
  return largest_of(windows, index.expand(shape), sizes);
}

// Images keep their order in memory, volumes do not.
template <int64_t spatial>
at::MemoryFormat format_of(const Tensor& self) {
  return spatial == 2 ? self.suggest_memory_format() : at::MemoryFormat::Contiguous;
}

template <int64_t spatial>
Pooled adaptive_max_pool_nd(const Tensor& self, at::IntArrayRef output_size) {
  const auto [value, index] = adaptive_max_pool(self, output_size, spatial);
  return {value.contiguous(format_of<spatial>(self)), index.contiguous(format_of<spatial>(self))};
}

template <int64_t spatial>
Tensor adaptive_max_pool_nd_backward(const Tensor& grad, const Tensor& self, const Tensor& indices) {
  return scattered(grad, self, indices, spatial).contiguous(format_of<spatial>(self));
}

// ---- fractional
// -----------------------------------------------------------------------------------------------------
// Where the windows of an axis begin, [planes.., out]: a pseudo-random sequence of steps that ends at the border.
Tensor fractional_begins(const Tensor& sample, int64_t in, int64_t out, int64_t window) {
  const Tensor last = at::full_like(sample, in - window, integers(sample)).unsqueeze(-1);
  if (out == 1) return last;
  const double step = static_cast<double>(in - window) / static_cast<double>(out - 1);
  const Tensor s = sample.to(at::kFloat).unsqueeze(-1);
  const Tensor i = at::arange(out - 1, s.options());
  const Tensor begin = ((i + s) * step).trunc() - (s * step).trunc();
  return at::cat({begin.to(at::kLong), last}, -1);
}

Pooled fractional_max_pool(const Tensor& self, at::IntArrayRef kernel, at::IntArrayRef output_size,
                           const Tensor& samples, int64_t spatial) {
  std::vector<int64_t> sizes = with_trailing(self, spatial, output_size);
  if (c10::multiply_integers(sizes) == 0)
    return {at::empty(sizes, self.options()), at::empty(sizes, integers(self))};
  const Tensor x = self.dim() == spatial + 1 ? self.unsqueeze(0) : self;
  const int64_t batch = x.size(0), channels = x.size(1);
  TORCH_CHECK(samples.size(0) >= batch, "Expect _random_samples.size(0) no less then input batch size.");
  TORCH_CHECK(samples.size(1) == channels, "Expect _random_samples.size(1) equals to input channel size.");
  TORCH_CHECK(samples.size(2) == spatial, "Expect _random_samples.size(2) equals to ", spatial, "; got ",
              samples.size(2), ".");
  Tensor places = at::zeros({batch, channels, 1, 1}, integers(self));
  for (int64_t d = 0; d < spatial; ++d) {
    const auto axis = static_cast<size_t>(d);
    // In two dimensions the first sample is that of the width. There may be samples for more planes than there are.
    const Tensor sample = samples.slice(0, 0, batch).select(-1, spatial == 2 ? 1 - d : d);
    const int64_t in = x.size(2 + d), out = output_size[axis], window = kernel[axis];
    const Tensor along =
        fractional_begins(sample, in, out, window).unsqueeze(-1) + at::arange(window, integers(self));
    places = (places.reshape({batch, channels, places.size(2), 1, places.size(3), 1}) * in +
              along.reshape({batch, channels, 1, out, 1, window}))
                 .reshape({batch, channels, places.size(2) * out, places.size(3) * window});
  }
  const Tensor windows = flat_planes(x, spatial).gather(-1, places.flatten(2)).reshape(places.sizes());
  return largest_of(windows, places, sizes);
}

template <int64_t spatial>
Pooled fractional_max_pool_nd(const Tensor& self, at::IntArrayRef kernel, at::IntArrayRef output_size,
                              const Tensor& samples) {
  return fractional_max_pool(self, kernel, output_size, samples, spatial);
}

template <int64_t spatial>
Tensor fractional_max_pool_nd_backward(const Tensor& grad, const Tensor& self, at::IntArrayRef /*kernel*/,
                                       at::IntArrayRef /*output_size*/, const Tensor& indices) {
  return scattered(grad, self, indices, spatial);
}

// ---- unpooling
// ------------------------------------------------------------------------------------------------------
Tensor unpooled(const Tensor& self, const Tensor& indices, at::IntArrayRef output_size) {
  const auto spatial = static_cast<int64_t>(output_size.size());
  const std::vector<int64_t> sizes = with_trailing(self, spatial, output_size);
  const Tensor zeros = flat_planes(at::zeros(sizes, self.options()), spatial);
  if (self.numel() == 0) return zeros.reshape(sizes);
  return zeros.scatter(-1, flat_planes(indices, spatial), flat_planes(self, spatial)).reshape(sizes);
}

Tensor max_unpool2d(const Tensor& self, const Tensor& indices, at::IntArrayRef output_size) {
  return unpooled(self, indices, output_size).contiguous(format_of<2>(self));
}

Tensor max_unpool3d(const Tensor& self, const Tensor& indices, at::IntArrayRef output_size,
                    at::IntArrayRef /*stride*/, at::IntArrayRef /*padding*/) {
  return unpooled(self, indices, output_size);
}

// ---- grid_sampler
// ---------------------------------------------------------------------------------------------------
enum class Interpolation : int64_t { kBilinear, kNearest, kBicubic };
enum class Padding : int64_t { kZeros, kBorder, kReflection };

// Between `low` and `high`, mirrored there as often as needed.
Tensor reflected(const Tensor& x, double low, double high) {
  const double span = high - low;
  if (span == 0) return at::zeros_like(x);
  const Tensor distance = (x - low).abs();
  const Tensor extra = distance.fmod(span);
  const Tensor odd = (distance / span).detach().floor().remainder(2).ne(0);
  return at::where(odd, span - extra, extra) + low;
}

Tensor padded(const Tensor& x, int64_t size, Padding padding, bool align_corners) {
  if (padding == Padding::kZeros) return x;
  const auto n = static_cast<double>(size);
  Tensor inside = x;
  if (padding == Padding::kReflection)
    inside = align_corners ? reflected(x, 0, n - 1) : reflected(x, -0.5, n - 0.5);
  // No gradient from the border on, NaN included.
  const Tensor zero = at::zeros_like(x), last = at::full_like(x, n - 1);
  return at::where(inside.gt(0), at::where(inside.lt(n - 1), inside, last), zero);
}

class GridSampler {
 public:
  GridSampler(const Tensor& input, const Tensor& grid, int64_t interpolation, int64_t padding,
              bool align_corners)
      : spatial_(grid.size(-1)),
        interpolation_(static_cast<Interpolation>(interpolation)),
        padding_(static_cast<Padding>(padding)),
        align_corners_(align_corners),
        input_(input),
        planes_(input.flatten(2)) {
    out_sizes_ = {input.size(0), input.size(1)};
    for (int64_t d = 0; d < spatial_; ++d) out_sizes_.push_back(grid.size(1 + d));
    // The last coordinate of the grid belongs to the first spatial axis.
    for (int64_t d = 0; d < spatial_; ++d) {
      const auto n = static_cast<double>(input.size(2 + d));
      const Tensor g = grid.select(-1, spatial_ - 1 - d).flatten(1);
      at_.push_back(align_corners ? (g + 1) * ((n - 1) / 2) : ((g + 1) * n - 1) / 2);
    }
  }

  Tensor run() const {
    const bool cubic = interpolation_ == Interpolation::kBicubic;
    std::vector<std::vector<std::pair<Tensor, Tensor>>> taps;  // places and weights, per axis
    for (int64_t d = 0; d < spatial_; ++d) {
      const Tensor& x = at_[static_cast<size_t>(d)];
      const int64_t size = input_.size(2 + d);
      taps.push_back(cubic ? cubic_taps(x) : simple_taps(padded(x, size, padding_, align_corners_)));
    }
    Tensor sum;
    add_taps(taps, 0, Tensor(), Tensor(), Tensor(), sum);
    return sum.reshape(out_sizes_);
  }

 private:
  using Taps = std::vector<std::pair<Tensor, Tensor>>;  // place, weight (undefined: 1)

  Taps simple_taps(const Tensor& x) const {
    if (interpolation_ == Interpolation::kNearest) return {{x.detach().round(), Tensor()}};
    const Tensor low = x.detach().floor();
    const Tensor fraction = x - low;
    return {{low, 1 - fraction}, {low + 1, fraction}};
  }

  static Taps cubic_taps(const Tensor& x) {
    constexpr double a = -0.75;
    const Tensor low = x.detach().floor();
    const Tensor t = x - low;
    auto near = [](const Tensor& d) { return ((a + 2) * d - (a + 3)) * d * d + 1; };
    auto far = [](const Tensor& d) { return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a; };
    return {{low - 1, far(t + 1)}, {low, near(t)}, {low + 1, near(1 - t)}, {low + 2, far(2 - t)}};
  }

  // Every combination of the taps of the axes; `place` is the flat position so far, `inside` a mask.
  void add_taps(const std::vector<Taps>& taps, int64_t d, const Tensor& place, const Tensor& inside,
                const Tensor& weight, Tensor& sum) const {
    if (d == spatial_) {
      const Tensor index =
          place.to(at::kLong).unsqueeze(1).expand({planes_.size(0), planes_.size(1), place.size(1)});
      Tensor value = planes_.gather(2, index.contiguous());
      value = at::where(inside.unsqueeze(1), value, at::zeros_like(value));
      if (weight.defined()) value = value * weight.unsqueeze(1);
      sum = sum.defined() ? sum + value : value;
      return;
    }
    const int64_t size = input_.size(2 + d);
    for (auto [x, w] : taps[static_cast<size_t>(d)]) {
      if (interpolation_ == Interpolation::kBicubic) x = padded(x, size, padding_, align_corners_);
      const Tensor in = x.ge(0).logical_and(x.lt(static_cast<double>(size)));
      const Tensor safe = at::where(in, x, at::zeros_like(x)).to(at::kLong);
      add_taps(taps, d + 1, place.defined() ? place * size + safe : safe,
               inside.defined() ? inside.logical_and(in) : in,
               !w.defined()       ? weight
               : weight.defined() ? weight * w
                                  : w,
               sum);
    }
  }

  int64_t spatial_;
  Interpolation interpolation_;
  Padding padding_;
  bool align_corners_;
  Tensor input_, planes_;
  std::vector<int64_t> out_sizes_;
  std::vector<Tensor> at_;  // coordinates in elements, per axis [N, points]
};

Tensor sampled(const Tensor& input, const Tensor& grid, int64_t interpolation, int64_t padding,
               bool align_corners) {
  return GridSampler(input.to(at::kFloat), grid.to(at::kFloat), interpolation, padding, align_corners).run();
}

Tensor grid_sampler(const Tensor& input, const Tensor& grid, int64_t interpolation, int64_t padding,
                    bool align_corners) {
  return sampled(input, grid, interpolation, padding, align_corners).to(input.scalar_type());
}

// Autograd on, inside a kernel that runs below it.
class AutogradInside {
 public:
  AutogradInside() : mode_(true), keys_(with_autograd()) {}

 private:
  static c10::impl::LocalDispatchKeySet with_autograd() {
    c10::impl::LocalDispatchKeySet local = c10::impl::tls_local_dispatch_key_set();
    local.excluded_ = local.excluded_ - c10::autograd_dispatch_keyset -
                      c10::DispatchKeySet(c10::DispatchKey::ADInplaceOrView);
    return local;
  }
  at::AutoGradMode mode_;
  c10::impl::ForceDispatchKeyGuard keys_;
};

// The gradients are those of the operators that the forward pass is made of.
std::tuple<Tensor, Tensor> grid_sampler_backward(const Tensor& grad, const Tensor& input, const Tensor& grid,
                                                 int64_t interpolation, int64_t padding, bool align_corners,
                                                 std::array<bool, 2> wanted) {
  Tensor x = input.detach(), g = grid.detach();
  std::vector<Tensor> leaves;
  std::vector<Tensor> gradients;
  {
    const AutogradInside autograd;
    if (wanted[0]) leaves.push_back(x.requires_grad_(true));
    if (wanted[1]) leaves.push_back(g.requires_grad_(true));
    if (leaves.empty()) return {};
    const Tensor out = sampled(x, g, interpolation, padding, align_corners);
    if (out.requires_grad())
      gradients = torch::autograd::grad({out}, leaves, {grad.detach().to(at::kFloat)}, std::nullopt, false,
                                        /*allow_unused=*/true);
    else
      gradients.resize(leaves.size());
  }
  Tensor results[2];
  size_t next = 0;
  for (size_t i = 0; i < 2; ++i) {
    if (!wanted[i]) continue;
    const Tensor& found = gradients[next++];
    results[i] = found.defined() ? found : at::zeros_like(i == 0 ? input : grid);
  }
  return {results[0], results[1]};
}

}  // namespace

Composites sampling_composites() {
  return {composite("aten::adaptive_max_pool2d", &adaptive_max_pool_nd<2>),
          composite("aten::adaptive_max_pool3d", &adaptive_max_pool_nd<3>),
          composite("aten::adaptive_max_pool2d_backward", &adaptive_max_pool_nd_backward<2>),
          composite("aten::adaptive_max_pool3d_backward", &adaptive_max_pool_nd_backward<3>),
          composite("aten::fractional_max_pool2d", &fractional_max_pool_nd<2>),
          composite("aten::fractional_max_pool3d", &fractional_max_pool_nd<3>),
          composite("aten::fractional_max_pool2d_backward", &fractional_max_pool_nd_backward<2>),
          composite("aten::fractional_max_pool3d_backward", &fractional_max_pool_nd_backward<3>),
          composite("aten::max_unpool2d", &max_unpool2d),
          composite("aten::max_unpool3d", &max_unpool3d),
          composite("aten::grid_sampler_2d", &grid_sampler),
          composite("aten::grid_sampler_3d", &grid_sampler),
          composite("aten::grid_sampler_2d_backward", &grid_sampler_backward),
          composite("aten::grid_sampler_3d_backward", &grid_sampler_backward)};
}

}  // namespace trnsim::aten
