// Convolution forward and input gradient as an implicit matrix product: contraction channels on partitions, a strided
// window of the source image as the moving matrix, all window positions accumulated in PSUM.
//
// Few channels would leave most of the systolic array idle. So window positions share the partitions (the source is
// loaded once per position, moved by it), and the array is cut into tiles that work side by side: a tile row holds a
// group of images or a band of an image, and tile columns take different outputs of it. Which positions and how many
// tiles is decided by the laws of time.
#include <algorithm>
#include <limits>

#include "device_plugin/compiler/cost.h"
#include "device_plugin/compiler/tilers/conv_groups.h"

namespace trnsim::compiler {
namespace {

constexpr int64_t kSourceBytes = 40 * 1024;  // per partition, of one block's source tiles together
constexpr int64_t kResultBytes = 24 * 1024;  // of one block's result tile
constexpr int64_t kWeightBytes = 72 * 1024;  // of the stationary matrices of one block of result channels
constexpr int64_t kBanksPerRound = 4;        // PSUM banks that accumulate together; the others are being read

int64_t product(const Spatial& s) { return s[0] * s[1] * s[2]; }
int64_t array_side(int64_t n) { return n <= 32 ? 32 : n <= 64 ? 64 : kPartitions; }

// How window positions and outputs share the systolic array.
struct ArrayPlan {
  Spatial packed{1, 1, 1};  // window positions side by side on partitions, per axis
  Spatial steps{1, 1, 1};   // and one after the other: position side * steps + step
  int outer = 0;            // the axis whose last side may have fewer steps; slowest on partitions
  int64_t rows = kPartitions, columns = kPartitions;  // of a tile of the array
  int64_t row_tiles = 1, column_tiles = 1;
};

// One matrix product: `rows` partitions of the source tile of a channel block, read at `offset`.
struct Step {
  size_t block;
  int64_t rows;
  int64_t column;  // of the weight tile
  Spatial offset;
};

class Correlator {
 public:
  Correlator(const ConvProblem& p, bool input_gradient, const KernelContext& context, TileBuilder& tile)
      : p_(p),
        gradient_(input_gradient),
        context_(context),
        tile_(tile),
        config_(target_config(tile.target())) {
    source_ = gradient_ ? p.out : p.input;
    result_ = gradient_ ? p.input : p.out;
    correlations_ =
        gradient_ ? input_gradient_correlations(p) : std::vector<Correlation>{forward_correlation(p)};
    bytes_ = static_cast<int64_t>(isa::dtype_bytes(p.load_dtype));
    channel_blocks_ = ceil_div(source_.channels, kPartitions);
    prepare_epilogue();
    choose_plan();
  }

  void run() {
    const int64_t per_result_channel = channel_blocks_ * product(plan_.steps) * bytes_;
    const int64_t fit = std::max<int64_t>(1, kWeightBytes / (per_result_channel * kPartitions)) * kPartitions;
    for (int64_t m = 0; m < result_.channels; m += fit) {
      result_channel0_ = m;
      result_channels_ = std::min(fit, result_.channels - m);
      prepare_weights();
      bias_.clear();
      if (!gradient_ && p_.bias.buffer >= 0) bias_ = channel_columns(p_.bias, p_.bias_stride);
      for (Operand& o : operands_)
        if (o.per_channel()) o.columns = channel_columns(o.view.base, o.view.channel_stride);
      for (const BlockGroup& group : blocks()) run_block(group);
    }
  }

 private:
  // ---- the plan ----
  bool phases() const { return correlations_.size() > 1; }
  int64_t pixels() const { return result_.n * product(result_.size); }

  // Matrix products, source loads and stores one after the other: small problems have nothing to overlap them with.
  double estimate_ns(const ArrayPlan& plan) const {
    const int64_t channels = std::min(source_.channels, kPartitions);
    const int64_t rows = product(plan.packed) * channels, units = plan.row_tiles * plan.column_tiles;
    const int64_t per_unit = ceil_div(pixels(), units), products = ceil_div(per_unit, kPsumColumns);
    isa::Instruction i;
    i.opcode = isa::Opcode::kMultiplyMoving;
    i.dst.num_partitions = static_cast<uint16_t>(std::min(result_.channels, plan.columns));
    i.src0 = dense_access(isa::Space::kSbuf, rows, {ceil_div(per_unit, products)}, p_.load_dtype);
    double unit_ns = static_cast<double>(products) * compute_time(i, Engine::kTensor, config_).issue_ns;
    // The clock rises only while enough rows are in use.
    if (static_cast<double>(rows * units) <
        config_.tensor.governor_threshold * static_cast<double>(kPartitions)) {
      unit_ns /= config_.tensor.governor_cold_fraction;
    }
    const double issue_ns = static_cast<double>(units * (products + 1)) * config_.sequencer.dispatch_ns;
    const double steps = static_cast<double>(channel_blocks_ * product(plan.steps));
    const double bytes_per_ns = config_.dma.engines * config_.dma.bytes_per_cycle * config_.dma.clock_ghz /
                                static_cast<double>(kPartitions);
    const auto moved_ns = [&](int64_t bytes, int64_t partitions) {
      return static_cast<double>(bytes) /
             (bytes_per_ns * static_cast<double>(std::min(partitions, kPartitions)));
    };
    const int64_t source =
        source_.n * source_.channels * product(source_.size) * bytes_ * product(plan.packed);
    const int64_t stored =
        pixels() * result_.channels * static_cast<int64_t>(isa::dtype_bytes(result_.base.dtype));
    const int64_t result_rows = std::min(result_.channels, plan.columns) * plan.column_tiles;
    // Sources by side; weights in one transfer unless the last side has fewer steps.
    const int64_t sides = product(plan.packed);
    const bool even = p_.kernel[plan.outer] % plan.packed[plan.outer] == 0;
    const double transfers =
        static_cast<double>(plan.row_tiles * (sides + (even ? 1 : sides)) + plan.column_tiles);
    return steps * std::max(unit_ns, issue_ns) + moved_ns(source, rows * plan.row_tiles) +
           moved_ns(stored, result_rows) + transfers * config_.dma.static_trigger_ns;
  }

  void choose_plan() {
    const int64_t channels = std::min(source_.channels, kPartitions);
    const int64_t columns = array_side(std::min(result_.channels, kPartitions));
    double best = std::numeric_limits<double>::infinity();
    const auto consider = [&](ArrayPlan plan) {
      plan.rows = array_side(product(plan.packed) * channels);
      plan.columns = columns;
      const int64_t most_rows = channel_blocks_ > 1 ? 1 : kPartitions / plan.rows;
      const int64_t most_columns = phases() ? 1 : kPartitions / columns;
      for (plan.row_tiles = 1; plan.row_tiles <= most_rows; plan.row_tiles *= 2) {
        for (plan.column_tiles = 1; plan.column_tiles <= most_columns; plan.column_tiles *= 2) {
          const double ns = estimate_ns(plan);
          if (ns >= best) continue;
          best = ns;
          plan_ = plan;
        }
      }
    };
    const int64_t most = phases() || channel_blocks_ > 1 ? 1 : kPartitions / channels;
    Spatial n;
    for (n[0] = 1; n[0] <= std::min(most, p_.kernel[0]); ++n[0]) {
      for (n[1] = 1; n[1] <= std::min(most / n[0], p_.kernel[1]); ++n[1]) {
        for (n[2] = 1; n[2] <= std::min(most / n[0] / n[1], p_.kernel[2]); ++n[2]) {
          ArrayPlan plan;
          plan.packed = n;
          int uneven = 0;
          bool needed = true;
          for (int a = 0; a < 3; ++a) {
            plan.steps[a] = ceil_div(p_.kernel[a], n[a]);
            needed = needed && ceil_div(p_.kernel[a], plan.steps[a]) == n[a];
            if (p_.kernel[a] % n[a] == 0) continue;
            plan.outer = a;
            ++uneven;
          }
          if (needed && uneven <= 1) consider(plan);
        }
      }
    }
  }

  // Axes of the sides (window positions that share the partitions), slowest first.
  Spatial side_axes() const {
    Spatial axes{plan_.outer, 0, 0};
    for (int a = 0, n = 1; a < 3; ++a)
      if (a != plan_.outer) axes[static_cast<size_t>(n++)] = a;
    return axes;
  }
  std::vector<Spatial> sides() const {
    std::vector<Spatial> out;
    const Spatial order = side_axes();
    const auto [x, y, z] = std::array{static_cast<size_t>(order[0]), static_cast<size_t>(order[1]),
                                      static_cast<size_t>(order[2])};
    Spatial s{0, 0, 0};
    for (s[x] = 0; s[x] < plan_.packed[x]; ++s[x])
      for (s[y] = 0; s[y] < plan_.packed[y]; ++s[y])
        for (s[z] = 0; s[z] < plan_.packed[z]; ++s[z]) out.push_back(s);
    return out;
  }
  // The first window position of a side.
  Spatial first_position(const Spatial& side) const {
    return {side[0] * plan_.steps[0], side[1] * plan_.steps[1], side[2] * plan_.steps[2]};
  }
  int64_t flat(const Spatial& position) const {
    return (position[0] * p_.kernel[1] + position[1]) * p_.kernel[2] + position[2];
  }

  std::vector<Step> steps_of(const Correlation& c) const {
    std::vector<Step> out;
    for (int64_t ch = 0; ch < source_.channels; ch += kPartitions) {
      const int64_t channels = std::min(kPartitions, source_.channels - ch);
      const size_t block = static_cast<size_t>(ch / kPartitions);
      if (product(plan_.packed) == 1) {
        for (const ConvTap& t : c.taps) out.push_back({block, channels, t.index, t.offset});
        continue;
      }
      const int64_t per_outer = product(plan_.packed) / plan_.packed[plan_.outer] * channels;
      Spatial u;
      for (u[0] = 0; u[0] < plan_.steps[0]; ++u[0])
        for (u[1] = 0; u[1] < plan_.steps[1]; ++u[1])
          for (u[2] = 0; u[2] < plan_.steps[2]; ++u[2]) {
            const int64_t sides =
                (p_.kernel[plan_.outer] - 1 - u[plan_.outer]) / plan_.steps[plan_.outer] + 1;
            out.push_back({block, sides * per_outer, (u[0] * plan_.steps[1] + u[1]) * plan_.steps[2] + u[2],
                           c.taps[static_cast<size_t>(flat(u))].offset});
          }
    }
    return out;
  }

  // ---- stationary matrices ----
  // A weight tile: (side, channel) on the partitions of every tile row, the matrix of result channels x steps free.
  void prepare_weights() {
    weights_.clear();
    padded_ = plan_.column_tiles > 1 ? plan_.columns : result_channels_;
    for (int64_t c = 0; c < source_.channels; c += kPartitions) {
      const int64_t channels = std::min(kPartitions, source_.channels - c);
      weights_.push_back(turns_weights(channels) ? transposed_weights(c, channels)
                                                 : direct_weights(c, channels));
    }
  }

  Access weight_access(int64_t delta, std::vector<int64_t> sizes, std::vector<int64_t> strides) {
    return hbm_view(context_, window_of(p_.weight, delta, std::move(sizes), std::move(strides)));
  }

  // The weight of a forward convolution has the contraction channels inside: many short runs, or long ones and a
  // transpose on the tensor engine.
  bool turns_weights(int64_t channels) {
    if (gradient_ || product(plan_.packed) > 1 || plan_.row_tiles > 1 || plan_.column_tiles > 1) return false;
    const int64_t taps = p_.taps();
    const auto in_sbuf = [&](int64_t partitions, const std::vector<int64_t>& dims) {
      return dense_access(isa::Space::kSbuf, partitions, dims, p_.load_dtype);
    };
    isa::Instruction load;
    load.opcode = isa::Opcode::kDmaCopy;
    load.dst = in_sbuf(channels, {result_channels_, taps});
    load.src0 = weight_access(0, {channels, result_channels_, p_.kernel[0], p_.kernel[1], p_.kernel[2]},
                              {p_.weight_in_stride, p_.weight_out_stride, p_.kernel_stride[0],
                               p_.kernel_stride[1], p_.kernel_stride[2]});
    const double direct_ns = transfer_time(load, config_).service_ns;
    const int64_t rows = std::min(kPartitions, result_channels_);
    load.dst = in_sbuf(rows, {channels, taps});
    load.src0 = weight_access(0, {rows, channels, p_.kernel[0], p_.kernel[1], p_.kernel[2]},
                              {p_.weight_out_stride, p_.weight_in_stride, p_.kernel_stride[0],
                               p_.kernel_stride[1], p_.kernel_stride[2]});
    isa::Instruction turn;
    turn.opcode = isa::Opcode::kTranspose;
    turn.src0 = in_sbuf(rows, {channels});
    isa::Instruction drain;
    drain.opcode = isa::Opcode::kCopy;
    drain.dst = in_sbuf(channels, {rows});
    drain.src0 = drain.dst;
    drain.src0.space = isa::Space::kPsum;
    const TransferTime natural = transfer_time(load, config_);
    const ComputeTime t = compute_time(turn, Engine::kTensor, config_),
                      d = compute_time(drain, Engine::kVector, config_);
    const double blocks = static_cast<double>(ceil_div(result_channels_, rows));
    return blocks * (natural.service_ns + static_cast<double>(taps) * std::max(t.issue_ns, d.issue_ns)) +
               t.latency_ns + d.latency_ns <
           direct_ns;
  }

  struct Weights {
    Access tile;
    int64_t channel_step, step_step;  // between result channels and between steps
  };

  Weights direct_weights(int64_t channel, int64_t channels) {
    const int64_t contraction_stride = gradient_ ? p_.weight_out_stride : p_.weight_in_stride;
    const int64_t result_stride = gradient_ ? p_.weight_in_stride : p_.weight_out_stride;
    const int64_t steps = product(plan_.steps), packed = product(plan_.packed);
    const int64_t partitions = (plan_.row_tiles - 1) * plan_.rows + packed * channels;
    Access w = tile_.sbuf(static_cast<int>(partitions), {padded_, steps}, p_.load_dtype);
    if (padded_ > result_channels_) tile_.memset(columns_of(w, 0, padded_ * steps), 0.0f);
    const Spatial axes = side_axes();
    const Spatial inner{plan_.steps[1] * plan_.steps[2], plan_.steps[2], 1};
    for (int64_t r = 0; r < plan_.row_tiles; ++r) {
      // All sides in one transfer; the last of the outer axis may have fewer steps, and a descriptor has five dims.
      const auto load = [&](const Spatial& from, const Spatial& sides, int64_t first_side) {
        int64_t delta = channel * contraction_stride + result_channel0_ * result_stride;
        Spatial count = plan_.steps;
        std::vector<int64_t> sizes, strides;
        for (int64_t a : axes) {
          const auto k = static_cast<size_t>(a);
          delta += from[k] * plan_.steps[k] * p_.kernel_stride[k];
          count[k] = std::min(count[k], p_.kernel[k] - (from[k] + sides[k] - 1) * plan_.steps[k]);
          sizes.push_back(sides[k]);
          strides.push_back(plan_.steps[k] * p_.kernel_stride[k]);
        }
        sizes.insert(sizes.end(), {channels, result_channels_, count[0], count[1], count[2]});
        strides.insert(strides.end(), {contraction_stride, result_stride, p_.kernel_stride[0],
                                       p_.kernel_stride[1], p_.kernel_stride[2]});
        if (!fits_descriptor(sizes)) return false;
        const Access dst = region(w, 0, result_channels_, steps, count, inner);
        tile_.load(slice_partitions(dst, static_cast<int>(r * plan_.rows + first_side * channels),
                                    static_cast<int>(product(sides) * channels)),
                   weight_access(delta, sizes, strides));
        return true;
      };
      const bool even =
          p_.kernel[static_cast<size_t>(plan_.outer)] % plan_.packed[static_cast<size_t>(plan_.outer)] == 0;
      if (even && load({0, 0, 0}, plan_.packed, 0)) continue;
      const std::vector<Spatial> all = sides();
      for (size_t s = 0; s < all.size(); ++s) load(all[s], {1, 1, 1}, static_cast<int64_t>(s));
    }
    return {w, steps, 1};
  }

  Weights transposed_weights(int64_t channel, int64_t channels) {
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
    return {w, 1, result_channels_};
  }

  // Columns [m, m + count) of a step's matrix, on tile row `r`.
  Access stationary(const Step& s, int64_t r, int64_t m, int64_t count) const {
    const Weights& w = weights_[s.block];
    return slice_partitions(
        with_dims(w.tile, m * w.channel_step + s.column * w.step_step, {{w.channel_step, count}}),
        static_cast<int>(r * plan_.rows), static_cast<int>(s.rows));
  }

  // One value per result channel, FP32, on the partitions of every tile column; one tile per 128 channels.
  std::vector<Access> channel_columns(const View& base, int64_t stride) {
    std::vector<Access> out;
    for (int64_t m = 0; m < result_channels_; m += kPartitions) {
      const int64_t rows = std::min(kPartitions, result_channels_ - m);
      const int64_t pitch = plan_.column_tiles > 1 ? plan_.columns : rows;
      Access b = tile_.sbuf(static_cast<int>(pitch * plan_.column_tiles), {1}, Dtype::kF32);
      const auto repeated = [&](int64_t times) {
        return hbm_view(context_,
                        window_of(base, (result_channel0_ + m) * stride, {times, rows}, {0, stride}));
      };
      if (pitch % rows == 0) {  // no partition stays empty: one transfer
        tile_.load(b, repeated(plan_.column_tiles * (pitch / rows)));
        out.push_back(b);
        continue;
      }
      tile_.memset(b, 0.0f);
      for (int64_t c = 0; c < plan_.column_tiles; ++c) {
        tile_.load(slice_partitions(b, static_cast<int>(c * pitch), static_cast<int>(rows)), repeated(1));
      }
      out.push_back(b);
    }
    return out;
  }

  // ---- epilogue ----
  struct Operand {
    ImageView view;
    std::vector<Access> columns;  // per channel: as the bias
    Access tile;                  // else: of the wave at hand, [partitions, groups, images, or all elements]
    bool still() const {          // no spatial axis
      for (int a = 0; a < 3; ++a)
        if (view.size[a] > 1 && view.stride[a] != 0) return false;
      return true;
    }
    // FP32 columns: integers stay tiles, which expressions take as they are.
    bool per_channel() const {
      return still() && (view.n == 1 || view.n_stride == 0) && isa::is_float(view.base.dtype);
    }
  };

  // The expressions on tiles: input 0 the sum, input 1 the bias if there is one, then the operands.
  void prepare_epilogue() {
    if (p_.epilogue == nullptr) return;
    for (const ImageView& v : p_.extra) operands_.push_back({v, {}, {}});
    const bool biased = !gradient_ && p_.bias.buffer >= 0;
    if (!biased) {
      epilogue_ = *p_.epilogue;
    } else {
      Expr e;
      e.op = ExprOp::kInput;
      epilogue_.push_back(e);
      e.index = 1;
      epilogue_.push_back(e);
      e.op = ExprOp::kAdd;
      e.index = 0;
      e.a = 0;
      e.b = 1;
      epilogue_.push_back(e);
      std::vector<int32_t> renamed;
      for (Expr x : *p_.epilogue) {
        if (x.op == ExprOp::kInput && x.index == 0) {
          renamed.push_back(2);
          continue;
        }
        if (x.op == ExprOp::kInput) ++x.index;
        for (int32_t* o : {&x.a, &x.b, &x.c})
          if (*o >= 0) *o = renamed[static_cast<size_t>(*o)];
        epilogue_.push_back(x);
        renamed.push_back(static_cast<int32_t>(epilogue_.size() - 1));
      }
      if (renamed.back() + 1 != static_cast<int32_t>(epilogue_.size()))
        throw_internal("an epilogue without a result");
    }
    roots_ = {static_cast<int32_t>(epilogue_.size() - 1)};
  }

  // ---- blocks of the result ----
  // The source positions that one group's outputs of a block read: the grid of the first side.
  SourceGrid grid(const ImageBlock& block) const {
    SourceGrid g;
    if (product(plan_.packed) == 1) {
      source_range(correlations_, block, &g.lo, &g.extent);
    } else {
      const Correlation& c = correlations_[0];
      for (int a = 0; a < 3; ++a) {
        Spatial last{0, 0, 0};
        last[a] = plan_.steps[a] - 1;
        const int64_t from = c.taps[0].offset[a], to = c.taps[static_cast<size_t>(flat(last))].offset[a];
        g.lo[a] = block.at[a] * c.in_step[a] + std::min(from, to);
        g.extent[a] = (block.size[a] - 1) * c.in_step[a] + std::max(from, to) - std::min(from, to) + 1;
      }
    }
    if (phases()) return g;
    // Positions between the steps are skipped where no window position needs them; not in the innermost axis, whose
    // runs they make.
    for (int a = 0; a < 2; ++a) {
      if (plan_.steps[a] > 1) continue;
      g.sample[a] = correlations_[0].in_step[a];
      g.extent[a] = ceil_div(g.extent[a], g.sample[a]);
    }
    return g;
  }

  std::vector<BlockGroup> blocks() const {
    GroupLimits limits;
    limits.multiple = correlations_[0].out_step;
    limits.groups = plan_.row_tiles;
    limits.room = kSourceBytes / bytes_;
    const int64_t result_bytes = static_cast<int64_t>(isa::dtype_bytes(tile_dtype(result_.base.dtype)));
    limits.elements = [this, result_bytes](const Spatial& size) {
      ImageBlock b;
      b.size = size;
      const int64_t results = ceil_div(product(size) * plan_.row_tiles, plan_.column_tiles) *
                              (1 + static_cast<int64_t>(operands_.size()));
      return std::max(grid(b).elements() * channel_blocks_,
                      results * result_bytes * kSourceBytes / (kResultBytes * bytes_));
    };
    return block_groups(result_, limits);
  }

  void run_block(const BlockGroup& group) {
    const SourceGrid g = grid(group.first);
    const Spatial& in_step = correlations_[0].in_step;
    const int64_t band_step =
        group.first.size[group.axis] * in_step[group.axis] / correlations_[0].out_step[group.axis];
    const std::vector<Spatial> all = sides();
    const int64_t groups = group.groups();
    std::vector<GroupTile> sources;
    for (int64_t ch = 0; ch < source_.channels; ch += kPartitions) {
      const int64_t channels = std::min(kPartitions, source_.channels - ch);
      const int64_t used = product(plan_.packed) * channels;
      const int64_t pitch = groups > 1 ? plan_.rows : used;
      sources.emplace_back(group, band_step, g.extent, g.sample,
                           static_cast<int>((groups - 1) * pitch + used), p_.load_dtype, tile_);
      for (size_t s = 0; s < all.size(); ++s) {
        Spatial lo = g.lo;
        if (all.size() > 1) {
          const std::vector<ConvTap>& taps = correlations_[0].taps;
          for (int a = 0; a < 3; ++a)
            lo[a] += taps[static_cast<size_t>(flat(first_position(all[s])))].offset[a] - taps[0].offset[a];
        }
        sources.back().add(source_, ch, channels, lo, static_cast<int>(static_cast<int64_t>(s) * channels),
                           static_cast<int>(pitch), 0, groups);
      }
      sources.back().load(context_);
    }
    ImageBlock unit = group.first;
    unit.n = 0;
    for (int64_t m = 0; m < result_channels_; m += kPartitions) {
      const int64_t channels = std::min(kPartitions, result_channels_ - m);
      if (plan_.column_tiles == 1) {
        run_wave({group, g, sources, {unit}, m, channels, channels});
        continue;
      }
      // Outputs of a group, one part per tile column; a wave takes parts of one shape.
      const std::vector<ImageBlock> parts = split_block(unit, ceil_div(unit.elements(), plan_.column_tiles));
      for (size_t i = 0; i < parts.size();) {
        size_t end = i + 1;
        while (end < parts.size() && end - i < static_cast<size_t>(plan_.column_tiles) &&
               parts[end].size == parts[i].size && parts[end].count == parts[i].count)
          ++end;
        run_wave({group,
                  g,
                  sources,
                  {parts.begin() + static_cast<long>(i), parts.begin() + static_cast<long>(end)},
                  m,
                  channels,
                  plan_.columns});
        i = end;
      }
    }
  }

  struct Wave {
    const BlockGroup& group;
    const SourceGrid& grid;
    const std::vector<GroupTile>& sources;
    std::vector<ImageBlock> parts;  // outputs of a group by tile column, of one shape
    int64_t m, channels;            // result channels
    int64_t pitch;                  // partitions of a tile column's results
  };

  void run_wave(const Wave& w) {
    const int64_t groups = w.group.groups(), columns = static_cast<int64_t>(w.parts.size());
    Access out = tile_.sbuf(static_cast<int>(columns * w.pitch), {groups, w.parts[0].elements()},
                            tile_dtype(result_.base.dtype));
    for (Operand& o : operands_) {
      if (o.per_channel()) continue;
      const int64_t each = o.still() ? w.parts[0].count : w.parts[0].elements();
      o.tile = tile_.sbuf(out.num_partitions, {groups, each}, tile_dtype(o.view.base.dtype));
      if (w.pitch > w.channels) tile_.memset(o.tile, 0.0f);
      for (int64_t c = 0; c < columns; ++c) {
        transfer(w, c, o.view, o.still(), o.tile,
                 [&](const Access& sbuf, const Access& hbm) { tile_.load(sbuf, hbm); });
      }
    }
    for (const Correlation& c : correlations_) run_phase(w, c, out);
    for (int64_t c = 0; c < columns; ++c) {
      transfer(w, c, result_, false, out,
               [&](const Access& sbuf, const Access& hbm) { tile_.store(hbm, sbuf); });
    }
  }

  // A bank of sums -> dst, both with the same free dims; `place` finds the same elements in an operand's tile.
  void finish(const Wave& w, const Access& dst, const Access& bank, const std::vector<int64_t>& dims,
              const std::function<Access(const Operand&)>& place) {
    const size_t block = static_cast<size_t>(w.m / kPartitions);
    if (epilogue_.empty()) {
      if (bias_.empty()) {
        tile_.copy(dst, bank);
      } else {
        tile_.tensor_scalar(dst, bank, AluOp::kAdd, TileBuilder::column(bias_[block]));
      }
      return;
    }
    ExprTiles tiles;
    tiles.partitions = dst.num_partitions;
    tiles.dims = dims;
    const auto add = [&](const Access& input, const Access& column) {
      tiles.inputs.push_back(input);
      tiles.columns.push_back(column);
    };
    const auto column = [&](const Access& a) { return slice_partitions(a, 0, dst.num_partitions); };
    add(bank, {});
    if (!bias_.empty()) add({}, column(bias_[block]));
    for (const Operand& o : operands_) {
      if (o.per_channel()) {
        add({}, column(o.columns[block]));
      } else {
        add(place(o), {});
      }
    }
    const Access into[1] = {dst};
    emit_expr(tile_, epilogue_, roots_, tiles, into);
  }

  // Rectangle `r` of the first part, in part `c`.
  static ImageBlock moved(const Wave& w, ImageBlock r, int64_t c) {
    const ImageBlock &from = w.parts[0], &to = w.parts[static_cast<size_t>(c)];
    r.n += to.n - from.n;
    for (int a = 0; a < 3; ++a) r.at[a] += to.at[a] - from.at[a];
    return r;
  }

  isa::PeTile array_tile(int64_t row, int64_t column) const {
    if (plan_.row_tiles * plan_.column_tiles == 1) return {};
    return {static_cast<uint8_t>(row * plan_.rows), static_cast<uint8_t>(column * plan_.columns),
            static_cast<uint8_t>(plan_.rows), static_cast<uint8_t>(plan_.columns)};
  }

  void run_phase(const Wave& w, const Correlation& c, const Access& out) {
    const ImageBlock& part = w.parts[0];
    const ImageBlock outputs = phase_outputs(c, part);
    if (outputs.elements() == 0) return;
    const int64_t groups = w.group.groups(), columns = static_cast<int64_t>(w.parts.size());
    const Spatial pitch{part.size[1] * part.size[2], part.size[2], 1};
    // Outputs `r` of group `g` in a tile like `out`; free dims as the rectangle has axes of more than one element.
    const auto target = [&](const Access& t, int64_t g, const ImageBlock& r) {
      int64_t delta = g * part.elements() + (r.n - part.n) * part.size[0] * pitch[0];
      Spatial step;
      for (int a = 0; a < 3; ++a) {
        delta += (r.at[a] * c.out_step[a] + c.phase[a] - part.at[a]) * pitch[a];
        step[a] = c.out_step[a] * pitch[a];
      }
      return with_dims(t, delta, dims_of(r, part.size[0] * pitch[0], step));
    };
    const auto finish_rectangle = [&](const Access& bank, int64_t g, const ImageBlock& r) {
      if (epilogue_.empty()) return finish(w, merged(target(out, g, r)), bank, {}, nullptr);
      std::vector<int64_t> dims;
      for (const auto& [step, size] : dims_of(r, 0, {0, 0, 0})) dims.push_back(size);
      const Spatial dense{r.size[1] * r.size[2], r.size[2], 1};
      finish(w, target(out, g, r), with_dims(bank, 0, dims_of(r, r.size[0] * dense[0], dense)), dims,
             [&](const Operand& o) {
               if (!o.still()) return target(o.tile, g, r);
               return with_dims(o.tile, g * part.count + r.n - part.n, dims_of(r, 1, {0, 0, 0}));
             });
    };
    if (c.taps.empty()) {  // positions between the strides that no window reaches
      for (int64_t g = 0; g < groups; ++g) {
        if (epilogue_.empty()) {
          tile_.memset(target(out, g, outputs), 0.0f);
          continue;
        }
        Access zeros = tile_.sbuf(out.num_partitions, {outputs.elements()}, Dtype::kF32);
        tile_.memset(zeros, 0.0f);
        finish_rectangle(zeros, g, outputs);
      }
      return;
    }
    const std::vector<Step> steps = steps_of(c);
    const std::vector<ImageBlock> rectangles = split_block(outputs, kPsumColumns);
    const size_t per_round = static_cast<size_t>(std::max<int64_t>(1, kBanksPerRound / groups));
    for (size_t first = 0; first < rectangles.size(); first += per_round) {
      const size_t end = std::min(rectangles.size(), first + per_round);
      std::vector<Access> banks;
      for (size_t i = first; i < end; ++i)
        for (int64_t g = 0; g < groups; ++g)
          banks.push_back(tile_.psum(out.num_partitions, {rectangles[i].elements()}));
      for (size_t s = 0; s < steps.size(); ++s) {
        const Step& step = steps[s];
        for (size_t i = first; i < end; ++i) {
          for (int64_t g = 0; g < groups; ++g) {
            const Access& bank = banks[(i - first) * static_cast<size_t>(groups) + static_cast<size_t>(g)];
            for (int64_t k = 0; k < columns; ++k) {
              tile_.matmul(
                  slice_partitions(bank, static_cast<int>(k * w.pitch), static_cast<int>(w.pitch)),
                  stationary(step, g, w.m, w.pitch),
                  w.sources[step.block].window(static_cast<int>(g * plan_.rows), static_cast<int>(step.rows),
                                               moved(w, rectangles[i], k), c.in_step, step.offset, w.grid.lo),
                  s > 0, array_tile(g, k));
            }
          }
        }
      }
      for (size_t i = first; i < end; ++i) {
        for (int64_t g = 0; g < groups; ++g) {
          const Access& bank = banks[(i - first) * static_cast<size_t>(groups) + static_cast<size_t>(g)];
          finish_rectangle(bank, g, rectangles[i]);
        }
      }
    }
  }

  // Neighbouring dims that are one run become one.
  static Access merged(const Access& a) {
    std::vector<std::pair<int64_t, int64_t>> dims;
    for (int i = 0; i < a.num_dims; ++i) {
      if (!dims.empty() && dims.back().first == a.step[i] * a.size[i]) {
        dims.back() = {a.step[i], dims.back().second * a.size[i]};
      } else {
        dims.emplace_back(a.step[i], a.size[i]);
      }
    }
    return with_dims(a, 0, dims);
  }

  // (step, size) of the axes of a rectangle with more than one element; at least one.
  static std::vector<std::pair<int64_t, int64_t>> dims_of(const ImageBlock& r, int64_t image_step,
                                                          const Spatial& step) {
    std::vector<std::pair<int64_t, int64_t>> dims;
    if (r.count > 1) dims.emplace_back(image_step, r.count);
    for (int a = 0; a < 3; ++a)
      if (r.size[a] > 1) dims.emplace_back(step[a], r.size[a]);
    if (dims.empty()) dims.emplace_back(1, 1);
    return dims;
  }

  // Moves part `c` of all groups between an image in HBM and a tile [partitions, groups, elements of a part]; `still`:
  // [partitions, groups, images], without the spatial axes.
  template <typename Move>
  void transfer(const Wave& w, int64_t c, const ImageView& image, bool still, const Access& t, Move move) {
    const ImageBlock& part = w.parts[static_cast<size_t>(c)];
    const Spatial size = still ? Spatial{1, 1, 1} : part.size;
    const int64_t elements = part.count * product(size), groups = w.group.groups(), axis = w.group.axis;
    const int first = static_cast<int>(c * w.pitch), channels = static_cast<int>(w.channels);
    const auto move_groups = [&](int64_t group, int64_t images, int64_t bands) {
      const ImageBlock member = w.group.member(group);
      int64_t delta = (result_channel0_ + w.m) * image.channel_stride + (part.n + member.n) * image.n_stride;
      for (int a = 0; a < 3; ++a)
        delta += (part.at[a] + member.at[a] - w.group.first.at[a]) * image.stride[a];
      const View v =
          window_of(image.base, delta, {w.channels, images, bands, part.count, size[0], size[1], size[2]},
                    {image.channel_stride, w.group.first.count * image.n_stride,
                     w.group.first.size[axis] * image.stride[axis], image.n_stride, image.stride[0],
                     image.stride[1], image.stride[2]});
      move(slice_partitions(columns_of(t, group * elements, images * bands * elements), first, channels),
           hbm_view(context_, v));
    };
    const int64_t extents[] = {w.channels, w.group.images, w.group.bands, part.count,
                               size[0],    size[1],        size[2]};
    if (fits_descriptor(extents)) {
      move_groups(0, w.group.images, w.group.bands);
      return;
    }
    for (int64_t g = 0; g < groups; ++g) move_groups(g, 1, 1);
  }

  const ConvProblem& p_;
  bool gradient_;
  const KernelContext& context_;
  TileBuilder& tile_;
  const config::Config& config_;
  ImageView source_, result_;
  std::vector<Correlation> correlations_;
  ArrayPlan plan_;
  int64_t bytes_ = 4, channel_blocks_ = 1, padded_ = 0;
  int64_t result_channel0_ = 0, result_channels_ = 0;
  std::vector<Weights> weights_;
  std::vector<Access> bias_;  // per 128 result channels
  std::vector<Operand> operands_;
  std::vector<Expr> epilogue_;
  std::vector<int32_t> roots_;
};

}  // namespace

void correlate(const ConvProblem& p, bool input_gradient, const KernelContext& context, TileBuilder& tile) {
  Correlator(p, input_gradient, context, tile).run();
}

}  // namespace trnsim::compiler
