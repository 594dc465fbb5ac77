// Tensor engine: columns through the array, weight loads behind them, and the clock governor.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "isa/table.h"
#include "sim/cost/cost.h"

namespace trnsim::cost {
namespace {

using isa::Access;
using isa::Dtype;
using isa::Instruction;
using isa::Opcode;

constexpr int kRows = 128;
constexpr int64_t kSectorBytes = 16;

bool is_fp32(const Access& a) { return a.dtype == Dtype::kF32; }
// Columns that stream through the array: a pair of FP8 rows takes the time of one, and so do the dense rows that stand
// behind one row of a sparse matrix.
double columns_of(const Instruction& i) {
  return static_cast<double>(i.src0.free_elements()) / isa::moving_rows(i);
}

}  // namespace

WeightLoad weight_load(const Instruction& i, const config::Config& c) {
  const config::Tensor& t = c.tensor;
  const Access& w = i.src0;
  const double columns = columns_of(i);
  const bool fast = isa::dtype_bytes(w.dtype) <= 2 && std::llabs(innermost_stride_bytes(w)) < kSectorBytes;
  double cycles = columns;
  if (fast) {
    cycles = columns / t.fast_load_columns_per_cycle;
  } else if (is_fp32(w) && i.opcode != Opcode::kTranspose) {
    cycles = columns * t.fp32_load_cycles_per_column;
  }
  WeightLoad load;
  // The load path reads SBUF at the full clock whatever the governor says (MB-24 at both clocks).
  load.occupancy = ps_of_cycles(cycles, t.clock_ghz);
  load.fixed = ps(t.load_fixed_ns) + load.occupancy;
  load.shift_cycles = std::llround(t.load_shift_cycles);
  return load;
}

Matmul matmul(const Instruction& i, const config::Config& c) {
  const config::Tensor& t = c.tensor;
  Matmul m;
  m.psum_banks = psum_banks(i.dst);
  m.rows = std::min<int>(i.src0.num_partitions, kRows);
  const bool fp32 = is_fp32(i.src0);
  const double per_column = fp32 ? t.fp32_cycles_per_column : 1.0;
  if (i.opcode == Opcode::kTranspose) {
    // The data is the stationary operand and an identity of as many columns as it has partitions streams by.
    m.cycles = std::llround(std::max<double>(i.src0.num_partitions, t.min_columns) * per_column);
    return m;
  }
  const double columns =
      std::max(columns_of(i), t.strided_sector_columns * static_cast<double>(sectors(i.src0)));
  double cycles = std::max(columns, t.min_columns) * per_column;
  if (fp32) {
    m.passes = static_cast<int>(
        std::llround(i.has(isa::kFlagOneZero) ? c.instructions.one_zero_passes : t.fp32_passes));
    // Every pass needs its half of the weights: a short pass waits for the load (MB-25).
    cycles = std::max(cycles, i.dst.num_partitions * t.fp32_load_cycles_per_column);
  }
  m.cycles = std::llround(cycles);
  return m;
}

void PeClock::reset(const config::Config& c) {
  const config::Tensor& t = c.tensor;
  full_ps_ = 1000.0 / t.clock_ghz;
  cold_ps_ = full_ps_ / t.governor_cold_fraction;
  window_ = std::max<Ps>(1, ps_of_cycles(t.governor_window_cycles, t.clock_ghz));
  window_end_ = window_;
  full_activity_ = t.governor_window_cycles * kRows;
  raise_ = static_cast<int64_t>(std::ceil(t.governor_threshold * full_activity_));
  drop_ = static_cast<int64_t>(std::ceil(t.governor_drop_threshold * full_activity_));
  activity_ = last_activity_ = 0;
  full_ = full_before_ = raise_ <= 0;
}

void PeClock::next_window() {
  full_before_ = full_;
  full_ = activity_ >= (full_ ? drop_ : raise_);
  last_activity_ = activity_;
  activity_ = 0;
  window_end_ += window_;
}

void PeClock::advance_to(Ps at) {
  if (at < window_end_) return;
  next_window();
  if (at < window_end_) return;
  next_window();  // an idle window
  const Ps idle = (at - window_end_) / window_;
  if (idle > 0) {
    full_ = full_before_ = full_ ? drop_ <= 0 : raise_ <= 0;
    window_end_ += idle * window_;
  }
  while (at >= window_end_) next_window();
}

bool PeClock::full_at(Ps at) {
  advance_to(at);
  return at < window_end_ - window_ ? full_before_ : full_;
}

Ps PeClock::idle_cycles(Ps at, int64_t cycles) {
  return static_cast<Ps>(static_cast<double>(cycles) * (full_at(at) ? full_ps_ : cold_ps_) + 0.5);
}

Ps PeClock::run(Ps start, int64_t cycles, int rows) {
  advance_to(start);
  Ps at = start;
  double left = static_cast<double>(cycles);
  const Ps window_begin = window_end_ - window_;
  if (start < window_begin) {
    const Ps end = start + static_cast<Ps>(left * per_cycle_before() + 0.5);
    if (end <= window_begin) return end;
    left = std::max(0.0, left - static_cast<double>(window_begin - start) / per_cycle_before());
    at = window_begin;
  }
  for (;;) {
    const double per_cycle = full_ ? full_ps_ : cold_ps_;
    const Ps end = at + static_cast<Ps>(left * per_cycle + 0.5);
    if (end <= window_end_) {
      activity_ += std::llround(left * rows);
      return end;
    }
    const double done = static_cast<double>(window_end_ - at) / per_cycle;
    activity_ += std::llround(done * rows);
    left = std::max(0.0, left - done);
    at = window_end_;
    next_window();
  }
}

}  // namespace trnsim::cost
