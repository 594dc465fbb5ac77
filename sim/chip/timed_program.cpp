#include "sim/chip/timed_program.h"

#include <algorithm>

#include "isa/names.h"
#include "isa/table.h"
#include "sim/chip/pe_array.h"

namespace trnsim::chip {
namespace {

using isa::Access;
using isa::Engine;
using isa::Instruction;
using isa::Opcode;
using isa::Role;
using isa::Space;

OperandRange range_of(const Access& a) {
  OperandRange r;
  r.space = a.space;
  if (a.space == Space::kHbm) {
    // One "partition" per tensor.
    r.first_partition = r.last_partition = static_cast<uint16_t>(a.tensor);
  } else {
    r.first_partition = a.start_partition;
    r.last_partition = static_cast<uint16_t>(a.start_partition + std::max<int>(a.num_partitions, 1) - 1);
  }
  if (a.address_register != isa::kNoRegister || a.indirect) {
    r.low = INT64_MIN;
    r.high = INT64_MAX;
    return r;
  }
  const int64_t bytes = static_cast<int64_t>(isa::dtype_bytes(a.dtype));
  r.low = a.offset;
  r.high = a.offset + bytes - 1;
  for (int d = 0; d < a.num_dims; ++d) {
    const int64_t reach = a.step_bytes(d) * (static_cast<int64_t>(a.size[d]) - 1);
    (reach < 0 ? r.low : r.high) += reach;
  }
  return r;
}

OpRanges ranges_of(const Instruction& i, bool* data_address) {
  OpRanges out;
  isa::for_each_operand(i, [&](auto, Role role, const Access& a) {
    if (a.address_register != isa::kNoRegister) *data_address = true;
    const OperandRange r = range_of(a);
    if (role != Role::kWrite && out.num_reads < kMaxReads) out.reads[out.num_reads++] = r;
    if (role != Role::kRead && out.num_writes < kMaxWrites) out.writes[out.num_writes++] = r;
  });
  return out;
}

OpKind kind_of(const Instruction& i) {
  switch (i.opcode) {
    case Opcode::kLoadStationary:
    case Opcode::kLoadStationaryMx:
    case Opcode::kLoadStationarySparse:
      return OpKind::kLoad;
    case Opcode::kMultiplyMoving:
    case Opcode::kMultiplyMovingMx:
    case Opcode::kMultiplyMovingSparse:
      return OpKind::kMatmul;
    case Opcode::kTranspose:
      return i.engine == Engine::kTensor ? OpKind::kPeTranspose : OpKind::kCompute;
    case Opcode::kSemaphore:
      return OpKind::kSemaphore;
    case Opcode::kCoreBarrier:
      return OpKind::kCoreBarrier;
    case Opcode::kRegMove:
      return OpKind::kRegMove;
    case Opcode::kRegAlu:
      return OpKind::kRegAlu;
    case Opcode::kRegLoad:
      return OpKind::kRegLoad;
    case Opcode::kRegStore:
      return OpKind::kRegStore;
    case Opcode::kBranch:
      return OpKind::kBranch;
    case Opcode::kJump:
      return OpKind::kJump;
    case Opcode::kLoop:
      return OpKind::kLoop;
    case Opcode::kHalt:
      return OpKind::kHalt;
    default:
      return i.is_dma() ? OpKind::kDma : OpKind::kCompute;
  }
}

// Everything that the cost of a transfer depends on; place and tensor do not matter.
bool same_shape(const Access& a, const Access& b) {
  if (a.space != b.space || a.dtype != b.dtype || a.num_dims != b.num_dims ||
      a.start_partition != b.start_partition || a.num_partitions != b.num_partitions) {
    return false;
  }
  for (int d = 0; d < a.num_dims; ++d) {
    if (a.step[d] != b.step[d] || a.size[d] != b.size[d]) return false;
  }
  return true;
}
bool same_transfer(const Instruction& a, const Instruction& b) {
  return a.opcode == b.opcode && a.dge == b.dge && a.op0 == b.op0 && a.flags == b.flags &&
         a.count == b.count && (a.sync.update == isa::SemOp::kNone) == (b.sync.update == isa::SemOp::kNone) &&
         same_shape(a.dst, b.dst) && same_shape(a.src0, b.src0) && same_shape(a.src1, b.src1);
}

// Costs of transfers, one entry per shape: programs repeat a few shapes many times.
class TransferTable {
 public:
  explicit TransferTable(std::vector<cost::Dma>* costs) : costs_(costs) {}
  uint32_t index_of(const Instruction& i, const config::Config& c) {
    for (const auto& [known, index] : recent_) {
      if (known != nullptr && same_transfer(*known, i)) return index;
    }
    const auto index = static_cast<uint32_t>(costs_->size());
    costs_->push_back(cost::dma(i, c));
    recent_[next_] = {&i, index};
    next_ = (next_ + 1) % recent_.size();
    return index;
  }

 private:
  std::vector<cost::Dma>* costs_;
  std::array<std::pair<const Instruction*, uint32_t>, 16> recent_{};
  size_t next_ = 0;
};

bool is_branch(OpKind k) { return k == OpKind::kBranch || k == OpKind::kJump || k == OpKind::kLoop; }

TimedOp timed_op(const Instruction& i, const config::Config& c, TransferTable* transfers, TimedProgram* out) {
  TimedOp op;
  op.kind = kind_of(i);
  op.op0 = i.op0;
  op.num_waits = i.sync.num_waits;
  op.waits[0] = i.sync.waits[0];
  op.waits[1] = i.sync.waits[1];
  op.update = i.sync.update;
  op.update_semaphore = i.sync.update_semaphore;
  op.update_value = i.sync.update_value;
  op.immediate = i.has(isa::kFlagImmediate);
  op.reg_dst = i.reg_dst;
  op.wide = i.has(isa::kFlagWide);
  op.reg_a = i.reg_a;
  op.reg_b = i.reg_b;
  op.target = i.target;
  op.value = i.imm;
  switch (op.kind) {
    case OpKind::kCompute: {
      const cost::Compute k = cost::compute_cost(i, c);
      op.issue = k.issue;
      op.latency = k.latency;
      op.stream = k.stream;
      op.table_set = k.table_set;
      op.loads_table = k.loads_table;
      op.psum_banks = k.psum_banks;
      op.shared_bus = k.shared_bus;
      break;
    }
    case OpKind::kLoad: {
      const cost::WeightLoad k = cost::weight_load(i, c);
      op.issue = k.occupancy;
      op.latency = k.fixed;
      op.value = k.shift_cycles;
      op.cells = cells_of(i.tile);
      break;
    }
    case OpKind::kMatmul:
    case OpKind::kPeTranspose: {
      const cost::Matmul k = cost::matmul(i, c);
      op.passes = static_cast<uint8_t>(k.passes);
      op.value = k.cycles;
      op.rows = static_cast<uint8_t>(k.rows);
      op.cells = cells_of(i.tile);
      op.psum_banks = k.psum_banks;
      op.stream = cost::ps_of_cycles(static_cast<double>(k.cycles * k.passes), c.tensor.clock_ghz);
      if (op.kind == OpKind::kPeTranspose) {
        const cost::WeightLoad load = cost::weight_load(i, c);
        op.issue = load.occupancy;
        op.latency = load.fixed;
        op.shift_cycles = static_cast<uint16_t>(load.shift_cycles);
      }
      break;
    }
    case OpKind::kDma:
      op.dma = transfers->index_of(i, c);
      op.issue = out->transfers[op.dma].trigger;
      op.latency = out->transfers[op.dma].first_packet;
      op.queue = i.queue;
      op.priority = i.priority;
      op.exchange = i.opcode == Opcode::kSendRecv;
      out->traffic_classes |= i.priority != 0;
      // A queue always adds its completion increment: one per engine of the full set.
      if (op.update == isa::SemOp::kAdd) op.update_value = isa::kDmaCompletionIncrement;
      break;
    case OpKind::kCoreBarrier:
      op.dma = i.src0.tensor;
      break;
    case OpKind::kRegLoad:
      out->unresolved_registers = true;
      break;
    default:
      break;
  }
  return op;
}

}  // namespace

bool depends_on(const OpRanges& reader, const OpRanges& writer) {
  for (int r = 0; r < reader.num_reads; ++r) {
    for (int w = 0; w < writer.num_writes; ++w) {
      if (reader.reads[r].overlaps(writer.writes[w])) return true;
    }
  }
  return false;
}

bool build_timed_program(const isa::Program& program, const config::Config& configured, TimedProgram* out,
                         std::string* message) {
  config::Config c = configured;
  if (program.cores > 1) c.hbm.active_cores = 1;  // both cores of the stack are simulated
  out->name = program.name;
  out->source = &program;
  out->cores = program.cores;
  out->dispatch = cost::ps(c.sequencer.dispatch_ns);
  out->control = cost::ps(c.sequencer.control_ns);
  out->branch = cost::ps(c.sequencer.branch_ns);
  out->register_memory = cost::ps(c.sequencer.register_memory_ns);
  out->visible = cost::ps(c.semaphore.visible_ns);
  out->wake = cost::ps(c.semaphore.wake_ns);
  out->remote_visible = cost::ps(c.semaphore.remote_visible_ns);
  out->table_load = cost::ps(c.scalar.table_load_ns);
  out->matmul_overhead_cycles = static_cast<Ps>(c.tensor.issue_overhead_cycles + 0.5);
  out->fill_fixed = cost::ps(c.tensor.fill_fixed_ns);
  out->fill_cycles = static_cast<Ps>(c.tensor.fill_cycles + 0.5);
  out->dma_stagger = cost::ps(c.dma.engine_stagger_ns);
  out->software_spacing = cost::ps(c.dma.software_spacing_ns);
  out->fetch_restart = cost::ps(c.sequencer.fetch_restart_ns);
  out->fetch_window = c.sequencer.fetch_window_instructions;
  out->dma_engines = static_cast<int>(c.dma.engines);
  out->queue_depth = static_cast<int>(c.dma.queue_depth);

  TransferTable transfers(&out->transfers);
  uint8_t banks_of[isa::kNumStreams] = {};
  bool bus_of[isa::kNumStreams] = {};
  for (size_t e = 0; e < program.streams.size(); ++e) {
    const auto& source = program.streams[e];
    TimedStream& stream = out->streams[e];
    stream.ops.reserve(source.size() + 1);
    stream.ranges.reserve(source.size() + 1);
    const OpRanges* previous = nullptr;  // the compute instruction before, in program text
    for (size_t n = 0; n < source.size(); ++n) {
      const Instruction& i = source[n];
      if (i.opcode >= Opcode::kCount || i.engine != isa::engine_of_stream(e)) {
        *message = "user error: " + isa::instruction_label(program, e, n) +
                   " does not belong to the stream of its engine; validate the program";
        return false;
      }
      if (program.cores < 2 && isa::row(i.opcode).has_rule(isa::Rule::kTwoCores)) {
        *message = "user error: " + isa::instruction_label(program, e, n) +
                   " works with the other core of a pair; the program runs on one";
        return false;
      }
      TimedOp op = timed_op(i, c, &transfers, out);
      if (is_branch(op.kind) && op.target > source.size()) {
        *message = "user error: " + isa::instruction_label(program, e, n) + " jumps to " +
                   std::to_string(op.target) + ", the stream has " + std::to_string(source.size()) +
                   " instructions";
        return false;
      }
      if (op.kind == OpKind::kDma && op.queue >= isa::kNumDmaQueues) {
        *message = "illegal on hardware: " + isa::instruction_label(program, e, n) + " names DMA queue " +
                   std::to_string(op.queue) + ", there are " + std::to_string(isa::kNumDmaQueues);
        return false;
      }
      stream.ranges.push_back(ranges_of(i, &op.data_address));
      if (previous != nullptr &&
          (op.kind == OpKind::kCompute || op.kind == OpKind::kDma || op.kind == OpKind::kRegLoad)) {
        op.depends = depends_on(stream.ranges.back(), *previous);
      }
      if (op.kind == OpKind::kCompute) previous = &stream.ranges.back();
      banks_of[e] = static_cast<uint8_t>(banks_of[e] | op.psum_banks);
      bus_of[e] = bus_of[e] || op.shared_bus;
      stream.ops.push_back(op);
    }
    stream.ops.push_back(TimedOp{});  // a stream without a halt ends at its end
    stream.ranges.push_back(OpRanges{});
  }

  out->dma_lookahead = out->transfers.empty() ? 0 : INT64_MAX;
  for (const cost::Dma& t : out->transfers) {
    out->dma_lookahead = std::min(out->dma_lookahead, t.first_packet + t.read_latency);
  }

  // Resources that no second engine of a core uses need no arbitration.
  for (int core = 0; core < program.cores; ++core) {
    const size_t first = isa::stream_number(core, Engine::kTensor);
    uint8_t seen = 0, shared = 0;
    for (size_t e = first; e < first + isa::kNumEngines; ++e) {
      shared = static_cast<uint8_t>(shared | (seen & banks_of[e]));
      seen = static_cast<uint8_t>(seen | banks_of[e]);
    }
    if (c.memory.psum_same_bank_serialises == 0) shared = 0;
    const bool bus = c.memory.vector_gpsimd_bus_shared != 0 &&
                     bus_of[isa::stream_number(core, Engine::kVector)] &&
                     bus_of[isa::stream_number(core, Engine::kGpSimd)];
    for (size_t e = first; e < first + isa::kNumEngines; ++e) {
      for (TimedOp& op : out->streams[e].ops) {
        op.psum_banks = static_cast<uint8_t>(op.psum_banks & shared);
        op.shared_bus = op.shared_bus && bus;
      }
    }
  }
  return true;
}

}  // namespace trnsim::chip
