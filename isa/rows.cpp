// The instruction table, one row per opcode. Everything else about an instruction follows from its row, one
// function in sim/exec and a timing law in sim/cost.
#include <cassert>

#include "isa/table.h"

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
constexpr AluSet kUnary =
    bit(AluOp::kInvert) | bit(AluOp::kAbs) | bit(AluOp::kRsqrt) | bit(AluOp::kReciprocal);
constexpr AluSet kUnaryFirst = kUnary | bit(AluOp::kSquare) | bit(AluOp::kRelu);
constexpr AluSet kMaxOp = bit(AluOp::kMax), kAddOp = bit(AluOp::kAdd);

constexpr uint8_t kImm = kScalarImmediate, kPtr = kScalarPointer, kOpt = kScalarNone;

constexpr DtypeSet kAll = kDtypesCompute;
constexpr DtypeSet kMoves = kDtypesCompute | kDtypes64 | kDtypesOpaque;
constexpr DtypeSet kFloats = kDtypesMatmul;
constexpr DtypeSet kPredicates = bit(Dtype::kU8) | bit(Dtype::kU16) | bit(Dtype::kU32) | bit(Dtype::kBool);
constexpr DtypeSet kIndices = bit(Dtype::kI32) | bit(Dtype::kU32);
constexpr DtypeSet kShortInts = bit(Dtype::kI16) | bit(Dtype::kI8) | bit(Dtype::kU16) | bit(Dtype::kU8);
constexpr DtypeSet kScale = bit(Dtype::kF8E8M0) | bit(Dtype::kU8);
constexpr DtypeSet kMxResult = bit(Dtype::kF32) | bit(Dtype::kBF16);
constexpr DtypeSet kNarrow = bit(Dtype::kBF16) | bit(Dtype::kF16) | kDtypesFp8;
constexpr DtypeSet kWords = bit(Dtype::kI32) | bit(Dtype::kU32) | bit(Dtype::kF32);
constexpr DtypeSet kRegisterWords = kWords | bit(Dtype::kI64);
constexpr DtypeSet k2Or4Bytes = bit(Dtype::kF32) | bit(Dtype::kF32R) | bit(Dtype::kBF16) | bit(Dtype::kF16) |
                                bit(Dtype::kI32) | bit(Dtype::kU32) | bit(Dtype::kI16) | bit(Dtype::kU16);

constexpr OperandRule read(SpaceSet spaces, DtypeSet dtypes, std::string_view shape, uint8_t max_dims = 4,
                           uint32_t max_free = 0) {
  return {Role::kRead, true, spaces, dtypes, 0, false, max_dims, max_free, shape};
}
constexpr OperandRule write(SpaceSet spaces, DtypeSet dtypes, std::string_view shape, uint8_t max_dims = 4,
                            uint32_t max_free = 0) {
  return {Role::kWrite, true, spaces, dtypes, 0, false, max_dims, max_free, shape};
}
constexpr OperandRule update(SpaceSet spaces, DtypeSet dtypes, std::string_view shape) {
  return {Role::kReadWrite, true, spaces, dtypes, 0, false, 4, 0, shape};
}
constexpr OperandRule indirect(OperandRule r) {
  r.indirect = true;
  return r;
}
constexpr OperandRule from_trn3(DtypeSet dtypes, OperandRule r) {
  r.dtypes_trn3 = dtypes;
  return r;
}
constexpr OperandRule optional(OperandRule r) {
  r.required = false;
  return r;
}
constexpr OperandRule kAbsent{};

template <typename... R>
constexpr RuleSet rules(R... r) {
  return (RuleSet{0} | ... | (RuleSet{1} << static_cast<unsigned>(r)));
}

// clang-format off
constexpr Row kRows[kNumOpcodes] = {
    {.opcode = Opcode::kLoadStationary, .name = "load_stationary", .engines = T, .cost = CostClass::kStationaryLoad,
     .operands = {kAbsent, indirect(read(kSb, kDtypesMatmul, "[K<=128, M<=128], double_row [K, 2, M]", 3, 256))},
     .fields = kFieldTile, .flags = kFlagDoubleRow | kFlagOneZero,
     .rules = rules(Rule::kStationaryShape, Rule::kPeTile, Rule::kDoubleRow),
     .doc = "Loads src0 as the stationary matrix of the tensor engine.",
     .detail = "Row k of the systolic array is partition k of src0; column m becomes output partition m of the "
               "multiplications that follow. With flag double_row, src0 is [K, 2, M]: two rows per partition. A tile (row, "
               "column, rows, columns) holds a matrix of its own beside those of other tiles; a load that covers part of "
               "one makes it unusable.",
     .source = "3.3, 5.1 nc_matmul", .timing = Timing::kMeasured},
    {.opcode = Opcode::kMultiplyMoving, .name = "multiply_moving", .engines = T, .cost = CostClass::kMatmul,
     .operands = {from_trn3(bit(Dtype::kBF16), indirect(write(kPs, bit(Dtype::kF32), "[M, N]"))),
                  indirect(read(kSb, kDtypesMatmul, "[K, N<=512], double_row [K, 2, N]"))},
     .fields = kFieldTile, .flags = kFlagAccumulate | kFlagDoubleRow | kFlagOneZero,
     .rules = rules(Rule::kMovingShape, Rule::kMatmulDtypes, Rule::kPeTile, Rule::kDoubleRow),
     .doc = "dst = stationary^T . src0 with FP32 accumulation; flag accumulate adds to dst.",
     .detail = "FP32 inputs take four passes, fp32r inputs are rounded to TF32 and take one. On trn2 dst is fp32 and "
               "lies in one PSUM bank (2 KiB per partition); trn3 may span banks and may write bf16 (each addition is "
               "then FP32, rounded on the way back). double_row contracts pairs of FP8 rows, up to K = 256, in the time "
               "of one. one_zero promises that every element of an fp32 operand is 0 or 1.",
     .source = "2.5, 3.3, 5.1 nc_matmul", .timing = Timing::kMeasured},
    {.opcode = Opcode::kLoadStationaryMx, .name = "load_stationary_mx", .engines = T, .since = Generation::kTrn3,
     .cost = CostClass::kStationaryLoad,
     .operands = {kAbsent, indirect(read(kSb, kDtypesPacked, "[P, M<=128] of 4 packed values", 3, 128)),
                  read(kSb, kScale, "[scale rows, M]", 3, 128)},
     .fields = kFieldTile,
     .rules = rules(Rule::kStationaryShape, Rule::kPeTile, Rule::kMxScales),
     .doc = "Loads src0 with the block scales src1 as the stationary matrix of microscaling products.",
     .detail = "Every element of src0 packs four values of the contraction; each group of 8 partitions x 4 values has one "
               "scale 2^(src1 - 127). The scale of group g lies in partition 32*(g/4) + g%4 of src1.",
     .source = "3.3, 5.1 nc_matmul_mx", .timing = Timing::kDocumented},
    {.opcode = Opcode::kMultiplyMovingMx, .name = "multiply_moving_mx", .engines = T, .since = Generation::kTrn3,
     .cost = CostClass::kMatmul,
     .operands = {write(kPs, kMxResult, "[M, N]"),
                  indirect(read(kSb, kDtypesPacked, "[P, N] of 4 packed values")), read(kSb, kScale, "[scale rows, N]")},
     .fields = kFieldTile, .flags = kFlagAccumulate,
     .rules = rules(Rule::kMovingShape, Rule::kPeTile, Rule::kMxScales),
     .doc = "dst = stationary^T . src0 for microscaling operands, contracting partitions and the four packed values.",
     .detail = "Scales of both sides apply per group of 8 partitions x 4 values; products accumulate in FP32. K up to "
               "512 values takes the time of a bf16 product over 128.",
     .source = "3.3, 5.1 nc_matmul_mx", .timing = Timing::kDocumented},
    {.opcode = Opcode::kLoadStationarySparse, .name = "load_stationary_sparse", .engines = T,
     .cost = CostClass::kStationaryLoad,
     .operands = {kAbsent, read(kSb, kNarrow, "[K<=128, M<=128] of the values that are kept", 3, 128),
                  read(kSb, bit(Dtype::kU16), "[K, M/4]: 4 positions of 4 bits in each element", 3, 32)},
     .fields = kFieldCount,
     .rules = rules(Rule::kStationaryShape, Rule::kSparseTags),
     .doc = "Loads the non-zero values src0 of a sparse matrix and their positions src1 as the stationary matrix.",
     .detail = "count rows of the sparse matrix stand for each row of src0: 4 is sparsity 4:16 (and 2:8, 1:4), 3 is 4:12, "
               "2 is 4:8 (and 2:4, 1:2). Partitions 4g to 4g + 3 of a column hold four values out of a block of 4 x count "
               "rows; a position is the row in that block, column m has bits 4(m % 4) of element m/4. Which row a position "
               "means is not public: here position 4c + j is row c of the moving operand in partition 4g + j. A position "
               "beyond the block is illegal; values with equal positions add.",
     .source = "1.2, 1.3, 3.3 sparsity", .timing = Timing::kEstimated},
    {.opcode = Opcode::kMultiplyMovingSparse, .name = "multiply_moving_sparse", .engines = T, .cost = CostClass::kMatmul,
     .operands = {from_trn3(bit(Dtype::kBF16), write(kPs, bit(Dtype::kF32), "[M, N]")),
                  read(kSb, kNarrow, "[K, count, N<=512]")},
     .fields = kFieldCount, .flags = kFlagAccumulate,
     .rules = rules(Rule::kMovingShape, Rule::kMatmulDtypes, Rule::kSparseTags),
     .doc = "dst = stationary^T . src0 for a sparse stationary matrix: count x K rows in the time of K.",
     .detail = "src0 is dense: partition p holds count rows of the contraction. Sparse products take the whole array, no "
               "fp32 and no pairs of FP8 rows.",
     .source = "1.2, 1.3, 3.3 sparsity", .timing = Timing::kEstimated},
    {.opcode = Opcode::kTranspose, .name = "transpose", .engines = T | V, .cost = CostClass::kTranspose,
     .operands = {write(kTiles, kAll, "tensor [F, P], vector [P, F]"),
                  read(kTiles, kAll, "tensor [P<=128, F<=128], vector [P, F] of 32x32 blocks")},
     .rules = rules(Rule::kSameDtype, Rule::kTransposeShape),
     .doc = "Bit-exact transpose: tensor engine whole tile SBUF to PSUM, vector engine every 32x32 block in place.",
     .detail = "On the tensor engine the stationary matrix is destroyed, and one-byte elements are padded with a zero byte "
               "to two: dst then needs an innermost step of 2 and an even offset. On the vector engine P and F are multiples of 32, or at most 32.",
     .source = "2.5, 3.3, 3.4, 5.1 nc_transpose", .timing = Timing::kMeasured},
    {.opcode = Opcode::kCopy, .name = "copy", .engines = V | S | G, .cost = CostClass::kCopy,
     .operands = {indirect(write(kTiles, kAll | kDtypesOpaque, "[P, ...]")),
                  indirect(read(kTiles, kAll | kDtypesOpaque, "[P, ...]"))},
     .rules = rules(Rule::kSamePartitions, Rule::kSameElements, Rule::kOpaqueMoves),
     .doc = "dst = cast(src0); bit exact when the dtypes agree, else through FP32.",
     .source = "3.4, 3.5, 5.3 tensor_copy", .timing = Timing::kMeasured},
    {.opcode = Opcode::kTensorTensor, .name = "tensor_tensor", .engines = V | G, .cost = CostClass::kTensorTensor,
     .operands = {indirect(write(kTiles, kAll, "[P, ...]")), indirect(read(kTiles, kAll, "[P, ...]")),
                  read(kTiles, kAll, "[P, ...]")},
     .fields = kFieldOp0, .op0 = kArithmetic | kBitwise,
     .rules = rules(Rule::kSamePartitions, Rule::kSameElements, Rule::kOnePsumInput, Rule::kOperatorClass,
                    Rule::kPowerOnGpSimd),
     .doc = "dst = src0 op0 src1, element by element.",
     .detail = "Arithmetic is FP32 with casts on both sides. On GpSimd, add, subtract, multiply, max, min and "
               "comparisons of 32-bit integers are exact. Comparisons give 1 or 0.",
     .source = "3.4, 5.3 tensor_tensor", .timing = Timing::kMeasured},
    {.opcode = Opcode::kTensorScalar, .name = "tensor_scalar", .engines = V | S | G, .cost = CostClass::kTensorScalar,
     .operands = {indirect(write(kTiles, kAll, "[P, ...]")), indirect(read(kTiles, kAll, "[P, ...]"))},
     .fields = kFieldOp0 | kFieldOp1 | kFieldImm0 | kFieldImm1, .flags = kFlagReverse0 | kFlagReverse1,
     .op0 = kArithmetic | kBitwise | kBypassOp | kUnaryFirst,
     .op1 = kArithmetic | kBitwise | kBypassOp | kNoneOp | kUnary,
     .imm0 = kImm | kPtr | kOpt, .imm1 = kImm | kPtr | kOpt,
     .rules = rules(Rule::kSamePartitions, Rule::kSameElements, Rule::kOperatorClass, Rule::kScalarTensorOperators),
     .doc = "dst = (src0 op0 imm0) op1 imm1; the reverse flags swap the operands of an operator.",
     .detail = "The operators of one operand (invert, abs, rsqrt, reciprocal, square, relu) take no scalar.",
     .source = "3.4, 5.3 tensor_scalar, 6", .timing = Timing::kMeasured},
    {.opcode = Opcode::kScalarTensorTensor, .name = "scalar_tensor_tensor", .engines = V,
     .cost = CostClass::kTensorTensor,
     .operands = {write(kTiles, kAll, "[P, ...]"), read(kTiles, kAll, "[P, ...]"), read(kTiles, kAll, "[P, ...]")},
     .fields = kFieldOp0 | kFieldOp1 | kFieldImm0, .flags = kFlagReverse0 | kFlagReverse1,
     .op0 = kArithmetic | kBypassOp, .op1 = kArithmetic | kBypassOp, .imm0 = kImm | kPtr | kOpt,
     .rules = rules(Rule::kSamePartitions, Rule::kSameElements, Rule::kOnePsumInput),
     .doc = "dst = (src0 op0 imm0) op1 src1; the reverse flags swap the operands of an operator.",
     .source = "5.3 scalar_tensor_tensor", .timing = Timing::kDocumented},
    {.opcode = Opcode::kActivation, .name = "activation", .engines = S, .engines_trn3 = G,
     .cost = CostClass::kActivation,
     .operands = {indirect(write(kTiles, kAll, "[P, ...]")), indirect(read(kTiles, kAll, "[P, ...]")), kAbsent,
                  optional(write(kTiles, kAll, "[P, 1]", 4, 1))},
     .fields = kFieldFunc | kFieldImm0 | kFieldImm1 | kFieldReduce | kFieldParam,
     .reduce_op = kAddOp, .imm0 = kImm | kPtr | kOpt, .imm1 = kImm | kPtr | kOpt,
     .rules = rules(Rule::kSamePartitions, Rule::kSameElements, Rule::kAccumulator, Rule::kActivationFunction),
     .doc = "dst = func(src0 * imm0 + imm1); the accumulator may sum the results over the free axis.",
     .detail = "imm0 (scale) is a constant or an fp32 column, imm1 (bias) a constant or a float column. Functions outside "
               "their valid range give undefined results on hardware. A function of another table set costs a table load. "
               "nki.isa's activation_reduce is reduce_op=add reduce=reset_reduce with aux.",
     .source = "3.5, 5.2 activation, activation_reduce, 6", .timing = Timing::kMeasured},
    {.opcode = Opcode::kActivate2, .name = "activate2", .engines = S | G, .since = Generation::kTrn3,
     .cost = CostClass::kActivation,
     .operands = {write(kTiles, kAll, "[P, ...]"), read(kTiles, kAll, "[P, ...]"), kAbsent,
                  optional(write(kTiles, kAll, "[P, 1]", 4, 1))},
     .fields = kFieldFunc | kFieldOp0 | kFieldOp1 | kFieldImm0 | kFieldImm1 | kFieldReduce | kFieldParam,
     .flags = kFlagReverse0 | kFlagReverse1,
     .op0 = bit(AluOp::kMultiply) | kAddOp | bit(AluOp::kSubtract) | kBypassOp,
     .op1 = kAddOp | bit(AluOp::kSubtract) | kBypassOp,
     .reduce_op = kAddOp | kMaxOp | bit(AluOp::kMin) | bit(AluOp::kAbsMax) | bit(AluOp::kAbsMin),
     .imm0 = kImm | kPtr | kOpt, .imm1 = kImm | kPtr | kOpt,
     .rules = rules(Rule::kSamePartitions, Rule::kSameElements, Rule::kAccumulator, Rule::kActivationFunction,
                    Rule::kActivate2Operators),
     .doc = "dst = func((src0 op0 imm0) op1 imm1); the accumulator may reduce the results over the free axis.",
     .source = "5.2 activate2", .timing = Timing::kEstimated},
    {.opcode = Opcode::kActTableLoad, .name = "act_table_load", .engines = S, .cost = CostClass::kActivationTable,
     .fields = kFieldFunc,
     .doc = "Makes the table set of func resident in the scalar engine.",
     .source = "3.5", .timing = Timing::kMeasured},
    {.opcode = Opcode::kCopyPredicated, .name = "copy_predicated", .engines = V, .cost = CostClass::kPredicated,
     .operands = {indirect(update(kTiles, kAll, "[P, ...]")), optional(read(kTiles, kAll, "[P, ...]")),
                  indirect(read(kTiles, kPredicates, "[P, ...]"))},
     .fields = kFieldImm0, .flags = kFlagNegate, .imm0 = kImm | kPtr | kOpt,
     .rules = rules(Rule::kSamePartitions, Rule::kSameElements, Rule::kSameDtype, Rule::kOnePsumInput,
                    Rule::kSelectSource),
     .doc = "Where src1 is not 0: dst = src0 or imm0; elsewhere dst keeps its value. Flag negate: where src1 is 0.",
     .source = "3.4, 5.3 tensor_copy_predicated", .timing = Timing::kMeasured},
    {.opcode = Opcode::kReciprocal, .name = "reciprocal", .engines = V, .cost = CostClass::kReciprocal,
     .operands = {write(kTiles, kAll, "[P, ...]"), read(kTiles, kAll, "[P, ...]")},
     .rules = rules(Rule::kSamePartitions, Rule::kSameElements),
     .doc = "dst = 1 / src0 in FP32.",
     .source = "3.4, 5.3 reciprocal", .timing = Timing::kMeasured},
    {.opcode = Opcode::kMemset, .name = "memset", .engines = V | G, .cost = CostClass::kMemset,
     .operands = {write(kTiles, kAll | kDtypesOpaque, "[P, ...]")},
     .fields = kFieldImm0, .imm0 = kImm,
     .rules = rules(Rule::kOpaqueMoves),
     .doc = "dst = imm0 in every element.",
     .source = "3.4, 5.3 memset", .timing = Timing::kMeasured},
    {.opcode = Opcode::kExponential, .name = "exponential", .engines = V, .since = Generation::kTrn3,
     .cost = CostClass::kExponential,
     .operands = {indirect(write(kTiles, kAll, "[P, ...]")), indirect(read(kTiles, kAll, "[P, ...]")), kAbsent,
                  optional(write(kTiles, kAll, "[P, 1]", 4, 1))},
     .fields = kFieldImm0 | kFieldImm1 | kFieldReduce, .reduce_op = kAddOp,
     .imm0 = kImm | kPtr | kOpt, .imm1 = kImm | kPtr | kOpt,
     .rules = rules(Rule::kSamePartitions, Rule::kSameElements, Rule::kAccumulator),
     .doc = "dst = exp(src0 - imm0); the accumulator may sum the results over the free axis.",
     .source = "2.4, 5.3 exponential", .timing = Timing::kDocumented},
    {.opcode = Opcode::kQuantizeMx, .name = "quantize_mx", .engines = V, .since = Generation::kTrn3,
     .cost = CostClass::kQuantize,
     .operands = {write(kSb, bit(Dtype::kF8E5M2x4) | bit(Dtype::kF8E4M3FNx4), "[P, F/4]"),
                  read(kSb, bit(Dtype::kBF16) | bit(Dtype::kF16), "[P%32=0, F%4=0]"), kAbsent,
                  write(kSb, kScale, "[scale rows, F/4]")},
     .rules = rules(Rule::kQuantizeShape),
     .doc = "dst = src0 packed by four and divided by the scale of its block; aux = the scales.",
     .detail = "A block is 8 partitions x 4 elements; scale = 2^(floor(log2(largest magnitude)) - (E - 1)) with E the "
               "exponent of the largest value of dst, 2^-127 for a block of zeros. The scale of block g lies in partition "
               "32*(g/4) + g%4 of aux.",
     .source = "2.4, 5.3 quantize_mx", .timing = Timing::kDocumented},
    {.opcode = Opcode::kStreamShuffle, .name = "stream_shuffle", .engines = V, .cost = CostClass::kShuffle,
     .operands = {write(kTiles, kAll, "[P%32=0, ...]"), read(kTiles, kAll, "[P%32=0, ...]")},
     .fields = kFieldMask,
     .rules = rules(Rule::kSamePartitions, Rule::kSameElements, Rule::kSameDtype, Rule::kShuffleShape),
     .doc = "Partition i of each quadrant of dst = partition mask[i] of the same quadrant of src0; 255 keeps dst.",
     .source = "3.4, 5.3 nc_stream_shuffle", .timing = Timing::kMeasured},
    {.opcode = Opcode::kIota, .name = "iota", .engines = G, .cost = CostClass::kPatternGenerate,
     .operands = {write(kSb, kAll, "[P, ...]")},
     .fields = kFieldPattern,
     .doc = "dst = base + partition * partition_step + sum of index_i * step_i, computed in int32, cast to dst.",
     .detail = "partition counts from 0 at the first partition of dst; index_i runs over dim i of dst.",
     .source = "5.4 iota", .timing = Timing::kDocumented},
    {.opcode = Opcode::kAffineSelect, .name = "affine_select", .engines = G, .cost = CostClass::kPatternGenerate,
     .operands = {write(kSb, kAll, "[P, ...]"), read(kSb, kAll, "[P, ...]")},
     .fields = kFieldOp0 | kFieldImm0 | kFieldPattern, .op0 = kCompare, .imm0 = kImm,
     .rules = rules(Rule::kSamePartitions, Rule::kSameElements),
     .doc = "dst = (affine value of the pattern) op0 0 ? src0 : imm0.",
     .source = "3.7, 5.4 affine_select", .timing = Timing::kMeasured},
    {.opcode = Opcode::kRangeSelect, .name = "range_select", .engines = V, .cost = CostClass::kSelectReduce,
     .operands = {write(kTiles, kFloats, "[P, ...]"), read(kTiles, kFloats, "[P, ...]"), kAbsent,
                  optional(write(kTiles, kAll, "[P, 1]", 4, 1))},
     .fields = kFieldOp0 | kFieldOp1 | kFieldImm0 | kFieldImm1 | kFieldImm | kFieldReduce,
     .op0 = kCompare & ~bit(AluOp::kNotEqual), .op1 = kCompare & ~bit(AluOp::kNotEqual), .reduce_op = kMaxOp,
     .imm0 = kPtr, .imm1 = kPtr,
     .rules = rules(Rule::kSamePartitions, Rule::kSameElements, Rule::kAccumulator, Rule::kRangeBounds),
     .doc = "dst = ((imm + i) op0 imm0) and ((imm + i) op1 imm1) ? src0 : -3.4028235e38; may keep the largest result.",
     .detail = "i counts the free elements of a partition; the comparisons are FP32. 16-bit results make the filler "
               "-infinity.",
     .source = "5.3 range_select", .timing = Timing::kDocumented},
    {.opcode = Opcode::kSelectReduce, .name = "select_reduce", .engines = V, .cost = CostClass::kSelectReduce,
     .operands = {write(kTiles, kAll, "[P, ...]"),
                  read(kTiles, kAll & ~(bit(Dtype::kF32R) | bit(Dtype::kI32) | bit(Dtype::kU32)), "[P, ...]"),
                  read(kTiles, kShortInts | bit(Dtype::kBool), "[P, ...]"),
                  optional(write(kTiles, kFloats, "[P, 1]", 4, 1))},
     .fields = kFieldImm0 | kFieldReduce, .flags = kFlagNegate, .reduce_op = kMaxOp, .imm0 = kImm | kPtr,
     .rules = rules(Rule::kSamePartitions, Rule::kSameElements, Rule::kOnePsumInput, Rule::kAccumulator),
     .doc = "dst = src1 != 0 ? src0 : imm0 (flag negate: where src1 is 0); the accumulator may keep the largest result.",
     .source = "5.3 select_reduce", .timing = Timing::kEstimated},
    {.opcode = Opcode::kTensorReduce, .name = "tensor_reduce", .engines = V, .cost = CostClass::kReduce,
     .operands = {indirect(write(kTiles, kAll, "[P, kept...]")),
                  indirect(read(kTiles, kAll, "[P, kept..., reduced...]"))},
     .fields = kFieldOp0 | kFieldReduceDims, .flags = kFlagNegate, .op0 = kReduction | bit(AluOp::kAbsMax) | bit(AluOp::kAbsMin),
     .rules = rules(Rule::kSamePartitions, Rule::kOperatorClass, Rule::kReduceShape),
     .doc = "dst = reduction by op0 of the last reduce_dims dims of src0; flag negate changes the sign of the result.",
     .source = "3.4, 5.3 tensor_reduce, 6", .timing = Timing::kMeasured},
    {.opcode = Opcode::kPartitionReduce, .name = "partition_reduce", .engines = G,
     .cost = CostClass::kPartitionReduce,
     .operands = {write(kSb, kAll, "[1, N]"), read(kSb, kAll, "[P, N]")},
     .fields = kFieldOp0,
     .op0 = bit(AluOp::kAdd) | bit(AluOp::kAverage) | bit(AluOp::kMax) | bit(AluOp::kBitAnd) | bit(AluOp::kBitOr) |
            bit(AluOp::kLogicalAnd) | bit(AluOp::kLogicalOr),
     .rules = rules(Rule::kOperatorClass, Rule::kPartitionReduceShape),
     .doc = "dst [1, N] = reduction by op0 over the partitions of src0 [P, N].",
     .source = "3.7, 5.3 tensor_partition_reduce", .timing = Timing::kEstimated},
    {.opcode = Opcode::kTensorTensorScan, .name = "tensor_tensor_scan", .engines = V, .cost = CostClass::kScan,
     .operands = {write(kTiles, kAll, "[P, ...]"), read(kTiles, kAll, "[P, ...]"), read(kTiles, kAll, "[P, ...]")},
     .fields = kFieldOp0 | kFieldOp1 | kFieldImm0, .flags = kFlagReverse0 | kFlagReverse1,
     .op0 = kArithmetic, .op1 = kArithmetic, .imm0 = kImm | kPtr,
     .rules = rules(Rule::kSamePartitions, Rule::kSameElements, Rule::kOnePsumInput),
     .doc = "r_i = (src0_i op0 r_(i-1)) op1 src1_i with r_(-1) = imm0, along the flattened free axis; dst = r.",
     .detail = "The reverse flags swap the operands of an operator.",
     .source = "3.4, 5.3 tensor_tensor_scan", .timing = Timing::kMeasured},
    {.opcode = Opcode::kTensorScalarReduce, .name = "tensor_scalar_reduce", .engines = V,
     .cost = CostClass::kScalarReduce,
     .operands = {indirect(write(kTiles, kAll, "[P, ...]")), indirect(read(kTiles, kAll, "[P, ...]")), kAbsent,
                  optional(write(kTiles, kAll, "[P, 1]", 4, 1))},
     .fields = kFieldOp0 | kFieldImm0 | kFieldImm1 | kFieldReduce, .flags = kFlagNegate, .op0 = kArithmetic | kBypassOp,
     .reduce_op = kAddOp | bit(AluOp::kMultiply) | kMaxOp | bit(AluOp::kMin),
     .imm0 = kImm | kPtr | kOpt, .imm1 = kImm | kPtr | kOpt,
     .rules = rules(Rule::kSamePartitions, Rule::kSameElements, Rule::kAccumulator),
     .doc = "dst = src0 op0 imm0; the accumulator reduces the results over the free axis (flag negate: aux = -accumulator).",
     .source = "5.3 tensor_scalar_reduce", .timing = Timing::kDocumented},
    {.opcode = Opcode::kTensorScalarCumulative, .name = "tensor_scalar_cumulative", .engines = V,
     .cost = CostClass::kScan,
     .operands = {indirect(write(kTiles, kAll & ~kIndices, "[P, ...]")),
                  indirect(read(kTiles, kAll & ~kIndices, "[P, ...]"))},
     .fields = kFieldOp0 | kFieldOp1 | kFieldImm0 | kFieldImm1 | kFieldReduce,
     .op0 = kArithmetic | kBypassOp, .op1 = kBasic, .reduce_op = kBasic,
     .imm0 = kImm | kPtr | kOpt, .imm1 = kImm | kPtr | kOpt,
     .rules = rules(Rule::kSamePartitions, Rule::kSameElements, Rule::kAccumulator, Rule::kCumulativeOperators),
     .doc = "r = (src0_i op0 imm0) op1 r along the flattened free axis, r being the accumulator; dst_i = r.",
     .detail = "reduce_op equals op1. reset_reduce starts from its identity (0 for subtract), load_reduce from imm1, reduce "
               "goes on.",
     .source = "5.3 tensor_scalar_cumulative", .timing = Timing::kEstimated},
    {.opcode = Opcode::kBnStats, .name = "bn_stats", .engines = V, .cost = CostClass::kStatistics,
     .operands = {write(kTiles, kAll, "[P, 6]", 4, 6), read(kTiles, kAll, "[P, N<=512]", 4, 512)},
     .rules = rules(Rule::kSamePartitions, Rule::kBnStatsShape),
     .doc = "dst = count, mean, count*variance of the even elements of src0, then of the odd ones.",
     .source = "5.3 bn_stats", .timing = Timing::kDocumented},
    {.opcode = Opcode::kBnAggr, .name = "bn_aggr", .engines = V, .cost = CostClass::kStatisticsMerge,
     .operands = {write(kTiles, kAll, "[P, 2]", 4, 2), read(kTiles, kAll, "[P, 3*groups]")},
     .rules = rules(Rule::kSamePartitions, Rule::kBnAggrShape),
     .doc = "dst = mean and variance from groups (count, mean, count*variance) in src0.",
     .source = "5.3 bn_aggr", .timing = Timing::kDocumented},
    {.opcode = Opcode::kMax8, .name = "max8", .engines = V, .cost = CostClass::kTop8,
     .operands = {write(kTiles, kAll, "[P, 8]", 4, 8), read(kTiles, kAll, "[P, 8..16384]", 3, 16384)},
     .rules = rules(Rule::kSamePartitions, Rule::kTop8Source, Rule::kTop8Result),
     .doc = "dst = the 8 largest elements of each partition of src0, descending.",
     .source = "3.4, 5.3 max8", .timing = Timing::kDocumented},
    {.opcode = Opcode::kMaxIndex8, .name = "max_index8", .engines = V, .cost = CostClass::kTop8,
     .operands = {write(kTiles, bit(Dtype::kU32) | bit(Dtype::kU16), "[P, 8]", 4, 8),
                  read(kTiles, kAll, "[P, 8..16384]", 4, 16384), read(kTiles, kAll, "[P, 8]", 4, 8)},
     .rules = rules(Rule::kSamePartitions, Rule::kTop8Source, Rule::kTop8Result, Rule::kTop8Values),
     .doc = "dst = index in src0 of the first occurrence of each src1 value; duplicates advance, missing = all ones.",
     .source = "3.4, 5.3 nc_find_index8", .timing = Timing::kDocumented},
    {.opcode = Opcode::kMatchReplace8, .name = "match_replace8", .engines = V, .cost = CostClass::kTop8,
     .operands = {write(kTiles, kAll, "[P, N]"), read(kTiles, kAll, "[P, N<=16384]", 4, 16384),
                  read(kTiles, kAll, "[P, 8]", 4, 8),
                  optional(write(kTiles, bit(Dtype::kU32) | bit(Dtype::kU16), "[P, 8]", 4, 8))},
     .fields = kFieldImm0, .imm0 = kImm,
     .rules = rules(Rule::kSamePartitions, Rule::kTop8Source, Rule::kTop8Values),
     .doc = "dst = src0 with the first match of each of the 8 src1 values replaced by imm0; aux = where they were.",
     .detail = "Values are processed from slot 7 down: of equal values the last slot gets the first match. Missing = all ones "
               "in aux.",
     .source = "3.4, 5.3 nc_match_replace8", .timing = Timing::kDocumented},
    {.opcode = Opcode::kLocalGather, .name = "local_gather", .engines = G, .cost = CostClass::kLocalGather,
     .operands = {write(kSb, kAll, "[P, count * indices]"), read(kSb, kAll, "[P, ...]"),
                  read(kSb, bit(Dtype::kU16), "[P, n]")},
     .fields = kFieldCount | kFieldImm,
     .rules = rules(Rule::kSamePartitions, Rule::kSameDtype, Rule::kLocalGatherShape),
     .doc = "Each group of 16 partitions gathers count elements from every index on; all its partitions use the same indices.",
     .detail = "The indices of a group are its part of src1, partition first; imm > 0 takes the first imm of them. An index "
               "outside src0 is undefined on hardware and a run-time error here.",
     .source = "5.4 local_gather", .timing = Timing::kDocumented},
    {.opcode = Opcode::kNGather, .name = "n_gather", .engines = G, .cost = CostClass::kListScan,
     .operands = {write(kSb, kAll, "[P, n<=512]", 4, 512), read(kSb, kAll, "[P, ...]"),
                  read(kSb, bit(Dtype::kU32), "[P, n]", 4, 512)},
     .rules = rules(Rule::kSamePartitions, Rule::kSameDtype, Rule::kNGatherShape),
     .doc = "dst[p, i] = src0[p, src1[p, i]] along the flattened free axis.",
     .detail = "nki.isa's nc_n_gather emits one for every 512 indices. An index outside src0 is a run-time error.",
     .source = "5.4 nc_n_gather", .timing = Timing::kEstimated},
    {.opcode = Opcode::kSequenceBounds, .name = "sequence_bounds", .engines = G, .cost = CostClass::kListScan,
     .operands = {write(kSb, bit(Dtype::kF32) | bit(Dtype::kI32), "[1, 2, n]"),
                  read(kSb, bit(Dtype::kF32) | bit(Dtype::kI32), "[1, n]")},
     .rules = rules(Rule::kSequenceShape),
     .doc = "For every element of src0 (a segment id), the first index of its run and one past the last; id 0 gives (n, -1).",
     .source = "5.4 sequence_bounds", .timing = Timing::kEstimated},
    {.opcode = Opcode::kNonzeroWithCount, .name = "nonzero_with_count", .engines = G, .cost = CostClass::kListScan,
     .operands = {update(kSb, bit(Dtype::kI32), "[P, n + 1]"),
                  read(kSb, bit(Dtype::kF32) | bit(Dtype::kI32), "[P, n]")},
     .fields = kFieldImm0 | kFieldImm, .imm0 = kImm,
     .rules = rules(Rule::kSamePartitions, Rule::kNonzeroShape),
     .doc = "dst = imm + the indices of the elements of src0 that are not 0, then imm0 as padding, then their number.",
     .detail = "Only partitions 0, 16, ..., 112 take part; the others of dst keep their values.",
     .source = "5.4 nonzero_with_count", .timing = Timing::kEstimated},
    {.opcode = Opcode::kTopk, .name = "topk", .engines = G, .cost = CostClass::kTopk,
     .operands = {write(kSb, bit(Dtype::kBF16), "[P, K/16]"), read(kSb, bit(Dtype::kBF16), "[P, n/16]"), kAbsent,
                  write(kSb, bit(Dtype::kU32), "[P, K/16]")},
     .fields = kFieldCount | kFieldImm,
     .rules = rules(Rule::kSamePartitions, Rule::kTopkShape),
     .doc = "dst = the count largest of the imm values that each group of 16 partitions holds, ascending; aux = their indices.",
     .detail = "Value i lies in partition i % 16 of its group, column i / 16, in src0, dst and aux alike. Of equal values the "
               "one with the smaller index counts as the larger.",
     .source = "5.4 topk", .timing = Timing::kDocumented},
    {.opcode = Opcode::kCustom, .name = "custom", .engines = G, .cost = CostClass::kCustom,
     .operands = {update(kSb, kAll, "any"), optional(read(kSb, kAll, "any")), optional(read(kSb, kAll, "any")),
                  optional(update(kSb, kAll, "any"))},
     .fields = kFieldImm0 | kFieldImm1 | kFieldImm | kFieldCount, .imm0 = kImm | kPtr | kOpt, .imm1 = kImm | kPtr | kOpt,
     .doc = "Runs custom operation number imm, a function that the host program has registered with the simulator.",
     .detail = "The escape hatch for programs of the GpSimd processors: the simulator does not run their machine code. "
               "Operation 0 copies src0 to dst element by element.",
     .source = "3.7", .timing = Timing::kEstimated},
    {.opcode = Opcode::kPhilox, .name = "philox", .engines = G, .cost = CostClass::kRandom,
     .operands = {write(kSb, bit(Dtype::kU32), "[P, ...]"), read(kSb, bit(Dtype::kU32), "[1, 4]", 4, 4)},
     .fields = kFieldPattern,
     .rules = rules(Rule::kPhiloxShape),
     .doc = "dst = Philox4x32-10 words; src0 holds key low, key high, offset low, offset high.",
     .detail = "Element j (row major over partitions and dims, plus pattern.base) is word j%4 of the counter offset + j/4. "
               "Runs as a program on the GpSimd processors.",
     .source = "trnsim", .timing = Timing::kEstimated},
    {.opcode = Opcode::kRng, .name = "rng", .engines = V | G, .cost = CostClass::kRandom,
     .operands = {write(kTiles, kDtypesInteger & ~bit(Dtype::kBool), "[P, ...]")},
     .doc = "dst = random words of the engine's generator, the low bits of each kept.",
     .detail = "The vector engine of trn2 has a 32-bit LFSR per partition, gpsimd and the vector engine of trn3 have XORWOW "
               "(numerics.vector_generator). Polynomial and seeding of the hardware are not public: the words differ.",
     .source = "5.3 rng, 6", .timing = Timing::kEstimated},
    {.opcode = Opcode::kRand2, .name = "rand2", .engines = V, .since = Generation::kTrn3, .cost = CostClass::kRandom,
     .operands = {write(kTiles, kAll & ~bit(Dtype::kBool), "[P, ...]")},
     .fields = kFieldImm0 | kFieldImm1, .imm0 = kImm | kPtr, .imm1 = kImm | kPtr,
     .rules = rules(Rule::kUniformBounds),
     .doc = "dst = uniform random numbers between imm0 and imm1 from the engine's generator.",
     .source = "5.3 rand2", .timing = Timing::kDocumented},
    {.opcode = Opcode::kDropout, .name = "dropout", .engines = V, .cost = CostClass::kRandom,
     .operands = {write(kTiles, kAll, "[P, ...]"), read(kTiles, kAll, "[P, ...]")},
     .fields = kFieldImm0, .imm0 = kImm | kPtr,
     .rules = rules(Rule::kSamePartitions, Rule::kSameElements, Rule::kSameDtype),
     .doc = "dst = src0 with each element replaced by 0 with probability imm0; the others keep their bits.",
     .source = "5.3 dropout", .timing = Timing::kDocumented},
    {.opcode = Opcode::kSetRngSeed, .name = "set_rng_seed", .engines = V | G, .cost = CostClass::kRandomState,
     .operands = {kAbsent, read(kTiles, kWords, "[1, 1]", 4, 1)},
     .rules = rules(Rule::kGeneratorState),
     .doc = "Seeds the engine's generators of all partitions from the 32-bit word src0.",
     .source = "5.3 set_rng_seed", .timing = Timing::kEstimated},
    {.opcode = Opcode::kRandGetState, .name = "rand_get_state", .engines = G, .engines_trn3 = V,
     .cost = CostClass::kRandomState,
     .operands = {write(kSb, bit(Dtype::kU32), "[P, 6], vector [P, 24]", 4, 24)},
     .rules = rules(Rule::kGeneratorState),
     .doc = "dst = the state of the engine's generators: 6 words of XORWOW per partition on gpsimd, 4 x 6 on vector.",
     .source = "5.3 rand_get_state", .timing = Timing::kEstimated},
    {.opcode = Opcode::kRandSetState, .name = "rand_set_state", .engines = G, .engines_trn3 = V,
     .cost = CostClass::kRandomState,
     .operands = {kAbsent, read(kSb, bit(Dtype::kU32), "[P, 6], vector [P, 24]", 4, 24)},
     .rules = rules(Rule::kGeneratorState),
     .doc = "The state of the engine's generators = src0.",
     .source = "5.3 rand_set_state", .timing = Timing::kEstimated},
    {.opcode = Opcode::kDmaCopy, .name = "dma_copy", .engines = kAnyEngine, .cost = CostClass::kDma,
     .operands = {write(kSb | kHb, kMoves, "any", 5), read(kSb | kHb, kMoves, "any", 5)},
     .fields = kFieldQueue | kFieldDge | kFieldPriority, .flags = kFlagAccumulate | kFlagSkipOutOfBounds, .flags_trn3 = kFlagAccumulate,
     .rules = rules(Rule::kDmaElements, Rule::kDmaCast, Rule::kDmaAccumulate),
     .doc = "dst = cast(src0), SBUF or HBM on either side, equal element counts in row-major order.",
     .detail = "Casts go through FP32; int64 and fp64 in HBM become int32 and fp32 in SBUF and back. From trn3 on, flag "
               "accumulate adds to dst in SBUF at the rate of a copy (both sides bf16 or both fp32). An address register that leads "
               "outside is a run-time error, or leaves out the copy with flag skip_out_of_bounds.",
     .source = "2.6, 4, 5.5 dma_copy", .timing = Timing::kMeasured},
    {.opcode = Opcode::kDmaTranspose, .name = "dma_transpose", .engines = kAnyEngine, .cost = CostClass::kDma,
     .operands = {write(kSb, k2Or4Bytes, "[F, P]", 5), read(kSb | kHb, k2Or4Bytes, "[P, F]", 5),
                  optional(read(kSb, bit(Dtype::kU32), "[16..128, n]"))},
     .fields = kFieldQueue | kFieldDge | kFieldPriority | kFieldCount, .flags = kFlagSkipOutOfBounds,
     .rules = rules(Rule::kSameDtype, Rule::kDmaTransposeShape),
     .doc = "dst [F, P] = transpose of src0 [P, F], bit exact, 2- or 4-byte elements.",
     .detail = "count 0 or 2: src0 is a matrix, its first dim against all others. count 3 or 4: the first and the last dim "
               "change places, axes (2,1,0) and (3,1,2,0). With src1, row i of the matrix is row src1[i] of src0 in HBM "
               "(indices partition first): a gathering transpose.",
     .source = "4.4, 5.5 dma_transpose", .timing = Timing::kDocumented},
    {.opcode = Opcode::kDmaGather, .name = "dma_gather", .engines = G, .cost = CostClass::kDma,
     .operands = {write(kSb, kMoves, "[P, n, row...]", 5), read(kHb, kMoves, "[rows, row...]", 5),
                  read(kSb, kIndices, "[P, n]")},
     .fields = kFieldOp0 | kFieldQueue | kFieldDge | kFieldPriority, .flags = kFlagSkipOutOfBounds, .op0 = kNoneOp | kAddOp,
     .rules = rules(Rule::kDmaCast, Rule::kIndirect),
     .doc = "Row (p, j) of dst = row src1[p][j] of src0; op0 add accumulates in FP32.",
     .detail = "src0: dims[0] is the indexable axis (size = bound, step = row pitch), dims[1..] the row. An index outside "
               "0..size-1 is a run-time error, or leaves its dst row alone with flag skip_out_of_bounds.",
     .source = "4.4, 5.5 dma_copy and dma_compute with vector_offset", .timing = Timing::kMeasured},
    {.opcode = Opcode::kDmaScatter, .name = "dma_scatter", .engines = G, .cost = CostClass::kDma,
     .operands = {write(kHb, kMoves, "[rows, row...]", 5), read(kSb, kMoves, "[P, n, row...]", 5),
                  read(kSb, kIndices, "[P, n]")},
     .fields = kFieldOp0 | kFieldQueue | kFieldDge | kFieldPriority, .flags = kFlagSkipOutOfBounds,
     .op0 = kNoneOp | bit(AluOp::kAdd),
     .rules = rules(Rule::kDmaCast, Rule::kIndirect),
     .doc = "Row src1[p][j] of dst = row (p, j) of src0; op0 add accumulates in FP32.",
     .detail = "dst: dims[0] is the indexable axis (size = bound, step = row pitch), dims[1..] the row. When accumulating, "
               "the indices of one instruction must be unique. An index outside 0..size-1 is a run-time error, or drops "
               "its row with flag skip_out_of_bounds.",
     .source = "4.4, 5.5 dma_copy and dma_compute with vector_offset", .timing = Timing::kMeasured},
    {.opcode = Opcode::kDmaCompute, .name = "dma_compute", .engines = kAnyEngine, .cost = CostClass::kDma,
     .operands = {write(kSb | kHb, kAll, "any", 5), read(kSb | kHb, kAll, "[sources, ...]", 5),
                  optional(read(kSb | kHb, kAll, "[sources, ...]", 5))},
     .fields = kFieldQueue | kFieldDge | kFieldPriority,
     .rules = rules(Rule::kDmaSources),
     .doc = "dst = the sum of up to 16 sources in FP32, cast once.",
     .detail = "An operand holds as many sources as it has elements more than dst; they lie along its first dim in HBM, "
               "along its first free dim in SBUF. Sources at arbitrary places: two per instruction.",
     .source = "4.4, 5.5 dma_compute", .timing = Timing::kDocumented},
    {.opcode = Opcode::kSendRecv, .name = "send_recv", .engines = kAnyEngine, .cost = CostClass::kDma,
     .operands = {write(kSb, kMoves, "[P, ...]"), read(kSb, kMoves, "[P, ...]")},
     .fields = kFieldQueue | kFieldDge | kFieldPriority | kFieldCount | kFieldImm,
     .rules = rules(Rule::kSamePartitions, Rule::kSameElements, Rule::kSameDtype, Rule::kTwoCores, Rule::kExchange),
     .doc = "The two cores of a logical core exchange tiles: src0 goes to core count, dst comes from it; imm names the pipe.",
     .detail = "The n-th exchange of a pipe on one core meets the n-th of the same pipe on the other. Data moves once both "
               "have been triggered; until then the queue takes no further transfer. Each core's semaphore is raised when "
               "both tiles have arrived.",
     .source = "5.5 sendrecv", .timing = Timing::kEstimated},
    {.opcode = Opcode::kSemaphore, .name = "semaphore", .engines = kAnyEngine, .cost = CostClass::kSemaphore,
     .doc = "Only waits and updates of its sync field.",
     .source = "3.2", .timing = Timing::kMeasured},
    {.opcode = Opcode::kCoreBarrier, .name = "core_barrier", .engines = kAnyEngine, .cost = CostClass::kCoreBarrier,
     .operands = {kAbsent, read(kHb, kMoves, "any", 5)},
     .rules = rules(Rule::kTwoCores),
     .doc = "Waits until both cores of a logical core have reached the barrier of tensor src0.",
     .detail = "The n-th barrier of an engine meets the n-th barrier of the same engine on the other core. The other engines "
               "go on; src0 names the shared tensor and is not read.",
     .source = "3.2, 5.5 core_barrier", .timing = Timing::kEstimated},
    {.opcode = Opcode::kRegMove, .name = "reg_move", .engines = kAnyEngine, .cost = CostClass::kRegister,
     .fields = kFieldRegDst | kFieldImm, .flags = kFlagWide,
     .rules = rules(Rule::kRegisterPair),
     .doc = "reg_dst = imm; with flag wide the 64-bit pair reg_dst, reg_dst + 1.",
     .source = "3.1", .timing = Timing::kMeasured},
    {.opcode = Opcode::kRegAlu, .name = "reg_alu", .engines = kAnyEngine, .cost = CostClass::kRegister,
     .fields = kFieldRegDst | kFieldRegA | kFieldRegB | kFieldOp0 | kFieldImm, .flags = kFlagImmediate | kFlagWide,
     .op0 = kBasic | kCompare | kBitwise,
     .rules = rules(Rule::kRegisterPair),
     .doc = "reg_dst = reg_a op0 reg_b, or imm in place of reg_b with flag immediate; 32-bit, wraps.",
     .detail = "Flag wide: 64-bit pairs of registers; add, subtract and multiply. Branches, loops, waits and addresses "
               "take 32-bit registers.",
     .source = "3.1", .timing = Timing::kEstimated},
    {.opcode = Opcode::kRegLoad, .name = "reg_load", .engines = kAnyEngine, .cost = CostClass::kRegisterMemory,
     .operands = {kAbsent, read(kSb | kHb, kRegisterWords, "one word", 5, 1)},
     .fields = kFieldRegDst, .flags = kFlagWide,
     .rules = rules(Rule::kOneWord, Rule::kRegisterPair),
     .doc = "reg_dst = the 32-bit word at src0; with flag wide the int64 at src0.",
     .source = "3.1, 5.5 register_load"},
    {.opcode = Opcode::kRegStore, .name = "reg_store", .engines = kAnyEngine, .cost = CostClass::kRegisterMemory,
     .operands = {write(kSb | kHb, kRegisterWords, "one word", 5, 1)},
     .fields = kFieldRegA, .flags = kFlagWide,
     .rules = rules(Rule::kOneWord, Rule::kRegisterPair),
     .doc = "The 32-bit word at dst = reg_a; with flag wide the int64 at dst.",
     .source = "3.1, 5.5 register_store"},
    {.opcode = Opcode::kBranch, .name = "branch", .engines = kAnyEngine, .cost = CostClass::kBranch,
     .fields = kFieldRegA | kFieldRegB | kFieldOp0 | kFieldImm | kFieldTarget, .flags = kFlagImmediate,
     .op0 = kCompare,
     .doc = "Jumps to target when reg_a op0 reg_b (imm in place of reg_b with flag immediate); signed compare.",
     .source = "3.1", .timing = Timing::kEstimated},
    {.opcode = Opcode::kJump, .name = "jump", .engines = kAnyEngine, .cost = CostClass::kBranch,
     .fields = kFieldTarget,
     .doc = "Jumps to target.",
     .source = "3.1", .timing = Timing::kEstimated},
    {.opcode = Opcode::kLoop, .name = "loop", .engines = kAnyEngine, .cost = CostClass::kBranch,
     .fields = kFieldRegA | kFieldTarget,
     .doc = "reg_a -= 1, then jumps to target when reg_a is not 0.",
     .source = "3.1", .timing = Timing::kEstimated},
    {.opcode = Opcode::kHalt, .name = "halt", .engines = kAnyEngine, .cost = CostClass::kBranch,
     .doc = "Ends the stream.",
     .source = "trnsim", .timing = Timing::kEstimated},
};
// clang-format on
constexpr bool rows_in_order() {
  for (int i = 0; i < kNumOpcodes; ++i) {
    if (kRows[i].opcode != static_cast<Opcode>(i)) return false;
  }
  return true;
}
static_assert(rows_in_order(), "one row per opcode, in the order of the enum");

}  // namespace

const Row& row(Opcode opcode) {
  assert(opcode < Opcode::kCount);
  return kRows[static_cast<int>(opcode)];
}

const Row (&all_rows())[kNumOpcodes] { return kRows; }

}  // namespace trnsim::isa
