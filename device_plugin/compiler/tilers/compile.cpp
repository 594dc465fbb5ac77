// From kernels to a program.
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

}  // namespace

isa::Program compile_kernels(const KernelList& kernels, const TileOptions& options, std::string* tile_text) {
  const std::optional<KernelList> staggered = stagger(kernels, options.target);
  const KernelList& list = staggered ? *staggered : kernels;
  TileBuilder tile(list.name, options);
  KernelContext context = bind_buffers(list, tile);
  for (size_t i = 0; i < list.kernels.size(); ++i) {
    if (i < list.locations.size()) tile.set_location("", 0, list.locations[i]);
    std::visit(Dispatch{context, tile}, list.kernels[i]);
  }
  if (list.kernels.size() > 1) tile.forward_stores();
  tile.remove_unread();
  if (tile_text) *tile_text = tile.text();
  return tile.finish();
}

}  // namespace trnsim::compiler
