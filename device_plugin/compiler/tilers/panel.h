// Panels: a block of a matrix operand in SBUF with the contraction axis on partitions, ready for the tensor
// engine.
#pragma once

#include <cstdint>
#include <vector>

#include "device_plugin/compiler/kernels.h"
#include "device_plugin/compiler/tile.h"
#include "device_plugin/compiler/tilers/tilers.h"

namespace trnsim::compiler {

// A matrix operand X[batch, w, k] in HBM: `w` is the row axis of the left or the column axis of the right
// operand, k the contraction axis.
struct MatrixOperand {
  View base;  // buffer, dtype, offset of element (0, 0, 0); sizes and strides unused
  int64_t batch_stride = 0, w_stride = 0, k_stride = 0;
  int64_t k = 0;                   // contraction length
  Dtype load_dtype = Dtype::kF32;  // dtype in SBUF
};

// True when the operand is better loaded in runs along k and transposed, by the DMA engines or on the tensor engine,
// than loaded directly with k on partitions by element-sized DMA runs. `w` is the extent of the
// row axis.
bool loads_natural(const MatrixOperand& x, int64_t w);
// True when panels of `w` rows or columns pass through PSUM.
bool turns_in_psum(const MatrixOperand& x, int64_t w);

// X[b0 .. b0+nb, w0 .. w0+wn, k tiles kt0 .. kt0+kn) with k on partitions. Column of (batch i, row j) is i *
// wn + j.
class Panel {
 public:
  // Columns [column, column + count) of k tile `kt` (absolute number): [rows of that k tile, count].
  Access at(int64_t kt, int64_t column, int64_t count) const;

 private:
  friend Panel load_panel(const MatrixOperand& x, int64_t b0, int64_t nb, int64_t w0, int64_t wn, int64_t kt0,
                          int64_t kn, const KernelContext& context, TileBuilder& tile);
  struct Piece {
    int64_t kt0, count;  // k tiles
    Access tile;         // [rows, count, columns]
  };
  int64_t columns_ = 0;
  std::vector<Piece> pieces_;
};

Panel load_panel(const MatrixOperand& x, int64_t b0, int64_t nb, int64_t w0, int64_t wn, int64_t kt0,
                 int64_t kn, const KernelContext& context, TileBuilder& tile);

}  // namespace trnsim::compiler
