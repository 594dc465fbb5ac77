// Vector, Scalar and GpSimd: fixed time + time per element, by operand space and dtype.
#include <algorithm>
#include <cstdlib>

#include "isa/table.h"
#include "sim/cost/cost.h"

namespace trnsim::cost {
namespace {

using isa::Access;
using isa::CostClass;
using isa::Instruction;
using isa::Opcode;
using isa::Space;

constexpr int64_t kSectorBytes = 16;

bool is_half(isa::Dtype d) { return d == isa::Dtype::kBF16 || d == isa::Dtype::kF16; }
bool in_sbuf(const Access& a) { return a.space == Space::kSbuf; }
bool strided(const Access& a) { return std::llabs(innermost_stride_bytes(a)) >= kSectorBytes; }

int pointer_operands(const Instruction& i) {
  using Kind = isa::ScalarOperand::Kind;
  return (i.imm0.kind == Kind::kPointer) + (i.imm1.kind == Kind::kPointer);
}

// Cycles per element of the one-input instructions with fast modes (copy, cast, tensor-scalar).
double vector_copy_rate(const Instruction& i, const config::Vector& v, bool* fast) {
  const Access& in = i.src0;
  const Access& out = i.dst;
  const bool sbuf = in_sbuf(in) && in_sbuf(out);
  const size_t in_bytes = isa::dtype_bytes(in.dtype), out_bytes = isa::dtype_bytes(out.dtype);
  double cycles = 1.0;
  if (is_half(in.dtype) && is_half(out.dtype)) {
    const bool dense = in.contiguous() && out.contiguous();
    if (sbuf && dense) {
      cycles = 1.0 / v.half_copy_elements_per_cycle;
    } else if (sbuf || dense) {
      cycles = 1.0 / v.half_slow_elements_per_cycle;
    }
  } else if (sbuf && in_bytes < 4 && out_bytes == 4) {
    cycles = v.widening_cycles_per_element;
  } else if (sbuf) {
    cycles = 1.0 / v.fp32_copy_elements_per_cycle;
  }
  *fast = sbuf && cycles < 1.0;
  if (strided(in) || strided(out)) cycles = std::max(cycles, v.strided_cycles_per_element);
  return cycles;
}

bool indirect(const Instruction& i) { return i.dst.indirect || i.src0.indirect || i.src1.indirect; }

void add_psum(const Instruction& i, Compute* cost) {
  for (const Access* a : {&i.dst, &i.src0, &i.src1, &i.aux}) cost->psum_banks |= psum_banks(*a);
}

}  // namespace

int64_t innermost_stride_bytes(const Access& a) {
  for (int d = a.num_dims - 1; d >= 0; --d) {
    if (a.size[d] > 1) return a.step_bytes(d);
  }
  return static_cast<int64_t>(isa::dtype_bytes(a.dtype));
}

int64_t sectors(const Access& a) {
  const int64_t n = a.free_elements();
  if (n == 0) return 0;
  const int64_t bytes = static_cast<int64_t>(isa::dtype_bytes(a.dtype));
  int64_t inner = 1, stride = bytes;
  for (int d = a.num_dims - 1; d >= 0; --d) {
    if (a.size[d] > 1) {
      inner = a.size[d];
      stride = std::llabs(a.step_bytes(d));
      break;
    }
  }
  const int64_t per_run = stride >= kSectorBytes ? inner : (inner - 1) * stride / kSectorBytes + 1;
  return n / inner * per_run;
}

uint8_t psum_banks(const Access& a) {
  if (a.space != Space::kPsum || a.address_register != isa::kNoRegister) return 0;
  int64_t low = a.offset, high = a.offset;
  for (int d = 0; d < a.num_dims; ++d) {
    const int64_t reach = a.step_bytes(d) * (static_cast<int64_t>(a.size[d]) - 1);
    (reach < 0 ? low : high) += reach;
  }
  uint8_t mask = 0;
  for (int64_t b = std::max<int64_t>(low, 0) / isa::kPsumBankBytes;
       b <= high / isa::kPsumBankBytes && b < isa::kPsumBanks; ++b) {
    mask = static_cast<uint8_t>(mask | (1u << b));
  }
  return mask;
}

Compute vector_cost(const Instruction& i, const config::Config& c) {
  const config::Vector& v = c.vector;
  Compute cost;
  const double n_out = static_cast<double>(i.dst.present() ? i.dst.free_elements() : 0);
  const double n_in = static_cast<double>(i.src0.present() ? i.src0.free_elements() : 0);
  double cycles = n_out;  // service
  double fixed_ns = v.copy_fixed_ns;
  double issue_cycles = v.issue_overhead_cycles;
  bool fast = false;
  switch (isa::row(i.opcode).cost) {
    case CostClass::kCopy:
    case CostClass::kTensorScalar:
      cycles = n_out * vector_copy_rate(i, v, &fast);
      break;
    case CostClass::kTensorTensor: {
      fixed_ns = v.tensor_tensor_fixed_ns;
      const bool half = is_half(i.src0.dtype) && is_half(i.src1.dtype) && is_half(i.dst.dtype);
      fast = half && in_sbuf(i.src0) && in_sbuf(i.src1) && in_sbuf(i.dst);
      double rate = fast ? 1.0 / v.half_tensor_tensor_elements_per_cycle : 1.0;
      if (strided(i.src0) || strided(i.src1) || strided(i.dst))
        rate = std::max(rate, v.strided_cycles_per_element);
      cycles = n_out * rate;
      break;
    }
    case CostClass::kPredicated:
      cycles = n_out * v.predicated_cycles_per_element;
      break;
    case CostClass::kReciprocal:
      cycles = n_out * v.reciprocal_cycles_per_element;
      break;
    case CostClass::kMemset:
    case CostClass::kPatternGenerate:
      cycles = n_out / v.fill_elements_per_cycle;
      break;
    case CostClass::kReduce:
      cycles = n_in;
      fixed_ns = v.reduce_fixed_ns;
      break;
    case CostClass::kScan:
      cycles = std::max(n_out * v.scan_cycles_per_element, v.scan_floor_cycles);
      break;
    case CostClass::kStatistics:
    case CostClass::kStatisticsMerge:
      cycles = n_in * v.statistics_cycles_per_element;
      fixed_ns = v.reduce_fixed_ns;
      break;
    case CostClass::kTop8:
      // N + 144 cycles is the issue interval and the latency alike: the eight values leave at the end.
      cycles = n_in;
      fixed_ns = v.top8_fixed_cycles / v.clock_ghz;
      issue_cycles = v.top8_fixed_cycles;
      break;
    case CostClass::kTranspose:
      cycles = n_out;
      fixed_ns = v.transpose_fixed_ns;
      break;
    case CostClass::kExponential:
      cycles = n_out / c.instructions.exponential_elements_per_cycle;
      break;
    case CostClass::kQuantize:
      cycles = n_in / c.instructions.quantize_elements_per_cycle;
      break;
    case CostClass::kShuffle:
      fixed_ns = c.instructions.shuffle_fixed_ns;
      break;
    case CostClass::kRandom:
      cycles = n_out / (i.opcode == Opcode::kRand2 ? c.instructions.uniform_elements_per_cycle
                                                   : c.instructions.random_elements_per_cycle);
      break;
    case CostClass::kRandomState:
      cycles = c.instructions.generator_state_cycles;
      break;
    default:  // one element per cycle
      break;
  }
  if (indirect(i)) cycles = std::max(cycles, n_out * c.instructions.indirect_cycles_per_element);
  double read_cycles = 0;  // the accumulator, in a slot of its own after the last element
  if (isa::row(i.opcode).uses(isa::kFieldReduce) && i.aux.present()) {
    read_cycles = c.instructions.accumulator_read_cycles;
  }
  const Ps pointers = ps(v.pointer_operand_ns) * pointer_operands(i);
  cost.stream = ps_of_cycles(cycles, v.clock_ghz);
  cost.latency = cost.stream + ps(fixed_ns) + pointers + ps_of_cycles(read_cycles, v.clock_ghz);
  cost.issue =
      std::min(cost.stream + ps_of_cycles(issue_cycles + read_cycles, v.clock_ghz) + pointers, cost.latency);
  cost.shared_bus = fast;
  add_psum(i, &cost);
  return cost;
}

Compute scalar_cost(const Instruction& i, const config::Config& c) {
  const config::Scalar& s = c.scalar;
  Compute cost;
  if (i.opcode == Opcode::kActTableLoad) {
    cost.table_set = static_cast<int8_t>(isa::act_table_set(i.func));
    cost.issue = cost.latency = ps(s.table_load_ns);
    cost.loads_table = true;
    return cost;
  }
  const double n = static_cast<double>(i.dst.present() ? i.dst.free_elements() : 0);
  // 16-byte sector law: two cycles per sector an operand touches, when that is more than one per element.
  const CostClass kind = isa::row(i.opcode).cost;
  const bool half = (kind == CostClass::kCopy || kind == CostClass::kTensorScalar) && is_half(i.src0.dtype) &&
                    is_half(i.dst.dtype);
  double per_operand = half ? n / s.half_copy_elements_per_cycle : n;
  for (const Access* a : {&i.src0, &i.dst}) {
    if (a->present()) {
      per_operand = std::max(per_operand, s.strided_sector_cycles * static_cast<double>(sectors(*a)));
    }
  }
  double cycles = per_operand;
  if (indirect(i)) cycles = std::max(cycles, n * c.instructions.indirect_cycles_per_element);
  const bool psum = i.src0.space == Space::kPsum;
  double fixed_ns = psum ? s.copy_psum_fixed_ns : s.copy_fixed_ns;
  double issue_ns = s.issue_overhead_ns;
  double pointers_ns = s.pointer_operand_ns * pointer_operands(i);
  double tail_ns = 0, tail_issue_ns = 0;
  if (kind == CostClass::kActivation) {
    if (i.func == isa::ActFunc::kCopy) {
      fixed_ns = psum ? s.copy_psum_fixed_ns : s.activation_copy_fixed_ns;
    } else {
      fixed_ns = psum ? s.activation_psum_fixed_ns : s.activation_fixed_ns;
      if (psum) cycles = std::max(cycles, n * s.activation_psum_cycles_per_element);
      pointers_ns = 0;  // the measured activations read their bias from memory
    }
    cost.table_set = static_cast<int8_t>(isa::act_table_set(i.func));
    if (i.aux.present()) {
      // A second instruction reads the accumulator when the last element has been forwarded to it.
      fixed_ns = s.accumulate_forward_ns;
      issue_ns = s.accumulate_forward_ns;
      tail_ns = s.accumulate_read_ns;
      tail_issue_ns = s.accumulate_read_issue_ns;
    }
  }
  cost.stream = ps_of_cycles(cycles, s.clock_ghz);
  cost.latency = cost.stream + ps(fixed_ns + pointers_ns + tail_ns);
  cost.issue = std::min(cost.stream + ps(issue_ns + pointers_ns + tail_issue_ns), cost.latency);
  add_psum(i, &cost);
  return cost;
}

Compute gpsimd_cost(const Instruction& i, const config::Config& c) {
  const config::GpSimd& g = c.gpsimd;
  Compute cost;
  const double n = static_cast<double>(i.dst.present() ? i.dst.free_elements() : 0);
  double fixed_ns = g.fixed_cycles / g.clock_ghz;
  // 32 bit per partition and cycle each way: two FP32 inputs take two cycles per element.
  double read_bytes = 0;
  for (const Access* a : {&i.src0, &i.src1}) {
    if (a->present()) read_bytes += static_cast<double>(isa::dtype_bytes(a->dtype));
  }
  double cycles = n * g.cycles_per_element * std::max(1.0, read_bytes / 4.0);
  switch (isa::row(i.opcode).cost) {
    case CostClass::kPatternGenerate:
      fixed_ns = g.select_fixed_ns;
      break;
    case CostClass::kMemset:
      fixed_ns = g.memset_fixed_ns;
      break;
    case CostClass::kPartitionReduce:
      cycles = static_cast<double>(i.src0.free_elements()) * std::max<int>(i.src0.num_partitions, 1) *
               g.partition_reduce_cycles;
      break;
    case CostClass::kRandom:
      cycles = i.opcode == Opcode::kPhilox ? n * g.philox_cycles_per_element
                                           : n / c.instructions.random_elements_per_cycle;
      break;
    case CostClass::kRandomState:
      cycles = c.instructions.generator_state_cycles;
      break;
    case CostClass::kLocalGather: {
      const double count = std::max<uint32_t>(i.count, 1);
      const double bytes = static_cast<double>(isa::dtype_bytes(i.src0.dtype));
      const double rate =
          (c.instructions.local_gather_setup_cycles + c.instructions.local_gather_element_cycles * count) /
          (c.instructions.local_gather_element_cycles * count) / std::min(4 / bytes, count);
      cycles = n / rate;
      break;
    }
    case CostClass::kListScan:
      cycles = static_cast<double>(i.src0.free_elements()) * c.instructions.list_cycles_per_element;
      if (i.opcode == Opcode::kNGather) cycles = n * c.instructions.list_cycles_per_element;
      break;
    case CostClass::kTopk:
      cycles = static_cast<double>(i.imm) * c.instructions.topk_cycles_per_value +
               i.count * c.instructions.topk_cycles_per_result;
      break;
    case CostClass::kCustom:
      cycles = n * c.instructions.custom_cycles_per_element;
      break;
    default:
      break;
  }
  if (indirect(i)) cycles = std::max(cycles, n * c.instructions.indirect_cycles_per_element);
  cost.stream = ps_of_cycles(cycles, g.clock_ghz);
  cost.latency = cost.stream + ps(fixed_ns);
  cost.issue = std::min(cost.stream + ps_of_cycles(g.issue_overhead_cycles, g.clock_ghz), cost.latency);
  cost.shared_bus = true;
  add_psum(i, &cost);
  return cost;
}

Compute compute_cost(const Instruction& i, const config::Config& c) {
  switch (i.engine) {
    case isa::Engine::kVector:
      return vector_cost(i, c);
    case isa::Engine::kScalar:
      return scalar_cost(i, c);
    default:
      return gpsimd_cost(i, c);
  }
}

}  // namespace trnsim::cost
