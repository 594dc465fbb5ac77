// SBUF and PSUM space. Tiles live from their first to their last use in program order. Next-fit: every tile
// is placed after the previous one, wrapping around, so that the tiles of successive loop iterations land in
// different places and loads run ahead of the computation (double buffering and more) without any further
// planning.
#include <algorithm>
#include <map>

#include "device_plugin/compiler/backend.h"
#include "device_plugin/compiler/error.h"

namespace trnsim::compiler {

using isa::Space;

namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kPsumBytes = isa::kPsumBankBytes * isa::kPsumBanks;

int64_t align_up(int64_t v) { return (v + kAlignment - 1) / kAlignment * kAlignment; }

// One memory: disjoint free intervals, and who last owned every byte.
class Arena {
 public:
  Arena(int64_t capacity, int64_t bank) : capacity_(capacity), bank_(bank) { free_[0] = capacity; }

  // Byte offset or -1. `rotate`: next-fit from the cursor, else first-fit from 0.
  int64_t allocate(int64_t bytes, bool rotate) {
    if (rotate) {
      int64_t at = find(cursor_, capacity_, bytes);
      if (at < 0) at = find(0, capacity_, bytes);
      if (at >= 0) take(at, bytes);
      return at;
    }
    int64_t at = find(0, capacity_, bytes);
    if (at >= 0) take(at, bytes);
    return at;
  }

  void release(int64_t at, int64_t bytes) {
    auto next = free_.lower_bound(at);
    int64_t begin = at, end = at + bytes;
    if (next != free_.begin()) {
      auto prev = std::prev(next);
      if (prev->second == begin) {
        begin = prev->first;
        free_.erase(prev);
      }
    }
    if (next != free_.end() && next->first == end) {
      end = next->second;
      free_.erase(next);
    }
    free_[begin] = end;
  }

  // Makes `tile` the owner of [at, at + bytes); returns the tiles that had been there.
  std::vector<uint32_t> own(int64_t at, int64_t bytes, uint32_t tile) {
    std::vector<uint32_t> replaced;
    int64_t end = at + bytes;
    auto it = owners_.upper_bound(at);
    if (it != owners_.begin()) --it;
    while (it != owners_.end() && it->first < end) {
      int64_t b = it->first, e = it->second.end;
      uint32_t owner = it->second.tile;
      if (e <= at) {
        ++it;
        continue;
      }
      replaced.push_back(owner);
      it = owners_.erase(it);
      if (b < at) owners_[b] = {at, owner};
      if (e > end) it = owners_.emplace(end, Owner{e, owner}).first;
    }
    owners_[at] = {end, tile};
    std::sort(replaced.begin(), replaced.end());
    replaced.erase(std::unique(replaced.begin(), replaced.end()), replaced.end());
    high_water_ = std::max(high_water_, end);
    return replaced;
  }

  int64_t high_water() const { return high_water_; }

 private:
  struct Owner {
    int64_t end;
    uint32_t tile;
  };

  int64_t find(int64_t from, int64_t limit, int64_t bytes) const {
    auto it = free_.upper_bound(from);
    if (it != free_.begin()) --it;
    for (; it != free_.end() && it->first < limit; ++it) {
      int64_t at = std::max(it->first, from);
      if (bank_ > 0 && at / bank_ != (at + bytes - 1) / bank_) at = (at + bank_ - 1) / bank_ * bank_;
      if (at + bytes <= it->second) return at;
    }
    return -1;
  }

  void take(int64_t at, int64_t bytes) {
    auto it = std::prev(free_.upper_bound(at));
    int64_t b = it->first, e = it->second;
    free_.erase(it);
    if (b < at) free_[b] = at;
    if (at + bytes < e) free_[at + bytes] = e;
    cursor_ = at + bytes >= capacity_ ? 0 : at + bytes;
  }

  int64_t capacity_, bank_, cursor_ = 0, high_water_ = 0;
  std::map<int64_t, int64_t> free_;  // begin -> end
  std::map<int64_t, Owner> owners_;  // begin -> end, tile
};

struct Lifetime {
  int64_t first = -1, last = -1;
};

// True when every tile found a place.
bool place(const TileProgram& program, const std::vector<Lifetime>& life,
           const std::vector<std::vector<uint32_t>>& starts, const std::vector<std::vector<uint32_t>>& ends,
           bool rotate, bool whole_banks, Allocation& result, uint32_t& failed) {
  size_t n = program.tiles.size();
  Arena sbuf(program.options.sbuf_bytes_per_partition / kAlignment * kAlignment, 0);
  Arena psum(kPsumBytes, isa::kPsumBankBytes);
  result.offset.assign(n, 0);
  result.replaced.assign(n, {});
  auto size_of = [&](uint32_t t) {
    const TileInfo& info = program.tiles[t];
    if (info.space == Space::kPsum) return whole_banks ? isa::kPsumBankBytes : align_up(info.bytes);
    return align_up(info.bytes);
  };
  for (size_t k = 0; k < starts.size(); ++k) {
    for (uint32_t t : starts[k]) {
      Arena& arena = program.tiles[t].space == Space::kPsum ? psum : sbuf;
      int64_t at = arena.allocate(size_of(t), rotate);
      if (at < 0) {
        failed = t;
        return false;
      }
      result.offset[t] = at;
      result.replaced[t] = arena.own(at, size_of(t), t);
    }
    for (uint32_t t : ends[k]) {
      Arena& arena = program.tiles[t].space == Space::kPsum ? psum : sbuf;
      arena.release(result.offset[t], size_of(t));
    }
  }
  result.sbuf_high_water = sbuf.high_water();
  return true;
}

}  // namespace

Allocation allocate_tiles(const TileProgram& program) {
  std::vector<Lifetime> life(program.tiles.size());
  size_t count = program.code.size();
  for (size_t k = 0; k < count; ++k) {
    Operand operands[6];
    int n = list_operands(const_cast<isa::Instruction&>(program.code[k]), operands);
    for (int j = 0; j < n; ++j) {
      if (operands[j].access->space == Space::kHbm) continue;
      Lifetime& l = life[operands[j].access->tensor];
      if (l.first < 0) l.first = static_cast<int64_t>(k);
      l.last = static_cast<int64_t>(k);
    }
  }
  std::vector<std::vector<uint32_t>> starts(count), ends(count);
  for (size_t t = 0; t < life.size(); ++t) {
    if (life[t].first < 0) continue;
    starts[life[t].first].push_back(static_cast<uint32_t>(t));
    ends[life[t].last].push_back(static_cast<uint32_t>(t));
  }
  Allocation result;
  uint32_t failed = 0;
  if (place(program, life, starts, ends, true, true, result, failed)) return result;
  if (place(program, life, starts, ends, true, false, result, failed)) return result;
  // Rotation fragments the space; packing from the bottom up is tighter and gives up overlap instead.
  if (place(program, life, starts, ends, false, false, result, failed)) return result;
  const TileInfo& info = program.tiles[failed];
  bool psum = info.space == Space::kPsum;
  int64_t live = 0;
  for (size_t t = 0; t < life.size(); ++t) {
    if (program.tiles[t].space == info.space && life[t].first >= 0 && life[t].first <= life[failed].first &&
        life[t].last >= life[failed].first) {
      live += program.tiles[t].bytes;
    }
  }
  throw_unsupported(std::string(psum ? "PSUM" : "SBUF") + " is full: a tile of " +
                    std::to_string(info.bytes) + " bytes per partition does not fit; " +
                    std::to_string(live) + " bytes are live at that point, the limit is " +
                    std::to_string(psum ? kPsumBytes : program.options.sbuf_bytes_per_partition) +
                    " bytes per partition; smaller tiles are needed");
}

}  // namespace trnsim::compiler
