#include "device_plugin/aten/trial.h"

#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/List.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>

#include "device_plugin/aten/tensors.h"

namespace trnsim::aten {
namespace {

// Equal device tensors become one stand-in, so that in-place results are recognised; tensors that share memory become
// views of one stand-in memory, so that overlaps are.
class StandIns {
 public:
  explicit StandIns(c10::Device device, bool shrunk = false) : device_(device), shrunk_(shrunk) {}

  void share_memory(c10::ArrayRef<const at::Tensor*> tensors) {
    for (const at::Tensor* tensor : tensors) {
      const at::Tensor& t = *tensor;
      Memory& memory = memories_[t.storage().unsafeGetStorageImpl()];
      const size_t begin = begin_bytes(t) / kAlignment * kAlignment,
                   end = begin_bytes(t) + tensor_extent_bytes(t);
      memory.begin = memory.end == 0 ? begin : std::min(memory.begin, begin);
      memory.end = std::max(memory.end, end);
    }
  }

  c10::IValue of(const c10::IValue& v) {
    if (v.isTensor()) return of(v.toTensor());
    if (auto list = replace_tensors(v, [this](const at::Tensor& t) { return of(t); })) return *list;
    if (v.isGenerator()) return {};
    if (v.isDevice()) return device_;
    return v;
  }

  at::Tensor of(const at::Tensor& t) {
    if (!t.defined()) return t;
    at::Tensor& known = known_[t.unsafeGetTensorImpl()];
    if (known.defined()) return known;
    // A host scalar keeps its value. Some shape functions refuse one beside tensors of another device, and
    // others read Python's numbers.
    if (!on_device(t) && (!device_.is_meta() || t.unsafeGetTensorImpl()->is_wrapped_number())) {
      known = t;
      return known;
    }
    known = !on_device(t) ? at::detail::empty_strided_meta({}, {}, t.scalar_type())
            : shrunk_     ? small(t)
                          : view_like(t);
    // Ones are in the domain of every function and a probability; zero is an index of every tensor with elements.
    if (!device_.is_meta() && known.numel() > 0) {
      if (c10::isFloatingType(t.scalar_type()) && non_overlapping_and_dense(known))
        known.fill_(1);
      else
        std::memset(known.mutable_data_ptr(), 0, tensor_extent_bytes(known));
    }
    if (t.unsafeGetTensorImpl()->is_wrapped_number()) known.unsafeGetTensorImpl()->set_wrapped_number(true);
    return known;
  }

  std::vector<at::Tensor> call(const c10::OperatorHandle& op, const c10::Stack& stack, size_t begin,
                               c10::ArrayRef<int16_t> outs = {}) {
    c10::Stack copy;
    copy.reserve(stack.size() - begin);
    for (size_t i = begin; i < stack.size(); ++i) copy.push_back(of(stack[i]));
    for (int16_t i : outs)
      copy[i] = at::detail::empty_strided_meta({0}, {1}, stack[begin + i].toTensor().scalar_type());
    {
      c10::impl::ExcludeDispatchKeyGuard guard(c10::autograd_dispatch_keyset | c10::autocast_dispatch_keyset |
                                               c10::DispatchKeySet(c10::DispatchKey::ADInplaceOrView));
      op.callBoxed(&copy);
    }
    std::vector<at::Tensor> results;
    for (c10::IValue& v : copy) results.push_back(v.isNone() ? at::Tensor() : v.toTensor());
    return results;
  }

 private:
  static constexpr size_t kAlignment = 16;  // of the largest element

  struct Memory {  // the part of a storage that the call touches
    size_t begin = 0, end = 0;
    at::Tensor bytes;
  };

  static size_t begin_bytes(const at::Tensor& t) {
    return static_cast<size_t>(t.storage_offset()) * t.dtype().itemsize();
  }

  static at::Tensor small(const at::Tensor& t) {
    std::vector<int64_t> sizes = t.sizes().vec();
    for (int64_t& s : sizes) s = std::min<int64_t>(s, 2);
    return at::detail::empty_cpu(sizes, t.scalar_type());
  }

  at::Tensor view_like(const at::Tensor& t) {
    if (memories_.count(t.storage().unsafeGetStorageImpl()) == 0) share_memory({&t});
    Memory& memory = memories_[t.storage().unsafeGetStorageImpl()];
    if (!memory.bytes.defined()) {
      const auto size = static_cast<int64_t>(memory.end - memory.begin);
      memory.bytes = device_.is_meta() ? at::detail::empty_strided_meta({size}, {1}, at::kByte)
                                       : at::detail::empty_strided_cpu({size}, {1}, at::kByte);
    }
    at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(memory.bytes.storage()),
                                                               memory.bytes.key_set(), t.dtype());
    c10::TensorImpl* impl = view.unsafeGetTensorImpl();
    impl->set_storage_offset(static_cast<int64_t>((begin_bytes(t) - memory.begin) / t.dtype().itemsize()));
    impl->set_sizes_and_strides(t.sizes(), t.strides());
    return view;
  }

  const c10::Device device_;
  const bool shrunk_;
  std::unordered_map<c10::TensorImpl*, at::Tensor> known_;
  std::unordered_map<c10::StorageImpl*, Memory> memories_;
};

constexpr size_t kQuickTrialBytes = size_t{1} << 20;
constexpr size_t kMaxTrialBytes = size_t{64} << 20;
constexpr size_t kMaxOverlapTrialBytes = size_t{4} << 30;

// Operators with statistics that are float32 here for every type, as on accelerators; the CPU wants the input's type.
bool has_wide_statistics(std::string_view functional) {
  return functional.find("batch_norm") != std::string_view::npos ||
         functional.find("layer_norm") != std::string_view::npos ||
         functional.find("group_norm") != std::string_view::npos;
}

// What the CPU lacks or finds in the stand-ins' values says nothing about the device. A divisor that is a number of the
// call has been looked at before (prepare.cpp).
bool concerns_the_cpu_only(const std::string& text) {
  for (const char* words : {"ZeroDivisionError", "not implemented for", "on CPU", "not supported on the CPU"})
    if (text.find(words) != std::string::npos) return true;
  return false;
}

// "add_stub" not implemented for 'UInt16': a kernel without the type. The device has more floating-point types than many
// kernels of the CPU, but no integers where the CPU refuses them. Code written for accelerators counts integers by histc.
bool refuses_integers(const std::string& text) {
  constexpr std::string_view kWords = "not implemented for '";
  const size_t at = text.find(kWords);
  if (at == std::string::npos || text.find("histogram_cpu") != std::string::npos) return false;
  const size_t begin = at + kWords.size();
  const std::string type = text.substr(begin, text.find('\'', begin) - begin);
  for (const char* name : {"Bool", "Byte", "Char", "Short", "Int", "Long", "UInt16", "UInt32", "UInt64"})
    if (type == name) return true;
  return false;
}

// Complaints that hold for tensors of every size.
bool is_about_types(const std::string& text) {
  for (const char* words : {"cast", "dtype", "scalar type", "bool"})
    if (text.find(words) != std::string::npos) return true;
  return false;
}

// The shape function of PyTorch wants inner and outer sizes in multiples of 16, as tensor cores do.
std::optional<at::Tensor> scaled_product_of_any_size(const c10::Stack& stack, size_t begin) {
  const at::Tensor &self = stack[begin].toTensor(), &mat2 = stack[begin + 1].toTensor();
  if (self.dim() != 2 || mat2.dim() != 2 || self.size(1) != mat2.size(0)) return std::nullopt;
  if (self.size(1) % 16 == 0 && mat2.size(1) % 16 == 0) return std::nullopt;
  const c10::IValue& type = stack[begin + 6];
  const std::array<int64_t, 2> sizes{self.size(0), mat2.size(1)}, strides{mat2.size(1), 1};
  return at::detail::empty_strided_meta(sizes, strides,
                                        type.isNone() ? self.scalar_type() : type.toScalarType());
}

// A volume without a batch has the order in memory of a batch of one.
void pass_on_lone(const at::Tensor& volume, std::vector<at::Tensor>& results) {
  const auto batched = [](at::IntArrayRef of_volume, int64_t first) {
    c10::DimVector of_batch{first};
    of_batch.append(of_volume.begin(), of_volume.end());
    return of_batch;
  };
  if (!c10::is_channels_last_strides_3d(batched(volume.sizes(), 1),
                                        batched(volume.strides(), volume.numel())))
    return;
  for (at::Tensor& result : results) {
    const auto strides = c10::get_channels_last_strides_3d(batched(result.sizes(), 1));
    result.unsafeGetTensorImpl()->set_sizes_and_strides(result.sizes(), at::IntArrayRef(strides).slice(1));
  }
}

// Kernels pass the order in memory of images and volumes on from these arguments; PyTorch's shape functions, which do not
// know the device, make results contiguous. A convolution takes the order of its weight, too.
void pass_formats_on(std::string_view name, std::vector<at::Tensor>& results, const c10::Stack& stack,
                     size_t begin) {
  static const std::unordered_map<std::string_view, std::vector<size_t>> kFrom = {
      {"aten::convolution", {0, 1}},
      {"aten::_convolution", {0, 1}},
      {"aten::convolution_overrideable", {0, 1}},
      {"aten::reflection_pad2d", {0}},
      {"aten::reflection_pad3d", {0}},
      {"aten::reflection_pad2d_backward", {1}},
      {"aten::reflection_pad3d_backward", {1}},
      {"aten::replication_pad2d", {0}},
      {"aten::replication_pad3d", {0}},
      {"aten::replication_pad2d_backward", {1}},
      {"aten::replication_pad3d_backward", {1}},
      {"aten::pixel_shuffle", {0}},
      {"aten::pixel_unshuffle", {0}},
      {"aten::channel_shuffle", {0}},
      {"aten::native_channel_shuffle", {0}},
      {"aten::roll", {0}},
      {"aten::max_pool3d_with_indices", {0}},
  };
  const auto from = kFrom.find(name.substr(0, name.find('.')));
  if (from == kFrom.end()) return;
  const at::Tensor& first = stack[begin].toTensor();
  if (from->first == "aten::max_pool3d_with_indices" && first.dim() == 4) return pass_on_lone(first, results);
  for (const size_t i : from->second) {
    const at::MemoryFormat format = stack[begin + i].toTensor().suggest_memory_format();
    if (format == at::MemoryFormat::Contiguous) continue;
    const int64_t dim = format == at::MemoryFormat::ChannelsLast ? 4 : 5;
    for (at::Tensor& result : results)
      if (result.defined() && result.dim() == dim)
        result.unsafeGetTensorImpl()->empty_tensor_restride(format);
    return;
  }
}

// What kernels warn about, the shape function has said already; not so of writing to one element many times, and of new
// sizes for an out= tensor, which each call says.
class Silence final : public c10::WarningHandler {
 public:
  explicit Silence(std::vector<c10::Warning>* resizing) : resizing_(resizing) {}

  void process(const c10::Warning& warning) override {
    if (warning.msg().find("on expanded tensors is deprecated") != std::string::npos)
      outer_->process(warning);
    else if (resizing_ != nullptr && warning.msg().find("resized") != std::string::npos)
      resizing_->push_back(warning);
  }

 private:
  c10::WarningHandler* const outer_ = c10::WarningUtils::get_warning_handler();
  std::vector<c10::Warning>* const resizing_;
};

bool may_overlap(const Overload& overload, const Call& call) {
  for (int16_t w : overload.written) {
    const int32_t written = call.refs[w].index;
    if (written < 0) continue;
    if (at::has_internal_overlap(*call.tensors[written]) != at::MemOverlap::No) return true;
  }
  return !call.overlapping.empty();
}

bool of_one_floating_type(const Call& call) {
  return std::all_of(call.tensors.begin(), call.tensors.end(), [&](const at::Tensor* t) {
    return at::isFloatingType(t->scalar_type()) && t->scalar_type() == call.tensors[0]->scalar_type();
  });
}

}  // namespace

std::vector<at::Tensor> meta_results(const c10::OperatorHandle& op, const Call& call, const c10::Stack& stack,
                                     size_t begin, c10::ArrayRef<int16_t> outs) {
  const std::string name = c10::toString(op.schema().operator_name());
  if (name == "aten::_scaled_mm")
    if (const auto own = scaled_product_of_any_size(stack, begin)) return {*own};
  StandIns stand_ins(c10::kMeta);
  stand_ins.share_memory(call.tensors);
  std::vector<at::Tensor> results = stand_ins.call(op, stack, begin, outs);
  // PyTorch's shape function makes integers of a power of truth values; its kernel does not.
  if (name == "aten::pow.Tensor_Scalar" && stack[begin + 1].isBool() &&
      stack[begin].toTensor().scalar_type() == at::kBool)
    results[0] = results[0].to(at::kBool);
  pass_formats_on(name, results, stack, begin);
  return results;
}

std::vector<at::Tensor> fresh_results(const Overload& overload, const Call& call, const c10::Stack& stack,
                                      size_t begin) {
  c10::Stack given;
  for (const int16_t source : overload.sources) {
    if (source < 0) return {};
    given.push_back(stack[begin + source]);
  }
  const size_t dot = overload.functional.find('.');
  const auto functional = c10::Dispatcher::singleton().findSchema(
      {overload.functional.substr(0, dot),
       dot == std::string::npos ? std::string() : overload.functional.substr(dot + 1)});
  if (!functional) return {};
  try {
    return meta_results(*functional, call, given, 0);
  } catch (const std::exception&) {  // no shape function
    return {};
  }
}

void lay_out_as_fresh(std::vector<at::Tensor>& results, const Overload& overload, const Call& call,
                      const c10::Stack& stack, size_t begin) {
  const std::vector<at::Tensor> fresh = fresh_results(overload, call, stack, begin);
  for (size_t r = 0; r < std::min(results.size(), fresh.size()); ++r)
    if (results[r].defined() && fresh[r].defined() && results[r].sizes() == fresh[r].sizes())
      results[r].unsafeGetTensorImpl()->set_sizes_and_strides(fresh[r].sizes(), fresh[r].strides());
}

// The CPU reads beyond its memory for the maxima of no bags, and for the gradients of what no bags give.
bool ends_on_the_cpu(const Overload& overload, const c10::Stack& stack, size_t begin) {
  if (!overload.functional.starts_with("aten::_embedding_bag")) return false;
  const auto argument = [&](std::string_view name) -> const c10::IValue* {
    const auto at = std::find(overload.arg_names.begin(), overload.arg_names.end(), name);
    if (at == overload.arg_names.end()) return nullptr;
    return &stack[begin + static_cast<size_t>(at - overload.arg_names.begin())];
  };
  if (const c10::IValue* grad = argument("grad")) return grad->toTensor().size(0) == 0;
  const c10::IValue *offsets = argument("offsets"), *last = argument("include_last_offset");
  return offsets->toTensor().size(0) <= int64_t{last->toBool()};
}

bool check_as_cpu(const c10::OperatorHandle& op, const Overload& overload, const Call& call,
                  const c10::Stack& stack, size_t begin, bool suspected,
                  std::vector<c10::Warning>* resizing) {
  if (!op.hasKernelForDispatchKey(c10::DispatchKey::CPU) &&
      !op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) &&
      !op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional))
    return false;
  if (ends_on_the_cpu(overload, stack, begin)) return false;
  if (!suspected && has_wide_statistics(overload.functional)) return false;
  if (!suspected && overload.random) {  // would move the state of the CPU's generator
    for (int16_t w : overload.written) at::assert_no_internal_overlap(*call.tensors[call.refs[w].index]);
    return false;
  }
  size_t bytes = 0;
  for (const at::Tensor* t : call.tensors) bytes += tensor_extent_bytes(*t);
  size_t limit = kMaxTrialBytes;
  if (may_overlap(overload, call))
    limit = kMaxOverlapTrialBytes;
  else if (!suspected && overload.written.empty() && of_one_floating_type(call))
    limit = kQuickTrialBytes;
  const bool shrunk = bytes > limit;
  Silence silence(shrunk ? nullptr : resizing);
  const c10::WarningUtils::WarningHandlerGuard quiet(&silence);
  try {
    StandIns stand_ins(c10::kCPU, shrunk);
    stand_ins.share_memory(call.tensors);
    stand_ins.call(op, stack, begin);
  } catch (const c10::NotImplementedError& e) {
    if (refuses_integers(e.what_without_backtrace())) throw;
    return false;
  } catch (const c10::LinAlgError&) {  // about the values of the stand-ins
    return false;
  } catch (const c10::Error& e) {
    const std::string text = e.what_without_backtrace();
    if (concerns_the_cpu_only(text) || (shrunk && !is_about_types(text))) return false;
    throw;
  } catch (const std::runtime_error&) {  // a number that overflows its type
    throw;
  } catch (const std::exception&) {  // a library of the CPU's, beaten by small or strided stand-ins
    return false;
  }
  return !shrunk;
}

}  // namespace trnsim::aten
