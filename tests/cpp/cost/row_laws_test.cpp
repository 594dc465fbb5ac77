// The timing probe of every row: one instruction on an idle chip, at two sizes, against the law that the facts
// give for it. A row without a law here fails.
#include <map>

#include "isa/names.h"
#include "isa/table.h"
#include "isa/validator.h"
#include "sim/chip/probe_programs.h"
#include "sim/chip/simulator.h"
#include "sim/cost/cost.h"
#include "tests/cpp/catch.h"

using namespace trnsim;
using namespace trnsim::chip::probe;

namespace {

// Time of the probe with n elements: fixed + per_element * n, in ns on trn2; section of the facts beside it.
struct Law {
  Opcode opcode;
  Engine engine;
  double fixed_ns, per_element_ns;
};
constexpr Engine T = Engine::kTensor, V = Engine::kVector, S = Engine::kScalar, G = Engine::kGpSimd,
                 Y = Engine::kSync;

const Law kLaws[] = {
    {Opcode::kLoadStationary, T, 120, 0},          // 3.3: fast weight load, 192 ns span for fp32
    {Opcode::kMultiplyMoving, T, 217, 0.83333},    // 3.3: 203 + 1.99 N/2.4, cold; after the load
    {Opcode::kLoadStationaryMx, T, 160, 0},        // as a load of 4-byte elements
    {Opcode::kMultiplyMovingMx, T, 255, 0.83333},  // 5.1: F cycles
    {Opcode::kLoadStationarySparse, T, 120, 0},    // as a dense load
    {Opcode::kMultiplyMovingSparse, T, 217,
     0.83333},                                 // 1.3: four times the rows in the time of the dense product
    {Opcode::kTranspose, T, 322, 0},           // 3.3: 377 ns for 128x128
    {Opcode::kTranspose, V, 200, 1.0417},      // 3.4: 233 ns for 32x32
    {Opcode::kCopy, V, 157, 0.52083},          // 3.4
    {Opcode::kCopy, S, 191, 0.83333},          // 3.5
    {Opcode::kCopy, G, 125, 0.83333},          // 3.7: 150 + N
    {Opcode::kTensorTensor, V, 159, 1.0417},   // 3.4
    {Opcode::kTensorTensor, G, 125, 1.6667},   // 3.7: 32 bits per cycle, two operands
    {Opcode::kTensorScalar, V, 160, 0.52083},  // 3.4
    {Opcode::kTensorScalar, S, 191, 0.83333},  // 3.5
    {Opcode::kTensorScalar, G, 125, 0.83333},  // 3.7
    {Opcode::kScalarTensorTensor, V, 159, 1.0417},      // 5.3
    {Opcode::kActivation, S, 1568, 0.83333},            // 3.5, first use of the table set
    {Opcode::kActivation, G, 125, 0.83333},             // 3.7
    {Opcode::kActivate2, S, 1568, 0.83333},             // 5.2: as activation
    {Opcode::kActivate2, G, 125, 0.83333},              // 3.7
    {Opcode::kActTableLoad, S, 1283.3, 0},              // 3.5
    {Opcode::kCopyPredicated, V, 155, 1.109},           // 3.4
    {Opcode::kReciprocal, V, 154, 6.25},                // 3.4
    {Opcode::kMemset, V, 157, 1.0417},                  // 5.3: max(MI, N)
    {Opcode::kMemset, G, 58, 0.832},                    // 3.4
    {Opcode::kExponential, V, 157, 0.26042},            // 2.4: 4x the scalar engine
    {Opcode::kQuantizeMx, V, 157, 0.26042},             // 2.4: 4 inputs per cycle
    {Opcode::kStreamShuffle, V, 156, 1.045},            // 3.4
    {Opcode::kIota, G, 177, 0.846},                     // 3.7, 5.4
    {Opcode::kAffineSelect, G, 177, 0.846},             // 3.7
    {Opcode::kRangeSelect, V, 271, 1.0417},             // 5.3: max(MI, N), two columns
    {Opcode::kSelectReduce, V, 157, 1.0417},            // 5.3: about N
    {Opcode::kTensorReduce, V, 153, 1.042},             // 3.4
    {Opcode::kPartitionReduce, G, 125, 106.67},         // 3.7: very slow
    {Opcode::kTensorTensorScan, V, 158, 2.083},         // 3.4
    {Opcode::kTensorScalarReduce, V, 157, 1.0417},      // 5.3: max(MI, N)
    {Opcode::kTensorScalarCumulative, V, 158, 2.0833},  // 5.3: 2 N suggested
    {Opcode::kBnStats, V, 153, 1.0417},                 // 5.3: max(MI, N)
    {Opcode::kBnAggr, V, 153, 3.125},                   // 5.3, 3 n inputs
    {Opcode::kMax8, V, 150, 1.0417},                    // 3.4: N + 144
    {Opcode::kMaxIndex8, V, 150, 1.0417},               // 3.4
    {Opcode::kMatchReplace8, V, 150, 1.0417},           // 3.4
    {Opcode::kLocalGather, G, 125, 0.10417},            // 5.4: C = 8
    {Opcode::kNGather, G, 125, 3.3333},                 // estimate
    {Opcode::kSequenceBounds, G, 125, 3.3333},          // estimate
    {Opcode::kNonzeroWithCount, G, 125, 3.3333},        // estimate
    {Opcode::kTopk, G, 178.333, 53.333},                // 5.4: 4 n + K, 16 n values
    {Opcode::kCustom, G, 125, 13.333},                  // estimate
    {Opcode::kPhilox, G, 125, 20},                      // estimate
    {Opcode::kRng, V, 157, 1.0417},                     // estimate
    {Opcode::kRng, G, 125, 0.83333},                    // estimate
    {Opcode::kRand2, V, 157, 0.26042},                  // 5.3: 4 values per cycle
    {Opcode::kDropout, V, 157, 1.0417},                 // 5.3: max(MI, N)
    {Opcode::kSetRngSeed, V, 224, 0},                   // estimate
    {Opcode::kSetRngSeed, G, 178, 0},                   // estimate
    {Opcode::kRandGetState, V, 224, 0},                 // estimate
    {Opcode::kRandGetState, G, 178, 0},                 // estimate
    {Opcode::kRandSetState, V, 224, 0},                 // estimate
    {Opcode::kRandSetState, G, 178, 0},                 // estimate
    {Opcode::kDmaCopy, Y, 2161, 1.1765},                // 4.3: 1.96 us and 8 partitions per engine
    {Opcode::kDmaTranspose, Y, 2245, 0},                // 4.4: 90 % of a copy
    {Opcode::kDmaGather, G, 1486, 1.2},                 // 4.2, 4.3
    {Opcode::kDmaScatter, G, 1361, 1.256},              // 4.2, 4.3
    {Opcode::kDmaCompute, Y, 2161, 4.7059},             // 4.4: two sources at half the rate
    {Opcode::kSendRecv, Y, 2161, 1.1765},               // estimate: a copy between SBUFs
    {Opcode::kSemaphore, Y, 68, 0},                     // 3.1
    {Opcode::kCoreBarrier, Y, 291.5, 0},                // estimate
    {Opcode::kRegMove, Y, 68, 0},                       // 3.1
    {Opcode::kRegAlu, Y, 68, 0},                        // 3.1
    {Opcode::kRegLoad, Y, 300, 0},                      // estimate
    {Opcode::kRegStore, Y, 300, 0},                     // estimate
};

double time_ns(Opcode opcode, Engine engine, int64_t n, const config::Config& c) {
  const auto r = chip::run_timing(program(row_probe(opcode, engine, n), row_probe_tensors()), c);
  INFO(r.message);
  REQUIRE(r.status == chip::LaunchResult::Status::kOk);
  return static_cast<double>(r.stats.total_ps) / 1000 - c.launch.start_ns - c.launch.end_ns;
}

// On trn3 the vector engine (0.96 -> 1.2 GHz) and the DMA (27.2 -> 38.4 GB/s per engine) are faster, and a transfer
// that reads, adds and writes runs at the full rate [1.2, 2.6, 4.1]; the latencies keep their trn2 values.
Law on_trn3(Law l) {
  const bool dma = l.opcode >= Opcode::kDmaCopy && l.opcode <= Opcode::kSendRecv;
  if (l.engine == V && !dma) {
    l.fixed_ns *= 0.8;
    l.per_element_ns *= 0.8;
  }
  if (dma) l.per_element_ns *= 27.2 / 38.4 * (l.opcode == Opcode::kDmaCompute ? 0.5 : 1);
  return l;
}

bool ends_or_jumps(const isa::Row& r) { return r.cost == isa::CostClass::kBranch; }

}  // namespace

TEST_CASE("every row obeys its law") {
  const bool trn3 = GENERATE(false, true);
  std::string error;
  const auto chip = config::load(trn3 ? "trn3" : "trn2", "", &error);
  REQUIRE(chip.has_value());
  std::map<std::pair<Opcode, Engine>, const Law*> laws;
  for (const Law& l : kLaws) laws[{l.opcode, l.engine}] = &l;
  for (const isa::Row& r : isa::all_rows()) {
    if (ends_or_jumps(r)) continue;  // jumps: timing_test.cpp, loops
    const bool any = r.engines == (1u << isa::kNumEngines) - 1;
    for (int e = 0; e < isa::kNumEngines; ++e) {
      const auto engine = static_cast<Engine>(e);
      if (!r.runs_on(engine) || (any && engine != Y)) continue;
      const double a = time_ns(r.opcode, engine, 128, *chip), b = time_ns(r.opcode, engine, 512, *chip);
      const double slope = (b - a) / 384, fixed = a - 128 * slope;
      const auto it = laws.find({r.opcode, engine});
      INFO(chip->name << ": " << r.name << " on " << isa::name(engine) << ": " << fixed << " ns + " << slope
                      << " ns per element");
      CHECK(it != laws.end());
      if (it == laws.end()) continue;
      const Law law = trn3 ? on_trn3(*it->second) : *it->second;
      CHECK(fixed == Approx(law.fixed_ns).epsilon(0.15).margin(15));
      CHECK(slope == Approx(law.per_element_ns).epsilon(0.15).margin(0.01));
    }
  }
}

TEST_CASE("the probes are legal programs") {
  for (const isa::Row& r : isa::all_rows()) {
    if (ends_or_jumps(r)) continue;
    for (int e = 0; e < isa::kNumEngines; ++e) {
      const auto engine = static_cast<Engine>(e);
      if (!r.runs_on(engine)) continue;
      isa::Program p = program(row_probe(r.opcode, engine, 128), row_probe_tensors());
      p.locations.push_back({});
      for (const auto& d :
           isa::validate(p, r.runs_on(engine, isa::Generation::kTrn2) ? isa::Generation::kTrn2
                                                                      : isa::Generation::kTrn3)) {
        FAIL_CHECK(d.message);
      }
    }
  }
}
