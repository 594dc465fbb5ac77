// Models: load, bind by name, run, account.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <utility>

#include "isa/program.h"
#include "sim/runtime/log.h"
#include "sim/runtime/runtime.h"
#include "sim/runtime/trnsim_ext.h"

namespace trnsim::runtime {

namespace {

constexpr uint64_t kScratchAlignment = 4096;
constexpr int64_t kPsPerSecond = 1000000000000;

std::string short_number(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", v);
  return text;
}

uint64_t round_up(uint64_t v, uint64_t unit) { return (v + unit - 1) / unit * unit; }

std::string tensor_text(const Model& m, const Port& port) {
  const auto& info = m.image.program->tensors()[port.tensor];
  std::string shape;
  for (int64_t d : info.shape) shape += (shape.empty() ? "" : ", ") + std::to_string(d);
  return "'" + port.name + "' (" + std::string(isa::dtype_name(info.dtype)) + " [" + shape + "], " +
         std::to_string(port.bytes) + " bytes) of program '" + m.name + "'";
}

// Binds the ports of one direction. The sets of a client usually list the tensors in program order: then each
// lookup is one compare.
NRT_STATUS bind_ports(const Model& m, const std::vector<Port>& ports, const nrt_tensor_set_t* handle,
                      const char* what, bool outputs, std::vector<chip::Binding>& bindings) {
  TensorSet* set = handle == nullptr ? nullptr : tensor_sets().get(handle);
  if (set == nullptr && !(handle == nullptr && ports.empty()))
    return bad_handle("nrt_execute", outputs ? "output set" : "input set");
  for (size_t i = 0; i < ports.size(); ++i) {
    const Port& port = ports[i];
    TensorSet::Entry* e = nullptr;
    if (i < set->count && set->entries[i].hash == port.hash && set->entries[i].name == port.name)
      e = &set->entries[i];
    else
      e = set->find(port.hash, port.name);
    if (e == nullptr) {
      if (port.bytes == 0) continue;
      return fail(NRT_EXEC_BAD_INPUT, "user error: nrt_execute: the " + std::string(what) + " set lacks " +
                                          tensor_text(m, port) +
                                          "; bind every tensor of nrt_get_model_tensor_info");
    }
    Tensor* t = tensors().get(e->tensor);
    if (t == nullptr)
      return fail(NRT_INVALID_HANDLE,
                  "user error: nrt_execute: the tensor bound to " + tensor_text(m, port) + " has been freed");
    if (t->bytes < port.bytes)
      return fail(NRT_INVALID, "user error: nrt_execute: the tensor bound to " + tensor_text(m, port) +
                                   " has " + std::to_string(t->bytes) + " bytes");
    if (t->vnc >= 0 && static_cast<uint32_t>(t->vnc) != m.vnc)
      return fail(NRT_INVALID, "illegal on hardware: nrt_execute: the tensor bound to " +
                                   tensor_text(m, port) + " is on logical core " + std::to_string(t->vnc) +
                                   ", the program on core " + std::to_string(m.vnc) +
                                   "; copy it through the host");
    chip::Binding& b = bindings[port.tensor];
    b.data = g_runtime->settings.mode == chip::Mode::kTime ? nullptr : t->data;
    b.bytes = t->bytes;
    b.device_address = t->device_address;
    if (outputs) b.initialised = t->initialised.load(std::memory_order_relaxed);
  }
  return NRT_SUCCESS;
}

void count_completions(const std::vector<Port>& ports, nrt_tensor_set_t* handle) {
  TensorSet* set = handle == nullptr ? nullptr : tensor_sets().get(handle);
  if (set == nullptr) return;
  for (size_t i = 0; i < ports.size(); ++i) {
    TensorSet::Entry* e =
        i < set->count && set->entries[i].hash == ports[i].hash && set->entries[i].name == ports[i].name
            ? &set->entries[i]
            : set->find(ports[i].hash, ports[i].name);
    Tensor* t = e == nullptr ? nullptr : tensors().get(e->tensor);
    if (t == nullptr) continue;
    t->written(0, ports[i].bytes);
    t->completions.fetch_add(1, std::memory_order_release);
  }
}

void account(LogicalCore& core, Model& m, const chip::LaunchStats& s, int64_t wall_ns) {
  Totals& t = core.totals;
  t.simulated_ps += s.total_ps;
  t.physical_ps += s.total_ps * s.cores;
  for (size_t n = 0; n < static_cast<size_t>(s.cores); ++n) {
    t.of_core[n].add(s.of_core[n]);
    t.of_core_ps[n] += s.total_ps;
  }
  t.add(s);
  ++t.launches;
  (s.from_memo ? t.memo_hits : t.memo_misses) += 1;
  t.flops += m.image.program->flops();
  t.bytes += m.image.program->hbm_bytes();
  ++m.totals.count;
  m.totals.simulated_ps += s.total_ps;
  m.totals.wall_ns += wall_ns;
  m.totals.sbuf_bytes = std::max(m.totals.sbuf_bytes, s.sbuf_bytes);
  m.totals.psum_bytes = std::max(m.totals.psum_bytes, s.psum_bytes);
  m.totals.activity.add(s);
  m.last_ps = s.total_ps;
  m.last_instructions = s.instructions;
  core.simulated_ps.fetch_add(s.total_ps, std::memory_order_relaxed);
}

driver::CoreCounter counter_of(NRT_STATUS status) {
  using C = driver::CoreCounter;
  switch (status) {
    case NRT_SUCCESS:
      return C::kSuccess;
    case NRT_INVALID:
      return C::kInvalidError;
    case NRT_TIMEOUT:
      return C::kTimeout;
    case NRT_EXEC_BAD_INPUT:
      return C::kExecBadInput;
    case NRT_EXEC_COMPLETED_WITH_NUM_ERR:
      return C::kExecuteCompletedWithNumError;
    case NRT_EXEC_COMPLETED_WITH_ERR:
      return C::kExecuteCompletedWithError;
    case NRT_EXEC_OOB:
      return C::kOobError;
    case NRT_EXEC_HW_ERR_HBM_UE:
      return C::kHwHbmUeError;
    case NRT_EXEC_HW_ERR_REPAIRABLE_HBM_UE:
      return C::kHwRepairableHbmUeError;
    case NRT_EXEC_HW_ERR_NC_UE:
      return C::kHwNcUeError;
    case NRT_EXEC_HW_ERR_DMA_ABORT:
      return C::kHwDmaAbortError;
    case NRT_EXEC_SW_NQ_OVERFLOW:
      return C::kExecuteSwNqOverflow;
    default:
      return C::kGenericError;
  }
}

NRT_STATUS launch_status(const chip::LaunchResult& result, LogicalCore& core) {
  using S = chip::LaunchResult::Status;
  switch (driver::Driver::last_launch_fault()) {
    case driver::Fault::kHbmUncorrectable:
      core.dead = true;
      return NRT_EXEC_HW_ERR_HBM_UE;
    case driver::Fault::kHbmRepairable:
      core.dead = true;
      return NRT_EXEC_HW_ERR_REPAIRABLE_HBM_UE;
    case driver::Fault::kCoreParity:
      core.dead = true;
      return NRT_EXEC_HW_ERR_NC_UE;
    case driver::Fault::kDmaAbort:
      core.dead = true;
      return NRT_EXEC_HW_ERR_DMA_ABORT;
    case driver::Fault::kQueueOverflow:
      return NRT_EXEC_SW_NQ_OVERFLOW;
    default:
      break;
  }
  switch (result.status) {
    case S::kOk:
      return NRT_SUCCESS;
    case S::kUserError:
      return NRT_INVALID;
    case S::kIllegal:
      return NRT_EXEC_COMPLETED_WITH_ERR;
    case S::kNotSimulated:
      return NRT_FAILURE;
    case S::kOutOfBounds:
      return NRT_EXEC_OOB;
    case S::kHang:
      return NRT_TIMEOUT;
    case S::kNumericalError:
      return NRT_EXEC_COMPLETED_WITH_NUM_ERR;
  }
  return NRT_FAILURE;
}

// The scratchpad of a core grows to its largest model; contents do not live from one run to the next.
NRT_STATUS reserve_scratch(LogicalCore& core, uint64_t bytes) {
  if (bytes <= core.scratch.bytes) return NRT_SUCCESS;
  driver::Driver& d = *g_runtime->driver;
  const uint64_t before = core.scratch.bytes;
  d.free(core.scratch);
  core.scratch = {};
  constexpr auto kCategory = driver::MemoryCategory::kModelSharedScratchpad;
  driver::Status s = d.allocate(core.physical, bytes, kScratchAlignment, kCategory, &core.scratch);
  if (!s.ok() && before != 0)  // the programs loaded before keep what they had; it was just freed
    (void)d.allocate(core.physical, before, kScratchAlignment, kCategory, &core.scratch);
  if (!s.ok() && s.code == driver::Code::kNoMemory)
    s.message = "the scratchpad of a program: " + s.message + " (" + d.memory_table(core.physical) + ")";
  return from_driver(s);
}

Port make_port(const chip::TensorInfo& info, size_t index) {
  return {info.name, name_hash(info.name.data(), info.name.size()), static_cast<uint32_t>(index), info.bytes};
}

NRT_STATUS prepare(Model& m) {
  const auto& tensors = m.image.program->tensors();
  m.bindings.resize(tensors.size());
  const bool data = g_runtime->settings.mode != chip::Mode::kTime;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const chip::TensorInfo& info = tensors[i];
    switch (static_cast<isa::TensorKind>(info.kind)) {
      case isa::TensorKind::kInput:
        m.inputs.push_back(make_port(info, i));
        break;
      case isa::TensorKind::kOutput:
        m.outputs.push_back(make_port(info, i));
        break;
      case isa::TensorKind::kConstant: {
        const driver::Allocation& a = m.image.constants[i];
        m.bindings[i] = {data ? a.data : nullptr, info.bytes, a.device_address};
        break;
      }
      case isa::TensorKind::kScratch:
        m.scratch.push_back({static_cast<uint32_t>(i), m.scratch_bytes});
        m.bindings[i].bytes = info.bytes;
        m.scratch_bytes = round_up(m.scratch_bytes + info.bytes, kScratchAlignment);
        break;
    }
  }
  return NRT_SUCCESS;
}

NRT_STATUS load_error(const chip::LoadError& e) {
  using K = chip::LoadError::Kind;
  switch (e.kind) {
    case K::kNeff:
    case K::kNewerVersion:
      return fail(NRT_UNSUPPORTED_NEFF_VERSION, e.message);
    case K::kNone:
      return fail(NRT_FAILURE, e.message.empty() ? "nrt_load failed" : e.message);
    default:
      return fail(NRT_INVALID, e.message);
  }
}

NRT_STATUS load(const void* container, size_t size, int32_t vnc, int32_t vnc_count, nrt_model_t** out) {
  Runtime& r = *g_runtime;
  if (out == nullptr) return fail(NRT_INVALID, "user error: nrt_load: model is NULL");
  *out = nullptr;
  if (container == nullptr || size == 0) return fail(NRT_INVALID, "user error: nrt_load: an empty container");
  const auto n = static_cast<int32_t>(r.cores.size());
  if (vnc < -1 || vnc >= n)
    return fail(NRT_INVALID, "user error: nrt_load: logical core " + std::to_string(vnc) +
                                 "; this process has cores 0 to " + std::to_string(n - 1) + ", -1 picks one");
  if (vnc_count > 1)
    return fail(NRT_LOAD_NOT_ENOUGH_NC, "not simulated: nrt_load on " + std::to_string(vnc_count) +
                                            " logical cores; a program runs on one");
  if (vnc < 0) {
    vnc = 0;
    for (int32_t i = 0; i < n; ++i) {
      const std::lock_guard lock(r.cores[static_cast<size_t>(i)]->queue);
      if (r.cores[static_cast<size_t>(i)]->models.empty()) {
        vnc = i;
        break;
      }
    }
  }
  LogicalCore& core = *r.cores[static_cast<size_t>(vnc)];
  auto model = std::make_unique<Model>();
  chip::LoadError error;
  driver::Status s =
      r.driver->load(core.physical, static_cast<const uint8_t*>(container), size, &model->image, &error);
  if (!s.ok()) {
    if (error.kind != chip::LoadError::Kind::kNone) {
      const NRT_STATUS status = load_error(error);
      r.driver->counters().add(core.physical, status == NRT_UNSUPPORTED_NEFF_VERSION
                                                  ? driver::CoreCounter::kUnsupportedNeffVersion
                                                  : driver::CoreCounter::kInvalidError);
      return status;
    }
    if (s.code == driver::Code::kNoMemory)
      s.message = "loading a program: " + s.message + " (" + r.driver->memory_table(core.physical) + ")";
    return from_driver(s);
  }
  model->name = model->image.program->name();
  if (const int cores = model->image.program->cores(); cores > r.settings.logical_core_size) {
    r.driver->unload(model->image);
    r.driver->counters().add(core.physical, driver::CoreCounter::kInvalidError);
    return fail(NRT_INVALID,
                "user error: nrt_load: program '" + model->name + "' is compiled for logical cores of " +
                    std::to_string(cores) + " physical cores, and this process has logical cores of " +
                    std::to_string(r.settings.logical_core_size) +
                    "; the two must match: set NEURON_LOGICAL_NC_CONFIG=" + std::to_string(cores) +
                    " (and NEURON_RT_VIRTUAL_CORE_SIZE, where it is set), or compile the program for " +
                    std::to_string(r.settings.logical_core_size));
  }
  model->vnc = static_cast<uint32_t>(vnc);
  model->id = r.next_model_id.fetch_add(1);
  const std::lock_guard lock(core.queue);
  NRT_STATUS status = prepare(*model);
  if (status == NRT_SUCCESS) status = reserve_scratch(core, model->scratch_bytes);
  uint32_t index = 0;
  ModelSlot* slot = status == NRT_SUCCESS ? models().acquire(&index) : nullptr;
  if (status == NRT_SUCCESS && slot == nullptr)
    status = fail(NRT_RESOURCE, "user error: more than 16 million programs are loaded");
  if (status != NRT_SUCCESS) {
    r.driver->unload(model->image);
    return status;
  }
  slot->model = model.get();
  slot->vnc = model->vnc;
  core.models.push_back(model.release());
  *out = static_cast<nrt_model_t*>(models().publish(index));
  return NRT_SUCCESS;
}

}  // namespace

void destroy_model(LogicalCore& core, Model* model) {
  if (model->totals.count != 0) core.unloaded[model->name].add(model->totals);
  g_runtime->driver->unload(model->image);
  core.models.erase(std::remove(core.models.begin(), core.models.end(), model), core.models.end());
  delete model;
}

NRT_STATUS execute(nrt_model_t* handle, const nrt_tensor_set_t* inputs, nrt_tensor_set_t* outputs) {
  const ModelSlot* slot = models().get(handle);
  if (slot == nullptr) return bad_handle("nrt_execute", "model");
  Runtime& r = *g_runtime;
  LogicalCore& core = *r.cores[slot->vnc];
  const std::lock_guard lock(core.queue);
  // Again under the lock: another thread may have unloaded it meanwhile.
  if (models().get(handle) != slot || slot->model == nullptr) return bad_handle("nrt_execute", "model");
  if (core.dead.load(std::memory_order_relaxed))
    return fail(NRT_EXEC_UNIT_UNRECOVERABLE,
                "logical core " + std::to_string(slot->vnc) +
                    " stopped after a hardware error; nrt_close and nrt_init reset it");
  Model& m = *slot->model;
  core.bindings.assign(m.bindings.begin(), m.bindings.end());
  NRT_STATUS status = bind_ports(m, m.inputs, inputs, "input", false, core.bindings);
  if (status == NRT_SUCCESS) status = bind_ports(m, m.outputs, outputs, "output", true, core.bindings);
  if (status != NRT_SUCCESS) {
    r.driver->counters().add(core.physical, counter_of(status));
    return status;
  }
  const bool data = r.settings.mode != chip::Mode::kTime;
  for (const Model::Scratch& s : m.scratch) {
    core.bindings[s.tensor].data = data ? core.scratch.data + s.offset : nullptr;
    core.bindings[s.tensor].device_address = core.scratch.device_address + s.offset;
  }

  const int64_t start_ps = core.simulated_ps.load(std::memory_order_relaxed);
  const auto start = std::chrono::steady_clock::now();
  const chip::LaunchResult result = r.driver->launch(m.image, core.bindings);
  const std::chrono::nanoseconds wall = std::chrono::steady_clock::now() - start;
  for (const std::string& w : result.warnings) {
    // Whoever asks for warnings sees them while the program runs, each once.
    if (r.warn(w) && r.settings.check == check::Level::kWarn)
      std::fprintf(stderr, "trnsim: program '%s': %s\n", m.name.c_str(), w.c_str());
  }
  status = launch_status(result, core);
  if (status == NRT_SUCCESS || status == NRT_EXEC_COMPLETED_WITH_NUM_ERR) {
    account(core, m, result.stats, wall.count());
    count_completions(m.outputs, outputs);
    if (static_cast<double>(result.stats.total_ps) >
        r.settings.exec_timeout_s * static_cast<double>(kPsPerSecond))
      status = fail(NRT_TIMEOUT, "illegal on hardware: program '" + m.name + "' takes " +
                                     short_number(static_cast<double>(result.stats.total_ps) / kPsPerSecond) +
                                     " simulated seconds on logical core " + std::to_string(m.vnc) +
                                     "; the limit is NEURON_RT_EXEC_TIMEOUT=" +
                                     short_number(r.settings.exec_timeout_s) + " s");
  }
  if (status != NRT_SUCCESS && status != NRT_TIMEOUT) fail(status, result.message);
  if (status == NRT_TIMEOUT && result.status == chip::LaunchResult::Status::kHang) {
    fail(status, result.message);
    for (int n = 0; n < m.image.program->cores(); ++n)  // the next program finds working cores
      r.driver->reset_core(core.physical + n);
  }
  r.driver->counters().add(core.physical, counter_of(status));
  if (g_observe_executions.load(std::memory_order_relaxed))
    observe_execution({&m, m.vnc, start_ps, &result, status});
  return status;
}

}  // namespace trnsim::runtime

using namespace trnsim::runtime;  // NOLINT

namespace {

// What nrt_get_model_tensor_info gave out. Leaked on purpose, as the tables of handles are.
auto& g_infos = *new HandedOut;

nrt_dtype_t to_nrt(trnsim::isa::Dtype d) {
  using D = trnsim::isa::Dtype;
  switch (d) {
    case D::kF32:
      return NRT_DTYPE_FLOAT32;
    case D::kF32R:
      return NRT_DTYPE_FP32R;
    case D::kBF16:
      return NRT_DTYPE_BFLOAT16;
    case D::kF16:
      return NRT_DTYPE_FLOAT16;
    case D::kF8E4M3:
    case D::kF8E4M3FN:
      return NRT_DTYPE_FP8_E4;
    case D::kF8E5M2:
      return NRT_DTYPE_FP8_E5;
    case D::kI32:
      return NRT_DTYPE_INT32;
    case D::kI16:
      return NRT_DTYPE_INT16;
    case D::kI8:
      return NRT_DTYPE_INT8;
    case D::kU32:
      return NRT_DTYPE_UINT32;
    case D::kU16:
      return NRT_DTYPE_UINT16;
    case D::kU8:
    case D::kBool:
      return NRT_DTYPE_UINT8;
    case D::kI64:
      return NRT_DTYPE_INT64;
    default:
      return NRT_DTYPE_UNKNOWN;
  }
}

// Model of a handle with its queue locked; null with a text otherwise.
Model* locked_model(const char* function, const void* handle, std::unique_lock<std::mutex>* lock) {
  const ModelSlot* slot = models().get(handle);
  if (slot == nullptr) {
    bad_handle(function, "model");
    return nullptr;
  }
  *lock = std::unique_lock(g_runtime->cores[slot->vnc]->queue);
  if (models().get(handle) != slot || slot->model == nullptr) {
    bad_handle(function, "model");
    return nullptr;
  }
  return slot->model;
}

NRT_STATUS model_count(const char* function, const void* handle, uint32_t* count) {
  if (models().get(handle) == nullptr) return bad_handle(function, "model");
  if (count == nullptr) return fail(NRT_INVALID, std::string("user error: ") + function + ": count is NULL");
  *count = 1;  // one instance on one logical core
  return NRT_SUCCESS;
}

}  // namespace

extern "C" {

NRT_STATUS nrt_load(const void* container, size_t size, int32_t vnc, int32_t vnc_count, nrt_model_t** model) {
  TRNSIM_REQUIRE_INIT();
  try {
    return load(container, size, vnc, vnc_count, model);
  } catch (const std::exception& e) {
    return fail(NRT_FAILURE, std::string("nrt_load: ") + e.what());
  }
}

NRT_STATUS nrt_load_collectives(const void* container, size_t size, int32_t vnc, int32_t vnc_count,
                                uint32_t ctx_device_id, uint32_t ctx_device_count, nrt_model_t** model) {
  TRNSIM_REQUIRE_INIT();
  if (ctx_device_count == 0 || ctx_device_id >= ctx_device_count)
    return fail(NRT_INVALID, "user error: nrt_load_collectives: device " + std::to_string(ctx_device_id) +
                                 " of " + std::to_string(ctx_device_count));
  // A container has no collectives yet, so a member of a group runs like a program of its own.
  return nrt_load(container, size, vnc, vnc_count, model);
}

NRT_STATUS nrt_unload(nrt_model_t* model) {
  TRNSIM_REQUIRE_INIT();
  const ModelSlot* slot = models().get(model);
  if (slot == nullptr) return bad_handle("nrt_unload", "model");
  LogicalCore& core = *g_runtime->cores[slot->vnc];
  const std::lock_guard lock(core.queue);
  const bool ended = models().release(model, [&](ModelSlot& s) {
    destroy_model(core, s.model);
    s.model = nullptr;
  });
  return ended ? NRT_SUCCESS : bad_handle("nrt_unload", "model");
}

NRT_STATUS nrt_execute(nrt_model_t* model, const nrt_tensor_set_t* inputs, nrt_tensor_set_t* outputs) {
  TRNSIM_REQUIRE_INIT();
  try {
    return execute(model, inputs, outputs);
  } catch (const std::exception& e) {
    return fail(NRT_FAILURE, std::string("nrt_execute: ") + e.what());
  }
}

NRT_STATUS nrt_execute_repeat(nrt_model_t* model, const nrt_tensor_set_t* inputs, nrt_tensor_set_t* outputs,
                              int count) {
  TRNSIM_REQUIRE_INIT();
  if (count < 1) return fail(NRT_INVALID, "user error: nrt_execute_repeat: count " + std::to_string(count));
  // Output i feeds input i of the next run.
  std::vector<std::pair<std::string, std::string>> feed;
  std::vector<uint64_t> bytes;
  {
    std::unique_lock<std::mutex> lock;
    const Model* m = locked_model("nrt_execute_repeat", model, &lock);
    if (m == nullptr) return NRT_INVALID_HANDLE;
    if (count > 1 && m->outputs.size() > m->inputs.size())
      return fail(NRT_INVALID, "user error: nrt_execute_repeat: program '" + m->name +
                                   "' has more outputs than inputs, so its outputs cannot feed the next run");
    for (size_t i = 0; count > 1 && i < m->outputs.size(); ++i) {
      if (m->outputs[i].bytes != m->inputs[i].bytes)
        return fail(NRT_INVALID, "user error: nrt_execute_repeat: output '" + m->outputs[i].name + "' (" +
                                     std::to_string(m->outputs[i].bytes) + " bytes) cannot feed input '" +
                                     m->inputs[i].name + "' (" + std::to_string(m->inputs[i].bytes) +
                                     " bytes)");
      feed.emplace_back(m->outputs[i].name, m->inputs[i].name);
      bytes.push_back(m->outputs[i].bytes);
    }
  }
  for (int run = 0; run < count; ++run) {
    if (const NRT_STATUS s = nrt_execute(model, inputs, outputs); s != NRT_SUCCESS) return s;
    if (run + 1 == count) break;
    for (size_t i = 0; i < feed.size(); ++i) {
      nrt_tensor_t* from = nullptr;
      nrt_tensor_t* to = nullptr;
      NRT_STATUS s = nrt_get_tensor_from_tensor_set(outputs, feed[i].first.c_str(), &from);
      if (s == NRT_SUCCESS)
        s = nrt_get_tensor_from_tensor_set(const_cast<nrt_tensor_set_t*>(inputs), feed[i].second.c_str(),
                                           &to);
      if (s == NRT_SUCCESS) s = nrt_tensor_copy(from, 0, to, 0, bytes[i]);
      if (s != NRT_SUCCESS) return s;
    }
  }
  return NRT_SUCCESS;
}

NRT_STATUS nrt_get_model_tensor_info(nrt_model_t* model, nrt_tensor_info_array_t** info) {
  TRNSIM_REQUIRE_INIT();
  if (info == nullptr) return fail(NRT_INVALID, "user error: nrt_get_model_tensor_info: info is NULL");
  std::unique_lock<std::mutex> lock;
  const Model* m = locked_model("nrt_get_model_tensor_info", model, &lock);
  if (m == nullptr) return NRT_INVALID_HANDLE;
  const auto& tensors = m->image.program->tensors();
  const size_t n = m->inputs.size() + m->outputs.size();
  auto* array = static_cast<nrt_tensor_info_array_t*>(
      std::calloc(1, sizeof(nrt_tensor_info_array_t) + n * sizeof(nrt_tensor_info_t)));
  if (array == nullptr) return fail(NRT_RESOURCE, "nrt_get_model_tensor_info: the host has no memory left");
  const auto describe = [&](const Port& port, nrt_tensor_usage_t usage) {
    nrt_tensor_info_t& out = array->tensor_array[array->tensor_count++];
    const auto& t = tensors[port.tensor];
    port.name.copy(out.name, sizeof out.name - 1);
    out.usage = usage;
    out.size = port.bytes;
    out.dtype = to_nrt(t.dtype);
    out.ndim = static_cast<uint32_t>(t.shape.size());
    out.shape = static_cast<uint32_t*>(std::calloc(std::max<size_t>(t.shape.size(), 1), sizeof(uint32_t)));
    for (size_t d = 0; out.shape != nullptr && d < t.shape.size(); ++d)
      out.shape[d] = static_cast<uint32_t>(t.shape[d]);
  };
  for (const Port& p : m->inputs) describe(p, NRT_TENSOR_USAGE_INPUT);
  for (const Port& p : m->outputs) describe(p, NRT_TENSOR_USAGE_OUTPUT);
  g_infos.add(array);
  *info = array;
  return NRT_SUCCESS;
}

NRT_STATUS nrt_free_model_tensor_info(nrt_tensor_info_array_t* info) {
  if (info == nullptr) return fail(NRT_INVALID, "user error: nrt_free_model_tensor_info: info is NULL");
  if (!g_infos.take(info)) return bad_handle("nrt_free_model_tensor_info", "info");
  for (uint64_t i = 0; i < info->tensor_count; ++i) std::free(info->tensor_array[i].shape);
  std::free(info);
  return NRT_SUCCESS;
}

NRT_STATUS nrt_get_model_nc_count(const nrt_model_t* model, uint32_t* count) {
  TRNSIM_REQUIRE_INIT();
  return model_count("nrt_get_model_nc_count", model, count);
}

NRT_STATUS nrt_get_model_vnc_count(const nrt_model_t* model, uint32_t* count) {
  TRNSIM_REQUIRE_INIT();
  return model_count("nrt_get_model_vnc_count", model, count);
}

NRT_STATUS nrt_get_model_instance_count(const nrt_model_t* model, uint32_t* count) {
  TRNSIM_REQUIRE_INIT();
  return model_count("nrt_get_model_instance_count", model, count);
}

NRT_STATUS nrt_get_model_info(const nrt_model_t* model, nrt_model_info_t* info, size_t size_in,
                              size_t* size_out) {
  TRNSIM_REQUIRE_INIT();
  const ModelSlot* slot = models().get(model);
  if (slot == nullptr) return bad_handle("nrt_get_model_info", "model");
  if (info == nullptr || size_in < sizeof(uint32_t))
    return fail(NRT_INVALID, "user error: nrt_get_model_info: no room for the result");
  info->vnc = slot->vnc;
  if (size_out != nullptr) *size_out = sizeof(nrt_model_info_t);
  return NRT_SUCCESS;
}

int64_t trnsim_model_last_ps(const void* model) {
  if (!ready()) return 0;
  std::unique_lock<std::mutex> lock;
  const Model* m = locked_model("trnsim_model_last_ps", model, &lock);
  return m == nullptr ? 0 : m->last_ps;
}

int64_t trnsim_model_instructions(const void* model) {
  if (!ready()) return 0;
  std::unique_lock<std::mutex> lock;
  const Model* m = locked_model("trnsim_model_instructions", model, &lock);
  return m == nullptr ? 0 : m->last_instructions;
}

}  // extern "C"
