// A plan: everything a repeated call needs. Metadata of its results, the loaded program and the tensors bound
// to it.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "device_plugin/aten/allocator.h"
#include "device_plugin/compiler/graph.h"

namespace trnsim::aten {

struct TensorMeta {
  c10::ScalarType dtype = c10::ScalarType::Float;
  c10::SmallVector<int64_t, 6> sizes, strides;
  size_t extent_bytes = 0;  // from the first to the last element; 0 when there is none
};
size_t extent_bytes(c10::IntArrayRef sizes, c10::IntArrayRef strides, size_t item_bytes);

class PlanCache;

// Shared by the cache, the calls that use it and their entries in the queue: a plan that the cache has dropped stays
// loaded until the last entry has run.
struct Plan : std::enable_shared_from_this<Plan> {
  Plan() = default;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  virtual ~Plan();  // unloads the program

  enum class Kind : uint8_t {
    kProgram,
    kNothing,   // every result is empty
    kFallback,  // the compiler has no lowering for this case; `reason` says why
  };
  Kind kind = Kind::kFallback;
  c10::DeviceIndex device = 0;
  std::string name;
  std::string reason;
  bool real_beside_complex_numbers =
      false;  // a fallback whose tensors and results are real, but not its numbers

  std::vector<TensorMeta> results;  // one per result; an unwanted one has result_wanted false
  std::vector<bool> result_wanted;
  std::vector<bool> result_resized;     // out= tensors that get new sizes first
  std::vector<c10::Warning> warnings;   // what the CPU warns of then, said by each call
  bool warns_of_new_sizes = false;      // or, where the CPU has not been asked, the usual words
  c10::SmallVector<int32_t, 8> inputs;  // position of each program input among the tensors of the call
  c10::SmallVector<size_t, 8> input_bytes;
  int num_params = 0;
  // Numbers that take the common type of the operands first.
  struct ParamConversion {
    int32_t slot = 0;
    isa::Dtype from = isa::Dtype::kF32;
    c10::ScalarType to = c10::ScalarType::Float;
  };
  c10::SmallVector<ParamConversion, 2> param_conversions;
  // A number that divides: the parts of its inverse follow the numbers of the call. One at most.
  struct ParamInverse {
    int32_t slot = 0;
    isa::Dtype type = isa::Dtype::kF32;
  };
  c10::SmallVector<ParamInverse, 1> param_inverses;
  uint64_t random_words = 0;  // how far a call advances the generator
  // Outputs (in the order of the bindings) in memory that held nothing before: if the program fails, what it should have
  // written must not read as values.
  std::vector<bool> fresh_outputs;

  PlanCache* cache = nullptr;  // that holds it, under ...
  uint64_t hash = 0;           // ... this hash
  std::atomic<uint64_t> last_use{0};
  // Bound program; touched by the executing thread only.
  struct Binding {
    std::string name;
    bool is_output = false;
    uint64_t segment_id = 0, offset_bytes = 0, bytes = 0;
    nrt_tensor* slice = nullptr;
  };
  nrt_model* model = nullptr;
  nrt_tensor_set* input_set = nullptr;
  nrt_tensor_set* output_set = nullptr;
  nrt_tensor* params = nullptr;
  void* params_address = nullptr;
  std::vector<Binding> bindings;  // inputs, then outputs
};

// Compiles (or finds) the program of `graph` and loads it. The kind becomes kProgram or kFallback; user
// errors throw.
struct Loading {
  bool compiled = false;  // otherwise the program was found
  uint64_t compile_us = 0;
};
Loading load_program(Plan& plan, compiler::Graph graph);

// Runs on the executing thread of the plan's queue.
void execute_plan(Plan& plan, c10::ArrayRef<Slice> slices, c10::ArrayRef<uint32_t> params);

// Of a plan that is in no cache: release_bindings() has to find it as well.
void keep_bindings_known(Plan& plan);

// Drops every slice that plans of the device keep, so that segments can be freed. The queue must be empty.
void release_bindings(c10::DeviceIndex device);

// ---- the cache of plans of one operator
// --------------------------------------------------------------------------
using PlanKey = c10::SmallVector<uint64_t, 64>;

class PlanCache {
 public:
  std::shared_ptr<Plan> find(const PlanKey& key, uint64_t hash);  // null: a miss
  // Returns the plan that is in the cache afterwards: that of another thread when it came first. May drop the least
  // recently used plans of the device, of any operator (max_plans).
  std::shared_ptr<Plan> insert(const PlanKey& key, uint64_t hash, std::shared_ptr<Plan> plan);

 private:
  struct Entry {
    std::vector<uint64_t> key;
    std::shared_ptr<Plan> plan;
  };
  static void make_room(c10::DeviceIndex device);
  void erase(const Plan& plan);

  std::mutex mutex_;
  std::unordered_multimap<uint64_t, Entry> entries_;
};
uint64_t hash_of(const PlanKey& key);

// Plans a device keeps: NEURON_EAGER_MODEL_CACHE_SIZE, or 4096.
size_t max_plans();

struct CacheCounters {
  uint64_t hits = 0, misses = 0;         // of plans
  uint64_t compiles = 0, disk_hits = 0;  // of programs: made, or found in TORCH_NEURONX_NEFF_CACHE_DIR
  uint64_t compile_us = 0;
};
CacheCounters cache_counters();
void reset_cache_counters();

}  // namespace trnsim::aten
