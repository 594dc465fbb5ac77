// Values: executes instructions on byte-exact SBUF, PSUM and HBM. Knows no time. C++17 interface (used by
// sim/chip).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "isa/program.h"

namespace trnsim::exec {

// A bound HBM tensor of the running program (same order as Program::tensors).
struct HbmTensor {
  std::byte* data = nullptr;
  uint64_t bytes = 0;
};

struct Status {
  enum class Kind : uint8_t { kOk, kOutOfBounds, kIllegal, kHang } kind = Kind::kOk;
  std::string message;  // names instruction, engine, source location, limit
  bool ok() const { return kind == Kind::kOk; }
};

struct CoreSizes {
  int64_t sbuf_bytes_per_partition = 224 * 1024;
  int64_t psum_bytes_per_partition = 16 * 1024;
};

// How numbers are rounded and where random words come from (config group `numerics`).
struct Numerics {
  bool stochastic_rounding = false;  // of narrow floats on every store
  uint64_t rounding_seed = 0;
  bool saturate_infinity = false;        // narrow floats: the largest finite value in place of infinity
  bool strict_activation_range = false;  // NaN where an activation function is not specified
  bool vector_xorwow = false;            // generator of the vector engine: XORWOW instead of an LFSR
  int mx_scale_offset = 1;               // quantize_mx: block scales are 2^(e - E + this)
  bool fp32_integers = false;  // integer arithmetic outside GpSimd passes through FP32: 24 bits, saturating
};

// A host function in place of a program of the GpSimd processors (opcode custom). Elements are visited in
// row-major order, partitions outermost. The view is valid during the call.
class CustomView {
 public:
  virtual ~CustomView() = default;
  enum Operand { kDst = 0, kSrc0, kSrc1, kAux };
  virtual bool present(Operand o) const = 0;
  virtual isa::Dtype dtype(Operand o) const = 0;
  virtual int partitions(Operand o) const = 0;
  virtual int64_t elements(Operand o) const = 0;  // per partition
  virtual std::byte* element(Operand o, int partition, int64_t index) = 0;
  virtual float scalar(int which, int partition) const = 0;  // imm0, imm1; 0 when absent
  virtual uint32_t count() const = 0;
};
using CustomFunction = void (*)(CustomView&);
// Number 0 is taken: it copies src0 to dst. Registering a number again replaces the function.
void register_custom(int64_t number, CustomFunction function);

// Architectural state of one physical NeuronCore: SBUF, PSUM, stationary matrix, accumulators, sequencer
// registers and semaphores. New memory is poisoned (NaN pattern), never zero.
class Core {
 public:
  explicit Core(const CoreSizes& sizes = {});
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  void reset();  // poison memories, clear registers, semaphores and accumulators, restart the generators
  void set_numerics(const Numerics& numerics);  // restarts the generators
  const CoreSizes& sizes() const;

  // Executes the data effect of one instruction (compute or DMA; no waits, no semaphore update). Register
  // operands are read from the engine's register file. Register loads and stores count as data instructions
  // here.
  // `core`: which core of the program this one is.
  Status execute(const isa::Program& program, const isa::Instruction& instruction,
                 const std::vector<HbmTensor>& hbm, int core = 0);

  int32_t reg(isa::Engine e, int index) const;
  void set_reg(isa::Engine e, int index, int32_t value);

  // Direct access for tests and debuggers: `bytes` at byte `offset` of partition `partition`.
  std::byte* sbuf(int partition, int64_t offset);
  std::byte* psum(int partition, int64_t offset);
  // The same for `bytes` bytes: what lies behind them need not be poisoned first.
  const std::byte* sbuf(int partition, int64_t offset, int64_t bytes) const;

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// Connects two cores for the time of a run of a program for two. run() does it by itself.
class CorePair {
 public:
  CorePair(Core& first, Core& second);
  ~CorePair();
  CorePair(const CorePair&) = delete;
  CorePair& operator=(const CorePair&) = delete;

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// A program checked and specialised once for repeated runs (operand bounds checked, kernels chosen).
class PreparedProgram;
std::shared_ptr<const PreparedProgram> prepare(const isa::Program& program, const CoreSizes& sizes,
                                               Status* status);

// Runs all streams to their end, honouring semaphores (cleared first), control flow and program order
// per stream; DMA takes effect at its trigger. Any race-free program gives the same values in any order.
// Detects deadlock (kHang, names who waits for what) and a stream that still jumps back after
// `instruction_budget` instructions.
Status run(Core& core, const PreparedProgram& program, const std::vector<HbmTensor>& hbm,
           uint64_t instruction_budget = UINT64_MAX);
// A program for two cores.
Status run(Core& first, Core& second, const PreparedProgram& program, const std::vector<HbmTensor>& hbm,
           uint64_t instruction_budget = UINT64_MAX);

// What a sequencer computes on two registers: comparisons give 1 or 0, arithmetic is modulo 2^32.
int32_t register_alu(isa::AluOp op, int32_t a, int32_t b);
// On pairs of registers (flag wide): add, subtract, multiply modulo 2^64.
int64_t register_alu_wide(isa::AluOp op, int64_t a, int64_t b);
// The 64 bits of registers r and r + 1.
inline int64_t register_pair(const int32_t* r) {
  return static_cast<int64_t>(uint64_t{static_cast<uint32_t>(r[0])} | uint64_t{static_cast<uint32_t>(r[1])}
                                                                          << 32);
}
inline void set_register_pair(int32_t* r, int64_t v) {
  r[0] = static_cast<int32_t>(static_cast<uint64_t>(v));
  r[1] = static_cast<int32_t>(static_cast<uint64_t>(v) >> 32);
}

// True when a branch, loop count or address in some stream depends on memory contents (kRegLoad).
bool has_data_dependent_control(const isa::Program& program);

}  // namespace trnsim::exec
