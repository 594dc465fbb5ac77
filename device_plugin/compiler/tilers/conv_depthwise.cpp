// One input channel per group: channels on partitions, one multiply-add per window position on the vector
// engine.
#include <algorithm>

#include "device_plugin/compiler/tilers/conv_geometry.h"

namespace trnsim::compiler {
namespace {

constexpr int64_t kSourceBytes = 32 * 1024;
constexpr int64_t kResultBytes = 16 * 1024;

class Depthwise {
 public:
  Depthwise(const ConvKernel& k, const KernelContext& context, TileBuilder& tile)
      : context_(context), tile_(tile) {
    // As one group over all channels; output channel c * multiplier + j belongs to input channel c.
    ConvKernel whole = k;
    whole.groups = 1;
    p_ = conv_problems(whole)[0];
    mode_ = k.mode;
    channels_ = p_.input.channels;
    multiplier_ = p_.out.channels / channels_;
  }

  void run() {
    for (int64_t c = 0; c < channels_; c += kPartitions) {
      const int64_t n = std::min(kPartitions, channels_ - c);
      switch (mode_) {
        case ConvKernel::Mode::kForward:
          for (int64_t j = 0; j < multiplier_; ++j) forward(c, n, j);
          break;
        case ConvKernel::Mode::kInputGrad:
          input_gradient(c, n);
          break;
        case ConvKernel::Mode::kWeightGrad:
          for (int64_t j = 0; j < multiplier_; ++j) weight_gradient(c, n, j);
          break;
      }
    }
  }

 private:
  // Output channels j, j + multiplier, ...: one per input channel.
  ImageView member(int64_t j) const {
    ImageView v = p_.out;
    v.base.offset += j * v.channel_stride;
    v.channel_stride *= multiplier_;
    v.channels = channels_;
    return v;
  }
  Access weight_access(int64_t channel, int64_t channels, int64_t j) const {
    return hbm_view(context_, window_of(p_.weight, (channel * multiplier_ + j) * p_.weight_out_stride,
                                        {channels, p_.kernel[0], p_.kernel[1], p_.kernel[2]},
                                        {multiplier_ * p_.weight_out_stride, p_.kernel_stride[0],
                                         p_.kernel_stride[1], p_.kernel_stride[2]}));
  }
  Access load_weights(int64_t channel, int64_t channels, int64_t j) {
    Access w = tile_.sbuf(static_cast<int>(channels), {p_.taps()}, Dtype::kF32);
    tile_.load(w, weight_access(channel, channels, j));
    return w;
  }

  struct Sizes {
    const std::vector<Correlation>* correlations;
  };
  static int64_t source_elements(const void* s, const Spatial& size) {
    ImageBlock block;
    block.size = size;
    Spatial lo, extent;
    source_range(*static_cast<const Sizes*>(s)->correlations, block, &lo, &extent);
    return extent[0] * extent[1] * extent[2];
  }
  std::vector<ImageBlock> blocks(const std::vector<Correlation>& correlations, const ImageView& out) {
    const Sizes sizes{&correlations};
    return output_blocks(out, correlations[0].out_step, kSourceBytes / 4, kResultBytes / 4, source_elements,
                         &sizes);
  }

  // accumulator(outputs of phase c) += weight[tap] * window(tap); the first term overwrites.
  void accumulate(const Correlation& c, const ImageBlock& outputs, const SourceTile& source,
                  const Access& weights, const Access& accumulator, bool& started) {
    for (const ConvTap& t : c.taps) {
      const Access window = source.window(outputs, c.in_step, t.offset);
      const ScalarOperand w = TileBuilder::column(columns_of(weights, t.index, 1));
      if (!started) {
        tile_.tensor_scalar(accumulator, window, AluOp::kMultiply, w);
      } else {
        tile_.scalar_tensor_tensor(accumulator, window, AluOp::kMultiply, w, AluOp::kAdd, accumulator);
      }
      started = true;
    }
  }

  void forward(int64_t channel, int64_t channels, int64_t j) {
    const std::vector<Correlation> correlations{forward_correlation(p_)};
    const ImageView out = member(j);
    const Access weights = load_weights(channel, channels, j);
    Access bias;
    if (p_.bias.buffer >= 0) {
      bias = tile_.sbuf(static_cast<int>(channels), {1}, Dtype::kF32);
      tile_.load(bias, hbm_view(context_, window_of(p_.bias, (channel * multiplier_ + j) * p_.bias_stride,
                                                    {channels}, {multiplier_ * p_.bias_stride})));
    }
    for (const ImageBlock& block : blocks(correlations, out)) {
      Spatial lo, extent;
      source_range(correlations, block, &lo, &extent);
      const SourceTile source = load_source(p_.input, channel, channels, block.n, block.count, lo, extent,
                                            p_.load_dtype, 0.0f, context_, tile_);
      Access sum = tile_.sbuf(static_cast<int>(channels), {block.elements()}, Dtype::kF32);
      bool started = false;
      const Access whole = shaped(sum, block);
      accumulate(correlations[0], block, source, weights, whole, started);
      if (bias.present()) {
        Access biased =
            tile_.sbuf(static_cast<int>(channels), {block.elements()}, tile_dtype(out.base.dtype));
        tile_.tensor_scalar(biased, sum, AluOp::kAdd, TileBuilder::column(bias));
        sum = biased;
      } else if (sum.dtype != tile_dtype(out.base.dtype)) {
        Access narrow =
            tile_.sbuf(static_cast<int>(channels), {block.elements()}, tile_dtype(out.base.dtype));
        tile_.copy(narrow, sum);
        sum = narrow;
      }
      tile_.store(image_access(out, channel, channels, block, context_), sum);
    }
  }

  static Access shaped(const Access& t, const ImageBlock& block) {
    const Spatial pitch{block.size[1] * block.size[2], block.size[2], 1};
    return region(t, 0, block.count, block.size[0] * pitch[0], block.size, pitch);
  }

  void input_gradient(int64_t channel, int64_t channels) {
    const std::vector<Correlation> correlations = input_gradient_correlations(p_);
    std::vector<Access> weights;
    for (int64_t j = 0; j < multiplier_; ++j) weights.push_back(load_weights(channel, channels, j));
    for (const ImageBlock& block : blocks(correlations, p_.input)) {
      Spatial lo, extent;
      source_range(correlations, block, &lo, &extent);
      std::vector<SourceTile> sources;
      for (int64_t j = 0; j < multiplier_; ++j) {
        sources.push_back(load_source(member(j), channel, channels, block.n, block.count, lo, extent,
                                      p_.load_dtype, 0.0f, context_, tile_));
      }
      Access sum = tile_.sbuf(static_cast<int>(channels), {block.elements()}, Dtype::kF32);
      for (const Correlation& c : correlations) {
        const ImageBlock outputs = phase_outputs(c, block);
        if (outputs.elements() == 0) continue;
        const Spatial pitch{block.size[1] * block.size[2], block.size[2], 1};
        int64_t delta = 0;
        Spatial step;
        for (int a = 0; a < 3; ++a) {
          delta += (outputs.at[a] * c.out_step[a] + c.phase[a] - block.at[a]) * pitch[a];
          step[a] = c.out_step[a] * pitch[a];
        }
        const Access target = region(sum, delta, block.count, block.size[0] * pitch[0], outputs.size, step);
        bool started = false;
        for (int64_t j = 0; j < multiplier_; ++j)
          accumulate(c, outputs, sources[static_cast<size_t>(j)], weights[static_cast<size_t>(j)], target,
                     started);
        if (!started) tile_.memset(target, 0.0f);
      }
      if (sum.dtype != tile_dtype(p_.input.base.dtype)) {
        Access narrow =
            tile_.sbuf(static_cast<int>(channels), {block.elements()}, tile_dtype(p_.input.base.dtype));
        tile_.copy(narrow, sum);
        sum = narrow;
      }
      tile_.store(image_access(p_.input, channel, channels, block, context_), sum);
    }
  }

  void weight_gradient(int64_t channel, int64_t channels, int64_t j) {
    const std::vector<Correlation> correlations{forward_correlation(p_)};
    const ImageView out = member(j);
    Access total = tile_.sbuf(static_cast<int>(channels), {p_.taps()}, Dtype::kF32);
    tile_.memset(total, 0.0f);
    for (const ImageBlock& block : blocks(correlations, out)) {
      Spatial lo, extent;
      source_range(correlations, block, &lo, &extent);
      const SourceTile source = load_source(p_.input, channel, channels, block.n, block.count, lo, extent,
                                            p_.load_dtype, 0.0f, context_, tile_);
      const SourceTile gradient = load_source(out, channel, channels, block.n, block.count, block.at,
                                              block.size, p_.load_dtype, 0.0f, context_, tile_);
      const Access g = gradient.window(block, {1, 1, 1}, {0, 0, 0});
      Access part = tile_.sbuf(static_cast<int>(channels), {p_.taps()}, Dtype::kF32);
      for (const ConvTap& t : correlations[0].taps) {
        Access product = tile_.sbuf(static_cast<int>(channels), {block.elements()}, Dtype::kF32);
        tile_.tensor_tensor(shaped(product, block), source.window(block, correlations[0].in_step, t.offset),
                            g, AluOp::kMultiply);
        tile_.reduce(columns_of(part, t.index, 1), product, AluOp::kAdd, 1);
      }
      Access sum = tile_.sbuf(static_cast<int>(channels), {p_.taps()}, Dtype::kF32);
      tile_.tensor_tensor(sum, total, part, AluOp::kAdd);
      total = sum;
    }
    if (tile_dtype(p_.weight.dtype) != Dtype::kF32) {
      Access narrow = tile_.sbuf(static_cast<int>(channels), {p_.taps()}, tile_dtype(p_.weight.dtype));
      tile_.copy(narrow, total);
      total = narrow;
    }
    tile_.store(weight_access(channel, channels, j), total);
  }

  const KernelContext& context_;
  TileBuilder& tile_;
  ConvProblem p_;
  ConvKernel::Mode mode_ = ConvKernel::Mode::kForward;
  int64_t channels_ = 1, multiplier_ = 1;
};

}  // namespace

void depthwise(const ConvKernel& kernel, const KernelContext& context, TileBuilder& tile) {
  Depthwise(kernel, context, tile).run();
}

}  // namespace trnsim::compiler
