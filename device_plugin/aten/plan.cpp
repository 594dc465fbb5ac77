#include "device_plugin/aten/plan.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "device_plugin/aten/program_store.h"
#include "device_plugin/aten/queue.h"

namespace trnsim::aten {
namespace {

std::atomic<uint64_t> hits{0}, misses{0}, compiles{0}, compile_us{0};

// All plans with a program, for release_bindings.
std::mutex registry_mutex;
std::unordered_map<int, std::vector<Plan*>>& registry() {
  static auto* plans = new std::unordered_map<int, std::vector<Plan*>>;
  return *plans;
}

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

void load_program(Plan& plan, compiler::Graph graph) {
  const Nrt& api = nrt();
  const auto begin = std::chrono::steady_clock::now();
  const size_t num_inputs = graph.inputs.size(), num_outputs = graph.outputs.size();
  plan.num_params = graph.num_params;
  const StoredProgram program = find_or_compile(graph);
  if (program.compiled) ++compiles;
  compile_us += static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin)
          .count());
  using Status = compiler::CompileResult::Status;
  if (program.status == Status::kUnsupported) {
    plan.kind = Plan::Kind::kFallback;
    plan.reason = program.message;
    return;
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
  std::lock_guard lock(registry_mutex);
  registry()[plan.device].push_back(&plan);
}

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
  TORCH_CHECK(
      false, "neuron: error while executing ", plan.name, ": ", describe(status),
      ". Execution is asynchronous, so this call is not the one that failed; set NEURON_LAUNCH_BLOCKING=1 to "
      "get the error on its own line.");
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

Plan* PlanCache::find(const PlanKey& key, uint64_t hash) {
  std::lock_guard lock(mutex_);
  auto [it, end] = entries_.equal_range(hash);
  for (; it != end; ++it) {
    const std::vector<uint64_t>& stored = it->second.key;
    if (stored.size() == key.size() &&
        std::memcmp(stored.data(), key.data(), key.size() * sizeof(uint64_t)) == 0) {
      hits.fetch_add(1, std::memory_order_relaxed);
      return it->second.plan.get();
    }
  }
  misses.fetch_add(1, std::memory_order_relaxed);
  return nullptr;
}

Plan* PlanCache::insert(const PlanKey& key, uint64_t hash, std::unique_ptr<Plan> plan) {
  std::lock_guard lock(mutex_);
  Entry entry{std::vector<uint64_t>(key.begin(), key.end()), std::move(plan)};
  return entries_.emplace(hash, std::move(entry))->second.plan.get();
}

uint64_t hash_of(const PlanKey& key) {
  uint64_t h = 0x9e3779b97f4a7c15ull ^ key.size();
  for (uint64_t word : key) {
    h = (h ^ word) * 0xff51afd7ed558ccdull;
    h ^= h >> 32;
  }
  return h;
}

CacheCounters cache_counters() { return {hits.load(), misses.load(), compiles.load(), compile_us.load()}; }
void reset_cache_counters() { hits = misses = compiles = compile_us = 0; }

}  // namespace trnsim::aten
