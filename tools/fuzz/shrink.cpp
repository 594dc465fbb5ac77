#include <algorithm>

#include "tools/fuzz/cases.h"

namespace trnsim::fuzz {
namespace {

using isa::Instruction;
using isa::Program;
using Place = std::pair<size_t, size_t>;  // stream, index

// Keeps the waits and the update of an instruction and nothing else.
Instruction only_sync(const Instruction& i) {
  Instruction s;
  s.opcode = isa::Opcode::kSemaphore;
  s.engine = i.engine;
  s.location = i.location;
  s.sync = i.sync;
  if (i.is_dma() && s.sync.update == isa::SemOp::kAdd) s.sync.update_value = isa::kDmaCompletionIncrement;
  return s;
}

void erase(Program& p, Place at) {
  auto& stream = p.streams[at.first];
  stream.erase(stream.begin() + static_cast<std::ptrdiff_t>(at.second));
  for (Instruction& i : stream) {
    if (i.target > at.second) --i.target;
  }
}

// Applies `change` to as many places as it can, in ever smaller groups.
template <typename Change>
void in_groups(Program& program, const std::function<bool(const Program&)>& fails, std::vector<Place> places,
               Change change) {
  for (size_t group = places.size(); group >= 1 && !places.empty(); group = group > 1 ? (group + 1) / 2 : 0) {
    for (size_t begin = 0; begin < places.size();) {
      const size_t end = std::min(begin + group, places.size());
      Program smaller = program;
      for (size_t k = end; k > begin; --k) change(smaller, places[k - 1]);
      if (fails(smaller)) {
        program = std::move(smaller);
        places.erase(places.begin() + static_cast<std::ptrdiff_t>(begin),
                     places.begin() + static_cast<std::ptrdiff_t>(end));
      } else {
        begin = end;
      }
    }
  }
}

}  // namespace

Program shrink(Program program, const std::function<bool(const Program&)>& fails) {
  std::vector<Place> places;
  for (size_t e = 0; e < program.streams.size(); ++e) {
    for (size_t k = 0; k < program.streams[e].size(); ++k) {
      if (program.streams[e][k].opcode != isa::Opcode::kSemaphore) places.emplace_back(e, k);
    }
  }
  in_groups(program, fails, std::move(places), [](Program& p, Place at) {
    p.streams[at.first][at.second] = only_sync(p.streams[at.first][at.second]);
  });
  // From the end of each stream, so that the places that are left stay where they are.
  for (size_t e = 0; e < program.streams.size(); ++e) {
    for (size_t k = program.streams[e].size(); k > 0; --k) {
      Program smaller = program;
      erase(smaller, {e, k - 1});
      if (fails(smaller)) program = std::move(smaller);
    }
  }
  return program;
}

}  // namespace trnsim::fuzz
