// The oracle for accumulators, microscaling, GpSimd programs, random generators and DMA sums.
#include <limits>

#include "tests/cpp/exec/oracle_parts.h"

namespace trnsim::test {
namespace {

using isa::ReduceCmd;

double start_value(AluOp op) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  switch (op) {
    case AluOp::kMultiply:
      return 1;
    case AluOp::kMax:
      return -kInf;
    case AluOp::kMin:
    case AluOp::kAbsMin:
      return kInf;
    default:
      return 0;
  }
}

// Reduces the results of one partition into its accumulator.
void accumulate(const Instruction& in, Memory& m, int64_t p, const std::vector<float>& results) {
  if (in.reduce == ReduceCmd::kIdle) return;
  float& a = m.accumulators[static_cast<int>(in.engine)][in.dst.start_partition + p];
  double v = a;
  if (in.reduce == ReduceCmd::kReset || in.reduce == ReduceCmd::kResetReduce) v = start_value(in.reduce_op);
  if (in.reduce == ReduceCmd::kLoadReduce) v = scalar(m, in.imm1, p, 0);
  for (float x : results) {
    if (in.reduce == ReduceCmd::kReset) break;
    if (in.reduce_op == AluOp::kAdd) {
      v += x;
    } else if (in.reduce_op == AluOp::kMultiply) {
      v *= x;
    } else {
      v = alu(in.reduce_op, static_cast<float>(v), x);
    }
  }
  a = static_cast<float>(v);
}

void read_out(const Instruction& in, Memory& m, bool negate) {
  if (!in.aux.present()) return;
  for (int64_t p = 0; p < in.dst.num_partitions; ++p) {
    const float a = m.accumulators[static_cast<int>(in.engine)][in.dst.start_partition + p];
    isa::store_from_f32(in.aux.dtype, m.at(in.aux, p, 0), negate ? -a : a);
  }
}

// dst = value(p, k) in FP32, reduced into the accumulator.
template <typename Value>
void reduced(const Instruction& in, Memory& m, Value value) {
  Results out{{}, in.dst.dtype};
  for (int64_t p = 0; p < in.dst.num_partitions; ++p) {
    std::vector<float> results;
    for (int64_t k = 0; k < in.dst.free_elements(); ++k) {
      results.push_back(value(p, k));
      out.f32(m.at(in.dst, p, k), results.back());
    }
    accumulate(in, m, p, results);
  }
  out.flush();
  read_out(in, m, in.opcode == Opcode::kTensorScalarReduce && in.has(isa::kFlagNegate));
}

float function(const Instruction& in, float x) {
  if (in.func == isa::ActFunc::kPrelu) return x > 0 ? x : x * in.param;
  return static_cast<float>(oracle_activation(in.func, x));
}

void activation(const Instruction& in, Memory& m) {
  if (in.func == isa::ActFunc::kCopy && !given(in.imm0) && !given(in.imm1) && in.reduce == ReduceCmd::kIdle) {
    Results out{{}, in.dst.dtype};
    for (int64_t p = 0; p < in.dst.num_partitions; ++p) {
      for (int64_t k = 0; k < in.dst.free_elements(); ++k)
        convert(out, m.at(in.dst, p, k), in.src0.dtype, m.at(in.src0, p, k));
    }
    return out.flush();
  }
  reduced(in, m, [&](int64_t p, int64_t k) {
    float x = m.f32(in.src0, p, k);
    if (given(in.imm0)) x = x * scalar(m, in.imm0, p, 1);
    if (given(in.imm1)) x = x + scalar(m, in.imm1, p, 0);
    return function(in, x);
  });
}

void activate2(const Instruction& in, Memory& m) {
  reduced(in, m, [&](int64_t p, int64_t k) {
    float x = m.f32(in.src0, p, k);
    const float u = scalar(m, in.imm0, p, 0), v = scalar(m, in.imm1, p, 0);
    x = in.has(isa::kFlagReverse0) ? alu(in.op0, u, x) : alu(in.op0, x, u);
    x = in.has(isa::kFlagReverse1) ? alu(in.op1, v, x) : alu(in.op1, x, v);
    return function(in, x);
  });
}

void cumulative(const Instruction& in, Memory& m) {
  Results out{{}, in.dst.dtype};
  for (int64_t p = 0; p < in.dst.num_partitions; ++p) {
    float& r = m.accumulators[static_cast<int>(in.engine)][in.dst.start_partition + p];
    if (in.reduce == ReduceCmd::kResetReduce) r = static_cast<float>(start_value(in.op1));
    if (in.reduce == ReduceCmd::kLoadReduce) r = scalar(m, in.imm1, p, 0);
    for (int64_t k = 0; k < in.dst.free_elements(); ++k) {
      r = alu(in.op1, alu(in.op0, m.f32(in.src0, p, k), scalar(m, in.imm0, p, 0)), r);
      out.f32(m.at(in.dst, p, k), r);
    }
  }
  out.flush();
}

void shuffle(const Instruction& in, Memory& m) {
  Results out{{}, in.dst.dtype};
  for (int64_t p = 0; p < in.dst.num_partitions; ++p) {
    const uint8_t from = in.mask[static_cast<size_t>(p % 32)];
    if (from == isa::kShuffleKeep) continue;
    for (int64_t k = 0; k < in.dst.free_elements(); ++k)
      out.raw(m.at(in.dst, p, k), m.at(in.src0, p / 32 * 32 + from, k));
  }
  out.flush();
}

// Scale of the block that partition p belongs to.
float block_scale(Memory& m, const Access& scale, int64_t p, int64_t k) {
  const int64_t block = p / 8;
  const auto code = static_cast<uint8_t>(*m.at(scale, block / 4 * 32 + block % 4, k));
  return code == 255 ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, code - 127);
}

void microscaling_product(const Instruction& in, Memory& m) {
  const auto value = [&](int64_t p, int64_t k, int j) {
    return isa::f32_from_packed(in.src0.dtype, m.at(in.src0, p, k), j) * block_scale(m, in.src1, p, k);
  };
  const auto key = std::array<int, 4>{in.tile.row, in.tile.column, in.tile.rows, in.tile.columns};
  const int64_t rows = in.src0.num_partitions;
  if (in.opcode == Opcode::kLoadStationaryMx) {
    std::vector<float> matrix;
    for (int64_t p = 0; p < rows; ++p) {
      for (int j = 0; j < 4; ++j) {
        for (int64_t k = 0; k < in.src0.free_elements(); ++k) matrix.push_back(value(p, k, j));
      }
    }
    m.stationary[key] = matrix;
    return;
  }
  const std::vector<float>& matrix = m.stationary[key];
  const int64_t columns = static_cast<int64_t>(matrix.size()) / (4 * rows);
  Results out{{}, in.dst.dtype};
  for (int64_t row = 0; row < columns; ++row) {
    for (int64_t n = 0; n < in.dst.free_elements(); ++n) {
      double sum = in.has(isa::kFlagAccumulate) ? m.f32(in.dst, row, n) : 0.0;
      for (int64_t k = 0; k < 4 * rows; ++k) {
        sum += static_cast<double>(matrix[static_cast<size_t>(k * columns + row)]) *
               value(k / 4, n, static_cast<int>(k % 4));
      }
      out.f32(m.at(in.dst, row, n), static_cast<float>(sum));
    }
  }
  out.flush();
}

void quantize(const Instruction& in, Memory& m) {
  const bool wide = in.dst.dtype == Dtype::kF8E5M2x4;
  for (int64_t block = 0; block < in.src0.num_partitions / 8; ++block) {
    for (int64_t k = 0; k < in.dst.free_elements(); ++k) {
      double largest = 0;
      bool numbers = true;
      for (int64_t p = 8 * block; p < 8 * block + 8; ++p) {
        for (int64_t j = 0; j < 4; ++j) {
          const double v = std::fabs(m.f32(in.src0, p, 4 * k + j));
          numbers = numbers && std::isfinite(v);
          largest = std::max(largest, v);
        }
      }
      int exponent = -127;
      if (numbers && largest > 0) {
        exponent = std::max(-127, static_cast<int>(std::floor(std::log2(largest))) - ((wide ? 15 : 8) - 1));
      }
      *m.at(in.aux, block / 4 * 32 + block % 4, k) = static_cast<std::byte>(numbers ? exponent + 127 : 255);
      for (int64_t p = 8 * block; p < 8 * block + 8; ++p) {
        for (int64_t j = 0; j < 4; ++j) {
          const double v = m.f32(in.src0, p, 4 * k + j);
          const auto scaled = static_cast<float>(numbers ? v / std::pow(2.0, exponent) : v);
          m.at(in.dst, p, k)[j] =
              static_cast<std::byte>(isa::fp8_from_f32(wide ? Dtype::kF8E5M2 : Dtype::kF8E4M3FN, scaled));
        }
      }
    }
  }
}

void gather(const Instruction& in, Memory& m) {
  Results out{{}, in.dst.dtype};
  for (int64_t p = 0; p < in.dst.num_partitions; ++p) {
    for (int64_t k = 0; k < in.dst.free_elements(); ++k) {
      int64_t from;
      if (in.opcode == Opcode::kNGather) {
        from = m.integer(in.src1, p, k);
      } else {
        const int64_t i = k / in.count;
        from = m.integer(in.src1, p / 16 * 16 + i % 16, i / 16) + k % in.count;
      }
      out.raw(m.at(in.dst, p, k), m.at(in.src0, p, from));
    }
  }
  out.flush();
}

void lists(const Instruction& in, Memory& m) {
  const int64_t n = in.src0.free_elements();
  if (in.opcode == Opcode::kSequenceBounds) {
    for (int64_t k = 0; k < n; ++k) {
      const float id = m.f32(in.src0, 0, k);
      int64_t first = k, last = k;
      while (first > 0 && m.f32(in.src0, 0, first - 1) == id) --first;
      while (last + 1 < n && m.f32(in.src0, 0, last + 1) == id) ++last;
      isa::store_from_f32(in.dst.dtype, m.at(in.dst, 0, k), static_cast<float>(id == 0 ? n : first));
      isa::store_from_f32(in.dst.dtype, m.at(in.dst, 0, n + k), static_cast<float>(id == 0 ? -1 : last + 1));
    }
    return;
  }
  for (int64_t p = 0; p < in.src0.num_partitions; p += 16) {
    std::vector<int64_t> found;
    for (int64_t k = 0; k < n; ++k) {
      if (m.f32(in.src0, p, k) != 0) found.push_back(in.imm + k);
    }
    const auto count = static_cast<int64_t>(found.size());
    for (int64_t k = 0; k < n; ++k) {
      isa::store_from_int(in.dst.dtype, m.at(in.dst, p, k),
                          k < count ? found[static_cast<size_t>(k)] : static_cast<int64_t>(in.imm0.value));
    }
    isa::store_from_int(in.dst.dtype, m.at(in.dst, p, n), count);
  }
}

void topk(const Instruction& in, Memory& m) {
  const auto cell = [&](const Access& a, int64_t group, int64_t i) {
    return m.at(a, group * 16 + i % 16, i / 16);
  };
  for (int64_t group = 0; group < in.src0.num_partitions / 16; ++group) {
    std::vector<std::pair<float, int64_t>> values;
    for (int64_t i = 0; i < in.imm; ++i)
      values.emplace_back(isa::load_as_f32(in.src0.dtype, cell(in.src0, group, i)), i);
    // Ascending, so the larger index of equal values comes first; NaN last.
    std::sort(values.begin(), values.end(), [](const auto& a, const auto& b) {
      const bool an = std::isnan(a.first), bn = std::isnan(b.first);
      if (an != bn) return bn;
      if (!an && a.first != b.first) return a.first < b.first;
      return a.second > b.second;
    });
    for (int64_t j = 0; j < in.count; ++j) {
      const auto& [value, index] = values[static_cast<size_t>(in.imm - in.count + j)];
      isa::store_from_f32(in.dst.dtype, cell(in.dst, group, j), value);
      isa::store_from_int(in.aux.dtype, cell(in.aux, group, j), index);
    }
  }
}

// ---- generators ----

uint32_t next_word(const Instruction& in, Memory& m, int64_t p, int64_t k) {
  const bool vector = in.engine == isa::Engine::kVector;
  uint32_t* s = m.generators[static_cast<int>(in.engine)][in.dst.start_partition + p];
  if (vector && !m.vector_xorwow) {
    for (int i = 0; i < 32; ++i) {
      const bool bit = (*s & 1) != 0;
      *s >>= 1;
      if (bit) *s ^= 0x80200003u;
    }
    return *s;
  }
  if (vector) s += 6 * (k % 4);
  uint32_t t = s[0];
  t ^= t >> 2;
  for (int i = 0; i < 4; ++i) s[i] = s[i + 1];
  s[4] ^= s[4] << 4;
  s[4] ^= t ^ (t << 1);
  s[5] += 362437;
  return s[5] + s[4];
}

void seed(const Instruction& in, Memory& m) {
  uint32_t value;
  std::memcpy(&value, m.at(in.src0, 0, 0), 4);
  for (uint64_t lane = 0; lane < 128; ++lane) {
    for (uint64_t w = 0; w < 24; ++w) {
      uint64_t z = (uint64_t{value} << 32) + (lane * 64 + w + 1) * 0x9E3779B97F4A7C15ull;
      z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
      z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
      z ^= z >> 31;
      m.generators[static_cast<int>(in.engine)][lane][w] = static_cast<uint32_t>(z) | (w % 6 == 0 ? 1u : 0u);
    }
  }
}

void random(const Instruction& in, Memory& m) {
  Results out{{}, in.dst.dtype};
  for (int64_t p = 0; p < in.dst.num_partitions; ++p) {
    for (int64_t k = 0; k < in.dst.free_elements(); ++k) {
      std::byte* to = m.at(in.dst, p, k);
      const uint32_t word = next_word(in, m, p, k);
      const float u = static_cast<float>(word / 256) / 16777216.0f;
      if (in.opcode == Opcode::kRng) {
        out.integer(to, word);
      } else if (in.opcode == Opcode::kRand2) {
        const float a = scalar(m, in.imm0, p, 0), b = scalar(m, in.imm1, p, 0);
        out.f32(to, u * (b - a) + a);
      } else if (u < scalar(m, in.imm0, p, 0)) {
        const std::byte zeros[8] = {};
        out.raw(to, zeros);
      } else {
        out.raw(to, m.at(in.src0, p, k));
      }
    }
  }
  out.flush();
}

void generator_state(const Instruction& in, Memory& m) {
  const bool get = in.opcode == Opcode::kRandGetState;
  const Access& a = get ? in.dst : in.src0;
  for (int64_t p = 0; p < a.num_partitions; ++p) {
    for (int64_t k = 0; k < a.free_elements(); ++k) {
      uint32_t* word = &m.generators[static_cast<int>(in.engine)][a.start_partition + p][k];
      std::byte* cell = m.at(a, p, k);
      get ? std::memcpy(cell, word, 4) : std::memcpy(word, cell, 4);
    }
  }
}

void dma_compute(const Instruction& in, Memory& m) {
  Results out{{}, in.dst.dtype};
  const int64_t n = in.dst.elements();
  for (int64_t e = 0; e < n; ++e) {
    float sum = 0;
    bool first = true;
    for (const Access* a : {&in.src0, &in.src1}) {
      if (!a->present()) continue;
      const int64_t sources = a->elements() / n;
      for (int64_t j = 0; j < sources; ++j) {
        float v;
        if (a->space == isa::Space::kHbm) {
          v = m.f32(*a, 0, j * n + e);
        } else {
          const int64_t per = a->free_elements() / sources;
          v = m.f32(*a, e / per, j * per + e % per);
        }
        sum = first ? v : sum + v;
        first = false;
      }
    }
    out.f32(flat(m, in.dst, e), sum);
  }
  out.flush();
}

}  // namespace

bool execute_oracle_rows(const Instruction& in, Memory& m) {
  switch (in.opcode) {
    case Opcode::kActTableLoad:
      return true;  // time only
    case Opcode::kActivation:
      activation(in, m);
      return true;
    case Opcode::kActivate2:
      activate2(in, m);
      return true;
    case Opcode::kExponential:
      reduced(in, m, [&](int64_t p, int64_t k) {
        return static_cast<float>(
            std::exp(static_cast<double>(m.f32(in.src0, p, k) - scalar(m, in.imm0, p, 0))));
      });
      return true;
    case Opcode::kTensorScalarReduce:
      reduced(in, m, [&](int64_t p, int64_t k) {
        return alu(in.op0, m.f32(in.src0, p, k), scalar(m, in.imm0, p, 0));
      });
      return true;
    case Opcode::kTensorScalarCumulative:
      cumulative(in, m);
      return true;
    case Opcode::kRangeSelect:
      reduced(in, m, [&](int64_t p, int64_t k) {
        const auto i = static_cast<float>(in.imm + k);
        const bool keep =
            alu(in.op0, i, scalar(m, in.imm0, p, 0)) != 0 && alu(in.op1, i, scalar(m, in.imm1, p, 0)) != 0;
        return keep ? m.f32(in.src0, p, k) : -3.4028235e38f;
      });
      return true;
    case Opcode::kSelectReduce:
      reduced(in, m, [&](int64_t p, int64_t k) {
        const bool first = (m.f32(in.src1, p, k) != 0) != in.has(isa::kFlagNegate);
        return first ? m.f32(in.src0, p, k) : scalar(m, in.imm0, p, 0);
      });
      return true;
    case Opcode::kStreamShuffle:
      shuffle(in, m);
      return true;
    case Opcode::kLoadStationaryMx:
    case Opcode::kMultiplyMovingMx:
      microscaling_product(in, m);
      return true;
    case Opcode::kQuantizeMx:
      quantize(in, m);
      return true;
    case Opcode::kLocalGather:
    case Opcode::kNGather:
      gather(in, m);
      return true;
    case Opcode::kSequenceBounds:
    case Opcode::kNonzeroWithCount:
      lists(in, m);
      return true;
    case Opcode::kTopk:
      topk(in, m);
      return true;
    case Opcode::kCustom: {  // operation 0
      Results out{{}, in.dst.dtype};
      for (int64_t p = 0; p < in.dst.num_partitions; ++p) {
        for (int64_t k = 0; k < in.dst.free_elements(); ++k)
          out.f32(m.at(in.dst, p, k), m.f32(in.src0, p, k));
      }
      out.flush();
      return true;
    }
    case Opcode::kRng:
    case Opcode::kRand2:
    case Opcode::kDropout:
      random(in, m);
      return true;
    case Opcode::kSetRngSeed:
      seed(in, m);
      return true;
    case Opcode::kRandGetState:
    case Opcode::kRandSetState:
      generator_state(in, m);
      return true;
    case Opcode::kDmaCompute:
      dma_compute(in, m);
      return true;
    case Opcode::kRegMove:
      if (in.has(isa::kFlagWide)) m.registers[in.reg_dst + 1] = static_cast<int32_t>(in.imm >> 32);
      m.registers[in.reg_dst] = static_cast<int32_t>(in.imm);
      return true;
    case Opcode::kRegAlu: {
      if (in.has(isa::kFlagWide)) {
        uint64_t x = 0, y = static_cast<uint64_t>(in.imm);
        std::memcpy(&x, &m.registers[in.reg_a], 8);
        if (!in.has(isa::kFlagImmediate)) std::memcpy(&y, &m.registers[in.reg_b], 8);
        x = in.op0 == AluOp::kAdd ? x + y : in.op0 == AluOp::kSubtract ? x - y : x * y;
        std::memcpy(&m.registers[in.reg_dst], &x, 8);
        return true;
      }
      const auto a = static_cast<uint32_t>(m.registers[in.reg_a]);
      const auto b = in.has(isa::kFlagImmediate) ? static_cast<uint32_t>(in.imm)
                                                 : static_cast<uint32_t>(m.registers[in.reg_b]);
      const bool shift = in.op0 == AluOp::kShiftLeft || in.op0 == AluOp::kShiftRight;
      const int64_t r = shift
                            ? (b < 32 ? (in.op0 == AluOp::kShiftLeft ? int64_t{a} << b : int64_t{a} >> b) : 0)
                            : alu_int(in.op0, static_cast<int32_t>(a), static_cast<int32_t>(b), 32);
      m.registers[in.reg_dst] = static_cast<int32_t>(static_cast<uint32_t>(r));
      return true;
    }
    default:
      return false;
  }
}

}  // namespace trnsim::test
