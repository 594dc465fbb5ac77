// What checks cost: processor time of the first launch of a program (load, decode, validate, time) with checks
// and without, as JSON. Later launches cost the same: a checked program is not checked again.
#include <cstdio>
#include <ctime>

#include "isa/container.h"
#include "sim/check/watcher.h"
#include "sim/chip/probe_programs.h"

using namespace trnsim;

namespace {

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// Least of several first launches.
double first_launch(const std::vector<uint8_t>& container, const config::Config& config, check::Level level) {
  double best = 1e9;
  for (int round = 0; round < 5; ++round) {
    auto device = chip::make_device(config, chip::Mode::kTime);
    device->set_watcher(check::make_watcher(level, config));
    const double start = cpu_seconds();
    chip::LoadError error;
    const auto program = device->load(container.data(), container.size(), &error);
    if (program == nullptr) {
      std::fprintf(stderr, "%s\n", error.message.c_str());
      return -1;
    }
    std::vector<chip::Binding> bindings;
    for (const auto& t : program->tensors()) bindings.push_back({nullptr, t.bytes, 0});
    const chip::LaunchResult r = device->launch(0, *program, bindings);
    const double seconds = cpu_seconds() - start;
    if (r.status != chip::LaunchResult::Status::kOk) {
      std::fprintf(stderr, "%s\n", r.message.c_str());
      return -1;
    }
    if (seconds < best) best = seconds;
  }
  return best;
}

}  // namespace

int main() {
  std::string error;
  const auto config = config::load("trn2", "", &error);
  if (!config) {
    std::fprintf(stderr, "%s\n", error.c_str());
    return 1;
  }
  const std::vector<isa::Program> programs = {chip::probe::compute_chain(50000),
                                              chip::probe::matmul_pipeline(5000, isa::Dtype::kBF16),
                                              chip::probe::matmul_pipeline(5000, isa::Dtype::kF32)};
  std::printf("{\"schema_version\": 1, \"programs\": [\n");
  bool good = true;
  for (size_t p = 0; p < programs.size(); ++p) {
    const auto container = isa::write_container(programs[p]);
    const double off = first_launch(container, *config, check::Level::kOff);
    // Timing probes read what nobody wrote: their finds are warnings.
    const double checked = first_launch(container, *config, check::Level::kWarn);
    good = good && off > 0 && checked > 0;
    std::printf("  {\"program\": \"%s\", \"off_s\": %.4f, \"checked_s\": %.4f, \"ratio\": %.2f}%s\n",
                programs[p].name.c_str(), off, checked, checked / off, p + 1 < programs.size() ? "," : "");
  }
  std::printf("]}\n");
  return good ? 0 : 1;
}
