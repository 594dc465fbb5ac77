// Legality and kernels of the rows beyond plain arithmetic: accumulators, microscaling, GpSimd programs, random
// generators. As in choose.cpp, only what values depend on.
#include "isa/names.h"
#include "isa/table.h"
#include "sim/exec/prepared.h"

namespace trnsim::exec {
namespace {

constexpr int kCorePartitions = 16;

std::string text(int64_t v) { return std::to_string(v); }

}  // namespace

void Resolver::scalar_rows(const Prepared& p, const Scalar& s, const char* role) const {
  if (s.pointer != nullptr && s.pointer->rows != p.dst->rows) {
    illegal(std::string(role) + " covers " + text(s.pointer->rows) + " partitions and dst " +
            text(p.dst->rows));
  }
}

void Resolver::elementwise(const Prepared& p, bool with_src0, bool with_src1) const {
  on_chip(p.dst, "dst");
  if (with_src0) {
    on_chip(p.src0, "src0");
    same_shape(p.dst, "dst", p.src0, "src0");
  }
  if (with_src1) {
    on_chip(p.src1, "src1");
    same_shape(p.dst, "dst", p.src1, "src1");
  }
  scalar_rows(p, p.imm0, "imm0");
  scalar_rows(p, p.imm1, "imm1");
}

void Resolver::accumulator(const isa::Instruction& in, const Prepared& p) const {
  if (in.reduce > isa::ReduceCmd::kLoadReduce) illegal("invalid use of the accumulator");
  if (in.reduce == isa::ReduceCmd::kIdle) {
    if (p.aux->present()) illegal("aux is given, but the accumulator is idle");
    return;
  }
  const auto op = static_cast<int>(in.reduce_op);
  if (op >= RowKernels::kAlu || row_kernels().reduce[op] == nullptr) illegal("reduce_op is not a reduction");
  if (!p.aux->present()) return;
  on_chip(p.aux, "aux");
  if (p.aux->rows != p.dst->rows || p.aux->n != 1) illegal("aux must be one element per partition of dst");
}

void Resolver::activation_function(const isa::Instruction& in) const {
  if (in.func >= isa::ActFunc::kCount) illegal("invalid activation function");
}

void Resolver::pe_tile(const isa::Instruction& in) const {
  const isa::PeTile& t = in.tile;
  if (t.whole()) return;
  const auto side = [](int first, int size) {
    return (size == 32 || size == 64 || size == 128) && first % size == 0 &&
           first + size <= isa::kMaxPartitions;
  };
  if (!side(t.row, t.rows) || !side(t.column, t.columns))
    illegal("a tile of the systolic array has sides of 32, 64 or 128");
}

void Resolver::choose_rows(const isa::Instruction& in, Prepared* p) {
  using isa::Opcode;
  const RowKernels& k = row_kernels();
  const auto scalar_op = [&](isa::AluOp op, const char* field) {
    need_alu(op, false, field);
    return k.binary_scalar[0][static_cast<int>(op)];
  };
  const auto groups = [&](const Operand* o, const char* role) {
    on_chip(o, role);
    if (o->rows % kCorePartitions != 0 || o->rows != p->dst->rows) {
      illegal(std::string(role) + " has " + text(o->rows) + " partitions, not those of dst in groups of 16");
    }
  };
  const auto scales = [&](const Operand* o, const Operand* data, int64_t n, const char* role) {
    need(o, role, true, false, false);
    const int64_t rows = data->rows <= 32 ? data->rows / 8 : (data->rows / 32 - 1) * 32 + 4;
    if (data->rows % 32 != 0 || o->rows != rows || o->n != n || o->bytes != 1) {
      illegal(std::string(role) +
              " must hold one byte per 8 partitions and element, 4 rows in each quadrant");
    }
  };
  switch (in.opcode) {
    case Opcode::kLoadStationaryMx:
    case Opcode::kMultiplyMovingMx: {
      need(p->src0, "src0", true, false, false);
      if (!isa::is_packed(p->src0->dtype)) illegal("src0 must be packed");
      scales(p->src1, p->src0, p->src0->n, "src1");
      pe_tile(in);
      if (in.opcode == Opcode::kLoadStationaryMx) {
        if (p->src0->n > isa::kMaxPartitions) illegal("the stationary matrix has more than 128 columns");
        p->fn = execute_load_stationary_mx;
        return;
      }
      need(p->dst, "dst", false, true, false);
      if (!isa::is_float(p->dst->dtype)) illegal("dst must be a float");
      if (p->dst->n != p->src0->n) illegal("dst and the moving matrix differ in columns");
      p->fn = execute_multiply_moving_mx;
      return;
    }
    case Opcode::kQuantizeMx:
      on_chip(p->dst, "dst");
      on_chip(p->src0, "src0");
      if (!isa::is_packed(p->dst->dtype) || p->dst->bytes != 4 || !isa::is_float(p->src0->dtype)) {
        illegal("quantize_mx packs floats by four");
      }
      if (p->dst->rows != p->src0->rows || 4 * p->dst->n != p->src0->n)
        illegal("dst must have a quarter of the elements of src0");
      scales(p->aux, p->src0, p->dst->n, "aux");
      p->fn = execute_quantize_mx;
      return;
    case Opcode::kActivate2: {
      elementwise(*p, true, false);
      activation_function(in);
      accumulator(in, *p);
      need_alu(in.op0, false, "op0");
      need_alu(in.op1, false, "op1");
      p->scalar0_fn = k.binary_scalar[p->has(isa::kFlagReverse0) ? 1 : 0][static_cast<int>(in.op0)];
      p->scalar1_fn = k.binary_scalar[p->has(isa::kFlagReverse1) ? 1 : 0][static_cast<int>(in.op1)];
      p->fn = execute_activate2;
      return;
    }
    case Opcode::kExponential:
      elementwise(*p, true, false);
      accumulator(in, *p);
      p->fn = execute_exponential;
      return;
    case Opcode::kTensorScalarReduce:
      elementwise(*p, true, false);
      accumulator(in, *p);
      p->scalar0_fn = scalar_op(in.op0, "op0");
      p->fn = execute_tensor_scalar_reduce;
      return;
    case Opcode::kTensorScalarCumulative:
      elementwise(*p, true, false);
      accumulator(in, *p);
      p->scalar0_fn = scalar_op(in.op0, "op0");
      need_alu(in.op1, false, "op1");
      if (in.reduce < isa::ReduceCmd::kReduce) illegal("a cumulative instruction runs on the accumulator");
      p->fn = execute_tensor_scalar_cumulative;
      return;
    case Opcode::kRangeSelect:
      elementwise(*p, true, false);
      accumulator(in, *p);
      if (!isa::is_compare(in.op0) || !isa::is_compare(in.op1)) illegal("op0 and op1 must be comparisons");
      p->fn = execute_range_select;
      return;
    case Opcode::kSelectReduce:
      elementwise(*p, true, true);
      accumulator(in, *p);
      p->fn = execute_select_reduce;
      return;
    case Opcode::kStreamShuffle:
      elementwise(*p, true, false);
      if (p->dst->rows % 32 != 0 || p->dst->bytes != p->src0->bytes)
        illegal("a shuffle moves whole quadrants of one dtype");
      for (uint8_t m : in.mask) {
        if (m >= 32 && m != isa::kShuffleKeep)
          illegal("the mask names partition " + text(m) + " of a quadrant");
      }
      p->fn = execute_stream_shuffle;
      return;
    case Opcode::kLocalGather: {
      groups(p->dst, "dst");
      groups(p->src0, "src0");
      groups(p->src1, "src1");
      if (!isa::is_integer(p->src1->dtype) || p->dst->bytes != p->src0->bytes)
        illegal("indices are integers, elements are moved");
      const int64_t all = p->src1->n * kCorePartitions, indices = in.imm > 0 ? in.imm : all;
      if (in.imm < 0 || indices > all || in.count == 0 || p->dst->n != indices * in.count) {
        illegal("dst must hold count elements for each index");
      }
      p->fn = execute_local_gather;
      return;
    }
    case Opcode::kNGather:
      on_chip(p->dst, "dst");
      on_chip(p->src0, "src0");
      on_chip(p->src1, "src1");
      same_shape(p->dst, "dst", p->src1, "src1");
      if (p->dst->rows != p->src0->rows || p->dst->bytes != p->src0->bytes ||
          !isa::is_integer(p->src1->dtype)) {
        illegal("indices are integers, elements are moved inside their partition");
      }
      p->fn = execute_n_gather;
      return;
    case Opcode::kSequenceBounds:
      on_chip(p->dst, "dst");
      on_chip(p->src0, "src0");
      if (p->dst->rows != 1 || p->src0->rows != 1 || p->dst->n != 2 * p->src0->n)
        illegal("dst must be [1, 2, n] for src0 [1, n]");
      p->fn = execute_sequence_bounds;
      return;
    case Opcode::kNonzeroWithCount:
      on_chip(p->dst, "dst");
      on_chip(p->src0, "src0");
      if (p->dst->rows != p->src0->rows || p->dst->n != p->src0->n + 1 || !isa::is_integer(p->dst->dtype)) {
        illegal("dst must hold integers, one more than src0");
      }
      p->fn = execute_nonzero_with_count;
      return;
    case Opcode::kTopk: {
      groups(p->dst, "dst");
      groups(p->src0, "src0");
      groups(p->aux, "aux");
      const auto columns = [](int64_t v) { return (v + kCorePartitions - 1) / kCorePartitions; };
      if (in.imm < 1 || in.count < 1 || in.count > in.imm || p->src0->n < columns(in.imm) ||
          p->dst->n < columns(in.count) || p->aux->n < columns(in.count) || !isa::is_integer(p->aux->dtype)) {
        illegal("topk of " + text(in.imm) + " values does not fit its operands");
      }
      p->fn = execute_topk;
      return;
    }
    case Opcode::kCustom:
      on_chip(p->dst, "dst");
      p->fn = execute_custom;
      return;
    case Opcode::kRng:
      on_chip(p->dst, "dst");
      if (!isa::is_integer(p->dst->dtype)) illegal("dst must have an integer dtype");
      p->fn = execute_rng;
      return;
    case Opcode::kRand2:
      elementwise(*p, false, false);
      p->fn = execute_rand2;
      return;
    case Opcode::kDropout:
      elementwise(*p, true, false);
      if (p->dst->bytes != p->src0->bytes) illegal("dropout does not cast");
      p->fn = execute_dropout;
      return;
    case Opcode::kSetRngSeed:
      on_chip(p->src0, "src0");
      if (p->src0->elements() != 1 || p->src0->bytes != 4) illegal("src0 must be one word");
      p->fn = execute_set_rng_seed;
      return;
    case Opcode::kRandGetState:
    case Opcode::kRandSetState: {
      const bool get = in.opcode == Opcode::kRandGetState;
      const Operand* o = get ? p->dst : p->src0;
      on_chip(o, get ? "dst" : "src0");
      if (o->bytes != 4 || o->n != (in.engine == isa::Engine::kVector ? 24 : 6))
        illegal("the state has 6 or 24 words");
      p->fn = get ? execute_rand_get_state : execute_rand_set_state;
      return;
    }
    case Opcode::kSendRecv:
      need(p->dst, "dst", true, false, false);
      need(p->src0, "src0", true, false, false);
      same_shape(p->dst, "dst", p->src0, "src0");
      if (p->dst->dtype != p->src0->dtype) illegal("an exchange does not cast");
      p->fn = execute_send_recv;
      return;
    default:
      p->fn = execute_nothing;  // control: the sequencer's work
      return;
  }
}

}  // namespace trnsim::exec
