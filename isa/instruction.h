// One decoded instruction. The declarative table (isa/table.h) says, for every opcode, which of these fields it
// uses, which engines run it and what is legal; encode, decode, text form, validation and docs follow from there.
#pragma once

#include <cstdint>

#include "isa/access.h"

namespace trnsim::isa {

enum class Engine : uint8_t { kTensor = 0, kVector, kScalar, kGpSimd, kSync, kCount };
constexpr int kNumEngines = static_cast<int>(Engine::kCount);

enum class Opcode : uint8_t {
  // Tensor engine
  kLoadStationary = 0,  // src0 SBUF [K<=128, M<=128] becomes the stationary matrix
  kMultiplyMoving,      // dst PSUM [M, N<=512] (+)= stationary^T . src0 SBUF [K, N]; accumulate flag
  kTranspose,  // Tensor: dst PSUM [F, P] = src0 SBUF [P<=128, F<=128]^T, bit exact, destroys the stationary
               // matrix. Vector: each 32x32 block of src0 transposed in place of the block (dst, src0 [P, F])
  // Elementwise (V/S/G as the table says)
  kCopy,                // dst = cast(src0)
  kTensorTensor,        // dst = src0 op0 src1
  kTensorScalar,        // dst = (src0 op0 imm0) op1 imm1          (reverse flags swap the operands of an op)
  kScalarTensorTensor,  // dst = (src0 op0 imm0) op1 src1
  kActivation,      // dst = func(src0 * imm0 + imm1); aux [P,1] with flag kAccumulate: sum over the free axis
  kActTableLoad,    // makes the table set of func resident
  kCopyPredicated,  // where src1 != 0: dst = src0
  kReciprocal,      // dst = 1 / src0
  kMemset,          // dst = imm0
  kIota,  // dst = pattern.base + partition*pattern.partition_step + sum index_i*pattern.step_i (int32, cast)
  kAffineSelect,  // dst = (affine value of pattern) op0 0 ? src0 : imm0
  // Reductions
  kTensorReduce,      // dst = reduce op0 over the last `reduce_dims` dims of src0 (negated with flag kNegate)
  kPartitionReduce,   // dst [1, N] = reduce op0 over partitions of src0 [P, N]
  kTensorTensorScan,  // r_i = (src0_i op0 r_{i-1}) op1 src1_i, r_{-1} = imm0, along the flattened free axis
  kBnStats,           // dst 6 values per partition: count, mean, count*var of even then odd elements
  kBnAggr,            // dst (mean, variance) from src0 groups of 3
  kMax8,              // dst [P,8] = the 8 largest of src0, descending
  kMaxIndex8,  // dst [P,8] uint32 = index of first occurrence of each src1 value in src0, duplicates advance
  kMatchReplace8,  // dst = src0 with the first match of each of the 8 src1 values replaced by imm0
  // Random
  kPhilox,  // dst uint32 = Philox4x32-10 words; src0 SBUF uint32 [1 partition, 4]: key lo, key hi,
            // offset lo, offset hi; element j (row major, + pattern.base) is word j%4 of counter offset + j/4
  // DMA (issued by a sequencer, runs on a DMA queue; sync.update fires at data completion and adds 16)
  kDmaCopy,       // dst = cast(src0); SBUF or HBM on either side, equal element counts, row-major order
  kDmaTranspose,  // dst [F, P] = src0 [P, F]^T, 2- or 4-byte elements
  kDmaGather,     // dst row i = src0 (HBM) at row index src1[i]: see facts in isa/table.cpp
  kDmaScatter,    // dst (HBM) at row index src1[i] = src0 row i; op0 == kAdd accumulates (dma_compute)
  // Sequencer
  kSemaphore,  // only waits and updates of `sync`
  kRegMove,    // reg_dst = imm
  kRegAlu,     // reg_dst = reg_a op0 (reg_b or imm with flag kImmediate)
  kRegLoad,    // reg_dst = 32-bit word at src0
  kRegStore,   // 32-bit word at dst = reg_a
  kBranch,     // if reg_a op0 (reg_b or imm) jump to target      (op0 a comparison)
  kJump,       // jump to target
  kLoop,       // reg_a -= 1; if reg_a != 0 jump to target
  kHalt,       // end of stream
  kCount,
};
constexpr int kNumOpcodes = static_cast<int>(Opcode::kCount);

enum class AluOp : uint8_t {
  kNone = 0,
  kAdd,
  kSubtract,
  kMultiply,
  kMax,
  kMin,
  kAbsMax,
  kAbsMin,
  kPower,
  kEqual,
  kNotEqual,
  kGreaterEqual,
  kGreater,
  kLessEqual,
  kLess,
  kLogicalAnd,
  kLogicalOr,
  kLogicalXor,
  kBitAnd,
  kBitOr,
  kBitXor,
  kShiftLeft,
  kShiftRight,  // integer dtypes, logical right shift
  kBypass,
  kCount,
};
constexpr bool is_bitwise(AluOp op) { return op >= AluOp::kBitAnd && op <= AluOp::kShiftRight; }
constexpr bool is_compare(AluOp op) { return op >= AluOp::kEqual && op <= AluOp::kLess; }

enum class ActFunc : uint8_t {
  kCopy = 0,
  kSquare,
  kRsqrt,
  kSqrt,
  kExp,
  kLog,
  kSigmoid,
  kTanh,
  kRelu,
  kGelu,
  kGeluTanh,
  kSilu,
  kErf,
  kSoftplus,
  kMish,
  kSin,
  kArctan,
  kAbs,
  kSign,
  kReciprocal,
  kCount,
};
// The hardware keeps one table set resident; a function of another set costs an activation-table load.
int act_table_set(ActFunc f);

enum class DgeMode : uint8_t { kStatic = 0, kHardware, kSoftware };  // who builds the DMA descriptors

enum Flags : uint16_t {
  kFlagAccumulate = 1 << 0,  // MultiplyMoving: add to PSUM; Activation: write the free-axis sum to aux
  kFlagReverse0 = 1 << 1,
  kFlagReverse1 = 1 << 2,
  kFlagNegate = 1 << 3,
  kFlagImmediate = 1 << 4,
  kFlagSkipOutOfBounds = 1 << 5,  // indirect DMA: skip instead of error
};

// A scalar operand: an FP32 constant, or an SBUF [P, 1] column (one value per partition; pointer.num_partitions of
// 1 is an error unless P is 1).
struct ScalarOperand {
  enum class Kind : uint8_t { kNone = 0, kImmediate, kPointer };
  Kind kind = Kind::kNone;
  float value = 0.0f;
  Access pointer;  // SBUF, FP32 (integer dtype for integer instructions)
};

enum class SemOp : uint8_t { kNone = 0, kAdd, kSubtract, kWrite };

// Waits hold the instruction in its sequencer until every semaphore >= value. The update happens when the
// instruction's results are visible (compute) or its data has arrived (DMA).
struct SemWait {
  uint8_t semaphore = 0;
  uint8_t value_register = kNoRegister;  // value += register
  int32_t value = 0;
};
struct Sync {
  uint8_t num_waits = 0;
  SemWait waits[2];
  SemOp update = SemOp::kNone;
  uint8_t update_semaphore = 0;
  int32_t update_value = 0;
};
constexpr int kNumSemaphores = 256;
constexpr int kNumRegisters = 64;
constexpr int kDmaCompletionIncrement = 16;
constexpr int kNumDmaQueues = 16;

struct AffinePattern {  // kIota, kAffineSelect: dims follow dst
  int64_t base = 0;
  int32_t partition_step = 0;
  std::array<int32_t, 4> step{};
};

struct Instruction {
  Opcode opcode = Opcode::kHalt;
  Engine engine = Engine::kSync;  // whose stream it is in
  AluOp op0 = AluOp::kNone;
  AluOp op1 = AluOp::kNone;
  ActFunc func = ActFunc::kCopy;
  DgeMode dge = DgeMode::kStatic;
  uint8_t queue = 0;        // DMA
  uint8_t reduce_dims = 0;  // kTensorReduce
  uint8_t reg_dst = 0, reg_a = 0, reg_b = 0;
  uint16_t flags = 0;
  uint32_t target = 0;    // branch: instruction index in the same stream
  uint32_t location = 0;  // index into Program::locations, 0 = unknown
  int64_t imm = 0;        // register instructions
  Sync sync;
  ScalarOperand imm0, imm1;
  AffinePattern pattern;
  Access dst, src0, src1, aux;

  bool has(Flags f) const { return (flags & f) != 0; }
  bool is_dma() const { return opcode >= Opcode::kDmaCopy && opcode <= Opcode::kDmaScatter; }
  bool is_control() const { return opcode >= Opcode::kSemaphore; }
};

}  // namespace trnsim::isa
