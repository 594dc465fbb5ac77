// Replays the published measurements and compares: measured, predicted, error.
#include <algorithm>
#include <boost/program_options.hpp>
#include <fstream>
#include <iostream>

#include "sim/config/config.h"
#include "tools/fidelity/replay.h"
#include "tools/fidelity/summary.h"

using namespace trnsim;

int main(int argc, char** argv) {
  namespace po = boost::program_options;
  std::string directory = TRNSIM_FIDELITY_DIR, config_name = "trn2", overrides, json_file, only, family;
  bool leave_one_out = false;
  po::options_description options("trnsim_fidelity: published measurements against the simulator");
  options.add_options()("help", "this text")("dir", po::value(&directory),
                                             "folder with rows.json, kernel_rows.json and programs/")(
      "config", po::value(&config_name), "configuration name or file")("set", po::value(&overrides),
                                                                       "overrides a.b=1,c.d=2")(
      "only", po::value(&only), "rows whose id begins with this")("family", po::value(&family),
                                                                  "rows of this family")(
      "json", po::value(&json_file), "write the result as JSON; - for standard output instead of the table")(
      "leave-one-out", po::bool_switch(&leave_one_out),
      "refit the parameters of each family on the others (minutes)");
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
  std::vector<fidelity::Outcome> rows;
  std::vector<fidelity::LeftOut> left_out;
  boost::json::object root;
  try {
    const fidelity::Collection collection(directory);
    for (const auto& a : collection.audit()) {
      if (!a.complete()) throw std::runtime_error("rows.json: " + a.id + " is neither replayed nor listed");
    }
    rows = collection.replay(*config, only, family);
    if (leave_one_out) {
      left_out = fidelity::leave_families_out(collection, *config, [](const std::string& name) {
        std::cerr << "refitting without " << name << '\n';
      });
    }
    root = fidelity::to_json(rows, left_out, collection, *config);
  } catch (const std::exception& e) {
    std::cerr << "user error: " << directory << ": " << e.what() << '\n';
    return 2;
  }
  if (json_file != "-") fidelity::print(rows, left_out);
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
  return std::any_of(rows.begin(), rows.end(), [](const auto& o) { return !o.error_text.empty(); }) ? 1 : 0;
}
