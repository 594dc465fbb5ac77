// Instructions that may reduce their results into the accumulator of their engine: activations, exponentials,
// tensor-scalar with a reduction, selections.
#include <cmath>
#include <limits>

#include "sim/exec/block.h"

namespace trnsim::exec {
namespace {

constexpr float kZero = 0.0f, kOne = 1.0f;
using isa::ReduceCmd;

int op_index(isa::AluOp op) { return static_cast<int>(op); }

// The accumulators of the partitions of dst during one instruction.
class Accumulator {
 public:
  Accumulator(Context& c, const Prepared& p) : c_(c), p_(p) {
    if (p.reduce == ReduceCmd::kIdle) return;
    values_ = c.accumulators(p, *p.dst);
    reduce_ = row_kernels().reduce[op_index(p.reduce_op)];
    adds_ = p.reduce != ReduceCmd::kReset;
    if (p.reduce == ReduceCmd::kReset || p.reduce == ReduceCmd::kResetReduce) {
      float start = 0;  // subtract has no neutral element and begins with 0
      reduce_identity(p.reduce_op, &start);
      std::fill_n(values_, p.dst->rows, start);
    } else if (p.reduce == ReduceCmd::kLoadReduce) {
      const Column start = scalar_column(c, p, p.imm1, 1, &kZero);
      for (int i = 0; i < p.dst->rows; ++i) values_[i] = start.data[i * start.step];
    }
  }
  bool adds() const { return adds_; }
  float* values() const { return values_; }
  void add(const float* v, ptrdiff_t pitch, int partition, int rows, int n) {
    if (adds_) reduce_(v, pitch, values_ + partition, rows, n);
  }
  // aux = accumulators.
  void read_out() {
    const Operand& aux = *p_.aux;
    if (!aux.present()) return;
    float out[isa::kMaxPartitions];
    const float sign =
        p_.has(isa::kFlagNegate) && p_.opcode == isa::Opcode::kTensorScalarReduce ? -1.0f : 1.0f;
    for (int i = 0; i < aux.rows; ++i) out[i] = sign < 0 ? -values_[i] : values_[i];
    store_rows(aux.dtype, out, 1, c_.at(p_, aux), aux.pitch, aux.bytes, aux.rows, 1);
  }

 private:
  Context& c_;
  const Prepared& p_;
  float* values_ = nullptr;
  RowKernels::Reduce reduce_ = nullptr;
  bool adds_ = false;
};

// func over a block; `a` and the result may be the same memory.
void apply_function(Context& c, const Prepared& p, FloatView a, FloatTarget t, int rows, int n) {
  const bool strict = c.core.numerics.strict_activation_range && !std::isinf(isa::act_range(p.func).low);
  if (strict && a.p == t.p) {  // the inputs are needed afterwards
    float* kept = c.work.f[3];
    for (int r = 0; r < rows; ++r) std::copy_n(a.p + r * a.pitch, n, kept + r * n);
    a = {kept, n};
  }
  if (p.func == isa::ActFunc::kPrelu) {
    for (int r = 0; r < rows; ++r) {
      for (int j = 0; j < n; ++j) {
        const float x = a.p[r * a.pitch + j];
        t.p[r * t.pitch + j] = x > 0.0f ? x : x * p.param;
      }
    }
  } else {
    row_kernels().activation[static_cast<int>(p.func)](a.p, a.pitch, t.p, t.pitch, rows, n);
  }
  if (!strict) return;
  const isa::ActRange range = isa::act_range(p.func);
  for (int r = 0; r < rows; ++r) {
    for (int j = 0; j < n; ++j) {
      const float x = a.p[r * a.pitch + j], v = range.by_magnitude ? std::fabs(x) : x;
      if (!(v >= range.low && v <= range.high)) {
        t.p[r * t.pitch + j] = std::numeric_limits<float>::quiet_NaN();
      }
    }
  }
}

}  // namespace

void execute_activation(Context& c, const Prepared& p) {
  const bool plain = !p.imm0.present() && !p.imm1.present();
  if (plain && p.reduce == ReduceCmd::kIdle && p.func == isa::ActFunc::kCopy) {
    execute_copy(c, p);
    return;
  }
  const RowKernels& k = row_kernels();
  const Column scale = scalar_column(c, p, p.imm0, 0, &kOne);
  const Column bias = scalar_column(c, p, p.imm1, 1, &kZero);
  const auto affine = k.fused[op_index(isa::AluOp::kMultiply)][op_index(isa::AluOp::kAdd)];
  const auto multiply = k.binary_scalar[0][op_index(isa::AluOp::kMultiply)];
  const auto add = k.binary_scalar[0][op_index(isa::AluOp::kAdd)];
  Accumulator accumulator(c, p);
  map_float(c, p, [&](FloatView a, FloatTarget t, int partition, int rows, int64_t, int n) {
    if (!plain) {
      const float* s = scale.data + partition * scale.step;
      const float* b = bias.data + partition * bias.step;
      float* m = c.work.f[2];
      if (!p.imm1.present()) {
        multiply(a.p, a.pitch, s, scale.step, m, n, rows, n);
      } else if (!p.imm0.present()) {
        add(a.p, a.pitch, b, bias.step, m, n, rows, n);
      } else {
        affine(a.p, a.pitch, s, scale.step, b, bias.step, m, n, rows, n);
      }
      a = {m, n};
    }
    apply_function(c, p, a, t, rows, n);
    accumulator.add(t.p, t.pitch, partition, rows, n);
  });
  accumulator.read_out();
}

void execute_activate2(Context& c, const Prepared& p) {
  const Column u = scalar_column(c, p, p.imm0, 0, &kZero);
  const Column v = scalar_column(c, p, p.imm1, 1, &kZero);
  Accumulator accumulator(c, p);
  map_float(c, p, [&](FloatView a, FloatTarget t, int partition, int rows, int64_t, int n) {
    float* m = c.work.f[2];
    p.scalar0_fn(a.p, a.pitch, u.data + partition * u.step, u.step, m, n, rows, n);
    p.scalar1_fn(m, n, v.data + partition * v.step, v.step, m, n, rows, n);
    apply_function(c, p, {m, n}, t, rows, n);
    accumulator.add(t.p, t.pitch, partition, rows, n);
  });
  accumulator.read_out();
}

void execute_exponential(Context& c, const Prepared& p) {
  const RowKernels& k = row_kernels();
  const auto subtract = k.binary_scalar[0][op_index(isa::AluOp::kSubtract)];
  const auto exp = k.activation[static_cast<int>(isa::ActFunc::kExp)];
  const Column largest = scalar_column(c, p, p.imm0, 0, &kZero);
  Accumulator accumulator(c, p);
  map_float(c, p, [&](FloatView a, FloatTarget t, int partition, int rows, int64_t, int n) {
    float* m = c.work.f[2];
    subtract(a.p, a.pitch, largest.data + partition * largest.step, largest.step, m, n, rows, n);
    exp(m, n, t.p, t.pitch, rows, n);
    accumulator.add(t.p, t.pitch, partition, rows, n);
  });
  accumulator.read_out();
}

void execute_tensor_scalar_reduce(Context& c, const Prepared& p) {
  const Column u = scalar_column(c, p, p.imm0, 0, &kZero);
  Accumulator accumulator(c, p);
  map_float(c, p, [&](FloatView a, FloatTarget t, int partition, int rows, int64_t, int n) {
    p.scalar0_fn(a.p, a.pitch, u.data + partition * u.step, u.step, t.p, t.pitch, rows, n);
    accumulator.add(t.p, t.pitch, partition, rows, n);
  });
  accumulator.read_out();
}

// Serial along the free axis: as in a scan, partitions are the vector lanes.
void execute_tensor_scalar_cumulative(Context& c, const Prepared& p) {
  const Operand &dst = *p.dst, &src = *p.src0;
  const RowKernels& k = row_kernels();
  const Column u = scalar_column(c, p, p.imm0, 0, &kZero);
  Accumulator accumulator(c, p);
  std::byte* d = c.at(p, dst);
  const std::byte* s = c.at(p, src);
  const auto op1 = k.binary[op_index(p.op1)];
  const int rows = dst.rows;
  const int columns = static_cast<int>(std::min<int64_t>(dst.n, kBlockElements / rows));
  for (int64_t first = 0; first < dst.n; first += columns) {
    const int n = static_cast<int>(std::min<int64_t>(columns, dst.n - first));
    float *rough = c.work.f[0], *x = c.work.f[1];
    load_block(src, s, 0, rows, first, n, rough);
    p.scalar0_fn(rough, n, u.data, u.step, rough, n, rows, n);
    turn_block(rough, rows, n, x);
    const float* r = accumulator.values();
    for (int j = 0; j < n; ++j) {
      op1(x + j * rows, 0, r, 0, x + j * rows, 0, 1, rows);
      r = x + j * rows;
    }
    std::copy_n(r, rows, accumulator.values());
    turn_block(x, n, rows, rough);
    store_block(dst, d, 0, rows, first, n, rough);
  }
}

void execute_range_select(Context& c, const Prepared& p) {
  const RowKernels& k = row_kernels();
  const Column low = scalar_column(c, p, p.imm0, 0, &kZero);
  const Column high = scalar_column(c, p, p.imm1, 1, &kZero);
  const auto compare0 = k.binary_scalar[0][op_index(p.op0)], compare1 = k.binary_scalar[0][op_index(p.op1)];
  Accumulator accumulator(c, p);
  map_float(c, p, [&](FloatView a, FloatTarget t, int partition, int rows, int64_t first, int n) {
    float *index = c.work.f[2], *in = c.work.f[3];
    for (int j = 0; j < n; ++j) index[j] = static_cast<float>(p.imm + first + j);
    for (int r = 0; r < rows; ++r) {
      compare0(index, 0, low.data + (partition + r) * low.step, 0, in, 0, 1, n);
      const float* x = a.p + r * a.pitch;
      float* o = t.p + r * t.pitch;
      for (int j = 0; j < n; ++j) {
        float second;
        compare1(index + j, 0, high.data + (partition + r) * high.step, 0, &second, 0, 1, 1);
        o[j] = in[j] != 0 && second != 0 ? x[j] : -std::numeric_limits<float>::max();
      }
    }
    accumulator.add(t.p, t.pitch, partition, rows, n);
  });
  accumulator.read_out();
}

void execute_select_reduce(Context& c, const Prepared& p) {
  const Column fill = scalar_column(c, p, p.imm0, 0, &kZero);
  const Operand& predicate = *p.src1;
  const std::byte* q = c.at(p, predicate);
  const bool when = !p.has(isa::kFlagNegate);
  Accumulator accumulator(c, p);
  map_float(c, p, [&](FloatView a, FloatTarget t, int partition, int rows, int64_t first, int n) {
    float* take = c.work.f[2];
    load_block(predicate, q, partition, rows, first, n, take);
    for (int r = 0; r < rows; ++r) {
      const float other = fill.data[(partition + r) * fill.step];
      for (int j = 0; j < n; ++j) {
        t.p[r * t.pitch + j] = (take[r * n + j] != 0) == when ? a.p[r * a.pitch + j] : other;
      }
    }
    accumulator.add(t.p, t.pitch, partition, rows, n);
  });
  accumulator.read_out();
}

}  // namespace trnsim::exec
