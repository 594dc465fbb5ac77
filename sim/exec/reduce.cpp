// Reductions along the free axis and over partitions, scans, batch-norm statistics.
#include "sim/exec/block.h"

namespace trnsim::exec {
namespace {

int op_index(isa::AluOp op) { return static_cast<int>(op); }

// -0 for a sum of 0, as a sign flip would give.
void negate(float* v, int n) {
  for (int i = 0; i < n; ++i) v[i] = -v[i];
}
void negate(int64_t* v, int n) {
  for (int i = 0; i < n; ++i) v[i] = static_cast<int64_t>(0 - static_cast<uint64_t>(v[i]));
}

// Groups of `length` consecutive free elements to one element each. Groups up to a block are taken several at
// a time; longer ones are accumulated piece by piece. T: float or int64_t.
template <typename T, typename Load, typename Reduce, typename Store>
void reduce_groups(const Prepared& p, bool has_identity, T identity, T* values, T* acc, Load load,
                   Reduce reduce, Store store) {
  const Operand& dst = *p.dst;
  const int64_t length = p.reduce_length, groups = dst.n;
  const int piece = static_cast<int>(std::min<int64_t>(length, kBlockElements));
  const int at_once =
      piece < length ? 1 : static_cast<int>(std::min<int64_t>(groups, kBlockElements / piece));
  const int rows_at_once =
      at_once < groups ? 1 : std::max<int>(1, static_cast<int>(kBlockElements / (groups * piece)));
  for (int partition = 0; partition < dst.rows; partition += rows_at_once) {
    const int rows = std::min(rows_at_once, dst.rows - partition);
    for (int64_t g = 0; g < groups; g += at_once) {
      const int count = static_cast<int>(std::min<int64_t>(at_once, groups - g));
      const int total = rows * count;
      for (int64_t j = 0; j < length; j += piece) {
        const int n = static_cast<int>(std::min<int64_t>(piece, length - j));
        load(partition, rows, g * length + j, piece < length ? n : count * n, values);
        if (j == 0 && !has_identity) {
          for (int i = 0; i < total; ++i) acc[i] = values[i * n];
          // The first element is in; the rest of each group follows.
          if (n > 1) reduce(values + 1, n, acc, total, n - 1);
          continue;
        }
        if (j == 0) std::fill_n(acc, total, identity);
        reduce(values, n, acc, total, n);
      }
      if (p.has(isa::kFlagNegate)) negate(acc, total);
      store(partition, rows, g, count, acc);
    }
  }
}

}  // namespace

void execute_tensor_reduce(Context& c, const Prepared& p) {
  std::byte* d = c.at(p, *p.dst);
  const std::byte* s = c.at(p, *p.src0);
  float identity = 0;
  const bool has_identity = reduce_identity(p.op0, &identity);
  const auto fn = row_kernels().reduce[op_index(p.op0)];
  reduce_groups<float>(
      p, has_identity, identity, c.work.f[0], c.work.f[1],
      [&](int partition, int rows, int64_t first, int n, float* out) {
        load_block(*p.src0, s, partition, rows, first, n, out);
      },
      [&](const float* v, int pitch, float* acc, int rows, int n) { fn(v, pitch, acc, rows, n); },
      [&](int partition, int rows, int64_t first, int n, const float* in) {
        store_block(*p.dst, d, partition, rows, first, n, in);
      });
}

void execute_tensor_reduce_int(Context& c, const Prepared& p) {
  std::byte* d = c.at(p, *p.dst);
  const std::byte* s = c.at(p, *p.src0);
  int64_t identity = 0;
  const bool has_identity = reduce_identity(p.op0, &identity);
  const auto fn = row_kernels().reduce_int[op_index(p.op0)];
  reduce_groups<int64_t>(
      p, has_identity, identity, c.work.i[0], c.work.i[1],
      [&](int partition, int rows, int64_t first, int n, int64_t* out) {
        load_int_block(*p.src0, s, partition, rows, first, n, out);
      },
      [&](const int64_t* v, int pitch, int64_t* acc, int rows, int n) { fn(v, pitch, acc, rows, n); },
      [&](int partition, int rows, int64_t first, int n, const int64_t* in) {
        store_int_block(*p.dst, d, partition, rows, first, n, in);
      });
}

// Row after row onto the identity (subtract has none: onto the first row).
void execute_partition_reduce(Context& c, const Prepared& p) {
  const Operand &dst = *p.dst, &src = *p.src0;
  std::byte* d = c.at(p, dst);
  const std::byte* s = c.at(p, src);
  const bool average = p.op0 == isa::AluOp::kAverage;
  const isa::AluOp op = average ? isa::AluOp::kAdd : p.op0;
  const auto fn = row_kernels().binary[op_index(op)];
  float identity = 0;
  const bool has_identity = reduce_identity(op, &identity);
  for_each_block(1, dst.n, [&](int, int, int64_t first, int n) {
    float* acc = c.work.f[0];
    if (has_identity) {
      std::fill_n(acc, n, identity);
    } else {
      load_block(src, s, 0, 1, first, n, acc);
    }
    for (int partition = has_identity ? 0 : 1; partition < src.rows; ++partition) {
      const FloatView v = float_view(src, s, partition, 1, first, n, c.work.f[1]);
      fn(acc, n, v.p, v.pitch, acc, n, 1, n);
    }
    if (average) {
      for (int i = 0; i < n; ++i) acc[i] /= static_cast<float>(src.rows);
    }
    store_block(dst, d, 0, 1, first, n, acc);
  });
}

void execute_partition_reduce_int(Context& c, const Prepared& p) {
  const Operand &dst = *p.dst, &src = *p.src0;
  std::byte* d = c.at(p, dst);
  const std::byte* s = c.at(p, src);
  const auto fn = row_kernels().binary_int[op_index(p.op0)];
  int64_t identity = 0;
  const bool has_identity = reduce_identity(p.op0, &identity);
  for_each_block(1, dst.n, [&](int, int, int64_t first, int n) {
    int64_t* acc = c.work.i[0];
    if (has_identity) {
      std::fill_n(acc, n, identity);
    } else {
      load_int_block(src, s, 0, 1, first, n, acc);
    }
    for (int partition = has_identity ? 0 : 1; partition < src.rows; ++partition) {
      load_int_block(src, s, partition, 1, first, n, c.work.i[1]);
      fn(acc, n, c.work.i[1], n, acc, n, 1, n, 64);
    }
    store_int_block(dst, d, 0, 1, first, n, acc);
  });
}

// The recurrence is serial along the free axis, so partitions are the vector lanes: blocks are turned so that
// one step of all partitions is one call of the row kernels.
void execute_scan(Context& c, const Prepared& p) {
  const Operand &dst = *p.dst, &a = *p.src0, &b = *p.src1;
  std::byte* d = c.at(p, dst);
  const std::byte* s0 = c.at(p, a);
  const std::byte* s1 = c.at(p, b);
  const RowKernels& k = row_kernels();
  const auto op0 = k.binary[op_index(p.op0)], op1 = k.binary[op_index(p.op1)];
  const bool reverse0 = p.has(isa::kFlagReverse0), reverse1 = p.has(isa::kFlagReverse1);
  constexpr float kZero = 0.0f;
  const Column initial = scalar_column(c, p, p.imm0, 0, &kZero);
  const int rows = dst.rows;
  float* r = c.work.sum;
  for (int i = 0; i < rows; ++i) r[i] = initial.data[i * initial.step];
  const int columns = static_cast<int>(std::min<int64_t>(dst.n, kBlockElements / rows));
  for (int64_t first = 0; first < dst.n; first += columns) {
    const int n = static_cast<int>(std::min<int64_t>(columns, dst.n - first));
    float *x = c.work.f[0], *y = c.work.f[1], *rough = c.work.f[2];
    load_block(a, s0, 0, rows, first, n, rough);
    turn_block(rough, rows, n, x);
    load_block(b, s1, 0, rows, first, n, rough);
    turn_block(rough, rows, n, y);
    for (int j = 0; j < n; ++j) {
      float* out = x + j * rows;
      const float* z = y + j * rows;
      reverse0 ? op0(r, 0, out, 0, out, 0, 1, rows) : op0(out, 0, r, 0, out, 0, 1, rows);
      reverse1 ? op1(z, 0, out, 0, out, 0, 1, rows) : op1(out, 0, z, 0, out, 0, 1, rows);
      r = out;
    }
    std::copy_n(r, rows, c.work.sum);
    r = c.work.sum;
    turn_block(x, n, rows, rough);
    store_block(dst, d, 0, rows, first, n, rough);
  }
}

void execute_scan_int(Context& c, const Prepared& p) {
  const Operand &dst = *p.dst, &a = *p.src0, &b = *p.src1;
  std::byte* d = c.at(p, dst);
  const std::byte* s0 = c.at(p, a);
  const std::byte* s1 = c.at(p, b);
  const RowKernels& k = row_kernels();
  const auto op0 = k.binary_int[op_index(p.op0)], op1 = k.binary_int[op_index(p.op1)];
  const bool reverse0 = p.has(isa::kFlagReverse0), reverse1 = p.has(isa::kFlagReverse1);
  const ColumnInt initial = scalar_column_int(c, p, p.imm0, 0);
  const int bits = a.bytes * 8;
  // The running value has the width of a register: it wraps like a stored 32-bit value.
  const bool is_unsigned = dst.dtype == isa::Dtype::kU32;
  const auto wrap = [&](int64_t v) {
    return is_unsigned ? static_cast<int64_t>(static_cast<uint32_t>(v))
                       : static_cast<int64_t>(static_cast<int32_t>(v));
  };
  for (int partition = 0; partition < dst.rows; ++partition) {
    int64_t r = initial.data[partition * initial.step];
    for_each_block(1, dst.n, [&](int, int, int64_t first, int n) {
      load_int_block(a, s0, partition, 1, first, n, c.work.i[0]);
      load_int_block(b, s1, partition, 1, first, n, c.work.i[1]);
      for (int j = 0; j < n; ++j) {
        const int64_t *x = c.work.i[0] + j, *y = c.work.i[1] + j;
        reverse0 ? op0(&r, 0, x, 0, &r, 0, 1, 1, bits) : op0(x, 0, &r, 0, &r, 0, 1, 1, bits);
        reverse1 ? op1(y, 0, &r, 0, &r, 0, 1, 1, bits) : op1(&r, 0, y, 0, &r, 0, 1, 1, bits);
        r = wrap(r);
        c.work.i[0][j] = r;
      }
      store_int_block(dst, d, partition, 1, first, n, c.work.i[0]);
    });
  }
}

// Sums in double: the statistics are then exact to FP32 for any order of the elements.
void execute_bn_stats(Context& c, const Prepared& p) {
  const Operand &dst = *p.dst, &src = *p.src0;
  std::byte* d = c.at(p, dst);
  const std::byte* s = c.at(p, src);
  for (int partition = 0; partition < src.rows; ++partition) {
    double sum[2] = {}, squares[2] = {};
    const int64_t count[2] = {(src.n + 1) / 2, src.n / 2};
    const auto pass = [&](auto each) {
      for_each_block(1, src.n, [&](int, int, int64_t first, int n) {
        load_block(src, s, partition, 1, first, n, c.work.f[0]);
        for (int j = 0; j < n; ++j) each((first + j) % 2, c.work.f[0][j]);
      });
    };
    pass([&](int64_t odd, double v) { sum[odd] += v; });
    double mean[2];
    for (int i = 0; i < 2; ++i) mean[i] = count[i] > 0 ? sum[i] / static_cast<double>(count[i]) : 0.0;
    pass([&](int64_t odd, double v) { squares[odd] += (v - mean[odd]) * (v - mean[odd]); });
    float out[6];
    for (int i = 0; i < 2; ++i) {
      out[3 * i] = static_cast<float>(count[i]);
      out[3 * i + 1] = static_cast<float>(mean[i]);
      out[3 * i + 2] = static_cast<float>(squares[i]);
    }
    store_block(dst, d, partition, 1, 0, 6, out);
  }
}

void execute_bn_aggr(Context& c, const Prepared& p) {
  const Operand &dst = *p.dst, &src = *p.src0;
  std::byte* d = c.at(p, dst);
  const std::byte* s = c.at(p, src);
  const auto load = [&](int partition, int64_t group, float* v) {
    load_block(src, s, partition, 1, 3 * group, 3, v);
  };
  for (int partition = 0; partition < src.rows; ++partition) {
    double count = 0, sum = 0, squares = 0;
    float v[3];
    for (int64_t g = 0; g < src.n / 3; ++g) {
      load(partition, g, v);
      count += v[0];
      sum += static_cast<double>(v[0]) * v[1];
    }
    const double mean = sum / count;  // no elements at all: NaN
    for (int64_t g = 0; g < src.n / 3; ++g) {
      load(partition, g, v);
      const double delta = v[1] - mean;
      squares += v[2] + v[0] * delta * delta;
    }
    const float out[2] = {static_cast<float>(mean), static_cast<float>(squares / count)};
    store_block(dst, d, partition, 1, 0, 2, out);
  }
}

}  // namespace trnsim::exec
