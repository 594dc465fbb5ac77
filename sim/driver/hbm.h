// One HBM stack: a sparse mapping and its pools. Memory costs host RAM only where it is touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "sim/driver/machine.h"
#include "sim/driver/status.h"

namespace trnsim::driver {

// What new device memory holds. Hardware gives whatever was there; a pattern that reads as NaN in every float
// type and as an odd number in integers makes a read of it show.
enum class Poison : uint8_t {
  kOff,    // as the host gives it
  kSmall,  // allocations up to kPoisonSmallBytes are filled, larger ones are left untouched
  kAll,    // every allocation is filled (touches its pages)
};
constexpr uint64_t kPoisonSmallBytes = 64 * 1024;
constexpr unsigned char kPoisonByte = 0xFF;  // 0xFFFFFFFF, 0xFFFF and 0xFF: NaN in FP32, BF16, FP16 and FP8

constexpr uint64_t kSmallGrain = 1024;
constexpr uint64_t kLargeGrain = 4096;
constexpr uint64_t kReturnToHostBytes = uint64_t{32}
                                        << 20;  // freed blocks of this size give their pages back

class HbmStack {
 public:
  HbmStack(const MachineSpec& spec, int stack);
  HbmStack(const HbmStack&) = delete;
  HbmStack& operator=(const HbmStack&) = delete;
  ~HbmStack();

  // Maps the stack. In timing-only runs (`backed` false) the addresses are reserved, and reading one by
  // accident gives zero, but there is no file behind them and nothing here ever touches a page.
  Status map(bool backed);

  // `offset` from the start of the stack and `rounded` size of the block handed out.
  Status allocate(uint64_t bytes, uint64_t alignment, Poison poison, uint64_t* offset, uint64_t* rounded);
  void free(uint64_t offset, uint64_t rounded);

  std::byte* data(uint64_t offset) const { return base_ + offset; }
  uint64_t device_address(uint64_t offset) const { return hbm_base_address(stack_) + offset; }
  uint64_t capacity() const { return spec_.bytes_per_stack - spec_.firmware_bytes; }
  uint64_t used() const;
  uint64_t peak() const;
  uint64_t largest_free_block() const;
  int file() const { return fd_; }  // for another process to map; -1 when not backed

 private:
  // Best fit over a free list ordered by address, with merging of neighbours.
  class Pool {
   public:
    void reset(uint64_t begin, uint64_t end);
    bool take(uint64_t bytes, uint64_t alignment, uint64_t* offset);
    void give(uint64_t offset, uint64_t bytes);
    bool contains(uint64_t offset) const { return offset >= begin_ && offset < end_; }
    uint64_t largest() const { return by_size_.empty() ? 0 : by_size_.rbegin()->first; }

   private:
    void insert(uint64_t offset, uint64_t bytes);
    void erase(std::map<uint64_t, uint64_t>::iterator it);

    uint64_t begin_ = 0;
    uint64_t end_ = 0;
    std::map<uint64_t, uint64_t> by_offset_;           // offset -> bytes
    std::set<std::pair<uint64_t, uint64_t>> by_size_;  // (bytes, offset)
  };

  MachineSpec spec_;
  int stack_;
  int fd_ = -1;
  bool backed_ = false;
  std::byte* base_ = nullptr;
  mutable std::mutex mutex_;
  Pool main_;
  Pool small_;
  uint64_t used_ = 0;
  uint64_t peak_ = 0;
};

}  // namespace trnsim::driver
