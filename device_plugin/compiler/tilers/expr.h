// Code generation for expression DAGs (internal to expr*.cpp). A value is a tile of the full shape, a column
// [P,1] (run-time parameters, row values and what is computed from them alone) or a constant.
#pragma once

#include <optional>
#include <vector>

#include "device_plugin/compiler/tilers/tilers.h"

namespace trnsim::compiler {

// An operand: exactly one of tile, column, constant.
struct Src {
  enum class Kind : uint8_t { kTile, kColumn, kConst } kind = Kind::kTile;
  Access access;
  double value = 0;
  bool tile() const { return kind == Kind::kTile; }
};

// Emits instructions on one shape: the full tile shape or [P, 1].
class Ops {
 public:
  Ops(TileBuilder& tile, int partitions, std::vector<int64_t> dims)
      : b(tile), partitions_(partitions), dims_(std::move(dims)) {}

  Access temp(Dtype dtype) { return b.sbuf(partitions_, dims_, dtype); }
  // dst when it is present, else a new tile.
  Access target(const Access& dst, Dtype dtype) { return dst.present() ? dst : temp(dtype); }
  const std::vector<int64_t>& dims() const { return dims_; }
  int partitions() const { return partitions_; }

  static Src of(const Access& a) { return {Src::Kind::kTile, a, 0}; }
  static Src constant(double v) { return {Src::Kind::kConst, {}, v}; }

  // The operand as a tile of the shape: columns broadcast by stride 0, constants from a column.
  Access as_tile(const Src& s, Dtype dtype);
  // A column or constant as the scalar operand of an FP32 instruction.
  ScalarOperand as_scalar(const Src& s);
  // The operand as a tile whose dtype is `dtype`.
  Access typed_tile(const Src& s, Dtype dtype);

  // One operator; picks tensor_tensor or tensor_scalar. FP32 arithmetic.
  Access binary(AluOp op, const Src& x, const Src& y, const Access& dst = {}, Dtype dtype = Dtype::kF32);
  Access scalar(const Access& x, AluOp op0, float s0, const Access& dst = {}, Dtype dtype = Dtype::kF32);
  Access scalar2(const Access& x, AluOp op0, float s0, AluOp op1, float s1, const Access& dst = {},
                 Dtype dtype = Dtype::kF32);
  // (x op0 s) op1 y, or y op1 (x op0 s) when reverse.
  Access fused(const Access& x, AluOp op0, const ScalarOperand& s, AluOp op1, const Access& y,
               bool reverse = false, const Access& dst = {}, Dtype dtype = Dtype::kF32);
  Access act(ActFunc f, const Access& x, const ScalarOperand& scale = {}, const ScalarOperand& bias = {},
             const Access& dst = {});
  Access act(ActFunc f, const Access& x, float scale, float bias = 0);
  Access cast(const Access& x, Dtype dtype, const Access& dst = {});
  Access recip(const Access& x);
  Access abs(const Access& x);  // by the sign bit: stays on the vector engine, no activation table
  // |x| op bound, by the squares: bound^2 must neither overflow nor underflow.
  Access compare_magnitude(const Access& x, AluOp op, float bound, Dtype dtype = Dtype::kU8);
  void select(const Access& dst, const Access& src, const Access& predicate) {
    b.copy_predicated(dst, src, predicate);
  }

  // The bits of a 4-byte tile (a narrower float is widened first). The other way round: a view, no instruction.
  Access word(const Access& x);
  Access bits(const Access& x, AluOp op0, uint32_t c0, AluOp op1 = AluOp::kNone, uint32_t c1 = 0);
  static Access as_float(Access word) { return viewed(word, Dtype::kF32); }
  static Access as_int(Access word) { return viewed(word, Dtype::kI32); }
  Access sign_bits(const Access& x) { return bits(x, AluOp::kBitAnd, 0x80000000u); }
  Access or_bits(const Access& value, const Access& set);        // FP32
  Access flip_sign(const Access& value, const Access& sign_of);  // FP32

  // ---- FP32 composites (expr_float*.cpp); every result is a fresh tile unless dst is given
  // -----------------------
  // `invariant`: the divisor is the same in every iteration of the loop that is being written.
  Access divide(const Src& x, const Src& y, const Access& dst = {}, bool invariant = false);
  Access divide_exact(const Access& x, const Access& y);  // correctly rounded
  Access trunc(const Access& x);
  Access floor(const Access& x);
  Access ceil(const Access& x);
  Access round_even(const Access& x);
  Access log1p(const Access& x);
  Access expm1(const Access& x);
  Access sine(const Access& x, bool cosine);
  Access tangent(const Access& x);
  Access atan(const Access& x);
  Access erfc(const Access& x, bool scaled);  // scaled: times exp(x^2)
  Access sinh(const Access& x);
  Access cosh(const Access& x);
  Access asinh(const Access& x);
  Access acosh(const Access& x);
  Access atanh(const Access& x);
  Access asin(const Access& x);
  Access acos(const Access& x);
  Access atan2(const Src& y, const Src& x);
  Access sign(const Access& x);
  // With the rounding of floor (Python) or truncation (C).
  Access divide_round(const Src& x, const Src& y, bool floor);
  Access remainder(const Src& x, const Src& y, bool floor);

  // ---- 32-bit integers, exact modulo 2^32 (expr_int.cpp)
  // ----------------------------------------------------------
  Access int_constant(int64_t v, Dtype dtype);
  Access int_binary(AluOp op, const Access& x, const Access& y, const Access& dst = {});
  Access int_divide_round(const Access& x, const Access& y, bool floor, bool remainder);
  Access int_power(const Access& x, const Access& y);
  Access int_shift_right(const Access& x, const Access& n);
  // Wraps to the width of `to` (8 or 16 bits, sign-extended or not); a 4-byte tile.
  Access int_wrap(const Access& x, Dtype to);
  // FP32 to a 4-byte integer, toward zero.
  Access float_to_int(const Access& x, Dtype dtype);

  TileBuilder& b;

 private:
  static Access viewed(Access a, Dtype dtype) {
    a.dtype = dtype;
    return a;
  }
  Access where_fraction(const Access& x, const Access& magnitude);
  Access half_exp(const Access& magnitude);
  Access scale_of_tiny(const Access& y);
  void refine(const Access& q, const Access& better);
  // 1 / (y * scale) in two parts; no scale: 1, no lower part: 0.
  struct Inverse {
    ScalarOperand scale, high, low;
  };
  static Inverse inverse_of(float y);
  Inverse inverse_of(const Access& column);
  void divide_by_scalar(const Access& x, const Src& y, const Access& q, bool invariant);
  Access upper_half(const Access& a);  // cut to 12 bits
  struct Parts {
    Access mantissa, exponent;
  };
  Parts parts(const Access& magnitude);
  Access remainder_exact(const Access& x, const Access& y);
  Access wrong_sign(const Access& remainder, const Access& y);
  Access turns(const Access& x);

  int partitions_;
  std::vector<int64_t> dims_;
};

// The one instruction that computes an operator of the expressions, where there is one.
std::optional<AluOp> compare_op(ExprOp op);
std::optional<AluOp> arithmetic_op(ExprOp op);
std::optional<ActFunc> activation_func(ExprOp op);

// The four classes of values and the dtype of their tiles.
inline Dtype class_dtype(Dtype expr_class) { return expr_class == Dtype::kBool ? Dtype::kU8 : expr_class; }

}  // namespace trnsim::compiler
