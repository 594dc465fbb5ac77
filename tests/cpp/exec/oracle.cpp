#include "tests/cpp/exec/oracle.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace trnsim::test {

using isa::Access;
using isa::AluOp;
using isa::Dtype;
using isa::Instruction;
using isa::Opcode;
using isa::ScalarOperand;

std::byte* Memory::at(const Access& a, int64_t p, int64_t k) {
  int64_t offset = a.offset;
  if (a.address_register != isa::kNoRegister) offset += registers[a.address_register];
  for (int d = a.num_dims - 1; d >= 0; --d) {
    const auto u = static_cast<size_t>(d);
    offset += k % a.size[u] * a.step[u] * static_cast<int64_t>(isa::dtype_bytes(a.dtype));
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

float alu(AluOp op, float a, float b) {
  switch (op) {
    case AluOp::kAdd:
      return a + b;
    case AluOp::kSubtract:
      return a - b;
    case AluOp::kMultiply:
      return a * b;
    case AluOp::kMax:
      return std::isnan(a) ? a : (std::isnan(b) ? b : (a > b ? a : b));
    case AluOp::kMin:
      return std::isnan(a) ? a : (std::isnan(b) ? b : (a < b ? a : b));
    case AluOp::kAbsMax:
      return alu(AluOp::kMax, std::fabs(a), std::fabs(b));
    case AluOp::kAbsMin:
      return alu(AluOp::kMin, std::fabs(a), std::fabs(b));
    case AluOp::kPower:
      return static_cast<float>(std::pow(static_cast<double>(a), static_cast<double>(b)));
    case AluOp::kEqual:
      return a == b;
    case AluOp::kNotEqual:
      return a != b;
    case AluOp::kGreaterEqual:
      return a >= b;
    case AluOp::kGreater:
      return a > b;
    case AluOp::kLessEqual:
      return a <= b;
    case AluOp::kLess:
      return a < b;
    case AluOp::kLogicalAnd:
      return a != 0 && b != 0;
    case AluOp::kLogicalOr:
      return a != 0 || b != 0;
    case AluOp::kLogicalXor:
      return (a != 0) != (b != 0);
    default:
      return a;
  }
}

int64_t alu_int(AluOp op, int64_t a, int64_t b, int bits) {
  const auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  switch (op) {
    case AluOp::kAdd:
      return static_cast<int64_t>(ua + ub);
    case AluOp::kSubtract:
      return static_cast<int64_t>(ua - ub);
    case AluOp::kMultiply:
      return static_cast<int64_t>(ua * ub);
    case AluOp::kMax:
      return std::max(a, b);
    case AluOp::kMin:
      return std::min(a, b);
    case AluOp::kAbsMax:
      return std::max(std::abs(a), std::abs(b));
    case AluOp::kAbsMin:
      return std::min(std::abs(a), std::abs(b));
    case AluOp::kPower: {
      if (b < 0) return a == 1 ? 1 : (a == -1 ? (b % 2 == 0 ? 1 : -1) : 0);
      // Plain repetition, but exponents of random words would take for ever.
      uint64_t r = 1, base = ua;
      for (; b != 0; b /= 2, base *= base) r *= b % 2 != 0 ? base : 1;
      return static_cast<int64_t>(r);
    }
    case AluOp::kEqual:
      return a == b;
    case AluOp::kNotEqual:
      return a != b;
    case AluOp::kGreaterEqual:
      return a >= b;
    case AluOp::kGreater:
      return a > b;
    case AluOp::kLessEqual:
      return a <= b;
    case AluOp::kLess:
      return a < b;
    case AluOp::kLogicalAnd:
      return a != 0 && b != 0;
    case AluOp::kLogicalOr:
      return a != 0 || b != 0;
    case AluOp::kLogicalXor:
      return (a != 0) != (b != 0);
    case AluOp::kBitAnd:
      return a & b;
    case AluOp::kBitOr:
      return a | b;
    case AluOp::kBitXor:
      return a ^ b;
    case AluOp::kShiftLeft:
      return b < 0 || b >= bits ? 0 : static_cast<int64_t>(ua << ub);
    case AluOp::kShiftRight: {
      if (b < 0 || b >= bits) return 0;
      const uint64_t mask = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
      return static_cast<int64_t>((ua & mask) >> ub);
    }
    default:
      return a;
  }
}

bool is_int(const Access& a) { return !a.present() || isa::is_integer(a.dtype); }
bool is_int(const ScalarOperand& s) {
  if (s.kind == ScalarOperand::Kind::kPointer) return isa::is_integer(s.pointer.dtype);
  return s.kind == ScalarOperand::Kind::kNone || s.value == std::trunc(s.value);
}
int bits_of(Dtype d) { return static_cast<int>(isa::dtype_bytes(d)) * 8; }

// Results are collected before any is written: operands may overlap dst in place.
struct Results {
  std::vector<std::pair<std::byte*, std::array<std::byte, 8>>> cells;
  Dtype dtype;
  void f32(std::byte* p, float v) {
    std::array<std::byte, 8> b{};
    isa::store_from_f32(dtype, b.data(), v);
    cells.emplace_back(p, b);
  }
  void integer(std::byte* p, int64_t v) {
    std::array<std::byte, 8> b{};
    isa::store_from_int(dtype, b.data(), v);
    cells.emplace_back(p, b);
  }
  void raw(std::byte* p, const std::byte* v) {
    std::array<std::byte, 8> b{};
    std::memcpy(b.data(), v, isa::dtype_bytes(dtype));
    cells.emplace_back(p, b);
  }
  void flush() {
    for (auto& [p, b] : cells) std::memcpy(p, b.data(), isa::dtype_bytes(dtype));
    cells.clear();
  }
};

// Element conversion of copies: bits when the storage is the same, integers exactly, everything else through
// FP32.
void convert(Results& r, std::byte* to, Dtype from_dtype, const std::byte* from) {
  const auto plain = [](Dtype d) { return d == Dtype::kF32R ? Dtype::kF32 : d; };
  if (plain(r.dtype) == plain(from_dtype)) {
    r.raw(to, from);
  } else if (isa::is_integer(r.dtype) && isa::is_integer(from_dtype)) {
    int64_t v = isa::load_as_int(from_dtype, from);
    if (from_dtype == Dtype::kI64 && r.dtype == Dtype::kI32) v = std::clamp<int64_t>(v, INT32_MIN, INT32_MAX);
    if (from_dtype == Dtype::kI64 && r.dtype == Dtype::kU32) v = std::clamp<int64_t>(v, 0, UINT32_MAX);
    r.integer(to, v);
  } else {
    r.f32(to, isa::load_as_f32(from_dtype, from));
  }
}

float scalar(Memory& m, const ScalarOperand& s, int64_t p, float otherwise) {
  if (s.kind == ScalarOperand::Kind::kNone) return otherwise;
  return s.kind == ScalarOperand::Kind::kPointer ? m.f32(s.pointer, p, 0) : s.value;
}
int64_t scalar_int(Memory& m, const ScalarOperand& s, int64_t p) {
  return s.kind == ScalarOperand::Kind::kPointer ? m.integer(s.pointer, p, 0) : static_cast<int64_t>(s.value);
}
bool given(const ScalarOperand& s) { return s.kind != ScalarOperand::Kind::kNone; }

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
  const bool ints =
      is_int(in.dst) && is_int(in.src0) && is_int(in.src1) && is_int(in.imm0) && is_int(in.imm1);
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
        const int64_t x = r0 ? alu_int(in.op0, s, a, bits) : alu_int(in.op0, a, s, bits);
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
      const float x = r0 ? alu(in.op0, s, a) : alu(in.op0, a, s);
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

void activation(const Instruction& in, Memory& m) {
  const bool accumulate = in.has(isa::kFlagAccumulate);
  Results out{{}, in.dst.dtype}, sums{{}, in.aux.dtype};
  for (int64_t p = 0; p < in.dst.num_partitions; ++p) {
    double sum = 0;
    for (int64_t k = 0; k < in.dst.free_elements(); ++k) {
      std::byte* to = m.at(in.dst, p, k);
      if (in.func == isa::ActFunc::kCopy && !given(in.imm0) && !given(in.imm1) && !accumulate) {
        convert(out, to, in.src0.dtype, m.at(in.src0, p, k));
        continue;
      }
      float x = m.f32(in.src0, p, k);
      if (given(in.imm0)) x = x * scalar(m, in.imm0, p, 1);
      if (given(in.imm1)) x = x + scalar(m, in.imm1, p, 0);
      const float y = static_cast<float>(oracle_activation(in.func, x));
      sum += y;
      out.f32(to, y);
    }
    if (accumulate) sums.f32(m.at(in.aux, p, 0), static_cast<float>(sum));
  }
  out.flush();
  sums.flush();
}

void reduce(const Instruction& in, Memory& m) {
  const bool ints = is_int(in.dst) && is_int(in.src0);
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
        if (in.op0 == AluOp::kAdd) {
          v += x;
        } else if (in.op0 == AluOp::kSubtract) {
          v -= x;
        } else if (in.op0 == AluOp::kMultiply) {
          v *= x;
        } else {
          v = alu(in.op0, static_cast<float>(v), x);
        }
      }
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
        i = alu_int(in.op0, m.integer(in.src0, p, k), i, bits);
        i = alu_int(in.op1, i, m.integer(in.src1, p, k), bits);
        i = in.dst.dtype == Dtype::kU32 ? static_cast<int64_t>(static_cast<uint32_t>(i))
                                        : static_cast<int64_t>(static_cast<int32_t>(i));
        out.integer(m.at(in.dst, p, k), i);
      } else {
        r = alu(in.op0, m.f32(in.src0, p, k), r);
        r = alu(in.op1, r, m.f32(in.src1, p, k));
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
  Results out{{}, in.dst.dtype};
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
    for (int64_t v = 0; v < 8; ++v) {
      const double value = top_value(m, in.src1, ints, p, v);
      int64_t found = -1;
      for (int64_t k = 0; k < n && found < 0; ++k) {
        if (!used[static_cast<size_t>(k)] && same(x[static_cast<size_t>(k)], value)) found = k;
      }
      if (found >= 0) used[static_cast<size_t>(found)] = true;
      if (in.opcode == Opcode::kMaxIndex8) {
        out.integer(m.at(in.dst, p, v), found);
      } else if (found >= 0) {
        out.f32(m.at(in.dst, p, found), scalar(m, in.imm0, p, 0));
      }
    }
  }
  out.flush();
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
  if (in.opcode == Opcode::kLoadStationary) {
    m.stationary_k = in.src0.num_partitions;
    m.stationary_m = static_cast<int>(in.src0.free_elements());
    m.stationary.clear();
    for (int64_t p = 0; p < m.stationary_k; ++p) {
      for (int64_t k = 0; k < m.stationary_m; ++k) m.stationary.push_back(value(p, k));
    }
    return;
  }
  Results out{{}, in.dst.dtype};
  for (int64_t row = 0; row < m.stationary_m; ++row) {
    for (int64_t n = 0; n < in.dst.free_elements(); ++n) {
      double sum = in.has(isa::kFlagAccumulate) ? m.f32(in.dst, row, n) : 0.0;
      for (int64_t k = 0; k < m.stationary_k; ++k) {
        sum += static_cast<double>(m.stationary[static_cast<size_t>(k * m.stationary_m + row)]) * value(k, n);
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
}

// Element e of an operand in row-major order, partitions outermost.
std::byte* flat(Memory& m, const Access& a, int64_t e) {
  if (a.space == isa::Space::kHbm) return m.at(a, 0, e);
  return m.at(a, e / a.free_elements(), e % a.free_elements());
}

void dma(const Instruction& in, Memory& m) {
  Results out{{}, in.dst.dtype};
  if (in.opcode == Opcode::kDmaCopy) {
    for (int64_t e = 0; e < in.dst.elements(); ++e)
      convert(out, flat(m, in.dst, e), in.src0.dtype, flat(m, in.src0, e));
    out.flush();
    return;
  }
  if (in.opcode == Opcode::kDmaTranspose) {
    const int64_t rows = in.src0.space == isa::Space::kSbuf ? in.src0.num_partitions : in.src0.size[0];
    const int64_t columns = in.src0.elements() / rows;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c)
        out.raw(flat(m, in.dst, c * rows + r), flat(m, in.src0, r * columns + c));
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
      if (gather) {
        convert(out, in_tile, table.dtype, in_table);
      } else if (in.op0 != AluOp::kAdd) {
        convert(out, in_table, in.src0.dtype, in_tile);
      } else if (isa::is_integer(table.dtype) && isa::is_integer(in.src0.dtype)) {
        out.integer(in_table,
                    isa::load_as_int(table.dtype, in_table) + isa::load_as_int(in.src0.dtype, in_tile));
      } else {
        out.f32(in_table, isa::load_as_f32(table.dtype, in_table) + isa::load_as_f32(in.src0.dtype, in_tile));
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
          if (m.f32(in.src1, p, k) != 0) convert(out, to, in.src0.dtype, m.at(in.src0, p, k));
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
    case ActFunc::kCount:
      break;
  }
  return 0;
}

Agreement agreement(const Instruction& in) {
  switch (in.opcode) {
    case Opcode::kMultiplyMoving:
      return Agreement::kSums;
    case Opcode::kActivation:
      return in.has(isa::kFlagAccumulate) ? Agreement::kSums : Agreement::kUlps;
    case Opcode::kTensorReduce:
    case Opcode::kPartitionReduce:
      return in.op0 <= AluOp::kMultiply ? Agreement::kSums : Agreement::kValue;
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

void execute_oracle(const Instruction& in, Memory& m) {
  switch (in.opcode) {
    case Opcode::kLoadStationary:
    case Opcode::kMultiplyMoving:
      return tensor_engine(in, m);
    case Opcode::kTranspose:
      return transpose(in, m);
    case Opcode::kTensorTensor:
    case Opcode::kTensorScalar:
    case Opcode::kScalarTensorTensor:
      return elementwise(in, m);
    case Opcode::kActivation:
      return activation(in, m);
    case Opcode::kTensorReduce:
    case Opcode::kPartitionReduce:
      return reduce(in, m);
    case Opcode::kTensorTensorScan:
      return scan(in, m);
    case Opcode::kBnStats:
    case Opcode::kBnAggr:
      return statistics(in, m);
    case Opcode::kMax8:
    case Opcode::kMaxIndex8:
    case Opcode::kMatchReplace8:
      return top8(in, m);
    case Opcode::kDmaCopy:
    case Opcode::kDmaTranspose:
    case Opcode::kDmaGather:
    case Opcode::kDmaScatter:
      return dma(in, m);
    case Opcode::kRegLoad:
      std::memcpy(&m.registers[in.reg_dst], flat(m, in.src0, 0), 4);
      return;
    case Opcode::kRegStore:
      std::memcpy(flat(m, in.dst, 0), &m.registers[in.reg_a], 4);
      return;
    default:
      if (in.opcode == Opcode::kCopy || in.opcode == Opcode::kReciprocal || in.opcode == Opcode::kMemset ||
          in.opcode == Opcode::kIota || in.opcode == Opcode::kAffineSelect ||
          in.opcode == Opcode::kCopyPredicated || in.opcode == Opcode::kPhilox) {
        select(in, m);
      }
  }
}

}  // namespace trnsim::test
