// Architectural state of a core and the view an executing instruction has of it.
#pragma once

#include <memory>

#include "sim/exec/prepared.h"

namespace trnsim::exec {

// Work buffers of the kernels: one block of at most kBlockElements per operand. 64-bit so that the integer
// kernels fit too. Small enough that the blocks of three operands stay in the host's first-level cache.
constexpr int kBlockElements = 2048;
constexpr int kStationaryCells = 16, kStationaryRows = 4 * isa::kMaxPartitions, kMovingColumns = 512;

struct Work {
  alignas(64) float f[4][kBlockElements];
  alignas(64) int64_t i[3][kBlockElements];
  alignas(64) std::byte raw[3][kBlockElements * 8];
  alignas(64) float column[2][isa::kMaxPartitions];  // per-partition scalars, read before anything is written
  alignas(64) int64_t column_int[2][isa::kMaxPartitions];
  alignas(64) float sum[isa::kMaxPartitions];
  // [K, M] of the matrix in each tile of the systolic array, by the 32x32 cell where the tile begins; the
  // whole array uses cell 0. Up to 4 x 128 rows: packed values count one by one.
  alignas(64) float stationary[kStationaryCells][kStationaryRows * isa::kMaxPartitions];
  alignas(64) float moving[kStationaryRows * kMovingColumns];
  alignas(64) float product[isa::kMaxPartitions * kMovingColumns];
};

// The stationary matrix of one tile; rows == 0: none.
struct Stationary {
  isa::PeTile tile;
  int rows = 0, columns = 0;  // K (values) and M
  int partitions = 0;         // that hold K
};

// Random generators of an engine, per partition: words of state in use.
constexpr int kGeneratorWords = 24;
struct Generators {
  std::array<std::array<uint32_t, kGeneratorWords>, isa::kMaxPartitions> state;
};

struct Core::Impl {
  explicit Impl(const CoreSizes& s);

  CoreSizes sizes;
  Scratchpad sbuf, psum;
  std::array<std::array<int32_t, isa::kNumRegisters>, isa::kNumEngines> registers{};
  std::array<int64_t, isa::kNumSemaphores> semaphores{};
  std::array<Stationary, kStationaryCells> stationary;
  std::array<std::array<float, isa::kMaxPartitions>, isa::kNumEngines> accumulators{};
  std::array<Generators, isa::kNumEngines> generators;
  Numerics numerics;
  CorePair::Impl* pair = nullptr;  // while a program for two cores runs
  std::array<uint64_t, isa::kNumEngines>
      rounded{};  // instructions executed with numerics that store differently
  std::unique_ptr<Work> work;

  // execute() resolves into these, so that single instructions allocate nothing after the first.
  Arena single_arena;
  Footprint single_footprint;
};

void seed_generators(Core::Impl& core, isa::Engine e, uint32_t seed);  // random.cpp

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
    const int cores = info ? info->cores : program->cores;
    return describe(p.opcode, cores > 1 ? p.core : -1, p.engine, p.index, p.location, locations());
  }
  std::array<int32_t, isa::kNumRegisters>& registers(const Prepared& p) {
    return core.registers[static_cast<size_t>(p.engine)];
  }

  // Memory must be bound to every tensor the program touches, and reach as far as its static accesses do.
  void check_bindings(const Footprint& footprint, const std::vector<HbmTensor>& bound) const;

  // Address of an operand's first element; adds the address register and checks the result.
  std::byte* at(const Prepared& p, const Operand& o) {
    if (o.host != nullptr) return o.host + o.base;
    if (o.address_register != isa::kNoRegister) return at_register(p, o);
    if (o.space == isa::Space::kHbm) return hbm[o.tensor].data + o.base;
    return memory(o.space).base() + o.base;
  }
  // The kernel of an instruction, with the rounding that the core is set to.
  void execute(const Prepared& p) {
    if (core.numerics.stochastic_rounding || core.numerics.saturate_infinity) return execute_rounded(p);
    kernel_of(p)(*this, p);
  }
  ExecuteFn kernel_of(const Prepared& p) const {
    return core.numerics.fp32_integers && p.fp32_fn != nullptr ? p.fp32_fn : p.fn;
  }
  // False when the address register of the operand leads outside its memory.
  bool in_bounds(const Prepared& p, const Operand& o) {
    if (o.address_register == isa::kNoRegister) return true;
    const int64_t first = o.offset + registers(p)[o.address_register];
    return first + o.lo >= 0 && first + o.hi <= bytes_of(o);
  }
  // The accumulators of the partitions of an on-chip operand.
  float* accumulators(const Prepared& p, const Operand& o) {
    return core.accumulators[static_cast<size_t>(p.engine)].data() + o.first_partition;
  }
  int64_t bytes_of(const Operand& o) {  // of the tensor, or of a partition
    return o.space == isa::Space::kHbm ? static_cast<int64_t>(hbm[o.tensor].bytes) : memory(o.space).bytes();
  }
  Scratchpad& memory(isa::Space s) { return s == isa::Space::kPsum ? core.psum : core.sbuf; }

 private:
  void execute_rounded(const Prepared& p);
  std::byte* at_register(const Prepared& p, const Operand& o);
};

}  // namespace trnsim::exec
