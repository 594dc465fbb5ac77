#include "tests/cpp/compiler/harness.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "device_plugin/compiler/error.h"
#include "device_plugin/compiler/fusion/fusion.h"
#include "device_plugin/compiler/graph_text.h"
#include "device_plugin/compiler/lower.h"
#include "isa/container.h"
#include "sim/exec/exec.h"
#include "tests/cpp/check/strict.h"
#include "tests/cpp/compiler/reference.h"

namespace trnsim::compiler {
namespace {

void run_container(const std::vector<uint8_t>& file, const std::vector<std::byte*>& inputs,
                   const std::vector<std::byte*>& outputs, const std::vector<uint32_t>& params) {
  isa::Program program;
  isa::ContainerError error;
  if (!isa::read_program({file.data(), file.size()}, program, &error)) throw_internal(error.message);
  std::vector<exec::HbmTensor> hbm;
  std::vector<std::unique_ptr<std::byte[]>> owned;
  std::vector<uint32_t> slots = params;
  for (const isa::TensorDecl& t : program.tensors) {
    std::byte* data = nullptr;
    if (t.name == "params") {
      data = reinterpret_cast<std::byte*>(slots.data());
    } else if (t.kind == isa::TensorKind::kInput) {
      data = inputs.at(std::stoul(t.name.substr(2)));
    } else if (t.kind == isa::TensorKind::kOutput) {
      data = outputs.at(std::stoul(t.name.substr(3)));
    } else {
      owned.push_back(std::make_unique<std::byte[]>(std::max<uint64_t>(t.bytes, 1)));
      data = owned.back().get();
      std::memset(data, 0xff, t.bytes);
      if (!t.constant.empty()) std::memcpy(data, t.constant.data(), t.constant.size());
    }
    hbm.push_back({data, t.bytes});
  }
  if (const std::string e = check::testing::strict_error(program, hbm); !e.empty())
    throw_internal("check: " + e);
  exec::CoreSizes sizes;
  exec::Core core(sizes), second(sizes);
  exec::Status status;
  auto prepared = exec::prepare(program, sizes, &status);
  if (!status.ok()) throw_internal("prepare: " + status.message);
  status = program.cores > 1 ? exec::run(core, second, *prepared, hbm) : exec::run(core, *prepared, hbm);
  if (!status.ok()) throw_internal("run: " + status.message);
}

}  // namespace

CompileResult run_graph(const Graph& graph, RunMode mode, const std::vector<std::byte*>& inputs,
                        const std::vector<std::byte*>& outputs, const std::vector<uint32_t>& params) {
  CompileResult result;
  try {
    if (mode == RunMode::kReference || mode == RunMode::kFused) {
      KernelList kernels = lower_graph(graph);
      if (mode == RunMode::kFused) fuse_kernels(kernels);
      reference::run(kernels, inputs, outputs, params);
    } else {
      CompileOptions options;
      options.cores = mode == RunMode::kTwoCores ? 2 : 1;
      options.always_divide = true;
      result = trnsim_compiler()->compile(graph, options);
      if (result.status == CompileResult::Status::kOk)
        run_container(result.container, inputs, outputs, params);
    }
  } catch (const CompileError& e) {
    result.status = e.kind();
    result.message = e.what();
  } catch (const std::exception& e) {
    result.status = CompileResult::Status::kInternalError;
    result.message = e.what();
  }
  return result;
}

}  // namespace trnsim::compiler

namespace {

int finish(const trnsim::compiler::CompileResult& r, int64_t* instructions, char* message,
           int message_bytes) {
  if (instructions) *instructions = r.instructions;
  std::string m = r.message.substr(0, static_cast<size_t>(std::max(message_bytes - 1, 0)));
  if (message_bytes > 0) std::memcpy(message, m.c_str(), m.size() + 1);
  return static_cast<int>(r.status);
}

}  // namespace

// For Python (ctypes): the same with the text form of a graph. Returns CompileResult::Status.
extern "C" int trnsim_harness_run(const char* graph_text, int mode, void** inputs, int num_inputs,
                                  void** outputs, int num_outputs, const uint32_t* params, int num_params,
                                  int64_t* instructions, char* message, int message_bytes) {
  using namespace trnsim::compiler;
  auto pointers = [](void** p, int n) {
    std::vector<std::byte*> v;
    for (int i = 0; i < n; ++i) v.push_back(static_cast<std::byte*>(p[i]));
    return v;
  };
  CompileResult result;
  try {
    result = run_graph(graph_from_text(graph_text), static_cast<RunMode>(mode), pointers(inputs, num_inputs),
                       pointers(outputs, num_outputs), std::vector<uint32_t>(params, params + num_params));
  } catch (const CompileError& e) {
    result.status = e.kind();
    result.message = e.what();
  }
  return finish(result, instructions, message, message_bytes);
}

// Rows of the table of lowerings, one per line: name, bits of the constant arguments, 1 when random.
extern "C" const char* trnsim_harness_ops() {
  static const std::string text = [] {
    std::string s;
    for (const auto& op : trnsim_compiler()->lowered_ops()) {
      s += op.name + " " + std::to_string(op.const_args) + " " + (op.random ? "1" : "0") + "\n";
    }
    return s;
  }();
  return text.c_str();
}
