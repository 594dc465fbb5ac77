// Tensor engine.
#include "sim/exec/matmul.h"

#include <dnnl.h>
#include <omp.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "isa/names.h"
#include "isa/table.h"

namespace trnsim::exec {
namespace {

// Threads of the host for one product. OpenMP would take every processor by default and spin at each
// product's end, which loses much more than it gains when anything else runs (other ranks, the framework's
// own threads). So more than one thread is used only when the user asks for it with OMP_NUM_THREADS.
int host_threads() {
  static const bool asked = std::getenv("OMP_NUM_THREADS") != nullptr;
  return asked ? omp_get_max_threads() : 1;
}

// No handler of a signal runs while this lives: inside the generated code of dnnl_sgemm (oneDNN 2.6) the frame of a
// handler would overwrite memory of others, so that Ctrl-C, a timer or a profiler would corrupt the heap. Faults of the
// thread itself are not held back.
class SignalsHeld {
 public:
  SignalsHeld() { pthread_sigmask(SIG_BLOCK, &asynchronous(), &before_); }
  ~SignalsHeld() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;

  // For good, in the threads that help this one.
  static void in_helpers(int threads) {
#pragma omp parallel num_threads(threads)
    if (omp_get_thread_num() != 0) pthread_sigmask(SIG_BLOCK, &asynchronous(), nullptr);
  }

 private:
  static const sigset_t& asynchronous() {
    static const sigset_t set = [] {
      sigset_t s;
      sigfillset(&s);
      for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) sigdelset(&s, fault);
      return s;
    }();
    return set;
  }
  sigset_t before_;
};

// C[m, n] = beta * C + A[k, m]^T B[k, n], row major.
void multiply(int m, int n, int k, const float* a, int64_t lda, const float* b, int64_t ldb, bool accumulate,
              float* c, int64_t ldc) {
  // Below this size a second thread costs more than it saves.
  constexpr int64_t kThreadedWork = int64_t{1} << 21;
  const int before = omp_get_max_threads();
  const int threads = int64_t{m} * n * k < kThreadedWork ? 1 : host_threads();
  if (threads != before) omp_set_num_threads(threads);
  const SignalsHeld held;
  if (threads > 1) SignalsHeld::in_helpers(threads);
  const dnnl_status_t status =
      dnnl_sgemm('T', 'N', m, n, k, 1.0f, a, lda, b, ldb, accumulate ? 1.0f : 0.0f, c, ldc);
  if (threads != before) omp_set_num_threads(before);
  if (status != dnnl_success) throw Fault{Status::Kind::kIllegal, "the host matrix product failed"};
}

}  // namespace

namespace {

constexpr int kCell = 32, kCells = 4;
int cell_of(const isa::PeTile& t) { return t.row / kCell * kCells + t.column / kCell; }
bool overlap(const isa::PeTile& a, const isa::PeTile& b) {
  const auto apart = [](int p, int n, int q, int m) { return p + n <= q || q + m <= p; };
  return a.whole() || b.whole() ||
         (!apart(a.row, a.rows, b.row, b.rows) && !apart(a.column, a.columns, b.column, b.columns));
}

}  // namespace

float* set_stationary(Context& c, const Prepared& p, int partitions, int k, int m) {
  for (Stationary& s : c.core.stationary) {
    if (s.rows != 0 && overlap(s.tile, p.tile)) s = {};
  }
  const auto cell = static_cast<size_t>(cell_of(p.tile));
  c.core.stationary[cell] = {p.tile, k, m, partitions};
  return c.work.stationary[cell];
}

StationaryMatrix find_stationary(Context& c, const Prepared& p, int partitions, int k) {
  const auto cell = static_cast<size_t>(cell_of(p.tile));
  const Stationary& s = c.core.stationary[cell];
  if (s.rows == 0 || !(s.tile == p.tile)) {
    throw Fault{
        Status::Kind::kIllegal,
        "no stationary matrix is loaded in this tile (a transpose on the tensor engine destroys it); at " +
            c.where(p)};
  }
  if (partitions != s.partitions || k != s.rows || p.dst->rows != s.columns) {
    throw Fault{Status::Kind::kIllegal, "the stationary matrix is [" + std::to_string(s.partitions) + ", " +
                                            std::to_string(s.columns) + "] with " + std::to_string(s.rows) +
                                            " values per column, the moving matrix has " +
                                            std::to_string(partitions) + " partitions and " +
                                            std::to_string(k) + " values, dst " +
                                            std::to_string(p.dst->rows) + " partitions; at " + c.where(p)};
  }
  return {c.work.stationary[cell], s.rows, s.columns};
}

void multiply_into(Context& c, const Prepared& p, const StationaryMatrix& a, const float* b, int64_t ldb,
                   int64_t first, int n) {
  const Operand& dst = *p.dst;
  std::byte* d = c.at(p, dst);
  const bool accumulate = p.has(isa::kFlagAccumulate);
  if (dst.direct_f32) {
    multiply(a.m, n, a.k, a.data, a.m, b, ldb, accumulate, reinterpret_cast<float*>(d) + first,
             dst.pitch / 4);
    return;
  }
  if (accumulate) load_block(dst, d, 0, a.m, first, n, c.work.product);
  multiply(a.m, n, a.k, a.data, a.m, b, ldb, accumulate, c.work.product, n);
  store_block(dst, d, 0, a.m, first, n, c.work.product);
}

// The stationary matrix is copied: the array holds it, and its SBUF memory may be overwritten before it is
// used.
void execute_load_stationary(Context& c, const Prepared& p) {
  const Operand& src = *p.src0;
  const int rows = src.rows, columns = static_cast<int>(src.n) / isa::moving_rows(p);
  const std::byte* s = c.at(p, src);
  float* out = set_stationary(c, p, rows, rows * isa::moving_rows(p), columns);
  for (int j = 0; j < isa::moving_rows(p); ++j) {
    load_block(src, s, 0, rows, int64_t{j} * columns, columns, out + int64_t{j} * rows * columns);
  }
  if (src.dtype == isa::Dtype::kF32R) row_kernels().round_tf32(out, columns, out, columns, rows, columns);
}

// The sparse matrix as a dense one: row c * rows + 4g + j for the value at position 4c + j of block g.
void execute_load_stationary_sparse(Context& c, const Prepared& p) {
  constexpr int kBlock = isa::kSparsePartitions, kTagBits = 4, kTags = 4;
  const Operand &src = *p.src0, &tags = *p.src1;
  const int rows = src.rows, columns = static_cast<int>(src.n), ratio = static_cast<int>(p.count);
  const std::byte* s = c.at(p, src);
  const std::byte* t = c.at(p, tags);
  float* out = set_stationary(c, p, rows, rows * ratio, columns);
  float* kept = c.work.moving;
  load_block(src, s, 0, rows, 0, columns, kept);
  std::fill_n(out, int64_t{rows} * ratio * columns, 0.0f);
  for (int k = 0; k < rows; ++k) {
    std::array<uint16_t, isa::kMaxPartitions / kTags> words{};
    load_raw_block(tags, t, k, 1, 0, columns / kTags, reinterpret_cast<std::byte*>(words.data()));
    for (int m = 0; m < columns; ++m) {
      const int position = words[static_cast<size_t>(m / kTags)] >> (kTagBits * (m % kTags)) & 15;
      if (position >= kBlock * ratio) {
        c.core.stationary = {};
        throw Fault{Status::Kind::kIllegal, "position " + std::to_string(position) + " of row " +
                                                std::to_string(k) + ", column " + std::to_string(m) +
                                                " is beyond its block of " + std::to_string(kBlock * ratio) +
                                                " rows; at " + c.where(p)};
      }
      const int row = position / kBlock * rows + k / kBlock * kBlock + position % kBlock;
      out[int64_t{row} * columns + m] += kept[int64_t{k} * columns + m];
    }
  }
}

void execute_multiply_moving(Context& c, const Prepared& p) {
  const Operand& src = *p.src0;
  const int rows = src.rows;
  const StationaryMatrix a = find_stationary(c, p, rows, rows * isa::moving_rows(p));
  const std::byte* s = c.at(p, src);
  const int64_t columns = src.n / isa::moving_rows(p);
  for (int64_t first = 0; first < columns; first += kMovingColumns) {
    const int n = static_cast<int>(std::min<int64_t>(kMovingColumns, columns - first));
    if (src.direct_f32 && src.dtype == isa::Dtype::kF32) {
      multiply_into(c, p, a, reinterpret_cast<const float*>(s) + first, src.pitch / 4, first, n);
      continue;
    }
    float* b = c.work.moving;
    for (int j = 0; j < isa::moving_rows(p); ++j)
      load_block(src, s, 0, rows, j * columns + first, n, b + int64_t{j} * rows * n);
    if (src.dtype == isa::Dtype::kF32R) row_kernels().round_tf32(b, n, b, n, rows, n);
    multiply_into(c, p, a, b, n, first, n);
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
  const Operand& dst = *p.dst;
  std::byte* d = c.at(p, dst);
  transpose_any(c, p, c.at(p, *p.src0), d, p.src0->rows, static_cast<int>(p.src0->n));
  if (dst.bytes == 1) {
    // One-byte elements are written as two bytes, the upper one zero.
    const std::byte zero{0};
    for_each_run(dst, 0, dst.n, [&](int64_t offset, int64_t, int64_t length, int64_t step) {
      row_kernels().copy_raw[1](&zero, 0, 0, d + offset + 1, dst.pitch, step, dst.rows, length);
    });
  }
  c.core.stationary = {};
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
