// Programs whose loops stay loops (registers, branches, counted waits) on the chip: values of the unrolled
// program, and a time that does not depend on data, on the run or on checks.
#include "device_plugin/compiler/tile.h"
#include "isa/container.h"
#include "sim/check/watcher.h"
#include "sim/chip/device.h"
#include "sim/chip/simulator.h"
#include "tests/cpp/catch.h"

using namespace trnsim;
using namespace trnsim::compiler;

namespace {

constexpr int64_t kTiles = 75, kColumns = 48, kPartitions = 64;
constexpr int64_t kElements = kTiles * kPartitions * kColumns;
constexpr int64_t kTileBytes = kPartitions * kColumns * 4;

// y = relu(x * 3 - 1) + x, tile by tile, and s = the running sum of the tiles, carried from tile to tile.
isa::Program build(bool rolled) {
  TileBuilder b(rolled ? "rolled" : "unrolled");
  const Access x = b.tensor("x", isa::TensorKind::kInput, Dtype::kF32, {kElements});
  const Access y = b.tensor("y", isa::TensorKind::kOutput, Dtype::kF32, {kElements});
  const Access s = b.tensor("s", isa::TensorKind::kOutput, Dtype::kF32, {kPartitions * kColumns});
  const Access sum = b.sbuf(kPartitions, {kColumns}, Dtype::kF32);
  b.memset(sum, 0);
  const auto tile_of = [](const Access& a) { return slice(a, 0, 0, kPartitions * kColumns); };
  const auto body = [&](const Access& from, const Access& to) {
    const Access in = b.sbuf(kPartitions, {kColumns}, Dtype::kF32);
    const Access out = b.sbuf(kPartitions, {kColumns}, Dtype::kF32);
    b.load(in, from);
    b.tensor_scalar(out, in, AluOp::kMultiply, TileBuilder::imm(3), AluOp::kSubtract, TileBuilder::imm(1));
    b.activation(out, out, ActFunc::kRelu);
    b.tensor_tensor(out, out, in, AluOp::kAdd);
    b.tensor_tensor(sum, sum, in, AluOp::kAdd);
    b.store(to, out);
  };
  if (rolled) {
    b.loop(kTiles, [&] { body(b.advance(tile_of(x), kTileBytes), b.advance(tile_of(y), kTileBytes)); });
  } else {
    for (int64_t t = 0; t < kTiles; ++t) {
      Access from = tile_of(x), to = tile_of(y);
      from.offset += t * kTileBytes;
      to.offset += t * kTileBytes;
      body(from, to);
    }
  }
  b.store(s, sum);
  return b.finish();
}

bool has_loops(const isa::Program& p) {
  int loops = 0, registers = 0;
  for (const auto& stream : p.streams) {
    for (const auto& i : stream) {
      loops += i.opcode == isa::Opcode::kLoop;
      registers += i.dst.address_register != isa::kNoRegister || i.src0.address_register != isa::kNoRegister;
    }
  }
  return loops > 0 && registers > 0;
}

struct Run {
  std::vector<float> y, s;
  chip::LaunchResult result;
};

config::Config trn2() {
  std::string error;
  auto c = config::load("trn2", "", &error);
  REQUIRE(c.has_value());
  return *c;
}

std::unique_ptr<chip::Device> make(chip::Mode mode, check::Level level) {
  const config::Config config = trn2();
  auto device = chip::make_device(config, mode);
  device->set_watcher(check::make_watcher(level, config));
  return device;
}

std::shared_ptr<chip::LoadedProgram> load(chip::Device& device, const isa::Program& p) {
  const auto bytes = isa::write_container(p);
  chip::LoadError error;
  auto loaded = device.load(bytes.data(), bytes.size(), &error);
  INFO(error.message);
  REQUIRE(loaded != nullptr);
  return loaded;
}

Run launch(chip::Device& device, const chip::LoadedProgram& program, float scale) {
  std::vector<float> x(kElements);
  for (size_t i = 0; i < x.size(); ++i) x[i] = scale * (static_cast<float>(i % 1013) / 500 - 1);
  Run r;
  r.y.assign(x.size(), -7);
  r.s.assign(kPartitions * kColumns, -7);
  std::vector<chip::Binding> bindings;
  for (const auto& t : program.tensors()) {
    auto& v = t.name == "x" ? x : t.name == "y" ? r.y : r.s;
    bindings.push_back({reinterpret_cast<std::byte*>(v.data()), v.size() * 4, 0});
  }
  r.result = device.launch(0, program, bindings);
  INFO(r.result.message);
  REQUIRE(r.result.status == chip::LaunchResult::Status::kOk);
  return r;
}

}  // namespace

TEST_CASE(
    "A program with loops on the chip: values of the unrolled one, a time of its own that never varies") {
  const isa::Program rolled = build(true), unrolled = build(false);
  REQUIRE(has_loops(rolled));
  REQUIRE_FALSE(has_loops(unrolled));

  auto both = make(chip::Mode::kBoth, check::Level::kOff);
  const auto looped = load(*both, rolled), straight = load(*both, unrolled);
  const Run want = launch(*both, *straight, 1), got = launch(*both, *looped, 1);
  CHECK(got.y == want.y);
  CHECK(got.s == want.s);
  const auto time = got.result.stats.total_ps;
  CHECK(got.result.stats.instructions > static_cast<int64_t>(rolled.streams[0].size()));

  SECTION("again, simulated anew, with other data") {
    both->set_memo(false);
    const Run other = launch(*both, *looped, -2.5f);
    CHECK_FALSE(other.result.stats.from_memo);
    CHECK(other.result.stats.total_ps == time);
    CHECK(other.y != got.y);
  }
  SECTION("without data") {
    auto timing = make(chip::Mode::kTime, check::Level::kOff);
    CHECK(launch(*timing, *load(*timing, rolled), 1).result.stats.total_ps == time);
  }
  SECTION("without time") {
    auto data = make(chip::Mode::kData, check::Level::kStrict);
    CHECK(launch(*data, *load(*data, rolled), 1).y == want.y);
  }
  SECTION("under checks, both clean") {
    auto strict = make(chip::Mode::kBoth, check::Level::kStrict);
    const auto program = load(*strict, rolled);
    const Run checked = launch(*strict, *program, 1);
    CHECK(checked.y == want.y);
    CHECK(checked.result.stats.total_ps == time);
    CHECK(checked.result.stats.sbuf_bytes > 0);
    CHECK(launch(*strict, *program, 1).result.stats.from_memo);  // not watched again
    CHECK(launch(*strict, *load(*strict, unrolled), 1).s == want.s);
  }
}

TEST_CASE("A staggered loop of long chains keeps an engine busy that would wait for another") {
  // Five steps on Vector, one on Scalar that they wait for, five more.
  const auto chain = [](bool staggered) {
    constexpr int64_t kCount = 60, kWide = 1024;
    TileBuilder b(staggered ? "staggered" : "in order");
    const Access x = b.tensor("x", isa::TensorKind::kInput, Dtype::kF32, {kCount * 128 * kWide});
    const Access y = b.tensor("y", isa::TensorKind::kOutput, Dtype::kF32, {kCount * 128 * kWide});
    b.loop(
        kCount,
        [&] {
          const Access t = b.sbuf(128, {kWide}, Dtype::kF32);
          const auto place = [&](const Access& a) {
            return b.advance(slice(a, 0, 0, 128 * kWide), 128 * kWide * 4);
          };
          b.load(t, place(x));
          for (int i = 0; i < 10; ++i) {
            b.scalar_tensor_tensor(t, t, AluOp::kMultiply, TileBuilder::imm(0.5f), AluOp::kAdd, t);
            if (i == 4) b.activation(t, t, ActFunc::kTanh);
          }
          b.store(place(y), t);
        },
        staggered);
    const chip::TimingResult r = chip::run_timing(b.finish(), trn2());
    REQUIRE(r.status == chip::LaunchResult::Status::kOk);
    const auto vector = r.stats.engines[static_cast<size_t>(isa::Engine::kVector)].busy_ps;
    return static_cast<double>(vector) / static_cast<double>(r.stats.total_ps);
  };
  CHECK(chain(true) > 0.93);
  CHECK(chain(false) < 0.90);
}
