// Running sums, products, maxima and minima along one axis: rows on partitions, the axis in the free dim in
// pieces that hand on their last element.
#include <algorithm>
#include <cmath>

#include "device_plugin/compiler/tilers/map_box.h"
#include "device_plugin/compiler/tilers/tilers.h"

namespace trnsim::compiler {

namespace {

constexpr int64_t kPiece = 2048;

AluOp alu_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return AluOp::kAdd;
    case ReduceOp::kProd:
      return AluOp::kMultiply;
    case ReduceOp::kMax:
    case ReduceOp::kAny:
      return AluOp::kMax;
    default:
      return AluOp::kMin;
  }
}

float identity_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return 0;
    case ReduceOp::kProd:
      return 1;
    case ReduceOp::kMax:
    case ReduceOp::kAny:
      return -HUGE_VALF;
    default:
      return HUGE_VALF;
  }
}

// FP32: one pass of the scan instruction, r = (x op r) op neutral.
Access scan_floats(TileBuilder& tile, const Access& x, ReduceOp op, const Access& carry) {
  AluOp alu = alu_of(op);
  int partitions = x.num_partitions;
  Access r = tile.sbuf(partitions, {static_cast<int64_t>(x.size[0])}, Dtype::kF32);
  Access second = x;  // max(x, r) again
  if (op == ReduceOp::kSum || op == ReduceOp::kProd) {
    Access column = tile.sbuf(partitions, {1}, Dtype::kF32);
    tile.memset(column, identity_of(op));
    second = column;
    second.size[0] = x.size[0];
    second.step[0] = 0;
  }
  tile.scan(r, x, second, alu, alu,
            carry.present() ? TileBuilder::column(carry) : TileBuilder::imm(identity_of(op)));
  return r;
}

// The running state of a row of FP32 sums: high + low.
struct SumCarry {
  Access high, low;
};

// FP32 sums as good as those of an accumulator of twice the width, in which long rows do not stall (Ogita, Rump, Oishi:
// "Accurate sum and dot product"): the scan rounds at every step, what each step lost is exact, and is summed as well.
// Where infinity or NaN is on the way, the loss is NaN, and the plain sum is the result.
Access scan_sums(TileBuilder& tile, const Access& x, SumCarry& carry) {
  const int partitions = x.num_partitions;
  const auto n = static_cast<int64_t>(x.size[0]);
  const auto fresh = [&](int64_t size) { return tile.sbuf(partitions, {size}, Dtype::kF32); };
  Access sums = fresh(n + 1);  // behind the sum so far
  const Access start = slice(sums, 0, 0, 1), before = slice(sums, 0, 0, n), after = slice(sums, 0, 1, n);
  const Access last = slice(sums, 0, n, 1);
  const bool first = !carry.high.present();
  if (first) {
    tile.memset(start, 0);
  } else {
    tile.copy(start, carry.high);
  }
  Access zero = fresh(1);
  tile.memset(zero, 0);
  zero.size[0] = static_cast<uint32_t>(n);
  zero.step[0] = 0;
  tile.scan(after, x, zero, AluOp::kAdd, AluOp::kAdd, TileBuilder::column(start));
  const Access arrived = fresh(n), kept = fresh(n), lost = fresh(n);
  tile.tensor_tensor(arrived, after, before, AluOp::kSubtract);
  tile.tensor_tensor(kept, after, arrived, AluOp::kSubtract);
  tile.tensor_tensor(kept, before, kept, AluOp::kSubtract);
  tile.tensor_tensor(arrived, x, arrived, AluOp::kSubtract);
  tile.tensor_tensor(lost, kept, arrived, AluOp::kAdd);
  const Access low = fresh(n), whole = fresh(n), finite = tile.sbuf(partitions, {n}, Dtype::kU8);
  tile.scan(low, lost, zero, AluOp::kAdd, AluOp::kAdd,
            first ? TileBuilder::imm(0) : TileBuilder::column(carry.low));
  tile.tensor_tensor(whole, after, low, AluOp::kAdd);
  tile.tensor_tensor(finite, low, low, AluOp::kEqual);
  // The carry again as a rounded sum and what that lost, so that the second part stays small.
  carry.low = fresh(1);
  tile.tensor_tensor(carry.low, slice(whole, 0, n - 1, 1), last, AluOp::kSubtract);
  tile.tensor_tensor(carry.low, slice(low, 0, n - 1, 1), carry.low, AluOp::kSubtract);
  tile.copy_predicated(after, whole, finite);
  carry.high = last;
  return after;
}

// Integers: doubling steps on GpSimd, which is exact; the scan instruction goes through FP32.
Access scan_integers(TileBuilder& tile, const Access& x, ReduceOp op, const Access& carry) {
  AluOp alu = alu_of(op);
  int64_t n = x.size[0];
  Access r = x;
  for (int64_t step = 1; step < n; step *= 2) {
    Access next = tile.sbuf(x.num_partitions, {n}, Dtype::kI32);
    tile.copy(slice(next, 0, 0, step), slice(r, 0, 0, step));
    tile.tensor_tensor(slice(next, 0, step, n - step), slice(r, 0, step, n - step), slice(r, 0, 0, n - step),
                       alu);
    r = next;
  }
  if (carry.present()) {
    Access spread = carry;
    spread.size[0] = static_cast<uint32_t>(n);
    spread.step[0] = 0;
    Access next = tile.sbuf(x.num_partitions, {n}, Dtype::kI32);
    tile.tensor_tensor(next, r, spread, alu);
    r = next;
  }
  return r;
}

}  // namespace

void tile_scan(const ScanKernel& kernel, const KernelContext& context, TileBuilder& tile) {
  if (kernel.out.numel() == 0) return;
  int rank = static_cast<int>(kernel.out.sizes.size());
  View input = kernel.input, out = kernel.out;
  if (rank == 0) {
    input.sizes = out.sizes = {1};
    input.strides = out.strides = {1};
    rank = 1;
  }
  int axis = kernel.axis < 0 ? kernel.axis + rank : kernel.axis;
  Box box;
  // The scanned axis last.
  std::vector<int> order;
  for (int i = 0; i < rank; ++i) {
    if (i != axis) order.push_back(i);
  }
  order.push_back(axis);
  box.views = {view_permute(input, order), view_permute(out, order)};
  box.sizes = box.views[1].sizes;
  box.roles.assign(rank, static_cast<int>(AxisRole::kKept));
  box.roles.back() = static_cast<int>(AxisRole::kReduced);
  bool floats = isa::is_float(input.dtype);
  if (floats != isa::is_float(out.dtype))
    throw_internal("a scan whose result is of another class than its input");
  box.merge();
  tile.add_work(
      static_cast<uint64_t>(out.numel()),
      static_cast<uint64_t>(out.numel()) * (isa::dtype_bytes(input.dtype) + isa::dtype_bytes(out.dtype)));
  for (const Box& part : choose_partitions(box, AxisRole::kKept, 2, 1)) {
    for_each_piece(part, AxisRole::kKept, 1, 0, [&](const Box& row) {
      Access carry;
      SumCarry sum;
      for_each_piece(row, AxisRole::kReduced, kPiece, 1, [&](const Box& piece) {
        int partitions = static_cast<int>(piece.product(AxisRole::kPartition));
        int64_t n = piece.product(AxisRole::kReduced);
        Access x = tile.sbuf(partitions, {n}, tile_dtype(input.dtype));
        tile.load(x, hbm_view(context, piece.views[0]));
        Access r;
        if (kernel.op == ReduceOp::kSum && out.dtype == Dtype::kF32) {
          r = scan_sums(tile, x, sum);
        } else if (floats) {
          r = scan_floats(tile, x, kernel.op, carry);
        } else {
          if (x.dtype != Dtype::kI32) {
            Access wide = tile.sbuf(partitions, {n}, Dtype::kI32);
            emit_cast(tile, wide, x);
            x = wide;
          }
          r = scan_integers(tile, x, kernel.op, carry);
        }
        carry = slice(r, 0, n - 1, 1);
        Access y = r;
        if (r.dtype != tile_dtype(out.dtype)) {
          y = tile.sbuf(partitions, {n}, tile_dtype(out.dtype));
          emit_cast(tile, y, r);
        }
        tile.store(hbm_view(context, piece.views[1]), y);
      });
    });
  }
}

}  // namespace trnsim::compiler
