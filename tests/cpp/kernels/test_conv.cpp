#include "tests/cpp/catch.h"
#include "tests/cpp/kernels/rig.h"

namespace trnsim::compiler::test {
namespace {

using Sizes = std::vector<int64_t>;

struct Geometry {
  int64_t n, c, o, groups;
  Sizes size, kernel, stride, padding, dilation;
  Sizes out() const {
    Sizes s;
    for (size_t i = 0; i < size.size(); ++i)
      s.push_back((size[i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) / stride[i] + 1);
    return s;
  }
};

Sizes join(Sizes a, const Sizes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Calls f(n, o, c in group, flat output, flat input, flat tap) for every product of the convolution.
template <typename F>
void for_each_product(const Geometry& g, F f) {
  const size_t axes = g.size.size();
  const Sizes out = g.out();
  const auto volume = [](const Sizes& s) {
    int64_t v = 1;
    for (int64_t x : s) v *= x;
    return v;
  };
  for (int64_t t = 0; t < volume(out); ++t) {
    for (int64_t k = 0; k < volume(g.kernel); ++k) {
      int64_t in = 0, pitch = 1, rest_t = t, rest_k = k;
      bool inside = true;
      for (size_t a = axes; a-- > 0;) {
        const int64_t x = rest_t % out[a] * g.stride[a] + rest_k % g.kernel[a] * g.dilation[a] - g.padding[a];
        rest_t /= out[a];
        rest_k /= g.kernel[a];
        inside = inside && x >= 0 && x < g.size[a];
        in += x * pitch;
        pitch *= g.size[a];
      }
      if (!inside) continue;
      for (int64_t n = 0; n < g.n; ++n)
        for (int64_t o = 0; o < g.o; ++o)
          for (int64_t c = 0; c < g.c / g.groups; ++c) f(n, o, c, t, in, k);
    }
  }
}

void check(const Geometry& g, Dtype d = Dtype::kF32, bool channels_last = false) {
  CAPTURE(isa::dtype_name(d), g.n, g.c, g.o, g.groups, g.size, g.kernel, g.stride, g.padding, g.dilation,
          channels_last);
  const auto volume = [](const Sizes& s) {
    int64_t v = 1;
    for (int64_t x : s) v *= x;
    return v;
  };
  const Sizes out = g.out();
  const int64_t tv = volume(out), iv = volume(g.size), kv = volume(g.kernel), cg = g.c / g.groups,
                og = g.o / g.groups;
  const auto strides = [&](int64_t c, const Sizes& size) {
    Sizes s = contiguous(join({g.n, c}, size));
    if (!channels_last) return s;
    s = contiguous(join(join({g.n}, size), {c}));
    Sizes r{s[0], 1};
    for (size_t i = 0; i < size.size(); ++i) r.push_back(s[i + 1]);
    return r;
  };
  const double scale = d == Dtype::kF32 ? 2e-5 : 0.03;
  const auto at = [](std::vector<double>& v, int64_t i) -> double& { return v[static_cast<size_t>(i)]; };
  SECTION("forward") {
    Rig rig;
    ConvKernel k;
    k.input = rig.input(d, join({g.n, g.c}, g.size), strides(g.c, g.size));
    k.weight = rig.input(d, join({g.o, cg}, g.kernel));
    k.bias = rig.input(d, {g.o});
    k.out = rig.output(d, join({g.n, g.o}, out), strides(g.o, out));
    k.stride = g.stride, k.padding = g.padding, k.dilation = g.dilation, k.groups = g.groups;
    rig.run(k);
    auto x = rig.read(k.input), w = rig.read(k.weight), b = rig.read(k.bias);
    std::vector<double> expected(static_cast<size_t>(g.n * g.o * tv));
    for (int64_t i = 0; i < g.n * g.o * tv; ++i) at(expected, i) = at(b, i / tv % g.o);
    for_each_product(g, [&](int64_t n, int64_t o, int64_t c, int64_t t, int64_t in, int64_t tap) {
      at(expected, (n * g.o + o) * tv + t) +=
          at(x, (n * g.c + o / og * cg + c) * iv + in) * at(w, (o * cg + c) * kv + tap);
    });
    CHECK(worst_error(rig.read(k.out), expected) < scale);
  }
  SECTION("gradients") {
    for (auto mode : {ConvKernel::Mode::kInputGrad, ConvKernel::Mode::kWeightGrad}) {
      Rig rig;
      ConvKernel k;
      k.mode = mode;
      const bool of_input = mode == ConvKernel::Mode::kInputGrad;
      k.input = of_input ? rig.output(d, join({g.n, g.c}, g.size), strides(g.c, g.size))
                         : rig.input(d, join({g.n, g.c}, g.size), strides(g.c, g.size));
      k.weight =
          of_input ? rig.input(d, join({g.o, cg}, g.kernel)) : rig.output(d, join({g.o, cg}, g.kernel));
      k.out = rig.input(d, join({g.n, g.o}, out), strides(g.o, out));
      k.bias.buffer = -1;
      k.stride = g.stride, k.padding = g.padding, k.dilation = g.dilation, k.groups = g.groups;
      rig.run(k);
      auto x = rig.read(k.input), w = rig.read(k.weight), y = rig.read(k.out);
      std::vector<double> expected((of_input ? x : w).size(), 0.0);
      for_each_product(g, [&](int64_t n, int64_t o, int64_t c, int64_t t, int64_t in, int64_t tap) {
        const int64_t xi = (n * g.c + o / og * cg + c) * iv + in, wi = (o * cg + c) * kv + tap;
        const double gradient = at(y, (n * g.o + o) * tv + t);
        if (of_input) {
          at(expected, xi) += gradient * at(w, wi);
        } else {
          at(expected, wi) += gradient * at(x, xi);
        }
      });
      CHECK(worst_error(rig.read(of_input ? k.input : k.weight), expected) < scale * (of_input ? 1 : 5));
    }
  }
}

TEST_CASE("conv: small images, few channels", "[conv]") {
  check({2, 1, 16, 1, {12, 12}, {3, 3}, {1, 1}, {1, 1}, {1, 1}});
}
TEST_CASE("conv: stem with stride", "[conv]") {
  check({2, 3, 20, 1, {23, 21}, {7, 7}, {2, 2}, {3, 3}, {1, 1}});
}
TEST_CASE("conv: few channels, narrow windows with stride", "[conv]") {
  check({1, 4, 8, 1, {12, 13}, {3, 1}, {2, 2}, {1, 0}, {1, 1}});
  check({1, 4, 8, 1, {12, 13}, {1, 3}, {1, 2}, {0, 1}, {1, 1}});
  check({2, 30, 8, 1, {9, 10}, {3, 3}, {1, 1}, {1, 1}, {1, 2}});
}
TEST_CASE("conv: many channels in and out", "[conv]") {
  check({2, 140, 150, 1, {9, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}});
}
TEST_CASE("conv: stride, dilation, uneven padding", "[conv]") {
  check({1, 40, 33, 1, {17, 30}, {3, 5}, {2, 3}, {2, 0}, {2, 1}});
}
TEST_CASE("conv: stride larger than the kernel, pointwise", "[conv]") {
  check({2, 50, 40, 1, {11, 13}, {1, 1}, {2, 2}, {0, 0}, {1, 1}});
  check({1, 20, 8, 1, {12, 12}, {2, 2}, {3, 3}, {0, 0}, {1, 1}});
}
TEST_CASE("conv: padding beyond the kernel", "[conv]") {
  check({1, 36, 8, 1, {5, 5}, {2, 2}, {1, 1}, {3, 3}, {1, 1}});
}
TEST_CASE("conv: groups", "[conv]") { check({2, 24, 36, 3, {8, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}); }
TEST_CASE("conv: depthwise, with a multiplier", "[conv]") {
  check({2, 150, 150, 150, {9, 10}, {3, 3}, {1, 1}, {1, 1}, {1, 1}});
  check({1, 10, 30, 10, {9, 10}, {3, 3}, {2, 2}, {1, 1}, {1, 1}});
}
TEST_CASE("conv: one axis", "[conv]") {
  check({3, 10, 12, 1, {200}, {5}, {2}, {2}, {1}});
  check({1, 2, 4, 1, {30000}, {9}, {1}, {4}, {1}});
}
TEST_CASE("conv: three axes", "[conv]") {
  check({2, 5, 6, 1, {6, 7, 8}, {3, 2, 3}, {1, 2, 1}, {1, 0, 1}, {1, 1, 1}});
  check({1, 40, 6, 1, {4, 7, 8}, {2, 2, 3}, {2, 2, 2}, {1, 0, 1}, {1, 1, 1}});
}
TEST_CASE("conv: large images are cut into bands", "[conv]") {
  check({1, 33, 8, 1, {130, 120}, {3, 3}, {1, 1}, {1, 1}, {1, 1}});
}
TEST_CASE("conv: half precision and channels last", "[conv]") {
  check({2, 40, 48, 1, {10, 10}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}, Dtype::kBF16);
  check({2, 3, 16, 1, {10, 10}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}, Dtype::kF16);
  check({2, 40, 24, 1, {10, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}, Dtype::kF32, true);
}

}  // namespace
}  // namespace trnsim::compiler::test
