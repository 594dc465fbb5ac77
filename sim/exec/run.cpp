// Whole programs: preparation and the streams.
#include <algorithm>

#include "isa/names.h"
#include "isa/table.h"
#include "sim/exec/pair.h"
#include "sim/exec/state.h"

namespace trnsim::exec {
namespace {

using isa::Opcode;

struct Stream {
  const std::vector<Prepared>* code = nullptr;
  uint32_t pc = 0;
  uint64_t executed = 0;
  const Prepared* barrier = nullptr;  // newest barrier that the stream has reached
  uint64_t barriers = 0;              // reached so far
  bool at_barrier = false;            // and stands at it
  bool done() const { return pc >= code->size(); }
};

int64_t wait_value(const Core::Impl& core, const Prepared& p, const isa::SemWait& w) {
  int64_t v = w.value;
  if (w.value_register != isa::kNoRegister)
    v += core.registers[static_cast<size_t>(p.engine)][w.value_register];
  return v;
}

bool ready(const Core::Impl& core, const Prepared& p) {
  for (int i = 0; i < p.sync.num_waits; ++i) {
    const isa::SemWait& w = p.sync.waits[i];
    if (core.semaphores[w.semaphore] < wait_value(core, p, w)) return false;
  }
  return true;
}

bool is_dma(const Prepared& p) { return p.opcode >= Opcode::kDmaCopy && p.opcode <= Opcode::kSendRecv; }

void update(Core::Impl& core, const Prepared& p) {
  int64_t& s = core.semaphores[p.sync.update_semaphore];
  const bool dma = is_dma(p);
  switch (p.sync.update) {
    case isa::SemOp::kAdd:
      // A DMA queue always adds its completion increment.
      s += dma ? isa::kDmaCompletionIncrement : p.sync.update_value;
      break;
    case isa::SemOp::kSubtract:
      s -= p.sync.update_value;
      break;
    case isa::SemOp::kWrite:
      s = p.sync.update_value;
      break;
    case isa::SemOp::kNone:
      break;
  }
}

using Streams = std::array<Stream, isa::kNumStreams>;

// The same engine of the other core.
Stream& partner(Streams& streams, const Prepared& p) {
  return streams[isa::stream_number(1 - p.core, p.engine)];
}

std::string hang_message(Context* contexts, Streams& streams, const PreparedProgram& program) {
  const Context& c = contexts[0];
  std::string s = "deadlock in program '" + program.info.name + "': no stream can go on.";
  for (Stream& stream : streams) {
    if (stream.code == nullptr || stream.done()) continue;
    const Prepared& p = (*stream.code)[stream.pc];
    const Core::Impl& core = contexts[p.core].core;
    s += " " + c.where(p);
    int shown = 0;
    for (int i = 0; i < p.sync.num_waits; ++i) {
      const isa::SemWait& w = p.sync.waits[i];
      const int64_t value = wait_value(core, p, w);
      if (core.semaphores[w.semaphore] >= value) continue;
      s += std::string(shown++ > 0 ? " and" : " waits for") + " semaphore " + std::to_string(w.semaphore) +
           " >= " + std::to_string(value) + ", which is " + std::to_string(core.semaphores[w.semaphore]);
    }
    if (shown == 0 && stream.at_barrier) {
      s += " waits for core " + std::to_string(1 - p.core) + ", whose " + std::string(isa::name(p.engine)) +
           " engine has reached " + std::to_string(partner(streams, p).barriers) + " of " +
           std::to_string(stream.barriers) + " barriers";
    } else if (shown == 0) {
      s += " waits for its queue " + std::to_string(p.queue) + ", where an exchange waits for the other core";
    }
    s += ".";
  }
  if (c.core.pair == nullptr) return s;
  for (const auto& [pipe, halves] : c.core.pair->waiting) {
    for (const auto& half : halves)
      s += " " + half.where + " waits for core " + std::to_string(1 - half.core) + " to exchange over pipe " +
           std::to_string(pipe) + ".";
  }
  return s;
}

// True when both cores have come. The n-th barrier of an engine meets the n-th of the same engine.
bool pass_barrier(Context& c, Streams& streams, Stream& stream, const Prepared& p) {
  const Stream& other = partner(streams, p);
  if (!stream.at_barrier) {
    stream.at_barrier = true;
    stream.barrier = &p;
    ++stream.barriers;
    if (other.barriers >= stream.barriers && other.barrier->src0->tensor != p.src0->tensor) {
      throw Fault{Status::Kind::kIllegal, "user error: two barriers meet that name different tensors: '" +
                                              c.tensor_name(p.src0->tensor) + "' at " + c.where(p) +
                                              ", and '" + c.tensor_name(other.barrier->src0->tensor) +
                                              "' at " + c.where(*other.barrier) +
                                              "; the cores have lost step"};
    }
  }
  if (other.barriers < stream.barriers) return false;
  stream.at_barrier = false;
  return true;
}

// Runs a stream until it blocks or ends. Throws when it still jumps back after `budget` instructions.
void advance(Context& c, Streams& streams, Stream& stream, uint64_t budget) {
  Core::Impl& core = c.core;
  const std::vector<Prepared>& code = *stream.code;
  const auto size = static_cast<uint32_t>(code.size());
  while (stream.pc < size) {
    const Prepared& p = code[stream.pc];
    if (p.sync.num_waits != 0 && !ready(core, p)) break;
    if (core.pair != nullptr) {
      if (is_dma(p) && core.pair->holds(p.core, p.queue)) break;
      if (p.opcode == Opcode::kCoreBarrier && !pass_barrier(c, streams, stream, p)) break;
    }
    uint32_t next = stream.pc + 1;
    c.execute(p);
    switch (p.opcode) {
      case Opcode::kBranch: {
        const auto& r = core.registers[static_cast<size_t>(p.engine)];
        const int32_t b =
            p.has(isa::kFlagImmediate) ? static_cast<int32_t>(static_cast<uint64_t>(p.imm)) : r[p.reg_b];
        if (register_alu(p.op0, r[p.reg_a], b) != 0) next = p.target;
        break;
      }
      case Opcode::kJump:
        next = p.target;
        break;
      case Opcode::kLoop: {
        int32_t& r = core.registers[static_cast<size_t>(p.engine)][p.reg_a];
        r = static_cast<int32_t>(static_cast<uint32_t>(r) - 1);
        if (r != 0) next = p.target;
        break;
      }
      case Opcode::kHalt:
        next = size;
        break;
      default:
        break;
    }
    if (next <= stream.pc && stream.executed >= budget) {
      throw Fault{Status::Kind::kHang, "user error: endless loop: " + c.where(p) +
                                           " still jumps back after " + std::to_string(stream.executed) +
                                           " instructions of its stream; check the loop count, or raise the "
                                           "budget (sequencer.instruction_budget)"};
    }
    if (p.opcode == Opcode::kSendRecv) {
      // Both halves are complete, or this one waits for the other.
      if (core.pair->met != nullptr) {
        const Prepared& other = *core.pair->met;
        update(*core.pair->cores[other.core], other);
        update(core, p);
      }
    } else if (p.sync.update != isa::SemOp::kNone) {
      update(core, p);
    }
    stream.pc = next;
    ++stream.executed;
  }
}

}  // namespace

std::shared_ptr<const PreparedProgram> prepare(const isa::Program& program, const CoreSizes& sizes,
                                               Status* status) {
  auto out = std::make_shared<PreparedProgram>();
  out->sizes = sizes;
  out->info.name = program.name;
  out->info.cores = program.cores;
  out->info.locations = program.locations;
  out->info.notes = program.notes;
  for (const isa::TensorDecl& t : program.tensors) {
    out->info.tensor_names.push_back(t.name);
    out->info.tensor_bytes.push_back(t.bytes);
  }
  out->footprint.hbm_end.assign(program.tensors.size(), 0);
  out->footprint.hbm_used.assign(program.tensors.size(), false);
  Resolver resolver(program, sizes, out->arena, out->footprint);
  try {
    for (size_t s = 0; s < program.streams.size(); ++s) {
      const auto& stream = program.streams[s];
      auto& code = out->streams[s];
      const int core = isa::core_of_stream(s);
      code.resize(stream.size());
      for (size_t i = 0; i < stream.size(); ++i) {
        isa::Instruction in = stream[i];
        in.engine = isa::engine_of_stream(s);  // the stream decides
        resolver.resolve(in, core, static_cast<uint32_t>(i), &code[i]);
        const bool jumps =
            in.opcode == Opcode::kBranch || in.opcode == Opcode::kJump || in.opcode == Opcode::kLoop;
        if (jumps && in.target > stream.size()) {
          throw Fault{Status::Kind::kIllegal,
                      "jump to instruction " + std::to_string(in.target) + " of a stream of " +
                          std::to_string(stream.size()) + "; at " +
                          describe(in.opcode, program.cores > 1 ? core : -1, in.engine,
                                   static_cast<uint32_t>(i), in.location, program.locations)};
        }
      }
    }
  } catch (const Fault& f) {
    if (status != nullptr) *status = {f.kind, f.message};
    return nullptr;
  }
  if (status != nullptr) *status = {};
  return out;
}

namespace {

Status run_cores(Core* const* cores, int count, const PreparedProgram& program,
                 const std::vector<HbmTensor>& hbm, uint64_t instruction_budget) {
  if (program.info.cores != count) {
    return {Status::Kind::kIllegal, "program '" + program.info.name + "' is for " +
                                        std::to_string(program.info.cores) + " physical cores, not for " +
                                        std::to_string(count)};
  }
  std::vector<Context> contexts;
  for (int n = 0; n < count; ++n) {
    Core::Impl& state = cores[n]->impl();
    if (state.sizes.sbuf_bytes_per_partition != program.sizes.sbuf_bytes_per_partition ||
        state.sizes.psum_bytes_per_partition != program.sizes.psum_bytes_per_partition) {
      return {Status::Kind::kIllegal,
              "program '" + program.info.name + "' was prepared for a core of other sizes"};
    }
    contexts.push_back({state, *state.work, hbm.data(), &program.info, nullptr});
    state.semaphores.fill(0);
    for (auto& file : state.registers) file.fill(0);
  }
  Streams streams;
  const size_t used = isa::stream_number(count, isa::Engine::kTensor);
  for (size_t s = 0; s < used; ++s) streams[s].code = &program.streams[s];
  try {
    contexts[0].check_bindings(program.footprint, hbm);
    for (Context& c : contexts) {
      c.core.sbuf.ensure(program.footprint.sbuf_end);
      c.core.psum.ensure(program.footprint.psum_end);
    }
    for (;;) {
      bool progress = false, all_done = true;
      for (size_t s = 0; s < used; ++s) {
        Stream& stream = streams[s];
        if (stream.done()) continue;
        const uint64_t before = stream.executed, barriers = stream.barriers;
        advance(contexts[static_cast<size_t>(isa::core_of_stream(s))], streams, stream, instruction_budget);
        progress = progress || stream.executed != before || stream.barriers != barriers;
        all_done = all_done && stream.done();
      }
      const CorePair::Impl* pair = contexts[0].core.pair;
      const bool open = pair != nullptr && std::any_of(pair->waiting.begin(), pair->waiting.end(),
                                                       [](const auto& w) { return !w.second.empty(); });
      if (all_done && !open) return {};
      if (!progress || all_done)
        return {Status::Kind::kHang, hang_message(contexts.data(), streams, program)};
    }
  } catch (const Fault& f) {
    return {f.kind, f.message};
  }
}

}  // namespace

Status run(Core& core, const PreparedProgram& program, const std::vector<HbmTensor>& hbm,
           uint64_t instruction_budget) {
  Core* const cores[] = {&core};
  return run_cores(cores, 1, program, hbm, instruction_budget);
}

Status run(Core& first, Core& second, const PreparedProgram& program, const std::vector<HbmTensor>& hbm,
           uint64_t instruction_budget) {
  const CorePair pair(first, second);
  Core* const cores[] = {&first, &second};
  return run_cores(cores, 2, program, hbm, instruction_budget);
}

// Taint of registers, per engine and without regard to order: a register that anywhere receives a value
// derived from memory counts as data dependent everywhere.
bool has_data_dependent_control(const isa::Program& program) {
  for (const auto& stream : program.streams) {
    std::array<bool, isa::kNumRegisters> tainted{};
    bool any = false;
    const auto reads = [&](uint8_t r) { return r < isa::kNumRegisters && tainted[r]; };
    for (bool changed = true; changed;) {
      changed = false;
      for (const isa::Instruction& in : stream) {
        const auto reads_pair = [&](uint8_t r) {
          return reads(r) || (in.has(isa::kFlagWide) && reads(static_cast<uint8_t>(r + 1)));
        };
        bool source = in.opcode == Opcode::kRegLoad;
        if (in.opcode == Opcode::kRegAlu) {
          source = reads_pair(in.reg_a) || (!in.has(isa::kFlagImmediate) && reads_pair(in.reg_b));
        }
        for (int r = in.reg_dst; source && r <= isa::last_register(in, in.reg_dst); ++r) {
          if (r < isa::kNumRegisters && !tainted[static_cast<size_t>(r)])
            tainted[static_cast<size_t>(r)] = changed = any = true;
        }
      }
    }
    if (!any) continue;
    for (const isa::Instruction& in : stream) {
      if (in.opcode == Opcode::kBranch &&
          (reads(in.reg_a) || (!in.has(isa::kFlagImmediate) && reads(in.reg_b)))) {
        return true;
      }
      if (in.opcode == Opcode::kLoop && reads(in.reg_a)) return true;
      for (int i = 0; i < in.sync.num_waits; ++i) {
        if (reads(in.sync.waits[i].value_register)) return true;
      }
      for (const isa::Access* a :
           {&in.dst, &in.src0, &in.src1, &in.aux, &in.imm0.pointer, &in.imm1.pointer}) {
        if (a->present() && reads(a->address_register)) return true;
      }
    }
  }
  return false;
}

}  // namespace trnsim::exec
