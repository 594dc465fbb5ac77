// Programs for the two cores of a logical core: their time, what they share, and how a hang is explained.
#include <cstring>

#include "isa/assembler.h"
#include "isa/container.h"
#include "isa/random_program.h"
#include "sim/chip/device.h"
#include "sim/chip/probe_programs.h"
#include "sim/chip/simulator.h"
#include "sim/config/config.h"
#include "tests/cpp/catch.h"

using namespace trnsim;
using chip::probe::dma_copy;
using chip::probe::hbm;
using chip::probe::sbuf;
using isa::Dtype;
using isa::Engine;
using isa::Instruction;
using Status = chip::LaunchResult::Status;

namespace {

config::Config trn2(const std::string& overrides = "") {
  std::string error;
  auto c = config::load("trn2", overrides, &error);
  REQUIRE(c.has_value());
  return *c;
}

isa::Program assemble(const std::string& body) {
  isa::Program p;
  std::vector<isa::AssembleError> errors;
  const bool good = isa::assemble("program \"pair\" target \"trn2\"\ncores 2\n" + body, p, errors);
  INFO(isa::to_text(errors, "pair"));
  REQUIRE(good);
  return p;
}

// The streams of a program for one core on both.
isa::Program on_both(const isa::Program& one) {
  isa::Program p = one;
  p.cores = 2;
  for (int e = 0; e < isa::kNumEngines; ++e)
    p.streams[static_cast<size_t>(isa::kNumEngines + e)] = p.streams[static_cast<size_t>(e)];
  return p;
}

double launch_free_ns(const chip::TimingResult& r, const config::Config& c) {
  return static_cast<double>(r.stats.total_ps) / 1000 - c.launch.start_ns - c.launch.end_ns;
}

void same_stats(const chip::TimingResult& a, const chip::TimingResult& b) {
  CHECK(a.status == b.status);
  CHECK(a.message == b.message);
  CHECK(a.stats.total_ps == b.stats.total_ps);
  for (size_t n = 0; n < isa::kMaxCores; ++n) {
    CHECK(a.stats.of_core[n].dma_busy_ps == b.stats.of_core[n].dma_busy_ps);
    for (size_t e = 0; e < isa::kNumEngines; ++e) {
      CHECK(a.stats.of_core[n].engines[e].busy_ps == b.stats.of_core[n].engines[e].busy_ps);
    }
  }
}

}  // namespace

TEST_CASE("two cores without common memory take the time of one") {
  const auto c = trn2();
  const isa::Program one = chip::probe::matmul_pipeline(20, Dtype::kBF16);
  const auto alone = chip::run_timing(one, c),
             both = chip::run_timing(on_both(one), trn2("hbm.stack_bandwidth_gb_per_s=100000"));
  CHECK(both.stats.total_ps ==
        chip::run_timing(one, trn2("hbm.stack_bandwidth_gb_per_s=100000")).stats.total_ps);
  CHECK(both.stats.cores == 2);
  CHECK(both.stats.instructions == 2 * alone.stats.instructions);
  for (size_t n = 0; n < isa::kMaxCores; ++n)
    CHECK(both.stats.of_core[n].engines[0].busy_ps == alone.stats.of_core[0].engines[0].busy_ps);
  CHECK(both.stats.engines[0].busy_ps == 2 * alone.stats.engines[0].busy_ps);
}

TEST_CASE("both cores of a pair share the bandwidth of their HBM stack") {
  std::vector<Instruction> all;
  for (int k = 0; k < 8; ++k)
    all.push_back(dma_copy(Engine::kSync, sbuf(4096, Dtype::kF32, k % 4 * 16384), hbm(0, 128 * 4096),
                           isa::DgeMode::kStatic, k % 4));
  const isa::Program one = chip::probe::program(all, {1 << 23});
  const auto c = trn2();
  const double bytes = 8.0 * 128 * 4096 * 4;
  const double alone = launch_free_ns(chip::run_timing(one, c), c),
               both = launch_free_ns(chip::run_timing(on_both(one), c), c);
  CHECK(bytes / alone == Approx(16 * 1.4 * 16 * 1.0).epsilon(0.3));  // bound by the DMA engines of the core
  CHECK(2 * bytes / both == Approx(c.hbm.stack_bandwidth_gb_per_s).epsilon(0.05));  // by the stack
  CHECK(both > 1.1 * alone);
  // A core whose neighbour is silent has the stack to itself.
  isa::Program second = on_both(one);
  for (int e = 0; e < isa::kNumEngines; ++e) second.streams[static_cast<size_t>(e)].clear();
  CHECK(launch_free_ns(chip::run_timing(second, c), c) == Approx(alone).epsilon(1e-9));
}

TEST_CASE("a barrier ends with the later core, an exchange begins with it") {
  const auto c = trn2();
  const auto program = [](const std::string& what, int late) {
    std::string text = "tensor \"t\" scratch fp32 [4] 16 bytes\n";
    for (int core = 0; core < 2; ++core) {
      text += core == 0 ? "stream sync\n" : "core 1\nstream sync\n";
      if (core == late)
        for (int k = 0; k < 100; ++k) text += "  reg_move reg_dst=r0 imm=0\n";
      text += "  " + what + " count=" + std::to_string(1 - core) + "\n";
      if (core != late) text += "  reg_move reg_dst=r0 imm=1\n";
    }
    return assemble(text);
  };
  const double delay = 100 * c.sequencer.control_ns, remote = c.semaphore.remote_visible_ns;
  const double behind = c.sequencer.control_ns;  // the register move of the core that waited
  std::string barrier = "core_barrier src0=hbm(\"t\").fp32{4:1}";
  for (int late : {0, 1}) {
    isa::Program p =
        program("send_recv dst=sbuf.fp32[0+128]@4096{64:1} src0=sbuf.fp32[0+128]{64:1} dge=static", late);
    const auto exchange = chip::run_timing(p, c);
    INFO(exchange.message);
    const auto at_once = chip::run_timing(
        chip::probe::program(chip::probe::row_probe(isa::Opcode::kSendRecv, Engine::kSync, 64), {}), c);
    CHECK(launch_free_ns(exchange, c) == Approx(delay + launch_free_ns(at_once, c)).margin(1));
    for (auto& s : p.streams) {
      for (Instruction& i : s) {
        if (i.opcode != isa::Opcode::kSendRecv) continue;
        i = Instruction{};
        i.opcode = isa::Opcode::kCoreBarrier;
        i.src0 = hbm(0, 1);
      }
    }
    const auto met = chip::run_timing(p, c);
    INFO(met.message);
    CHECK(launch_free_ns(met, c) ==
          Approx(delay + c.sequencer.control_ns + remote + c.semaphore.wake_ns + behind).margin(1));
  }
}

TEST_CASE("random programs for two cores: the same time again, with data, and one action after another") {
  int compared = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    isa::RandomProgram random(seed);
    const isa::Program p = random.legal_program(80, isa::Generation::kTrn2, 2);
    INFO("seed " << seed);
    for (const char* overrides :
         {"", "hbm.stack_bandwidth_gb_per_s=20", "dma.queue_depth=1", "dma.engines=5"}) {
      const auto c = trn2(overrides);
      INFO(overrides);
      const auto ahead = chip::run_timing(p, c);
      same_stats(ahead, chip::run_timing(p, c));
      chip::set_run_ahead(false);
      const auto plain = chip::run_timing(p, c);
      chip::set_run_ahead(true);
      same_stats(ahead, plain);
      if (ahead.status != Status::kOk) {
        CHECK_THAT(ahead.message, ContainsSubstring("loaded from memory"));
        break;
      }
      ++compared;
    }
  }
  CHECK(compared > 60);
}

TEST_CASE("a device runs a program for two cores on an even core and the next, in every mode") {
  int compared = 0;
  const auto config = trn2();
  const auto both = chip::make_device(config, chip::Mode::kBoth),
             time = chip::make_device(config, chip::Mode::kTime),
             data = chip::make_device(config, chip::Mode::kData);
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    isa::RandomProgram random(seed);
    const auto bytes = isa::write_container(random.legal_program(60, isa::Generation::kTrn2, 2));
    std::vector<std::vector<std::byte>> results;
    std::vector<chip::LaunchResult> launches;
    for (chip::Device* device : {both.get(), data.get(), time.get()}) {
      chip::LoadError error;
      const auto loaded = device->load(bytes.data(), bytes.size(), &error);
      INFO(error.message);
      REQUIRE(loaded != nullptr);
      CHECK(loaded->cores() == 2);
      std::vector<std::vector<std::byte>> memory;
      std::vector<chip::Binding> bindings;
      for (const auto& t : loaded->tensors()) memory.emplace_back(t.bytes, std::byte{0x21});
      for (auto& m : memory) bindings.push_back({device == time.get() ? nullptr : m.data(), m.size(), 0});
      device->reset_core(2);
      device->reset_core(3);
      launches.push_back(device->launch(2, *loaded, bindings));
      results.push_back(memory.back());
      if (device == both.get()) {
        CHECK_THAT(device->launch(1, *loaded, bindings).message,
                   ContainsSubstring("core 1 of 8 does not begin such a pair"));
      }
    }
    INFO("seed " << seed << ": " << launches[0].message << launches[1].message << launches[2].message);
    if (launches[2].status == Status::kNotSimulated) continue;  // a branch on a word of memory
    REQUIRE(launches[2].status == Status::kOk);
    CHECK(launches[0].status == launches[1].status);
    if (launches[0].status != Status::kOk) continue;
    CHECK(launches[0].stats.total_ps == launches[2].stats.total_ps);
    CHECK(results[0] == results[1]);
    ++compared;
  }
  CHECK(compared > 8);
}

TEST_CASE("branches on what a core has computed: both cores run in simulated order") {
  const isa::Program p = assemble(R"(tensor "x" input int32 [1] 4 bytes
tensor "y" output fp32 [2, 128] 1024 bytes
stream sync
  reg_load reg_dst=r0 src0=hbm("x").int32{1:1}
  branch op0=equal reg_a=r0 imm=0 flags=immediate target=skip
  send_recv dst=sbuf.fp32[0+128]@64{1:1} src0=sbuf.fp32[0+128]{1:1} dge=static count=1 | then s0+=16
  wait s0>=16 | dma_copy dst=hbm("y").fp32{128:1,1:1} src0=sbuf.fp32[0+128]@64{1:1} queue=1 dge=static
skip:
  core_barrier src0=hbm("x").int32{1:1}
stream vector
  memset dst=sbuf.fp32[0+128]{1:1} imm0=3
core 1
stream sync
  reg_load reg_dst=r0 src0=hbm("x").int32{1:1}
  branch op0=equal reg_a=r0 imm=0 flags=immediate target=skip
  send_recv dst=sbuf.fp32[0+128]@64{1:1} src0=sbuf.fp32[0+128]{1:1} dge=static count=0 | then s0+=16
  wait s0>=16 | dma_copy dst=hbm("y").fp32@512{128:1,1:1} src0=sbuf.fp32[0+128]@64{1:1} queue=1 dge=static
skip:
  core_barrier src0=hbm("x").int32{1:1}
stream vector
  memset dst=sbuf.fp32[0+128]{1:1} imm0=5
)");
  const auto bytes = isa::write_container(p);
  const auto device = chip::make_device(trn2(), chip::Mode::kBoth);
  chip::LoadError error;
  const auto loaded = device->load(bytes.data(), bytes.size(), &error);
  REQUIRE(loaded != nullptr);
  for (int32_t taken : {1, 0}) {
    std::vector<float> y(256, -1);
    const auto r = device->launch(
        0, *loaded,
        {{reinterpret_cast<std::byte*>(&taken), 4, 0}, {reinterpret_cast<std::byte*>(y.data()), 1024, 0}});
    INFO(r.message);
    REQUIRE(r.status == Status::kOk);
    CHECK(r.stats.cores == 2);
    CHECK(y[0] == (taken != 0 ? 5 : -1));
    CHECK(y[255] == (taken != 0 ? 3 : -1));
  }
}

TEST_CASE("a hang of two cores names both, with their source lines") {
  const std::string shared =
      "tensor \"t\" scratch fp32 [4] 16 bytes\nlocation 1 \"net.py\" 8 \"x\"\nlocation 2 \"net.py\" 9 "
      "\"y\"\n";
  const auto message = [](const std::string& text) {
    const auto r = chip::run_timing(assemble(text), trn2());
    CHECK(r.status == Status::kHang);
    return r.message;
  };
  const std::string barrier = "  core_barrier src0=hbm(\"t\").fp32{4:1}";
  CHECK_THAT(
      message(shared + "stream sync\n" + barrier + " !1\n"),
      ContainsSubstring(
          "the program hangs (missing signal): Sync of core 0 instruction 0 (core_barrier, net.py:8, x) "
          "waits for Sync of core 1 at barrier 1, and it has only 0"));
  // Crossed barriers: each core waits on another engine.
  CHECK_THAT(message(shared + "stream sync\n" + barrier + " | then s0+=1 !1\nstream scalar\nwait s0>=1 |" +
                     barrier + "\ncore 1\nstream scalar\n" + barrier +
                     " | then s0+=1 !2\nstream sync\nwait s0>=1 |" + barrier + "\n"),
             ContainsSubstring(
                 "deadlock: Scalar of core 0 waits for Sync of core 0 waits for Sync of core 1 waits for "
                 "Scalar of core 1 waits for Scalar of core 0") &&
                 ContainsSubstring("net.py:8") && ContainsSubstring("net.py:9"));
  const std::string half = "  send_recv dst=sbuf.fp32[0+4]@64{4:1} src0=sbuf.fp32[0+4]{4:1} dge=static imm=";
  CHECK_THAT(
      message(shared + "stream sync\n" + half + "1 count=1 !1\ncore 1\nstream sync\n" + half +
              "2 count=0 !2\n"),
      ContainsSubstring(
          "Sync of core 0 instruction 0 (send_recv, net.py:8, x) waits for core 1 to exchange over pipe "
          "1; Sync of core 1 instruction 0 (send_recv, net.py:9, y) waits for core 0 to exchange over "
          "pipe 2"));
  const auto lost = chip::run_timing(
      assemble(
          "tensor \"t\" scratch fp32 [4] 16 bytes\ntensor \"u\" scratch fp32 [4] 16 bytes\nstream sync\n" +
          barrier + "\ncore 1\nstream sync\n  core_barrier src0=hbm(\"u\").fp32{4:1}\n"),
      trn2());
  CHECK(lost.status == Status::kIllegal);
  CHECK_THAT(lost.message,
             ContainsSubstring("two barriers meet that name different tensors: 'u' at Sync of core 1"));
  isa::Program one = assemble("tensor \"t\" scratch fp32 [4] 16 bytes\nstream sync\n" + barrier + "\n");
  one.cores = 1;
  CHECK_THAT(chip::run_timing(one, trn2()).message,
             ContainsSubstring("works with the other core of a pair; the program runs on one"));
}
