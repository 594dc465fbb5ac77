// The oracle of the kernel kinds: runs a kernel list on host memory, element by element, with no idea of
// tiles. Tests compare lowerings with PyTorch through it, and compiled programs with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device_plugin/compiler/kernels.h"

namespace trnsim::compiler::reference {

// `memory[i]` is element 0 of buffer i (inputs, outputs and scratch alike; an output that aliases an input
// has the same pointer). `params`: the 4-byte parameter slots. Throws std::runtime_error on an index out of
// range.
void run(const KernelList& list, const std::vector<std::byte*>& memory, const std::vector<uint32_t>& params);

// Allocates scratch and constants itself; inputs and outputs by position.
void run(const KernelList& list, const std::vector<std::byte*>& inputs,
         const std::vector<std::byte*>& outputs, const std::vector<uint32_t>& params);

}  // namespace trnsim::compiler::reference
