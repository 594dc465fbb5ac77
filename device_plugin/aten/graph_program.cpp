#include "device_plugin/aten/graph_program.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <bit>

#include "device_plugin/aten/call.h"
#include "device_plugin/aten/fallback.h"
#include "device_plugin/aten/generator.h"
#include "device_plugin/aten/promotion.h"
#include "device_plugin/aten/queue.h"
#include "device_plugin/aten/tensors.h"

namespace trnsim::aten {
namespace {

uint32_t param_bits(const CallNumber& number, isa::Dtype dtype, const std::string& program) {
  if (dtype == isa::Dtype::kF32)
    return std::bit_cast<uint32_t>(
        narrowed_to_float(number.is_integer ? static_cast<double>(number.integer) : number.real));
  const int64_t value = number.is_integer ? number.integer : static_cast<int64_t>(number.real);
  TORCH_CHECK(
      value == static_cast<int32_t>(value), "not simulated: the number ", value, " given to ", program,
      " needs more than 32 bits, and numbers of compiled graphs are 32-bit integers. Make it a tensor, or a "
      "constant of the graph.");
  return static_cast<uint32_t>(static_cast<int32_t>(value));
}

at::Tensor window_on(const at::Tensor& base, const GraphProgram::Result& result) {
  at::Tensor view =
      at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(base.storage()),
                                               base.key_set(), c10::scalarTypeToTypeMeta(result.meta.dtype));
  c10::TensorImpl* impl = view.unsafeGetTensorImpl();
  impl->set_storage_offset(base.storage_offset() + result.offset);
  impl->set_sizes_and_strides(result.meta.sizes, result.meta.strides);
  return view;
}

}  // namespace

// The tensor in the form the program was made for.
at::Tensor GraphProgram::checked(const Input& input, const at::Tensor& t, size_t position) const {
  TORCH_CHECK(
      t.defined() && t.device().type() == c10::DeviceType::PrivateUse1 && t.device().index() == device,
      "user error: argument ", position, " of the compiled graph ", name,
      " has to be on neuron:", static_cast<int>(device), ", but is ",
      t.defined() ? t.device().str() : "missing");
  TORCH_CHECK(t.scalar_type() == input.meta.dtype && t.sizes() == c10::IntArrayRef(input.meta.sizes),
              "user error: argument ", position, " of the compiled graph ", name, " is ", t.scalar_type(),
              " ", t.sizes(), "; the graph was compiled for ", input.meta.dtype, " ",
              c10::IntArrayRef(input.meta.sizes));
  if (t.strides() == c10::IntArrayRef(input.meta.strides) || input.meta.extent_bytes == 0) return t;
  bool same = true;  // the stride of a dimension of size 1 says nothing
  for (size_t d = 0; d < input.meta.sizes.size(); ++d)
    same &= input.meta.sizes[d] == 1 || t.strides()[d] == input.meta.strides[d];
  if (same) return t;
  TORCH_CHECK(!input.written, "user error: argument ", position, " of the compiled graph ", name,
              " is changed in place and has strides ", t.strides(), "; the graph was compiled for ",
              c10::IntArrayRef(input.meta.strides));
  at::Tensor copy = empty_on(device, input.meta.sizes, input.meta.strides, input.meta.dtype);
  device_copy(copy, t);
  return copy;
}

std::vector<at::Tensor> GraphProgram::operator()(const std::vector<at::Tensor>& tensors,
                                                 const std::vector<CallNumber>& numbers) {
  const DeviceUse use;
  TORCH_CHECK(tensors.size() == num_tensors_ && numbers.size() == num_numbers_,
              "user error: the compiled graph ", name, " takes ", num_tensors_, " tensors and ", num_numbers_,
              " numbers, not ", tensors.size(), " and ", numbers.size());
  for (int32_t d : divisors_) {
    const CallNumber& divisor = numbers[static_cast<size_t>(d)];
    TORCH_CHECK(!divisor.is_integer || divisor.integer != 0, "ZeroDivisionError");
  }
  c10::SmallVector<at::Tensor, 32> inputs, outputs;
  inputs.reserve(inputs_.size());
  for (const Input& input : inputs_)
    inputs.push_back(input.argument < 0 ? input.captured
                                        : checked(input, tensors[static_cast<size_t>(input.argument)],
                                                  static_cast<size_t>(input.argument)));
  outputs.reserve(outputs_.size());
  for (size_t o = 0; o < outputs_.size(); ++o)
    outputs.push_back(output_of_input_[o] >= 0
                          ? inputs[static_cast<size_t>(output_of_input_[o])]
                          : empty_on(device, outputs_[o].sizes, outputs_[o].strides, outputs_[o].dtype));
  if (kind == Kind::kProgram) {
    c10::SmallVector<uint32_t, 16> params(params_.begin(), params_.end());
    for (const NumberUse& number : number_uses_) {
      uint32_t bits = param_bits(numbers[static_cast<size_t>(number.number)], number.dtype, name);
      if (number.converts) bits = converted_param(bits, number.dtype, number.to);
      const auto slot = static_cast<size_t>(number.slot);
      if (number.inverse)
        std::ranges::copy(inverse_words(bits, number.dtype), params.begin() + slot);
      else
        params[slot] = bits;
    }
    for (const RandomUse& random : random_uses_) {
      const auto state = generator_or_default(std::nullopt, device).reserve(random.words);
      for (size_t i = 0; i < state.size(); ++i) params[static_cast<size_t>(random.slot) + i] = state[i];
    }
    const std::shared_ptr<Plan> self = shared_from_this();
    queue(device).submit([&](Command& command) {
      command.plan = self;
      auto bind = [&](const at::Tensor& t, size_t bytes) {
        command.slices.push_back(bytes == 0 ? placeholder_slice(device)
                                            : slice_of(t.storage().data_ptr(), t.const_data_ptr(), bytes));
      };
      for (size_t i = 0; i < inputs.size(); ++i) bind(inputs[i], inputs_[i].meta.extent_bytes);
      for (size_t o = 0; o < outputs.size(); ++o) bind(outputs[o], outputs_[o].extent_bytes);
      command.params.append(params.begin(), params.end());
    });
    note_executed(name);
  }
  std::vector<at::Tensor> results;
  results.reserve(results_.size());
  for (const Result& r : results_) {
    switch (r.kind) {
      case Result::Kind::kNone:
        results.emplace_back();
        break;
      case Result::Kind::kNoValues:
        results.push_back(empty_on(device, r.meta.sizes, r.meta.strides, r.meta.dtype));
        break;
      case Result::Kind::kOutput:
      case Result::Kind::kInput: {
        const bool is_output = r.kind == Result::Kind::kOutput;
        const at::Tensor& base = (is_output ? outputs : inputs)[static_cast<size_t>(r.index)];
        results.push_back(r.whole ? base : window_on(base, r));
      }
    }
  }
  return results;
}

}  // namespace trnsim::aten
