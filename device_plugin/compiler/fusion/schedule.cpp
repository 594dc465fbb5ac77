// The order of the kernels. Engines and queues run their instructions in program order, so a kernel that waits for the
// one before it holds up everything behind it, and every step of a chain pays the way through HBM and back. A list
// scheduler takes, of the kernels whose inputs are computed, the one that can start first; among those that can start at
// once, the one with the longest way to the end behind it. What nobody waits for (the gradients of weights) fills the
// gaps of the chain.
//
// Legal: an order of the flow's edges. To keep tensors from waiting for long, a kernel is overtaken only by kernels within a
// window of the old order.
#include <algorithm>

#include "device_plugin/compiler/fusion/cost.h"
#include "device_plugin/compiler/fusion/passes.h"
#include "device_plugin/compiler/fusion/views.h"

namespace trnsim::compiler::fusion {
namespace {

constexpr double kThroughHbmNs = 4000;  // from the last instruction of a kernel to the first of its reader
constexpr double kFlopPerNs = 10000;    // products of small matrices, far from the peak
constexpr double kBytesPerNs = 200;
constexpr double kIssueNs = 500;
constexpr size_t kWindow = 64;

// How long a kernel keeps engines and queues from the next, roughly.
double occupied_ns(Flow& flow, int n) {
  FlowNode& node = flow.node(n);
  if (node.map) return std::max(kIssueNs, map_time_ns(*node.map) - kKernelLatencyNs);
  double flops = 0, bytes = 0;
  if (auto* dot = std::get_if<DotKernel>(&node.kernel))
    flops = 2.0 * static_cast<double>(dot->out.numel()) * static_cast<double>(dot->a.sizes.back());
  if (auto* conv = std::get_if<ConvKernel>(&node.kernel)) {
    flops = 2.0 * static_cast<double>(conv->out.numel()) * static_cast<double>(conv->weight.numel()) /
            static_cast<double>(std::max<int64_t>(1, conv->weight.sizes[0]));
  }
  for (const Use& use : uses_of(node.kernel))
    bytes += static_cast<double>(distinct_elements(*use.view) *
                                 static_cast<int64_t>(isa::dtype_bytes(use.view->dtype)));
  return kIssueNs + std::max(flops / kFlopPerNs, bytes / kBytesPerNs);
}

}  // namespace

void schedule(Flow& flow) {
  std::vector<int> order;
  for (int n : flow.order()) {
    if (n >= 0 && flow.node(n).alive) order.push_back(n);
  }
  const size_t count = order.size();
  std::vector<size_t> index(flow.nodes().size(), 0);
  for (size_t i = 0; i < count; ++i) index[static_cast<size_t>(order[i])] = i;
  std::vector<std::vector<size_t>> next(count);
  std::vector<size_t> waits(count, 0);
  std::vector<double> time(count), way(count), ready(count, 0);
  for (size_t i = 0; i < count; ++i) {
    time[i] = occupied_ns(flow, order[i]);
    for (int m : flow.node(order[i]).next) {
      m = flow.find(m);
      if (m != order[i] && flow.node(m).alive) next[i].push_back(index[static_cast<size_t>(m)]);
    }
    std::sort(next[i].begin(), next[i].end());
    next[i].erase(std::unique(next[i].begin(), next[i].end()), next[i].end());
    for (size_t j : next[i]) ++waits[j];
  }
  for (size_t i = count; i-- > 0;) {
    double behind = 0;
    for (size_t j : next[i]) behind = std::max(behind, way[j]);
    way[i] = time[i] + kThroughHbmNs + behind;
  }
  std::vector<bool> done(count, false);
  std::vector<int> result;
  double now = 0;
  size_t first = 0;
  while (result.size() < count) {
    while (done[first]) ++first;
    size_t best = count;
    for (size_t i = first; i < std::min(count, first + kWindow); ++i) {
      if (done[i] || waits[i] > 0) continue;
      if (best == count) {
        best = i;
        continue;
      }
      const double start = std::max(now, ready[i]), best_start = std::max(now, ready[best]);
      if (start < best_start || (start == best_start && way[i] > way[best])) best = i;
    }
    done[best] = true;
    result.push_back(order[best]);
    now = std::max(now, ready[best]) + time[best];
    for (size_t j : next[best]) {
      --waits[j];
      ready[j] = std::max(ready[j], now + kThroughHbmNs);
    }
  }
  flow.set_order(result);
}

}  // namespace trnsim::compiler::fusion
