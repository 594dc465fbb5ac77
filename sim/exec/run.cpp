// Whole programs: preparation and the five streams.
#include "isa/names.h"
#include "sim/exec/state.h"

namespace trnsim::exec {
namespace {

using isa::Opcode;

struct Stream {
  const std::vector<Prepared>* code = nullptr;
  uint32_t pc = 0;
  uint64_t executed = 0;
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

void update(Core::Impl& core, const Prepared& p) {
  int64_t& s = core.semaphores[p.sync.update_semaphore];
  const bool dma = p.opcode >= Opcode::kDmaCopy && p.opcode <= Opcode::kSendRecv;
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

std::string hang_message(const Core::Impl& core, const std::array<Stream, isa::kNumEngines>& streams,
                         const PreparedProgram& program) {
  std::string s = "deadlock in program '" + program.info.name + "': no stream can go on.";
  for (const Stream& stream : streams) {
    if (stream.done()) continue;
    const Prepared& p = (*stream.code)[stream.pc];
    s += " " + describe(p.opcode, p.engine, p.index, p.location, program.info.locations) + " waits for";
    for (int i = 0, shown = 0; i < p.sync.num_waits; ++i) {
      const isa::SemWait& w = p.sync.waits[i];
      const int64_t value = wait_value(core, p, w);
      if (core.semaphores[w.semaphore] >= value) continue;
      s += std::string(shown++ > 0 ? " and" : "") + " semaphore " + std::to_string(w.semaphore) +
           " >= " + std::to_string(value) + ", which is " + std::to_string(core.semaphores[w.semaphore]);
    }
    s += ".";
  }
  return s;
}

// Runs a stream until it blocks or ends. Throws when it still jumps back after `budget` instructions.
void advance(Context& c, Stream& stream, uint64_t budget) {
  Core::Impl& core = c.core;
  const std::vector<Prepared>& code = *stream.code;
  const auto size = static_cast<uint32_t>(code.size());
  while (stream.pc < size) {
    const Prepared& p = code[stream.pc];
    if (p.sync.num_waits != 0 && !ready(core, p)) break;
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
    if (p.sync.update != isa::SemOp::kNone) update(core, p);
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
    for (int e = 0; e < isa::kNumEngines; ++e) {
      const auto& stream = program.streams[static_cast<size_t>(e)];
      auto& code = out->streams[static_cast<size_t>(e)];
      code.resize(stream.size());
      for (size_t i = 0; i < stream.size(); ++i) {
        isa::Instruction in = stream[i];
        in.engine = static_cast<isa::Engine>(e);  // the stream decides
        resolver.resolve(in, static_cast<uint32_t>(i), &code[i]);
        const bool jumps =
            in.opcode == Opcode::kBranch || in.opcode == Opcode::kJump || in.opcode == Opcode::kLoop;
        if (jumps && in.target > stream.size()) {
          throw Fault{
              Status::Kind::kIllegal,
              "jump to instruction " + std::to_string(in.target) + " of a stream of " +
                  std::to_string(stream.size()) + "; at " +
                  describe(in.opcode, in.engine, static_cast<uint32_t>(i), in.location, program.locations)};
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

Status run(Core& core, const PreparedProgram& program, const std::vector<HbmTensor>& hbm,
           uint64_t instruction_budget) {
  Core::Impl& state = core.impl();
  if (state.sizes.sbuf_bytes_per_partition != program.sizes.sbuf_bytes_per_partition ||
      state.sizes.psum_bytes_per_partition != program.sizes.psum_bytes_per_partition) {
    return {Status::Kind::kIllegal,
            "program '" + program.info.name + "' was prepared for a core of other sizes"};
  }
  Context c{state, *state.work, hbm.data(), &program.info, nullptr};
  std::array<Stream, isa::kNumEngines> streams;
  for (size_t e = 0; e < streams.size(); ++e) streams[e].code = &program.streams[e];
  state.semaphores.fill(0);
  for (auto& file : state.registers) file.fill(0);
  try {
    c.check_bindings(program.footprint, hbm);
    state.sbuf.ensure(program.footprint.sbuf_end);
    state.psum.ensure(program.footprint.psum_end);
    for (;;) {
      bool progress = false, all_done = true;
      for (Stream& stream : streams) {
        if (stream.done()) continue;
        const uint64_t before = stream.executed;
        advance(c, stream, instruction_budget);
        progress = progress || stream.executed != before;
        all_done = all_done && stream.done();
      }
      if (all_done) return {};
      if (!progress) return {Status::Kind::kHang, hang_message(state, streams, program)};
    }
  } catch (const Fault& f) {
    return {f.kind, f.message};
  }
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
        bool source = in.opcode == Opcode::kRegLoad;
        if (in.opcode == Opcode::kRegAlu) {
          source = reads(in.reg_a) || (!in.has(isa::kFlagImmediate) && reads(in.reg_b));
        }
        if (source && in.reg_dst < isa::kNumRegisters && !tainted[in.reg_dst]) {
          tainted[in.reg_dst] = changed = any = true;
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
