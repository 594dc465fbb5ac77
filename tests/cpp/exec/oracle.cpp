#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "isa/table.h"
#include "tests/cpp/exec/oracle_parts.h"

namespace trnsim::test {

std::byte* Memory::at(const Access& a, int64_t p, int64_t k) {
  int64_t offset = a.offset;
  if (a.address_register != isa::kNoRegister) offset += registers[a.address_register];
  for (int d = a.num_dims - 1; d >= 0; --d) {
    const auto u = static_cast<size_t>(d);
    int64_t i = k % a.size[u];
    if (d == 0 && a.indirect) {
      const int64_t bytes = static_cast<int64_t>(isa::dtype_bytes(a.index_dtype));
      i = isa::load_as_int(a.index_dtype, sbuf.data() +
                                              (a.index_partition + i % index_partitions) * sbuf_bytes +
                                              a.index_offset + i / index_partitions * bytes);
    }
    offset += i * a.step[u] * static_cast<int64_t>(isa::dtype_bytes(a.dtype));
    k /= a.size[u];
  }
  switch (a.space) {
    case isa::Space::kSbuf:
      return sbuf.data() + (a.start_partition + p) * sbuf_bytes + offset;
    case isa::Space::kPsum:
      return psum.data() + (a.start_partition + p) * psum_bytes + offset;
    default:
      return hbm[a.tensor].data() + offset;
  }
}

float Memory::f32(const Access& a, int64_t p, int64_t k) { return isa::load_as_f32(a.dtype, at(a, p, k)); }
int64_t Memory::integer(const Access& a, int64_t p, int64_t k) {
  return isa::load_as_int(a.dtype, at(a, p, k));
}

namespace {

int64_t affine(const Instruction& in, int64_t p, int64_t k) {
  int64_t v = in.pattern.base + p * in.pattern.partition_step;
  for (int d = in.dst.num_dims - 1; d >= 0; --d) {
    const auto u = static_cast<size_t>(d);
    v += k % in.dst.size[u] * in.pattern.step[u];
    k /= in.dst.size[u];
  }
  return v;
}

void elementwise(const Instruction& in, Memory& m) {
  const auto whole = [](AluOp op) { return op != AluOp::kRsqrt && op != AluOp::kReciprocal; };
  const bool ints = is_int(in.dst) && is_int(in.src0) && is_int(in.src1) && is_int(in.imm0) &&
                    is_int(in.imm1) && whole(in.op0) && whole(in.op1);
  const int bits = bits_of(in.src0.dtype);
  const bool r0 = in.has(isa::kFlagReverse0), r1 = in.has(isa::kFlagReverse1);
  Results out{{}, in.dst.dtype};
  for (int64_t p = 0; p < in.dst.num_partitions; ++p) {
    for (int64_t k = 0; k < in.dst.free_elements(); ++k) {
      std::byte* to = m.at(in.dst, p, k);
      if (ints) {
        const int64_t a = m.integer(in.src0, p, k);
        if (in.opcode == Opcode::kTensorTensor) {
          out.integer(to, alu_int(in.op0, a, m.integer(in.src1, p, k), bits));
          continue;
        }
        const int64_t s = given(in.imm0) ? scalar_int(m, in.imm0, p) : 0;
        const int64_t x =
            r0 && !isa::is_unary(in.op0) ? alu_int(in.op0, s, a, bits) : alu_int(in.op0, a, s, bits);
        if (in.opcode == Opcode::kTensorScalar && isa::is_unary(in.op1)) {
          out.integer(to, alu_int(in.op1, x, 0, bits));
          continue;
        }
        if (in.opcode == Opcode::kTensorScalar && !given(in.imm1)) {
          out.integer(to, x);
          continue;
        }
        const int64_t b =
            in.opcode == Opcode::kTensorScalar ? scalar_int(m, in.imm1, p) : m.integer(in.src1, p, k);
        out.integer(to, r1 ? alu_int(in.op1, b, x, bits) : alu_int(in.op1, x, b, bits));
        continue;
      }
      const float a = m.f32(in.src0, p, k);
      if (in.opcode == Opcode::kTensorTensor) {
        out.f32(to, alu(in.op0, a, m.f32(in.src1, p, k)));
        continue;
      }
      const float s = scalar(m, in.imm0, p, 0);
      const float x = r0 && !isa::is_unary(in.op0) ? alu(in.op0, s, a) : alu(in.op0, a, s);
      if (in.opcode == Opcode::kTensorScalar && isa::is_unary(in.op1)) {
        out.f32(to, alu(in.op1, x, 0));
        continue;
      }
      if (in.opcode == Opcode::kTensorScalar && !given(in.imm1)) {
        out.f32(to, x);
        continue;
      }
      const float b = in.opcode == Opcode::kTensorScalar ? scalar(m, in.imm1, p, 0) : m.f32(in.src1, p, k);
      out.f32(to, r1 ? alu(in.op1, b, x) : alu(in.op1, x, b));
    }
  }
  out.flush();
}

void reduce(const Instruction& in, Memory& m) {
  const bool average = in.op0 == AluOp::kAverage;
  const bool ints = is_int(in.dst) && is_int(in.src0) && !average;
  const bool partitions = in.opcode == Opcode::kPartitionReduce;
  const int64_t outer = in.dst.free_elements();
  const int64_t length = partitions ? in.src0.num_partitions : in.src0.free_elements() / outer;
  const bool logical = in.op0 >= AluOp::kLogicalAnd && in.op0 <= AluOp::kLogicalXor;
  const bool absolute = in.op0 == AluOp::kAbsMax || in.op0 == AluOp::kAbsMin;
  Results out{{}, in.dst.dtype};
  for (int64_t p = 0; p < in.dst.num_partitions; ++p) {
    for (int64_t g = 0; g < outer; ++g) {
      const auto element = [&](int64_t i) {
        return partitions ? std::pair<int64_t, int64_t>(i, g)
                          : std::pair<int64_t, int64_t>(p, g * length + i);
      };
      if (ints) {
        auto [ep, ek] = element(0);
        int64_t v = m.integer(in.src0, ep, ek);
        if (logical) v = v != 0;
        if (absolute) v = std::abs(v);
        for (int64_t i = 1; i < length; ++i) {
          auto [ip, ik] = element(i);
          v = alu_int(in.op0, v, m.integer(in.src0, ip, ik), 64);
        }
        out.integer(m.at(in.dst, p, g), in.has(isa::kFlagNegate) ? -v : v);
        continue;
      }
      auto [ep, ek] = element(0);
      double v = m.f32(in.src0, ep, ek);
      if (logical) v = v != 0;
      if (absolute) v = std::fabs(v);
      for (int64_t i = 1; i < length; ++i) {
        auto [ip, ik] = element(i);
        const float x = m.f32(in.src0, ip, ik);
        if (in.op0 == AluOp::kAdd || average) {
          v += x;
        } else if (in.op0 == AluOp::kSubtract) {
          v -= x;
        } else if (in.op0 == AluOp::kMultiply) {
          v *= x;
        } else {
          v = alu(in.op0, static_cast<float>(v), x);
        }
      }
      if (average) v /= static_cast<double>(length);
      out.f32(m.at(in.dst, p, g), static_cast<float>(in.has(isa::kFlagNegate) ? -v : v));
    }
  }
  out.flush();
}

void scan(const Instruction& in, Memory& m) {
  const bool ints = is_int(in.dst) && is_int(in.src0) && is_int(in.src1) && is_int(in.imm0);
  Results out{{}, in.dst.dtype};
  for (int64_t p = 0; p < in.dst.num_partitions; ++p) {
    float r = ints ? 0 : scalar(m, in.imm0, p, 0);
    int64_t i = ints ? scalar_int(m, in.imm0, p) : 0;
    for (int64_t k = 0; k < in.dst.free_elements(); ++k) {
      if (ints) {
        const int bits = bits_of(in.src0.dtype);
        const int64_t x = m.integer(in.src0, p, k), y = m.integer(in.src1, p, k);
        i = in.has(isa::kFlagReverse0) ? alu_int(in.op0, i, x, bits) : alu_int(in.op0, x, i, bits);
        i = in.has(isa::kFlagReverse1) ? alu_int(in.op1, y, i, bits) : alu_int(in.op1, i, y, bits);
        i = in.dst.dtype == Dtype::kU32 ? static_cast<int64_t>(static_cast<uint32_t>(i))
                                        : static_cast<int64_t>(static_cast<int32_t>(i));
        out.integer(m.at(in.dst, p, k), i);
      } else {
        const float x = m.f32(in.src0, p, k), y = m.f32(in.src1, p, k);
        r = in.has(isa::kFlagReverse0) ? alu(in.op0, r, x) : alu(in.op0, x, r);
        r = in.has(isa::kFlagReverse1) ? alu(in.op1, y, r) : alu(in.op1, r, y);
        out.f32(m.at(in.dst, p, k), r);
      }
    }
  }
  out.flush();
}

void statistics(const Instruction& in, Memory& m) {
  Results out{{}, in.dst.dtype};
  for (int64_t p = 0; p < in.dst.num_partitions; ++p) {
    const int64_t n = in.src0.free_elements();
    if (in.opcode == Opcode::kBnStats) {
      for (int64_t odd = 0; odd < 2; ++odd) {
        long double count = 0, sum = 0, squares = 0;
        for (int64_t k = odd; k < n; k += 2) count += 1, sum += m.f32(in.src0, p, k);
        const long double mean = count > 0 ? sum / count : 0;
        for (int64_t k = odd; k < n; k += 2) {
          const long double d = m.f32(in.src0, p, k) - mean;
          squares += d * d;
        }
        out.f32(m.at(in.dst, p, 3 * odd), static_cast<float>(count));
        out.f32(m.at(in.dst, p, 3 * odd + 1), static_cast<float>(mean));
        out.f32(m.at(in.dst, p, 3 * odd + 2), static_cast<float>(squares));
      }
      continue;
    }
    long double count = 0, sum = 0, squares = 0;
    for (int64_t g = 0; g < n; g += 3) {
      count += m.f32(in.src0, p, g);
      sum += static_cast<long double>(m.f32(in.src0, p, g)) * m.f32(in.src0, p, g + 1);
    }
    const long double mean = sum / count;
    for (int64_t g = 0; g < n; g += 3) {
      const long double d = m.f32(in.src0, p, g + 1) - mean;
      squares += m.f32(in.src0, p, g + 2) + m.f32(in.src0, p, g) * d * d;
    }
    out.f32(m.at(in.dst, p, 0), static_cast<float>(mean));
    out.f32(m.at(in.dst, p, 1), static_cast<float>(squares / count));
  }
  out.flush();
}

// Values of top-8 instructions as double, which holds FP32 and every 32-bit integer.
double top_value(Memory& m, const Access& a, bool ints, int64_t p, int64_t k) {
  return ints ? static_cast<double>(m.integer(a, p, k)) : static_cast<double>(m.f32(a, p, k));
}
bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

void top8(const Instruction& in, Memory& m) {
  Results out{{}, in.dst.dtype}, indices{{}, in.aux.dtype};
  const bool ints = is_int(in.src0) && (in.opcode == Opcode::kMax8 || is_int(in.src1));
  const int64_t n = in.src0.free_elements();
  for (int64_t p = 0; p < in.src0.num_partitions; ++p) {
    std::vector<double> x;
    for (int64_t k = 0; k < n; ++k) x.push_back(top_value(m, in.src0, ints, p, k));
    if (in.opcode == Opcode::kMax8) {
      std::stable_sort(x.begin(), x.end(),
                       [](double a, double b) { return a > b || (std::isnan(a) && !std::isnan(b)); });
      for (int64_t k = 0; k < 8; ++k) {
        if (ints && isa::is_integer(in.dst.dtype)) {
          out.integer(m.at(in.dst, p, k), static_cast<int64_t>(x[static_cast<size_t>(k)]));
        } else {
          out.f32(m.at(in.dst, p, k), static_cast<float>(x[static_cast<size_t>(k)]));
        }
      }
      continue;
    }
    if (in.opcode == Opcode::kMatchReplace8) {
      for (int64_t k = 0; k < n; ++k) convert(out, m.at(in.dst, p, k), in.src0.dtype, m.at(in.src0, p, k));
    }
    std::vector<bool> used(static_cast<size_t>(n));
    // Slots are served in order when indices are asked for, from the last on when values are replaced.
    const bool backwards = in.opcode == Opcode::kMatchReplace8;
    for (int64_t slot = 0; slot < 8; ++slot) {
      const int64_t v = backwards ? 7 - slot : slot;
      const double value = top_value(m, in.src1, ints, p, v);
      int64_t found = -1;
      for (int64_t k = 0; k < n && found < 0; ++k) {
        if (!used[static_cast<size_t>(k)] && same(x[static_cast<size_t>(k)], value)) found = k;
      }
      if (found >= 0) used[static_cast<size_t>(found)] = true;
      if (in.aux.present()) indices.integer(m.at(in.aux, p, v), found);
      if (in.opcode == Opcode::kMaxIndex8) {
        out.integer(m.at(in.dst, p, v), found);
      } else if (found >= 0) {
        out.f32(m.at(in.dst, p, found), scalar(m, in.imm0, p, 0));
      }
    }
  }
  out.flush();
  indices.flush();
}

uint32_t philox_word(uint64_t key, uint64_t counter, int word) {
  uint32_t c[4] = {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0};
  uint32_t k[2] = {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = 0xD2511F53ull * c[0], b = 0xCD9E8D57ull * c[2];
    const uint32_t n[4] = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(b),
                           static_cast<uint32_t>(a >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(a)};
    std::copy(n, n + 4, c);
    k[0] += 0x9E3779B9u;
    k[1] += 0xBB67AE85u;
  }
  return c[word];
}

float tf32(float v) {
  uint32_t b;
  std::memcpy(&b, &v, 4);
  if ((b & 0x7f800000u) == 0x7f800000u) return v;
  const uint32_t low = b & 0x1fffu;
  b -= low;
  if (low > 0x1000u || (low == 0x1000u && (b & 0x2000u))) b += 0x2000u;
  std::memcpy(&v, &b, 4);
  return v;
}

void tensor_engine(const Instruction& in, Memory& m) {
  const auto value = [&](int64_t p, int64_t k) {
    const float v = m.f32(in.src0, p, k);
    return in.src0.dtype == Dtype::kF32R ? tf32(v) : v;
  };
  const bool sparse = in.opcode == Opcode::kLoadStationarySparse;
  const int64_t pairs = isa::moving_rows(in);
  const int64_t columns = in.src0.free_elements() / pairs;
  const auto key = std::array<int, 4>{in.tile.row, in.tile.column, in.tile.rows, in.tile.columns};
  if (sparse) {
    // Every dense row looks for its value among the four partitions that keep what its block has.
    std::vector<float> matrix;
    const int64_t partitions = in.src0.num_partitions;
    for (int64_t c = 0; c < in.count; ++c) {
      for (int64_t p = 0; p < partitions; ++p) {
        for (int64_t k = 0; k < columns; ++k) {
          float sum = 0;
          for (int64_t q = p - p % 4; q < p - p % 4 + 4; ++q) {
            const int64_t tags = isa::load_as_int(in.src1.dtype, m.at(in.src1, q, k / 4));
            if ((tags >> (4 * (k % 4)) & 15) == 4 * c + p % 4) sum += value(q, k);
          }
          matrix.push_back(sum);
        }
      }
    }
    m.stationary[key] = matrix;
    return;
  }
  if (in.opcode == Opcode::kLoadStationary) {
    // Row j * K + p of the matrix is pair j of partition p.
    std::vector<float> matrix;
    for (int64_t j = 0; j < pairs; ++j) {
      for (int64_t p = 0; p < in.src0.num_partitions; ++p) {
        for (int64_t k = 0; k < columns; ++k) matrix.push_back(value(p, j * columns + k));
      }
    }
    m.stationary[key] = matrix;
    return;
  }
  const std::vector<float>& matrix = m.stationary[key];
  const int64_t rows = pairs * in.src0.num_partitions, m_columns = static_cast<int64_t>(matrix.size()) / rows;
  Results out{{}, in.dst.dtype};
  for (int64_t row = 0; row < m_columns; ++row) {
    for (int64_t n = 0; n < in.dst.free_elements(); ++n) {
      double sum = in.has(isa::kFlagAccumulate) ? m.f32(in.dst, row, n) : 0.0;
      for (int64_t k = 0; k < rows; ++k) {
        const int64_t p = k % in.src0.num_partitions, j = k / in.src0.num_partitions;
        sum +=
            static_cast<double>(matrix[static_cast<size_t>(k * m_columns + row)]) * value(p, j * columns + n);
      }
      out.f32(m.at(in.dst, row, n), static_cast<float>(sum));
    }
  }
  out.flush();
}

void transpose(const Instruction& in, Memory& m) {
  Results out{{}, in.dst.dtype};
  const int64_t rows = in.src0.num_partitions, columns = in.src0.free_elements();
  const bool whole = in.engine == isa::Engine::kTensor || (rows <= 32 && columns <= 32);
  for (int64_t p = 0; p < rows; ++p) {
    for (int64_t k = 0; k < columns; ++k) {
      std::byte* to = whole ? m.at(in.dst, k, p) : m.at(in.dst, p / 32 * 32 + k % 32, k / 32 * 32 + p % 32);
      convert(out, to, in.src0.dtype, m.at(in.src0, p, k));
    }
  }
  out.flush();
  if (in.engine != isa::Engine::kTensor || isa::dtype_bytes(in.dst.dtype) != 1) return;
  for (int64_t p = 0; p < in.dst.num_partitions; ++p) {
    for (int64_t k = 0; k < in.dst.free_elements(); ++k) m.at(in.dst, p, k)[1] = std::byte{0};
  }
}

void dma(const Instruction& in, Memory& m) {
  Results out{{}, in.dst.dtype};
  if (in.opcode == Opcode::kDmaCopy) {
    for (int64_t e = 0; e < in.dst.elements(); ++e) {
      std::byte *to = flat(m, in.dst, e), *from = flat(m, in.src0, e);
      if (in.has(isa::kFlagAccumulate)) {
        out.f32(to, isa::load_as_f32(in.dst.dtype, to) + isa::load_as_f32(in.src0.dtype, from));
      } else {
        convert(out, to, in.src0.dtype, from);
      }
    }
    out.flush();
    return;
  }
  if (in.opcode == Opcode::kDmaTranspose) {
    const bool chip = in.src0.space == isa::Space::kSbuf;
    const int64_t rows = chip ? in.src0.num_partitions : in.src0.size[0], all = in.src0.elements();
    const int64_t columns =
        in.count > 2 ? in.src0.size[static_cast<size_t>(in.src0.num_dims - 1)] : all / rows;
    const int64_t middle = all / rows / columns;
    const int64_t picked = in.src1.present() ? in.src1.elements() : rows;
    for (int64_t r = 0; r < picked; ++r) {
      int64_t from = r;
      if (in.src1.present()) {
        from = m.integer(in.src1, r % in.src1.num_partitions, r / in.src1.num_partitions);
        if (from < 0 || from >= rows) continue;
      }
      for (int64_t i = 0; i < middle; ++i) {
        for (int64_t c = 0; c < columns; ++c) {
          out.raw(flat(m, in.dst, (c * middle + i) * picked + r),
                  flat(m, in.src0, (from * middle + i) * columns + c));
        }
      }
    }
    out.flush();
    return;
  }
  const bool gather = in.opcode == Opcode::kDmaGather;
  const Access& table = gather ? in.src0 : in.dst;
  const int64_t bound = table.size[0], row = table.free_elements() / bound;
  for (int64_t i = 0; i < in.src1.elements(); ++i) {
    const int64_t index = isa::load_as_int(in.src1.dtype, flat(m, in.src1, i));
    if (index < 0 || index >= bound) continue;
    for (int64_t e = 0; e < row; ++e) {
      std::byte* in_table = m.at(table, 0, index * row + e);
      std::byte* in_tile = flat(m, gather ? in.dst : in.src0, i * row + e);
      std::byte *to = gather ? in_tile : in_table, *from = gather ? in_table : in_tile;
      if (in.op0 != AluOp::kAdd) {
        convert(out, to, in.src0.dtype, from);
      } else if (isa::is_integer(in.dst.dtype) && isa::is_integer(in.src0.dtype)) {
        out.integer(to, isa::load_as_int(in.dst.dtype, to) + isa::load_as_int(in.src0.dtype, from));
      } else {
        out.f32(to, isa::load_as_f32(in.dst.dtype, to) + isa::load_as_f32(in.src0.dtype, from));
      }
    }
    out.flush();
  }
}

void select(const Instruction& in, Memory& m) {
  Results out{{}, in.dst.dtype};
  for (int64_t p = 0; p < in.dst.num_partitions; ++p) {
    for (int64_t k = 0; k < in.dst.free_elements(); ++k) {
      std::byte* to = m.at(in.dst, p, k);
      switch (in.opcode) {
        case Opcode::kCopy:
          convert(out, to, in.src0.dtype, m.at(in.src0, p, k));
          break;
        case Opcode::kReciprocal:
          out.f32(to, 1.0f / m.f32(in.src0, p, k));
          break;
        case Opcode::kMemset:
          if (isa::is_opaque(in.dst.dtype)) {
            const std::byte zeros[8] = {};
            out.raw(to, zeros);
            break;
          }
          out.f32(to, scalar(m, in.imm0, p, 0));
          break;
        case Opcode::kIota: {
          const auto v = static_cast<int32_t>(affine(in, p, k));
          if (isa::is_integer(in.dst.dtype))
            out.integer(to, v);
          else
            out.f32(to, static_cast<float>(v));
          break;
        }
        case Opcode::kAffineSelect:
          if (alu_int(in.op0, affine(in, p, k), 0, 64) != 0)
            convert(out, to, in.src0.dtype, m.at(in.src0, p, k));
          else
            out.f32(to, scalar(m, in.imm0, p, 0));
          break;
        case Opcode::kCopyPredicated:
          if ((m.f32(in.src1, p, k) != 0) == in.has(isa::kFlagNegate)) break;
          if (in.src0.present()) {
            convert(out, to, in.src0.dtype, m.at(in.src0, p, k));
          } else {
            out.f32(to, scalar(m, in.imm0, p, 0));
          }
          break;
        default: {  // kPhilox
          uint32_t s[4];
          for (int i = 0; i < 4; ++i) std::memcpy(&s[i], m.at(in.src0, 0, i), 4);
          const uint64_t word = static_cast<uint64_t>(in.pattern.base + p * in.dst.free_elements() + k);
          const uint64_t offset = s[2] | uint64_t{s[3]} << 32;
          out.integer(
              to, philox_word(s[0] | uint64_t{s[1]} << 32, offset + word / 4, static_cast<int>(word % 4)));
        }
      }
    }
  }
  out.flush();
}

}  // namespace

double oracle_activation(isa::ActFunc f, double x) {
  using isa::ActFunc;
  constexpr double kPi = 3.14159265358979323846;
  switch (f) {
    case ActFunc::kCopy:
      return x;
    case ActFunc::kSquare:
      return x * x;
    case ActFunc::kRsqrt:
      return 1 / std::sqrt(x);
    case ActFunc::kSqrt:
      return std::sqrt(x);
    case ActFunc::kExp:
      return std::exp(x);
    case ActFunc::kLog:
      return std::log(x);
    case ActFunc::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case ActFunc::kTanh:
      return std::tanh(x);
    case ActFunc::kRelu:
      return x > 0 || std::isnan(x) ? x : 0.0;
    case ActFunc::kGelu:
      return x * 0.5 * std::erfc(-x * std::sqrt(0.5));
    case ActFunc::kGeluTanh: {
      // 0.5 (1 + tanh u) = 1 / (1 + e^-2u) without the cancellation.
      const double u = std::sqrt(2 / kPi) * (x + 0.044715 * x * x * x);
      return x / (1 + std::exp(-2 * u));
    }
    case ActFunc::kSilu:
      return x / (1 + std::exp(-x));
    case ActFunc::kErf:
      return std::erf(x);
    case ActFunc::kSoftplus:
      return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
    case ActFunc::kMish:
      return x * std::tanh(std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))));
    case ActFunc::kSin:
      return std::sin(x);
    case ActFunc::kArctan:
      return std::atan(x);
    case ActFunc::kAbs:
      return std::fabs(x);
    case ActFunc::kSign:
      return x > 0 ? 1 : (x < 0 ? -1 : x);
    case ActFunc::kReciprocal:
      return 1 / x;
    case ActFunc::kGeluSigmoid:
      return x / (1 + std::exp(-1.702 * x));
    case ActFunc::kGeluSigmoidDx:
    case ActFunc::kSiluDx: {
      const double k = f == ActFunc::kSiluDx ? 1.0 : 1.702, z = k * x;
      const double s = 1 / (1 + std::exp(-z)), rest = std::fabs(z) < 700 ? z * s / (1 + std::exp(z)) : 0;
      return std::isnan(x) ? x : s + rest;
    }
    case ActFunc::kErfDx:
      return 2 / std::sqrt(kPi) * std::exp(-x * x);
    case ActFunc::kGeluDx: {
      const double density = std::fabs(x) < 100 ? x * std::exp(-x * x / 2) / std::sqrt(2 * kPi) : 0;
      return std::isnan(x) ? x : 0.5 * std::erfc(-x * std::sqrt(0.5)) + density;
    }
    case ActFunc::kPrelu:  // slope 0; others in activation()
      return x > 0 ? x : x * 0.0;
    case ActFunc::kCount:
      break;
  }
  return 0;
}

Agreement agreement(const Instruction& in) {
  switch (in.opcode) {
    case Opcode::kLoadStationary:  // the products agree, so the matrix should not hold infinities
    case Opcode::kLoadStationaryMx:
    case Opcode::kLoadStationarySparse:
    case Opcode::kMultiplyMoving:
    case Opcode::kMultiplyMovingMx:
    case Opcode::kMultiplyMovingSparse:
      return Agreement::kSums;
    case Opcode::kActivation:
    case Opcode::kActivate2:
    case Opcode::kExponential:
      return in.reduce != isa::ReduceCmd::kIdle ? Agreement::kSums : Agreement::kUlps;
    case Opcode::kTensorScalarReduce:
      if (in.reduce != isa::ReduceCmd::kIdle && in.reduce_op <= AluOp::kMultiply) return Agreement::kSums;
      return in.op0 == AluOp::kPower ? Agreement::kUlps : Agreement::kValue;
    case Opcode::kTensorScalarCumulative:
      return in.op0 == AluOp::kPower ? Agreement::kSums : Agreement::kValue;
    case Opcode::kRand2:
      return Agreement::kUlps;
    case Opcode::kRangeSelect:
    case Opcode::kSelectReduce:
    case Opcode::kDmaCompute:
    case Opcode::kDmaGather:
    case Opcode::kCustom:
      return Agreement::kValue;
    case Opcode::kDmaCopy:
      return in.has(isa::kFlagAccumulate) ? Agreement::kValue : Agreement::kBits;
    case Opcode::kTensorReduce:
    case Opcode::kPartitionReduce:
      return in.op0 <= AluOp::kMultiply || in.op0 == AluOp::kAverage ? Agreement::kSums : Agreement::kValue;
    case Opcode::kTensorTensor:
    case Opcode::kTensorScalar:
    case Opcode::kScalarTensorTensor:
      return in.op0 == AluOp::kPower || in.op1 == AluOp::kPower ? Agreement::kUlps : Agreement::kValue;
    case Opcode::kTensorTensorScan:
      return in.op0 == AluOp::kPower || in.op1 == AluOp::kPower ? Agreement::kSums : Agreement::kValue;
    case Opcode::kBnStats:
    case Opcode::kBnAggr:
      return Agreement::kUlps;
    case Opcode::kReciprocal:
    case Opcode::kMax8:
    case Opcode::kMatchReplace8:
    case Opcode::kDmaScatter:
      return Agreement::kValue;
    default:
      return Agreement::kBits;
  }
}

bool execute_oracle(const Instruction& in, Memory& m) {
  m.index_partitions = in.engine == isa::Engine::kTensor ? 32 : 16;
  switch (in.opcode) {
    case Opcode::kLoadStationary:
    case Opcode::kMultiplyMoving:
    case Opcode::kLoadStationarySparse:
    case Opcode::kMultiplyMovingSparse:
      tensor_engine(in, m);
      return true;
    case Opcode::kTranspose:
      transpose(in, m);
      return true;
    case Opcode::kTensorTensor:
    case Opcode::kTensorScalar:
    case Opcode::kScalarTensorTensor:
      elementwise(in, m);
      return true;
    case Opcode::kTensorReduce:
    case Opcode::kPartitionReduce:
      reduce(in, m);
      return true;
    case Opcode::kTensorTensorScan:
      scan(in, m);
      return true;
    case Opcode::kBnStats:
    case Opcode::kBnAggr:
      statistics(in, m);
      return true;
    case Opcode::kMax8:
    case Opcode::kMaxIndex8:
    case Opcode::kMatchReplace8:
      top8(in, m);
      return true;
    case Opcode::kDmaCopy:
    case Opcode::kDmaTranspose:
    case Opcode::kDmaGather:
    case Opcode::kDmaScatter:
      dma(in, m);
      return true;
    case Opcode::kRegLoad:
      std::memcpy(&m.registers[in.reg_dst], flat(m, in.src0, 0), in.has(isa::kFlagWide) ? 8 : 4);
      return true;
    case Opcode::kRegStore:
      std::memcpy(flat(m, in.dst, 0), &m.registers[in.reg_a], in.has(isa::kFlagWide) ? 8 : 4);
      return true;
    default:
      if (in.opcode == Opcode::kCopy || in.opcode == Opcode::kReciprocal || in.opcode == Opcode::kMemset ||
          in.opcode == Opcode::kIota || in.opcode == Opcode::kAffineSelect ||
          in.opcode == Opcode::kCopyPredicated || in.opcode == Opcode::kPhilox) {
        select(in, m);
        return true;
      }
      return execute_oracle_rows(in, m);
  }
}

}  // namespace trnsim::test
