// The instruction table: one row per opcode, declared once in table.cpp. Encoding, decoding, assembler text,
// validation, documentation, the random program generator and the dispatch of exec and cost derive from it.
// C++17: included by sim/chip.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "isa/instruction.h"

namespace trnsim::isa {

// NeuronCore versions. Chips differ by data: a row, a dtype or an operator names the first generation that
// has it.
enum class Generation : uint8_t { kTrn2 = 3, kTrn3 = 4 };
std::optional<Generation> generation_from_target(std::string_view target);  // "trn2", "trn3"
std::string_view name(Generation g);

// Sets are bit masks over the enum values.
using EngineSet = uint8_t;
using SpaceSet = uint8_t;
using DtypeSet = uint32_t;
using AluSet = uint32_t;
template <typename E>
constexpr uint32_t bit(E v) {
  return 1u << static_cast<unsigned>(v);
}
template <typename E>
constexpr bool contains(uint64_t set, E v) {
  return static_cast<unsigned>(v) < 64 && (set >> static_cast<unsigned>(v)) & 1;
}

enum class Slot : uint8_t { kDst = 0, kSrc0, kSrc1, kAux };
constexpr int kNumSlots = 4;
std::string_view name(Slot s);
inline const Access& operand(const Instruction& i, Slot s) {
  return s == Slot::kDst ? i.dst : s == Slot::kSrc0 ? i.src0 : s == Slot::kSrc1 ? i.src1 : i.aux;
}
inline Access& operand(Instruction& i, Slot s) {
  return s == Slot::kDst ? i.dst : s == Slot::kSrc0 ? i.src0 : s == Slot::kSrc1 ? i.src1 : i.aux;
}

enum class Role : uint8_t { kNone = 0, kRead, kWrite, kReadWrite };

struct OperandRule {
  Role role = Role::kNone;  // kNone: the row has no such operand
  bool required = true;
  SpaceSet spaces = 0;
  DtypeSet dtypes = 0;
  DtypeSet dtypes_trn3 = 0;     // further ones from trn3 on
  bool indirect = false;        // may be indirect from trn3 on
  uint8_t max_dims = 4;         // free dims in SBUF/PSUM, all dims in HBM
  uint32_t max_free = 0;        // elements per partition; 0 = the limit of the space
  std::string_view shape = "";  // for the docs, e.g. "[K<=128, M<=128]"

  DtypeSet dtypes_of(Generation g) const { return g >= Generation::kTrn3 ? dtypes | dtypes_trn3 : dtypes; }
};

// Scalar fields of Instruction that a row uses. The engine, sync and location fields belong to every row.
enum Field : uint32_t {
  kFieldOp0 = 1 << 0,
  kFieldOp1 = 1 << 1,
  kFieldFunc = 1 << 2,
  kFieldImm0 = 1 << 3,
  kFieldImm1 = 1 << 4,
  kFieldQueue = 1 << 5,
  kFieldDge = 1 << 6,
  kFieldReduceDims = 1 << 7,
  kFieldRegDst = 1 << 8,
  kFieldRegA = 1 << 9,
  kFieldRegB = 1 << 10,
  kFieldTarget = 1 << 11,
  kFieldImm = 1 << 12,
  kFieldPattern = 1 << 13,
  kFieldReduce = 1 << 14,  // reduce_op and reduce: the accumulator of the engine
  kFieldCount = 1 << 15,
  kFieldParam = 1 << 16,
  kFieldMask = 1 << 17,
  kFieldTile = 1 << 18,
  kFieldPriority = 1 << 19,
};

// Which kinds an imm0 / imm1 field may have.
enum ScalarKinds : uint8_t {
  kScalarNone = 1 << 0,
  kScalarImmediate = 1 << 1,
  kScalarPointer = 1 << 2,
};

// Named legality rules beyond operand spaces, dtypes and sizes; the validator implements each once.
enum class Rule : uint8_t {
  kSamePartitions,
  kSameElements,
  kSameDtype,
  kOnePsumInput,
  kOperatorClass,
  kScalarTensorOperators,
  kPowerOnGpSimd,
  kStationaryShape,
  kMovingShape,
  kMatmulDtypes,
  kPeTile,
  kDoubleRow,
  kMxScales,
  kSparseTags,
  kTransposeShape,
  kReduceShape,
  kPartitionReduceShape,
  kBnStatsShape,
  kBnAggrShape,
  kTop8Source,
  kTop8Result,
  kTop8Values,
  kPhiloxShape,
  kAccumulator,
  kActivationFunction,
  kActivate2Operators,
  kOpaqueMoves,
  kSelectSource,
  kQuantizeShape,
  kShuffleShape,
  kRangeBounds,
  kCumulativeOperators,
  kLocalGatherShape,
  kNGatherShape,
  kSequenceShape,
  kNonzeroShape,
  kTopkShape,
  kGeneratorState,
  kUniformBounds,
  kDmaElements,
  kDmaCast,
  kDmaAccumulate,
  kDmaTransposeShape,
  kIndirect,
  kDmaSources,
  kTwoCores,
  kExchange,
  kOneWord,
  kRegisterPair,
  kCount,
};
using RuleSet = uint64_t;
std::string_view rule_name(Rule r);
std::string_view rule_text(Rule r);  // one sentence

// What sim/cost dispatches on: instructions of one class obey one timing law (per engine).
enum class CostClass : uint8_t {
  kStationaryLoad = 0,
  kMatmul,
  kTranspose,     // by engine: PE pass, or 32x32 stream transpose
  kCopy,          // one tile in, one out, vector fast modes
  kTensorScalar,  // as copy with up to two operators
  kTensorTensor,  // two tiles in
  kActivation,    // one element per cycle, table set, optional accumulator read
  kActivationTable,
  kPredicated,
  kReciprocal,
  kMemset,
  kPatternGenerate,  // iota, affine_select on GpSimd
  kReduce,
  kPartitionReduce,
  kScan,
  kScalarReduce,  // tensor-scalar with a reduction into the accumulator
  kSelectReduce,  // selections with an optional reduction
  kExponential,
  kQuantize,
  kShuffle,
  kStatistics,
  kStatisticsMerge,
  kTop8,
  kRandom,
  kRandomState,
  kLocalGather,
  kListScan,  // GpSimd programs that walk a list
  kTopk,
  kCustom,
  kDma,
  kSemaphore,
  kCoreBarrier,
  kRegister,
  kRegisterMemory,
  kBranch,
  kCount,
};
std::string_view name(CostClass c);

// Where the time of a row comes from.
enum class Timing : uint8_t { kMeasured = 0, kDocumented, kEstimated };
std::string_view name(Timing t);

struct Row {
  Opcode opcode = Opcode::kCount;
  std::string_view name = {};
  EngineSet engines = 0;
  EngineSet engines_trn3 = 0;  // further ones from trn3 on
  Generation since = Generation::kTrn2;
  CostClass cost = CostClass::kCount;
  OperandRule operands[kNumSlots] = {};  // indexed by Slot
  uint32_t fields = 0;                   // Field bits
  uint16_t flags = 0;                    // allowed Flags
  uint16_t flags_trn3 = 0;               // those of them that exist from trn3 on
  AluSet op0 = 0, op1 = 0;     // allowed operators; kNone is in the set when the operator may be left out
  AluSet reduce_op = 0;        // of the accumulator
  uint8_t imm0 = 0, imm1 = 0;  // ScalarKinds
  RuleSet rules = 0;
  std::string_view doc = {};     // one line
  std::string_view detail = {};  // further semantics, may be empty
  std::string_view source = {};  // section of the hardware facts, or "trnsim" for an instruction of our own
  Timing timing = Timing::kEstimated;

  const OperandRule& operand(Slot s) const { return operands[static_cast<int>(s)]; }
  bool uses(Field f) const { return (fields & f) != 0; }
  EngineSet engines_of(Generation g) const {
    return g < since ? EngineSet{0}
                     : static_cast<EngineSet>(g >= Generation::kTrn3 ? engines | engines_trn3 : engines);
  }
  bool runs_on(Engine e) const { return contains(engines | engines_trn3, e); }  // of some generation
  bool runs_on(Engine e, Generation g) const { return contains(engines_of(g), e); }
  bool has_rule(Rule r) const { return contains(rules, r); }
};

const Row& row(Opcode opcode);                  // opcode < Opcode::kCount
const Row* row_by_name(std::string_view name);  // nullptr when unknown
const Row (&all_rows())[kNumOpcodes];           // in opcode order

// How this instruction uses the operand: the row's role, sharpened by its fields (accumulate reads the
// destination, a shuffle may keep partitions of it).
Role operand_role(const Instruction& i, Slot s);

// True when a list of indices picks what is touched: any byte of the operand (of its partitions, when it is
// indirect) may be, none must be.
bool picked_by_indices(const Instruction& i, Slot s);
// Writes PSUM through the systolic array.
constexpr bool is_matmul(Opcode o) {
  return o == Opcode::kMultiplyMoving || o == Opcode::kMultiplyMovingMx || o == Opcode::kMultiplyMovingSparse;
}
constexpr bool is_stationary_load(Opcode o) {
  return o == Opcode::kLoadStationary || o == Opcode::kLoadStationaryMx || o == Opcode::kLoadStationarySparse;
}
// Rows of the contraction in one partition of a matrix product: a pair of FP8 rows, or what stands behind a row of a
// sparse matrix. Of an instruction, as it is written or prepared.
template <typename AnyInstruction>
int moving_rows(const AnyInstruction& i) {
  return i.opcode == Opcode::kMultiplyMovingSparse ? static_cast<int>(i.count)
         : i.has(kFlagDoubleRow)                   ? 2
                                                   : 1;
}

// The index list of an indirect operand as an operand of its own.
Access index_list(const Access& a, Engine e);
constexpr int index_partitions(Engine e) { return e == Engine::kTensor ? 32 : 16; }

// Calls fn(Slot or scalar name, Role, const Access&) for every memory operand that is present, the pointers
// of imm0 and imm1 and the index lists of indirect operands included. Reads come before writes.
template <typename Fn>
void for_each_operand(const Instruction& i, Fn&& fn) {
  const Row& r = row(i.opcode);
  for (Slot s : {Slot::kSrc0, Slot::kSrc1, Slot::kDst}) {
    if (r.operand(s).role != Role::kNone && operand(i, s).present() && operand(i, s).indirect)
      fn(std::string_view("index"), Role::kRead, index_list(operand(i, s), i.engine));
  }
  for (Slot s : {Slot::kSrc0, Slot::kSrc1}) {
    if (r.operand(s).role != Role::kNone && operand(i, s).present())
      fn(name(s), operand_role(i, s), operand(i, s));
  }
  if (r.uses(kFieldImm0) && i.imm0.kind == ScalarOperand::Kind::kPointer) {
    fn(std::string_view("imm0"), Role::kRead, i.imm0.pointer);
  }
  if (r.uses(kFieldImm1) && i.imm1.kind == ScalarOperand::Kind::kPointer) {
    fn(std::string_view("imm1"), Role::kRead, i.imm1.pointer);
  }
  for (Slot s : {Slot::kDst, Slot::kAux}) {
    if (r.operand(s).role != Role::kNone && operand(i, s).present())
      fn(name(s), operand_role(i, s), operand(i, s));
  }
}

// True when both describe the same instruction: engine, sync, location and every field the row uses agree.
bool same_instruction(const Instruction& a, const Instruction& b);

// The register holds 64 bits together with the one after it (flag wide).
inline int last_register(const Instruction& i, uint8_t r) { return i.has(kFlagWide) ? r + 1 : r; }

// Memories an engine can reach for compute operands (GpSimd has no PSUM port; Tensor reads SBUF and writes
// PSUM).
SpaceSet reachable_spaces(Engine e, Role role);

// First generation that has a dtype or an operator.
Generation since(Dtype d);
Generation since(AluOp op);
// What the scalar engine computes as tensor_scalar.
bool scalar_engine_operators(AluOp op0, AluOp op1, Generation g);

// Fixed sets used by rows and by others.
constexpr DtypeSet kDtypes64 = bit(Dtype::kI64) | bit(Dtype::kF64);
constexpr DtypeSet kDtypesPacked = bit(Dtype::kF8E5M2x4) | bit(Dtype::kF8E4M3FNx4) | bit(Dtype::kF4E2M1x4);
constexpr DtypeSet kDtypesOpaque = kDtypesPacked | bit(Dtype::kF8E8M0);
constexpr DtypeSet kDtypesCompute = (bit(Dtype::kCount) - 1) & ~kDtypes64 & ~kDtypesOpaque;
constexpr DtypeSet kDtypesFp8 =
    bit(Dtype::kF8E4M3) | bit(Dtype::kF8E4M3FN) | bit(Dtype::kF8E5M2) | bit(Dtype::kF8E3M4);
constexpr DtypeSet kDtypesMatmul =
    bit(Dtype::kF32) | bit(Dtype::kF32R) | bit(Dtype::kBF16) | bit(Dtype::kF16) | kDtypesFp8;
constexpr DtypeSet kDtypesInteger = bit(Dtype::kI32) | bit(Dtype::kI16) | bit(Dtype::kI8) | bit(Dtype::kU32) |
                                    bit(Dtype::kU16) | bit(Dtype::kU8) | bit(Dtype::kBool);

// Limits of the hardware that depend on the generation.
struct Limits {
  int64_t sbuf_bytes_per_partition;
  int64_t psum_bytes_per_partition;
  int64_t matmul_free_elements;  // moving columns of one MultiplyMoving
  bool matmul_output_in_one_bank;
};
const Limits& limits(Generation g);
constexpr int kSparsePartitions = 4;     // hold the values that a sparse product keeps of one block of rows
constexpr uint32_t kMaxSparseRatio = 4;  // rows of the dense operand per row that is kept
constexpr int kTrafficClasses = 4;       // of DMA, from trn3 on
constexpr int64_t kMaxSoftwareExchange = 256;  // elements per partition, between two cores
constexpr int64_t kMaxFreeElementsSbuf = 65536;
constexpr int64_t kMaxFreeElementsPsum = 4096;

}  // namespace trnsim::isa
