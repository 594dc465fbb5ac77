// The arguments of one call, taken apart: the key of its plan, its device tensors, its run-time parameters.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <optional>
#include <utility>

#include "device_plugin/aten/op_table.h"
#include "device_plugin/aten/plan.h"

namespace trnsim::aten {

// The FP32 number that a parameter holds. The largest finite values stand for doubles beyond its range: a mask value
// must not turn into infinity.
float narrowed_to_float(double value);

// The smallest and the largest number that an element of this type takes; nothing where PyTorch's checks do not ask.
std::optional<std::pair<double, double>> range_of(c10::ScalarType type);

// What an argument position of type Tensor turned out to be.
struct TensorRef {
  enum class Kind : uint8_t { kNone, kDevice, kHostScalar } kind = Kind::kNone;
  int32_t index = -1;  // kDevice: position in Call::tensors; kHostScalar: parameter slot
};

class Call {
 public:
  Call(const Overload& overload, const c10::Stack& stack, size_t begin)
      : overload_(overload), stack_(stack), begin_(begin) {}

  // Reads the arguments; throws when tensors are on different devices.
  void read();

  PlanKey key;
  c10::SmallVector<const at::Tensor*, 8> tensors;  // distinct device tensors, in order of appearance
  c10::SmallVector<uint32_t, 8> params;
  c10::SmallVector<isa::Dtype, 8> param_dtypes;
  c10::SmallVector<std::pair<int32_t, const at::Tensor*>, 2>
      host_scalars;  // parameter slots of 0-dim CPU tensors
  c10::DeviceIndex device = -1;
  const char* unsupported = nullptr;  // a reason found while reading
  bool wide = false;                  // a number among the arguments is an integer beyond 32 bits
  // Positions in `tensors` of inputs that share bytes with a written tensor without being the same view.
  c10::SmallVector<int32_t, 4> overlapping;

  c10::SmallVector<TensorRef, 12> refs;       // one per argument, filled for tensors ...
  c10::SmallVector<TensorRef, 16> list_refs;  // ... and one per list element, in order
  c10::SmallVector<int32_t, 12>
      scalar_slots;  // parameter of a scalar argument; -1: a constant of the program

 private:
  TensorRef read_tensor(const at::Tensor& t, size_t argument, bool deduplicate);
  int32_t read_scalar(const c10::IValue& v, bool constant);
  void find_overlaps();
  int32_t add_param(double value);
  int32_t add_param(int64_t value);
  [[noreturn]] void wrong_device(const at::Tensor& t, size_t argument) const;

  const Overload& overload_;
  const c10::Stack& stack_;
  const size_t begin_;
};

}  // namespace trnsim::aten
