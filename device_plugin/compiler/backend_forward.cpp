// Values that stay in SBUF between kernels: a load of what a tile was just stored to takes the tile itself.
//
// Every kernel stores its results to HBM and the next one loads them, which costs the latency of both transfers. Where the
// load asks for the elements of one earlier store in the same order (the same HBM access), nothing wrote over that memory in
// between, and the tile still holds what was stored, the readers of the loaded tile read the stored one, if both have as
// many partitions. Where they cannot (the loaded tile gets other contents too, or the stored one later), and the value is
// small, a copy inside of SBUF takes the place of the load; else a transfer from SBUF to SBUF, which spares the way of the
// store. Tiles live longer that way: only as long as the fullest point stays below a limit. Loops are left alone: their
// accesses move.
//
// Stores to scratch memory that nobody loads any more go with remove_unread().
#include <algorithm>
#include <map>

#include "device_plugin/compiler/backend.h"
#include "device_plugin/compiler/backend_region.h"

namespace trnsim::compiler {

using isa::Instruction;
using isa::Opcode;
using isa::Space;

// Dims of size 1 dropped, runs merged: equal for equal sequences of elements.
Access plain_access(const Access& a) {
  Access r = a;
  r.num_dims = 0;
  r.size = {};
  r.step = {};
  for (int d = 0; d < a.num_dims; ++d) {
    if (a.size[d] == 1) continue;
    if (r.num_dims > 0 && r.step[r.num_dims - 1] == a.step[d] * static_cast<int64_t>(a.size[d])) {
      r.size[r.num_dims - 1] *= a.size[d];
      r.step[r.num_dims - 1] = a.step[d];
      continue;
    }
    r.size[r.num_dims] = a.size[d];
    r.step[r.num_dims] = a.step[d];
    ++r.num_dims;
  }
  if (r.num_dims == 0) {
    r.num_dims = 1;
    r.size[0] = 1;
    r.step[0] = 1;
  }
  return r;
}

bool is_plain_transfer(const Instruction& i) {
  return i.opcode == Opcode::kDmaCopy && i.op0 == AluOp::kNone && i.dst.dtype == i.src0.dtype &&
         !i.dst.indirect && !i.src0.indirect && i.dst.address_register == isa::kNoRegister &&
         i.src0.address_register == isa::kNoRegister;
}

namespace {

constexpr int64_t kMaxLiveBytes = 112 * 1024;  // per partition, of all tiles at one point
constexpr int64_t kMaxCopyElements = 512;      // per partition: about the latency of a transfer and less
constexpr size_t kMaxReach = 1500;             // instructions from the store to the last reader

class Forwarder {
 public:
  explicit Forwarder(TileProgram& program) : program_(program), uses_(program.tiles.size()) {}

  void run() {
    note_uses();
    size_t loop = 0;
    for (size_t k = 0; k < program_.code.size(); ++k) {
      while (loop < program_.loops.size() && program_.loops[loop].end <= k) ++loop;
      const bool in_loop = loop < program_.loops.size() && program_.loops[loop].begin <= k;
      Instruction& i = program_.code[k];
      if (i.opcode == Opcode::kCoreBarrier) {  // the other core may have written them
        for (uint32_t t : program_.shared) stored_.erase(program_.alias_group[t]);
      }
      if (!in_loop && is_plain_transfer(i) && i.src0.space == Space::kHbm && i.dst.space == Space::kSbuf) {
        load(k);
        continue;
      }
      Operand operands[6];
      const int n = list_operands(i, operands);
      for (int j = 0; j < n; ++j) {
        if (operands[j].write && operands[j].access->space == Space::kHbm)
          written(i, *operands[j].access, in_loop);
      }
      if (!in_loop && is_plain_transfer(i) && i.dst.space == Space::kHbm && i.src0.space == Space::kSbuf)
        stored_[group(i.dst)].push_back({plain_access(i.dst), i.src0, region_of(i.dst), k});
    }
  }

 private:
  struct Store {
    Access hbm, tile;
    Region region;
    size_t at;
  };
  struct Uses {
    std::vector<size_t> reads, writes;
    bool in_loop = false;
  };

  uint32_t group(const Access& hbm) const { return program_.alias_group[hbm.tensor]; }

  void note_uses() {
    std::vector<int64_t> change(program_.code.size() + 1, 0);
    size_t loop = 0;
    for (size_t k = 0; k < program_.code.size(); ++k) {
      while (loop < program_.loops.size() && program_.loops[loop].end <= k) ++loop;
      const bool in_loop = loop < program_.loops.size() && program_.loops[loop].begin <= k;
      Operand operands[6];
      const int n = list_operands(program_.code[k], operands);
      for (int j = 0; j < n; ++j) {
        if (operands[j].access->space != Space::kSbuf) continue;
        Uses& u = uses_[operands[j].access->tensor];
        (operands[j].write ? u.writes : u.reads).push_back(k);
        u.in_loop = u.in_loop || in_loop;
      }
    }
    for (size_t t = 0; t < uses_.size(); ++t) {
      const Uses& u = uses_[t];
      if (u.reads.empty() && u.writes.empty()) continue;
      change[first(u)] += program_.tiles[t].bytes;
      change[last(u) + 1] -= program_.tiles[t].bytes;
    }
    int64_t live = 0;
    for (size_t k = 0; k < program_.code.size(); ++k) live_.push_back(live += change[k]);
  }
  static size_t first(const Uses& u) {
    return std::min(u.reads.empty() ? SIZE_MAX : u.reads.front(),
                    u.writes.empty() ? SIZE_MAX : u.writes.front());
  }
  static size_t last(const Uses& u) {
    return std::max(u.reads.empty() ? 0 : u.reads.back(), u.writes.empty() ? 0 : u.writes.back());
  }

  void written(const Instruction& i, const Access& hbm, bool in_loop) {
    auto found = stored_.find(group(hbm));
    if (found == stored_.end()) return;
    std::vector<Store>& stores = found->second;
    // The rows of a scatter, and what a loop writes, are not known here.
    if (in_loop || i.opcode != Opcode::kDmaCopy || hbm.address_register != isa::kNoRegister) {
      stores.clear();
      return;
    }
    const Region r = region_of(hbm);
    stores.erase(
        std::remove_if(stores.begin(), stores.end(), [&](const Store& s) { return overlap(s.region, r); }),
        stores.end());
  }

  void load(size_t k) {
    Instruction& i = program_.code[k];
    auto found = stored_.find(group(i.src0));
    if (found == stored_.end()) return;
    const Access wanted = plain_access(i.src0);
    for (size_t s = found->second.size(); s-- > 0;) {
      const Store& store = found->second[s];
      if (!(store.hbm == wanted) || store.tile.elements() != i.dst.elements() ||
          store.tile.dtype != i.dst.dtype)
        continue;
      const Uses& from = uses_[store.tile.tensor];
      const auto rewritten = std::upper_bound(from.writes.begin(), from.writes.end(), store.at);
      if (from.in_loop || (rewritten != from.writes.end() && *rewritten < k)) return;
      const bool alike = store.tile.num_partitions == i.dst.num_partitions;
      if (!alike || (!rename(k, store) && !copy(k, store))) move(k, store);
      return;
    }
  }

  // May tile `t` live up to instruction `end`?
  bool room(uint32_t t, size_t end) {
    const size_t begin = last(uses_[t]) + 1;
    const int64_t bytes = program_.tiles[t].bytes;
    for (size_t k = begin; k <= end; ++k) {
      if (live_[k] + bytes > kMaxLiveBytes) return false;
    }
    for (size_t k = begin; k <= end; ++k) live_[k] += bytes;
    return true;
  }

  bool rename(size_t k, const Store& store) {
    const Access load = program_.code[k].dst;
    const uint32_t old = load.tensor;
    Uses& to = uses_[old];
    const TileInfo& info = program_.tiles[old];
    const bool whole =
        load.offset == 0 && load.start_partition == 0 && load.contiguous() &&
        load.num_partitions == info.partitions &&
        load.free_elements() * static_cast<int64_t>(isa::dtype_bytes(load.dtype)) == info.bytes;
    const uint32_t tile = store.tile.tensor;
    if (!whole || to.writes.size() != 1 || to.in_loop || !store.tile.contiguous() ||
        store.tile.start_partition != 0 || to.reads.empty() || to.reads.front() < k ||
        last(to) - store.at > kMaxReach || uses_[tile].writes.back() > store.at || !room(tile, last(to)))
      return false;
    for (size_t r : to.reads) {
      Operand operands[6];
      const int n = list_operands(program_.code[r], operands);
      for (int j = 0; j < n; ++j) {
        Access& a = *operands[j].access;
        if (a.space != Space::kSbuf || a.tensor != old) continue;
        a.tensor = tile;
        a.offset += store.tile.offset;
      }
    }
    std::vector<size_t>& reads = uses_[tile].reads;
    reads.insert(reads.end(), to.reads.begin(), to.reads.end());
    std::sort(reads.begin(), reads.end());
    to.reads.clear();
    make_copy(k, store);  // read by nobody: goes with remove_unread
    return true;
  }

  bool copy(size_t k, const Store& store) {
    const Access& load = program_.code[k].dst;
    if (load.free_elements() > kMaxCopyElements || store.tile.start_partition != 0 ||
        load.start_partition != 0 || k - store.at > kMaxReach || !room(store.tile.tensor, k))
      return false;
    make_copy(k, store);
    note_read(store.tile.tensor, k);
    return true;
  }

  // The transfer comes from the tile: it does not wait for the store.
  void move(size_t k, const Store& store) {
    if (k - store.at > kMaxReach || !room(store.tile.tensor, k)) return;
    program_.code[k].src0 = store.tile;
    note_read(store.tile.tensor, k);
  }

  void note_read(uint32_t tile, size_t k) {
    std::vector<size_t>& reads = uses_[tile].reads;
    reads.insert(std::upper_bound(reads.begin(), reads.end(), k), k);
  }

  // Both sides visit the same number of elements; the dense one takes the dims of the other.
  void make_copy(size_t k, const Store& store) {
    Instruction& i = program_.code[k];
    i.opcode = Opcode::kCopy;
    i.engine = Engine::kVector;
    i.dge = {};
    i.src0 = plain_access(store.tile);
    i.dst = plain_access(i.dst);
  }

  TileProgram& program_;
  std::vector<Uses> uses_;                         // per tile
  std::vector<int64_t> live_;                      // bytes per partition at every instruction
  std::map<uint32_t, std::vector<Store>> stored_;  // per group of tensors, what memory holds of tiles
};

}  // namespace

void forward_stores(TileProgram& tiles) { Forwarder(tiles).run(); }

}  // namespace trnsim::compiler
