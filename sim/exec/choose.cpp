// Legality of the operands as far as values depend on it, and the kernel of each instruction. The full rules
// of the hardware are the validator's (isa).
#include <cmath>

#include "isa/names.h"
#include "isa/table.h"
#include "sim/exec/prepared.h"

namespace trnsim::exec {
namespace {

bool integer_operand(const Operand* o) { return !o->present() || isa::is_integer(o->dtype); }

// An immediate that is not a whole number sends an integer instruction through FP32.
bool integer_scalar(const Scalar& s) {
  if (!s.present()) return true;
  if (s.pointer != nullptr) return isa::is_integer(s.pointer->dtype);
  return std::fabs(s.value) < 9.2e18f && std::trunc(s.value) == s.value;
}

int at(isa::AluOp op) { return static_cast<int>(op); }

// GpSimd computes integers as such; numerics.fp32_integers decides on the others.
bool may_be_fp32(const Prepared& p, bool integer) { return integer && p.engine != isa::Engine::kGpSimd; }

bool has_integer_form(isa::AluOp op) {
  return op < isa::AluOp::kCount && row_kernels().binary_int[at(op)] != nullptr;
}

}  // namespace

void Resolver::choose_elementwise(Prepared* p) {
  const RowKernels& k = row_kernels();
  const bool second = p->opcode != isa::Opcode::kTensorTensor;
  // rsqrt and reciprocal have no integer form.
  const bool integer = integer_operand(p->dst) && integer_operand(p->src0) && integer_operand(p->src1) &&
                       integer_scalar(p->imm0) && integer_scalar(p->imm1) && has_integer_form(p->op0) &&
                       (!second || has_integer_form(p->op1));
  const bool as_fp32 = may_be_fp32(*p, integer) && !isa::is_bitwise(p->op0) && !isa::is_bitwise(p->op1);
  const int reverse0 = p->has(isa::kFlagReverse0) ? 1 : 0, reverse1 = p->has(isa::kFlagReverse1) ? 1 : 0;
  need_alu(p->op0, integer, "op0");
  need_alu(p->op1, integer, "op1");
  switch (p->opcode) {
    case isa::Opcode::kTensorTensor:
      p->fn = integer ? execute_tensor_tensor_int : execute_tensor_tensor;
      if (as_fp32) p->fp32_fn = execute_tensor_tensor;
      if (reverse0) std::swap(p->src0, p->src1);
      p->tensor_fn = k.binary[at(p->op0)];
      return;
    case isa::Opcode::kTensorScalar:
      p->fn = integer ? execute_tensor_scalar_int : execute_tensor_scalar;
      if (as_fp32) p->fp32_fn = execute_tensor_scalar;
      if (!integer || as_fp32) {
        p->scalar0_fn = k.binary_scalar[reverse0][at(p->op0)];
        const bool applies = p->imm1.present() || isa::is_unary(p->op1);
        p->scalar1_fn = applies ? k.binary_scalar[reverse1][at(p->op1)] : nullptr;
        if (!reverse0 && !reverse1 && p->scalar1_fn != nullptr) p->fused_fn = k.fused[at(p->op0)][at(p->op1)];
      }
      break;
    default:
      p->fn = integer ? execute_scalar_tensor_tensor_int : execute_scalar_tensor_tensor;
      if (as_fp32) p->fp32_fn = execute_scalar_tensor_tensor;
      if (!integer || as_fp32) {
        p->scalar0_fn = k.binary_scalar[reverse0][at(p->op0)];
        p->tensor_fn = k.binary[at(p->op1)];
      }
  }
  const auto needs_value = [](isa::AluOp op) {
    return op != isa::AluOp::kNone && op != isa::AluOp::kBypass && !isa::is_unary(op);
  };
  if (needs_value(p->op0) && !p->imm0.present()) illegal("op0 has no scalar operand imm0");
  if (p->opcode == isa::Opcode::kTensorScalar && needs_value(p->op1) && !p->imm1.present()) {
    illegal("op1 has no scalar operand imm1");
  }
}

// With flag wide a register is one of two.
void Resolver::need_pair(const isa::Instruction& in) const {
  for (uint8_t r : {in.reg_dst, in.reg_a, in.has(isa::kFlagImmediate) ? uint8_t{0} : in.reg_b}) {
    if (isa::last_register(in, r) >= isa::kNumRegisters)
      illegal("flag wide takes the register and the next one");
  }
}

void Resolver::choose(const isa::Instruction& in, Prepared* p) {
  using isa::Opcode;
  const RowKernels& k = row_kernels();
  const auto affine_dims = [&] {
    if (in.dst.num_dims > 4) illegal("dst has more than 4 dims");
    p->pattern = in.pattern;
    p->affine_dims = in.dst.num_dims;
    for (int i = 0; i < in.dst.num_dims; ++i)
      p->affine_size[static_cast<size_t>(i)] = in.dst.size[static_cast<size_t>(i)];
  };
  // Column of 8 results or values.
  const auto eight = [&](const Operand* o, const char* role) {
    on_chip(o, role);
    if (o->n != 8 || o->rows != p->src0->rows) {
      illegal(std::string(role) + " must have 8 elements in each partition of src0");
    }
  };

  switch (in.opcode) {
    case Opcode::kLoadStationary:
      need(p->src0, "src0", true, false, false);
      if (p->src0->n > isa::kMaxPartitions * (p->has(isa::kFlagDoubleRow) ? 2 : 1)) {
        illegal("the stationary matrix has more than 128 columns");
      }
      if (!isa::is_float(p->src0->dtype)) illegal("the tensor engine multiplies float dtypes only");
      pe_tile(in);
      p->fn = execute_load_stationary;
      return;
    case Opcode::kLoadStationarySparse:
      need(p->src0, "src0", true, false, false);
      need(p->src1, "src1", true, false, false);
      if (!isa::is_float(p->src0->dtype)) illegal("the tensor engine multiplies float dtypes only");
      if (in.count < 2 || in.count > isa::kMaxSparseRatio) illegal("count must be 2, 3 or 4");
      if (p->src0->n > isa::kMaxPartitions || p->src0->n % 4 != 0 ||
          p->src0->rows % isa::kSparsePartitions != 0)
        illegal("rows and columns must be multiples of 4, at most 128");
      if (p->src1->bytes != 2 || p->src1->rows != p->src0->rows || p->src1->n != p->src0->n / 4)
        illegal("src1 must hold four positions in each element");
      p->fn = execute_load_stationary_sparse;
      return;
    case Opcode::kMultiplyMovingSparse:
      if (in.count < 2 || in.count > isa::kMaxSparseRatio) illegal("count must be 2, 3 or 4");
      [[fallthrough]];
    case Opcode::kMultiplyMoving:
      need(p->src0, "src0", true, false, false);
      need(p->dst, "dst", false, true, false);
      if (!isa::is_float(p->src0->dtype) || !isa::is_float(p->dst->dtype)) {
        illegal("the tensor engine multiplies float dtypes only");
      }
      if (p->src0->n > 16384) illegal("the moving matrix has more than 8192 columns");
      if (p->dst->n * isa::moving_rows(in) != p->src0->n) {
        illegal("dst and the moving matrix differ in columns");
      }
      pe_tile(in);
      p->fn = execute_multiply_moving;
      return;
    case Opcode::kTranspose: {
      on_chip(p->src0, "src0");
      on_chip(p->dst, "dst");
      if (p->src0->n > isa::kMaxPartitions && in.engine == isa::Engine::kTensor) {
        illegal("src0 has more than 128 elements per partition");
      }
      const bool swapped = p->dst->rows == p->src0->n && p->dst->n == p->src0->rows;
      if (in.engine == isa::Engine::kTensor) {
        if (!swapped) illegal("dst must be the transposed shape of src0");
        p->fn = execute_transpose_tensor;
        return;
      }
      const bool blocks = p->src0->rows % 32 == 0 && p->src0->n % 32 == 0 && p->dst->rows == p->src0->rows &&
                          p->dst->n == p->src0->n;
      const bool single = p->src0->rows <= 32 && p->src0->n <= 32 && swapped;
      if (!blocks && !single) {
        illegal(
            "a vector-engine transpose needs [P, F] of whole 32x32 blocks with dst of the same shape, or one "
            "block "
            "of at most 32x32 with dst [F, P]");
      }
      if (p->src0->dtype != p->dst->dtype) illegal("a vector-engine transpose does not cast");
      p->fn = execute_transpose_vector;
      return;
    }
    case Opcode::kCopy:
      elementwise(*p, true, false);
      p->fn = execute_copy;
      return;
    case Opcode::kTensorTensor:
      elementwise(*p, true, true);
      choose_elementwise(p);
      return;
    case Opcode::kTensorScalar:
      elementwise(*p, true, false);
      choose_elementwise(p);
      return;
    case Opcode::kScalarTensorTensor:
      elementwise(*p, true, true);
      choose_elementwise(p);
      return;
    case Opcode::kActivation:
      elementwise(*p, true, false);
      activation_function(in);
      accumulator(in, *p);
      p->fn = execute_activation;
      return;
    case Opcode::kActTableLoad:
      p->fn = execute_nothing;  // an effect on time only
      return;
    case Opcode::kCopyPredicated:
      elementwise(*p, p->src0->present(), true);
      if (p->src0->present() == p->imm0.present()) illegal("give src0 or imm0, one of the two");
      p->fn = execute_copy_predicated;
      return;
    case Opcode::kReciprocal:
      elementwise(*p, true, false);
      p->fn = execute_reciprocal;
      return;
    case Opcode::kMemset:
      elementwise(*p, false, false);
      if (!p->imm0.present()) illegal("imm0 is missing");
      p->fn = execute_memset;
      return;
    case Opcode::kIota:
      elementwise(*p, false, false);
      affine_dims();
      p->fn = execute_iota;
      return;
    case Opcode::kAffineSelect:
      elementwise(*p, true, false);
      affine_dims();
      if (!isa::is_compare(in.op0)) illegal("op0 must be a comparison");
      p->fn = execute_affine_select;
      return;
    case Opcode::kTensorReduce: {
      on_chip(p->dst, "dst");
      on_chip(p->src0, "src0");
      if (in.reduce_dims == 0 || in.reduce_dims > in.src0.num_dims) {
        illegal("reduce_dims must name 1 to all of the dims of src0");
      }
      p->reduce_length = 1;
      for (int i = in.src0.num_dims - in.reduce_dims; i < in.src0.num_dims; ++i) {
        p->reduce_length *= in.src0.size[static_cast<size_t>(i)];
      }
      if (p->dst->rows != p->src0->rows || p->dst->n * p->reduce_length != p->src0->n) {
        illegal("dst must have one element per reduced group of src0");
      }
      const bool integer = integer_operand(p->dst) && integer_operand(p->src0);
      if (integer ? k.reduce_int[at(in.op0)] == nullptr : k.reduce[at(in.op0)] == nullptr) {
        illegal("op0 " + std::string(isa::name(in.op0)) + " does not reduce these dtypes");
      }
      p->fn = integer ? execute_tensor_reduce_int : execute_tensor_reduce;
      if (may_be_fp32(*p, integer) && k.reduce[at(in.op0)] != nullptr) p->fp32_fn = execute_tensor_reduce;
      return;
    }
    case Opcode::kPartitionReduce: {
      on_chip(p->dst, "dst");
      on_chip(p->src0, "src0");
      if (p->dst->rows != 1 || p->dst->n != p->src0->n) illegal("dst must be [1, N] for src0 [P, N]");
      if (in.op0 == isa::AluOp::kAverage) {
        p->fn = execute_partition_reduce;
        return;
      }
      const bool integer = integer_operand(p->dst) && integer_operand(p->src0);
      if (integer ? k.reduce_int[at(in.op0)] == nullptr : k.reduce[at(in.op0)] == nullptr) {
        illegal("op0 " + std::string(isa::name(in.op0)) + " does not reduce these dtypes");
      }
      p->fn = integer ? execute_partition_reduce_int : execute_partition_reduce;
      return;
    }
    case Opcode::kTensorTensorScan: {
      elementwise(*p, true, true);
      const bool integer = integer_operand(p->dst) && integer_operand(p->src0) && integer_operand(p->src1) &&
                           integer_scalar(p->imm0);
      need_alu(in.op0, integer, "op0");
      need_alu(in.op1, integer, "op1");
      p->fn = integer ? execute_scan_int : execute_scan;
      if (may_be_fp32(*p, integer) && !isa::is_bitwise(in.op0) && !isa::is_bitwise(in.op1))
        p->fp32_fn = execute_scan;
      return;
    }
    case Opcode::kBnStats:
      on_chip(p->dst, "dst");
      on_chip(p->src0, "src0");
      if (p->dst->rows != p->src0->rows || p->dst->n != 6)
        illegal("dst must have 6 elements per partition of src0");
      p->fn = execute_bn_stats;
      return;
    case Opcode::kBnAggr:
      on_chip(p->dst, "dst");
      on_chip(p->src0, "src0");
      if (p->dst->rows != p->src0->rows || p->dst->n != 2)
        illegal("dst must have 2 elements per partition of src0");
      if (p->src0->n % 3 != 0) illegal("src0 must hold groups of 3 elements (count, mean, count*variance)");
      p->fn = execute_bn_aggr;
      return;
    case Opcode::kMax8:
      on_chip(p->src0, "src0");
      eight(p->dst, "dst");
      if (p->src0->n < 8) illegal("src0 must have at least 8 elements per partition");
      p->fn = execute_max8;
      return;
    case Opcode::kMaxIndex8:
      on_chip(p->src0, "src0");
      eight(p->src1, "src1");
      eight(p->dst, "dst");
      if (!isa::is_integer(p->dst->dtype)) illegal("dst must have an integer dtype");
      p->fn = execute_max_index8;
      return;
    case Opcode::kMatchReplace8:
      elementwise(*p, true, false);
      eight(p->src1, "src1");
      if (p->aux->present()) {
        eight(p->aux, "aux");
        if (!isa::is_integer(p->aux->dtype)) illegal("aux holds indices and needs an integer dtype");
      }
      p->fn = execute_match_replace8;
      return;
    case Opcode::kPhilox:
      on_chip(p->dst, "dst");
      need(p->src0, "src0", true, true, false);
      if (p->src0->rows != 1 || p->src0->n != 4 || p->src0->bytes != 4) {
        illegal("src0 must be 4 words (key low, key high, offset low, offset high) in one partition");
      }
      if (!isa::is_integer(p->dst->dtype)) illegal("dst must have an integer dtype");
      if (in.pattern.base < 0) illegal("pattern.base must not be negative");
      p->pattern = in.pattern;
      p->fn = execute_philox;
      return;
    case Opcode::kDmaCopy:
    case Opcode::kDmaTranspose:
    case Opcode::kDmaGather:
    case Opcode::kDmaScatter:
    case Opcode::kDmaCompute:
      choose_dma(in, p);
      return;
    case Opcode::kRegMove:
      need_pair(in);
      p->fn = execute_reg_move;
      return;
    case Opcode::kRegAlu:
      if (in.op0 == isa::AluOp::kPower || in.op0 >= isa::AluOp::kCount)
        illegal("op0 is not a register operation");
      need_pair(in);
      p->fn = execute_reg_alu;
      return;
    case Opcode::kRegLoad:
      need(p->src0, "src0", true, true, true);
      if (p->src0->elements() != 1) illegal("src0 must be one element");
      if (in.has(isa::kFlagWide) && p->src0->dtype != isa::Dtype::kI64) illegal("flag wide loads int64");
      need_pair(in);
      p->fn = execute_reg_load;
      return;
    case Opcode::kRegStore:
      need(p->dst, "dst", true, true, true);
      if (p->dst->elements() != 1 || p->dst->bytes < 4)
        illegal("dst must be one element of at least 4 bytes");
      if (in.has(isa::kFlagWide) && p->dst->dtype != isa::Dtype::kI64) illegal("flag wide stores int64");
      need_pair(in);
      p->fn = execute_reg_store;
      return;
    case Opcode::kBranch:
      if (!isa::is_compare(in.op0)) illegal("op0 of a branch must be a comparison");
      p->fn = execute_nothing;
      return;
    default:
      choose_rows(in, p);
  }
}

}  // namespace trnsim::exec
