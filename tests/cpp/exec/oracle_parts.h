// Arithmetic and bookkeeping that the parts of the oracle share.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "tests/cpp/exec/oracle.h"

namespace trnsim::test {

using isa::Access;
using isa::AluOp;
using isa::Dtype;
using isa::Instruction;
using isa::Opcode;
using isa::ScalarOperand;

inline float alu(AluOp op, float a, float b) {
  switch (op) {
    case AluOp::kAdd:
      return a + b;
    case AluOp::kSubtract:
      return a - b;
    case AluOp::kMultiply:
      return a * b;
    case AluOp::kMax:
      return std::isnan(a) ? a : (std::isnan(b) ? b : (a > b ? a : b));
    case AluOp::kMin:
      return std::isnan(a) ? a : (std::isnan(b) ? b : (a < b ? a : b));
    case AluOp::kAbsMax:
      return alu(AluOp::kMax, std::fabs(a), std::fabs(b));
    case AluOp::kAbsMin:
      return alu(AluOp::kMin, std::fabs(a), std::fabs(b));
    case AluOp::kPower:
      return static_cast<float>(std::pow(static_cast<double>(a), static_cast<double>(b)));
    case AluOp::kEqual:
      return a == b;
    case AluOp::kNotEqual:
      return a != b;
    case AluOp::kGreaterEqual:
      return a >= b;
    case AluOp::kGreater:
      return a > b;
    case AluOp::kLessEqual:
      return a <= b;
    case AluOp::kLess:
      return a < b;
    case AluOp::kLogicalAnd:
      return a != 0 && b != 0;
    case AluOp::kLogicalOr:
      return a != 0 || b != 0;
    case AluOp::kLogicalXor:
      return (a != 0) != (b != 0);
    case AluOp::kAbs:
      return std::fabs(a);
    case AluOp::kRsqrt:
      return 1.0f / std::sqrt(a);
    case AluOp::kReciprocal:
      return 1.0f / a;
    case AluOp::kSquare:
      return a * a;
    case AluOp::kRelu:
      return a > 0 || std::isnan(a) ? a : 0.0f;
    default:
      return a;
  }
}

inline int64_t alu_int(AluOp op, int64_t a, int64_t b, int bits) {
  const auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  switch (op) {
    case AluOp::kAdd:
      return static_cast<int64_t>(ua + ub);
    case AluOp::kSubtract:
      return static_cast<int64_t>(ua - ub);
    case AluOp::kMultiply:
      return static_cast<int64_t>(ua * ub);
    case AluOp::kMax:
      return std::max(a, b);
    case AluOp::kMin:
      return std::min(a, b);
    case AluOp::kAbsMax:
      return std::max(std::abs(a), std::abs(b));
    case AluOp::kAbsMin:
      return std::min(std::abs(a), std::abs(b));
    case AluOp::kPower: {
      if (b < 0) return a == 1 ? 1 : (a == -1 ? (b % 2 == 0 ? 1 : -1) : 0);
      // Plain repetition, but exponents of random words would take for ever.
      uint64_t r = 1, base = ua;
      for (; b != 0; b /= 2, base *= base) r *= b % 2 != 0 ? base : 1;
      return static_cast<int64_t>(r);
    }
    case AluOp::kEqual:
      return a == b;
    case AluOp::kNotEqual:
      return a != b;
    case AluOp::kGreaterEqual:
      return a >= b;
    case AluOp::kGreater:
      return a > b;
    case AluOp::kLessEqual:
      return a <= b;
    case AluOp::kLess:
      return a < b;
    case AluOp::kLogicalAnd:
      return a != 0 && b != 0;
    case AluOp::kLogicalOr:
      return a != 0 || b != 0;
    case AluOp::kLogicalXor:
      return (a != 0) != (b != 0);
    case AluOp::kBitAnd:
      return a & b;
    case AluOp::kBitOr:
      return a | b;
    case AluOp::kBitXor:
      return a ^ b;
    case AluOp::kShiftLeft:
      return b < 0 || b >= bits ? 0 : static_cast<int64_t>(ua << ub);
    case AluOp::kShiftRight: {
      if (b < 0 || b >= bits) return 0;
      const uint64_t mask = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
      return static_cast<int64_t>((ua & mask) >> ub);
    }
    case AluOp::kInvert:
      return ~a;
    case AluOp::kAbs:
      return a < 0 ? static_cast<int64_t>(0 - ua) : a;
    case AluOp::kSquare:
      return static_cast<int64_t>(ua * ua);
    case AluOp::kRelu:
      return a > 0 ? a : 0;
    default:
      return a;
  }
}

inline bool is_int(const Access& a) { return !a.present() || isa::is_integer(a.dtype); }
inline bool is_int(const ScalarOperand& s) {
  if (s.kind == ScalarOperand::Kind::kPointer) return isa::is_integer(s.pointer.dtype);
  return s.kind == ScalarOperand::Kind::kNone || s.value == std::trunc(s.value);
}
inline int bits_of(Dtype d) { return static_cast<int>(isa::dtype_bytes(d)) * 8; }

// Results are collected before any is written: operands may overlap dst in place.
struct Results {
  std::vector<std::pair<std::byte*, std::array<std::byte, 8>>> cells;
  Dtype dtype;
  void f32(std::byte* p, float v) {
    std::array<std::byte, 8> b{};
    isa::store_from_f32(dtype, b.data(), v);
    cells.emplace_back(p, b);
  }
  void integer(std::byte* p, int64_t v) {
    std::array<std::byte, 8> b{};
    isa::store_from_int(dtype, b.data(), v);
    cells.emplace_back(p, b);
  }
  void raw(std::byte* p, const std::byte* v) {
    std::array<std::byte, 8> b{};
    std::memcpy(b.data(), v, isa::dtype_bytes(dtype));
    cells.emplace_back(p, b);
  }
  void flush() {
    for (auto& [p, b] : cells) std::memcpy(p, b.data(), isa::dtype_bytes(dtype));
    cells.clear();
  }
};

// Element conversion of copies: bits when the storage is the same, integers exactly, everything else through
// FP32.
inline void convert(Results& r, std::byte* to, Dtype from_dtype, const std::byte* from) {
  const auto plain = [](Dtype d) { return d == Dtype::kF32R ? Dtype::kF32 : d; };
  if (plain(r.dtype) == plain(from_dtype)) {
    r.raw(to, from);
  } else if (isa::is_integer(r.dtype) && isa::is_integer(from_dtype)) {
    int64_t v = isa::load_as_int(from_dtype, from);
    if (from_dtype == Dtype::kI64 && r.dtype == Dtype::kI32) v = std::clamp<int64_t>(v, INT32_MIN, INT32_MAX);
    if (from_dtype == Dtype::kI64 && r.dtype == Dtype::kU32) v = std::clamp<int64_t>(v, 0, UINT32_MAX);
    r.integer(to, v);
  } else {
    r.f32(to, isa::load_as_f32(from_dtype, from));
  }
}

inline float scalar(Memory& m, const ScalarOperand& s, int64_t p, float otherwise) {
  if (s.kind == ScalarOperand::Kind::kNone) return otherwise;
  return s.kind == ScalarOperand::Kind::kPointer ? m.f32(s.pointer, p, 0) : s.value;
}
inline int64_t scalar_int(Memory& m, const ScalarOperand& s, int64_t p) {
  return s.kind == ScalarOperand::Kind::kPointer ? m.integer(s.pointer, p, 0) : static_cast<int64_t>(s.value);
}
inline bool given(const ScalarOperand& s) { return s.kind != ScalarOperand::Kind::kNone; }

// Element e of an operand in row-major order, partitions outermost.
inline std::byte* flat(Memory& m, const Access& a, int64_t e) {
  if (a.space == isa::Space::kHbm) return m.at(a, 0, e);
  return m.at(a, e / a.free_elements(), e % a.free_elements());
}

// oracle_rows.cpp: false when the opcode is not one of its.
bool execute_oracle_rows(const Instruction& in, Memory& m);

}  // namespace trnsim::test
