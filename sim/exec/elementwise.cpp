// Copies and arithmetic.
#include "sim/exec/block.h"

namespace trnsim::exec {
namespace {

constexpr float kZero = 0.0f;

int op_index(isa::AluOp op) { return static_cast<int>(op); }

void copy_raw(Context& c, const Prepared& p, const Operand& dst, const Operand& src) {
  std::byte* d = c.at(p, dst);
  const std::byte* s = c.at(p, src);
  const auto copy = row_kernels().copy_raw[dst.bytes];
  if (dst.dense) {
    for_each_run(src, 0, src.n, [&](int64_t offset, int64_t at, int64_t length, int64_t step) {
      copy(s + offset, src.pitch, step, d + at * dst.bytes, dst.pitch, dst.bytes, dst.rows, length);
    });
  } else if (src.dense) {
    for_each_run(dst, 0, dst.n, [&](int64_t offset, int64_t at, int64_t length, int64_t step) {
      copy(s + at * src.bytes, src.pitch, src.bytes, d + offset, dst.pitch, step, dst.rows, length);
    });
  } else {
    for_each_block(dst.rows, dst.n, [&](int partition, int rows, int64_t first, int n) {
      load_raw_block(src, s, partition, rows, first, n, c.work.raw[0]);
      store_raw_block(dst, d, partition, rows, first, n, c.work.raw[0]);
    });
  }
}

}  // namespace

void execute_nothing(Context&, const Prepared&) {}

void execute_copy(Context& c, const Prepared& p) {
  const Operand &dst = *p.dst, &src = *p.src0;
  if (same_storage(dst.dtype, src.dtype)) {
    copy_raw(c, p, dst, src);
    return;
  }
  std::byte* d = c.at(p, dst);
  const std::byte* s = c.at(p, src);
  const bool as_fp32 = c.core.numerics.fp32_integers && p.engine != isa::Engine::kGpSimd;
  if (isa::is_integer(dst.dtype) && isa::is_integer(src.dtype) && !as_fp32) {
    for_each_block(dst.rows, dst.n, [&](int partition, int rows, int64_t first, int n) {
      load_int_block(src, s, partition, rows, first, n, c.work.i[0]);
      store_int_block(dst, d, partition, rows, first, n, c.work.i[0]);
    });
    return;
  }
  for_each_block(dst.rows, dst.n, [&](int partition, int rows, int64_t first, int n) {
    const FloatView a = float_view(src, s, partition, rows, first, n, c.work.f[0]);
    if (a.pitch == n) {
      store_block(dst, d, partition, rows, first, n, a.p);
    } else if (dst.dense) {
      store_rows(dst.dtype, a.p, a.pitch, d + partition * dst.pitch + first * dst.bytes, dst.pitch, dst.bytes,
                 rows, n);
    } else {
      load_block(src, s, partition, rows, first, n, c.work.f[0]);
      store_block(dst, d, partition, rows, first, n, c.work.f[0]);
    }
  });
}

void execute_tensor_tensor(Context& c, const Prepared& p) {
  const std::byte* s1 = c.at(p, *p.src1);
  map_float(c, p, [&](FloatView a, FloatTarget t, int partition, int rows, int64_t first, int n) {
    const FloatView b = float_view(*p.src1, s1, partition, rows, first, n, c.work.f[2]);
    p.tensor_fn(a.p, a.pitch, b.p, b.pitch, t.p, t.pitch, rows, n);
  });
}

void execute_tensor_scalar(Context& c, const Prepared& p) {
  const Column u = scalar_column(c, p, p.imm0, 0, &kZero);
  const Column v = scalar_column(c, p, p.imm1, 1, &kZero);
  map_float(c, p, [&](FloatView a, FloatTarget t, int partition, int rows, int64_t, int n) {
    const float* x = u.data + partition * u.step;
    const float* y = v.data + partition * v.step;
    if (p.fused_fn != nullptr) {
      p.fused_fn(a.p, a.pitch, x, u.step, y, v.step, t.p, t.pitch, rows, n);
      return;
    }
    p.scalar0_fn(a.p, a.pitch, x, u.step, t.p, t.pitch, rows, n);
    if (p.scalar1_fn != nullptr) p.scalar1_fn(t.p, t.pitch, y, v.step, t.p, t.pitch, rows, n);
  });
}

void execute_scalar_tensor_tensor(Context& c, const Prepared& p) {
  const Column u = scalar_column(c, p, p.imm0, 0, &kZero);
  const std::byte* s1 = c.at(p, *p.src1);
  const bool reverse = p.has(isa::kFlagReverse1);
  map_float(c, p, [&](FloatView a, FloatTarget t, int partition, int rows, int64_t first, int n) {
    const FloatView b = float_view(*p.src1, s1, partition, rows, first, n, c.work.f[2]);
    // The intermediate never goes to dst, which may be src1.
    float* m = c.work.f[3];
    p.scalar0_fn(a.p, a.pitch, u.data + partition * u.step, u.step, m, n, rows, n);
    if (reverse) {
      p.tensor_fn(b.p, b.pitch, m, n, t.p, t.pitch, rows, n);
    } else {
      p.tensor_fn(m, n, b.p, b.pitch, t.p, t.pitch, rows, n);
    }
  });
}

void execute_tensor_tensor_int(Context& c, const Prepared& p) {
  const Operand &dst = *p.dst, &a = *p.src0, &b = *p.src1;
  std::byte* d = c.at(p, dst);
  const std::byte* s0 = c.at(p, a);
  const std::byte* s1 = c.at(p, b);
  const auto fn = row_kernels().binary_int[op_index(p.op0)];
  for_each_block(dst.rows, dst.n, [&](int partition, int rows, int64_t first, int n) {
    load_int_block(a, s0, partition, rows, first, n, c.work.i[0]);
    load_int_block(b, s1, partition, rows, first, n, c.work.i[1]);
    fn(c.work.i[0], n, c.work.i[1], n, c.work.i[0], n, rows, n, a.bytes * 8);
    store_int_block(dst, d, partition, rows, first, n, c.work.i[0]);
  });
}

void execute_tensor_scalar_int(Context& c, const Prepared& p) {
  const Operand &dst = *p.dst, &a = *p.src0;
  const ColumnInt u = scalar_column_int(c, p, p.imm0, 0);
  const ColumnInt v = scalar_column_int(c, p, p.imm1, 1);
  std::byte* d = c.at(p, dst);
  const std::byte* s = c.at(p, a);
  const RowKernels& k = row_kernels();
  const auto fn0 = k.binary_scalar_int[p.has(isa::kFlagReverse0) ? 1 : 0][op_index(p.op0)];
  const auto fn1 = k.binary_scalar_int[p.has(isa::kFlagReverse1) ? 1 : 0][op_index(p.op1)];
  const int bits = a.bytes * 8;
  for_each_block(dst.rows, dst.n, [&](int partition, int rows, int64_t first, int n) {
    int64_t* x = c.work.i[0];
    load_int_block(a, s, partition, rows, first, n, x);
    fn0(x, n, u.data + partition * u.step, u.step, x, n, rows, n, bits);
    if (p.imm1.present() || isa::is_unary(p.op1))
      fn1(x, n, v.data + partition * v.step, v.step, x, n, rows, n, bits);
    store_int_block(dst, d, partition, rows, first, n, x);
  });
}

void execute_scalar_tensor_tensor_int(Context& c, const Prepared& p) {
  const Operand &dst = *p.dst, &a = *p.src0, &b = *p.src1;
  const ColumnInt u = scalar_column_int(c, p, p.imm0, 0);
  std::byte* d = c.at(p, dst);
  const std::byte* s0 = c.at(p, a);
  const std::byte* s1 = c.at(p, b);
  const RowKernels& k = row_kernels();
  const auto fn0 = k.binary_scalar_int[p.has(isa::kFlagReverse0) ? 1 : 0][op_index(p.op0)];
  const auto fn1 = k.binary_int[op_index(p.op1)];
  const int bits = a.bytes * 8;
  for_each_block(dst.rows, dst.n, [&](int partition, int rows, int64_t first, int n) {
    int64_t *x = c.work.i[0], *y = c.work.i[1];
    load_int_block(a, s0, partition, rows, first, n, x);
    load_int_block(b, s1, partition, rows, first, n, y);
    fn0(x, n, u.data + partition * u.step, u.step, x, n, rows, n, bits);
    if (p.has(isa::kFlagReverse1)) std::swap(x, y);
    fn1(x, n, y, n, x, n, rows, n, bits);
    store_int_block(dst, d, partition, rows, first, n, x);
  });
}

void execute_reciprocal(Context& c, const Prepared& p) {
  const auto fn = row_kernels().activation[static_cast<int>(isa::ActFunc::kReciprocal)];
  map_float(c, p, [&](FloatView a, FloatTarget t, int, int rows, int64_t, int n) {
    fn(a.p, a.pitch, t.p, t.pitch, rows, n);
  });
}

}  // namespace trnsim::exec
