// The order of loads on the engine that issues them. A load whose descriptors the hardware builds keeps the engine for half a
// microsecond, one with descriptors made beforehand for less than a tenth: many short ones behind a few of the others would
// wait for them. So a load of the first kind goes behind those of the second that are needed as soon as it is. What is
// needed first, and what waits for another kernel's store, is not overtaken.
#include <algorithm>

#include "device_plugin/compiler/backend.h"
#include "device_plugin/compiler/backend_region.h"

namespace trnsim::compiler {

using isa::Instruction;
using isa::Opcode;
using isa::Space;

namespace {

constexpr size_t kMaxReach = 256;  // instructions that a load may pass
constexpr size_t kTogether = 2;    // a product reads its operands with two instructions

class LoadOrder {
 public:
  explicit LoadOrder(TileProgram& program) : program_(program), code_(program.code) {}

  void run() {
    note_written();
    for (size_t k = code_.size(); k-- > 0;) {
      if (!is_load(k) || code_[k].dge != isa::DgeMode::kHardware) continue;
      const size_t to = last_to_pass(k);
      if (to > k) move(k, to);
    }
  }

 private:
  bool in_loop(size_t k) const { return !program_.origins.empty() && program_.origins[k].loop >= 0; }

  void note_written() {
    written_.assign(program_.alias_group.size(), false);
    for (Instruction& i : code_) {
      Operand operands[6];
      const int n = list_operands(i, operands);
      for (int j = 0; j < n; ++j) {
        const Access& a = *operands[j].access;
        if (a.space == Space::kHbm && operands[j].write) written_[program_.alias_group[a.tensor]] = true;
      }
    }
  }

  bool is_load(size_t k) const {
    const Instruction& i = code_[k];
    return i.opcode == Opcode::kDmaCopy && i.engine == Engine::kSync && i.dst.space == Space::kSbuf &&
           i.src0.space == Space::kHbm && !i.dst.indirect && !i.src0.indirect && !in_loop(k);
  }
  uint32_t group(const Access& hbm) const { return program_.alias_group[hbm.tensor]; }

  size_t first_use(uint32_t tile, size_t from) {
    for (size_t k = from; k < std::min(code_.size(), from + kMaxReach); ++k) {
      Operand operands[6];
      const int n = list_operands(code_[k], operands);
      for (int j = 0; j < n; ++j)
        if (!operands[j].write && operands[j].access->space == Space::kSbuf &&
            operands[j].access->tensor == tile)
          return k;
    }
    return SIZE_MAX;
  }

  size_t last_to_pass(size_t k) {
    const Access& own = code_[k].dst;
    const uint32_t source = group(code_[k].src0);
    const Region region = region_of(own);
    const size_t needed = first_use(own.tensor, k + 1);
    size_t to = k;
    for (size_t j = k + 1; j < std::min({code_.size(), needed, k + kMaxReach}); ++j) {
      Instruction& i = code_[j];
      if (in_loop(j) || i.is_control()) break;
      Operand operands[6];
      const int n = list_operands(i, operands);
      const bool meets = std::any_of(operands, operands + n, [&](const Operand& o) {
        const Access& a = *o.access;
        if (a.space == Space::kHbm) return o.write && group(a) == source;
        return a.space == Space::kSbuf && a.tensor == own.tensor && overlap(region_of(a), region);
      });
      if (meets) break;
      if (i.engine != Engine::kSync || !i.is_dma()) continue;
      // Of memory that the program only reads, or of the same: it waits for nothing else.
      if (!is_load(j) || (written_[group(i.src0)] && group(i.src0) != source)) break;
      if (i.dge != isa::DgeMode::kHardware && needed != SIZE_MAX &&
          first_use(i.dst.tensor, j + 1) < needed + kTogether)
        to = j;
    }
    return to;
  }

  void move(size_t k, size_t to) {
    const auto rotate = [&](auto& list) {
      const auto begin = list.begin() + static_cast<std::ptrdiff_t>(k);
      std::rotate(begin, begin + 1, list.begin() + static_cast<std::ptrdiff_t>(to) + 1);
    };
    rotate(code_);
    if (!program_.origins.empty()) rotate(program_.origins);
  }

  TileProgram& program_;
  std::vector<Instruction>& code_;
  std::vector<bool> written_;  // per group of HBM tensors
};

}  // namespace

void order_loads(TileProgram& tiles) { LoadOrder(tiles).run(); }

}  // namespace trnsim::compiler
