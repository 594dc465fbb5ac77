// The foreach operators: one call of an operator per element of the lists, all of them in one program. What has no
// program (lists of several devices, operands that share memory in other ways than being the same tensor, complex
// numbers, ...) goes to PyTorch's own loop over the elements, and with it every error about the lists.
#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/OperatorKernel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/jit_type.h>
#include <torch/library.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "device_plugin/aten/device_use.h"
#include "device_plugin/aten/list_call.h"
#include "device_plugin/aten/lowered_kernel.h"
#include "device_plugin/aten/op_table.h"

namespace trnsim::aten {
namespace {

// Names behind `_foreach_`, and the operator of one element. In-place forms follow from the functional ones, and what is
// not here has the name of the list's operator.
struct Form {
  const char* list;
  const char* element;
};
constexpr Form kForms[] = {
    {"addcdiv.Scalar", "addcdiv"},
    {"addcdiv.ScalarList", "addcdiv"},
    {"addcmul.Scalar", "addcmul"},
    {"addcmul.ScalarList", "addcmul"},
    {"add.List", "add.Tensor"},
    {"add.ScalarList", "add.Scalar"},
    {"clamp_max.List", "clamp_max.Tensor"},
    {"clamp_max.Scalar", "clamp_max"},
    {"clamp_max.ScalarList", "clamp_max"},
    {"clamp_min.List", "clamp_min.Tensor"},
    {"clamp_min.Scalar", "clamp_min"},
    {"clamp_min.ScalarList", "clamp_min"},
    {"div.List", "div.Tensor"},
    {"div.ScalarList", "div.Scalar"},
    {"lerp.List", "lerp.Tensor"},
    {"lerp.ScalarList", "lerp.Scalar"},
    {"maximum.List", "clamp_min.Tensor"},
    {"maximum.Scalar", "clamp_min"},
    {"maximum.ScalarList", "clamp_min"},
    {"minimum.List", "clamp_max.Tensor"},
    {"minimum.Scalar", "clamp_max"},
    {"minimum.ScalarList", "clamp_max"},
    {"mul.List", "mul.Tensor"},
    {"mul.ScalarList", "mul.Scalar"},
    {"norm.Scalar", "linalg_vector_norm"},
    {"pow.List", "pow.Tensor_Tensor"},
    {"pow.Scalar", "pow.Tensor_Scalar"},
    {"pow.ScalarAndTensor", "pow.Scalar"},
    {"pow.ScalarList", "pow.Tensor_Scalar"},
    {"pow_.List", "pow_.Tensor"},
    {"pow_.Scalar", "pow_.Scalar"},
    {"pow_.ScalarList", "pow_.Scalar"},
    {"sub.List", "sub.Tensor"},
    {"sub.ScalarList", "sub.Scalar"},
};
constexpr std::string_view kPrefix = "aten::_foreach_";

// The operator of one element; in-place when that of the list is.
c10::OperatorName element_of(const c10::OperatorName& list) {
  const auto element_in = [](const c10::OperatorName& name) -> std::optional<c10::OperatorName> {
    for (const Form& form : kForms)
      if (c10::toString(name) == form.list) return operator_name(form.element);
    return std::nullopt;
  };
  c10::OperatorName own{list.name.substr(kPrefix.size()), list.overload_name};
  std::optional<c10::OperatorName> element = element_in(own);
  if (!element && own.name.back() == '_') {
    own.name.pop_back();
    element = element_in(own).value_or(own);
    element->name += '_';
  }
  if (!element) element = own;
  element->name = "aten::" + element->name;
  return *element;
}

enum class Part : uint8_t { kEach, kAll, kNumberOfEach, kNumber, kOption };
std::optional<Part> part_of(const c10::Argument& argument) {
  c10::TypePtr type = argument.real_type();
  switch (type->kind()) {
    case c10::TypeKind::TensorType:
      return Part::kAll;
    case c10::TypeKind::NumberType:
      return Part::kNumber;
    case c10::TypeKind::ListType:
      switch (type->castRaw<c10::ListType>()->getElementType()->kind()) {
        case c10::TypeKind::TensorType:
          return Part::kEach;
        case c10::TypeKind::NumberType:
          return Part::kNumberOfEach;
        default:
          return std::nullopt;
      }
    case c10::TypeKind::BoolType:
    case c10::TypeKind::OptionalType:
      return Part::kOption;
    default:
      return std::nullopt;
  }
}

class ForeachKernel final : public c10::OperatorKernel {
 public:
  // Null when the operator does not have the form of one call per element.
  static std::unique_ptr<ForeachKernel> make(const c10::FunctionSchema& schema,
                                             const c10::OperatorName& element) {
    auto handle = c10::Dispatcher::singleton().findSchema(element);
    if (!handle) return nullptr;
    auto kernel = std::make_unique<ForeachKernel>(*handle);
    kernel->name_ = c10::toString(schema.operator_name());
    kernel->in_place_ = schema.returns().empty();
    kernel->overload_ = lowered_overload(c10::toString(element));
    const auto& arguments = handle->schema().arguments();
    for (const c10::Argument& a : arguments) {
      kernel->defaults_.push_back(a.default_value().value_or(c10::IValue()));
      kernel->sources_.push_back(-1);
    }
    for (size_t i = 0; i < schema.arguments().size(); ++i) {
      const c10::Argument& a = schema.arguments()[i];
      const auto part = part_of(a);
      if (!part) return nullptr;
      kernel->parts_.push_back(*part);
      size_t target = i;  // by its name, or else by its place
      for (size_t e = 0; e < arguments.size(); ++e)
        if (arguments[e].name() == a.name()) target = e;
      if (target >= arguments.size() || kernel->sources_[target] >= 0) return nullptr;
      kernel->sources_[target] = static_cast<int>(i);
    }
    return kernel;
  }

  explicit ForeachKernel(c10::OperatorHandle element) : element_(element) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, c10::Stack* stack) {
    const DeviceUse use;
    const size_t begin = stack->size() - parts_.size();
    const size_t length = length_of(*stack, begin);
    std::vector<at::Tensor> results;
    for (size_t first = 0; first < length; first += kListElementsPerProgram) {
      const size_t count = std::min(kListElementsPerProgram, length - first);
      auto made = run(*stack, begin, first, count);
      // Nothing has happened yet; later parts of a long list are PyTorch's loop over a part.
      if (!made && first == 0 && count == length) break;
      if (!made) made = loop(op, *stack, begin, first, count);
      results.insert(results.end(), made->begin(), made->end());
      if (first + count < length) continue;
      stack->resize(begin);
      if (!in_place_) stack->emplace_back(std::move(results));
      return;
    }
    op.callBoxedForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd, *stack);
  }

 private:
  // Elements of every list; 0 when there are none, or lists of different lengths.
  size_t length_of(const c10::Stack& stack, size_t begin) const {
    std::optional<size_t> length;
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (parts_[i] != Part::kEach && parts_[i] != Part::kNumberOfEach) continue;
      const size_t own = stack[begin + i].toListRef().size();
      if (length && *length != own) return 0;
      length = own;
    }
    return length.value_or(0);
  }

  // Arguments that the element's program takes as constants are part of the key.
  bool is_constant(size_t argument) const {
    if (overload_ == nullptr) return true;
    for (size_t e = 0; e < sources_.size(); ++e)
      if (sources_[e] == static_cast<int>(argument)) return overload_->kinds[e] == ArgKind::kConstScalar;
    return true;
  }

  static void add_constant(ListCall& call, const c10::IValue& v) {
    call.constant(v.isNone() ? 0 : v.isDouble() ? 1 : v.isBool() ? 2 : 3);
    if (v.isDouble())
      call.constant(std::bit_cast<uint64_t>(v.toDouble()));
    else if (v.isBool() || v.isInt())
      call.constant(v.isBool() ? uint64_t{v.toBool()} : static_cast<uint64_t>(v.toInt()));
  }

  std::optional<std::vector<at::Tensor>> run(const c10::Stack& stack, size_t begin, size_t first,
                                             size_t count) const {
    ListCall call(this, name_);
    call.constant(count);
    for (size_t i = 0; i < parts_.size(); ++i) {
      const c10::IValue& v = stack[begin + i];
      auto add_number = [&](const c10::IValue& number) {
        call.add(number.toScalar());
        if (is_constant(i)) add_constant(call, number);
      };
      switch (parts_[i]) {
        case Part::kEach:
          for (const c10::IValue& t : v.toListRef().slice(first, count))
            call.add(t.toTensor(), in_place_ && i == 0);
          break;
        case Part::kAll:
          call.add(v.toTensor(), false);
          break;
        case Part::kNumberOfEach:
          for (const c10::IValue& number : v.toListRef().slice(first, count)) add_number(number);
          break;
        case Part::kNumber:
          add_number(v);
          break;
        case Part::kOption:
          add_constant(call, v);
          break;
      }
    }
    return call.run(
        [&](ListCall::Recording& recording) { return record(recording, stack, begin, first, count); });
  }

  std::vector<at::Tensor> record(ListCall::Recording& recording, const c10::Stack& stack, size_t begin,
                                 size_t first, size_t count) const {
    std::vector<size_t> operand_of;  // where the operands of each argument begin
    size_t next = 0;
    for (const Part part : parts_) {
      operand_of.push_back(next);
      if (part == Part::kEach || part == Part::kNumberOfEach)
        next += count;
      else if (part != Part::kOption)
        ++next;
    }
    std::unordered_set<uint64_t> accepted;
    std::vector<at::Tensor> results;
    for (size_t e = 0; e < count; ++e) {
      c10::Stack inner;
      c10::SmallVector<std::pair<size_t, int32_t>, 2> numbers;
      for (size_t a = 0; a < sources_.size(); ++a) {
        if (sources_[a] < 0) {
          inner.push_back(defaults_[a]);
          continue;
        }
        const auto i = static_cast<size_t>(sources_[a]);
        const c10::IValue& v = stack[begin + i];
        const bool each = parts_[i] == Part::kEach || parts_[i] == Part::kNumberOfEach;
        const size_t operand = operand_of[i] + (each ? e : 0);
        switch (parts_[i]) {
          case Part::kEach:
          case Part::kAll:
            inner.emplace_back(recording.operands[operand]);
            break;
          case Part::kNumberOfEach:
          case Part::kNumber:
            inner.push_back(each ? v.toListRef()[first + e] : v);
            numbers.emplace_back(a, recording.numbers[operand]);
            break;
          case Part::kOption:
            inner.push_back(v);
            break;
        }
      }
      if (overload_ != nullptr)
        record_element(recording.recorder, element_, *overload_, inner, numbers, accepted);
      else
        element_.callBoxed(inner);  // copy_, which takes no numbers
      if (!in_place_) results.push_back(inner.back().toTensor());
    }
    return results;
  }

  // PyTorch's own loop over a part of the lists.
  std::vector<at::Tensor> loop(const c10::OperatorHandle& op, const c10::Stack& stack, size_t begin,
                               size_t first, size_t count) const {
    c10::Stack part;
    for (size_t i = 0; i < parts_.size(); ++i) {
      const c10::IValue& v = stack[begin + i];
      if (parts_[i] == Part::kEach) {
        std::vector<at::Tensor> tensors;
        for (const c10::IValue& t : v.toListRef().slice(first, count)) tensors.push_back(t.toTensor());
        part.emplace_back(std::move(tensors));
      } else if (parts_[i] == Part::kNumberOfEach) {
        std::vector<c10::Scalar> numbers;
        for (const c10::IValue& n : v.toListRef().slice(first, count)) numbers.push_back(n.toScalar());
        part.emplace_back(std::move(numbers));
      } else {
        part.push_back(v);
      }
    }
    op.callBoxedForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd, part);
    return in_place_ ? std::vector<at::Tensor>() : part.back().toTensorVector();
  }

  std::string name_;
  const c10::OperatorHandle element_;
  const Overload* overload_ = nullptr;
  bool in_place_ = false;
  std::vector<Part> parts_;            // per argument of the list's operator
  std::vector<int> sources_;           // per argument of the element's operator: which of those, or -1
  std::vector<c10::IValue> defaults_;  // of the element's operator
};

}  // namespace

void register_foreach_ops() {
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  // Stays for the life of the process: destroying it would take the kernels back.
  auto* library =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (!name.name.starts_with(kPrefix) || name.overload_name.ends_with("out")) continue;
    const auto handle = dispatcher.findSchema(name);
    if (!handle || !handle->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd)) continue;
    const c10::OperatorName element = element_of(name);
    // Lowered operators, and a copy.
    const std::string full = c10::toString(element);
    if (lowered_overload(full) == nullptr && full != "aten::copy_") continue;
    auto kernel = ForeachKernel::make(handle->schema(), element);
    if (kernel == nullptr) continue;
    const std::string own = c10::toString(name).substr(std::string_view("aten::").size());
    library->impl(own.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::move(kernel)));
  }
}

}  // namespace trnsim::aten
