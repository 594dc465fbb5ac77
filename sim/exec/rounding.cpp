#include "sim/exec/rounding.h"

#include <algorithm>
#include <cmath>

#include "sim/exec/state.h"

namespace trnsim::exec {

thread_local Rounding* current_rounding = nullptr;

void store_rounded(isa::Dtype d, const float* in, ptrdiff_t in_pitch, std::byte* dst, ptrdiff_t pitch,
                   ptrdiff_t step, int rows, int n) {
  const bool narrow = isa::is_float(d) && isa::dtype_bytes(d) < 4;
  if (!narrow) return row_kernels().store[static_cast<int>(d)](in, in_pitch, dst, pitch, step, rows, n);
  Rounding& r = *current_rounding;
  const float largest = isa::largest_finite(d);
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < n; ++j) {
      float v = in[i * in_pitch + j];
      if (r.stochastic) v = isa::round_stochastic(d, v, static_cast<uint32_t>(mixed(r.key, r.counter++)));
      if (r.saturate && std::fabs(v) > largest) v = std::copysign(largest, v);
      isa::store_from_f32(d, dst + i * pitch + j * step, v);
    }
  }
}

// The random words depend on the engine, on how many instructions it has executed and on the place of the value
// among those of the instruction: not on the order in which engines run.
void Context::execute_rounded(const Prepared& p) {
  const auto e = static_cast<size_t>(p.engine);
  Rounding rounding{core.numerics.stochastic_rounding, core.numerics.saturate_infinity,
                    mixed(core.numerics.rounding_seed * 8 + e, core.rounded[e]++), 0};
  struct Scope {
    explicit Scope(Rounding* r) { current_rounding = r; }
    ~Scope() { current_rounding = nullptr; }
  } scope(&rounding);
  kernel_of(p)(*this, p);
}

}  // namespace trnsim::exec
