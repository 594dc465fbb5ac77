// Pooling: channels (of all images) on partitions, windows as strided accesses of a padded image tile, one or
// a few vector-engine instructions per window position.
#include <algorithm>
#include <limits>
#include <map>

#include "device_plugin/compiler/tilers/conv_geometry.h"
#include "device_plugin/compiler/tilers/planes.h"
#include "device_plugin/compiler/tilers/tilers.h"

namespace trnsim::compiler {
namespace {

constexpr int64_t kSourceElements = 6 * 1024;  // FP32 elements per partition of the padded input of one block
constexpr int64_t kResultElements = 4 * 1024;

Spatial spatial(const std::vector<int64_t>& v, int64_t fill) {
  Spatial s{fill, fill, fill};
  for (size_t i = 0; i < v.size(); ++i) s[3 - v.size() + i] = v[i];
  return s;
}

struct Range {
  int64_t begin, count;
};

class WindowTiler {
 public:
  WindowTiler(const WindowKernel& k, const KernelContext& context, TileBuilder& tile)
      : k_(k), context_(context), tile_(tile) {
    axes_ = k.kernel.size();
    kernel_ = spatial(k.kernel, 1);
    stride_ = spatial(k.stride, 1);
    padding_ = spatial(k.padding, 0);
    dilation_ = spatial(k.dilation, 1);
    for (int64_t t = 0; t < kernel_[0] * kernel_[1] * kernel_[2]; ++t) {
      const Spatial at{t / (kernel_[2] * kernel_[1]), t / kernel_[2] % kernel_[1], t % kernel_[2]};
      ConvTap tap{t, {}};
      for (int a = 0; a < 3; ++a) tap.offset[a] = at[a] * dilation_[a] - padding_[a];
      correlation_.taps.push_back(tap);
    }
    correlation_.in_step = stride_;
    input_dtype_ = tile_dtype(k.input.dtype);
  }

  void run() {
    std::vector<View> views{k_.input, k_.out};
    const bool indices = k_.indices.buffer >= 0;
    if (indices) views.push_back(k_.indices);
    for (const Planes& p : planes_of(views, axes_)) {
      const auto take = [&] {
        input_ = p.views[0];
        out_ = p.views[1];
        if (indices) indices_ = p.views[2];
      };
      take();
      // More planes than partitions: several in a row on each, so that an instruction has more to do.
      const int64_t planes = input_.channels, each = planes / kPartitions;
      if (each > 1) {
        channels_ = kPartitions;
        for (ImageView* v : {&input_, &out_, &indices_}) {
          v->n = each;
          v->n_stride = v->channel_stride;
          v->channel_stride *= each;
        }
        run_channels();
        take();
      }
      for (int64_t c = each > 1 ? each * kPartitions : 0; c < planes; c += kPartitions) {
        channel_ = c;
        channels_ = std::min(kPartitions, planes - c);
        run_channels();
      }
      channel_ = 0;
    }
  }

 private:
  using Mode = WindowKernel::Mode;

  void run_channels() {
    switch (k_.mode) {
      case Mode::kMaxForward:
        for (const ImageBlock& b : forward_blocks()) {
          positions_.clear();
          max_forward(b);
        }
        break;
      case Mode::kAvgForward:
        for (const ImageBlock& b : forward_blocks()) average_forward(b);
        break;
      default:
        for (const ImageBlock& b : backward_blocks()) {
          positions_.clear();
          backward(b);
        }
    }
  }

  Access tile(std::vector<int64_t> dims, Dtype dtype) {
    return tile_.sbuf(static_cast<int>(channels_), std::move(dims), dtype);
  }
  static Access shaped(const Access& t, const ImageBlock& block) {
    const Spatial pitch{block.size[1] * block.size[2], block.size[2], 1};
    return region(t, 0, block.count, block.size[0] * pitch[0], block.size, pitch);
  }

  static int64_t source_elements(const void* self, const Spatial& size) {
    const auto* w = static_cast<const WindowTiler*>(self);
    ImageBlock block;
    block.size = size;
    Spatial lo, extent;
    source_range({w->correlation_}, block, &lo, &extent);
    return extent[0] * extent[1] * extent[2];
  }
  std::vector<ImageBlock> forward_blocks() {
    return output_blocks(out_, {1, 1, 1}, kSourceElements, kResultElements, source_elements, this);
  }

  // ---- max ----
  void max_forward(const ImageBlock& block) {
    Spatial lo, extent;
    source_range({correlation_}, block, &lo, &extent);
    const float lowest =
        isa::is_float(input_dtype_) ? -std::numeric_limits<float>::infinity() : lowest_integer();
    const SourceTile source = load_source(input_, channel_, channels_, block.n, block.count, lo, extent,
                                          input_dtype_, lowest, context_, tile_);
    Access best = tile({block.elements()}, input_dtype_);
    Access position;
    const bool indices = k_.indices.buffer >= 0;
    if (indices) {
      // While the input is on its way.
      position = first_positions(block);
      for (const ConvTap& tap : correlation_.taps) positions(block, tap);
    }
    const auto window = [&](size_t t) { return source.window(block, stride_, correlation_.taps[t].offset); };
    tile_.copy(shaped(best, block), window(0));
    for (size_t t = 1; t < correlation_.taps.size(); ++t)
      tile_.tensor_tensor(shaped(best, block), shaped(best, block), window(t), AluOp::kMax);
    if (indices) {
      // The first of equal values: the one that is written last. A NaN equals nothing; the last one of a window counts.
      for (size_t t = correlation_.taps.size(); t-- > 0;)
        note_position(block, correlation_.taps[t], source, &best, AluOp::kEqual, position);
      for (size_t t = 0; isa::is_float(input_dtype_) && t < correlation_.taps.size(); ++t)
        note_position(block, correlation_.taps[t], source, nullptr, AluOp::kNotEqual, position);
    }
    tile_.store(image_access(out_, channel_, channels_, block, context_), best);
    if (indices) tile_.store(image_access(indices_, channel_, channels_, block, context_), position);
  }

  float lowest_integer() const {
    switch (input_dtype_) {
      case Dtype::kI8:
        return -128.0f;
      case Dtype::kI16:
        return -32768.0f;
      case Dtype::kI32:
        return -2147483648.0f;
      default:
        return 0.0f;
    }
  }

  // Outputs of the block for which the tap lies inside of the input: padding may equal the maximum and is nobody's.
  ImageBlock reached(const ImageBlock& block, const ConvTap& tap) const {
    ImageBlock r = block;
    for (int a = 0; a < 3; ++a) {
      const int64_t first = ceil_div(std::max<int64_t>(0, -tap.offset[a]), stride_[a]);
      const int64_t end = floor_div(input_.size[a] - 1 - tap.offset[a], stride_[a]) + 1;
      r.at[a] = std::max(block.at[a], first);
      r.size[a] = std::max<int64_t>(0, std::min(block.at[a] + block.size[a], end) - r.at[a]);
    }
    return r;
  }

  // Where the value of the tap compares so with `other` (a tile of the block; null: with itself), its position is noted.
  void note_position(const ImageBlock& block, const ConvTap& tap, const SourceTile& source,
                     const Access* other, AluOp compare, const Access& position) {
    const ImageBlock r = reached(block, tap);
    if (r.elements() == 0) return;
    const Spatial pitch{block.size[1] * block.size[2], block.size[2], 1};
    int64_t delta = 0;
    for (int a = 0; a < 3; ++a) delta += (r.at[a] - block.at[a]) * pitch[a];
    const auto part = [&](const Access& t) {
      return region(t, delta, block.count, block.size[0] * pitch[0], r.size, pitch);
    };
    const Access value = source.window(r, stride_, tap.offset);
    Access holds = tile({block.elements()}, Dtype::kU8);
    tile_.tensor_tensor(part(holds), value, other != nullptr ? part(*other) : value, compare);
    tile_.copy_predicated(part(position), part(positions(block, tap)), part(holds));
  }

  // Flat input position of a window tap for every output of the block, int32. Positions of the same block are made once.
  Access positions(const ImageBlock& block, const ConvTap& tap) {
    const auto [it, fresh] = positions_.try_emplace(tap.index);
    if (!fresh) return it->second;
    Access& p = it->second;
    p = tile({block.elements()}, Dtype::kI32);
    write_positions(p, block, {{{0, block.size[0]}, {0, block.size[1]}, {0, block.size[2]}}}, stride_,
                    tap.offset);
    return p;
  }

  // position = flat(in_step * (at + i) + offset) over a sub-range of the block.
  void write_positions(const Access& p, const ImageBlock& block, const std::array<Range, 3>& part,
                       const Spatial& in_step, const Spatial& offset) {
    const Spatial pitch{block.size[1] * block.size[2], block.size[2], 1};
    const Spatial flat{input_.size[1] * input_.size[2], input_.size[2], 1};
    isa::AffinePattern pattern;
    std::vector<std::pair<int64_t, int64_t>> dims;
    int64_t delta = 0;
    if (block.count > 1) dims.emplace_back(block.size[0] * pitch[0], block.count);  // the same in every plane
    for (int a = 0; a < 3; ++a) {
      const Range& r = part[static_cast<size_t>(a)];
      pattern.base += ((block.at[a] + r.begin) * in_step[a] + offset[a]) * flat[a];
      delta += r.begin * pitch[a];
      if (r.count == 1) continue;
      pattern.step[dims.size()] = static_cast<int32_t>(in_step[a] * flat[a]);
      dims.emplace_back(pitch[a], r.count);
    }
    if (dims.empty()) dims.emplace_back(1, 1);
    tile_.iota(with_dims(p, delta, dims), pattern);
  }

  // Position of the first window element that lies inside the input.
  Access first_positions(const ImageBlock& block) {
    Access p = tile({block.elements()}, Dtype::kI32);
    // Per axis: the outputs whose window starts inside, as one range; the others one by one.
    struct Class {
      Range range;
      int64_t offset;  // of the first valid tap
    };
    std::array<std::vector<Class>, 3> classes;
    for (int a = 0; a < 3; ++a) {
      auto& list = classes[static_cast<size_t>(a)];
      int64_t i = 0;
      for (; i < block.size[a]; ++i) {
        const int64_t start = (block.at[a] + i) * stride_[a] - padding_[a];
        if (start >= 0) break;
        list.push_back({{i, 1}, -padding_[a] + ceil_div(-start, dilation_[a]) * dilation_[a]});
      }
      if (i < block.size[a]) list.push_back({{i, block.size[a] - i}, -padding_[a]});
    }
    for (const Class& x : classes[0])
      for (const Class& y : classes[1])
        for (const Class& z : classes[2])
          write_positions(p, block, {x.range, y.range, z.range}, stride_, {x.offset, y.offset, z.offset});
    return p;
  }

  // ---- average ----
  // 1 / divisor per output of the block; the same in every channel. Not present when it is one number for
  // all.
  Access reciprocal_divisors(const ImageBlock& block, float* constant) {
    struct Class {
      Range range;
      int64_t count;
    };
    std::array<std::vector<Class>, 3> classes;
    for (int a = 0; a < 3; ++a) {
      for (int64_t i = 0; i < block.size[a]; ++i) {
        const int64_t start = (block.at[a] + i) * stride_[a] - padding_[a];
        const int64_t end = std::min(start + kernel_[a], input_.size[a] + padding_[a]);
        const int64_t inside = std::min(end, input_.size[a]) - std::max<int64_t>(start, 0);
        const int64_t count = k_.count_include_pad ? end - start : inside;
        auto& list = classes[static_cast<size_t>(a)];
        if (!list.empty() && list.back().count == count) {
          ++list.back().range.count;
        } else {
          list.push_back({{i, 1}, count});
        }
      }
    }
    const auto value = [&](int64_t count) {
      return static_cast<float>(
          1.0 / static_cast<double>(k_.divisor != 0 ? k_.divisor : std::max<int64_t>(count, 1)));
    };
    if (k_.divisor != 0 || (classes[0].size() == 1 && classes[1].size() == 1 && classes[2].size() == 1)) {
      *constant = value(classes[0][0].count * classes[1][0].count * classes[2][0].count);
      return {};
    }
    Access d = tile({block.elements()}, Dtype::kF32);
    const Spatial pitch{block.size[1] * block.size[2], block.size[2], 1};
    for (const Class& x : classes[0])
      for (const Class& y : classes[1])
        for (const Class& z : classes[2]) {
          const int64_t delta = x.range.begin * pitch[0] + y.range.begin * pitch[1] + z.range.begin;
          tile_.memset(region(d, delta, block.count, block.size[0] * pitch[0],
                              {x.range.count, y.range.count, z.range.count}, pitch),
                       value(x.count * y.count * z.count));
        }
    return d;
  }

  void scale(const Access& dst, const Access& src, const Access& divisors, float constant) {
    if (divisors.present()) {
      tile_.tensor_tensor(dst, src, divisors, AluOp::kMultiply);
    } else {
      tile_.tensor_scalar(dst, src, AluOp::kMultiply, TileBuilder::imm(constant));
    }
  }

  void average_forward(const ImageBlock& block) {
    Spatial lo, extent;
    source_range({correlation_}, block, &lo, &extent);
    const SourceTile source = load_source(input_, channel_, channels_, block.n, block.count, lo, extent,
                                          input_dtype_, 0.0f, context_, tile_);
    float constant = 1.0f;
    const Access divisors = reciprocal_divisors(block, &constant);
    Access sum = tile({block.elements()}, Dtype::kF32);
    tile_.copy(shaped(sum, block), source.window(block, stride_, correlation_.taps[0].offset));
    for (size_t t = 1; t < correlation_.taps.size(); ++t) {
      tile_.tensor_tensor(shaped(sum, block), shaped(sum, block),
                          source.window(block, stride_, correlation_.taps[t].offset), AluOp::kAdd);
    }
    Access result = tile({block.elements()}, tile_dtype(k_.out.dtype));
    scale(result, sum, divisors, constant);
    tile_.store(image_access(out_, channel_, channels_, block, context_), result);
  }

  // ---- backward: every input block gathers from all windows that touch it ----
  // Outputs whose windows reach input positions [at, at + size) of an axis.
  Range touching(int a, int64_t at, int64_t size) const {
    const int64_t reach = (kernel_[a] - 1) * dilation_[a];
    const int64_t first =
        std::max<int64_t>(0, ceil_div(std::max<int64_t>(0, at + padding_[a] - reach), stride_[a]));
    const int64_t last = std::min(out_.size[a] - 1, floor_div(at + size - 1 + padding_[a], stride_[a]));
    return {first, std::max<int64_t>(0, last - first + 1)};
  }
  ImageBlock touching_block(const ImageBlock& block) const {
    ImageBlock o;
    o.n = block.n;
    o.count = block.count;
    for (int a = 0; a < 3; ++a) {
      const Range r = touching(a, block.at[a], block.size[a]);
      o.at[a] = r.begin;
      o.size[a] = r.count;
    }
    return o;
  }
  static int64_t gradient_elements(const void* self, const Spatial& size) {
    const auto* w = static_cast<const WindowTiler*>(self);
    ImageBlock o;
    for (int a = 0; a < 3; ++a) {
      o.size[a] = std::min(w->out_.size[a],
                           (size[a] - 1 + (w->kernel_[a] - 1) * w->dilation_[a]) / w->stride_[a] + 1);
    }
    Spatial lo, extent;
    source_range({w->correlation_}, o, &lo, &extent);
    return std::max(o.elements(), extent[0] * extent[1] * extent[2]);
  }
  std::vector<ImageBlock> backward_blocks() {
    return output_blocks(input_, {1, 1, 1}, kSourceElements, kSourceElements, gradient_elements, this);
  }

  void backward(const ImageBlock& block) {
    const ImageBlock outputs = touching_block(block);
    Access result = tile({block.elements()}, tile_dtype(k_.input.dtype));
    if (outputs.elements() == 0) {
      tile_.memset(result, 0.0f);
      tile_.store(image_access(input_, channel_, channels_, block, context_), result);
      return;
    }
    // Input positions that these windows cover; it holds the block, the rest is dropped.
    Spatial lo, extent;
    source_range({correlation_}, outputs, &lo, &extent);
    for (int a = 0; a < 3; ++a) {
      const int64_t low = std::min(lo[a], block.at[a]);
      const int64_t high = std::max(lo[a] + extent[a], block.at[a] + block.size[a]);
      lo[a] = low;
      extent[a] = high - low;
    }
    SourceTile sum;
    sum.n = block.n;
    sum.lo = lo;
    sum.extent = extent;
    const int64_t volume = extent[0] * extent[1] * extent[2];
    sum.tile = tile({block.count * volume}, Dtype::kF32);
    tile_.memset(sum.tile, 0.0f);
    Access gradient = tile({outputs.elements()}, Dtype::kF32);
    tile_.load(gradient, image_access(out_, channel_, channels_, outputs, context_));
    if (k_.mode == Mode::kMaxBackward) {
      max_backward(outputs, gradient, sum);
    } else {
      float constant = 1.0f;
      const Access divisors = reciprocal_divisors(outputs, &constant);
      Access scaled = tile({outputs.elements()}, Dtype::kF32);
      scale(scaled, gradient, divisors, constant);
      for (const ConvTap& t : correlation_.taps) {
        const Access target = sum.window(outputs, stride_, t.offset);
        tile_.tensor_tensor(target, target, shaped(scaled, outputs), AluOp::kAdd);
      }
    }
    const Spatial pitch{extent[1] * extent[2], extent[2], 1};
    int64_t delta = 0;
    for (int a = 0; a < 3; ++a) delta += (block.at[a] - lo[a]) * pitch[a];
    tile_.copy(shaped(result, block), region(sum.tile, delta, block.count, volume, block.size, pitch));
    tile_.store(image_access(input_, channel_, channels_, block, context_), result);
  }

  // A window's gradient goes to the one tap whose position is the recorded index.
  void max_backward(const ImageBlock& outputs, const Access& gradient, const SourceTile& sum) {
    Access index = tile({outputs.elements()}, Dtype::kI32);
    tile_.load(index, image_access(indices_, channel_, channels_, outputs, context_));
    for (const ConvTap& t : correlation_.taps) positions(outputs, t);  // while it is on its way
    bool apart = true;                                                 // no two windows meet
    for (int a = 0; a < 3; ++a) apart = apart && (kernel_[a] - 1) * dilation_[a] < stride_[a];
    for (const ConvTap& t : correlation_.taps) {
      Access hit = tile({outputs.elements()}, Dtype::kU8);
      tile_.tensor_tensor(hit, index, positions(outputs, t), AluOp::kEqual);
      const Access target = sum.window(outputs, stride_, t.offset);
      if (apart) {
        tile_.copy_predicated(target, shaped(gradient, outputs), shaped(hit, outputs));
        continue;
      }
      Access part = tile({outputs.elements()}, Dtype::kF32);
      tile_.memset(part, 0.0f);
      tile_.copy_predicated(part, gradient, hit);
      tile_.tensor_tensor(target, target, shaped(part, outputs), AluOp::kAdd);
    }
  }

  const WindowKernel& k_;
  const KernelContext& context_;
  TileBuilder& tile_;
  size_t axes_ = 2;
  Spatial kernel_, stride_, padding_, dilation_;
  Correlation correlation_;
  Dtype input_dtype_ = Dtype::kF32;
  ImageView input_, out_, indices_;
  int64_t channel_ = 0, channels_ = 1;
  std::map<int64_t, Access> positions_;  // of the block at hand, by tap
};

}  // namespace

void tile_window(const WindowKernel& kernel, const KernelContext& context, TileBuilder& tile) {
  const bool forward =
      kernel.mode == WindowKernel::Mode::kMaxForward || kernel.mode == WindowKernel::Mode::kAvgForward;
  if ((forward ? kernel.out : kernel.input).numel() == 0) return;
  if (kernel.kernel.empty() || kernel.kernel.size() > 3 || kernel.input.sizes.size() < kernel.kernel.size()) {
    throw_unsupported("pooling over " + std::to_string(kernel.kernel.size()) + " axes (1 to 3 are)");
  }
  if (kernel.mode == WindowKernel::Mode::kMaxBackward && kernel.indices.buffer < 0) {
    throw_internal("max pooling backward needs the indices");
  }
  WindowTiler(kernel, context, tile).run();
}

}  // namespace trnsim::compiler
