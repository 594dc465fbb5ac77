#include "device_plugin/aten/list_call.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>

#include "device_plugin/aten/call.h"
#include "device_plugin/aten/promotion.h"
#include "device_plugin/aten/tensors.h"

namespace trnsim::aten {
namespace {

// Key words of operands begin with one of these.
enum Word : uint64_t { kNumber = 1, kTensor, kLikePrevious, kSame };

PlanCache& list_plans() {
  static auto* cache = new PlanCache;
  return *cache;
}

bool same_form(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && a.strides() == b.strides();
}

}  // namespace

ListCall::ListCall(const void* operation, std::string name) : name_(std::move(name)) {
  key_.push_back(reinterpret_cast<uint64_t>(operation));
  key_.push_back(rounds_factors() ? 1 : 0);
}

void ListCall::add(const at::Tensor& t, bool written) {
  if (!t.defined() || t.layout() != c10::kStrided || t.is_complex() || t.is_conj() || t.is_neg()) {
    usable_ = false;
    return;
  }
  if (!on_device(t)) {
    if (written || !t.device().is_cpu() || t.dim() != 0) {
      usable_ = false;
      return;
    }
    const bool real = c10::isFloatingType(t.scalar_type());
    CallNumber number;
    number.is_integer = !real;
    if (real)
      number.real = t.item<double>();
    else
      number.integer = t.item<int64_t>();
    add_number(number, t.scalar_type(), t.unsafeGetTensorImpl()->is_wrapped_number());
    return;
  }
  if (device_ < 0) device_ = t.device().index();
  usable_ &= device_ == t.device().index();
  Operand operand;
  operand.tensor = &t;
  operand.written = written;
  operand.same_as = static_cast<uint32_t>(operands_.size());
  operands_.push_back(operand);
  types_ |= uint64_t{1} << static_cast<unsigned>(t.scalar_type());
  const uint64_t flags = uint64_t{written} << 8;
  if (previous_ != nullptr && same_form(*previous_, t)) {
    key_.push_back(kLikePrevious | flags);
    return;
  }
  previous_ = &t;
  key_.push_back(kTensor | flags | static_cast<uint64_t>(t.scalar_type()) << 16 |
                 static_cast<uint64_t>(t.dim()) << 24);
  for (int64_t s : t.sizes()) key_.push_back(static_cast<uint64_t>(s));
  for (int64_t s : t.strides()) key_.push_back(static_cast<uint64_t>(s));
}

void ListCall::add(at::TensorList list, bool written) {
  for (const at::Tensor& t : list) add(t, written);
}

void ListCall::add(const c10::Scalar& value) {
  CallNumber number;
  number.is_integer = value.isIntegral(/*includeBool=*/true);
  if (value.isComplex() || value.isSymbolic()) {
    usable_ = false;
    return;
  }
  if (number.is_integer)
    number.integer = value.toLong();
  else
    number.real = value.toDouble();
  add_number(number, value.type(), /*wrapped=*/true);
}

void ListCall::add_number(const CallNumber& value, c10::ScalarType type, bool wrapped) {
  Operand operand;
  operand.number = static_cast<int32_t>(numbers_.size());
  operands_.push_back(operand);
  numbers_.push_back(value);
  number_types_.emplace_back(type, wrapped);
  key_.push_back(kNumber | static_cast<uint64_t>(type) << 8 | uint64_t{wrapped} << 16);
}

// Where PyTorch's checks depend on the value of a number, the operators decide one by one.
bool ListCall::numbers_fit() const {
  using enum c10::ScalarType;
  auto [low, high] = *range_of(Float);  // and integers of 32 bits, below
  for (const c10::ScalarType type : {Byte, Char, Short, Half}) {
    if ((types_ >> static_cast<unsigned>(type) & 1) == 0) continue;
    const auto range = *range_of(type);
    low = std::max(low, range.first);
    high = std::min(high, range.second);
  }
  return std::all_of(numbers_.begin(), numbers_.end(), [low = low, high = high](const CallNumber& n) {
    if (n.is_integer && n.integer != static_cast<int32_t>(n.integer)) return false;
    const double value = n.is_integer ? static_cast<double>(n.integer) : n.real;
    return !std::isfinite(value) || (value >= low && value <= high);
  });
}

// Operands that are the same view become one input. False: memory is shared in another way, so that the order of the
// operators decides what is read.
bool ListCall::find_shared_memory() {
  struct Extent {
    const std::byte* begin;
    const std::byte* end;
    uint32_t operand;
  };
  std::vector<Extent> extents;
  extents.reserve(operands_.size());
  for (uint32_t i = 0; i < operands_.size(); ++i) {
    const at::Tensor* t = operands_[i].tensor;
    if (t == nullptr || t->numel() == 0) continue;
    const auto* begin = static_cast<const std::byte*>(t->const_data_ptr());
    extents.push_back({begin, begin + tensor_extent_bytes(*t), i});
  }
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.operand < b.operand;
  });
  const Extent* open = nullptr;  // the one that reaches furthest
  for (const Extent& e : extents) {
    if (open == nullptr || e.begin >= open->end) {
      open = &e;
      continue;
    }
    const Operand& other = operands_[open->operand];
    if (e.begin != open->begin || !same_form(*operands_[e.operand].tensor, *other.tensor)) return false;
    operands_[e.operand].same_as = open->operand;
    key_.push_back(kSame | uint64_t{e.operand} << 8 | uint64_t{open->operand} << 32);
  }
  return true;
}

std::shared_ptr<GraphProgram> ListCall::record_program(const Record& record) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  std::shared_ptr<GraphProgram> program;
  try {
    Recorder recorder(name_, device_);
    recorder.begin();
    Recording recording{recorder, {}, {}};
    for (const Operand& operand : operands_) {
      recording.numbers.push_back(operand.number);
      if (operand.tensor == nullptr) {
        const auto& [type, wrapped] = number_types_[static_cast<size_t>(operand.number)];
        recording.operands.push_back(recorder.number(type, wrapped));
      } else if (operand.same_as != recording.operands.size()) {
        recording.operands.push_back(recording.operands[operand.same_as]);
      } else {
        const at::Tensor& t = *operand.tensor;
        recording.operands.push_back(recorder.input(t.scalar_type(), t.sizes(), t.strides(), 0));
      }
    }
    const std::vector<at::Tensor> results = record(recording);
    program = recorder.finish(results);
  } catch (const c10::NotImplementedError&) {
  }
  if (program == nullptr) {  // remembered, so that the next call goes to the operators at once
    program = std::make_shared<GraphProgram>();
    program->device = device_;
    program->name = name_;
  }
  return program;
}

std::optional<std::vector<at::Tensor>> ListCall::run(const Record& record) {
  if (!usable_ || device_ < 0 || Recorder::active() != nullptr || !numbers_fit() || !find_shared_memory())
    return std::nullopt;
  key_.push_back(static_cast<uint64_t>(device_));
  const uint64_t hash = hash_of(key_);
  std::shared_ptr<Plan> plan = list_plans().find(key_, hash);
  if (plan == nullptr) plan = list_plans().insert(key_, hash, record_program(record));
  if (plan->kind == Plan::Kind::kFallback) return std::nullopt;
  std::vector<at::Tensor> tensors;
  tensors.reserve(operands_.size());
  for (uint32_t i = 0; i < operands_.size(); ++i)
    if (operands_[i].tensor != nullptr && operands_[i].same_as == i) tensors.push_back(*operands_[i].tensor);
  return static_cast<GraphProgram&>(*plan)(tensors, numbers_);
}

}  // namespace trnsim::aten
