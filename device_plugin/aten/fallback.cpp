#include "device_plugin/aten/fallback.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>

#include "device_plugin/aten/generator.h"
#include "device_plugin/aten/graph_recorder.h"
#include "device_plugin/aten/queue.h"
#include "device_plugin/aten/tensors.h"

namespace trnsim::aten {
namespace {

std::mutex counts_mutex;
std::map<std::pair<std::string, std::string>, uint64_t>& counts() {
  static auto* map = new std::map<std::pair<std::string, std::string>, uint64_t>;
  return *map;
}

constexpr size_t kMaxTracked = 1 << 20;
std::atomic<bool> tracking{false};
std::vector<std::string>& tracked_executed() {
  static auto* list = new std::vector<std::string>;
  return *list;
}
std::vector<std::string>& tracked_fallback() {
  static auto* list = new std::vector<std::string>;
  return *list;
}

bool fallback_is_error() {
  static const bool value = [] {
    const char* variable = std::getenv("TRNSIM_FALLBACK");
    if (variable == nullptr || *variable == 0) return false;
    const std::string text = variable;
    TORCH_CHECK_VALUE(text == "allow" || text == "error", "user error: TRNSIM_FALLBACK=", text,
                      " is unknown; use allow or error.");
    return text == "error";
  }();
  return value;
}

std::string full_name(const c10::OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

// Runs the CPU kernel on views of the device tensors and brings results back.
class HostCall {
 public:
  HostCall(const c10::OperatorHandle& op, c10::Stack* stack) : op_(op), stack_(stack) {}

  void run() {
    const auto& schema = op_.schema();
    const size_t num_args = schema.arguments().size();
    const size_t begin = stack_->size() - num_args;
    for (size_t i = 0; i < num_args; ++i) find_devices((*stack_)[begin + i]);
    if (device_ < 0) device_ = current_device();
    wait();
    for (size_t i = 0; i < num_args; ++i) {
      const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
      written_ = alias != nullptr && alias->isWrite();
      (*stack_)[begin + i] = to_host((*stack_)[begin + i], schema.arguments()[i]);
    }
    {
      // The dispatcher computes keys from the arguments, which are CPU tensors now; autograd and autocast
      // stay out.
      c10::impl::ExcludeDispatchKeyGuard guard(c10::autograd_dispatch_keyset | c10::autocast_dispatch_keyset |
                                               c10::DispatchKeySet(c10::DispatchKey::ADInplaceOrView));
      op_.callBoxed(stack_);
    }
    bring_back_written();
    const size_t num_results = schema.returns().size();
    const size_t first = stack_->size() - num_results;
    for (size_t i = 0; i < num_results; ++i) (*stack_)[first + i] = to_device((*stack_)[first + i]);
  }

 private:
  struct Pair {
    at::Tensor device, host;
    bool written = false;
  };

  void find_devices(const c10::IValue& v) {
    if (v.isTensor()) {
      const at::Tensor& t = v.toTensor();
      if (!t.defined() || !on_device(t)) return;
      devices_[t.device().index()] = true;
      if (device_ < 0) device_ = t.device().index();
    } else if (v.isList()) {
      for (const c10::IValue& element : v.toListRef()) find_devices(element);
    } else if (v.isDevice()) {
      if (v.toDevice().type() == c10::DeviceType::PrivateUse1 && device_ < 0)
        device_ = checked_index(v.toDevice());
    }
  }

  void wait() {
    for (auto& [device, used] : devices_) queue(static_cast<c10::DeviceIndex>(device)).synchronize();
  }

  c10::IValue to_host(const c10::IValue& v, const c10::Argument& argument) {
    if (v.isTensor()) return host_of(v.toTensor());
    if (auto list = replace_tensors(v, [this](const at::Tensor& t) { return host_of(t); })) return *list;
    if (v.isDevice() && v.toDevice().type() == c10::DeviceType::PrivateUse1) return c10::Device(c10::kCPU);
    const bool takes_generator = argument.type()->kind() == c10::TypeKind::GeneratorType ||
                                 (argument.type()->kind() == c10::TypeKind::OptionalType &&
                                  argument.type()->castRaw<c10::OptionalType>()->getElementType()->kind() ==
                                      c10::TypeKind::GeneratorType);
    if (takes_generator) {
      // CPU kernels refuse a device generator: seed one of theirs from the device's stream.
      std::optional<at::Generator> given;
      if (!v.isNone()) given = v.toGenerator();
      if (given && given->device().type() == c10::DeviceType::CPU) return v;
      return host_generator(given, device_);
    }
    return v;
  }

  at::Tensor host_of(const at::Tensor& t) {
    if (!t.defined() || !on_device(t)) return t;
    for (Pair& pair : pairs_)
      if (pair.device.unsafeGetTensorImpl() == t.unsafeGetTensorImpl()) {
        pair.written |= written_;
        return pair.host;
      }
    pairs_.push_back({t, host_view(t), written_});
    return pairs_.back().host;
  }

  void bring_back_written() {
    for (Pair& pair : pairs_) {
      if (!pair.written) continue;
      const bool in_place =
          pair.host.const_data_ptr() == pair.device.const_data_ptr() || pair.host.numel() == 0;
      if (in_place && pair.host.sizes() == pair.device.sizes() &&
          pair.host.strides() == pair.device.strides())
        continue;
      // An out= tensor that the CPU kernel gave new sizes.
      pair.device.resize_(pair.host.sizes());
      if (pair.host.numel() > 0) pair.device.copy_(pair.host);
    }
  }

  c10::IValue to_device(const c10::IValue& v) {
    if (v.isTensor()) return device_of(v.toTensor());
    if (auto list = replace_tensors(v, [this](const at::Tensor& t) { return device_of(t); })) return *list;
    return v;
  }

  at::Tensor device_of(const at::Tensor& t) {
    if (!t.defined() || t.device().type() != c10::DeviceType::CPU) return t;
    TORCH_CHECK_NOT_IMPLEMENTED(t.layout() == c10::Layout::Strided, "not simulated: ", full_name(op_),
                                ": layout ", t.layout(),
                                " on the neuron device; only strided tensors exist there. "
                                "Call .cpu() first.");
    for (const Pair& pair : pairs_)
      if (pair.host.unsafeGetTensorImpl() == t.unsafeGetTensorImpl()) return pair.device;
    for (const Pair& pair : pairs_)  // a view of an argument
      if (t.storage().unsafeGetStorageImpl() == pair.host.storage().unsafeGetStorageImpl() && t.numel() > 0 &&
          t.dtype() == pair.device.dtype())
        return view_on_device(pair.device, t.sizes(), t.strides(), t.storage_offset());
    at::Tensor result = non_overlapping_and_dense(t)
                            ? empty_on(device_, t.sizes(), t.strides(), t.scalar_type())
                            : empty_contiguous_on(device_, t.sizes(), t.scalar_type());
    if (t.numel() > 0) result.copy_(t);
    return result;
  }

  const c10::OperatorHandle& op_;
  c10::Stack* stack_;
  std::map<int, bool> devices_;
  c10::DeviceIndex device_ = -1;
  bool written_ = false;
  std::vector<Pair> pairs_;
};

void global_fallback(const c10::OperatorHandle& op, c10::Stack* stack) {
  run_on_host(op, stack, "no lowering for this operator", FallbackKind::kNotLowered);
}

}  // namespace

void note_fallback(const std::string& op, const std::string& reason, FallbackKind kind) {
  if (Recorder* recorder = Recorder::active()) recorder->refuse(op, reason);
  TORCH_CHECK(!fallback_is_error(), "not simulated: ", op, " would run on the host (", reason,
              ") and TRNSIM_FALLBACK=error forbids that. Rewrite the call, or set TRNSIM_FALLBACK=allow.");
  static const bool only_unimplemented = env_flag("TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS", false);
  TORCH_CHECK(kind != FallbackKind::kUnsupported || !only_unimplemented, "not simulated: ", op,
              " has a lowering that refuses this case (", reason,
              ") and fallback is disabled by TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS.");
  bool first = false;
  {
    std::lock_guard lock(counts_mutex);
    uint64_t& count = counts()[{op, reason}];
    first = count++ == 0;
    if (tracking.load(std::memory_order_relaxed) && tracked_fallback().size() < kMaxTracked)
      tracked_fallback().push_back(op);
  }
  if (first)
    TORCH_WARN("neuron: ", op, " runs on the host: ", reason, " (warned once; trnsim.fallbacks() counts)");
}

void run_on_host(const c10::OperatorHandle& op, c10::Stack* stack, const std::string& reason,
                 FallbackKind kind) {
  const DeviceUse use;
  note_fallback(full_name(op), reason, kind);
  TORCH_CHECK_NOT_IMPLEMENTED(
      !time_only(), "not simulated: ", full_name(op), " has no NeuronCore program (", reason,
      ") and cannot run on the host in time-only mode, where device memory holds no values.");
  HostCall(op, stack).run();
}

std::vector<FallbackCount> fallback_counts() {
  std::lock_guard lock(counts_mutex);
  std::vector<FallbackCount> list;
  for (const auto& [key, count] : counts()) list.push_back({key.first, key.second, count});
  return list;
}

void reset_fallback_counts() {
  std::lock_guard lock(counts_mutex);
  counts().clear();
}

void clear_op_tracking() {
  std::lock_guard lock(counts_mutex);
  tracked_executed().clear();
  tracked_fallback().clear();
  tracking = true;
}

void note_executed(const std::string& op) {
  if (!tracking.load(std::memory_order_relaxed)) return;
  std::lock_guard lock(counts_mutex);
  if (tracked_executed().size() < kMaxTracked) tracked_executed().push_back(op);
}

std::vector<std::string> executed_ops() {
  std::lock_guard lock(counts_mutex);
  return tracked_executed();
}

std::vector<std::string> fallback_ops() {
  std::lock_guard lock(counts_mutex);
  return tracked_fallback();
}

namespace {

template <c10::DispatchKey key>
void refuse_layout(const c10::OperatorHandle& op, c10::Stack* /*stack*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "not simulated: ", full_name(op), ": ",
                              key == c10::DispatchKey::NestedTensorPrivateUse1 ? "nested"
                              : key == c10::DispatchKey::QuantizedPrivateUse1  ? "quantized"
                                                                               : "sparse",
                              " tensors on the neuron device; only strided tensors exist there. Keep them on "
                              "the CPU or make them dense.");
}

}  // namespace

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&global_fallback>());
}
TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) {
  m.fallback(
      torch::CppFunction::makeFromBoxedFunction<&refuse_layout<c10::DispatchKey::SparsePrivateUse1>>());
}
TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) {
  m.fallback(
      torch::CppFunction::makeFromBoxedFunction<&refuse_layout<c10::DispatchKey::SparseCsrPrivateUse1>>());
}
TORCH_LIBRARY_IMPL(_, QuantizedPrivateUse1, m) {
  m.fallback(
      torch::CppFunction::makeFromBoxedFunction<&refuse_layout<c10::DispatchKey::QuantizedPrivateUse1>>());
}
// Refused when they are made: PyTorch's autograd asks new ones for sizes where no error may leave.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char* maker :
       {"_nested_tensor_from_tensor_list", "_nested_tensor_from_mask", "_nested_view_from_buffer"})
    m.impl(maker, torch::CppFunction::makeFromBoxedFunction<
                      &refuse_layout<c10::DispatchKey::NestedTensorPrivateUse1>>());
}
TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, m) {
  m.fallback(
      torch::CppFunction::makeFromBoxedFunction<&refuse_layout<c10::DispatchKey::NestedTensorPrivateUse1>>());
}

}  // namespace trnsim::aten
