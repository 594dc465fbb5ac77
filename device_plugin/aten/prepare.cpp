#include "device_plugin/aten/prepare.h"

#include <ATen/Dispatch.h>
#include <ATen/core/Formatting.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/DistributionTemplates.h>
#include <ATen/ops/nonzero.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <limits>
#include <optional>
#include <unordered_map>
#include <vector>

#include "device_plugin/aten/graph_recorder.h"
#include "device_plugin/aten/tensors.h"

namespace trnsim::aten {
namespace {

bool is_mask(const at::Tensor& t) { return t.scalar_type() == at::kBool || t.scalar_type() == at::kByte; }

// Index lists: indices on the host move to the device, masks become the positions of their true elements.
void prepare_indices(c10::Stack& stack, size_t begin, bool keep_masks) {
  const at::Tensor self = stack[begin].toTensor();
  c10::List<std::optional<at::Tensor>> changed;
  bool any = false;
  for (const c10::IValue& v : stack[begin + 1].toListRef()) {
    if (v.isNone() || !v.toTensor().defined()) {
      changed.push_back(std::nullopt);
      continue;
    }
    at::Tensor index = v.toTensor();
    if (index.device() != self.device()) {
      TORCH_CHECK(index.device().is_cpu(),
                  "indices should be either on cpu or on the same device as the indexed "
                  "tensor (",
                  self.device(), ") but found ", index.device());
      index = index.to(self.device());
      any = true;
    }
    if (index.scalar_type() == at::kByte)
      TORCH_WARN("indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead.");
    if (is_mask(index) && !keep_masks) {
      const auto at_dim = static_cast<int64_t>(changed.size());
      for (int64_t d = 0; d < index.dim(); ++d)
        TORCH_CHECK_INDEX(at_dim + d < self.dim() && index.size(d) == self.size(at_dim + d),
                          "The shape of the mask ", index.sizes(), " at index ", d,
                          " does not match the shape of the indexed tensor ", self.sizes(), " at index ",
                          at_dim + d);
      for (at::Tensor& column : index.nonzero().unbind(1)) changed.push_back(column);
      any = true;
      continue;
    }
    changed.push_back(index);
  }
  if (any) stack[begin + 1] = changed;
}

void prepare_index(c10::Stack& stack, size_t begin) { prepare_indices(stack, begin, false); }

// index_put with masks only and one value is a masked fill, which needs no positions.
void prepare_index_put(c10::Stack& stack, size_t begin) {
  bool masks_only = true;
  for (const c10::IValue& v : stack[begin + 1].toListRef())
    masks_only = masks_only && v.isTensor() && v.toTensor().defined() && is_mask(v.toTensor());
  const at::Tensor& values = stack[begin + 2].toTensor();
  const bool accumulate = stack[begin + 3].toBool();
  prepare_indices(stack, begin, masks_only && values.numel() == 1 && !accumulate);
}

// The tensor engine multiplies operands of one type; PyTorch does not promote them either. The words are its own, with
// m1 and m2 for whatever operands there are.
template <size_t kFirst>
void check_same_dtype(c10::Stack& stack, size_t begin) {
  const c10::ScalarType a = stack[begin + kFirst].toTensor().scalar_type();
  const c10::ScalarType b = stack[begin + kFirst + 1].toTensor().scalar_type();
  TORCH_CHECK(
      a == b, "expected m1 and m2 to have the same dtype, but got: ", c10::scalarTypeToTypeMeta(a).name(),
      " != ", c10::scalarTypeToTypeMeta(b).name(), ". Cast one of the operands of the matrix product.");
}

void check_dot(c10::Stack& stack, size_t begin) {
  const at::Tensor &a = stack[begin].toTensor(), &b = stack[begin + 1].toTensor();
  TORCH_CHECK(a.dim() == 1 && b.dim() == 1, "1D tensors expected, but got ", a.dim(), "D and ", b.dim(),
              "D tensors");
  TORCH_CHECK(a.scalar_type() == b.scalar_type(),
              "dot : expected both vectors to have same dtype, but found ", a.scalar_type(), " and ",
              b.scalar_type());
}

// What the shape functions of PyTorch leave to its kernels to refuse, in the words of the latter.
void check_convolution(c10::Stack& stack,
                       size_t begin) {  // (input, weight, bias, stride, padding, dilation, ..)
  check_same_dtype<0>(stack, begin);
  for (const int64_t p : stack[begin + 4].toIntVector())
    TORCH_CHECK(p >= 0, "negative padding is not supported");
  for (const int64_t d : stack[begin + 5].toIntVector())
    TORCH_CHECK(d > 0, "dilation should be greater than zero");
}

// The value of an operand that the call brings along, when it is an integer.
std::optional<int64_t> integer_of(const c10::IValue& v) {
  if (v.isInt()) return v.toInt();
  if (v.isBool()) return v.toBool();
  if (!v.isTensor() || !v.toTensor().device().is_cpu() || v.toTensor().dim() != 0) return std::nullopt;
  const at::Tensor& t = v.toTensor();
  if (!c10::isIntegralType(t.scalar_type(), true)) return std::nullopt;
  return t.item<int64_t>();
}

bool is_integer(const c10::IValue& v) {
  return v.isTensor() ? c10::isIntegralType(v.toTensor().scalar_type(), true) : v.isInt() || v.isBool();
}

bool is_bool(const c10::IValue& v) {
  return v.isTensor() ? v.toTensor().scalar_type() == at::kBool : v.isBool();
}

// Integer quotients and remainders: no booleans, and no zero that divides something where the call knows the divisor.
void check_division(c10::Stack& stack, size_t begin, const char* kernel) {
  const c10::IValue &a = stack[begin], &b = stack[begin + 1];
  if (!is_integer(a) || !is_integer(b)) return;
  TORCH_CHECK_NOT_IMPLEMENTED(!is_bool(a) || !is_bool(b), '"', kernel, "\" not implemented for 'Bool'");
  if (a.isTensor() && a.toTensor().numel() == 0) return;
  Recorder* recorder = Recorder::active();
  if (recorder != nullptr && b.isTensor() && recorder->number_of(b.toTensor()))
    return recorder->require_nonzero(b.toTensor());
  if (const auto divisor = integer_of(b)) TORCH_CHECK(*divisor != 0, "ZeroDivisionError");
}

void check_floor_divide(c10::Stack& stack, size_t begin) { check_division(stack, begin, "div_floor_cpu"); }
void check_remainder(c10::Stack& stack, size_t begin) { check_division(stack, begin, "remainder_cpu"); }
void check_fmod(c10::Stack& stack, size_t begin) { check_division(stack, begin, "fmod_cpu"); }
void check_rounded_div(c10::Stack& stack, size_t begin) {  // (self, other, rounding_mode)
  if (stack[begin + 2].isNone()) return;
  const bool floors = stack[begin + 2].toStringRef() == "floor";
  check_division(stack, begin, floors ? "div_floor_cpu" : "div_trunc_cpu");
}

// (self, .., number at kArg): what fills an integer tensor is an integer, without the rounding of FP32.
template <size_t kArg>
void fill_with_integer(c10::Stack& stack, size_t begin) {
  c10::IValue& value = stack[begin + kArg];
  constexpr double kLimit = 9223372036854775808.0;  // 2^63
  if (value.isDouble() && std::abs(value.toDouble()) < kLimit && is_integer(stack[begin]) &&
      !is_bool(stack[begin]))
    value = static_cast<int64_t>(value.toDouble());
}

void check_uniform(c10::Stack& stack, size_t begin) {  // (self, from, to, generator)
  const double from = stack[begin + 1].toDouble(), to = stack[begin + 2].toDouble();
  const c10::ScalarType type = c10::toRealValueType(stack[begin].toTensor().scalar_type());
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, type, "check_uniform_bounds", [&] {
    const double largest = std::numeric_limits<scalar_t>::max();
    const auto name = c10::scalarTypeToTypeMeta(type);
    TORCH_CHECK(std::abs(from) <= largest, "from is out of bounds for ", name);
    TORCH_CHECK(std::abs(to) <= largest, "to is out of bounds for ", name);
    TORCH_CHECK(from <= to, "uniform_ expects to return a [from, to) range, but found from=", from,
                " > to=", to);
    TORCH_CHECK(to - from <= largest, "uniform_ expects to-from <= std::numeric_limits<", type,
                ">::max(), but found to=", to, " and from=", from,
                " which result in to-from to exceed the limit");
  });
}

// The integers that a random number of this type may be: all that it has, or those below which it has every one.
int64_t largest_random(c10::ScalarType type) {
  int64_t largest = std::numeric_limits<int64_t>::max();
  if (c10::isFloatingType(type))
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, type, "random_",
                                    [&] { largest = int64_t{1} << std::numeric_limits<scalar_t>::digits; });
  else if (c10::isBarebonesUnsignedType(type))  // an int64 does not hold more
    largest = type == at::kUInt16 ? 0xffff : type == at::kUInt32 ? 0xffffffff : largest;
  else if (c10::isIntegralType(type, /*includeBool=*/true))
    AT_DISPATCH_INTEGRAL_TYPES_AND(at::kBool, type, "random_", [&] {
      largest = static_cast<int64_t>(std::numeric_limits<scalar_t>::max());
    });
  return largest;
}

void check_random_range(const at::Tensor& self, int64_t from, std::optional<int64_t> to) {
  using at::native::templates::check_from_to_in_range;
  const c10::ScalarType type = self.scalar_type();
  TORCH_CHECK(!to || from < *to, "random_ expects 'from' to be less than 'to', but got from=", from,
              " >= to=", *to);
  const int64_t last = to ? *to - 1 : largest_random(type);
  TORCH_CHECK(from <= last,
              "random_ expects 'from' casted to dtype to be less than or equal to 'to_inc' casted to "
              "dtype, but got from=",
              from, " > to_inc=", last);
  if (from != std::numeric_limits<int64_t>::min() || to)
    check_from_to_in_range(from, last, c10::scalarTypeToTypeMeta(type));
}
void check_random_to(c10::Stack& stack, size_t begin) {  // (self, to, generator)
  check_random_range(stack[begin].toTensor(), 0, stack[begin + 1].toInt());
}
void check_random_from(c10::Stack& stack, size_t begin) {  // (self, from, to, generator)
  const c10::IValue& to = stack[begin + 2];
  check_random_range(stack[begin].toTensor(), stack[begin + 1].toInt(), to.toOptional<int64_t>());
}

// Parameters of distributions: (self, .., number, generator) with the number at kArg.
template <size_t kArg>
void check_std_not_negative(c10::Stack& stack, size_t begin) {
  const double v = stack[begin + kArg].toDouble();
  TORCH_CHECK(v >= 0, "normal expects std >= 0.0, but found std ", v);
}

template <size_t kArg, const char* name, const char* parameter>
void check_positive(c10::Stack& stack, size_t begin) {
  const double v = stack[begin + kArg].toDouble();
  TORCH_CHECK(v > 0, name, "_ expects ", parameter, " > 0.0, but found ", parameter, "=", v);
}
constexpr char kLogNormal[] = "log_normal", kCauchy[] = "cauchy", kExponential[] = "exponential";
constexpr char kStandardDeviation[] = "std", kSigma[] = "sigma", kLambda[] = "lambda";

void check_bernoulli(c10::Stack& stack, size_t begin) {  // (self, p, generator)
  const double p = stack[begin + 1].toDouble();
  TORCH_CHECK(0 <= p && p <= 1, "bernoulli_ expects p to be in [0, 1], but got p=", p);
}

void check_geometric(c10::Stack& stack, size_t begin) {  // (self, p, generator)
  const double p = stack[begin + 1].toDouble();
  TORCH_CHECK(p > 0 && p < 1, "geometric_ expects p to be in (0, 1), but got p=", p);
}

void check_multinomial(c10::Stack& stack, size_t begin) {  // (self, num_samples, ..)
  const at::Tensor& self = stack[begin].toTensor();
  constexpr int64_t kMaxCategories = 1 << 24;  // counted in FP32
  TORCH_CHECK(at::isFloatingType(self.scalar_type()),
              "multinomial only supports floating-point dtypes for input, got: ", self.scalar_type());
  TORCH_CHECK(stack[begin + 1].toInt() > 0, "cannot sample n_sample <= 0 samples");
  TORCH_CHECK(self.dim() == 0 || self.size(-1) <= kMaxCategories, "number of categories cannot exceed 2^24");
}

constexpr char kVar[] = "var", kStd[] = "std", kVarMean[] = "var_mean", kStdMean[] = "std_mean";

template <const char* name>
void warn_about_freedom(c10::Stack& stack, size_t begin) {  // (self, dim, correction, keepdim)
  const at::Tensor& self = stack[begin].toTensor();
  const c10::IValue &dim = stack[begin + 1], &correction = stack[begin + 2];
  int64_t reduced = 1;
  if (dim.isNone() || dim.toIntVector().empty())
    reduced = self.numel();
  else if (self.dim() > 0)
    for (int64_t d : dim.toIntVector()) reduced *= self.size(d);
  if (static_cast<double>(reduced) <= (correction.isNone() ? 1.0 : correction.toScalar().toDouble()))
    TORCH_WARN(name,
               "(): degrees of freedom is <= 0. Correction should be strictly less than the reduction factor "
               "(input numel divided by output numel).");
}

// No dimensions are all of them to the kernel; PyTorch's shape function takes them for none.
void nansum_of_all(c10::Stack& stack, size_t begin) {  // (self, dim, keepdim, dtype)
  c10::IValue& dim = stack[begin + 1];
  if (!dim.isNone() && dim.toIntVector().empty()) dim = c10::IValue();
}

void check_bucketize(c10::Stack& stack, size_t begin) {  // (self, boundaries, ..)
  const at::Tensor& boundaries = stack[begin + 1].toTensor();
  TORCH_CHECK(boundaries.dim() == 1, "boundaries tensor must be 1 dimension, but got dim(", boundaries.dim(),
              ")");
}

void check_masked_scatter(c10::Stack& stack, size_t begin) {  // (self, mask, source)
  const c10::ScalarType mask = stack[begin + 1].toTensor().scalar_type();
  TORCH_CHECK(mask == at::kBool, "masked_scatter_ only supports boolean masks, but got mask with dtype ",
              mask);
}

// No program runs for rows without elements, and yet their indices have a range.
void check_empty_rows(const at::Tensor& table, int64_t dim, const at::Tensor& index) {
  if (table.numel() != 0 || index.numel() == 0) return;
  const int64_t size = table.dim() == 0 ? 1 : table.size(dim);
  const at::Tensor host = index.to(at::kCPU, at::kLong).contiguous();
  for (int64_t n = 0; n < host.numel(); ++n) {
    const int64_t id = host.const_data_ptr<int64_t>()[n];
    TORCH_CHECK(id >= 0 && id < size, "INDICES element is out of DATA bounds, id=", id, " axis_dim=", size);
  }
}

void check_index_select(c10::Stack& stack, size_t begin) {  // (self, dim, index)
  check_empty_rows(stack[begin].toTensor(), stack[begin + 1].toInt(), stack[begin + 2].toTensor());
}

void check_embedding(c10::Stack& stack, size_t begin) {  // (weight, indices, ..)
  const at::Tensor& weight = stack[begin].toTensor();
  TORCH_CHECK(weight.dim() == 2, "'weight' must be 2-D");
  check_empty_rows(weight, 0, stack[begin + 1].toTensor());
}

}  // namespace

PrepareFn prepare_for(const std::string& functional) {
  if (functional == "aten::index.Tensor" || functional == "aten::_unsafe_index.Tensor") return &prepare_index;
  for (const char* name : {"aten::index_put", "aten::_index_put_impl", "aten::_unsafe_index_put"})
    if (functional == name) return &prepare_index_put;
  for (const char* name : {"aten::mm", "aten::bmm", "aten::mv"})
    if (functional == name) return &check_same_dtype<0>;
  for (const char* name : {"aten::addmm", "aten::baddbmm", "aten::addbmm", "aten::addmv"})
    if (functional == name) return &check_same_dtype<1>;
  static const std::unordered_map<std::string, PrepareFn> checks = {
      {"aten::convolution", &check_convolution},
      {"aten::convolution_overrideable", &check_convolution},
      {"aten::dot", &check_dot},
      {"aten::vdot", &check_dot},
      {"aten::floor_divide", &check_floor_divide},
      {"aten::floor_divide.Scalar", &check_floor_divide},
      {"aten::remainder.Tensor", &check_remainder},
      {"aten::remainder.Scalar", &check_remainder},
      {"aten::remainder.Scalar_Tensor", &check_remainder},
      {"aten::fmod.Tensor", &check_fmod},
      {"aten::fmod.Scalar", &check_fmod},
      {"aten::div.Tensor_mode", &check_rounded_div},
      {"aten::div.Scalar_mode", &check_rounded_div},
      {"aten::fill.Scalar", &fill_with_integer<1>},
      {"aten::constant_pad_nd", &fill_with_integer<2>},
      {"aten::masked_fill.Scalar", &fill_with_integer<2>},
      {"aten::index_fill.int_Scalar", &fill_with_integer<3>},
      {"aten::scatter.value", &fill_with_integer<3>},
      {"aten::uniform", &check_uniform},
      {"aten::random.to", &check_random_to},
      {"aten::random.from", &check_random_from},
      {"aten::normal_functional", &check_std_not_negative<2>},
      {"aten::log_normal", &check_positive<2, kLogNormal, kStandardDeviation>},
      {"aten::cauchy", &check_positive<2, kCauchy, kSigma>},
      {"aten::exponential", &check_positive<1, kExponential, kLambda>},
      {"aten::bernoulli.p", &check_bernoulli},
      {"aten::geometric", &check_geometric},
      {"aten::multinomial", &check_multinomial},
      {"aten::var.correction", &warn_about_freedom<kVar>},
      {"aten::std.correction", &warn_about_freedom<kStd>},
      {"aten::var_mean.correction", &warn_about_freedom<kVarMean>},
      {"aten::std_mean.correction", &warn_about_freedom<kStdMean>},
      {"aten::nansum", &nansum_of_all},
      {"aten::bucketize.Tensor", &check_bucketize},
      {"aten::masked_scatter", &check_masked_scatter},
      {"aten::embedding", &check_embedding},
      {"aten::index_select", &check_index_select},
  };
  if (const auto it = checks.find(functional); it != checks.end()) return it->second;
  return nullptr;
}

}  // namespace trnsim::aten
