// Accuracy of the transcendental functions over the whole range of FP32.
#include <cmath>
#include <cstring>
#include <limits>

#include "isa/names.h"
#include "sim/exec/exec.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/exec/oracle.h"

using namespace trnsim;
using isa::ActFunc;

namespace {

constexpr int kPartitions = 128, kColumns = 4096, kCount = kPartitions * kColumns;

struct Sweep {
  exec::Core core{exec::CoreSizes{4 * kColumns, 2048}};
  isa::Program program;

  std::vector<float> run(ActFunc f, const std::vector<float>& x) {
    for (int p = 0; p < kPartitions; ++p) std::memcpy(core.sbuf(p, 0), x.data() + p * kColumns, 4 * kColumns);
    isa::Instruction in;
    in.opcode = isa::Opcode::kActivation;
    in.engine = isa::Engine::kScalar;
    in.func = f;
    in.dst.space = isa::Space::kSbuf;
    in.dst.num_partitions = kPartitions;
    in.dst.num_dims = 1;
    in.dst.step[0] = 1;
    in.dst.size[0] = kColumns;
    in.src0 = in.dst;
    const exec::Status s = core.execute(program, in, {});
    REQUIRE(s.ok());
    std::vector<float> y(x.size());
    for (int p = 0; p < kPartitions; ++p) std::memcpy(y.data() + p * kColumns, core.sbuf(p, 0), 4 * kColumns);
    return y;
  }
};

int64_t ordinal(float v) {
  int32_t b;
  std::memcpy(&b, &v, 4);
  return b < 0 ? int64_t{INT32_MIN} - b : b;
}

// Every exponent and both signs: an odd multiplier walks the bit patterns.
std::vector<float> all_patterns() {
  std::vector<float> x(kCount);
  for (int i = 0; i < kCount; ++i) {
    const uint32_t bits = static_cast<uint32_t>(i) * 8191u + static_cast<uint32_t>(i % 17);
    std::memcpy(&x[static_cast<size_t>(i)], &bits, 4);
  }
  const float inf = std::numeric_limits<float>::infinity();
  const float special[] = {0.0f,
                           -0.0f,
                           inf,
                           -inf,
                           std::numeric_limits<float>::quiet_NaN(),
                           1.0f,
                           -1.0f,
                           1e-45f,
                           -1e-45f,
                           std::numeric_limits<float>::max(),
                           std::numeric_limits<float>::lowest()};
  std::copy(std::begin(special), std::end(special), x.begin());
  return x;
}

std::vector<float> interval(double low, double high) {
  std::vector<float> x(kCount);
  for (int i = 0; i < kCount; ++i)
    x[static_cast<size_t>(i)] = static_cast<float>(low + (high - low) * i / (kCount - 1));
  return x;
}

void compare(ActFunc f, const std::vector<float>& x, const std::vector<float>& y, int64_t ulps) {
  int64_t worst = 0;
  size_t at = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const float want = static_cast<float>(trnsim::test::oracle_activation(f, x[i]));
    if (std::isnan(want) || std::isnan(y[i])) {
      if (std::isnan(want) != std::isnan(y[i])) {
        INFO(isa::name(f) << "(" << x[i] << ") is " << y[i] << ", should be " << want);
        FAIL();
      }
      continue;
    }
    // A derivative that crosses zero loses digits there: its terms are good to 1e-11.
    if (std::fabs(static_cast<double>(y[i]) - want) < 1e-11) continue;
    const int64_t d = std::llabs(ordinal(y[i]) - ordinal(want));
    if (d > worst) {
      worst = d;
      at = i;
    }
  }
  INFO(isa::name(f) << "(" << x[at] << ") is " << y[at] << ", " << worst << " ulps off");
  CHECK(worst <= ulps);
}

}  // namespace

TEST_CASE("activation functions are within one ulp of the library in double precision") {
  Sweep sweep;
  const std::vector<float> all = all_patterns(), near = interval(-12, 12), unit = interval(-1.5, 1.5);
  for (int i = 0; i < static_cast<int>(ActFunc::kCount); ++i) {
    const auto f = static_cast<ActFunc>(i);
    for (const auto* x : {&all, &near, &unit}) compare(f, *x, sweep.run(f, *x), 1);
  }
}
