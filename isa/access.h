// Operands: where a tensor lives and in which order its elements are visited.
#pragma once

#include <array>
#include <cstdint>

#include "isa/dtype.h"

namespace trnsim::isa {

enum class Space : uint8_t { kNone = 0, kSbuf, kPsum, kHbm };

constexpr int kMaxDims = 5;
constexpr uint8_t kNoRegister = 0xff;
constexpr int kMaxPartitions = 128;
constexpr int64_t kPsumBankBytes = 2048;  // per partition
constexpr int kPsumBanks = 8;

// SBUF / PSUM: the same free-axis pattern (at most 4 dims) is applied in `num_partitions` partitions from
//   `start_partition` on; `offset` is a byte offset inside a partition; elements are visited partition first
//   (outermost), then dims[0] .. dims[num_dims-1].
// HBM: `tensor` is an index into Program::tensors, `offset` a byte offset from its start, up to 5 dims, outermost
//   first; partition fields are 0.
// Steps are in elements of `dtype`, may be 0 (broadcast) or negative. No dims means one element (per partition).
// Indirect operands (SBUF/PSUM, trn3): element i of dims[0] is at index[i] * step[0] instead of i * step[0]. The
//   index list lies in SBUF, entry i in partition index_partition + i % G, column i / G from byte index_offset
//   on, with G = 32 on the tensor engine and 16 elsewhere; all partitions of the operand share it.
// `address_register`, when not kNoRegister, names a sequencer register whose value (bytes) is added to `offset`.
struct Access {
  Space space = Space::kNone;
  Dtype dtype = Dtype::kF32;
  uint8_t num_dims = 0;
  uint8_t address_register = kNoRegister;
  uint16_t start_partition = 0;
  uint16_t num_partitions = 0;
  bool indirect = false;
  Dtype index_dtype = Dtype::kU16;
  uint16_t index_partition = 0;
  uint32_t index_offset = 0;
  uint32_t tensor = 0;  // HBM: tensor index. In tile programs (before allocation) SBUF/PSUM: tile index
  int64_t offset = 0;   // bytes
  std::array<int64_t, kMaxDims> step{};
  std::array<uint32_t, kMaxDims> size{};

  bool present() const { return space != Space::kNone; }
  // Elements per partition (SBUF/PSUM) or in all (HBM).
  int64_t free_elements() const {
    int64_t n = 1;
    for (int i = 0; i < num_dims; ++i) n *= size[i];
    return n;
  }
  int64_t elements() const {
    return space == Space::kHbm ? free_elements() : free_elements() * num_partitions;
  }
  // Bytes from an entry of dim d to the next. The step of a dim of one entry may be any number and means nothing.
  int64_t step_bytes(int d) const {
    return size[d] > 1 ? step[d] * static_cast<int64_t>(dtype_bytes(dtype)) : 0;
  }
  // True when the free axis is one dense run.
  bool contiguous() const {
    int64_t expect = 1;
    for (int i = num_dims - 1; i >= 0; --i) {
      if (size[i] != 1 && step[i] != expect) return false;
      expect *= size[i];
    }
    return true;
  }
};

// The bytes that an access touches, without its partitions: a run of `run` bytes repeated in a box of strides (bytes,
// descending, positive). Dims that continue the run, and overlapping ones, are part of it. One dim more than an access
// has: the iterations of a loop.
struct StridedBox {
  static constexpr int kMaxBoxDims = kMaxDims + 1;
  int64_t lo = 0;  // first byte, in the partition or the tensor; an address register adds to it
  int64_t run = 0;
  int num_dims = 0;
  std::array<int64_t, kMaxBoxDims> stride{};
  std::array<int64_t, kMaxBoxDims> size{};

  // From the first byte to behind the last.
  int64_t extent() const {
    int64_t bytes = run;
    for (int d = 0; d < num_dims; ++d) bytes += (size[d] - 1) * stride[d];
    return bytes;
  }
};

// `repeat` copies of the access, `repeat_bytes` apart.
StridedBox strided_box(const Access& a, int64_t repeat_bytes = 0, int64_t repeat = 1);

bool operator==(const Access& a, const Access& b);
inline bool operator!=(const Access& a, const Access& b) { return !(a == b); }

// Calls fn(first byte, end) for every run, ascending in every dim.
template <typename Fn>
void for_each_run(const StridedBox& r, int64_t move, Fn&& fn) {
  int64_t at = r.lo + move;
  if (r.num_dims == 0) {
    fn(at, at + r.run);
    return;
  }
  std::array<int64_t, StridedBox::kMaxBoxDims> index{};
  for (;;) {
    fn(at, at + r.run);
    int d = r.num_dims - 1;
    for (; d >= 0; --d) {
      at += r.stride[d];
      if (++index[d] < r.size[d]) break;
      at -= r.stride[d] * r.size[d];
      index[d] = 0;
    }
    if (d < 0) return;
  }
}

}  // namespace trnsim::isa
