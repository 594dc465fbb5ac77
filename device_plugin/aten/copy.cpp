// copy_ of every kind: host to device, device to host, device to device, with casts, strides and
// broadcasting.
#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_conj.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/view_as_real.h>
#include <c10/core/Scalar.h>
#include <c10/core/ScalarTypeToTypeMeta.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <cstring>

#include "device_plugin/aten/dtypes.h"
#include "device_plugin/aten/fallback.h"
#include "device_plugin/aten/graph_recorder.h"
#include "device_plugin/aten/queue.h"
#include "device_plugin/aten/tensors.h"

namespace trnsim::aten {
namespace {

constexpr size_t kStagedBytes = size_t{64}
                                << 10;  // host data up to here is copied aside, and the call returns early

compiler::TensorType type_of(const at::Tensor& t, isa::Dtype dtype) {
  return {dtype, t.sizes().vec(), t.strides().vec()};
}

void append_meta(PlanKey& key, const at::Tensor& t) {
  key.push_back(static_cast<uint64_t>(t.scalar_type()) | (static_cast<uint64_t>(t.dim()) << 8));
  for (int64_t s : t.sizes()) key.push_back(static_cast<uint64_t>(s));
  for (int64_t s : t.strides()) key.push_back(static_cast<uint64_t>(s));
}

PlanCache& copy_plans() {
  static auto* cache = new PlanCache;
  return *cache;
}

// Fills the graph of a copy, or says in plan.reason why there is none.
bool describe_copy(const at::Tensor& destination, const at::Tensor& source, Plan& plan,
                   compiler::Graph& graph) {
  plan.device = destination.device().index();
  plan.name = "aten::copy";
  const auto to = to_isa(destination.scalar_type()), from = to_isa(source.scalar_type());
  const bool long_on_one_side =
      (destination.scalar_type() == at::kLong) != (source.scalar_type() == at::kLong);
  if (long_on_one_side && int64_exact()) {
    plan.reason = "TRNSIM_INT64=exact";
    return false;
  }
  if (!to || !from) {
    const c10::ScalarType missing = !to ? destination.scalar_type() : source.scalar_type();
    plan.reason = destination.scalar_type() == source.scalar_type()
                      ? "the hardware has no copy of " + std::string(c10::toString(missing))
                      : no_hardware_type(missing);
    return false;
  }
  graph.name = plan.name;
  graph.values.push_back({type_of(source, *from), compiler::kNoValue});
  graph.values.push_back({type_of(destination, *to), compiler::kNoValue});
  graph.inputs = {0};
  graph.outputs = {1};
  compiler::Node node;
  node.op = "aten::copy";
  node.args = {compiler::Arg(compiler::kNoValue), compiler::Arg(compiler::ValueId{0}), compiler::Arg(false)};
  node.results = {1};
  graph.nodes.push_back(std::move(node));
  return true;
}

std::shared_ptr<Plan> copy_plan(const at::Tensor& destination, const at::Tensor& source) {
  PlanKey key;
  key.push_back(static_cast<uint64_t>(destination.device().index()));
  append_meta(key, destination);
  append_meta(key, source);
  const uint64_t hash = hash_of(key);
  if (std::shared_ptr<Plan> known = copy_plans().find(key, hash)) return known;

  auto plan = std::make_shared<Plan>();
  compiler::Graph graph;
  if (describe_copy(destination, source, *plan, graph)) load_program(*plan, std::move(graph));
  return copy_plans().insert(key, hash, std::move(plan));
}

bool ranges_overlap(const at::Tensor& a, const at::Tensor& b) {
  const auto* a_begin = static_cast<const std::byte*>(a.const_data_ptr());
  const auto* b_begin = static_cast<const std::byte*>(b.const_data_ptr());
  return a_begin < b_begin + tensor_extent_bytes(b) && b_begin < a_begin + tensor_extent_bytes(a);
}

void wait(const at::Tensor& t) { queue(t.device().index()).synchronize(); }

// Host pointer and extent of a dense tensor's bytes.
size_t dense_bytes(const at::Tensor& t) { return static_cast<size_t>(t.numel()) * t.dtype().itemsize(); }

// `host` is a CPU tensor with the metadata of the dense device tensor. With `later` its memory may be read when the queue
// gets there: the caller leaves it alone until then.
void write_dense(const at::Tensor& device, const at::Tensor& host, bool later) {
  if (time_only()) return;
  const Slice slice = slice_of(device);
  const size_t bytes = dense_bytes(device);
  Queue& q = queue(device.device().index());
  if (bytes <= kStagedBytes) {
    // The segment outlives the entry: freeing it waits for the queue first.
    auto staged = std::make_shared<std::vector<uint8_t>>(bytes);
    std::memcpy(staged->data(), host.const_data_ptr(), bytes);
    q.submit([&](Command& command) {
      command.call = [slice, staged] {
        check(nrt().nrt_tensor_write(slice.segment, staged->data(), slice.offset_bytes, staged->size()),
              "copying to the device");
      };
    });
    return;
  }
  if (later) {
    q.submit([&](Command& command) {
      command.call = [slice, bytes, storage = host.storage(), source = host.const_data_ptr()] {
        check(nrt().nrt_tensor_write(slice.segment, source, slice.offset_bytes, bytes),
              "copying to the device");
      };
    });
    return;
  }
  q.synchronize();
  check(nrt().nrt_tensor_write(slice.segment, host.const_data_ptr(), slice.offset_bytes, bytes),
        "copying to the device");
}

// Memory that a time-only device is read into.
void fill_with_no_values(void* host, size_t bytes) {
  TORCH_WARN_ONCE(
      "neuron: values are not computed in time mode (TRNSIM_MODE=time): what is read from the device is 0. "
      "TRNSIM_MODE=both computes values and times.");
  std::memset(host, 0, bytes);
}

void read_dense(const at::Tensor& host, const at::Tensor& device) {
  wait(device);
  if (time_only()) {
    fill_with_no_values(host.mutable_data_ptr(), dense_bytes(host));
    return;
  }
  const Slice slice = slice_of(device);
  check(
      nrt().nrt_tensor_read(slice.segment, host.mutable_data_ptr(), slice.offset_bytes, dense_bytes(device)),
      "copying from the device");
}

at::Tensor host_like(const at::Tensor& t) {
  return at::empty_strided(t.sizes(), t.strides(), t.options().device(at::kCPU));
}

void host_to_device(const at::Tensor& destination, const at::Tensor& source, bool non_blocking) {
  if (!non_overlapping_and_dense(destination)) {
    at::Tensor dense =
        empty_contiguous_on(destination.device().index(), destination.sizes(), destination.scalar_type());
    host_to_device(dense, source, non_blocking);
    device_copy(destination, dense);
    return;
  }
  at::Tensor staged = source;
  if (source.scalar_type() != destination.scalar_type() || source.strides() != destination.strides() ||
      source.is_conj() || source.is_neg()) {
    staged = host_like(destination);
    staged.copy_(source);
  }
  const bool made_here = !staged.is_same(source);  // nobody else can change it
  write_dense(destination, staged, made_here || (non_blocking && source.is_pinned()));
}

void device_to_host(const at::Tensor& destination, const at::Tensor& source) {
  const bool dense = non_overlapping_and_dense(source);
  if (!dense && to_isa(source.scalar_type())) {
    at::Tensor packed = empty_contiguous_on(source.device().index(), source.sizes(), source.scalar_type());
    device_copy(packed, source);
    device_to_host(destination, packed);
    return;
  }
  if (!dense) {  // a type the DMA engines have no form of: through the mapping
    wait(source);
    if (!time_only()) {
      destination.copy_(host_view(source));
      return;
    }
    at::Tensor staged = at::empty(source.sizes(), source.options().device(at::kCPU));
    fill_with_no_values(staged.mutable_data_ptr(), dense_bytes(staged));
    destination.copy_(staged);
    return;
  }
  if (source.scalar_type() == destination.scalar_type() && source.strides() == destination.strides()) {
    read_dense(destination, source);
    return;
  }
  at::Tensor staged = host_like(source);
  read_dense(staged, source);
  destination.copy_(staged);
}

// The tensor without its lazy conjugation and negation.
at::Tensor physical(at::Tensor t) {
  if (t.is_conj()) t = at::_conj(t);
  if (t.is_neg()) t = at::_neg_view(t);
  return t;
}

void copy_with_bits(const at::Tensor& destination, const at::Tensor& source) {
  const at::Tensor to = physical(destination);
  device_copy(to, physical(source));
  if (destination.is_neg() != source.is_neg()) to.neg_();
  if (destination.is_conj() != source.is_conj() && to.is_complex()) at::view_as_real(to).select(-1, 1).neg_();
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  const DeviceUse use;
  TORCH_CHECK(self.defined() && dst.defined(), "copy_: an undefined tensor");
  if (self.is_conj() || self.is_neg() || dst.is_conj() || dst.is_neg() || !on_device(dst))
    refuse_while_recording("aten::copy_", "the copy is made by the host");
  // Conjugate and negative bits arrive here (their dispatch keys fall through for this op): resolved on the device
  // when both sides live there, else on the host.
  if (self.is_conj() || self.is_neg() || dst.is_conj() || dst.is_neg()) {
    if (on_device(self) && on_device(dst) && self.device() == dst.device()) {
      copy_with_bits(dst, self.sizes() == dst.sizes() ? self : self.expand(dst.sizes()));
      return dst;
    }
    if (on_device(self)) wait(self);
    if (on_device(dst)) wait(dst);
    TORCH_CHECK_NOT_IMPLEMENTED(!time_only(), "not simulated: complex copies in time-only mode");
    const at::Tensor to = on_device(dst) ? host_view(dst) : dst;
    to.copy_(on_device(self) ? host_view(self) : self);
    return dst;
  }
  if (self.unsafeGetTensorImpl() == dst.unsafeGetTensorImpl()) return dst;
  at::assert_no_internal_overlap(dst);
  at::assert_no_partial_overlap(dst, self);
  const at::Tensor source = self.sizes() == dst.sizes() ? self : self.expand(dst.sizes());
  if (dst.numel() == 0) return dst;
  if (on_device(source) && on_device(dst)) {
    device_copy(dst, source);
  } else if (on_device(dst)) {
    TORCH_CHECK(source.device().is_cpu(), "not simulated: a copy from ", source.device(), " to ",
                dst.device());
    if (Recorder* recorder = Recorder::active()) {
      recorder->copy_from_host(dst, source);
      return dst;
    }
    host_to_device(dst, source, non_blocking);
  } else {
    TORCH_CHECK(dst.device().is_cpu(), "not simulated: a copy from ", source.device(), " to ", dst.device());
    device_to_host(dst, source);
  }
  return dst;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst) {
  if (self.sizes() != dst.sizes()) dst.resize_(self.sizes());
  return copy_from(self, dst, false);
}

c10::Scalar local_scalar_dense(const at::Tensor& self) {
  const DeviceUse use;
  TORCH_CHECK(self.numel() > 0, "_local_scalar_dense: the tensor is empty");
  refuse_while_recording("aten::_local_scalar_dense", "the host reads a value");
  at::Tensor host = at::empty({}, self.options().device(at::kCPU));
  const Slice slice = slice_of(self);
  wait(self);
  if (time_only()) {
    fill_with_no_values(host.mutable_data_ptr(), self.dtype().itemsize());
  } else {
    check(nrt().nrt_tensor_read(slice.segment, host.mutable_data_ptr(), slice.offset_bytes,
                                self.dtype().itemsize()),
          "reading a scalar");
  }
  return at::native::_local_scalar_dense_cpu(host);
}

void record_stream(at::Tensor&, c10::Stream) {}  // one queue runs everything in order

}  // namespace

void device_copy(const at::Tensor& destination, const at::Tensor& source) {
  const bool same_view = destination.const_data_ptr() == source.const_data_ptr() &&
                         destination.scalar_type() == source.scalar_type() &&
                         destination.strides() == source.strides();
  if (same_view || destination.numel() == 0) return;
  if (Recorder* recorder = Recorder::active()) {
    if (destination.device() != source.device()) recorder->refuse("aten::copy_", "a copy between devices");
    at::Tensor aside = source;
    if (ranges_overlap(destination, source)) {
      aside = empty_contiguous_on(source.device().index(), source.sizes(), source.scalar_type());
      device_copy(aside, source);
    }
    Plan plan;
    RecordedCall recorded;
    if (!describe_copy(destination, aside, plan, recorded.graph))
      recorder->refuse("aten::copy_", plan.reason);
    recorded.inputs.push_back(&aside);
    recorded.results.push_back(destination);
    recorder->append(std::move(recorded));
    return;
  }
  if (destination.device() != source.device()) {
    wait(source);
    wait(destination);
    if (!time_only()) host_view(destination).copy_(host_view(source));
    return;
  }
  if (ranges_overlap(destination, source)) {
    at::Tensor aside = empty_contiguous_on(source.device().index(), source.sizes(), source.scalar_type());
    device_copy(aside, source);
    device_copy(destination, aside);
    return;
  }
  if (destination.is_complex() || source.is_complex()) {  // pairs of real numbers
    const at::Tensor to = destination.is_complex() ? at::view_as_real(destination) : destination;
    const at::Tensor from = source.is_complex() ? at::view_as_real(source) : source;
    if (destination.is_complex() && source.is_complex()) return device_copy(to, from);
    if (to.scalar_type() == at::kBool) return device_copy(to, from.ne(0).any(-1));
    if (source.is_complex()) return device_copy(to, from.select(-1, 0));
    device_copy(to.select(-1, 0), from);
    to.select(-1, 1).zero_();
    return;
  }
  const std::shared_ptr<Plan> plan = copy_plan(destination, source);
  if (plan->kind == Plan::Kind::kFallback) {
    note_fallback("aten::copy_", plan->reason, FallbackKind::kUnsupported);
    wait(source);
    TORCH_CHECK_NOT_IMPLEMENTED(!time_only(), "not simulated: ", plan->reason, " (copy in time-only mode)");
    host_view(destination).copy_(host_view(source));
    return;
  }
  note_executed("aten::copy_");
  queue(plan->device).submit([&](Command& command) {
    command.plan = plan;
    command.slices.push_back(slice_of(source));
    command.slices.push_back(slice_of(destination));
  });
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("_local_scalar_dense", &local_scalar_dense);
  m.impl("record_stream", &record_stream);
}

// Without these, x.conj() + 1 would resolve the bit with copy_, which would resolve the bit with copy_, ...
TORCH_LIBRARY_IMPL(aten, Conjugate, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, Negative, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }

}  // namespace trnsim::aten
