// Operands of the array as sums of 16-bit parts.
#pragma once

#include <optional>

#include "tools/fidelity/kernels/kernel.h"

namespace trnsim::fidelity {

// One tile, or its 16-bit high and low parts.
struct Operand {
  Tile high;
  std::optional<Tile> low;
};

// Splits fp32 tiles, step by step as the formula reads and all on Vector: high = cast(x), then back to fp32,
// low = cast(x - high). That it is Vector and four steps is seen where the weights are split again for every row tile
// (K2-109, all products): 2.2 us per 128x512 tile.
class Splitter {
 public:
  Splitter(Kernel* k, int64_t elements) : k_(k), rest_(k->sbuf(2, elements)) {}
  void operator()(const Tile& src, const Operand& dst) {
    k_->copy(isa::Engine::kVector, dst.high, src);
    if (!dst.low) return;
    const Tile rest = rest_.next().columns(0, src.n());
    k_->copy(isa::Engine::kVector, rest, dst.high);
    k_->tensor_tensor(rest, src, rest, isa::Engine::kVector, isa::AluOp::kSubtract);
    k_->copy(isa::Engine::kVector, *dst.low, rest);
  }

 private:
  Kernel* k_;
  Ring rest_;
};

}  // namespace trnsim::fidelity
