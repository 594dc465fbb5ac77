// Random legal programs: every opcode on every engine that runs it has a time, and data does not change it.
#include <set>

#include "isa/container.h"
#include "isa/names.h"
#include "isa/random_program.h"
#include "isa/table.h"
#include "sim/chip/device.h"
#include "sim/chip/simulator.h"
#include "sim/config/config.h"
#include "tests/cpp/catch.h"

using namespace trnsim;
using Status = chip::LaunchResult::Status;

namespace {

config::Config load(const std::string& name) {
  std::string error;
  auto c = config::load(name, "", &error);
  REQUIRE(c.has_value());
  return *c;
}

}  // namespace

TEST_CASE("Every row of the instruction table has a timing law on each of its engines") {
  for (const char* name : {"trn2", "trn3"}) {
    const auto c = load(name);
    isa::RandomProgram random(7);
    for (const isa::Row& row : isa::all_rows()) {
      for (int e = 0; e < isa::kNumEngines; ++e) {
        const auto engine = static_cast<isa::Engine>(e);
        if (!row.runs_on(engine)) continue;
        INFO(name << ' ' << row.name << " on " << isa::engine_label(engine));
        const bool pair = row.has_rule(isa::Rule::kTwoCores);
        isa::Program p = random.legal_program(1, isa::Generation::kTrn2, pair ? 2 : 1);
        for (auto& s : p.streams) s.clear();
        isa::Instruction i = random.legal_instruction(row.opcode, engine);
        i.sync = isa::Sync{};
        i.target = 1;  // a branch goes to the end
        p.streams[static_cast<size_t>(e)] = {i};
        if (pair) p.streams[isa::stream_number(1, engine)] = {i};
        const auto r = chip::run_timing(p, c);
        // A loop or branch on a register that memory defines is refused in words, nothing else is.
        CHECK(r.status == Status::kOk);
        const bool ends_only = row.opcode == isa::Opcode::kHalt;
        if (!ends_only) CHECK(r.stats.total_ps > cost::ps(c.launch.start_ns) + cost::ps(c.launch.end_ns));
      }
    }
  }
}

TEST_CASE("Random legal programs: same time with data, without, and again") {
  const auto config = load("trn2");
  auto both = chip::make_device(config, chip::Mode::kBoth);
  auto time = chip::make_device(config, chip::Mode::kTime);
  int compared = 0;
  for (uint64_t seed = 1; seed <= 25; ++seed) {
    INFO("seed " << seed);
    isa::RandomProgram random(seed);
    const isa::Program p = random.legal_program(60);
    const auto bytes = isa::write_container(p);
    chip::LoadError error;
    auto a = both->load(bytes.data(), bytes.size(), &error);
    auto b = time->load(bytes.data(), bytes.size(), &error);
    INFO(error.message);
    REQUIRE(a != nullptr);
    REQUIRE(b != nullptr);
    std::vector<std::vector<std::byte>> memory;
    std::vector<chip::Binding> bindings, empty;
    for (const auto& t : a->tensors()) {
      memory.emplace_back(t.bytes);
      bindings.push_back({memory.back().data(), t.bytes, 0});
      empty.push_back({nullptr, t.bytes, 0});
    }
    for (size_t t = 0; t < memory.size(); ++t) {
      const auto& constant = a->constant(t);
      std::copy_n(reinterpret_cast<const std::byte*>(constant.data()),
                  std::min(constant.size(), memory[t].size()), memory[t].begin());
    }
    const auto with_data = both->launch(0, *a, bindings);
    const auto without = time->launch(0, *b, empty);
    INFO(with_data.message << without.message);
    if (without.status == Status::kNotSimulated) {  // a branch on a word of memory
      CHECK_THAT(without.message, ContainsSubstring("loaded from memory"));
      CHECK((with_data.status != Status::kOk || with_data.stats.total_ps > 0));
      continue;
    }
    CHECK(without.status == Status::kOk);
    // What random values do to addresses may be refused with data; the time of a run that goes through is the
    // same.
    if (with_data.status != Status::kOk) continue;
    ++compared;
    CHECK(with_data.stats.total_ps == without.stats.total_ps);
    time->set_memo(false);
    CHECK(time->launch(0, *b, empty).stats.total_ps == without.stats.total_ps);
    time->set_memo(true);
  }
  CHECK(compared > 10);
}
