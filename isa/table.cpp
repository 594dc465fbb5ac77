#include "isa/table.h"

#include <cstring>

#include "isa/names.h"

namespace trnsim::isa {
namespace {

constexpr SpaceSet kSb = bit(Space::kSbuf), kPs = bit(Space::kPsum);
constexpr SpaceSet kTiles = kSb | kPs;

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
     "scalar engine: multiply then add, multiply, or add (trn3 also abs_max, abs_min, square and relu as "
     "op0); "
     "gpsimd: add, subtract, multiply, power, rsqrt; bitwise only on the vector engine; square and relu from "
     "trn3 on"},
    {"power_on_gpsimd", "the operator power of two tiles exists on gpsimd only"},
    {"stationary_shape", "at most 128 partitions (K) and 128 elements per partition (M)"},
    {"moving_shape",
     "K and M agree with the stationary matrix; N at most 512 (trn3: 4096 in fp32, 8192 in bf16; "
     "rules.mx_moving_columns limits microscaling products); trn2: dst within one PSUM bank of 2 KiB"},
    {"matmul_dtypes",
     "fp32 and fp32r do not mix with narrower inputs nor fp8e4 with fp8e4fn; dst is fp32, from trn3 also "
     "bf16"},
    {"pe_tile",
     "tile rows and columns are 32, 64 or 128, the position a multiple of the size; the matrix fits the "
     "tile; "
     "microscaling products tile rows only, double_row does not tile columns, indirect operands do not tile; "
     "rules.pe_column_tiling 0 forbids column tiles"},
    {"double_row", "flag double_row needs FP8 operands [K, 2, ...] on both sides"},
    {"mx_scales",
     "partitions are a multiple of 32, M is even; one scale per 8 partitions and element: partitions/8 rows "
     "for 32 "
     "partitions, else 4 rows at the same offset (0, 4, 8 or 12) of each quadrant"},
    {"sparse_tags",
     "count is 2 to 4, and the same for load and product; K and M are multiples of 4; positions are [K, "
     "M/4]; the moving "
     "operand is [K, count, ...]"},
    {"transpose_shape",
     "tensor: src0 in SBUF up to 128x128, dst in PSUM; vector: same shape, each side at most 32 or a "
     "multiple of 32"},
    {"reduce_shape", "1 <= reduce_dims <= dims of src0; dst holds one element per kept index"},
    {"partition_reduce_shape", "dst has one partition and as many elements per partition as src0"},
    {"bn_stats_shape", "dst has 6 elements per partition; src0 at most 512"},
    {"bn_aggr_shape", "dst has 2 elements per partition; src0 a multiple of 3"},
    {"top8_source", "src0 has 8 to 16384 elements per partition"},
    {"top8_result", "dst has 8 elements per partition"},
    {"top8_values", "src1 has 8 elements per partition, aux too"},
    {"philox_shape", "src0 is one partition of 4 words"},
    {"accumulator",
     "reduce idle goes without reduce_op and aux; the others name a reduce_op; load_reduce needs imm1; aux "
     "has one "
     "element per partition; accumulators exist on the vector and the scalar engine"},
    {"activation_function", "param is the slope of prelu; no other function takes one"},
    {"activate2_operators",
     "(op0, op1) is one of (multiply, add), (multiply, subtract), (multiply, bypass), (add, bypass), "
     "(subtract, bypass), "
     "(bypass, bypass); a reverse flag needs its operator"},
    {"opaque_moves", "microscaling dtypes are moved unchanged, and set to 0 only"},
    {"select_source", "exactly one of src0 and imm0 is given"},
    {"quantize_shape",
     "src0 is [32, 64, 96 or 128 partitions, a multiple of 4]; dst has a quarter of its elements; aux as for "
     "the scales of "
     "matrix products"},
    {"shuffle_shape", "partitions are a multiple of 32; mask entries are 0 to 31 or 255"},
    {"range_bounds", "imm0 and imm1 are fp32 columns; imm + elements stays below 2^24"},
    {"cumulative_operators", "reduce_op equals op1; load_reduce, reset_reduce or reduce"},
    {"local_gather_shape",
     "partitions are a multiple of 16; count is 1, 2, 4, 8, 16 or 32; at most 4096 indices per 16 "
     "partitions; dst holds "
     "count elements per index"},
    {"n_gather_shape", "dst has one element per index, at most 512"},
    {"sequence_shape", "src0 is one partition of n elements, dst one of 2 x n"},
    {"nonzero_shape", "dst has one element more than src0"},
    {"topk_shape",
     "partitions are a multiple of 16; 8 <= imm < 65536; 1 <= count < 32768 and at most imm; src0 holds "
     "ceil(imm/16), dst "
     "and aux ceil(count/16) elements per partition"},
    {"generator_state",
     "a seed is one word; a state is 6 words per partition on gpsimd, 24 on the vector engine"},
    {"uniform_bounds", "constant bounds are in order: imm0 < imm1"},
    {"dma_elements", "dst and src0 have equal element counts"},
    {"dma_cast",
     "hardware descriptor generation and microscaling dtypes do not cast; int64 and fp64 pair with "
     "themselves or "
     "int32/uint32 and fp32"},
    {"dma_accumulate",
     "flag accumulate: dst in SBUF, both sides bf16 or both fp32; flag skip_out_of_bounds: an address "
     "register"},
    {"dma_transpose_shape",
     "src0 is [P, F] and dst [F, P], or 3 or 4 dims with the outer two exchanged; hardware descriptors: "
     "2-byte "
     "elements, last dim at most 128, first dim 16 (rules.hardware_transpose 1: last dim a multiple of 128 "
     "instead); "
     "with indices: software descriptors, 2-byte elements, 16 to 128 rows, a multiple of 16"},
    {"indirect",
     "descriptors by software; dst (gather) or src0 (scatter) has one row of the table's row shape per "
     "index"},
    {"dma_sources", "up to 16 sources of as many elements as dst; static descriptors"},
    {"two_cores", "the program runs on two physical cores"},
    {"exchange",
     "count is the other core, imm a pipe from 0 on; src0 and dst lie apart; software descriptors move at "
     "most "
     "256 elements of up to 4 bytes per partition"},
    {"one_word", "the operand is a single element of 32 bits, with flag wide of int64"},
    {"register_pair",
     "flag wide: registers 0 to 62, add, subtract and multiply; otherwise immediates have 32 bits"},
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
                                           "scalar_reduce",
                                           "select_reduce",
                                           "exponential",
                                           "quantize",
                                           "shuffle",
                                           "statistics",
                                           "statistics_merge",
                                           "top8",
                                           "random",
                                           "random_state",
                                           "local_gather",
                                           "list_scan",
                                           "topk",
                                           "custom",
                                           "dma",
                                           "semaphore",
                                           "core_barrier",
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

const Row* row_by_name(std::string_view text) {
  const auto opcode = opcode_from_name(text);
  return opcode ? &row(*opcode) : nullptr;
}

std::string_view name(Timing t) {
  constexpr std::string_view kNames[] = {"measured", "documented", "estimated"};
  return kNames[static_cast<int>(t)];
}

Generation since(Dtype d) {
  return d == Dtype::kF8E4M3FN || is_opaque(d) ? Generation::kTrn3 : Generation::kTrn2;
}

Generation since(AluOp op) {
  constexpr AluSet kTrn3Operators =
      bit(AluOp::kAbsMax) | bit(AluOp::kAbsMin) | bit(AluOp::kSquare) | bit(AluOp::kRelu);
  return contains(kTrn3Operators, op) ? Generation::kTrn3 : Generation::kTrn2;
}

bool scalar_engine_operators(AluOp op0, AluOp op1, Generation g) {
  struct Pair {
    AluOp op0, op1;
    Generation since;
  };
  constexpr Pair kPairs[] = {
      {AluOp::kMultiply, AluOp::kNone, Generation::kTrn2}, {AluOp::kMultiply, AluOp::kAdd, Generation::kTrn2},
      {AluOp::kAdd, AluOp::kNone, Generation::kTrn2},      {AluOp::kAbsMax, AluOp::kNone, Generation::kTrn3},
      {AluOp::kAbsMin, AluOp::kNone, Generation::kTrn3},   {AluOp::kSquare, AluOp::kNone, Generation::kTrn3},
      {AluOp::kRelu, AluOp::kNone, Generation::kTrn3}};
  for (const Pair& p : kPairs) {
    if (p.op0 == op0 && p.op1 == op1 && g >= p.since) return true;
  }
  return false;
}

Role operand_role(const Instruction& i, Slot s) {
  const Role role = row(i.opcode).operand(s).role;
  if (s != Slot::kDst || role != Role::kWrite) return role;
  bool reads = false;
  switch (i.opcode) {
    case Opcode::kMultiplyMoving:
    case Opcode::kMultiplyMovingMx:
    case Opcode::kMultiplyMovingSparse:
    case Opcode::kDmaCopy:
      reads = i.has(kFlagAccumulate);
      break;
    case Opcode::kDmaScatter:
    case Opcode::kDmaGather:
      reads = i.op0 == AluOp::kAdd;
      break;
    case Opcode::kStreamShuffle:
      for (uint8_t m : i.mask) reads = reads || m == kShuffleKeep;
      break;
    default:
      break;
  }
  return reads ? Role::kReadWrite : role;
}

bool picked_by_indices(const Instruction& i, Slot s) {
  if (operand(i, s).indirect) return true;
  switch (i.opcode) {
    case Opcode::kDmaGather:
    case Opcode::kLocalGather:
    case Opcode::kNGather:
      return s == Slot::kSrc0;
    case Opcode::kDmaTranspose:
      return s == Slot::kSrc0 && i.src1.present();
    case Opcode::kDmaScatter:
      return s == Slot::kDst;
    default:
      return false;
  }
}

Access index_list(const Access& a, Engine e) {
  Access list;
  list.space = Space::kSbuf;
  list.dtype = a.index_dtype;
  list.start_partition = a.index_partition;
  list.num_partitions = static_cast<uint16_t>(index_partitions(e));
  list.offset = a.index_offset;
  list.num_dims = 1;
  const uint32_t n = a.num_dims > 0 ? a.size[0] : 1;
  list.size[0] = (n + list.num_partitions - 1) / list.num_partitions;
  list.step[0] = 1;
  return list;
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
  if (r.uses(kFieldPriority) && a.priority != b.priority) return false;
  if (r.uses(kFieldDge) && a.dge != b.dge) return false;
  if (r.uses(kFieldReduceDims) && a.reduce_dims != b.reduce_dims) return false;
  if (r.uses(kFieldRegDst) && a.reg_dst != b.reg_dst) return false;
  if (r.uses(kFieldRegA) && a.reg_a != b.reg_a) return false;
  if (r.uses(kFieldRegB) && a.reg_b != b.reg_b) return false;
  if (r.uses(kFieldTarget) && a.target != b.target) return false;
  if (r.uses(kFieldImm) && a.imm != b.imm) return false;
  if (r.uses(kFieldReduce) && (a.reduce != b.reduce || a.reduce_op != b.reduce_op)) return false;
  if (r.uses(kFieldCount) && a.count != b.count) return false;
  if (r.uses(kFieldParam) && std::memcmp(&a.param, &b.param, sizeof a.param) != 0) return false;
  if (r.uses(kFieldMask) && a.mask != b.mask) return false;
  if (r.uses(kFieldTile) && !(a.tile == b.tile)) return false;
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
