// One decoded instruction. The declarative table (isa/table.h) says, for every opcode, which of these fields it
// uses, which engines run it and what is legal; encode, decode, text form, validation and docs follow from there.
#pragma once

#include <cstdint>

#include "isa/access.h"

namespace trnsim::isa {

enum class Engine : uint8_t { kTensor = 0, kVector, kScalar, kGpSimd, kSync, kCount };
constexpr int kNumEngines = static_cast<int>(Engine::kCount);

enum class Opcode : uint8_t {
  // Tensor engine. The meaning of every row is in isa/rows.cpp.
  kLoadStationary = 0,
  kMultiplyMoving,
  kLoadStationaryMx,
  kMultiplyMovingMx,
  kLoadStationarySparse,
  kMultiplyMovingSparse,
  kTranspose,
  // Elementwise
  kCopy,
  kTensorTensor,
  kTensorScalar,
  kScalarTensorTensor,
  kActivation,
  kActivate2,
  kActTableLoad,
  kCopyPredicated,
  kReciprocal,
  kMemset,
  kExponential,
  kQuantizeMx,
  kStreamShuffle,
  kIota,
  kAffineSelect,
  kRangeSelect,
  kSelectReduce,
  // Reductions and scans
  kTensorReduce,
  kPartitionReduce,
  kTensorTensorScan,
  kTensorScalarReduce,
  kTensorScalarCumulative,
  kBnStats,
  kBnAggr,
  kMax8,
  kMaxIndex8,
  kMatchReplace8,
  // GpSimd programs
  kLocalGather,
  kNGather,
  kSequenceBounds,
  kNonzeroWithCount,
  kTopk,
  kCustom,
  // Random
  kPhilox,
  kRng,
  kRand2,
  kDropout,
  kSetRngSeed,
  kRandGetState,
  kRandSetState,
  // DMA (issued by a sequencer, runs on a DMA queue; sync.update fires at data completion and adds 16)
  kDmaCopy,
  kDmaTranspose,
  kDmaGather,
  kDmaScatter,
  kDmaCompute,
  kSendRecv,
  // Sequencer
  kSemaphore,
  kCoreBarrier,
  kRegMove,
  kRegAlu,
  kRegLoad,
  kRegStore,
  kBranch,
  kJump,
  kLoop,
  kHalt,
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
  // One operand: the scalar or second tile is left out.
  kInvert,
  kAbs,
  kRsqrt,
  kReciprocal,
  kSquare,
  kRelu,
  kAverage,  // partition_reduce only
  kCount,
};
constexpr bool is_bitwise(AluOp op) {
  return (op >= AluOp::kBitAnd && op <= AluOp::kShiftRight) || op == AluOp::kInvert;
}
constexpr bool is_unary(AluOp op) { return op >= AluOp::kInvert && op <= AluOp::kRelu; }
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
  kPrelu,  // negative values times `param`
  kGeluSigmoid,
  kGeluDx,
  kGeluSigmoidDx,
  kSiluDx,
  kErfDx,
  kCount,
};
// Inputs for which the function is specified; outside, the hardware's result is undefined.
struct ActRange {
  float low, high;
  bool by_magnitude;  // low <= |x| <= high
};
ActRange act_range(ActFunc f);
// The hardware keeps one table set resident; a function of another set costs an activation-table load.
int act_table_set(ActFunc f);

enum class DgeMode : uint8_t { kStatic = 0, kHardware, kSoftware };  // who builds the DMA descriptors

enum Flags : uint16_t {
  kFlagAccumulate = 1 << 0,  // add to dst: PSUM of a matrix product, SBUF of a DMA copy
  kFlagReverse0 = 1 << 1,
  kFlagReverse1 = 1 << 2,
  kFlagNegate = 1 << 3,
  kFlagImmediate = 1 << 4,
  kFlagSkipOutOfBounds = 1 << 5,  // indirect DMA: skip instead of error
  kFlagDoubleRow = 1 << 6,        // FP8 matrix product over pairs of rows
  kFlagOneZero = 1 << 7,          // every element of the FP32 operand is 0 or 1: one pass is exact
  kFlagWide = 1 << 8,             // 64 bits in the registers r and r + 1, the low word first
};

// The accumulator of the Vector or the Scalar engine: one FP32 register per partition that lives across
// instructions. aux, when present, receives its value after the instruction.
enum class ReduceCmd : uint8_t {
  kIdle = 0,     // not used
  kReset,        // becomes the start value of reduce_op; the results are not added
  kReduce,       // goes on with the results
  kResetReduce,  // start value, then the results
  kLoadReduce,   // the value of imm1, then the results
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

// Part of the systolic array that a matrix product uses; rows == 0: all of it.
struct PeTile {
  uint8_t row = 0, column = 0, rows = 0, columns = 0;
  bool whole() const { return rows == 0; }
};
inline bool operator==(const PeTile& a, const PeTile& b) {
  return a.row == b.row && a.column == b.column && a.rows == b.rows && a.columns == b.columns;
}

constexpr uint8_t kShuffleKeep = 255;  // stream_shuffle: this partition of dst keeps its value

struct Instruction {
  Opcode opcode = Opcode::kHalt;
  Engine engine = Engine::kSync;  // whose stream it is in
  AluOp op0 = AluOp::kNone;
  AluOp op1 = AluOp::kNone;
  ActFunc func = ActFunc::kCopy;
  DgeMode dge = DgeMode::kStatic;
  uint8_t queue = 0;        // DMA
  uint8_t priority = 0;     // DMA traffic class from trn3 on: 0 to 3, lower is more urgent
  uint8_t reduce_dims = 0;  // kTensorReduce
  uint8_t reg_dst = 0, reg_a = 0, reg_b = 0;
  AluOp reduce_op = AluOp::kNone;  // of the accumulator
  ReduceCmd reduce = ReduceCmd::kIdle;
  uint16_t flags = 0;
  PeTile tile;            // matrix products
  uint32_t count = 0;     // elements per index, results, rank: as the row says
  float param = 0;        // slope of prelu
  uint32_t target = 0;    // branch: instruction index in the same stream
  uint32_t location = 0;  // index into Program::locations, 0 = unknown
  int64_t imm = 0;        // register instructions; an integer constant of other rows
  Sync sync;
  ScalarOperand imm0, imm1;
  AffinePattern pattern;
  std::array<uint8_t, 32> mask{};  // kStreamShuffle: source of each partition of a quadrant, or kShuffleKeep
  Access dst, src0, src1, aux;

  bool has(Flags f) const { return (flags & f) != 0; }
  bool is_dma() const { return opcode >= Opcode::kDmaCopy && opcode <= Opcode::kSendRecv; }
  bool is_control() const { return opcode >= Opcode::kSemaphore; }
};

}  // namespace trnsim::isa
