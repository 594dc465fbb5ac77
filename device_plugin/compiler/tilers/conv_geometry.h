// Geometry shared by the convolution tilers: every convolution and input gradient is a set of correlations
//   dst[out_step * j + phase] = sum over taps of weight[tap] * src[in_step * j + offset[tap]]
// with source positions outside the tensor counting as 0.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "device_plugin/compiler/kernels.h"
#include "device_plugin/compiler/tile.h"
#include "device_plugin/compiler/tilers/access_math.h"

namespace trnsim::compiler {

using Spatial = std::array<int64_t, 3>;  // 1-D and 2-D problems have leading extents of 1

// An image tensor [n, channels, spatial] of one group.
struct ImageView {
  View base;  // sizes and strides unused
  int64_t n = 1, channels = 1;
  int64_t n_stride = 0, channel_stride = 0;
  Spatial size{1, 1, 1}, stride{0, 0, 0};
};

struct ConvTap {
  int64_t index;   // flat position in the kernel window
  Spatial offset;  // source position of output j = 0
};

struct Correlation {
  Spatial in_step{1, 1, 1}, out_step{1, 1, 1}, phase{0, 0, 0};
  std::vector<ConvTap> taps;
};

// The problem of one group.
struct ConvProblem {
  ImageView input, out;  // channels of the group only
  View weight;           // sizes and strides unused
  int64_t weight_out_stride = 0, weight_in_stride = 0;
  Spatial kernel{1, 1, 1}, kernel_stride{0, 0, 0};
  Spatial stride{1, 1, 1}, padding{0, 0, 0}, dilation{1, 1, 1};
  View bias;  // offset of the group's first channel; buffer < 0: none
  int64_t bias_stride = 0;
  std::vector<ImageView> extra;                 // operands of the epilogue, shaped like the result
  const std::vector<Expr>* epilogue = nullptr;  // null: none
  Dtype load_dtype = Dtype::kF32;

  int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  // Offset of tap `t` in the weight's window, in elements.
  int64_t tap_delta(int64_t t) const;
  // Window axes of the weight form one run (tap t at t * kernel_stride[2]).
  bool dense_taps() const;
};

ImageView image_view(const View& v, int64_t groups, int64_t group);
std::vector<ConvProblem> conv_problems(const ConvKernel& kernel);  // one per group
Correlation forward_correlation(const ConvProblem& p);
std::vector<Correlation> input_gradient_correlations(const ConvProblem& p);  // one per output phase

// A block of images and positions, [n, n + count) x [at, at + size).
struct ImageBlock {
  int64_t n = 0, count = 1;
  Spatial at{0, 0, 0}, size{1, 1, 1};
  int64_t elements() const { return count * size[0] * size[1] * size[2]; }
};
// Splits a block into equal rectangles of at most `max` elements, long in the innermost axes.
std::vector<ImageBlock> split_block(const ImageBlock& block, int64_t max);
// Output blocks whose source and result fit on chip. `source_elements(size)` and the budgets are per
// partition.
std::vector<ImageBlock> output_blocks(const ImageView& out, const Spatial& multiple, int64_t max_source,
                                      int64_t max_result,
                                      int64_t (*source_elements)(const void*, const Spatial&),
                                      const void* context);

// Positions [lo, lo + extent) of some source channels in SBUF: [channels, n, extent...], zero outside the
// tensor.
struct SourceTile {
  Access tile;
  int64_t n = 0;
  Spatial lo{0, 0, 0}, extent{1, 1, 1};
  // Free dims of the window a correlation tap reads for outputs j in `outputs` (n absolute, j relative to 0).
  Access window(const ImageBlock& outputs, const Spatial& in_step, const Spatial& offset) const;
};
// `lo` and `extent` of the source positions that taps of `correlations` read for destination block `block`.
void source_range(const std::vector<Correlation>& correlations, const ImageBlock& block, Spatial* lo,
                  Spatial* extent);
SourceTile load_source(const ImageView& src, int64_t channel, int64_t channels, int64_t n, int64_t count,
                       const Spatial& lo, const Spatial& extent, Dtype dtype, float fill,
                       const KernelContext& context, TileBuilder& tile);

// Outputs j of one correlation inside a destination block (n absolute). Empty sizes when there are none.
ImageBlock phase_outputs(const Correlation& c, const ImageBlock& block);

// HBM access [channels, n.., spatial..] of a block of an image.
Access image_access(const ImageView& v, int64_t channel, int64_t channels, const ImageBlock& block,
                    const KernelContext& context);

// Dims of a dense or strided [count, size...] region without axes of extent 1 (never empty).
Access region(const Access& a, int64_t delta, int64_t count, int64_t count_step, const Spatial& size,
              const Spatial& step);

// Fills what surrounds [low, high) in a tile of `count` grids of `extent`.
void fill_border(const Access& a, int64_t count, const Spatial& extent, const Spatial& low,
                 const Spatial& high, float value, TileBuilder& tile);

// The correlations of one group on the tensor engine (conv_correlate.cpp), on the vector engine for one
// channel per group (conv_depthwise.cpp), and the weight gradient (conv_weight_grad.cpp).
void correlate(const ConvProblem& p, bool input_gradient, const KernelContext& context, TileBuilder& tile);
void weight_gradient(const ConvProblem& p, const KernelContext& context, TileBuilder& tile);
void depthwise(const ConvKernel& kernel, const KernelContext& context, TileBuilder& tile);

}  // namespace trnsim::compiler
