// The device interface: containers in, results out, the three dials, memo, forks and errors.
#include "sim/chip/device.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "isa/container.h"
#include "sim/chip/probe_programs.h"
#include "sim/chip/simulator.h"
#include "sim/config/config.h"
#include "tests/cpp/catch.h"

using namespace trnsim;
using namespace trnsim::chip::probe;
using Status = chip::LaunchResult::Status;

namespace {

config::Config trn2(const std::string& overrides = "") {
  std::string error;
  auto c = config::load("trn2", overrides, &error);
  INFO(error);
  REQUIRE(c.has_value());
  return *c;
}

// out = in + in, [128, 64] fp32.
isa::Program double_program() {
  Instruction load = dma_copy(Engine::kSync, sbuf(64), hbm(0, 128 * 64));
  signal(load, 16);
  Instruction add = tensor_tensor(sbuf(64, Dtype::kF32, 4096), sbuf(64), sbuf(64));
  wait(add, 16, 16);
  signal(add, 1);
  Instruction store =
      dma_copy(Engine::kSync, hbm(1, 128 * 64), sbuf(64, Dtype::kF32, 4096), isa::DgeMode::kStatic, 1);
  wait(store, 1, 1);
  signal(store, 17);
  isa::Program p = program({load, add, store}, {128 * 64 * 4, 128 * 64 * 4});
  p.tensors[1].kind = isa::TensorKind::kOutput;
  for (auto& t : p.tensors) {
    t.dtype = Dtype::kF32;
    t.shape = {128, 64};
  }
  return p;
}

std::shared_ptr<chip::LoadedProgram> load(chip::Device& device, const isa::Program& p) {
  const auto bytes = isa::write_container(p);
  chip::LoadError error;
  auto loaded = device.load(bytes.data(), bytes.size(), &error);
  INFO(error.message);
  REQUIRE(loaded != nullptr);
  return loaded;
}

struct Buffers {
  std::vector<float> in = std::vector<float>(128 * 64), out = std::vector<float>(128 * 64, -1.0f);
  Buffers() {
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i) * 0.5f;
  }
  std::vector<chip::Binding> bindings() {
    return {{reinterpret_cast<std::byte*>(in.data()), in.size() * 4, 0},
            {reinterpret_cast<std::byte*>(out.data()), out.size() * 4, 0}};
  }
  bool right() const {
    for (size_t i = 0; i < in.size(); ++i) {
      if (out[i] != in[i] * 2) return false;
    }
    return true;
  }
};

std::vector<chip::Binding> no_data() { return {{nullptr, 128 * 64 * 4, 0}, {nullptr, 128 * 64 * 4, 0}}; }

}  // namespace

TEST_CASE("Values and time do not depend on each other") {
  const auto config = trn2();
  auto both = chip::make_device(config, chip::Mode::kBoth);
  auto data = chip::make_device(config, chip::Mode::kData);
  auto time = chip::make_device(config, chip::Mode::kTime);

  Buffers b;
  const auto with_both = both->launch(0, *load(*both, double_program()), b.bindings());
  INFO(with_both.message);
  REQUIRE(with_both.status == Status::kOk);
  CHECK(b.right());
  CHECK(with_both.stats.total_ps > 9'400'000);
  CHECK(with_both.stats.dma_bytes_read == 128 * 64 * 4);
  CHECK(with_both.stats.dma_bytes_written == 128 * 64 * 4);
  CHECK(with_both.stats.instructions == 5);

  Buffers d;
  const auto with_data = data->launch(0, *load(*data, double_program()), d.bindings());
  REQUIRE(with_data.status == Status::kOk);
  CHECK(d.right());
  CHECK(with_data.stats.total_ps == 0);

  const auto with_time = time->launch(0, *load(*time, double_program()), no_data());
  REQUIRE(with_time.status == Status::kOk);
  CHECK(with_time.stats.total_ps == with_both.stats.total_ps);
}

TEST_CASE("The memo gives the time of the first run without the kernel") {
  auto device = chip::make_device(trn2(), chip::Mode::kTime);
  auto program = load(*device, double_program());
  const auto first = device->launch(0, *program, no_data());
  CHECK_FALSE(first.stats.from_memo);
  const uint64_t runs = chip::kernel_runs();
  const auto second = device->launch(3, *program, no_data());
  CHECK(second.stats.from_memo);
  CHECK(chip::kernel_runs() == runs);
  CHECK(second.stats.total_ps == first.stats.total_ps);
  device->set_memo(false);
  const auto third = device->launch(0, *program, no_data());
  CHECK_FALSE(third.stats.from_memo);
  CHECK(chip::kernel_runs() == runs + 1);
  CHECK(third.stats.total_ps == first.stats.total_ps);
  for (int e = 0; e < isa::kNumEngines; ++e)
    CHECK(third.stats.engines[e].busy_ps == first.stats.engines[e].busy_ps);
}

TEST_CASE("Devices of different configurations live side by side") {
  auto slow = chip::make_device(trn2("vector.clock_ghz=0.48"), chip::Mode::kTime);
  auto fast = chip::make_device(trn2(), chip::Mode::kTime);
  auto ps = load(*slow, double_program());
  auto pf = load(*fast, double_program());
  const auto a = slow->launch(0, *ps, no_data()).stats.total_ps;
  const auto b = fast->launch(0, *pf, no_data()).stats.total_ps;
  CHECK(a > b);
  // A program knows its time per device.
  CHECK(slow->launch(0, *pf, no_data()).stats.total_ps == a);
  CHECK(fast->launch(0, *pf, no_data()).stats.total_ps == b);
}

TEST_CASE("A launch that cannot run says why") {
  auto device = chip::make_device(trn2(), chip::Mode::kBoth);
  auto program = load(*device, double_program());
  Buffers b;
  auto r = device->launch(99, *program, b.bindings());
  CHECK(r.status == Status::kUserError);
  CHECK_THAT(r.message, ContainsSubstring("cores 0 to 7"));
  r = device->launch(0, *program, {});
  CHECK_THAT(r.message, ContainsSubstring("2 tensors"));
  auto small = b.bindings();
  small[1].bytes = 8;
  r = device->launch(0, *program, small);
  CHECK_THAT(r.message, ContainsSubstring("needs 32768 bytes"));
  r = device->launch(0, *program, no_data());
  CHECK_THAT(r.message, ContainsSubstring("only mode 'time'"));
}

TEST_CASE("Bytes that are no program are refused by kind") {
  auto device = chip::make_device(trn2(), chip::Mode::kTime);
  chip::LoadError error;
  const std::vector<uint8_t> junk(100, 7);
  CHECK(device->load(junk.data(), junk.size(), &error) == nullptr);
  CHECK(error.kind == chip::LoadError::Kind::kNotAContainer);
  isa::Program p = double_program();
  p.target = "trn3";
  const auto bytes = isa::write_container(p);
  CHECK(device->load(bytes.data(), bytes.size(), &error) == nullptr);
  CHECK(error.kind == chip::LoadError::Kind::kWrongTarget);
  CHECK_THAT(error.message, ContainsSubstring("trn3"));
  std::vector<uint8_t> cut(bytes.begin(), bytes.begin() + static_cast<long>(bytes.size() / 2));
  CHECK(device->load(cut.data(), cut.size(), &error) == nullptr);
  CHECK(error.kind == chip::LoadError::Kind::kInvalid);
}

TEST_CASE("A hang is explained") {
  isa::Program p = double_program();
  for (auto& i : p.streams[static_cast<size_t>(Engine::kVector)]) i.sync.update = isa::SemOp::kNone;
  auto device = chip::make_device(trn2(), chip::Mode::kTime);
  const auto r = device->launch(0, *load(*device, p), no_data());
  CHECK(r.status == Status::kHang);
  CHECK_THAT(r.message,
             ContainsSubstring("Sync instruction 1 (dma_copy) waits for semaphore 1 >= 1 (value 0)"));
  CHECK_THAT(r.message, ContainsSubstring("no instruction updates"));
  // The next program is not disturbed.
  const auto good = device->launch(0, *load(*device, double_program()), no_data());
  CHECK(good.status == Status::kOk);
}

TEST_CASE("Control flow that depends on data") {
  // Copies once more than the word in t0 says, through a counted loop.
  Instruction load_word = dma_copy(Engine::kVector, sbuf(1, Dtype::kI32, 0, 1), hbm(0, 1, Dtype::kI32));
  signal(load_word, 16);
  Instruction reg = halt(Engine::kVector);
  reg.opcode = Opcode::kRegLoad;
  reg.reg_dst = 3;
  reg.src0 = sbuf(1, Dtype::kI32, 0, 1);
  wait(reg, 16, 16);
  Instruction body = copy(Engine::kVector, sbuf(64, Dtype::kF32, 8192), sbuf(64, Dtype::kF32, 4096));
  Instruction fill = copy(Engine::kVector, sbuf(64, Dtype::kF32, 4096), Access{});
  fill.opcode = Opcode::kMemset;
  fill.imm0.kind = isa::ScalarOperand::Kind::kImmediate;
  Instruction loop = halt(Engine::kVector);
  loop.opcode = Opcode::kLoop;
  loop.reg_a = 3;
  loop.target = 3;
  const isa::Program p = program({load_word, fill, reg, body, loop}, {4});
  int32_t count = 3;
  std::vector<chip::Binding> bindings = {{reinterpret_cast<std::byte*>(&count), 4, 0}};

  auto both = chip::make_device(trn2(), chip::Mode::kBoth);
  auto loaded = load(*both, p);
  const auto three = both->launch(0, *loaded, bindings);
  INFO(three.message);
  REQUIRE(three.status == Status::kOk);
  CHECK(three.stats.engines[1].instructions == 3 + 2 * 3 + 1);
  CHECK_FALSE(three.stats.from_memo);
  count = 7;
  const auto seven = both->launch(0, *loaded, bindings);
  CHECK(seven.stats.engines[1].instructions == 3 + 2 * 7 + 1);
  CHECK(seven.stats.total_ps > three.stats.total_ps);

  auto time = chip::make_device(trn2(), chip::Mode::kTime);
  const auto none = time->launch(0, *load(*time, p), {{nullptr, 4, 0}});
  CHECK(none.status == Status::kNotSimulated);
  CHECK_THAT(none.message, ContainsSubstring("register 3 for a loop"));
  auto data = chip::make_device(trn2(), chip::Mode::kData);
  CHECK(data->launch(0, *load(*data, p), bindings).status == Status::kOk);
}

TEST_CASE("Launches from many threads") {
  auto device = chip::make_device(trn2(), chip::Mode::kBoth);
  device->set_memo(false);
  auto program = load(*device, double_program());
  Buffers reference;
  const auto expected = device->launch(0, *program, reference.bindings()).stats.total_ps;
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int k = 0; k < 20; ++k) {
        Buffers b;
        const auto r = device->launch(t % 3, *program, b.bindings());
        if (r.status != Status::kOk || r.stats.total_ps != expected || !b.right()) ++wrong;
      }
    });
  }
  for (auto& t : threads) t.join();
  CHECK(wrong == 0);
}

TEST_CASE("A forked child simulates on its own and exits cleanly") {
  auto device = chip::make_device(trn2(), chip::Mode::kTime);
  device->set_memo(false);
  auto program = load(*device, double_program());
  const auto expected = device->launch(0, *program, no_data()).stats.total_ps;
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const bool same = device->launch(0, *program, no_data()).stats.total_ps == expected;
    _exit(same ? 0 : 1);
  }
  int state = 0;
  REQUIRE(waitpid(child, &state, 0) == child);
  CHECK(WIFEXITED(state));
  CHECK(WEXITSTATUS(state) == 0);
  CHECK(device->launch(0, *program, no_data()).stats.total_ps == expected);
}
