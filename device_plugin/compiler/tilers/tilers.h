// Tilers: one function per kernel kind, from level 1 (kernels.h) to level 2 (tile.h). A tiler picks partition
// and free axes, tile sizes and loops and emits instructions in program order; it never places a semaphore,
// an address or a queue. Everything a tiler cannot do is a CompileError (error.h) with the reason.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "device_plugin/compiler/error.h"
#include "device_plugin/compiler/kernels.h"
#include "device_plugin/compiler/tile.h"

namespace trnsim::compiler {

// The buffers of a KernelList bound to program tensors.
struct KernelContext {
  const KernelList* list = nullptr;
  std::vector<Access>
      tensors;             // per buffer: 1-D access of the whole program tensor, in elements of Buffer::dtype
  std::vector<bool> read;  // per buffer: by a kernel of the list
  // Adds a scratch HBM tensor private to one tiler (partial results, transposed copies) and returns it as a
  // contiguous 1-D access.
  Access scratch(TileBuilder& tile, Dtype dtype, int64_t elements) const;
};

// Declares the program tensors ("in0".., "out0".., "scratch0".., "const0".., and "params" when used) for the
// buffers. An output that aliases an input is declared as such (TileBuilder::alias).
KernelContext bind_buffers(const KernelList& list, TileBuilder& tile);

// ---- HBM views ----
// Access of a strided view. Dims of size 1 are dropped and neighbours that form one run are merged; a view that
// still needs more than 5 dims is a CompileError (slice it in an outer loop: view_slice). Never empty: an empty
// view is an internal error, tilers return early on them. kI64 / kF64 views keep their HBM dtype: DMA narrows on
// load and widens on store.
Access hbm_view(const KernelContext& context, const View& view);
// The same without merging, size-1 dims kept: dims are exactly view.sizes (at most 5).
Access hbm_view_exact(const KernelContext& context, const View& view);
// [begin, begin + count) of axis `axis`.
View view_slice(const View& view, int axis, int64_t begin, int64_t count);
View view_permute(const View& view, const std::vector<int>& order);
// Merges neighbouring axes that form one run in EVERY view (all of the same sizes) and drops axes of size 1;
// axes in different groups (group[i] != group[i+1]) never merge. Returns the merged sizes; views are
// rewritten in place. `group` (may be null) is rewritten to the surviving axes.
std::vector<int64_t> merge_axes(std::vector<View>& views, std::vector<int>* group = nullptr);

// The dtype a value has in SBUF after a load: kI64 -> kI32, kF64 -> kF32, otherwise itself.
inline Dtype tile_dtype(Dtype hbm) {
  if (hbm == Dtype::kI64) return Dtype::kI32;
  if (hbm == Dtype::kF64) return Dtype::kF32;
  return hbm;
}

// ---- expressions on tiles ----
// Evaluates `exprs` on tiles of one shape. Tiles of class kF32 may have any float or small integer dtype
// (instructions cast on read); kI32 / kU32 values are 4-byte tiles; kBool values are kU8 tiles holding 0 or 1.
// Values live on three levels: per tile element; per row (the free dims that are not reduced); per partition.
struct ExprTiles {
  int partitions = 0;
  std::vector<int64_t> dims;   // free dims of every tile, at most 4
  std::vector<bool> reduced;   // per dim: kReduce nodes reduce it; may be shorter than dims (false)
  std::vector<Access> inputs;  // by Expr::index of kInput. Stride-0 dims are fine
  // Inputs that are one value per partition (a bias, a row sum): [P, 1] SBUF columns. Before `inputs`.
  std::vector<Access> columns;
  // Inputs that are one value per row: SBUF tiles of the dims that are not reduced. Before `inputs`.
  std::vector<Access> rows;
  // kIota of an axis: a kI32 tile (or stride-0 view) of shape [partitions, dims], or of the row shape when
  // iota_is_row(axis). Null when not used.
  std::function<Access(int axis)> iota;
  std::function<bool(int axis)> iota_is_row;
  // The value of a kReduce node when it is known already (row shape; [P, 1] when no dim is kept). Null, or not
  // present: reduced here.
  std::function<Access(int expr)> row_value;
  // Combines the partial row values of the partitions, so that every partition holds the result. Null: rows do
  // not span partitions.
  std::function<Access(const Access& partial, ReduceOp op, Dtype expr_class)> combine_partitions;
};

// Emits code for every root (an index into exprs) in order; common subexpressions once. Returns the value
// tile per root: F32 class as kF32 (or the input tile itself), integers 4-byte, bool as kU8 0/1. A missing
// entry of `into` (may be shorter) is not present; a present one is the destination tile, of any dtype: the
// value ends there. `done(r)`: root r is there, before what only later roots need.
std::vector<Access> emit_expr(TileBuilder& tile, const std::vector<Expr>& exprs,
                              std::span<const int32_t> roots, const ExprTiles& tiles,
                              std::span<const Access> into,
                              const std::function<void(size_t)>& done = nullptr);

// Reduces the dims of `full` marked in `reduced`: a tile of the other dims ([P, 1] when there are none).
// Integers exact.
Access reduce_dims(TileBuilder& tile, const Access& full, const std::vector<bool>& reduced, ReduceOp op,
                   Dtype expr_class);
// Combines two row values in place: acc = acc op other.
void reduce_into(TileBuilder& tile, const Access& acc, const Access& other, ReduceOp op, Dtype expr_class);

// Copies `src` into `dst` with PyTorch's conversion rules for any pair of dtypes (float to integer truncates,
// integers wrap, bool is != 0). Shapes equal.
void emit_cast(TileBuilder& tile, const Access& dst, const Access& src);

// ---- one tiler per kernel kind ----
void tile_map(const MapKernel& kernel, const KernelContext& context, TileBuilder& tile);
void tile_dot(const DotKernel& kernel, const KernelContext& context, TileBuilder& tile);
void tile_conv(const ConvKernel& kernel, const KernelContext& context, TileBuilder& tile);
void tile_window(const WindowKernel& kernel, const KernelContext& context, TileBuilder& tile);
void tile_move(const MoveKernel& kernel, const KernelContext& context, TileBuilder& tile);
void tile_gather(const GatherKernel& kernel, const KernelContext& context, TileBuilder& tile);
void tile_scatter(const ScatterKernel& kernel, const KernelContext& context, TileBuilder& tile);
void tile_scan(const ScanKernel& kernel, const KernelContext& context, TileBuilder& tile);
void tile_top(const TopKernel& kernel, const KernelContext& context, TileBuilder& tile);
void tile_random(const RandomKernel& kernel, const KernelContext& context, TileBuilder& tile);
void tile_check(const CheckKernel& kernel, const KernelContext& context, TileBuilder& tile);
void tile_attention(const AttentionKernel& kernel, const KernelContext& context, TileBuilder& tile);
void tile_attention_grad(const AttentionGradKernel& kernel, const KernelContext& context, TileBuilder& tile);

// The list with maps and the products behind them cut into blocks of rows that take turns; nothing where that does not
// pay.
std::optional<KernelList> stagger(const KernelList& list, const std::string& target);

// Binds the buffers, tiles every kernel in order and runs the back half; on `cores` physical cores where that is faster
// (divide.h). Throws CompileError.
struct CoreOptions {
  int cores = 1;
  bool always_divide = false;  // also where two cores are slower
};
isa::Program compile_kernels(const KernelList& list, const TileOptions& options,
                             const CoreOptions& cores = {}, std::string* tile_text = nullptr);

}  // namespace trnsim::compiler
