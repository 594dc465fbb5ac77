// SBUF and PSUM storage: 128 partitions, one row of bytes each.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trnsim::exec {

// The rows are `pitch()` bytes apart. The pitch is an odd number of cache lines larger than the row, so that
// the same offset in all 128 partitions spreads over the cache sets of the host instead of falling into one.
//
// Contents are poisoned lazily: bytes at offsets >= ready() are poison that has not been written yet. Whoever
// touches memory calls ensure() with the end of the largest offset first. A program knows that offset when it
// is prepared, so this is one compare per run, and reset() costs nothing.
class Scratchpad {
 public:
  explicit Scratchpad(int64_t bytes_per_partition);
  ~Scratchpad();
  Scratchpad(const Scratchpad&) = delete;
  Scratchpad& operator=(const Scratchpad&) = delete;

  std::byte* base() const { return base_; }
  int64_t pitch() const { return pitch_; }
  int64_t bytes() const { return bytes_; }

  void ensure(int64_t end_offset) {
    if (end_offset > ready_) poison_to(end_offset);
  }
  void forget() { ready_ = 0; }

 private:
  void poison_to(int64_t end_offset);

  std::byte* base_ = nullptr;
  size_t mapped_ = 0;
  int64_t bytes_ = 0;
  int64_t pitch_ = 0;
  int64_t ready_ = 0;
};

constexpr int64_t pitch_of(int64_t bytes_per_partition) {
  const int64_t lines = (bytes_per_partition + 63) / 64;
  return 64 * (lines % 2 == 0 ? lines + 1 : lines + 2);
}

}  // namespace trnsim::exec
