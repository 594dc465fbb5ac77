// The only door to the simulator: libnrt.so.1 (the public nrt C ABI plus trnsim_ext.h) and
// libtrnsim_compiler.so, both opened with RTLD_LOCAL on first use of the device. `import torch` therefore
// starts nothing, and the Protobuf inside those libraries never meets the one inside libtorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "device_plugin/aten/device_use.h"
#include "device_plugin/compiler/compiler.h"

namespace trnsim::aten {

// Own declarations of the parts of the ABI that are used here.
struct nrt_tensor;
struct nrt_tensor_set;
struct nrt_model;
using NrtStatus = int;
constexpr NrtStatus kNrtSuccess = 0;
constexpr NrtStatus kNrtResource = 4;
constexpr NrtStatus kNrtCompletedWithNumErr =
    1003;  // the program produced a NaN: a result, not a failure, here
constexpr int kNrtPlacementDevice = 0;
constexpr int kNrtFrameworkPytorch = 3;

struct Nrt {
  NrtStatus (*nrt_init)(int framework, const char* framework_version, const char* layer_version);
  void (*nrt_close)();
  NrtStatus (*nrt_get_visible_vnc_count)(uint32_t* count);
  const char* (*nrt_get_status_as_str)(NrtStatus status);
  NrtStatus (*nrt_tensor_allocate)(int placement, int vnc, size_t bytes, const char* name,
                                   nrt_tensor** tensor);
  void (*nrt_tensor_free)(nrt_tensor** tensor);
  NrtStatus (*nrt_tensor_allocate_slice)(const nrt_tensor* source, size_t offset, size_t bytes,
                                         const char* name, nrt_tensor** slice);
  NrtStatus (*nrt_tensor_read)(const nrt_tensor* tensor, void* host, size_t offset, size_t bytes);
  NrtStatus (*nrt_tensor_write)(nrt_tensor* tensor, const void* host, size_t offset, size_t bytes);
  void* (*nrt_tensor_get_va)(const nrt_tensor* tensor);
  NrtStatus (*nrt_allocate_tensor_set)(nrt_tensor_set** set);
  void (*nrt_destroy_tensor_set)(nrt_tensor_set** set);
  NrtStatus (*nrt_add_tensor_to_tensor_set)(nrt_tensor_set* set, const char* name, nrt_tensor* tensor);
  NrtStatus (*nrt_load)(const void* program, size_t bytes, int32_t vnc, int32_t vnc_count, nrt_model** model);
  NrtStatus (*nrt_unload)(nrt_model* model);
  NrtStatus (*nrt_execute)(nrt_model* model, const nrt_tensor_set* inputs, nrt_tensor_set* outputs);

  int (*trnsim_configure)(const char* config, const char* overrides, const char* mode, const char* check);
  const char* (*trnsim_last_error)();
  int64_t (*trnsim_simulated_ps)(uint32_t vnc);
  const char* (*trnsim_report_json)();
  void (*trnsim_reset_report)();
  const char* (*trnsim_config_json)();
  uint64_t (*trnsim_hbm_bytes)(uint32_t vnc);
};

// Opens the library when needed; throws c10::Error that names the file that was not found.
const Nrt& nrt();
const compiler::Compiler& compiler_library();

// Hands the configuration to the runtime. Throws when the device has been used already, or with the runtime's
// own words when a name or value is wrong. Empty strings keep what the environment says.
void configure(const std::string& config, const std::string& overrides, const std::string& mode,
               const std::string& check);

// nrt_init on first use.
void ensure_initialized();
bool initialized();
void close();

// Never throw and never start the simulator. A runtime that refuses its configuration gives 0 devices and its words
// as the problem; report_device_problem() warns with them, once per process.
int device_count();
std::string device_problem();
void report_device_problem();
const std::string& target();  // "trn2", "trn3": what programs are compiled for
int physical_cores();         // of a logical core, on which a program may run: 1 or 2
bool time_only();             // TRNSIM_MODE=time: values are not computed, device memory must not be touched
bool launch_blocking();       // NEURON_LAUNCH_BLOCKING

// Throws a c10::Error that says what failed, the status name and the runtime's words.
void check(NrtStatus status, const char* what);
std::string describe(NrtStatus status);

// A variable that holds 0/1/true/false in any case; anything else is a user error.
bool env_flag(const char* name, bool otherwise);

}  // namespace trnsim::aten
