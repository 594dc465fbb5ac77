// What the two cores of a run share beside HBM: tiles on their way from one to the other.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "sim/exec/prepared.h"

namespace trnsim::exec {

struct CorePair::Impl {
  // A core has triggered its half of an exchange, the other has not.
  struct Half {
    int core = 0, queue = 0;
    const Prepared* by = nullptr;  // as long as the program is prepared as a whole
    std::string where;
    Operand dst;
    std::byte* to = nullptr;
    std::vector<std::byte> sent;
  };
  Core::Impl* cores[isa::kMaxCores] = {};
  std::map<int64_t, std::deque<Half>> waiting;  // by pipe; all of a pipe are of one core
  const Prepared* met = nullptr;                // the half that the newest send_recv has completed

  // A queue with half an exchange takes no further transfer.
  bool holds(int core, int queue) const {
    for (const auto& [pipe, halves] : waiting) {
      for (const Half& h : halves) {
        if (h.core == core && h.queue == queue) return true;
      }
    }
    return false;
  }
};

}  // namespace trnsim::exec
