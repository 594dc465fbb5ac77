// The inverse of a number in parts, which make a division by it two products and a sum.
#pragma once

#include <cmath>
#include <limits>

namespace trnsim::compiler {

// The reciprocal of a divisor below kTinyDivisor may overflow; it is scaled up, the dividend with it.
constexpr float kTinyDivisor = 0x1p-60f, kScaleUp = 0x1p60f;

// x / y = (x * scale) * high + (x * scale) * low.
struct InverseParts {
  float scale = 1, high = 0, low = 0;
};

// high + low is the inverse to twice the digits of FP32: the quotient is within one unit in the last place, and exact
// quotients come out exact. high is below the inverse in magnitude, so that low has its sign and infinities stay what
// they are. The scale keeps both parts among the normal numbers; where there is no inverse, high is also low.
inline InverseParts inverse_parts(float y) {
  const float magnitude = std::fabs(y);
  if (!(magnitude > 0 && magnitude < std::numeric_limits<float>::infinity())) return {1, 1 / y, 1 / y};
  const float scale = magnitude < kTinyDivisor ? kScaleUp : magnitude > 1 / kTinyDivisor ? 1 / kScaleUp : 1;
  const double scaled = static_cast<double>(y) * scale;
  auto high = static_cast<float>(1 / scaled);
  if (std::fabs(high * scaled) >= 1) high = std::nextafter(high, 0.0f);
  return {scale, high, static_cast<float>((1 - high * scaled) / scaled)};
}

}  // namespace trnsim::compiler
