// How the overloads of PyTorch's operators map onto the compiler's lowerings. The rows come from the compiler
// at build time (lowered_ops.inc), so that `import torch` registers kernels without opening it.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/operator_name.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trnsim::aten {

struct LoweredRow {
  const char* name;     // functional overload, "aten::add.Tensor"
  uint64_t const_args;  // arguments of type Scalar or float that must be constants
  bool random;          // takes the Philox state
};
c10::ArrayRef<LoweredRow> lowered_rows();

enum class ArgKind : uint8_t {
  kTensor,
  kTensorList,
  kScalar,       // Scalar or float: a run-time parameter
  kConstScalar,  // Scalar or float that the program depends on
  kScalarList,
  kInt,
  kBool,
  kIntList,
  kDoubleList,
  kBoolList,
  kString,
  kDtype,
  kGenerator,
  kIgnored,  // layout, device, memory format: in the key, never in the program
};

// Rewrites the arguments before the plan is looked up (index masks, host indices). Returns the number of
// arguments.
using PrepareFn = void (*)(c10::Stack& stack, size_t begin);

// "aten::add.Tensor" as name and overload.
inline c10::OperatorName operator_name(std::string_view full) {
  const auto parts = c10::OperatorNameView::parse(full);
  return {std::string(parts.name), std::string(parts.overload_name)};
}

struct Overload {
  std::string name;            // of this overload, for messages
  std::string functional;      // name of the node
  std::vector<ArgKind> kinds;  // per argument of this overload
  std::vector<std::string> arg_names;
  std::vector<int16_t> sources;  // per argument of the functional overload: index here, or -1
  std::vector<ArgKind> functional_kinds;
  std::vector<int16_t> written;  // arguments that are the results (in-place and out= forms), in result order
  std::vector<int16_t> hidden;   // arguments that change without being results
  size_t num_results = 0;        // of this overload's schema
  bool is_out = false;           // out= form: results may be resized
  bool ignores_self = false;     // the first argument is only written
  bool random = false;
  bool matrix_product = false;  // whose factors torch.set_float32_matmul_precision("medium") rounds
  bool pointwise = false;
  bool shape_from_scalars = false;  // arange and its like: scalar values are part of the key
  int generator = -1;
  PrepareFn prepare = nullptr;
};

// Registers a boxed kernel for every overload of every row, lowered (lowered_kernel.h) or made of others
// (composite_kernel.h).
void register_lowered_ops();

// And one for every foreach operator (foreach.cpp), which is a list of calls of those.
void register_foreach_ops();

}  // namespace trnsim::aten
