#include <array>
#include <cmath>
#include <limits>

#include "tests/cpp/catch.h"
#include "tests/cpp/kernels/rig.h"

namespace trnsim::compiler::test {
namespace {

using Sizes = std::vector<int64_t>;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

struct Pool {
  Sizes lead, size, kernel, stride, padding, dilation;
  bool ceil_mode = false;
  Sizes out() const {
    Sizes s;
    for (size_t i = 0; i < size.size(); ++i) {
      const int64_t room = size[i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1;
      int64_t n = (room + (ceil_mode ? stride[i] - 1 : 0)) / stride[i] + 1;
      if (ceil_mode && (n - 1) * stride[i] >= size[i] + padding[i]) --n;
      s.push_back(n);
    }
    return s;
  }
};

int64_t volume(const Sizes& s) {
  int64_t v = 1;
  for (int64_t x : s) v *= x;
  return v;
}
Sizes join(const Sizes& a, const Sizes& b) {
  Sizes r;
  for (int64_t x : a) r.push_back(x);
  for (int64_t x : b) r.push_back(x);
  return r;
}

// Calls f(flat input position) for the window elements of output t that lie inside, in order; returns the
// window's extent inside input plus padding (what counts as the divisor with padding).
template <typename F>
int64_t for_each_element(const Pool& p, int64_t t, F f) {
  const Sizes out = p.out();
  std::array<int64_t, 3> at{};
  int64_t padded = 1;
  for (size_t a = p.size.size(); a-- > 0; t /= out[a]) {
    at[a] = t % out[a] * p.stride[a] - p.padding[a];
    padded *= std::min(at[a] + p.kernel[a], p.size[a] + p.padding[a]) - at[a];
  }
  for (int64_t k = 0; k < volume(p.kernel); ++k) {
    int64_t flat = 0, pitch = 1, rest = k;
    bool inside = true;
    for (size_t a = p.size.size(); a-- > 0;) {
      const int64_t x = at[a] + rest % p.kernel[a] * p.dilation[a];
      rest /= p.kernel[a];
      inside = inside && x >= 0 && x < p.size[a];
      flat += x * pitch;
      pitch *= p.size[a];
    }
    if (inside) f(flat);
  }
  return padded;
}

WindowKernel kernel(const Pool& p, WindowKernel::Mode mode) {
  WindowKernel k;
  k.mode = mode;
  k.kernel = p.kernel, k.stride = p.stride, k.padding = p.padding, k.dilation = p.dilation;
  k.indices.buffer = -1;
  return k;
}

const Pool kPools[] = {
    {{2, 3}, {8, 8}, {2, 2}, {2, 2}, {0, 0}, {1, 1}},
    {{3, 50}, {9, 11}, {3, 3}, {2, 2}, {1, 1}, {1, 1}},
    {{2, 4}, {10, 7}, {3, 2}, {1, 2}, {1, 1}, {2, 1}},
    {{1, 2}, {9, 9}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, true},
    {{2, 3}, {50}, {5}, {3}, {2}, {1}},
    {{2, 3}, {5, 6, 7}, {2, 3, 2}, {2, 1, 2}, {1, 1, 0}, {1, 1, 1}},
    {{1, 2}, {90, 130}, {3, 3}, {2, 2}, {1, 1}, {1, 1}},
    {{1, 2}, {7, 7}, {1, 1}, {3, 3}, {0, 0}, {1, 1}},
    {{1, 2}, {12, 12}, {3, 3}, {1, 1}, {1, 1}, {3, 3}},
};

TEST_CASE("max pooling: values, indices and gradient", "[window]") {
  for (Dtype d : {Dtype::kF32, Dtype::kBF16}) {
    for (const Pool& p : kPools) {
      for (bool special : {false, true}) {
        CAPTURE(isa::dtype_name(d), p.lead, p.size, p.kernel, p.stride, p.padding, p.dilation, special);
        Rig rig;
        const Sizes out = p.out();
        WindowKernel k = kernel(p, WindowKernel::Mode::kMaxForward);
        k.input = rig.input(d, join(p.lead, p.size));
        if (special) {
          // NaN, infinities, long runs of equal values.
          auto x = rig.read(k.input);
          std::uniform_int_distribution<int> draw(0, 9);
          for (double& v : x) {
            const int r = draw(rig.random());
            v = r == 0 ? kNan : r < 5 ? -kInf : r == 5 ? kInf : std::round(v * 2);
          }
          rig.write(k.input, x);
        }
        k.out = rig.output(d, join(p.lead, out));
        k.indices = rig.output(Dtype::kI64, join(p.lead, out));
        rig.run(k);
        const auto x = rig.read(k.input);
        std::vector<double> values, indices;
        const int64_t iv = volume(p.size), planes = volume(p.lead);
        for (int64_t c = 0; c < planes; ++c) {
          for (int64_t t = 0; t < volume(out); ++t) {
            double best = -kInf, index = -1;
            for_each_element(p, t, [&](int64_t flat) {
              const double v = x[static_cast<size_t>(c * iv + flat)];
              if (index < 0) index = static_cast<double>(flat);
              if (v > best || std::isnan(v)) {
                best = v;
                index = static_cast<double>(flat);
              }
            });
            values.push_back(best);
            indices.push_back(index);
          }
        }
        CHECK(worst_error(rig.read(k.out), values) == 0);
        CHECK(rig.read(k.indices) == indices);

        WindowKernel plain = k;
        plain.indices.buffer = -1;
        rig.run(plain);
        CHECK(worst_error(rig.read(k.out), values) == 0);

        Rig back;
        WindowKernel b = kernel(p, WindowKernel::Mode::kMaxBackward);
        b.input = back.output(d, join(p.lead, p.size));
        b.out = back.input(d, join(p.lead, out));
        b.indices = back.input(Dtype::kI64, join(p.lead, out));
        back.write(b.indices, indices);
        back.run(b);
        std::vector<double> gradient(static_cast<size_t>(planes * iv), 0.0);
        const auto y = back.read(b.out);
        for (size_t i = 0; i < y.size(); ++i) {
          gradient[i / static_cast<size_t>(volume(out)) * static_cast<size_t>(iv) +
                   static_cast<size_t>(indices[i])] += y[i];
        }
        CHECK(worst_error(back.read(b.input), gradient) < (d == Dtype::kF32 ? 1e-6 : 0.02));
      }
    }
  }
}

TEST_CASE("average pooling: forward and gradient", "[window]") {
  for (const Pool& p : kPools) {
    if (volume(p.dilation) != 1) continue;  // averages have none
    for (bool include : {true, false}) {
      for (int64_t divisor : {0, 5}) {
        CAPTURE(p.lead, p.size, p.kernel, p.stride, p.padding, include, divisor);
        const Sizes out = p.out();
        const int64_t iv = volume(p.size), planes = volume(p.lead), ov = volume(out);
        Rig rig, back;
        WindowKernel k = kernel(p, WindowKernel::Mode::kAvgForward);
        k.count_include_pad = include;
        k.divisor = divisor;
        k.input = rig.input(Dtype::kF32, join(p.lead, p.size));
        k.out = rig.output(Dtype::kF32, join(p.lead, out));
        rig.run(k);
        WindowKernel b = kernel(p, WindowKernel::Mode::kAvgBackward);
        b.count_include_pad = include;
        b.divisor = divisor;
        b.input = back.output(Dtype::kF32, join(p.lead, p.size));
        b.out = back.input(Dtype::kF32, join(p.lead, out));
        back.run(b);
        const auto x = rig.read(k.input), y = back.read(b.out);
        std::vector<double> values, gradient(static_cast<size_t>(planes * iv), 0.0);
        for (int64_t c = 0; c < planes; ++c) {
          for (int64_t t = 0; t < ov; ++t) {
            double sum = 0;
            int64_t inside = 0;
            const int64_t padded = for_each_element(p, t, [&](int64_t flat) {
              sum += x[static_cast<size_t>(c * iv + flat)];
              ++inside;
            });
            const double by = static_cast<double>(divisor != 0 ? divisor : include ? padded : inside);
            values.push_back(sum / by);
            for_each_element(p, t, [&](int64_t flat) {
              gradient[static_cast<size_t>(c * iv + flat)] += y[static_cast<size_t>(c * ov + t)] / by;
            });
          }
        }
        CHECK(worst_error(rig.read(k.out), values) < 1e-6);
        CHECK(worst_error(back.read(b.input), gradient) < 1e-6);
      }
    }
  }
}

TEST_CASE("max pooling: integers, channels last", "[window]") {
  Pool p{{2, 5}, {8, 9}, {3, 3}, {2, 2}, {1, 1}, {1, 1}};
  Rig rig;
  WindowKernel k = kernel(p, WindowKernel::Mode::kMaxForward);
  k.input = rig.input(Dtype::kI32, {2, 5, 8, 9}, {360, 1, 45, 5});
  rig.fill(k.input, -2e9, 2e9);
  k.out = rig.output(Dtype::kI32, join(p.lead, p.out()));
  rig.run(k);
  const auto x = rig.read(k.input);
  std::vector<double> values;
  for (int64_t c = 0; c < 10; ++c)
    for (int64_t t = 0; t < volume(p.out()); ++t) {
      double best = -kInf;
      for_each_element(p, t,
                       [&](int64_t flat) { best = std::max(best, x[static_cast<size_t>(c * 72 + flat)]); });
      values.push_back(best);
    }
  CHECK(rig.read(k.out) == values);
}

}  // namespace
}  // namespace trnsim::compiler::test
