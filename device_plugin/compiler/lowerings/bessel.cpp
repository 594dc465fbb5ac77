// Bessel, Airy and related functions. Between a few regions each is a Chebyshev series in a variable in which it is
// smooth; the coefficients are those of the functions at the Chebyshev nodes, cut where the rest is below FP32.
#include <cmath>
#include <limits>
#include <numbers>

#include "device_plugin/compiler/lowerings/series.h"

namespace trnsim::compiler {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// clang-format off
constexpr double kI0Small[] = {0.3383976372, -0.3046826723, 0.1716209015, -0.09490109705,
    0.04930528424, -0.02373741481, 0.01054646039, -0.004324309995, 0.001639475617, -0.0005763755745,
    0.0001885028851, -5.75419501e-05, 1.644844807e-05, -4.416738358e-06, 1.117387539e-06,
    -2.67079385e-07, 6.046995035e-08, -1.300025027e-08};
constexpr double kI0Large[] = {0.4022452055, 0.003369116478, 6.889758347e-05, 2.891370521e-06,
    2.048918589e-07, 2.266668995e-08, 3.396231976e-09};
constexpr double kI1Small[] = {0.1262935932, -0.1764165184, 0.1026436587, -0.05294598121,
    0.02472644903, -0.01056408489, 0.004156422944, -0.001513572451, 0.0005122859562, -0.0001617608158,
    4.781565108e-05, -1.327316366e-05, 3.470251308e-06, -8.568720264e-07, 2.003294752e-07,
    -4.445059111e-08, 9.381537436e-09, -1.887249824e-09};
constexpr double kI1Large[] = {0.3892881175, -0.009761097491, -0.0001105889388, -3.882564809e-06,
    -2.512236238e-07, -2.631468844e-08, -3.835380442e-09};
constexpr double kK0Small[] = {-0.2676636966, 0.3442898999, 0.03597993652, 0.001264615411,
    2.286212103e-05, 2.534791078e-07, 1.904516443e-09};
constexpr double kK0Large[] = {1.220151541, -0.03144810131, 0.001569883886, -0.0001284954958,
    1.394981372e-05, -1.831755523e-06, 2.766813638e-07, -4.660489898e-08, 8.574033661e-09};
constexpr double kK1Small[] = {0.7626501137, -0.3531559608, -0.1226111808, -0.00697572386,
    -0.0001730288958, -2.433406141e-06, -2.213387642e-08};
constexpr double kK1Large[] = {1.360313095, 0.1039237366, -0.00285781686, 0.0001952155185,
    -1.936197974e-05, 2.406484948e-06, -3.501960605e-07, 5.741084121e-08, -1.034576283e-08};
constexpr double kJ0Small[] = {0.1577279715, -0.008723442353, 0.2651786132, -0.3700949939,
    0.1580671023, -0.03489376941, 0.004819180069, -0.0004606261662, 3.246032882e-05, -1.761946908e-06,
    7.608163583e-08};
constexpr double kJ1Small[] = {0.08104484633, -0.1489751451, 0.1609992624, -0.08268049177,
    0.02221363965, -0.003646940601, 0.0004050337728, -3.255554867e-05, 1.985877405e-06, -9.52198476e-08,
    3.687133737e-09};
constexpr double kY0Small[] = {-0.0331461132, -0.2744743055, 0.1790343141, 0.2615673463,
    -0.1773020128, 0.0471966896, -0.00728796248, 0.0007531135933, -5.632079141e-05, 3.206532537e-06,
    -1.440723327e-07, 5.248794751e-09};
constexpr double kY1Small[] = {0.002538013236, -0.01608717305, -0.09591204536, 0.0844519726,
    -0.02832812394, 0.005289897544, -0.0006414551451, 5.505982873e-05, -3.538080019e-06,
    1.770780455e-07, -7.110550024e-09};
constexpr double kJ0P[] = {0.9994603493, -0.0005365220463, 3.075184781e-06, -5.170594508e-08};
constexpr double kJ0Q[] = {-0.1244468368, 0.0005470815948, -5.931598716e-06, 1.437796575e-07,
    -5.817532713e-09};
constexpr double kJ1P[] = {1.000903041, 0.0008989898322, -3.987284292e-06, 6.177633949e-08};
constexpr double kJ1Q[] = {0.3742222966, -0.0007702178831, 7.310892191e-06, -1.676782505e-07,
    6.583354591e-09};
constexpr double kAiryMiddle[] = {0.2638179819, -0.1917674578, -0.1154458786, 0.1012922987,
    -0.02063422536, -0.005263460236, 0.003521327342, -0.0005522127136, -8.722346961e-05, 4.99721553e-05,
    -6.58209617e-06, -7.46594098e-07, 3.837100506e-07, -4.427726186e-08, -3.901520838e-09,
    1.844383101e-09};
constexpr double kAiryLarge[] = {0.9844052884, -0.01479276669, 0.0007327158475, -6.125929248e-05,
    6.834728229e-06, -9.237161847e-07, 1.436212255e-07, -2.48929218e-08, 4.709732669e-09};
constexpr double kAiryP[] = {0.9957410715, -0.004010035105, 0.0002174979779, -2.559707355e-05,
    4.446236474e-06, -9.821560957e-07, 2.560803229e-07, -7.54823408e-08, 2.447213411e-08,
    -8.56547581e-09, 3.193675171e-09};
constexpr double kAiryQ[] = {0.06570090884, -0.003367165041, 0.000313186682, -4.909474684e-05,
    1.031385315e-05, -2.622703116e-06, 7.642833926e-07, -2.469218169e-07, 8.654323294e-08,
    -3.241259175e-08, 1.283002985e-08, -5.323264635e-09, 2.300263119e-09, -1.029948002e-09,
    4.758870164e-10, -2.26138188e-10};
// clang-format on

Ex exp(Ex x) { return x.map->math(ExprOp::kExp, x); }
Ex sin(Ex x) { return x.map->math(ExprOp::kSin, x); }
Ex cos(Ex x) { return x.map->math(ExprOp::kCos, x); }

// ---- modified, first kind: exp(-|x|) I(x), even part
// ----------------------------------------------------------------
template <size_t small, size_t large>
Ex scaled_i(Ex size, const double (&near)[small], const double (&far)[large]) {
  Ex s = chebyshev(size / 4.0 - 1.0, near);
  Ex l = chebyshev(16.0 / size - 1.0, far) * size.map->math(ExprOp::kRsqrt, size);
  return select(size <= 8.0, s, l);
}
Ex i0e(Ex x) { return scaled_i(abs(x), kI0Small, kI0Large); }
Ex i1e(Ex x) {
  Ex size = abs(x);
  Ex s = chebyshev(size / 4.0 - 1.0, kI1Small) * size;
  Ex l = chebyshev(16.0 / size - 1.0, kI1Large) * size.map->math(ExprOp::kRsqrt, size);
  Ex y = select(size <= 8.0, s, l);
  return select(x < 0.0, -y, y);
}
// exp(|x|) overflows 44 before the product does.
Ex grown(Ex scaled, Ex x) {
  Ex half = exp(abs(x) * 0.5);
  return scaled * half * half;
}
Ex i0(Ex x) { return grown(i0e(x), x); }
Ex i1(Ex x) { return grown(i1e(x), x); }

// ---- modified, second kind
// -----------------------------------------------------------------------------------------
template <bool scaled>
Ex k0(Ex x) {
  Ex s = chebyshev(x * x / 2.0 - 1.0, kK0Small) - (log(x) - std::numbers::ln2) * i0(x);
  Ex l = chebyshev(4.0 / x - 1.0, kK0Large) * x.map->math(ExprOp::kRsqrt, x);
  Ex y = select(x <= 2.0, scaled ? s * exp(x) : s, scaled ? l : l * exp(-x));
  return select(x == 0.0, number(x, kInf), select(x < 0.0, number(x, kNan), y));
}

template <bool scaled>
Ex k1(Ex x) {
  Ex s = chebyshev(x * x / 2.0 - 1.0, kK1Small) / x + (log(x) - std::numbers::ln2) * i1(x);
  Ex l = chebyshev(4.0 / x - 1.0, kK1Large) * x.map->math(ExprOp::kRsqrt, x);
  Ex y = select(x <= 2.0, scaled ? s * exp(x) : s, scaled ? l : l * exp(-x));
  return select(x == 0.0, number(x, kInf), select(x < 0.0, number(x, kNan), y));
}

// ---- first and second kind
// -----------------------------------------------------------------------------------------
constexpr double kNear = 8;  // up to here a series in the square, then amplitude and phase

template <size_t n>
Ex even_series(Ex x, const double (&c)[n]) {
  return chebyshev(x * x / 32.0 - 1.0, c);
}

// sqrt(2 / (pi x)) (P cos - Q sin) of x - order pi / 2 - pi / 4, or with sin and cos for the second kind. The sums
// of sin x and cos x are exact where a rounded phase would not be.
struct Wave {
  Ex p, q, sine, cosine, amplitude;
  template <size_t np, size_t nq>
  Wave(Ex x, const double (&cp)[np], const double (&cq)[nq], int order) {
    Ex u = kNear / x;
    Ex t = 2.0 * u * u - 1.0;
    p = chebyshev(t, cp);
    q = chebyshev(t, cq) / x;
    Ex s = sin(x) * std::numbers::sqrt2 * 0.5, c = cos(x) * std::numbers::sqrt2 * 0.5;
    sine = order == 0 ? s - c : -(s + c);
    cosine = order == 0 ? s + c : s - c;
    amplitude = sqrt(number(x, 2 / std::numbers::pi) / x);
  }
  Ex first() const { return amplitude * (p * cosine - q * sine); }
  Ex second() const { return amplitude * (p * sine + q * cosine); }
};

Ex j0(Ex x) {
  Ex size = abs(x);
  return select(size <= kNear, even_series(x, kJ0Small), Wave(size, kJ0P, kJ0Q, 0).first());
}
Ex j1(Ex x) {
  Ex size = abs(x);
  Ex far = Wave(size, kJ1P, kJ1Q, 1).first();
  return select(size <= kNear, x * even_series(x, kJ1Small), select(x < 0.0, -far, far));
}
Ex second_kind(Ex x, Ex near, Ex far) {
  Ex y = select(x <= kNear, near, far);
  return select(x == 0.0, number(x, -kInf), select(x < 0.0, number(x, kNan), y));
}
Ex y0(Ex x) {
  Ex near = even_series(x, kY0Small) + log(x) * (2 / std::numbers::pi) * even_series(x, kJ0Small);
  return second_kind(x, near, Wave(x, kJ0P, kJ0Q, 0).second());
}
Ex y1(Ex x) {
  Ex near = x * even_series(x, kY1Small) +
            (2 / std::numbers::pi) * (log(x) * x * even_series(x, kJ1Small) - 1.0 / x);
  return second_kind(x, near, Wave(x, kJ1P, kJ1Q, 1).second());
}

Ex spherical_j0(Ex x) {
  Ex square = x * x;
  Ex near = 1.0 - square / 6.0 * (1.0 - square / 20.0 * (1.0 - square / 42.0));
  Ex y = select(abs(x) < 0.5, near, sin(x) / x);
  return select(abs(x) == kInf, number(x, 0), y);
}

// ---- Airy
// ----------------------------------------------------------------------------------------------------------
Ex airy_ai(Ex x) {
  const double first = 2.0 / 3.0 * std::pow(2.0, 1.5);  // of the outer regions
  Ex size = abs(x);
  Ex root = sqrt(size);
  Ex zeta = size * root * (2.0 / 3.0);
  Ex u = number(x, first) / zeta;
  Ex scale = 1.0 / (sqrt(root) * std::sqrt(std::numbers::pi));
  Ex right = chebyshev(2.0 * u - 1.0, kAiryLarge) * scale * exp(-zeta) * 0.5;
  Ex t = 2.0 * u * u - 1.0;
  Ex s = sin(zeta) * std::numbers::sqrt2 * 0.5, c = cos(zeta) * std::numbers::sqrt2 * 0.5;
  Ex left = scale * (chebyshev(t, kAiryP) * (s + c) - chebyshev(t, kAiryQ) / zeta * (c - s));
  Ex y = select(size <= 2.0, chebyshev(x * 0.5, kAiryMiddle), select(x > 0.0, right, left));
  return select(size == kInf, number(x, kNan), y);
}

template <auto F>
constexpr LowerFn function = pointwise<[](Pointwise& p) { return F(p.f32(0)); }>;

TRNSIM_LOWER(std::vector<LowerRow>{
    {"aten::i0", function<i0>},
    {"aten::special_i0e", function<i0e>},
    {"aten::special_i1", function<i1>},
    {"aten::special_i1e", function<i1e>},
    {"aten::special_modified_bessel_i0", function<i0>},
    {"aten::special_modified_bessel_i1", function<i1>},
    {"aten::special_modified_bessel_k0", function<k0<false>>},
    {"aten::special_modified_bessel_k1", function<k1<false>>},
    {"aten::special_scaled_modified_bessel_k0", function<k0<true>>},
    {"aten::special_scaled_modified_bessel_k1", function<k1<true>>},
    {"aten::special_bessel_j0", function<j0>},
    {"aten::special_bessel_j1", function<j1>},
    {"aten::special_bessel_y0", function<y0>},
    {"aten::special_bessel_y1", function<y1>},
    {"aten::special_spherical_bessel_j0", function<spherical_j0>},
    {"aten::special_airy_ai", function<airy_ai>},
});

}  // namespace
}  // namespace trnsim::compiler
