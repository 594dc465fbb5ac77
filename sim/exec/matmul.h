// The systolic array: the stationary matrices of its tiles and products with them.
#pragma once

#include "sim/exec/block.h"

namespace trnsim::exec {

struct StationaryMatrix {
  const float* data;
  int k, m;
};

// Makes room for the [k, m] matrix of the instruction's tile, held by `partitions` partitions; matrices of
// tiles that overlap are gone.
float* set_stationary(Context& c, const Prepared& p, int partitions, int k, int m);
// The matrix of the instruction's tile. Throws when there is none or when it does not fit the operands.
StationaryMatrix find_stationary(Context& c, const Prepared& p, int partitions, int k);
// Columns [first, first + n) of dst (+)= a^T . b.
void multiply_into(Context& c, const Prepared& p, const StationaryMatrix& a, const float* b, int64_t ldb,
                   int64_t first, int n);

}  // namespace trnsim::exec
