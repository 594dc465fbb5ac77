// Operands and instructions of tests, dense unless a test changes them.
#pragma once

#include <utility>
#include <vector>

#include "isa/program.h"

namespace trnsim::isa::test {

inline Access tile(Space space, int partitions, const std::vector<uint32_t>& sizes, Dtype dtype = Dtype::kF32,
                   int64_t offset = 0) {
  Access a;
  a.space = space;
  a.dtype = dtype;
  a.num_partitions = static_cast<uint16_t>(partitions);
  a.offset = offset;
  a.num_dims = static_cast<uint8_t>(sizes.size());
  int64_t step = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    a.size[i] = sizes[i];
    a.step[i] = step;
    step *= sizes[i];
  }
  return a;
}
inline Access sbuf(int partitions, uint32_t n, Dtype dtype = Dtype::kF32, int64_t offset = 0) {
  return tile(Space::kSbuf, partitions, {n}, dtype, offset);
}
inline Access psum(int partitions, uint32_t n, Dtype dtype = Dtype::kF32) {
  return tile(Space::kPsum, partitions, {n}, dtype);
}

inline ScalarOperand constant(float v) {
  ScalarOperand s;
  s.kind = ScalarOperand::Kind::kImmediate;
  s.value = v;
  return s;
}
inline ScalarOperand column(const Access& a) {
  ScalarOperand s;
  s.kind = ScalarOperand::Kind::kPointer;
  s.pointer = a;
  return s;
}

inline Instruction make(Opcode opcode, Engine engine, const Access& dst = {}, const Access& src0 = {},
                        const Access& src1 = {}, const Access& aux = {}) {
  Instruction i;
  i.opcode = opcode;
  i.engine = engine;
  i.dst = dst;
  i.src0 = src0;
  i.src1 = src1;
  i.aux = aux;
  return i;
}

template <typename Change>
Instruction with(Instruction i, Change&& change) {
  std::forward<Change>(change)(i);
  return i;
}

}  // namespace trnsim::isa::test
