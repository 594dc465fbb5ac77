// Configuration of the simulated chip: plain structs to read, Protobuf text files behind them.
// The fields come from config.proto (the one declaration of every parameter) through trnsim_config_gen.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/config/config_fields.h"  // generated: Chip, Instance, ..., struct Parameters with one member per group

namespace trnsim::config {

enum class Origin : uint8_t { kDocument, kMeasured, kGuess, kOverride };
const char* origin_name(Origin origin);

// Where one value comes from, when that is not what the schema says.
struct Provenance {
  std::string key;  // "group.name" or "group"
  Origin origin = Origin::kOverride;
  std::string source;
  double band = 0;
};

// Values are read directly: config.tensor.clock_ghz.
struct Config : Parameters {
  std::string name;       // as given to load()
  std::string overrides;  // as given to load()
  std::string
      chip_name;  // the built-in chip the values descend from; the default of every parameter is its value
  std::vector<Provenance> provenance;
};

// name_or_file: a built-in name (builtin_names()) or a file in the same format. overrides: "a.b=1,c.d=2".
// On failure returns nothing and fills `error`: a line per fault with file:line:column (or the number of the override),
// the limit that was broken or the nearest valid name.
std::optional<Config> load(std::string_view name_or_file, std::string_view overrides, std::string* error);

// "trn2", "trn3", instances and what-if examples; their text is compiled in, so names work without any file.
std::vector<std::string> builtin_names();

struct ParameterInfo {
  std::string key;  // "tensor.clock_ghz"
  std::string value;
  std::string default_value;
  bool is_text = false;
  std::string unit;
  double min = 0, max = 0;
  Origin origin = Origin::kDocument;
  std::string source;
  double band = 0;  // relative: 0.1 = +-10 %
  std::string doc;
};
std::vector<ParameterInfo> describe(const Config& config);
// {"name", "overrides", "chip", "parameters": [{key, value, default, unit, min, max, origin, source, band,
// doc}]}
std::string describe_json(const Config& config);

struct Difference {
  std::string key, a, b;
};
std::vector<Difference> diff(const Config& a, const Config& b);

// Changes one value of a loaded configuration, with the checks of an override.
bool set(Config& config, std::string_view key, std::string_view value, std::string* error);

// Derived quantities that more than one part needs.
inline int64_t physical_cores(const Config& c) { return c.instance.chips * c.chip.cores; }
inline int64_t logical_cores(const Config& c) { return physical_cores(c) / c.chip.logical_core_size; }
inline int64_t cores_per_stack(const Config& c) {
  const int64_t n = c.chip.cores / c.chip.hbm_stacks;
  return n > 0 ? n : 1;
}
inline uint64_t hbm_bytes_per_physical_core(const Config& c) {
  return static_cast<uint64_t>(c.chip.hbm_capacity_gib * (1024.0 * 1024.0 * 1024.0)) /
         static_cast<uint64_t>(c.chip.cores);
}
inline double usd_per_physical_core_second(const Config& c) {
  return c.instance.price_usd_per_hour / 3600.0 / static_cast<double>(physical_cores(c));
}
// Peak rates of one physical core, for rooflines.
inline double peak_half_flops_per_second(const Config& c) {
  return 2.0 * 128 * 128 * c.tensor.clock_ghz * 1e9;
}
inline double peak_fp32_flops_per_second(const Config& c) {
  return peak_half_flops_per_second(c) / (c.tensor.fp32_passes * c.tensor.fp32_cycles_per_column);
}
double hbm_bytes_per_second_per_core(const Config& c);  // the smaller of DMA engines and HBM stack

}  // namespace trnsim::config
