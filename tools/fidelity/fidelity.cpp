// Replays the published measurements as assembler programs and compares: measured, predicted, error.
#include <algorithm>
#include <boost/json.hpp>
#include <boost/program_options.hpp>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>
#include <vector>

#include "isa/assembler.h"
#include "isa/validator.h"
#include "sim/chip/simulator.h"
#include "sim/config/config.h"
#include "tools/fidelity/metrics.h"

namespace {

using namespace trnsim;

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error(path + ": cannot be read");
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
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

struct Outcome {
  std::string id, what, quality, error_text;
  double measured = 0, predicted = 0, error = 0;
  bool inside = true;  // of the published range, where there is one
  std::vector<std::string> sets;
};

Outcome replay(const boost::json::object& row, const std::string& directory, const config::Config& config) {
  Outcome o;
  o.id = std::string(row.at("id").as_string());
  o.what = std::string(row.at("what").as_string());
  o.quality = std::string(row.at("quality").as_string());
  o.measured = row.at("measured_ns").to_number<double>();
  for (const auto& s : row.at("sets").as_array()) o.sets.emplace_back(s.as_string());
  try {
    const std::string file = std::string(row.at("program").as_string());
    std::string text = read_file(directory + "/programs/" + file);
    if (const auto* values = row.if_contains("values")) text = substitute(text, values->as_object());
    isa::Program program;
    std::vector<isa::AssembleError> errors;
    if (!isa::assemble(text, program, errors)) throw std::runtime_error(isa::to_text(errors, file));
    const auto diagnostics = isa::validate(program);
    if (const auto* d = isa::first_error(diagnostics)) throw std::runtime_error(file + ": " + d->message);
    chip::Trace trace;
    const auto result = chip::run_timing(program, config, &trace);
    if (result.status != chip::LaunchResult::Status::kOk)
      throw std::runtime_error(file + ": " + result.message);
    std::string why;
    const auto value = fidelity::evaluate(row.at("metric").as_object(), trace, config, &why);
    if (!value) throw std::runtime_error(file + ": " + why);
    o.predicted = *value;
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

double median(std::vector<double> v) {
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  const size_t n = v.size();
  return n % 2 != 0 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

}  // namespace

int main(int argc, char** argv) {
  namespace po = boost::program_options;
  std::string directory = TRNSIM_FIDELITY_DIR, config_name = "trn2", overrides, json_file;
  po::options_description options("trnsim_fidelity: published measurements against the simulator");
  options.add_options()("help", "this text")("dir", po::value(&directory),
                                             "folder with rows.json and programs/")(
      "config", po::value(&config_name), "configuration name or file")("set", po::value(&overrides),
                                                                       "overrides a.b=1,c.d=2")(
      "json", po::value(&json_file), "write the table as JSON, - for standard output instead of the table");
  po::variables_map vm;
  try {
    po::store(po::parse_command_line(argc, argv, options), vm);
    po::notify(vm);
  } catch (const po::error& e) {
    std::cerr << "user error: " << e.what() << "; see --help\n";
    return 2;
  }
  if (vm.count("help") != 0) {
    std::cout << options;
    return 0;
  }
  std::string error;
  const auto config = config::load(config_name, overrides, &error);
  if (!config) {
    std::cerr << error << '\n';
    return 2;
  }
  std::vector<Outcome> all;
  boost::json::value file;
  try {
    file = boost::json::parse(read_file(directory + "/rows.json"));
    for (const auto& row : file.at("rows").as_array())
      all.push_back(replay(row.as_object(), directory, *config));
  } catch (const std::exception& e) {
    std::cerr << "user error: " << directory << "/rows.json: " << e.what() << '\n';
    return 2;
  }

  std::vector<double> errors, held_out;
  int failed = 0;
  for (const Outcome& o : all) {
    if (!o.error_text.empty()) {
      ++failed;
      continue;
    }
    errors.push_back(std::fabs(o.error));
    if (o.sets.empty()) held_out.push_back(std::fabs(o.error));
  }
  const double worst = errors.empty() ? 0 : *std::max_element(errors.begin(), errors.end());
  double mean = 0;
  for (double e : errors) mean += e / static_cast<double>(errors.size());

  boost::json::object root;
  root["schema_version"] = 1;
  root["config"] = config->name;
  root["overrides"] = config->overrides;
  boost::json::array rows;
  for (const Outcome& o : all) {
    boost::json::object r;
    r["id"] = o.id;
    r["what"] = o.what;
    r["quality"] = o.quality;
    r["measured_ns"] = o.measured;
    if (o.error_text.empty()) {
      r["predicted_ns"] = o.predicted;
      r["error"] = o.error;
      r["inside_published_range"] = o.inside;
    } else {
      r["failed"] = o.error_text;
    }
    boost::json::array sets;
    for (const std::string& s : o.sets) sets.emplace_back(s);
    r["sets"] = std::move(sets);
    rows.push_back(std::move(r));
  }
  root["rows"] = std::move(rows);
  root["median_error"] = median(errors);
  root["median_error_held_out"] = median(held_out);
  root["mean_error"] = mean;
  root["max_error"] = worst;
  root["failed"] = failed;
  root["not_reproduced"] = file.at("not_reproduced");

  if (json_file != "-") {
    std::printf("%-6s %-64s %11s %11s %7s  %s\n", "row", "what", "measured ns", "model ns", "error", "sets");
    for (const Outcome& o : all) {
      if (!o.error_text.empty()) {
        std::printf("%-6s %-64s %11.1f %s\n", o.id.c_str(), o.what.c_str(), o.measured, o.error_text.c_str());
        continue;
      }
      std::string sets;
      for (const std::string& s : o.sets) sets += (sets.empty() ? "" : ", ") + s;
      std::printf("%-6s %-64s %11.1f %11.1f %+6.1f%%  %s\n", o.id.c_str(), o.what.c_str(), o.measured,
                  o.predicted, o.error * 100, sets.c_str());
    }
    std::printf(
        "\n%zu rows: median error %.2f %%, mean %.2f %%, largest %.1f %%; median of the %zu rows that set no "
        "parameter "
        "%.2f %%; %d failed\n",
        errors.size(), median(errors) * 100, mean * 100, worst * 100, held_out.size(), median(held_out) * 100,
        failed);
  }
  if (!json_file.empty()) {
    const std::string text = boost::json::serialize(root) + "\n";
    if (json_file == "-") {
      std::cout << text;
    } else {
      std::ofstream out(json_file);
      out << text;
      if (!out) {
        std::cerr << "user error: " << json_file << ": cannot be written\n";
        return 2;
      }
    }
  }
  return failed == 0 ? 0 : 1;
}
