// Products of matrices as kernels; shared by the matrix operators and by the resampling ones.
#pragma once

#include "device_plugin/compiler/lower.h"

namespace trnsim::compiler {

// out[b.., m, n] = alpha * sum_k a[b.., m, k] * b[b.., k, n] + beta * addend. Batch axes of a and b are
// expanded views. `addend` with buffer < 0: none; it is broadcast to `out`. Integer operands go through an
// exact map.
void emit_dot(LowerContext& c, const View& a, const View& b, const View& out, const View& addend = {},
              double alpha = 1, double beta = 1);

// A dense constant operand of FP32 numbers.
View constant_matrix(LowerContext& c, const std::vector<float>& values, const std::vector<int64_t>& sizes);

// out = x with axis `axis` contracted with `matrix` [out size, in size]: resampling along one axis.
void emit_resample(LowerContext& c, const View& x, const View& out, int axis,
                   const std::vector<float>& matrix);

}  // namespace trnsim::compiler
