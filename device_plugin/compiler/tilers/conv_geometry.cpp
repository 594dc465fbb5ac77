#include "device_plugin/compiler/tilers/conv_geometry.h"

#include <limits>

namespace trnsim::compiler {
namespace {

// Right-aligned spatial part of a list with 1 to 3 entries.
Spatial spatial(const std::vector<int64_t>& v, size_t skip, int64_t fill) {
  Spatial s{fill, fill, fill};
  const size_t n = v.size() - skip;
  for (size_t i = 0; i < n; ++i) s[3 - n + i] = v[skip + i];
  return s;
}

}  // namespace

int64_t ConvProblem::tap_delta(int64_t t) const {
  const int64_t k2 = t % kernel[2], k1 = t / kernel[2] % kernel[1], k0 = t / (kernel[2] * kernel[1]);
  return k0 * kernel_stride[0] + k1 * kernel_stride[1] + k2 * kernel_stride[2];
}

bool ConvProblem::dense_taps() const {
  return (kernel[1] == 1 || kernel_stride[1] == kernel_stride[2] * kernel[2]) &&
         (kernel[0] == 1 || kernel_stride[0] == kernel_stride[2] * kernel[2] * kernel[1]);
}

ImageView image_view(const View& v, int64_t groups, int64_t group) {
  ImageView r;
  r.base = window_of(v, 0, {}, {});
  r.n = v.sizes[0];
  r.channels = v.sizes[1] / groups;
  r.n_stride = v.strides[0];
  r.channel_stride = v.strides[1];
  r.size = spatial(v.sizes, 2, 1);
  r.stride = spatial(v.strides, 2, 0);
  r.base.offset += group * r.channels * r.channel_stride;
  return r;
}

std::vector<ConvProblem> conv_problems(const ConvKernel& kernel) {
  std::vector<ConvProblem> out;
  const int64_t per_group = kernel.weight.sizes[0] / kernel.groups;
  for (int64_t g = 0; g < kernel.groups; ++g) {
    ConvProblem p;
    p.input = image_view(kernel.input, kernel.groups, g);
    p.out = image_view(kernel.out, kernel.groups, g);
    p.weight = window_of(kernel.weight, g * per_group * kernel.weight.strides[0], {}, {});
    p.weight_out_stride = kernel.weight.strides[0];
    p.weight_in_stride = kernel.weight.strides[1];
    p.kernel = spatial(kernel.weight.sizes, 2, 1);
    p.kernel_stride = spatial(kernel.weight.strides, 2, 0);
    p.stride = spatial(kernel.stride, 0, 1);
    p.padding = spatial(kernel.padding, 0, 0);
    p.dilation = spatial(kernel.dilation, 0, 1);
    if (kernel.bias.buffer >= 0) {
      p.bias_stride = kernel.bias.strides[0];
      p.bias = window_of(kernel.bias, g * per_group * p.bias_stride, {}, {});
    }
    for (const View& v : kernel.extra) p.extra.push_back(image_view(v, kernel.groups, g));
    if (!kernel.epilogue.empty()) p.epilogue = &kernel.epilogue;
    const Dtype d =
        tile_dtype(kernel.mode == ConvKernel::Mode::kWeightGrad ? kernel.input.dtype : kernel.weight.dtype);
    p.load_dtype = isa::dtype_bytes(d) == 1 ? Dtype::kBF16 : d;  // every FP8 value is a BF16 value
    out.push_back(p);
  }
  return out;
}

Correlation forward_correlation(const ConvProblem& p) {
  Correlation c;
  c.in_step = p.stride;
  for (int64_t t = 0; t < p.taps(); ++t) {
    const Spatial k{t / (p.kernel[2] * p.kernel[1]), t / p.kernel[2] % p.kernel[1], t % p.kernel[2]};
    ConvTap tap{t, {}};
    for (int a = 0; a < 3; ++a) tap.offset[a] = k[a] * p.dilation[a] - p.padding[a];
    c.taps.push_back(tap);
  }
  return c;
}

std::vector<Correlation> input_gradient_correlations(const ConvProblem& p) {
  std::vector<Correlation> out;
  Spatial r{0, 0, 0};
  for (r[0] = 0; r[0] < p.stride[0]; ++r[0]) {
    for (r[1] = 0; r[1] < p.stride[1]; ++r[1]) {
      for (r[2] = 0; r[2] < p.stride[2]; ++r[2]) {
        Correlation c;
        c.out_step = p.stride;
        c.phase = r;
        for (int64_t t = 0; t < p.taps(); ++t) {
          const Spatial k{t / (p.kernel[2] * p.kernel[1]), t / p.kernel[2] % p.kernel[1], t % p.kernel[2]};
          ConvTap tap{t, {}};
          bool hits = true;
          for (int a = 0; a < 3; ++a) {
            const int64_t at = r[a] + p.padding[a] - k[a] * p.dilation[a];
            hits = hits && floor_mod(at, p.stride[a]) == 0;
            tap.offset[a] = floor_div(at, p.stride[a]);
          }
          if (hits) c.taps.push_back(tap);
        }
        out.push_back(c);
      }
    }
  }
  return out;
}

std::vector<ImageBlock> split_block(const ImageBlock& block, int64_t max) {
  // Axes n, 0, 1, 2 from the inside: take whole axes while they fit, then an equal share of the next.
  int64_t extent[4] = {block.count, block.size[0], block.size[1], block.size[2]};
  int64_t part[4] = {1, 1, 1, 1};
  int64_t room = max;
  for (int a = 3; a >= 0; --a) {
    part[a] = extent[a] <= room ? extent[a] : balanced(extent[a], room);
    room /= part[a];
    if (part[a] < extent[a]) break;
  }
  std::vector<ImageBlock> out;
  for (int64_t n = 0; n < extent[0]; n += part[0])
    for (int64_t a = 0; a < extent[1]; a += part[1])
      for (int64_t b = 0; b < extent[2]; b += part[2])
        for (int64_t c = 0; c < extent[3]; c += part[3]) {
          ImageBlock r;
          r.n = block.n + n;
          r.count = std::min(part[0], extent[0] - n);
          r.at = {block.at[0] + a, block.at[1] + b, block.at[2] + c};
          r.size = {std::min(part[1], extent[1] - a), std::min(part[2], extent[2] - b),
                    std::min(part[3], extent[3] - c)};
          out.push_back(r);
        }
  return out;
}

std::vector<ImageBlock> output_blocks(const ImageView& out, const Spatial& multiple, int64_t max_source,
                                      int64_t max_result,
                                      int64_t (*source_elements)(const void*, const Spatial&),
                                      const void* context) {
  Spatial size = out.size;
  const auto volume = [](const Spatial& s) { return s[0] * s[1] * s[2]; };
  const auto fits = [&](const Spatial& s) {
    return source_elements(context, s) <= max_source && volume(s) <= max_result;
  };
  for (int a = 0; a < 3 && !fits(size);) {
    if (size[a] <= multiple[a]) {
      ++a;
      continue;
    }
    size[a] = round_up(ceil_div(size[a], 2), multiple[a]);
  }
  if (!fits(size)) {
    throw_unsupported("convolution or pooling window too large for SBUF: " +
                      std::to_string(source_elements(context, size)) +
                      " elements per channel for one output, at most " + std::to_string(max_source) + " fit");
  }
  int64_t images = 1;
  if (size == out.size) {
    images = std::min(max_source / std::max<int64_t>(1, source_elements(context, size)),
                      max_result / std::max<int64_t>(1, volume(size)));
    images = balanced(out.n, std::clamp<int64_t>(images, 1, out.n));
  }
  std::vector<ImageBlock> blocks;
  for (int64_t n = 0; n < out.n; n += images)
    for (int64_t a = 0; a < out.size[0]; a += size[0])
      for (int64_t b = 0; b < out.size[1]; b += size[1])
        for (int64_t c = 0; c < out.size[2]; c += size[2]) {
          ImageBlock r;
          r.n = n;
          r.count = std::min(images, out.n - n);
          r.at = {a, b, c};
          r.size = {std::min(size[0], out.size[0] - a), std::min(size[1], out.size[1] - b),
                    std::min(size[2], out.size[2] - c)};
          blocks.push_back(r);
        }
  return blocks;
}

Access region(const Access& a, int64_t delta, int64_t count, int64_t count_step, const Spatial& size,
              const Spatial& step) {
  std::vector<std::pair<int64_t, int64_t>> dims;
  const auto add = [&](int64_t s, int64_t n) {
    if (n == 1) return;
    // A neighbour that continues the same run becomes one dim.
    if (!dims.empty() && dims.back().first == s * n) {
      dims.back() = {s, dims.back().second * n};
    } else {
      dims.emplace_back(s, n);
    }
  };
  add(count_step, count);
  for (int i = 0; i < 3; ++i) add(step[i], size[i]);
  if (dims.empty()) dims.emplace_back(1, 1);
  return with_dims(a, delta, dims);
}

Access SourceTile::window(const ImageBlock& outputs, const Spatial& in_step, const Spatial& offset) const {
  const Spatial pitch{extent[1] * extent[2], extent[2], 1};
  int64_t delta = (outputs.n - n) * extent[0] * extent[1] * extent[2];
  Spatial step;
  for (int a = 0; a < 3; ++a) {
    delta += (outputs.at[a] * in_step[a] + offset[a] - lo[a]) * pitch[a];
    step[a] = in_step[a] * pitch[a];
  }
  return region(tile, delta, outputs.count, extent[0] * extent[1] * extent[2], outputs.size, step);
}

ImageBlock phase_outputs(const Correlation& c, const ImageBlock& block) {
  ImageBlock r = block;
  for (int a = 0; a < 3; ++a) {
    const int64_t first = ceil_div(std::max<int64_t>(0, block.at[a] - c.phase[a]), c.out_step[a]);
    const int64_t end = block.at[a] + block.size[a] - c.phase[a];  // exclusive, before division
    r.at[a] = first;
    r.size[a] = end <= 0 ? 0 : std::max<int64_t>(0, ceil_div(end, c.out_step[a]) - first);
  }
  return r;
}

void source_range(const std::vector<Correlation>& correlations, const ImageBlock& block, Spatial* lo,
                  Spatial* extent) {
  Spatial low, high;
  low.fill(std::numeric_limits<int64_t>::max());
  high.fill(std::numeric_limits<int64_t>::min());
  for (const Correlation& c : correlations) {
    const ImageBlock j = phase_outputs(c, block);
    if (j.elements() == 0) continue;
    for (const ConvTap& t : c.taps) {
      for (int a = 0; a < 3; ++a) {
        const int64_t first = j.at[a] * c.in_step[a] + t.offset[a];
        low[a] = std::min(low[a], first);
        high[a] = std::max(high[a], first + (j.size[a] - 1) * c.in_step[a]);
      }
    }
  }
  for (int a = 0; a < 3; ++a) {
    const bool none = low[a] > high[a];
    (*lo)[a] = none ? 0 : low[a];
    (*extent)[a] = none ? 1 : high[a] - low[a] + 1;
  }
}

Access image_access(const ImageView& v, int64_t channel, int64_t channels, const ImageBlock& block,
                    const KernelContext& context) {
  const int64_t at = channel * v.channel_stride + block.n * v.n_stride + block.at[0] * v.stride[0] +
                     block.at[1] * v.stride[1] + block.at[2] * v.stride[2];
  return hbm_view(context,
                  window_of(v.base, at, {channels, block.count, block.size[0], block.size[1], block.size[2]},
                            {v.channel_stride, v.n_stride, v.stride[0], v.stride[1], v.stride[2]}));
}

void fill_border(const Access& a, int64_t count, const Spatial& extent, const Spatial& low,
                 const Spatial& high, float value, TileBuilder& tile) {
  const Spatial pitch{extent[1] * extent[2], extent[2], 1};
  for (int axis = 0; axis < 3; ++axis) {
    // Both sides of the axis: between low and high of the axes before it, over the whole extent of those after it.
    const int64_t sides[2][2] = {{0, low[axis]}, {high[axis], extent[axis] - high[axis]}};
    for (const auto& side : sides) {
      if (side[1] <= 0) continue;
      Spatial part = extent;
      int64_t delta = side[0] * pitch[axis];
      part[axis] = side[1];
      for (int b = 0; b < axis; ++b) {
        part[b] = high[b] - low[b];
        delta += low[b] * pitch[b];
      }
      tile.memset(region(a, delta, count, extent[0] * pitch[0], part, pitch), value);
    }
  }
}

SourceTile load_source(const ImageView& src, int64_t channel, int64_t channels, int64_t n, int64_t count,
                       const Spatial& lo, const Spatial& extent, Dtype dtype, float fill,
                       const KernelContext& context, TileBuilder& tile) {
  SourceTile s;
  s.n = n;
  s.lo = lo;
  s.extent = extent;
  s.tile = tile.sbuf(static_cast<int>(channels), {count, extent[0], extent[1], extent[2]}, dtype);
  const int64_t volume = extent[0] * extent[1] * extent[2];
  const Spatial pitch{extent[1] * extent[2], extent[2], 1};
  // The part inside the tensor, relative to lo.
  Spatial first, size;
  bool empty = false;
  for (int a = 0; a < 3; ++a) {
    first[a] = std::clamp<int64_t>(-lo[a], 0, extent[a]);
    size[a] = std::clamp<int64_t>(src.size[a] - lo[a], 0, extent[a]) - first[a];
    empty = empty || size[a] <= 0;
  }
  if (empty) {
    tile.memset(region(s.tile, 0, count, volume, extent, pitch), fill);
    return s;
  }
  Spatial end;
  for (int a = 0; a < 3; ++a) end[a] = first[a] + size[a];
  fill_border(s.tile, count, extent, first, end, fill, tile);
  ImageBlock inside;
  inside.n = n;
  inside.count = count;
  for (int a = 0; a < 3; ++a) inside.at[a] = lo[a] + first[a];
  inside.size = size;
  const int64_t delta = first[0] * pitch[0] + first[1] * pitch[1] + first[2] * pitch[2];
  tile.load(region(s.tile, delta, count, volume, size, pitch),
            image_access(src, channel, channels, inside, context));
  return s;
}

}  // namespace trnsim::compiler
