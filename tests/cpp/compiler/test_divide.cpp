// Kernel lists on two physical cores: what is cut, where the cores meet, and what it gains.
#include "device_plugin/compiler/graph_text.h"
#include "device_plugin/compiler/lower.h"
#include "device_plugin/compiler/tilers/divide.h"
#include "isa/container.h"
#include "sim/chip/simulator.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/compiler/runs.h"

using namespace trnsim::compiler;
namespace isa = trnsim::isa;
namespace chip = trnsim::chip;

namespace {

// Two products in a row, and the gradient of the first weight, which needs every row of both.
std::string products(int64_t rows, int64_t width) {
  const std::string x = "[" + std::to_string(rows) + ", " + std::to_string(width) + "]",
                    w = "[" + std::to_string(width) + ", " + std::to_string(width) + "]";
  return "graph \"p\" {\n %0: bf16" + x + "\n %1: bf16" + w + "\n %2: bf16" + w + "\n %3: bf16" + x +
         "\n %4: bf16" + x + "\n %5: bf16" + "[" + std::to_string(width) + ", " + std::to_string(rows) +
         "] strides [1, " + std::to_string(width) + "] view %0 + 0\n %6: bf16" + w +
         "\n inputs %0, %1, %2\n outputs %4, %6\n %3 = \"aten::mm\"(%0, %1)\n %4 = \"aten::mm\"(%3, %2)\n"
         " %6 = \"aten::mm\"(%5, %4)\n}";
}

isa::Program compile(const std::string& text, int cores) {
  CompileOptions options;
  options.cores = cores;
  const CompileResult r = trnsim_compiler()->compile(graph_from_text(text), options);
  INFO(r.message);
  REQUIRE(r.status == CompileResult::Status::kOk);
  isa::Program program;
  REQUIRE(isa::read_program({r.container.data(), r.container.size()}, program, nullptr));
  return program;
}

}  // namespace

TEST_CASE("rows of products go to one core each; the cores meet where a result needs all rows") {
  const std::optional<CorePlan> plan = divide(lower_graph(graph_from_text(products(1024, 1024))), "trn2");
  REQUIRE(plan.has_value());
  CHECK(plan->barriers == 1);
  REQUIRE(plan->steps.size() == 4);
  CHECK(plan->steps[2].barrier);
  for (size_t s : {size_t{0}, size_t{1}, size_t{3}}) {
    for (int core : {0, 1}) {
      REQUIRE(plan->steps[s].on_core[core].has_value());
      const auto& dot = std::get<DotKernel>(*plan->steps[s].on_core[core]);
      CHECK(dot.out.numel() == 512 * 1024);
    }
  }
  CHECK_FALSE(plan->shared.empty());
}

TEST_CASE("a program that is not worth two cores stays on one") {
  CHECK(compile(products(64, 64), 2).cores == 1);
  CHECK(compile(products(1024, 1024), 1).cores == 1);
}

TEST_CASE("two cores take little more than half of the time of one") {
  std::string error;
  const auto config = trnsim::config::load("trn2", "", &error);
  REQUIRE(config.has_value());
  const isa::Program one = compile(products(1024, 2048), 1), two = compile(products(1024, 2048), 2);
  CHECK(two.cores == 2);
  const auto alone = chip::run_timing(one, *config), together = chip::run_timing(two, *config);
  INFO(alone.stats.total_ps << " " << together.stats.total_ps);
  CHECK(together.stats.total_ps < 0.65 * static_cast<double>(alone.stats.total_ps));
}

TEST_CASE("values of large products on two cores") {
  const Graph g = graph_from_text(products(640, 384));
  const Memory inputs = random_inputs(g);
  const Memory one = run(g, RunMode::kCompiled, inputs), two = run(g, RunMode::kTwoCores, inputs);
  for (size_t i = 0; i < g.outputs.size(); ++i)
    check_same(g.values[static_cast<size_t>(g.outputs[i])].type, one[i], two[i], 0.02f);
}
