// Timing of whole programs: dependencies, semaphores, loops, contention, determinism.
#include <sys/resource.h>

#include "isa/random_program.h"
#include "isa/validator.h"
#include "sim/chip/probe_programs.h"
#include "sim/chip/simulator.h"
#include "sim/config/config.h"
#include "sim/cost/cost.h"
#include "tests/cpp/catch.h"

using namespace trnsim;
using namespace trnsim::chip::probe;
using chip::Ps;
using Status = chip::LaunchResult::Status;

namespace {

config::Config trn2(const std::string& overrides = "") {
  std::string error;
  auto c = config::load("trn2", overrides, &error);
  INFO(error);
  REQUIRE(c.has_value());
  return *c;
}

struct Run {
  chip::Trace trace;
  chip::TimingResult result;
  Run(const isa::Program& p, const config::Config& c) {
    result = chip::run_timing(p, c, &trace);
    INFO(result.message);
    CHECK(result.status == Status::kOk);
  }
  chip::InstructionSpan span(Engine e, uint32_t index, int occurrence = 0) const {
    for (const auto& s : trace.instructions) {
      if (s.engine == e && s.index == index && s.part == 0 && occurrence-- == 0) return s;
    }
    FAIL("instruction not in the trace");
    return {};
  }
  Ps start(Engine e, uint32_t index) const { return span(e, index).start; }
  Ps end(Engine e, uint32_t index) const { return span(e, index).end; }
};

}  // namespace

TEST_CASE("An empty program costs the launch overhead") {
  const auto c = trn2();
  const auto r = chip::run_timing(isa::Program{}, c);
  CHECK(r.status == Status::kOk);
  CHECK(r.stats.total_ps == cost::ps(c.launch.start_ns) + cost::ps(c.launch.end_ns));
}

TEST_CASE("Independent instructions issue back to back, dependent ones wait for the result") {
  const auto c = trn2();
  const Instruction first = copy(Engine::kVector, sbuf(64, Dtype::kF32, 4096), sbuf(64));
  const Instruction apart = copy(Engine::kVector, sbuf(64, Dtype::kF32, 8192), sbuf(64));
  const Instruction reader = copy(Engine::kVector, sbuf(64, Dtype::kF32, 8192), sbuf(64, Dtype::kF32, 4096));
  const auto k = cost::vector_cost(first, c);
  Run free(program({first, apart}), c);
  CHECK(free.start(Engine::kVector, 1) == k.issue);
  Run bound(program({first, reader}), c);
  CHECK(bound.start(Engine::kVector, 1) == k.latency);
  CHECK(bound.end(Engine::kVector, 1) == k.latency * 2);
}

TEST_CASE("A semaphore hop costs visibility and wake-up (MB-32)") {
  const auto c = trn2();
  Instruction produce = copy(Engine::kVector, sbuf(64, Dtype::kF32, 4096), sbuf(64));
  signal(produce, 7);
  Instruction consume = copy(Engine::kScalar, sbuf(64, Dtype::kF32, 8192), sbuf(64, Dtype::kF32, 4096));
  wait(consume, 7, 1);
  Run r(program({produce, consume}), c);
  const Ps hop = r.start(Engine::kScalar, 0) - r.end(Engine::kVector, 0);
  CHECK(hop == cost::ps(c.semaphore.visible_ns) + cost::ps(c.semaphore.wake_ns));
  CHECK(hop == 35'100);
}

TEST_CASE("A wait that is satisfied early costs nothing") {
  const auto c = trn2();
  Instruction produce = copy(Engine::kVector, sbuf(16, Dtype::kF32, 4096), sbuf(16));
  signal(produce, 7);
  const Instruction busy =
      copy(Engine::kScalar, sbuf(4000, Dtype::kF32, 8192), sbuf(4000, Dtype::kF32, 32768));
  Instruction consume = copy(Engine::kScalar, sbuf(16, Dtype::kF32, 60000), sbuf(16, Dtype::kF32, 4096));
  wait(consume, 7, 1);
  Run r(program({produce, busy, consume}), c);
  CHECK(r.start(Engine::kScalar, 1) == cost::scalar_cost(busy, c).issue);
}

TEST_CASE("Two waits hold until both are satisfied, in any order of arrival") {
  const auto c = trn2();
  for (const int64_t gpsimd_elements : {16, 4000}) {
    Instruction a = copy(Engine::kVector, sbuf(2000, Dtype::kF32, 16384), sbuf(2000));
    signal(a, 1);
    Instruction b = copy(Engine::kGpSimd, sbuf(gpsimd_elements, Dtype::kF32, 65536),
                         sbuf(gpsimd_elements, Dtype::kF32, 98304));
    signal(b, 2);
    Instruction both = copy(Engine::kScalar, sbuf(16, Dtype::kF32, 130000), sbuf(16, Dtype::kF32, 16384));
    wait(both, 1, 1);
    wait(both, 2, 1);
    Run r(program({a, b, both}), c);
    const Ps last = std::max(r.end(Engine::kVector, 0), r.end(Engine::kGpSimd, 0));
    CHECK(r.start(Engine::kScalar, 0) == last + 35'100);
  }
}

TEST_CASE("Semaphores subtract and write") {
  const auto c = trn2();
  Instruction raise = copy(Engine::kVector, sbuf(64, Dtype::kF32, 4096), sbuf(64));
  signal(raise, 7, 5);
  Instruction lower = copy(Engine::kVector, sbuf(64, Dtype::kF32, 8192), sbuf(64));
  signal(lower, 7, 3);
  lower.sync.update = isa::SemOp::kSubtract;
  Instruction set = copy(Engine::kVector, sbuf(64, Dtype::kF32, 12288), sbuf(64));
  signal(set, 7, 9);
  set.sync.update = isa::SemOp::kWrite;
  Instruction early = copy(Engine::kScalar, sbuf(16, Dtype::kF32, 30000), sbuf(16));
  wait(early, 7, 4);
  Instruction late = copy(Engine::kScalar, sbuf(16, Dtype::kF32, 40000), sbuf(16));
  wait(late, 7, 8);
  Run r(program({raise, lower, set, early, late}), c);
  CHECK(r.start(Engine::kScalar, 0) == r.end(Engine::kVector, 0) + 35'100);
  CHECK(r.start(Engine::kScalar, 1) == r.end(Engine::kVector, 2) + 35'100);
}

TEST_CASE("A counted loop takes as long as its unrolled body and the loop instructions") {
  const auto c = trn2();
  Instruction move = halt(Engine::kVector);
  move.opcode = Opcode::kRegMove;
  move.reg_dst = 1;
  move.imm = 10;
  const Instruction body = copy(Engine::kVector, sbuf(400, Dtype::kF32, 4096), sbuf(400));
  Instruction loop = halt(Engine::kVector);
  loop.opcode = Opcode::kLoop;
  loop.reg_a = 1;
  loop.target = 1;
  Run r(program({move, body, loop}), c);
  CHECK(r.result.stats.engines[1].instructions == 1 + 2 * 10 + 1);
  const Ps issue = cost::vector_cost(body, c).issue;
  // The loop instruction hides behind the running copy.
  CHECK(r.span(Engine::kVector, 1, 9).start - r.span(Engine::kVector, 1, 0).start == 9 * issue);
}

TEST_CASE("Branches compare registers") {
  const auto c = trn2();
  const auto reg = [](Opcode op, int dst, int a, isa::AluOp alu, int64_t imm, uint32_t target) {
    Instruction i = halt(Engine::kSync);
    i.opcode = op;
    i.reg_dst = static_cast<uint8_t>(dst);
    i.reg_a = static_cast<uint8_t>(a);
    i.op0 = alu;
    i.imm = imm;
    i.flags = isa::kFlagImmediate;
    i.target = target;
    return i;
  };
  // r1 = 0; do r1 += 3 while r1 < 20  -> 7 times
  Run r(program({reg(Opcode::kRegMove, 1, 0, isa::AluOp::kNone, 0, 0),
                 reg(Opcode::kRegAlu, 1, 1, isa::AluOp::kAdd, 3, 0),
                 reg(Opcode::kBranch, 0, 1, isa::AluOp::kLess, 20, 1)}),
        c);
  CHECK(r.result.stats.engines[4].instructions == 1 + 2 * 7 + 1);
}

TEST_CASE("Activation tables are loaded when the set changes (MB-17)") {
  const auto c = trn2();
  const Access in = sbuf(100);
  const auto act = [&](isa::ActFunc f, int slot) {
    return activation(sbuf(100, Dtype::kF32, 4096 * (slot + 1)), in, f);
  };
  Run once(program({act(isa::ActFunc::kExp, 0), act(isa::ActFunc::kExp, 1)}), c);
  Run twice(program({act(isa::ActFunc::kExp, 0), act(isa::ActFunc::kTanh, 1)}), c);
  CHECK(twice.end(Engine::kScalar, 1) - once.end(Engine::kScalar, 1) == 1'283'300);
  Instruction table = act(isa::ActFunc::kExp, 0);
  table.opcode = Opcode::kActTableLoad;
  Run explicit_load(program({table, act(isa::ActFunc::kExp, 1)}), c);
  CHECK(explicit_load.end(Engine::kScalar, 0) == 1'283'300);
  CHECK(explicit_load.end(Engine::kScalar, 1) - explicit_load.start(Engine::kScalar, 1) ==
        cost::scalar_cost(act(isa::ActFunc::kExp, 1), c).latency);
}

TEST_CASE("Engines that use one PSUM bank take turns, different banks do not") {
  const auto c = trn2();
  const auto two = [&](int other_bank) {
    return program({copy(Engine::kScalar, sbuf(500, Dtype::kF32, 4096), psum(500, Dtype::kF32, 0)),
                    copy(Engine::kVector, sbuf(500, Dtype::kF32, 8192), psum(500, Dtype::kF32, other_bank))});
  };
  Run same(two(0), c), apart(two(1), c);
  CHECK(apart.start(Engine::kScalar, 0) == 0);
  CHECK(apart.start(Engine::kVector, 0) == 0);
  const Ps later = std::max(same.start(Engine::kScalar, 0), same.start(Engine::kVector, 0));
  CHECK(later >= cost::ps_of_cycles(500, 1.2));
  Run off(two(0), trn2("memory.psum_same_bank_serialises=0"));
  CHECK(off.start(Engine::kVector, 0) == 0);
}

TEST_CASE("GpSimd and the fast vector modes share a bus, slow vector modes do not use it") {
  const auto c = trn2();
  const auto with_vector = [&](const Access& src) {
    return program({tensor_tensor(sbuf(500, Dtype::kF32, 8192), sbuf(500), sbuf(500, Dtype::kF32, 4096),
                                  Engine::kGpSimd),
                    copy(Engine::kVector, sbuf(500, Dtype::kF32, 65536), src)});
  };
  Run fast(with_vector(sbuf(500, Dtype::kF32, 32768)), c), slow(with_vector(psum(500)), c);
  CHECK(std::max(fast.start(Engine::kVector, 0), fast.start(Engine::kGpSimd, 0)) > 0);
  CHECK(std::max(slow.start(Engine::kVector, 0), slow.start(Engine::kGpSimd, 0)) == 0);
}

TEST_CASE("Weight loads hide behind the running matmul") {
  const auto c = trn2();
  std::vector<Instruction> all;
  for (int k = 0; k < 200; ++k) {
    all.push_back(load_stationary(sbuf(128, Dtype::kBF16)));
    all.push_back(multiply(psum(512, Dtype::kF32, k % 8), sbuf(512, Dtype::kBF16, 4096)));
  }
  Run r(program(all), c);
  // 512 columns and 6 cycles at 2.4 GHz.
  const Ps interval = r.start(Engine::kTensor, 399) - r.start(Engine::kTensor, 397);
  CHECK(interval == Approx(518 / 2.4 * 1000).margin(2));
  CHECK_FALSE(r.trace.pe_windows.front());
  CHECK(r.trace.pe_windows.back());
}

TEST_CASE("Products on tiles of the array that share no cell run side by side [5.1]") {
  const auto c = trn2("tensor.governor_threshold=0");
  const auto load = [](isa::PeTile t) {
    Instruction i = load_stationary(sbuf(t.columns, Dtype::kBF16, 65536, t.rows, 1, t.row));
    i.tile = t;
    return i;
  };
  const auto product = [](isa::PeTile t, int bank) {
    Instruction i = multiply(psum(512, Dtype::kF32, bank), sbuf(512, Dtype::kBF16, 4096, t.rows, 1, t.row));
    i.tile = t;
    return i;
  };
  const isa::PeTile top{0, 0, 64, 128}, bottom{64, 0, 64, 128}, left{0, 0, 128, 32}, right{0, 96, 128, 32};
  const auto gap = [&](isa::PeTile a, isa::PeTile b) {
    Run r(program({load(a), load(b), product(a, 0), product(b, 1)}), c);
    return r.start(Engine::kTensor, 3) - r.start(Engine::kTensor, 2);
  };
  const Ps pass = cost::ps_of_cycles(518, 2.4);
  CHECK(gap(top, bottom) == cost::ps(c.sequencer.dispatch_ns));
  CHECK(gap(left, right) == cost::ps(c.sequencer.dispatch_ns));
  CHECK(gap(top, top) == Approx(pass).margin(2));
  CHECK(gap(top, left) == Approx(pass).margin(2));
  // The whole array waits for every tile; its use is counted once.
  Run r(program({load(top), load(bottom), product(top, 0), product(bottom, 1), product({}, 2)}), c);
  CHECK(r.start(Engine::kTensor, 4) == Approx(r.start(Engine::kTensor, 3) + pass).margin(2));
  const Ps busy = r.result.stats.engines[static_cast<size_t>(Engine::kTensor)].busy_ps;
  CHECK(busy == Approx(2 * pass + cost::ps(c.sequencer.dispatch_ns)).margin(4));
  // A load into one tile does not wait for the weights of another to be used.
  Run loads(program({load(top), product(top, 0), load(top), load(bottom), product(bottom, 1)}), c);
  CHECK(loads.start(Engine::kTensor, 4) < loads.start(Engine::kTensor, 1) + pass);
}

TEST_CASE("A run on a tile may begin in a window that another tile has left") {
  const auto c = trn2();
  cost::PeClock clock(c);
  const Ps window = cost::ps_of_cycles(8192, 2.4);
  const Ps first = clock.run(window - 1000, 1000, 64);  // at half clock, into the second window
  CHECK(first > window);
  CHECK(clock.run(window - 900, 1000, 64) == first + 100);
}

TEST_CASE("The governor follows the recorded windows of HM-01") {
  // Use of a window -> state of the next; the state decides the speed at which the use is reached.
  const auto c = trn2();
  cost::PeClock clock(c);
  const Ps window = cost::ps_of_cycles(8192, 2.4);
  const double use[] = {0.39, 0.19, 0.06, 0.50, 0.97, 0.97, 0.94, 0.06, 0.22, 0.50, 0.97, 0.94, 0.37};
  const bool full_before[] = {false, true,  false, false, true, true, true,
                              true,  false, false, true,  true, true};
  const bool full_after_last = true;
  Ps at = 0;
  for (size_t w = 0; w < std::size(use); ++w) {
    INFO("window " << w);
    const Ps begin = static_cast<Ps>(w) * window;
    CHECK(clock.full_at(std::max(begin, at)) == full_before[w]);
    at = clock.run(std::max(begin, at), static_cast<int64_t>(use[w] * 8192), 128);
    CHECK(at <= begin + window + 2);
    at = begin + window;
  }
  CHECK(clock.full_at(at) == full_after_last);
}

TEST_CASE("The governor weighs activity by active rows (HM-07)") {
  const auto c = trn2();
  std::vector<Instruction> all;
  for (int k = 0; k < 300; ++k)
    all.push_back(multiply(psum(512, Dtype::kF32, k % 8), sbuf(512, Dtype::kBF16, 4096, 64)));
  Run half(program(all), c);
  CHECK_FALSE(half.trace.pe_windows.back());
  // A run of full-height passes lifts the clock, and the half-height stream then keeps it.
  std::vector<Instruction> lifted;
  for (int k = 0; k < 12; ++k)
    lifted.push_back(multiply(psum(512, Dtype::kF32, k % 8), sbuf(512, Dtype::kBF16, 4096)));
  lifted.insert(lifted.end(), all.begin(), all.end());
  Run kept(program(lifted), c);
  CHECK(kept.trace.pe_windows.back());
}

TEST_CASE("Idle windows cool the array down") {
  const auto c = trn2();
  cost::PeClock clock(c);
  const Ps window = cost::ps_of_cycles(8192, 2.4);
  clock.run(0, 4096, 128);  // all of the first window at half clock
  CHECK(clock.full_at(window));
  CHECK_FALSE(clock.full_at(2 * window));
  CHECK_FALSE(clock.full_at(50 * window));
}

TEST_CASE("One DMA engine serves its eight partitions") {
  const auto c = trn2();
  const auto k = cost::dma(dma_copy(Engine::kSync, sbuf(1000, Dtype::kF32, 0, 16, 1, 32), hbm(0, 16000)), c);
  REQUIRE(k.jobs.size() == 2);
  CHECK(k.jobs[0].engine == 4);
  CHECK(k.jobs[1].engine == 5);
  CHECK(k.read_bytes == 64000);
}

TEST_CASE("Queues share an engine in turns") {
  const auto c = trn2();
  // Twenty large transfers on one queue, then a small one on another: it must not wait for all of them.
  std::vector<Instruction> all;
  for (int k = 0; k < 20; ++k)
    all.push_back(
        dma_copy(Engine::kSync, sbuf(2048, Dtype::kF32), hbm(0, 128 * 2048), isa::DgeMode::kStatic, 0));
  all.push_back(
      dma_copy(Engine::kScalar, sbuf(16, Dtype::kF32, 100000), hbm(0, 128 * 16), isa::DgeMode::kStatic, 1));
  Run r(program(all, {1 << 21}), c);
  Ps small = 0, last = 0;
  for (const auto& t : r.trace.transfers) {
    if (t.engine == Engine::kScalar) small = t.complete;
    last = std::max(last, t.complete);
  }
  CHECK(small > 0);
  CHECK(small < last / 4);
}

TEST_CASE("Of the packets that wait at a DMA engine the most urgent goes first") {
  const auto complete = [](uint8_t others, uint8_t small) {
    std::vector<Instruction> all;
    for (int k = 0; k < 18; ++k) {
      all.push_back(
          dma_copy(Engine::kSync, sbuf(2048, Dtype::kF32), hbm(0, 128 * 2048), isa::DgeMode::kStatic, k % 6));
      all.back().priority = others;
    }
    all.push_back(
        dma_copy(Engine::kSync, sbuf(64, Dtype::kF32, 100000), hbm(0, 128 * 64), isa::DgeMode::kStatic, 9));
    all.back().priority = small;
    Run r(program(all, {1 << 21}), trn2());
    return r.trace.transfers.back().complete;
  };
  CHECK(complete(0, 0) == complete(2, 2));
  CHECK(complete(3, 0) < complete(0, 0));
  CHECK(complete(0, 3) > complete(0, 0));
}

TEST_CASE("A full queue blocks the trigger until a slot is free") {
  const auto c = trn2("dma.queue_depth=2");
  std::vector<Instruction> all;
  for (int k = 0; k < 4; ++k)
    all.push_back(dma_copy(Engine::kSync, sbuf(2048, Dtype::kF32), hbm(0, 128 * 2048)));
  Run r(program(all, {1 << 21}), c);
  REQUIRE(r.trace.transfers.size() == 4);
  CHECK(r.trace.transfers[2].trigger >= r.trace.transfers[0].complete);
  CHECK(r.trace.transfers[3].trigger >= r.trace.transfers[1].complete);
  CHECK(r.trace.transfers[1].trigger < r.trace.transfers[0].complete);
}

TEST_CASE("The HBM stack limits all engines together") {
  std::vector<Instruction> all;
  for (int k = 0; k < 4; ++k)
    all.push_back(dma_copy(Engine::kSync, sbuf(4096, Dtype::kF32, k * 16384), hbm(0, 128 * 4096)));
  const isa::Program p = program(all, {1 << 23});
  const auto time = [&](const std::string& o) { return chip::run_timing(p, trn2(o)).stats.total_ps; };
  CHECK(time("hbm.stack_bandwidth_gb_per_s=1432") == time(""));  // the engines are the limit
  const double slow = static_cast<double>(time("hbm.stack_bandwidth_gb_per_s=100") -
                                          time("hbm.stack_bandwidth_gb_per_s=200"));
  CHECK(slow == Approx(4.0 * 128 * 4096 * 4 * (1.0 / 100 - 1.0 / 200) * 1000).epsilon(0.02));
}

TEST_CASE("A DMA completion reaches its consumer after the write acknowledge (MB-32)") {
  const auto c = trn2();
  Instruction load = dma_copy(Engine::kSync, sbuf(1000), hbm(0, 128000));
  signal(load, 9);
  Instruction use = copy(Engine::kVector, sbuf(1, Dtype::kF32, 8192), sbuf(1));
  wait(use, 9, 16);
  Run r(program({load, use}, {512000}), c);
  Ps data_end = 0;
  for (const auto& p : r.trace.packets) data_end = std::max(data_end, p.end);
  CHECK(r.start(Engine::kVector, 0) - data_end == cost::ps(c.dma.load_ack_ns) + 35'100);
}

TEST_CASE("Times are equal to the picosecond in every run") {
  for (const isa::Program& p : standard_programs()) {
    INFO(p.name);
    const auto a = chip::run_timing(p, trn2()), b = chip::run_timing(p, trn2());
    CHECK(a.status == b.status);
    CHECK(a.stats.total_ps == b.stats.total_ps);
    CHECK(a.stats.dma_busy_ps == b.stats.dma_busy_ps);
    for (int e = 0; e < isa::kNumEngines; ++e)
      CHECK(a.stats.engines[e].busy_ps == b.stats.engines[e].busy_ps);
  }
}

TEST_CASE("Modules that run ahead of each other give the same times as one action after another") {
  std::vector<isa::Program> programs = standard_programs();
  programs.push_back(matmul_pipeline(60, Dtype::kBF16));
  programs.push_back(matmul_pipeline(60, Dtype::kF32));
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    isa::RandomProgram random(seed);
    programs.push_back(random.legal_program(60));
  }
  for (const char* overrides :
       {"", "hbm.stack_bandwidth_gb_per_s=90", "dma.queue_depth=1", "dma.engines=5"}) {
    const auto c = trn2(overrides);
    for (const isa::Program& p : programs) {
      INFO(p.name << " with " << overrides);
      const auto ahead = chip::run_timing(p, c);
      chip::set_run_ahead(false);
      const auto plain = chip::run_timing(p, c);
      chip::set_run_ahead(true);
      CHECK(ahead.status == plain.status);
      CHECK(ahead.stats.total_ps == plain.stats.total_ps);
      CHECK(ahead.stats.dma_busy_ps == plain.stats.dma_busy_ps);
      for (int e = 0; e < isa::kNumEngines; ++e)
        CHECK(ahead.stats.engines[e].busy_ps == plain.stats.engines[e].busy_ps);
    }
  }
}

TEST_CASE("Cores that stream at the same time share their HBM stack") {
  std::vector<Instruction> all;
  for (int k = 0; k < 4; ++k)
    all.push_back(dma_copy(Engine::kSync, sbuf(4096, Dtype::kF32, k * 16384), hbm(0, 128 * 4096)));
  const isa::Program p = program(all, {1 << 23});
  const auto time = [&](const std::string& o) { return chip::run_timing(p, trn2(o)).stats.total_ps; };
  CHECK(time("hbm.active_cores=2") == time("hbm.stack_bandwidth_gb_per_s=358"));
  CHECK(time("hbm.active_cores=2") > time(""));  // 435 GB/s of engines, 358 of the stack
}

TEST_CASE("Transfers are slower while data flows in the other direction (DM-03)") {
  const auto c = trn2();
  const Instruction load = dma_copy(Engine::kSync, sbuf(128), hbm(0, 128 * 128), isa::DgeMode::kStatic, 0);
  const Instruction store =
      dma_copy(Engine::kSync, hbm(1, 128 * 8192), sbuf(8192, Dtype::kF32, 4096), isa::DgeMode::kStatic, 1);
  const auto packet = [&](const std::vector<Instruction>& all) {
    Run r(program(all, {1 << 23, 1 << 23}), c);
    Ps time = 0;
    for (const auto& p : r.trace.packets) {
      if (p.transfer == all.size() - 1 && p.engine == 0) time = p.end - p.start;
    }
    return time;
  };
  const Ps alone = packet({load}), mixed = packet({store, load});
  CHECK(static_cast<double>(mixed) == Approx(static_cast<double>(alone) * c.dma.mixed_factor).epsilon(1e-5));
  CHECK(packet({load, load}) == alone);
}

TEST_CASE("A jump beyond the prefetched stream restarts the fetch") {
  const auto c = trn2();
  const auto jump_over = [&](uint32_t distance) {
    std::vector<Instruction> all(1000, halt(Engine::kSync));
    all[0].opcode = Opcode::kJump;
    all[0].target = distance;
    return chip::run_timing(program(all), c).stats.total_ps;
  };
  const auto window = static_cast<uint32_t>(c.sequencer.fetch_window_instructions);
  CHECK(jump_over(window) == jump_over(1));
  CHECK(jump_over(window + 1) - jump_over(window) == cost::ps(c.sequencer.fetch_restart_ns));
}

TEST_CASE("A long loop runs in flat memory") {
  const auto run = [](const isa::Program& p) {
    const auto r = chip::run_timing(p, trn2());
    INFO(r.message);
    CHECK(r.status == Status::kOk);
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return std::pair(usage.ru_maxrss, r.stats.instructions);  // KiB
  };
  const auto before = run(long_loop(1000)), after = run(long_loop(300000));
  CHECK(after.second > 1200000);
  CHECK(after.first - before.first < 2048);
  const auto few = run(decode_loop(1000)), many = run(decode_loop(40000));
  CHECK(many.second > 800000);
  CHECK(many.second == Approx(40 * few.second).epsilon(0.01));
  CHECK(many.first - few.first < 2048);
}

TEST_CASE("The decoding loop is a correct program") {
  isa::Program p = decode_loop(40);
  p.locations.push_back({});
  for (const auto& d : isa::validate(p)) FAIL_CHECK(d.message);
  // Unrolled in time: a step needs the product of the step before, so it is never shorter than that.
  Run r(p, trn2());
  CHECK(r.span(Engine::kTensor, 6, 39).start > r.span(Engine::kScalar, 5, 38).end);
  CHECK(r.span(Engine::kVector, 5, 39).start > r.span(Engine::kScalar, 5, 39).end);
}

TEST_CASE("A longer program does not run ahead of its semaphores") {
  // Consumer k never starts before producer k has ended, in any of the engines' interleavings.
  const auto c = trn2();
  const isa::Program p = compute_chain(100);
  Run r(p, c);
  for (uint32_t k = 0; k < 100; ++k) {
    CHECK(r.start(Engine::kScalar, k) >= r.end(Engine::kTensor, 2 * k + 1) + 11'600);
    CHECK(r.start(Engine::kVector, k) >= r.end(Engine::kScalar, k) + 11'600);
  }
}

TEST_CASE("A stream that jumps back after its budget of instructions counts as endless") {
  Instruction move = halt(Engine::kSync), loop = move;
  move.opcode = Opcode::kRegMove;
  move.reg_dst = 1;
  move.imm = 1000;
  loop.opcode = Opcode::kLoop;
  loop.reg_a = 1;
  loop.target = 1;
  const auto p = program({move, loop});
  CHECK(chip::run_timing(p, trn2("sequencer.instruction_budget=1000")).status == Status::kOk);
  const auto r = chip::run_timing(p, trn2("sequencer.instruction_budget=999"));
  CHECK(r.status == Status::kHang);
  CHECK_THAT(r.message, ContainsSubstring("Sync instruction 1"));
  CHECK_THAT(r.message, ContainsSubstring("sequencer.instruction_budget"));
}

TEST_CASE("A halt updates its semaphore") {
  Instruction last = halt(Engine::kSync);
  signal(last, 3);
  Instruction consumer = copy(Engine::kVector, sbuf(64, Dtype::kF32, 4096), sbuf(64));
  wait(consumer, 3, 1);
  Run r(program({last, consumer}), trn2());
  CHECK(r.start(Engine::kVector, 0) == 35'100);
}

TEST_CASE("A loop that never ends in data-free control is found, not run for ever") {
  Instruction jump = halt(Engine::kSync);
  jump.opcode = Opcode::kJump;
  jump.target = 7;
  const auto r = chip::run_timing(program({jump}), trn2());
  CHECK(r.status == Status::kUserError);
  CHECK_THAT(r.message, ContainsSubstring("jumps to 7"));
}
