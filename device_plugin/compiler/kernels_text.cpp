#include "device_plugin/compiler/kernels_text.h"

#include <array>
#include <charconv>
#include <string_view>

namespace trnsim::compiler {
namespace {

constexpr std::array kExprNames = {
    "input",     "param",     "const",      "iota",      "reduce", "cast",     "neg",   "abs",     "sign",
    "sqrt",      "rsqrt",     "reciprocal", "exp",       "expm1",  "exp2",     "log",   "log1p",   "log2",
    "log10",     "sin",       "cos",        "tan",       "asin",   "acos",     "atan",  "sinh",    "cosh",
    "tanh",      "asinh",     "acosh",      "atanh",     "erf",    "erfc",     "erfcx", "sigmoid", "gelu",
    "gelu_tanh", "silu",      "softplus",   "mish",      "relu",   "square",   "floor", "ceil",    "round",
    "trunc",     "not",       "bit_not",    "is_nan",    "is_inf", "sign_bit", "add",   "sub",     "mul",
    "div",       "floor_div", "trunc_div",  "remainder", "fmod",   "pow",      "max",   "min",     "atan2",
    "copysign",  "eq",        "ne",         "lt",        "le",     "gt",       "ge",    "and",     "or",
    "xor",       "bit_and",   "bit_or",     "bit_xor",   "shl",    "shr",      "select"};
static_assert(kExprNames.size() == static_cast<size_t>(ExprOp::kSelect) + 1);
constexpr std::array kReduceNames = {"sum", "prod", "max", "min", "any", "all"};
static_assert(kReduceNames.size() == static_cast<size_t>(ReduceOp::kAll) + 1);

std::string ints(const std::vector<int64_t>& v) {
  std::string s = "[";
  for (size_t i = 0; i < v.size(); ++i) s += (i ? ", " : "") + std::to_string(v[i]);
  return s + "]";
}

std::string number(double v) {
  char buffer[40];
  auto r = std::to_chars(buffer, buffer + sizeof(buffer), v);
  return std::string(buffer, r.ptr);
}

std::string dtype(Dtype d) { return std::string(isa::dtype_name(d)); }

std::string view(const View& v) {
  if (v.buffer < 0) return "none";
  std::string s =
      "b" + std::to_string(v.buffer) + ":" + dtype(v.dtype) + ints(v.sizes) + "/" + ints(v.strides);
  if (v.offset) s += "+" + std::to_string(v.offset);
  return s;
}

std::string exprs(const std::vector<Expr>& list) {
  std::string s;
  for (size_t i = 0; i < list.size(); ++i) {
    const Expr& e = list[i];
    s += "    e" + std::to_string(i) + ":" + dtype(e.dtype) + " = " + std::string(expr_op_name(e.op));
    if (e.op == ExprOp::kReduce) s += "." + std::string(reduce_op_name(e.reduce));
    if (e.op == ExprOp::kCast) s += "." + dtype(e.cast_to);
    if (e.op == ExprOp::kInput || e.op == ExprOp::kParam || e.op == ExprOp::kIota)
      s += " " + std::to_string(e.index);
    if (e.op == ExprOp::kConst) s += " " + number(e.value);
    for (int32_t x : {e.a, e.b, e.c}) {
      if (x >= 0) s += " e" + std::to_string(x);
    }
    s += "\n";
  }
  return s;
}

struct Printer {
  std::string operator()(const MapKernel& k) const {
    std::string s = "map domain " + ints(k.domain) + " kept " + std::to_string(k.num_kept) + "\n";
    for (size_t i = 0; i < k.inputs.size(); ++i)
      s += "    input " + std::to_string(i) + " " + view(k.inputs[i]) + "\n";
    s += exprs(k.exprs);
    for (const auto& o : k.outputs)
      s += "    output " + view(o.view) + " = e" + std::to_string(o.expr) + "\n";
    return s;
  }
  std::string operator()(const DotKernel& k) const {
    std::string s = "dot " + view(k.a) + " x " + view(k.b) + " -> " + view(k.out) + "\n";
    for (size_t i = 0; i < k.extra.size(); ++i)
      s += "    input " + std::to_string(i + 1) + " " + view(k.extra[i]) + "\n";
    return s + exprs(k.epilogue);
  }
  std::string operator()(const ConvKernel& k) const {
    const char* mode[] = {"forward", "input_grad", "weight_grad"};
    std::string s = std::string("conv.") + mode[static_cast<int>(k.mode)] + " input " + view(k.input) +
                    " weight " + view(k.weight) + " out " + view(k.out) + " bias " + view(k.bias) +
                    " stride " + ints(k.stride) + " padding " + ints(k.padding) + " dilation " +
                    ints(k.dilation) + " groups " + std::to_string(k.groups) + "\n";
    for (size_t i = 0; i < k.extra.size(); ++i)
      s += "    input " + std::to_string(i + 1) + " " + view(k.extra[i]) + "\n";
    return s + exprs(k.epilogue);
  }
  std::string operator()(const WindowKernel& k) const {
    const char* mode[] = {"max_forward", "max_backward", "avg_forward", "avg_backward"};
    return std::string("window.") + mode[static_cast<int>(k.mode)] + " input " + view(k.input) + " out " +
           view(k.out) + " indices " + view(k.indices) + " kernel " + ints(k.kernel) + " stride " +
           ints(k.stride) + " padding " + ints(k.padding) + " dilation " + ints(k.dilation) +
           " include_pad " + (k.count_include_pad ? "yes" : "no") + " divisor " + std::to_string(k.divisor) +
           "\n";
  }
  std::string operator()(const MoveKernel& k) const {
    return "move " + view(k.src) + " -> " + view(k.dst) + "\n";
  }
  std::string operator()(const GatherKernel& k) const {
    return "gather" + std::string(k.along ? ".along " : " ") + view(k.src) + " axis " +
           std::to_string(k.axis) + indices(k.index) + " -> " + view(k.out) + "\n";
  }
  std::string operator()(const ScatterKernel& k) const {
    return std::string("scatter") + (k.combine == ScatterKernel::Combine::kAdd ? ".add" : "") +
           (k.along ? ".along " : " ") + view(k.src) + " axis " + std::to_string(k.axis) + indices(k.index) +
           " -> " + view(k.out) + "\n";
  }
  std::string operator()(const ScanKernel& k) const {
    return "scan." + std::string(reduce_op_name(k.op)) + " " + view(k.input) + " axis " +
           std::to_string(k.axis) + " -> " + view(k.out) + "\n";
  }
  std::string operator()(const TopKernel& k) const {
    return std::string("top.") + (k.largest ? "largest " : "smallest ") + std::to_string(k.k) + " " +
           view(k.input) + " -> values " + view(k.values) + " indices " + view(k.indices) + "\n";
  }
  std::string operator()(const RandomKernel& k) const {
    const char* dist[] = {"bits", "uniform", "normal", "bernoulli"};
    return std::string("random.") + dist[static_cast<int>(k.dist)] + " philox p" +
           std::to_string(k.philox_slot) + " a " + std::to_string(k.param_a) + " b " +
           std::to_string(k.param_b) + " probability " + view(k.probability) + " -> " + view(k.out) + "\n";
  }
  std::string operator()(const CheckKernel& k) const {
    std::string s = "check " + view(k.row) + " size " + std::to_string(k.size);
    for (const std::string& w : k.words) s += " \"" + w + "\"";
    return s + "\n";
  }
  static std::string attention(const AttentionKernel& k) {
    const auto bound = [](int64_t n) {
      return n == AttentionKernel::kUnbounded ? std::string("all") : std::to_string(n);
    };
    return " q " + view(k.q) + " k " + view(k.k) + " v " + view(k.v) + " mask " + view(k.mask) + " scale " +
           number(k.scale) + " behind " + bound(k.behind) + " ahead " + bound(k.ahead) +
           (k.blind_is_nan ? " blind nan" : "") + (k.round_scores ? " rounded scores" : "") + " out " +
           view(k.out) + " lse " + view(k.lse);
  }
  std::string operator()(const AttentionKernel& k) const { return "attention" + attention(k) + "\n"; }
  std::string operator()(const AttentionGradKernel& k) const {
    return "attention_grad" + attention(k.forward) + " grad " + view(k.grad_out) + " -> q " + view(k.grad_q) +
           " k " + view(k.grad_k) + " v " + view(k.grad_v) + "\n";
  }
  static std::string indices(const std::vector<View>& index) {
    std::string s;
    for (const View& v : index) s += " index " + view(v);
    return s;
  }
};

}  // namespace

std::string_view expr_op_name(ExprOp op) { return kExprNames[static_cast<size_t>(op)]; }
std::string_view reduce_op_name(ReduceOp op) { return kReduceNames[static_cast<size_t>(op)]; }

std::string kernels_text(const KernelList& list) {
  const char* kinds[] = {"input", "output", "scratch", "constant"};
  std::string s = "kernels \"" + list.name + "\" params " + std::to_string(list.num_params) + "\n";
  for (size_t i = 0; i < list.buffers.size(); ++i) {
    const Buffer& b = list.buffers[i];
    s += "b" + std::to_string(i) + ": " + kinds[static_cast<int>(b.kind)] + " " + dtype(b.dtype) + " x " +
         std::to_string(b.elements);
    if (b.kind == Buffer::Kind::kInput || b.kind == Buffer::Kind::kOutput)
      s += " #" + std::to_string(b.index);
    if (b.alias_input >= 0) s += " alias input #" + std::to_string(b.alias_input);
    s += "\n";
  }
  for (size_t i = 0; i < list.kernels.size(); ++i) {
    s += "  " + std::visit(Printer{}, list.kernels[i]);
    if (i < list.locations.size() && !list.locations[i].empty()) s += "    # " + list.locations[i] + "\n";
  }
  return s;
}

}  // namespace trnsim::compiler
