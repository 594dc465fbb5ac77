#include "device_plugin/aten/op_table.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/jit_type.h>
#include <torch/library.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>

#include "device_plugin/aten/attention.h"
#include "device_plugin/aten/composite_kernel.h"
#include "device_plugin/aten/lowered_kernel.h"
#include "device_plugin/aten/prepare.h"

namespace trnsim::aten {
namespace {

constexpr LoweredRow kRows[] = {
#include "lowered_ops.inc"
};

// Lowered for graphs, but native here, or composite over natives with a meaning the boxed kernel does not
// know (a copy to another device, a result that is a view).
const std::set<std::string_view>& native_elsewhere() {
  static const std::set<std::string_view> names = {
      "aten::copy",          "aten::_to_copy",   "aten::_copy_from", "aten::empty.memory_format",
      "aten::empty_strided", "aten::as_strided", "aten::view",       "aten::_reshape_alias",
      "aten::resize",        "aten::set",
  };
  return names;
}

// Overloads whose names do not follow from the functional one.
struct Renamed {
  const char* functional;
  const char* overload;
};
constexpr Renamed kRenamed[] = {
    {"aten::normal_functional", "aten::normal_"},
    {"aten::arange.start_step", "aten::arange.start_out"},
    {"aten::convolution", "aten::convolution_overrideable"},
};

// The first argument says only where the result goes.
bool ignores_self(std::string_view functional) {
  const std::string_view base = functional.substr(0, functional.find('.'));
  static const std::set<std::string_view> names = {
      "aten::fill",   "aten::zero",        "aten::copy",       "aten::uniform",   "aten::normal_functional",
      "aten::random", "aten::exponential", "aten::log_normal", "aten::geometric", "aten::cauchy",
  };
  return names.count(base) != 0 || functional == "aten::bernoulli.p" ||
         functional == "aten::bernoulli.Tensor";
}

std::optional<ArgKind> kind_of(const c10::Argument& argument) {
  c10::TypePtr type = argument.real_type();
  if (type->kind() == c10::TypeKind::OptionalType)
    type = type->castRaw<c10::OptionalType>()->getElementType();
  switch (type->kind()) {
    case c10::TypeKind::TensorType:
      return ArgKind::kTensor;
    case c10::TypeKind::NumberType:
    case c10::TypeKind::FloatType:
      return ArgKind::kScalar;
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      return ArgKind::kInt;
    case c10::TypeKind::BoolType:
      return ArgKind::kBool;
    case c10::TypeKind::StringType:
      return ArgKind::kString;
    case c10::TypeKind::ScalarTypeType:
      return ArgKind::kDtype;
    case c10::TypeKind::GeneratorType:
      return ArgKind::kGenerator;
    case c10::TypeKind::LayoutType:
    case c10::TypeKind::MemoryFormatType:
    case c10::TypeKind::DeviceObjType:
      return ArgKind::kIgnored;
    case c10::TypeKind::ListType: {
      c10::TypePtr element = type->castRaw<c10::ListType>()->getElementType();
      if (element->kind() == c10::TypeKind::OptionalType)
        element = element->castRaw<c10::OptionalType>()->getElementType();
      switch (element->kind()) {
        case c10::TypeKind::TensorType:
          return ArgKind::kTensorList;
        case c10::TypeKind::IntType:
        case c10::TypeKind::SymIntType:
          return ArgKind::kIntList;
        case c10::TypeKind::FloatType:
          return ArgKind::kDoubleList;
        case c10::TypeKind::BoolType:
          return ArgKind::kBoolList;
        case c10::TypeKind::NumberType:
          return ArgKind::kScalarList;
        default:
          return std::nullopt;
      }
    }
    default:
      return std::nullopt;
  }
}

bool is_written(const c10::Argument& a) { return a.alias_info() != nullptr && a.alias_info()->isWrite(); }

// Arguments of a functional overload that its in-place and out= forms may lack.
bool may_be_missing(const c10::Argument& a) {
  static const std::set<std::string_view> names = {"dtype",      "layout",        "device",
                                                   "pin_memory", "memory_format", "generator"};
  return names.count(a.name()) != 0;
}

// The description of `candidate` as a form of `functional`, or nothing when it is not one.
std::optional<Overload> match(const c10::FunctionSchema& functional, const c10::FunctionSchema& candidate,
                              const LoweredRow& row) {
  Overload result;
  result.functional = row.name;
  result.name = candidate.name();
  if (!candidate.overload_name().empty()) result.name += "." + candidate.overload_name();
  result.random = row.random;
  result.num_results = candidate.returns().size();
  const bool same = &functional == &candidate;

  std::vector<int16_t> out_args;
  size_t used = 0;
  std::vector<int16_t> source_of(functional.arguments().size(), -1);
  for (size_t i = 0; i < candidate.arguments().size(); ++i) {
    const c10::Argument& a = candidate.arguments()[i];
    auto kind = kind_of(a);
    if (!kind) return std::nullopt;
    if (a.is_out()) {
      if (*kind != ArgKind::kTensor) return std::nullopt;
      out_args.push_back(static_cast<int16_t>(i));
      result.kinds.push_back(*kind);
      result.arg_names.push_back(a.name());
      continue;
    }
    if (*kind == ArgKind::kGenerator) result.generator = static_cast<int>(i);
    int found = -1;
    for (size_t f = 0; f < functional.arguments().size(); ++f)
      if (functional.arguments()[f].name() == a.name()) found = static_cast<int>(f);
    if (found >= 0) {
      const auto expected = kind_of(functional.arguments()[found]);
      if (!expected || *expected != *kind) return std::nullopt;
      source_of[found] = static_cast<int16_t>(i);
      if (*kind == ArgKind::kScalar && found < 64 && (row.const_args >> found & 1))
        kind = ArgKind::kConstScalar;
      ++used;
    } else if (a.name() == "unsafe") {
      kind = ArgKind::kIgnored;  // _index_put_impl_: no bounds check
    } else {
      return std::nullopt;
    }
    result.kinds.push_back(*kind);
    result.arg_names.push_back(a.name());
  }
  for (size_t f = 0; f < functional.arguments().size(); ++f) {
    const auto kind = kind_of(functional.arguments()[f]);
    if (!kind) return std::nullopt;
    if (source_of[f] < 0 && !may_be_missing(functional.arguments()[f])) return std::nullopt;
    result.functional_kinds.push_back(
        *kind == ArgKind::kScalar && f < 64 && (row.const_args >> f & 1) ? ArgKind::kConstScalar : *kind);
  }
  result.sources = std::move(source_of);
  for (const c10::Argument& r : candidate.returns())
    if (r.type()->kind() != c10::TypeKind::TensorType) return std::nullopt;

  if (!out_args.empty()) {
    result.is_out = true;
    result.written = std::move(out_args);
    if (result.written.size() != functional.returns().size()) return std::nullopt;
  } else {
    std::vector<int16_t> written;
    for (size_t i = 0; i < candidate.arguments().size(); ++i)
      if (is_written(candidate.arguments()[i])) written.push_back(static_cast<int16_t>(i));
    if (same) {
      result.hidden = std::move(written);
      // A return that aliases an argument without being written is a view.
      for (const c10::Argument& r : candidate.returns())
        if (r.alias_info() != nullptr) return std::nullopt;
    } else {
      if (written.size() != 1 || functional.returns().size() != 1) return std::nullopt;
      result.written = std::move(written);
    }
  }
  return result;
}

void finish(Overload& o) {
  o.ignores_self = ignores_self(o.functional) && !o.written.empty();
  // Running statistics change although the schema does not say so.
  if (o.functional == "aten::native_batch_norm" && !o.is_out) {
    for (size_t i = 0; i < o.arg_names.size(); ++i)
      if (o.arg_names[i] == "running_mean" || o.arg_names[i] == "running_var")
        o.hidden.push_back(static_cast<int16_t>(i));
  }
  bool reads_tensor = false;
  for (size_t i = 0; i < o.kinds.size(); ++i) {
    const bool is_result =
        std::find(o.written.begin(), o.written.end(), static_cast<int16_t>(i)) != o.written.end();
    reads_tensor |= !is_result && (o.kinds[i] == ArgKind::kTensor || o.kinds[i] == ArgKind::kTensorList);
  }
  static const std::set<std::string_view> products = {
      "aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm", "aten::addmv", "aten::mv", "aten::dot"};
  o.matrix_product = products.count(o.functional) != 0;
  o.shape_from_scalars = o.is_out && !reads_tensor;
  o.prepare = prepare_for(o.functional);
}

// Finds every form of an operator and registers the kernel that serves it.
class Registrar {
 public:
  using MakeKernel = std::function<torch::CppFunction(Overload)>;

  Registrar() {
    for (const c10::OperatorName& name : dispatcher_.getAllOpNames())
      if (name.name.starts_with("aten::") || name.name.starts_with("trnsim::"))
        by_base_[name.name].push_back(name);
  }

  void add(const LoweredRow& row, const MakeKernel& make) {
    const c10::OperatorName own = operator_name(row.name);
    auto functional = dispatcher_.findSchema(own);
    if (!functional) return;  // of another PyTorch minor
    for (const std::string& candidate_base : {own.name, own.name + "_"}) {
      auto it = by_base_.find(candidate_base);
      if (it == by_base_.end()) continue;
      for (const c10::OperatorName& name : it->second) consider(row, *functional, name, make);
    }
    for (const Renamed& renamed : kRenamed)
      if (row.name == std::string_view(renamed.functional))
        consider(row, *functional, operator_name(renamed.overload), make);
  }

 private:
  void consider(const LoweredRow& row, const c10::OperatorHandle& functional, const c10::OperatorName& name,
                const MakeKernel& make) {
    auto handle = dispatcher_.findSchema(name);
    if (!handle) return;
    const bool same = name == functional.operator_name();
    // A composite operator is made of others, and its gradient is theirs: leave it whole to PyTorch, unless it has a
    // gradient of its own for devices that have a kernel (_fused_rms_norm).
    if (handle->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
        !handle->hasKernelForDispatchKey(c10::DispatchKey::Autograd))
      return;
    auto o = match(functional.schema(), same ? functional.schema() : handle->schema(), row);
    if (!o) return;
    const bool takes_tensor = std::any_of(o->kinds.begin(), o->kinds.end(), [](ArgKind k) {
      return k == ArgKind::kTensor || k == ArgKind::kTensorList;
    });
    if (!takes_tensor) return;  // a factory: composite over empty and the out= form
    if (!done_.insert(o->name).second) return;
    finish(*o);
    o->pointwise = handle->hasTag(at::Tag::pointwise);
    const std::string registered_as = o->name.substr(o->name.find("::") + 2);
    torch::Library* library = o->name.starts_with("aten::") ? library_ : own_library_;
    library->impl(registered_as.c_str(), make(std::move(*o)));
  }

  c10::Dispatcher& dispatcher_ = c10::Dispatcher::singleton();
  // Stays for the life of the process: destroying it would take the kernels back.
  static torch::Library* kernels_of(const char* name_space) {
    return new torch::Library(torch::Library::IMPL, name_space, c10::DispatchKey::PrivateUse1, __FILE__,
                              __LINE__);
  }
  torch::Library* library_ = kernels_of("aten");
  torch::Library* own_library_ = kernels_of("trnsim");
  std::unordered_map<std::string, std::vector<c10::OperatorName>> by_base_;  // overloads, once
  std::set<std::string> done_;
};

}  // namespace

c10::ArrayRef<LoweredRow> lowered_rows() { return kRows; }

void register_lowered_ops() {
  define_attention();
  Registrar registrar;
  for (const LoweredRow& row : kRows) {
    if (native_elsewhere().count(row.name) != 0) continue;
    registrar.add(row, [](Overload o) {
      return torch::CppFunction::makeFromBoxedFunctor(std::make_unique<LoweredKernel>(std::move(o)));
    });
  }
  for (const Composites& table : composite_tables()) {
    for (const CompositeRow& row : table) {
      // What a composite may refuse depends on the values of its numbers, so all of them tell its calls apart.
      registrar.add({row.name, ~uint64_t{0}, false}, [&](Overload o) {
        return torch::CppFunction::makeFromBoxedFunctor(
            std::make_unique<CompositeKernel>(std::move(o), row.function, row.options));
      });
    }
  }
}

namespace {
[[maybe_unused]] const bool registered = [] {
  register_lowered_ops();
  register_foreach_ops();
  return true;
}();
}  // namespace

}  // namespace trnsim::aten
