// Gather: rows of a table by indirect DMA, in chunks of 128 partitions times several rows.
#include "device_plugin/compiler/tilers/access_math.h"
#include "device_plugin/compiler/tilers/indexed_rows.h"
#include "device_plugin/compiler/tilers/tilers.h"

namespace trnsim::compiler {
namespace {

constexpr int64_t kChunkBytes = 16 * 1024;  // per partition
constexpr int64_t kMaxRowsPerPartition = 512;

// A tensor of 8-byte elements as pairs of 32-bit words: the DMA engines narrow 64-bit integers on the way
// into SBUF, moving the words keeps them exact.
Access as_words(Access a) {
  if (isa::dtype_bytes(a.dtype) != 8) return a;
  a.dtype = Dtype::kI32;
  for (int d = 0; d < a.num_dims; ++d) a.step[d] *= 2;
  a.size[a.num_dims] = 2;
  a.step[a.num_dims] = 1;
  ++a.num_dims;
  return a;
}

}  // namespace

void tile_gather(const GatherKernel& kernel, const KernelContext& context, TileBuilder& tile) {
  if (kernel.out.numel() == 0) return;
  LocalContext local(context);
  const IndexedRows rows =
      linear_index(kernel.src, kernel.axis, kernel.index, kernel.rules, kernel.along, local, tile);
  const bool dense = is_dense(kernel.out);
  const View out = dense ? kernel.out : local.scratch(tile, kernel.out.dtype, kernel.out.sizes);
  const int64_t words = isa::dtype_bytes(kernel.src.dtype) == 8 ? 2 : 1;
  const Dtype dtype = words == 2 ? Dtype::kI32 : kernel.src.dtype;
  const int64_t bytes = static_cast<int64_t>(isa::dtype_bytes(dtype)) * words;
  const std::vector<RowPiece> pieces = row_pieces(rows, kernel.src.dtype, kChunkBytes / bytes);
  for (const RowPiece& piece : pieces) {
    const int64_t width = piece.elements * words;
    const Access table = as_words(table_access(context, kernel.src, rows, piece));
    const int64_t per = std::clamp<int64_t>(kChunkBytes / (piece.elements * bytes), 1, kMaxRowsPerPartition);
    for (const RowChunk& c : row_chunks(rows.rows, per)) {
      Access index = tile.sbuf(c.partitions, {c.per_partition}, Dtype::kI32);
      tile.load(index, hbm_view(local.context(),
                                window_of(rows.index, c.first, {c.partitions * c.per_partition}, {1})));
      Access data = tile.sbuf(c.partitions, {c.per_partition, width}, dtype);
      std::vector<std::pair<int64_t, int64_t>> dims{{width, c.per_partition}};
      int64_t step = width;
      for (int64_t s : piece.sizes) {
        step /= s;
        dims.emplace_back(step, s);
      }
      if (words == 2) dims.emplace_back(1, 2);
      if (dims.size() > 4) {  // the row is dense in SBUF: fewer dims describe it as well
        dims = {{width, c.per_partition}, {1, width}};
      }
      tile.gather(with_dims(data, 0, dims), table, index);
      const View target = window_of(out, c.first * rows.row_elements + piece.dense_delta,
                                    {c.partitions * c.per_partition, piece.elements}, {rows.row_elements, 1});
      tile.store(as_words(hbm_view(local.context(), target)), data);
    }
  }
  tile.add_work(0, 2 * static_cast<uint64_t>(kernel.out.numel()) * isa::dtype_bytes(kernel.out.dtype));
  if (!dense) tile_move(MoveKernel{out, kernel.out}, local.context(), tile);
}

// The value is the row number of a table of one row: the range check of the DMA engine stops on any but 0.
void tile_check(const CheckKernel& kernel, const KernelContext& context, TileBuilder& tile) {
  isa::IndexCheck check;
  for (const std::string& words : kernel.words) check.indices.push_back({kernel.size, words});
  tile.check_indices(check);
  const Access table = hbm_view_exact(context, window_of(kernel.row, 0, {1}, {1}));
  Access row = tile.sbuf(1, {1}, Dtype::kI32);
  tile.load(row, table);
  tile.gather(tile.sbuf(1, {1, 1}, Dtype::kI32), table, row);
}

}  // namespace trnsim::compiler
