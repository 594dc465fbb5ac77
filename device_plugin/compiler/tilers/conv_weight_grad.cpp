// Weight gradient: pixels are the contraction axis. Blocks of the gradient and of every window of the input
// are transposed on the tensor engine so that up to 128 pixels lie on partitions; [O, window x C] accumulates
// in PSUM over all images.
#include <algorithm>

#include "device_plugin/compiler/tilers/conv_geometry.h"

namespace trnsim::compiler {
namespace {

constexpr int64_t kSourceBytes = 32 * 1024;  // per partition, input tiles of one block
constexpr int64_t kResultBytes = 24 * 1024;  // gradient tiles of one block
constexpr int64_t kAccumulators = 5;         // PSUM banks; the others serve transposes
constexpr int64_t kMaxPackedChannels = 32;

class WeightGradient {
 public:
  WeightGradient(const ConvProblem& p, const KernelContext& context, TileBuilder& tile)
      : p_(p), context_(context), tile_(tile), correlation_(forward_correlation(p)) {
    bytes_ = static_cast<int64_t>(isa::dtype_bytes(p.load_dtype));
    row_tiles_ = ceil_div(p.out.channels, kPartitions);
    channel_blocks_ = ceil_div(p.input.channels, kPartitions);
    // Packing copies runs of the innermost axis; a stride makes them single elements.
    packed_ = p.taps() > 1 && p.input.channels <= kMaxPackedChannels && p.stride[2] == 1;
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
    const int64_t columns_per_pass = std::max<int64_t>(1, kAccumulators / rows_per_pass);
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

  static int64_t source_elements(const void* self, const Spatial& size) {
    const auto* g = static_cast<const WeightGradient*>(self);
    ImageBlock block;
    block.size = size;
    Spatial lo, extent;
    source_range({g->correlation_}, block, &lo, &extent);
    const int64_t volume = size[0] * size[1] * size[2];
    const int64_t windows =
        g->packed_ ? 2 * volume * ceil_div(g->p_.taps() * g->p_.input.channels, kPartitions) : 0;
    return std::max({extent[0] * extent[1] * extent[2] * g->channel_blocks_, windows,
                     volume * g->row_tiles_ * kSourceBytes / kResultBytes});
  }

  void pass(int64_t row_tile, int64_t row_tiles, const std::vector<Columns>& columns) {
    std::vector<std::vector<Access>> accumulators(static_cast<size_t>(row_tiles));
    const auto rows_of = [&](int64_t r) {
      return std::min(kPartitions, p_.out.channels - (row_tile + r) * kPartitions);
    };
    for (int64_t r = 0; r < row_tiles; ++r)
      for (const Columns& c : columns)
        accumulators[static_cast<size_t>(r)].push_back(tile_.psum(static_cast<int>(rows_of(r)), {c.count()}));
    bool started = false;
    const auto blocks =
        output_blocks(p_.out, {1, 1, 1}, kSourceBytes / bytes_, kSourceBytes / bytes_, source_elements, this);
    for (const ImageBlock& block : blocks) {
      Spatial lo, extent;
      source_range({correlation_}, block, &lo, &extent);
      std::vector<SourceTile> input, gradient;
      for (int64_t c = 0; c < p_.input.channels; c += kPartitions) {
        input.push_back(load_source(p_.input, c, std::min(kPartitions, p_.input.channels - c), block.n,
                                    block.count, lo, extent, p_.load_dtype, 0.0f, context_, tile_));
      }
      for (int64_t r = 0; r < row_tiles; ++r) {
        gradient.push_back(load_source(p_.out, (row_tile + r) * kPartitions, rows_of(r), block.n, block.count,
                                       block.at, block.size, p_.load_dtype, 0.0f, context_, tile_));
      }
      std::vector<Windows> windows;
      for (const Columns& c : columns) add_windows(windows, c, input, block);
      for (const ImageBlock& pixels : split_block(block, kPartitions)) {
        const Access left = gradient_columns(gradient, row_tiles, rows_of, pixels);
        const Access right = input_columns(windows, columns, pixels, block);
        int64_t left_at = 0;
        for (int64_t r = 0; r < row_tiles; ++r) {
          int64_t right_at = 0;
          for (size_t i = 0; i < columns.size(); ++i) {
            tile_.matmul(accumulators[static_cast<size_t>(r)][i], columns_of(left, left_at, rows_of(r)),
                         columns_of(right, right_at, columns[i].count()), started);
            right_at += columns[i].count();
          }
          left_at += rows_of(r);
        }
        started = true;
      }
    }
    for (int64_t r = 0; r < row_tiles; ++r)
      for (size_t i = 0; i < columns.size(); ++i)
        store(columns[i], (row_tile + r) * kPartitions, accumulators[static_cast<size_t>(r)][i]);
  }

  // Something whose pixels are transposed into `columns` columns: window(pixels) is [columns, pixels].
  struct Windows {
    Access tile;  // packed: [(tap, channel), block outputs]
    const SourceTile* source = nullptr;
    Spatial offset{0, 0, 0};
    int64_t first_channel = 0, columns = 0;  // partitions of the source tile
  };

  void add_windows(std::vector<Windows>& out, const Columns& c, const std::vector<SourceTile>& input,
                   const ImageBlock& block) {
    if (packed_) {
      const int64_t channels = p_.input.channels;
      const int64_t per = std::max<int64_t>(1, kPartitions / channels);
      for (int64_t t = 0; t < c.taps; t += per) {
        const int64_t taps = std::min(per, c.taps - t);
        Windows w;
        w.columns = taps * channels;
        w.tile = tile_.sbuf(static_cast<int>(w.columns), {block.elements()}, p_.load_dtype);
        for (int64_t i = 0; i < taps; ++i) {
          tile_.dma(slice_partitions(w.tile, static_cast<int>(i * channels), static_cast<int>(channels)),
                    input[0].window(block, correlation_.in_step,
                                    correlation_.taps[static_cast<size_t>(c.tap + t + i)].offset));
        }
        out.push_back(w);
      }
      return;
    }
    for (int64_t t = 0; t < c.taps; ++t) {
      for (int64_t ch = c.channel; ch < c.channel + c.channels; ch += kPartitions) {
        Windows w;
        w.source = &input[static_cast<size_t>(ch / kPartitions)];
        w.offset = correlation_.taps[static_cast<size_t>(c.tap + t)].offset;
        w.columns = std::min(kPartitions, c.channel + c.channels - ch);
        out.push_back(w);
      }
    }
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

  template <typename Rows>
  Access gradient_columns(const std::vector<SourceTile>& gradient, int64_t row_tiles, Rows rows_of,
                          const ImageBlock& pixels) {
    int64_t total = 0;
    for (int64_t r = 0; r < row_tiles; ++r) total += rows_of(r);
    Collector collect(tile_, p_.load_dtype, pixels.elements(), total);
    for (const SourceTile& g : gradient) collect.add(g.window(pixels, {1, 1, 1}, {0, 0, 0}));
    return collect.finish();
  }

  Access input_columns(const std::vector<Windows>& windows, const std::vector<Columns>& columns,
                       const ImageBlock& pixels, const ImageBlock& block) {
    int64_t total = 0;
    for (const Columns& c : columns) total += c.count();
    Collector collect(tile_, p_.load_dtype, pixels.elements(), total);
    for (const Windows& w : windows) {
      if (w.source != nullptr) {
        collect.add(w.source->window(pixels, correlation_.in_step, w.offset));
        continue;
      }
      const Spatial pitch{block.size[1] * block.size[2], block.size[2], 1};
      int64_t delta = (pixels.n - block.n) * block.size[0] * pitch[0];
      for (int a = 0; a < 3; ++a) delta += (pixels.at[a] - block.at[a]) * pitch[a];
      collect.add(region(w.tile, delta, pixels.count, block.size[0] * pitch[0], pixels.size, pitch));
    }
    return collect.finish();
  }

  // [rows, (tap, channel)] -> weight[o, channel, tap].
  void store(const Columns& c, int64_t row, const Access& accumulator) {
    const int rows = accumulator.num_partitions;
    Access out = tile_.sbuf(rows, {c.channels, c.taps}, tile_dtype(p_.weight.dtype));
    tile_.copy(with_dims(out, 0, {{1, c.taps}, {c.taps, c.channels}}),
               with_dims(accumulator, 0, {{c.channels, c.taps}, {1, c.channels}}));
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
  int64_t bytes_ = 4, row_tiles_ = 1, channel_blocks_ = 1;
  bool packed_ = false;
};

}  // namespace

void weight_gradient(const ConvProblem& p, const KernelContext& context, TileBuilder& tile) {
  WeightGradient(p, context, tile).run();
}

}  // namespace trnsim::compiler
