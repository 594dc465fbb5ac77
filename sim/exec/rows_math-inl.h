// Transcendental functions of the activations, per SIMD target (included once per target by
// foreach_target.h). They are evaluated in double precision with polynomials good to about 1e-11 relative, so
// the FP32 result is the correctly rounded one except very near a rounding boundary, and functions composed
// of several (gelu, mish, softplus) lose nothing in between. Coefficients: Chebyshev interpolation on the
// interval named at each polynomial.
#if defined(TRNSIM_EXEC_ROWS_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRNSIM_EXEC_ROWS_MATH_INL_H_
#undef TRNSIM_EXEC_ROWS_MATH_INL_H_
#else
#define TRNSIM_EXEC_ROWS_MATH_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace trnsim::exec {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DD = hn::ScalableTag<double>;
using VD = hn::Vec<DD>;

// Stores Lanes(DD) elements as FP32, infinities as infinities: the library's demotion for machines without SIMD turns
// them into the largest finite number.
HWY_INLINE void store_f32(VD v, float* out) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  double lanes[HWY_MAX_BYTES / sizeof(double)];
  hn::StoreU(v, DD(), lanes);
  for (size_t i = 0; i < hn::Lanes(DD()); ++i) out[i] = static_cast<float>(lanes[i]);
#else
  const hn::Rebind<float, DD> df;
  hn::StoreU(hn::DemoteTo(df, v), df, out);
#endif
}

template <size_t N>
HWY_INLINE VD polynomial(VD x, const double (&c)[N]) {
  const DD d;
  VD r = hn::Set(d, c[N - 1]);
  for (size_t i = N - 1; i-- > 0;) r = hn::MulAdd(r, x, hn::Set(d, c[i]));
  return r;
}

// e^x. Below -708 the result is 0 and above 709 infinity, both far outside FP32. NaN stays NaN.
HWY_INLINE VD exp_d(VD x) {
  const DD d;
  const hn::RebindToUnsigned<DD> du;
  // [-ln2/2, ln2/2], 1e-12
  static constexpr double kP[] = {1.0,
                                  0.99999999997978217,
                                  0.49999999999797904,
                                  0.16666666891070696,
                                  0.041666666890981906,
                                  0.0083332660929701694,
                                  0.0013888821672653597,
                                  0.00019915869690607195,
                                  2.4876166784942655e-5};
  // Clamped so that the exponent arithmetic stays in range; Min/Max order keeps the comparison results below.
  const VD clamped = hn::Min(hn::Max(x, hn::Set(d, -708.0)), hn::Set(d, 709.0));
  const VD magic = hn::Set(d, 6755399441055744.0);  // 1.5 * 2^52: the integer lands in the low mantissa bits
  const VD shifted = hn::MulAdd(clamped, hn::Set(d, 1.4426950408889634), magic);
  const VD n = hn::Sub(shifted, magic);
  VD r = hn::NegMulAdd(n, hn::Set(d, 0.69314718055994529), clamped);
  r = hn::NegMulAdd(n, hn::Set(d, 2.3190468138462996e-17), r);
  const VD p = polynomial(r, kP);
  const auto scaled = hn::Add(hn::BitCast(du, p), hn::ShiftLeft<52>(hn::BitCast(du, shifted)));
  VD result = hn::BitCast(d, scaled);
  result = hn::IfThenElse(hn::Gt(x, hn::Set(d, 709.0)), hn::Inf(d), result);
  result = hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -708.0)), result);
  return hn::IfThenElse(hn::IsNaN(x), x, result);
}

// atanh(s)/s in z = s*s
HWY_INLINE VD atanh_over_s_small(VD z) {  // |s| <= (sqrt2 - 1)/(sqrt2 + 1), 3e-14
  static constexpr double kP[] = {0.99999999999997352, 0.33333333339803836, 0.19999997441404713,
                                  0.14286083563821822, 0.11087103500342053, 0.098043719065260999};
  return polynomial(z, kP);
}
HWY_INLINE VD atanh_over_s(VD z) {  // |s| <= 1/3, 2e-15
  static constexpr double kP[] = {1.0000000000000017,   0.33333333333089638,  0.20000000058255082,
                                  0.14285708939735673,  0.11111355946533202,  0.090846447055774802,
                                  0.077856094211522233, 0.058709683813784952, 0.093826641007078795};
  return polynomial(z, kP);
}

// log(x) of doubles that are normal (every positive FP32 is). Zero gives -inf, negative and NaN give NaN.
HWY_INLINE VD log_d(VD x) {
  const DD d;
  const hn::RebindToUnsigned<DD> du;
  const auto bits = hn::BitCast(du, x);
  // Mantissa in [sqrt(1/2), sqrt(2)): subtract the exponent of x / sqrt(1/2).
  const auto adjusted = hn::Sub(bits, hn::Set(du, 0x3fe6a09e667f3bcdULL));
  // Biased so that the unsigned shift keeps the sign: exponent + 2048.
  const auto exponent = hn::ShiftRight<52>(hn::Add(adjusted, hn::Set(du, uint64_t{2048} << 52)));
  // Unsigned integer below 2^12 to double through the mantissa.
  const VD e = hn::Sub(hn::BitCast(d, hn::Or(exponent, hn::Set(du, 0x4330000000000000ULL))),
                       hn::Set(d, 4503599627370496.0 + 2048.0));
  const auto exponent_bits = hn::ShiftLeft<52>(hn::Sub(exponent, hn::Set(du, uint64_t{2048})));
  const VD m = hn::BitCast(d, hn::Sub(bits, exponent_bits));
  const VD one = hn::Set(d, 1.0);
  const VD s = hn::Div(hn::Sub(m, one), hn::Add(m, one));
  const VD l = hn::Mul(hn::Add(s, s), atanh_over_s_small(hn::Mul(s, s)));
  VD result = hn::MulAdd(e, hn::Set(d, 0.69314718055994529), l);
  result = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Neg(hn::Inf(d)), result);
  result = hn::IfThenElse(hn::Eq(x, hn::Inf(d)), hn::Inf(d), result);
  // Negative numbers and NaN.
  return hn::IfThenElse(hn::Ge(x, hn::Zero(d)), result, hn::NaN(d));
}

// log(1 + e) for 0 <= e <= 1, exact relative accuracy for small e too
HWY_INLINE VD log1p_unit_d(VD e) {
  const DD d;
  const VD s = hn::Div(e, hn::Add(e, hn::Set(d, 2.0)));
  return hn::Mul(hn::Add(s, s), atanh_over_s(hn::Mul(s, s)));
}

HWY_INLINE VD tanh_d(VD x) {
  const DD d;
  const VD a = hn::Abs(x);
  const VD one = hn::Set(d, 1.0);
  const VD e = exp_d(hn::Mul(a, hn::Set(d, -2.0)));
  const VD big = hn::Div(hn::Sub(one, e), hn::Add(one, e));
  // Below 2^-7 the difference 1 - e would lose digits: x - x^3/3 + 2x^5/15 - 17x^7/315.
  const VD z = hn::Mul(a, a);
  static constexpr double kP[] = {1.0, -1.0 / 3, 2.0 / 15, -17.0 / 315};
  const VD small = hn::Mul(a, polynomial(z, kP));
  return hn::CopySign(hn::IfThenElse(hn::Lt(a, hn::Set(d, 0.0078125)), small, big), x);
}

// erfc(t) for t >= 0; exp(-t^2) * polynomial / (1 + 2t), 2e-12 relative for t <= 10.5. Larger t: below FP32.
HWY_INLINE VD erfc_positive_d(VD t) {
  const DD d;
  static constexpr double kP[] = {1.2648381843671673,     -0.12235676306962208,   -0.099024539585065014,
                                  0.1576299181094837,     -0.10296705738143106,   0.032760910964946885,
                                  0.00093193365508352742, -0.0043822094729715183, 0.00049145546696580264,
                                  0.00063245460448199615, -8.6635041653680326e-5, -0.00011308605648753583,
                                  2.5824904107473314e-6,  1.9391805632446619e-5,  4.6929151168487857e-6};
  const VD c = hn::Min(t, hn::Set(d, 10.5));
  const VD k = hn::Set(d, 2.5);
  const VD u = hn::Div(hn::Sub(c, k), hn::Add(c, k));
  const VD g = hn::Div(polynomial(u, kP), hn::MulAdd(c, hn::Set(d, 2.0), hn::Set(d, 1.0)));
  return hn::Mul(exp_d(hn::Neg(hn::Mul(t, t))), g);
}

HWY_INLINE VD erf_d(VD x) {
  const DD d;
  // erf(x)/x in z = x^2 on [0, 1], 2e-14
  static constexpr double kP[] = {1.1283791670954938,     -0.37612638902808614,   0.11283791658548713,
                                  -0.026866169050599324,  0.0052239671935438997,  -0.00085479337365196332,
                                  0.00012046261269779797, -1.4795031400662045e-5, 1.5306373163641084e-6,
                                  -1.0469110332151208e-7};
  const VD a = hn::Abs(x);
  const VD one = hn::Set(d, 1.0);
  const VD small = hn::Mul(a, polynomial(hn::Min(hn::Mul(a, a), one), kP));
  const VD big = hn::Sub(one, erfc_positive_d(a));
  const VD r = hn::CopySign(hn::IfThenElse(hn::Lt(a, one), small, big), x);
  return hn::IfThenElse(hn::IsNaN(x), x, r);
}

// sin(x), |x| <= 2^22 (the caller handles the rest): x - n*pi in three steps, then an odd polynomial on
// [-pi/2, pi/2], 8e-14. The first two parts of pi have 30 bits, so that their products with n are exact on
// hosts without fused multiply-add too.
HWY_INLINE VD sin_d(VD x) {
  const DD d;
  const hn::RebindToUnsigned<DD> du;
  static constexpr double kP[] = {0.99999999999994964,     -0.16666666666466624,  0.0083333333203557642,
                                  -0.00019841266682628127, 2.7556952869227767e-6, -2.5030266460313166e-8,
                                  1.5411194278303234e-10};
  const VD magic = hn::Set(d, 6755399441055744.0);
  const VD shifted = hn::MulAdd(x, hn::Set(d, 0.31830988618379069), magic);
  const VD n = hn::Sub(shifted, magic);
  VD r = hn::NegMulAdd(n, hn::Set(d, 3.1415926553308964), x);
  r = hn::NegMulAdd(n, hn::Set(d, -1.7411031384001463e-09), r);
  r = hn::NegMulAdd(n, hn::Set(d, -7.00686879617986e-19), r);
  const VD s = hn::Mul(r, polynomial(hn::Mul(r, r), kP));
  // Odd n flips the sign. The steps would turn -0 into 0.
  const VD flipped = hn::Xor(s, hn::BitCast(d, hn::ShiftLeft<63>(hn::BitCast(du, shifted))));
  return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, flipped);
}

HWY_INLINE VD atan_d(VD x) {
  const DD d;
  // atan(t)/t in z = t^2, |t| <= tan(pi/8), 3e-14
  static constexpr double kP[] = {0.9999999999999732,   -0.33333333330800493,  0.19999999604493086,
                                  -0.14285690403489937, 0.11110384540111885,   -0.090783852822936228,
                                  0.07563653341872165,  -0.058743132097436963, 0.030659457175384073};
  const VD one = hn::Set(d, 1.0);
  const VD a = hn::Abs(x);
  const auto above_one = hn::Gt(a, one);
  const VD b = hn::IfThenElse(above_one, hn::Div(one, a), a);  // infinity gives 0
  const auto upper = hn::Gt(b, hn::Set(d, 0.41421356237309503));
  const VD t = hn::IfThenElse(upper, hn::Div(hn::Sub(b, one), hn::Add(b, one)), b);
  VD r = hn::Mul(t, polynomial(hn::Mul(t, t), kP));
  r = hn::Add(r, hn::IfThenElseZero(upper, hn::Set(d, 0.78539816339744828)));
  r = hn::IfThenElse(above_one, hn::Sub(hn::Set(d, 1.5707963267948966), r), r);
  return hn::CopySign(r, x);
}

HWY_INLINE VD sigmoid_d(VD x) {
  const DD d;
  const VD one = hn::Set(d, 1.0);
  return hn::Div(one, hn::Add(one, exp_d(hn::Neg(x))));
}
HWY_INLINE VD silu_d(VD x) {
  const DD d;
  return hn::Div(x, hn::Add(hn::Set(d, 1.0), exp_d(hn::Neg(x))));
}
HWY_INLINE VD gelu_d(VD x) {
  const DD d;
  // x * erfc(-x/sqrt2) / 2; for x > 0: erfc(-t) = 2 - erfc(t)
  const VD e = erfc_positive_d(hn::Mul(hn::Abs(x), hn::Set(d, 0.70710678118654757)));
  const VD phi2 = hn::IfThenElse(hn::Gt(x, hn::Zero(d)), hn::Sub(hn::Set(d, 2.0), e), e);
  return hn::Mul(hn::Mul(x, hn::Set(d, 0.5)), phi2);
}
HWY_INLINE VD gelu_tanh_d(VD x) {
  const DD d;
  // 0.5 (1 + tanh u) = 1 / (1 + e^-2u), u = sqrt(2/pi) (x + 0.044715 x^3)
  const VD u2 = hn::Mul(hn::Mul(x, hn::Set(d, -1.5957691216057308)),
                        hn::MulAdd(hn::Mul(x, x), hn::Set(d, 0.044715), hn::Set(d, 1.0)));
  return hn::Div(x, hn::Add(hn::Set(d, 1.0), exp_d(u2)));
}
// d/dx of x * sigmoid(k x): s + k x s (1 - s). Far out the second term is 0, also for infinite x.
HWY_INLINE VD swish_dx_d(VD x, double k) {
  const DD d;
  const VD s = sigmoid_d(hn::Mul(x, hn::Set(d, k)));
  const VD clamped = hn::Min(hn::Max(x, hn::Set(d, -1000.0)), hn::Set(d, 1000.0));
  const VD t = sigmoid_d(hn::Mul(clamped, hn::Set(d, -k)));  // 1 - s without the cancellation
  return hn::MulAdd(hn::Mul(clamped, hn::Set(d, k)), hn::Mul(s, t), s);
}
HWY_INLINE VD silu_dx_d(VD x) { return swish_dx_d(x, 1.0); }
HWY_INLINE VD gelu_sigmoid_dx_d(VD x) { return swish_dx_d(x, 1.702); }
HWY_INLINE VD gelu_sigmoid_d(VD x) {
  const DD d;
  return hn::Div(x, hn::Add(hn::Set(d, 1.0), exp_d(hn::Mul(x, hn::Set(d, -1.702)))));
}
HWY_INLINE VD erf_dx_d(VD x) {
  const DD d;
  return hn::Mul(hn::Set(d, 1.1283791670955126), exp_d(hn::Neg(hn::Mul(x, x))));
}
HWY_INLINE VD gelu_dx_d(VD x) {
  const DD d;
  const VD e = erfc_positive_d(hn::Mul(hn::Abs(x), hn::Set(d, 0.70710678118654757)));
  const VD phi2 = hn::IfThenElse(hn::Gt(x, hn::Zero(d)), hn::Sub(hn::Set(d, 2.0), e), e);
  const VD clamped = hn::Min(hn::Max(x, hn::Set(d, -1000.0)), hn::Set(d, 1000.0));
  const VD density =
      hn::Mul(hn::Set(d, 0.3989422804014327), exp_d(hn::Mul(hn::Mul(clamped, clamped), hn::Set(d, -0.5))));
  const VD r = hn::MulAdd(clamped, density, hn::Mul(hn::Set(d, 0.5), phi2));
  return hn::IfThenElse(hn::IsNaN(x), x, r);
}
HWY_INLINE VD softplus_d(VD x) {
  const DD d;
  const VD l = log1p_unit_d(exp_d(hn::Neg(hn::Abs(x))));
  return hn::Add(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Zero(d), x), l);
}
HWY_INLINE VD mish_d(VD x) {
  const DD d;
  // tanh(log(1 + e)) = e(e + 2) / (e(e + 2) + 2); from 40 on it is 1 in FP32
  const VD e = exp_d(hn::Min(x, hn::Set(d, 40.0)));
  const VD q = hn::Mul(e, hn::Add(e, hn::Set(d, 2.0)));
  const VD r = hn::Mul(x, hn::Div(q, hn::Add(q, hn::Set(d, 2.0))));
  return hn::IfThenElse(hn::IsNaN(x), x, r);
}

// |a|^b for finite, nonzero a and finite b; the caller handles the rest.
HWY_INLINE VD pow_positive_d(VD a, VD b) { return exp_d(hn::Mul(b, log_d(a))); }

}  // namespace HWY_NAMESPACE
}  // namespace trnsim::exec
HWY_AFTER_NAMESPACE();

#endif
