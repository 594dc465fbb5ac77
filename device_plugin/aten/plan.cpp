#include "device_plugin/aten/plan.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <limits>
#include <string_view>
#include <unordered_set>

#include "device_plugin/aten/program_store.h"
#include "device_plugin/aten/queue.h"

namespace trnsim::aten {
namespace {

std::atomic<uint64_t> hits{0}, misses{0}, compiles{0}, disk_hits{0}, compile_us{0};

// The plans in caches and those of compiled graphs, by device. A plan leaves it in its destructor, so what is found under
// the lock is memory that exists; whether it is still in use, its shared_ptr knows.
std::mutex registry_mutex;
std::unordered_map<int, std::unordered_set<Plan*>>& registry() {
  static auto* plans = new std::unordered_map<int, std::unordered_set<Plan*>>;
  return *plans;
}

std::atomic<uint64_t> use_clock{0};  // counts uses of plans

void bind(Plan& plan, Plan::Binding& binding, const Slice& slice) {
  const Nrt& api = nrt();
  nrt_tensor* fresh = nullptr;
  check(api.nrt_tensor_allocate_slice(slice.segment, slice.offset_bytes, slice.bytes, binding.name.c_str(),
                                      &fresh),
        "binding a tensor");
  nrt_tensor_set* set = binding.is_output ? plan.output_set : plan.input_set;
  check(api.nrt_add_tensor_to_tensor_set(set, binding.name.c_str(), fresh), "binding a tensor");
  if (binding.slice != nullptr) api.nrt_tensor_free(&binding.slice);
  binding.slice = fresh;
  binding.segment_id = slice.segment_id;
  binding.offset_bytes = slice.offset_bytes;
  binding.bytes = slice.bytes;
}

}  // namespace

size_t extent_bytes(c10::IntArrayRef sizes, c10::IntArrayRef strides, size_t item_bytes) {
  int64_t last = 0;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 0) return 0;
    last += (sizes[d] - 1) * strides[d];
  }
  return static_cast<size_t>(last + 1) * item_bytes;
}

Loading load_program(Plan& plan, compiler::Graph graph) {
  const Nrt& api = nrt();
  const auto begin = std::chrono::steady_clock::now();
  const size_t num_inputs = graph.inputs.size(), num_outputs = graph.outputs.size();
  plan.num_params = graph.num_params;
  const StoredProgram program = find_or_compile(graph);
  if (program.compiled) ++compiles;
  if (program.from_disk) ++disk_hits;
  Loading loading;
  loading.compiled = program.compiled;
  loading.compile_us = static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin)
          .count());
  compile_us += loading.compile_us;
  using Status = compiler::CompileResult::Status;
  if (program.status == Status::kUnsupported) {
    plan.kind = Plan::Kind::kFallback;
    plan.reason = program.message;
    return loading;
  }
  TORCH_CHECK(program.status != Status::kUserError, program.message);
  // What the chip would refuse (a type of a later generation) is found after lowering; it is no fault of the
  // compiler.
  const size_t illegal = program.message.find("illegal on hardware");
  TORCH_CHECK(program.status == Status::kOk || illegal == std::string::npos, program.message.substr(illegal),
              " (in ", plan.name, ")");
  TORCH_CHECK(program.status == Status::kOk, "neuron: compiling ", plan.name, " failed: ", program.message);

  const NrtStatus status =
      api.nrt_load(program.container->data(), program.container->size(), plan.device, 1, &plan.model);
  TORCH_CHECK(status == kNrtSuccess, "neuron: loading the program of ", plan.name,
              " failed: ", describe(status));
  check(api.nrt_allocate_tensor_set(&plan.input_set), "allocating a tensor set");
  check(api.nrt_allocate_tensor_set(&plan.output_set), "allocating a tensor set");
  for (size_t i = 0; i < num_inputs; ++i)
    plan.bindings.push_back({.name = "in" + std::to_string(i), .is_output = false});
  for (size_t i = 0; i < num_outputs; ++i)
    plan.bindings.push_back({.name = "out" + std::to_string(i), .is_output = true});
  if (plan.num_params > 0) {
    check(api.nrt_tensor_allocate(kNrtPlacementDevice, plan.device, sizeof(uint32_t) * plan.num_params,
                                  "params", &plan.params),
          "allocating the parameters of a program");
    plan.params_address = time_only() ? nullptr : api.nrt_tensor_get_va(plan.params);
    check(api.nrt_add_tensor_to_tensor_set(plan.input_set, "params", plan.params), "binding parameters");
  }
  plan.kind = Plan::Kind::kProgram;
  return loading;
}

namespace {

// NaN in every floating-point type, -1 in integers.
void poison_outputs(const Plan& plan, c10::ArrayRef<Slice> slices) {
  const size_t first = slices.size() - std::min(slices.size(), plan.fresh_outputs.size());
  for (size_t i = first; i < slices.size() && !time_only(); ++i) {
    void* base = nrt().nrt_tensor_get_va(slices[i].segment);
    if (!plan.fresh_outputs[i - first] || base == nullptr) continue;
    std::memset(static_cast<std::byte*>(base) + slices[i].offset_bytes, 0xff, slices[i].bytes);
  }
}

// A check that the program itself made names the class of the CPU's error and its words; anything else is an error of
// the device.
[[noreturn]] void throw_execution_error(const Plan& plan, NrtStatus status) {
  const std::string text = describe(status);
  const std::string where = c10::str(plan.name, " on neuron:", static_cast<int>(plan.device));
  const std::string advice =
      launch_blocking() ? "."
                        : ". Execution is asynchronous, so this call is not the one that failed; set "
                          "NEURON_LAUNCH_BLOCKING=1 to get the error on its own line.";
  constexpr std::string_view kCheck = "check failed: ";
  const size_t begin = text.find(kCheck), end = text.find("; found by ");
  if (begin != std::string::npos && end != std::string::npos) {
    const std::string check = text.substr(begin + kCheck.size(), end - begin - kCheck.size());
    const size_t colon = check.find(": ");
    const std::string error = check.substr(0, colon);
    const std::string words = check.substr(colon == std::string::npos ? 0 : colon + 2);
    const std::string message = c10::str(words, " (in ", where, text.substr(end), ")", advice);
    TORCH_CHECK_INDEX(error != "IndexError", message);
    TORCH_CHECK_VALUE(error != "ValueError", message);
    TORCH_CHECK(false, message);
  }
  TORCH_CHECK(false, "neuron: error while executing ", where, ": ", text, advice);
}

}  // namespace

void execute_plan(Plan& plan, c10::ArrayRef<Slice> slices, c10::ArrayRef<uint32_t> params) {
  const Nrt& api = nrt();
  for (size_t i = 0; i < slices.size(); ++i) {
    Plan::Binding& binding = plan.bindings[i];
    const Slice& slice = slices[i];
    // Training loops get the same blocks again and again: most bindings are still right.
    if (binding.segment_id != slice.segment_id || binding.offset_bytes != slice.offset_bytes ||
        binding.bytes != slice.bytes)
      bind(plan, binding, slice);
  }
  if (!params.empty()) {
    if (plan.params_address != nullptr) {
      std::memcpy(plan.params_address, params.data(), params.size() * sizeof(uint32_t));
    } else {
      check(api.nrt_tensor_write(plan.params, params.data(), 0, params.size() * sizeof(uint32_t)),
            "writing parameters");
    }
  }
  const NrtStatus status = api.nrt_execute(plan.model, plan.input_set, plan.output_set);
  if (status == kNrtSuccess || status == kNrtCompletedWithNumErr) return;
  poison_outputs(plan, slices);
  throw_execution_error(plan, status);
}

void keep_bindings_known(Plan& plan) {
  std::lock_guard lock(registry_mutex);
  registry()[plan.device].insert(&plan);
}

void release_bindings(c10::DeviceIndex device) {
  queue(device).exclusively([device] {
    std::lock_guard lock(registry_mutex);
    for (Plan* plan : registry()[device])
      for (Plan::Binding& binding : plan->bindings)
        if (binding.slice != nullptr) {
          nrt().nrt_tensor_free(&binding.slice);
          binding.slice = nullptr;
          binding.segment_id = 0;
        }
  });
}

Plan::~Plan() {
  {
    std::lock_guard lock(registry_mutex);
    registry()[device].erase(this);
  }
  if (kind != Kind::kProgram || DeviceUse::ended()) return;  // the runtime's end has unloaded everything
  const Nrt& api = nrt();
  for (Binding& binding : bindings)
    if (binding.slice != nullptr) api.nrt_tensor_free(&binding.slice);
  api.nrt_destroy_tensor_set(&input_set);
  api.nrt_destroy_tensor_set(&output_set);
  if (params != nullptr) api.nrt_tensor_free(&params);
  api.nrt_unload(model);
}

std::shared_ptr<Plan> PlanCache::find(const PlanKey& key, uint64_t hash) {
  std::lock_guard lock(mutex_);
  auto [it, end] = entries_.equal_range(hash);
  for (; it != end; ++it) {
    const std::vector<uint64_t>& stored = it->second.key;
    if (stored.size() == key.size() &&
        std::memcmp(stored.data(), key.data(), key.size() * sizeof(uint64_t)) == 0) {
      hits.fetch_add(1, std::memory_order_relaxed);
      it->second.plan->last_use.store(use_clock.fetch_add(1, std::memory_order_relaxed),
                                      std::memory_order_relaxed);
      return it->second.plan;
    }
  }
  misses.fetch_add(1, std::memory_order_relaxed);
  return nullptr;
}

std::shared_ptr<Plan> PlanCache::insert(const PlanKey& key, uint64_t hash, std::shared_ptr<Plan> plan) {
  {
    std::lock_guard lock(mutex_);
    auto [it, end] = entries_.equal_range(hash);
    for (; it != end; ++it)
      if (std::equal(key.begin(), key.end(), it->second.key.begin(), it->second.key.end()))
        return it->second.plan;
    plan->cache = this;
    plan->hash = hash;
    plan->last_use = use_clock.fetch_add(1);
    entries_.emplace(hash, Entry{std::vector<uint64_t>(key.begin(), key.end()), plan});
  }
  {
    std::lock_guard lock(registry_mutex);
    registry()[plan->device].insert(plan.get());
  }
  make_room(plan->device);
  return plan;
}

// An eighth goes at once, so that looking for the oldest ones is cheap per plan.
void PlanCache::make_room(c10::DeviceIndex device) {
  // Plans end after the lock is released: their destructor takes it.
  std::vector<std::shared_ptr<Plan>> victims, survivors;
  {
    std::lock_guard lock(registry_mutex);
    const std::unordered_set<Plan*>& plans = registry()[device];
    const size_t limit = max_plans();
    if (plans.size() <= limit) return;
    for (Plan* p : plans) {
      if (p->cache == nullptr) continue;  // of a compiled graph: it lives as long as its owner
      if (std::shared_ptr<Plan> alive = p->weak_from_this().lock()) victims.push_back(std::move(alive));
    }
    const size_t excess = std::min(victims.size(), plans.size() - limit + limit / 8);
    std::nth_element(victims.begin(), victims.begin() + static_cast<std::ptrdiff_t>(excess), victims.end(),
                     [](const auto& a, const auto& b) { return a->last_use.load() < b->last_use.load(); });
    survivors.assign(std::make_move_iterator(victims.begin() + static_cast<std::ptrdiff_t>(excess)),
                     std::make_move_iterator(victims.end()));
    victims.resize(excess);
  }
  for (const std::shared_ptr<Plan>& victim : victims) victim->cache->erase(*victim);
}

void PlanCache::erase(const Plan& plan) {
  std::lock_guard lock(mutex_);
  auto [it, end] = entries_.equal_range(plan.hash);
  for (; it != end; ++it)
    if (it->second.plan.get() == &plan) {
      entries_.erase(it);
      return;
    }
}

size_t max_plans() {
  static const size_t limit = [] {
    constexpr size_t kDefault = 4096;
    const char* variable = std::getenv("NEURON_EAGER_MODEL_CACHE_SIZE");
    if (variable == nullptr || *variable == 0) return kDefault;
    const std::string_view text = variable;
    size_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    TORCH_CHECK_VALUE(error == std::errc() && end == text.data() + text.size() && value > 0,
                      "user error: NEURON_EAGER_MODEL_CACHE_SIZE=", text,
                      " is not a number of programs; give a positive integer or unset it.");
    return value;
  }();
  return limit;
}

uint64_t hash_of(const PlanKey& key) {
  uint64_t h = 0x9e3779b97f4a7c15ull ^ key.size();
  for (uint64_t word : key) {
    h = (h ^ word) * 0xff51afd7ed558ccdull;
    h ^= h >> 32;
  }
  return h;
}

CacheCounters cache_counters() {
  return {hits.load(), misses.load(), compiles.load(), disk_hits.load(), compile_us.load()};
}
void reset_cache_counters() { hits = misses = compiles = disk_hits = compile_us = 0; }

}  // namespace trnsim::aten
