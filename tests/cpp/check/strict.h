// What every program that a test compiles must be: clean under strict checks.
#pragma once

#include <string>
#include <vector>

#include "isa/container.h"
#include "sim/check/watcher.h"
#include "sim/exec/exec.h"

namespace trnsim::check::testing {

// Empty, or what the checks say. `hbm`: where the tensors lie, for in-place results. `initialised`: how many bytes of
// each hold values (outputs that the host has filled).
inline std::string strict_error(const isa::Program& program, const std::vector<exec::HbmTensor>& hbm,
                                const std::vector<uint64_t>& initialised = {},
                                chip::Mode mode = chip::Mode::kTime) {
  std::string message;
  const auto config = config::load(program.target, "", &message);
  if (!config) return message;
  const auto device = chip::make_device(*config, mode);
  device->set_watcher(make_watcher(Level::kStrict, *config));
  const auto bytes = isa::write_container(program);
  chip::LoadError error;
  const auto loaded = device->load(bytes.data(), bytes.size(), &error);
  if (loaded == nullptr) return error.message;
  std::vector<chip::Binding> bindings;
  for (size_t t = 0; t < hbm.size(); ++t)
    bindings.push_back({hbm[t].data, hbm[t].bytes, 0, t < initialised.size() ? initialised[t] : 0});
  const chip::LaunchResult result = device->launch(0, *loaded, bindings);
  return result.status == chip::LaunchResult::Status::kOk ? std::string() : result.message;
}

}  // namespace trnsim::check::testing
