// The meaning of every instruction, written as plainly as possible: one element at a time, through the scalar
// conversions of isa. Slow on purpose and independent of sim/exec.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "isa/program.h"

namespace trnsim::test {

struct Memory {
  int64_t sbuf_bytes = 0, psum_bytes = 0;  // per partition
  std::vector<std::byte> sbuf, psum;
  std::vector<std::vector<std::byte>> hbm;
  int32_t registers[isa::kNumRegisters] = {};
  // Stationary matrices [k][m] in FP32, by tile (row, column, rows, columns).
  std::map<std::array<int, 4>, std::vector<float>> stationary;
  float accumulators[isa::kNumEngines][128] = {};
  uint32_t generators[isa::kNumEngines][128][24] = {};
  bool vector_xorwow = false;
  int index_partitions = 16;  // partitions of an index list, set by the instruction that runs

  Memory(int64_t sbuf_per_partition, int64_t psum_per_partition)
      : sbuf_bytes(sbuf_per_partition),
        psum_bytes(psum_per_partition),
        sbuf(static_cast<size_t>(sbuf_per_partition) * 128),
        psum(static_cast<size_t>(psum_per_partition) * 128) {}

  // Address of free element `k` (row major) in partition `p` of the operand; HBM operands have p = 0.
  std::byte* at(const isa::Access& a, int64_t p, int64_t k);
  float f32(const isa::Access& a, int64_t p, int64_t k);
  int64_t integer(const isa::Access& a, int64_t p, int64_t k);
};

// How closely the executor has to agree.
enum class Agreement {
  kBits,   // every bit
  kValue,  // every bit, but one NaN is as good as another
  kUlps,   // transcendental functions
  kSums,   // another order of summation
};
Agreement agreement(const isa::Instruction& instruction);

// False when the oracle does not know the opcode.
bool execute_oracle(const isa::Instruction& instruction, Memory& memory);

double oracle_activation(isa::ActFunc f, double x);

}  // namespace trnsim::test
