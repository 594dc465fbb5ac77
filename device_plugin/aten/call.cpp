#include "device_plugin/aten/call.h"

#include <c10/util/Exception.h>

#include <bit>
#include <cmath>
#include <limits>

#include "device_plugin/aten/queue.h"
#include "device_plugin/aten/tensors.h"

namespace trnsim::aten {
namespace {

// Key words start with a tag, so that no two argument lists of different form are equal.
enum Tag : uint64_t {
  kTagNone = 1,
  kTagTensor,
  kTagSame,
  kTagHostScalar,
  kTagList,
  kTagParam,
  kTagConstant,
  kTagOther,
  kTagOverlap
};

uint64_t tag(Tag t, uint64_t payload = 0) { return static_cast<uint64_t>(t) | (payload << 8); }

bool same_view(const at::Tensor& a, const at::Tensor& b) {
  if (a.unsafeGetTensorImpl() == b.unsafeGetTensorImpl()) return true;
  return a.storage().unsafeGetStorageImpl() == b.storage().unsafeGetStorageImpl() &&
         a.storage_offset() == b.storage_offset() && a.dtype() == b.dtype() && a.sizes() == b.sizes() &&
         a.strides() == b.strides() && a.is_neg() == b.is_neg() && a.is_conj() == b.is_conj();
}

// How a number of the call relates to the type of its first tensor, where PyTorch's checks depend on it: such numbers
// have plans of their own, whose making asks the CPU.
uint64_t kind_of_number(const at::Tensor* first, bool is_double, double real, int64_t integer) {
  if (first == nullptr) return 0;
  const auto range = range_of(first->scalar_type());
  if (!range) return 0;
  const double value = is_double ? real : static_cast<double>(integer);
  return std::isfinite(value) && (value < range->first || value > range->second) ? 1 : 0;
}

}  // namespace

float narrowed_to_float(double value) {
  if (std::isfinite(value)) {
    constexpr double kMax = std::numeric_limits<float>::max();
    value = std::min(std::max(value, -kMax), kMax);
  }
  return static_cast<float>(value);
}

std::optional<std::pair<double, double>> range_of(c10::ScalarType type) {
  constexpr double kMax = std::numeric_limits<float>::max();
  switch (type) {
    case c10::ScalarType::Byte:
      return std::pair(0.0, 255.0);
    case c10::ScalarType::Char:
      return std::pair(-128.0, 127.0);
    case c10::ScalarType::Short:
      return std::pair(-32768.0, 32767.0);
    case c10::ScalarType::Int:
      return std::pair(-2147483648.0, 2147483647.0);
    case c10::ScalarType::Half:
      return std::pair(-65504.0, 65504.0);
    case c10::ScalarType::BFloat16:
    case c10::ScalarType::Float:
      return std::pair(-kMax, kMax);
    default:
      return std::nullopt;
  }
}

int32_t Call::add_param(double value) {
  params.push_back(std::bit_cast<uint32_t>(narrowed_to_float(value)));
  param_dtypes.push_back(isa::Dtype::kF32);
  return static_cast<int32_t>(params.size()) - 1;
}

int32_t Call::add_param(int64_t value) {
  params.push_back(static_cast<uint32_t>(static_cast<int32_t>(value)));
  param_dtypes.push_back(isa::Dtype::kI32);
  return static_cast<int32_t>(params.size()) - 1;
}

void Call::wrong_device(const at::Tensor& t, size_t argument) const {
  c10::Device expected(c10::DeviceType::PrivateUse1, device < 0 ? current_device() : device);
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ",
              expected, " and ", t.device(), "! (when checking argument for argument ",
              overload_.arg_names[argument], " in method ", overload_.name, ")");
}

TensorRef Call::read_tensor(const at::Tensor& t, size_t argument, bool deduplicate) {
  if (!t.defined()) {
    key.push_back(tag(kTagNone));
    return {};
  }
  if (!on_device(t)) {
    if (!t.device().is_cpu() || t.dim() != 0) wrong_device(t, argument);
    // A scalar on the host: its value travels as a parameter, its type takes part in promotion.
    const c10::ScalarType type = t.scalar_type();
    const bool wrapped = t.unsafeGetTensorImpl()->is_wrapped_number();
    int32_t slot;
    uint64_t form, kind = 0;
    const at::Tensor* first = tensors.empty() ? nullptr : tensors[0];
    if (c10::isFloatingType(type)) {
      const auto value = t.item<double>();
      kind = kind_of_number(first, true, value, 0);
      slot = add_param(value);
      form = 0;
    } else if (c10::isIntegralType(type, true)) {
      const auto value = t.item<int64_t>();
      kind = kind_of_number(first, false, 0, value);
      const bool fits = value == static_cast<int32_t>(value);
      wide |= !fits;
      slot = fits ? add_param(value) : add_param(static_cast<double>(value));
      form = fits ? 1 : 2;
    } else {
      unsupported = "complex numbers are not simulated";
      slot = add_param(0.0);
      form = 3;
    }
    key.push_back(tag(kTagHostScalar,
                      static_cast<uint64_t>(type) | (uint64_t{wrapped} << 8) | (form << 9) | (kind << 11)));
    host_scalars.emplace_back(slot, &t);
    return {TensorRef::Kind::kHostScalar, slot};
  }
  if (device < 0) {
    device = t.device().index();
  } else if (device != t.device().index()) {
    wrong_device(t, argument);
  }
  if (t.is_conj() || t.is_neg()) unsupported = "a lazily conjugated or negated operand";
  if (deduplicate) {
    for (size_t i = 0; i < tensors.size(); ++i)
      if (same_view(*tensors[i], t)) {
        key.push_back(tag(kTagSame, i));
        return {TensorRef::Kind::kDevice, static_cast<int32_t>(i)};
      }
  }
  const auto sizes = t.sizes();
  const auto strides = t.strides();
  key.push_back(tag(kTagTensor, static_cast<uint64_t>(t.scalar_type()) |
                                    (static_cast<uint64_t>(sizes.size()) << 8) |
                                    (uint64_t{t.unsafeGetTensorImpl()->is_wrapped_number()} << 16) |
                                    (uint64_t{t.is_neg()} << 17) | (uint64_t{t.is_conj()} << 18)));
  for (int64_t s : sizes) key.push_back(static_cast<uint64_t>(s));
  for (int64_t s : strides) key.push_back(static_cast<uint64_t>(s));
  tensors.push_back(&t);
  return {TensorRef::Kind::kDevice, static_cast<int32_t>(tensors.size()) - 1};
}

int32_t Call::read_scalar(const c10::IValue& v, bool constant) {
  if (v.isNone()) {
    key.push_back(tag(kTagNone));
    return -1;
  }
  if (v.isComplexDouble()) {
    unsupported = "complex numbers are not simulated";
    key.push_back(tag(kTagOther, 1));
    return -1;
  }
  const bool is_double = v.isDouble();
  const int64_t integer = is_double    ? 0
                          : v.isBool() ? static_cast<int64_t>(v.toBool())
                          : v.isInt()  ? v.toInt()
                                       : static_cast<int64_t>(v.toUInt());  // beyond 2^63, of a uint64 tensor
  const uint64_t type = is_double ? 0 : (v.isBool() ? 2 : 1);
  const bool fits = integer == static_cast<int32_t>(integer);
  wide |= !fits;
  if (constant || !fits) {
    key.push_back(tag(kTagConstant, type));
    key.push_back(is_double ? std::bit_cast<uint64_t>(v.toDouble()) : static_cast<uint64_t>(integer));
    return -1;
  }
  const uint64_t kind = kind_of_number(tensors.empty() ? nullptr : tensors[0], is_double,
                                       is_double ? v.toDouble() : 0, integer);
  key.push_back(tag(kTagParam, type | (kind << 2)));
  if (overload_.shape_from_scalars)
    key.push_back(is_double ? std::bit_cast<uint64_t>(v.toDouble()) : static_cast<uint64_t>(integer));
  return is_double ? add_param(v.toDouble()) : add_param(integer);
}

void Call::read() {
  const size_t num_args = overload_.kinds.size();
  refs.resize(num_args);
  scalar_slots.resize(num_args, -1);
  for (size_t i = 0; i < num_args; ++i) {
    const c10::IValue& v = stack_[begin_ + i];
    const ArgKind kind = overload_.kinds[i];
    if (v.isNone() && kind != ArgKind::kScalar && kind != ArgKind::kConstScalar) {
      key.push_back(tag(kTagNone));
      continue;
    }
    switch (kind) {
      case ArgKind::kTensor:
        refs[i] = read_tensor(v.toTensor(), i, true);
        break;
      case ArgKind::kTensorList: {
        const auto list = v.toListRef();
        key.push_back(tag(kTagList, list.size()));
        // Comparing every pair of a long list costs more than binding a tensor twice.
        const bool deduplicate = list.size() <= 8;
        for (const c10::IValue& element : list) {
          if (element.isNone()) {
            key.push_back(tag(kTagNone));
            list_refs.push_back({});
          } else {
            list_refs.push_back(read_tensor(element.toTensor(), i, deduplicate));
          }
        }
        break;
      }
      case ArgKind::kScalar:
      case ArgKind::kConstScalar:
        scalar_slots[i] = read_scalar(v, kind == ArgKind::kConstScalar);
        break;
      case ArgKind::kScalarList: {
        const auto list = v.toListRef();
        key.push_back(tag(kTagList, list.size()));
        for (const c10::IValue& element : list) {
          const size_t before = params.size();
          if (element.isInt() && element.toInt() != static_cast<int32_t>(element.toInt())) {
            wide = true;
            key.push_back(tag(kTagParam, 0));
            add_param(static_cast<double>(element.toInt()));
          } else {
            read_scalar(element, false);
          }
          if (scalar_slots[i] < 0) scalar_slots[i] = static_cast<int32_t>(before);
        }
        break;
      }
      case ArgKind::kInt:
      case ArgKind::kDtype:
        key.push_back(tag(kTagConstant, 3));
        key.push_back(static_cast<uint64_t>(v.toInt()));
        break;
      case ArgKind::kBool:
        key.push_back(tag(kTagConstant, 4 + (v.toBool() ? 1 : 0)));
        break;
      case ArgKind::kIntList: {
        const auto list = v.toListRef();
        key.push_back(tag(kTagList, list.size()));
        for (const c10::IValue& element : list) key.push_back(static_cast<uint64_t>(element.toInt()));
        break;
      }
      case ArgKind::kDoubleList: {
        const auto list = v.toListRef();
        key.push_back(tag(kTagList, list.size()));
        for (const c10::IValue& element : list) key.push_back(std::bit_cast<uint64_t>(element.toDouble()));
        break;
      }
      case ArgKind::kBoolList: {
        const auto list = v.toListRef();
        key.push_back(tag(kTagList, list.size()));
        for (const c10::IValue& element : list) key.push_back(element.toBool());
        break;
      }
      case ArgKind::kString: {
        const std::string& text = v.toStringRef();
        key.push_back(tag(kTagConstant, 6));
        key.push_back(std::hash<std::string>()(text));
        break;
      }
      case ArgKind::kGenerator:
        break;  // the state is a parameter
      case ArgKind::kIgnored:
        key.push_back(tag(kTagOther, v.isInt() ? static_cast<uint64_t>(v.toInt()) + 1 : 0));
        break;
    }
  }
  for (int16_t w : overload_.written)
    if (refs[w].kind != TensorRef::Kind::kDevice)
      wrong_device(stack_[begin_ + w].toTensor(), static_cast<size_t>(w));
  if (device < 0) device = current_device();
  if (!overload_.written.empty() && tensors.size() > 1) find_overlaps();
  // Integers become floating-point numbers of the type that is the default at the call.
  key.push_back(static_cast<uint64_t>(c10::get_default_dtype_as_scalartype()) << 32 |
                static_cast<uint32_t>(device));
}

// How far operands that overlap a result are from it belongs to the key: whether PyTorch refuses them, and what has to
// be copied aside, is decided once per plan.
void Call::find_overlaps() {
  auto is_written = [&](int32_t tensor) {
    for (int16_t w : overload_.written)
      if (refs[w].index == tensor) return true;
    return false;
  };
  for (int16_t w : overload_.written) {
    const int32_t written = refs[w].index;
    const at::Tensor& result = *tensors[written];
    for (int32_t i = 0; i < static_cast<int32_t>(tensors.size()); ++i) {
      const at::Tensor& t = *tensors[i];
      if (i == written || t.storage().unsafeGetStorageImpl() != result.storage().unsafeGetStorageImpl())
        continue;
      const auto* begin = static_cast<const std::byte*>(t.const_data_ptr());
      const auto* result_begin = static_cast<const std::byte*>(result.const_data_ptr());
      if (begin >= result_begin + tensor_extent_bytes(result) ||
          result_begin >= begin + tensor_extent_bytes(t))
        continue;
      key.push_back(tag(kTagOverlap, static_cast<uint64_t>(written) << 24 | static_cast<uint64_t>(i)));
      key.push_back(static_cast<uint64_t>(begin - result_begin));
      if (!is_written(i)) overlapping.push_back(i);
    }
  }
}

}  // namespace trnsim::aten
