// Copies into the kernels that read them, where these are not maps (maps take copies and casts in fuse_maps.cpp).
//
// Legal when what the copy read is not written over later (the reader would see the new contents) and the elements that
// the reader wants lie in equal steps along its axes. Taken when the runs in memory do not become shorter; a matrix
// product may read either of the two axes of its operands in runs.
#include <algorithm>

#include "device_plugin/compiler/cost.h"
#include "device_plugin/compiler/fusion/align.h"
#include "device_plugin/compiler/fusion/passes.h"
#include "device_plugin/compiler/fusion/views.h"

namespace trnsim::compiler::fusion {
namespace {

int64_t run_bytes(const View& v) {
  int64_t run = 1;
  for (bool longer = true; longer;) {
    longer = false;
    for (size_t d = 0; d < v.sizes.size(); ++d) {
      if (v.sizes[d] > 1 && v.strides[d] == run) {
        run *= v.sizes[d];
        longer = true;
      }
    }
  }
  return run * static_cast<int64_t>(isa::dtype_bytes(v.dtype));
}

bool runs_as_well(const Kernel& kernel, const View& before, const View& after) {
  const size_t r = after.sizes.size();
  if (std::holds_alternative<DotKernel>(kernel)) {
    return after.strides[r - 1] == 1 || after.strides[r - 2] == 1 || after.numel() * 2 <= kFullRunBytes;
  }
  // The innermost axis decides how a tiler walks.
  const bool same_walk = r == 0 || after.strides[r - 1] == before.strides[r - 1];
  return same_walk && run_bytes(after) >= std::min(run_bytes(before), kFullRunBytes);
}

bool forward(Flow& flow, int n, size_t use) {
  FlowNode& node = flow.node(n);
  const std::vector<int> values = node.reads[use];
  const int p = flow.only_writer(values);
  if (p < 0 || p == n || !flow.node(p).map || !is_copy(*flow.node(p).map)) return false;
  const MapForm& copy = *flow.node(p).map;
  const std::vector<int> sources = copy.inputs[0].values();
  for (int v : sources) {
    if (flow.value(v).overwritten) return false;
  }
  View& read = *uses_of(node.kernel)[use].view;
  const std::optional<View> seen = seen_through(copy, read);
  if (!seen || seen->dtype != read.dtype || !runs_as_well(node.kernel, read, *seen)) return false;
  for (const Use& other : uses_of(node.kernel)) {
    if (other.writes && flow.memory_of(other.view->buffer) == flow.memory_of(seen->buffer) &&
        meet(*other.view, *seen) != Meeting::kDisjoint)
      return false;
  }
  read = *seen;
  node.reads[use] = sources;
  for (int v : sources) flow.add_reader(v, n);
  const bool elsewhere = std::any_of(node.reads.begin(), node.reads.end(), [&](const auto& list) {
    return std::find(list.begin(), list.end(), values[0]) != list.end();
  });
  if (!elsewhere) flow.release(values[0], n);
  return true;
}

}  // namespace

void forward_copies(Flow& flow) {
  const std::vector<int> order = flow.order();
  for (int n : order) {
    if (n < 0 || !flow.node(n).alive || flow.node(n).map) continue;
    FlowNode& node = flow.node(n);
    if (std::holds_alternative<MapKernel>(node.kernel) || std::holds_alternative<MoveKernel>(node.kernel))
      continue;
    const std::vector<Use> uses = uses_of(node.kernel);
    for (size_t u = 0; u < uses.size(); ++u) {
      if (uses[u].reads && !uses[u].writes) {
        while (forward(flow, n, u)) {
        }
      }
    }
  }
}

}  // namespace trnsim::compiler::fusion
