// Between levels 1 and 2: the kernel kinds. Op lowerings turn graph nodes into these; tilers turn these into tile
// programs. Nothing from here on knows an ATen name.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "device_plugin/compiler/graph.h"

namespace trnsim::compiler {

struct Buffer {
  enum class Kind : uint8_t { kInput, kOutput, kScratch, kConstant };
  Kind kind = Kind::kScratch;
  Dtype dtype = Dtype::kF32;
  int64_t elements = 0;           // extent of the memory touched, from element 0 of the tensor
  int32_t index = 0;              // kInput / kOutput: position in Graph::inputs / outputs
  int32_t alias_input = -1;       // kOutput: same memory as this graph input
  std::vector<uint8_t> constant;  // kConstant
};

// A strided window on a buffer: element (i0, i1, ...) is at offset + sum i_d * strides[d], in elements. A stride of
// 0 broadcasts. `dtype` may differ from the buffer's only in signedness or bool/uint8.
struct View {
  int32_t buffer = -1;
  Dtype dtype = Dtype::kF32;
  int64_t offset = 0;
  std::vector<int64_t> sizes, strides;

  int64_t numel() const {
    int64_t n = 1;
    for (int64_t s : sizes) n *= s;
    return n;
  }
};

// ---- expressions -----------------------------------------------------------------------------------------------
enum class ExprOp : uint8_t {
  kInput,  // element of inputs[index]
  kParam,  // run-time scalar, slot `index`
  kConst,  // `value`
  kIota,   // index along domain axis `index` (int32)
  kReduce,  // reduce the domain's reduced axes of a with `reduce`; the result is a row value, usable like any other
  // unary
  kCast,
  kNeg,
  kAbs,
  kSign,
  kSqrt,
  kRsqrt,
  kReciprocal,
  kExp,
  kExpm1,
  kExp2,
  kLog,
  kLog1p,
  kLog2,
  kLog10,
  kSin,
  kCos,
  kTan,
  kAsin,
  kAcos,
  kAtan,
  kSinh,
  kCosh,
  kTanh,
  kAsinh,
  kAcosh,
  kAtanh,
  kErf,
  kErfc,
  kErfcx,  // exp(x^2) erfc(x)
  kSigmoid,
  kGelu,
  kGeluTanh,
  kSilu,
  kSoftplus,
  kMish,
  kRelu,
  kSquare,
  kFloor,
  kCeil,
  kRound,
  kTrunc,
  kNot,
  kBitNot,
  kIsNan,
  kIsInf,
  kSignBit,  // of floats, NaN and zero included
  // binary
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFloorDiv,
  kTruncDiv,
  kRemainder,
  kFmod,
  kPow,
  kMax,
  kMin,
  kAtan2,
  kCopySign,  // bits of a, NaN included, with the sign of b
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kAnd,
  kOr,
  kXor,
  kBitAnd,
  kBitOr,
  kBitXor,
  kShl,
  kShr,
  // ternary: a ? b : c
  kSelect,
};
enum class ReduceOp : uint8_t {
  kSum,
  kProd,
  kMax,
  kMin,
  kAny,
  kAll
};  // kMax / kMin propagate NaN as PyTorch does

struct Expr {
  ExprOp op = ExprOp::kConst;
  Dtype dtype =
      Dtype::kF32;  // compute type of the result: kF32, kI32, kU32 or kBool. Casts round to `cast_to`
  Dtype cast_to =
      Dtype::kF32;  // kCast: round through this dtype (kBF16 in a float DAG, kI8 wrap, kBool, ...)
  int32_t a = -1, b = -1, c = -1;  // operands: indices into MapKernel::exprs, always smaller than their user
  int32_t index = 0;
  double value = 0;
  ReduceOp reduce = ReduceOp::kSum;
};

// ---- kernel kinds ----------------------------------------------------------------------------------------------
// `map` and `reduce`, and row-wise chains of both (softmax, norms and their gradients): evaluates the expression DAG
// over `domain`. Axes [0, num_kept) are kept, axes [num_kept, rank) are reduced by every kReduce node. With no
// kReduce node it is a plain map and num_kept == rank.
// Inputs are broadcast to the full domain (rank of sizes == rank of domain, stride 0 where broadcast); an output of a
// row value has sizes = the kept axes only, an output of a full value has sizes = domain.
// Empty domains are legal (reductions then give their identity). Integer sums are exact modulo 2^32.
struct MapKernel {
  std::vector<int64_t> domain;
  int32_t num_kept = 0;
  std::vector<View> inputs;
  std::vector<Expr> exprs;
  struct Output {
    View view;
    int32_t expr;
  };
  std::vector<Output> outputs;
};

// out[b.., m, n] = epilogue(sum_k a[b.., m, k] * b[b.., k, n]). Operands of one dtype; FP32 accumulation.
// In the epilogue, kInput 0 is the FP32 accumulator, kInput i > 0 is extra[i-1] (broadcast to the output).
struct DotKernel {
  View a, b, out;  // leading batch axes equal in number; stride 0 broadcasts
  std::vector<View> extra;
  std::vector<Expr> epilogue;  // empty: plain cast of the accumulator; last node is the result
};

// Convolution with up to 3 spatial axes, groups, dilation; `input` [N, C, s..], `weight` [O, C/g, k..], `out` [N, O, t..].
// kForward: out from input, weight. kInputGrad: `input` is written from out (the gradient) and weight. kWeightGrad:
// `weight` is written from input and out (the gradient). A transposed convolution is the other one's gradient.
// Forward and input gradient may have an epilogue as a product has: kInput 0 is the FP32 sum with the bias, kInput i > 0
// is extra[i-1], broadcast to the result over all of its spatial axes or over none.
struct ConvKernel {
  enum class Mode : uint8_t { kForward, kInputGrad, kWeightGrad } mode = Mode::kForward;
  View input, weight, out;
  View bias;  // kForward, buffer < 0: none
  std::vector<int64_t> stride, padding, dilation;
  int64_t groups = 1;
  std::vector<View> extra;
  std::vector<Expr> epilogue;  // empty: plain cast of the sum; last node is the result
};

// Pooling over sliding windows of the last k axes. Max: `indices` (int64, flat spatial index) written forward when
// its buffer >= 0 and read backward. Average: divisor 0 = window size (count_include_pad by flag).
struct WindowKernel {
  enum class Mode : uint8_t { kMaxForward, kMaxBackward, kAvgForward, kAvgBackward } mode = Mode::kMaxForward;
  View input, out, indices;  // backward: `out` is the gradient read, `input` the gradient written
  std::vector<int64_t> kernel, stride, padding, dilation;
  bool count_include_pad = true;
  int64_t divisor = 0;
};

// Copy with cast, any strides on both sides. Bit exact when dtypes are equal. cat, pad, permute, slices, expand are
// lists of these (pad values are a MapKernel with a kConst).
struct MoveKernel {
  View src, dst;
};

// What an index operand may hold, and the words for one that does not: "IndexError: index {} is out of bounds for
// dimension 0 with size 5" ({}: the index as given). Such an index stops the program (isa/index_check.h).
struct IndexRule {
  std::string words;
  bool wraps = false;  // -size .. -1 count from the end
};

// dst[i.., j..] = src[.., index value.., ..]. One index operand per indexed axis of src; index views are broadcast to
// index_sizes. out sizes: src axes before the first indexed axis, then index_sizes, then the other src axes (indexed
// axes must be adjacent; the lowering permutes).
// `along`: gather / scatter along one axis where index has the shape of the result (torch.gather).
struct GatherKernel {
  View src, out;
  int32_t axis = 0;  // first indexed axis
  std::vector<View> index;
  bool along = false;
  std::vector<IndexRule> rules;  // one per index operand; none: the compiler made the indices, they are legal
};
// The reverse: out[.., index.., ..] = or += src (duplicates accumulate exactly once each; kNone: last write wins,
// in row-major order). `out` already holds its initial contents.
struct ScatterKernel {
  enum class Combine : uint8_t { kNone, kAdd } combine = Combine::kNone;
  View out, src;  // src broadcast to the gathered shape
  int32_t axis = 0;
  std::vector<View> index;
  bool along = false;
  std::vector<IndexRule> rules;
};

// Stops the program unless the one int32 value of `row` is 0: words[i] for the value 1 + i, with one entry also for
// other values v, where {} is v < 0 ? v : v - 1 + size.
struct CheckKernel {
  View row;
  std::vector<std::string> words;
  int64_t size = 0;
};

// Running combination along one axis (cumsum, cumprod, cummax without indices).
struct ScanKernel {
  View input, out;
  int32_t axis = 0;
  ReduceOp op = ReduceOp::kSum;
};

// k largest or smallest along the last axis with their indices, in order (argmax/argmin: k = 1; sort: k = n).
// Ties: the smallest index first; NaN counts as the largest value. A view with buffer < 0 is not wanted.
struct TopKernel {
  View input, values, indices;
  int64_t k = 1;
  bool largest = true;
};

// Philox4x32-10 stream into `out` (contiguous order of elements): word n of the stream for element n.
// key and offset come from parameter slots: seed lo, seed hi, offset lo, offset hi.
struct RandomKernel {
  enum class Dist : uint8_t { kBits, kUniform, kNormal, kBernoulli } dist = Dist::kUniform;
  View out;
  int32_t philox_slot = 0;  // 4 consecutive int32 parameter slots
  // kUniform: low, high; kNormal: mean, std; kBernoulli: probability in expr a. -1: default (0,1)
  int32_t param_a = -1, param_b = -1;
  View probability;  // kBernoulli with a tensor of probabilities; buffer < 0: param_a
};

// Scaled dot-product attention without the score matrix in HBM:
//   score[b, h, i, j] = scale * sum_d q[b, h, i, d] k[b, h', j, d] + mask[b, h, i, j],  h' = h / (heads / kv_heads)
//   out[b, h, i, :] = sum_j softmax_j(score)[b, h, i, j] v[b, h', j, :]
// q, k, v of one float dtype; scores, sums and the softmax in FP32. A row whose scores are all -inf gives 0 (and a log
// of the sum of +inf), as PyTorch's scaled_dot_product_attention has it; or NaN (both), as its softmax has it.
struct AttentionKernel {
  static constexpr int64_t kUnbounded = INT64_MAX;

  View q;  // [batch, heads, queries, d]
  View k;  // [batch, kv_heads, keys, d]; heads is a multiple of kv_heads
  View v;  // [batch, kv_heads, keys, e]
  View
      mask;  // broadcast to [batch, heads, queries, keys]; kBool: true takes part; float: added. buffer < 0: none
  double scale = 1;
  // Query i sees key j when -behind <= j - i <= ahead. Causal: ahead = 0; a sliding window of w keys: behind = w - 1.
  int64_t behind = kUnbounded, ahead = kUnbounded;
  bool blind_is_nan = false;
  bool round_scores = false;  // to the type of q: the products, then with the scale, then with the mask
  View out;                   // [batch, heads, queries, e]
  View
      lse;  // FP32 [batch, heads, queries]: log of the sum of exp(score), for the gradient. buffer < 0: not wanted
};

// Its gradients, scores computed again from q, k and lse. A gradient with buffer < 0 is not wanted.
struct AttentionGradKernel {
  AttentionKernel forward;  // `out` and `lse` are read
  View grad_out;            // like out
  View grad_q, grad_k, grad_v;
};

using Kernel =
    std::variant<MapKernel, DotKernel, ConvKernel, WindowKernel, MoveKernel, GatherKernel, ScatterKernel,
                 ScanKernel, TopKernel, RandomKernel, CheckKernel, AttentionKernel, AttentionGradKernel>;

struct KernelList {
  std::string name;
  std::vector<Buffer> buffers;
  std::vector<Kernel> kernels;         // in program order
  std::vector<std::string> locations;  // per kernel: operator name for messages
  int32_t num_params = 0;
};

}  // namespace trnsim::compiler
