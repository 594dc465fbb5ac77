// run: a program file on the simulated chip, through the public ABI alone.
#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <map>
#include <optional>

#include "isa/container.h"
#include "sim/runtime/nrt.h"
#include "sim/runtime/trnsim_ext.h"
#include "tools/native/files.h"
#include "tools/native/npy.h"
#include "tools/native/progress.h"

namespace trnsim::native {
namespace po = boost::program_options;

namespace {

// Ends the session whichever way the verb is left.
struct Session {
  ~Session() { nrt_close(); }
};

int failed(const std::string& what, NRT_STATUS status) {
  return complain(what + ": " + trnsim_last_error() + " [" + nrt_get_status_as_str(status) + "]", kFailed);
}

bool pairs(const po::variables_map& map, const char* option, std::map<std::string, std::string>* out,
           std::string* error) {
  if (map.count(option) == 0) return true;
  for (const auto& text : map[option].as<std::vector<std::string>>()) {
    const size_t eq = text.find('=');
    if (eq == std::string::npos || eq == 0 || eq + 1 == text.size()) {
      *error = std::string("user error: --") + option + " '" + text + "' is not name=file.npy";
      return false;
    }
    if (!out->emplace(text.substr(0, eq), text.substr(eq + 1)).second) {
      *error = std::string("user error: --") + option + " " + text.substr(0, eq) + " is given twice";
      return false;
    }
  }
  return true;
}

std::string time_text(double ns) {
  char text[32];
  const char* unit = ns < 1e3 ? "ns" : ns < 1e6 ? "us" : ns < 1e9 ? "ms" : "s";
  const double scale = ns < 1e3 ? 1 : ns < 1e6 ? 1e3 : ns < 1e9 ? 1e6 : 1e9;
  std::snprintf(text, sizeof text, "%.4g %s", ns / scale, unit);
  return text;
}

void print_report(const std::string& json_text) {
  namespace json = boost::json;
  const json::object r = json::parse(json_text).as_object();
  const double total = r.at("simulated_ns").to_number<double>();
  const auto& config = r.at("config").as_object();
  std::cout << "configuration   " << config.at("name").as_string().c_str() << ", mode "
            << r.at("mode").as_string().c_str() << '\n';
  for (const auto& o : config.at("overrides").as_array())
    std::cout << "override        " << o.as_string().c_str() << '\n';
  const double band = r.at("error_band").as_object().at("relative").to_number<double>();
  std::cout << "simulated time  " << time_text(total) << " (+-" << static_cast<int>(std::lround(100 * band))
            << " %)\n"
            << "instructions    " << r.at("instructions").to_number<int64_t>() << '\n';
  for (const auto& [name, e] : r.at("engines").as_object()) {
    const double busy = e.as_object().at("busy_ns").to_number<double>();
    std::printf("%-15s %s busy, %.1f %%\n", std::string(name).c_str(), time_text(busy).c_str(),
                100 * e.as_object().at("utilisation").to_number<double>());
  }
  const auto& dma = r.at("dma").as_object();
  std::printf("dma             %s busy, %lld bytes read, %lld written, %lld descriptors\n",
              time_text(dma.at("busy_ns").to_number<double>()).c_str(),
              static_cast<long long>(dma.at("bytes_read").to_number<int64_t>()),
              static_cast<long long>(dma.at("bytes_written").to_number<int64_t>()),
              static_cast<long long>(dma.at("descriptors").to_number<int64_t>()));
  if (const auto& cores = r.at("physical_cores").as_array(); cores.size() > 1) {
    for (const auto& item : cores) {
      const auto& core = item.as_object();
      std::printf("core %-10lld", static_cast<long long>(core.at("core").to_number<int64_t>()));
      for (const auto& [name, e] : core.at("engines").as_object())
        std::printf(" %s %.1f %%", std::string(name).c_str(),
                    100 * e.as_object().at("utilisation").to_number<double>());
      std::printf(" dma %.1f %%\n", 100 * core.at("dma_busy_ns").to_number<double>() /
                                        std::max(core.at("simulated_ns").to_number<double>(), 1e-9));
    }
  }
  for (const auto& w : r.at("warnings").as_array())
    std::cout << "warning         " << w.as_string().c_str() << '\n';
  std::cout << "bound           " << r.at("roofline").as_object().at("bound").as_string().c_str() << '\n';
}

int check_names(const isa::Program& program, const std::map<std::string, std::string>& files,
                isa::TensorKind kind, const char* option) {
  for (const auto& [name, file] : files) {
    const bool known = std::any_of(program.tensors.begin(), program.tensors.end(),
                                   [&, n = name](const auto& t) { return t.kind == kind && t.name == n; });
    if (known) continue;
    std::string names;
    for (const auto& t : program.tensors)
      if (t.kind == kind) names += (names.empty() ? "" : ", ") + t.name;
    return complain(std::string("user error: --") + option + " " + name + "=" + file +
                        ": the program has no such " + option + "; it has " +
                        (names.empty() ? "none" : names),
                    kUsage);
  }
  return kGood;
}

// Binds every input and output, from files or (timing only, or outputs nobody wants) from fresh memory.
int bind_tensors(const isa::Program& program, const std::map<std::string, std::string>& inputs, bool data,
                 nrt_tensor_set_t* in, nrt_tensor_set_t* out, std::map<std::string, nrt_tensor_t*>* tensors) {
  for (const auto& t : program.tensors) {
    if (t.kind != isa::TensorKind::kInput && t.kind != isa::TensorKind::kOutput) continue;
    if (t.bytes == 0) continue;
    nrt_tensor_t* tensor = nullptr;
    NRT_STATUS s = nrt_tensor_allocate(NRT_TENSOR_PLACEMENT_DEVICE, 0, t.bytes, t.name.c_str(), &tensor);
    if (s != NRT_SUCCESS) return failed("tensor " + t.name, s);
    (*tensors)[t.name] = tensor;
    if (t.kind == isa::TensorKind::kInput) {
      const auto file = inputs.find(t.name);
      if (file == inputs.end()) {
        if (data)
          return complain("user error: input '" + t.name + "' (" + std::string(isa::dtype_name(t.dtype)) +
                              ") has no value; give --input " + t.name +
                              "=file.npy, or --mode time for the time alone",
                          kUsage);
      } else {
        Array array;
        std::string error;
        std::vector<uint8_t> bytes;
        if (!read_npy(file->second, &array, &error)) return complain(error, kUsage);
        if (!to_tensor(array, t.dtype, t.shape, &bytes, &error))
          return complain("user error: " + file->second + " for input '" + t.name + "': " + error, kUsage);
        s = nrt_tensor_write(tensor, bytes.data(), 0, std::min<size_t>(bytes.size(), t.bytes));
        if (s != NRT_SUCCESS) return failed("input " + t.name, s);
      }
    }
    s = nrt_add_tensor_to_tensor_set(t.kind == isa::TensorKind::kInput ? in : out, t.name.c_str(), tensor);
    if (s != NRT_SUCCESS) return failed("binding " + t.name, s);
  }
  return kGood;
}

}  // namespace

int run_verb(const Arguments& arguments) {
  using Texts = std::vector<std::string>;
  po::options_description options("options");
  options.add_options()("file", po::value<std::string>()->required(), "program (.trnp or .trnasm)")(
      "config", po::value<std::string>(), "configuration: name or file")(
      "set", po::value<Texts>()->composing(), "key=value, repeatable")("mode", po::value<std::string>(),
                                                                       "both, data or time")(
      "check", po::value<std::string>(), "pedantic, strict, warn or off: checks of the program")(
      "json", po::value<std::string>(), "file for the report; - is the standard output, alone")(
      "input", po::value<Texts>()->composing(), "name=file.npy, repeatable")(
      "output", po::value<Texts>()->composing(), "name=file.npy, repeatable")(
      "repeat", po::value<int>()->default_value(1), "runs of the program")("quiet,q",
                                                                           "no report on the terminal");
  po::positional_options_description positional;
  positional.add("file", 1);
  int code = kGood;
  const auto map = parse(arguments, "run FILE [--input name=file.npy] [--output name=file.npy]", options,
                         positional, &code);
  if (!map) return code;

  std::string error;
  std::map<std::string, std::string> inputs, outputs;
  if (!pairs(*map, "input", &inputs, &error) || !pairs(*map, "output", &outputs, &error))
    return complain(error, kUsage);
  const std::string json_file = map->count("json") != 0 ? (*map)["json"].as<std::string>() : "";
  const bool json_only = json_file == "-";
  if (map->count("json") != 0 && !json_only && !check_output(json_file, runtime::Replaces::kReport, &error))
    return complain(error, kUsage);
  for (const auto& [name, file] : outputs)
    if (!check_output(file, runtime::Replaces::kArray, &error)) return complain(error, kUsage);
  const int repeat = (*map)["repeat"].as<int>();
  if (repeat < 1) return complain("user error: --repeat " + std::to_string(repeat) + "; at least 1", kUsage);
  const std::string file_name = (*map)["file"].as<std::string>();
  std::optional<Progress> progress("reading " + file_name);
  isa::Program program;
  code = read_program_file(file_name, &program);
  if (code == kGood) code = check_names(program, inputs, isa::TensorKind::kInput, "input");
  if (code == kGood) code = check_names(program, outputs, isa::TensorKind::kOutput, "output");
  if (code != kGood) return code;

  std::string overrides;
  if (map->count("set") != 0)
    for (const auto& s : (*map)["set"].as<Texts>()) overrides += (overrides.empty() ? "" : ",") + s;
  const auto text = [&](const char* name) {
    return map->count(name) == 0 ? nullptr : (*map)[name].as<std::string>().c_str();
  };
  const std::string mode = map->count("mode") == 0 ? "" : (*map)["mode"].as<std::string>();
  if (trnsim_configure(text("config"), overrides.empty() ? nullptr : overrides.c_str(), text("mode"),
                       text("check")) != NRT_SUCCESS)
    return complain(trnsim_last_error(), kUsage);
  NRT_STATUS s = nrt_init(NRT_FRAMEWORK_TYPE_NO_FW, "", "");
  if (s != NRT_SUCCESS) return failed("starting the chip", s);
  const Session session;
  const bool data = boost::json::parse(trnsim_config_json()).as_object().at("mode") != "time";
  if (!data && !outputs.empty())
    return complain("user error: --output with mode time, which computes no values; use mode both or data",
                    kUsage);

  const std::vector<uint8_t> container = isa::write_container(program);
  nrt_model_t* model = nullptr;
  s = nrt_load(container.data(), container.size(), 0, 1, &model);
  if (s != NRT_SUCCESS) return failed(file_name, s);
  nrt_tensor_set_t* in = nullptr;
  nrt_tensor_set_t* out = nullptr;
  nrt_allocate_tensor_set(&in);
  nrt_allocate_tensor_set(&out);
  std::map<std::string, nrt_tensor_t*> tensors;
  code = bind_tensors(program, inputs, data, in, out, &tensors);
  if (code != kGood) return code;
  for (int i = 0; i < repeat; ++i) {
    progress->step("running " + program.name +
                   (repeat == 1 ? "" : ", " + std::to_string(i + 1) + " of " + std::to_string(repeat)));
    s = nrt_execute(model, in, out);
    if (s == NRT_EXEC_COMPLETED_WITH_NUM_ERR && i == 0)
      complain(std::string("warning: ") + trnsim_last_error(), kGood);
    if (s != NRT_SUCCESS && s != NRT_EXEC_COMPLETED_WITH_NUM_ERR) return failed("running " + program.name, s);
  }
  for (const auto& t : program.tensors) {
    const auto file = t.kind == isa::TensorKind::kOutput ? outputs.find(t.name) : outputs.end();
    if (file == outputs.end()) continue;
    size_t elements = 1;
    for (int64_t d : t.shape) elements *= static_cast<size_t>(d);
    std::vector<uint8_t> bytes(std::min<size_t>(elements * isa::dtype_bytes(t.dtype), t.bytes));
    if (!bytes.empty()) s = nrt_tensor_read(tensors.at(t.name), bytes.data(), 0, bytes.size());
    if (s != NRT_SUCCESS && s != NRT_EXEC_COMPLETED_WITH_NUM_ERR) return failed("output " + t.name, s);
    if (!write_npy(file->second, from_tensor(bytes, t.dtype, t.shape), &error))
      return complain(error, kFailed);
  }
  progress.reset();
  const std::string report = trnsim_report_json();
  if (json_only) {
    std::cout << report << '\n';
    return kGood;
  }
  const std::string line = report + '\n';
  if (!json_file.empty() && !write_file(json_file, {line.begin(), line.end()}, &error))
    return complain(error, kFailed);
  if (map->count("quiet") == 0) print_report(report);
  return kGood;
}

}  // namespace trnsim::native
