// A plain evaluator of map kernels, written from the meaning of the expression operators (PyTorch on the CPU)
// and sharing nothing with the tiler.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <vector>

#include "device_plugin/compiler/kernels.h"
#include "isa/dtype.h"

namespace trnsim::compiler::reference {

using Memory = std::vector<std::vector<uint8_t>>;  // per buffer

struct Number {
  float f = 0;
  int64_t i = 0;  // integers and bool
};

inline int64_t wrap(int64_t v, Dtype d) {
  switch (d) {
    case Dtype::kI8:
      return static_cast<int8_t>(v);
    case Dtype::kU8:
      return static_cast<uint8_t>(v);
    case Dtype::kI16:
      return static_cast<int16_t>(v);
    case Dtype::kU16:
      return static_cast<uint16_t>(v);
    case Dtype::kU32:
      return static_cast<uint32_t>(v);
    case Dtype::kBool:
      return v != 0;
    case Dtype::kI64:
      return v;
    default:
      return static_cast<int32_t>(v);
  }
}

inline Number read(const Memory& m, const View& v, int64_t index, Dtype cls) {
  const uint8_t* p = m.at(v.buffer).data() + index * static_cast<int64_t>(isa::dtype_bytes(v.dtype));
  Number n;
  if (v.dtype == Dtype::kF64) {
    double d;
    std::memcpy(&d, p, 8);
    n.f = static_cast<float>(d);
  } else if (isa::is_float(v.dtype)) {
    n.f = isa::load_as_f32(v.dtype, p);
  } else {
    n.i = wrap(isa::load_as_int(v.dtype, p), cls);
  }
  return n;
}

inline void write(Memory& m, const View& v, int64_t index, Number n) {
  uint8_t* p = m.at(v.buffer).data() + index * static_cast<int64_t>(isa::dtype_bytes(v.dtype));
  if (v.dtype == Dtype::kF64) {
    double d = n.f;
    std::memcpy(p, &d, 8);
  } else if (isa::is_float(v.dtype)) {
    isa::store_from_f32(v.dtype, p, n.f);
  } else {
    isa::store_from_int(v.dtype, p, n.i);
  }
}

inline int64_t floor_div(int64_t a, int64_t b) {
  int64_t q = a / b;
  return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}

inline float unary(ExprOp op, float x) {
  double d = x;
  switch (op) {
    case ExprOp::kNeg:
      return -x;
    case ExprOp::kAbs:
      return std::fabs(x);
    case ExprOp::kSign:
      return static_cast<float>((x > 0) - (x < 0));
    case ExprOp::kSqrt:
      return static_cast<float>(std::sqrt(d));
    case ExprOp::kRsqrt:
      return static_cast<float>(1.0 / std::sqrt(d));
    case ExprOp::kReciprocal:
      return 1.0f / x;
    case ExprOp::kExp:
      return static_cast<float>(std::exp(d));
    case ExprOp::kExpm1:
      return static_cast<float>(std::expm1(d));
    case ExprOp::kExp2:
      return static_cast<float>(std::exp2(d));
    case ExprOp::kLog:
      return static_cast<float>(std::log(d));
    case ExprOp::kLog1p:
      return static_cast<float>(std::log1p(d));
    case ExprOp::kLog2:
      return static_cast<float>(std::log2(d));
    case ExprOp::kLog10:
      return static_cast<float>(std::log10(d));
    case ExprOp::kSin:
      return static_cast<float>(std::sin(d));
    case ExprOp::kCos:
      return static_cast<float>(std::cos(d));
    case ExprOp::kTan:
      return static_cast<float>(std::tan(d));
    case ExprOp::kAsin:
      return static_cast<float>(std::asin(d));
    case ExprOp::kAcos:
      return static_cast<float>(std::acos(d));
    case ExprOp::kAtan:
      return static_cast<float>(std::atan(d));
    case ExprOp::kSinh:
      return static_cast<float>(std::sinh(d));
    case ExprOp::kCosh:
      return static_cast<float>(std::cosh(d));
    case ExprOp::kTanh:
      return static_cast<float>(std::tanh(d));
    case ExprOp::kAsinh:
      return static_cast<float>(std::asinh(d));
    case ExprOp::kAcosh:
      return static_cast<float>(std::acosh(d));
    case ExprOp::kAtanh:
      return static_cast<float>(std::atanh(d));
    case ExprOp::kErf:
      return static_cast<float>(std::erf(d));
    case ExprOp::kErfc:
      return static_cast<float>(std::erfc(d));
    case ExprOp::kSigmoid:
      return static_cast<float>(1 / (1 + std::exp(-d)));
    case ExprOp::kGelu:
      return static_cast<float>(0.5 * d * (1 + std::erf(d * M_SQRT1_2)));
    case ExprOp::kGeluTanh:
      return static_cast<float>(0.5 * d * (1 + std::tanh(std::sqrt(2 / M_PI) * (d + 0.044715 * d * d * d))));
    case ExprOp::kSilu:
      return static_cast<float>(d / (1 + std::exp(-d)));
    case ExprOp::kSoftplus:
      return static_cast<float>(d > 20 ? d : std::log1p(std::exp(d)));
    case ExprOp::kMish:
      return static_cast<float>(d * std::tanh(d > 20 ? d : std::log1p(std::exp(d))));
    case ExprOp::kRelu:
      return x != x ? x : (x > 0 ? x : 0.0f);
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
      throw std::logic_error("unary");
  }
}

inline float binary(ExprOp op, float x, float y) {
  switch (op) {
    case ExprOp::kAdd:
      return x + y;
    case ExprOp::kSub:
      return x - y;
    case ExprOp::kMul:
      return x * y;
    case ExprOp::kDiv:
      return x / y;
    case ExprOp::kPow:
      return static_cast<float>(std::pow(static_cast<double>(x), static_cast<double>(y)));
    case ExprOp::kMax:
      return x != x || y != y ? NAN : (x > y ? x : y);
    case ExprOp::kMin:
      return x != x || y != y ? NAN : (x < y ? x : y);
    case ExprOp::kAtan2:
      return static_cast<float>(std::atan2(static_cast<double>(x), static_cast<double>(y)));
    case ExprOp::kFmod:
      return std::fmod(x, y);
    case ExprOp::kRemainder: {
      float m = std::fmod(x, y);
      return m != 0 && (y < 0) != (m < 0) ? m + y : m;
    }
    case ExprOp::kTruncDiv:
      return std::trunc(x / y);
    case ExprOp::kFloorDiv: {
      if (y == 0) return x / y;
      float m = std::fmod(x, y), d = (x - m) / y;
      if (m != 0 && (y < 0) != (m < 0)) d -= 1;
      if (d == 0) return std::copysign(0.0f, x / y);
      float f = std::floor(d);
      return d - f > 0.5f ? f + 1 : f;
    }
    default:
      throw std::logic_error("binary");
  }
}

inline int64_t binary_int(ExprOp op, int64_t x, int64_t y, Dtype cls) {
  switch (op) {
    case ExprOp::kAdd:
      return wrap(x + y, cls);
    case ExprOp::kSub:
      return wrap(x - y, cls);
    case ExprOp::kMul:
      return wrap(static_cast<int64_t>(static_cast<uint64_t>(x) * static_cast<uint64_t>(y)), cls);
    case ExprOp::kMax:
      return std::max(x, y);
    case ExprOp::kMin:
      return std::min(x, y);
    case ExprOp::kFloorDiv:
      return wrap(floor_div(x, y), cls);
    case ExprOp::kTruncDiv:
      return wrap(x / y, cls);
    case ExprOp::kRemainder:
      return x - floor_div(x, y) * y;
    case ExprOp::kFmod:
      return x % y;
    case ExprOp::kPow: {
      int64_t r = 1;
      for (int64_t i = 0; i < y; ++i) r = wrap(r * x, cls);
      return r;
    }
    case ExprOp::kBitAnd:
      return x & y;
    case ExprOp::kBitOr:
      return x | y;
    case ExprOp::kBitXor:
      return wrap(x ^ y, cls);
    case ExprOp::kShl:
      return wrap(x << y, cls);
    case ExprOp::kShr:
      return x >> y;
    default:
      throw std::logic_error("binary_int");
  }
}

class Evaluator {
 public:
  Evaluator(const MapKernel& k, Memory& memory, const std::vector<uint32_t>& params)
      : k_(k), memory_(memory), params_(params) {}

  void run() {
    int rank = static_cast<int>(k_.domain.size());
    int64_t rows = 1, length = 1;
    for (int i = 0; i < rank; ++i) (i < k_.num_kept ? rows : length) *= k_.domain[i];
    Memory result = memory_;
    std::vector<int64_t> index(rank, 0);
    for (int64_t r = 0; r < rows; ++r) {
      decode(r, 0, k_.num_kept, index);
      row_.clear();
      for (size_t e = 0; e < k_.exprs.size(); ++e) {
        if (k_.exprs[e].op == ExprOp::kReduce) row_[static_cast<int>(e)] = reduce(k_.exprs[e], length, index);
      }
      for (const auto& o : k_.outputs) {
        bool full = static_cast<int>(o.view.sizes.size()) == rank;
        int64_t n = full ? length : 1;
        for (int64_t c = 0; c < n; ++c) {
          if (full) decode(c, k_.num_kept, rank, index);
          int64_t at = o.view.offset;
          for (size_t d = 0; d < o.view.sizes.size(); ++d) at += index[d] * o.view.strides[d];
          write(result, o.view, at, value(o.expr, index));
        }
      }
    }
    memory_ = result;
  }

 private:
  void decode(int64_t flat, int begin, int end, std::vector<int64_t>& index) const {
    for (int d = end - 1; d >= begin; --d) {
      index[d] = flat % k_.domain[d];
      flat /= k_.domain[d];
    }
  }

  Number reduce(const Expr& e, int64_t length, std::vector<int64_t> index) {
    Dtype cls = k_.exprs[e.a].dtype;
    int rank = static_cast<int>(k_.domain.size());
    double sum = 0, prod = 1;
    float best = 0;
    bool nan = false;
    int64_t isum = 0, iprod = 1, ibest = 0;
    for (int64_t c = 0; c < length; ++c) {
      decode(c, k_.num_kept, rank, index);
      Number n = value(e.a, index);
      sum += n.f;
      prod *= n.f;
      isum += n.i;
      iprod = wrap(iprod * n.i, cls);
      nan = nan || n.f != n.f;
      bool max = e.reduce == ReduceOp::kMax || e.reduce == ReduceOp::kAny;
      if (c == 0 || (max ? n.f > best : n.f < best)) best = n.f;
      if (c == 0 || (max ? n.i > ibest : n.i < ibest)) ibest = n.i;
    }
    Number r;
    switch (e.reduce) {
      case ReduceOp::kSum:
        r.f = static_cast<float>(sum);
        r.i = wrap(isum, cls);
        break;
      case ReduceOp::kProd:
        r.f = static_cast<float>(prod);
        r.i = iprod;
        break;
      default:
        r.f = nan ? NAN : best;
        r.i = ibest;
    }
    return r;
  }

  Number value(int32_t n, const std::vector<int64_t>& index) {
    const Expr& e = k_.exprs[n];
    Number r;
    auto cls = [&](int32_t o) { return k_.exprs[o].dtype; };
    switch (e.op) {
      case ExprOp::kInput: {
        const View& v = k_.inputs[e.index];
        int64_t at = v.offset;
        for (size_t d = 0; d < v.sizes.size(); ++d) at += index[d] * v.strides[d];
        return read(memory_, v, at, e.dtype);
      }
      case ExprOp::kParam: {
        uint32_t bits = params_.at(e.index);
        std::memcpy(&r.f, &bits, 4);
        r.i = wrap(static_cast<int32_t>(bits), e.dtype);
        return r;
      }
      case ExprOp::kConst:
        r.f = static_cast<float>(e.value);
        if (e.dtype != Dtype::kF32) r.i = wrap(static_cast<int64_t>(e.value), e.dtype);
        return r;
      case ExprOp::kIota:
        r.i = index[e.index];
        r.f = static_cast<float>(r.i);
        return r;
      case ExprOp::kReduce:
        return row_.at(n);
      case ExprOp::kSelect:
        return value(e.a, index).i != 0 ? value(e.b, index) : value(e.c, index);
      default:
        break;
    }
    Number a = value(e.a, index), b;
    if (e.b >= 0) b = value(e.b, index);
    bool fa = cls(e.a) == Dtype::kF32;
    double x = fa ? a.f : static_cast<double>(a.i);
    double y = e.b >= 0 ? (cls(e.b) == Dtype::kF32 ? b.f : static_cast<double>(b.i)) : 0;
    switch (e.op) {
      case ExprOp::kCast: {
        if (e.dtype == Dtype::kF32) {
          r.f = static_cast<float>(x);
          uint8_t buffer[8];
          if (e.cast_to != Dtype::kF64 && isa::is_float(e.cast_to)) {
            isa::store_from_f32(e.cast_to, buffer, r.f);
            r.f = isa::load_as_f32(e.cast_to, buffer);
          }
        } else if (e.dtype == Dtype::kBool) {
          r.i = x != 0;
        } else {
          r.i = wrap(wrap(fa ? static_cast<int64_t>(a.f) : a.i, e.cast_to), e.dtype);
        }
        return r;
      }
      case ExprOp::kEq:
        r.i = x == y;
        return r;
      case ExprOp::kNe:
        r.i = x != y;
        return r;
      case ExprOp::kLt:
        r.i = x < y;
        return r;
      case ExprOp::kLe:
        r.i = x <= y;
        return r;
      case ExprOp::kGt:
        r.i = x > y;
        return r;
      case ExprOp::kGe:
        r.i = x >= y;
        return r;
      case ExprOp::kAnd:
        r.i = x != 0 && y != 0;
        return r;
      case ExprOp::kOr:
        r.i = x != 0 || y != 0;
        return r;
      case ExprOp::kXor:
        r.i = (x != 0) != (y != 0);
        return r;
      case ExprOp::kNot:
        r.i = x == 0;
        return r;
      case ExprOp::kIsNan:
        r.i = x != x;
        return r;
      case ExprOp::kIsInf:
        r.i = std::isinf(x);
        return r;
      default:
        break;
    }
    if (e.dtype == Dtype::kF32) {
      r.f = e.b < 0 ? unary(e.op, a.f) : binary(e.op, a.f, b.f);
    } else if (e.dtype == Dtype::kBool) {
      bool p = a.i, q = b.i;
      r.i = e.op == ExprOp::kBitNot                           ? !p
            : e.op == ExprOp::kBitAnd || e.op == ExprOp::kMul ? p && q
            : e.op == ExprOp::kBitXor                         ? p != q
                                                              : p || q;
    } else if (e.b >= 0) {
      r.i = binary_int(e.op, a.i, b.i, e.dtype);
    } else {
      switch (e.op) {
        case ExprOp::kNeg:
          r.i = wrap(-a.i, e.dtype);
          break;
        case ExprOp::kAbs:
          r.i = wrap(a.i < 0 ? -a.i : a.i, e.dtype);
          break;
        case ExprOp::kSign:
          r.i = (a.i > 0) - (a.i < 0);
          break;
        case ExprOp::kBitNot:
          r.i = wrap(~a.i, e.dtype);
          break;
        case ExprOp::kSquare:
          r.i = wrap(a.i * a.i, e.dtype);
          break;
        default:
          r.i = a.i;
      }
    }
    return r;
  }

  const MapKernel& k_;
  Memory& memory_;
  const std::vector<uint32_t>& params_;
  std::map<int, Number> row_;
};

}  // namespace trnsim::compiler::reference
