// What moves or adds elements of complex tensors: the same operator on the real parts and on the imaginary ones.
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/OperatorKernel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/full.h>
#include <ATen/ops/item.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>
#include <utility>

#include "device_plugin/aten/complex_pair.h"
#include "device_plugin/aten/composite_kernel.h"

namespace trnsim::aten {
namespace {

using at::Tensor;

enum class Part : uint8_t { kReal, kImaginary };

Tensor part_of(const Tensor& t, Part part) {
  const Pair p = pair_of(t);
  return part == Part::kReal ? p.re : p.im;
}

// Says where, not what: the same for both parts.
bool names_places(std::string_view argument) {
  return argument == "index" || argument == "indices" || argument == "mask";
}

class EachPart final : public c10::OperatorKernel {
 public:
  explicit EachPart(std::string_view name) {
    op_ = c10::Dispatcher::singleton().findSchema(operator_name(name));
    TORCH_INTERNAL_ASSERT(op_.has_value(), name, " is no operator");
  }

  void operator()(const c10::OperatorHandle& /*op*/, c10::DispatchKeySet /*keys*/, c10::Stack* stack) {
    if (narrow_value(*stack)) return op_->callBoxed(stack);
    c10::Stack re = run(*stack, Part::kReal);
    const c10::Stack im = run(*stack, Part::kImaginary);
    for (size_t i = 0; i < re.size(); ++i) re[i] = joined(re[i], im[i]);
    *stack = std::move(re);
  }

 private:
  c10::Stack run(const c10::Stack& given, Part part) const {
    c10::Stack stack;
    const std::vector<c10::Argument>& arguments = op_->schema().arguments();
    for (size_t i = 0; i < given.size(); ++i) stack.push_back(argument(given[i], arguments[i], part));
    op_->callBoxed(&stack);
    return stack;
  }

  // The value that goes into real elements is one of theirs; whether there was one.
  bool narrow_value(c10::Stack& stack) const {
    const std::vector<c10::Argument>& arguments = op_->schema().arguments();
    const auto at = std::find_if(arguments.begin(), arguments.end(),
                                 [](const c10::Argument& a) { return a.name() == "value"; });
    if (at == arguments.end() || !stack[0].isTensor() || stack[0].toTensor().is_complex()) return false;
    c10::IValue& value = stack[static_cast<size_t>(at - arguments.begin())];
    const c10::Scalar number = value.isTensor() ? value.toTensor().item() : value.toScalar();
    const Tensor narrow = at::full({}, number, at::device(at::kCPU).dtype(stack[0].toTensor().scalar_type()));
    if (value.isTensor())
      value = narrow.to(value.toTensor().device());
    else
      value = narrow.item();
    return true;
  }

  static c10::IValue argument(const c10::IValue& v, const c10::Argument& a, Part part) {
    const bool number = a.type()->kind() == c10::TypeKind::NumberType;
    if (v.isTensor() && v.toTensor().defined() && !names_places(a.name())) return part_of(v.toTensor(), part);
    if (v.isTensorList() && !names_places(a.name())) {
      c10::List<Tensor> parts;
      for (const Tensor& t : v.toTensorVector()) parts.push_back(part_of(t, part));
      return parts;
    }
    if (!number) return v;
    if (a.name() == "alpha") {  // a factor, not an element
      TORCH_CHECK_NOT_IMPLEMENTED(!v.isComplexDouble(), "not simulated: a complex alpha; multiply first");
      return v;
    }
    if (v.isComplexDouble())
      return part == Part::kReal ? v.toComplexDouble().real() : v.toComplexDouble().imag();
    return part == Part::kReal ? v : c10::IValue(0.0);
  }

  static c10::IValue joined(const c10::IValue& re, const c10::IValue& im) {
    if (re.isTensorList()) {
      c10::List<Tensor> list;
      const std::vector<Tensor> a = re.toTensorVector(), b = im.toTensorVector();
      for (size_t i = 0; i < a.size(); ++i) list.push_back(complex_of(a[i], b[i]));
      return list;
    }
    return complex_of(re.toTensor(), im.toTensor());
  }

  std::optional<c10::OperatorHandle> op_;
};

constexpr std::array kNames = {
    "aten::alias_copy",
    "aten::as_strided_copy",
    "aten::as_strided_scatter",
    "aten::col2im",
    "aten::diagonal_backward",
    "aten::diagonal_copy",
    "aten::diagonal_scatter",
    "aten::expand_copy",
    "aten::gather",
    "aten::im2col",
    "aten::index.Tensor",
    "aten::index_add",
    "aten::index_copy",
    "aten::index_fill.int_Scalar",
    "aten::index_fill.int_Tensor",
    "aten::index_put",
    "aten::masked_fill.Scalar",
    "aten::masked_fill.Tensor",
    "aten::masked_scatter",
    "aten::masked_select",
    "aten::narrow_copy",
    "aten::permute_copy",
    "aten::put",
    "aten::channel_shuffle",
    "aten::pixel_shuffle",
    "aten::pixel_unshuffle",
    "aten::squeeze_copy.dim",
    "aten::squeeze_copy.dims",
    "aten::reflection_pad1d",
    "aten::reflection_pad1d_backward",
    "aten::reflection_pad2d",
    "aten::reflection_pad2d_backward",
    "aten::reflection_pad3d",
    "aten::reflection_pad3d_backward",
    "aten::replication_pad1d",
    "aten::replication_pad1d_backward",
    "aten::replication_pad2d",
    "aten::replication_pad2d_backward",
    "aten::replication_pad3d",
    "aten::replication_pad3d_backward",
    "aten::scatter.src",
    "aten::scatter.value",
    "aten::scatter_add",
    "aten::select_copy.int",
    "aten::select_scatter",
    "aten::slice_copy.Tensor",
    "aten::slice_scatter",
    "aten::split_copy.Tensor",
    "aten::split_with_sizes_copy",
    "aten::squeeze_copy",
    "aten::stack",
    "aten::t_copy",
    "aten::take",
    "aten::trace",
    "aten::transpose_copy.int",
    "aten::unbind_copy.int",
    "aten::unfold_backward",
    "aten::unfold_copy",
    "aten::unsqueeze_copy",
    "aten::view_copy",
    "aten::_index_put_impl",
    "aten::_unsafe_index.Tensor",
    "aten::_unsafe_index_put",
};

}  // namespace

Composites complex_move_forms() {
  Composites rows;
  for (const char* name : kNames)
    rows.push_back({name, c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<EachPart>(name)), {}});
  return rows;
}

}  // namespace trnsim::aten
