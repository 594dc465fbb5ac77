// Copies between strided views. Equal dtypes: HBM to HBM by DMA, bit exact. Others: a map that casts in SBUF.
#include "device_plugin/compiler/tilers/map_box.h"
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

void move_box(const Box& box, const KernelContext& context, TileBuilder& tile) {
  int64_t bytes = static_cast<int64_t>(isa::dtype_bytes(box.views[0].dtype));
  for (int64_t s : box.sizes) bytes *= s;
  if (box.rank() > isa::kMaxDims || (bytes > kMaxMoveBytes && box.rank() > 0 && box.sizes[0] > 1)) {
    // Cut the outermost axis: into single slices where dims must go, else into halves.
    if (box.rank() > isa::kMaxDims) {
      for (int64_t i = 0; i < box.sizes[0]; ++i) {
        Box slice = box.sliced(0, i, 1);
        slice.merge();
        move_box(slice, context, tile);
      }
      return;
    }
    int64_t half = box.sizes[0] / 2;
    move_box(box.sliced(0, 0, half), context, tile);
    move_box(box.sliced(0, half, box.sizes[0] - half), context, tile);
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
  Box box;
  box.sizes = kernel.dst.sizes;
  box.roles.assign(box.sizes.size(), 0);
  box.views = {kernel.src, kernel.dst};
  box.merge();
  tile.add_work(0, 2 * static_cast<uint64_t>(kernel.dst.numel()) * isa::dtype_bytes(kernel.dst.dtype));
  move_box(box, context, tile);
}

}  // namespace trnsim::compiler
