#include "sim/check/partition_memory.h"

#include <algorithm>

namespace trnsim::check {

PartitionMemory::PartitionMemory(int64_t bytes, bool accumulates_anything, Finds* finds, ReadFlags* was_read)
    : accumulates_anything_(accumulates_anything), finds_(finds), was_read_(was_read) {
  at_.resize(static_cast<size_t>(bytes >> kGranuleLog2) + 1, 0);
  nodes_.reserve(256);
  new_node(0, static_cast<int32_t>(bytes), -1);
}

// A newer read of an agent stands for the older one; so does any read that knows of another.
void PartitionMemory::Readers::add(const Access& a) {
  uint8_t kept = 0;
  for (uint8_t r = 0; r < count; ++r) {
    if (few[r].agent != a.self.agent && !a.known(few[r])) few[kept++] = few[r];
  }
  count = kept;
  if (more != nullptr && !more->empty()) {
    more->erase(std::remove_if(more->begin(), more->end(),
                               [&](const Epoch& e) { return e.agent == a.self.agent || a.known(e); }),
                more->end());
  }
  if (count < few.size()) {
    few[count++] = a.self;
    return;
  }
  if (more == nullptr) more = std::make_unique<std::vector<Epoch>>();
  more->push_back(a.self);
}

int32_t PartitionMemory::find(int64_t byte) const {
  int32_t n = at_[static_cast<size_t>(byte >> kGranuleLog2)];
  while (nodes_[static_cast<size_t>(n)].hi <= byte) n = nodes_[static_cast<size_t>(n)].next;
  return n;
}

int32_t PartitionMemory::new_node(int32_t lo, int32_t hi, int32_t next) {
  int32_t n;
  if (free_.empty()) {
    n = static_cast<int32_t>(nodes_.size());
    nodes_.emplace_back();
  } else {
    n = free_.back();
    free_.pop_back();
  }
  Node& node = nodes_[static_cast<size_t>(n)];
  node.lo = lo;
  node.hi = hi;
  node.next = next;
  return n;
}

void PartitionMemory::index(int32_t n) {
  const Node& node = nodes_[static_cast<size_t>(n)];
  const int32_t first = (node.lo + (1 << kGranuleLog2) - 1) >> kGranuleLog2;
  const int32_t last = (node.hi - 1) >> kGranuleLog2;
  for (int32_t g = first; g <= last; ++g) at_[static_cast<size_t>(g)] = n;
}

// Makes `at` a border; returns the node from there on.
int32_t PartitionMemory::split(int32_t n, int32_t at) {
  if (nodes_[static_cast<size_t>(n)].lo == at) return n;
  const int32_t right = new_node(at, nodes_[static_cast<size_t>(n)].hi, nodes_[static_cast<size_t>(n)].next);
  Node& left = nodes_[static_cast<size_t>(n)];
  nodes_[static_cast<size_t>(right)].bands = left.bands;
  left.hi = at;
  left.next = right;
  index(right);
  return right;
}

void PartitionMemory::touch(const Access& a, int64_t move) {
  const Operand& o = *a.operand;
  if (writes(o.use)) high_water_ = std::max(high_water_, o.region.lo + move + o.region.span);
  for_each_run(o.region, move, [&](int64_t lo, int64_t hi) {
    touch_run(a, static_cast<int32_t>(lo), static_cast<int32_t>(hi));
  });
}

void PartitionMemory::touch_run(const Access& a, int32_t lo, int32_t hi) {
  int32_t n = find(lo);
  {
    Node& node = nodes_[static_cast<size_t>(n)];
    if (node.lo != lo || node.hi < hi) {
      n = split(n, lo);
    }
  }
  if (nodes_[static_cast<size_t>(n)].hi > hi) split(n, hi);
  const bool writing = writes(a.operand->use);
  bool alone = true;  // every node holds this write and nothing else
  const int32_t first = n;
  for (;;) {
    Node& node = nodes_[static_cast<size_t>(n)];
    if (!writing) {
      read(a, node);
    } else {
      write(a, node);
      alone = alone && node.bands.size() == 1;
    }
    if (node.hi >= hi) break;
    n = node.next;
    if (nodes_[static_cast<size_t>(n)].hi > hi) split(n, hi);
  }
  if (!writing || !alone || n == first) return;
  // Melt the covered nodes into the first.
  int32_t gone = nodes_[static_cast<size_t>(first)].next;
  const int32_t rest = nodes_[static_cast<size_t>(n)].next;
  while (gone != rest) {
    Node& node = nodes_[static_cast<size_t>(gone)];
    const int32_t next = node.next;
    node.bands.clear();
    free_.push_back(gone);
    gone = next;
  }
  nodes_[static_cast<size_t>(first)].hi = hi;
  nodes_[static_cast<size_t>(first)].next = rest;
  index(first);
}

// Cuts bands so that [first, end) is covered by whole bands; returns the first band at or behind `first`.
size_t PartitionMemory::cut(Node& node, uint16_t first, uint16_t end) {
  size_t b = 0;
  while (b < node.bands.size() && node.bands[b].end <= first) ++b;
  const size_t begin = b < node.bands.size() && node.bands[b].first < first ? b + 1 : b;
  for (const uint16_t border : {first, end}) {
    for (b = 0; b < node.bands.size(); ++b) {
      if (node.bands[b].first >= border || node.bands[b].end <= border) continue;
      Band upper = node.bands[b];
      upper.first = border;
      node.bands[b].end = border;
      node.bands.insert(node.bands.begin() + static_cast<int64_t>(b) + 1, std::move(upper));
      break;
    }
  }
  return begin;
}

void PartitionMemory::read_band(const Access& a, Band& band, const Place& place) {
  if (band.writer.present()) {
    (*was_read_)[band.writer.stream][band.writer.index] = 1;
    if (!a.known(band.writer)) finds_->race(a, band.writer, Use::kWrite, band.meant, place);
    const uint32_t buffer = a.operand->tensor;
    if (band.buffer != buffer && band.buffer != 0 && buffer != 0)
      finds_->other_buffer(a, band.writer, band.buffer, place);
  } else if (!a.operand->indexed) {
    finds_->unwritten(a, place);
  }
}

void PartitionMemory::read(const Access& a, Node& node) {
  const uint16_t first = a.operand->first_partition, end = a.operand->end_partition;
  if (node.bands.size() == 1 && node.bands[0].first == first && node.bands[0].end == end) {
    Band& band = node.bands[0];
    read_band(a, band, {node.lo, node.hi, first, end});
    if (band.readers.count == 1 && band.readers.few[0].agent == a.self.agent) {
      band.readers.few[0] = a.self;
    } else {
      band.readers.add(a);
    }
    return;
  }
  size_t b = cut(node, first, end);
  uint16_t at = first;
  while (at < end) {
    if (b >= node.bands.size() || node.bands[b].first > at) {  // never written nor read
      const uint16_t to = b < node.bands.size() ? std::min(end, node.bands[b].first) : end;
      Band fresh;
      fresh.first = at;
      fresh.end = to;
      node.bands.insert(node.bands.begin() + static_cast<int64_t>(b), std::move(fresh));
    }
    Band& band = node.bands[b];
    read_band(a, band, {node.lo, node.hi, band.first, band.end});
    band.readers.add(a);
    at = band.end;
    ++b;
  }
}

void PartitionMemory::before_write(const Access& a, const Band& band, const Place& place) {
  const Use use = a.operand->use;
  // An order behind the readers is one behind the writer too.
  bool told = false;
  band.readers.each([&](const Epoch& r) {
    const bool itself = r.agent == a.self.agent && r.clock == a.self.clock;
    if (itself || a.known(r)) return;
    told = true;
    finds_->race(a, r, Use::kRead, Meant::kUnknown, place);
  });
  if (band.writer.present()) {
    if (use != Use::kWrite) (*was_read_)[band.writer.stream][band.writer.index] = 1;
    if (!told && !a.known(band.writer)) finds_->race(a, band.writer, Use::kWrite, band.meant, place);
  }
  if (use == Use::kWrite) return;
  if (!band.writer.present()) {
    finds_->unwritten(a, place);
    return;
  }
  const uint32_t buffer = a.operand->tensor;
  if (band.buffer != buffer && band.buffer != 0 && buffer != 0)
    finds_->other_buffer(a, band.writer, band.buffer, place);
  if (use != Use::kAccumulate) return;
  if (!band.matmul) {
    if (!accumulates_anything_) finds_->accumulates_on_other(a, band.writer, place);
  } else if (!band.readers.empty()) {
    finds_->accumulates_on_read(a, band.readers.any(), place);
  }
}

void PartitionMemory::set(const Access& a, Band& band) const {
  band.meant = !band.writer.present() ? Meant::kWriteFirst
               : band.readers.empty() ? Meant::kReadFirst
                                      : Meant::kUnknown;
  band.writer = a.self;
  band.matmul = a.matmul;
  band.buffer = a.operand->tensor;
  band.readers.clear();
}

void PartitionMemory::write(const Access& a, Node& node) {
  const uint16_t first = a.operand->first_partition, end = a.operand->end_partition;
  if (node.bands.size() == 1 && node.bands[0].first == first && node.bands[0].end == end) {
    before_write(a, node.bands[0], {node.lo, node.hi, first, end});
    set(a, node.bands[0]);
    return;
  }
  const size_t begin = cut(node, first, end);
  size_t stop = begin;
  uint16_t at = first;
  for (; stop < node.bands.size() && node.bands[stop].first < end; ++stop) {
    const Band& band = node.bands[stop];
    if (band.first > at && a.operand->use != Use::kWrite) {
      finds_->unwritten(a, {node.lo, node.hi, at, band.first});
    }
    before_write(a, band, {node.lo, node.hi, band.first, band.end});
    at = band.end;
  }
  if (at < end && a.operand->use != Use::kWrite) finds_->unwritten(a, {node.lo, node.hi, at, end});
  if (stop == begin) {
    node.bands.insert(node.bands.begin() + static_cast<int64_t>(begin), Band{});
  } else {
    node.bands.erase(node.bands.begin() + static_cast<int64_t>(begin) + 1,
                     node.bands.begin() + static_cast<int64_t>(stop));
  }
  Band& band = node.bands[begin];
  band.first = first;
  band.end = end;
  set(a, band);
}

}  // namespace trnsim::check
