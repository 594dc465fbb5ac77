// Dependencies, semaphores and streams.
//
// Every engine and every DMA queue completes its work in order and counts it in one semaphore, so
// "instruction n of engine E is done" is one compare. For each instruction we find the latest conflicting
// access of every other engine and queue, drop what the issuing engine already knows (directly, or because
// something it waited for had waited in turn), and turn the rest into waits.
//
// Conflicts are looked up per tile (SBUF, PSUM) or per HBM tensor, not per byte: a tile that takes over the
// space of older tiles inherits all their accesses as one set, and inside a tile or tensor a short list of
// recent access regions is kept. Both keep the analysis near linear in the number of instructions.
#include <algorithm>
#include <array>

#include "device_plugin/compiler/backend.h"
#include "device_plugin/compiler/error.h"

namespace trnsim::compiler {

using isa::Instruction;
using isa::Opcode;
using isa::Space;

namespace {

using Clock = std::array<int32_t, kNumProcs>;

// The bytes an access touches: a run of `run` bytes repeated in a box of strides (bytes, descending,
// positive).
struct Region {
  int64_t lo = 0, hi = 0, run = 0;
  uint16_t first_partition = 0, end_partition = 1;
  uint8_t num_dims = 0;
  std::array<int64_t, isa::kMaxDims> stride{};
  std::array<int64_t, isa::kMaxDims> size{};
};

Region region_of(const Access& a) {
  Region r;
  if (a.space != Space::kHbm) {
    r.first_partition = a.start_partition;
    r.end_partition = static_cast<uint16_t>(a.start_partition + a.num_partitions);
  }
  int64_t bytes = static_cast<int64_t>(isa::dtype_bytes(a.dtype));
  r.lo = a.offset;
  for (int i = 0; i < a.num_dims; ++i) {
    if (a.size[i] <= 1 || a.step[i] == 0) continue;
    int64_t stride = a.step[i] * bytes, size = a.size[i];
    if (stride < 0) {
      r.lo += stride * (size - 1);
      stride = -stride;
    }
    int at = r.num_dims++;
    while (at > 0 && r.stride[at - 1] < stride) {
      r.stride[at] = r.stride[at - 1];
      r.size[at] = r.size[at - 1];
      --at;
    }
    r.stride[at] = stride;
    r.size[at] = size;
  }
  r.run = bytes;
  while (r.num_dims > 0 && r.stride[r.num_dims - 1] <= r.run) {
    r.run += (r.size[r.num_dims - 1] - 1) * r.stride[r.num_dims - 1];
    --r.num_dims;
  }
  r.hi = r.lo + r.run;
  for (int i = 0; i < r.num_dims; ++i) r.hi += (r.size[i] - 1) * r.stride[i];
  return r;
}

bool same_region(const Region& a, const Region& b) {
  if (a.lo != b.lo || a.hi != b.hi || a.run != b.run || a.num_dims != b.num_dims ||
      a.first_partition != b.first_partition || a.end_partition != b.end_partition) {
    return false;
  }
  for (int i = 0; i < a.num_dims; ++i) {
    if (a.stride[i] != b.stride[i] || a.size[i] != b.size[i]) return false;
  }
  return true;
}

bool covers(const Region& outer, const Region& inner) {
  return outer.num_dims == 0 && outer.lo <= inner.lo && inner.hi <= outer.hi &&
         outer.first_partition <= inner.first_partition && inner.end_partition <= outer.end_partition;
}

// Two boxes over the same strides are disjoint when, written in mixed radix over the strides, some digit
// ranges are. Returns false (may overlap) where the radix is not unique.
bool boxes_disjoint(const Region& a, const Region& b) {
  std::array<int64_t, 2 * isa::kMaxDims> stride;
  std::array<int64_t, 2 * isa::kMaxDims> size_a, size_b;
  int n = 0, i = 0, j = 0;
  while (i < a.num_dims || j < b.num_dims) {
    int64_t sa = i < a.num_dims ? a.stride[i] : 0, sb = j < b.num_dims ? b.stride[j] : 0;
    stride[n] = std::max(sa, sb);
    size_a[n] = sa == stride[n] ? a.size[i++] : 1;
    size_b[n] = sb == stride[n] ? b.size[j++] : 1;
    ++n;
  }
  int64_t base = std::min(a.lo, b.lo);
  auto digits = [&](const Region& r, const std::array<int64_t, 2 * isa::kMaxDims>& size,
                    std::array<int64_t, 2 * isa::kMaxDims>& first, int64_t& rest) {
    int64_t d = r.lo - base;
    for (int k = 0; k < n; ++k) {
      first[k] = d / stride[k];
      d -= first[k] * stride[k];
    }
    rest = d;
    int64_t reach = rest + r.run;  // highest offset below stride k, exclusive
    for (int k = n - 1; k >= 0; --k) {
      if (reach > stride[k]) return false;
      reach += (first[k] + size[k] - 1) * stride[k];
    }
    return true;
  };
  std::array<int64_t, 2 * isa::kMaxDims> first_a, first_b;
  int64_t rest_a, rest_b;
  if (!digits(a, size_a, first_a, rest_a) || !digits(b, size_b, first_b, rest_b)) return false;
  for (int k = 0; k < n; ++k) {
    if (first_a[k] + size_a[k] <= first_b[k] || first_b[k] + size_b[k] <= first_a[k]) return true;
  }
  return rest_a + a.run <= rest_b || rest_b + b.run <= rest_a;
}

bool overlap(const Region& a, const Region& b) {
  if (a.lo >= b.hi || b.lo >= a.hi) return false;
  if (a.first_partition >= b.end_partition || b.first_partition >= a.end_partition) return false;
  if (a.num_dims == 0 && b.num_dims == 0) return true;
  return !boxes_disjoint(a, b);
}

struct Record {
  Region region;
  int32_t ordinal = 0;
  uint8_t proc = 0;
  bool write = false;
};

struct Resource {
  std::vector<Record> records;
  std::vector<std::pair<uint8_t, int32_t>> last;       // latest access of every proc
  std::vector<std::pair<uint8_t, int32_t>> inherited;  // accesses of the tiles whose space this one took over

  void touch(uint8_t proc, int32_t ordinal) {
    for (auto& [p, o] : last) {
      if (p == proc) {
        o = ordinal;
        return;
      }
    }
    last.emplace_back(proc, ordinal);
  }
};

constexpr size_t kMaxRecords = 48;

// Folds the older half of a long list into one bounding record per proc and kind.
void coalesce(std::vector<Record>& records) {
  std::vector<Record> folded;
  size_t half = records.size() / 2;
  for (size_t k = 0; k < half; ++k) {
    Record& r = records[k];
    auto it = std::find_if(folded.begin(), folded.end(),
                           [&](const Record& f) { return f.proc == r.proc && f.write == r.write; });
    if (it == folded.end()) {
      folded.push_back(r);
      continue;
    }
    Region& u = it->region;
    u.lo = std::min(u.lo, r.region.lo);
    u.hi = std::max(u.hi, r.region.hi);
    u.run = u.hi - u.lo;
    u.num_dims = 0;
    u.first_partition = std::min(u.first_partition, r.region.first_partition);
    u.end_partition = std::max(u.end_partition, r.region.end_partition);
    it->ordinal = std::max(it->ordinal, r.ordinal);
  }
  folded.insert(folded.end(), records.begin() + static_cast<int64_t>(half), records.end());
  records = std::move(folded);
}

struct PendingWait {
  uint8_t proc;
  int32_t ordinal;
};

class Analysis {
 public:
  Analysis(TileProgram& program, const Allocation& allocation)
      : program_(program),
        allocation_(allocation),
        tiles_(program.tiles.size()),
        tensors_(program.program.tensors.size()) {
    clocks_.resize(kNumProcs);
    waited_.resize(kNumProcs);
    for (auto& c : clocks_) c.push_back(Clock{});  // ordinals start at 1
    for (auto& w : waited_) w.push_back(0);
    known_.fill(Clock{});
  }

  isa::Program run() {
    size_t count = program_.code.size();
    waits_.resize(count + 1);
    std::vector<int32_t> ordinals(count, 0);
    for (size_t k = 0; k < count; ++k) ordinals[k] = analyse(k);
    finish_queues();
    return emit(ordinals);
  }

 private:
  static uint8_t proc_of(const Instruction& i) {
    return static_cast<uint8_t>(i.is_dma() ? isa::kNumEngines + i.queue : static_cast<int>(i.engine));
  }

  Resource& resource(const Access& a) {
    if (a.space == Space::kHbm) return tensors_[program_.alias_group[a.tensor]];
    Resource& r = tiles_[a.tensor];
    const auto& replaced = allocation_.replaced[a.tensor];
    if (!replaced.empty() && r.inherited.empty() && r.records.empty()) {
      Clock latest{};
      for (uint32_t t : replaced) {
        for (auto [p, o] : tiles_[t].last) latest[p] = std::max(latest[p], o);
        // A tile that was never touched passes on what it would have waited for.
        for (auto [p, o] : tiles_[t].inherited) latest[p] = std::max(latest[p], o);
      }
      for (int p = 0; p < kNumProcs; ++p) {
        if (latest[p] > 0) r.inherited.emplace_back(static_cast<uint8_t>(p), latest[p]);
      }
    }
    return r;
  }

  int32_t analyse(size_t k) {
    Instruction& i = program_.code[k];
    int issuer = static_cast<int>(i.engine);
    uint8_t proc = proc_of(i);
    int32_t ordinal = static_cast<int32_t>(clocks_[proc].size());
    Clock need{};

    Operand operands[6];
    Region regions[6];
    int n = list_operands(i, operands);
    for (int j = 0; j < n; ++j) {
      regions[j] = region_of(*operands[j].access);
      Resource& r = resource(*operands[j].access);
      for (const Record& record : r.records) {
        if (!operands[j].write && !record.write) continue;
        if (need[record.proc] >= record.ordinal) continue;
        if (overlap(regions[j], record.region)) need[record.proc] = record.ordinal;
      }
      for (auto [p, o] : r.inherited) need[p] = std::max(need[p], o);
    }
    add_waits(k, issuer, i.is_dma() ? -1 : issuer, need);

    Clock done = known_[issuer];
    if (!i.is_dma()) {
      // Everything earlier on this engine is done when this is done.
      const Clock& previous = clocks_[proc].back();
      for (int p = 0; p < kNumProcs; ++p) done[p] = std::max(done[p], previous[p]);
    }
    done[proc] = ordinal;
    clocks_[proc].push_back(done);
    waited_[proc].push_back(0);

    for (int j = 0; j < n; ++j)
      record(resource(*operands[j].access), regions[j], proc, ordinal, operands[j].write);
    return ordinal;
  }

  // Adds waits for `need` to instruction k; `in_order`: engine whose earlier instructions need no wait.
  void add_waits(size_t k, int issuer, int in_order, Clock& need) {
    Clock& known = known_[issuer];
    std::array<PendingWait, kNumProcs> list;
    int n = 0;
    for (int p = 0; p < kNumProcs; ++p) {
      if (need[p] <= known[p] || p == in_order) continue;
      list[n++] = {static_cast<uint8_t>(p), need[p]};
    }
    if (n == 0) return;
    for (int a = 0; a < n; ++a) {
      bool implied = false;
      for (int b = 0; b < n && !implied; ++b) {
        implied = a != b && list[b].ordinal > 0 &&
                  clocks_[list[b].proc][list[b].ordinal][list[a].proc] >= list[a].ordinal;
      }
      if (implied) list[a].ordinal = 0;
    }
    for (int a = 0; a < n; ++a) {
      if (list[a].ordinal == 0) continue;
      waits_[k].push_back(list[a]);
      waited_[list[a].proc][list[a].ordinal] = 1;
      const Clock& c = clocks_[list[a].proc][list[a].ordinal];
      for (int p = 0; p < kNumProcs; ++p) known[p] = std::max(known[p], c[p]);
    }
  }

  void record(Resource& r, const Region& region, uint8_t proc, int32_t ordinal, bool write) {
    r.touch(proc, ordinal);
    if (write) {
      // Whoever conflicts with a covered record conflicts with this write, which comes after it.
      std::erase_if(r.records, [&](const Record& old) { return covers(region, old.region); });
    }
    for (Record& old : r.records) {
      if (old.proc == proc && old.write == write && same_region(old.region, region)) {
        old.ordinal = ordinal;
        return;
      }
    }
    r.records.push_back({region, ordinal, proc, write});
    if (r.records.size() > kMaxRecords) coalesce(r.records);
  }

  // The program is over when its data has arrived: the Sync stream waits for every queue.
  void finish_queues() {
    Clock need{};
    for (int q = isa::kNumEngines; q < kNumProcs; ++q) need[q] = static_cast<int32_t>(clocks_[q].size()) - 1;
    add_waits(program_.code.size(), static_cast<int>(Engine::kSync), -1, need);
  }

  static uint8_t semaphore_of(int proc) { return static_cast<uint8_t>(proc); }

  void place(Access& a) const {
    if (!a.present() || a.space == Space::kHbm) return;
    a.offset += allocation_.offset[a.tensor];
    a.tensor = 0;
  }

  isa::SemWait semaphore_wait(const PendingWait& w) const {
    isa::SemWait s;
    s.semaphore = semaphore_of(w.proc);
    s.value =
        w.proc >= isa::kNumEngines ? w.ordinal * isa::kDmaCompletionIncrement : waited_[w.proc][w.ordinal];
    return s;
  }

  void put_waits(std::vector<Instruction>& stream, Engine engine, const std::vector<PendingWait>& waits,
                 size_t keep, uint32_t location) const {
    // All but the last `keep` waits go to instructions of their own.
    size_t extra = waits.size() > keep ? waits.size() - keep : 0;
    for (size_t w = 0; w < extra; w += 2) {
      Instruction s;
      s.opcode = Opcode::kSemaphore;
      s.engine = engine;
      s.location = location;
      for (size_t j = w; j < std::min(w + 2, extra); ++j)
        s.sync.waits[s.sync.num_waits++] = semaphore_wait(waits[j]);
      stream.push_back(std::move(s));
    }
  }

  isa::Program emit(const std::vector<int32_t>& ordinals) {
    // waited_ flags become completion counts: only instructions somebody waits for signal.
    for (int e = 0; e < isa::kNumEngines; ++e) {
      int32_t n = 0;
      for (int32_t& w : waited_[e]) w = w ? ++n : 0;
    }
    isa::Program program = std::move(program_.program);
    std::array<size_t, isa::kNumEngines> lengths{};
    for (const Instruction& i : program_.code) ++lengths[static_cast<int>(i.engine)];
    for (int e = 0; e < isa::kNumEngines; ++e) program.streams[e].reserve(lengths[e] + 2);

    for (size_t k = 0; k < program_.code.size(); ++k) {
      Instruction& i = program_.code[k];
      auto& stream = program.streams[static_cast<int>(i.engine)];
      const auto& waits = waits_[k];
      put_waits(stream, i.engine, waits, 2, i.location);
      for (size_t w = waits.size() > 2 ? waits.size() - 2 : 0; w < waits.size(); ++w) {
        i.sync.waits[i.sync.num_waits++] = semaphore_wait(waits[w]);
      }
      uint8_t proc = proc_of(i);
      if (i.is_dma()) {
        i.sync.update = isa::SemOp::kAdd;
        i.sync.update_semaphore = semaphore_of(proc);
        i.sync.update_value = isa::kDmaCompletionIncrement;
      } else if (waited_[proc][ordinals[k]]) {
        i.sync.update = isa::SemOp::kAdd;
        i.sync.update_semaphore = semaphore_of(proc);
        i.sync.update_value = 1;
      }
      place(i.dst);
      place(i.src0);
      place(i.src1);
      place(i.aux);
      place(i.imm0.pointer);
      place(i.imm1.pointer);
      stream.push_back(std::move(i));
    }
    put_waits(program.streams[static_cast<int>(Engine::kSync)], Engine::kSync, waits_.back(), 0, 0);
    for (int e = 0; e < isa::kNumEngines; ++e) {
      Instruction halt;
      halt.opcode = Opcode::kHalt;
      halt.engine = static_cast<Engine>(e);
      program.streams[e].push_back(halt);
    }
    return program;
  }

  TileProgram& program_;
  const Allocation& allocation_;
  std::vector<Resource> tiles_, tensors_;
  std::vector<std::vector<Clock>>
      clocks_;  // per proc and ordinal: what is done once that instruction is done
  std::vector<std::vector<int32_t>> waited_;   // per proc and ordinal: somebody waits for it
  std::array<Clock, isa::kNumEngines> known_;  // per issuing engine: what it has waited for
  std::vector<std::vector<PendingWait>> waits_;
};

}  // namespace

isa::Program build_streams(TileProgram&& program, const Allocation& allocation) {
  return Analysis(program, allocation).run();
}

isa::Program run_back_half(TileProgram&& program) {
  choose_engines(program);
  Allocation allocation = allocate_tiles(program);
  return build_streams(std::move(program), allocation);
}

}  // namespace trnsim::compiler
