// State of SBUF or PSUM: for every byte of every partition who wrote it last and who has read it since.
//
// A row of nodes covers the bytes of a partition without overlap; a node has bands of partitions that share one
// history. Accesses split nodes at their ends, a write melts what it covers into one. Programs touch the same
// tiles again and again, so an access usually meets exactly one node with one band.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "sim/check/operand.h"

namespace trnsim::check {

// Which instructions have had a result read, by stream and index.
using ReadFlags = std::array<std::vector<uint8_t>, isa::kNumStreams>;

class PartitionMemory {
 public:
  PartitionMemory(int64_t bytes_per_partition, bool accumulates_anything, Finds* finds, ReadFlags* was_read);

  // `move`: value of the address register. The bytes lie inside the memory.
  void touch(const Access& a, int64_t move);

  int64_t high_water() const { return high_water_; }
  size_t nodes() const { return nodes_.size() - free_.size(); }

 private:
  // Newest reads since the last write, one per agent. Few at a time; the vector is for shared constants.
  struct Readers {
    uint8_t count = 0;
    std::array<Epoch, 2> few;
    std::unique_ptr<std::vector<Epoch>> more;

    Readers() = default;
    Readers(const Readers& o) { *this = o; }
    Readers& operator=(const Readers& o) {
      count = o.count;
      few = o.few;
      more = o.more ? std::make_unique<std::vector<Epoch>>(*o.more) : nullptr;
      return *this;
    }
    Readers(Readers&&) = default;
    Readers& operator=(Readers&&) = default;

    bool empty() const { return count == 0 && (more == nullptr || more->empty()); }
    void clear() {
      count = 0;
      if (more != nullptr) more->clear();
    }
    void add(const Access& a);
    const Epoch& any() const { return count > 0 ? few[0] : more->front(); }
    template <typename Fn>
    void each(Fn&& fn) const {
      for (int r = 0; r < count; ++r) fn(few[static_cast<size_t>(r)]);
      if (more != nullptr) {
        for (const Epoch& e : *more) fn(e);
      }
    }
  };
  struct Band {
    uint16_t first = 0, end = 0;
    bool matmul = false;  // written by a matmul
    Meant meant = Meant::kUnknown;
    uint32_t buffer = 0;
    Epoch writer;
    Readers readers;
  };
  struct Node {
    int32_t lo = 0, hi = 0;
    int32_t next = -1;
    std::vector<Band> bands;  // ascending, disjoint
  };

  int32_t find(int64_t byte) const;
  int32_t new_node(int32_t lo, int32_t hi, int32_t next);
  void index(int32_t node);
  int32_t split(int32_t node, int32_t at);
  void touch_run(const Access& a, int32_t lo, int32_t hi);
  void read(const Access& a, Node& node);
  void read_band(const Access& a, Band& band, const Place& place);
  void before_write(const Access& a, const Band& band, const Place& place);
  void set(const Access& a, Band& band) const;
  void write(const Access& a, Node& node);
  static size_t cut(Node& node, uint16_t first, uint16_t end);

  static constexpr int kGranuleLog2 = 7;

  const bool accumulates_anything_;  // on data of others too
  Finds* finds_;
  ReadFlags* was_read_;
  int64_t high_water_ = 0;
  std::vector<Node> nodes_;
  std::vector<int32_t> free_;
  std::vector<int32_t> at_;  // node that holds the first byte of every granule
};

}  // namespace trnsim::check
