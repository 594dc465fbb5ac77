// From kernels to a program.
#include <iterator>

#include "device_plugin/compiler/fusion/uses.h"
#include "device_plugin/compiler/tilers/divide.h"
#include "device_plugin/compiler/tilers/tilers.h"

namespace trnsim::compiler {

namespace {

struct Dispatch {
  const KernelContext& context;
  TileBuilder& tile;
  void operator()(const MapKernel& k) { tile_map(k, context, tile); }
  void operator()(const DotKernel& k) { tile_dot(k, context, tile); }
  void operator()(const ConvKernel& k) { tile_conv(k, context, tile); }
  void operator()(const WindowKernel& k) { tile_window(k, context, tile); }
  void operator()(const MoveKernel& k) { tile_move(k, context, tile); }
  void operator()(const GatherKernel& k) { tile_gather(k, context, tile); }
  void operator()(const ScatterKernel& k) { tile_scatter(k, context, tile); }
  void operator()(const ScanKernel& k) { tile_scan(k, context, tile); }
  void operator()(const TopKernel& k) { tile_top(k, context, tile); }
  void operator()(const RandomKernel& k) { tile_random(k, context, tile); }
  void operator()(const CheckKernel& k) { tile_check(k, context, tile); }
  void operator()(const AttentionKernel& k) { tile_attention(k, context, tile); }
  void operator()(const AttentionGradKernel& k) { tile_attention_grad(k, context, tile); }
};

void tile_list(const KernelList& kernels, const KernelContext& bound, const std::string& target,
               TileBuilder& tile) {
  const std::optional<KernelList> staggered = stagger(kernels, target);
  const KernelList& list = staggered ? *staggered : kernels;
  KernelContext context = bound;
  context.list = &list;
  context.read = fusion::read_buffers(list);
  for (size_t i = 0; i < list.kernels.size(); ++i) {
    if (i < list.locations.size()) tile.set_location("", 0, list.locations[i]);
    std::visit(Dispatch{context, tile}, list.kernels[i]);
  }
}

isa::Program finish(TileBuilder& tile, bool forward, std::string* tile_text) {
  if (forward) tile.forward_stores();
  tile.remove_unread();
  if (tile_text) *tile_text += tile.text();
  return tile.finish();
}

// The program of one core of a plan: its kernels from barrier to barrier.
isa::Program compile_core(const KernelList& list, const CorePlan& plan, int core, const TileOptions& options,
                          std::string* tile_text) {
  TileBuilder tile(list.name, options);
  const KernelContext context = bind_buffers(list, tile);
  std::vector<Access> shared;
  for (int32_t b : plan.shared) shared.push_back(context.tensors[static_cast<size_t>(b)]);
  tile.share(shared);
  KernelList part{list.name, list.buffers, {}, {}, list.num_params};
  const auto flush = [&] {
    tile_list(part, context, options.target, tile);
    part.kernels.clear();
    part.locations.clear();
  };
  for (const CoreStep& step : plan.steps) {
    if (step.barrier) {
      flush();
      tile.core_barrier();
    } else if (step.on_core[core]) {
      part.kernels.push_back(*step.on_core[core]);
      part.locations.push_back(step.location);
    }
  }
  flush();
  return finish(tile, true, tile_text);
}

// Takes the streams of the second core over. The first `bound` tensors are the same in both; scratch tensors of tilers
// belong to one core.
void add_second_core(isa::Program& program, isa::Program&& second, size_t bound) {
  const auto more_tensors = static_cast<uint32_t>(program.tensors.size() - bound);
  const auto more_locations = static_cast<uint32_t>(program.locations.size() - 1);
  for (size_t t = bound; t < second.tensors.size(); ++t) {
    program.tensors.push_back(std::move(second.tensors[t]));
    program.tensors.back().name = "core1." + program.tensors.back().name;
  }
  program.locations.insert(program.locations.end(), std::make_move_iterator(second.locations.begin() + 1),
                           std::make_move_iterator(second.locations.end()));
  program.cores = 2;
  for (int e = 0; e < isa::kNumEngines; ++e) {
    auto& stream = program.streams[isa::stream_number(1, static_cast<Engine>(e))];
    stream = std::move(second.streams[static_cast<size_t>(e)]);
    for (isa::Instruction& i : stream) {
      if (i.location != 0) i.location += more_locations;
      for (Access* a : {&i.dst, &i.src0, &i.src1, &i.aux}) {
        if (a->space == isa::Space::kHbm && a->tensor >= bound) a->tensor += more_tensors;
      }
    }
  }
}

}  // namespace

isa::Program compile_kernels(const KernelList& kernels, const TileOptions& options, const CoreOptions& cores,
                             std::string* tile_text) {
  if (cores.cores > 1) {
    if (const std::optional<CorePlan> plan = divide(kernels, options.target, cores.always_divide)) {
      isa::Program program = compile_core(kernels, *plan, 0, options, tile_text);
      const size_t bound = kernels.buffers.size() + (kernels.num_params > 0 ? 1 : 0);
      add_second_core(program, compile_core(kernels, *plan, 1, options, tile_text), bound);
      program.notes.emplace_back("barriers", std::to_string(plan->barriers));
      return program;
    }
  }
  TileBuilder tile(kernels.name, options);
  tile_list(kernels, bind_buffers(kernels, tile), options.target, tile);
  return finish(tile, kernels.kernels.size() > 1, tile_text);
}

}  // namespace trnsim::compiler
