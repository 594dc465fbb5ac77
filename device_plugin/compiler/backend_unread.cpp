// Removes instructions whose results nothing reads: tilers emit whole patterns, of which a kernel may use a part.
//
// A walk from the end to the start keeps the bytes of every tile that a kept instruction reads later on. The body of a
// loop is walked until nothing changes, because its end is followed by its start.
#include <algorithm>
#include <vector>

#include "device_plugin/compiler/backend.h"
#include "device_plugin/compiler/backend_region.h"

namespace trnsim::compiler {

using isa::Instruction;
using isa::Opcode;
using isa::Space;

namespace {

// Bytes of one tile that are read later.
class Wanted {
 public:
  void add(const Region& r) {
    if (whole_) return;
    for (const Region& have : regions_) {
      if (same_region(have, r) || covers(have, r)) return;
    }
    regions_.push_back(r);
    if (regions_.size() <= kMaxRegions) return;
    regions_.clear();
    whole_ = true;
  }
  void remove(const Region& written) {
    std::vector<Region> rest;
    for (const Region& r : regions_) {
      if (same_region(written, r) || covers(written, r)) continue;
      const bool cuts = r.num_dims == 0 && written.num_dims == 0 && written.lo < r.hi && r.lo < written.hi &&
                        written.first_partition <= r.first_partition &&
                        r.end_partition <= written.end_partition;
      if (!cuts) {
        rest.push_back(r);
        continue;
      }
      if (r.lo < written.lo) rest.push_back(run_of(r, r.lo, written.lo));
      if (written.hi < r.hi) rest.push_back(run_of(r, written.hi, r.hi));
    }
    regions_ = std::move(rest);
  }
  bool any_of(const Region& r) const {
    return whole_ ||
           std::any_of(regions_.begin(), regions_.end(), [&](const Region& w) { return overlap(w, r); });
  }
  void join(const Wanted& other) {
    for (const Region& r : other.regions_) add(r);
    if (!other.whole_) return;
    regions_.clear();
    whole_ = true;
  }

 private:
  static Region run_of(Region r, int64_t lo, int64_t hi) {
    r.lo = lo;
    r.hi = hi;
    r.run = hi - lo;
    return r;
  }

  static constexpr size_t kMaxRegions = 32;  // beyond them all of the tile counts
  std::vector<Region> regions_;
  bool whole_ = false;
};

// All that the instruction does is to write its operands.
bool only_writes(const Instruction& i) {
  switch (i.opcode) {
    case Opcode::kDmaCopy:
    case Opcode::kDmaGather:
    case Opcode::kCopy:
    case Opcode::kMemset:
    case Opcode::kIota:
    case Opcode::kAffineSelect:
    case Opcode::kTensorTensor:
    case Opcode::kTensorScalar:
    case Opcode::kScalarTensorTensor:
    case Opcode::kActivation:
    case Opcode::kReciprocal:
    case Opcode::kCopyPredicated:
    case Opcode::kTensorReduce:
    case Opcode::kPartitionReduce:
    case Opcode::kTensorTensorScan:
    case Opcode::kTranspose:
    case Opcode::kBnStats:
    case Opcode::kBnAggr:
    case Opcode::kPhilox:
    case Opcode::kMax8:
    case Opcode::kMaxIndex8:
    case Opcode::kMatchReplace8:
    case Opcode::kMultiplyMoving:
      return true;
    default:
      return false;
  }
}

class Remover {
 public:
  explicit Remover(TileProgram& program)
      : program_(program), wanted_(program.tiles.size()), kept_(program.code.size(), false) {}

  void run() {
    note_loads();
    size_t end = program_.code.size();
    for (size_t l = program_.loops.size(); l-- > 0;) {
      const TileLoop& loop = program_.loops[l];
      walk(loop.end, end);
      const std::vector<Wanted> behind = wanted_;
      while (walk(loop.begin, loop.end)) {
        for (size_t t = 0; t < wanted_.size(); ++t) wanted_[t].join(behind[t]);
      }
      end = loop.begin;
    }
    walk(0, end);
    drop();
  }

 private:
  // Which memory is read at all.
  void note_loads() {
    loaded_.assign(program_.alias_group.size(), false);
    for (size_t t = 0; t < loaded_.size(); ++t) {
      if (program_.program.tensors[t].kind != isa::TensorKind::kScratch)
        loaded_[program_.alias_group[t]] = true;
    }
    for (uint32_t t : program_.shared) loaded_[program_.alias_group[t]] = true;
    for (Instruction& i : program_.code) {
      Operand operands[6];
      const int n = list_operands(i, operands);
      for (int j = 0; j < n; ++j) {
        const Access& a = *operands[j].access;
        if (a.space == Space::kHbm && (!operands[j].write || i.opcode != Opcode::kDmaCopy))
          loaded_[program_.alias_group[a.tensor]] = true;
      }
    }
  }

  // True when it met an instruction to keep that it had not met before.
  bool walk(size_t begin, size_t end) {
    bool kept_more = false;
    for (size_t k = end; k-- > begin;) {
      Instruction& i = program_.code[k];
      Operand operands[6];
      const int n = list_operands(i, operands);
      if (!kept_[k]) {
        if (!is_wanted(operands, n) && !has_effect(i)) continue;
        kept_[k] = kept_more = true;
      }
      const auto each_tile = [&](bool write, auto&& fn) {
        for (int j = 0; j < n; ++j) {
          const Access& a = *operands[j].access;
          if (a.space != Space::kHbm && operands[j].write == write) fn(wanted_[a.tensor], region_of(a));
        }
      };
      if (reads_destination(i)) {
        each_tile(true, [](Wanted& w, const Region& r) { w.add(r); });
      } else {
        each_tile(true, [](Wanted& w, const Region& r) { w.remove(r); });
      }
      each_tile(false, [](Wanted& w, const Region& r) { w.add(r); });
    }
    return kept_more;
  }

  bool is_wanted(const Operand* operands, int n) const {
    return std::any_of(operands, operands + n, [&](const Operand& o) {
      const Access& a = *o.access;
      return o.write && a.space != Space::kHbm && wanted_[a.tensor].any_of(region_of(a));
    });
  }

  bool has_effect(const Instruction& i) const {
    if (i.opcode == Opcode::kDmaCopy && i.op0 == AluOp::kNone && i.dst.space == Space::kHbm)
      return loaded_[program_.alias_group[i.dst.tensor]];
    if (!only_writes(i) || !i.dst.present() || i.dst.space == Space::kHbm) return true;
    if (i.reduce != isa::ReduceCmd::kIdle && i.reduce != isa::ReduceCmd::kResetReduce) return true;
    return i.opcode == Opcode::kDmaGather && isa::checks_indices(program_.program.notes, i.location);
  }

  void drop() {
    std::vector<Instruction>& code = program_.code;
    std::vector<size_t> place(code.size() + 1);  // where an instruction goes
    size_t n = 0;
    for (size_t k = 0; k < code.size(); ++k) {
      place[k] = n;
      if (!kept_[k]) continue;
      if (n != k) code[n] = std::move(code[k]);
      ++n;
    }
    place[code.size()] = n;
    code.resize(n);
    std::vector<TileLoop>& loops = program_.loops;
    for (TileLoop& loop : loops) {
      loop.begin = place[loop.begin];
      loop.end = place[loop.end];
    }
    loops.erase(
        std::remove_if(loops.begin(), loops.end(), [](const TileLoop& l) { return l.begin == l.end; }),
        loops.end());
  }

  TileProgram& program_;
  std::vector<Wanted> wanted_;  // per tile
  std::vector<bool> kept_;      // per instruction
  std::vector<bool> loaded_;    // per group of HBM tensors
};

}  // namespace

void remove_unread(TileProgram& tiles) { Remover(tiles).run(); }

}  // namespace trnsim::compiler
