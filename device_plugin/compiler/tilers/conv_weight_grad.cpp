// Weight gradient: pixels are the contraction axis. Windows of the input and the gradient are transposed on the tensor
// engine, so that up to 128 pixels lie on partitions; [O, window x C] accumulates in PSUM over all images.
//
// Few channels: groups of images or bands share the partitions, so that one transpose turns the same window of all of
// them, and few result channels take a tile of the systolic array per group, summed at the end.
#include <algorithm>
#include <optional>

#include "device_plugin/compiler/tilers/conv_groups.h"

namespace trnsim::compiler {
namespace {

constexpr int64_t kSourceBytes = 32 * 1024;   // per partition, input tiles of one block
constexpr int64_t kResultBytes = 24 * 1024;   // gradient tiles of one block
constexpr int64_t kColumnsBytes = 24 * 1024;  // transposed windows of one block of pixels
constexpr int64_t kAccumulators = 5;          // PSUM banks; the others serve transposes

class WeightGradient {
 public:
  WeightGradient(const ConvProblem& p, const KernelContext& context, TileBuilder& tile)
      : p_(p), context_(context), tile_(tile), correlation_(forward_correlation(p)) {
    bytes_ = static_cast<int64_t>(isa::dtype_bytes(p.load_dtype));
    row_tiles_ = ceil_div(p.out.channels, kPartitions);
    channel_blocks_ = ceil_div(p.input.channels, kPartitions);
  }

  void run() {
    // Column ranges of one bank: whole window positions when several fit, else a part of one position's
    // channels.
    const int64_t c = p_.input.channels;
    std::vector<Columns> columns;
    if (c <= kPsumColumns) {
      const int64_t per = std::min(p_.taps(), kPsumColumns / c);
      for (int64_t t = 0; t < p_.taps(); t += per) columns.push_back({t, std::min(per, p_.taps() - t), 0, c});
    } else {
      for (int64_t t = 0; t < p_.taps(); ++t)
        for (int64_t ch = 0; ch < c; ch += kPsumColumns)
          columns.push_back({t, 1, ch, std::min(kPsumColumns, c - ch)});
    }
    const int64_t rows_per_pass = std::min(row_tiles_, kAccumulators);
    const int64_t columns_per_pass = std::min<int64_t>(static_cast<int64_t>(columns.size()),
                                                       std::max<int64_t>(1, kAccumulators / rows_per_pass));
    choose_groups(columns, columns_per_pass);
    for (int64_t r = 0; r < row_tiles_; r += rows_per_pass) {
      for (size_t i = 0; i < columns.size(); i += static_cast<size_t>(columns_per_pass)) {
        const size_t end = std::min(columns.size(), i + static_cast<size_t>(columns_per_pass));
        pass(r, std::min(rows_per_pass, row_tiles_ - r),
             {columns.begin() + static_cast<long>(i), columns.begin() + static_cast<long>(end)});
      }
    }
  }

 private:
  // Window positions [tap, tap + taps) x input channels [channel, channel + channels), position major.
  struct Columns {
    int64_t tap, taps, channel, channels;
    int64_t count() const { return taps * channels; }
  };

  // As many groups as the input's channels leave room for, of at least 128 pixels.
  void choose_groups(const std::vector<Columns>& columns, int64_t columns_per_pass) {
    int64_t width = 0;
    for (int64_t i = 0; i < columns_per_pass; ++i) width += columns[static_cast<size_t>(i)].count();
    const int64_t pixels = p_.out.n * p_.out.size[0] * p_.out.size[1] * p_.out.size[2];
    const int64_t groups = std::min({kPartitions / std::min(p_.input.channels, kPartitions),
                                     ceil_div(pixels, kPartitions), kColumnsBytes / (width * bytes_)});
    GroupLimits limits;
    limits.groups = std::max<int64_t>(1, groups);
    limits.room = kSourceBytes / bytes_;
    const int64_t gradient_tiles = row_tiles_ > 1
                                       ? row_tiles_ * limits.groups
                                       : ceil_div(limits.groups * p_.out.channels, kPartitions / 2);
    limits.elements = [this, gradient_tiles](const Spatial& size) {
      ImageBlock block;
      block.size = size;
      return std::max(grid(block).elements() * channel_blocks_,
                      size[0] * size[1] * size[2] * gradient_tiles * kSourceBytes / kResultBytes);
    };
    blocks_ = block_groups(p_.out, limits);
    side_ = p_.out.channels <= 32 ? 32 : p_.out.channels <= 64 ? 64 : kPartitions;
    int64_t products = 0;  // per accumulator
    for (const BlockGroup& b : blocks_)
      products += b.groups() * static_cast<int64_t>(split_block(b.first, kPartitions).size());
    column_tiles_ = std::min(kPartitions / side_, products);
  }

  SourceGrid grid(const ImageBlock& block) const {
    SourceGrid g;
    source_range({correlation_}, block, &g.lo, &g.extent);
    for (int a = 0; a < 2; ++a) {
      if (p_.kernel[a] > 1) continue;  // every position is read
      g.sample[a] = correlation_.in_step[a];
      g.extent[a] = ceil_div(g.extent[a], g.sample[a]);
    }
    return g;
  }

  // Gradient channels [channel, channel + channels) of groups [group, group + groups), side by side on partitions.
  struct GradientTile {
    GroupTile tile;
    int64_t groups, channels;
  };
  // Transposed windows of a block of pixels: left column of (group, channel of the pass), right column of (window
  // position, group, channel).
  struct Turned {
    Access left, right;
  };

  void pass(int64_t row_tile, int64_t row_tiles, const std::vector<Columns>& columns) {
    const int64_t first_channel = row_tile * kPartitions;
    const int64_t channels = std::min(p_.out.channels - first_channel, row_tiles * kPartitions);
    const auto rows_of = [&](int64_t r) { return std::min(kPartitions, channels - r * kPartitions); };
    std::vector<std::vector<Access>> accumulators(static_cast<size_t>(row_tiles));
    for (int64_t r = 0; r < row_tiles; ++r)
      for (const Columns& c : columns)
        accumulators[static_cast<size_t>(r)].push_back(
            tile_.psum(static_cast<int>((column_tiles_ - 1) * side_ + rows_of(r)), {c.count()}));
    int64_t product = 0;
    // The products of a block of pixels come behind the transposes of the next, which the tensor engine does meanwhile.
    std::optional<Turned> waiting;
    int64_t waiting_groups = 0;
    const auto multiply = [&] {
      if (!waiting) return;
      for (int64_t g = 0; g < waiting_groups; ++g, ++product) {
        const int64_t column_tile = product % column_tiles_;
        for (int64_t r = 0; r < row_tiles; ++r) {
          const Access left = columns_of(waiting->left, g * channels + r * kPartitions, rows_of(r));
          int64_t base = 0;
          for (size_t i = 0; i < columns.size(); ++i) {
            const Columns& c = columns[i];
            const int64_t pitch = waiting_groups * c.channels;
            const Access right =
                with_dims(waiting->right, base + g * c.channels, {{pitch, c.taps}, {1, c.channels}});
            isa::PeTile on;
            if (column_tiles_ > 1) {
              on = {0, static_cast<uint8_t>(column_tile * side_), static_cast<uint8_t>(kPartitions),
                    static_cast<uint8_t>(side_)};
            }
            tile_.matmul(
                slice_partitions(accumulators[static_cast<size_t>(r)][i],
                                 static_cast<int>(column_tile * side_), static_cast<int>(rows_of(r))),
                left, right, product >= column_tiles_, on);
            base += waiting_groups * c.count();
          }
        }
      }
      waiting.reset();
    };
    for (const BlockGroup& block : blocks_) {
      const SourceGrid g = grid(block.first);
      const std::vector<GroupTile> input = load_input(block, g);
      const std::vector<GradientTile> gradient = load_gradient(block, first_channel, channels);
      ImageBlock unit = block.first;
      unit.n = 0;
      for (const ImageBlock& pixels : split_block(unit, kPartitions)) {
        Turned next = turn(block, g, input, gradient, columns, channels, pixels);
        multiply();
        waiting = std::move(next);
        waiting_groups = block.groups();
      }
    }
    multiply();
    for (int64_t r = 0; r < row_tiles; ++r)
      for (size_t i = 0; i < columns.size(); ++i)
        store(columns[i], first_channel + r * kPartitions, static_cast<int>(rows_of(r)),
              accumulators[static_cast<size_t>(r)][i]);
  }

  std::vector<GroupTile> load_input(const BlockGroup& block, const SourceGrid& g) {
    const int64_t band_step = block.first.size[block.axis] * p_.stride[block.axis];
    std::vector<GroupTile> input;
    for (int64_t c = 0; c < p_.input.channels; c += kPartitions) {
      const int64_t channels = std::min(kPartitions, p_.input.channels - c);
      input.emplace_back(block, band_step, g.extent, g.sample, static_cast<int>(block.groups() * channels),
                         p_.load_dtype, tile_);
      input.back().add(p_.input, c, channels, g.lo, 0, static_cast<int>(channels), 0, block.groups());
      input.back().load(context_);
    }
    return input;
  }

  std::vector<GradientTile> load_gradient(const BlockGroup& block, int64_t first_channel, int64_t channels) {
    std::vector<GradientTile> gradient;
    const int64_t per_tile = std::max<int64_t>(1, kPartitions / channels);
    for (int64_t g = 0; g < block.groups(); g += per_tile) {
      const int64_t groups = std::min(per_tile, block.groups() - g);
      for (int64_t c = 0; c < channels; c += kPartitions) {
        const int64_t n = std::min(kPartitions, channels - c);
        gradient.push_back({GroupTile(block, block.first.size[block.axis], block.first.size, {1, 1, 1},
                                      static_cast<int>(groups * n), p_.load_dtype, tile_),
                            groups, n});
        gradient.back().tile.add(p_.out, first_channel + c, n, block.first.at, 0, static_cast<int>(n), g,
                                 groups);
        gradient.back().tile.load(context_);
      }
    }
    return gradient;
  }

  Turned turn(const BlockGroup& block, const SourceGrid& g, const std::vector<GroupTile>& input,
              const std::vector<GradientTile>& gradient, const std::vector<Columns>& columns,
              int64_t channels, const ImageBlock& pixels) {
    Collector left(tile_, p_.load_dtype, pixels.elements(), block.groups() * channels);
    for (const GradientTile& t : gradient) {
      left.add(t.tile.window(0, static_cast<int>(t.groups * t.channels), pixels, {1, 1, 1}, {0, 0, 0},
                             block.first.at));
    }
    int64_t total = 0;
    for (const Columns& c : columns) total += block.groups() * c.count();
    Collector right(tile_, p_.load_dtype, pixels.elements(), total);
    for (const Columns& c : columns) {
      for (int64_t t = c.tap; t < c.tap + c.taps; ++t) {
        for (int64_t ch = c.channel; ch < c.channel + c.channels; ch += kPartitions) {
          const int64_t n = std::min(kPartitions, c.channel + c.channels - ch) * block.groups();
          right.add(input[static_cast<size_t>(ch / kPartitions)].window(
              0, static_cast<int>(n), pixels, correlation_.in_step,
              correlation_.taps[static_cast<size_t>(t)].offset, g.lo));
        }
      }
    }
    return {left.finish(), right.finish()};
  }

  // Collects transposes of [columns, pixels] pieces into a [pixels, total] tile, bank by bank.
  class Collector {
   public:
    Collector(TileBuilder& tile, Dtype dtype, int64_t pixels, int64_t total)
        : tile_(tile), dtype_(dtype), pixels_(static_cast<int>(pixels)) {
      out_ = tile.sbuf(pixels_, {total}, dtype);
      bank_columns_ = isa::kPsumBankBytes / static_cast<int64_t>(isa::dtype_bytes(dtype));
    }
    void add(const Access& piece) {
      const int64_t columns = piece.num_partitions;
      if (filled_ + columns > bank_columns_) flush();
      if (filled_ == 0) bank_ = tile_.psum(pixels_, {bank_columns_}, dtype_);
      tile_.transpose(columns_of(bank_, filled_, columns), piece);
      filled_ += columns;
    }
    const Access& finish() {
      flush();
      return out_;
    }

   private:
    void flush() {
      if (filled_ == 0) return;
      tile_.copy(columns_of(out_, done_, filled_), columns_of(bank_, 0, filled_));
      done_ += filled_;
      filled_ = 0;
    }
    TileBuilder& tile_;
    Dtype dtype_;
    int pixels_;
    Access out_, bank_;
    int64_t bank_columns_ = 0, filled_ = 0, done_ = 0;
  };

  // [rows, (tap, channel)], summed over the tile columns -> weight[o, channel, tap].
  void store(const Columns& c, int64_t row, int rows, const Access& accumulator) {
    const auto part = [&](int64_t k) {
      return slice_partitions(with_dims(accumulator, 0, {{c.channels, c.taps}, {1, c.channels}}),
                              static_cast<int>(k * side_), rows);
    };
    Access out = tile_.sbuf(rows, {c.channels, c.taps}, tile_dtype(p_.weight.dtype));
    const Access turned = with_dims(out, 0, {{1, c.taps}, {c.taps, c.channels}});
    if (column_tiles_ == 1) {
      tile_.copy(turned, part(0));
    } else {
      Access sum = tile_.sbuf(rows, {c.taps, c.channels}, Dtype::kF32);
      tile_.copy(sum, part(0));
      for (int64_t k = 1; k < column_tiles_; ++k)
        tile_.tensor_tensor(k + 1 == column_tiles_ ? turned : sum, sum, part(k), AluOp::kAdd);
    }
    const int64_t at = row * p_.weight_out_stride + c.channel * p_.weight_in_stride;
    if (p_.dense_taps()) {
      tile_.store(hbm_view(context_,
                           window_of(p_.weight, at + c.tap * p_.kernel_stride[2], {rows, c.channels, c.taps},
                                     {p_.weight_out_stride, p_.weight_in_stride, p_.kernel_stride[2]})),
                  columns_of(out, 0, c.count()));
      return;
    }
    for (int64_t t = 0; t < c.taps; ++t) {
      tile_.store(hbm_view(context_, window_of(p_.weight, at + p_.tap_delta(c.tap + t), {rows, c.channels},
                                               {p_.weight_out_stride, p_.weight_in_stride})),
                  with_dims(out, t, {{c.taps, c.channels}}));
    }
  }

  const ConvProblem& p_;
  const KernelContext& context_;
  TileBuilder& tile_;
  Correlation correlation_;
  std::vector<BlockGroup> blocks_;
  int64_t bytes_ = 4, row_tiles_ = 1, channel_blocks_ = 1;
  int64_t side_ = kPartitions, column_tiles_ = 1;  // tile columns of the systolic array
};

}  // namespace

void weight_gradient(const ConvProblem& p, const KernelContext& context, TileBuilder& tile) {
  WeightGradient(p, context, tile).run();
}

}  // namespace trnsim::compiler
