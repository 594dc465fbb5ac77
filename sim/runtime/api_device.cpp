// Device and library information of the C ABI, and the calls of trnsim_ext.h that work at any time.
#include <algorithm>
#include <cstring>
#include <string>

#include "isa/utf8.h"
#include "sim/runtime/log.h"
#include "sim/runtime/runtime.h"
#include "sim/runtime/trnsim_ext.h"

namespace trnsim::runtime {
namespace {

struct StatusText {
  NRT_STATUS status;
  const char* text;
};
constexpr StatusText kStatusTexts[] = {
    {NRT_SUCCESS, "NRT_SUCCESS"},
    {NRT_FAILURE, "NRT_FAILURE"},
    {NRT_INVALID, "NRT_INVALID"},
    {NRT_INVALID_HANDLE, "NRT_INVALID_HANDLE"},
    {NRT_RESOURCE, "NRT_RESOURCE"},
    {NRT_TIMEOUT, "NRT_TIMEOUT"},
    {NRT_HW_ERROR, "NRT_HW_ERROR"},
    {NRT_QUEUE_FULL, "NRT_QUEUE_FULL"},
    {NRT_LOAD_NOT_ENOUGH_NC, "NRT_LOAD_NOT_ENOUGH_NC"},
    {NRT_UNSUPPORTED_NEFF_VERSION, "NRT_UNSUPPORTED_NEFF_VERSION"},
    {NRT_FAIL_HOST_MEM_ALLOC, "NRT_FAIL_HOST_MEM_ALLOC"},
    {NRT_UNINITIALIZED, "NRT_UNINITIALIZED"},
    {NRT_CLOSED, "NRT_CLOSED"},
    {NRT_QUEUE_EMPTY, "NRT_QUEUE_EMPTY"},
    {NRT_EXEC_UNIT_UNRECOVERABLE, "NRT_EXEC_UNIT_UNRECOVERABLE"},
    {NRT_EXEC_BAD_INPUT, "NRT_EXEC_BAD_INPUT"},
    {NRT_EXEC_COMPLETED_WITH_NUM_ERR, "NRT_EXEC_COMPLETED_WITH_NUM_ERR"},
    {NRT_EXEC_COMPLETED_WITH_ERR, "NRT_EXEC_COMPLETED_WITH_ERR"},
    {NRT_EXEC_NC_BUSY, "NRT_EXEC_NC_BUSY"},
    {NRT_EXEC_OOB, "NRT_EXEC_OOB"},
    {NRT_COLL_PENDING, "NRT_COLL_PENDING"},
    {NRT_EXEC_HW_ERR_COLLECTIVES, "NRT_EXEC_HW_ERR_COLLECTIVES"},
    {NRT_EXEC_HW_ERR_HBM_UE, "NRT_EXEC_HW_ERR_HBM_UE"},
    {NRT_EXEC_HW_ERR_NC_UE, "NRT_EXEC_HW_ERR_NC_UE"},
    {NRT_EXEC_HW_ERR_DMA_ABORT, "NRT_EXEC_HW_ERR_DMA_ABORT"},
    {NRT_EXEC_SW_NQ_OVERFLOW, "NRT_EXEC_SW_NQ_OVERFLOW"},
    {NRT_EXEC_HW_ERR_REPAIRABLE_HBM_UE, "NRT_EXEC_HW_ERR_REPAIRABLE_HBM_UE"},
    {NRT_NETWORK_PROXY_FAILURE, "NRT_NETWORK_PROXY_FAILURE"},
};

NRT_STATUS counted(const char* function, uint32_t* count, int (*of)(const Settings&)) {
  if (count == nullptr) return fail(NRT_INVALID, std::string("user error: ") + function + ": count is NULL");
  Settings s;
  std::string error;
  try {
    if (!current_settings(&s, &error)) return fail(NRT_INVALID, error);
  } catch (const std::exception& e) {
    return fail(NRT_FAILURE, std::string(function) + ": " + e.what());
  }
  *count = static_cast<uint32_t>(of(s));
  return NRT_SUCCESS;
}

int visible(const Settings& s) { return s.visible_cores(); }
int total(const Settings& s) { return s.logical_cores(); }

nrt_instance_family_t family_of(const config::Config& c) {
  return c.chip.generation == "trn3" ? NRT_INSTANCE_TRN3 : NRT_INSTANCE_TRN2;
}

}  // namespace
}  // namespace trnsim::runtime

using namespace trnsim::runtime;  // NOLINT

extern "C" {

NRT_STATUS nrt_get_visible_nc_count(uint32_t* count) {
  return counted("nrt_get_visible_nc_count", count, visible);
}
NRT_STATUS nrt_get_visible_vnc_count(uint32_t* count) {
  return counted("nrt_get_visible_vnc_count", count, visible);
}
NRT_STATUS nrt_get_total_nc_count(uint32_t* count) { return counted("nrt_get_total_nc_count", count, total); }
NRT_STATUS nrt_get_total_vnc_count(uint32_t* count) {
  return counted("nrt_get_total_vnc_count", count, total);
}

NRT_STATUS nrt_get_instance_info(nrt_instance_info_t* info, size_t size) {
  if (info == nullptr || size < sizeof(nrt_instance_info_t))
    return fail(NRT_INVALID, "user error: nrt_get_instance_info: " + std::to_string(size) +
                                 " bytes for a struct of " + std::to_string(sizeof(nrt_instance_info_t)));
  Settings s;
  std::string error;
  if (!current_settings(&s, &error)) return fail(NRT_INVALID, error);
  *info = {};
  info->family = family_of(s.config);
  info->size = static_cast<uint32_t>(s.machine.devices);
  s.config.chip.generation.copy(info->arch_name, sizeof info->arch_name - 1);
  std::strncpy(info->device_revision, "sim", sizeof info->device_revision - 1);
  return NRT_SUCCESS;
}

NRT_STATUS nrt_get_version(nrt_version_t* version, size_t size) {
  if (version == nullptr || size < sizeof(nrt_version_t))
    return fail(NRT_INVALID, "user error: nrt_get_version: " + std::to_string(size) +
                                 " bytes for a struct of " + std::to_string(sizeof(nrt_version_t)));
  *version = {};
  version->rt_major = NRT_MAJOR_VERSION;
  version->rt_minor = NRT_MINOR_VERSION;
  std::strncpy(version->rt_detail, "trnsim " TRNSIM_VERSION ", simulated", sizeof version->rt_detail - 1);
  return NRT_SUCCESS;
}

const char* nrt_get_status_as_str(NRT_STATUS status) {
  for (const auto& t : kStatusTexts)
    if (t.status == status) return t.text;
  return "NRT_UNKNOWN";
}

NRT_STATUS nrt_get_vnc_memory_stats(uint32_t vnc, nrt_vnc_memory_stats_t* stats, size_t size_in,
                                    size_t* size_out) {
  TRNSIM_REQUIRE_INIT();
  Runtime& r = *g_runtime;
  if (stats == nullptr || size_in < sizeof(nrt_vnc_memory_stats_t))
    return fail(NRT_INVALID, "user error: nrt_get_vnc_memory_stats: no room for the result");
  if (vnc >= r.cores.size())
    return fail(NRT_INVALID, "user error: nrt_get_vnc_memory_stats: logical core " + std::to_string(vnc) +
                                 " of " + std::to_string(r.cores.size()));
  stats->bytes_used = r.driver->memory_used(r.cores[vnc]->physical);
  stats->bytes_limit = r.driver->memory_limit(r.cores[vnc]->physical);
  if (size_out != nullptr) *size_out = sizeof(nrt_vnc_memory_stats_t);
  return NRT_SUCCESS;
}

int64_t trnsim_simulated_ps(uint32_t vnc) {
  if (!ready() || vnc >= g_runtime->cores.size()) return 0;
  return g_runtime->cores[vnc]->simulated_ps.load(std::memory_order_relaxed);
}

const char* trnsim_config_json(void) {
  thread_local std::string text;
  Settings s;
  std::string error;
  try {
    if (!current_settings(&s, &error)) {
      fail(NRT_INVALID, error);
      text.clear();
    } else {
      // What a front end needs beside the parameters, in front of them.
      const std::string parameters = trnsim::config::describe_json(s.config);
      std::string builtin;
      for (const auto& name : trnsim::config::builtin_names())
        builtin += std::string(builtin.empty() ? "" : ", ") + "\"" + name + "\"";
      text = "{\"target\": \"" + s.config.chip.generation + "\", \"mode\": \"" + mode_name(s.mode) +
             "\", \"logical_core_size\": " + std::to_string(s.logical_core_size) + ", \"builtin\": [" +
             builtin + "], " + parameters.substr(parameters.find('{') + 1);
      text = trnsim::isa::valid_utf8(text);
    }
  } catch (const std::exception& e) {
    fail(NRT_FAILURE, e.what());
    text.clear();
  }
  return text.c_str();
}

uint64_t trnsim_hbm_bytes(uint32_t vnc) {
  Settings s;
  std::string error;
  if (!current_settings(&s, &error)) {
    fail(NRT_INVALID, error);
    return 0;
  }
  if (vnc >= static_cast<uint32_t>(s.visible_cores())) return 0;
  return s.machine.bytes_per_stack - s.machine.firmware_bytes;
}

}  // extern "C"
