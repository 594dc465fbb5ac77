// Random operands, values and instructions for the comparison with the oracle.
#pragma once

#include <random>

#include "sim/exec/exec.h"
#include "tests/cpp/exec/oracle.h"

namespace trnsim::test {

constexpr int64_t kSlotBytes = 2048;  // dst, src0, src1 and the columns have a slot of every partition each
constexpr int64_t kSbufBytes = 4 * kSlotBytes;
constexpr int64_t kPsumBytes = 4 * kSlotBytes;

class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed) {}

  int below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  bool chance(int percent) { return below(100) < percent; }
  template <typename T>
  T pick(std::initializer_list<T> list) {
    return list.begin()[below(static_cast<int>(list.size()))];
  }

  isa::Dtype any_dtype();  // every dtype of the compute engines
  isa::Dtype integer_dtype();
  isa::Dtype float_dtype();
  int partitions();            // 1, 127, 128, ... with the start partitions the hardware has
  int elements(isa::Dtype d);  // 1, odd, 127, 128, ... fits a slot with gaps

  // `n` elements per partition in `slot`, in up to 4 dims with gaps, permuted or negative steps, and for
  // sources broadcasts.
  isa::Access tile(isa::Space space, isa::Dtype d, int partitions, int n, int slot, bool source);
  isa::Access tile(isa::Dtype d, int partitions, int n, int slot, bool source) {
    return tile(chance(70) ? isa::Space::kSbuf : isa::Space::kPsum, d, partitions, n, slot, source);
  }
  // Free dims as given, contiguous.
  isa::Access plain(isa::Space space, isa::Dtype d, int partitions, std::vector<int> dims, int slot);
  isa::Access hbm(uint32_t tensor, isa::Dtype d, std::vector<int> sizes, bool source);
  isa::ScalarOperand scalar(isa::Dtype d, int partitions, int slot_offset);
  isa::ScalarOperand immediate(bool integer);

  // Fills the bytes an operand reads with values of its dtype.
  enum class Values { kAny, kModerate, kSmallIntegers };
  void fill(const isa::Access& a, Memory& m, Values values);
  void noise(Memory& m);

  isa::Instruction instruction(isa::Opcode op);
  // generator_rows.cpp
  isa::Instruction row(isa::Opcode op, isa::Engine engine);
  std::vector<isa::Instruction> sparse_product(isa::Opcode op);
  std::vector<isa::Instruction> sequence(isa::Opcode op, isa::Engine engine);  // the last one has the opcode
  void indirection(isa::Instruction* in, Memory& m);

 private:
  void set_dims(isa::Access* a, int n, int64_t available, bool source);
  isa::AluOp arithmetic();
  void elementwise(isa::Instruction* in);
  void dma(isa::Instruction* in);
  isa::Access aux_column(isa::Dtype d, int partitions);
  isa::Access scales(isa::Dtype d, int data_partitions, int n, int slot);
  void accumulator(isa::Instruction* in, std::initializer_list<isa::AluOp> ops, bool can_load);

  std::mt19937_64 random_;
};

// A core and the oracle's memory with the same contents.
struct Pair {
  exec::Core core{exec::CoreSizes{kSbufBytes, kPsumBytes}};
  Memory memory{kSbufBytes, kPsumBytes};
  isa::Program program;  // declares the HBM tensors

  explicit Pair(std::vector<uint64_t> tensor_bytes = {});
  std::vector<std::vector<std::byte>> hbm;  // of the core

  std::vector<exec::HbmTensor> bindings();
  void to_core();  // copies the oracle's memory into the core
  // Empty when the memories agree; else the first difference.
  std::string compare(const isa::Instruction& in);
};

}  // namespace trnsim::test
