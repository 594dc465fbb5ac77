// Maps into maps: pointwise chains, producers into reductions, row chains (softmax, norms, losses and their gradients).
//
// A producer goes into its consumer when join_maps() finds it legal (join.h), no third kernel has to stand between the
// two, the tiles stay large enough, and the fused kernel is estimated to be faster than both (cost.h): then the
// intermediate tensor is neither stored (unless somebody else needs it) nor loaded. A value is computed again only
// where it costs nothing: a copy or cast goes into every consumer of it, anything else only into the one place that
// computes it anyway. A broadcast of an expression is computed once per element of the consumer and pays in the estimate.
#include <algorithm>

#include "device_plugin/compiler/fusion/cost.h"
#include "device_plugin/compiler/fusion/join.h"
#include "device_plugin/compiler/fusion/passes.h"

namespace trnsim::compiler::fusion {
namespace {

// Copies and casts of one tensor.
bool is_light(const MapForm& f) {
  return f.inputs.size() == 1 && f.outputs.size() == 1 && !f.reduces() &&
         std::all_of(f.exprs.begin(), f.exprs.end(), [](const Expr& e) {
           return e.op == ExprOp::kInput || e.op == ExprOp::kCast || e.op == ExprOp::kConst ||
                  e.op == ExprOp::kNe;
         });
}

std::vector<int> values_of(const MapForm& f) {
  std::vector<int> values;
  for (const auto& i : f.inputs)
    for (int v : i.values()) values.push_back(v);
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

class MapFuser {
 public:
  explicit MapFuser(Flow& flow) : flow_(flow) {}

  void run() {
    const std::vector<int> order = flow_.order();
    for (int n : order) {
      if (n < 0 || !flow_.node(n).alive || !flow_.node(n).map) continue;
      while (step(n)) {
      }
    }
  }

 private:
  // One producer into n.
  bool step(int n) {
    std::vector<int> producers;
    for (const auto& i : flow_.node(n).map->inputs) {
      const int writer = flow_.value(i.value).writer;
      if (writer < 0) continue;
      const int p = flow_.find(writer);
      if (p != n && flow_.node(p).alive && flow_.node(p).map) producers.push_back(p);
    }
    std::sort(producers.begin(), producers.end(),
              [&](int a, int b) { return flow_.position(a) > flow_.position(b); });
    producers.erase(std::unique(producers.begin(), producers.end()), producers.end());
    return std::any_of(producers.begin(), producers.end(),
                       [&](int p) { return is_light(*flow_.node(p).map) ? forward(p, n) : absorb(p, n); });
  }

  bool absorb(int p, int n) {
    std::optional<Joined> joined = join_maps(flow_, *flow_.node(p).map, n, false);
    if (!joined || !within_limits(joined->form)) return false;
    const FlowNode &first = flow_.node(p), &second = flow_.node(n);
    if (map_time_ns(joined->form) >= map_time_ns(*first.map) + map_time_ns(*second.map)) return false;
    if (!flow_.adjacent(p, n)) return false;
    const std::string location = joined_location(first.location, second.location);
    flow_.node(n).map = std::move(joined->form);
    flow_.node(n).location = location;
    flow_.absorb(p, n);
    return true;
  }

  bool forward(int p, int n) {
    const MapForm& copy = *flow_.node(p).map;
    for (int v : values_of(copy)) {
      // The copy would be read later than it is made.
      if (flow_.value(v).overwritten)
        return flow_.needed_besides(copy.outputs[0].value, n) ? false : absorb(p, n);
    }
    std::optional<Joined> joined = join_maps(flow_, *flow_.node(p).map, n, true);
    if (!joined || !within_limits(joined->form)) return false;
    FlowNode& second = flow_.node(n);
    const bool last = !flow_.needed_besides(copy.outputs[0].value, n);
    const double before = map_time_ns(*second.map) + (last ? map_time_ns(copy) : 0);
    if (map_time_ns(joined->form) > before) return false;
    const std::vector<int> old_values = values_of(*second.map);
    second.map = std::move(joined->form);
    const std::vector<int> values = values_of(*second.map);
    for (int v : values) {
      if (!std::binary_search(old_values.begin(), old_values.end(), v)) flow_.add_reader(v, n);
    }
    for (int v : old_values) {
      if (!std::binary_search(values.begin(), values.end(), v)) flow_.release(v, n);
    }
    return true;
  }

  Flow& flow_;
};

}  // namespace

void fuse_maps(Flow& flow) { MapFuser(flow).run(); }

}  // namespace trnsim::compiler::fusion
