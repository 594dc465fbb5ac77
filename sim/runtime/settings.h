// What a process asks for: configuration, mode, cores, logging. From trnsim_configure() and the environment;
// read before nrt_init and frozen by it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/check/watcher.h"
#include "sim/chip/device.h"
#include "sim/config/config.h"
#include "sim/driver/driver.h"
#include "sim/runtime/log.h"

namespace trnsim::runtime {

// Every TRNSIM_* variable of the product: one that is not here is a typing error of the user. And those of the
// public NEURON_* variables that take one of a few values.
struct EnvironmentVariable {
  const char* name;
  const char* values;  // "a|b|c", or empty: free text
  const char* doc;
};
const std::vector<EnvironmentVariable>& environment_variables();

// Texts that override the environment; empty optional: keep what the environment says.
struct Request {
  std::optional<std::string> config, overrides, mode, check;
};

struct Settings {
  config::Config config;
  chip::Mode mode = chip::Mode::kBoth;
  check::Level check = check::Level::kOff;
  driver::MachineSpec machine;
  int logical_core_size = 2;  // physical cores per logical core
  // Cores asked for, in logical cores of the whole machine; count 0: all.
  bool explicit_range = false;
  int first_core = 0;
  int core_count = 0;
  double exec_timeout_s = 30;
  bool shared_machine = false;
  std::string run_dir;
  std::string process_tag;
  driver::Poison poison = driver::Poison::kSmall;
  std::string faults;
  bool memo = true;
  std::string report_file;  // TRNSIM_JSON
  LogLevel log_level = LogLevel::kError;
  std::string log_location;

  int logical_cores() const { return machine.cores() / logical_core_size; }
  int visible_cores() const { return core_count; }  // resolved: never 0
};

const char* mode_name(chip::Mode mode);

// False with a worded error.
bool read_settings(const Request& request, Settings* out, std::string* error);

}  // namespace trnsim::runtime
