// Every expression operator against the reference, special values included.
#include <limits>

#include "tests/cpp/tile/harness.h"

using namespace trnsim;
using namespace trnsim::compiler;
using namespace trnsim::compiler::testing;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

Expr input(int index, Dtype dtype) {
  Expr e;
  e.op = ExprOp::kInput;
  e.dtype = dtype;
  e.index = index;
  return e;
}
Expr node(ExprOp op, Dtype dtype, int a, int b = -1, int c = -1) {
  Expr e;
  e.op = op;
  e.dtype = dtype;
  e.a = a;
  e.b = b;
  e.c = c;
  return e;
}

Setup floats(const std::vector<std::vector<float>>& operands, ExprOp op, Dtype out_dtype) {
  Setup s;
  MapKernel k;
  int64_t n = static_cast<int64_t>(operands[0].size());
  k.domain = {n};
  k.num_kept = 1;
  for (const auto& values : operands) {
    int b = s.add_buffer(Dtype::kF32, n);
    std::memcpy(s.memory[b].data(), values.data(), n * 4);
    k.inputs.push_back(dense(b, Dtype::kF32, {n}));
    k.exprs.push_back(input(static_cast<int>(k.exprs.size()), Dtype::kF32));
  }
  Dtype cls = out_dtype == Dtype::kBool ? Dtype::kBool : Dtype::kF32;
  k.exprs.push_back(node(op, cls, 0, operands.size() > 1 ? 1 : -1));
  int out = s.add_buffer(out_dtype, n, Buffer::Kind::kOutput);
  k.outputs.push_back({dense(out, out_dtype, {n}), static_cast<int>(k.exprs.size()) - 1});
  s.list.kernels.push_back(k);
  return s;
}

Setup integers(const std::vector<std::vector<int32_t>>& operands, ExprOp op, Dtype cls, Dtype out_dtype) {
  Setup s;
  MapKernel k;
  int64_t n = static_cast<int64_t>(operands[0].size());
  k.domain = {n};
  k.num_kept = 1;
  for (const auto& values : operands) {
    int b = s.add_buffer(cls, n);
    std::memcpy(s.memory[b].data(), values.data(), n * 4);
    k.inputs.push_back(dense(b, cls, {n}));
    k.exprs.push_back(input(static_cast<int>(k.exprs.size()), cls));
  }
  k.exprs.push_back(
      node(op, out_dtype == Dtype::kBool ? Dtype::kBool : cls, 0, operands.size() > 1 ? 1 : -1));
  int out = s.add_buffer(out_dtype, n, Buffer::Kind::kOutput);
  k.outputs.push_back({dense(out, out_dtype, {n}), static_cast<int>(k.exprs.size()) - 1});
  s.list.kernels.push_back(k);
  return s;
}

struct Case {
  ExprOp op;
  const char* name;
  float low, high;
  bool special;  // infinities, NaN, zeros too
  double rtol = 1e-5, atol = 1e-30;
};

std::vector<float> sample(const Case& c, Random& random) {
  std::vector<float> v;
  for (int i = 0; i < 300; ++i) v.push_back(std::uniform_real_distribution<float>(c.low, c.high)(random));
  // Small numbers of both signs where the range has them.
  for (float m : {1e-3f, 1e-5f, 1e-8f}) {
    if (c.low < 0) v.push_back(-m);
    v.push_back(std::max(m, c.low));
  }
  if (c.special) {
    for (float x : {0.0f, 1.0f, -1.0f, 0.5f, -0.5f, 1.5f, 2.5f, -2.5f, 3.0f, kInf, -kInf, NAN})
      v.push_back(x);
  }
  return v;
}

}  // namespace

TEST_CASE("unary functions of floats agree with the reference") {
  Random random(1);
  const Case cases[] = {
      {ExprOp::kNeg, "neg", -10, 10, true},
      {ExprOp::kAbs, "abs", -10, 10, true},
      {ExprOp::kSign, "sign", -10, 10, true},
      {ExprOp::kSqrt, "sqrt", 0, 100, true},
      {ExprOp::kRsqrt, "rsqrt", 1e-3f, 100, true},
      {ExprOp::kReciprocal, "reciprocal", -100, 100, true},
      {ExprOp::kExp, "exp", -80, 80, true},
      {ExprOp::kExpm1, "expm1", -10, 20, true},
      {ExprOp::kExp2, "exp2", -100, 100, true},
      {ExprOp::kLog, "log", 1e-6f, 1000, true},
      {ExprOp::kLog1p, "log1p", -0.9f, 1000, true},
      {ExprOp::kLog2, "log2", 1e-6f, 1000, true, 1e-5, 1e-6},
      {ExprOp::kLog10, "log10", 1e-6f, 1000, true, 1e-5, 1e-6},
      {ExprOp::kSin, "sin", -100, 100, true, 1e-5, 2e-6},
      {ExprOp::kCos, "cos", -100, 100, true, 1e-5, 2e-6},
      {ExprOp::kTan, "tan", -20, 20, true, 1e-5, 2e-6},
      {ExprOp::kAsin, "asin", -1, 1, true, 1e-5, 1e-7},
      {ExprOp::kAcos, "acos", -1, 1, true, 1e-5, 1e-7},
      {ExprOp::kAtan, "atan", -50, 50, true},
      {ExprOp::kSinh, "sinh", -20, 20, true},
      {ExprOp::kCosh, "cosh", -20, 20, true},
      {ExprOp::kTanh, "tanh", -10, 10, true},
      {ExprOp::kAsinh, "asinh", -100, 100, true},
      {ExprOp::kAcosh, "acosh", 1, 100, true},
      {ExprOp::kAtanh, "atanh", -0.99f, 0.99f, true},
      {ExprOp::kErf, "erf", -4, 4, true},
      {ExprOp::kErfc, "erfc", -4, 8, true, 2e-6, 1e-30},
      {ExprOp::kErfcx, "erfcx", -8, 100, true, 2e-6},
      {ExprOp::kSigmoid, "sigmoid", -20, 20, true},
      {ExprOp::kGelu, "gelu", -3, 5, false, 1e-5, 1e-6},
      {ExprOp::kGeluTanh, "gelu_tanh", -3, 5, false, 1e-5, 1e-6},
      {ExprOp::kSilu, "silu", -20, 20, false},
      {ExprOp::kSoftplus, "softplus", -20, 30, false, 1e-5, 1e-7},
      {ExprOp::kMish, "mish", -10, 20, false, 1e-5, 1e-6},
      {ExprOp::kRelu, "relu", -10, 10, true},
      {ExprOp::kSquare, "square", -10, 10, true},
      {ExprOp::kFloor, "floor", -100, 100, true, 0},
      {ExprOp::kCeil, "ceil", -100, 100, true, 0},
      {ExprOp::kRound, "round", -100, 100, true, 0},
      {ExprOp::kTrunc, "trunc", -100, 100, true, 0},
      {ExprOp::kFloor, "floor of large numbers", -3e7f, 3e7f, true, 0},
      {ExprOp::kRound, "round of large numbers", -3e7f, 3e7f, true, 0},
      {ExprOp::kTrunc, "trunc of large numbers", -3e7f, 3e7f, true, 0},
  };
  for (const Case& c : cases) {
    INFO(c.name);
    check_map(floats({sample(c, random)}, c.op, Dtype::kF32), c.rtol, c.atol);
  }
  for (ExprOp op : {ExprOp::kIsNan, ExprOp::kIsInf, ExprOp::kSignBit, ExprOp::kNot}) {
    check_map(floats({sample(cases[0], random)}, op, Dtype::kBool));
  }
}

TEST_CASE("binary functions of floats agree with the reference") {
  Random random(2);
  const Case cases[] = {
      {ExprOp::kAdd, "add", -10, 10, true},
      {ExprOp::kSub, "sub", -10, 10, true},
      {ExprOp::kMul, "mul", -10, 10, true},
      {ExprOp::kDiv, "div", -10, 10, true, 2e-7},
      {ExprOp::kMax, "max", -10, 10, true},
      {ExprOp::kMin, "min", -10, 10, true},
      {ExprOp::kAtan2, "atan2", -10, 10, true},
      {ExprOp::kCopySign, "copysign", -10, 10, true, 0},
      {ExprOp::kFloorDiv, "floor_div", -50, 50, true, 0},
      {ExprOp::kTruncDiv, "trunc_div", -50, 50, true, 0},
      {ExprOp::kRemainder, "remainder", -50, 50, true, 0, 0},
      {ExprOp::kFmod, "fmod", -50, 50, true, 0, 0},
      {ExprOp::kPow, "pow", 0.1f, 8, true},
  };
  for (const Case& c : cases) {
    INFO(c.name);
    std::vector<float> x = sample(c, random), y = sample(c, random);
    std::shuffle(y.begin(), y.end(), random);
    check_map(floats({x, y}, c.op, Dtype::kF32), c.rtol, c.atol);
  }
  for (ExprOp op : {ExprOp::kEq, ExprOp::kNe, ExprOp::kLt, ExprOp::kLe, ExprOp::kGt, ExprOp::kGe,
                    ExprOp::kAnd, ExprOp::kOr, ExprOp::kXor}) {
    std::vector<float> x = sample(cases[0], random), y = x;
    std::shuffle(y.begin() + 150, y.end(), random);
    check_map(floats({x, y}, op, Dtype::kBool));
  }
}

TEST_CASE("remainders and rounded quotients are exact for quotients of any size") {
  Random random(5);
  std::uniform_int_distribution<uint32_t> bits(0, 0xffffffffu);
  std::vector<float> x, y;
  for (int i = 0; i < 20000; ++i) {  // every exponent, denormals, infinities and NaN included
    uint32_t a = bits(random), b = bits(random);
    if (i % 2) b = (a & 0x7f800000u) + (b & 0x807fffffu);  // quotients near 1
    float u, v;
    std::memcpy(&u, &a, 4);
    std::memcpy(&v, &b, 4);
    x.push_back(u);
    y.push_back(v);
  }
  for (ExprOp op : {ExprOp::kFmod, ExprOp::kRemainder, ExprOp::kTruncDiv, ExprOp::kFloorDiv}) {
    INFO(static_cast<int>(op));
    check_map(floats({x, y}, op, Dtype::kF32), 0, 0);
  }
}

TEST_CASE("the angle of large arguments is reduced exactly") {
  Random random(6);
  std::vector<float> x;
  for (int e = 4; e < 128; ++e) {
    for (int i = 0; i < 20; ++i) {
      float m = std::uniform_real_distribution<float>(-2, 2)(random);
      x.push_back(std::ldexp(m, e));
    }
  }
  check_map(floats({x}, ExprOp::kSin, Dtype::kF32), 0, 4e-7);
  check_map(floats({x}, ExprOp::kCos, Dtype::kF32), 0, 4e-7);
}

TEST_CASE("exact quotients are exact, and integral floats divide as Python does") {
  std::vector<float> x, y;
  for (int a = -60; a <= 60; ++a) {
    for (int b = -13; b <= 13; ++b) {
      if (b == 0) continue;
      x.push_back(static_cast<float>(a * b));
      y.push_back(static_cast<float>(b));
    }
  }
  check_map(floats({x, y}, ExprOp::kDiv, Dtype::kF32), 0, 0);
  x.clear();
  y.clear();
  for (int a = -60; a <= 60; ++a) {
    for (int b = -13; b <= 13; ++b) {
      if (b == 0) continue;
      x.push_back(static_cast<float>(a));
      y.push_back(static_cast<float>(b));
    }
  }
  for (ExprOp op : {ExprOp::kFloorDiv, ExprOp::kTruncDiv, ExprOp::kRemainder, ExprOp::kFmod}) {
    INFO(static_cast<int>(op));
    check_map(floats({x, y}, op, Dtype::kF32), 0, 0);
  }
  std::vector<float> base{-2, -2, -3, 2, 0, 0, -1, 4}, exponent{2, 3, 3, -2, 0, 2, 5, 0.5f};
  check_map(floats({base, exponent}, ExprOp::kPow, Dtype::kF32));
}

TEST_CASE("32-bit integers are exact") {
  Random random(3);
  std::uniform_int_distribution<int32_t> any(INT32_MIN + 1, INT32_MAX), small(-1000, 1000), shift(0, 31);
  std::vector<int32_t> x, y, nonzero, amount, exponent;
  for (int i = 0; i < 600; ++i) {
    x.push_back(i % 2 ? any(random) : small(random));
    y.push_back(i % 3 ? any(random) : small(random));
    int32_t d = i % 4 == 0 ? any(random) : small(random);
    nonzero.push_back(d == 0 ? 7 : d);
    amount.push_back(shift(random));
    exponent.push_back(std::abs(small(random)) % 40);
  }
  x[0] = INT32_MAX;
  nonzero[0] = 1;
  x[1] = 16777217;
  y[1] = 16777216;
  for (Dtype cls : {Dtype::kI32, Dtype::kU32}) {
    INFO(static_cast<int>(cls));
    for (ExprOp op : {ExprOp::kAdd, ExprOp::kSub, ExprOp::kMul, ExprOp::kMax, ExprOp::kMin, ExprOp::kBitAnd,
                      ExprOp::kBitOr, ExprOp::kBitXor}) {
      INFO(static_cast<int>(op));
      check_map(integers({x, y}, op, cls, cls));
    }
    for (ExprOp op : {ExprOp::kFloorDiv, ExprOp::kTruncDiv, ExprOp::kRemainder, ExprOp::kFmod}) {
      INFO(static_cast<int>(op));
      check_map(integers({x, nonzero}, op, cls, cls));
    }
    for (ExprOp op : {ExprOp::kShl, ExprOp::kShr}) check_map(integers({x, amount}, op, cls, cls));
    check_map(integers({x, exponent}, ExprOp::kPow, cls, cls));
    for (ExprOp op :
         {ExprOp::kEq, ExprOp::kNe, ExprOp::kLt, ExprOp::kLe, ExprOp::kGt, ExprOp::kGe, ExprOp::kAnd}) {
      INFO(static_cast<int>(op));
      check_map(integers({x, y}, op, cls, Dtype::kBool));
    }
  }
  for (ExprOp op : {ExprOp::kNeg, ExprOp::kAbs, ExprOp::kSign, ExprOp::kBitNot, ExprOp::kSquare}) {
    INFO(static_cast<int>(op));
    check_map(integers({x}, op, Dtype::kI32, Dtype::kI32));
  }
}

TEST_CASE("casts follow PyTorch") {
  Random random(4);
  std::vector<float> x;
  for (int i = 0; i < 200; ++i) x.push_back(std::uniform_real_distribution<float>(-300, 300)(random));
  for (float v : {0.5f, 1.5f, -0.5f, -1.5f, 2.9f, -2.9f, 0.0f}) x.push_back(v);
  struct To {
    Dtype cls, cast_to, out;
  };
  const To targets[] = {{Dtype::kI32, Dtype::kI32, Dtype::kI32},   {Dtype::kI32, Dtype::kI8, Dtype::kI8},
                        {Dtype::kI32, Dtype::kU8, Dtype::kU8},     {Dtype::kI32, Dtype::kI16, Dtype::kI16},
                        {Dtype::kI32, Dtype::kI64, Dtype::kI64},   {Dtype::kBool, Dtype::kBool, Dtype::kBool},
                        {Dtype::kF32, Dtype::kBF16, Dtype::kF32},  {Dtype::kF32, Dtype::kF16, Dtype::kF16},
                        {Dtype::kF32, Dtype::kBF16, Dtype::kBF16}, {Dtype::kF32, Dtype::kF32, Dtype::kF64}};
  for (const To& t : targets) {
    Setup s;
    MapKernel k;
    int64_t n = static_cast<int64_t>(x.size());
    k.domain = {n};
    k.num_kept = 1;
    int b = s.add_buffer(Dtype::kF32, n);
    std::memcpy(s.memory[b].data(), x.data(), n * 4);
    k.inputs.push_back(dense(b, Dtype::kF32, {n}));
    k.exprs.push_back(input(0, Dtype::kF32));
    Expr c = node(ExprOp::kCast, t.cls, 0);
    c.cast_to = t.cast_to;
    k.exprs.push_back(c);
    int out = s.add_buffer(t.out, n, Buffer::Kind::kOutput);
    k.outputs.push_back({dense(out, t.out, {n}), 1});
    s.list.kernels.push_back(k);
    INFO(static_cast<int>(t.cast_to) << " to " << static_cast<int>(t.out));
    check_map(s, 0, 0);
  }
}
