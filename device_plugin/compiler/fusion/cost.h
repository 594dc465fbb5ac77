// What a map costs, as far as the fusion passes have to know: whether a fused kernel is faster than its parts.
#pragma once

#include "device_plugin/compiler/fusion/map_form.h"

namespace trnsim::compiler::fusion {

// Latency of the loads before and the stores behind the computation of a kernel.
constexpr double kKernelLatencyNs = 2000;

// The larger of transfer and computation, with what any kernel costs once. Transfers: bytes of every operand, times the
// passes over the row when it does not fit SBUF, more where runs in memory are short. Computation: operators per element.
double map_time_ns(const MapForm& form);

// Operators that are computed for every element, by weight (an addition is 1, an exponential too, a division more).
double element_operators(const MapForm& form);

// SBUF bytes per partition and element of a tile at the fullest point.
int64_t tile_bytes_per_element(const MapForm& form);

// False when tiles would become too small, or the program too long.
bool within_limits(const MapForm& form);

}  // namespace trnsim::compiler::fusion
