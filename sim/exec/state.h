// Architectural state of a core and the view an executing instruction has of it.
#pragma once

#include <memory>

#include "sim/exec/prepared.h"

namespace trnsim::exec {

// Work buffers of the kernels: one block of at most kBlockElements per operand. 64-bit so that the integer
// kernels fit too. Small enough that the blocks of three operands stay in the host's first-level cache.
constexpr int kBlockElements = 2048;

struct Work {
  alignas(64) float f[4][kBlockElements];
  alignas(64) int64_t i[3][kBlockElements];
  alignas(64) std::byte raw[3][kBlockElements * 8];
  alignas(64) float column[2][isa::kMaxPartitions];  // per-partition scalars, read before anything is written
  alignas(64) int64_t column_int[2][isa::kMaxPartitions];
  alignas(64) float sum[isa::kMaxPartitions];
  alignas(64) float stationary[isa::kMaxPartitions * isa::kMaxPartitions];  // [K, M]
  alignas(64) float moving[isa::kMaxPartitions * 512];
  alignas(64) float product[isa::kMaxPartitions * 512];
};

struct Core::Impl {
  explicit Impl(const CoreSizes& s);

  CoreSizes sizes;
  Scratchpad sbuf, psum;
  std::array<std::array<int32_t, isa::kNumRegisters>, isa::kNumEngines> registers{};
  std::array<int64_t, isa::kNumSemaphores> semaphores{};
  int stationary_rows = 0, stationary_columns = 0;  // 0: no stationary matrix loaded
  std::unique_ptr<Work> work;

  // execute() resolves into these, so that single instructions allocate nothing after the first.
  Arena single_arena;
  Footprint single_footprint;
};

struct Context {
  Core::Impl& core;
  Work& work;
  const HbmTensor* hbm;
  // For messages. One of the two is set: a prepared program, or the program of a single instruction.
  const ProgramInfo* info;
  const isa::Program* program;

  const std::vector<isa::SourceLocation>& locations() const {
    return info ? info->locations : program->locations;
  }
  const std::vector<std::pair<std::string, std::string>>& notes() const {
    return info ? info->notes : program->notes;
  }
  const std::string& tensor_name(uint32_t t) const {
    return info ? info->tensor_names[t] : program->tensors[t].name;
  }
  std::string where(const Prepared& p) const {
    return describe(p.opcode, p.engine, p.index, p.location, locations());
  }
  std::array<int32_t, isa::kNumRegisters>& registers(const Prepared& p) {
    return core.registers[static_cast<size_t>(p.engine)];
  }

  // Memory must be bound to every tensor the program touches, and reach as far as its static accesses do.
  void check_bindings(const Footprint& footprint, const std::vector<HbmTensor>& bound) const;

  // Address of an operand's first element; adds the address register and checks the result.
  std::byte* at(const Prepared& p, const Operand& o) {
    if (o.address_register != isa::kNoRegister) return at_register(p, o);
    if (o.space == isa::Space::kHbm) return hbm[o.tensor].data + o.base;
    return memory(o.space).base() + o.base;
  }
  Scratchpad& memory(isa::Space s) { return s == isa::Space::kPsum ? core.psum : core.sbuf; }

 private:
  std::byte* at_register(const Prepared& p, const Operand& o);
};

}  // namespace trnsim::exec
