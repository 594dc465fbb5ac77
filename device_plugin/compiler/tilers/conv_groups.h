// Blocks of an image tensor that lie side by side on partitions: the same place of several groups of images, or bands
// along one spatial axis. Few channels then still fill the partitions, and one access pattern reads the same window of
// every group.
#pragma once

#include <functional>
#include <vector>

#include "device_plugin/compiler/tilers/conv_geometry.h"

namespace trnsim::compiler {

// Group i * bands + b: images [n + i * count, + count), positions moved by b * size[axis] along `axis`.
struct BlockGroup {
  ImageBlock first;
  int64_t images = 1, bands = 1;
  int axis = 0;
  int64_t groups() const { return images * bands; }
  ImageBlock member(int64_t group) const;
};

struct GroupLimits {
  Spatial multiple{1, 1, 1};  // sizes are multiples of it where the tensor allows
  int64_t groups = 1;
  // Elements per partition that the blocks of one image of this size need, and what there is room for.
  std::function<int64_t(const Spatial&)> elements;
  int64_t room = 0;
};
// Covers `out`; all groups of a BlockGroup have the same shape.
std::vector<BlockGroup> block_groups(const ImageView& out, const GroupLimits& limits);

// Source positions lo + i * sample, i in [0, extent), of the first group of a block; those of band b lie
// b * band_step further along its axis.
struct SourceGrid {
  Spatial lo{0, 0, 0}, extent{1, 1, 1}, sample{1, 1, 1};
  int64_t elements() const { return extent[0] * extent[1] * extent[2]; }
};

// A tile [partitions, images of a group, grid] of source positions, zero outside of the tensor. Several grids of one
// shape (a window position each) may share it, on partitions of their own.
class GroupTile {
 public:
  GroupTile(const BlockGroup& block, int64_t band_step, const Spatial& extent, const Spatial& sample,
            int partitions, Dtype dtype, TileBuilder& tile);
  // Registers a load: `channels` of `src` from `channel` on, the grid starting at `lo`; group first_group + g, of
  // `groups`, goes to the partitions from first_partition + g * pitch on.
  void add(const ImageView& src, int64_t channel, int64_t channels, const Spatial& lo, int first_partition,
           int pitch, int64_t first_group, int64_t groups);
  void load(const KernelContext& context);  // zeros around the tensor first, then all that was added

  // What `partitions` read for outputs [at, at + size) of a group (n relative to the group): position `offset` + output
  // * in_step, on the grid that starts at `lo`.
  Access window(int first_partition, int partitions, const ImageBlock& outputs, const Spatial& in_step,
                const Spatial& offset, const Spatial& lo) const;
  const Access& tile() const { return access_; }

 private:
  struct Part {
    ImageView src;
    int64_t channel, channels;
    Spatial lo;
    int first_partition, pitch;
    int64_t first_group, groups;
  };
  struct Clip {
    Spatial first, size;
    bool empty = false;
    bool operator==(const Clip&) const = default;
  };
  Clip clip(const Part& part, int64_t band) const;
  void load_part(const Part& part, const KernelContext& context);
  Access place(int first_partition, int64_t partitions, int64_t image, int64_t images, const Clip& c) const;

  const BlockGroup& block_;
  int64_t band_step_;
  Spatial extent_, sample_, pitch_;
  int64_t volume_;
  TileBuilder& builder_;
  Access access_;
  std::vector<Part> parts_;
};

}  // namespace trnsim::compiler
