// Random numbers: one Philox word per element, reproducible from (seed, offset) alone.
#include <cmath>
#include <limits>
#include <numbers>

#include "device_plugin/compiler/lowerings/pointwise.h"

namespace trnsim::compiler {
namespace {

int32_t philox_slot(LowerContext& c) {
  const auto* p = std::get_if<std::vector<ParamRef>>(&c.arg(c.num_args() - 1));
  if (!p || p->size() != 4)
    throw_internal(c.node().op + ": the last argument has to be the four Philox words");
  for (size_t i = 1; i < 4; ++i) {
    if ((*p)[i].slot != (*p)[0].slot + static_cast<int32_t>(i)) {
      throw_internal(c.node().op + ": the four Philox words have to be in consecutive slots");
    }
  }
  return (*p)[0].slot;
}

View draw(LowerContext& c, RandomKernel::Dist dist, Dtype dtype, const std::vector<int64_t>& sizes) {
  View v = c.scratch(dtype, sizes);
  if (view_empty(v)) return v;
  RandomKernel k;
  k.dist = dist;
  k.out = v;
  k.philox_slot = philox_slot(c);
  c.emit(std::move(k));
  return v;
}

View uniform(LowerContext& c, const std::vector<int64_t>& sizes) {  // [0, 1)
  return draw(c, RandomKernel::Dist::kUniform, Dtype::kF32, sizes);
}

// A distribution with two parameters that the kernel applies itself.
template <RandomKernel::Dist dist>
void lower_two_parameters(LowerContext& c) {  // (self, a, b, generator)
  View out = c.out(0);
  if (view_empty(out)) return;
  const ParamRef* a = std::get_if<ParamRef>(&c.arg(1));
  const ParamRef* b = std::get_if<ParamRef>(&c.arg(2));
  if (a && b && a->dtype == Dtype::kF32 && b->dtype == Dtype::kF32 && isa::is_float(out.dtype)) {
    RandomKernel k;
    k.dist = dist;
    k.out = out;
    k.philox_slot = philox_slot(c);
    k.param_a = a->slot;
    k.param_b = b->slot;
    c.emit(std::move(k));
    return;
  }
  View r = draw(c, dist, Dtype::kF32, out.sizes);
  MapBuilder m(c, out.sizes);
  Ex x = m.input(r), lo = m.cast(m.operand(1), Dtype::kF32), hi = m.cast(m.operand(2), Dtype::kF32);
  m.output(out, dist == RandomKernel::Dist::kUniform ? lo + x * (hi - lo) : lo + x * hi);
  m.emit();
}

// Every element is a function of one uniform number and the arguments.
template <auto F>
void from_uniform(LowerContext& c) {
  View out = c.out(0);
  if (view_empty(out)) return;
  View u = uniform(c, out.sizes);
  MapBuilder m(c, out.sizes);
  Pointwise p{c, m, Dtype::kF32};
  m.output(out, F(p, m.input(u)));
  m.emit();
}

Ex negative_log(Pointwise& p, Ex u) { return -p.log1p(-u); }  // u < 1, so this is finite; an Exp(1) number

// [low, high) as integers
void random_range(LowerContext& c, int64_t low, int64_t high) {
  View out = c.out(0);
  if (view_empty(out)) return;
  uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  if (range == 0) throw_user_error("random_ expects 'from' to be less than 'to'");
  constexpr uint64_t int31 = uint64_t{1} << 31, int32 = uint64_t{1} << 32;
  MapBuilder m(c, out.sizes);
  // Of a uint32 beyond int32 the same word stands for it.
  const auto number = [&](int64_t v) {
    return m.constant(static_cast<double>(out.dtype == Dtype::kU32 ? static_cast<int32_t>(v) : v),
                      Dtype::kI32);
  };
  if (isa::is_float(out.dtype) && range > int31) {  // FP32 has no more than some of them
    const double n = range > uint64_t(std::numeric_limits<int64_t>::max()) ? std::ldexp(1, 63)
                                                                           : static_cast<double>(range);
    m.output(out, m.unary(ExprOp::kFloor, m.input(uniform(c, out.sizes)) * n) + static_cast<double>(low));
    m.emit();
    return;
  }
  if (range <= (uint64_t{1} << 24)) {  // FP32 holds these exactly
    View u = uniform(c, out.sizes);
    double n = static_cast<double>(range);
    Ex x = m.unary(ExprOp::kFloor, m.input(u) * n);
    x = m.binary(ExprOp::kMin, x, m.constant(n - 1));
    if (low != 0)
      x = isa::is_float(out.dtype) ? x + static_cast<double>(low) : m.cast(x, Dtype::kI32) + number(low);
    m.output(out, x);
    m.emit();
    return;
  }
  // The device has 32-bit integers: ranges beyond give their lowest 31 bits.
  View bits = draw(c, RandomKernel::Dist::kBits, Dtype::kI32, out.sizes);
  Ex x = m.input(bits);
  if (range <= int31 || range > int32) {
    x = m.binary(ExprOp::kBitAnd, x, number(std::numeric_limits<int32_t>::max()));
    if (range < int31) x = m.binary(ExprOp::kRemainder, x, number(static_cast<int64_t>(range)));
  } else if (range < int32) {  // words from `range` on, which are negative as signed ones, begin anew at 0
    const int64_t negative = static_cast<int64_t>(range) - static_cast<int64_t>(int32);
    x = m.select(x < 0.0 && x >= number(negative), x - number(negative), x);
  }
  const bool fits = low >= std::numeric_limits<int32_t>::min() && high <= std::numeric_limits<int32_t>::max();
  if (low != 0)
    x = isa::is_float(out.dtype) && !fits ? m.cast(x, Dtype::kF32) + static_cast<double>(low)
                                          : x + number(low);
  m.output(out, x);
  m.emit();
}

// Behind the largest random number of a type: all that it has, or those below which it has every one.
int64_t end_of_random(Dtype type) {
  switch (type) {
    case Dtype::kBool:
      return 2;
    case Dtype::kI8:
      return 128;
    case Dtype::kU8:
      return 256;
    case Dtype::kI16:
      return 32768;
    case Dtype::kU16:
      return 65536;
    case Dtype::kU32:
      return int64_t{1} << 32;
    case Dtype::kBF16:
      return 257;
    case Dtype::kF16:
      return 2049;
    case Dtype::kF32:
      return (int64_t{1} << 24) + 1;
    case Dtype::kF64:
      return (int64_t{1} << 53) + 1;
    default:
      return int64_t{1} << 31;
  }
}
void lower_random(LowerContext& c) { random_range(c, 0, end_of_random(c.out_type(0).dtype)); }
void lower_random_to(LowerContext& c) { random_range(c, 0, c.int_arg(1)); }
void lower_random_from(LowerContext& c) {  // (self, from, to, generator)
  random_range(c, c.int_arg(1), c.int_or(2, end_of_random(c.out_type(0).dtype)));
}

// (input, p, train) -> (out, mask)
void lower_dropout(LowerContext& c) {
  View x = c.in(0), out = c.out(0);
  if (view_empty(out)) return;
  if (!c.is_none(2) && !c.flag(2)) {
    c.copy(out, x);
    if (c.wanted(1)) c.fill(c.out(1), 1);
    return;
  }
  View u = uniform(c, out.sizes);
  MapBuilder m(c, out.sizes);
  Ex p = m.cast(m.operand(1), Dtype::kF32);
  Ex keep = m.input(u) >= p;
  // Multiplied, so that NaN and infinities are not lost with what is dropped; with p = 1 everything is 0.
  Ex scale = m.select(p < 1.0, 1.0 / (1.0 - p), m.constant(0));
  m.output(out, m.input(x) * scale * m.cast(keep, Dtype::kF32));
  if (c.wanted(1)) m.output(c.out(1), keep);
  m.emit();
}

// Draws without replacement are the largest p / Exp(1); a single draw is their maximum.
// Stops the program on weights that are no distribution.
void check_weights(LowerContext& c, const View& p, const char* bad_entry) {
  if (view_empty(p)) return;
  const int rows = static_cast<int>(p.sizes.size()) - 1;
  const View found = c.scratch(Dtype::kI32, {p.sizes.begin(), p.sizes.end() - 1}),
             row = c.scratch(Dtype::kI32, {});
  MapBuilder m(c, p.sizes, rows);
  Ex w = m.cast(m.input(p), Dtype::kF32);
  Ex bad = m.reduce(ReduceOp::kAny, !(w >= 0.0 && w < std::numeric_limits<double>::infinity()));
  Ex empty = m.reduce(ReduceOp::kSum, w) <= 0.0;
  m.row_output(found, m.select(bad, m.constant(2, Dtype::kI32), m.cast(empty, Dtype::kI32)));
  m.emit();
  MapBuilder all(c, found.sizes, 0);
  all.row_output(row, all.reduce(ReduceOp::kMax, all.input(found)));
  all.emit();
  c.emit(CheckKernel{
      row, {"RuntimeError: invalid multinomial distribution (sum of probabilities <= 0)", bad_entry}, 0});
}

void lower_multinomial(LowerContext& c) {  // (self, num_samples, replacement, generator)
  View p = c.in(0), out = c.out(0);
  int64_t n = c.int_arg(1);
  check_weights(c, p,
                c.flag(2) && n > 1
                    ? "RuntimeError: invalid multinomial distribution (encountering probability entry < 0, "
                      "infinity or NaN)"
                    : "RuntimeError: probability tensor contains either `inf`, `nan` or element < 0");
  if (c.flag(2) && n > 1) {  // invert the cumulative sum
    View cumulative = c.scratch(Dtype::kF32, p.sizes);
    View wide = c.scratch(Dtype::kF32, p.sizes);
    c.copy(wide, p);
    int last = static_cast<int>(p.sizes.size()) - 1;
    c.emit(ScanKernel{wide, cumulative, last, ReduceOp::kSum});
    View u = uniform(c, out.sizes);
    std::vector<int64_t> domain = out.sizes;
    domain.push_back(p.sizes.back());
    MapBuilder m(c, domain, static_cast<int>(out.sizes.size()));
    View total = view_sliced(cumulative, last, p.sizes.back() - 1, 1);
    Ex target = m.row_input(u) * m.row_input(total);
    Ex below = m.input(view_unsqueezed(cumulative, last)) <= target;
    Ex index = m.reduce(ReduceOp::kSum, m.cast(below, Dtype::kI32));
    m.row_output(
        out, m.binary(ExprOp::kMin, index, m.constant(static_cast<double>(p.sizes.back() - 1), Dtype::kI32)));
    m.emit();
    return;
  }
  View u = uniform(c, p.sizes), score = c.scratch(Dtype::kF32, p.sizes);
  MapBuilder m(c, p.sizes);
  Pointwise w{c, m, Dtype::kF32};
  Ex weight = m.cast(m.input(p), Dtype::kF32);
  // a zero weight must never win, whatever was drawn
  m.output(score, m.select(weight > 0.0, weight / w.max(negative_log(w, m.input(u)), m.constant(1e-30)),
                           m.constant(-1)));
  m.emit();
  c.emit(TopKernel{score, View{}, out, n, true});
}

// randperm(n): the order of random keys
void lower_randperm(LowerContext& c) {
  View out = c.out(0);
  if (view_empty(out)) return;
  View u = uniform(c, out.sizes);
  View order = isa::is_float(out.dtype) ? c.scratch(Dtype::kI32, out.sizes) : out;
  c.emit(TopKernel{u, View{}, order, out.sizes[0], false});
  if (order.buffer != out.buffer) c.copy(out, order);
}

template <int arg>
void lower_bernoulli(LowerContext& c) {
  if (c.is_tensor(arg))
    c.check(c.in(arg), "RuntimeError: Expected p_in >= 0 && p_in <= 1 to be true, but got false.",
            [](Ex p) { return !(p >= 0.0 && p <= 1.0); });
  from_uniform<[](Pointwise& p, Ex u) { return p.map.cast(u < p.f32(arg), Dtype::kF32); }>(c);
}

TRNSIM_LOWER(std::vector<LowerRow>{
    {"aten::uniform", lower_two_parameters<RandomKernel::Dist::kUniform>, 0, true},
    {"aten::normal_functional", lower_two_parameters<RandomKernel::Dist::kNormal>, 0, true},
    {"aten::bernoulli", lower_bernoulli<0>, 0, true},
    {"aten::bernoulli.p", lower_bernoulli<1>, 0, true},
    {"aten::bernoulli.Tensor", lower_bernoulli<1>, 0, true},
    {"aten::exponential", from_uniform<[](Pointwise& p, Ex u) { return negative_log(p, u) / p.f32(1); }>, 0,
     true},
    {"aten::geometric", from_uniform<[](Pointwise& p, Ex u) {
       // ceil(log(1 - u) / log(1 - p)), at least 1
       Ex q = p.map.unary(ExprOp::kCeil, p.log1p(-u) / p.log1p(-p.f32(1)));
       return p.max(q, p.map.constant(1));
     }>,
     0, true},
    {"aten::cauchy", from_uniform<[](Pointwise& p, Ex u) {
       return p.f32(1) + p.f32(2) * p.map.math(ExprOp::kTan, (u - 0.5) * std::numbers::pi);
     }>,
     0, true},
    {"aten::log_normal",
     [](LowerContext& c) {
       View out = c.out(0);
       if (view_empty(out)) return;
       View n = draw(c, RandomKernel::Dist::kNormal, Dtype::kF32, out.sizes);
       MapBuilder m(c, out.sizes);
       Pointwise p{c, m, Dtype::kF32};
       m.output(out, p.exp(p.f32(1) + p.f32(2) * m.input(n)));
       m.emit();
     },
     0, true},
    {"aten::random", lower_random, 0, true},
    {"aten::random.to", lower_random_to, 0, true},
    {"aten::random.from", lower_random_from, 0, true},
    {"aten::native_dropout", lower_dropout, 0, true},
    {"aten::native_dropout_backward", pointwise<[](Pointwise& p) {  // (grad, mask, scale)
       return p.f32(0) * p.f32(1) * p.f32(2);
     }>},
    {"aten::multinomial", lower_multinomial, 0, true},
    {"aten::randperm", lower_randperm, 0, true},
});

}  // namespace
}  // namespace trnsim::compiler
