// System trace and per-model profile: both observe executions. Times in events are simulated nanoseconds of
// the core.
#include <boost/json.hpp>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "isa/utf8.h"
#include "sim/runtime/handles.h"
#include "sim/runtime/log.h"
#include "sim/runtime/output_file.h"
#include "sim/runtime/runtime.h"

// The opaque types of the ABI.
struct nrt_sys_trace_config {
  uint64_t max_events_per_nc = 1000000;
  std::set<uint32_t> disabled_cores;
  std::set<std::string> disabled_types;
};
struct nrt_sys_trace_fetch_options {
  uint64_t max_events_per_nc = UINT64_MAX;
  int64_t nc = -1;  // all
};

namespace trnsim::runtime {
namespace {

namespace json = boost::json;

const char* const kEventTypes[] = {"nc_exec_running", "cc_running",       "cc_exec_barrier",
                                   "numerical_err",   "nrt_model_switch", "timestamp_sync_point",
                                   "hw_notify"};

bool known_type(const char* type) {
  for (const char* t : kEventTypes)
    if (std::strcmp(t, type) == 0) return true;
  return false;
}

struct Event {
  const char* type;
  const char* phase;
  uint64_t tracking_id;
  double timestamp_ns;
  std::string model;
};

struct Trace {
  bool running = false;
  nrt_sys_trace_config config;
  std::vector<std::deque<Event>> events;  // by logical core
  uint64_t next_id = 1;
};

struct Profile {
  bool running = false;
  uint32_t model_id = 0;
  std::string model_name;
  std::vector<json::object> executions;
};

// One mutex is enough: it is taken only while a session is open.
std::mutex g_mutex;
Trace g_trace;
Profile g_profile;

template <class T>
class ObjectSet {
 public:
  T* make() {
    const std::lock_guard lock(mutex_);
    return *objects_.insert(new T).first;
  }
  bool alive(const T* p) {
    const std::lock_guard lock(mutex_);
    return objects_.count(const_cast<T*>(p)) != 0;
  }
  bool destroy(T* p) {
    const std::lock_guard lock(mutex_);
    if (objects_.erase(p) == 0) return false;
    delete p;
    return true;
  }

 private:
  std::mutex mutex_;
  std::set<T*> objects_;
};
// Leaked on purpose, as the tables of handles are: a static destructor of the host program may free what it holds.
auto& g_configs = *new ObjectSet<nrt_sys_trace_config>;
auto& g_fetch_options = *new ObjectSet<nrt_sys_trace_fetch_options>;
auto& g_type_lists = *new HandedOut;
auto& g_event_buffers = *new HandedOut;

void update_observing() { g_observe_executions = g_trace.running || g_profile.running; }

void push(uint32_t vnc, Event event) {
  if (g_trace.config.disabled_types.count(event.type) != 0) return;
  auto& queue = g_trace.events[vnc];
  if (queue.size() >= g_trace.config.max_events_per_nc) queue.pop_front();  // the newest are kept
  queue.push_back(std::move(event));
}

NRT_STATUS type_list(const char* function, const std::set<std::string>& without, const char*** types,
                     size_t* count) {
  if (types == nullptr || count == nullptr)
    return fail(NRT_INVALID, std::string("user error: ") + function + ": NULL");
  *types = static_cast<const char**>(std::calloc(std::size(kEventTypes), sizeof(char*)));
  *count = 0;
  if (*types == nullptr) return fail(NRT_RESOURCE, std::string(function) + ": the host has no memory left");
  for (const char* t : kEventTypes)
    if (without.count(t) == 0) (*types)[(*count)++] = t;
  g_type_lists.add(*types);
  return NRT_SUCCESS;
}

double to_ns(int64_t ps) { return static_cast<double>(ps) / 1000.0; }

}  // namespace

void observe_execution(const ExecutionRecord& record) {
  const std::lock_guard lock(g_mutex);
  const double start = to_ns(record.start_ps);
  const double stop = to_ns(record.start_ps + record.result->stats.total_ps);
  if (g_trace.running && g_trace.config.disabled_cores.count(record.vnc) == 0) {
    const uint64_t id = g_trace.next_id++;
    push(record.vnc, {"nc_exec_running", "start", id, start, record.model->name});
    push(record.vnc, {"nc_exec_running", "stop", id, stop, record.model->name});
    if (record.status == NRT_EXEC_COMPLETED_WITH_NUM_ERR)
      push(record.vnc, {"numerical_err", "instant", id, stop, record.model->name});
  }
  if (g_profile.running && g_profile.model_id == record.model->id) {
    const chip::LaunchStats& s = record.result->stats;
    json::object o{{"nc_idx", record.vnc},        {"status", nrt_get_status_as_str(record.status)},
                   {"start_ns", start},           {"end_ns", stop},
                   {"duration_ns", stop - start}, {"instructions", s.instructions},
                   {"from_memo", s.from_memo}};
    constexpr const char* kEngines[] = {"tensor", "vector", "scalar", "gpsimd", "sync"};
    json::object busy;
    for (size_t e = 0; e < s.engines.size(); ++e) busy[kEngines[e]] = to_ns(s.engines[e].busy_ps);
    o["engine_busy_ns"] = std::move(busy);
    o["dma"] = json::object{{"bytes_read", s.dma_bytes_read},
                            {"bytes_written", s.dma_bytes_written},
                            {"descriptors", s.dma_descriptors},
                            {"busy_ns", to_ns(s.dma_busy_ps)}};
    g_profile.executions.push_back(std::move(o));
  }
}

void close_traces() {
  const std::lock_guard lock(g_mutex);
  g_trace.running = false;
  g_trace.events.clear();
  g_profile = {};
  update_observing();
}

}  // namespace trnsim::runtime

using namespace trnsim::runtime;  // NOLINT

extern "C" {

// --- trace configuration
// ----------------------------------------------------------------------------------------------

NRT_STATUS nrt_sys_trace_config_allocate(nrt_sys_trace_config_t** config) {
  if (config == nullptr)
    return fail(NRT_INVALID, "user error: nrt_sys_trace_config_allocate: config is NULL");
  *config = g_configs.make();
  return NRT_SUCCESS;
}

void nrt_sys_trace_config_free(nrt_sys_trace_config_t* config) {
  if (!g_configs.destroy(config)) bad_handle("nrt_sys_trace_config_free", "config");
}

void nrt_sys_trace_config_set_defaults(nrt_sys_trace_config_t* config) {
  if (!g_configs.alive(config))
    bad_handle("nrt_sys_trace_config_set_defaults", "config");
  else
    *config = {};
}

NRT_STATUS nrt_sys_trace_config_set_max_events_per_nc(nrt_sys_trace_config_t* config, uint64_t max_events) {
  if (!g_configs.alive(config)) return bad_handle("nrt_sys_trace_config_set_max_events_per_nc", "config");
  if (max_events == 0) return fail(NRT_INVALID, "user error: a trace of 0 events per core");
  config->max_events_per_nc = max_events;
  return NRT_SUCCESS;
}

NRT_STATUS nrt_sys_trace_config_set_capture_enabled_for_nc(nrt_sys_trace_config_t* config, uint32_t nc,
                                                           bool enabled) {
  if (!g_configs.alive(config))
    return bad_handle("nrt_sys_trace_config_set_capture_enabled_for_nc", "config");
  if (enabled)
    config->disabled_cores.erase(nc);
  else
    config->disabled_cores.insert(nc);
  return NRT_SUCCESS;
}

NRT_STATUS nrt_sys_trace_config_set_capture_enabled_for_event_type(nrt_sys_trace_config_t* config,
                                                                   const char* event_type, bool enabled) {
  if (!g_configs.alive(config))
    return bad_handle("nrt_sys_trace_config_set_capture_enabled_for_event_type", "config");
  if (event_type == nullptr || !known_type(event_type))
    return fail(NRT_INVALID, std::string("user error: no trace event type is named '") +
                                 (event_type == nullptr ? "" : event_type) +
                                 "'; see nrt_sys_trace_get_event_types");
  if (enabled)
    config->disabled_types.erase(event_type);
  else
    config->disabled_types.insert(event_type);
  return NRT_SUCCESS;
}

NRT_STATUS nrt_sys_trace_config_get_enabled_event_types(const nrt_sys_trace_config_t* config,
                                                        const char*** types, size_t* count) {
  if (!g_configs.alive(config)) return bad_handle("nrt_sys_trace_config_get_enabled_event_types", "config");
  return type_list("nrt_sys_trace_config_get_enabled_event_types", config->disabled_types, types, count);
}

NRT_STATUS nrt_sys_trace_get_event_types(const char*** types, size_t* count) {
  return type_list("nrt_sys_trace_get_event_types", {}, types, count);
}

void nrt_sys_trace_free_event_types(const char** types, size_t) {
  if (types == nullptr) return;
  if (!g_type_lists.take(types))
    bad_handle("nrt_sys_trace_free_event_types", "list");
  else
    std::free(types);
}

// --- trace session
// ----------------------------------------------------------------------------------------------------

NRT_STATUS nrt_sys_trace_start(nrt_sys_trace_config_t* config) {
  TRNSIM_REQUIRE_INIT();
  if (config != nullptr && !g_configs.alive(config)) return bad_handle("nrt_sys_trace_start", "config");
  const std::lock_guard lock(g_mutex);
  if (g_trace.running)
    return fail(NRT_FAILURE, "user error: nrt_sys_trace_start twice; call nrt_sys_trace_stop first");
  g_trace.config = config == nullptr ? nrt_sys_trace_config{} : *config;
  g_trace.events.assign(g_runtime->cores.size(), {});
  g_trace.next_id = 1;
  g_trace.running = true;
  update_observing();
  return NRT_SUCCESS;
}

NRT_STATUS nrt_sys_trace_stop(void) {
  TRNSIM_REQUIRE_INIT();
  const std::lock_guard lock(g_mutex);
  if (!g_trace.running)
    return fail(NRT_FAILURE, "user error: nrt_sys_trace_stop without nrt_sys_trace_start");
  g_trace.running = false;  // events stay until they are fetched
  update_observing();
  return NRT_SUCCESS;
}

NRT_STATUS nrt_sys_trace_fetch_options_allocate(nrt_sys_trace_fetch_options_t** options) {
  if (options == nullptr) return fail(NRT_INVALID, "user error: nrt_sys_trace_fetch_options_allocate: NULL");
  *options = g_fetch_options.make();
  return NRT_SUCCESS;
}

NRT_STATUS nrt_sys_trace_fetch_options_free(nrt_sys_trace_fetch_options_t* options) {
  return g_fetch_options.destroy(options) ? NRT_SUCCESS
                                          : bad_handle("nrt_sys_trace_fetch_options_free", "options");
}

NRT_STATUS nrt_sys_trace_fetch_options_set_defaults(nrt_sys_trace_fetch_options_t* options) {
  if (!g_fetch_options.alive(options))
    return bad_handle("nrt_sys_trace_fetch_options_set_defaults", "options");
  *options = {};
  return NRT_SUCCESS;
}

NRT_STATUS nrt_sys_trace_fetch_options_set_max_events_per_nc(nrt_sys_trace_fetch_options_t* options,
                                                             uint64_t max_events) {
  if (!g_fetch_options.alive(options))
    return bad_handle("nrt_sys_trace_fetch_options_set_max_events_per_nc", "options");
  options->max_events_per_nc = max_events;
  return NRT_SUCCESS;
}

NRT_STATUS nrt_sys_trace_fetch_options_set_nc_idx(nrt_sys_trace_fetch_options_t* options, uint32_t nc) {
  if (!g_fetch_options.alive(options)) return bad_handle("nrt_sys_trace_fetch_options_set_nc_idx", "options");
  options->nc = nc;
  return NRT_SUCCESS;
}

NRT_STATUS nrt_sys_trace_fetch_events(char** buffer, size_t* bytes,
                                      const nrt_sys_trace_fetch_options_t* options) {
  TRNSIM_REQUIRE_INIT();
  if (buffer == nullptr) return fail(NRT_INVALID, "user error: nrt_sys_trace_fetch_events: buffer is NULL");
  if (options != nullptr && !g_fetch_options.alive(options))
    return bad_handle("nrt_sys_trace_fetch_events", "options");
  json::array events;
  {
    const std::lock_guard lock(g_mutex);
    for (size_t nc = 0; nc < g_trace.events.size(); ++nc) {
      if (options != nullptr && options->nc >= 0 && static_cast<size_t>(options->nc) != nc) continue;
      auto& queue = g_trace.events[nc];
      uint64_t left = options == nullptr ? UINT64_MAX : options->max_events_per_nc;
      for (; left > 0 && !queue.empty(); --left, queue.pop_front()) {  // each event is handed out once
        const Event& e = queue.front();
        events.push_back(json::object{
            {"event_type", e.type},
            {"phase", e.phase},
            {"tracking_id", e.tracking_id},
            {"nc_idx", nc},
            {"data", json::object{{"nc_timestamp_ns", e.timestamp_ns}, {"model_name", e.model}}}});
      }
    }
  }
  const std::string text =
      trnsim::isa::valid_utf8(json::serialize(json::object{{"events", std::move(events)}}));
  *buffer = static_cast<char*>(std::malloc(text.size() + 1));
  if (*buffer == nullptr)
    return fail(NRT_RESOURCE, "nrt_sys_trace_fetch_events: the host has no memory left");
  std::memcpy(*buffer, text.c_str(), text.size() + 1);
  g_event_buffers.add(*buffer);
  if (bytes != nullptr) *bytes = text.size();
  return NRT_SUCCESS;
}

void nrt_sys_trace_buffer_free(char* buffer) {
  if (buffer == nullptr) return;
  if (!g_event_buffers.take(buffer))
    bad_handle("nrt_sys_trace_buffer_free", "buffer");
  else
    std::free(buffer);
}

// --- profile of one model
// ---------------------------------------------------------------------------------------------

NRT_STATUS nrt_profile_start(nrt_model_t* model, const char* file) {
  TRNSIM_REQUIRE_INIT();
  const ModelSlot* slot = models().get(model);
  if (slot == nullptr || slot->model == nullptr) return bad_handle("nrt_profile_start", "model");
  if (file == nullptr) return fail(NRT_INVALID, "user error: nrt_profile_start: file is NULL");
  const std::lock_guard lock(g_mutex);
  if (g_profile.running)
    return fail(NRT_FAILURE, "user error: nrt_profile_start twice; call nrt_profile_stop first");
  g_profile = {true, slot->model->id, slot->model->name, {}};
  update_observing();
  return NRT_SUCCESS;
}

NRT_STATUS nrt_profile_stop(const char* file) {
  TRNSIM_REQUIRE_INIT();
  if (file == nullptr) return fail(NRT_INVALID, "user error: nrt_profile_stop: file is NULL");
  Profile profile;
  {
    const std::lock_guard lock(g_mutex);
    if (!g_profile.running)
      return fail(NRT_FAILURE, "user error: nrt_profile_stop without nrt_profile_start");
    std::swap(profile, g_profile);
    update_observing();
  }
  double total = 0;
  json::array executions;
  for (auto& e : profile.executions) {
    total += e["duration_ns"].as_double();
    executions.push_back(std::move(e));
  }
  const json::object o{{"Metadata", json::object{{"is_simulation", true},
                                                 {"simulator", "trnsim " TRNSIM_VERSION},
                                                 {"config", g_runtime->settings.config.name}}},
                       {"Summary", json::object{{"model_name", profile.model_name},
                                                {"executions", executions.size()},
                                                {"total_time_ns", total}}},
                       {"ExecutionInfo", std::move(executions)}};
  if (std::string why; !write_whole(file, trnsim::isa::valid_utf8(json::serialize(o)) + '\n', &why))
    return fail(NRT_FAILURE, std::string("user error: nrt_profile_stop: cannot write ") + file + ": " + why);
  return NRT_SUCCESS;
}

}  // extern "C"
