#include "device_plugin/aten/api.h"

#include <algorithm>

#include "device_plugin/aten/allocator.h"
#include "device_plugin/aten/fallback.h"
#include "device_plugin/aten/generator.h"
#include "device_plugin/aten/op_table.h"
#include "device_plugin/aten/plan.h"
#include "device_plugin/aten/queue.h"

namespace trnsim::aten::api {
namespace {

c10::DeviceIndex index_of(int device) {
  if (device < 0) return trnsim::aten::current_device();
  return checked_index(c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device)));
}

PhiloxGenerator& generator_of(int device) { return generator_or_default(std::nullopt, index_of(device)); }

}  // namespace

void configure(const std::string& config, const std::string& overrides, const std::string& mode,
               const std::string& check) {
  trnsim::aten::configure(config, overrides, mode, check);
}

std::string runtime_report_json() {
  const DeviceUse use;
  for (int i = 0; initialized() && i < trnsim::aten::device_count(); ++i)
    if (queue_exists(static_cast<c10::DeviceIndex>(i))) queue(static_cast<c10::DeviceIndex>(i)).synchronize();
  std::string report = nrt().trnsim_report_json();
  TORCH_CHECK_VALUE(report != "{}", nrt().trnsim_last_error());
  return report;
}

std::string config_json() { return nrt().trnsim_config_json(); }

void reset_report() {
  const DeviceUse use;
  reset_fallback_counts();
  reset_cache_counters();
  if (!initialized()) return;
  for (int i = 0; i < trnsim::aten::device_count(); ++i)
    if (queue_exists(static_cast<c10::DeviceIndex>(i))) queue(static_cast<c10::DeviceIndex>(i)).synchronize();
  nrt().trnsim_reset_report();
}

int64_t simulated_ps(int device) {
  const DeviceUse use;
  if (!initialized()) return 0;
  const c10::DeviceIndex index = index_of(device);
  if (queue_exists(index)) queue(index).synchronize();
  return nrt().trnsim_simulated_ps(static_cast<uint32_t>(index));
}

std::vector<Fallback> fallbacks() {
  std::vector<Fallback> list;
  for (auto& f : fallback_counts()) list.push_back({f.op, f.reason, f.count});
  return list;
}

Caches caches() {
  const CacheCounters c = cache_counters();
  return {c.hits, c.misses, c.compiles, c.disk_hits, c.compile_us};
}

std::vector<std::string> lowered_ops() {
  std::vector<std::string> names;
  for (const LoweredRow& row : lowered_rows()) names.emplace_back(row.name);
  return names;
}

Progress progress() {
  Progress p{};
  if (!initialized()) return p;
  const Waiting w = waiting();
  p.wait_s = w.seconds;
  p.entries = w.entries;
  for (int i = 0; i < trnsim::aten::device_count(); ++i)
    if (queue_exists(static_cast<c10::DeviceIndex>(i)))
      p.simulated_ps = std::max(p.simulated_ps, nrt().trnsim_simulated_ps(static_cast<uint32_t>(i)));
  return p;
}
void watch_waits(void (*ended)()) { trnsim::aten::watch_waits(ended); }

void clear_op_tracking() { trnsim::aten::clear_op_tracking(); }
std::vector<std::string> executed_ops() { return trnsim::aten::executed_ops(); }
std::vector<std::string> fallback_ops() { return trnsim::aten::fallback_ops(); }

int device_count() { return trnsim::aten::device_count(); }
std::string device_problem() { return trnsim::aten::device_problem(); }
void set_interpreter(const Interpreter* interpreter) { trnsim::aten::set_interpreter(interpreter); }
bool is_initialized() { return initialized(); }
bool in_bad_fork() { return trnsim::aten::in_bad_fork(); }
void init() {
  const DeviceUse use;
  ensure_initialized();
}
void shutdown() {
  static bool done = false;
  if (done || in_bad_fork() || !initialized()) return;
  done = true;
  // A thread that does not come back could still use the runtime: the end of the process frees everything as well.
  if (!DeviceUse::end_all()) return;
  stop_all_queues();
  close();
}
int current_device() { return trnsim::aten::current_device(); }
void set_device(int device) { set_current_device(static_cast<c10::DeviceIndex>(device)); }
int exchange_device(int device) { return exchange_current_device(static_cast<c10::DeviceIndex>(device)); }
void synchronize(int device) {
  const c10::DeviceIndex index = index_of(device);
  if (queue_exists(index)) queue(index).synchronize();
}
int64_t hbm_bytes(int device) {
  const DeviceUse use;
  return static_cast<int64_t>(nrt().trnsim_hbm_bytes(static_cast<uint32_t>(index_of(device))));
}
std::string target() { return trnsim::aten::target(); }

std::vector<std::pair<std::string, int64_t>> memory_stats(int device) {
  const auto stats = device_allocator().getDeviceStats(index_of(device));
  std::vector<std::pair<std::string, int64_t>> list;
  auto add = [&](const char* name, const c10::CachingAllocator::StatArray& array) {
    static const char* const kPools[] = {"all", "small_pool", "large_pool"};
    for (size_t p = 0; p < array.size(); ++p) {
      const std::string prefix = std::string(name) + "." + kPools[p] + ".";
      list.emplace_back(prefix + "current", array[p].current);
      list.emplace_back(prefix + "peak", array[p].peak);
      list.emplace_back(prefix + "allocated", array[p].allocated);
      list.emplace_back(prefix + "freed", array[p].freed);
    }
  };
  add("allocation", stats.allocation);
  add("segment", stats.segment);
  add("active", stats.active);
  add("inactive_split", stats.inactive_split);
  add("allocated_bytes", stats.allocated_bytes);
  add("reserved_bytes", stats.reserved_bytes);
  add("active_bytes", stats.active_bytes);
  add("inactive_split_bytes", stats.inactive_split_bytes);
  add("requested_bytes", stats.requested_bytes);
  list.emplace_back("num_alloc_retries", stats.num_alloc_retries);
  list.emplace_back("num_ooms", stats.num_ooms);
  list.emplace_back("num_device_alloc", stats.num_device_alloc);
  list.emplace_back("num_device_free", stats.num_device_free);
  return list;
}

void empty_cache() { device_allocator().emptyCache(); }
void reset_peak_memory_stats(int device) { device_allocator().resetPeakStats(index_of(device)); }
void reset_accumulated_memory_stats(int device) {
  device_allocator().resetAccumulatedStats(index_of(device));
}
std::pair<int64_t, int64_t> mem_get_info(int device) {
  const DeviceUse use;
  const auto info = memory_info(index_of(device));
  return {static_cast<int64_t>(info.first), static_cast<int64_t>(info.second)};
}

void manual_seed(int device, uint64_t seed) { generator_of(device).set_current_seed(seed); }
uint64_t seed(int device) { return generator_of(device).seed(); }
uint64_t initial_seed(int device) { return generator_of(device).current_seed(); }
std::pair<uint64_t, uint64_t> rng_state(int device) {
  PhiloxGenerator& g = generator_of(device);
  return {g.current_seed(), g.get_offset()};
}
void set_rng_state(int device, uint64_t seed, uint64_t offset) {
  PhiloxGenerator& g = generator_of(device);
  g.set_current_seed(seed);
  g.set_offset(offset);
}

}  // namespace trnsim::aten::api
