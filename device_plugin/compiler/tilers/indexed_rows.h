// What gather and scatter share: an indexed tensor seen as a table of rows addressed by one linear index.
#pragma once

#include <cstdint>
#include <vector>

#include "device_plugin/compiler/kernels.h"
#include "device_plugin/compiler/tile.h"
#include "device_plugin/compiler/tilers/access_math.h"

namespace trnsim::compiler {

// Row r of the gathered tensor is table row index[r]. Row r counts the gathered coordinates before the row
// part in row-major order. 64-bit elements are moved as pairs of 32-bit words where that keeps them exact.
struct IndexedRows {
  std::vector<int64_t> coordinates;  // sizes of the row coordinates of the gathered tensor
  std::vector<int64_t> row_sizes,
      row_strides;  // the row part: gathered axes after the coordinates, in the table
  int64_t rows = 1, row_elements = 1;
  int64_t pitch = 1;  // elements between two table rows of neighbouring index
  int64_t bound = 1;  // number of table rows
  int64_t first =
      0;       // where table row 0 is, in elements: before the table's own start where axes run backwards
  View index;  // int32 [rows]; a code of isa/index_check.h where an index is not legal
};

// Computes the linear index of every gathered row into a scratch tensor, and tells the program what its
// indirect DMAs say of an index that is not legal. `table` is the indexed tensor, `coordinates` of the
// gathered tensor: table axes before `axis`, index axes, and (along) the table axes after it.
IndexedRows linear_index(const View& table, int axis, const std::vector<View>& index,
                         const std::vector<IndexRule>& rules, bool along, LocalContext& local,
                         TileBuilder& tile);

// A part of the row that one instruction moves: at most 3 dims (step, size) and `max_bytes` bytes.
struct RowPiece {
  int64_t table_delta = 0;  // elements from the row's start in the table
  int64_t dense_delta = 0;  // elements from the row's start when rows are dense
  std::vector<int64_t> sizes, strides;
  int64_t elements = 1;
};
std::vector<RowPiece> row_pieces(const IndexedRows& rows, Dtype dtype, int64_t max_elements);

// Table access for indirect DMA of a piece: [bound, piece...].
Access table_access(const KernelContext& context, const View& table, const IndexedRows& rows,
                    const RowPiece& piece);

// Rows [first, first + partitions * per_partition): row = first + p * per_partition + j.
struct RowChunk {
  int64_t first;
  int partitions;
  int64_t per_partition;
};
std::vector<RowChunk> row_chunks(int64_t rows, int64_t max_per_partition);

}  // namespace trnsim::compiler
