// Scatter and scatter-add by indirect DMA.
//
// Rows that share an index inside one instruction are resolved before it: every row first receives the common
// result of its duplicates (the last of them, or the sum of all), so that duplicates write identical bytes
// and their order does not matter. Instructions on one output run in program order. Where index positions
// cannot collide (one element per line of a scatter along an axis), that step is skipped.
#include <limits>

#include "device_plugin/compiler/tilers/access_math.h"
#include "device_plugin/compiler/tilers/indexed_rows.h"
#include "device_plugin/compiler/tilers/tilers.h"

namespace trnsim::compiler {
namespace {

constexpr int64_t kRowBytes = 16 * 1024;  // of one row piece in SBUF
constexpr int64_t kLinesPerPartition = 64;
constexpr int64_t kColumnTileElements = 4096;  // per partition
constexpr int64_t kExactInFloat = int64_t{1} << 24;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class ScatterTiler {
 public:
  ScatterTiler(const ScatterKernel& k, const KernelContext& context, TileBuilder& tile)
      : k_(k), local_(context), tile_(tile) {
    add_ = k.combine == ScatterKernel::Combine::kAdd;
    integer_ = isa::is_integer(k.out.dtype);
    dtype_ = tile_dtype(k.out.dtype);
  }

  void run() {
    rows_ = linear_index(k_.out, k_.axis, k_.index, k_.rules, k_.along, local_, tile_);
    src_ = row_source();
    tile_.add_work(
        add_ ? static_cast<uint64_t>(rows_.rows * rows_.row_elements) : 0,
        2 * static_cast<uint64_t>(rows_.rows * rows_.row_elements) * isa::dtype_bytes(k_.out.dtype));
    const int64_t length = k_.along ? k_.index[0].sizes[k_.axis] : 0;
    const int64_t lines = length > 0 ? rows_.rows / length : 0;
    // Both ways move every element once; what differs is the number of instructions.
    const int64_t row_instructions = ceil_div(rows_.rows, kPartitions) * 8;
    const int64_t column_instructions = length * ceil_div(lines, kPartitions * kLinesPerPartition) * 3;
    if (lines > 0 && column_instructions <= row_instructions) {
      run_columns(length);
    } else {
      run_rows();
    }
  }

 private:
  // The source as [rows, row part]: row r at r * row stride. Copied to scratch when its strides do not allow
  // that.
  struct Source {
    View view;  // offset of row 0; row part in sizes / strides like the gathered tensor's trailing axes
    int64_t row_stride = 0;
  };

  Source row_source() {
    const size_t coordinates = rows_.coordinates.size();
    View v = k_.src;
    if (v.sizes.size() < coordinates)
      throw_internal("scatter: source rank is smaller than the gathered rank");
    const auto mergeable = [&] {
      int64_t stride = -1, expect = 0;
      for (size_t i = coordinates; i-- > 0;) {
        if (v.sizes[i] == 1) continue;
        if (stride < 0) {
          stride = v.strides[i];
        } else if (v.strides[i] != expect) {
          return false;
        }
        expect = v.strides[i] * v.sizes[i];
      }
      return true;
    };
    // The row part must be dense (or one value), because pieces of it are addressed by their dense offset.
    int64_t expect = 1;
    bool row_dense = true;
    for (size_t i = v.sizes.size(); i-- > coordinates;) {
      if (v.sizes[i] != 1 && v.strides[i] != expect) row_dense = false;
      expect *= v.sizes[i];
    }
    if (!mergeable() || !row_dense || isa::dtype_bytes(v.dtype) != isa::dtype_bytes(k_.out.dtype)) {
      View copy = local_.scratch(tile_, k_.out.dtype, k_.src.sizes);
      tile_move(MoveKernel{k_.src, copy}, local_.context(), tile_);
      v = copy;
    }
    Source s;
    s.view = v;
    for (size_t i = coordinates; i-- > 0;) {
      if (v.sizes[i] == 1) continue;
      s.row_stride = v.strides[i];
      break;
    }
    return s;
  }

  Access hbm(const View& base, int64_t delta, std::vector<int64_t> sizes, std::vector<int64_t> strides) {
    return hbm_view(local_.context(), window_of(base, delta, std::move(sizes), std::move(strides)));
  }

  // ---- general rows: 128 per instruction, duplicates combined first ----
  void run_rows() {
    const int64_t bytes = static_cast<int64_t>(isa::dtype_bytes(dtype_));
    const std::vector<RowPiece> pieces = row_pieces(rows_, k_.out.dtype, kRowBytes / bytes);
    for (int64_t first = 0; first < rows_.rows; first += kPartitions) {
      const int p = static_cast<int>(std::min(kPartitions, rows_.rows - first));
      Access index = tile_.sbuf(p, {1}, Dtype::kI32);
      tile_.load(index, hbm(rows_.index, first, {p}, {1}));
      if (add_) {
        const Access same = same_index(index, first, p, Dtype::kF32);
        for (const RowPiece& piece : pieces) add_rows(piece, index, same, first, p);
      } else {
        const Access last = p > 1 ? last_duplicate(index, first, p) : Access{};
        for (const RowPiece& piece : pieces) put_rows(piece, index, last, first, p);
      }
    }
  }

  // [p, p] matrix: 1 where row i and row j of this chunk have the same index.
  Access same_index(const Access& index, int64_t first, int p, Dtype dtype) {
    Access all = tile_.sbuf(p, {p}, Dtype::kI32);
    tile_.load(all, hbm(rows_.index, first, {p, p}, {0, 1}));
    const Access mine = with_dims(index, 0, {{0, p}});
    Access same = tile_.sbuf(p, {p}, dtype);
    if (rows_.bound < kExactInFloat) {
      tile_.tensor_tensor(same, all, mine, AluOp::kEqual);
      return same;
    }
    // Larger indices are compared as integers, which gives an integer result.
    Access exact = tile_.sbuf(p, {p}, Dtype::kI32);
    tile_.tensor_tensor(exact, all, mine, AluOp::kEqual);
    tile_.copy(same, exact);
    return same;
  }

  // Source row of the last row of this chunk that has the same index, per row.
  Access last_duplicate(const Access& index, int64_t first, int p) {
    const Access same = same_index(index, first, p, Dtype::kF32);
    Access position = tile_.sbuf(p, {p}, Dtype::kF32);
    isa::AffinePattern pattern;
    pattern.step[0] = 1;
    tile_.iota(position, pattern);
    Access candidates = tile_.sbuf(p, {p}, Dtype::kF32);
    tile_.tensor_tensor(candidates, same, position, AluOp::kMultiply);
    Access last = tile_.sbuf(p, {1}, Dtype::kI32);
    tile_.reduce(last, candidates, AluOp::kMax, 1);
    return last;
  }

  Access row_tile(const RowPiece& piece, int p, Dtype dtype) {
    return tile_.sbuf(p, {1, piece.elements}, dtype);
  }

  // [p, 1, piece dims...] as the indirect DMA wants it.
  Access row_shape(const Access& t, const RowPiece& piece) {
    std::vector<std::pair<int64_t, int64_t>> dims{{piece.elements, 1}};
    int64_t step = piece.elements;
    for (int64_t s : piece.sizes) {
      step /= s;
      dims.emplace_back(step, s);
    }
    return with_dims(t, 0, dims);
  }

  void put_rows(const RowPiece& piece, const Access& index, const Access& last, int64_t first, int p) {
    Access data = row_tile(piece, p, dtype_);
    const int64_t at = first * src_.row_stride + piece.dense_delta;
    if (!last.present() || src_.row_stride == 0) {
      tile_.load(data, hbm(src_.view, at, {p, piece.elements}, {src_.row_stride, 1}));
    } else {
      const Access table = hbm_view_exact(
          local_.context(), window_of(src_.view, at, {p, piece.elements}, {src_.row_stride, 1}));
      tile_.gather(with_dims(data, 0, {{piece.elements, 1}, {1, piece.elements}}), table, last);
    }
    tile_.scatter(table_access(local_.context(), k_.out, rows_, piece), row_shape(data, piece), index, false);
  }

  void add_rows(const RowPiece& piece, const Access& index, const Access& same, int64_t first, int p) {
    const int64_t n = piece.elements;
    const Access table = table_access(local_.context(), k_.out, rows_, piece);
    Access rows = row_tile(piece, p, integer_ ? Dtype::kI32 : Dtype::kF32);
    tile_.load(rows,
               hbm(src_.view, first * src_.row_stride + piece.dense_delta, {p, n}, {src_.row_stride, 1}));
    Access current = row_tile(piece, p, integer_ ? Dtype::kI32 : dtype_);
    tile_.gather(row_shape(current, piece), table, index);
    Access result = row_tile(piece, p, integer_ ? Dtype::kI32 : dtype_);
    for (int64_t c = 0; c < n; c += kPsumColumns) {
      const int64_t w = std::min(kPsumColumns, n - c);
      const Access part = columns_of(rows, c, w);
      if (!integer_) {
        const Access sum = combine_floats(same, part, p, w);
        tile_.tensor_tensor(columns_of(result, c, w), columns_of(current, c, w), sum, AluOp::kAdd);
        continue;
      }
      // Sums of up to 128 halves of 16 bits are exact in FP32; the halves meet again in 32-bit integers.
      Access half = tile_.sbuf(p, {w}, Dtype::kI32), half_float = tile_.sbuf(p, {w}, Dtype::kF32);
      Access low = tile_.sbuf(p, {w}, Dtype::kI32), high = tile_.sbuf(p, {w}, Dtype::kI32);
      tile_.tensor_scalar(half, part, AluOp::kBitAnd, TileBuilder::imm(65535.0f));
      tile_.copy(half_float, half);
      tile_.copy(low, combine(same, half_float, p, w));
      Access upper = tile_.sbuf(p, {w}, Dtype::kI32), upper_float = tile_.sbuf(p, {w}, Dtype::kF32);
      tile_.tensor_scalar(upper, part, AluOp::kShiftRight, TileBuilder::imm(16.0f));
      tile_.copy(upper_float, upper);
      tile_.copy(high, combine(same, upper_float, p, w));
      Access shifted = tile_.sbuf(p, {w}, Dtype::kI32), sum = tile_.sbuf(p, {w}, Dtype::kI32);
      tile_.tensor_scalar(shifted, high, AluOp::kShiftLeft, TileBuilder::imm(16.0f));
      tile_.tensor_tensor(sum, shifted, low, AluOp::kAdd);
      tile_.tensor_tensor(columns_of(result, c, w), columns_of(current, c, w), sum, AluOp::kAdd);
    }
    Access stored = result;
    if (integer_ && dtype_ != Dtype::kI32) {
      stored = row_tile(piece, p, dtype_);
      emit_cast(tile_, stored, result);
    }
    tile_.scatter(table, row_shape(stored, piece), index, false);
  }

  // Every row receives the sum of the rows with its index.
  Access combine(const Access& same, const Access& rows, int p, int64_t w) {
    Access sum = tile_.psum(p, {w});
    tile_.matmul(sum, same, rows, false);
    return sum;
  }

  // The product of infinity or NaN with the zeros of `same` would reach rows of other indices. Finite numbers are
  // summed; whether +infinity, -infinity or NaN (which counts as both) is among the rows is counted beside them.
  Access combine_floats(const Access& same, const Access& rows, int p, int64_t w) {
    const auto tile = [&](Dtype d) { return tile_.sbuf(p, {w}, d); };
    constexpr float kMinus = 256;  // a count of up to 128 in the low byte, another above
    Access code = tile(Dtype::kF32), minus = tile(Dtype::kF32), finite = tile(Dtype::kU8);
    tile_.tensor_scalar(minus, rows, AluOp::kGreater, TileBuilder::imm(-kInfinity), AluOp::kMultiply,
                        TileBuilder::imm(-kMinus));
    tile_.tensor_scalar(code, rows, AluOp::kLess, TileBuilder::imm(kInfinity), AluOp::kSubtract,
                        TileBuilder::imm(1 + kMinus), false, true);
    tile_.tensor_tensor(code, code, minus, AluOp::kAdd);
    tile_.tensor_scalar(finite, code, AluOp::kEqual, TileBuilder::imm(0));
    Access numbers = tile(Dtype::kF32);
    tile_.memset(numbers, 0);
    tile_.copy_predicated(numbers, rows, finite);
    Access sum = tile(Dtype::kF32), counts = tile(Dtype::kU32);
    tile_.copy(sum, combine(same, numbers, p, w));
    tile_.copy(counts, combine(same, code, p, w));
    const auto add_where = [&](AluOp op, float operand, float infinity) {
      Access present = tile(Dtype::kU32), other = tile(Dtype::kF32);
      tile_.tensor_scalar(present, counts, op, TileBuilder::imm(operand));
      tile_.tensor_scalar(other, sum, AluOp::kAdd, TileBuilder::imm(infinity));
      tile_.copy_predicated(sum, other, present);
    };
    add_where(AluOp::kBitAnd, kMinus - 1, kInfinity);
    add_where(AluOp::kShiftRight, 8, -kInfinity);
    return sum;
  }

  // ---- along an axis: lines on partitions, one position of the axis per instruction ----
  void run_columns(int64_t length) {
    const std::vector<int64_t>& sizes = k_.index[0].sizes;
    int64_t outer = 1, inner = 1;
    for (int i = 0; i < static_cast<int>(sizes.size()); ++i) {
      if (i < k_.axis) outer *= sizes[i];
      if (i > k_.axis) inner *= sizes[i];
    }
    // Lines are numbered (outer, inner); one of the two is the partition axis, the other a loop.
    const bool by_outer = outer >= inner;
    const int64_t lines = by_outer ? outer : inner, loops = by_outer ? inner : outer;
    const int64_t line_stride = by_outer ? length * inner : 1, loop_stride = by_outer ? 1 : length * inner;
    for (int64_t loop = 0; loop < loops; ++loop) {
      for (const RowChunk& c : row_chunks(lines, kLinesPerPartition)) {
        const int64_t columns = std::max<int64_t>(1, kColumnTileElements / c.per_partition);
        for (int64_t l = 0; l < length; l += columns)
          column_tile(c, loop * loop_stride + c.first * line_stride + l * inner, line_stride, inner,
                      std::min(columns, length - l));
      }
    }
  }

  // `at`: row number of the first line's first position; lines and positions are row strides.
  void column_tile(const RowChunk& c, int64_t at, int64_t line_stride, int64_t position_stride,
                   int64_t count) {
    const int64_t per = c.per_partition;
    const std::vector<int64_t> sizes{c.partitions, per, count};
    const std::vector<int64_t> strides{per * line_stride, line_stride, position_stride};
    std::vector<int64_t> source_strides = strides;
    for (int64_t& s : source_strides) s *= src_.row_stride;
    const Dtype compute = add_ && integer_ ? Dtype::kI32 : dtype_;
    Access index = tile_.sbuf(c.partitions, {per, count}, Dtype::kI32);
    tile_.load(index, hbm(rows_.index, at, sizes, strides));
    Access data = tile_.sbuf(c.partitions, {per, count}, compute);
    tile_.load(data, hbm(src_.view, at * src_.row_stride, sizes, source_strides));
    const Access table = table_access(local_.context(), k_.out, rows_, RowPiece{});
    for (int64_t i = 0; i < count; ++i) {
      const Access position = with_dims(index, i, {{count, per}});
      const Access value = with_dims(data, i, {{count, per}});
      if (!add_ || !integer_) {
        tile_.scatter(table, value, position, add_);
        continue;
      }
      // The DMA engines accumulate in FP32; integers are read, added exactly and written back.
      Access current = tile_.sbuf(c.partitions, {per}, compute),
             sum = tile_.sbuf(c.partitions, {per}, compute);
      tile_.gather(current, table, position);
      tile_.tensor_tensor(sum, current, value, AluOp::kAdd);
      Access stored = sum;
      if (compute != dtype_) {
        stored = tile_.sbuf(c.partitions, {per}, dtype_);
        emit_cast(tile_, stored, sum);
      }
      tile_.scatter(table, stored, position, false);
    }
  }

  const ScatterKernel& k_;
  LocalContext local_;
  TileBuilder& tile_;
  IndexedRows rows_;
  Source src_;
  bool add_ = false, integer_ = false;
  Dtype dtype_ = Dtype::kF32;
};

}  // namespace

void tile_scatter(const ScatterKernel& kernel, const KernelContext& context, TileBuilder& tile) {
  if (kernel.src.numel() == 0 || kernel.out.numel() == 0) return;
  for (const View& v : kernel.index)
    if (v.numel() == 0) return;
  ScatterTiler(kernel, context, tile).run();
}

}  // namespace trnsim::compiler
