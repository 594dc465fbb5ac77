// The report: what ran, how long it took on the simulated chip, what bound it, what it would cost.
#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "isa/utf8.h"
#include "sim/runtime/log.h"
#include "sim/runtime/output_file.h"
#include "sim/runtime/runtime.h"
#include "sim/runtime/trnsim_ext.h"

namespace trnsim::runtime {

namespace {

namespace json = boost::json;

constexpr int kSchemaVersion = 1;
constexpr double kPsPerNs = 1000.0;
constexpr const char* kEngineNames[isa::kNumEngines] = {"tensor", "vector", "scalar", "gpsimd", "sync"};

// A part that explains less than this share of the time does not bound the run.
constexpr double kBoundShare = 0.5;

double ns(int64_t ps) { return static_cast<double>(ps) / kPsPerNs; }

void add(Totals& to, const Totals& from) {
  to.add(from);
  to.simulated_ps = std::max(to.simulated_ps, from.simulated_ps);  // cores run side by side
  to.physical_ps += from.physical_ps;
  to.launches += from.launches;
  to.memo_hits += from.memo_hits;
  to.memo_misses += from.memo_misses;
  to.flops += from.flops;
  to.bytes += from.bytes;
}

std::vector<std::string> split_overrides(const std::string& text) {
  std::vector<std::string> out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

json::object roofline(const config::Config& c, const Totals& t, int64_t core_ps) {
  const double seconds = static_cast<double>(core_ps) * 1e-12;
  // Physical cores per logical core, on average over the time.
  const double cores = core_ps == 0 ? 1.0 : static_cast<double>(t.physical_ps) / static_cast<double>(core_ps);
  // FP32 rate is the safe lower peak, BF16 the upper: the report gives both so that neither is mistaken for
  // the other.
  const double peak_half = cores * config::peak_half_flops_per_second(c);
  const double peak_fp32 = cores * config::peak_fp32_flops_per_second(c);
  const double peak_bytes =
      std::min(cores * config::hbm_bytes_per_second_per_core(c), c.hbm.stack_bandwidth_gb_per_s * 1e9);
  json::object r;
  r["flops"] = t.flops;
  r["bytes"] = t.bytes;
  r["intensity_flops_per_byte"] =
      t.bytes == 0 ? 0.0 : static_cast<double>(t.flops) / static_cast<double>(t.bytes);
  r["peak_flops_per_s"] = peak_half;
  r["peak_fp32_flops_per_s"] = peak_fp32;
  r["peak_bytes_per_s"] = peak_bytes;
  r["achieved_flops_per_s"] = seconds > 0 ? static_cast<double>(t.flops) / seconds : 0.0;
  r["achieved_bytes_per_s"] = seconds > 0 ? static_cast<double>(t.bytes) / seconds : 0.0;
  // What keeps the chip: the busiest part, when it explains at least half of the time.
  struct Part {
    const char* name;
    int64_t busy_ps;
  };
  Part best{"latency", 0};
  constexpr const char* kBounds[] = {"tensor", "vector", "scalar", "gpsimd", "sync"};
  for (size_t e = 0; e + 1 < t.engines.size(); ++e)
    if (t.engines[e].busy_ps > best.busy_ps) best = {kBounds[e], t.engines[e].busy_ps};
  if (t.dma_busy_ps > best.busy_ps) best = {"memory", t.dma_busy_ps};
  if (core_ps == 0)
    r["bound"] = "nothing ran";
  else if (static_cast<double>(best.busy_ps) < kBoundShare * static_cast<double>(t.physical_ps))
    r["bound"] = "latency";
  else
    r["bound"] = std::string(best.name) == "tensor" ? "compute" : best.name;
  return r;
}

json::object engines_json(const std::array<chip::EngineStats, isa::kNumEngines>& engines, int64_t core_ps) {
  json::object o;
  for (size_t e = 0; e < engines.size(); ++e)
    o[kEngineNames[e]] = json::object{
        {"busy_ns", ns(engines[e].busy_ps)},
        {"utilisation",
         core_ps == 0 ? 0.0 : static_cast<double>(engines[e].busy_ps) / static_cast<double>(core_ps)},
        {"instructions", engines[e].instructions}};
  return o;
}

// The physical cores of a logical core that something ran on.
void add_physical_cores(const LogicalCore& core, json::array* list) {
  const Totals& t = core.totals;
  for (size_t n = 0; n < t.of_core.size(); ++n) {
    if (t.of_core_ps[n] == 0) continue;
    list->push_back(json::object{{"core", core.physical + static_cast<int>(n)},
                                 {"simulated_ns", ns(t.of_core_ps[n])},
                                 {"engines", engines_json(t.of_core[n].engines, t.of_core_ps[n])},
                                 {"dma_busy_ns", ns(t.of_core[n].dma_busy_ps)}});
  }
}

json::object band_json(const config::Config& c, const Totals& t, const Activity& activity) {
  const ErrorBand band = error_band(c, activity);
  return {{"relative", band.relative},
          {"low_ns", ns(t.simulated_ps) * std::max(0.0, 1.0 - band.relative)},
          {"high_ns", ns(t.simulated_ps) * (1.0 + band.relative)},
          {"parameters", band.parameters},
          {"measured", band.measured},
          {"nearest_family", band.family},
          {"basis",
           "bands of the timing parameters, weighted by busy time, and the error of the nearest family of "
           "measured kernels"}};
}

}  // namespace

std::string report_json(Runtime& r) {
  const config::Config& c = r.settings.config;
  Totals t;
  int64_t busiest_ps = 0;
  int64_t core_ps = 0;  // sum over cores: what utilisation is a share of
  json::array physical;
  std::map<std::string, ProgramTotals> programs;
  for (auto& core : r.cores) {
    const std::lock_guard lock(core->queue);
    add(t, core->totals);
    busiest_ps = std::max(busiest_ps, core->totals.simulated_ps);
    core_ps += core->totals.simulated_ps;
    add_physical_cores(*core, &physical);
    const auto count = [&](const std::string& name, const ProgramTotals& p) {
      if (p.count == 0) return;
      programs[name].add(p);
    };
    for (const auto& [name, p] : core->unloaded) count(name, p);
    for (const Model* m : core->models) count(m->name, m->totals);
  }

  json::object o;
  o["schema_version"] = kSchemaVersion;
  json::array overrides;
  for (const auto& text : split_overrides(c.overrides)) overrides.emplace_back(text);
  o["config"] = json::object{{"name", c.name}, {"chip", c.chip.generation}, {"overrides", overrides}};
  o["mode"] = mode_name(r.settings.mode);
  o["simulated_ns"] = ns(t.simulated_ps);
  o["wall_s"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - r.report_start).count();

  std::vector<std::pair<std::string, ProgramTotals>> sorted(programs.begin(), programs.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return a.second.simulated_ps > b.second.simulated_ps;
  });
  json::array list;
  Activity activity;
  for (const auto& [name, p] : sorted) {
    activity.add(p.activity);
    json::object row{{"name", name},
                     {"count", p.count},
                     {"simulated_ns", ns(p.simulated_ps)},
                     {"wall_s", static_cast<double>(p.wall_ns) * 1e-9},
                     {"error_band", error_band(c, p.activity).relative}};
    if (r.settings.check != check::Level::kOff) {
      row["sbuf_bytes"] = p.sbuf_bytes;
      row["psum_bytes"] = p.psum_bytes;
    }
    list.push_back(std::move(row));
  }
  o["programs"] = std::move(list);
  o["instructions"] = t.instructions;

  o["engines"] = engines_json(t.engines, t.physical_ps);
  o["physical_cores"] = std::move(physical);
  o["dma"] = json::object{{"bytes_read", t.dma_bytes_read},
                          {"bytes_written", t.dma_bytes_written},
                          {"descriptors", t.dma_descriptors},
                          {"busy_ns", ns(t.dma_busy_ps)}};
  o["hbm"] = json::object{{"peak_bytes", r.driver == nullptr ? 0 : r.driver->memory_peak()}};
  o["roofline"] = roofline(c, t, core_ps);

  // The instance is rented as a whole; the share of the cores in use is what the run costs when the rest
  // works too.
  const double hours = static_cast<double>(t.simulated_ps) * 1e-12 / 3600.0;
  const double share = static_cast<double>(r.cores.size()) / static_cast<double>(r.settings.logical_cores());
  const double usd_per_hour = c.instance.price_usd_per_hour;  // 0: no public price
  // A run without time has no cost: null, not zero.
  const bool known = usd_per_hour > 0 && r.settings.mode != chip::Mode::kData;
  o["cost"] =
      json::object{{"instance", c.instance.name},
                   {"usd_per_hour", usd_per_hour > 0 ? json::value(usd_per_hour) : json::value(nullptr)},
                   {"usd", known ? json::value(hours * usd_per_hour) : json::value(nullptr)},
                   {"cores_share", share}};
  o["caches"] = json::object{{"memo", json::object{{"hits", t.memo_hits}, {"misses", t.memo_misses}}}};
  json::array warnings;
  {
    const std::lock_guard lock(r.warnings_mutex);
    for (const auto& w : r.warnings) warnings.emplace_back(w);
  }
  o["warnings"] = std::move(warnings);
  o["error_band"] = band_json(c, t, activity);
  return isa::valid_utf8(json::serialize(o));
}

void reset_report() {
  Runtime& r = *g_runtime;
  for (auto& core : r.cores) {
    const std::lock_guard lock(core->queue);
    core->totals = {};
    core->unloaded.clear();
    for (Model* m : core->models) m->totals = {};
  }
  const std::lock_guard lock(r.warnings_mutex);
  r.warnings.clear();
  r.report_start = std::chrono::steady_clock::now();
}

void write_report_file() {
  Runtime& r = *g_runtime;
  // With PyTorch the plugin writes it, as only the plugin knows the fallbacks.
  if (r.settings.report_file.empty() || r.framework == NRT_FRAMEWORK_TYPE_PYTORCH) return;
  std::string why;
  if (!write_whole(r.settings.report_file, report_json(r) + '\n', &why))
    log(LogLevel::kError,
        "user error: cannot write the report to TRNSIM_JSON=" + r.settings.report_file + ": " + why);
}

}  // namespace trnsim::runtime

using namespace trnsim::runtime;  // NOLINT

extern "C" {

const char* trnsim_report_json(void) {
  thread_local std::string text;
  if (g_state.load() == State::kClosed) {
    not_ready("trnsim_report_json");
    return "{}";
  }
  try {
    if (ready()) {
      text = report_json(*g_runtime);
    } else {  // whole, of a device that nothing has run on
      Runtime unused;
      unused.report_start = std::chrono::steady_clock::now();
      std::string error;
      if (!current_settings(&unused.settings, &error)) {
        fail(NRT_INVALID, error);
        return "{}";
      }
      text = report_json(unused);
    }
  } catch (const std::exception& e) {
    fail(NRT_FAILURE, std::string("trnsim_report_json: ") + e.what());
    return "{}";
  }
  return text.c_str();
}

void trnsim_reset_report(void) {
  if (ready()) reset_report();
}

}  // extern "C"
