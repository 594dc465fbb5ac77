// Graphs on random inputs, and the comparison of what comes out.
#pragma once

#include <cstddef>
#include <vector>

#include "tests/cpp/compiler/harness.h"

namespace trnsim::compiler {

using Memory = std::vector<std::vector<std::byte>>;

// Small random numbers; integers in 0..3, so that they are legal indices everywhere below.
Memory random_inputs(const Graph& g);
// The outputs. Parameters are 0.25, 0.5, ..
Memory run(const Graph& g, RunMode mode, Memory inputs);
// Floats agree to `tolerance` (relative above 1), everything else exactly.
void check_same(const TensorType& t, const std::vector<std::byte>& a, const std::vector<std::byte>& b,
                float tolerance = 2e-5f);

}  // namespace trnsim::compiler
