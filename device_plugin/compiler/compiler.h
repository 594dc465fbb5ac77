// The compiler as the device plugin sees it. libtrnsim_compiler.so is opened with dlopen(RTLD_LOCAL) (it
// holds Protobuf); the one exported symbol returns this interface. No exception crosses it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "device_plugin/compiler/graph.h"

namespace trnsim::compiler {

struct CompileOptions {
  std::string target = "trn2";
  int cores = 1;               // physical cores of the logical core: 2 where a program may use both
  bool always_divide = false;  // tests: use both also where that is slower
  std::string dump_dir;        // not empty: write graph, kernels, tile program and streams as text
};

struct CompileResult {
  enum class Status : uint8_t { kOk, kUnsupported, kUserError, kInternalError } status = Status::kOk;
  std::string message;             // kUnsupported: the reason, for the fallback report
  std::vector<uint8_t> container;  // a .trnp
  int64_t instructions = 0;
};

// One row of the table of lowerings. How a node has to look is written at the top of lower.h.
struct OpInfo {
  std::string name;         // functional overload, e.g. "aten::add.Tensor"
  uint64_t const_args = 0;  // bit i: argument i, of schema type Scalar or float, must be a constant (int64_t,
                            // double or bool) and not a ParamRef, because the program depends on its value
  bool random = false;      // takes a trailing vector<ParamRef> of 4: seed lo, seed hi, offset lo, offset hi
};

class Compiler {
 public:
  virtual ~Compiler() = default;
  // All functional overloads with a lowering, sorted by name.
  virtual std::vector<OpInfo> lowered_ops() const = 0;
  virtual CompileResult compile(const Graph& graph, const CompileOptions& options) const = 0;  // thread safe
};

}  // namespace trnsim::compiler

extern "C" trnsim::compiler::Compiler* trnsim_compiler();
