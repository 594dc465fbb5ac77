#include "device_plugin/compiler/tilers/conv_groups.h"

#include <algorithm>

namespace trnsim::compiler {

ImageBlock BlockGroup::member(int64_t group) const {
  ImageBlock b = first;
  b.n += group / bands * first.count;
  b.at[axis] += group % bands * first.size[axis];
  return b;
}

std::vector<BlockGroup> block_groups(const ImageView& out, const GroupLimits& limits) {
  int axis = 0;
  while (axis < 2 && out.size[axis] <= limits.multiple[axis]) ++axis;
  std::vector<BlockGroup> result;
  for (int64_t n = 0; n < out.n;) {
    const int64_t images = std::min(limits.groups, out.n - n);
    int64_t bands = limits.groups / images;
    Spatial size = out.size;
    if (bands > 1) {
      size[axis] = std::min(size[axis], round_up(ceil_div(size[axis], bands), limits.multiple[axis]));
      bands = std::max<int64_t>(1, std::min(bands, out.size[axis] / size[axis]));
    }
    for (int a = 0; a < 3 && limits.elements(size) > limits.room;) {
      if (size[a] <= limits.multiple[a]) {
        ++a;
        continue;
      }
      size[a] = round_up(ceil_div(size[a], 2), limits.multiple[a]);
    }
    const int64_t one = limits.elements(size);
    if (one > limits.room) {
      throw_unsupported("convolution window too large for SBUF: " + std::to_string(one) +
                        " elements per partition for one output, at most " + std::to_string(limits.room) +
                        " fit");
    }
    const int64_t count =
        balanced((out.n - n) / images,
                 std::clamp<int64_t>(limits.room / std::max<int64_t>(1, one), 1, (out.n - n) / images));
    Spatial at{0, 0, 0};
    for (at[0] = 0; at[0] < out.size[0];) {
      int64_t step0 = 0;
      for (at[1] = 0; at[1] < out.size[1];) {
        int64_t step1 = 0;
        for (at[2] = 0; at[2] < out.size[2];) {
          BlockGroup g;
          g.axis = axis;
          g.images = images;
          g.first.n = n;
          g.first.count = count;
          g.first.at = at;
          for (int a = 0; a < 3; ++a) g.first.size[a] = std::min(size[a], out.size[a] - at[a]);
          g.bands = std::clamp<int64_t>((out.size[axis] - at[axis]) / size[axis], 1, bands);
          const auto covered = [&](int a) { return g.first.size[a] * (a == axis ? g.bands : 1); };
          step0 = covered(0);
          step1 = covered(1);
          at[2] += covered(2);
          result.push_back(g);
        }
        at[1] += step1;
      }
      at[0] += step0;
    }
    n += images * count;
  }
  return result;
}

GroupTile::GroupTile(const BlockGroup& block, int64_t band_step, const Spatial& extent, const Spatial& sample,
                     int partitions, Dtype dtype, TileBuilder& tile)
    : block_(block),
      band_step_(band_step),
      extent_(extent),
      sample_(sample),
      pitch_{extent[1] * extent[2], extent[2], 1},
      volume_(extent[0] * extent[1] * extent[2]),
      builder_(tile) {
  access_ = tile.sbuf(partitions, {block.first.count, extent[0], extent[1], extent[2]}, dtype);
}

void GroupTile::add(const ImageView& src, int64_t channel, int64_t channels, const Spatial& lo,
                    int first_partition, int pitch, int64_t first_group, int64_t groups) {
  parts_.push_back({src, channel, channels, lo, first_partition, pitch, first_group, groups});
}

// The part of a band's grid inside of the tensor.
GroupTile::Clip GroupTile::clip(const Part& part, int64_t band) const {
  Clip c;
  for (int a = 0; a < 3; ++a) {
    const int64_t lo = part.lo[a] + (a == block_.axis ? band * band_step_ : 0);
    const int64_t first = std::clamp<int64_t>(ceil_div(std::max<int64_t>(0, -lo), sample_[a]), 0, extent_[a]);
    const int64_t inside = part.src.size[a] - lo;  // positions below this one exist
    const int64_t end = inside <= 0 ? 0 : std::min(extent_[a], ceil_div(inside, sample_[a]));
    c.first[a] = first;
    c.size[a] = std::max<int64_t>(0, end - first);
    c.empty = c.empty || c.size[a] == 0;
  }
  if (c.empty) c.first = c.size = {0, 0, 0};
  return c;
}

Access GroupTile::place(int first_partition, int64_t partitions, int64_t image, int64_t images,
                        const Clip& c) const {
  const int64_t delta = image * volume_ + c.first[0] * pitch_[0] + c.first[1] * pitch_[1] + c.first[2];
  return slice_partitions(region(access_, delta, images, volume_, c.size, pitch_), first_partition,
                          static_cast<int>(partitions));
}

void GroupTile::load(const KernelContext& context) {
  // Zeros where some part has no data.
  Spatial low{0, 0, 0}, high = extent_;
  bool nothing = false;
  for (const Part& p : parts_) {
    for (int64_t b = 0; b < block_.bands; ++b) {
      const Clip c = clip(p, b);
      nothing = nothing || c.empty;
      for (int a = 0; a < 3; ++a) {
        low[a] = std::max(low[a], c.first[a]);
        high[a] = std::min(high[a], c.first[a] + c.size[a]);
      }
    }
  }
  for (int a = 0; a < 3; ++a) nothing = nothing || low[a] >= high[a];
  if (nothing) {
    builder_.memset(columns_of(access_, 0, access_.free_elements()), 0.0f);
  } else {
    fill_border(access_, block_.first.count, extent_, low, high, 0.0f, builder_);
  }
  for (const Part& p : parts_) load_part(p, context);
}

void GroupTile::load_part(const Part& p, const KernelContext& context) {
  const int64_t bands = block_.bands, count = block_.first.count;
  // Groups [i, i + ni) x [b, b + nb) in one transfer.
  const auto transfer = [&](int64_t i, int64_t ni, int64_t b, int64_t nb, const Clip& c) {
    int64_t at = p.channel * p.src.channel_stride + (block_.first.n + i * count) * p.src.n_stride;
    std::vector<int64_t> sizes{ni, nb, p.channels, count},
        strides{count * p.src.n_stride, 0, p.src.channel_stride, p.src.n_stride};
    strides[1] = band_step_ * p.src.stride[block_.axis];
    for (int a = 0; a < 3; ++a) {
      const int64_t lo = p.lo[a] + (a == block_.axis ? b * band_step_ : 0);
      at += (lo + c.first[a] * sample_[a]) * p.src.stride[a];
      sizes.push_back(c.size[a]);
      strides.push_back(sample_[a] * p.src.stride[a]);
    }
    const int first = p.first_partition + static_cast<int>(i * bands + b - p.first_group) * p.pitch;
    const int64_t partitions = ni * nb * p.channels;
    if (fits_descriptor(sizes)) {
      builder_.load(place(first, partitions, 0, count, c),
                    hbm_view(context, window_of(p.src.base, at, sizes, strides)));
      return;
    }
    sizes[3] = 1;
    for (int64_t n = 0; n < count; ++n) {
      builder_.load(place(first, partitions, n, 1, c),
                    hbm_view(context, window_of(p.src.base, at + n * p.src.n_stride, sizes, strides)));
    }
  };
  const bool dense = p.pitch == p.channels;
  const int64_t end = p.first_group + p.groups;
  if (dense && bands == 1) {
    const Clip c = clip(p, 0);
    if (!c.empty) transfer(p.first_group, p.groups, 0, 1, c);
    return;
  }
  for (int64_t g = p.first_group; g < end;) {
    const int64_t b = g % bands;
    const Clip c = clip(p, b);
    int64_t n = 1;
    while (dense && g + n < end && b + n < bands && clip(p, b + n) == c) ++n;
    if (!c.empty) transfer(g / bands, 1, b, n, c);
    g += n;
  }
}

Access GroupTile::window(int first_partition, int partitions, const ImageBlock& outputs,
                         const Spatial& in_step, const Spatial& offset, const Spatial& lo) const {
  int64_t delta = outputs.n * volume_;
  Spatial step;
  for (int a = 0; a < 3; ++a) {
    delta += (outputs.at[a] * in_step[a] + offset[a] - lo[a]) / sample_[a] * pitch_[a];
    step[a] = in_step[a] / sample_[a] * pitch_[a];
  }
  return slice_partitions(region(access_, delta, outputs.count, volume_, outputs.size, step), first_partition,
                          partitions);
}

}  // namespace trnsim::compiler
