#include "isa/names.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>

#include "isa/table.h"

namespace trnsim::isa {
namespace {

template <typename E>
constexpr size_t kCountOf = static_cast<size_t>(E::kCount);

constexpr std::array<std::string_view, kCountOf<Engine>> kEngines = {"tensor", "vector", "scalar", "gpsimd",
                                                                     "sync"};
static_assert(!kEngines.back().empty());

constexpr std::array<std::string_view, kCountOf<AluOp>> kAluOps = {
    "none",       "add",         "subtract",   "multiply",    "max",           "min",        "abs_max",
    "abs_min",    "power",       "equal",      "not_equal",   "greater_equal", "greater",    "less_equal",
    "less",       "logical_and", "logical_or", "logical_xor", "bitwise_and",   "bitwise_or", "bitwise_xor",
    "left_shift", "right_shift", "bypass",     "invert",      "abs",           "rsqrt",      "reciprocal",
    "square",     "relu",        "average"};
static_assert(!kAluOps.back().empty());

constexpr std::array<std::string_view, kCountOf<ActFunc>> kActFuncs = {
    "copy",    "square", "rsqrt",     "sqrt",       "exp",   "log",          "sigmoid", "tanh",
    "relu",    "gelu",   "gelu_tanh", "silu",       "erf",   "softplus",     "mish",    "sin",
    "arctan",  "abs",    "sign",      "reciprocal", "prelu", "gelu_sigmoid", "gelu_dx", "gelu_sigmoid_dx",
    "silu_dx", "erf_dx"};
static_assert(!kActFuncs.back().empty());

constexpr std::array<std::string_view, 4> kSpaces = {"none", "sbuf", "psum", "hbm"};
constexpr std::array<std::string_view, 3> kDgeModes = {"static", "hardware", "software"};
constexpr std::array<std::string_view, 4> kSemOps = {"none", "add", "subtract", "write"};
constexpr std::array<std::string_view, 4> kTensorKinds = {"input", "output", "constant", "scratch"};
constexpr std::array<std::string_view, 5> kReduceCmds = {"idle", "reset", "reduce", "reset_reduce",
                                                         "load_reduce"};
constexpr std::array<std::string_view, 9> kFlags = {"accumulate", "reverse0",  "reverse1",
                                                    "negate",     "immediate", "skip_out_of_bounds",
                                                    "double_row", "one_zero",  "wide"};

template <typename E, size_t N>
std::string_view lookup(const std::array<std::string_view, N>& names, E v) {
  const auto i = static_cast<size_t>(v);
  return i < N ? names[i] : std::string_view("invalid");
}

template <typename E, size_t N>
std::optional<E> find(const std::array<std::string_view, N>& names, std::string_view text) {
  for (size_t i = 0; i < N; ++i) {
    if (names[i] == text) return static_cast<E>(i);
  }
  return std::nullopt;
}

template <size_t N>
std::vector<std::string_view> all(const std::array<std::string_view, N>& names) {
  return {names.begin(), names.end()};
}

}  // namespace

std::string_view name(Opcode v) { return v < Opcode::kCount ? row(v).name : std::string_view("invalid"); }
std::string_view name(Engine v) { return lookup(kEngines, v); }
std::string_view name(AluOp v) { return lookup(kAluOps, v); }
std::string_view name(ActFunc v) { return lookup(kActFuncs, v); }
std::string_view name(Space v) { return lookup(kSpaces, v); }
std::string_view name(DgeMode v) { return lookup(kDgeModes, v); }
std::string_view name(ReduceCmd v) { return lookup(kReduceCmds, v); }
std::string_view name(SemOp v) { return lookup(kSemOps, v); }
std::string_view name(TensorKind v) { return lookup(kTensorKinds, v); }

std::string_view flag_name(Flags single_flag) {
  for (size_t i = 0; i < kFlags.size(); ++i) {
    if (single_flag == (1u << i)) return kFlags[i];
  }
  return "invalid";
}

std::string flags_text(uint16_t flags) {
  std::string text;
  for (size_t i = 0; i < 16; ++i) {
    if ((flags & (1u << i)) == 0) continue;
    if (!text.empty()) text += '|';
    if (i < kFlags.size()) {
      text += kFlags[i];
    } else {
      char hex[16];
      std::snprintf(hex, sizeof hex, "0x%x", 1u << i);
      text += hex;
    }
  }
  return text;
}

std::string_view engine_label(Engine v) {
  static constexpr std::string_view kLabels[] = {"Tensor", "Vector", "Scalar", "GpSimd", "Sync"};
  return v < Engine::kCount ? kLabels[static_cast<int>(v)] : "unknown engine";
}

std::string stream_label(const Program& program, size_t stream) {
  std::string text(engine_label(engine_of_stream(stream)));
  if (program.cores > 1) text += " of core " + std::to_string(core_of_stream(stream));
  return text;
}

std::string instruction_label(const Program& program, size_t stream, size_t index) {
  std::string text = stream_label(program, stream) + " instruction " + std::to_string(index);
  const auto& code = program.streams[stream];
  if (index >= code.size()) return text;
  text += " (" + std::string(row(code[index].opcode).name);
  const uint32_t location = code[index].location;
  if (location != 0 && location < program.locations.size()) {
    const SourceLocation& at = program.locations[location];
    if (!at.file.empty()) text += ", " + at.file + ":" + std::to_string(at.line);
    if (!at.what.empty()) text += ", " + at.what;
  }
  return text + ")";
}

std::optional<Opcode> opcode_from_name(std::string_view t) {
  for (const Row& r : all_rows()) {
    if (r.name == t) return r.opcode;
  }
  return std::nullopt;
}
std::optional<Engine> engine_from_name(std::string_view t) { return find<Engine>(kEngines, t); }
std::optional<AluOp> alu_op_from_name(std::string_view t) { return find<AluOp>(kAluOps, t); }
std::optional<ActFunc> act_func_from_name(std::string_view t) { return find<ActFunc>(kActFuncs, t); }
std::optional<Space> space_from_name(std::string_view t) { return find<Space>(kSpaces, t); }
std::optional<DgeMode> dge_mode_from_name(std::string_view t) { return find<DgeMode>(kDgeModes, t); }
std::optional<ReduceCmd> reduce_cmd_from_name(std::string_view t) { return find<ReduceCmd>(kReduceCmds, t); }
std::optional<TensorKind> tensor_kind_from_name(std::string_view t) {
  return find<TensorKind>(kTensorKinds, t);
}
std::optional<Flags> flag_from_name(std::string_view t) {
  for (size_t i = 0; i < kFlags.size(); ++i) {
    if (kFlags[i] == t) return static_cast<Flags>(1u << i);
  }
  return std::nullopt;
}

std::vector<std::string_view> opcode_names() {
  std::vector<std::string_view> names;
  for (const Row& r : all_rows()) names.push_back(r.name);
  return names;
}
std::vector<std::string_view> engine_names() { return all(kEngines); }
std::vector<std::string_view> alu_op_names() { return all(kAluOps); }
std::vector<std::string_view> act_func_names() { return all(kActFuncs); }
std::vector<std::string_view> flag_names() { return all(kFlags); }
std::vector<std::string_view> dtype_names() {
  std::vector<std::string_view> names;
  for (int i = 0; i < kNumDtypes; ++i) names.push_back(dtype_name(static_cast<Dtype>(i)));
  return names;
}

std::string_view nearest_name(std::string_view text, const std::vector<std::string_view>& candidates) {
  std::string_view best;
  size_t best_distance = std::max<size_t>(2, text.size() / 3) + 1;
  std::vector<size_t> row;
  for (std::string_view candidate : candidates) {
    row.resize(candidate.size() + 1);
    for (size_t j = 0; j < row.size(); ++j) row[j] = j;
    for (size_t i = 1; i <= text.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j < row.size(); ++j) {
        const size_t substitute = diagonal + (text[i - 1] == candidate[j - 1] ? 0 : 1);
        diagonal = row[j];
        row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
      }
    }
    if (row.back() < best_distance) {
      best_distance = row.back();
      best = candidate;
    }
  }
  return best;
}

ActRange act_range(ActFunc f) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kPi = 3.14159265358979323846f;
  switch (f) {
    case ActFunc::kLog:
      return {0x1p-64f, 0x1p64f, false};
    case ActFunc::kSin:
      return {-kPi, kPi, false};
    case ActFunc::kArctan:
      return {-kPi / 2, kPi / 2, false};
    case ActFunc::kSqrt:
      return {0x1p-116f, 0x1p118f, false};
    case ActFunc::kRsqrt:
      return {0x1p-87f, 0x1p97f, false};
    case ActFunc::kReciprocal:
      return {0x1p-42f, 0x1p42f, true};
    default:
      return {-kInf, kInf, false};
  }
}

int act_table_set(ActFunc f) {
  // Groups seen on trn2: {copy, square, rsqrt}, {sigmoid}, {silu}, {exp}, {softplus} (facts, section 3.5).
  // The cheap functions are put with copy and the rest get sets of their own: a guess, because no list is
  // public.
  switch (f) {
    case ActFunc::kSigmoid:
      return 1;
    case ActFunc::kSilu:
      return 2;
    case ActFunc::kExp:
      return 3;
    case ActFunc::kSoftplus:
      return 4;
    case ActFunc::kTanh:
      return 5;
    case ActFunc::kGelu:
    case ActFunc::kGeluTanh:
    case ActFunc::kGeluSigmoid:
      return 6;
    case ActFunc::kGeluDx:
    case ActFunc::kGeluSigmoidDx:
      return 12;
    case ActFunc::kSiluDx:
      return 13;
    case ActFunc::kErfDx:
      return 14;
    case ActFunc::kErf:
      return 7;
    case ActFunc::kLog:
      return 8;
    case ActFunc::kMish:
      return 9;
    case ActFunc::kSin:
      return 10;
    case ActFunc::kArctan:
      return 11;
    default:
      return 0;
  }
}

}  // namespace trnsim::isa
