// Level 1 -> kernels: the table of op lowerings. Every row turns one node of the Graph IR into kernel kinds
// (kernels.h); nothing after this level knows an ATen name.
//
// How a node has to look (the contract with whoever builds graphs)
//
// Name: always the functional overload. `add.out`, `add_.Tensor` and `add.Tensor` are all "aten::add.Tensor"; the
//   result value has `alias` set when it occupies exactly the memory of an input of the graph (the in-place form).
//   Overloads without a suffix have none here either: "aten::relu", "aten::mm" (never ".default").
//   Operators that exist in place only, or as `.out` only, have these functional names:
//     fill_.Scalar                      aten::fill.Scalar
//     zero_                             aten::zero
//     copy_, _copy_from                 aten::copy
//     uniform_                          aten::uniform
//     normal_                           aten::normal_functional
//     bernoulli_.float                  aten::bernoulli.p
//     bernoulli_.Tensor                 aten::bernoulli.Tensor
//     bernoulli.out                     aten::bernoulli
//     random_                           aten::random (.from, .to)
//     exponential_, log_normal_, geometric_, cauchy_    the same without the "_"
//     _index_put_impl_                  aten::_index_put_impl
//     convolution_overrideable          that name or aten::convolution
//     arange.start_out                  aten::arange.start_step (start, end, step)
//     arange.out                        aten::arange
//   For fill, zero, copy, the random and the creation operators the first argument is not read: it may be kNoValue.
//   aten::copy is (self, src, non_blocking): only src is read; it is broadcast and cast to the result's type.
//
// Arguments: in schema order, defaults filled in; keyword-only arguments follow in schema order. Per schema type:
//     Tensor, Tensor?                   ValueId (kNoValue for None); a 0-dim CPU tensor may arrive as a ParamRef
//     Tensor[], Tensor?[]               ValueList (kNoValue entries for None)
//     int, SymInt, int?                 int64_t (Optional for None)
//     bool, bool?                       bool (Optional for None)
//     int[], int[]?, int[N]             vector<int64_t>; where the schema says int[N], one number or N; Optional for None
//     Scalar, float, Scalar?, float?    ParamRef by default, or int64_t / double / bool as a constant.
//                                       OpInfo::const_args names the arguments that must be constants. kI32 when the
//                                       number is an int or bool, kF32 when it is a float; an int outside int32 must
//                                       come as a constant
//     float[], bool[]                   vector<double>, vector<bool>
//     str                               string
//     ScalarType                        Dtype (Optional for None)
//     Layout, Device, MemoryFormat, Generator, pin_memory    anything; never read
//   Random operators take one argument more than their schema, vector<ParamRef>: 4 consecutive kI32 slots of the Philox
//   state, seed lo, seed hi, offset lo, offset hi (OpInfo::random); one operator consumes numel 32-bit words per random
//   operand, and advancing the offset by numel (rounded up to 4) per result is enough (aten::multinomial: by that of its
//   input). So may quotients by a number: 3 consecutive kF32 slots with the parts of its inverse (inverse.h).
//
// Results: in schema order. A result that is not wanted or undefined (output_mask[i] == false, running statistics that
//   were not given) is kNoValue. Shapes, strides and dtypes are those of the meta function, with any strides.
//   Arguments that an operator changes without saying so in its functional schema become extra results, with `alias`:
//     aten::native_batch_norm, aten::_native_batch_norm_legit   (out, save_mean, save_invstd, running_mean,
//       running_var), the last two kNoValue when not in training or not given.
//       `_native_batch_norm_legit_functional` has five results already.
//
// Types: float64 computes as FP32 and int64 as int32 (the DMA engines narrow and widen; integers beyond 32 bits
//   saturate, as do constants), bool is 0 or 1. Complex never arrives here (pairs of reals). Result types decide the computing type; comparisons take that of
//   their operands. Where an operand's common type with the others changes its values, it arrives converted (aten::copy, or the number).
//
// Boolean masks in aten::index.Tensor / aten::index_put have a data-dependent shape and are refused, except
//   aten::index_put with a single scalar-like value and masks only (computed as masked_fill).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "device_plugin/compiler/error.h"
#include "device_plugin/compiler/kernels.h"

namespace trnsim::compiler {

class LowerContext;
struct Ex;
using LowerFn = void (*)(LowerContext&);

struct LowerRow {
  std::string name;
  LowerFn fn = nullptr;
  uint64_t const_args = 0;
  bool random = false;
};

constexpr uint64_t const_arg(int i) { return uint64_t{1} << i; }

// Rows register themselves at load time; registering a name twice is an internal error.
struct LowerRegistration {
  LowerRegistration(const char* name, LowerFn fn, uint64_t const_args = 0, bool random = false);
  explicit LowerRegistration(std::vector<LowerRow> rows);  // a data table
};
#define TRNSIM_LOWER_CONCAT2(a, b) a##b
#define TRNSIM_LOWER_CONCAT(a, b) TRNSIM_LOWER_CONCAT2(a, b)
// TRNSIM_LOWER("aten::mm", lower_mm);  TRNSIM_LOWER("aten::norm.Scalar", lower_norm, const_arg(1));
#define TRNSIM_LOWER(...) \
  static const ::trnsim::compiler::LowerRegistration TRNSIM_LOWER_CONCAT(lower_row_, __COUNTER__)(__VA_ARGS__)

const std::vector<LowerRow>& lower_rows();              // sorted by name
const LowerRow* find_lower_row(const std::string& op);  // null: no lowering

// Rewrites every node. Throws CompileError; the message names the operator.
KernelList lower_graph(const Graph& graph);

// What a lowering sees of its node, and where it puts kernels.
class LowerContext {
 public:
  LowerContext(const Graph& graph, KernelList& list);
  void begin(const Node& node);  // makes `node` the current one

  // ---- arguments of the current node
  const Node& node() const { return *node_; }
  int num_args() const { return static_cast<int>(node_->args.size()); }
  const Arg& arg(int i) const;
  bool is_none(int i) const;    // Optional, or a tensor that was not given
  bool is_tensor(int i) const;  // a ValueId other than kNoValue
  const TensorType& type(int i) const;
  View in(int i);                    // tensor argument
  std::vector<View> in_list(int i);  // ValueList; an entry that was not given has buffer < 0
  int64_t int_arg(int i) const;      // int or bool
  int64_t int_or(int i, int64_t otherwise) const;
  bool flag(int i) const;
  std::vector<int64_t> ints(int i) const;  // int[]; None gives an empty list
  std::vector<int64_t> ints(int i,
                            size_t n) const;  // int[N]: a list of 1 is repeated, an empty one stays empty
  std::string str(int i) const;
  std::optional<double> constant(
      int i) const;  // Scalar or float that is a constant; nothing for a ParamRef or None
  double constant_or_refuse(int i, const char* name) const;
  // ---- results of the current node
  int num_results() const { return static_cast<int>(node_->results.size()); }
  bool wanted(int i) const;  // result i exists
  const TensorType& out_type(int i) const;
  View out(int i);

  bool meets(Dtype dtype) const;  // an argument or a result is a tensor of this type

  // ---- buffers and kernels
  View scratch(Dtype dtype, const std::vector<int64_t>& sizes);  // contiguous
  View constant_buffer(Dtype dtype, const std::vector<int64_t>& sizes, std::vector<uint8_t> contents);
  void emit(Kernel kernel);
  void copy(const View& dst, const View& src);  // cast; src is broadcast to dst
  void fill(const View& dst, double value);
  // Stops the program with `words` ("RuntimeError: ..") when `bad` holds for an element of `v`.
  void check(const View& v, std::string words, const std::function<Ex(Ex)>& bad);
  bool aliases(int i, int result = 0);  // result `result` occupies exactly the memory of argument i
  // `in`, or a copy of it when result `result` shares memory with argument i: for lowerings that write a
  // result before they have read all of an argument.
  View in_unaliased(int i, int result = 0);
  [[noreturn]] void refuse(const std::string& reason) const;  // kUnsupported, with the operator's name

 private:
  View view_of(ValueId id);
  bool shares_memory(int i, int result);
  ValueId value_id(int i) const;

  const Graph& graph_;
  KernelList& list_;
  const Node* node_ = nullptr;
  std::vector<int32_t> buffer_of_value_;
};

// ---- views
// -------------------------------------------------------------------------------------------------------
int64_t wrap_dim(int64_t dim, int64_t rank);  // negative dims; rank 0 counts as 1
View view_permuted(const View& v, const std::vector<int>& order);
View view_at_least_1d(const View& v);
View view_expanded(const View& v, const std::vector<int64_t>& sizes);  // right-aligned broadcast
View view_unsqueezed(const View& v, int dim, int64_t size = 1);        // stride 0
View view_selected(const View& v, int dim, int64_t index);
View view_sliced(const View& v, int dim, int64_t start, int64_t length, int64_t step = 1);
View view_split_dim(const View& v, int dim, int64_t inner);  // size n -> n / inner, inner
View view_flipped(const View& v, int dim);
View view_diagonal(const View& v);  // of the last two dims
View view_as_dtype(View v, Dtype dtype);
bool view_contiguous(const View& v);
// Other sizes over the same elements in row-major order; nothing when the strides do not allow it.
std::optional<View> view_reshaped(const View& v, const std::vector<int64_t>& sizes);
bool view_empty(const View& v);
std::vector<int64_t> broadcast_sizes(const std::vector<int64_t>& a, const std::vector<int64_t>& b);

// ---- expressions
// ------------------------------------------------------------------------------------------------- The type
// a tensor of `storage` is computed in: kF32, kI32, kU32 or kBool.
Dtype compute_dtype(Dtype storage);
Dtype promote_compute(Dtype a, Dtype b);

class MapBuilder;
// A value of the expression DAG.
struct Ex {
  MapBuilder* map = nullptr;
  int32_t id = -1;
  Dtype dtype = Dtype::kF32;
};

// Builds one MapKernel. Operators promote bool -> int32 -> fp32.
class MapBuilder {
 public:
  // Axes [0, num_kept) of `domain` are kept; -1: all.
  MapBuilder(LowerContext& context, std::vector<int64_t> domain, int num_kept = -1);

  const std::vector<int64_t>& domain() const { return kernel_.domain; }
  std::vector<int64_t> kept() const;  // sizes of the kept axes
  int64_t reduced_count() const;      // product of the reduced axes
  Ex input(const View& view);         // right-aligned broadcast to the domain
  Ex row_input(const View& view);     // broadcast to the kept axes, the same along the reduced axes
  Ex operand(int arg);                // tensor (broadcast), ParamRef or constant argument of the node
  Ex row_operand(int arg);
  Ex param(const ParamRef& p);
  Ex constant(double value, Dtype dtype = Dtype::kF32);
  Ex iota(int axis);
  Ex unary(ExprOp op, Ex a);         // keeps the type of a
  Ex math(ExprOp op, Ex a);          // FP32 in and out
  Ex binary(ExprOp op, Ex a, Ex b);  // promotes; comparisons and logical ops give bool
  Ex select(Ex condition, Ex a, Ex b);
  Ex reduce(ReduceOp op, Ex a);
  Ex cast(Ex a, Dtype compute);             // between computing types, PyTorch's conversion rules
  Ex round_to(Ex a, Dtype storage);         // to(storage) and back to the computing type
  void output(const View& view, Ex a);      // full value; casts to the view's dtype
  void row_output(const View& view, Ex a);  // row value: sizes of the kept axes
  void emit();
  const MapKernel& kernel() const { return kernel_; }

 private:
  Ex add(Expr e);
  LowerContext& context_;
  MapKernel kernel_;
};

Ex operator+(Ex a, Ex b);
Ex operator-(Ex a, Ex b);
Ex operator*(Ex a, Ex b);
Ex operator/(Ex a, Ex b);  // true division, FP32
Ex operator-(Ex a);
Ex operator+(Ex a, double b);
Ex operator-(Ex a, double b);
Ex operator*(Ex a, double b);
Ex operator/(Ex a, double b);
Ex operator+(double a, Ex b);
Ex operator-(double a, Ex b);
Ex operator*(double a, Ex b);
Ex operator/(double a, Ex b);
Ex operator<(Ex a, Ex b);
Ex operator<=(Ex a, Ex b);
Ex operator>(Ex a, Ex b);
Ex operator>=(Ex a, Ex b);
Ex operator==(Ex a, Ex b);
Ex operator!=(Ex a, Ex b);
Ex operator<(Ex a, double b);
Ex operator<=(Ex a, double b);
Ex operator>(Ex a, double b);
Ex operator>=(Ex a, double b);
Ex operator==(Ex a, double b);
Ex operator!=(Ex a, double b);
Ex operator&&(Ex a, Ex b);
Ex operator||(Ex a, Ex b);
Ex operator!(Ex a);

// A reduction of argument tensors over `dims` (empty: all). Views are permuted to kept axes, then reduced
// axes.
struct Reduction {
  Reduction(const std::vector<int64_t>& sizes, const std::vector<int64_t>& dims, bool empty_means_all = true);
  std::vector<int> order;  // kept axes, then reduced ones
  int num_kept = 0;
  std::vector<int64_t> domain;     // permuted sizes
  View full(const View& v) const;  // a view of the unreduced sizes (broadcast first), permuted
  View row(const View& v) const;   // a result view, with or without the reduced axes as 1, as kept axes only
  std::vector<bool> reduced;       // per original axis
};

}  // namespace trnsim::compiler
