#include "isa/table.h"

#include <cassert>
#include <cstring>

#include "isa/names.h"

namespace trnsim::isa {
namespace {

constexpr EngineSet T = bit(Engine::kTensor), V = bit(Engine::kVector), S = bit(Engine::kScalar),
                    G = bit(Engine::kGpSimd), Y = bit(Engine::kSync);
constexpr EngineSet kAnyEngine = T | V | S | G | Y;
constexpr SpaceSet kSb = bit(Space::kSbuf), kPs = bit(Space::kPsum), kHb = bit(Space::kHbm);
constexpr SpaceSet kTiles = kSb | kPs;

constexpr AluSet kNoneOp = bit(AluOp::kNone), kBypassOp = bit(AluOp::kBypass);
constexpr AluSet kCompare = bit(AluOp::kEqual) | bit(AluOp::kNotEqual) | bit(AluOp::kGreaterEqual) |
                            bit(AluOp::kGreater) | bit(AluOp::kLessEqual) | bit(AluOp::kLess);
constexpr AluSet kLogical = bit(AluOp::kLogicalAnd) | bit(AluOp::kLogicalOr) | bit(AluOp::kLogicalXor);
constexpr AluSet kBitwiseReduce = bit(AluOp::kBitAnd) | bit(AluOp::kBitOr) | bit(AluOp::kBitXor);
constexpr AluSet kBitwise = kBitwiseReduce | bit(AluOp::kShiftLeft) | bit(AluOp::kShiftRight);
constexpr AluSet kBasic =
    bit(AluOp::kAdd) | bit(AluOp::kSubtract) | bit(AluOp::kMultiply) | bit(AluOp::kMax) | bit(AluOp::kMin);
constexpr AluSet kArithmetic =
    kBasic | bit(AluOp::kAbsMax) | bit(AluOp::kAbsMin) | bit(AluOp::kPower) | kCompare | kLogical;
constexpr AluSet kReduction = kBasic | kLogical | kBitwiseReduce;

constexpr uint8_t kImm = kScalarImmediate, kPtr = kScalarPointer, kOpt = kScalarNone;

constexpr DtypeSet kAll = kDtypesCompute;
constexpr DtypeSet kMoves = kDtypesCompute | kDtypes64;
constexpr DtypeSet kPredicates = bit(Dtype::kU8) | bit(Dtype::kU16) | bit(Dtype::kU32) | bit(Dtype::kBool);
constexpr DtypeSet kIndices = bit(Dtype::kI32) | bit(Dtype::kU32);
constexpr DtypeSet kWords = bit(Dtype::kI32) | bit(Dtype::kU32) | bit(Dtype::kF32);
constexpr DtypeSet k2Or4Bytes = bit(Dtype::kF32) | bit(Dtype::kF32R) | bit(Dtype::kBF16) | bit(Dtype::kF16) |
                                bit(Dtype::kI32) | bit(Dtype::kU32) | bit(Dtype::kI16) | bit(Dtype::kU16);

constexpr OperandRule read(SpaceSet spaces, DtypeSet dtypes, std::string_view shape, uint8_t max_dims = 4,
                           uint32_t max_free = 0) {
  return {Role::kRead, true, spaces, dtypes, max_dims, max_free, shape};
}
constexpr OperandRule write(SpaceSet spaces, DtypeSet dtypes, std::string_view shape, uint8_t max_dims = 4,
                            uint32_t max_free = 0) {
  return {Role::kWrite, true, spaces, dtypes, max_dims, max_free, shape};
}
constexpr OperandRule update(SpaceSet spaces, DtypeSet dtypes, std::string_view shape) {
  return {Role::kReadWrite, true, spaces, dtypes, 4, 0, shape};
}
constexpr OperandRule optional(OperandRule r) {
  r.required = false;
  return r;
}
constexpr OperandRule kAbsent{};

template <typename... R>
constexpr RuleSet rules(R... r) {
  return (0u | ... | bit(r));
}

// clang-format off
constexpr Row kRows[kNumOpcodes] = {
    {.opcode = Opcode::kLoadStationary, .name = "load_stationary", .engines = T, .cost = CostClass::kStationaryLoad,
     .operands = {kAbsent, read(kSb, kDtypesMatmul, "[K<=128, M<=128]", 3, 128)},
     .rules = rules(Rule::kStationaryShape),
     .doc = "Loads src0 as the stationary matrix of the tensor engine.",
     .detail = "Row k of the systolic array is partition k of src0; column m becomes output partition m of the "
               "multiplications that follow.",
     .source = "3.3, 5.1 nc_matmul"},
    {.opcode = Opcode::kMultiplyMoving, .name = "multiply_moving", .engines = T, .cost = CostClass::kMatmul,
     .operands = {write(kPs, bit(Dtype::kF32) | bit(Dtype::kBF16), "[M, N]"),
                  read(kSb, kDtypesMatmul, "[K, N<=512]")},
     .flags = kFlagAccumulate,
     .rules = rules(Rule::kMovingShape, Rule::kMatmulDtypes),
     .doc = "dst = stationary^T . src0 with FP32 accumulation; flag accumulate adds to dst.",
     .detail = "FP32 inputs take four passes, fp32r inputs are rounded to TF32 and take one. On trn2 dst is fp32 and "
               "lies in one PSUM bank (2 KiB per partition); trn3 may span banks and may write bf16.",
     .source = "2.5, 3.3, 5.1 nc_matmul"},
    {.opcode = Opcode::kTranspose, .name = "transpose", .engines = T | V, .cost = CostClass::kTranspose,
     .operands = {write(kTiles, kAll, "tensor [F, P], vector [P, F]"),
                  read(kTiles, kAll, "tensor [P<=128, F<=128], vector [P, F] of 32x32 blocks")},
     .rules = rules(Rule::kSameDtype, Rule::kTransposeShape),
     .doc = "Bit-exact transpose: tensor engine whole tile SBUF to PSUM, vector engine every 32x32 block in place.",
     .detail = "On the tensor engine the stationary matrix is destroyed, and one-byte elements are padded to two bytes: "
               "dst then needs an innermost step of 2. On the vector engine P and F are multiples of 32, or at most 32.",
     .source = "2.5, 3.3, 3.4, 5.1 nc_transpose"},
    {.opcode = Opcode::kCopy, .name = "copy", .engines = V | S | G, .cost = CostClass::kCopy,
     .operands = {write(kTiles, kAll, "[P, ...]"), read(kTiles, kAll, "[P, ...]")},
     .rules = rules(Rule::kSamePartitions, Rule::kSameElements),
     .doc = "dst = cast(src0); bit exact when the dtypes agree, else through FP32.",
     .source = "5.3 tensor_copy"},
    {.opcode = Opcode::kTensorTensor, .name = "tensor_tensor", .engines = V | G, .cost = CostClass::kTensorTensor,
     .operands = {write(kTiles, kAll, "[P, ...]"), read(kTiles, kAll, "[P, ...]"), read(kTiles, kAll, "[P, ...]")},
     .fields = kFieldOp0, .op0 = kArithmetic | kBitwise,
     .rules = rules(Rule::kSamePartitions, Rule::kSameElements, Rule::kOnePsumInput, Rule::kOperatorClass,
                    Rule::kPowerOnGpSimd),
     .doc = "dst = src0 op0 src1, element by element.",
     .detail = "Arithmetic is FP32 with casts on both sides. On GpSimd, add, subtract, multiply, max, min and "
               "comparisons of 32-bit integers are exact. Comparisons give 1 or 0.",
     .source = "5.3 tensor_tensor"},
    {.opcode = Opcode::kTensorScalar, .name = "tensor_scalar", .engines = V | S | G, .cost = CostClass::kTensorScalar,
     .operands = {write(kTiles, kAll, "[P, ...]"), read(kTiles, kAll, "[P, ...]")},
     .fields = kFieldOp0 | kFieldOp1 | kFieldImm0 | kFieldImm1, .flags = kFlagReverse0 | kFlagReverse1,
     .op0 = kArithmetic | kBitwise | kBypassOp, .op1 = kArithmetic | kBitwise | kBypassOp | kNoneOp,
     .imm0 = kImm | kPtr | kOpt, .imm1 = kImm | kPtr | kOpt,
     .rules = rules(Rule::kSamePartitions, Rule::kSameElements, Rule::kOperatorClass, Rule::kScalarTensorOperators),
     .doc = "dst = (src0 op0 imm0) op1 imm1; the reverse flags swap the operands of an operator.",
     .source = "5.3 tensor_scalar"},
    {.opcode = Opcode::kScalarTensorTensor, .name = "scalar_tensor_tensor", .engines = V,
     .cost = CostClass::kTensorTensor,
     .operands = {write(kTiles, kAll, "[P, ...]"), read(kTiles, kAll, "[P, ...]"), read(kTiles, kAll, "[P, ...]")},
     .fields = kFieldOp0 | kFieldOp1 | kFieldImm0, .flags = kFlagReverse0 | kFlagReverse1,
     .op0 = kArithmetic | kBypassOp, .op1 = kArithmetic | kBypassOp, .imm0 = kImm | kPtr | kOpt,
     .rules = rules(Rule::kSamePartitions, Rule::kSameElements, Rule::kOnePsumInput),
     .doc = "dst = (src0 op0 imm0) op1 src1; the reverse flags swap the operands of an operator.",
     .source = "5.3 scalar_tensor_tensor"},
    {.opcode = Opcode::kActivation, .name = "activation", .engines = S, .cost = CostClass::kActivation,
     .operands = {write(kTiles, kAll, "[P, ...]"), read(kTiles, kAll, "[P, ...]"), kAbsent,
                  optional(write(kTiles, kAll, "[P, 1]", 4, 1))},
     .fields = kFieldFunc | kFieldImm0 | kFieldImm1, .flags = kFlagAccumulate,
     .imm0 = kImm | kPtr | kOpt, .imm1 = kImm | kPtr | kOpt,
     .rules = rules(Rule::kSamePartitions, Rule::kSameElements, Rule::kAccumulateColumn),
     .doc = "dst = func(src0 * imm0 + imm1); with flag accumulate, aux = sum of the results over the free axis.",
     .detail = "imm0 (scale) is a constant or an fp32 column, imm1 (bias) a constant or a float column. Functions outside "
               "their valid range give undefined results on hardware. A function of another table set costs a table load.",
     .source = "3.5, 5.2 activation, 6"},
    {.opcode = Opcode::kActTableLoad, .name = "act_table_load", .engines = S, .cost = CostClass::kActivationTable,
     .fields = kFieldFunc,
     .doc = "Makes the table set of func resident in the scalar engine.",
     .source = "3.5"},
    {.opcode = Opcode::kCopyPredicated, .name = "copy_predicated", .engines = V, .cost = CostClass::kPredicated,
     .operands = {update(kTiles, kAll, "[P, ...]"), read(kTiles, kAll, "[P, ...]"),
                  read(kTiles, kPredicates, "[P, ...]")},
     .rules = rules(Rule::kSamePartitions, Rule::kSameElements, Rule::kSameDtype, Rule::kOnePsumInput),
     .doc = "Where src1 is not 0: dst = src0; elsewhere dst keeps its value.",
     .source = "5.3 tensor_copy_predicated"},
    {.opcode = Opcode::kReciprocal, .name = "reciprocal", .engines = V, .cost = CostClass::kReciprocal,
     .operands = {write(kTiles, kAll, "[P, ...]"), read(kTiles, kAll, "[P, ...]")},
     .rules = rules(Rule::kSamePartitions, Rule::kSameElements),
     .doc = "dst = 1 / src0 in FP32.",
     .source = "5.3 reciprocal"},
    {.opcode = Opcode::kMemset, .name = "memset", .engines = V | G, .cost = CostClass::kMemset,
     .operands = {write(kTiles, kAll, "[P, ...]")},
     .fields = kFieldImm0, .imm0 = kImm,
     .doc = "dst = imm0 in every element.",
     .source = "5.3 memset"},
    {.opcode = Opcode::kIota, .name = "iota", .engines = G, .cost = CostClass::kPatternGenerate,
     .operands = {write(kSb, kAll, "[P, ...]")},
     .fields = kFieldPattern,
     .doc = "dst = base + partition * partition_step + sum of index_i * step_i, computed in int32, cast to dst.",
     .detail = "partition counts from 0 at the first partition of dst; index_i runs over dim i of dst.",
     .source = "5.4 iota"},
    {.opcode = Opcode::kAffineSelect, .name = "affine_select", .engines = G, .cost = CostClass::kPatternGenerate,
     .operands = {write(kSb, kAll, "[P, ...]"), read(kSb, kAll, "[P, ...]")},
     .fields = kFieldOp0 | kFieldImm0 | kFieldPattern, .op0 = kCompare, .imm0 = kImm,
     .rules = rules(Rule::kSamePartitions, Rule::kSameElements),
     .doc = "dst = (affine value of the pattern) op0 0 ? src0 : imm0.",
     .source = "5.4 affine_select"},
    {.opcode = Opcode::kTensorReduce, .name = "tensor_reduce", .engines = V, .cost = CostClass::kReduce,
     .operands = {write(kTiles, kAll, "[P, kept...]"), read(kTiles, kAll, "[P, kept..., reduced...]")},
     .fields = kFieldOp0 | kFieldReduceDims, .flags = kFlagNegate, .op0 = kReduction,
     .rules = rules(Rule::kSamePartitions, Rule::kOperatorClass, Rule::kReduceShape),
     .doc = "dst = reduction by op0 of the last reduce_dims dims of src0; flag negate changes the sign of the result.",
     .source = "5.3 tensor_reduce, 6"},
    {.opcode = Opcode::kPartitionReduce, .name = "partition_reduce", .engines = G,
     .cost = CostClass::kPartitionReduce,
     .operands = {write(kSb, kAll, "[1, N]"), read(kSb, kAll, "[P, N]")},
     .fields = kFieldOp0,
     .op0 = bit(AluOp::kAdd) | bit(AluOp::kMax) | bit(AluOp::kBitAnd) | bit(AluOp::kBitOr) |
            bit(AluOp::kLogicalAnd) | bit(AluOp::kLogicalOr),
     .rules = rules(Rule::kOperatorClass, Rule::kPartitionReduceShape),
     .doc = "dst [1, N] = reduction by op0 over the partitions of src0 [P, N].",
     .source = "5.3 tensor_partition_reduce"},
    {.opcode = Opcode::kTensorTensorScan, .name = "tensor_tensor_scan", .engines = V, .cost = CostClass::kScan,
     .operands = {write(kTiles, kAll, "[P, ...]"), read(kTiles, kAll, "[P, ...]"), read(kTiles, kAll, "[P, ...]")},
     .fields = kFieldOp0 | kFieldOp1 | kFieldImm0, .op0 = kArithmetic, .op1 = kArithmetic, .imm0 = kImm | kPtr,
     .rules = rules(Rule::kSamePartitions, Rule::kSameElements, Rule::kOnePsumInput),
     .doc = "r_i = (src0_i op0 r_(i-1)) op1 src1_i with r_(-1) = imm0, along the flattened free axis; dst = r.",
     .source = "5.3 tensor_tensor_scan"},
    {.opcode = Opcode::kBnStats, .name = "bn_stats", .engines = V, .cost = CostClass::kStatistics,
     .operands = {write(kTiles, kAll, "[P, 6]", 4, 6), read(kTiles, kAll, "[P, N<=512]", 4, 512)},
     .rules = rules(Rule::kSamePartitions, Rule::kBnStatsShape),
     .doc = "dst = count, mean, count*variance of the even elements of src0, then of the odd ones.",
     .source = "5.3 bn_stats"},
    {.opcode = Opcode::kBnAggr, .name = "bn_aggr", .engines = V, .cost = CostClass::kStatisticsMerge,
     .operands = {write(kTiles, kAll, "[P, 2]", 4, 2), read(kTiles, kAll, "[P, 3*groups]")},
     .rules = rules(Rule::kSamePartitions, Rule::kBnAggrShape),
     .doc = "dst = mean and variance from groups (count, mean, count*variance) in src0.",
     .source = "5.3 bn_aggr"},
    {.opcode = Opcode::kMax8, .name = "max8", .engines = V, .cost = CostClass::kTop8,
     .operands = {write(kTiles, kAll, "[P, 8]", 4, 8), read(kTiles, kAll, "[P, 8..16384]", 3, 16384)},
     .rules = rules(Rule::kSamePartitions, Rule::kTop8Source, Rule::kTop8Result),
     .doc = "dst = the 8 largest elements of each partition of src0, descending.",
     .source = "5.3 max8"},
    {.opcode = Opcode::kMaxIndex8, .name = "max_index8", .engines = V, .cost = CostClass::kTop8,
     .operands = {write(kTiles, bit(Dtype::kU32) | bit(Dtype::kU16), "[P, 8]", 4, 8),
                  read(kTiles, kAll, "[P, 8..16384]", 4, 16384), read(kTiles, kAll, "[P, 8]", 4, 8)},
     .rules = rules(Rule::kSamePartitions, Rule::kTop8Source, Rule::kTop8Result, Rule::kTop8Values),
     .doc = "dst = index in src0 of the first occurrence of each src1 value; duplicates advance, missing = all ones.",
     .source = "5.3 nc_find_index8"},
    {.opcode = Opcode::kMatchReplace8, .name = "match_replace8", .engines = V, .cost = CostClass::kTop8,
     .operands = {write(kTiles, kAll, "[P, N]"), read(kTiles, kAll, "[P, N<=16384]", 4, 16384),
                  read(kTiles, kAll, "[P, 8]", 4, 8)},
     .fields = kFieldImm0, .imm0 = kImm,
     .rules = rules(Rule::kSamePartitions, Rule::kTop8Source, Rule::kTop8Values),
     .doc = "dst = src0 with the first match of each of the 8 src1 values replaced by imm0.",
     .source = "5.3 nc_match_replace8"},
    {.opcode = Opcode::kPhilox, .name = "philox", .engines = G, .cost = CostClass::kRandom,
     .operands = {write(kSb, bit(Dtype::kU32), "[P, ...]"), read(kSb, bit(Dtype::kU32), "[1, 4]", 4, 4)},
     .fields = kFieldPattern,
     .rules = rules(Rule::kPhiloxShape),
     .doc = "dst = Philox4x32-10 words; src0 holds key low, key high, offset low, offset high.",
     .detail = "Element j (row major over partitions and dims, plus pattern.base) is word j%4 of the counter offset + j/4. "
               "Runs as a program on the GpSimd processors; the native generators (LFSR, XORWOW) are not simulated.",
     .source = "trnsim"},
    {.opcode = Opcode::kDmaCopy, .name = "dma_copy", .engines = kAnyEngine, .cost = CostClass::kDma,
     .operands = {write(kSb | kHb, kMoves, "any", 5), read(kSb | kHb, kMoves, "any", 5)},
     .fields = kFieldQueue | kFieldDge,
     .rules = rules(Rule::kDmaElements, Rule::kDmaCast),
     .doc = "dst = cast(src0), SBUF or HBM on either side, equal element counts in row-major order.",
     .detail = "Casts go through FP32; int64 and fp64 in HBM become int32 and fp32 in SBUF and back.",
     .source = "4, 5.5 dma_copy"},
    {.opcode = Opcode::kDmaTranspose, .name = "dma_transpose", .engines = kAnyEngine, .cost = CostClass::kDma,
     .operands = {write(kSb, k2Or4Bytes, "[F, P]", 5), read(kSb | kHb, k2Or4Bytes, "[P, F]", 5)},
     .fields = kFieldQueue | kFieldDge,
     .rules = rules(Rule::kSameDtype, Rule::kDmaTransposeShape),
     .doc = "dst [F, P] = transpose of src0 [P, F], bit exact, 2- or 4-byte elements.",
     .source = "4.4, 5.5 dma_transpose"},
    {.opcode = Opcode::kDmaGather, .name = "dma_gather", .engines = G, .cost = CostClass::kDma,
     .operands = {write(kSb, kMoves, "[P, n, row...]", 5), read(kHb, kMoves, "[rows, row...]", 5),
                  read(kSb, kIndices, "[P, n]")},
     .fields = kFieldQueue | kFieldDge, .flags = kFlagSkipOutOfBounds,
     .rules = rules(Rule::kDmaCast, Rule::kIndirect),
     .doc = "Row (p, j) of dst = row src1[p][j] of src0.",
     .detail = "src0: dims[0] is the indexable axis (size = bound, step = row pitch), dims[1..] the row. An index outside "
               "0..size-1 is a run-time error, or leaves its dst row alone with flag skip_out_of_bounds.",
     .source = "4.4, 5.5 dma_copy with vector_offset"},
    {.opcode = Opcode::kDmaScatter, .name = "dma_scatter", .engines = G, .cost = CostClass::kDma,
     .operands = {write(kHb, kMoves, "[rows, row...]", 5), read(kSb, kMoves, "[P, n, row...]", 5),
                  read(kSb, kIndices, "[P, n]")},
     .fields = kFieldOp0 | kFieldQueue | kFieldDge, .flags = kFlagSkipOutOfBounds,
     .op0 = kNoneOp | bit(AluOp::kAdd),
     .rules = rules(Rule::kDmaCast, Rule::kIndirect),
     .doc = "Row src1[p][j] of dst = row (p, j) of src0; op0 add accumulates in FP32.",
     .detail = "dst: dims[0] is the indexable axis (size = bound, step = row pitch), dims[1..] the row. When accumulating, "
               "the indices of one instruction must be unique. An index outside 0..size-1 is a run-time error, or drops "
               "its row with flag skip_out_of_bounds.",
     .source = "4.4, 5.5 dma_copy and dma_compute with vector_offset"},
    {.opcode = Opcode::kSemaphore, .name = "semaphore", .engines = kAnyEngine, .cost = CostClass::kSemaphore,
     .doc = "Only waits and updates of its sync field.",
     .source = "3.2"},
    {.opcode = Opcode::kRegMove, .name = "reg_move", .engines = kAnyEngine, .cost = CostClass::kRegister,
     .fields = kFieldRegDst | kFieldImm,
     .doc = "reg_dst = imm.",
     .source = "3.1"},
    {.opcode = Opcode::kRegAlu, .name = "reg_alu", .engines = kAnyEngine, .cost = CostClass::kRegister,
     .fields = kFieldRegDst | kFieldRegA | kFieldRegB | kFieldOp0 | kFieldImm, .flags = kFlagImmediate,
     .op0 = kBasic | kCompare | kBitwise,
     .doc = "reg_dst = reg_a op0 reg_b, or imm in place of reg_b with flag immediate; 32-bit, wraps.",
     .source = "3.1"},
    {.opcode = Opcode::kRegLoad, .name = "reg_load", .engines = kAnyEngine, .cost = CostClass::kRegisterMemory,
     .operands = {kAbsent, read(kSb | kHb, kWords, "one word", 5, 1)},
     .fields = kFieldRegDst,
     .rules = rules(Rule::kOneWord),
     .doc = "reg_dst = the 32-bit word at src0.",
     .source = "3.1, 5.5 register_load"},
    {.opcode = Opcode::kRegStore, .name = "reg_store", .engines = kAnyEngine, .cost = CostClass::kRegisterMemory,
     .operands = {write(kSb | kHb, kWords, "one word", 5, 1)},
     .fields = kFieldRegA,
     .rules = rules(Rule::kOneWord),
     .doc = "The 32-bit word at dst = reg_a.",
     .source = "3.1, 5.5 register_store"},
    {.opcode = Opcode::kBranch, .name = "branch", .engines = kAnyEngine, .cost = CostClass::kBranch,
     .fields = kFieldRegA | kFieldRegB | kFieldOp0 | kFieldImm | kFieldTarget, .flags = kFlagImmediate,
     .op0 = kCompare,
     .doc = "Jumps to target when reg_a op0 reg_b (imm in place of reg_b with flag immediate); signed compare.",
     .source = "3.1"},
    {.opcode = Opcode::kJump, .name = "jump", .engines = kAnyEngine, .cost = CostClass::kBranch,
     .fields = kFieldTarget,
     .doc = "Jumps to target.",
     .source = "3.1"},
    {.opcode = Opcode::kLoop, .name = "loop", .engines = kAnyEngine, .cost = CostClass::kBranch,
     .fields = kFieldRegA | kFieldTarget,
     .doc = "reg_a -= 1, then jumps to target when reg_a is not 0.",
     .source = "3.1"},
    {.opcode = Opcode::kHalt, .name = "halt", .engines = kAnyEngine, .cost = CostClass::kBranch,
     .doc = "Ends the stream.",
     .source = "trnsim"},
};
// clang-format on
constexpr bool rows_in_order() {
  for (int i = 0; i < kNumOpcodes; ++i) {
    if (kRows[i].opcode != static_cast<Opcode>(i)) return false;
  }
  return true;
}
static_assert(rows_in_order(), "one row per opcode, in the order of the enum");

struct RuleDoc {
  std::string_view name, text;
};
constexpr RuleDoc kRuleDocs[] = {
    {"same_partitions", "all SBUF/PSUM operands cover the same number of partitions"},
    {"same_elements", "all tile operands have the same number of elements per partition"},
    {"same_dtype", "src0 and dst have the same dtype"},
    {"one_psum_input", "src0 and src1 are not both in PSUM"},
    {"operator_class",
     "op0 and op1 are both bitwise or both arithmetic; bitwise operators need integer dtypes of one width"},
    {"scalar_tensor_operators",
     "scalar engine: multiply then add, multiply, or add (trn3 also abs_max and abs_min as op0); gpsimd: "
     "add, subtract, "
     "multiply, power; bitwise only on the vector engine"},
    {"power_on_gpsimd", "the operator power of two tiles exists on gpsimd only"},
    {"stationary_shape", "at most 128 partitions (K) and 128 elements per partition (M)"},
    {"moving_shape",
     "K and M agree with the stationary matrix; N at most 512 (trn3: 4096 in fp32, 8192 in bf16); trn2: dst "
     "within one "
     "PSUM bank of 2 KiB"},
    {"matmul_dtypes",
     "fp32 and fp32r do not mix with narrower inputs nor fp8e4 with fp8e4fn; dst is fp32, from trn3 also "
     "bf16"},
    {"transpose_shape",
     "tensor: src0 in SBUF up to 128x128, dst in PSUM; vector: same shape, each side at most 32 or a "
     "multiple of 32"},
    {"reduce_shape", "1 <= reduce_dims <= dims of src0; dst holds one element per kept index"},
    {"partition_reduce_shape", "dst has one partition and as many elements per partition as src0"},
    {"bn_stats_shape", "dst has 6 elements per partition; src0 at most 512"},
    {"bn_aggr_shape", "dst has 2 elements per partition; src0 a multiple of 3"},
    {"top8_source", "src0 has 8 to 16384 elements per partition"},
    {"top8_result", "dst has 8 elements per partition"},
    {"top8_values", "src1 has 8 elements per partition"},
    {"philox_shape", "src0 is one partition of 4 words"},
    {"accumulate_column", "aux is present exactly with flag accumulate and has one element per partition"},
    {"dma_elements", "dst and src0 have equal element counts"},
    {"dma_cast",
     "hardware descriptor generation does not cast; int64 and fp64 pair with themselves or int32/uint32 and "
     "fp32"},
    {"dma_transpose_shape", "src0 is [P, F] and dst [F, P]"},
    {"indirect",
     "descriptors by software; dst (gather) or src0 (scatter) has one row of the table's row shape per "
     "index"},
    {"one_word", "the operand is a single 32-bit element"},
};
static_assert(sizeof kRuleDocs / sizeof kRuleDocs[0] == static_cast<size_t>(Rule::kCount),
              "describe every rule");

constexpr std::string_view kCostNames[] = {"stationary_load",
                                           "matmul",
                                           "transpose",
                                           "copy",
                                           "tensor_scalar",
                                           "tensor_tensor",
                                           "activation",
                                           "activation_table",
                                           "predicated",
                                           "reciprocal",
                                           "memset",
                                           "pattern_generate",
                                           "reduce",
                                           "partition_reduce",
                                           "scan",
                                           "statistics",
                                           "statistics_merge",
                                           "top8",
                                           "random",
                                           "dma",
                                           "semaphore",
                                           "register",
                                           "register_memory",
                                           "branch"};
static_assert(sizeof kCostNames / sizeof kCostNames[0] == static_cast<size_t>(CostClass::kCount));

}  // namespace

std::optional<Generation> generation_from_target(std::string_view target) {
  if (target == "trn2") return Generation::kTrn2;
  if (target == "trn3") return Generation::kTrn3;
  return std::nullopt;
}

std::string_view name(Generation g) { return g == Generation::kTrn2 ? "trn2" : "trn3"; }

std::string_view name(Slot s) {
  constexpr std::string_view kNames[] = {"dst", "src0", "src1", "aux"};
  return kNames[static_cast<int>(s)];
}

std::string_view name(CostClass c) {
  return c < CostClass::kCount ? kCostNames[static_cast<int>(c)] : std::string_view("invalid");
}

std::string_view rule_name(Rule r) { return kRuleDocs[static_cast<int>(r)].name; }
std::string_view rule_text(Rule r) { return kRuleDocs[static_cast<int>(r)].text; }

const Row& row(Opcode opcode) {
  assert(opcode < Opcode::kCount);
  return kRows[static_cast<int>(opcode)];
}

const Row* row_by_name(std::string_view text) {
  const auto opcode = opcode_from_name(text);
  return opcode ? &row(*opcode) : nullptr;
}

const Row (&all_rows())[kNumOpcodes] { return kRows; }

Role operand_role(const Instruction& i, Slot s) {
  const Role role = row(i.opcode).operand(s).role;
  if (s != Slot::kDst || role != Role::kWrite) return role;
  if (i.opcode == Opcode::kMultiplyMoving && i.has(kFlagAccumulate)) return Role::kReadWrite;
  if (i.opcode == Opcode::kDmaScatter && i.op0 == AluOp::kAdd) return Role::kReadWrite;
  return role;
}

SpaceSet reachable_spaces(Engine e, Role role) {
  switch (e) {
    case Engine::kTensor:
      return role == Role::kRead ? kSb : kPs;
    case Engine::kVector:
    case Engine::kScalar:
      return kTiles;
    case Engine::kGpSimd:
      return kSb;
    default:
      return 0;
  }
}

const Limits& limits(Generation g) {
  static constexpr Limits kTrn2{224 * 1024, 16 * 1024, 512, true};
  static constexpr Limits kTrn3{256 * 1024, 16 * 1024, 4096, false};
  return g == Generation::kTrn2 ? kTrn2 : kTrn3;
}

namespace {

bool same_scalar(const ScalarOperand& a, const ScalarOperand& b) {
  if (a.kind != b.kind) return false;
  if (a.kind == ScalarOperand::Kind::kPointer) return a.pointer == b.pointer;
  // Bits, so that NaN equals itself.
  return a.kind == ScalarOperand::Kind::kNone || std::memcmp(&a.value, &b.value, sizeof a.value) == 0;
}

}  // namespace

bool same_instruction(const Instruction& a, const Instruction& b) {
  if (a.opcode != b.opcode || a.engine != b.engine || a.flags != b.flags || a.location != b.location)
    return false;
  if (a.sync.num_waits != b.sync.num_waits || a.sync.update != b.sync.update) return false;
  for (int w = 0; w < a.sync.num_waits && w < 2; ++w) {
    const SemWait &x = a.sync.waits[w], &y = b.sync.waits[w];
    if (x.semaphore != y.semaphore || x.value_register != y.value_register || x.value != y.value)
      return false;
  }
  if (a.sync.update != SemOp::kNone &&
      (a.sync.update_semaphore != b.sync.update_semaphore || a.sync.update_value != b.sync.update_value)) {
    return false;
  }
  const Row& r = row(a.opcode);
  if (r.uses(kFieldOp0) && a.op0 != b.op0) return false;
  if (r.uses(kFieldOp1) && a.op1 != b.op1) return false;
  if (r.uses(kFieldFunc) && a.func != b.func) return false;
  if (r.uses(kFieldImm0) && !same_scalar(a.imm0, b.imm0)) return false;
  if (r.uses(kFieldImm1) && !same_scalar(a.imm1, b.imm1)) return false;
  if (r.uses(kFieldQueue) && a.queue != b.queue) return false;
  if (r.uses(kFieldDge) && a.dge != b.dge) return false;
  if (r.uses(kFieldReduceDims) && a.reduce_dims != b.reduce_dims) return false;
  if (r.uses(kFieldRegDst) && a.reg_dst != b.reg_dst) return false;
  if (r.uses(kFieldRegA) && a.reg_a != b.reg_a) return false;
  if (r.uses(kFieldRegB) && a.reg_b != b.reg_b) return false;
  if (r.uses(kFieldTarget) && a.target != b.target) return false;
  if (r.uses(kFieldImm) && a.imm != b.imm) return false;
  if (r.uses(kFieldPattern) &&
      (a.pattern.base != b.pattern.base || a.pattern.partition_step != b.pattern.partition_step ||
       a.pattern.step != b.pattern.step)) {
    return false;
  }
  for (int s = 0; s < kNumSlots; ++s) {
    const auto slot = static_cast<Slot>(s);
    if (r.operand(slot).role != Role::kNone && operand(a, slot) != operand(b, slot)) return false;
  }
  return true;
}

}  // namespace trnsim::isa
