// Random graphs of pointwise operators, row sums, products, views and writes into parts: the passes of compiler/fusion
// must not change what comes out.
#include <random>

#include "device_plugin/compiler/fusion/fusion.h"
#include "device_plugin/compiler/graph_text.h"
#include "device_plugin/compiler/lower.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/compiler/runs.h"

using namespace trnsim::compiler;

namespace {

using Sizes = std::vector<int64_t>;

Sizes row_major(const Sizes& sizes) {
  Sizes strides(sizes.size(), 1);
  for (size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * sizes[d];
  return strides;
}

class RandomGraph {
 public:
  explicit RandomGraph(uint32_t seed) : rng_(seed) {
    g_.name = "random";
    for (const Sizes& s : {Sizes{4, 6}, Sizes{4, 6}, Sizes{6}, Sizes{4, 1}, Sizes{6, 4}})
      g_.inputs.push_back(add(Dtype::kF32, s));
    const int steps = 3 + pick(18);
    for (int i = 0; i < steps; ++i) step();
    // Inputs that were written are outputs in place already.
    for (ValueId v = static_cast<ValueId>(g_.inputs.size()); v < static_cast<ValueId>(g_.values.size());
         ++v) {
      const Value& value = g_.values[static_cast<size_t>(v)];
      if (value.alias != kNoValue) continue;
      const bool last = v + 1 == static_cast<ValueId>(g_.values.size());
      if (value.view_of == kNoValue && (pick(4) == 0 || last)) g_.outputs.push_back(v);
    }
    if (g_.outputs.empty()) unary();
    if (g_.outputs.empty()) g_.outputs.push_back(static_cast<ValueId>(g_.values.size() - 1));
  }
  const Graph& graph() const { return g_; }

 private:
  int pick(int n) { return static_cast<int>(rng_() % static_cast<uint32_t>(n)); }
  ValueId any() { return static_cast<ValueId>(pick(static_cast<int>(g_.values.size()))); }
  const TensorType& type(ValueId v) const { return g_.values[static_cast<size_t>(v)].type; }
  ValueId base(ValueId v) const {
    while (true) {
      const Value& value = g_.values[static_cast<size_t>(v)];
      if (value.view_of != kNoValue) {
        v = value.view_of;
      } else if (value.alias != kNoValue) {
        v = value.alias;
      } else {
        return v;
      }
    }
  }

  ValueId add(Dtype dtype, const Sizes& sizes) {
    g_.values.push_back({{dtype, sizes, row_major(sizes)}});
    return static_cast<ValueId>(g_.values.size() - 1);
  }
  ValueId add_view(ValueId of, Sizes sizes, Sizes strides, int64_t offset) {
    Value v;
    v.type = {type(of).dtype, std::move(sizes), std::move(strides)};
    v.view_of = of;
    v.offset = offset;
    g_.values.push_back(v);
    return static_cast<ValueId>(g_.values.size() - 1);
  }
  void node(const std::string& op, std::vector<Arg> args, ValueId result) {
    Node n;
    n.op = op;
    n.args = std::move(args);
    n.results = {result};
    g_.nodes.push_back(std::move(n));
  }

  void unary_into(ValueId x, ValueId y) {
    switch (pick(5)) {
      case 0:
        node("aten::tanh", {x}, y);
        break;
      case 1:
        node("aten::neg", {x}, y);
        break;
      case 2:
        node("aten::abs", {x}, y);
        break;
      case 3:
        node("aten::mul.Tensor", {x, 0.75}, y);
        break;
      default:
        node("aten::relu", {x}, y);
    }
  }
  void unary() {
    const ValueId x = any();
    unary_into(x, add(type(x).dtype, type(x).sizes));
  }
  void cast() {
    const ValueId x = any();
    const Dtype to = type(x).dtype == Dtype::kF32 ? Dtype::kBF16 : Dtype::kF32;
    node("aten::_to_copy", {x, to, Optional{}, Optional{}, Optional{}, false, Optional{}},
         add(to, type(x).sizes));
  }
  void clone() {
    const ValueId x = any();
    node("aten::clone", {x, Optional{}}, add(type(x).dtype, type(x).sizes));
  }
  void binary() {
    const ValueId x = any(), y = any();
    if (type(x).dtype != type(y).dtype) return;
    const Sizes &a = type(x).sizes, &b = type(y).sizes;
    Sizes out(std::max(a.size(), b.size()), 1);
    for (size_t d = 0; d < out.size(); ++d) {
      const int64_t m = d < a.size() ? a[a.size() - 1 - d] : 1, n = d < b.size() ? b[b.size() - 1 - d] : 1;
      if (m != n && m != 1 && n != 1) return;
      out[out.size() - 1 - d] = std::max(m, n);
    }
    const ValueId z = add(type(x).dtype, out);
    if (pick(2) == 0) {
      node("aten::maximum", {x, y}, z);
    } else {
      node("aten::sub.Tensor", {x, y, 0.5}, z);
    }
  }
  void reduce() {
    const ValueId x = any();
    if (type(x).sizes.empty()) return;
    const size_t axis = static_cast<size_t>(pick(static_cast<int>(type(x).sizes.size())));
    const bool keep = pick(3) != 0;
    Sizes out = type(x).sizes;
    out[axis] = 1;
    if (!keep) out.erase(out.begin() + static_cast<std::ptrdiff_t>(axis));
    const Sizes axes{static_cast<int64_t>(axis)};
    const ValueId y = add(type(x).dtype, out);
    if (pick(2) == 0) {
      node("aten::amax", {x, axes, keep}, y);
    } else {
      node("aten::mean.dim", {x, axes, keep, Optional{}}, y);
    }
  }
  void softmax() {
    const ValueId x = any();
    if (type(x).sizes.empty()) return;
    node("aten::_softmax", {x, int64_t{-1}, false}, add(type(x).dtype, type(x).sizes));
  }
  void product() {
    const ValueId x = any(), y = any();
    const Sizes &a = type(x).sizes, &b = type(y).sizes;
    if (a.size() != 2 || b.size() != 2 || a[1] != b[0] || type(x).dtype != type(y).dtype) return;
    node("aten::mm", {x, y}, add(type(x).dtype, {a[0], b[1]}));
  }
  ValueId view() {
    const ValueId x = any();
    const TensorType t = type(x);
    if (t.sizes.empty()) return x;
    const size_t last = t.sizes.size() - 1;
    switch (pick(3)) {
      case 0:  // transposed
        return add_view(x, Sizes(t.sizes.rbegin(), t.sizes.rend()),
                        Sizes(t.strides.rbegin(), t.strides.rend()), 0);
      case 1: {  // a slice
        if (t.sizes[last] < 2) return x;
        Sizes sizes = t.sizes;
        sizes[last] /= 2;
        return add_view(x, sizes, t.strides, (t.sizes[last] - sizes[last]) * t.strides[last] * pick(2));
      }
      default: {  // one axis split
        if (t.sizes[last] % 2 != 0) return x;
        Sizes sizes = t.sizes, strides = t.strides;
        sizes[last] /= 2;
        sizes.push_back(2);
        strides[last] *= 2;
        strides.push_back(t.strides[last]);
        return add_view(x, sizes, strides, 0);
      }
    }
  }
  // Writes an operator's result into a view of what was computed before.
  void write() {
    const ValueId v = view();
    const ValueId to = base(v);
    if (to < static_cast<ValueId>(g_.inputs.size()) || g_.values[static_cast<size_t>(v)].view_of == kNoValue)
      return;
    const ValueId x = any();
    if (base(x) == to || type(x).sizes != type(v).sizes || type(x).dtype != type(v).dtype) return;
    unary_into(x, v);
  }
  // Overwrites an input of the graph.
  void in_place() {
    const ValueId x = pick(static_cast<int>(g_.inputs.size()));
    for (const Value& v : g_.values) {
      if (v.alias == x) return;  // one update each
    }
    const ValueId y = add(type(x).dtype, type(x).sizes);
    g_.values[static_cast<size_t>(y)].alias = x;
    unary_into(x, y);
    g_.outputs.push_back(y);
  }
  void step() {
    switch (pick(14)) {
      case 0:
      case 1:
      case 2:
        return unary();
      case 3:
      case 4:
      case 5:
        return binary();
      case 6:
      case 7:
        return reduce();
      case 8:
        return cast();
      case 9:
        return product();
      case 10:
        view();
        return;
      case 11:
        return write();
      case 12:
        return pick(2) == 0 ? softmax() : clone();
      default:
        return in_place();
    }
  }

  std::mt19937 rng_;
  Graph g_;
};

}  // namespace

TEST_CASE("random graphs have the same results after the passes") {
  constexpr uint32_t kGraphs = 600, kCompiled = 40;
  size_t before = 0, after = 0;
  for (uint32_t seed = 0; seed < kGraphs; ++seed) {
    const Graph g = RandomGraph(seed).graph();
    KernelList list = lower_graph(g);
    const FusionReport report = fuse_kernels(list);
    before += report.kernels_before;
    after += report.kernels_after;
    INFO("seed " << seed << "\n" << graph_text(g));
    const Memory inputs = random_inputs(g);
    const Memory plain = run(g, RunMode::kReference, inputs), fused = run(g, RunMode::kFused, inputs);
    Memory compiled, divided;
    if (seed < kCompiled) {
      compiled = run(g, RunMode::kCompiled, inputs);
      divided = run(g, RunMode::kTwoCores, inputs);
    }
    for (size_t i = 0; i < g.outputs.size(); ++i) {
      const TensorType& t = g.values[static_cast<size_t>(g.outputs[i])].type;
      const float tolerance = 1e-5f;
      check_same(t, plain[i], fused[i], t.dtype == Dtype::kF32 ? tolerance : 0.01f);
      if (compiled.empty()) continue;
      check_same(t, plain[i], compiled[i], t.dtype == Dtype::kF32 ? 1e-3f : 0.02f);
      check_same(t, plain[i], divided[i], t.dtype == Dtype::kF32 ? 1e-3f : 0.02f);
    }
  }
  CHECK(after < before);
}
