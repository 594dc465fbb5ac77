// Runs a graph two ways: through the oracle of the kernel kinds, and compiled, on the functional executor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "device_plugin/compiler/compiler.h"

namespace trnsim::compiler {

// kFused: the oracle on the kernels that the passes of compiler/fusion leave.
enum class RunMode : int { kReference = 0, kCompiled = 1, kFused = 2, kTwoCores = 3 };

// Inputs and outputs by position: element 0 of each tensor. A compile failure comes back as its status.
CompileResult run_graph(const Graph& graph, RunMode mode, const std::vector<std::byte*>& inputs,
                        const std::vector<std::byte*>& outputs, const std::vector<uint32_t>& params);

}  // namespace trnsim::compiler
