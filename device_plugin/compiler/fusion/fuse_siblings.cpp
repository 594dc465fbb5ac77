// Maps side by side: two maps over the same elements that both read a tensor become one kernel with the results of both,
// so that it is loaded once. Legal under the conditions of join.h when neither has to stand before the other.
#include <algorithm>

#include "device_plugin/compiler/fusion/cost.h"
#include "device_plugin/compiler/fusion/join.h"
#include "device_plugin/compiler/fusion/passes.h"

namespace trnsim::compiler::fusion {
namespace {

constexpr size_t kMaxReaders = 16;  // of one value: pairs are tried

bool fuse(Flow& flow, int a, int b, int shared) {
  if (flow.position(a) > flow.position(b)) std::swap(a, b);
  std::optional<Joined> joined = join_siblings(flow, a, b, shared);
  if (!joined || !within_limits(joined->form)) return false;
  if (map_time_ns(joined->form) >= map_time_ns(*flow.node(a).map) + map_time_ns(*flow.node(b).map))
    return false;
  // An edge from a to b is legal for adjacent(), not here.
  for (int next : flow.node(a).next) {
    if (flow.find(next) == b) return false;
  }
  if (!flow.adjacent(a, b)) return false;
  const std::string location = joined_location(flow.node(a).location, flow.node(b).location);
  flow.node(b).map = std::move(joined->form);
  flow.node(b).location = location;
  flow.absorb(a, b);
  return true;
}

}  // namespace

void fuse_siblings(Flow& flow) {
  const std::vector<int> order = flow.order();
  for (int n : order) {
    if (n < 0 || !flow.node(n).alive || !flow.node(n).map) continue;
    std::vector<int> values;
    for (const auto& i : flow.node(n).map->inputs) values.push_back(i.value);
    for (int v : values) {
      const std::vector<int> readers = flow.value(v).readers;
      if (readers.size() > kMaxReaders) continue;
      for (int r : readers) {
        const int other = flow.find(r), self = flow.find(n);
        if (other == self || !flow.node(other).alive || !flow.node(other).map) continue;
        fuse(flow, self, other, v);
      }
    }
  }
}

}  // namespace trnsim::compiler::fusion
