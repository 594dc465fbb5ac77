// Engine, DMA queue and issuing stream of every instruction.
//
// Several engines can run the same elementwise instruction. The choice is a list scheduling in program order:
// every tile carries the estimated time at which its contents are ready and the engine that made them, and an
// instruction goes to the engine with the earliest estimated finish; times are those of sim/cost. Handing a tile to
// another engine costs a semaphore round trip, so a short chain stays on one engine and independent work spreads out.
#include <algorithm>
#include <array>

#include "device_plugin/compiler/backend.h"
#include "device_plugin/compiler/cost.h"
#include "device_plugin/compiler/error.h"

namespace trnsim::compiler {

using isa::Instruction;
using isa::Opcode;
using isa::Space;

namespace {

bool uses_psum(const Instruction& i) {
  return i.dst.space == Space::kPsum || i.src0.space == Space::kPsum || i.src1.space == Space::kPsum;
}

bool all_integer(const Instruction& i) {
  if (i.dst.present() && !isa::is_integer(i.dst.dtype)) return false;
  if (i.src0.present() && !isa::is_integer(i.src0.dtype)) return false;
  return !i.src1.present() || isa::is_integer(i.src1.dtype);
}

// 32-bit integers go through FP32 in the vector engine; only GpSimd computes them exactly.
bool wants_exact_integer(const Instruction& i) {
  auto wide = [](const Access& a) { return a.present() && isa::is_32bit_integer(a.dtype); };
  return all_integer(i) && (wide(i.dst) || wide(i.src0) || wide(i.src1));
}

struct Engines {
  std::array<Engine, 3> list{};
  int count = 0;
  void add(Engine e) { list[count++] = e; }
};

Engines legal_engines(const Instruction& i) {
  Engines r;
  bool psum = uses_psum(i);
  switch (i.opcode) {
    case Opcode::kCopy:
      r.add(Engine::kVector);
      // Bit patterns of 32-bit integers survive only where the copy does not pass through FP32.
      if (!psum && (i.dst.dtype == i.src0.dtype || !wants_exact_integer(i))) r.add(Engine::kGpSimd);
      r.add(Engine::kScalar);
      return r;
    case Opcode::kTensorScalar: {
      r.add(Engine::kVector);
      if (i.flags & (isa::kFlagReverse0 | isa::kFlagReverse1) || wants_exact_integer(i)) return r;
      bool second = i.op1 != AluOp::kNone;
      auto basic = [](AluOp op) {
        return op == AluOp::kAdd || op == AluOp::kSubtract || op == AluOp::kMultiply;
      };
      if (!psum && basic(i.op0) && (!second || basic(i.op1))) r.add(Engine::kGpSimd);
      if (second ? i.op0 == AluOp::kMultiply && i.op1 == AluOp::kAdd
                 : i.op0 == AluOp::kMultiply || i.op0 == AluOp::kAdd) {
        r.add(Engine::kScalar);
      }
      return r;
    }
    case Opcode::kMemset:
      r.add(Engine::kVector);
      if (!psum) r.add(Engine::kGpSimd);
      return r;
    case Opcode::kReciprocal:
      r.add(Engine::kVector);
      r.add(Engine::kScalar);
      return r;
    case Opcode::kTensorTensor:
      if (isa::is_bitwise(i.op0)) {
        r.add(Engine::kVector);
      } else if (wants_exact_integer(i)) {
        // PSUM operands cannot reach GpSimd; then the tiler accepts FP32 arithmetic.
        r.add(psum ? Engine::kVector : Engine::kGpSimd);
      } else if (i.op0 == AluOp::kPower) {
        r.add(Engine::kGpSimd);
      } else {
        r.add(Engine::kVector);
        if (!psum) r.add(Engine::kGpSimd);
      }
      return r;
    default:
      r.add(i.engine);
      return r;
  }
}

// The instruction as the engine has it: a reciprocal is an activation of Scalar.
Instruction on_engine(Instruction i, Engine e) {
  i.engine = e;
  if (i.opcode != Opcode::kReciprocal || e != Engine::kScalar) return i;
  i.opcode = Opcode::kActivation;
  i.func = isa::ActFunc::kReciprocal;
  return i;
}

bool is_load(const Instruction& i) { return i.dst.space == Space::kSbuf; }

struct TileState {
  double ready = 0;  // contents written
  double free = 0;   // last reader done
  int8_t engine = -1;
};

struct Scheduler {
  TileProgram& program;
  const config::Config& config;
  std::vector<TileState> tiles, tensors;
  std::array<double, isa::kNumEngines> engine_free{};
  std::array<double, isa::kNumEngines> busy{};
  double port_free = 0;                  // of the SBUF port that GpSimd and Vector's fast modes share
  double load_free = 0, store_free = 0;  // their queues
  double dma_busy = 0;                   // of the DMA engines, which both share
  double handoff_ns;
  int table_set = -1;

  explicit Scheduler(TileProgram& p)
      : program(p),
        config(target_config(p.program.target)),
        tiles(p.tiles.size()),
        tensors(p.program.tensors.size()) {
    handoff_ns = config.semaphore.visible_ns + config.semaphore.wake_ns;
  }

  TileState& state(const Access& a) { return a.space == Space::kHbm ? tensors[a.tensor] : tiles[a.tensor]; }

  double operands_ready(Instruction& i, Engine e) {
    Operand operands[6];
    int n = list_operands(i, operands);
    double t = 0;
    for (int k = 0; k < n; ++k) {
      const TileState& s = state(*operands[k].access);
      // Writes of one tile mostly fill different parts of it; those that do not read it too, or share an engine.
      double ready = operands[k].write ? s.free : s.ready;
      if (s.engine >= 0 && s.engine != static_cast<int8_t>(e)) ready += handoff_ns;
      t = std::max(t, ready);
    }
    return t;
  }

  void retire(Instruction& i, int8_t engine, double finish) {
    Operand operands[6];
    int n = list_operands(i, operands);
    for (int k = 0; k < n; ++k) {
      TileState& s = state(*operands[k].access);
      if (operands[k].write) {
        s.ready = std::max(s.ready, finish);
        s.engine = engine;
      } else {
        s.free = std::max(s.free, finish);
      }
    }
  }

  struct Slot {
    double start = 0;
    ComputeTime time;
    int table = -1;   // activation tables that the engine holds afterwards
    double idle = 0;  // how long the engine waits for the operands
  };
  Slot slot(Instruction& i, Engine e) {
    if (i.opcode == Opcode::kReciprocal && e == Engine::kScalar) {
      Instruction activation = on_engine(i, e);
      return slot(activation, e);
    }
    Slot s;
    s.time = compute_time(i, e, config);
    s.start = std::max(engine_free[static_cast<size_t>(e)], operands_ready(i, e));
    s.idle = s.start - engine_free[static_cast<size_t>(e)];
    if (s.time.shared_port_ns > 0) s.start = std::max(s.start, port_free);
    s.table = table_set;
    if (e == Engine::kScalar && i.opcode == Opcode::kActivation && isa::act_table_set(i.func) != table_set) {
      s.table = isa::act_table_set(i.func);
      s.start += config.scalar.table_load_ns;
    }
    return s;
  }

  // `fixed`: the engine is chosen already; `repeats`: how often the instruction runs. How long the engine waited before.
  double compute(Instruction& i, const Engine* fixed = nullptr, double repeats = 1) {
    Engines legal;
    if (fixed) {
      legal.add(*fixed);
    } else {
      legal = legal_engines(i);
    }
    Engine best = legal.list[0];
    Slot chosen = slot(i, best);
    for (int k = 1; k < legal.count; ++k) {
      const Slot s = slot(i, legal.list[static_cast<size_t>(k)]);
      if (s.start + s.time.latency_ns >= chosen.start + chosen.time.latency_ns) continue;
      best = legal.list[static_cast<size_t>(k)];
      chosen = s;
    }
    i = on_engine(std::move(i), best);
    const auto e = static_cast<size_t>(best);
    engine_free[e] = chosen.start + chosen.time.issue_ns;
    busy[e] += repeats * chosen.time.issue_ns;
    if (chosen.time.shared_port_ns > 0) port_free = chosen.start + chosen.time.shared_port_ns;
    table_set = chosen.table;
    retire(i, static_cast<int8_t>(best), chosen.start + chosen.time.latency_ns);
    return chosen.idle;
  }

  // Loads keep their order, and so do stores; a load does not wait for the stores before it.
  void transfer(Instruction& i) {
    const TransferTime t = transfer_time(i, config);
    double& queue_free = is_load(i) ? load_free : store_free;
    dma_busy += t.service_ns;
    queue_free = std::max(std::max(queue_free, operands_ready(i, Engine::kSync)) + t.service_ns, dma_busy);
    retire(i, static_cast<int8_t>(Engine::kSync), queue_free + t.latency_ns);
  }
};

}  // namespace

bool reads_destination(const Instruction& i) {
  if (i.opcode == Opcode::kCopyPredicated) return true;
  if (i.opcode == Opcode::kMultiplyMoving) return i.has(isa::kFlagAccumulate);
  return i.opcode == Opcode::kDmaScatter || i.has(isa::kFlagSkipOutOfBounds);
}

void choose_engines(TileProgram& program) {
  Scheduler s(program);
  auto origin = [&](size_t k) { return program.origins.empty() ? Origin{} : program.origins[k]; };
  // The copies of a loop after the second run as the second does. By slot and place in the iteration.
  std::vector<Engine> second;
  std::vector<double> idle(program.code.size(), 0);  // before an instruction outside of loops
  for (size_t k = 0; k < program.code.size(); ++k) {
    Instruction& i = program.code[k];
    Origin o = origin(k);
    Engine* of_second = nullptr;
    if (o.loop >= 0) {
      const ExpandedLoop& loop = program.expanded[o.loop];
      second.resize(static_cast<size_t>(loop.slots) * loop.length);
      of_second = &second[static_cast<size_t>(o.slot) * loop.length + o.index];
      if (o.copy > kCopySecond && !i.is_dma()) {
        s.compute(i, of_second, o.copy == kCopyLooped ? static_cast<double>(loop.repeats) : 1);
        continue;
      }
    }
    if (i.is_dma()) {
      s.transfer(i);
      continue;
    }
    if (!i.is_control()) {
      const double waited = s.compute(i);
      if (o.loop < 0) idle[k] = waited;
    }
    if (of_second != nullptr && o.copy == kCopySecond) *of_second = i.engine;
  }

  // Loads go out on the Sync stream. A store waits for its data, so it goes out on the least busy other
  // stream where it does not hold up later loads. One queue belongs to one issuing stream, which keeps its
  // counter in order.
  Engine store_stream = Engine::kGpSimd;
  for (Engine e : {Engine::kScalar, Engine::kTensor}) {
    if (s.busy[static_cast<int>(e)] < s.busy[static_cast<int>(store_stream)]) store_stream = e;
  }
  // GpSimd issues software descriptors (gather, scatter) on queues of its own.
  constexpr int kLoadQueues = 1, kStoreQueues = 4, kSoftwareQueues = 4;
  int next_load = 0, next_store = 0, next_software = 0;
  int loop_load = 0, loop_store = 0, loop_software = 0;
  int32_t copy = -1;
  for (size_t k = 0; k < program.code.size(); ++k) {
    Instruction& i = program.code[k];
    Origin o = origin(k);
    if (o.loop < 0) {
      copy = -1;
    } else if (o.copy != copy) {
      // Every copy of a loop body uses the queues in the same way.
      copy = o.copy;
      if (copy == kCopyFirst) {
        loop_load = next_load;
        loop_store = next_store;
        loop_software = next_software;
      } else {
        next_load = loop_load;
        next_store = loop_store;
        next_software = loop_software;
      }
    }
    if (!i.is_dma()) continue;
    if (i.opcode == Opcode::kDmaGather || i.opcode == Opcode::kDmaScatter) {
      i.engine = Engine::kGpSimd;
      i.queue = static_cast<uint8_t>(kLoadQueues + kStoreQueues + next_software);
      next_software = (next_software + 1) % kSoftwareQueues;
    } else if (is_load(i)) {
      i.engine = Engine::kSync;
      i.queue = static_cast<uint8_t>(next_load);
      next_load = (next_load + 1) % kLoadQueues;
    } else {
      i.engine = store_stream;
      i.queue = static_cast<uint8_t>(kLoadQueues + next_store);
      next_store = (next_store + 1) % kStoreQueues;
    }
    if (i.dge == isa::DgeMode::kStatic) i.dge = descriptor_mode(i, i.engine, s.config);
  }

  // Activation tables: a load wherever the resident set changes, between the last use of the old set and the first of the
  // new one, where Scalar waits longest.
  int resident = -1;
  size_t from = 0;  // behind the last use, or the last loop
  std::vector<Instruction> loads;
  std::vector<size_t> places;
  for (size_t k = 0; k < program.code.size(); ++k) {
    const Instruction& i = program.code[k];
    const bool in_loop = origin(k).loop >= 0;
    if (in_loop) from = k + 1;
    if (i.opcode != Opcode::kActivation || i.engine != Engine::kScalar) continue;
    const size_t behind_last = in_loop ? k : from;
    from = k + 1;
    int set = isa::act_table_set(i.func);
    if (set == resident) continue;
    resident = set;
    size_t place = k;
    for (size_t j = k; j-- > behind_last;)
      if (program.code[j].engine == Engine::kScalar && idle[j] > idle[place]) place = j;
    Instruction load;
    load.opcode = Opcode::kActTableLoad;
    load.engine = Engine::kScalar;
    load.func = i.func;
    load.location = i.location;
    loads.push_back(load);
    places.push_back(place);
  }
  if (loads.empty()) return;
  std::vector<Instruction> code;
  std::vector<Origin> origins;
  code.reserve(program.code.size() + loads.size());
  size_t next = 0;
  for (size_t k = 0; k < program.code.size(); ++k) {
    if (next < places.size() && places[next] == k) {
      code.push_back(std::move(loads[next++]));
      if (!program.origins.empty()) origins.push_back(program.origins[k]);
    }
    code.push_back(std::move(program.code[k]));
    if (!program.origins.empty()) origins.push_back(program.origins[k]);
  }
  program.code = std::move(code);
  program.origins = std::move(origins);
}

}  // namespace trnsim::compiler
