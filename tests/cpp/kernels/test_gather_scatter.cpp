#include <cmath>

#include "tests/cpp/catch.h"
#include "tests/cpp/kernels/rig.h"

namespace trnsim::compiler::test {
namespace {

using Sizes = std::vector<int64_t>;

// The shape of the gathered tensor.
Sizes gathered_sizes(const View& table, int axis, const std::vector<View>& index, bool along) {
  if (along) return index[0].sizes;
  Sizes s(table.sizes.begin(), table.sizes.begin() + axis);
  s.insert(s.end(), index[0].sizes.begin(), index[0].sizes.end());
  s.insert(s.end(), table.sizes.begin() + axis + static_cast<long>(index.size()), table.sizes.end());
  return s;
}

// Flat table element (row-major over table.sizes) of every element of the gathered tensor.
std::vector<int64_t> flat_positions(Rig& rig, const View& table, int axis, const std::vector<View>& index,
                                    bool along) {
  const Sizes sizes = gathered_sizes(table, axis, index, along);
  std::vector<std::vector<double>> values;
  for (const View& v : index) values.push_back(rig.read(v));
  int64_t total = 1;
  for (int64_t s : sizes) total *= s;
  std::vector<int64_t> out;
  for (int64_t i = 0; i < total; ++i) {
    Sizes at(sizes.size());
    for (size_t d = sizes.size(), rest = static_cast<size_t>(i); d-- > 0;) {
      at[d] = static_cast<int64_t>(rest) % sizes[d];
      rest /= static_cast<size_t>(sizes[d]);
    }
    Sizes element;
    if (along) {
      element = at;
      int64_t v = static_cast<int64_t>(values[0][static_cast<size_t>(i)]);
      element[static_cast<size_t>(axis)] = v < 0 ? v + table.sizes[static_cast<size_t>(axis)] : v;
    } else {
      const size_t a = static_cast<size_t>(axis), rank = index[0].sizes.size();
      element.assign(at.begin(), at.begin() + axis);
      int64_t flat = 0;
      for (size_t d = 0; d < rank; ++d) flat = flat * index[0].sizes[d] + at[a + d];
      for (size_t k = 0; k < index.size(); ++k) {
        int64_t v = static_cast<int64_t>(values[k][static_cast<size_t>(flat)]);
        element.push_back(v < 0 ? v + table.sizes[a + k] : v);
      }
      element.insert(element.end(), at.begin() + axis + static_cast<long>(rank), at.end());
    }
    int64_t flat = 0;
    for (size_t d = 0; d < element.size(); ++d) flat = flat * table.sizes[d] + element[d];
    out.push_back(flat);
  }
  return out;
}

struct Case {
  Sizes table;
  int axis;
  int indexed;
  Sizes index;
  bool along = false;
};
const Case kCases[] = {
    {{50, 24}, 0, 1, {300}},           {{50, 24}, 0, 1, {7, 9}},        {{50}, 0, 1, {200}},
    {{6, 40, 10}, 1, 1, {33}},         {{6, 40, 10}, 2, 1, {5}},        {{8, 9, 10, 3}, 1, 2, {4, 6}},
    {{12, 13}, 0, 2, {1000}},          {{4, 3, 5, 6, 7}, 1, 2, {11}},   {{30, 5000}, 0, 1, {20}},
    {{40, 17}, 0, 1, {64, 17}, true},  {{40, 17}, 1, 1, {40, 5}, true}, {{5, 300, 3}, 1, 1, {5, 20, 3}, true},
    {{700, 10}, 1, 1, {700, 1}, true},
};

std::vector<View> indices(Rig& rig, const Case& c, Dtype d, bool negative) {
  std::vector<View> out;
  for (int i = 0; i < c.indexed; ++i) {
    View v = rig.input(d, c.index);
    const int64_t size = c.table[static_cast<size_t>(c.axis + i)];
    rig.fill(v, negative ? static_cast<double>(-size) : 0, static_cast<double>(size - 1));
    out.push_back(v);
  }
  return out;
}

// One rule per index operand.
std::vector<IndexRule> rules(const std::vector<View>& index, bool wraps = true) {
  std::vector<IndexRule> out;
  for (size_t i = 0; i < index.size(); ++i)
    out.push_back({"IndexError: index {} of operand " + std::to_string(i) + " is not legal", wraps});
  return out;
}

TEST_CASE("gather: rows, inner axes, several index tensors, along an axis", "[gather]") {
  for (Dtype d : {Dtype::kF32, Dtype::kBF16, Dtype::kI64, Dtype::kU8}) {
    for (const Case& c : kCases) {
      CAPTURE(isa::dtype_name(d), c.table, c.axis, c.index, c.along);
      Rig rig;
      GatherKernel g;
      g.src = rig.input(d, c.table);
      if (d == Dtype::kI64) rig.fill(g.src, -1e15, 1e15);
      g.axis = c.axis;
      g.along = c.along;
      g.index = indices(rig, c, Dtype::kI64, true);
      g.rules = rules(g.index);
      g.out = rig.output(d, gathered_sizes(g.src, c.axis, g.index, c.along));
      rig.run(g);
      const auto positions = flat_positions(rig, g.src, c.axis, g.index, c.along);
      const auto table = rig.read(g.src);
      std::vector<double> expected;
      for (int64_t p : positions) expected.push_back(table[static_cast<size_t>(p)]);
      CHECK(rig.read(g.out) == expected);
    }
  }
}

TEST_CASE("gather: strided table, strided result, int32 index", "[gather]") {
  Rig rig;
  GatherKernel g;
  g.src = rig.input(Dtype::kF32, {30, 20}, {1, 31}, 4);
  g.index = {rig.input(Dtype::kI32, {9, 5}, {1, 10})};
  rig.fill(g.index[0], 0, 29);
  g.rules = rules(g.index);
  g.out = rig.output(Dtype::kF32, {9, 5, 20}, {100, 1, 5});
  rig.run(g);
  const auto table = rig.read(g.src);
  std::vector<double> expected;
  for (int64_t p : flat_positions(rig, g.src, 0, g.index, false))
    expected.push_back(table[static_cast<size_t>(p)]);
  CHECK(rig.read(g.out) == expected);
}

TEST_CASE("gather: an index that is not legal stops the program and is named as given", "[gather]") {
  for (bool along : {false, true}) {
    for (bool wraps : {false, true}) {
      for (double bad : {40.0, 41.0, 1e6, 2e9, -41.0, -1e6, -2147483648.0, -1.0}) {
        if (wraps && bad == -1) continue;
        CAPTURE(along, wraps, bad);
        Rig rig;
        GatherKernel g;
        g.src = rig.input(Dtype::kF32, {6, 40, 10});
        g.axis = 1;
        g.along = along;
        g.index = {rig.input(Dtype::kI64, along ? Sizes{6, 3, 10} : Sizes{3})};
        g.rules = rules(g.index, wraps);
        rig.fill(g.index[0], 0, 39);
        auto values = rig.read(g.index[0]);
        values.back() = bad;
        rig.write(g.index[0], values);
        g.out = rig.output(Dtype::kF32, {6, 3, 10});
        const std::string words = "check failed: IndexError: index " +
                                  std::to_string(static_cast<int64_t>(bad)) + " of operand 0 is not legal;";
        CHECK_THAT(rig.run_error(g), ContainsSubstring(words));
      }
    }
  }
}

TEST_CASE("gather: of several index tensors the one that is not legal is named", "[gather]") {
  for (int operand : {0, 1, 2}) {
    for (double bad : {9.0, 1234567.0, -10.0, -654321.0}) {
      CAPTURE(operand, bad);
      Rig rig;
      GatherKernel g;
      g.src = rig.input(Dtype::kF32, {9, 8, 7, 3});
      for (int i = 0; i < 3; ++i) {
        g.index.push_back(rig.input(Dtype::kI32, {4}));
        rig.write(g.index.back(),
                  i == operand ? std::vector<double>{0, 1, bad, 2} : std::vector<double>{0, -1, 6, 2});
      }
      g.rules = rules(g.index);
      g.out = rig.output(Dtype::kF32, {4, 3});
      const std::string words = "index " + std::to_string(static_cast<int64_t>(bad)) + " of operand " +
                                std::to_string(operand) + " is not legal";
      CHECK_THAT(rig.run_error(g), ContainsSubstring(words));
    }
  }
}

TEST_CASE("check: stops the program unless the value is 0", "[gather]") {
  for (double value : {0.0, 1.0, 2.0, 3.0}) {
    Rig rig;
    const View row = rig.input(Dtype::kI32, {1});
    rig.write(row, {value});
    const std::string error = rig.run_error(CheckKernel{row, {"RuntimeError: one", "RuntimeError: two"}, 0});
    if (value == 0) CHECK(error.empty());
    if (value == 1 || value == 3) CHECK_THAT(error, ContainsSubstring("RuntimeError: one"));
    if (value == 2) CHECK_THAT(error, ContainsSubstring("RuntimeError: two"));
  }
  for (double value : {5.0, 6.0, 77.0, -1.0, -9.0}) {
    Rig rig;
    const View row = rig.input(Dtype::kI32, {1});
    rig.write(row, {value < 0 ? value : value - 4});
    CHECK_THAT(rig.run_error(CheckKernel{row, {"IndexError: Target {} is out of bounds."}, 5}),
               ContainsSubstring("Target " + std::to_string(static_cast<int64_t>(value)) + " is"));
  }
}

void check_scatter(Rig& rig, const ScatterKernel& s, double tolerance) {
  auto expected = rig.read(s.out);
  const auto positions = flat_positions(rig, s.out, s.axis, s.index, s.along);
  const auto source = rig.read(s.src);
  for (size_t i = 0; i < positions.size(); ++i) {
    double& e = expected[static_cast<size_t>(positions[i])];
    e = s.combine == ScatterKernel::Combine::kAdd ? e + source[i] : source[i];
  }
  rig.run(s);
  if (tolerance == 0) {
    CHECK(rig.read(s.out) == expected);
  } else {
    CHECK(worst_error(rig.read(s.out), expected) < tolerance);
  }
}

TEST_CASE("scatter: the last of several writes wins, sums count every duplicate once", "[scatter]") {
  for (auto combine : {ScatterKernel::Combine::kNone, ScatterKernel::Combine::kAdd}) {
    for (Dtype d : {Dtype::kF32, Dtype::kI64, Dtype::kI32, Dtype::kBF16}) {
      for (const Case& c : kCases) {
        CAPTURE(isa::dtype_name(d), c.table, c.axis, c.index, c.along, static_cast<int>(combine));
        Rig rig;
        ScatterKernel s;
        s.combine = combine;
        s.out = rig.output(d, c.table);
        const bool sum = combine == ScatterKernel::Combine::kAdd;
        const double limit = d == Dtype::kI32 || d == Dtype::kI64 ? (sum ? 1e6 : 1e9) : 1;
        rig.fill(s.out, -limit, limit);
        s.axis = c.axis;
        s.along = c.along;
        s.index = indices(rig, c, Dtype::kI64, true);
        s.rules = rules(s.index);
        s.src = rig.input(d, gathered_sizes(s.out, c.axis, s.index, c.along));
        rig.fill(s.src, -limit, limit);
        check_scatter(rig, s, !sum || isa::is_integer(d) ? 0 : d == Dtype::kBF16 ? 0.05 : 1e-5);
      }
    }
  }
}

TEST_CASE("scatter: all rows on one index, a broadcast source", "[scatter]") {
  Rig rig;
  ScatterKernel s;
  s.combine = ScatterKernel::Combine::kAdd;
  s.out = rig.output(Dtype::kF32, {5, 33});
  rig.fill(s.out);
  s.index = {rig.input(Dtype::kI64, {400})};
  rig.fill(s.index[0], 2, 2);
  s.rules = rules(s.index);
  s.src = rig.input(Dtype::kF32, {400, 33}, {0, 0});
  check_scatter(rig, s, 1e-5);
}

TEST_CASE("scatter: wide rows", "[scatter]") {
  for (auto combine : {ScatterKernel::Combine::kNone, ScatterKernel::Combine::kAdd}) {
    Rig rig;
    ScatterKernel s;
    s.combine = combine;
    s.out = rig.output(Dtype::kF32, {20, 5000});
    rig.fill(s.out);
    s.index = {rig.input(Dtype::kI64, {40})};
    rig.fill(s.index[0], 0, 19);
    s.rules = rules(s.index);
    s.src = rig.input(Dtype::kF32, {40, 5000});
    check_scatter(rig, s, combine == ScatterKernel::Combine::kNone ? 0 : 1e-5);
  }
}

TEST_CASE("scatter: an index out of range is an error at run time", "[scatter]") {
  for (bool along : {false, true}) {
    Rig rig;
    ScatterKernel s;
    s.along = along;
    s.out = rig.output(Dtype::kF32, {6, 10});
    rig.fill(s.out);
    s.index = {rig.input(Dtype::kI64, along ? Sizes{3, 10} : Sizes{3})};
    rig.fill(s.index[0], 6, 6);
    s.rules = rules(s.index);
    s.src = rig.input(Dtype::kF32, {3, 10});
    CHECK_THAT(rig.run_error(s), ContainsSubstring("IndexError: index 6 of operand 0 is not legal"));
  }
}

}  // namespace
}  // namespace trnsim::compiler::test
