// Rules that belong to one row or to a family of rows.
#include <algorithm>

#include "isa/names.h"
#include "isa/validator_rules.h"

namespace trnsim::isa {
namespace {

std::string operator+(std::string_view a, const std::string& b) { return std::string(a) + b; }
std::string operator+(std::string a, std::string_view b) { return a.append(b); }

std::string dtype_text(const Access& a) { return std::string(dtype_name(a.dtype)); }
bool power_of_two_to(int64_t v, int64_t limit) { return v >= 1 && v <= limit && (v & (v - 1)) == 0; }

constexpr int kCorePartitions = 16;  // of one GpSimd processor

}  // namespace

void InstructionChecker::rule_pe_tile() {
  const Instruction& i = *i_;
  const PeTile& t = i.tile;
  if (t.whole()) return;
  const auto side = [](int v) { return v == 32 || v == 64 || v == 128; };
  if (!side(t.rows) || !side(t.columns)) {
    return illegal("the tile is " + number(t.rows) + " x " + number(t.columns) +
                   "; rows and columns are 32, 64 or 128");
  }
  if (t.row % t.rows != 0 || t.column % t.columns != 0 || t.row + t.rows > kMaxPartitions ||
      t.column + t.columns > kMaxPartitions) {
    return illegal("the tile starts at row " + number(t.row) + ", column " + number(t.column) +
                   "; each is a multiple of its size (" + number(t.rows) + ", " + number(t.columns) +
                   ") inside the array of 128 x 128");
  }
  const bool mx = row_->has_rule(Rule::kMxScales);
  if (t.columns != kMaxPartitions) {
    if (mx) illegal("microscaling products tile rows only; give the tile 128 columns");
    if (i.has(kFlagDoubleRow))
      illegal("double_row does not work with column tiles; give the tile 128 columns");
    if (!choices_.pe_column_tiling) illegal("column tiles are switched off (rules.pe_column_tiling)");
  }
  if (i.src0.indirect || i.dst.indirect) illegal("indirect operands exclude tiles of the array");
  if (i.src0.num_partitions > t.rows) {
    illegal("src0 has " + number(i.src0.num_partitions) + " partitions, the tile " + number(t.rows) +
            " rows");
  }
  const bool load = is_stationary_load(i.opcode);
  const int64_t m = load ? i.src0.free_elements() / (i.has(kFlagDoubleRow) ? 2 : 1) : i.dst.num_partitions;
  if (m > t.columns) {
    illegal("the stationary matrix has " + number(m) + " columns, the tile " + number(t.columns));
  }
}

void InstructionChecker::rule_double_row() {
  const Instruction& i = *i_;
  if (!i.has(kFlagDoubleRow)) {
    if (i.opcode == Opcode::kLoadStationary && i.src0.free_elements() > 128)
      too_many("src0", i.src0.free_elements(), 128);
    return;
  }
  if (!contains(kDtypesFp8, i.src0.dtype) || i.src0.dtype == Dtype::kF8E3M4) {
    illegal("src0 is " + dtype_text(i.src0) + "; double_row multiplies fp8e4, fp8e4fn and fp8e5");
  }
  if (i.src0.num_dims < 2 || i.src0.size[0] != 2) {
    illegal("src0 is " + shape_text(i.src0) + "; double_row needs [K, 2, ...]");
  }
}

// Rows of the scales of `partitions` partitions of data.
void InstructionChecker::rule_mx_scales(const Access& scale, std::string_view what, int64_t partitions,
                                        int64_t columns) {
  const int start = scale.start_partition;
  const int64_t rows = partitions <= 32 ? partitions / 8 : (partitions / 32 - 1) * 32 + 4;
  const bool spread = partitions > 32;
  if (scale.num_partitions != rows || scale.free_elements() != columns) {
    illegal(what + std::string(" is ") + shape_text(scale) + " instead of [" + number(rows) + ", " +
            number(columns) + "]: one scale per 8 partitions and element" +
            (spread ? ", 4 rows in each quadrant" : ""));
  }
  if (spread ? start != 0 && start != 4 && start != 8 && start != 12 : start % 4 != 0) {
    illegal(what + std::string(" starts at partition ") + number(start) +
            (spread ? "; the scale rows of a quadrant start at its partition 0, 4, 8 or 12"
                    : "; scale rows start at a multiple of 4"));
  }
}

void InstructionChecker::rule_sparse_tags() {
  const Instruction& i = *i_;
  const int64_t k = i.src0.num_partitions;
  if (i.count < 2 || i.count > kMaxSparseRatio) {
    illegal("count is " + number(i.count) + "; the array has 4:8, 4:12 and 4:16, counts 2, 3 and 4");
    return;
  }
  if (k % kSparsePartitions != 0) {
    illegal("src0 has " + number(k) + " partitions, not a multiple of 4: four hold what is kept of a block");
  }
  if (i.opcode == Opcode::kMultiplyMovingSparse) {
    if (i.src0.num_dims < 2 || i.src0.size[0] != i.count) {
      illegal("src0 is " + shape_text(i.src0) + "; a product with count " + number(i.count) + " needs [K, " +
              number(i.count) + ", ...]");
    }
    return;
  }
  const int64_t m = i.src0.free_elements();
  if (m % 4 != 0) illegal("src0 has " + number(m) + " columns, not a multiple of 4");
  if (i.src1.num_partitions != k || i.src1.free_elements() != m / 4) {
    illegal("src1 is " + shape_text(i.src1) + " instead of [" + number(k) + ", " + number(m / 4) +
            "]: four positions in each element");
  }
}

void InstructionChecker::rule_accumulator() {
  const Instruction& i = *i_;
  if (i.reduce > ReduceCmd::kLoadReduce) return user("unknown use of the accumulator");
  if (i.aux.present()) expect_elements(i.aux, "aux", 1);
  if (i.reduce == ReduceCmd::kIdle) {
    if (i.reduce_op != AluOp::kNone) user("reduce_op is given, but reduce is idle; say reduce=reset_reduce");
    if (i.aux.present()) user("aux is given, but reduce is idle; say reduce=reset_reduce");
    return;
  }
  if (engine_ == Engine::kGpSimd) {
    illegal("gpsimd has no accumulator; reduce on the scalar engine, or leave reduce out");
  }
  check_operator(i.reduce_op, row_->reduce_op, "reduce_op");
  const bool loads = i.reduce == ReduceCmd::kLoadReduce;
  // activation and activate2 use imm1 for themselves.
  const bool can_load =
      row_->uses(kFieldImm1) && !row_->uses(kFieldFunc) && !row_->has_rule(Rule::kRangeBounds);
  if (loads && !can_load) illegal("the accumulator cannot be loaded here; use reset_reduce or reduce");
  if (can_load && loads != (i.imm1.kind != ScalarOperand::Kind::kNone)) {
    user(loads ? "load_reduce needs imm1, the start value" : "imm1, a start value, needs reduce=load_reduce");
  }
}

void InstructionChecker::rule_activate2() {
  const Instruction& i = *i_;
  struct Pair {
    AluOp op0, op1;
  };
  constexpr Pair kPairs[] = {{AluOp::kMultiply, AluOp::kAdd},    {AluOp::kMultiply, AluOp::kSubtract},
                             {AluOp::kMultiply, AluOp::kBypass}, {AluOp::kAdd, AluOp::kBypass},
                             {AluOp::kSubtract, AluOp::kBypass}, {AluOp::kBypass, AluOp::kBypass}};
  const bool ok = std::any_of(std::begin(kPairs), std::end(kPairs),
                              [&](const Pair& p) { return p.op0 == i.op0 && p.op1 == i.op1; });
  if (!ok) {
    illegal("(op0, op1) is (" + std::string(name(i.op0)) + ", " + name(i.op1) +
            "); allowed: (multiply, add), (multiply, subtract), (multiply, bypass), (add, bypass), "
            "(subtract, bypass), "
            "(bypass, bypass)");
  }
  if ((i.has(kFlagReverse0) && no_operator(i.op0)) || (i.has(kFlagReverse1) && no_operator(i.op1))) {
    user("a reverse flag is given without its operator");
  }
  using Kind = ScalarOperand::Kind;
  if (i.imm0.kind == Kind::kPointer && i.imm1.kind == Kind::kPointer &&
      i.imm0.pointer.dtype != i.imm1.pointer.dtype) {
    illegal("imm0 is " + dtype_text(i.imm0.pointer) + ", imm1 " + dtype_text(i.imm1.pointer) +
            "; two columns have one dtype");
  }
}

void InstructionChecker::rule_opaque_moves() {
  const Instruction& i = *i_;
  if (i.opcode == Opcode::kMemset) {
    if (is_opaque(i.dst.dtype) && !(i.imm0.kind == ScalarOperand::Kind::kImmediate && i.imm0.value == 0)) {
      illegal("dst is " + dtype_text(i.dst) + "; microscaling dtypes are set to 0 only");
    }
    return;
  }
  if (i.dst.dtype != i.src0.dtype && (is_opaque(i.dst.dtype) || is_opaque(i.src0.dtype))) {
    illegal("src0 is " + dtype_text(i.src0) + ", dst " + dtype_text(i.dst) +
            "; microscaling dtypes are moved unchanged");
  }
}

void InstructionChecker::rule_quantize() {
  const Instruction& i = *i_;
  const int64_t p = i.src0.num_partitions, f = i.src0.free_elements();
  if (p % 32 != 0) illegal("src0 has " + number(p) + " partitions, not a multiple of 32");
  if (f % 4 != 0) illegal("src0 has " + number(f) + " elements per partition, not a multiple of 4");
  if (i.dst.num_partitions != p) {
    illegal("src0 has " + number(p) + " partitions, dst " + number(i.dst.num_partitions) +
            "; they must be equal");
  }
  expect_elements(i.dst, "dst", f / 4);
  rule_mx_scales(i.aux, "aux", p, f / 4);
}

void InstructionChecker::rule_shuffle() {
  const Instruction& i = *i_;
  if (i.dst.num_partitions % 32 != 0) {
    illegal("dst has " + number(i.dst.num_partitions) + " partitions; the shuffle works on quadrants of 32");
  }
  for (uint8_t m : i.mask) {
    if (m >= 32 && m != kShuffleKeep) {
      return illegal("the mask names partition " + number(m) + "; a quadrant has 0 to 31, and 255 keeps dst");
    }
  }
}

void InstructionChecker::rule_local_gather() {
  const Instruction& i = *i_;
  if (i.dst.num_partitions % kCorePartitions != 0) {
    illegal("dst has " + number(i.dst.num_partitions) + " partitions, not a multiple of 16");
  }
  if (!power_of_two_to(i.count, 32)) {
    return illegal("count is " + number(i.count) + "; an index stands for 1, 2, 4, 8, 16 or 32 elements");
  }
  const int64_t all = i.src1.free_elements() * kCorePartitions;
  const int64_t indices = i.imm > 0 ? i.imm : all;
  if (i.imm < 0 || indices > all) {
    return user("imm takes " + number(i.imm) + " indices of " + number(all) + " in 16 partitions of src1");
  }
  if (indices > 4096) illegal(number(indices) + std::string(" indices per 16 partitions; the limit is 4096"));
  expect_elements(i.dst, "dst", indices * i.count);
}

void InstructionChecker::rule_nonzero() {
  const Instruction& i = *i_;
  expect_elements(i.dst, "dst", i.src0.free_elements() + 1);
  if (i.imm0.value != static_cast<float>(static_cast<int32_t>(std::clamp(i.imm0.value, -1e9f, 1e9f)))) {
    user("imm0, the padding, is not an integer that FP32 holds");
  }
}

void InstructionChecker::rule_topk() {
  const Instruction& i = *i_;
  const int64_t n = i.imm, k = i.count;
  if (i.dst.num_partitions % kCorePartitions != 0) {
    illegal("dst has " + number(i.dst.num_partitions) + " partitions, not a multiple of 16");
  }
  if (n < 8 || n >= 65536) return illegal("imm is " + number(n) + " values; 8 to 65535 are possible");
  if (k < 1 || k >= 32768 || k > n) {
    return illegal("count is " + number(k) + " results of " + number(n) +
                   "; 1 to 32767 and at most imm are possible");
  }
  const auto columns = [](int64_t v) { return (v + kCorePartitions - 1) / kCorePartitions; };
  if (i.src0.free_elements() < columns(n)) {
    illegal("src0 has " + number(i.src0.free_elements()) + " elements per partition; " + number(n) +
            " values need " + number(columns(n)));
  }
  expect_elements(i.dst, "dst", columns(k));
  expect_elements(i.aux, "aux", columns(k));
}

void InstructionChecker::rule_generator_state() {
  const Instruction& i = *i_;
  if (i.opcode == Opcode::kSetRngSeed) {
    if (i.src0.num_partitions != 1 || i.src0.free_elements() != 1) {
      illegal("src0 is " + shape_text(i.src0) + " instead of [1, 1], the seed");
    }
    return;
  }
  const bool get = i.opcode == Opcode::kRandGetState;
  expect_elements(get ? i.dst : i.src0, get ? "dst" : "src0", engine_ == Engine::kGpSimd ? 6 : 24);
}

void InstructionChecker::rule_dma_accumulate() {
  const Instruction& i = *i_;
  if (i.has(kFlagSkipOutOfBounds) && i.dst.address_register == kNoRegister &&
      i.src0.address_register == kNoRegister) {
    user("skip_out_of_bounds has no meaning without an address register: the bounds are known");
  }
  if (!i.has(kFlagAccumulate)) return;
  if (i.dst.space != Space::kSbuf)
    illegal("dst lies in hbm; accumulating copies add to sbuf. Use dma_compute");
  if (i.dst.dtype != i.src0.dtype || (i.dst.dtype != Dtype::kBF16 && i.dst.dtype != Dtype::kF32)) {
    illegal("src0 is " + dtype_text(i.src0) + ", dst " + dtype_text(i.dst) +
            "; accumulating copies take bf16 or fp32 on both sides. Use dma_compute");
  }
}

void InstructionChecker::rule_dma_sources() {
  const Instruction& i = *i_;
  if (i.dge != DgeMode::kStatic) {
    illegal(
        "dma_compute needs static descriptors; with row indices use dma_scatter or dma_gather and op0=add");
  }
  const int64_t want = i.dst.elements();
  int64_t sources = 0;
  for (Slot s : {Slot::kSrc0, Slot::kSrc1}) {
    const Access& a = operand(i, s);
    if (!a.present()) continue;
    const int64_t n = a.elements() / want;
    if (n * want != a.elements() || n == 0 || (a.space != Space::kHbm && a.free_elements() % n != 0)) {
      return user(name(s) + std::string(" is ") + shape_text(a) + ", dst " + shape_text(i.dst) +
                  "; an operand holds whole sources along its first (free) dim");
    }
    sources += n;
  }
  if (sources > 16) illegal(number(sources) + std::string(" sources; the limit is 16. Split the sum"));
}

void InstructionChecker::rule_exchange() {
  const Instruction& i = *i_;
  if (program_.cores < 2) return;
  const int own = core_of_stream(stream_);
  if (i.count != static_cast<uint32_t>(1 - own)) {
    user("count is " + number(i.count) + "; core " + number(own) + " exchanges with core " + number(1 - own));
  }
  if (i.imm < 0) user("imm is " + number(i.imm) + "; pipes are numbered from 0 on");
  const int64_t elements = i.src0.free_elements();
  if (i.dge == DgeMode::kSoftware && elements > kMaxSoftwareExchange) {
    illegal("src0 has " + number(elements) + " elements per partition; software descriptors exchange " +
            number(kMaxSoftwareExchange) +
            " at most (1024 bytes of 32-bit elements). Use static descriptors, or split it");
  }
  if (i.src0.address_register != kNoRegister || i.dst.address_register != kNoRegister) return;
  const StridedBox src = strided_box(i.src0), dst = strided_box(i.dst);
  if (i.src0.start_partition < i.dst.start_partition + i.dst.num_partitions &&
      i.dst.start_partition < i.src0.start_partition + i.src0.num_partitions &&
      src.lo < dst.lo + dst.extent() && dst.lo < src.lo + src.extent()) {
    user("src0 and dst overlap; one is read while the other is written. Receive into a tile of its own");
  }
}

void InstructionChecker::check_row_rule(Rule rule) {
  const Instruction& i = *i_;
  using Kind = ScalarOperand::Kind;
  switch (rule) {
    case Rule::kPeTile:
      return rule_pe_tile();
    case Rule::kDoubleRow:
      return rule_double_row();
    case Rule::kMxScales:
      if (i.src0.num_partitions % 32 != 0) {
        illegal("src0 has " + number(i.src0.num_partitions) + " partitions, not a multiple of 32");
      }
      if (i.opcode == Opcode::kLoadStationaryMx && i.src0.free_elements() % 2 != 0) {
        illegal("src0 has " + number(i.src0.free_elements()) + " columns; M must be even");
      }
      return rule_mx_scales(i.src1, "src1", i.src0.num_partitions, i.src0.free_elements());
    case Rule::kSparseTags:
      return rule_sparse_tags();
    case Rule::kAccumulator:
      return rule_accumulator();
    case Rule::kActivationFunction:
      if (i.func != ActFunc::kPrelu && i.param != 0) {
        user("param is the slope of prelu; function " + std::string(name(i.func)) + " takes none");
      }
      return;
    case Rule::kActivate2Operators:
      return rule_activate2();
    case Rule::kOpaqueMoves:
      return rule_opaque_moves();
    case Rule::kSelectSource:
      if (i.src0.present() == (i.imm0.kind != Kind::kNone)) user("give src0 or imm0, one of the two");
      return;
    case Rule::kQuantizeShape:
      return rule_quantize();
    case Rule::kShuffleShape:
      return rule_shuffle();
    case Rule::kRangeBounds: {
      const Wide end = Wide{i.imm} + i.src0.free_elements();
      if (i.imm < 0 || end > (1 << 24)) {
        illegal("the range " + number(i.imm) + " to " + wide_number(end) +
                " leaves 0 to 2^24: indices are compared in FP32");
      }
      return;
    }
    case Rule::kCumulativeOperators:
      if (i.reduce_op != i.op1) user("reduce_op must be op1");
      if (i.reduce < ReduceCmd::kReduce) user("reduce must be reset_reduce, reduce or load_reduce");
      return;
    case Rule::kLocalGatherShape:
      return rule_local_gather();
    case Rule::kNGatherShape:
      return expect_elements(i.dst, "dst", i.src1.free_elements());
    case Rule::kSequenceShape:
      if (i.src0.num_partitions != 1 || i.dst.num_partitions != 1) illegal("src0 and dst have one partition");
      return expect_elements(i.dst, "dst", 2 * i.src0.free_elements());
    case Rule::kNonzeroShape:
      return rule_nonzero();
    case Rule::kTopkShape:
      return rule_topk();
    case Rule::kGeneratorState:
      return rule_generator_state();
    case Rule::kUniformBounds:
      if (i.imm0.kind == Kind::kImmediate && i.imm1.kind == Kind::kImmediate &&
          !(i.imm0.value < i.imm1.value)) {
        user("imm0 is " + std::to_string(i.imm0.value) + ", imm1 " + std::to_string(i.imm1.value) +
             "; the lower bound comes first");
      }
      return;
    case Rule::kDmaAccumulate:
      return rule_dma_accumulate();
    case Rule::kDmaSources:
      return rule_dma_sources();
    case Rule::kTwoCores:
      if (program_.cores < 2) {
        user(
            "the program runs on one physical core, and the instruction works with the other core of a "
            "logical core of "
            "two; write `cores 2`, or launch the kernel on both");
      }
      return;
    case Rule::kExchange:
      return rule_exchange();
    default:
      return;
  }
}

}  // namespace trnsim::isa
