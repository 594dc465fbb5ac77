// Convolution forward and input gradient as an implicit matrix product: contraction channels on partitions,
// one matrix product per window position with a strided window of the source image as the moving matrix, all
// positions accumulated in PSUM. Few contraction channels: several window lines (positions of all axes but
// the innermost) share the partitions (packed); the innermost axis keeps its strided window, so that packing
// copies long runs.
#include <algorithm>

#include "device_plugin/compiler/tilers/conv_geometry.h"

namespace trnsim::compiler {
namespace {

constexpr int64_t kSourceBytes = 40 * 1024;  // per partition, of one block's source tiles together
constexpr int64_t kResultBytes = 24 * 1024;  // of one block's result tile
constexpr int64_t kWeightBytes = 72 * 1024;  // of the stationary matrices of one block of result channels
constexpr int64_t kPackedBytes = 24 * 1024;  // of the packed windows of one block
constexpr int64_t kMaxPackedChannels = 32;
constexpr size_t kBanksPerRound = 4;  // rectangles that share a stationary matrix

// Contraction rows of one matrix product: channels [channel, channel + channels) at one window position;
// packed: the same position of the innermost axis in every line of a group of window lines.
struct ContractionBlock {
  int64_t channel, channels;
  int64_t tap;  // position in Correlation::taps (packed: of the group's first line)
};

class Correlator {
 public:
  Correlator(const ConvProblem& p, bool input_gradient, const KernelContext& context, TileBuilder& tile)
      : p_(p), gradient_(input_gradient), context_(context), tile_(tile) {
    source_ = gradient_ ? p.out : p.input;
    result_ = gradient_ ? p.input : p.out;
    correlations_ =
        gradient_ ? input_gradient_correlations(p) : std::vector<Correlation>{forward_correlation(p)};
    bytes_ = static_cast<int64_t>(isa::dtype_bytes(p.load_dtype));
    // With stride 1 the innermost axis makes long runs as well, and all positions share the partitions.
    const bool all = correlations_[0].in_step[2] == 1 && source_.channels * p.taps() <= kPartitions;
    width_ = all ? 1 : p.kernel[2];
    lines_ = p.taps() / width_;
    packed_ = correlations_.size() == 1 && lines_ > 1 && source_.channels <= kMaxPackedChannels;
    channel_blocks_ = ceil_div(source_.channels, kPartitions);
    lines_per_block_ = packed_ ? std::min<int64_t>(kPartitions / source_.channels, lines_) : 1;
  }

  void run() {
    const int64_t per_result_channel =
        (packed_ ? ceil_div(lines_, lines_per_block_) * width_ : channel_blocks_ * p_.taps()) * bytes_;
    const int64_t fit = std::max<int64_t>(1, kWeightBytes / (per_result_channel * kPartitions)) * kPartitions;
    for (int64_t m = 0; m < result_.channels; m += fit) {
      result_channel0_ = m;
      result_channels_ = std::min(fit, result_.channels - m);
      prepare_weights();
      prepare_bias();
      run_blocks();
    }
  }

 private:
  // ---- stationary matrices ----
  void prepare_weights() {
    weights_.clear();
    if (packed_) {
      for (int64_t l = 0; l < lines_; l += lines_per_block_)
        weights_.push_back(packed_weights(l, std::min(lines_per_block_, lines_ - l)));
      return;
    }
    for (int64_t c = 0; c < source_.channels; c += kPartitions) {
      const int64_t channels = std::min(kPartitions, source_.channels - c);
      weights_.push_back(gradient_ ? natural_weights(c, channels) : transposed_weights(c, channels));
    }
  }

  Access weight_access(int64_t delta, std::vector<int64_t> sizes, std::vector<int64_t> strides) {
    return hbm_view(context_, window_of(p_.weight, delta, std::move(sizes), std::move(strides)));
  }

  // Rows (line, contraction channel), columns (innermost position, result channel): small, by element runs.
  Access packed_weights(int64_t line, int64_t lines) {
    const int64_t contraction_stride = gradient_ ? p_.weight_out_stride : p_.weight_in_stride;
    const int64_t result_stride = gradient_ ? p_.weight_in_stride : p_.weight_out_stride;
    const int64_t width = width_;
    Access w =
        tile_.sbuf(static_cast<int>(lines * source_.channels), {width, result_channels_}, p_.load_dtype);
    const int64_t at = result_channel0_ * result_stride;
    if (p_.dense_taps()) {
      tile_.load(w,
                 weight_access(
                     at + p_.tap_delta(line * width), {lines, source_.channels, width, result_channels_},
                     {width * p_.kernel_stride[2], contraction_stride, p_.kernel_stride[2], result_stride}));
      return w;
    }
    for (int64_t l = 0; l < lines; ++l) {
      tile_.load(
          slice_partitions(w, static_cast<int>(l * source_.channels), static_cast<int>(source_.channels)),
          weight_access(at + p_.tap_delta((line + l) * width), {source_.channels, width, result_channels_},
                        {contraction_stride, p_.kernel_stride[2], result_stride}));
    }
    return w;
  }

  // Input gradient: the contraction axis is the weight's first, rows are loaded as they lie: [O, C block *
  // taps].
  Access natural_weights(int64_t channel, int64_t channels) {
    Access w = tile_.sbuf(static_cast<int>(channels), {result_channels_, p_.taps()}, p_.load_dtype);
    tile_.load(w, weight_access(channel * p_.weight_out_stride + result_channel0_ * p_.weight_in_stride,
                                {channels, result_channels_, p_.kernel[0], p_.kernel[1], p_.kernel[2]},
                                {p_.weight_out_stride, p_.weight_in_stride, p_.kernel_stride[0],
                                 p_.kernel_stride[1], p_.kernel_stride[2]}));
    return w;
  }

  // Forward: rows of the weight are result channels; transposed per window position into [C block, taps, O
  // block].
  Access transposed_weights(int64_t channel, int64_t channels) {
    const int64_t taps = p_.taps();
    Access w = tile_.sbuf(static_cast<int>(channels), {taps, result_channels_}, p_.load_dtype);
    for (int64_t m = 0; m < result_channels_; m += kPartitions) {
      const int64_t rows = std::min(kPartitions, result_channels_ - m);
      Access natural = tile_.sbuf(static_cast<int>(rows), {channels, taps}, p_.load_dtype);
      tile_.load(natural,
                 weight_access((result_channel0_ + m) * p_.weight_out_stride + channel * p_.weight_in_stride,
                               {rows, channels, p_.kernel[0], p_.kernel[1], p_.kernel[2]},
                               {p_.weight_out_stride, p_.weight_in_stride, p_.kernel_stride[0],
                                p_.kernel_stride[1], p_.kernel_stride[2]}));
      const int64_t per_bank = std::max<int64_t>(1, isa::kPsumBankBytes / (rows * bytes_));
      for (int64_t t = 0; t < taps; t += per_bank) {
        const int64_t n = std::min(per_bank, taps - t);
        Access bank = tile_.psum(static_cast<int>(channels), {n, rows}, p_.load_dtype);
        for (int64_t i = 0; i < n; ++i)
          tile_.transpose(columns_of(bank, i * rows, rows), with_dims(natural, t + i, {{taps, channels}}));
        tile_.copy(with_dims(w, t * result_channels_ + m, {{result_channels_, n}, {1, rows}}), bank);
      }
    }
    return w;
  }

  // Columns [m, m + count) of the block's stationary matrix.
  Access stationary(const ContractionBlock& block, const Correlation& c, int64_t m, int64_t count) {
    if (packed_) {
      const int64_t group = block.tap / width_ / lines_per_block_;
      return columns_of(weights_[static_cast<size_t>(group)], block.tap % width_ * result_channels_ + m,
                        count);
    }
    const Access& w = weights_[static_cast<size_t>(block.channel / kPartitions)];
    const int64_t tap = c.taps[static_cast<size_t>(block.tap)].index;
    if (gradient_) return with_dims(w, m * p_.taps() + tap, {{p_.taps(), count}});
    return columns_of(w, tap * result_channels_ + m, count);
  }

  void prepare_bias() {
    bias_.clear();
    if (gradient_ || p_.bias.buffer < 0) return;
    for (int64_t m = 0; m < result_channels_; m += kPartitions) {
      const int64_t rows = std::min(kPartitions, result_channels_ - m);
      Access b = tile_.sbuf(static_cast<int>(rows), {1}, Dtype::kF32);
      tile_.load(b, hbm_view(context_, window_of(p_.bias, (result_channel0_ + m) * p_.bias_stride, {rows},
                                                 {p_.bias_stride})));
      bias_.push_back(b);
    }
  }

  // ---- blocks of the result ----
  static int64_t source_elements(const void* self, const Spatial& size) {
    const auto* c = static_cast<const Correlator*>(self);
    ImageBlock block;
    block.size = size;
    Spatial lo, extent;
    source_range(c->correlations_, block, &lo, &extent);
    int64_t elements = extent[0] * extent[1] * extent[2] * c->channel_blocks_;
    if (c->packed_) {
      // The packed copies, one per group of lines, scaled to the source budget.
      const int64_t groups = ceil_div(c->lines_, c->lines_per_block_);
      elements = std::max(elements, size[0] * size[1] * extent[2] * groups * kSourceBytes / kPackedBytes);
    }
    return elements;
  }

  void run_blocks() {
    const int64_t result_bytes = static_cast<int64_t>(isa::dtype_bytes(tile_dtype(result_.base.dtype)));
    const auto blocks = output_blocks(result_, correlations_[0].out_step, kSourceBytes / bytes_,
                                      kResultBytes / result_bytes, source_elements, this);
    for (const ImageBlock& block : blocks) run_block(block);
  }

  void run_block(const ImageBlock& block) {
    Spatial lo, extent;
    source_range(correlations_, block, &lo, &extent);
    std::vector<SourceTile> sources;
    for (int64_t c = 0; c < source_.channels; c += kPartitions) {
      sources.push_back(load_source(source_, c, std::min(kPartitions, source_.channels - c), block.n,
                                    block.count, lo, extent, p_.load_dtype, 0.0f, context_, tile_));
    }
    std::vector<Access> packed;
    if (packed_) packed = pack(sources[0], block);
    for (int64_t m = 0; m < result_channels_; m += kPartitions) {
      const int64_t rows = std::min(kPartitions, result_channels_ - m);
      Access out =
          tile_.sbuf(static_cast<int>(rows), {block.count, block.size[0], block.size[1], block.size[2]},
                     tile_dtype(result_.base.dtype));
      for (const Correlation& c : correlations_) run_phase(c, block, sources, packed, m, out);
      tile_.store(image_access(result_, result_channel0_ + m, rows, block, context_),
                  columns_of(out, 0, out.free_elements()));
    }
  }

  // Window lines side by side on partitions: [(line, channel), n, outputs of axes 0 and 1, source axis 2].
  std::vector<Access> pack(const SourceTile& source, const ImageBlock& block) {
    const Correlation& c = correlations_[0];
    // A line is the whole source extent of axis 2, at step 1, or one position's outputs.
    ImageBlock lines = phase_outputs(c, block);
    if (width_ > 1) {
      lines.at[2] = 0;
      lines.size[2] = source.extent[2];
    }
    const Spatial step{c.in_step[0], c.in_step[1], width_ > 1 ? 1 : c.in_step[2]};
    std::vector<Access> out;
    for (int64_t l0 = 0; l0 < lines_; l0 += lines_per_block_) {
      const int64_t count = std::min(lines_per_block_, lines_ - l0);
      Access t = tile_.sbuf(static_cast<int>(count * source_.channels), {lines.elements()}, p_.load_dtype);
      for (int64_t l = 0; l < count; ++l) {
        Spatial offset = c.taps[static_cast<size_t>((l0 + l) * width_)].offset;
        if (width_ > 1) offset[2] = source.lo[2];
        tile_.dma(
            slice_partitions(t, static_cast<int>(l * source_.channels), static_cast<int>(source_.channels)),
            source.window(lines, step, offset));
      }
      out.push_back(t);
    }
    return out;
  }

  // Window of rectangle `r` in a packed tile, at position `tap` of the innermost axis.
  Access packed_window(const Access& t, const ImageBlock& r, const ImageBlock& outputs,
                       const SourceTile& source, const Correlation& c, int64_t tap) const {
    const int64_t width = width_ > 1 ? source.extent[2] : outputs.size[2];
    const Spatial pitch{outputs.size[1] * width, width, 1};
    int64_t delta = (r.n - outputs.n) * outputs.size[0] * pitch[0];
    for (int a = 0; a < 2; ++a) delta += (r.at[a] - outputs.at[a]) * pitch[a];
    delta += width_ > 1 ? r.at[2] * c.in_step[2] + c.taps[static_cast<size_t>(tap)].offset[2] - source.lo[2]
                        : r.at[2] - outputs.at[2];
    return region(t, delta, r.count, outputs.size[0] * pitch[0], r.size,
                  {pitch[0], pitch[1], width_ > 1 ? c.in_step[2] : 1});
  }

  std::vector<ContractionBlock> contraction_blocks(const Correlation& c) const {
    std::vector<ContractionBlock> out;
    const int64_t taps = static_cast<int64_t>(c.taps.size());
    if (packed_) {
      for (int64_t l = 0; l < lines_; l += lines_per_block_)
        for (int64_t x = 0; x < width_; ++x) out.push_back({0, source_.channels, l * width_ + x});
      return out;
    }
    for (int64_t ch = 0; ch < source_.channels; ch += kPartitions)
      for (int64_t t = 0; t < taps; ++t) out.push_back({ch, std::min(kPartitions, source_.channels - ch), t});
    return out;
  }

  void run_phase(const Correlation& c, const ImageBlock& block, const std::vector<SourceTile>& sources,
                 const std::vector<Access>& packed, int64_t m, const Access& out) {
    const ImageBlock outputs = phase_outputs(c, block);
    if (outputs.elements() == 0) return;
    const int64_t rows = out.num_partitions;
    const auto target = [&](const ImageBlock& r) {
      const Spatial pitch{block.size[1] * block.size[2], block.size[2], 1};
      int64_t delta = (r.n - block.n) * block.size[0] * pitch[0];
      Spatial step;
      for (int a = 0; a < 3; ++a) {
        delta += (r.at[a] * c.out_step[a] + c.phase[a] - block.at[a]) * pitch[a];
        step[a] = c.out_step[a] * pitch[a];
      }
      return region(out, delta, r.count, block.size[0] * pitch[0], r.size, step);
    };
    if (c.taps.empty()) {  // positions between the strides that no window reaches
      tile_.memset(target(outputs), 0.0f);
      return;
    }
    const std::vector<ContractionBlock> blocks = contraction_blocks(c);
    const std::vector<ImageBlock> rectangles = split_block(outputs, kPsumColumns);
    for (size_t first = 0; first < rectangles.size(); first += kBanksPerRound) {
      const size_t end = std::min(rectangles.size(), first + kBanksPerRound);
      std::vector<Access> banks;
      for (size_t i = first; i < end; ++i)
        banks.push_back(tile_.psum(static_cast<int>(rows), {rectangles[i].elements()}));
      for (size_t b = 0; b < blocks.size(); ++b) {
        const Access weights = stationary(blocks[b], c, m, rows);
        for (size_t i = first; i < end; ++i) {
          Access moving;
          if (packed_) {
            const int64_t group = blocks[b].tap / width_ / lines_per_block_;
            moving = packed_window(packed[static_cast<size_t>(group)], rectangles[i], outputs, sources[0], c,
                                   blocks[b].tap);
          } else {
            const SourceTile& s = sources[static_cast<size_t>(blocks[b].channel / kPartitions)];
            moving = s.window(rectangles[i], c.in_step, c.taps[static_cast<size_t>(blocks[b].tap)].offset);
          }
          tile_.matmul(banks[i - first], weights, moving, b > 0);
        }
      }
      for (size_t i = first; i < end; ++i) {
        const Access dst = target(rectangles[i]);
        if (bias_.empty()) {
          tile_.copy(dst, banks[i - first]);
        } else {
          tile_.tensor_scalar(dst, banks[i - first], AluOp::kAdd,
                              TileBuilder::column(bias_[static_cast<size_t>(m / kPartitions)]));
        }
      }
    }
  }

  const ConvProblem& p_;
  bool gradient_;
  const KernelContext& context_;
  TileBuilder& tile_;
  ImageView source_, result_;
  std::vector<Correlation> correlations_;
  bool packed_ = false;
  int64_t bytes_ = 4, channel_blocks_ = 1, lines_ = 1, lines_per_block_ = 1, width_ = 1;
  int64_t result_channel0_ = 0, result_channels_ = 0;
  std::vector<Access> weights_, bias_;
};

}  // namespace

void correlate(const ConvProblem& p, bool input_gradient, const KernelContext& context, TileBuilder& tile) {
  Correlator(p, input_gradient, context, tile).run();
}

}  // namespace trnsim::compiler
