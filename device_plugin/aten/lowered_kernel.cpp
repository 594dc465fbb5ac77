#include "device_plugin/aten/lowered_kernel.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/util/Exception.h>
#include <c10/util/strides.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

#include "device_plugin/aten/call.h"
#include "device_plugin/aten/composite_kernel.h"
#include "device_plugin/aten/dtypes.h"
#include "device_plugin/aten/fallback.h"
#include "device_plugin/aten/generator.h"
#include "device_plugin/aten/graph_recorder.h"
#include "device_plugin/aten/promotion.h"
#include "device_plugin/aten/queue.h"
#include "device_plugin/aten/tensors.h"
#include "device_plugin/aten/trial.h"

namespace trnsim::aten {
namespace {

using compiler::kNoValue;
using compiler::ValueId;

// ---- 64-bit types
// ------------------------------------------------------------------------------------------------
void warn_about_64_bits(const Call& call) {
  for (const at::Tensor* t : call.tensors) {
    if (t->scalar_type() == at::kDouble) {
      TORCH_WARN_ONCE("neuron: float64 tensors are computed as float32: the hardware has no 64-bit float.");
    }
    if (t->scalar_type() == at::kLong) {
      TORCH_WARN_ONCE(
          "neuron: int64 tensors are computed as 32-bit integers: the hardware has no 64-bit arithmetic. "
          "TRNSIM_INT64=exact computes them on the host instead.");
    }
  }
}

// ---- the miss path: metadata, then a program
// --------------------------------------------------------------------------
class GraphMaker {
 public:
  GraphMaker(const Overload& overload, const Call& call, const c10::Stack& stack, size_t begin, Plan& plan)
      : overload_(overload),
        call_(call),
        stack_(stack),
        begin_(begin),
        plan_(plan),
        operand_types_(operand_types(overload, stack, begin)) {}

  // False with plan.reason set when a type has no form on the hardware.
  bool make(compiler::Graph& graph) {
    graph.name = plan_.name;
    value_of_tensor_.assign(call_.tensors.size(), kNoValue);
    compiler::Node node;
    node.op = overload_.functional;
    list_position_ = 0;
    // List elements are numbered in the order of this overload's arguments.
    std::vector<size_t> list_begin(overload_.kinds.size(), 0);
    size_t position = 0;
    for (size_t i = 0; i < overload_.kinds.size(); ++i) {
      list_begin[i] = position;
      if (overload_.kinds[i] == ArgKind::kTensorList && !stack_[begin_ + i].isNone())
        position += stack_[begin_ + i].toListRef().size();
    }
    for (size_t f = 0; f < overload_.sources.size(); ++f) {
      const int source = overload_.sources[f];
      if (source < 0) {
        node.args.emplace_back(compiler::Optional{});
        continue;
      }
      list_position_ = list_begin[source];
      if (!append(graph, node, static_cast<size_t>(source), f)) return false;
    }
    graph.num_params = static_cast<int32_t>(call_.params.size());
    for (size_t i = 0; i < plan_.param_inverses.size(); ++i) {
      std::vector<compiler::ParamRef> parts;
      for (int32_t word = 0; word < kInverseWords; ++word)
        parts.push_back({graph.num_params++, isa::Dtype::kF32});
      node.args.emplace_back(std::move(parts));
    }
    if (overload_.random) {
      std::vector<compiler::ParamRef> philox;
      for (int i = 0; i < 4; ++i) philox.push_back({graph.num_params++, isa::Dtype::kI32});
      node.args.emplace_back(std::move(philox));
    }
    for (size_t r = 0; r < plan_.results.size(); ++r) {
      if (!plan_.result_wanted[r]) {
        node.results.push_back(kNoValue);
        continue;
      }
      const TensorMeta& meta = plan_.results[r];
      const auto dtype = to_isa(meta.dtype);
      if (!dtype) return refuse(meta.dtype);
      const auto id = static_cast<ValueId>(graph.values.size());
      compiler::Value value{
          {*dtype, {meta.sizes.begin(), meta.sizes.end()}, {meta.strides.begin(), meta.strides.end()}},
          kNoValue};
      const int tensor = written_tensor(r);
      if (tensor >= 0 && !plan_.result_resized[r]) value.alias = value_of_tensor_[tensor];
      graph.values.push_back(std::move(value));
      graph.outputs.push_back(id);
      node.results.push_back(id);
    }
    graph.nodes.push_back(std::move(node));
    return true;
  }

  // Position in call.tensors of the tensor that result r is written to; -1: a new tensor.
  int written_tensor(size_t r) const {
    const size_t fixed = overload_.written.size();
    const size_t fresh = fixed > 0 ? fixed : overload_.num_results;
    if (r < fixed) return call_.refs[overload_.written[r]].index;
    if (r >= fresh) return call_.refs[overload_.hidden[r - fresh]].index;
    return -1;
  }

 private:
  bool refuse(c10::ScalarType type) {
    plan_.reason = no_hardware_type(type);
    return false;
  }

  ValueId value_of(compiler::Graph& graph, int32_t tensor, bool* ok) {
    ValueId& id = value_of_tensor_[tensor];
    if (id != kNoValue) return id;
    const at::Tensor& t = *call_.tensors[tensor];
    const auto dtype = to_isa(t.scalar_type());
    if (!dtype) {
      *ok = refuse(t.scalar_type());
      return kNoValue;
    }
    id = static_cast<ValueId>(graph.values.size());
    graph.values.push_back({{*dtype, t.sizes().vec(), t.strides().vec()}, kNoValue});
    graph.inputs.push_back(id);
    plan_.inputs.push_back(tensor);
    plan_.input_bytes.push_back(tensor_extent_bytes(t));
    return id;
  }

  compiler::ParamRef param(int32_t slot) const { return {slot, call_.param_dtypes[slot]}; }

  // As an operand of argument i, in the type that operands are converted to.
  compiler::ParamRef param(int32_t slot, size_t i) {
    const auto& to = operand_types_[i];
    if (!to) {
      if (is_divisor(overload_, stack_, begin_, i))
        plan_.param_inverses.push_back({slot, call_.param_dtypes[slot]});
      return param(slot);
    }
    plan_.param_conversions.push_back({slot, call_.param_dtypes[slot], *to});
    return {slot, param_dtype(*to)};
  }

  compiler::Arg constant(const c10::IValue& v, size_t i) const {
    const auto& to = operand_types_[i];
    if (!to) {
      if (v.isDouble()) return v.toDouble();
      if (v.isBool()) return v.toBool();
      return v.toInt();
    }
    const at::Tensor converted =
        at::scalar_tensor(v.toScalar(), v.isDouble() ? at::kDouble : at::kLong).to(*to);
    if (c10::isFloatingType(*to)) return converted.item<double>();
    return converted.item<int64_t>();
  }

  // The tensor of argument i behind the conversion: a value between two nodes.
  ValueId converted(compiler::Graph& graph, ValueId from, size_t i) {
    const auto& to = operand_types_[i];
    if (from == kNoValue || !to) return from;
    const auto id = static_cast<ValueId>(graph.values.size());
    const std::vector<int64_t> sizes = graph.values[static_cast<size_t>(from)].type.sizes;
    const c10::DimVector strides = c10::contiguous_strides(sizes);
    graph.values.push_back({{*to_isa(*to), sizes, {strides.begin(), strides.end()}}, kNoValue});
    compiler::Node node;
    node.op = "aten::copy";
    node.args = {compiler::Arg(kNoValue), compiler::Arg(from), compiler::Arg(false)};
    node.results = {id};
    graph.nodes.push_back(std::move(node));
    return id;
  }

  bool append(compiler::Graph& graph, compiler::Node& node, size_t i, size_t functional_index) {
    const c10::IValue& v = stack_[begin_ + i];
    bool ok = true;
    auto tensor_arg = [&](const TensorRef& ref) -> compiler::Arg {
      switch (ref.kind) {
        case TensorRef::Kind::kNone:
          return kNoValue;
        case TensorRef::Kind::kHostScalar:
          return param(ref.index, i);
        case TensorRef::Kind::kDevice:
          return converted(graph, value_of(graph, ref.index, &ok), i);
      }
      return kNoValue;
    };
    switch (overload_.kinds[i]) {
      case ArgKind::kTensor:
        if (functional_index == 0 && overload_.ignores_self)
          node.args.emplace_back(kNoValue);
        else
          node.args.push_back(tensor_arg(call_.refs[i]));
        break;
      case ArgKind::kTensorList: {
        compiler::ValueList list;
        if (!v.isNone())
          for (size_t e = 0; e < v.toListRef().size(); ++e) {
            const TensorRef& ref = call_.list_refs[list_position_ + e];
            if (ref.kind == TensorRef::Kind::kHostScalar) {
              plan_.reason = "a list that mixes device tensors and host scalars";
              return false;
            }
            list.ids.push_back(std::get<ValueId>(tensor_arg(ref)));
          }
        node.args.emplace_back(std::move(list));
        break;
      }
      case ArgKind::kScalar:
      case ArgKind::kConstScalar:
        if (v.isNone())
          node.args.emplace_back(compiler::Optional{});
        else if (call_.scalar_slots[i] >= 0)
          node.args.emplace_back(param(call_.scalar_slots[i], i));
        else
          node.args.push_back(constant(v, i));
        break;
      case ArgKind::kScalarList: {
        std::vector<compiler::ParamRef> list;
        for (size_t e = 0; !v.isNone() && e < v.toListRef().size(); ++e)
          list.push_back(param(call_.scalar_slots[i] + static_cast<int32_t>(e)));
        node.args.emplace_back(std::move(list));
        break;
      }
      default:
        node.args.push_back(plain(v, overload_.kinds[i], &ok));
    }
    return ok;
  }

  compiler::Arg plain(const c10::IValue& v, ArgKind kind, bool* ok) {
    if (v.isNone()) return compiler::Optional{};
    switch (kind) {
      case ArgKind::kInt:
        return v.toInt();
      case ArgKind::kBool:
        return v.toBool();
      case ArgKind::kString:
        return v.toStringRef();
      case ArgKind::kIntList: {
        std::vector<int64_t> list;
        for (const c10::IValue& e : v.toListRef()) list.push_back(e.toInt());
        return list;
      }
      case ArgKind::kDoubleList: {
        std::vector<double> list;
        for (const c10::IValue& e : v.toListRef()) list.push_back(e.toDouble());
        return list;
      }
      case ArgKind::kBoolList: {
        std::vector<bool> list;
        for (const c10::IValue& e : v.toListRef()) list.push_back(e.toBool());
        return list;
      }
      case ArgKind::kDtype: {
        const auto type = static_cast<c10::ScalarType>(v.toInt());
        const auto dtype = to_isa(type);
        if (!dtype) {
          *ok = refuse(type);
          return compiler::Optional{};
        }
        return *dtype;
      }
      default:
        return compiler::Optional{};  // never read by a lowering
    }
  }

  const Overload& overload_;
  const Call& call_;
  const c10::Stack& stack_;
  const size_t begin_;
  Plan& plan_;
  const OperandTypes operand_types_;
  std::vector<ValueId> value_of_tensor_;
  size_t list_position_ = 0;
};

// Whether a call has to run on the host when int64 is exact: int64 elements are read or may exceed 32 bits. On the
// device stay elements that only move, numbers of 32 bits that fill a tensor, and indices: one beyond 32 bits is out of
// range in 32 bits too.
bool needs_64_bit_integers(const Overload& overload, const Call& call, const Plan& plan) {
  static const std::unordered_set<std::string> kMoving = {"aten::cat",
                                                          "aten::clone",
                                                          "aten::repeat",
                                                          "aten::flip",
                                                          "aten::roll",
                                                          "aten::zero",
                                                          "aten::fill.Scalar",
                                                          "aten::constant_pad_nd",
                                                          "aten::index_select",
                                                          "aten::embedding",
                                                          "aten::embedding_dense_backward",
                                                          "aten::index.Tensor",
                                                          "aten::gather",
                                                          "aten::nll_loss_forward",
                                                          "aten::nll_loss_backward",
                                                          "aten::nll_loss2d_forward",
                                                          "aten::nll_loss2d_backward"};
  // Results that count or number elements.
  static const std::unordered_set<std::string> kNumbering = {"aten::argmax",
                                                             "aten::argmin",
                                                             "aten::argsort",
                                                             "aten::count_nonzero",
                                                             "aten::cummax",
                                                             "aten::cummin",
                                                             "aten::kthvalue",
                                                             "aten::max",
                                                             "aten::median",
                                                             "aten::min",
                                                             "aten::mode",
                                                             "aten::sort",
                                                             "aten::topk",
                                                             "aten::multinomial",
                                                             "aten::randperm",
                                                             "aten::searchsorted",
                                                             "aten::bucketize",
                                                             "aten::max_pool2d_with_indices",
                                                             "aten::max_pool3d_with_indices",
                                                             "aten::adaptive_max_pool2d",
                                                             "aten::adaptive_max_pool3d"};
  const bool casts = overload.functional == "aten::cat" && plan.results[0].dtype != at::kLong;
  if (!call.wide && !casts && kMoving.count(overload.functional) != 0) return false;
  for (const at::Tensor* t : call.tensors)
    if (t->scalar_type() == at::kLong) return true;
  const std::string base = overload.functional.substr(0, overload.functional.find('.'));
  if (kNumbering.count(base) != 0) return false;
  for (size_t r = 0; r < plan.results.size(); ++r)
    if (plan.result_wanted[r] && plan.results[r].dtype == at::kLong) return true;
  return false;
}

uint64_t words_of(const Overload& overload, const Call& call, const Plan& plan) {
  if (!overload.random) return 0;
  if (overload.functional == "aten::multinomial") return static_cast<uint64_t>(call.tensors[0]->numel());
  uint64_t words = 0;
  for (const TensorMeta& meta : plan.results) {
    uint64_t numel = 1;
    for (int64_t s : meta.sizes) numel *= static_cast<uint64_t>(s);
    words += (numel + 3) / 4 * 4;
  }
  return words;
}

// Operators with a flag `training` leave their hidden arguments alone when it is off.
bool changes_statistics(const Overload& overload, const c10::Stack& stack, size_t begin) {
  for (size_t i = 0; i < overload.arg_names.size(); ++i)
    if (overload.arg_names[i] == "training") return stack[begin + i].toBool();
  return true;
}

// What is filled with 1 + 0j may be real. Equality looks at imaginary parts.
bool is_real_beside_complex_numbers(const c10::OperatorHandle& op, const Overload& overload, const Call& call,
                                    const c10::Stack& stack, size_t begin) {
  if (overload.functional == "aten::eq.Scalar" || overload.functional == "aten::ne.Scalar") return false;
  const auto is_real = [](const at::Tensor& t) { return !t.defined() || (!t.is_complex() && !t.is_neg()); };
  if (std::none_of(stack.begin() + static_cast<ptrdiff_t>(begin), stack.end(),
                   [](const c10::IValue& v) { return v.isComplexDouble(); }) ||
      !std::all_of(call.tensors.begin(), call.tensors.end(),
                   [&](const at::Tensor* t) { return is_real(*t); }))
    return false;
  // The result has the type of what is filled; PyTorch's shape function refuses the number.
  if (op.schema().name() == "aten::masked_fill") return true;
  try {
    const std::vector<at::Tensor> results = meta_results(op, call, stack, begin);
    return std::all_of(results.begin(), results.end(), is_real);
  } catch (const std::exception&) {  // no shape function
    return false;
  }
}

// Fills the plan but for its program, which is that of `graph`. False: it has none, plan.kind says why.
bool describe(const c10::OperatorHandle& op, const Overload& overload, const Call& call,
              const c10::Stack& stack, size_t begin, bool on_trial, Plan& plan, compiler::Graph& graph) {
  plan.device = call.device;
  plan.name = overload.functional;
  plan.warns_of_new_sizes = !overload.random;
  const auto ask_cpu = [&] {
    std::vector<c10::Warning> warnings;
    if (!on_trial || !check_as_cpu(op, overload, call, stack, begin, /*suspected=*/false, &warnings)) return;
    plan.warnings = std::move(warnings);
    plan.warns_of_new_sizes = false;
  };
  if (call.unsupported != nullptr) {
    ask_cpu();  // a composition of real operators may accept what PyTorch refuses
    plan.reason = call.unsupported;
    plan.real_beside_complex_numbers = is_real_beside_complex_numbers(op, overload, call, stack, begin);
    return false;
  }
  std::vector<at::Tensor> results;
  try {
    results = meta_results(op, call, stack, begin,
                           overload.is_out ? c10::ArrayRef(overload.written) : c10::ArrayRef<int16_t>());
  } catch (const c10::NotImplementedError&) {
    plan.reason = "no shape function for these arguments";
    return false;
  } catch (const std::exception&) {
    // Shape functions word some errors in their own way; the CPU kernel says it in the words users know.
    if (!check_as_cpu(op, overload, call, stack, begin, /*suspected=*/true)) throw;
    plan.reason = "no shape function for these arguments";  // it stumbles over what the CPU computes
    return false;
  }
  ask_cpu();
  const auto changes_size = [&](size_t r) {
    const at::Tensor& out = stack[begin + overload.written[r]].toTensor();
    return out.sizes() != results[r].sizes() && !keeps_shape_of_out(overload, out, results[r].numel());
  };
  if (overload.is_out)
    for (size_t r = 0; r < results.size(); ++r)
      if (results[r].dim() > 1 && changes_size(r)) {
        lay_out_as_fresh(results, overload, call, stack, begin);
        break;
      }
  for (size_t r = 0; r < results.size(); ++r) {
    plan.result_wanted.push_back(results[r].defined());
    plan.results.push_back(results[r].defined() ? meta_of(results[r]) : TensorMeta{});
    bool resized = false;
    if (overload.is_out) {
      resized = changes_size(r);
      // Shape functions may give an out= tensor new strides even when its sizes fit; its own layout stands.
      if (!resized) plan.results.back() = meta_of(stack[begin + overload.written[r]].toTensor());
    }
    plan.result_resized.push_back(resized);
  }
  for (int16_t argument : overload.hidden) {
    const TensorRef& ref = call.refs[argument];
    const bool wanted = ref.kind == TensorRef::Kind::kDevice && changes_statistics(overload, stack, begin);
    plan.result_wanted.push_back(wanted);
    plan.results.push_back(wanted ? meta_of(*call.tensors[ref.index]) : TensorMeta{});
    plan.result_resized.push_back(false);
  }
  plan.random_words = words_of(overload, call, plan);
  for (size_t r = 0; r < plan.results.size(); ++r)
    if (plan.result_wanted[r])
      plan.fresh_outputs.push_back(overload.written.empty() && r < overload.num_results &&
                                   plan.results[r].extent_bytes > 0);

  bool any_elements = false;
  for (size_t r = 0; r < plan.results.size(); ++r)
    any_elements |= plan.result_wanted[r] && plan.results[r].extent_bytes > 0;
  if (!any_elements) {
    plan.kind = Plan::Kind::kNothing;
    return false;
  }
  warn_about_64_bits(call);
  if (int64_exact() && needs_64_bit_integers(overload, call, plan)) {
    plan.reason = "TRNSIM_INT64=exact";
    return false;
  }
  return GraphMaker(overload, call, stack, begin, plan).make(graph);
}

std::shared_ptr<Plan> make_plan(const c10::OperatorHandle& op, const Overload& overload, const Call& call,
                                const c10::Stack& stack, size_t begin) {
  auto plan = std::make_shared<Plan>();
  compiler::Graph graph;
  if (!describe(op, overload, call, stack, begin, /*on_trial=*/true, *plan, graph)) return plan;
  try {
    load_program(*plan, std::move(graph));
  } catch (const c10::Error&) {
    check_as_cpu(op, overload, call, stack, begin, /*suspected=*/true);
    throw;
  }
  return plan;
}

// ---- the hit path
// ------------------------------------------------------------------------------------------------
// Inputs that share memory with a written tensor without being the same view are copied aside first: a program may
// write its result before it has read all of its operands.
void copy_overlapping_aside(Call& call, std::vector<at::Tensor>& aside) {
  aside.reserve(call.overlapping.size());
  for (int32_t i : call.overlapping) {
    const at::Tensor& t = *call.tensors[i];
    at::Tensor copy = empty_on(call.device, t.sizes(), t.strides(), t.scalar_type());
    device_copy(copy, t);
    aside.push_back(std::move(copy));
    call.tensors[i] = &aside.back();
  }
}

void warn_as_cpu(const Plan& plan) {
  for (const c10::Warning& warning : plan.warnings) c10::warn(warning);
}

c10::SmallVector<at::Tensor, 4> make_results(const Plan& plan, const Overload& overload,
                                             const c10::Stack& stack, size_t begin) {
  const size_t fixed = overload.written.size();
  warn_as_cpu(plan);
  c10::SmallVector<at::Tensor, 4> results;
  results.reserve(plan.results.size());
  for (size_t r = 0; r < plan.results.size(); ++r) {
    const TensorMeta& meta = plan.results[r];
    if (r < fixed) {
      const at::Tensor& out = stack[begin + overload.written[r]].toTensor();
      if (plan.result_resized[r]) {
        if (plan.warns_of_new_sizes) at::native::resize_output_check(out, meta.sizes);
        out.resize_(meta.sizes);
        out.unsafeGetTensorImpl()->set_sizes_and_strides(meta.sizes, meta.strides);
      }
      results.push_back(out);
    } else if (!plan.result_wanted[r]) {
      results.emplace_back();
    } else if (fixed > 0 || r >= overload.num_results) {
      results.push_back(
          stack[begin + overload.hidden[r - (fixed > 0 ? fixed : overload.num_results)]].toTensor());
    } else {
      results.push_back(empty_on(plan.device, meta.sizes, meta.strides, meta.dtype));
    }
  }
  return results;
}

void return_results(const Overload& overload, c10::SmallVector<at::Tensor, 4> results, c10::Stack& stack,
                    size_t begin) {
  stack.resize(begin);
  for (size_t r = 0; r < overload.num_results; ++r) stack.emplace_back(std::move(results[r]));
}

void run_plan(const std::shared_ptr<Plan>& shared_plan, const Overload& overload, Call& call,
              c10::Stack& stack, size_t begin) {
  const Plan& plan = *shared_plan;
  c10::SmallVector<at::Tensor, 4> results = make_results(plan, overload, stack, begin);
  if (plan.kind == Plan::Kind::kProgram) {
    std::vector<at::Tensor> aside;
    if (!call.overlapping.empty()) copy_overlapping_aside(call, aside);
    for (const Plan::ParamConversion& c : plan.param_conversions)
      call.params[c.slot] = converted_param(call.params[c.slot], c.from, c.to);
    for (const Plan::ParamInverse& i : plan.param_inverses) {
      const auto words = inverse_words(call.params[i.slot], i.type);
      call.params.append(words.begin(), words.end());
    }
    std::array<uint32_t, 4> philox{};
    if (overload.random) {
      std::optional<at::Generator> given;
      if (overload.generator >= 0 && !stack[begin + overload.generator].isNone())
        given = stack[begin + overload.generator].toGenerator();
      philox = generator_or_default(given, plan.device).reserve(plan.random_words);
    }
    queue(plan.device).submit([&](Command& command) {
      command.plan = shared_plan;
      for (size_t i = 0; i < plan.inputs.size(); ++i)
        command.slices.push_back(plan.input_bytes[i] == 0
                                     ? placeholder_slice(plan.device)
                                     : slice_of(call.tensors[plan.inputs[i]]->storage().data_ptr(),
                                                call.tensors[plan.inputs[i]]->const_data_ptr(),
                                                plan.input_bytes[i]));
      for (size_t r = 0; r < results.size(); ++r) {
        if (!plan.result_wanted[r]) continue;
        const size_t bytes = plan.results[r].extent_bytes;
        command.slices.push_back(
            bytes == 0 ? placeholder_slice(plan.device)
                       : slice_of(results[r].storage().data_ptr(), results[r].const_data_ptr(), bytes));
      }
      command.params.append(call.params.begin(), call.params.end());
      if (overload.random) command.params.append(philox.begin(), philox.end());
    });
  }
  note_executed(overload.functional);
  return_results(overload, std::move(results), stack, begin);
}

// The same for a graph in the making: its nodes are appended, and the results have no memory yet.
void record(Recorder& recorder, const c10::OperatorHandle& op, const Overload& overload, Call& call,
            c10::Stack& stack, size_t begin, bool on_trial,
            c10::ArrayRef<std::pair<size_t, int32_t>> numbers) {
  Plan plan;
  RecordedCall recorded;
  const bool has_program = describe(op, overload, call, stack, begin, on_trial, plan, recorded.graph);
  if (!has_program && plan.kind == Plan::Kind::kFallback) recorder.refuse(overload.name, plan.reason);
  if (overload.generator >= 0 && !stack[begin + overload.generator].isNone())
    recorder.refuse(overload.name, "a generator of its own");
  c10::SmallVector<at::Tensor, 4> results = make_results(plan, overload, stack, begin);
  if (has_program) {
    std::vector<at::Tensor> aside;
    copy_overlapping_aside(call, aside);
    for (int32_t i : plan.inputs) recorded.inputs.push_back(call.tensors[i]);
    for (size_t r = 0; r < results.size(); ++r)
      if (plan.result_wanted[r]) recorded.results.push_back(results[r]);
    recorded.params = call.params;
    for (const auto& [slot, tensor] : call.host_scalars)
      if (const auto number = recorder.number_of(*tensor)) recorded.numbers.emplace_back(slot, *number);
    for (const auto& [argument, number] : numbers)
      if (call.scalar_slots[argument] >= 0)
        recorded.numbers.emplace_back(call.scalar_slots[argument], number);
    recorded.conversions = plan.param_conversions;
    recorded.inverses = plan.param_inverses;
    recorded.random_words = plan.random_words;
    recorder.append(std::move(recorded));
  }
  return_results(overload, std::move(results), stack, begin);
}

// Complex numbers take part, or a negation that arose from them.
bool is_complex(const Call& call, const Plan& plan) {
  return call.unsupported != nullptr ||
         std::any_of(call.tensors.begin(), call.tensors.end(),
                     [](const at::Tensor* t) { return t->is_complex(); }) ||
         std::any_of(plan.results.begin(), plan.results.end(),
                     [](const TensorMeta& r) { return c10::isComplexType(r.dtype); });
}

// The type of a pointwise operator on narrow operands: the CPU computes in it whatever the type of out= is, so that what
// overflows there does so here. Nothing where it makes no difference.
std::optional<c10::ScalarType> narrower_than_out(const Overload& overload, const Call& call,
                                                 const c10::Stack& stack, size_t begin) {
  if (!overload.is_out || !overload.pointwise || overload.written.size() != 1) return std::nullopt;
  const at::Tensor& out = stack[begin + overload.written[0]].toTensor();
  if (std::all_of(call.tensors.begin(), call.tensors.end(),
                  [&](const at::Tensor* t) { return t->scalar_type() == out.scalar_type(); }))
    return std::nullopt;
  at::native::ResultTypeState state = {};
  for (size_t i = 0; i < overload.kinds.size(); ++i) {
    if (static_cast<int16_t>(i) == overload.written[0]) continue;
    const c10::IValue& v = stack[begin + i];
    if (v.isTensor() && v.toTensor().defined())
      state = at::native::update_result_type_state(v.toTensor(), state);
    else if (v.isScalar() && overload.arg_names[i] != "alpha")
      state = at::native::update_result_type_state(at::native::wrapped_scalar_tensor(v.toScalar()), state);
  }
  const c10::ScalarType type = at::native::result_type(state);
  const bool floating = c10::isReducedFloatingType(type) && c10::isFloatingType(out.scalar_type());
  const bool integral = c10::isIntegralType(type, false) && c10::isIntegralType(out.scalar_type(), false) &&
                        c10::elementSize(type) < c10::elementSize(out.scalar_type());
  if ((floating || integral) && type != out.scalar_type()) return type;
  if (!c10::isIntegralType(type, true) || type == out.scalar_type()) return std::nullopt;
  const bool wraps =
      c10::elementSize(type) < 8 && (type == at::kBool || c10::isFloatingType(out.scalar_type()));
  if (!wraps && !out.is_complex()) return std::nullopt;
  // Integers that stay such wrap in their own type, and truth values stay such; a quotient does neither.
  const std::vector<at::Tensor> fresh = fresh_results(overload, call, stack, begin);
  if (fresh.empty() || fresh[0].scalar_type() != type) return std::nullopt;
  return c10::elementSize(type) < 8 ? type : at::kFloat;  // 64 bits would be narrowed to 32
}

// Complex numbers as real ones. Those that have an imaginary part are refused, in the words of the CPU where it is asked.
void take_real_numbers(const c10::OperatorHandle& op, const Overload& overload, const Call& call,
                       c10::Stack& stack, size_t begin) {
  for (size_t i = begin; i < stack.size(); ++i) {
    if (!stack[i].isComplexDouble()) continue;
    const c10::Scalar number = stack[i].toScalar();
    if (number.toComplexDouble().imag() != 0)
      check_as_cpu(op, overload, call, stack, begin, /*suspected=*/true);
    stack[i] = number.to<double>();
  }
}

// The out= form, with a tensor of another type in place of its own.
void write_through(c10::ScalarType type, const Overload& overload, const c10::OperatorHandle& op,
                   c10::Stack* stack, size_t begin) {
  c10::IValue& place = (*stack)[begin + overload.written[0]];
  const at::Tensor out = place.toTensor();
  place = empty_contiguous_on(out.device().index(), {0}, type);
  op.callBoxed(stack);
  const at::Tensor result = stack->back().toTensor();
  at::native::resize_output(out, result.sizes());
  out.copy_(result);
  stack->back() = out;
}

std::unordered_map<std::string, const Overload*>& overloads() {
  static auto* by_name = new std::unordered_map<std::string, const Overload*>;
  return *by_name;
}

}  // namespace

bool keeps_shape_of_out(const Overload& overload, const at::Tensor& out, int64_t elements) {
  const std::string& name = overload.functional;
  return overload.is_out && out.numel() == elements &&
         (name.starts_with("aten::arange") || name.starts_with("aten::range") || name == "aten::linspace" ||
          name == "aten::logspace");
}

LoweredKernel::LoweredKernel(Overload overload)
    : overload_(std::make_unique<Overload>(std::move(overload))), plans_(std::make_unique<PlanCache>()) {
  overloads()[overload_->name] = overload_.get();
}

const Overload* lowered_overload(const std::string& name) {
  const auto it = overloads().find(name);
  return it == overloads().end() ? nullptr : it->second;
}

void record_element(Recorder& recorder, const c10::OperatorHandle& op, const Overload& overload,
                    c10::Stack& stack, c10::ArrayRef<std::pair<size_t, int32_t>> numbers,
                    std::unordered_set<uint64_t>& accepted) {
  const size_t begin = stack.size() - overload.kinds.size();
  if (overload.prepare != nullptr) overload.prepare(stack, begin);
  Call call(overload, stack, begin);
  call.read();
  const bool is_new = accepted.insert(hash_of(call.key)).second;
  record(recorder, op, overload, call, stack, begin, is_new, numbers);
}

void LoweredKernel::operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack) {
  const DeviceUse use;
  const Overload& overload = *overload_;
  const size_t begin = stack->size() - overload.kinds.size();
  if (overload.prepare != nullptr) overload.prepare(*stack, begin);
  Call call(overload, *stack, begin);
  call.read();
  if (const auto type = narrower_than_out(overload, call, *stack, begin)) {
    write_through(*type, overload, op, stack, begin);
    return;
  }
  if (Recorder* recorder = Recorder::active()) {
    // PyTorch has looked at the call when it traced the graph.
    record(*recorder, op, overload, call, *stack, begin, /*on_trial=*/false, {});
    return;
  }
  if (overload.matrix_product) call.key.push_back(rounds_factors() ? 1 : 0);
  const uint64_t hash = hash_of(call.key);
  std::shared_ptr<Plan> plan = plans_->find(call.key, hash);
  if (plan == nullptr) plan = plans_->insert(call.key, hash, make_plan(op, overload, call, *stack, begin));
  if (plan->kind == Plan::Kind::kFallback) {
    if (plan->real_beside_complex_numbers) {
      take_real_numbers(op, overload, call, *stack, begin);
      op.callBoxed(stack);
      return;
    }
    if (is_complex(call, *plan)) {
      if (const c10::KernelFunction* form = complex_form(overload.functional)) {
        warn_as_cpu(*plan);
        run_composite(*form, overload, op, keys, stack, begin, plan->warns_of_new_sizes);
        return;
      }
    }
    run_on_host(op, stack, plan->reason, FallbackKind::kUnsupported);
    return;
  }
  run_plan(plan, overload, call, *stack, begin);
}

}  // namespace trnsim::aten
