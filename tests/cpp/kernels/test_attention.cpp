#include "tests/cpp/catch.h"
#include "tests/cpp/kernels/rig.h"

namespace trnsim::compiler::test {
namespace {

constexpr int64_t kAll = AttentionKernel::kUnbounded;

struct Shape {
  int64_t batch, heads, key_heads, queries, keys, d, e;
};
enum class Mask { kNone, kBool, kFloat, kPadding };

AttentionKernel make(Rig& rig, Dtype dtype, const Shape& s, Mask mask, int64_t behind, int64_t ahead,
                     bool turned = false) {
  AttentionKernel k;
  const auto input = [&](std::vector<int64_t> sizes) {
    std::vector<int64_t> strides = contiguous(sizes);
    if (turned) {  // [batch, heads, columns, rows]
      strides[3] = sizes[2];
      strides[2] = 1;
    }
    return rig.input(dtype, sizes, strides, 3);
  };
  k.q = input({s.batch, s.heads, s.queries, s.d});
  k.k = input({s.batch, s.key_heads, s.keys, s.d});
  k.v = input({s.batch, s.key_heads, s.keys, s.e});
  const std::vector<int64_t> full = {s.batch, s.heads, s.queries, s.keys};
  if (mask == Mask::kBool || mask == Mask::kFloat) {
    k.mask = rig.input(mask == Mask::kBool ? Dtype::kBool : Dtype::kF32, {s.batch, s.queries, s.keys});
    k.mask.sizes = full;
    k.mask.strides = {s.queries * s.keys, 0, s.keys, 1};
    if (mask == Mask::kBool) {  // the first query of a batch sees nothing
      std::vector<double> values;
      for (int64_t i = 0; i < s.batch * s.queries * s.keys; ++i)
        values.push_back(i % (s.queries * s.keys) < s.keys ? 0
                                                           : static_cast<double>(rig.random()() % 3 != 0));
      View dense = k.mask;
      dense.sizes = {s.batch, s.queries, s.keys};
      dense.strides = contiguous(dense.sizes);
      rig.write(dense, values);
    }
  } else if (mask == Mask::kPadding) {  // the last third of the keys is padding
    k.mask = rig.input(Dtype::kF32, {s.batch, s.keys});
    std::vector<double> values;
    for (int64_t i = 0; i < s.batch * s.keys; ++i)
      values.push_back(i % s.keys < (2 * s.keys + 2) / 3 ? 0 : -INFINITY);
    rig.write(k.mask, values);
    k.mask.sizes = full;
    k.mask.strides = {s.keys, 0, 0, 1};
  }
  k.scale = 0.7;
  k.behind = behind;
  k.ahead = ahead;
  k.out = rig.output(dtype, {s.batch, s.heads, s.queries, s.e});
  k.lse = rig.output(Dtype::kF32, {s.batch, s.heads, s.queries});
  return k;
}

// What a kernel does beside the scores: see AttentionKernel.
struct Ways {
  bool turned = false, blind_is_nan = false, round_scores = false;
};

void check(Dtype dtype, const Shape& s, Mask mask, int64_t behind, int64_t ahead, const Ways& ways = {}) {
  CAPTURE(isa::dtype_name(dtype), s.batch, s.heads, s.key_heads, s.queries, s.keys, s.d, s.e,
          static_cast<int>(mask), behind, ahead, ways.turned, ways.blind_is_nan, ways.round_scores);
  Rig rig(static_cast<uint32_t>(s.queries * 31 + s.keys));
  AttentionKernel k = make(rig, dtype, s, mask, behind, ahead, ways.turned);
  k.blind_is_nan = ways.blind_is_nan;
  k.round_scores = ways.round_scores;
  rig.run_reference(k);
  const auto out = rig.read(k.out), lse = rig.read(k.lse);
  rig.run(k);
  const double tolerance = dtype == Dtype::kF32 ? 2e-5 : 2e-2;
  CHECK(worst_error(rig.read(k.out), out) < tolerance);
  CHECK(worst_error(rig.read(k.lse), lse) < tolerance);
}

TEST_CASE("attention: shapes", "[attention]") {
  const Shape shapes[] = {{1, 1, 1, 128, 128, 64, 64},    {2, 4, 2, 130, 257, 40, 24},
                          {1, 2, 2, 1, 600, 64, 64},      {1, 3, 1, 200, 1, 16, 16},
                          {1, 1, 1, 300, 1300, 128, 128}, {1, 1, 1, 70, 140, 200, 130},
                          {2, 2, 1, 5, 7, 3, 2},          {1, 1, 1, 640, 2100, 16, 300}};
  for (const Shape& s : shapes)
    for (bool turned : {false, true}) check(Dtype::kF32, s, Mask::kNone, kAll, kAll, {.turned = turned});
  for (Dtype d : {Dtype::kBF16, Dtype::kF16})
    for (const Shape& s : {shapes[1], shapes[4]}) check(d, s, Mask::kNone, kAll, kAll);
}

TEST_CASE("attention: causal and windowed", "[attention]") {
  const Shape shapes[] = {
      {1, 2, 1, 300, 300, 32, 32}, {1, 1, 1, 700, 1500, 16, 16}, {1, 1, 1, 1300, 200, 16, 16}};
  for (const Shape& s : shapes) {
    check(Dtype::kF32, s, Mask::kNone, kAll, 0);
    check(Dtype::kF32, s, Mask::kNone, kAll, 133);
    check(Dtype::kF32, s, Mask::kNone, 99, 0);
    check(Dtype::kF32, s, Mask::kNone, 300, 7);
    check(Dtype::kF32, s, Mask::kNone, kAll, -200);
  }
  check(Dtype::kBF16, shapes[0], Mask::kNone, kAll, 0);
}

TEST_CASE("attention: masks", "[attention]") {
  const Shape shapes[] = {{2, 2, 1, 150, 300, 32, 32}, {1, 1, 1, 20, 1100, 16, 16}};
  for (const Shape& s : shapes)
    for (Mask m : {Mask::kBool, Mask::kFloat, Mask::kPadding}) {
      check(Dtype::kF32, s, m, kAll, kAll);
      check(Dtype::kF32, s, m, kAll, 0);
    }
}

TEST_CASE("attention: a query that sees no key is NaN on demand", "[attention]") {
  const Shape s{2, 2, 1, 150, 300, 32, 32};
  check(Dtype::kF32, s, Mask::kBool, kAll, kAll, {.blind_is_nan = true});
  check(Dtype::kF32, s, Mask::kFloat, kAll, kAll, {.blind_is_nan = true});
  check(Dtype::kF32, s, Mask::kNone, kAll, -140, {.blind_is_nan = true});
}

TEST_CASE("attention: scores rounded as separate operators round them", "[attention]") {
  const Shape s{1, 2, 1, 70, 140, 24, 24};
  for (Dtype d : {Dtype::kBF16, Dtype::kF16})
    for (Mask m : {Mask::kNone, Mask::kBool, Mask::kFloat, Mask::kPadding})
      check(d, s, m, kAll, m == Mask::kNone ? 0 : kAll, {.round_scores = true});
}

void check_grad(Dtype dtype, const Shape& s, Mask mask, int64_t behind, int64_t ahead,
                const Ways& ways = {}) {
  CAPTURE(isa::dtype_name(dtype), s.batch, s.heads, s.key_heads, s.queries, s.keys, s.d, s.e,
          static_cast<int>(mask), behind, ahead);
  Rig rig(static_cast<uint32_t>(s.queries * 31 + s.keys));
  AttentionGradKernel k;
  k.forward = make(rig, dtype, s, mask, behind, ahead);
  k.forward.blind_is_nan = ways.blind_is_nan;
  k.forward.round_scores = ways.round_scores;
  rig.run_reference(k.forward);
  // What the forward pass wrote is read now.
  const auto out = rig.read(k.forward.out), lse = rig.read(k.forward.lse);
  k.forward.out = rig.input(dtype, k.forward.out.sizes);
  k.forward.lse = rig.input(Dtype::kF32, k.forward.lse.sizes);
  rig.write(k.forward.out, out);
  rig.write(k.forward.lse, lse);
  k.grad_out = rig.input(dtype, k.forward.out.sizes);
  k.grad_q = rig.output(dtype, k.forward.q.sizes);
  k.grad_k = rig.output(dtype, k.forward.k.sizes);
  k.grad_v = rig.output(dtype, k.forward.v.sizes);
  rig.run_reference(k);
  const auto q = rig.read(k.grad_q), kk = rig.read(k.grad_k), v = rig.read(k.grad_v);
  rig.run(k);
  const double tolerance = dtype == Dtype::kF32 ? 5e-5 : 6e-2;
  CHECK(worst_error(rig.read(k.grad_q), q) < tolerance);
  CHECK(worst_error(rig.read(k.grad_k), kk) < tolerance);
  CHECK(worst_error(rig.read(k.grad_v), v) < tolerance);
}

TEST_CASE("attention gradient: shapes, bands and masks", "[attention]") {
  const Shape shapes[] = {{1, 1, 1, 128, 128, 64, 64},  {2, 4, 2, 130, 257, 40, 24},
                          {1, 3, 1, 200, 1, 16, 16},    {1, 2, 1, 260, 600, 16, 16},
                          {1, 1, 1, 70, 140, 200, 130}, {1, 1, 1, 1, 5, 3, 300}};
  for (const Shape& s : shapes) {
    check_grad(Dtype::kF32, s, Mask::kNone, kAll, kAll);
    check_grad(Dtype::kF32, s, Mask::kNone, kAll, 0);
  }
  check_grad(Dtype::kF32, shapes[3], Mask::kNone, 150, 3);
  check_grad(Dtype::kF32, shapes[1], Mask::kNone, kAll, -100);
  for (Mask m : {Mask::kBool, Mask::kFloat, Mask::kPadding})
    check_grad(Dtype::kF32, shapes[1], m, kAll, kAll);
  check_grad(Dtype::kF32, shapes[1], Mask::kBool, kAll, kAll, {.blind_is_nan = true});
  check_grad(Dtype::kBF16, shapes[1], Mask::kBool, kAll, 0, {.round_scores = true});
  check_grad(Dtype::kBF16, shapes[1], Mask::kNone, kAll, 0);
}

TEST_CASE("attention gradient: what does not fit is refused", "[attention]") {
  Rig rig;
  AttentionGradKernel k;
  k.forward = make(rig, Dtype::kF32, {1, 1, 1, 4, 4, 600, 8}, Mask::kNone, kAll, kAll);
  k.grad_out = rig.input(Dtype::kF32, k.forward.out.sizes);
  k.grad_q = rig.output(Dtype::kF32, k.forward.q.sizes);
  CHECK_THROWS_WITH(rig.run(k), ContainsSubstring("heads wider than 512"));
}

}  // namespace
}  // namespace trnsim::compiler::test
