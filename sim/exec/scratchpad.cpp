#include "sim/exec/scratchpad.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "isa/access.h"

namespace trnsim::exec {
namespace {
constexpr size_t kHugePage = size_t{2} << 20;
// All ones is a NaN in every float dtype and -1 in the signed integers.
constexpr int kPoison = 0xff;
}  // namespace

Scratchpad::Scratchpad(int64_t bytes_per_partition)
    : bytes_(bytes_per_partition), pitch_(pitch_of(bytes_per_partition)) {
  // Room to place the base on a huge-page boundary: few TLB entries cover a walk down the partitions.
  const size_t need = static_cast<size_t>(pitch_) * isa::kMaxPartitions;
  mapped_ = need + kHugePage;
  void* p =
      mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  const uintptr_t aligned = (reinterpret_cast<uintptr_t>(p) + kHugePage - 1) & ~(kHugePage - 1);
  const size_t head = aligned - reinterpret_cast<uintptr_t>(p);
  if (head != 0) munmap(p, head);
  mapped_ -= head;
  base_ = reinterpret_cast<std::byte*>(aligned);
  madvise(base_, mapped_, MADV_HUGEPAGE);  // advice only: smaller pages work too
}

Scratchpad::~Scratchpad() { munmap(base_, mapped_); }

void Scratchpad::poison_to(int64_t end_offset) {
  // Grow by at least a quarter so that a sequence of single instructions does not creep.
  const int64_t end = std::min(bytes_, std::max((end_offset + 4095) / 4096 * 4096, ready_ + ready_ / 4));
  for (int p = 0; p < isa::kMaxPartitions; ++p) {
    std::memset(base_ + p * pitch_ + ready_, kPoison, static_cast<size_t>(end - ready_));
  }
  ready_ = end;
}

}  // namespace trnsim::exec
