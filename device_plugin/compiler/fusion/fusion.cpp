#include "device_plugin/compiler/fusion/fusion.h"

#include "device_plugin/compiler/fusion/memory_plan.h"
#include "device_plugin/compiler/fusion/passes.h"
#include "device_plugin/compiler/fusion/split_readers.h"

namespace trnsim::compiler {

FusionReport fuse_kernels(KernelList& list) {
  FusionReport report;
  report.kernels_before = report.kernels_after = list.kernels.size();
  report.scratch_bytes_before = report.scratch_bytes_after = fusion::scratch_bytes(list);
  if (list.kernels.size() < 2) return report;  // nothing flows
  fusion::split_readers(list);
  fusion::Flow flow(list);
  flow.remove_dead();
  fusion::forward_copies(flow);
  fusion::fuse_epilogues(flow);
  fusion::fuse_maps(flow);
  fusion::fuse_epilogues(flow);
  fusion::recognise_attention(flow);
  fusion::fuse_siblings(flow);
  flow.remove_dead();
  fusion::schedule(flow);
  flow.apply();
  fusion::plan_memory(list);
  report.kernels_after = list.kernels.size();
  report.scratch_bytes_after = fusion::scratch_bytes(list);
  return report;
}

}  // namespace trnsim::compiler
