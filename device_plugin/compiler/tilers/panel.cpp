#include "device_plugin/compiler/tilers/panel.h"

#include <algorithm>

#include "device_plugin/compiler/tilers/access_math.h"

namespace trnsim::compiler {
namespace {

// One DMA moves at most this many bytes per partition, so that the tensor engine can start on the first piece
// while the next is in flight, and natural-row staging stays small.
constexpr int64_t kPieceBytes = 16 * 1024;

// The DMA engines write whole [16 partitions, 16 elements] blocks of a transpose.
bool turns_by_dma(const MatrixOperand& x, int64_t rows, int64_t columns) {
  constexpr int64_t kBlock = 16;
  const size_t bytes = isa::dtype_bytes(x.load_dtype);
  return x.base.dtype == x.load_dtype && (bytes == 2 || bytes == 4) && rows % kBlock == 0 &&
         columns % kBlock == 0;
}
// Few rows or columns of a long contraction: several k tiles share a transpose.
bool packs(int64_t k_tiles, int64_t columns) { return k_tiles > 1 && columns <= kPartitions / 2; }

struct Loader {
  const MatrixOperand& x;
  int64_t b0, nb, w0, wn;
  const KernelContext& context;
  TileBuilder& tile;

  int64_t bytes() const { return static_cast<int64_t>(isa::dtype_bytes(x.load_dtype)); }
  int64_t columns() const { return nb * wn; }
  int64_t delta(int64_t b, int64_t w, int64_t k) const {
    return (b0 + b) * x.batch_stride + (w0 + w) * x.w_stride + k * x.k_stride;
  }
  Access hbm(int64_t at, std::vector<int64_t> sizes, std::vector<int64_t> strides) const {
    return hbm_view(context, window_of(x.base, at, std::move(sizes), std::move(strides)));
  }

  // `count` k tiles of `rows` contraction rows each, from row k0 on, straight onto partitions.
  void direct(const Access& dst, int64_t k0, int64_t rows, int64_t count) {
    tile.load(dst, hbm(delta(0, 0, k0), {rows, count, nb, wn},
                       {x.k_stride, kPartitions * x.k_stride, x.batch_stride, x.w_stride}));
  }

  // `count` k tiles with k contiguous in HBM, transposed on their way.
  void turned(const Access& dst, int64_t k0, int64_t rows, int64_t count) {
    for (int64_t kt = 0; kt < count; ++kt) {
      for (int64_t b = 0; b < nb; ++b) {
        const View from =
            window_of(x.base, delta(b, 0, k0 + kt * kPartitions), {wn, rows}, {x.w_stride, x.k_stride});
        tile.load_transposed(columns_of(dst, kt * columns() + b * wn, wn), hbm_view_exact(context, from));
      }
    }
  }

  // Transposes `blocks` (each [p, rows]) into PSUM, as many as fit a bank, and copies them to `dst(first,
  // n)`.
  template <typename Src, typename Dst>
  void transpose_blocks(int64_t blocks, int64_t p, int64_t rows, Src src, Dst dst) {
    const int64_t per_bank = std::max<int64_t>(1, isa::kPsumBankBytes / (p * bytes()));
    for (int64_t first = 0; first < blocks; first += per_bank) {
      const int64_t n = std::min(per_bank, blocks - first);
      Access bank = tile.psum(static_cast<int>(rows), {n, p}, x.load_dtype);
      for (int64_t i = 0; i < n; ++i) tile.transpose(columns_of(bank, i * p, p), src(first + i));
      tile.copy(dst(first, n), bank);
    }
  }

  // Few rows, long contraction: (batch, w, k tile) on partitions, as they lie in memory, so that one transpose serves
  // several k tiles.
  void natural_packed(const Access& dst, int64_t k0, int64_t count) {
    const int64_t r = columns();
    const int64_t tiles_per_block = std::min(count, kPartitions / r);
    int64_t done = 0;
    while (done < count) {
      const int64_t per_block = std::min(tiles_per_block, count - done);
      const int64_t blocks = (count - done) / per_block;
      const int64_t p = per_block * r;
      Access rows = tile.sbuf(static_cast<int>(p), {blocks, kPartitions}, x.load_dtype);
      const int64_t run = blocks * kPartitions;
      tile.load(rows, hbm(delta(0, 0, k0 + done * kPartitions), {nb, wn, per_block, run},
                          {x.batch_stride, x.w_stride, run * x.k_stride, x.k_stride}));
      transpose_blocks(
          blocks, p, kPartitions, [&](int64_t i) { return columns_of(rows, i * kPartitions, kPartitions); },
          [&](int64_t first, int64_t n) {
            return with_dims(dst, (done + first) * r, {{r, n}, {1, r}, {blocks * r, per_block}});
          });
      done += blocks * per_block;
    }
  }

  // Rows of the operand on partitions in chunks of at most 128, k along the free axis.
  void natural_rows(const Access& dst, int64_t k0, int64_t rows, int64_t count) {
    const int64_t k_elements = (count - 1) * kPartitions + rows;
    // A chunk is 128 rows of one batch, or several whole batches.
    const bool whole_batches = nb > 1 && wn <= kPartitions;
    const int64_t units = whole_batches ? nb : wn;  // of batches or of rows
    const int64_t outer = whole_batches ? 1 : nb;   // batches handled one after the other
    const int64_t unit_stride = whole_batches ? x.batch_stride : x.w_stride;
    const int64_t unit_columns = whole_batches ? wn : 1;
    const int64_t units_per_chunk = std::min(units, whole_batches ? kPartitions / wn : kPartitions);
    const int64_t max_chunks = std::max<int64_t>(1, kPieceBytes / (k_elements * bytes()));
    for (int64_t b = 0; b < outer; ++b) {
      for (int64_t u = 0; u < units;) {
        const int64_t per_chunk = std::min(units_per_chunk, units - u);
        const int64_t chunks = std::min(max_chunks, (units - u) / per_chunk);
        const int64_t p = per_chunk * unit_columns;
        Access natural = tile.sbuf(static_cast<int>(p), {chunks, k_elements}, x.load_dtype);
        const int64_t at = delta(b, 0, k0) + u * unit_stride;
        if (whole_batches) {
          tile.load(natural, hbm(at, {per_chunk, wn, chunks, k_elements},
                                 {unit_stride, x.w_stride, per_chunk * unit_stride, x.k_stride}));
        } else {
          tile.load(natural, hbm(at, {per_chunk, chunks, k_elements},
                                 {unit_stride, per_chunk * unit_stride, x.k_stride}));
        }
        const int64_t column = b * wn + u * unit_columns;
        if (count > 1) {
          for (int64_t c = 0; c < chunks; ++c) {
            transpose_blocks(
                count, p, rows,
                [&](int64_t i) { return columns_of(natural, c * k_elements + i * kPartitions, rows); },
                [&](int64_t first, int64_t n) {
                  return with_dims(dst, first * columns() + column + c * p, {{columns(), n}, {1, p}});
                });
          }
        } else {
          transpose_blocks(
              chunks, p, rows, [&](int64_t i) { return columns_of(natural, i * k_elements, rows); },
              [&](int64_t first, int64_t n) {
                return with_dims(dst, column + first * p, {{p, n}, {1, p}});
              });
        }
        u += chunks * per_chunk;
      }
    }
  }
};

}  // namespace

bool loads_natural(const MatrixOperand& x, int64_t w) {
  if (x.k_stride != 1 || x.k == 1) return false;
  // Both strides 1 (or a single row): direct loads move runs of w elements; natural rows runs of k elements.
  if (w == 1) return true;
  return x.w_stride != 1;
}

bool turns_in_psum(const MatrixOperand& x, int64_t w) {
  return loads_natural(x, w) && (packs(ceil_div(x.k, kPartitions), w) || !turns_by_dma(x, x.k, w));
}

Access Panel::at(int64_t kt, int64_t column, int64_t count) const {
  for (const Piece& p : pieces_) {
    if (kt < p.kt0 || kt >= p.kt0 + p.count) continue;
    return columns_of(p.tile, (kt - p.kt0) * columns_ + column, count);
  }
  throw_internal("panel has no k tile " + std::to_string(kt));
}

Panel load_panel(const MatrixOperand& x, int64_t b0, int64_t nb, int64_t w0, int64_t wn, int64_t kt0,
                 int64_t kn, const KernelContext& context, TileBuilder& tile) {
  Panel panel;
  panel.columns_ = nb * wn;
  // Columns that are all the same come once and are copied on the chip.
  if (panel.columns_ > 1 && x.w_stride == 0 && (nb == 1 || x.batch_stride == 0)) {
    const Panel column = load_panel(x, b0, 1, w0, 1, kt0, kn, context, tile);
    for (const Panel::Piece& one : column.pieces_) {
      Access all = tile.sbuf(one.tile.num_partitions, {one.count, panel.columns_}, x.load_dtype);
      tile.copy(all, with_dims(one.tile, 0, {{1, one.count}, {0, panel.columns_}}));
      panel.pieces_.push_back({one.kt0, one.count, all});
    }
    return panel;
  }
  Loader loader{x, b0, nb, w0, wn, context, tile};
  const bool natural = loads_natural(x, wn);
  const int64_t full_end = std::min(kt0 + kn, x.k / kPartitions);  // k tiles with all 128 rows
  const int64_t per_piece = std::max<int64_t>(1, kPieceBytes / (panel.columns_ * loader.bytes()));
  for (int64_t kt = kt0; kt < kt0 + kn;) {
    const bool full = kt < full_end;
    const int64_t count = full ? std::min(per_piece, full_end - kt) : 1;
    const int64_t rows = full ? kPartitions : x.k - kt * kPartitions;
    Access dst = tile.sbuf(static_cast<int>(rows), {count, panel.columns_}, x.load_dtype);
    if (!natural) {
      loader.direct(dst, kt * kPartitions, rows, count);
    } else if (packs(count, panel.columns_)) {
      loader.natural_packed(dst, kt * kPartitions, count);
    } else if (turns_by_dma(x, rows, wn)) {
      loader.turned(dst, kt * kPartitions, rows, count);
    } else {
      loader.natural_rows(dst, kt * kPartitions, rows, count);
    }
    panel.pieces_.push_back({kt, count, dst});
    kt += count;
  }
  return panel;
}

}  // namespace trnsim::compiler
