#include <mutex>
#include <set>
#include <string>

#include "sim/runtime/log.h"
#include "sim/runtime/runtime.h"
#include "sim/runtime/unsupported.h"

namespace trnsim::runtime {

static void log_once(const char* function, const std::string& text) {
  static std::mutex mutex;
  static std::set<std::string>* const seen = new std::set<std::string>;
  const std::lock_guard lock(mutex);
  if (seen->insert(function).second) log(LogLevel::kError, text);
}

NRT_STATUS unsupported(const char* function, const char* what) {
  const std::string text = std::string("not simulated: ") + function + ": " + what;
  log_once(function, text);
  if (!ready()) return not_ready(function);
  return fail(NRT_FAILURE, text);
}

}  // namespace trnsim::runtime

using namespace trnsim::runtime;  // NOLINT

namespace {
template <class T>
NRT_STATUS no_object(const char* function, const char* what, T** out) {
  if (out != nullptr) *out = nullptr;
  return unsupported(function, what);
}
}  // namespace

extern "C" {

// --- host maps, peer memory
// -------------------------------------------------------------------------------------------

NRT_STATUS nrt_host_device_id_get(int device, uint32_t* host_device_id) {
  TRNSIM_REQUIRE_INIT();
  if (host_device_id == nullptr || device < 0 || device >= g_runtime->settings.machine.devices)
    return fail(NRT_INVALID, "user error: nrt_host_device_id_get: device " + std::to_string(device) + " of " +
                                 std::to_string(g_runtime->settings.machine.devices));
  *host_device_id = static_cast<uint32_t>(device);  // there is no container between host and device
  return NRT_SUCCESS;
}

NRT_STATUS nrt_host_device_id_rid_map_get(uint32_t* count, uint32_t*) {
  if (count != nullptr) *count = 0;
  return unsupported(__func__, kNetwork);
}

NRT_STATUS nrt_get_hbm_mmap_va(int device, int hbm_index, void** address, size_t* size) {
  TRNSIM_REQUIRE_INIT();
  const auto& m = g_runtime->settings.machine;
  if (device < 0 || device >= m.devices || address == nullptr || size == nullptr)
    return fail(NRT_INVALID, "user error: nrt_get_hbm_mmap_va: device " + std::to_string(device) + " of " +
                                 std::to_string(m.devices));
  if (hbm_index < 0 || hbm_index >= m.stacks_per_device)
    return fail(NRT_INVALID_HANDLE, "nrt_get_hbm_mmap_va: HBM " + std::to_string(hbm_index) + " of " +
                                        std::to_string(m.stacks_per_device));
  const int core = device * m.cores_per_device + hbm_index * m.cores_per_device / m.stacks_per_device;
  std::byte* base = nullptr;
  if (const auto s = g_runtime->driver->map_stack(core, &base); !s.ok()) return from_driver(s);
  *address = base;
  *size = m.bytes_per_stack;
  return NRT_SUCCESS;
}

NRT_STATUS nrt_get_dmabuf_fd(uint64_t, uint64_t, int* fd) {
  if (fd != nullptr) *fd = -1;
  return unsupported(__func__, kNetwork);
}
NRT_STATUS nrt_get_attached_efa_bdf(const void*, char*, size_t*) { return unsupported(__func__, kNetwork); }
NRT_STATUS nrt_memcpy_to_device(void*, const void*, size_t) {
  return unsupported(__func__, "copies to a bare device address; use nrt_tensor_write");
}
void* nrt_get_libnccl_net(int* error, char* message, size_t message_size) {
  const NRT_STATUS s = unsupported(__func__, kNetwork);
  if (error != nullptr) *error = s;
  if (message != nullptr && message_size != 0) {
    const std::string text = last_error();
    message[text.copy(message, message_size - 1)] = '\0';
  }
  return nullptr;
}

// --- old calls
// --------------------------------------------------------------------------------------------------------

NRT_STATUS nrt_set_pool_eng_ucode(const void*, size_t) {
  return unsupported(__func__, "custom operators in GpSimd code");
}
NRT_STATUS nrt_register_async_exec_callback(nrt_async_exec_callback_t) {
  return unsupported(__func__, "implicit async execution, which has left the ABI; use nrta_execute_schedule");
}
NRT_STATUS nrt_async_drain_queued_execs(uint32_t) {
  return unsupported(__func__, "implicit async execution, which has left the ABI; use nrta_is_completed");
}
NRT_STATUS nrt_trace_start(bool) { return unsupported(__func__, "the old trace; use nrt_sys_trace_start"); }
NRT_STATUS nrt_trace_stop(const char*) {
  return unsupported(__func__, "the old trace; use nrt_sys_trace_stop");
}

// --- collectives, send and receive
// ------------------------------------------------------------------------------------

NRT_STATUS nrt_build_global_comm(int32_t, uint32_t, uint32_t) { return unsupported(__func__, kCollectives); }
NRT_STATUS nrt_cc_global_comm_init(uint32_t, uint32_t, uint32_t) {
  return unsupported(__func__, kCollectives);
}
NRT_STATUS nrt_barrier(int32_t, uint32_t, uint32_t) { return unsupported(__func__, kCollectives); }
NRT_STATUS nrt_all_gather(int32_t, uint32_t, uint32_t, uint32_t, void*, void*) {
  return unsupported(__func__, kCollectives);
}
NRT_STATUS nrt_async_sendrecv_init(int) { return unsupported(__func__, kCollectives); }
NRT_STATUS nrt_async_sendrecv_close(int) { return unsupported(__func__, kCollectives); }
NRT_STATUS nrt_async_sendrecv_flush(int) { return unsupported(__func__, kCollectives); }
NRT_STATUS nrt_async_sendrecv_connect(const char*, int, int, nrt_async_sendrecv_comm_t** comm) {
  return no_object(__func__, kCollectives, comm);
}
NRT_STATUS nrt_async_sendrecv_accept(const char*, int, int, nrt_async_sendrecv_comm_t** comm) {
  return no_object(__func__, kCollectives, comm);
}
NRT_STATUS nrt_async_sendrecv_test_comm(nrt_async_sendrecv_comm_t*, bool*) {
  return unsupported(__func__, kCollectives);
}
NRT_STATUS nrt_async_sendrecv_test_request(nrt_async_sendrecv_request_t*, bool*, size_t*) {
  return unsupported(__func__, kCollectives);
}
NRT_STATUS nrt_async_sendrecv_send_tensor(nrt_tensor_t*, size_t, size_t, nrt_async_sendrecv_comm_t*,
                                          nrt_async_sendrecv_request_t** request) {
  return no_object(__func__, kCollectives, request);
}
NRT_STATUS nrt_async_sendrecv_recv_tensor(nrt_tensor_t*, size_t, size_t, nrt_async_sendrecv_comm_t*,
                                          nrt_async_sendrecv_request_t** request) {
  return no_object(__func__, kCollectives, request);
}
NRT_STATUS nrt_async_sendrecv_get_max_num_communicators_per_lnc(int* count) {
  if (count != nullptr) *count = 0;
  return unsupported(__func__, kCollectives);
}
NRT_STATUS nrt_async_sendrecv_get_max_num_pending_request(int* count) {
  if (count != nullptr) *count = 0;
  return unsupported(__func__, kCollectives);
}

// --- continuous profiling and capture sessions
// ------------------------------------------------------------------------

NRT_STATUS nrt_profile_continuous_options_allocate(nrt_profile_continuous_options_t** options) {
  return no_object(__func__, kContinuousProfile, options);
}
NRT_STATUS nrt_profile_continuous_options_free(nrt_profile_continuous_options_t*) {
  return unsupported(__func__, kContinuousProfile);
}
NRT_STATUS nrt_profile_continuous_options_set_output_dir(nrt_profile_continuous_options_t*, const char*) {
  return unsupported(__func__, kContinuousProfile);
}
NRT_STATUS nrt_profile_continuous_start(nrt_profile_continuous_options_t*) {
  return unsupported(__func__, kContinuousProfile);
}
NRT_STATUS nrt_profile_continuous_save(uint32_t) { return unsupported(__func__, kContinuousProfile); }
NRT_STATUS nrt_profile_continuous_stop(void) { return unsupported(__func__, kContinuousProfile); }

NRT_STATUS nrt_inspect_begin(void) { return unsupported(__func__, kInspect); }
NRT_STATUS nrt_inspect_stop(void) { return unsupported(__func__, kInspect); }
NRT_STATUS nrt_inspect_begin_with_options(nrt_inspect_config_t*) { return unsupported(__func__, kInspect); }
NRT_STATUS nrt_inspect_config_allocate(nrt_inspect_config_t** config) {
  return no_object(__func__, kInspect, config);
}
NRT_STATUS nrt_inspect_config_free(nrt_inspect_config_t*) { return unsupported(__func__, kInspect); }
NRT_STATUS nrt_inspect_config_set_defaults(nrt_inspect_config_t*) { return unsupported(__func__, kInspect); }
NRT_STATUS nrt_inspect_config_set_session_id(nrt_inspect_config_t*, int) {
  return unsupported(__func__, kInspect);
}
NRT_STATUS nrt_inspect_config_set_output_dir(nrt_inspect_config_t*, const char*) {
  return unsupported(__func__, kInspect);
}
NRT_STATUS nrt_inspect_config_set_sys_trace_max_events_per_nc(nrt_inspect_config_t*, uint64_t) {
  return unsupported(__func__, kInspect);
}
NRT_STATUS nrt_inspect_config_set_capture_enabled_for_nc(nrt_inspect_config_t*, uint32_t, bool) {
  return unsupported(__func__, kInspect);
}
NRT_STATUS nrt_inspect_config_set_capture_enabled_for_event_type_string(nrt_inspect_config_t*, const char*,
                                                                        bool) {
  return unsupported(__func__, kInspect);
}
NRT_STATUS nrt_inspect_config_set_enable_inspect(nrt_inspect_config_t*, bool) {
  return unsupported(__func__, kInspect);
}
NRT_STATUS nrt_inspect_config_set_enable_inspect_on_fail(nrt_inspect_config_t*, bool) {
  return unsupported(__func__, kInspect);
}
NRT_STATUS nrt_inspect_config_set_activity(nrt_inspect_config_t*, const char*, bool) {
  return unsupported(__func__, kInspect);
}
NRT_STATUS nrt_inspect_config_get_all_activity_types(const char*** types, size_t* count) {
  if (count != nullptr) *count = 0;
  return no_object(__func__, kInspect, types);
}
NRT_STATUS nrt_inspect_config_get_enabled_activity_types(nrt_inspect_config_t*, const char*** types,
                                                         size_t* count) {
  if (count != nullptr) *count = 0;
  return no_object(__func__, kInspect, types);
}
void nrt_inspect_config_free_activity_types(const char**, size_t) {}  // none are ever given out

// --- debug stream
// -----------------------------------------------------------------------------------------------------

NRT_STATUS nrt_debug_client_connect(int, int* fd) {
  if (fd != nullptr) *fd = -1;
  return unsupported(__func__, kDebugStream);
}
void nrt_debug_client_connect_close(int) {}  // no connection is ever made
NRT_STATUS nrt_debug_client_read_one_event(int, ndebug_stream_event_header_t*, void** payload) {
  if (payload != nullptr) *payload = nullptr;
  return unsupported(__func__, kDebugStream);
}

}  // extern "C"
