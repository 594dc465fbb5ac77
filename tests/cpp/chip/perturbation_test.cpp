// Every parameter of the configuration must move something that a user can see.
#include <cmath>
#include <string>
#include <vector>

#include "sim/chip/device.h"
#include "sim/chip/probe_programs.h"
#include "sim/chip/simulator.h"
#include "sim/config/config.h"
#include "tests/cpp/catch.h"

using namespace trnsim;

namespace {

// What the reports are made of: times and counters of the standard programs, and the quantities derived from
// the configuration itself (cores, memory, price, what a compiler may allocate).
std::vector<double> outputs(const config::Config& c, const std::vector<isa::Program>& programs) {
  std::vector<double> out = {static_cast<double>(config::physical_cores(c)),
                             static_cast<double>(config::logical_cores(c)),
                             static_cast<double>(config::hbm_bytes_per_physical_core(c)),
                             static_cast<double>(config::cores_per_stack(c)),
                             config::usd_per_physical_core_second(c),
                             static_cast<double>(c.memory.sbuf_bytes_per_partition),
                             static_cast<double>(c.memory.sbuf_usable_bytes_per_partition),
                             static_cast<double>(c.memory.psum_bytes_per_partition)};
  for (const isa::Program& p : programs) {
    const auto r = chip::run_timing(p, c);
    out.push_back(static_cast<double>(r.stats.total_ps));
    out.push_back(static_cast<double>(r.stats.dma_busy_ps));
    out.push_back(static_cast<double>(r.stats.dma_descriptors));
    for (const auto& e : r.stats.engines) out.push_back(static_cast<double>(e.busy_ps));
  }
  return out;
}

}  // namespace

TEST_CASE("Every parameter moves a reported output") {
  const auto programs = chip::probe::standard_programs();
  std::string error;
  auto base = config::load("trn2", "", &error);
  REQUIRE(base.has_value());
  // The stack is no limit for one core of trn2; let it be one.
  REQUIRE(config::set(*base, "hbm.stack_bandwidth_gb_per_s", "300", &error));
  const std::vector<double> before = outputs(*base, programs);
  std::string unmoved;
  for (const auto& p : config::describe(*base)) {
    if (p.is_text) continue;  // names: the report prints them
    const double value = std::stod(p.value);
    // A value inside the range, clearly away from the present one.
    std::vector<double> candidates = {value * 2, value / 2, value + 1, value - 1};
    bool moved = false;
    for (double v : candidates) {
      if (v < p.min || v > p.max || v == value) continue;
      config::Config changed = *base;
      std::string text = std::to_string(v);
      if (!config::set(changed, p.key, text, &error)) {
        text = std::to_string(static_cast<long long>(v));
        if (!config::set(changed, p.key, text, &error)) continue;
      }
      if (outputs(changed, programs) != before) {
        moved = true;
        break;
      }
    }
    if (!moved) unmoved += " " + p.key;
  }
  INFO("no effect:" << unmoved);
  CHECK(unmoved.empty());
}

TEST_CASE("A text parameter has its effect") {
  std::string error;
  const auto c = config::load("trn2", "chip.generation=trn9,instance.name=mine", &error);
  REQUIRE(c.has_value());
  CHECK(c->instance.name == "mine");
  // Programs for trn2 are refused by a chip that says it is another one (device_test covers the message).
  CHECK(c->chip.generation == "trn9");
}
