#include "tests/cpp/compiler/reference_expr.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <stdexcept>

namespace trnsim::compiler::reference {
namespace {

Dtype compute(Dtype storage) {
  if (storage == Dtype::kBool || storage == Dtype::kU32) return storage;
  return isa::is_float(storage) ? Dtype::kF32 : Dtype::kI32;
}

double unary(ExprOp op, double x) {
  switch (op) {
    case ExprOp::kNeg:
      return -x;
    case ExprOp::kAbs:
      return std::abs(x);
    case ExprOp::kSign:
      return x > 0 ? 1 : x < 0 ? -1 : 0;
    case ExprOp::kSqrt:
      return std::sqrt(x);
    case ExprOp::kRsqrt:
      return 1 / std::sqrt(x);
    case ExprOp::kReciprocal:
      return 1 / x;
    case ExprOp::kExp:
      return std::exp(x);
    case ExprOp::kExpm1:
      return std::expm1(x);
    case ExprOp::kExp2:
      return std::exp2(x);
    case ExprOp::kLog:
      return std::log(x);
    case ExprOp::kLog1p:
      return std::log1p(x);
    case ExprOp::kLog2:
      return std::log2(x);
    case ExprOp::kLog10:
      return std::log10(x);
    case ExprOp::kSin:
      return std::sin(x);
    case ExprOp::kCos:
      return std::cos(x);
    case ExprOp::kTan:
      return std::tan(x);
    case ExprOp::kAsin:
      return std::asin(x);
    case ExprOp::kAcos:
      return std::acos(x);
    case ExprOp::kAtan:
      return std::atan(x);
    case ExprOp::kSinh:
      return std::sinh(x);
    case ExprOp::kCosh:
      return std::cosh(x);
    case ExprOp::kTanh:
      return std::tanh(x);
    case ExprOp::kAsinh:
      return std::asinh(x);
    case ExprOp::kAcosh:
      return std::acosh(x);
    case ExprOp::kAtanh:
      return std::atanh(x);
    case ExprOp::kErf:
      return std::erf(x);
    case ExprOp::kErfc:
      return std::erfc(x);
    case ExprOp::kErfcx:  // beyond the range of exp, the asymptotic series
      if (x > 26) return std::numbers::inv_sqrtpi / x * (1 - 0.5 / (x * x) + 0.75 / (x * x * x * x));
      return std::exp(x * x) * std::erfc(x);
    case ExprOp::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case ExprOp::kGelu:
      return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
    case ExprOp::kGeluTanh: {
      double beta = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
      return 0.5 * x * (1 + std::tanh(beta * (x + 0.044715 * x * x * x)));
    }
    case ExprOp::kSilu:
      return x / (1 + std::exp(-x));
    case ExprOp::kSoftplus:
      return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
    case ExprOp::kMish:
      return x * std::tanh(std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))));
    case ExprOp::kRelu:
      return std::isnan(x) ? x : std::max(x, 0.0);
    case ExprOp::kSquare:
      return x * x;
    case ExprOp::kFloor:
      return std::floor(x);
    case ExprOp::kCeil:
      return std::ceil(x);
    case ExprOp::kRound:
      return std::nearbyint(x);
    case ExprOp::kTrunc:
      return std::trunc(x);
    default:
      throw std::runtime_error("not a float unary operation");
  }
}

// The remainder with the sign of the divisor, and its quotient, computed as PyTorch does.
float python_mod(float a, float b) {
  float m = std::fmod(a, b);
  if (m != 0 && ((b < 0) != (m < 0))) m += b;
  return m;
}
float floor_div(float a, float b) {
  if (b == 0) return a / b;
  float m = std::fmod(a, b), q = (a - m) / b;
  if (m != 0 && ((b < 0) != (m < 0))) q -= 1;
  if (q == 0) return std::copysign(0.0f, a / b);
  float f = std::floor(q);
  return q - f > 0.5f ? f + 1 : f;
}

Cell binary_f(ExprOp op, float a, float b) {
  auto nan_or = [&](float v) { return Cell::real(std::isnan(a) ? a : std::isnan(b) ? b : v); };
  switch (op) {
    case ExprOp::kAdd:
      return Cell::real(a + b);
    case ExprOp::kSub:
      return Cell::real(a - b);
    case ExprOp::kMul:
      return Cell::real(a * b);
    case ExprOp::kDiv:
      return Cell::real(a / b);
    case ExprOp::kFloorDiv:
      return Cell::real(floor_div(a, b));
    case ExprOp::kTruncDiv:
      return Cell::real(std::trunc(a / b));
    case ExprOp::kRemainder:
      return Cell::real(python_mod(a, b));
    case ExprOp::kFmod:
      return Cell::real(std::fmod(a, b));
    case ExprOp::kPow:
      return Cell::real(static_cast<float>(std::pow(static_cast<double>(a), static_cast<double>(b))));
    case ExprOp::kMax:
      return nan_or(std::max(a, b));
    case ExprOp::kMin:
      return nan_or(std::min(a, b));
    case ExprOp::kAtan2:
      return Cell::real(std::atan2(a, b));
    case ExprOp::kCopySign:
      return Cell::real(std::copysign(a, b));
    case ExprOp::kEq:
      return Cell::boolean(a == b);
    case ExprOp::kNe:
      return Cell::boolean(a != b);
    case ExprOp::kLt:
      return Cell::boolean(a < b);
    case ExprOp::kLe:
      return Cell::boolean(a <= b);
    case ExprOp::kGt:
      return Cell::boolean(a > b);
    case ExprOp::kGe:
      return Cell::boolean(a >= b);
    case ExprOp::kAnd:
      return Cell::boolean(a != 0 && b != 0);
    case ExprOp::kOr:
      return Cell::boolean(a != 0 || b != 0);
    case ExprOp::kXor:
      return Cell::boolean((a != 0) != (b != 0));
    default:
      throw std::runtime_error("not a float binary operation");
  }
}

int32_t wrap(int64_t v) { return static_cast<int32_t>(static_cast<uint32_t>(v)); }

Cell binary_i(ExprOp op, Dtype t, int32_t ia, int32_t ib) {
  bool is_unsigned = t == Dtype::kU32;
  // both arms as int64: the common type of int32 and uint32 would be unsigned
  auto widen = [&](int32_t v) {
    return is_unsigned ? static_cast<int64_t>(static_cast<uint32_t>(v)) : static_cast<int64_t>(v);
  };
  int64_t a = widen(ia), b = widen(ib);
  auto value = [&](int64_t v) { return Cell{t, 0, wrap(v)}; };
  switch (op) {
    case ExprOp::kAdd:
      return value(a + b);
    case ExprOp::kSub:
      return value(a - b);
    case ExprOp::kMul:
      return value(static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b)));
    case ExprOp::kFloorDiv:
      if (b == 0) return value(0);
      return value(a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0));
    case ExprOp::kTruncDiv:
      return value(b == 0 ? 0 : a / b);
    case ExprOp::kRemainder: {
      if (b == 0) return value(0);
      int64_t m = a % b;
      return value(m != 0 && ((m < 0) != (b < 0)) ? m + b : m);
    }
    case ExprOp::kFmod:
      return value(b == 0 ? 0 : a % b);
    case ExprOp::kPow: {
      if (b < 0) return value(a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0);
      uint32_t r = 1, base = static_cast<uint32_t>(a);
      for (int64_t n = b; n; n >>= 1) {
        if (n & 1) r *= base;
        base *= base;
      }
      return value(r);
    }
    case ExprOp::kMax:
      return value(std::max(a, b));
    case ExprOp::kMin:
      return value(std::min(a, b));
    case ExprOp::kEq:
      return Cell::boolean(a == b);
    case ExprOp::kNe:
      return Cell::boolean(a != b);
    case ExprOp::kLt:
      return Cell::boolean(a < b);
    case ExprOp::kLe:
      return Cell::boolean(a <= b);
    case ExprOp::kGt:
      return Cell::boolean(a > b);
    case ExprOp::kGe:
      return Cell::boolean(a >= b);
    case ExprOp::kAnd:
      return Cell::boolean(a && b);
    case ExprOp::kOr:
      return Cell::boolean(a || b);
    case ExprOp::kXor:
      return Cell::boolean((a != 0) != (b != 0));
    case ExprOp::kBitAnd:
      return value(a & b);
    case ExprOp::kBitOr:
      return value(a | b);
    case ExprOp::kBitXor:
      return value(a ^ b);
    case ExprOp::kShl:
      return value(b < 0 || b > 31 ? 0 : static_cast<int64_t>(static_cast<uint32_t>(a) << b));
    case ExprOp::kShr:
      return value(b < 0 || b > 31 ? (a < 0 ? -1 : 0) : a >> b);
    default:
      throw std::runtime_error("not an integer binary operation");
  }
}

}  // namespace

Cell load_cell(Dtype storage, const std::byte* p) {
  Cell c;
  c.dtype = compute(storage);
  if (storage == Dtype::kF64) {
    double v;
    std::memcpy(&v, p, sizeof(v));
    c.f = static_cast<float>(v);
  } else if (c.dtype == Dtype::kF32) {
    c.f = isa::load_as_f32(storage, p);
  } else {
    c.i = wrap(isa::load_as_int(storage, p));
    if (c.dtype == Dtype::kBool) c.i = c.i != 0;
  }
  return c;
}

void store_cell(Dtype storage, std::byte* p, const Cell& c) {
  if (compute(storage) != c.dtype) throw std::runtime_error("a result stored in another computing type");
  if (storage == Dtype::kF64) {
    double v = static_cast<double>(c.f);
    std::memcpy(p, &v, sizeof(v));
  } else if (c.dtype == Dtype::kF32) {
    isa::store_from_f32(storage, p, c.f);
  } else {
    isa::store_from_int(storage, p,
                        c.dtype == Dtype::kU32 ? static_cast<int64_t>(static_cast<uint32_t>(c.i)) : c.i);
  }
}

Cell convert(const Cell& c, Dtype storage) {
  Dtype t = compute(storage);
  if (t == c.dtype) return c;
  if (t == Dtype::kF32) {
    return Cell::real(c.dtype == Dtype::kU32 ? static_cast<float>(static_cast<uint32_t>(c.i))
                                             : static_cast<float>(c.i));
  }
  if (t == Dtype::kBool) return Cell::boolean(c.dtype == Dtype::kF32 ? c.f != 0 : c.i != 0);
  if (c.dtype != Dtype::kF32) return {t, 0, c.i};
  float f = std::isnan(c.f) ? 0.0f : std::trunc(c.f);
  double clamped =
      std::clamp(static_cast<double>(f), -2147483648.0, t == Dtype::kU32 ? 4294967295.0 : 2147483647.0);
  return {t, 0, wrap(static_cast<int64_t>(clamped))};
}

Cell evaluate(const Expr& e, const Cell& a, const Cell& b, const Cell& c,
              const std::vector<uint32_t>& params) {
  switch (e.op) {
    case ExprOp::kParam: {
      uint32_t bits = params.at(static_cast<size_t>(e.index));
      Cell r;
      r.dtype = e.dtype;
      if (e.dtype == Dtype::kF32)
        std::memcpy(&r.f, &bits, 4);
      else
        r.i = static_cast<int32_t>(bits);
      return r;
    }
    case ExprOp::kConst:
      if (e.dtype == Dtype::kF32) return Cell::real(static_cast<float>(e.value));
      return {e.dtype, 0, wrap(static_cast<int64_t>(e.value))};
    case ExprOp::kCast: {
      Cell r = a;
      if (compute(e.cast_to) != a.dtype) r = convert(r, e.cast_to);
      alignas(8) std::byte bytes[8];
      store_cell(e.cast_to, bytes, r);
      return load_cell(e.cast_to, bytes);
    }
    case ExprOp::kSelect:
      if (a.dtype != Dtype::kBool || b.dtype != c.dtype) throw std::runtime_error("select of wrong types");
      return a.i ? b : c;
    case ExprOp::kNot:
      return Cell::boolean(a.dtype == Dtype::kF32 ? a.f == 0 : a.i == 0);
    case ExprOp::kBitNot:
      return {a.dtype, 0, ~a.i};
    case ExprOp::kIsNan:
      return Cell::boolean(std::isnan(a.f));
    case ExprOp::kIsInf:
      return Cell::boolean(std::isinf(a.f));
    case ExprOp::kSignBit:
      return Cell::boolean(std::signbit(a.f));
    default:
      break;
  }
  if (e.b < 0) {
    if (a.dtype == Dtype::kF32) {
      return Cell::real(static_cast<float>(unary(e.op, static_cast<double>(a.f))));
    }
    int64_t i = a.i;
    switch (e.op) {
      case ExprOp::kNeg:
        return {a.dtype, 0, wrap(-i)};
      case ExprOp::kAbs:
        return {a.dtype, 0, wrap(std::abs(i))};
      case ExprOp::kSign:
        return {a.dtype, 0, i > 0 ? 1 : i < 0 ? -1 : 0};
      case ExprOp::kRelu:
        return {a.dtype, 0, static_cast<int32_t>(std::max<int64_t>(i, 0))};
      case ExprOp::kSquare:
        return {a.dtype, 0, wrap(i * i)};
      case ExprOp::kFloor:
      case ExprOp::kCeil:
      case ExprOp::kRound:
      case ExprOp::kTrunc:
        return a;
      default:
        throw std::runtime_error("not an integer unary operation");
    }
  }
  if (a.dtype != b.dtype) throw std::runtime_error("operands of two computing types");
  return a.dtype == Dtype::kF32 ? binary_f(e.op, a.f, b.f) : binary_i(e.op, a.dtype, a.i, b.i);
}

Cell reduce_cells(const Expr& e, const std::vector<Cell>& values) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  if (e.dtype == Dtype::kF32) {
    double sum = 0, prod = 1;
    float hi = -kInf, lo = kInf;
    bool nan = false;
    for (const Cell& c : values) {
      sum += static_cast<double>(c.f);
      prod *= static_cast<double>(c.f);
      hi = std::max(hi, c.f);
      lo = std::min(lo, c.f);
      nan = nan || std::isnan(c.f);
    }
    switch (e.reduce) {
      case ReduceOp::kSum:
        return Cell::real(static_cast<float>(sum));
      case ReduceOp::kProd:
        return Cell::real(static_cast<float>(prod));
      case ReduceOp::kMax:
        return Cell::real(nan ? std::numeric_limits<float>::quiet_NaN() : hi);
      case ReduceOp::kMin:
        return Cell::real(nan ? std::numeric_limits<float>::quiet_NaN() : lo);
      default:
        throw std::runtime_error("any / all of floats");
    }
  }
  uint32_t sum = 0, prod = 1;
  int32_t hi = std::numeric_limits<int32_t>::min(), lo = std::numeric_limits<int32_t>::max();
  bool any = false, all = true;
  for (const Cell& c : values) {
    sum += static_cast<uint32_t>(c.i);
    prod *= static_cast<uint32_t>(c.i);
    hi = std::max(hi, c.i);
    lo = std::min(lo, c.i);
    any = any || c.i;
    all = all && c.i;
  }
  switch (e.reduce) {
    case ReduceOp::kSum:
      return {e.dtype, 0, static_cast<int32_t>(sum)};
    case ReduceOp::kProd:
      return {e.dtype, 0, static_cast<int32_t>(prod)};
    case ReduceOp::kMax:
      return {e.dtype, 0, hi};
    case ReduceOp::kMin:
      return {e.dtype, 0, lo};
    case ReduceOp::kAny:
      return Cell::boolean(any);
    case ReduceOp::kAll:
      return Cell::boolean(all);
  }
  return {};
}

}  // namespace trnsim::compiler::reference
