// One element of the expression DAG, evaluated in host arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device_plugin/compiler/kernels.h"

namespace trnsim::compiler::reference {

// A value of a computing type: kF32 in `f`, the others in `i` (kU32 by its bits, kBool 0 or 1).
struct Cell {
  Dtype dtype = Dtype::kF32;
  float f = 0;
  int32_t i = 0;
  static Cell real(float v) { return {Dtype::kF32, v, 0}; }
  static Cell integer(int32_t v) { return {Dtype::kI32, 0, v}; }
  static Cell boolean(bool v) { return {Dtype::kBool, 0, v}; }
};

Cell load_cell(Dtype storage, const std::byte* p);  // int64 narrows, float64 rounds
void store_cell(Dtype storage, std::byte* p, const Cell& c);
Cell convert(const Cell& c, Dtype storage);  // PyTorch's .to(): truncates, wraps, != 0
Cell evaluate(const Expr& e, const Cell& a, const Cell& b, const Cell& c,
              const std::vector<uint32_t>& params);
Cell reduce_cells(const Expr& e, const std::vector<Cell>& values);

}  // namespace trnsim::compiler::reference
