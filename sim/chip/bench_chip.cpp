// Speed of the timing-only simulation: instructions per second on one thread, as JSON.
#include <sys/resource.h>

#include <cstdio>
#include <ctime>
#include <string>
#include <vector>

#include "sim/chip/probe_programs.h"
#include "sim/chip/simulator.h"

using namespace trnsim;

namespace {

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

struct Total {
  int64_t instructions = 0;
  double cpu_s = 0;
};

bool measure(const isa::Program& program, const config::Config& config, bool last, Total* total) {
  chip::TimedProgram timed;
  std::string message;
  double start = cpu_seconds();
  if (!chip::build_timed_program(program, config, &timed, &message)) {
    std::fprintf(stderr, "%s\n", message.c_str());
    return false;
  }
  const double build = cpu_seconds() - start;
  chip::TimingResult result = chip::run_timed(timed, config, nullptr, nullptr);  // warm
  int64_t instructions = 0;
  // Processor time: the simulation is one thread, and the figure then holds on a busy machine too.
  start = cpu_seconds();
  double cpu = 0;
  do {
    result = chip::run_timed(timed, config, nullptr, nullptr);
    if (result.status != chip::LaunchResult::Status::kOk) {
      std::fprintf(stderr, "%s\n", result.message.c_str());
      return false;
    }
    instructions += result.stats.instructions;
    cpu = cpu_seconds() - start;
  } while (cpu < 0.5);
  std::printf(
      "  {\"program\": \"%s\", \"instructions\": %lld, \"simulated_ns\": %.3f, \"instructions_per_s\": %.0f, "
      "\"prepared_instructions_per_s\": %.0f}%s\n",
      program.name.c_str(), static_cast<long long>(result.stats.instructions),
      static_cast<double>(result.stats.total_ps) / 1000.0, static_cast<double>(instructions) / cpu,
      static_cast<double>(result.stats.instructions) / build, last ? "" : ",");
  if (total != nullptr) {
    total->instructions += instructions;
    total->cpu_s += cpu;
  }
  return true;
}

}  // namespace

int main() {
  std::string error;
  const auto config = config::load("trn2", "", &error);
  if (!config) {
    std::fprintf(stderr, "%s\n", error.c_str());
    return 1;
  }
  std::vector<isa::Program> programs = {chip::probe::compute_chain(50000),
                                        chip::probe::matmul_pipeline(20000, isa::Dtype::kBF16),
                                        chip::probe::matmul_pipeline(20000, isa::Dtype::kF32),
                                        chip::probe::long_loop(1500000), chip::probe::decode_loop(450000)};
  Total total;
  std::printf("{\"schema_version\": 1, \"programs\": [\n");
  for (size_t p = 0; p < programs.size(); ++p) {
    // The loops of ten million instructions show that length costs no memory; they do not count for the rate.
    const bool loop = p >= 3;
    if (!measure(programs[p], *config, p + 1 == programs.size(), loop ? nullptr : &total)) return 1;
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("], \"instructions_per_s\": %.0f, \"peak_kib\": %ld}\n",
              static_cast<double>(total.instructions) / total.cpu_s, usage.ru_maxrss);
  return 0;
}
