#include "isa/validator_rules.h"

#include <algorithm>
#include <cmath>

#include "isa/names.h"

namespace trnsim::isa {
namespace {

std::string operator+(std::string_view a, const std::string& b) { return std::string(a) + b; }
std::string operator+(std::string a, std::string_view b) { return a.append(b); }

bool one_byte(Dtype d) { return dtype_bytes(d) == 1; }
bool wide_float(Dtype d) { return d == Dtype::kF32 || d == Dtype::kF32R; }
std::string shape(const Access& a) { return shape_text(a); }

}  // namespace

std::string shape_text(const Access& a) {
  std::string text = "[";
  if (a.space != Space::kHbm) text += number(a.num_partitions);
  for (int d = 0; d < a.num_dims; ++d) text += (text.size() > 1 ? ", " : "") + number(a.size[d]);
  return text + "]";
}

std::string operators_text(AluSet set) {
  std::string text;
  for (int o = 0; o < static_cast<int>(AluOp::kCount); ++o) {
    if (contains(set, static_cast<AluOp>(o)))
      text += std::string(text.empty() ? "" : ", ") + name(static_cast<AluOp>(o));
  }
  return text;
}

std::string wide_number(Wide v) {
  if (v > INT64_MAX) return "more than 2^63";
  if (v < INT64_MIN) return "less than -2^63";
  return number(static_cast<int64_t>(v));
}

std::string spaces_text(SpaceSet set) {
  std::string text;
  for (Space s : {Space::kSbuf, Space::kPsum, Space::kHbm}) {
    if (contains(set, s)) text += std::string(text.empty() ? "" : ", ") + name(s);
  }
  return text;
}

std::string dtypes_text(DtypeSet set) {
  std::string text;
  for (int d = 0; d < kNumDtypes; ++d) {
    if (contains(set, static_cast<Dtype>(d)))
      text += std::string(text.empty() ? "" : ", ") + dtype_name(static_cast<Dtype>(d));
  }
  return text;
}

void InstructionChecker::begin_stream(const std::vector<Instruction>& stream) {
  stationary_ = Stationary::kNone;
  branch_targets_.clear();
  for (const Instruction& i : stream) {
    if (i.opcode >= Opcode::kBranch && i.opcode <= Opcode::kLoop) branch_targets_.push_back(i.target);
  }
  std::sort(branch_targets_.begin(), branch_targets_.end());
}

void InstructionChecker::track_stationary() {
  if (engine_ != Engine::kTensor) return;
  const bool load = is_stationary_load(i_->opcode);
  if (load && !i_->tile.whole()) {
    stationary_ = Stationary::kUnknown;  // several matrices: the executor keeps track
  } else if (load) {
    stationary_ = shapes_ok_ ? Stationary::kKnown : Stationary::kUnknown;
    stationary_k_ = i_->src0.num_partitions;
    stationary_m_ = shapes_ok_ ? i_->src0.free_elements() / (i_->has(kFlagDoubleRow) ? 2 : 1) : 0;
    stationary_double_ = i_->has(kFlagDoubleRow);
    stationary_ratio_ = i_->opcode == Opcode::kLoadStationarySparse ? i_->count : 0;
    stationary_dtype_ = i_->src0.dtype;
  } else if (i_->opcode == Opcode::kTranspose) {
    stationary_ = Stationary::kNone;
  } else if (i_->opcode == Opcode::kJump) {
    stationary_ = Stationary::kUnknown;
  }
}

void InstructionChecker::check_scalar(const ScalarOperand& s, uint8_t kinds, bool needed, DtypeSet dtypes,
                                      std::string_view what) {
  if (static_cast<unsigned>(s.kind) > 2) return user(what + std::string(" has an unknown kind"));
  if (s.kind == ScalarOperand::Kind::kNone) {
    if (needed) user(what + std::string(" is missing"));
    return;
  }
  if (!contains(kinds, s.kind)) return illegal(what + std::string(" has to be a constant here"));
  if (s.kind == ScalarOperand::Kind::kImmediate) return;
  const bool was_ok = shapes_ok_;
  OperandRule rule;
  rule.role = Role::kRead;
  rule.spaces = bit(Space::kSbuf);
  rule.dtypes = dtypes;
  rule.max_free = 1;
  check_access(s.pointer, rule, what, false);
  const Access& tile = i_->dst.present() ? i_->dst : i_->src0;
  if (shapes_ok_ && s.pointer.num_partitions != tile.num_partitions) {
    illegal(what + std::string(" has ") + number(s.pointer.num_partitions) + " partitions, the instruction " +
            number(tile.num_partitions) + "; a column holds one value per partition");
  }
  shapes_ok_ = shapes_ok_ && was_ok;
}

void InstructionChecker::check_scalars() {
  const Instruction& i = *i_;
  if (!row_->uses(kFieldImm0)) return;
  // An integer instruction takes integer columns, everything else FP32 ones; the bias may be any float.
  DtypeSet dtypes = bit(Dtype::kF32);
  if (i.src0.present() && is_integer(i.src0.dtype) && is_integer(i.dst.dtype)) dtypes |= kDtypesInteger;
  bool needed0 = true, needed1 = true;
  DtypeSet dtypes1 = dtypes;
  switch (i.opcode) {
    case Opcode::kTensorScalar:
    case Opcode::kScalarTensorTensor:
    case Opcode::kTensorScalarReduce:
    case Opcode::kTensorScalarCumulative:
    case Opcode::kActivate2:
      needed0 = !no_operator(i.op0) && !is_unary(i.op0);
      needed1 = !no_operator(i.op1) && !is_unary(i.op1) && !row_->uses(kFieldReduce);
      if (i.opcode == Opcode::kActivate2) needed1 = !no_operator(i.op1);
      break;
    case Opcode::kActivation:
      needed0 = needed1 = false;
      dtypes = bit(Dtype::kF32);
      dtypes1 = kDtypesMatmul & ~bit(Dtype::kF32R);
      break;
    case Opcode::kExponential:
    case Opcode::kCopyPredicated:
    case Opcode::kCustom:
      needed0 = needed1 = false;
      break;
    case Opcode::kRangeSelect:
    case Opcode::kRand2:
    case Opcode::kDropout:
      dtypes = dtypes1 = bit(Dtype::kF32);
      break;
    default:
      break;
  }
  check_scalar(i.imm0, row_->imm0, needed0, dtypes, "imm0");
  if (row_->uses(kFieldImm1)) check_scalar(i.imm1, row_->imm1, needed1, dtypes1, "imm1");
}

void InstructionChecker::check_rules() {
  RuleSet set = row_->rules;
  for (unsigned r = 0; set != 0; ++r, set >>= 1) {
    if (set & 1) check_rule(static_cast<Rule>(r));
  }
  if (row_->uses(kFieldPattern)) {
    if (i_->dst.num_dims > 4) illegal("a pattern has at most 4 dims");
    constexpr int64_t kLimit = int64_t{1} << 62;  // the steps stay in 64 bits
    if (i_->pattern.base < -kLimit || i_->pattern.base > kLimit) {
      user("the base of the pattern is " + number(i_->pattern.base) + "; the limit is 2^62");
    }
  }
}

void InstructionChecker::expect_elements(const Access& a, std::string_view what, int64_t count) {
  if (a.free_elements() != count) {
    illegal(what + std::string(" has ") + number(a.free_elements()) + " elements per partition instead of " +
            number(count));
  }
}

void InstructionChecker::check_rule(Rule rule) {
  const Instruction& i = *i_;
  switch (rule) {
    case Rule::kSamePartitions:
      return rule_same_partitions();
    case Rule::kSameElements:
      return rule_same_elements();
    case Rule::kSameDtype:
      if (i.src0.present() && i.dst.dtype != i.src0.dtype) {
        illegal("src0 is " + std::string(dtype_name(i.src0.dtype)) + ", dst " + dtype_name(i.dst.dtype) +
                "; the instruction does not cast");
      }
      return;
    case Rule::kOnePsumInput:
      if (i.src0.space == Space::kPsum && i.src1.space == Space::kPsum) {
        illegal("src0 and src1 both lie in PSUM; at most one may. Copy the other to SBUF");
      }
      return;
    case Rule::kOperatorClass:
      return rule_operator_class();
    case Rule::kScalarTensorOperators:
      return rule_scalar_tensor_operators();
    case Rule::kPowerOnGpSimd:
      if (i.op0 == AluOp::kPower && engine_ != Engine::kGpSimd) {
        illegal("power of two tiles exists on gpsimd only");
      }
      return;
    case Rule::kStationaryShape:
      return;  // the operand limits say it all
    case Rule::kMovingShape:
      return rule_moving_shape();
    case Rule::kMatmulDtypes:
      return rule_matmul_dtypes();
    case Rule::kTransposeShape:
      return rule_transpose_shape();
    case Rule::kReduceShape:
      return rule_reduce_shape();
    case Rule::kPartitionReduceShape:
      if (i.dst.num_partitions != 1)
        illegal("dst has " + number(i.dst.num_partitions) + " partitions instead of 1");
      return expect_elements(i.dst, "dst", i.src0.free_elements());
    case Rule::kBnStatsShape:
      return expect_elements(i.dst, "dst", 6);
    case Rule::kBnAggrShape:
      expect_elements(i.dst, "dst", 2);
      if (i.src0.free_elements() % 3 != 0) {
        illegal("src0 has " + number(i.src0.free_elements()) +
                " elements per partition, not a multiple of 3 (count, mean, count*variance)");
      }
      return;
    case Rule::kTop8Source:
      if (i.src0.free_elements() < 8) {
        illegal("src0 has " + number(i.src0.free_elements()) +
                " elements per partition; 8 to 16384 are allowed. Pad it with the lowest value");
      }
      if (i.opcode == Opcode::kMatchReplace8) expect_elements(i.dst, "dst", i.src0.free_elements());
      if (i.aux.present()) expect_elements(i.aux, "aux", 8);
      return;
    case Rule::kTop8Result:
      return expect_elements(i.dst, "dst", 8);
    case Rule::kTop8Values:
      return expect_elements(i.src1, "src1", 8);
    case Rule::kPhiloxShape:
      if (i.src0.num_partitions != 1 || i.src0.free_elements() != 4) {
        illegal("src0 is " + shape(i.src0) +
                " instead of [1, 4]: key low, key high, offset low, offset high");
      }
      return;
    case Rule::kDmaElements:
      if (i.dst.elements() != i.src0.elements()) {
        user("dst " + shape(i.dst) + " has " + number(i.dst.elements()) + " elements, src0 " + shape(i.src0) +
             " has " + number(i.src0.elements()));
      }
      return;
    case Rule::kDmaCast:
      return rule_dma_cast();
    case Rule::kDmaTransposeShape:
      return rule_dma_transpose_shape();
    case Rule::kIndirect:
      return rule_indirect();
    case Rule::kOneWord: {
      const Access& a = i.opcode == Opcode::kRegLoad ? i.src0 : i.dst;
      if (a.elements() != 1) user("the operand " + shape(a) + " is not a single element");
      if (i.has(kFlagWide) != (a.dtype == Dtype::kI64)) {
        illegal("the operand is " + std::string(dtype_name(a.dtype)) +
                (i.has(kFlagWide) ? ", flag wide moves int64" : "; int64 needs flag wide"));
      }
      return;
    }
    case Rule::kRegisterPair: {
      if (!i.has(kFlagWide)) return;
      const auto pair = [&](Field f, uint8_t r, std::string_view what) {
        if (row_->uses(f) && r + 1 >= kNumRegisters) {
          illegal(std::string(what) + " is register " + number(r) +
                  "; flag wide takes it and the next one, 0 to " + number(kNumRegisters - 2));
        }
      };
      pair(kFieldRegDst, i.reg_dst, "reg_dst");
      pair(kFieldRegA, i.reg_a, "reg_a");
      if (!i.has(kFlagImmediate)) pair(kFieldRegB, i.reg_b, "reg_b");
      if (row_->uses(kFieldOp0) && i.op0 != AluOp::kAdd && i.op0 != AluOp::kSubtract &&
          i.op0 != AluOp::kMultiply)
        illegal("64-bit registers add, subtract and multiply; op0 is " + std::string(name(i.op0)));
      return;
    }
    default:
      return check_row_rule(rule);
  }
}

void InstructionChecker::rule_same_partitions() {
  const Instruction& i = *i_;
  for (Slot s : {Slot::kSrc0, Slot::kSrc1, Slot::kAux}) {
    const Access& a = operand(i, s);
    if (!a.present() || row_->operand(s).role == Role::kNone) continue;
    if (a.num_partitions != i.dst.num_partitions) {
      illegal(name(s) + std::string(" has ") + number(a.num_partitions) + " partitions, dst " +
              number(i.dst.num_partitions) + "; they must be equal");
    }
  }
}

void InstructionChecker::rule_same_elements() {
  const Instruction& i = *i_;
  const int64_t want = i.dst.free_elements();
  for (Slot s : {Slot::kSrc0, Slot::kSrc1}) {
    const Access& a = operand(i, s);
    if (!a.present() || row_->operand(s).role == Role::kNone) continue;
    if (a.free_elements() != want) {
      illegal(name(s) + std::string(" has ") + number(a.free_elements()) + " elements per partition, dst " +
              number(want) + "; tiles do not broadcast by themselves, use a step of 0");
    }
  }
}

void InstructionChecker::rule_operator_class() {
  const Instruction& i = *i_;
  const bool second = row_->uses(kFieldOp1) && !no_operator(i.op1);
  const bool bitwise0 = is_bitwise(i.op0), bitwise1 = second && is_bitwise(i.op1);
  if (second && !no_operator(i.op0) && bitwise0 != bitwise1) {
    return illegal("op0 " + std::string(name(i.op0)) + " and op1 " + name(i.op1) +
                   " mix bitwise and arithmetic operators; split the instruction");
  }
  if (!bitwise0 && !bitwise1) return;
  const size_t bytes = dtype_bytes(i.dst.dtype);
  auto check = [&](const Access& a, std::string_view what) {
    if (a.present() && (!is_integer(a.dtype) || dtype_bytes(a.dtype) != bytes)) {
      illegal("bitwise operators do not cast: " + what + " is " + dtype_name(a.dtype) + ", dst " +
              dtype_name(i.dst.dtype) + "; all must be integers of one width");
    }
  };
  check(i.dst, "dst");
  check(i.src0, "src0");
  if (row_->operand(Slot::kSrc1).role != Role::kNone) check(i.src1, "src1");
  auto check_scalar = [&](const ScalarOperand& s, std::string_view what) {
    if (s.kind == ScalarOperand::Kind::kPointer) check(s.pointer, what);
    if (s.kind == ScalarOperand::Kind::kImmediate && s.value != std::floor(s.value)) {
      illegal("bitwise operators need an integer constant: " + what + " is " + std::to_string(s.value));
    }
  };
  if (row_->uses(kFieldImm0) && bitwise0) check_scalar(i.imm0, "imm0");
  if (row_->uses(kFieldImm1) && bitwise1) check_scalar(i.imm1, "imm1");
}

void InstructionChecker::rule_scalar_tensor_operators() {
  const Instruction& i = *i_;
  const AluOp op0 = i.op0, op1 = no_operator(i.op1) ? AluOp::kNone : i.op1;
  if (engine_ == Engine::kScalar) {
    if (!scalar_engine_operators(op0, op1, generation_)) {
      illegal("the scalar engine computes (multiply, add), multiply or add here, not (" +
              std::string(name(op0)) + ", " + name(op1) + "); use the vector engine");
    }
  } else if (engine_ == Engine::kGpSimd) {
    constexpr AluSet kAllowed = bit(AluOp::kNone) | bit(AluOp::kBypass) | bit(AluOp::kAdd) |
                                bit(AluOp::kSubtract) | bit(AluOp::kMultiply) | bit(AluOp::kPower) |
                                bit(AluOp::kRsqrt);
    if (!contains(kAllowed, op0) || !contains(kAllowed, op1)) {
      illegal("gpsimd has add, subtract, multiply, power and rsqrt here, not (" + std::string(name(op0)) +
              ", " + name(op1) + "); use the vector engine");
    }
  }
}

void InstructionChecker::rule_moving_shape() {
  const Instruction& i = *i_;
  const int64_t n = i.src0.free_elements() / std::max(moving_rows(i), 1);
  const int64_t bytes = static_cast<int64_t>(dtype_bytes(i.dst.dtype));
  int64_t limit = limits(generation_).matmul_output_in_one_bank
                      ? limits(generation_).matmul_free_elements
                      : limits(generation_).psum_bytes_per_partition / bytes;
  if (i.opcode == Opcode::kMultiplyMovingMx) limit = std::min(limit, choices_.mx_moving_columns * 4 / bytes);
  if (n > limit) {
    illegal("src0 has " + number(n) + " columns; the limit is " + number(limit) + ". Split the instruction");
  }
  expect_elements(i.dst, "dst", n);
  if (std::binary_search(branch_targets_.begin(), branch_targets_.end(), static_cast<uint32_t>(index_))) {
    stationary_ = Stationary::kUnknown;
  }
  if (stationary_ == Stationary::kNone) {
    return user("no stationary matrix is loaded; a transpose destroys it. Put load_stationary before it");
  }
  if (stationary_ != Stationary::kKnown) return;
  if (!i.tile.whole())
    return user("the stationary matrix was loaded for the whole array; name the same tile in both");
  if (stationary_double_ != i.has(kFlagDoubleRow)) {
    user("flag double_row must be the same as that of load_stationary");
  }
  const uint32_t ratio = i.opcode == Opcode::kMultiplyMovingSparse ? i.count : 0;
  if (stationary_ratio_ != ratio) {
    const auto text = [](uint32_t r) {
      return r == 0 ? std::string("dense") : "sparse with count " + number(r);
    };
    user("the stationary matrix is " + text(stationary_ratio_) + ", the product " + text(ratio));
  }
  if (i.src0.num_partitions != stationary_k_) {
    user("src0 has K = " + number(i.src0.num_partitions) + " partitions, the stationary matrix " +
         number(stationary_k_));
  }
  if (i.dst.num_partitions != stationary_m_) {
    user("dst has " + number(i.dst.num_partitions) +
         " partitions, the stationary matrix M = " + number(stationary_m_) + " columns");
  }
}

void InstructionChecker::rule_matmul_dtypes() {
  const Instruction& i = *i_;
  if (stationary_ != Stationary::kKnown) return;
  const Dtype a = stationary_dtype_, b = i.src0.dtype;
  auto mixes = [&](Dtype x, Dtype y) { return (a == x && b == y) || (a == y && b == x); };
  if (a != b && (wide_float(a) || wide_float(b) || mixes(Dtype::kF8E4M3, Dtype::kF8E4M3FN))) {
    illegal("the stationary matrix is " + std::string(dtype_name(a)) + ", src0 " + dtype_name(b) +
            "; these do not mix. Cast one of them");
  }
}

void InstructionChecker::rule_transpose_shape() {
  const Instruction& i = *i_;
  const int64_t p = i.src0.num_partitions, f = i.src0.free_elements();
  const int64_t dp = i.dst.num_partitions, df = i.dst.free_elements();
  const bool turned = dp == f && df == p;
  if (engine_ == Engine::kTensor) {
    if (f > 128)
      return illegal("src0 has " + number(f) + " columns; the tensor engine transposes at most 128x128");
    if (!turned)
      illegal("src0 is " + shape(i.src0) + ", dst " + shape(i.dst) + "; the transpose has the sides swapped");
    if (one_byte(i.src0.dtype) && df > 1 && i.dst.step[i.dst.num_dims - 1] % 2 != 0) {
      illegal(
          "the tensor engine pads transposed one-byte elements to two bytes: give dst an innermost step of "
          "2");
    }
    return;
  }
  if (p <= 32 && f <= 32) {
    if (!turned)
      illegal("src0 is " + shape(i.src0) + ", dst " + shape(i.dst) + "; the transpose has the sides swapped");
    return;
  }
  if (p % 32 != 0 || f % 32 != 0) {
    return illegal("src0 is " + shape(i.src0) +
                   "; the vector engine transposes one block of up to 32x32, or whole 32x32 "
                   "blocks. Use the tensor engine or dma_transpose for a whole tile");
  }
  if (dp != p || df != f) {
    illegal("src0 is " + shape(i.src0) + ", dst " + shape(i.dst) +
            "; each 32x32 block is transposed in its place");
  }
}

void InstructionChecker::rule_reduce_shape() {
  const Instruction& i = *i_;
  const int dims = i.src0.num_dims;
  if (i.reduce_dims < 1 || i.reduce_dims > dims) {
    return illegal(
        "reduce_dims is " + number(i.reduce_dims) + "; src0 has " + number(dims) +
        " free dims and at least one is reduced. Partitions are reduced by partition_reduce or a matmul");
  }
  int64_t kept = 1;
  for (int d = 0; d < dims - i.reduce_dims; ++d) kept *= i.src0.size[d];
  expect_elements(i.dst, "dst", kept);
}

void InstructionChecker::rule_dma_cast() {
  const Instruction& i = *i_;
  const Dtype a = i.src0.dtype, b = i.dst.dtype;
  if (a == b) return;
  if (i.dge == DgeMode::kHardware) {
    illegal("src0 is " + std::string(dtype_name(a)) + ", dst " + dtype_name(b) +
            "; hardware descriptor generation does not cast. Use static descriptors");
  }
  if (is_opaque(a) || is_opaque(b)) {
    illegal("src0 is " + std::string(dtype_name(a)) + ", dst " + dtype_name(b) +
            "; microscaling dtypes are moved unchanged");
  }
  auto partner = [](Dtype wide, Dtype other) {
    return wide == Dtype::kI64 ? other == Dtype::kI32 || other == Dtype::kU32 : other == Dtype::kF32;
  };
  if ((contains(kDtypes64, a) && !partner(a, b)) || (contains(kDtypes64, b) && !partner(b, a))) {
    illegal("src0 is " + std::string(dtype_name(a)) + ", dst " + dtype_name(b) +
            "; DMA pairs int64 with int32 or uint32 and fp64 with fp32. Cast on chip");
  }
}

void InstructionChecker::rule_dma_transpose_shape() {
  const Instruction& i = *i_;
  const auto rank = [](const Access& a) { return a.num_dims + (a.space != Space::kHbm ? 1 : 0); };
  const auto dim = [](const Access& a, int d) -> int64_t {
    if (a.space == Space::kHbm) return a.size[d];
    return d == 0 ? a.num_partitions : a.size[d - 1];
  };
  if (i.count != 0 && (i.count < 2 || i.count > 4)) {
    return illegal("count is " + number(i.count) + "; a transpose has 2, 3 or 4 dims");
  }
  const int dims = rank(i.src0);
  if (i.count > 2 && dims != static_cast<int>(i.count)) {
    return illegal("src0 " + shape(i.src0) + " has " + number(dims) + " dims, count says " + number(i.count));
  }
  const int64_t first = dims == 0 ? 1 : dim(i.src0, 0);
  int64_t rows = first,
          last = i.count > 2 ? dim(i.src0, dims - 1) : i.src0.elements() / std::max<int64_t>(first, 1);
  const Access& index = i.src1;
  if (index.present()) {
    if (i.dge != DgeMode::kSoftware) illegal("a gathering transpose needs software descriptor generation");
    if (i.src0.space != Space::kHbm) return illegal("src0 lies in sbuf; a gathering transpose reads hbm");
    if (dtype_bytes(i.src0.dtype) != 2) illegal("a gathering transpose moves 2-byte elements");
    rows = index.elements();
    const int64_t p = index.num_partitions;
    if (p < 16 || p % 16 != 0 || (index.free_elements() > 1 && p != kMaxPartitions)) {
      illegal("src1 is " + shape(index) +
              "; the indices are 16 to 128 partitions, a multiple of 16, and 128 "
              "when there are several columns");
    }
    if (last > 128)
      illegal("src0 has a last dim of " + number(last) + "; a gathering transpose takes at most 128");
  } else if (i.has(kFlagSkipOutOfBounds)) {
    user("skip_out_of_bounds has no meaning without indices");
  }
  if (i.dst.num_partitions != last ||
      i.dst.free_elements() * i.dst.num_partitions != Wide{i.src0.elements() / first} * rows) {
    illegal("src0 is " + shape(i.src0) + ", dst " + shape(i.dst) + "; the transpose has the sides swapped");
  }
  if (i.dge == DgeMode::kHardware) {
    if (dtype_bytes(i.src0.dtype) != 2) {
      illegal("hardware descriptors transpose 2-byte elements; use static descriptors");
    }
    if (choices_.hardware_transpose_128) {
      if (last % 128 != 0)
        illegal("hardware descriptors transpose a last dim that is a multiple of 128, not " + number(last));
    } else {
      const int64_t inner = dims > 2 ? dim(i.src0, dims - 2) : 16;
      const bool ok = i.count > 2 ? 16 % first == 0 && first * inner % 16 == 0 : first == 16;
      if (!ok || last > 128) {
        illegal("src0 is " + shape(i.src0) +
                "; hardware descriptors transpose [16, up to 128], or 3 and 4 dims with a "
                "first dim of 1, 2, 4, 8 or 16 whose product with the last but one is a multiple of 16. Use "
                "static "
                "descriptors");
      }
    }
  }
}

void InstructionChecker::rule_indirect() {
  const Instruction& i = *i_;
  const bool gather = i.opcode == Opcode::kDmaGather;
  const Access& table = gather ? i.src0 : i.dst;
  const Access& tile = gather ? i.dst : i.src0;
  const std::string_view tile_name = gather ? "dst" : "src0";
  if (i.dge != DgeMode::kSoftware) {
    illegal("indirect DMA needs software descriptor generation (dge software)");
  }
  if (table.num_dims == 0) return illegal("the HBM operand has no dims; dims[0] is the indexable axis");
  const int64_t row_elements = table.free_elements() / table.size[0];
  if (tile.num_partitions != i.src1.num_partitions) {
    illegal(tile_name + std::string(" has ") + number(tile.num_partitions) + " partitions, the indices " +
            number(i.src1.num_partitions));
  }
  if (tile.free_elements() != i.src1.free_elements() * row_elements) {
    illegal(tile_name + std::string(" has ") + number(tile.free_elements()) +
            " elements per partition instead of " + number(i.src1.free_elements()) + " rows of " +
            number(row_elements));
  }
}

}  // namespace trnsim::isa
