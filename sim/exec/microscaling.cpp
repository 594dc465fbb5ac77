// Microscaling: packed operands with one scale per block of 8 partitions x 4 values.
#include <cmath>

#include "sim/exec/matmul.h"

namespace trnsim::exec {
namespace {

constexpr int kPacked = 4, kBlockPartitions = 8;

// Row of the scales of partition `p` of the data: 4 in each quadrant.
int scale_row(int p) {
  const int group = p / kBlockPartitions;
  return group / 4 * 32 + group % 4;
}

// Values [first, first + n) of every partition of a packed operand times their scales: out[(j * rows + p)][n] for
// packed value j of partition p.
void load_scaled(Context& c, const Operand& data, const std::byte* s, const Operand& scale,
                 const std::byte* q, int64_t first, int n, float* out) {
  for (int p = 0; p < data.rows; ++p) {
    for (int done = 0; done < n; done += kBlockElements) {
      const int m = std::min(kBlockElements, n - done);
      std::byte *values = c.work.raw[0], *codes = c.work.raw[1];
      load_raw_block(data, s, p, 1, first + done, m, values);
      load_raw_block(scale, q, scale_row(p), 1, first + done, m, codes);
      for (int j = 0; j < kPacked; ++j) {
        float* row = out + (int64_t{j} * data.rows + p) * n + done;
        for (int i = 0; i < m; ++i) {
          row[i] = isa::f32_from_packed(data.dtype, values + i * data.bytes, j) *
                   isa::f32_from_e8m0(static_cast<uint8_t>(codes[i]));
        }
      }
    }
  }
}

}  // namespace

void execute_load_stationary_mx(Context& c, const Prepared& p) {
  const Operand& src = *p.src0;
  float* out = set_stationary(c, p, src.rows, kPacked * src.rows, static_cast<int>(src.n));
  load_scaled(c, src, c.at(p, src), *p.src1, c.at(p, *p.src1), 0, static_cast<int>(src.n), out);
}

void execute_multiply_moving_mx(Context& c, const Prepared& p) {
  const Operand &src = *p.src0, &scale = *p.src1;
  const std::byte* s = c.at(p, src);
  const std::byte* q = c.at(p, scale);
  const StationaryMatrix a = find_stationary(c, p, src.rows, kPacked * src.rows);
  for (int64_t first = 0; first < src.n; first += kMovingColumns) {
    const int n = static_cast<int>(std::min<int64_t>(kMovingColumns, src.n - first));
    load_scaled(c, src, s, scale, q, first, n, c.work.moving);
    multiply_into(c, p, a, c.work.moving, n, first, n);
  }
}

void execute_quantize_mx(Context& c, const Prepared& p) {
  const Operand &dst = *p.dst, &src = *p.src0, &scale = *p.aux;
  std::byte* d = c.at(p, dst);
  std::byte* q = c.at(p, scale);
  const std::byte* s = c.at(p, src);
  const isa::Dtype element = dst.dtype == isa::Dtype::kF8E5M2x4 ? isa::Dtype::kF8E5M2 : isa::Dtype::kF8E4M3FN;
  const int largest_exponent = element == isa::Dtype::kF8E5M2 ? 15 : 8;
  constexpr int kColumns = kBlockElements / (kBlockPartitions * kPacked);  // packed, at a time
  for (int partition = 0; partition < src.rows; partition += kBlockPartitions) {
    for (int64_t first = 0; first < dst.n; first += kColumns) {
      const int n = static_cast<int>(std::min<int64_t>(kColumns, dst.n - first));
      const float* x = c.work.f[0];
      load_block(src, s, partition, kBlockPartitions, kPacked * first, kPacked * n, c.work.f[0]);
      uint8_t* packed = reinterpret_cast<uint8_t*>(c.work.raw[0]);
      uint8_t* codes = reinterpret_cast<uint8_t*>(c.work.raw[1]);
      for (int i = 0; i < n; ++i) {
        float largest = 0;
        bool finite = true;
        for (int r = 0; r < kBlockPartitions; ++r) {
          for (int j = 0; j < kPacked; ++j) {
            const float v = std::fabs(x[(r * n + i) * kPacked + j]);
            finite = finite && std::isfinite(v);
            largest = std::max(largest, v);
          }
        }
        int exponent = -127;
        if (largest > 0 && finite) {
          int e = 0;
          std::frexp(largest, &e);
          exponent = std::clamp(e - 1 - largest_exponent + c.core.numerics.mx_scale_offset, -127, 127);
        }
        // A block that holds no numbers is marked by its scale.
        codes[i] = finite ? static_cast<uint8_t>(exponent + 127) : 0xff;
        for (int r = 0; r < kBlockPartitions; ++r) {
          for (int j = 0; j < kPacked; ++j) {
            const int at = (r * n + i) * kPacked + j;
            packed[at] = isa::fp8_from_f32(element, finite ? std::ldexp(x[at], -exponent) : x[at]);
          }
        }
      }
      store_raw_block(dst, d, partition, kBlockPartitions, first, n, c.work.raw[0]);
      store_raw_block(scale, q, scale_row(partition), 1, first, n, c.work.raw[1]);
    }
  }
}

}  // namespace trnsim::exec
