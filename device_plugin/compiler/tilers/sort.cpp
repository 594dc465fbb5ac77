// Sorting by a bitonic network on (key, index) pairs. The key is an int32 whose order is the wanted order of
// the values (NaN above everything), the index breaks ties, so the sort is stable and exact for every dtype.
// The first step of every merge compares position i with its mirror image, hence all comparisons have one
// direction.
//
// Rows of up to kLocal elements are sorted in SBUF, one row per partition. Longer rows live in scratch HBM
// tensors: steps that reach further than kLocal run as passes over HBM with all partitions, the others on
// blocks of kLocal.
#include "device_plugin/compiler/tilers/sort.h"

#include <algorithm>
#include <bit>

#include "device_plugin/compiler/tilers/access_math.h"
#include "device_plugin/compiler/tilers/planes.h"

namespace trnsim::compiler {
namespace {

constexpr int64_t kLocal = 2048;
constexpr int64_t kRun = 512;             // contiguous elements per partition of a pass over HBM
constexpr float kNanKey = 2143289344.0f;  // 0x7fc00000: above the key of infinity, exact in FP32
constexpr float kLowestKey = -2147483648.0f;

// Parallel arrays that move together: keys, indices and (when wanted) values.
using Arrays = std::vector<Access>;

class Sorter {
 public:
  Sorter(const TopKernel& k, const KernelContext& context, TileBuilder& tile)
      : k_(k), local_(context), tile_(tile) {
    dtype_ = tile_dtype(k.input.dtype);
    n_ = k.input.sizes.back();
    padded_ = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(n_, 2))));
    with_values_ = k.values.buffer >= 0;
    with_indices_ = k.indices.buffer >= 0;
  }

  void run() {
    std::vector<View> views{k_.input};
    if (with_values_) views.push_back(k_.values);
    if (with_indices_) views.push_back(k_.indices);
    for (const Planes& p : planes_of(views, 1)) {
      const ImageView& input = p.views[0];
      const ImageView* values = with_values_ ? &p.views[1] : nullptr;
      const ImageView* indices = with_indices_ ? &p.views.back() : nullptr;
      if (padded_ <= kLocal) {
        for (int64_t r = 0; r < input.channels; r += kPartitions)
          in_sbuf(input, values, indices, r, std::min(kPartitions, input.channels - r));
      } else {
        through_hbm(input, values, indices);
      }
    }
  }

 private:
  // ---- keys ----
  // Elements [column, column + count) of rows [row, row + rows), as keys, indices and values of `width` >=
  // count columns; the columns behind `count` sort after everything.
  Arrays prepare(const ImageView& input, int64_t row, int64_t rows, int64_t column, int64_t count,
                 int64_t width) {
    const int p = static_cast<int>(rows);
    Access key = tile_.sbuf(p, {width}, Dtype::kI32), index = tile_.sbuf(p, {width}, Dtype::kI32);
    isa::AffinePattern pattern;
    pattern.base = column;
    pattern.step[0] = 1;
    tile_.iota(index, pattern);
    if (count < width) tile_.memset(columns_of(key, count, width - count), kLowestKey);
    Arrays out{key, index};
    Access value;
    if (with_values_) {
      value = tile_.sbuf(p, {width}, dtype_);
      if (count < width) tile_.memset(columns_of(value, count, width - count), 0.0f);
      out.push_back(value);
    }
    if (count == 0) return out;
    if (!with_values_) value = tile_.sbuf(p, {count}, dtype_);
    const Access x = columns_of(value, 0, count), k = columns_of(key, 0, count);
    tile_.load(x, hbm_view(local_.context(),
                           window_of(input.base, row * input.channel_stride + column * input.stride[2],
                                     {rows, count}, {input.channel_stride, input.stride[2]})));
    if (isa::is_float(dtype_)) {
      float_keys(k, x, p, count);
    } else {
      tile_.copy(k, x);
    }
    // Smallest first: the complement reverses the order.
    if (!k_.largest) tile_.tensor_scalar(k, k, AluOp::kBitXor, TileBuilder::imm(-1.0f));
    return out;
  }

  void float_keys(const Access& key, const Access& x, int p, int64_t count) {
    const auto temporary = [&](Dtype d) { return tile_.sbuf(p, {count}, d); };
    // -0 + 0 = +0: both zeros get one key.
    Access exact = temporary(Dtype::kF32);
    tile_.tensor_scalar(exact, x, AluOp::kAdd, TileBuilder::imm(0.0f));
    const Access bits = reinterpret(exact, Dtype::kU32);
    // Negative numbers: flip all bits but the sign.
    Access sign = temporary(Dtype::kI32), flip = temporary(Dtype::kU32);
    tile_.tensor_scalar(reinterpret(sign, Dtype::kU32), bits, AluOp::kShiftRight, TileBuilder::imm(31.0f));
    Access all = temporary(Dtype::kI32);
    tile_.tensor_scalar(all, sign, AluOp::kMultiply, TileBuilder::imm(-1.0f));
    tile_.tensor_scalar(flip, reinterpret(all, Dtype::kU32), AluOp::kShiftRight, TileBuilder::imm(1.0f));
    tile_.tensor_tensor(reinterpret(key, Dtype::kU32), bits, flip, AluOp::kBitXor);
    Access nan = temporary(Dtype::kU8), nan_key = tile_.sbuf(p, {1}, Dtype::kI32);
    tile_.tensor_tensor(nan, x, x, AluOp::kNotEqual);
    tile_.memset(nan_key, kNanKey);
    tile_.copy_predicated(key, with_dims(nan_key, 0, {{0, count}}), nan);
  }

  // ---- network steps ----
  // Puts the pair (a, b) in order wherever b belongs before a.
  void compare_exchange(const Arrays& a, const Arrays& b) {
    const int p = a[0].num_partitions;
    const auto like = [&](const Access& x, Dtype d) {
      std::vector<int64_t> dims;
      for (int i = 0; i < x.num_dims; ++i) dims.push_back(x.size[i]);
      return tile_.sbuf(p, dims, d);
    };
    Access greater = like(a[0], Dtype::kU8), equal = like(a[0], Dtype::kU8), earlier = like(a[0], Dtype::kU8);
    tile_.tensor_tensor(greater, b[0], a[0], AluOp::kGreater);
    tile_.tensor_tensor(equal, b[0], a[0], AluOp::kEqual);
    tile_.tensor_tensor(earlier, b[1], a[1], AluOp::kLess);
    Access tie = like(a[0], Dtype::kU8), swap = like(a[0], Dtype::kU8);
    tile_.tensor_tensor(tie, equal, earlier, AluOp::kMultiply);
    tile_.tensor_tensor(swap, greater, tie, AluOp::kMax);
    for (size_t i = 0; i < a.size(); ++i) {
      Access keep = like(a[i], a[i].dtype);
      tile_.copy(keep, a[i]);
      tile_.copy_predicated(a[i], b[i], swap);
      tile_.copy_predicated(b[i], keep, swap);
    }
  }

  // One step inside tiles of `width` columns: groups of `group`, distance group / 2, or mirrored.
  void local_step(const Arrays& arrays, int64_t width, int64_t group, bool mirrored) {
    Arrays a, b;
    for (const Access& x : arrays) {
      const int64_t half = group / 2, groups = width / group;
      if (half == 1) {
        a.push_back(with_dims(x, 0, {{group, groups}}));
        b.push_back(with_dims(x, 1, {{group, groups}}));
        continue;
      }
      a.push_back(with_dims(x, 0, {{group, groups}, {1, half}}));
      b.push_back(mirrored ? with_dims(x, group - 1, {{group, groups}, {-1, half}})
                           : with_dims(x, half, {{group, groups}, {1, half}}));
    }
    compare_exchange(a, b);
  }

  // Merges sorted runs up to `width`, from runs of one element.
  void local_sort(const Arrays& arrays, int64_t width) {
    for (int64_t size = 2; size <= width; size *= 2) {
      local_step(arrays, width, size, true);
      for (int64_t group = size / 2; group >= 2; group /= 2) local_step(arrays, width, group, false);
    }
  }

  void in_sbuf(const ImageView& input, const ImageView* values, const ImageView* indices, int64_t row,
               int64_t rows) {
    const Arrays arrays = prepare(input, row, rows, 0, n_, padded_);
    local_sort(arrays, padded_);
    const auto put = [&](const ImageView& v, const Access& x) {
      tile_.store(hbm_view(local_.context(), window_of(v.base, row * v.channel_stride, {rows, k_.k},
                                                       {v.channel_stride, v.stride[2]})),
                  columns_of(x, 0, k_.k));
    };
    if (indices != nullptr) put(*indices, arrays[1]);
    if (values != nullptr) put(*values, arrays[2]);
  }

  // ---- long rows ----
  Access at(const View& v, int64_t offset, std::vector<int64_t> sizes, std::vector<int64_t> strides) {
    return hbm_view(local_.context(), window_of(v, offset, std::move(sizes), std::move(strides)));
  }

  void through_hbm(const ImageView& input, const ImageView* values, const ImageView* indices) {
    const int64_t rows = input.channels;
    std::vector<View> arrays{local_.scratch(tile_, Dtype::kI32, {rows, padded_}),
                             local_.scratch(tile_, Dtype::kI32, {rows, padded_})};
    if (with_values_) arrays.push_back(local_.scratch(tile_, dtype_, {rows, padded_}));
    for (int64_t r = 0; r < rows; r += kPartitions) {
      const int64_t rn = std::min(kPartitions, rows - r);
      for (int64_t c = 0; c < padded_; c += kLocal) {
        const Arrays part = prepare(input, r, rn, c, std::clamp<int64_t>(n_ - c, 0, kLocal), kLocal);
        for (size_t i = 0; i < arrays.size(); ++i)
          tile_.store(at(arrays[i], r * padded_ + c, {rn, kLocal}, {padded_, 1}), part[i]);
      }
    }
    const int64_t total = rows * padded_;
    block_pass(arrays, total, [&](const Arrays& x) { local_sort(x, kLocal); });
    for (int64_t size = 2 * kLocal; size <= padded_; size *= 2) {
      hbm_step(arrays, total, size, true);
      for (int64_t group = size / 2; group > kLocal; group /= 2) hbm_step(arrays, total, group, false);
      block_pass(arrays, total, [&](const Arrays& x) {
        for (int64_t group = kLocal; group >= 2; group /= 2) local_step(x, kLocal, group, false);
      });
    }
    const auto put = [&](const ImageView& v, const View& sorted) {
      MoveKernel move;
      move.src = window_of(sorted, 0, {rows, k_.k}, {padded_, 1});
      move.dst = window_of(v.base, 0, {rows, k_.k}, {v.channel_stride, v.stride[2]});
      tile_move(move, local_.context(), tile_);
    };
    if (indices != nullptr) put(*indices, arrays[1]);
    if (values != nullptr) put(*values, arrays[2]);
  }

  template <typename Work>
  void block_pass(const std::vector<View>& arrays, int64_t total, Work work) {
    const int64_t blocks = total / kLocal;
    for (int64_t b = 0; b < blocks; b += kPartitions) {
      const int64_t bn = std::min(kPartitions, blocks - b);
      Arrays tiles;
      for (const View& v : arrays) {
        tiles.push_back(tile_.sbuf(static_cast<int>(bn), {kLocal}, v.dtype));
        tile_.load(tiles.back(), at(v, b * kLocal, {bn * kLocal}, {1}));
      }
      work(tiles);
      for (size_t i = 0; i < arrays.size(); ++i)
        tile_.store(at(arrays[i], b * kLocal, {bn * kLocal}, {1}), tiles[i]);
    }
  }

  // One step over groups of `group` elements with distance group / 2 >= kLocal, or mirrored.
  void hbm_step(const std::vector<View>& arrays, int64_t total, int64_t group, bool mirrored) {
    const int64_t half = group / 2, groups = total / group;
    const int64_t runs = half / kRun;  // per group
    const int64_t runs_per_tile = std::min(runs, kPartitions);
    const int64_t groups_per_tile = std::min(groups, kPartitions / runs_per_tile);
    for (int64_t g = 0; g < groups; g += groups_per_tile) {
      const int64_t gn = std::min(groups_per_tile, groups - g);
      for (int64_t r = 0; r < runs; r += runs_per_tile) {
        const int64_t rn = std::min(runs_per_tile, runs - r);
        const int64_t low = g * group + r * kRun;
        const int64_t high = mirrored ? g * group + group - 1 - r * kRun : low + half;
        const int64_t way = mirrored ? -1 : 1;
        Arrays a, b;
        std::vector<Access> a_hbm, b_hbm;
        for (const View& v : arrays) {
          a_hbm.push_back(at(v, low, {gn, rn, kRun}, {group, kRun, 1}));
          b_hbm.push_back(at(v, high, {gn, rn, kRun}, {group, way * kRun, way}));
          a.push_back(tile_.sbuf(static_cast<int>(gn * rn), {kRun}, v.dtype));
          b.push_back(tile_.sbuf(static_cast<int>(gn * rn), {kRun}, v.dtype));
          tile_.load(a.back(), a_hbm.back());
          tile_.load(b.back(), b_hbm.back());
        }
        compare_exchange(a, b);
        for (size_t i = 0; i < arrays.size(); ++i) {
          tile_.store(a_hbm[i], a[i]);
          tile_.store(b_hbm[i], b[i]);
        }
      }
    }
  }

  const TopKernel& k_;
  LocalContext local_;
  TileBuilder& tile_;
  Dtype dtype_ = Dtype::kF32;
  int64_t n_ = 0, padded_ = 0;
  bool with_values_ = false, with_indices_ = false;
};

}  // namespace

void sort_rows(const TopKernel& kernel, const KernelContext& context, TileBuilder& tile) {
  if (tile_dtype(kernel.input.dtype) == Dtype::kU32) throw_unsupported("sorting uint32; cast to int64 first");
  Sorter(kernel, context, tile).run();
}

}  // namespace trnsim::compiler
