// State of the runtime library: one per process, from nrt_init to nrt_close.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "sim/driver/driver.h"
#include "sim/runtime/objects.h"
#include "sim/runtime/settings.h"

namespace trnsim::runtime {

struct Totals : chip::CoreStats {
  int64_t simulated_ps = 0;
  int64_t physical_ps = 0;  // of the physical cores that programs ran on, together
  int64_t launches = 0;
  int64_t memo_hits = 0;
  int64_t memo_misses = 0;
  uint64_t flops = 0;
  uint64_t bytes = 0;  // algorithmic HBM traffic
  // By physical core of the logical core.
  std::array<chip::CoreStats, isa::kMaxCores> of_core{};
  std::array<int64_t, isa::kMaxCores> of_core_ps{};
};

// One logical core: its compute queue and what has run on it.
struct LogicalCore {
  std::mutex queue;  // held while a program runs: a core runs one program at a time
  int physical = 0;  // first physical core of the machine; programs for one core run there
  std::vector<Model*> models;
  driver::Allocation scratch;  // shared by the models of this core, sized by the largest
  std::vector<chip::Binding> bindings;
  Totals totals;
  std::map<std::string, ProgramTotals> unloaded;  // by program name, of models that are gone
  std::atomic<int64_t> simulated_ps{0};           // since nrt_init; what trnsim_simulated_ps gives
  std::atomic<bool> dead{false};                  // a hardware fault: until the next nrt_init
};

struct Runtime {
  Settings settings;
  nrt_framework_type_t framework = NRT_FRAMEWORK_TYPE_NO_FW;
  std::unique_ptr<driver::Driver> driver;
  std::vector<std::unique_ptr<LogicalCore>> cores;
  std::chrono::steady_clock::time_point report_start;
  std::mutex warnings_mutex;
  std::vector<std::string> warnings;
  std::atomic<uint32_t> next_model_id{1};

  bool warn(const std::string& text);  // for the report; false when it is there already
};

enum class State : uint8_t { kUninitialized, kInitialized, kClosed };
extern std::atomic<State> g_state;
extern Runtime* g_runtime;  // valid while g_state is kInitialized

// The tables outlive nrt_close, so that a stale handle stays recognisable.
TensorTable& tensors();
TensorSetTable& tensor_sets();
ModelTable& models();

// SUCCESS, or UNINITIALIZED / CLOSED with a text.
NRT_STATUS not_ready(const char* function);
inline bool ready() { return g_state.load(std::memory_order_acquire) == State::kInitialized; }
#define TRNSIM_REQUIRE_INIT() \
  if (!::trnsim::runtime::ready()) return ::trnsim::runtime::not_ready(__func__)

// Settings before nrt_init: read once, again after trnsim_configure.
bool current_settings(Settings* out, std::string* error);

NRT_STATUS from_driver(const driver::Status& status);

// Tensor life cycle, shared by the blocking and the async calls.
void drop_storage(Storage* storage);
NRT_STATUS bad_handle(const char* function, const char* what);

// Runs a model that is bound by `inputs` and `outputs`.
NRT_STATUS execute(nrt_model_t* model, const nrt_tensor_set_t* inputs, nrt_tensor_set_t* outputs);
void destroy_model(LogicalCore& core, Model* model);

// Hooks of the trace and of the profiler; called with the queue of the core held.
struct ExecutionRecord {
  const Model* model = nullptr;
  uint32_t vnc = 0;
  int64_t start_ps = 0;  // simulated
  const chip::LaunchResult* result = nullptr;
  NRT_STATUS status = NRT_SUCCESS;
};
extern std::atomic<bool> g_observe_executions;
void observe_execution(const ExecutionRecord& record);

// nrt_close: async queues drain, traces end.
void close_async();
void close_traces();

std::string report_json();
void reset_report();
void write_report_file();

}  // namespace trnsim::runtime
