// Every parameter of the configuration must move something that a user can see.
#include <cmath>
#include <string>
#include <vector>

#include "isa/validator.h"
#include "sim/chip/device.h"
#include "sim/chip/loaded_program.h"
#include "sim/chip/probe_programs.h"
#include "sim/chip/simulator.h"
#include "sim/config/config.h"
#include "tests/cpp/catch.h"

using namespace trnsim;

namespace {

// What numerics and rules change: results of a few instructions and the number of errors in a program that the
// sources judge differently.
void add_values_and_errors(const config::Config& c, std::vector<double>* out) {
  using namespace chip::probe;
  const auto run = [&](const std::vector<isa::Instruction>& code, const isa::Access& result) {
    exec::Core core;
    core.set_numerics(chip::numerics_of(c));
    isa::Program p;
    for (const isa::Instruction& i : code) REQUIRE(core.execute(p, i, {}).ok());
    for (int64_t k = 0; k < result.free_elements(); ++k) {
      const int64_t at = result.offset + k * static_cast<int64_t>(isa::dtype_bytes(result.dtype));
      const double v = isa::load_as_f32(result.dtype, core.sbuf(0, at));
      out->push_back(std::isnan(v) ? 1e30 : v);
    }
  };
  const auto fill = [](const isa::Access& a, float v) {
    isa::Instruction i;
    i.opcode = isa::Opcode::kMemset;
    i.engine = isa::Engine::kVector;
    i.dst = a;
    i.imm0.kind = isa::ScalarOperand::Kind::kImmediate;
    i.imm0.value = v;
    return i;
  };
  const isa::Access x = sbuf(64), y = sbuf(64, Dtype::kBF16, 4096);
  for (float v : {1.003f, 3.4e38f, HUGE_VALF}) run({fill(x, v), copy(isa::Engine::kVector, y, x)}, y);
  run({fill(x, 9.0f), activation(sbuf(64, Dtype::kF32, 4096), x, isa::ActFunc::kSin)},
      sbuf(64, Dtype::kF32, 4096));
  run(row_probe(isa::Opcode::kRng, isa::Engine::kVector, 64), sbuf(64, Dtype::kU32));
  {
    isa::Instruction quantize = row_probe(isa::Opcode::kQuantizeMx, isa::Engine::kVector, 64)[0];
    run({fill(quantize.src0, 1.75f), quantize}, quantize.aux);
  }
  {
    const isa::Access i32 = sbuf(4, Dtype::kI32);
    isa::Instruction add = fill(i32, 1);
    add.opcode = isa::Opcode::kTensorScalar;
    add.op0 = isa::AluOp::kAdd;
    add.src0 = i32;
    add.op1 = isa::AluOp::kSubtract;
    add.imm1.kind = isa::ScalarOperand::Kind::kImmediate;
    add.imm1.value = 16777216;
    run({fill(i32, 16777216), add}, i32);
  }
  isa::Instruction load = load_stationary(sbuf(32, Dtype::kBF16)),
                   wide = row_probe(isa::Opcode::kMultiplyMovingMx, isa::Engine::kTensor, 4096)[1];
  load.tile = {0, 32, 128, 32};
  isa::Instruction transpose = row_probe(isa::Opcode::kDmaTranspose, isa::Engine::kSync, 128)[0];
  transpose.dge = isa::DgeMode::kHardware;
  isa::Program p = program(
      {load, row_probe(isa::Opcode::kLoadStationaryMx, isa::Engine::kTensor, 128)[0], wide, transpose},
      row_probe_tensors());
  p.locations.push_back({});
  isa::ValidateOptions options;
  options.rules = chip::rules_of(c);
  out->push_back(static_cast<double>(isa::validate(p, isa::Generation::kTrn3, options).size()));
}

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
  add_values_and_errors(c, &out);
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
  const std::string name = GENERATE(as<std::string>{}, "trn2", "trn3");
  INFO(name);
  auto base = config::load(name, "", &error);
  REQUIRE(base.has_value());
  // The stack is no limit for one core; let it be one.
  REQUIRE(config::set(*base, "hbm.stack_bandwidth_gb_per_s", "300", &error));
  // A budget that the loop of the program "registers" (5 times 3 instructions) just keeps.
  REQUIRE(config::set(*base, "sequencer.instruction_budget", "13", &error));
  const std::vector<double> before = outputs(*base, programs);
  std::string unmoved;
  for (const auto& p : config::describe(*base)) {
    if (p.is_text) continue;  // names: the report prints them
    const double value = std::stod(p.value);
    // A value inside the range, clearly away from the present one.
    // The seed of stochastic rounding matters when that is on.
    config::Config start = *base;
    if (p.key == "numerics.rounding_seed")
      REQUIRE(config::set(start, "numerics.stochastic_rounding", "1", &error));
    const std::vector<double> reference =
        p.key == "numerics.rounding_seed" ? outputs(start, programs) : before;
    std::vector<double> candidates = {value * 2, value / 2, value + 1, value - 1};
    bool moved = false;
    for (double v : candidates) {
      if (v < p.min || v > p.max || v == value) continue;
      config::Config changed = start;
      std::string text = std::to_string(v);
      if (!config::set(changed, p.key, text, &error)) {
        text = std::to_string(static_cast<long long>(v));
        if (!config::set(changed, p.key, text, &error)) continue;
      }
      if (outputs(changed, programs) != reference) {
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
