#include "sim/runtime/runtime.h"

#include <algorithm>
#include <utility>

#include "sim/runtime/trnsim_ext.h"

namespace trnsim::runtime {

std::atomic<State> g_state{State::kUninitialized};
Runtime* g_runtime = nullptr;
std::atomic<bool> g_observe_executions{false};

// Leaked on purpose: the host program may free tensors from its own static destructors.
TensorTable& tensors() {
  static TensorTable* const table = new TensorTable;
  return *table;
}
TensorSetTable& tensor_sets() {
  static TensorSetTable* const table = new TensorSetTable;
  return *table;
}
ModelTable& models() {
  static ModelTable* const table = new ModelTable;
  return *table;
}

namespace {

std::mutex g_init_mutex;  // init, close, configure
Request g_request;
std::optional<Settings> g_settings;  // cache of what the request and the environment say

bool settings_locked(Settings* out, std::string* error) {
  if (!g_settings) {
    Settings s;
    if (!read_settings(g_request, &s, error)) return false;
    g_settings = std::move(s);
  }
  *out = *g_settings;
  return true;
}

}  // namespace

bool Runtime::warn(const std::string& text) {
  const std::lock_guard lock(warnings_mutex);
  if (std::find(warnings.begin(), warnings.end(), text) != warnings.end()) return false;
  warnings.push_back(text);
  return true;
}

NRT_STATUS not_ready(const char* function) {
  if (g_state.load() == State::kClosed)
    return fail(NRT_CLOSED,
                std::string("user error: ") + function + " after nrt_close; call nrt_init again first");
  return fail(NRT_UNINITIALIZED, std::string("user error: ") + function + " before nrt_init");
}

NRT_STATUS bad_handle(const char* function, const char* what) {
  return fail(NRT_INVALID_HANDLE, std::string("user error: ") + function + ": the " + what +
                                      " is no valid handle (never made, freed, or made before nrt_close)");
}

NRT_STATUS from_driver(const driver::Status& status) {
  using driver::Code;
  switch (status.code) {
    case Code::kOk:
      return NRT_SUCCESS;
    case Code::kNoMemory:
    case Code::kBusy:
      return fail(NRT_RESOURCE, status.message);
    case Code::kNotEnough:
      return fail(NRT_LOAD_NOT_ENOUGH_NC, status.message);
    case Code::kInvalid:
      return fail(NRT_INVALID, status.message);
    case Code::kNotFound:
      return fail(NRT_FAILURE, status.message);
    case Code::kIo:
      return fail(NRT_FAILURE, status.message);
  }
  return fail(NRT_FAILURE, status.message);
}

bool current_settings(Settings* out, std::string* error) {
  const std::lock_guard lock(g_init_mutex);
  if (g_state.load() == State::kInitialized) {
    *out = g_runtime->settings;
    return true;
  }
  return settings_locked(out, error);
}

static NRT_STATUS initialize(nrt_framework_type_t framework) {
  std::string error;
  Settings settings;
  g_settings.reset();  // the environment may have changed since the last look
  if (!settings_locked(&settings, &error)) return fail(NRT_INVALID, error);
  set_log(settings.log_level, settings.log_location);

  auto runtime = std::make_unique<Runtime>();
  driver::Options options;
  options.machine = settings.machine;
  options.mode = settings.mode;
  options.shared = settings.shared_machine;
  options.run_dir = settings.run_dir;
  options.process_tag = settings.process_tag;
  options.poison = settings.poison;
  options.make_chip = [config = settings.config, mode = settings.mode, memo = settings.memo,
                       check = settings.check] {
    auto chip = chip::make_device(config, mode);
    if (chip != nullptr && check != check::Level::kOff) chip->set_watcher(check::make_watcher(check, config));
    if (chip != nullptr && !memo) chip->set_memo(false);
    return chip;
  };
  if (auto s = driver::Driver::open(std::move(options), &runtime->driver); !s.ok()) return from_driver(s);
  if (auto s = runtime->driver->faults().parse(settings.faults); !s.ok()) return from_driver(s);

  const int lnc = settings.logical_core_size;
  int first = settings.first_core * lnc;
  driver::Status claim;
  if (settings.explicit_range) {
    claim = runtime->driver->claim_range(first, settings.core_count * lnc);
  } else {
    claim = runtime->driver->claim_free(settings.core_count * lnc, lnc, &first);
  }
  if (!claim.ok()) {
    // The public documents name no code for a core that another process holds; RESOURCE says it best.
    return fail(claim.code == driver::Code::kInvalid ? NRT_INVALID : NRT_RESOURCE,
                "logical cores asked for: " + std::to_string(settings.core_count) + ". " + claim.message);
  }
  for (int i = 0; i < settings.core_count; ++i) {
    auto core = std::make_unique<LogicalCore>();
    core->physical = first + i * lnc;
    runtime->cores.push_back(std::move(core));
  }
  runtime->settings = std::move(settings);
  runtime->framework = framework;
  runtime->report_start = std::chrono::steady_clock::now();
  delete g_runtime;
  g_runtime = runtime.release();
  g_state.store(State::kInitialized, std::memory_order_release);
  if (log_enabled(LogLevel::kInfo))
    log(LogLevel::kInfo,
        "initialised: " + std::to_string(g_runtime->cores.size()) + " logical cores from physical core " +
            std::to_string(first) + ", configuration " + g_runtime->settings.config.name + ", mode " +
            mode_name(g_runtime->settings.mode) + ", run directory " + g_runtime->driver->run_dir());
  return NRT_SUCCESS;
}

static void shut_down() {
  close_async();
  close_traces();
  write_report_file();
  g_state.store(State::kClosed, std::memory_order_release);
  Runtime& r = *g_runtime;
  // Whoever runs a program right now ends first.
  std::vector<std::unique_lock<std::mutex>> queues;
  for (auto& c : r.cores) queues.emplace_back(c->queue);
  models().release_all([](ModelSlot& slot) { slot.model = nullptr; });
  for (auto& c : r.cores)
    while (!c->models.empty()) destroy_model(*c, c->models.back());
  tensor_sets().release_all([](TensorSet& set) { set.clear(); });
  tensors().release_all([](Tensor& tensor) {
    if (tensor.storage != nullptr) drop_storage(tensor.storage);
    tensor.storage = nullptr;
  });
  for (auto& c : r.cores) r.driver->free(c->scratch);
  queues.clear();
  r.driver.reset();  // claims and counters go with it
}

}  // namespace trnsim::runtime

using namespace trnsim::runtime;  // NOLINT: the C functions below belong to it

extern "C" {

NRT_STATUS nrt_init(nrt_framework_type_t framework, const char*, const char*) {
  const std::lock_guard lock(g_init_mutex);
  if (framework <= NRT_FRAMEWORK_TYPE_INVALID || framework > NRT_FRAMEWORK_TYPE_PRECHECK)
    return fail(NRT_INVALID,
                "user error: nrt_init: framework type " + std::to_string(framework) + " is unknown");
  if (g_state.load() == State::kInitialized)
    return fail(NRT_FAILURE, "user error: nrt_init twice; call nrt_close in between");
  try {
    return initialize(framework);
  } catch (const std::exception& e) {
    return fail(NRT_FAILURE, std::string("nrt_init: ") + e.what());
  }
}

void nrt_close(void) {
  const std::lock_guard lock(g_init_mutex);
  if (g_state.load() != State::kInitialized) return;
  shut_down();
}

int trnsim_configure(const char* config, const char* overrides, const char* mode, const char* check) {
  const std::lock_guard lock(g_init_mutex);
  if (g_state.load() == State::kInitialized)
    return fail(NRT_INVALID,
                "user error: trnsim_configure after nrt_init; configure before the first use of the device");
  const auto set = [](std::optional<std::string>* to, const char* text) {
    if (text == nullptr) return;
    if (*text == '\0')
      to->reset();  // back to the environment
    else
      *to = text;
  };
  Request request = g_request;
  set(&request.config, config);
  set(&request.overrides, overrides);
  set(&request.mode, mode);
  set(&request.check, check);
  Settings settings;
  std::string error;
  if (!read_settings(request, &settings, &error)) return fail(NRT_INVALID, error);
  g_request = std::move(request);
  g_settings = std::move(settings);
  return NRT_SUCCESS;
}

const char* trnsim_last_error(void) { return last_error(); }

}  // extern "C"
