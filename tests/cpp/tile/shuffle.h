// Runs the streams of a program in a random order that honours the semaphores.
#pragma once

#include <deque>

#include "tests/cpp/tile/harness.h"

namespace trnsim::compiler::testing {

// DMA is asynchronous: once triggered, its effect happens at a random later time, in order per queue, at the
// addresses that the registers had at the trigger.
inline void run_shuffled(const isa::Program& program, const std::vector<exec::HbmTensor>& hbm,
                         Random& random) {
  exec::Core core;
  std::array<int64_t, isa::kNumSemaphores> semaphores{};
  std::array<size_t, isa::kNumEngines> at{};
  std::array<std::array<int32_t, isa::kNumRegisters>, isa::kNumEngines> registers{};
  std::array<std::deque<isa::Instruction>, isa::kNumDmaQueues> queues;
  auto update = [&](const isa::Instruction& i) {
    if (i.sync.update == isa::SemOp::kAdd) semaphores[i.sync.update_semaphore] += i.sync.update_value;
  };
  auto effect = [&](const isa::Instruction& i) {
    if (i.is_control() || i.opcode == isa::Opcode::kActTableLoad) return;
    auto status = core.execute(program, i, hbm);
    if (!status.ok()) FAIL(status.message);
  };
  auto resolved = [&](isa::Instruction i, int e) {
    for (isa::Access* a : {&i.dst, &i.src0, &i.src1, &i.aux}) {
      if (!a->present() || a->address_register == isa::kNoRegister) continue;
      a->offset += registers[e][a->address_register];
      a->address_register = isa::kNoRegister;
    }
    return i;
  };
  while (true) {
    std::vector<int> ready;
    bool finished = true;
    for (int e = 0; e < isa::kNumEngines; ++e) {
      const auto& stream = program.streams[e];
      if (at[e] >= stream.size() || stream[at[e]].opcode == isa::Opcode::kHalt) continue;
      finished = false;
      bool free = true;
      for (int w = 0; w < stream[at[e]].sync.num_waits; ++w) {
        const auto& wait = stream[at[e]].sync.waits[w];
        int64_t value = wait.value;
        if (wait.value_register != isa::kNoRegister) value += registers[e][wait.value_register];
        free = free && semaphores[wait.semaphore] >= value;
      }
      if (free) ready.push_back(e);
    }
    for (int q = 0; q < isa::kNumDmaQueues; ++q) {
      if (!queues[q].empty()) ready.push_back(isa::kNumEngines + q);
    }
    if (ready.empty()) {
      REQUIRE(finished);
      return;
    }
    int choice = ready[std::uniform_int_distribution<size_t>(0, ready.size() - 1)(random)];
    if (choice >= isa::kNumEngines) {
      auto& queue = queues[choice - isa::kNumEngines];
      effect(queue.front());
      update(queue.front());
      queue.pop_front();
      continue;
    }
    // One stream may run ahead of the others for a while.
    int burst = std::uniform_int_distribution<int>(0, 7)(random) == 0 ? 100 : 1;
    auto& r = registers[choice];
    for (; burst > 0; --burst) {
      const isa::Instruction& i = program.streams[choice][at[choice]];
      bool free = i.opcode != isa::Opcode::kHalt;
      for (int w = 0; w < i.sync.num_waits; ++w) {
        const auto& wait = i.sync.waits[w];
        int64_t value = wait.value + (wait.value_register != isa::kNoRegister ? r[wait.value_register] : 0);
        free = free && semaphores[wait.semaphore] >= value;
      }
      if (!free) break;
      ++at[choice];
      if (i.is_dma()) {
        queues[i.queue].push_back(resolved(i, choice));
        continue;
      }
      if (i.opcode == isa::Opcode::kRegMove) r[i.reg_dst] = static_cast<int32_t>(i.imm);
      if (i.opcode == isa::Opcode::kRegAlu) {
        REQUIRE((i.op0 == AluOp::kAdd && i.has(isa::kFlagImmediate)));
        r[i.reg_dst] = static_cast<int32_t>(static_cast<uint32_t>(r[i.reg_a]) + static_cast<uint32_t>(i.imm));
      }
      if (i.opcode == isa::Opcode::kLoop && --r[i.reg_a] != 0) at[choice] = i.target;
      effect(resolved(i, choice));
      update(i);
    }
  }
}

}  // namespace trnsim::compiler::testing
