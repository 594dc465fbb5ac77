// Copies between strided views. Equal dtypes: bit exact, HBM to HBM by DMA or through SBUF (move_tiles.cpp). Others: a
// map that casts in SBUF.
#include <algorithm>

#include "device_plugin/compiler/tilers/map_box.h"
#include "device_plugin/compiler/tilers/move_tiles.h"
#include "device_plugin/compiler/tilers/tilers.h"

namespace trnsim::compiler {

namespace {

// One descriptor chain moves at most this much, so that long copies spread over the queues.
constexpr int64_t kMaxMoveBytes = int64_t{8} << 20;

Dtype class_of(Dtype d) {
  if (isa::is_float(d)) return Dtype::kF32;
  if (d == Dtype::kBool || d == Dtype::kU32) return d;
  return Dtype::kI32;
}

void move_box(const Box& box, const KernelContext& context, TileBuilder& tile);

// The outermost axis in pieces of `rows`, those of equal length as a loop when there are many.
void move_pieces(const Box& box, int64_t rows, const KernelContext& context, TileBuilder& tile) {
  int64_t at = 0, equal = box.sizes[0] / rows;
  if (equal >= kMinLoopPieces) {
    Box first = box.sliced(0, 0, rows);
    first.merge();
    if (first.rank() <= isa::kMaxDims) {
      tile.loop(equal, [&] {
        Access side[2];
        for (int v = 0; v < 2; ++v) {
          int64_t step =
              box.views[v].strides[0] * rows * static_cast<int64_t>(isa::dtype_bytes(box.views[v].dtype));
          side[v] = tile.advance(hbm_view(context, first.views[v]), step);
        }
        tile.dma(side[1], side[0]);
      });
      at = equal * rows;
    }
  }
  for (; at < box.sizes[0]; at += rows) {
    Box piece = box.sliced(0, at, std::min(rows, box.sizes[0] - at));
    piece.merge();
    move_box(piece, context, tile);
  }
}

void move_box(const Box& box, const KernelContext& context, TileBuilder& tile) {
  int64_t bytes = static_cast<int64_t>(isa::dtype_bytes(box.views[0].dtype));
  for (int64_t s : box.sizes) bytes *= s;
  if (box.rank() > isa::kMaxDims) {
    move_pieces(box, 1, context, tile);
    return;
  }
  if (bytes > kMaxMoveBytes && box.rank() > 0 && box.sizes[0] > 1) {
    int64_t pieces = std::min((bytes + kMaxMoveBytes - 1) / kMaxMoveBytes, box.sizes[0]);
    move_pieces(box, (box.sizes[0] + pieces - 1) / pieces, context, tile);
    return;
  }
  tile.dma(hbm_view(context, box.views[1]), hbm_view(context, box.views[0]));
}

void move_through_map(const MoveKernel& kernel, const KernelContext& context, TileBuilder& tile) {
  MapKernel map;
  map.domain = kernel.dst.sizes;
  map.num_kept = static_cast<int32_t>(kernel.dst.sizes.size());
  map.inputs = {kernel.src};
  Expr in;
  in.op = ExprOp::kInput;
  in.dtype = class_of(kernel.src.dtype);
  map.exprs.push_back(in);
  Dtype to = class_of(kernel.dst.dtype);
  bool narrows = to != Dtype::kF32 && isa::dtype_bytes(kernel.dst.dtype) < 4;
  if (to != in.dtype || narrows) {
    Expr cast;
    cast.op = ExprOp::kCast;
    cast.dtype = to;
    cast.cast_to = kernel.dst.dtype;
    cast.a = 0;
    map.exprs.push_back(cast);
  }
  map.outputs.push_back({kernel.dst, static_cast<int32_t>(map.exprs.size()) - 1});
  tile_map(map, context, tile);
}

}  // namespace

void tile_move(const MoveKernel& kernel, const KernelContext& context, TileBuilder& tile) {
  if (kernel.src.sizes != kernel.dst.sizes) throw_internal("a move between views of different sizes");
  if (kernel.dst.numel() == 0) return;
  if (kernel.src.dtype != kernel.dst.dtype) {
    move_through_map(kernel, context, tile);
    return;
  }
  tile.add_work(0, 2 * static_cast<uint64_t>(kernel.dst.numel()) * isa::dtype_bytes(kernel.dst.dtype));
  if (move_through_sbuf(kernel, context, tile)) return;
  Box box;
  box.sizes = kernel.dst.sizes;
  box.roles.assign(box.sizes.size(), 0);
  box.views = {kernel.src, kernel.dst};
  box.merge();
  move_box(box, context, tile);
}

}  // namespace trnsim::compiler
