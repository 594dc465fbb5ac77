// Random instructions and programs, driven by the instruction table: for round-trip tests and fuzzing.
#pragma once

#include <cstdint>
#include <random>

#include "isa/program.h"

namespace trnsim::isa {

class RandomProgram {
 public:
  explicit RandomProgram(uint64_t seed) : random_(seed) {}

  // Any values in every field the row uses, legal or not (enums stay in range): for encode, decode and text.
  Instruction any_instruction(Opcode opcode);
  // `per_stream` instructions per engine, every opcode in turn, with tensors, constants, locations and notes.
  Program any_program(int per_stream);

  uint64_t below(uint64_t n) { return random_() % n; }
  bool chance(int percent) { return below(100) < static_cast<uint64_t>(percent); }

 private:
  int64_t any_int(int bits);
  float any_float();
  Access any_access(uint32_t spaces);
  ScalarOperand any_scalar(uint8_t kinds);

  std::mt19937_64 random_;
};

}  // namespace trnsim::isa
