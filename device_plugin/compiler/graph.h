// Level 1: Graph IR. One node per ATen operator, shapes and dtypes fixed. Free of PyTorch types.
// Has an exact text form (graph_text.h).
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "isa/dtype.h"

namespace trnsim::compiler {

using isa::Dtype;
using ValueId = int32_t;
constexpr ValueId kNoValue = -1;  // an optional tensor that was not given

// A strided tensor. Strides in elements; the address of element 0 is bound at run time, so there is no storage
// offset here and one program serves every offset.
struct TensorType {
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;

  int64_t numel() const {
    int64_t n = 1;
    for (int64_t s : sizes) n *= s;
    return n;
  }
};

// A scalar whose value arrives at run time in slot `slot` of the program's parameter tensor.
struct ParamRef {
  int32_t slot = 0;
  Dtype dtype = Dtype::kF32;  // kF32 or kI32
};
struct Optional {};  // None
struct ValueList {
  std::vector<ValueId> ids;
};
using Arg = std::variant<Optional, ValueId, ValueList, bool, int64_t, double, std::string, Dtype,
                         std::vector<int64_t>, std::vector<double>, std::vector<bool>, ParamRef,
                         std::vector<ParamRef>>;

struct Node {
  std::string op;         // "aten::add.Tensor": always the functional overload
  std::vector<Arg> args;  // in schema order, defaults filled in
  std::vector<ValueId> results;
  std::string file;  // source location of the user's call, may be empty
  int32_t line = 0;
};

// A value is memory. A view is a window on the memory of another value, with sizes and strides of its own; its dtype may
// differ from the base's in signedness or bool/uint8 only. Reading through it costs nothing, and a node that has a view
// among its results writes that part of the base: nodes run in the order of the list, and a value read later has what was
// written last. Inputs and outputs of the graph are no views.
struct Value {
  TensorType type;
  ValueId alias = kNoValue;    // an output that occupies exactly the memory of this input (in-place form)
  ValueId view_of = kNoValue;  // the base, which may be a view itself ...
  int64_t offset = 0;          // ... and where in it element 0 is, in elements
};

struct Graph {
  std::string name;
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<ValueId> inputs;   // bound to program tensors "in0", "in1", ...
  std::vector<ValueId> outputs;  // bound to program tensors "out0", "out1", ...
  int32_t num_params = 0;        // 4 bytes each in program tensor "params" (absent when 0)
};

}  // namespace trnsim::compiler
