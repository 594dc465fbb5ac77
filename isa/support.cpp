// The support matrix: what stands behind every row of the instruction table. The coverage tests walk the same
// table and fail where a row lacks what this page claims.
#include <charconv>
#include <cmath>

#include "isa/docs.h"
#include "isa/names.h"
#include "isa/table.h"

namespace trnsim::isa {
namespace {

std::string engines(const Row& r, Generation g) {
  if (r.engines_of(g) == 0) return "-";
  if (r.engines_of(g) == (1u << kNumEngines) - 1) return "any";
  std::string text;
  for (int e = 0; e < kNumEngines; ++e) {
    if (r.runs_on(static_cast<Engine>(e), g))
      text += std::string(text.empty() ? "" : ", ") + std::string(name(static_cast<Engine>(e)));
  }
  return text;
}

std::string number(float v) {
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  char buffer[32];
  const auto r = std::to_chars(buffer, buffer + sizeof buffer, v);
  return {buffer, r.ptr};
}

struct DtypeDoc {
  Dtype dtype;
  std::string_view layout, special, rules;
};
constexpr DtypeDoc kDtypeDocs[] = {
    {Dtype::kF32, "1-8-23", "inf, NaN", "the format of all arithmetic outside the systolic array"},
    {Dtype::kF32R, "1-8-23", "inf, NaN", "stored as fp32; the systolic array rounds it to TF32 (1-8-10)"},
    {Dtype::kBF16, "1-8-7", "inf, NaN", "overflow to inf"},
    {Dtype::kF16, "1-5-10", "inf, NaN", "overflow to inf"},
    {Dtype::kF8E4M3, "1-4-3", "inf, NaN; largest 240", "overflow to inf"},
    {Dtype::kF8E4M3FN, "1-4-3", "NaN; largest 448", "overflow to NaN"},
    {Dtype::kF8E5M2, "1-5-2", "inf, NaN; largest 57344", "overflow to inf"},
    {Dtype::kF8E3M4, "1-3-4", "inf, NaN; largest 15.5", "overflow to inf"},
    {Dtype::kI32, "32", "", "saturates from floats, NaN becomes 0; exact on gpsimd"},
    {Dtype::kI16, "16", "", "saturates from floats, NaN becomes 0"},
    {Dtype::kI8, "8", "", "saturates from floats, NaN becomes 0"},
    {Dtype::kU32, "32", "", "saturates from floats, NaN becomes 0; exact on gpsimd"},
    {Dtype::kU16, "16", "", "saturates from floats, NaN becomes 0"},
    {Dtype::kU8, "8", "", "saturates from floats, NaN becomes 0"},
    {Dtype::kBool, "8", "", "0 or 1; anything but 0 stores 1"},
    {Dtype::kI64, "64", "", "HBM only; DMA narrows it to int32 or uint32"},
    {Dtype::kF64, "1-11-52", "inf, NaN", "HBM only; DMA narrows it to fp32"},
    {Dtype::kF8E8M0, "0-8-0", "NaN 255", "block scale 2^(code - 127)"},
    {Dtype::kF8E5M2x4, "4 x 1-5-2", "", "microscaling"},
    {Dtype::kF8E4M3FNx4, "4 x 1-4-3", "", "microscaling"},
    {Dtype::kF4E2M1x4, "4 x 1-2-1", "largest 6", "microscaling"},
};
static_assert(sizeof kDtypeDocs / sizeof kDtypeDocs[0] == kNumDtypes, "describe every dtype");

}  // namespace

std::string support_markdown() {
  std::string md =
      "# What is simulated\n\n"
      "Generated from the instruction table (`isa/rows.cpp`); do not edit. Every row has an encoding, "
      "assembler text and "
      "validation rules, checked by `test_isa` on random instructions. The function of a row is compared "
      "with a slow scalar "
      "oracle on random operands by `test_exec` (\"every row agrees with the oracle\", one section per row "
      "and engine), its "
      "time with the law of its cost class by `test_laws` (\"every row obeys its law\"). A row without one "
      "of these fails "
      "the tests. \"measured\": the law rests on measurements of this instruction; \"documented\": on a "
      "published formula; "
      "\"estimated\": on the laws of similar instructions.\n\n"
      "| instruction | nki.isa, section of the facts | engines, trn2 | engines, trn3 | function | timing "
      "probe | time |\n"
      "|---|---|---|---|---|---|---|\n";
  for (const Row& r : all_rows()) {
    const std::string n(r.name);
    md += "| [`" + n + "`](isa.md#" + n + ") | " + std::string(r.source) + " | " +
          engines(r, Generation::kTrn2) + " | " + engines(r, Generation::kTrn3) + " | `test_exec` / " + n +
          " | `test_laws` / " + n + " | " + std::string(name(r.timing)) + " |\n";
  }
  md +=
      "\n## Not in the table\n\n"
      "* 64-bit addresses: int64 scalars live in pairs of registers (flag `wide`), HBM operands are "
      "addressed by a "
      "32-bit register.\n"
      "* The machine code of GpSimd programs: `custom` runs a registered host function in its place.\n"
      "* Events beside semaphores, cFP8 with an adjustable bias, the programmable map of FP4 values, "
      "column-major SBUF layouts and "
      "(de)compression by DMA: named in public, not described.\n"
      "* Collective sequencers: collectives are not simulated.\n"
      "* Time: transposes of trn3 that run in the background of products take their full time.\n"
      "\n"
      "## Data types\n\n| dtype | sign-exponent-mantissa bits | special values | rules | since "
      "|\n|---|---|---|---|---|\n";
  for (const DtypeDoc& d : kDtypeDocs) {
    md += "| " + std::string(dtype_name(d.dtype)) + " | " + std::string(d.layout) + " | " +
          std::string(d.special) + " | " + std::string(d.rules) + " | " + std::string(name(since(d.dtype))) +
          " |\n";
  }
  md +=
      "\nNarrowing rounds to nearest even. `numerics.stochastic_rounding` rounds narrow floats up with a "
      "probability "
      "proportional to the distance instead, the same way in every run of one `numerics.rounding_seed`; "
      "`numerics.saturate_infinity` stores the largest finite value in place of an infinity. Subnormals are "
      "kept.\n\n"
      "## Activation functions\n\n| function | specified for | table set |\n|---|---|---|\n";
  for (int f = 0; f < static_cast<int>(ActFunc::kCount); ++f) {
    const auto func = static_cast<ActFunc>(f);
    const ActRange range = act_range(func);
    const std::string bounds = "[" + number(range.low) + ", " + number(range.high) + "]";
    md += "| " + std::string(name(func)) + " | " +
          (std::isinf(range.low) ? "all x"
           : range.by_magnitude  ? "\\|x\\| in " + bounds
                                 : "x in " + bounds) +
          " | " + std::to_string(act_table_set(func)) + " |\n";
  }
  md +=
      "\nOutside, the hardware's result is undefined; here it is the mathematical value, or NaN with "
      "`numerics.strict_activation_range`.\n";
  return md;
}

}  // namespace trnsim::isa
