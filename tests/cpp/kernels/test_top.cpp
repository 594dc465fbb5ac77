#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/cpp/catch.h"
#include "tests/cpp/kernels/rig.h"

namespace trnsim::compiler::test {
namespace {

enum class Data { kPlain, kTies, kSpecial, kSomeNan };

void check(Dtype d, std::vector<int64_t> lead, int64_t n, int64_t k, bool largest, Data data,
           std::vector<int64_t> strides = {}) {
  CAPTURE(isa::dtype_name(d), lead, n, k, largest, static_cast<int>(data));
  Rig rig(static_cast<uint32_t>(n + k));
  const auto with = [&](int64_t last) {
    auto s = lead;
    s.push_back(last);
    return s;
  };
  TopKernel top;
  top.input = rig.input(d, with(n), strides);
  if (d == Dtype::kI32 || d == Dtype::kI64) rig.fill(top.input, -2e9, 2e9);
  auto x = rig.read(top.input);
  std::uniform_int_distribution<int> draw(0, 19);
  constexpr double inf = std::numeric_limits<double>::infinity();
  for (double& v : x) {
    const int r = draw(rig.random());
    if (data == Data::kTies) v = isa::is_integer(d) ? std::round(v / 1e9) : std::round(v * 3);
    if (data == Data::kSpecial)
      v = r == 0 ? NAN : r < 4 ? inf : r < 16 ? -inf : r == 16 ? 0.0 : r == 17 ? -0.0 : v;
    if (data == Data::kSomeNan && r == 0) v = NAN;
  }
  rig.write(top.input, x);
  x = rig.read(top.input);
  top.values = rig.output(d, with(k));
  top.indices = rig.output(Dtype::kI64, with(k));
  top.k = k;
  top.largest = largest;
  rig.run(top);
  std::vector<double> values, indices;
  for (size_t row = 0; row < x.size() / static_cast<size_t>(n); ++row) {
    const double* v = x.data() + row * static_cast<size_t>(n);
    std::vector<int64_t> order(static_cast<size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    const auto less = [&](double a, double b) { return a < b || (std::isnan(b) && !std::isnan(a)); };
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return largest ? less(v[b], v[a]) : less(v[a], v[b]); });
    for (int64_t i = 0; i < k; ++i) {
      values.push_back(v[order[static_cast<size_t>(i)]]);
      indices.push_back(static_cast<double>(order[static_cast<size_t>(i)]));
    }
  }
  CHECK(worst_error(rig.read(top.values), values) == 0);
  CHECK(rig.read(top.indices) == indices);
  // Only one of the two results.
  TopKernel half = top;
  half.values.buffer = -1;
  rig.fill(top.indices);
  rig.run(half);
  CHECK(rig.read(top.indices) == indices);
}

TEST_CASE("top-k: k from 1 to n, ties, NaN and infinities", "[top]") {
  for (Dtype d : {Dtype::kF32, Dtype::kBF16}) {
    for (bool largest : {true, false}) {
      for (Data data : {Data::kPlain, Data::kTies, Data::kSpecial, Data::kSomeNan}) {
        check(d, {5}, 3, 1, largest, data);
        check(d, {5}, 3, 3, largest, data);
        check(d, {4, 40}, 100, 1, largest, data);
        check(d, {4, 40}, 100, 8, largest, data);
        check(d, {33}, 200, 20, largest, data);
        check(d, {20}, 77, 77, largest, data);
        check(d, {3}, 1, 1, largest, data);
      }
    }
  }
}

TEST_CASE("top-k: integers are exact", "[top]") {
  for (Dtype d : {Dtype::kI32, Dtype::kI64, Dtype::kU8, Dtype::kI8}) {
    for (bool largest : {true, false}) {
      for (Data data : {Data::kPlain, Data::kTies}) {
        check(d, {7}, 50, 1, largest, data);
        check(d, {7}, 50, 5, largest, data);
        check(d, {7}, 130, 130, largest, data);
      }
    }
  }
}

TEST_CASE("top-k: long rows are cut into chunks", "[top]") {
  for (bool largest : {true, false}) {
    for (Data data : {Data::kPlain, Data::kTies, Data::kSomeNan}) {
      check(Dtype::kF32, {}, 20000, 1, largest, data);
      check(Dtype::kF32, {2}, 9001, 8, largest, data);
      check(Dtype::kF32, {40}, 5000, 1, largest, data);
    }
  }
  check(Dtype::kF32, {2}, 5003, 50, true, Data::kTies);
  check(Dtype::kI64, {2}, 9001, 1, true, Data::kTies);
}

TEST_CASE("sort: rows longer than SBUF", "[top]") {
  check(Dtype::kF32, {}, 10000, 10000, true, Data::kTies);
  check(Dtype::kI64, {3}, 5000, 5000, false, Data::kPlain);
}

TEST_CASE("top-k: strided rows", "[top]") { check(Dtype::kF32, {30}, 40, 5, true, Data::kTies, {1, 37}); }

}  // namespace
}  // namespace trnsim::compiler::test
