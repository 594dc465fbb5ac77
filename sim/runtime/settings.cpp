#include "sim/runtime/settings.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "isa/names.h"
#include "isa/validator.h"
#include "sim/driver/faults.h"
#include "sim/runtime/output_file.h"

extern char** environ;

namespace trnsim::runtime {

namespace {

constexpr double kDefaultExecTimeoutSeconds = 30;

std::string nearest(const std::string& word, const std::vector<std::string>& names) {
  return std::string(isa::nearest_name(word, {names.begin(), names.end()}));  // empty: none is near
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string item; std::getline(in, item, separator);) out.push_back(item);
  return out;
}

// One line each, so that all of an environment is mended in one go.
void append(std::string* errors, const std::string& error) {
  *errors += (errors->empty() ? "" : "\n") + error;
}

bool check_values(const std::string& name, const std::string& value, const std::string& allowed,
                  std::string* error) {
  const auto values = split(allowed, '|');
  if (std::find(values.begin(), values.end(), value) != values.end()) return true;
  const std::string near = nearest(value, values);
  append(error, "user error: " + name + "='" + value + "'; the values are " + allowed +
                    (near.empty() ? "" : " (nearest: " + near + ")"));
  return false;
}

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// Unknown names and values of our own variables, and unknown values of the public ones: a silent default would
// make a study wrong.
bool check_environment(std::string* error) {
  std::vector<std::string> names;
  for (const auto& v : environment_variables()) names.emplace_back(v.name);
  for (char** e = environ; *e != nullptr; ++e) {
    const char* eq = std::strchr(*e, '=');
    if (eq == nullptr) continue;
    const std::string name(*e, static_cast<size_t>(eq - *e));
    const std::string value(eq + 1);
    const EnvironmentVariable* known = nullptr;
    for (const auto& v : environment_variables())
      if (name == v.name) known = &v;
    const bool own = name.rfind("TRNSIM_", 0) == 0;
    if (known == nullptr && !own) continue;
    if (known == nullptr) {
      const std::string near = nearest(name, names);
      append(error, "user error: unknown environment variable " + name +
                        (near.empty() ? "; docs/runtime.md lists those of the simulator"
                                      : "; the nearest name is " + near));
      continue;
    }
    // Flags of the framework are read without regard to case, as its own are.
    const std::string text = own ? value : lower_case(value);
    if (!value.empty() && known->values[0] != '\0') check_values(name, text, known->values, error);
    // Switches of parts that do not exist yet: to accept them would promise an output that never comes.
    if (!value.empty() && (name == "TRNSIM_TRACE" || name == "TRNSIM_REPORT")) {
      append(error,
             "not simulated: " + name + "=" + value +
                 ": this version writes no such file; unset it (TRNSIM_JSON writes the report as JSON)");
    }
  }
  return error->empty();
}

std::string env(const char* name) {
  const char* v = std::getenv(name);
  return v == nullptr ? "" : v;
}

template <class T>
bool parse_number(const std::string& text, T* out) {
  const auto r = std::from_chars(text.data(), text.data() + text.size(), *out);
  return r.ec == std::errc() && r.ptr == text.data() + text.size();
}

bool env_int(const char* name, int min, int max, int* out, bool* set, std::string* error) {
  const std::string text = env(name);
  *set = !text.empty();
  if (!*set) return true;
  int v = 0;
  if (parse_number(text, &v) && v >= min && v <= max) {
    *out = v;
    return true;
  }
  *error = std::string("user error: ") + name + "='" + text + "' is not a number from " +
           std::to_string(min) + " to " + std::to_string(max);
  return false;
}

bool read_logical_core_size(Settings* s, std::string* error) {
  int by_runtime = 0, by_framework = 0;
  bool runtime_set = false, framework_set = false;
  if (!env_int("NEURON_RT_VIRTUAL_CORE_SIZE", 1, 2, &by_runtime, &runtime_set, error)) return false;
  if (!env_int("NEURON_LOGICAL_NC_CONFIG", 1, 2, &by_framework, &framework_set, error)) return false;
  if (runtime_set && framework_set && by_runtime != by_framework) {
    *error = "user error: NEURON_RT_VIRTUAL_CORE_SIZE=" + std::to_string(by_runtime) +
             " and NEURON_LOGICAL_NC_CONFIG=" + std::to_string(by_framework) +
             " contradict each other; set both to the same number of physical cores per logical core";
    return false;
  }
  s->logical_core_size = runtime_set     ? by_runtime
                         : framework_set ? by_framework
                                         : static_cast<int>(s->config.chip.logical_core_size);
  if (s->machine.cores_per_device % s->logical_core_size != 0) {
    *error = "user error: " + std::to_string(s->logical_core_size) +
             " physical cores per logical core, but a chip of " +
             std::to_string(s->machine.cores_per_device) + " cores (chip.cores)";
    return false;
  }
  return true;
}

bool read_cores(Settings* s, std::string* error) {
  const int all = s->logical_cores();
  const std::string range = env("NEURON_RT_VISIBLE_CORES");
  int count = 0;
  bool count_set = false;
  if (!env_int("NEURON_RT_NUM_CORES", 0, 1 << 20, &count, &count_set, error)) return false;
  if (!range.empty()) {  // it beats NEURON_RT_NUM_CORES
    // "2", "0-3", or an ascending list without gaps "0,1,2".
    std::vector<int> cores;
    for (const std::string& item : split(range, ',')) {
      const size_t dash = item.find('-');
      int a = 0, b = 0;
      const bool good = dash == std::string::npos ? parse_number(item, &a) && (b = a, true)
                                                  : parse_number(item.substr(0, dash), &a) &&
                                                        parse_number(item.substr(dash + 1), &b);
      if (!good || a < 0 || b < a || b >= all || (!cores.empty() && a != cores.back() + 1)) {
        *error = "user error: NEURON_RT_VISIBLE_CORES='" + range +
                 "' is not a core, an inclusive range or an ascending list without gaps of the " +
                 std::to_string(all) + " logical cores 0 to " + std::to_string(all - 1) +
                 " of this machine (instance.chips, chip.cores, " + std::to_string(s->logical_core_size) +
                 " physical cores each)";
        return false;
      }
      for (int c = a; c <= b; ++c) cores.push_back(c);
    }
    s->explicit_range = true;
    s->first_core = cores.front();
    s->core_count = static_cast<int>(cores.size());
    s->shared_machine = true;
    return true;
  }
  if (count > all) {
    *error = "user error: NEURON_RT_NUM_CORES=" + std::to_string(count) + "; this machine has " +
             std::to_string(all) + " logical cores";
    return false;
  }
  s->core_count = count == 0 ? all : count;
  s->shared_machine = count != 0;
  return true;
}

bool read_log(Settings* s, std::string* error) {
  std::string level = env("NEURON_RT_LOG_LEVEL");
  if (const std::string own = env("NEURON_RT_LOG_LEVEL_NRT"); !own.empty()) level = own;
  static const std::vector<std::pair<std::string, LogLevel>> kLevels = {
      {"critical", LogLevel::kCritical}, {"error", LogLevel::kError}, {"warning", LogLevel::kWarning},
      {"warn", LogLevel::kWarning},      {"info", LogLevel::kInfo},   {"debug", LogLevel::kDebug},
      {"trace", LogLevel::kDebug}};
  if (!level.empty()) {
    const auto it = std::find_if(kLevels.begin(), kLevels.end(),
                                 [&](const auto& l) { return l.first == lower_case(level); });
    if (it == kLevels.end()) {
      *error = "user error: NEURON_RT_LOG_LEVEL='" + level +
               "'; the values are CRITICAL, ERROR, WARNING, INFO, DEBUG";
      return false;
    }
    s->log_level = it->second;
  }
  s->log_location = env("NEURON_RT_LOG_LOCATION");
  return true;
}

// The chip that NEURON_PLATFORM_TARGET_OVERRIDE asks for, by the names of the public tools; empty: none.
bool read_platform_target(std::string* target, std::string* error) {
  const std::string name = env("NEURON_PLATFORM_TARGET_OVERRIDE");
  static const std::pair<const char*, const char*> kNames[] = {
      {"trn2", "trn2"}, {"gen3", "trn2"}, {"trn3", "trn3"}, {"gen4", "trn3"}};
  for (const auto& [known, chip] : kNames)
    if (name == known) *target = chip;
  if (name.empty() || !target->empty()) return true;
  const bool older = name == "trn1" || name == "inf2" || name == "gen2";
  *error = older ? "not simulated: NEURON_PLATFORM_TARGET_OVERRIDE='" + name + "', a chip before trn2; "
                 : "user error: NEURON_PLATFORM_TARGET_OVERRIDE: " + isa::unknown_target(name) + "; ";
  *error += "unset it, or use trn2 (gen3) or trn3 (gen4)";
  return false;
}

}  // namespace

const std::vector<EnvironmentVariable>& environment_variables() {
  static const char* const kFlag = "0|1|false|true";
  static const std::vector<EnvironmentVariable> kAll = {
      {"TRNSIM_CONFIG", "", "configuration: a built-in name or a file"},
      {"TRNSIM_SET", "", "overrides: a.b=1,c.d=2"},
      {"TRNSIM_MODE", "both|data|time", "what a run computes"},
      {"TRNSIM_CHECK", "pedantic|strict|warn|off",
       "checks of the programs that run: errors, warnings, or none"},
      {"TRNSIM_JSON", "", "file for the report"},
      {"TRNSIM_REPORT", "", "file for the report as a page"},
      {"TRNSIM_TRACE", "", "file for the trace"},
      {"TRNSIM_FALLBACK", "allow|error", "operators that run on the host"},
      {"TRNSIM_INT64", "narrow|exact", "64-bit integers"},
      {"TRNSIM_MEMO", "on|off", "reuse of the simulated time of repeated programs"},
      {"TRNSIM_POISON", "off|small|all", "which new device memory is filled with NaN"},
      {"TRNSIM_PROGRESS", "on|off", "show on the terminal what a long wait is for; `trnsim run` sets it"},
      {"TRNSIM_RUN_DIR", "", "directory of a machine shared between processes"},
      {"TRNSIM_FAULT", "", "faults to inject: name[:count[:skip]],..."},
      {"TRNSIM_SOURCE_DIR", "", "source tree, for tests"},
      {"TRNSIM_JOBS", "", "parallel compile jobs of tools/setup"},
      {"TRNSIM_TORCH", "", "the PyTorch that tools/setup installs"},
      {"TRNSIM_BUILD_TESTS", "", "whether a build holds the tests"},
      {"NEURON_LAUNCH_BLOCKING", kFlag, "every call waits for its result"},
      {"TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS", kFlag,
       "an operator with a lowering stays on the device"},
      {"TORCH_NEURONX_DISABLE_NEFF_CACHE", kFlag, "no programs kept between processes"},
      {"TORCH_NEURONX_NEFF_DISABLE_CACHE", kFlag, "the same"},
      {"TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS", kFlag, "write graphs, kernels and streams as text"},
  };
  return kAll;
}

const char* mode_name(chip::Mode mode) {
  switch (mode) {
    case chip::Mode::kData:
      return "data";
    case chip::Mode::kTime:
      return "time";
    default:
      return "both";
  }
}

bool read_settings(const Request& request, Settings* out, std::string* error) {
  error->clear();
  check_environment(error);
  Settings s;
  std::string name = request.config.value_or(env("TRNSIM_CONFIG")), platform, problem;
  if (!read_platform_target(&platform, &problem)) append(error, problem);
  if (name.empty()) name = platform.empty() ? "trn2" : platform;
  auto config = config::load(name, request.overrides.value_or(env("TRNSIM_SET")), &problem);
  if (!config) append(error, problem);
  if (!error->empty()) return false;
  s.config = std::move(*config);
  if (!isa::generation_from_target(s.config.chip.generation)) {
    *error = "user error: configuration '" + name +
             "': chip.generation: " + isa::unknown_target(s.config.chip.generation);
    return false;
  }
  if (!platform.empty() && s.config.chip.generation != platform) {
    *error = "user error: NEURON_PLATFORM_TARGET_OVERRIDE asks for " + platform +
             ", and the configuration '" + name + "' is a " + s.config.chip.generation +
             "; unset one of the two";
    return false;
  }

  std::string mode = request.mode.value_or(env("TRNSIM_MODE"));
  if (mode.empty()) mode = "both";
  check_values("mode", mode, "both|data|time", error);
  s.mode = mode == "both" ? chip::Mode::kBoth : mode == "data" ? chip::Mode::kData : chip::Mode::kTime;

  std::string check = request.check.value_or(env("TRNSIM_CHECK"));
  if (check.empty()) check = "off";
  check_values("check", check, "pedantic|strict|warn|off", error);
  s.check = check == "pedantic" ? check::Level::kPedantic
            : check == "strict" ? check::Level::kStrict
            : check == "warn"   ? check::Level::kWarn
                                : check::Level::kOff;

  const auto& c = s.config;
  s.machine.devices = static_cast<int>(c.instance.chips);
  s.machine.cores_per_device = static_cast<int>(c.chip.cores);
  s.machine.stacks_per_device = static_cast<int>(c.chip.hbm_stacks);
  constexpr uint64_t kPage = 4096;
  s.machine.bytes_per_stack = static_cast<uint64_t>(c.chip.hbm_capacity_gib * 1073741824.0) /
                              static_cast<uint64_t>(c.chip.hbm_stacks) / kPage * kPage;
  if (s.machine.cores() > driver::kMaxCores ||
      s.machine.cores_per_device % s.machine.stacks_per_device != 0) {
    *error = "user error: instance.chips=" + std::to_string(c.instance.chips) +
             ", chip.cores=" + std::to_string(c.chip.cores) +
             ", chip.hbm_stacks=" + std::to_string(c.chip.hbm_stacks) +
             "; the cores of a chip are a multiple of its stacks, at most " +
             std::to_string(driver::kMaxCores) + " cores in all";
    return false;
  }
  const auto gather = [&](bool good) {
    if (!good) append(error, problem);
    return good;
  };
  if (gather(read_logical_core_size(&s, &problem))) gather(read_cores(&s, &problem));
  gather(read_log(&s, &problem));

  if (const std::string t = env("NEURON_RT_EXEC_TIMEOUT"); !t.empty()) {
    char* end = nullptr;
    s.exec_timeout_s = std::strtod(t.c_str(), &end);
    if (*end != '\0' || !(s.exec_timeout_s > 0))
      append(error, "user error: NEURON_RT_EXEC_TIMEOUT='" + t + "' is not a number of seconds above 0");
  } else {
    s.exec_timeout_s = kDefaultExecTimeoutSeconds;
  }
  s.run_dir = env("TRNSIM_RUN_DIR");
  s.shared_machine = s.shared_machine || !s.run_dir.empty();
  s.process_tag = env("NEURON_PROCESS_TAG");
  const std::string poison = env("TRNSIM_POISON");
  s.poison = poison == "off"   ? driver::Poison::kOff
             : poison == "all" ? driver::Poison::kAll
                               : driver::Poison::kSmall;
  s.faults = env("TRNSIM_FAULT");
  if (driver::Faults asked; !s.faults.empty()) {
    if (const driver::Status status = asked.parse(s.faults); !status.ok()) append(error, status.message);
  }
  s.memo = env("TRNSIM_MEMO") != "off";
  s.report_file = env("TRNSIM_JSON");
  if (s.report_file == "-") {
    append(error,
           "user error: TRNSIM_JSON=- in a program of your own; `trnsim run --json -` writes to the standard "
           "output");
  } else if (std::string why; !s.report_file.empty() && !can_write(s.report_file, Replaces::kReport, &why)) {
    append(error, "user error: the report cannot be written to '" + s.report_file +
                      "' (--json, TRNSIM_JSON): " + why);
  }
  if (!error->empty()) return false;
  *out = std::move(s);
  return true;
}

}  // namespace trnsim::runtime
