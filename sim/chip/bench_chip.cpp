// Speed of the timing-only simulation: instructions per second on one thread, as JSON.
#include <chrono>
#include <cstdio>
#include <ctime>
#include <string>

#include "sim/chip/probe_programs.h"
#include "sim/chip/simulator.h"

using namespace trnsim;

namespace {

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

void measure(const char* name, const isa::Program& program, const config::Config& config, bool last) {
  chip::TimedProgram timed;
  std::string message;
  const double build_start = cpu_seconds();
  if (!chip::build_timed_program(program, config, &timed, &message)) {
    std::fprintf(stderr, "%s\n", message.c_str());
    return;
  }
  const double build = cpu_seconds() - build_start;
  chip::TimingResult result = chip::run_timed(timed, config, nullptr, nullptr);  // warm
  int64_t instructions = 0;
  const auto start = std::chrono::steady_clock::now();
  const double cpu_start = cpu_seconds();
  double seconds = 0;
  do {
    result = chip::run_timed(timed, config, nullptr, nullptr);
    instructions += result.stats.instructions;
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  } while (seconds < 1.0);
  // Processor time: the figure holds on a busy machine too (only the simulation thread works here).
  const double cpu = cpu_seconds() - cpu_start;
  std::printf(
      "  {\"program\": \"%s\", \"instructions\": %lld, \"simulated_ns\": %.3f, \"instructions_per_second\": "
      "%.0f, "
      "\"instructions_per_cpu_second\": %.0f, \"prepare_instructions_per_second\": %.0f}%s\n",
      name, static_cast<long long>(result.stats.instructions),
      static_cast<double>(result.stats.total_ps) / 1000.0, static_cast<double>(instructions) / seconds,
      static_cast<double>(instructions) / cpu, static_cast<double>(result.stats.instructions) / build,
      last ? "" : ",");
}

}  // namespace

int main() {
  std::string error;
  const auto config = config::load("trn2", "", &error);
  if (!config) {
    std::fprintf(stderr, "%s\n", error.c_str());
    return 1;
  }
  std::printf("[\n");
  measure("compute_chain", chip::probe::compute_chain(50000), *config, false);
  measure("matmul_pipeline_bf16", chip::probe::matmul_pipeline(20000, isa::Dtype::kBF16), *config, false);
  measure("matmul_pipeline_fp32", chip::probe::matmul_pipeline(20000, isa::Dtype::kF32), *config, true);
  std::printf("]\n");
  return 0;
}
