// SBUF and PSUM space. Tiles live from their first to their last use in program order. Next-fit: every tile
// is placed after the previous one, wrapping around, so that the tiles of successive loop iterations land in
// different places and loads run ahead of the computation (double buffering and more) without any further
// planning. Loops have a fixed plan instead: the iterations of a copy rotate over equal slots of one window,
// and all copies use the same places.
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

  void allocate_at(int64_t at, int64_t bytes) { take(at, bytes); }

  // Largest free interval, its begin aligned to whole banks.
  std::pair<int64_t, int64_t> largest_free() const {
    std::pair<int64_t, int64_t> best{0, 0};
    for (auto [begin, end] : free_) {
      int64_t at = bank_ > 0 ? (begin + bank_ - 1) / bank_ * bank_ : begin;
      if (end - at > best.second) best = {at, end - at};
    }
    return best;
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

int64_t placed_size(const TileInfo& info, bool whole_banks) {
  if (info.space == Space::kPsum && whole_banks) return isa::kPsumBankBytes;
  return align_up(info.bytes);
}

// What the placement works on: code positions where tiles start and end, and the loops.
struct Plan {
  std::vector<Lifetime> life;
  std::vector<std::vector<uint32_t>> starts, ends;
  std::vector<std::pair<size_t, size_t>> loops;  // code of every expanded loop
  std::vector<std::vector<bool>> local;          // per loop: tiles of slot 0 of the first copy
  std::vector<size_t> first_iteration_end;       // per loop
  std::vector<bool> across;                      // tiles that are live during a whole loop
};

Plan make_plan(const TileProgram& program) {
  Plan plan;
  size_t count = program.code.size(), tiles = program.tiles.size();
  plan.life.resize(tiles);
  plan.across.assign(tiles, false);
  for (size_t k = 0; k < count; ++k) {
    Operand operands[6];
    int n = list_operands(const_cast<isa::Instruction&>(program.code[k]), operands);
    for (int j = 0; j < n; ++j) {
      if (operands[j].access->space == Space::kHbm) continue;
      Lifetime& l = plan.life[operands[j].access->tensor];
      if (l.first < 0) l.first = static_cast<int64_t>(k);
      l.last = static_cast<int64_t>(k);
    }
  }
  plan.loops.assign(program.expanded.size(), {SIZE_MAX, 0});
  plan.first_iteration_end.assign(program.expanded.size(), 0);
  for (size_t k = 0; k < program.origins.size(); ++k) {
    const Origin& o = program.origins[k];
    if (o.loop < 0) continue;
    plan.loops[o.loop].first = std::min(plan.loops[o.loop].first, k);
    plan.loops[o.loop].second = k + 1;
    if (o.iteration == 0) plan.first_iteration_end[o.loop] = k + 1;
  }
  for (size_t l = 0; l < plan.loops.size(); ++l) {
    auto [begin, end] = plan.loops[l];
    auto& local = plan.local.emplace_back(tiles, false);
    for (size_t t = 0; t < tiles; ++t) {
      Lifetime& life = plan.life[t];
      const TileInfo& info = program.tiles[t];
      if (life.first < 0) continue;
      if (info.loop == static_cast<int32_t>(l)) {
        local[t] = info.slot == 0 && info.twin == t;
        continue;
      }
      // The contents go from iteration to iteration.
      if (life.first < static_cast<int64_t>(end) && life.last >= static_cast<int64_t>(begin)) {
        life.first = std::min(life.first, static_cast<int64_t>(begin));
        life.last = std::max(life.last, static_cast<int64_t>(end) - 1);
        plan.across[t] = true;
      }
    }
  }
  plan.starts.resize(count);
  plan.ends.resize(count);
  for (size_t t = 0; t < tiles; ++t) {
    if (plan.life[t].first < 0) continue;
    plan.starts[plan.life[t].first].push_back(static_cast<uint32_t>(t));
    plan.ends[plan.life[t].last].push_back(static_cast<uint32_t>(t));
  }
  return plan;
}

// Fixed places for the tiles of the first copy of a loop. False: no room.
bool place_loop(const TileProgram& program, const Plan& plan, size_t loop, const Arena& sbuf,
                const Arena& psum, Allocation& result) {
  auto [begin, end] = plan.loops[loop];
  int slots = program.expanded[loop].slots;
  for (Space space : {Space::kSbuf, Space::kPsum}) {
    auto [base, window] = (space == Space::kPsum ? psum : sbuf).largest_free();
    IterationLayout layout =
        choose_layout(program, begin, plan.first_iteration_end[loop], space, plan.local[loop], window);
    if (layout.bytes == 0) continue;
    int64_t buffers = 0;
    for (int64_t d = 1; d <= slots && d * layout.bytes <= window; ++d) {
      if (slots % d == 0) buffers = d;
    }
    if (buffers < (program.expanded[loop].staggered ? 2 : 1)) return false;
    std::map<int32_t, int64_t> place_of;  // by order in the iteration
    for (auto [tile, offset] : layout.places) place_of[program.tiles[tile].order] = offset;
    for (size_t t = 0; t < program.tiles.size(); ++t) {
      const TileInfo& info = program.tiles[t];
      if (info.loop != static_cast<int32_t>(loop) || info.twin != t || info.space != space) continue;
      result.offset[t] = base + info.slot % buffers * layout.bytes + place_of.at(info.order);
    }
  }
  return true;
}

// True when every tile found a place.
bool place(const TileProgram& program, const Plan& plan, bool rotate, bool whole_banks, Allocation& result,
           uint32_t& failed) {
  size_t n = program.tiles.size();
  Arena sbuf(program.options.sbuf_bytes_per_partition / kAlignment * kAlignment, 0);
  Arena psum(kPsumBytes, isa::kPsumBankBytes);
  result.offset.assign(n, 0);
  result.replaced.assign(n, {});
  result.failed_loop = -1;
  size_t next_loop = 0;
  for (size_t k = 0; k < plan.starts.size(); ++k) {
    bool enters = next_loop < plan.loops.size() && plan.loops[next_loop].first == k;
    // Tiles that live through the loop come first and leave one window free.
    for (bool in_loop : {false, true}) {
      if (in_loop && enters) {
        if (!place_loop(program, plan, next_loop, sbuf, psum, result)) {
          result.failed_loop = static_cast<int32_t>(next_loop);
          return false;
        }
        ++next_loop;
      }
      for (uint32_t t : plan.starts[k]) {
        const TileInfo& info = program.tiles[t];
        if ((info.loop >= 0) != in_loop) continue;
        Arena& arena = info.space == Space::kPsum ? psum : sbuf;
        bool banks = whole_banks || in_loop || plan.across[t];
        int64_t bytes = placed_size(info, banks);
        int64_t at;
        if (in_loop) {
          at = result.offset[info.twin];
          arena.allocate_at(at, bytes);
        } else {
          at = arena.allocate(bytes, rotate && !plan.across[t]);
        }
        if (at < 0) {
          failed = t;
          return false;
        }
        result.offset[t] = at;
        result.replaced[t] = arena.own(at, bytes, t);
      }
    }
    for (uint32_t t : plan.ends[k]) {
      const TileInfo& info = program.tiles[t];
      Arena& arena = info.space == Space::kPsum ? psum : sbuf;
      arena.release(result.offset[t], placed_size(info, whole_banks || info.loop >= 0 || plan.across[t]));
    }
  }
  result.sbuf_high_water = sbuf.high_water();
  return true;
}

}  // namespace

IterationLayout lay_out_iteration(const TileProgram& program, size_t begin, size_t end, Space space,
                                  const std::vector<bool>& local, bool packed) {
  IterationLayout layout;
  std::vector<Lifetime> life(program.tiles.size());
  for (int pass = 0; pass < 2; ++pass) {
    Arena arena(int64_t{1} << 40, space == Space::kPsum ? isa::kPsumBankBytes : 0);
    for (size_t k = begin; k < end; ++k) {
      Operand operands[6];
      int n = list_operands(const_cast<isa::Instruction&>(program.code[k]), operands);
      for (int j = 0; j < n; ++j) {
        uint32_t t = operands[j].access->tensor;
        if (operands[j].access->space != space || !local[t]) continue;
        Lifetime& l = life[t];
        if (pass == 0) {
          l.last = static_cast<int64_t>(k);
        } else if (l.first < 0) {
          l.first = static_cast<int64_t>(k);
          int64_t bytes = placed_size(program.tiles[t], true);
          int64_t at = arena.allocate(bytes, false);
          layout.places.emplace_back(t, at);
          layout.bytes = std::max(layout.bytes, at + bytes);
        }
      }
      if (pass == 0 || !packed) continue;
      for (auto [t, at] : layout.places) {
        if (life[t].last == static_cast<int64_t>(k)) arena.release(at, placed_size(program.tiles[t], true));
      }
    }
  }
  return layout;
}

IterationLayout choose_layout(const TileProgram& program, size_t begin, size_t end, Space space,
                              const std::vector<bool>& local, int64_t window) {
  constexpr int64_t kEnough = 3;
  IterationLayout loose = lay_out_iteration(program, begin, end, space, local, false);
  if (loose.bytes * kEnough <= window) return loose;
  IterationLayout tight = lay_out_iteration(program, begin, end, space, local, true);
  return tight.bytes < loose.bytes && window / tight.bytes > window / loose.bytes ? tight : loose;
}

Allocation allocate_tiles(const TileProgram& program) {
  Plan plan = make_plan(program);
  Allocation result;
  uint32_t failed = 0;
  if (place(program, plan, true, true, result, failed)) return result;
  if (place(program, plan, true, false, result, failed)) return result;
  // Rotation fragments the space; packing from the bottom up is tighter and gives up overlap instead.
  if (place(program, plan, false, false, result, failed)) return result;
  if (!program.expanded.empty()) {
    if (result.failed_loop < 0) result.failed_loop = 0;
    return result;
  }
  const std::vector<Lifetime>& life = plan.life;
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
