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
//
// Loops arrive as a few copies of their bodies (backend_loops.cpp). The analysis sees straight code: an HBM
// access of a body counts as the sweep over all iterations for everybody outside of the loop, and as itself
// inside of its own iteration; different iterations are known not to meet. A dependence reaches from one copy
// into the copy before at most. So when the third and the fourth copy wait for the same instructions, one
// copy apart, every further copy would too, and the third becomes the body of a loop in every stream that has
// a part of it. Its waits add registers that grow by what one copy counts; counts behind the loop grow by
// what the repeats count.
#include <algorithm>
#include <array>

#include "device_plugin/compiler/backend.h"
#include "device_plugin/compiler/backend_region.h"
#include "device_plugin/compiler/error.h"

namespace trnsim::compiler {

using isa::Instruction;
using isa::Opcode;
using isa::Space;

namespace {

using Clock = std::array<int32_t, kNumProcs>;

struct Record {
  Region region;  // as seen from outside of the loop
  int32_t loop = -1;
  uint32_t exact = 0;  // index of the region as seen from the same iteration
  int64_t iteration = 0;
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
    it->loop = -1;
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

  std::optional<isa::Program> run(int32_t* failed_loop) {
    size_t count = program_.code.size();
    waits_.resize(count + 1);
    find_loops();
    std::vector<int32_t> ordinals(count, 0);
    size_t next_loop = 0;
    for (size_t k = 0; k < count; ++k) {
      if (next_loop < loops_.size() && loops_[next_loop].begin[kCopyFirst] == k) {
        loops_[next_loop++].before = latest();
      }
      ordinals[k] = analyse(k);
    }
    finish_queues();
    for (size_t l = 0; l < loops_.size(); ++l) {
      if (close_loop(loops_[l], program_.expanded[l], ordinals)) continue;
      *failed_loop = static_cast<int32_t>(l);
      return std::nullopt;
    }
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

  struct Loop {
    std::array<size_t, kNumCopies> begin{}, end{};  // code
    Clock before{};                                 // ordinals in front of the loop
    Clock first_end{};                              // ordinals up to the end of the first copy
    Clock per_copy{};                               // instructions of the looped copy
    Clock counted{};                                // what the looped copy adds to the counters
  };

  const Origin& origin(size_t k) const {
    static const Origin none;
    return program_.origins.empty() ? none : program_.origins[k];
  }

  void find_loops() {
    loops_.resize(program_.expanded.size());
    for (Loop& l : loops_) l.begin.fill(SIZE_MAX);
    for (size_t k = 0; k < program_.origins.size(); ++k) {
      const Origin& o = program_.origins[k];
      if (o.loop < 0) continue;
      Loop& l = loops_[o.loop];
      l.begin[o.copy] = std::min(l.begin[o.copy], k);
      l.end[o.copy] = k + 1;
    }
  }

  Clock latest() const {
    Clock c{};
    for (int p = 0; p < kNumProcs; ++p) c[p] = static_cast<int32_t>(clocks_[p].size()) - 1;
    return c;
  }

  // Checks that the looped copy stands for all its repeats, and makes it count like the copy before it.
  bool close_loop(Loop& l, const ExpandedLoop& expanded, const std::vector<int32_t>& ordinals) {
    size_t size = l.end[kCopyLooped] - l.begin[kCopyLooped];
    for (int c : {kCopySecond, kCopyLast}) {
      if (l.end[c] - l.begin[c] != size) return false;
    }
    l.first_end = l.before;
    for (size_t k = l.begin[kCopyFirst]; k < l.end[kCopyFirst]; ++k) {
      l.first_end[proc_of(program_.code[k])] = ordinals[k];
    }
    for (size_t j = 0; j < size; ++j) ++l.per_copy[proc_of(program_.code[l.begin[kCopyLooped] + j])];
    for (size_t j = 0; j < size; ++j) {
      size_t second = l.begin[kCopySecond] + j, looped = l.begin[kCopyLooped] + j,
             last = l.begin[kCopyLast] + j;
      const Instruction &a = program_.code[looped], &b = program_.code[last], &c = program_.code[second];
      if (a.opcode != b.opcode || a.opcode != c.opcode || proc_of(a) != proc_of(b) ||
          proc_of(a) != proc_of(c) || a.engine != b.engine || a.engine != c.engine || !same_places(a, b)) {
        return false;
      }
      const auto &wa = waits_[looped], &wb = waits_[last];
      if (wa.size() != wb.size()) return false;
      for (size_t w = 0; w < wa.size(); ++w) {
        uint8_t p = wa[w].proc;
        if (p != wb[w].proc || wb[w].ordinal - wa[w].ordinal != l.per_copy[p] ||
            wa[w].ordinal <= l.first_end[p]) {
          return false;
        }
      }
      // A wait for the copy before must find the same number of signals after it as inside of the loop.
      uint8_t p = proc_of(a);
      if (p < isa::kNumEngines) {
        bool signals = waited_[p][ordinals[second]] || waited_[p][ordinals[looped]];
        waited_[p][ordinals[second]] = waited_[p][ordinals[looped]] = signals;
      }
    }
    for (int p = 0; p < kNumProcs; ++p) {
      if (p >= isa::kNumEngines) l.counted[p] = l.per_copy[p] * isa::kDmaCompletionIncrement;
    }
    for (size_t j = 0; j < size; ++j) {
      size_t looped = l.begin[kCopyLooped] + j;
      uint8_t p = proc_of(program_.code[looped]);
      if (p < isa::kNumEngines) l.counted[p] += waited_[p][ordinals[looped]];
    }
    constexpr int64_t kLimit = int64_t{1} << 30;
    for (int p = 0; p < kNumProcs; ++p) {
      if ((l.counted[p] + 1) * expanded.repeats > kLimit) return false;
    }
    return registers_of(l).size() < isa::kNumRegisters;
  }

  bool same_places(const Instruction& a, const Instruction& b) const {
    Operand x[6], y[6];
    int n = list_operands(const_cast<Instruction&>(a), x);
    if (n != list_operands(const_cast<Instruction&>(b), y)) return false;
    for (int j = 0; j < n; ++j) {
      Access p = *x[j].access, q = *y[j].access;
      if (p.space == Space::kHbm && p.address_register != isa::kNoRegister) p.offset = q.offset;
      place(p);
      place(q);
      if (p != q) return false;
    }
    return true;
  }

  int32_t analyse(size_t k) {
    Instruction& i = program_.code[k];
    int issuer = static_cast<int>(i.engine);
    uint8_t proc = proc_of(i);
    int32_t ordinal = static_cast<int32_t>(clocks_[proc].size());
    Clock need{};

    Operand operands[6];
    Record own[6];
    int n = list_operands(i, operands);
    for (int j = 0; j < n; ++j) {
      own[j] = record_of(k, *operands[j].access);
      own[j].write = operands[j].write;
      own[j].proc = proc;
      own[j].ordinal = ordinal;
      Resource& r = resource(*operands[j].access);
      for (const Record& record : r.records) {
        if (!operands[j].write && !record.write) continue;
        if (need[record.proc] >= record.ordinal) continue;
        if (conflict(own[j], record)) need[record.proc] = record.ordinal;
      }
      for (auto [p, o] : r.inherited) need[p] = std::max(need[p], o);
    }
    // A barrier between the cores is a write of everything that both touch.
    const bool barrier = i.opcode == Opcode::kCoreBarrier;
    if (barrier) {
      for (uint32_t t : program_.shared)
        for (const Record& record : tensors_[program_.alias_group[t]].records)
          need[record.proc] = std::max(need[record.proc], record.ordinal);
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

    for (int j = 0; j < n; ++j) record(resource(*operands[j].access), own[j]);
    if (barrier) {
      Record all;
      all.region.lo = INT64_MIN / 4;
      all.region.hi = INT64_MAX / 4;
      all.region.run = all.region.hi - all.region.lo;
      all.proc = proc;
      all.ordinal = ordinal;
      all.write = true;
      for (uint32_t t : program_.shared) tensors_[program_.alias_group[t]].records.assign(1, all);
    }
    return ordinal;
  }

  Record record_of(size_t k, const Access& a) {
    Record r;
    const Origin& o = origin(k);
    if (o.loop < 0 || a.space != Space::kHbm) {
      r.region = region_of(a);
      return r;
    }
    r.loop = o.loop;
    r.iteration = o.sequence;
    r.exact = static_cast<uint32_t>(exact_.size());
    const ExpandedLoop& loop = program_.expanded[o.loop];
    const int64_t stride = a.address_register == isa::kNoRegister ? 0 : loop.strides[a.address_register];
    Access first = a;
    first.offset -= stride * o.iteration;
    exact_.push_back(
        region_of(first));  // in the first iteration, as records of one iteration only are compared
    r.region = stride == 0 ? exact_.back() : region_of(first, stride, loop.count);
    return r;
  }

  bool conflict(const Record& a, const Record& b) const {
    if (a.loop >= 0 && a.loop == b.loop)
      return a.iteration == b.iteration && overlap(exact_[a.exact], exact_[b.exact]);
    return overlap(a.region, b.region);
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

  void record(Resource& r, const Record& own) {
    r.touch(own.proc, own.ordinal);
    if (own.write && own.loop < 0) {
      // Whoever conflicts with a covered record conflicts with this write, which comes after it.
      std::erase_if(r.records, [&](const Record& old) { return covers(own.region, old.region); });
    }
    for (Record& old : r.records) {
      if (old.proc != own.proc || old.write != own.write || old.loop != own.loop ||
          !same_region(old.region, own.region)) {
        continue;
      }
      if (own.loop >= 0 && old.iteration == own.iteration &&
          !same_region(exact_[old.exact], exact_[own.exact]))
        continue;
      // The iteration before may not be over.
      if (own.loop >= 0 && program_.expanded[own.loop].staggered &&
          std::abs(own.iteration - old.iteration) == 1)
        continue;
      old = own;
      return;
    }
    r.records.push_back(own);
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
    // The number of the buffer, for the checkers; copies of a loop share the buffers of the first.
    const TileInfo& tile = program_.tiles[a.tensor];
    a.tensor = 1 + (tile.loop >= 0 ? tile.twin : a.tensor);
  }

  // Loops that are over before instruction k and count behind ordinal `o` of their procs.
  int64_t counted_by_loops(size_t k, const PendingWait& w) const {
    int64_t n = 0;
    for (size_t l = 0; l < loops_.size(); ++l) {
      if (k < loops_[l].end[kCopyLooped]) break;
      if (w.ordinal > loops_[l].before[w.proc]) {
        n += (program_.expanded[l].repeats - 1) * loops_[l].counted[w.proc];
      }
    }
    return n;
  }

  // What a register of the looped copy adds per repeat: bytes of an address, counts of a wait.
  struct Stepper {
    Engine engine;
    bool address;
    int64_t step;
    uint8_t reg;
  };

  // Registers of the streams in the looped copy. Register 0 counts the repeats.
  std::vector<Stepper> registers_of(const Loop& l) const {
    std::vector<Stepper> list;
    std::array<uint8_t, isa::kNumEngines> next;
    next.fill(1);
    auto add = [&](Engine e, bool address, int64_t step) {
      for (const Stepper& s : list) {
        if (s.engine == e && s.address == address && s.step == step) return;
      }
      list.push_back({e, address, step, next[static_cast<int>(e)]++});
    };
    for (size_t k = l.begin[kCopyLooped]; k < l.end[kCopyLooped]; ++k) {
      const Instruction& i = program_.code[k];
      Operand operands[6];
      int n = list_operands(const_cast<Instruction&>(i), operands);
      for (int j = 0; j < n; ++j) {
        const Access& a = *operands[j].access;
        if (a.space == Space::kHbm && a.address_register != isa::kNoRegister) {
          add(i.engine, true, address_step(k, a));
        }
      }
      for (const PendingWait& w : waits_[k]) add(i.engine, false, l.counted[w.proc]);
    }
    return list;
  }

  int64_t address_step(size_t k, const Access& a) const {
    const ExpandedLoop& loop = program_.expanded[origin(k).loop];
    return loop.strides[a.address_register] * loop.slots;
  }

  static uint8_t find_register(const std::vector<Stepper>& list, Engine e, bool address, int64_t step) {
    for (const Stepper& s : list) {
      if (s.engine == e && s.address == address && s.step == step) return s.reg;
    }
    throw_internal("a loop register was not planned");
  }

  // `registers`: of the loop whose looped copy instruction k belongs to.
  isa::SemWait semaphore_wait(size_t k, const PendingWait& w, const std::vector<Stepper>* registers) const {
    isa::SemWait s;
    s.semaphore = semaphore_of(w.proc);
    int64_t value =
        w.proc >= isa::kNumEngines ? w.ordinal * isa::kDmaCompletionIncrement : waited_[w.proc][w.ordinal];
    value += counted_by_loops(k, w);
    if (value > INT32_MAX) throw_unsupported("a program that counts beyond 32 bits in one semaphore");
    s.value = static_cast<int32_t>(value);
    if (registers) {
      const Loop& l = loops_[origin(k).loop];
      s.value_register = find_register(*registers, program_.code[k].engine, false, l.counted[w.proc]);
    }
    return s;
  }

  void put_waits(std::vector<Instruction>& stream, Engine engine, size_t k, size_t keep, uint32_t location,
                 const std::vector<Stepper>* registers) const {
    const auto& waits = waits_[k];
    // All but the last `keep` waits go to instructions of their own.
    size_t extra = waits.size() > keep ? waits.size() - keep : 0;
    for (size_t w = 0; w < extra; w += 2) {
      Instruction s;
      s.opcode = Opcode::kSemaphore;
      s.engine = engine;
      s.location = location;
      for (size_t j = w; j < std::min(w + 2, extra); ++j)
        s.sync.waits[s.sync.num_waits++] = semaphore_wait(k, waits[j], registers);
      stream.push_back(std::move(s));
    }
  }

  // Instruction k of the tile program, ready for its stream. `moved`: bytes that the address registers of a
  // looped copy do not hold.
  void put_instruction(isa::Program& program, size_t k, const std::vector<int32_t>& ordinals,
                       const std::vector<Stepper>* registers, int64_t copies_done) const {
    Instruction i = program_.code[k];
    auto& stream = program.streams[static_cast<int>(i.engine)];
    const auto& waits = waits_[k];
    put_waits(stream, i.engine, k, 2, i.location, registers);
    for (size_t w = waits.size() > 2 ? waits.size() - 2 : 0; w < waits.size(); ++w) {
      i.sync.waits[i.sync.num_waits++] = semaphore_wait(k, waits[w], registers);
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
    Operand operands[6];
    int n = list_operands(i, operands);
    for (int j = 0; j < n; ++j) {
      Access& a = *operands[j].access;
      place(a);
      if (a.space != Space::kHbm || a.address_register == isa::kNoRegister) continue;
      if (!registers) {
        a.address_register = isa::kNoRegister;
        continue;
      }
      int64_t step = address_step(k, a);
      a.offset += copies_done * step;
      a.address_register = find_register(*registers, i.engine, true, step);
    }
    stream.push_back(std::move(i));
  }

  static Instruction register_instruction(Opcode opcode, Engine engine, uint8_t reg, int64_t value) {
    Instruction i;
    i.opcode = opcode;
    i.engine = engine;
    i.reg_dst = reg;
    i.imm = value;
    if (opcode == Opcode::kRegAlu) {
      i.op0 = AluOp::kAdd;
      i.reg_a = reg;
      i.flags = isa::kFlagImmediate;
    }
    return i;
  }

  // The looped copy as one loop, or as several where the address registers would leave their 32 bits.
  void put_loop(isa::Program& program, size_t index, const std::vector<int32_t>& ordinals) const {
    const Loop& l = loops_[index];
    int64_t repeats = program_.expanded[index].repeats;
    std::vector<Stepper> registers = registers_of(l);
    int64_t reach = repeats;  // repeats that the registers can count through
    for (const Stepper& s : registers) {
      if (s.address) reach = std::min(reach, INT32_MAX / std::max<int64_t>(1, std::abs(s.step)));
    }
    std::array<bool, isa::kNumEngines> used{};
    for (size_t k = l.begin[kCopyLooped]; k < l.end[kCopyLooped]; ++k) {
      used[static_cast<int>(program_.code[k].engine)] = true;
    }
    for (int64_t done = 0; done < repeats; done += reach) {
      int64_t count = std::min(reach, repeats - done);
      std::array<uint32_t, isa::kNumEngines> target{};
      for (int e = 0; e < isa::kNumEngines; ++e) {
        if (!used[e]) continue;
        auto& stream = program.streams[e];
        Engine engine = static_cast<Engine>(e);
        stream.push_back(register_instruction(Opcode::kRegMove, engine, 0, count));
        for (const Stepper& s : registers) {
          if (s.engine != engine || (done > 0 && !s.address)) continue;
          stream.push_back(register_instruction(Opcode::kRegMove, engine, s.reg, 0));
        }
        target[e] = static_cast<uint32_t>(stream.size());
      }
      for (size_t k = l.begin[kCopyLooped]; k < l.end[kCopyLooped]; ++k) {
        put_instruction(program, k, ordinals, &registers, done);
      }
      for (int e = 0; e < isa::kNumEngines; ++e) {
        if (!used[e]) continue;
        auto& stream = program.streams[e];
        Engine engine = static_cast<Engine>(e);
        for (const Stepper& s : registers) {
          if (s.engine == engine)
            stream.push_back(register_instruction(Opcode::kRegAlu, engine, s.reg, s.step));
        }
        Instruction close;
        close.opcode = Opcode::kLoop;
        close.engine = engine;
        close.reg_a = 0;
        close.target = target[e];
        stream.push_back(close);
      }
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

    for (size_t k = 0; k < program_.code.size();) {
      const Origin& o = origin(k);
      if (o.loop >= 0 && o.copy == kCopyLooped) {
        put_loop(program, static_cast<size_t>(o.loop), ordinals);
        k = loops_[o.loop].end[kCopyLooped];
        continue;
      }
      put_instruction(program, k, ordinals, nullptr, 0);
      ++k;
    }
    put_waits(program.streams[static_cast<int>(Engine::kSync)], Engine::kSync, program_.code.size(), 0, 0,
              nullptr);
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
  std::vector<Loop> loops_;
  std::vector<Region> exact_;  // of HBM accesses in loops
};

}  // namespace

std::optional<isa::Program> build_streams(TileProgram& program, const Allocation& allocation,
                                          int32_t* failed_loop) {
  return Analysis(program, allocation).run(failed_loop);
}

isa::Program run_back_half(TileProgram&& program) {
  while (true) {
    TileProgram expanded;
    bool loops = !program.loops.empty();
    if (loops) expanded = expand_loops(program);
    TileProgram& code = loops ? expanded : program;
    choose_engines(code);
    order_loads(code);
    Allocation allocation = allocate_tiles(code);
    int32_t failed = allocation.failed_loop;
    if (failed < 0) {
      std::optional<isa::Program> result = build_streams(code, allocation, &failed);
      if (result) return std::move(*result);
    }
    // This loop runs unrolled; without loops nothing fails.
    // A staggered loop that finds no room tries again in order.
    TileLoop& loop = program.loops[expanded.expanded[failed].source];
    (loop.staggered ? loop.staggered : loop.unrolled) = !loop.staggered;
    program.program = std::move(expanded.program);
  }
}

}  // namespace trnsim::compiler
