#include "tools/fidelity/replay.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "isa/assembler.h"
#include "isa/validator.h"
#include "sim/chip/simulator.h"
#include "tools/fidelity/kernels/kernels.h"
#include "tools/fidelity/metrics.h"

namespace trnsim::fidelity {
namespace {

// MB-34: a profile starts 13 us before the first transfer and ends 3 us after the last; an all but empty kernel takes
// 3.2 us on the device. Times of nki.benchmark include the launch as the configuration has it.
constexpr double kProfileNs = 16000, kDeviceNs = 3200;

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error(path + ": cannot be read");
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string text_of(const boost::json::object& o, const char* key) {
  const auto* v = o.if_contains(key);
  return v != nullptr ? std::string(v->as_string()) : std::string();
}

// $NAME in a program stands for a value of the row.
std::string substitute(std::string text, const boost::json::object& values) {
  std::vector<std::pair<std::string, std::string>> sorted;
  for (const auto& v : values)
    sorted.emplace_back("$" + std::string(v.key()), std::string(v.value().as_string()));
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
  for (const auto& [name, value] : sorted) {
    for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + value.size())) {
      text.replace(at, name.size(), value);
    }
  }
  return text;
}

chip::TimingResult run(const isa::Program& program, const config::Config& config, chip::Trace* trace,
                       const std::string& name) {
  const auto diagnostics = isa::validate(program);
  if (const auto* d = isa::first_error(diagnostics)) throw std::runtime_error(name + ": " + d->message);
  const auto result = chip::run_timing(program, config, trace);
  if (result.status != chip::LaunchResult::Status::kOk)
    throw std::runtime_error(name + ": " + result.message);
  return result;
}

double replay_instruction(const boost::json::object& row, const std::string& directory,
                          const config::Config& config) {
  const std::string file = text_of(row, "program");
  std::string text = read_file(directory + "/programs/" + file);
  if (const auto* values = row.if_contains("values")) text = substitute(text, values->as_object());
  isa::Program program;
  std::vector<isa::AssembleError> errors;
  if (!isa::assemble(text, program, errors)) throw std::runtime_error(isa::to_text(errors, file));
  chip::Trace trace;
  run(program, config, &trace, file);
  std::string why;
  const auto value = evaluate(row.at("metric").as_object(), trace, config, &why);
  if (!value) throw std::runtime_error(file + ": " + why);
  return *value;
}

// Windows of the clock governor: [state, use, next state] with the states of the trace. Counts the next states that
// come out right; the use is what the trace gives, of full-clock columns on all rows.
double replay_governor(const boost::json::object& row, const config::Config& config) {
  const cost::Ps window = cost::ps_of_cycles(config.tensor.governor_window_cycles, config.tensor.clock_ghz);
  int right = 0;
  for (const auto& sequence : row.at("windows").as_array()) {
    cost::PeClock clock(config);
    cost::Ps at = 0;
    for (const auto& v : sequence.as_array()) {
      const auto& step = v.as_array();
      const double clock_share = clock.full_at(at) ? 1.0 : config.tensor.governor_cold_fraction;
      const double use = std::min(step[0].to_number<double>(), clock_share);
      clock.run(at, std::llround(use * config.tensor.governor_window_cycles), 128);
      at += window;
      right += clock.full_at(at) == (step[1].as_string() == "full");
    }
  }
  return right;
}

// Time from the first multiplication to the first at full clock.
double cold_ns(const chip::Trace& trace) {
  std::vector<chip::Ps> starts;
  for (const auto& s : trace.instructions) {
    if (s.engine == isa::Engine::kTensor && s.part == 0) starts.push_back(s.start);
  }
  const auto full = std::find(trace.pe_windows.begin(), trace.pe_windows.end(), true);
  if (full == trace.pe_windows.end()) throw std::runtime_error("the array never runs at full clock");
  // Weight loads have no entry in pe_windows; kernels of this metric use transposes only.
  return static_cast<double>(starts.at(static_cast<size_t>(full - trace.pe_windows.begin())) - starts.at(0)) /
         1000.0;
}

double replay_kernels(const boost::json::object& row, const std::string& base, const config::Config& config,
                      std::array<double, 6>* shares) {
  const std::string metric = text_of(row, "metric");
  const double launch = config.launch.start_ns + config.launch.end_ns;
  double total = 0, launches = 0;
  for (const auto& k : row.at("kernels").as_array()) {
    boost::json::object values = k.as_object();
    const std::string name = text_of(values, "name");
    values.erase("name");
    const Params params(values);
    const isa::Program program = generator(name)(params, config);
    params.check_all_used();
    if (metric == "cold") {
      chip::Trace trace;
      run(program, config, &trace, name);
      return cold_ns(trace);
    }
    const auto result = run(program, config, nullptr, name);
    for (size_t e = 0; e < 4; ++e)
      (*shares)[e] += static_cast<double>(result.stats.engines[e].busy_ps) / 1000.0;
    (*shares)[4] += static_cast<double>(result.stats.dma_busy_ps) / 1000.0;
    (*shares)[5] += launch;
    launches += static_cast<double>(result.stats.total_ps) / 1000.0;
    const double span = static_cast<double>(result.stats.total_ps) / 1000.0 - launch;
    total += span + (base == "PROF" ? kProfileNs : base == "device" ? kDeviceNs : launch);
  }
  for (double& s : *shares) s /= launches;
  return total;
}

Outcome replay_row(const boost::json::object& row, bool kernel, const std::string& directory,
                   const config::Config& config) {
  Outcome o;
  o.id = text_of(row, "id");
  o.what = text_of(row, "what");
  o.quality = text_of(row, "quality");
  o.family = text_of(row, "family");
  o.group = text_of(row, "group");
  o.base = text_of(row, "base");
  o.open = text_of(row, "open");
  o.kernel = kernel;
  o.measured = row.at("measured_ns").to_number<double>();
  for (const auto& s : row.at("sets").as_array()) o.sets.emplace_back(s.as_string());
  const bool governor = row.contains("windows");
  if (governor) o.unit = "windows";
  if (kernel && !row.contains("kernels")) return o;  // nothing that could be run
  try {
    o.predicted = governor ? replay_governor(row, config)
                  : kernel ? replay_kernels(row, o.base, config, &o.shares)
                           : replay_instruction(row, directory, config);
    o.predicted_any = true;
    o.error = (o.predicted - o.measured) / o.measured;
    if (const auto* range = row.if_contains("range_ns")) {
      const auto& r = range->as_array();
      o.inside = o.predicted >= r[0].to_number<double>() && o.predicted <= r[1].to_number<double>();
    } else {
      o.inside = std::fabs(o.error) < 0.005;
    }
  } catch (const std::exception& e) {
    o.error_text = e.what();
    o.inside = false;
  }
  return o;
}

}  // namespace

Collection::Collection(std::string directory) : directory_(std::move(directory)) {
  instructions_ = boost::json::parse(read_file(directory_ + "/rows.json"));
  kernels_ = boost::json::parse(read_file(directory_ + "/kernel_rows.json"));
}

std::vector<Outcome> Collection::replay(const config::Config& config, const std::string& only,
                                        const std::string& family) const {
  std::vector<Outcome> all;
  for (const auto* file : {&instructions_, &kernels_}) {
    for (const auto& v : file->at("rows").as_array()) {
      const auto& row = v.as_object();
      if (text_of(row, "id").rfind(only, 0) != 0) continue;
      if (!family.empty() && text_of(row, "family") != family) continue;
      all.push_back(replay_row(row, file == &kernels_, directory_, config));
    }
  }
  return all;
}

std::vector<Outcome> Collection::replay_rows(const config::Config& config,
                                             const std::vector<size_t>& rows) const {
  const auto& first = instructions_.at("rows").as_array();
  const auto& second = kernels_.at("rows").as_array();
  std::vector<Outcome> out;
  for (size_t r : rows) {
    const bool kernel = r >= first.size();
    const auto& row = (kernel ? second.at(r - first.size()) : first.at(r)).as_object();
    out.push_back(replay_row(row, kernel, directory_, config));
  }
  return out;
}

std::vector<Source> Collection::sources() const {
  std::vector<Source> out;
  for (const auto& v : instructions_.at("sources").as_array()) {
    const auto& o = v.as_object();
    Source s{text_of(o, "family"), text_of(o, "source"), {}};
    for (const auto& p : o.at("values").as_object())
      s.values[std::string(p.key())] = p.value().to_number<double>();
    out.push_back(std::move(s));
  }
  return out;
}

std::vector<Audited> Collection::audit() const {
  std::vector<Audited> out;
  for (const auto& v : instructions_.at("collection").as_array()) {
    const auto& c = v.as_array();
    Audited a;
    a.id = std::string(c.at(0).as_string());
    a.quality = std::string(c.at(1).as_string());
    a.values = c.at(2).to_number<int64_t>();
    for (const auto* file : {&instructions_, &kernels_}) {
      for (const auto& r : file->at("rows").as_array()) {
        if (text_of(r.as_object(), "id") == a.id) ++(r.as_object().contains("open") ? a.open : a.replayed);
      }
    }
    // "MB-35, MB-36", "DM-14 (rates)"
    for (const auto& n : not_reproduced().as_array()) {
      const std::string ids = text_of(n.as_object(), "id");
      a.listed |=
          (", " + ids + ",").find(", " + a.id + ",") != std::string::npos || ids.rfind(a.id + " (", 0) == 0;
    }
    out.push_back(std::move(a));
  }
  return out;
}

}  // namespace trnsim::fidelity
