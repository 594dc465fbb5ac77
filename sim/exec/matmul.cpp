// Tensor engine.
#include <dnnl.h>
#include <omp.h>

#include <cstdlib>
#include <cstring>

#include "isa/names.h"
#include "sim/exec/block.h"

namespace trnsim::exec {
namespace {

// Threads of the host for one product. OpenMP would take every processor by default and spin at each
// product's end, which loses much more than it gains when anything else runs (other ranks, the framework's
// own threads). So more than one thread is used only when the user asks for it with OMP_NUM_THREADS.
int host_threads() {
  static const bool asked = std::getenv("OMP_NUM_THREADS") != nullptr;
  return asked ? omp_get_max_threads() : 1;
}

// C[m, n] = beta * C + A[k, m]^T B[k, n], row major.
void multiply(int m, int n, int k, const float* a, int64_t lda, const float* b, int64_t ldb, bool accumulate,
              float* c, int64_t ldc) {
  // Below this size a second thread costs more than it saves.
  constexpr int64_t kThreadedWork = int64_t{1} << 21;
  const int before = omp_get_max_threads();
  const int threads = int64_t{m} * n * k < kThreadedWork ? 1 : host_threads();
  if (threads != before) omp_set_num_threads(threads);
  const dnnl_status_t status =
      dnnl_sgemm('T', 'N', m, n, k, 1.0f, a, lda, b, ldb, accumulate ? 1.0f : 0.0f, c, ldc);
  if (threads != before) omp_set_num_threads(before);
  if (status != dnnl_success) throw Fault{Status::Kind::kIllegal, "the host matrix product failed"};
}

}  // namespace

// The stationary matrix is copied: the array holds it, and its SBUF memory may be overwritten before it is
// used.
void execute_load_stationary(Context& c, const Prepared& p) {
  const Operand& src = *p.src0;
  const int rows = src.rows, columns = static_cast<int>(src.n);
  const std::byte* s = c.at(p, src);
  const RowKernels& k = row_kernels();
  const auto load = k.load[static_cast<int>(src.dtype)];
  float* out = c.work.stationary;
  for_each_run(src, 0, columns, [&](int64_t offset, int64_t at, int64_t length, int64_t step) {
    load(s + offset, src.pitch, step, out + at, columns, rows, static_cast<int>(length));
  });
  if (src.dtype == isa::Dtype::kF32R) k.round_tf32(out, columns, out, columns, rows, columns);
  c.core.stationary_rows = rows;
  c.core.stationary_columns = columns;
}

void execute_multiply_moving(Context& c, const Prepared& p) {
  const Operand &src = *p.src0, &dst = *p.dst;
  const int k_rows = c.core.stationary_rows, m = c.core.stationary_columns;
  if (k_rows == 0) {
    throw Fault{
        Status::Kind::kIllegal,
        "no stationary matrix is loaded (a transpose on the tensor engine destroys it); at " + c.where(p)};
  }
  if (src.rows != k_rows || dst.rows != m) {
    throw Fault{Status::Kind::kIllegal, "the stationary matrix is [" + std::to_string(k_rows) + ", " +
                                            std::to_string(m) + "], the moving matrix has " +
                                            std::to_string(src.rows) + " rows and dst " +
                                            std::to_string(dst.rows) + " partitions; at " + c.where(p)};
  }
  const std::byte* s = c.at(p, src);
  std::byte* d = c.at(p, dst);
  const RowKernels& k = row_kernels();
  const bool accumulate = p.has(isa::kFlagAccumulate);
  constexpr int kChunk = 512;
  for (int64_t first = 0; first < src.n; first += kChunk) {
    const int n = static_cast<int>(std::min<int64_t>(kChunk, src.n - first));
    const float* b = c.work.moving;
    int64_t ldb = n;
    if (src.direct_f32 && src.dtype == isa::Dtype::kF32) {
      b = reinterpret_cast<const float*>(s) + first;
      ldb = src.pitch / 4;
    } else {
      load_block(src, s, 0, k_rows, first, n, c.work.moving);
      if (src.dtype == isa::Dtype::kF32R) k.round_tf32(b, n, c.work.moving, n, k_rows, n);
    }
    if (dst.direct_f32) {
      multiply(m, n, k_rows, c.work.stationary, m, b, ldb, accumulate, reinterpret_cast<float*>(d) + first,
               dst.pitch / 4);
    } else {
      if (accumulate) load_block(dst, d, 0, m, first, n, c.work.product);
      multiply(m, n, k_rows, c.work.stationary, m, b, ldb, accumulate, c.work.product, n);
      store_block(dst, d, 0, m, first, n, c.work.product);
    }
  }
}

namespace {

// dst [F, P] = src [P, F]^T for any operands. Same dtype: exact; otherwise through FP32.
void transpose_any(Context& c, const Prepared& p, const std::byte* s, std::byte* d, int rows, int columns) {
  const Operand &src = *p.src0, &dst = *p.dst;
  if (same_storage(src.dtype, dst.dtype)) {
    const auto transpose = row_kernels().transpose[src.bytes];
    if (src.dense && dst.dense) {
      transpose(s, src.pitch, d, dst.pitch, rows, columns);
      return;
    }
    std::byte* in = reinterpret_cast<std::byte*>(c.work.moving);
    std::byte* out = reinterpret_cast<std::byte*>(c.work.product);
    load_raw_block(src, s, 0, rows, 0, columns, in);
    transpose(in, ptrdiff_t{columns} * src.bytes, out, ptrdiff_t{rows} * src.bytes, rows, columns);
    store_raw_block(dst, d, 0, columns, 0, rows, out);
    return;
  }
  load_block(src, s, 0, rows, 0, columns, c.work.moving);
  row_kernels().transpose[4](reinterpret_cast<const std::byte*>(c.work.moving), ptrdiff_t{columns} * 4,
                             reinterpret_cast<std::byte*>(c.work.product), ptrdiff_t{rows} * 4, rows,
                             columns);
  store_block(dst, d, 0, columns, 0, rows, c.work.product);
}

}  // namespace

void execute_transpose_tensor(Context& c, const Prepared& p) {
  transpose_any(c, p, c.at(p, *p.src0), c.at(p, *p.dst), p.src0->rows, static_cast<int>(p.src0->n));
  c.core.stationary_rows = 0;
}

void execute_transpose_vector(Context& c, const Prepared& p) {
  const Operand &src = *p.src0, &dst = *p.dst;
  const std::byte* s = c.at(p, src);
  std::byte* d = c.at(p, dst);
  if (src.rows <= 32 && src.n <= 32) {
    // Through the work buffers even when both are dense: dst may be src.
    const int rows = src.rows, columns = static_cast<int>(src.n);
    load_raw_block(src, s, 0, rows, 0, columns, c.work.raw[0]);
    row_kernels().transpose[src.bytes](c.work.raw[0], ptrdiff_t{columns} * src.bytes, c.work.raw[1],
                                       ptrdiff_t{rows} * src.bytes, rows, columns);
    store_raw_block(dst, d, 0, columns, 0, rows, c.work.raw[1]);
    return;
  }
  for (int partition = 0; partition < src.rows; partition += 32) {
    for (int64_t first = 0; first < src.n; first += 32) {
      load_raw_block(src, s, partition, 32, first, 32, c.work.raw[0]);
      row_kernels().transpose[src.bytes](c.work.raw[0], ptrdiff_t{32} * src.bytes, c.work.raw[1],
                                         ptrdiff_t{32} * src.bytes, 32, 32);
      store_raw_block(dst, d, partition, 32, first, 32, c.work.raw[1]);
    }
  }
}

}  // namespace trnsim::exec
