#include "tests/cpp/catch.h"
#include "tests/cpp/kernels/rig.h"

namespace trnsim::compiler::test {
namespace {

// Reference in double: out[b, m, n] over row-major reads of the views.
std::vector<double> reference(Rig& rig, const View& a, const View& b) {
  const size_t r = a.sizes.size();
  const int64_t m = a.sizes[r - 2], k = a.sizes[r - 1], n = b.sizes[r - 1];
  int64_t batch = 1;
  for (size_t i = 0; i + 2 < r; ++i) batch *= a.sizes[i];
  const auto x = rig.read(a), y = rig.read(b);
  std::vector<double> out(static_cast<size_t>(batch * m * n), 0.0);
  for (int64_t g = 0; g < batch; ++g)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t l = 0; l < k; ++l) {
        const double v = x[static_cast<size_t>((g * m + i) * k + l)];
        for (int64_t j = 0; j < n; ++j)
          out[static_cast<size_t>((g * m + i) * n + j)] += v * y[static_cast<size_t>((g * k + l) * n + j)];
      }
  return out;
}

double tolerance(Dtype d, int64_t k) {
  if (d == Dtype::kF32) return 1e-6 * (2 + std::sqrt(static_cast<double>(k)));
  if (d == Dtype::kF16) return 2e-3;
  return 1e-2;
}

std::vector<int64_t> transposed(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> swapped = sizes;
  std::swap(swapped[swapped.size() - 1], swapped[swapped.size() - 2]);
  std::vector<int64_t> s = contiguous(swapped);
  std::swap(s[s.size() - 1], s[s.size() - 2]);
  return s;
}

void check(Dtype d, Dtype out_dtype, int64_t batch, int64_t m, int64_t k, int64_t n, bool ta, bool tb,
           bool tout) {
  CAPTURE(isa::dtype_name(d), batch, m, k, n, ta, tb, tout);
  Rig rig(static_cast<uint32_t>(m * 7 + k * 3 + n));
  const auto shape = [&](int64_t x, int64_t y) {
    return batch > 0 ? std::vector<int64_t>{batch, x, y} : std::vector<int64_t>{x, y};
  };
  DotKernel dot;
  dot.a = rig.input(d, shape(m, k), ta ? transposed(shape(m, k)) : std::vector<int64_t>{}, 3);
  dot.b = rig.input(d, shape(k, n), tb ? transposed(shape(k, n)) : std::vector<int64_t>{}, 5);
  dot.out = rig.output(out_dtype, shape(m, n), tout ? transposed(shape(m, n)) : std::vector<int64_t>{}, 2);
  rig.run(dot);
  CHECK(worst_error(rig.read(dot.out), reference(rig, dot.a, dot.b)) < tolerance(out_dtype, k));
}

TEST_CASE("dot: every layout of every odd shape", "[dot]") {
  const int64_t shapes[][3] = {{1, 1, 5},     {1, 300, 1},   {7, 5, 3},     {128, 128, 512}, {129, 130, 513},
                               {1, 257, 700}, {700, 257, 1}, {33, 640, 17}, {260, 64, 40},   {64, 1, 64}};
  for (const auto& s : shapes)
    for (int layout = 0; layout < 8; ++layout)
      check(Dtype::kF32, Dtype::kF32, 0, s[0], s[1], s[2], layout & 1, layout & 2, layout & 4);
}

TEST_CASE("dot: dtypes in and out", "[dot]") {
  for (Dtype d : {Dtype::kF32, Dtype::kBF16, Dtype::kF16, Dtype::kF8E4M3, Dtype::kF8E5M2})
    for (Dtype out : {Dtype::kF32, Dtype::kBF16, Dtype::kF16})
      for (int layout = 0; layout < 4; ++layout) check(d, out, 0, 70, 200, 90, layout & 1, layout & 2, false);
}

TEST_CASE("dot: batches, small and large", "[dot]") {
  const int64_t shapes[][4] = {{96, 16, 64, 16},   {70, 32, 40, 64},  {9, 32, 200, 10}, {33, 7, 130, 5},
                               {5, 130, 40, 20},   {3, 64, 300, 600}, {50, 1, 80, 33},  {40, 33, 1, 1},
                               {7, 100, 200, 128}, {300, 3, 5, 4}};
  for (const auto& s : shapes)
    for (int layout = 0; layout < 8; ++layout)
      check(Dtype::kF32, Dtype::kF32, s[0], s[1], s[2], s[3], layout & 1, layout & 2, layout & 4);
  check(Dtype::kBF16, Dtype::kBF16, 24, 48, 64, 48, false, true, false);
}

TEST_CASE("dot: operands too large for SBUF are blocked", "[dot]") {
  // Right operand resident, left streams; left resident, right streams; neither.
  check(Dtype::kF32, Dtype::kF32, 0, 1500, 1024, 1024, false, false, false);
  check(Dtype::kF32, Dtype::kF32, 0, 512, 1024, 6000, false, false, false);
  check(Dtype::kF32, Dtype::kF32, 0, 300, 9000, 700, false, false, false);
  check(Dtype::kF32, Dtype::kF32, 0, 300, 30000, 520, false, true, false);
}

TEST_CASE("dot: batch axes of an attention layout stay unmerged", "[dot]") {
  // [B, S, H, D] tensors seen as [B, H, S, D].
  Rig rig;
  const int64_t b = 3, h = 4, s = 37, d = 24;
  const std::vector<int64_t> q_strides{s * h * d, d, h * d, 1}, k_strides{s * h * d, d, 1, h * d};
  DotKernel dot;
  dot.a = rig.input(Dtype::kF32, {b, h, s, d}, q_strides);
  dot.b = rig.input(Dtype::kF32, {b, h, d, s}, k_strides);
  dot.out = rig.output(Dtype::kF32, {b, h, s, s});
  rig.run(dot);
  CHECK(worst_error(rig.read(dot.out), reference(rig, dot.a, dot.b)) < 1e-5);
}

TEST_CASE("dot: an operand broadcast over the batch", "[dot]") {
  for (bool left : {false, true}) {
    for (int64_t m : {5, 150}) {
      Rig rig;
      DotKernel dot;
      const std::vector<int64_t> a_sizes{6, m, 40}, b_sizes{6, 40, 30};
      dot.a = rig.input(Dtype::kF32, a_sizes, left ? std::vector<int64_t>{0, 40, 1} : std::vector<int64_t>{});
      dot.b = rig.input(Dtype::kF32, b_sizes, left ? std::vector<int64_t>{} : std::vector<int64_t>{0, 30, 1});
      dot.out = rig.output(Dtype::kF32, {6, m, 30});
      rig.run(dot);
      CHECK(worst_error(rig.read(dot.out), reference(rig, dot.a, dot.b)) < 1e-5);
    }
  }
}

TEST_CASE("dot: operands whose rows or elements are all alike", "[dot]") {
  const int64_t m = 130, k = 257, n = 140;
  for (Dtype d : {Dtype::kF32, Dtype::kBF16}) {
    for (bool number : {false, true}) {
      for (bool left : {false, true}) {
        CAPTURE(isa::dtype_name(d), number, left);
        Rig rig(7);
        DotKernel dot;
        dot.a = rig.input(d, {left && number ? 1 : left ? k : m * k});
        dot.b = rig.input(d, {!left && number ? 1 : !left ? k : k * n});
        const int64_t step = number ? 0 : 1;
        dot.a.sizes = {m, k};
        dot.a.strides = left ? std::vector<int64_t>{0, step} : std::vector<int64_t>{k, 1};
        dot.b.sizes = {k, n};
        dot.b.strides = left ? std::vector<int64_t>{n, 1} : std::vector<int64_t>{step, 0};
        dot.out = rig.output(Dtype::kF32, {m, n});
        rig.run(dot);
        CHECK(worst_error(rig.read(dot.out), reference(rig, dot.a, dot.b)) < tolerance(Dtype::kF32, k));
      }
    }
  }
}

TEST_CASE("dot: epilogue with a row bias, a column bias and a residual", "[dot]") {
  for (bool swap : {false, true}) {
    for (int64_t batch : {1, 20}) {
      CAPTURE(swap, batch);
      Rig rig;
      const int64_t m = 30, k = 50, n = 20;
      DotKernel dot;
      dot.a = rig.input(Dtype::kF32, {batch, m, k});
      dot.b = rig.input(Dtype::kF32, {batch, k, n});
      dot.out = rig.output(Dtype::kF32, {batch, m, n},
                           swap ? std::vector<int64_t>{m * n, 1, m} : std::vector<int64_t>{});
      dot.extra = {rig.input(Dtype::kF32, {batch, m, n}, {0, 0, 1}),
                   rig.input(Dtype::kF32, {batch, m, n}, {0, 1, 0}), rig.input(Dtype::kF32, {batch, m, n})};
      const auto input = [&](int i) {
        Expr e;
        e.op = ExprOp::kInput;
        e.index = i;
        dot.epilogue.push_back(e);
        return static_cast<int32_t>(dot.epilogue.size() - 1);
      };
      const auto binary = [&](ExprOp op, int32_t a, int32_t b) {
        Expr e;
        e.op = op;
        e.a = a;
        e.b = b;
        dot.epilogue.push_back(e);
        return static_cast<int32_t>(dot.epilogue.size() - 1);
      };
      const int32_t sum = binary(ExprOp::kAdd, input(0), input(1));
      const int32_t scaled = binary(ExprOp::kMul, sum, input(2));
      binary(ExprOp::kAdd, scaled, input(3));
      rig.run(dot);
      auto expected = reference(rig, dot.a, dot.b);
      const auto row = rig.read(dot.extra[0]), column = rig.read(dot.extra[1]), rest = rig.read(dot.extra[2]);
      for (size_t i = 0; i < expected.size(); ++i) expected[i] = (expected[i] + row[i]) * column[i] + rest[i];
      CHECK(worst_error(rig.read(dot.out), expected) < 1e-5);
    }
  }
}

TEST_CASE("dot: empty contractions give zeros, empty results nothing", "[dot]") {
  Rig rig;
  DotKernel dot;
  dot.a = rig.input(Dtype::kF32, {4, 0});
  dot.b = rig.input(Dtype::kF32, {0, 6});
  dot.out = rig.output(Dtype::kF32, {4, 6});
  rig.run(dot);
  CHECK(worst_error(rig.read(dot.out), std::vector<double>(24, 0.0)) == 0);
  Rig none;
  dot.a = none.input(Dtype::kF32, {0, 3});
  dot.b = none.input(Dtype::kF32, {3, 6});
  dot.out = none.output(Dtype::kF32, {0, 6});
  none.run(dot);
}

TEST_CASE("dot: integers are exact beyond 2^24", "[dot]") {
  Rig rig;
  DotKernel dot;
  dot.a = rig.input(Dtype::kI64, {9, 31});
  dot.b = rig.input(Dtype::kI64, {31, 7});
  dot.out = rig.output(Dtype::kI64, {9, 7});
  rig.fill(dot.a, -5000, 5000);
  rig.fill(dot.b, -5000, 5000);
  rig.run(dot);
  CHECK(worst_error(rig.read(dot.out), reference(rig, dot.a, dot.b)) == 0);
}

}  // namespace
}  // namespace trnsim::compiler::test
