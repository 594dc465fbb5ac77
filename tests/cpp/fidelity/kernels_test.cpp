// The rebuilt kernels are correct programs: legal, complete, and ordered by their semaphores in every timing.
#include "tools/fidelity/kernels/kernels.h"

#include <set>

#include "isa/validator.h"
#include "sim/check/checker.h"
#include "sim/chip/simulator.h"
#include "tests/cpp/catch.h"

using namespace trnsim;

namespace {

config::Config trn2() {
  std::string error;
  auto c = config::load("trn2", "", &error);
  REQUIRE(c.has_value());
  return *c;
}

isa::Program build(const std::string& name, const std::string& parameters, const config::Config& c) {
  const boost::json::object values = boost::json::parse(parameters).as_object();
  const fidelity::Params params(values);
  isa::Program p = fidelity::generator(name)(params, c);
  params.check_all_used();
  return p;
}

struct Case {
  const char *kernel, *parameters;
};
// Every generator in every variant that the rows use, on small sizes.
constexpr Case kCases[] = {
    {"vector_add", R"({"partitions": 1, "width": 1, "iterations": 30, "dma": "hardware"})"},
    {"vector_add", R"({"partitions": 128, "width": 64, "iterations": 9})"},
    {"silu", R"({"width": 96, "iterations": 7})"},
    {"adamw", R"({"width": 96, "iterations": 7})"},
    {"rope", R"({"heads": 3, "length": 256, "width": 64})"},
    {"mamba_scan", R"({"length": 256, "channels": 256, "states": 3, "width": 64})"},
    {"mamba_scan",
     R"({"length": 256, "channels": 256, "states": 3, "width": 64, "order": "sequence inner"})"},
    {"transpose_tiles", R"({"size": 512})"},
    {"transpose_tiles", R"({"size": 512, "dma": "hardware both"})"},
    {"matmul", R"({"m": 512, "k": 512, "n": 1024})"},
    {"matmul", R"({"m": 1024, "k": 512, "n": 1024, "block_m": 8})"},
    {"matmul", R"({"m": 512, "k": 512, "n": 1024, "block_m": 4, "products": 3})"},
    {"matmul", R"({"m": 512, "k": 512, "n": 1024, "block_m": 2, "main": "bf16"})"},
    {"matmul",
     R"({"m": 512, "k": 512, "n": 1024, "lhs": "given", "block_m": 2, "block_n": 2, "dma": "hardware"})"},
    {"matmul", R"({"m": 512, "k": 512, "n": 1024, "block_m": 4, "rank": 128, "products": 3})"},
    {"matmul_double_row", R"({"m": 256, "k": 512, "n": 1024})"},
    {"matmul_accumulate", R"({"size": 1024, "dtype": "bf16"})"},
    {"rmsnorm_matmul", R"({"m": 384, "k": 256, "n": 1024, "add": 1})"},
    {"rmsnorm_matmul", R"({"m": 384, "k": 256, "n": 2048, "scale": "after", "order": "k outer"})"},
    {"rmsnorm_matmul", R"({"m": 384, "k": 256, "n": 1024, "products": 4})"},
    {"swiglu", R"({"m": 512, "k": 512, "n": 512, "block_m": 4, "down_products": 3})"},
    {"swiglu", R"({"m": 256, "k": 512, "n": 512, "up_products": 3})"},
    {"mlp", R"({"m": 256, "k": 256, "n": 1024, "dtype": "bf16", "dma": "hardware both"})"},
    {"mlp", R"({"m": 256, "k": 256, "n": 1024, "gelu": "series", "dma": "hardware both"})"},
    {"mlp", R"({"m": 256, "k": 256, "n": 1024, "part": "gemm"})"},
    {"mlp", R"({"m": 256, "k": 256, "n": 1024, "part": "gelu"})"},
    {"bmm", R"({"batch": 2, "m": 512, "k": 64, "n": 1024, "sub": 2})"},
    {"bmm", R"({"batch": 2, "m": 512, "k": 64, "n": 1024, "main": "bf16"})"},
    {"bmm", R"({"batch": 2, "m": 512, "k": 64, "n": 1024, "sub": 4, "softmax": 1})"},
    {"bmm", R"({"batch": 1, "m": 512, "k": 64, "n": 1024, "softmax": 1, "negated_max": 1, "fused_sum": 1})"},
    {"attention", R"({"length": 512, "dtype": "bf16", "dma": "hardware both"})"},
    {"attention", R"({"length": 1024, "dtype": "fp32", "variant": "baseline", "dma": "hardware both"})"},
    {"gqa", R"({"length": 512, "heads": 4, "kv_heads": 2, "two_phase": 0})"},
    {"gqa", R"({"length": 512, "heads": 2, "kv_heads": 1, "sub": 2, "deferred": 1, "fold_scale": 1})"},
    {"gqa", R"({"length": 512, "heads": 2, "kv_heads": 1, "score_products": 3, "no_max": 1})"},
    {"conv_small", R"({"dtype": "fp16", "words": 1, "bias": "psum"})"},
    {"conv_small",
     R"({"dtype": "fp32", "slices": "contiguous", "scalar_slices": 3, "scalar_drains": 19, "pool": 1})"},
    {"conv_small", R"({"dtype": "fp32", "weight_loads": 36})"},
    {"conv_small", R"({"dtype": "fp16", "weights": "elements"})"},
    {"conv_large", R"({"dtype": "fp16", "pool": 1})"},
};

}  // namespace

TEST_CASE("Rebuilt kernels are legal and free of races") {
  const config::Config c = trn2();
  for (const Case& k : kCases) {
    INFO(k.kernel << ' ' << k.parameters);
    const isa::Program p = build(k.kernel, k.parameters, c);
    const auto diagnostics = isa::validate(p);
    const isa::Diagnostic* bad = isa::first_error(diagnostics);
    INFO((bad != nullptr ? bad->message : std::string()));
    CHECK(bad == nullptr);
    check::Checker checker(p, check::options_of(c));
    const auto run = chip::run_timing(p, c, &checker);
    INFO(run.message);
    CHECK(run.status == chip::LaunchResult::Status::kOk);
    const check::Report report = checker.finish(true);
    // Results that the timing needs and nothing reads are no fault here; some measured kernels accumulate on cleared
    // banks, and some keep a ring full: its trigger waits.
    const std::set<check::Kind> faults = {check::Kind::kRace,       check::Kind::kUnwritten,
                                          check::Kind::kBank,       check::Kind::kOutOfBounds,
                                          check::Kind::kMisaligned, check::Kind::kSemaphoreOverflow};
    for (const check::Finding& f : report.findings) {
      if (faults.count(f.kind) == 0) continue;
      INFO(f.message);
      CHECK(faults.count(f.kind) == 0);
      break;
    }
  }
}

TEST_CASE("A description that does not fit the chip is refused") {
  const config::Config c = trn2();
  CHECK_THROWS_WITH(build("matmul", R"({"m": 2048, "k": 512, "n": 512, "block_m": 16})", c),
                    ContainsSubstring("accumulators"));
  CHECK_THROWS_WITH(build("silu", R"({"width": 60000, "iterations": 1})", c), ContainsSubstring("SBUF"));
  CHECK_THROWS_WITH(build("silu", R"({"width": 64, "iterations": 1, "wide": 2})", c),
                    ContainsSubstring("wide"));
  CHECK_THROWS_WITH(build("sillu", "{}", c), ContainsSubstring("silu"));
}
