#include "sim/driver/hbm.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace trnsim::driver {

namespace {
constexpr uint64_t round_up(uint64_t v, uint64_t unit) { return (v + unit - 1) / unit * unit; }
}  // namespace

// --- pool
// -----------------------------------------------------------------------------------------------------------

void HbmStack::Pool::reset(uint64_t begin, uint64_t end) {
  begin_ = begin;
  end_ = end;
  by_offset_.clear();
  by_size_.clear();
  if (end > begin) insert(begin, end - begin);
}

void HbmStack::Pool::insert(uint64_t offset, uint64_t bytes) {
  by_offset_.emplace(offset, bytes);
  by_size_.emplace(bytes, offset);
}

void HbmStack::Pool::erase(std::map<uint64_t, uint64_t>::iterator it) {
  by_size_.erase({it->second, it->first});
  by_offset_.erase(it);
}

bool HbmStack::Pool::take(uint64_t bytes, uint64_t alignment, uint64_t* offset) {
  for (auto it = by_size_.lower_bound({bytes, 0}); it != by_size_.end(); ++it) {
    const auto [size, start] = *it;
    const uint64_t aligned = round_up(start, alignment);
    if (aligned - start > size || size - (aligned - start) < bytes) continue;
    erase(by_offset_.find(start));
    if (aligned > start) insert(start, aligned - start);
    const uint64_t end = aligned + bytes;
    if (end < start + size) insert(end, start + size - end);
    *offset = aligned;
    return true;
  }
  return false;
}

void HbmStack::Pool::give(uint64_t offset, uint64_t bytes) {
  auto next = by_offset_.lower_bound(offset);
  if (next != by_offset_.end() && next->first == offset + bytes) {
    bytes += next->second;
    auto gone = next++;
    erase(gone);
  }
  if (next != by_offset_.begin()) {
    auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      offset = previous->first;
      bytes += previous->second;
      erase(previous);
    }
  }
  insert(offset, bytes);
}

// --- stack
// ----------------------------------------------------------------------------------------------------------

HbmStack::HbmStack(const MachineSpec& spec, int stack) : spec_(spec), stack_(stack) {
  const uint64_t end = spec_.bytes_per_stack;
  // A stack made small by configuration keeps its proportions.
  const uint64_t small = std::min(spec_.small_pool_bytes, round_up(end / 24, kLargeGrain));
  main_.reset(spec_.firmware_bytes, end - small);
  small_.reset(end - small, end);
}

HbmStack::~HbmStack() {
  if (base_ != nullptr) munmap(base_, spec_.bytes_per_stack);
  if (fd_ >= 0) ::close(fd_);
}

Status HbmStack::map(bool backed) {
  if (base_ != nullptr) return {};
  const uint64_t bytes = spec_.bytes_per_stack;
  const auto fail = [&](const char* what) {
    return Status{Code::kIo,
                  std::string("user error: the host refused to ") + what + " " + std::to_string(bytes) +
                      " bytes of address space for an HBM stack (" + std::strerror(errno) +
                      "); raise the address-space limit (ulimit -v) or choose a smaller stack with "
                      "TRNSIM_SET"};
  };
  backed_ = backed;
  int flags = MAP_NORESERVE;
  if (backed) {
    fd_ = memfd_create("trnsim-hbm", MFD_CLOEXEC);
    if (fd_ < 0 || ftruncate(fd_, static_cast<off_t>(bytes)) != 0) return fail("create");
    flags |= MAP_SHARED;
  } else {
    flags |= MAP_PRIVATE | MAP_ANONYMOUS;
  }
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd_, 0);
  if (p == MAP_FAILED) return fail("map");
  madvise(p, bytes, MADV_DONTDUMP);  // a core dump of the process should not hold the device
  base_ = static_cast<std::byte*>(p);
  return {};
}

Status HbmStack::allocate(uint64_t bytes, uint64_t alignment, Poison poison, uint64_t* offset,
                          uint64_t* rounded) {
  if (bytes == 0) return {Code::kInvalid, "user error: an allocation of 0 bytes"};
  if (alignment == 0 || (alignment & (alignment - 1)) != 0)
    return {Code::kInvalid, "user error: alignment " + std::to_string(alignment) + " is not a power of two"};
  const bool is_small = bytes <= spec_.small_limit_bytes;
  const uint64_t grain = is_small ? kSmallGrain : kLargeGrain;
  alignment = std::max(alignment, grain);
  {
    const std::lock_guard lock(mutex_);
    const uint64_t size = bytes > spec_.bytes_per_stack ? bytes : round_up(bytes, grain);
    Pool& first = is_small ? small_ : main_;
    Pool& second = is_small ? main_ : small_;
    if (!first.take(size, alignment, offset) && !second.take(size, alignment, offset)) {
      const uint64_t free_bytes = capacity() - used_;
      const uint64_t largest = std::max(main_.largest(), small_.largest());
      return {Code::kNoMemory,
              "illegal on hardware: out of device memory on HBM stack " + std::to_string(stack_) + ": " +
                  std::to_string(bytes) + " bytes asked for, " + std::to_string(free_bytes) + " of " +
                  std::to_string(capacity()) + " bytes are free, the largest free block has " +
                  std::to_string(largest) + " bytes"};
    }
    *rounded = size;
    used_ += size;
    peak_ = std::max(peak_, used_);
  }
  if (backed_ && (poison == Poison::kAll || (poison == Poison::kSmall && bytes <= kPoisonSmallBytes)))
    std::memset(data(*offset), kPoisonByte, *rounded);
  return {};
}

void HbmStack::free(uint64_t offset, uint64_t rounded) {
  if (backed_ && rounded >= kReturnToHostBytes) {
    fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
              static_cast<off_t>(rounded));
  }
  const std::lock_guard lock(mutex_);
  used_ -= rounded;
  (small_.contains(offset) ? small_ : main_).give(offset, rounded);
}

uint64_t HbmStack::used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

uint64_t HbmStack::peak() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

uint64_t HbmStack::largest_free_block() const {
  const std::lock_guard lock(mutex_);
  return std::max(main_.largest(), small_.largest());
}

}  // namespace trnsim::driver
