// Reductions of tiles, and copies with PyTorch's conversion rules.
#include <algorithm>

#include "device_plugin/compiler/tilers/expr.h"

namespace trnsim::compiler {

namespace {

AluOp reduce_alu(ReduceOp op) {
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

// Halving along the reduced dims on GpSimd, where 32-bit integers are exact; the vector engine's reduction
// goes through FP32.
Access halve_integers(TileBuilder& tile, Access x, const std::vector<bool>& reduced, AluOp alu) {
  for (int d = x.num_dims - 1; d >= 0; --d) {
    if (!(d < static_cast<int>(reduced.size()) && reduced[d])) continue;
    while (x.size[d] > 1) {
      int64_t n = x.size[d], half = n / 2, rest = n - half;
      std::vector<int64_t> dims(x.size.begin(), x.size.begin() + x.num_dims);
      dims[d] = rest;
      Access y = tile.sbuf(x.num_partitions, dims, x.dtype);
      tile.tensor_tensor(slice(y, d, 0, half), slice(x, d, 0, half), slice(x, d, rest, half), alu);
      if (rest > half) tile.copy(slice(y, d, half, 1), slice(x, d, half, 1));
      x = y;
    }
  }
  return x;
}

}  // namespace

Access reduce_dims(TileBuilder& tile, const Access& full, const std::vector<bool>& reduced, ReduceOp op,
                   Dtype expr_class) {
  AluOp alu = reduce_alu(op);
  std::vector<int64_t> kept;
  int count = 0;
  for (int d = 0; d < full.num_dims; ++d) {
    if (d < static_cast<int>(reduced.size()) && reduced[d]) {
      ++count;
    } else {
      kept.push_back(full.size[d]);
    }
  }
  if (count == 0) return full;
  Access x = isa::is_32bit_integer(expr_class) ? halve_integers(tile, full, reduced, alu) : full;
  // Kept dims first, reduced dims last.
  Access ordered = x;
  int at = 0;
  for (int pass = 0; pass < 2; ++pass) {
    for (int d = 0; d < x.num_dims; ++d) {
      bool is_reduced = d < static_cast<int>(reduced.size()) && reduced[d];
      if (is_reduced != (pass == 1)) continue;
      ordered.size[at] = x.size[d];
      ordered.step[at] = x.step[d];
      ++at;
    }
  }
  if (isa::is_32bit_integer(expr_class)) {
    // Only elements of size 1 are left on the reduced dims.
    ordered.num_dims = static_cast<uint8_t>(std::max<size_t>(1, kept.size()));
    return ordered;
  }
  if (kept.empty()) kept.push_back(1);
  Access row = tile.sbuf(full.num_partitions, kept, class_dtype(expr_class));
  tile.reduce(row, ordered, alu, count);
  return row;
}

void reduce_into(TileBuilder& tile, const Access& acc, const Access& other, ReduceOp op, Dtype) {
  tile.tensor_tensor(acc, acc, other, reduce_alu(op));
}

void emit_cast(TileBuilder& tile, const Access& dst, const Access& src) {
  std::vector<int64_t> dims(src.size.begin(), src.size.begin() + src.num_dims);
  Ops o(tile, src.num_partitions, dims);
  bool to_bool = dst.dtype == Dtype::kBool;
  bool from_float = isa::is_float(src.dtype), to_int = isa::is_integer(dst.dtype);
  if (to_bool && src.dtype != Dtype::kBool) {
    o.scalar(src, AluOp::kNotEqual, 0, dst);
    return;
  }
  if (!to_int || src.dtype == dst.dtype || src.dtype == Dtype::kBool) {
    tile.copy(dst, src);
    return;
  }
  bool wide_dst = isa::is_32bit_integer(dst.dtype);
  Access i = src;
  if (from_float) {
    i = o.float_to_int(src, wide_dst ? dst.dtype : Dtype::kI32);
  } else if (!isa::is_32bit_integer(src.dtype)) {
    // Narrow integers fit FP32; only same-width or narrowing changes of sign need to wrap.
    bool fits = isa::dtype_bytes(dst.dtype) > isa::dtype_bytes(src.dtype) &&
                (src.dtype == Dtype::kU8 || src.dtype == Dtype::kU16 || dst.dtype == Dtype::kI16 ||
                 dst.dtype == Dtype::kI32);
    if (fits) {
      tile.copy(dst, src);
      return;
    }
    i = o.cast(src, Dtype::kI32);
  }
  if (wide_dst) {
    i.dtype = dst.dtype;
    tile.copy(dst, i);
    return;
  }
  tile.copy(dst, o.int_wrap(i, dst.dtype));
}

}  // namespace trnsim::compiler
