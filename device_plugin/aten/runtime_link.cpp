#include "device_plugin/aten/runtime_link.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <pthread.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdlib>
#include <mutex>

#include "device_plugin/aten/api.h"

namespace trnsim::aten {
namespace {

std::string own_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&own_folder), &info) == 0 || info.dli_fname == nullptr) return ".";
  std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

void* open_library(const char* name) {
  const std::string path = own_folder() + "/" + name;
  // In a program that links LibTorch its symbols (another oneDNN) come before those of the simulator's own libraries.
  const int own_symbols = interpreter() == nullptr ? RTLD_DEEPBIND : 0;
  // Constructors of the library run here; they must be cheap (no simulator start).
  void* handle = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL | own_symbols);
  TORCH_CHECK(handle != nullptr, "trnsim: cannot open the native library ", path, ": ", dlerror(),
              ". The installation is incomplete; build and install trnsim again.");
  return handle;
}

template <typename Function>
void resolve(void* handle, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(handle, name));
  TORCH_CHECK(function != nullptr, "trnsim: libnrt.so.1 lacks the symbol ", name,
              ". Library and plugin are of different versions; install trnsim again.");
}

Nrt open_nrt() {
  void* handle = open_library("libnrt.so.1");
  Nrt table{};
#define TRNSIM_RESOLVE(name) resolve(handle, #name, table.name)
  TRNSIM_RESOLVE(nrt_init);
  TRNSIM_RESOLVE(nrt_close);
  TRNSIM_RESOLVE(nrt_get_visible_vnc_count);
  TRNSIM_RESOLVE(nrt_get_status_as_str);
  TRNSIM_RESOLVE(nrt_tensor_allocate);
  TRNSIM_RESOLVE(nrt_tensor_free);
  TRNSIM_RESOLVE(nrt_tensor_allocate_slice);
  TRNSIM_RESOLVE(nrt_tensor_read);
  TRNSIM_RESOLVE(nrt_tensor_write);
  TRNSIM_RESOLVE(nrt_tensor_get_va);
  TRNSIM_RESOLVE(nrt_allocate_tensor_set);
  TRNSIM_RESOLVE(nrt_destroy_tensor_set);
  TRNSIM_RESOLVE(nrt_add_tensor_to_tensor_set);
  TRNSIM_RESOLVE(nrt_load);
  TRNSIM_RESOLVE(nrt_unload);
  TRNSIM_RESOLVE(nrt_execute);
  TRNSIM_RESOLVE(trnsim_configure);
  TRNSIM_RESOLVE(trnsim_last_error);
  TRNSIM_RESOLVE(trnsim_simulated_ps);
  TRNSIM_RESOLVE(trnsim_report_json);
  TRNSIM_RESOLVE(trnsim_reset_report);
  TRNSIM_RESOLVE(trnsim_config_json);
  TRNSIM_RESOLVE(trnsim_hbm_bytes);
#undef TRNSIM_RESOLVE
  return table;
}

constexpr int kNrtFrameworkNone = 1;  // a host program without Python

std::mutex state_mutex;
std::atomic<bool> is_initialized{false};

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// The value of a key in the runtime's JSON, which is our own and flat where it matters here: a
// string or a number as it stands, empty where the key is missing.
std::string json_value(const std::string& json, const std::string& key) {
  const size_t at = json.find("\"" + key + "\"");
  if (at == std::string::npos) return {};
  const size_t begin = json.find_first_not_of(" \n\t", json.find(':', at) + 1);
  if (begin == std::string::npos) return {};
  if (json[begin] != '"') return json.substr(begin, json.find_first_of(",} \n\t", begin) - begin);
  return json.substr(begin + 1, json.find('"', begin + 1) - begin - 1);
}

}  // namespace

const Nrt& nrt() {
  static const Nrt table = open_nrt();
  return table;
}

const compiler::Compiler& compiler_library() {
  static const compiler::Compiler* library = [] {
    using Entry = compiler::Compiler* (*)();
    void* handle = open_library("libtrnsim_compiler.so");
    auto entry = reinterpret_cast<Entry>(dlsym(handle, "trnsim_compiler"));
    TORCH_CHECK(entry != nullptr, "trnsim: libtrnsim_compiler.so lacks the symbol trnsim_compiler");
    return entry();
  }();
  return *library;
}

void configure(const std::string& config, const std::string& overrides, const std::string& mode,
               const std::string& check) {
  std::lock_guard lock(state_mutex);
  TORCH_CHECK(
      !is_initialized.load(),
      "user error: trnsim.configure() was called after the neuron device had been used; the simulated chip "
      "is built at first use. Call configure() before the first tensor on the device, or set TRNSIM_CONFIG, "
      "TRNSIM_SET, TRNSIM_MODE and TRNSIM_CHECK.");
  auto text = [](const std::string& s) { return s.empty() ? nullptr : s.c_str(); };
  const NrtStatus status = nrt().trnsim_configure(text(config), text(overrides), text(mode), text(check));
  TORCH_CHECK_VALUE(status == kNrtSuccess, nrt().trnsim_last_error());
}

void ensure_initialized() {
  if (is_initialized.load(std::memory_order_acquire)) return;
  std::lock_guard lock(state_mutex);
  if (is_initialized.load()) return;
  const Nrt& library = nrt();
  const std::string version = std::to_string(TORCH_VERSION_MAJOR) + "." + std::to_string(TORCH_VERSION_MINOR);
  // With an interpreter the Python side ends the device and writes the report; else the runtime does, at the exit.
  const bool has_interpreter = interpreter() != nullptr;
  check(
      library.nrt_init(has_interpreter ? kNrtFrameworkPytorch : kNrtFrameworkNone, version.c_str(), "trnsim"),
      "starting the neuron device");
  if (!has_interpreter) std::atexit(&api::shutdown);
  static std::once_flag fork_handler;
  std::call_once(fork_handler, [] { pthread_atfork(nullptr, nullptr, &DeviceUse::note_fork_in_child); });
  is_initialized.store(true, std::memory_order_release);
}

bool initialized() { return is_initialized.load(std::memory_order_acquire); }
void close() {
  std::lock_guard lock(state_mutex);
  if (is_initialized.load()) nrt().nrt_close();
}

namespace {

struct Devices {
  int count = 0;
  std::string problem;
};

Devices find_devices() noexcept {
  Devices found;
  try {
    uint32_t count = 0;
    const NrtStatus status = nrt().nrt_get_visible_vnc_count(&count);
    if (status != kNrtSuccess) {
      found.problem = describe(status);
    } else if (count == 0) {
      found.problem =
          "user error: NEURON_RT_VISIBLE_CORES, NEURON_RT_NUM_CORES or the configuration leaves this process "
          "without a core";
    }
    // c10::DeviceIndex is 8 bits wide: what lies beyond cannot be named by a PyTorch process.
    if (status == kNrtSuccess) found.count = static_cast<int>(std::min<uint32_t>(count, 127));
  } catch (const c10::Error& e) {
    found.problem = e.what_without_backtrace();
  } catch (const std::exception& e) {
    found.problem = e.what();
  }
  return found;
}

}  // namespace

int device_count() { return find_devices().count; }

std::string device_problem() { return find_devices().problem; }

void report_device_problem() {
  static std::atomic<bool> reported{false};
  if (reported.load(std::memory_order_relaxed)) return;
  const std::string problem = device_problem();
  if (!problem.empty() && !reported.exchange(true)) TORCH_WARN("no neuron device is available: ", problem);
}

const std::string& target() {
  static const std::string name = [] {
    const std::string named = json_value(nrt().trnsim_config_json(), "target");
    return named.empty() ? std::string("trn2") : named;
  }();
  return name;
}

int physical_cores() {
  static const int cores = json_value(nrt().trnsim_config_json(), "logical_core_size") == "2" ? 2 : 1;
  return cores;
}

bool time_only() {
  static const bool value = json_value(nrt().trnsim_config_json(), "mode") == "time";
  return value;
}

bool launch_blocking() {
  static const bool value = env_flag("NEURON_LAUNCH_BLOCKING", false);
  return value;
}

std::string describe(NrtStatus status) {
  std::string text = nrt().nrt_get_status_as_str(status);
  const char* words = nrt().trnsim_last_error();
  if (words != nullptr && *words != 0) text = std::string(words) + " [" + text + "]";
  return text;
}

void check(NrtStatus status, const char* what) {
  TORCH_CHECK(status == kNrtSuccess, "neuron: ", what, " failed: ", describe(status));
}

bool env_flag(const char* name, bool otherwise) {
  const char* variable = std::getenv(name);
  if (variable == nullptr || *variable == 0) return otherwise;
  const std::string value = lower_case(variable);
  const bool on = value == "1" || value == "true";
  TORCH_CHECK_VALUE(on || value == "0" || value == "false", "user error: ", name, "=", variable,
                    " is not a flag; use 0, 1, true or false.");
  return on;
}

}  // namespace trnsim::aten
