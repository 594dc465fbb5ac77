// Random instructions and programs, driven by the instruction table: for round-trip tests and fuzzing.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "isa/program.h"
#include "isa/table.h"

namespace trnsim::isa {

class RandomProgram {
 public:
  explicit RandomProgram(uint64_t seed) : random_(seed) {}

  // Any values in every field the row uses, legal or not (enums stay in range): for encode, decode and text.
  Instruction any_instruction(Opcode opcode);
  // `per_stream` instructions per engine, every opcode in turn, with tensors, constants, locations and notes.
  Program any_program(int per_stream);

  // An instruction that validate() accepts for `target`, on the tensors of legal_program().
  Instruction legal_instruction(Opcode opcode, Engine engine, Generation target = Generation::kTrn2);
  // A legal, race-free program: `instructions` of all kinds spread over the engines, each waiting for the one
  // before it. Reads memory nobody wrote; indirect DMA skips what is out of bounds.
  // On two cores they meet now and then, in barriers and exchanges.
  Program legal_program(int instructions, Generation target = Generation::kTrn2, int cores = 1);
  // SBUF tiles of legal programs lie in the first `bytes` of each partition, where they fit.
  void set_sbuf_window(int64_t bytes) { sbuf_window_ = bytes; }
  // Results in PSUM lie in the first `banks` banks.
  void set_psum_window(int banks) { psum_window_ = banks; }

  uint64_t below(uint64_t n) { return random_() % n; }
  bool chance(int percent) { return below(100) < static_cast<uint64_t>(percent); }

 private:
  int64_t any_int(int bits);
  float any_float();
  Access any_access(uint32_t spaces);
  ScalarOperand any_scalar(uint8_t kinds);

  struct Shape {
    int partitions = 1;
    int64_t free = 1;
  };
  Access legal_tile(Space space, Shape shape, Dtype dtype, bool dma = false);
  Access legal_hbm(std::vector<uint32_t> sizes, Dtype dtype, bool written);
  Space legal_space(SpaceSet spaces, Engine engine, bool reads);
  Dtype legal_dtype(DtypeSet dtypes);
  AluOp legal_operator(AluSet set);
  ScalarOperand legal_scalar(uint8_t kinds, int partitions);
  void legal_elementwise(Instruction& i);
  // random_rows.cpp
  void legal_accumulator(Instruction& i, Shape shape);
  void legal_details(Instruction& i, Shape shape);
  bool legal_row(Instruction& i);  // false: the row is made elsewhere
  void legal_scales(Access* scale, Shape data);
  void legal_shaped(Instruction& i);
  void legal_dma(Instruction& i);
  void legal_control(Instruction& i);
  std::vector<Instruction> legal_loop(Engine engine, uint32_t begin);
  // Parts of a legal program: one core by itself, and a place where both meet. `done` counts what is over.
  void append(Program& p, int core, Instruction i, int32_t* done) const;
  void legal_part(Program& p, int core, int instructions, int32_t* done);
  void meet(Program& p, std::array<int32_t, kMaxCores>& done);

  std::mt19937_64 random_;
  Generation target_ = Generation::kTrn2;
  Shape stationary_;
  Dtype stationary_dtype_ = Dtype::kBF16;
  uint32_t stationary_ratio_ = 2;
  int64_t sbuf_window_ = INT64_MAX;
  int psum_window_ = kPsumBanks;
};

}  // namespace trnsim::isa
