#include "device_plugin/aten/generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <cstring>
#include <mutex>

#include "device_plugin/aten/queue.h"

namespace trnsim::aten {
namespace {
constexpr int64_t kStateBytes = 16;
constexpr int kMaxDevices = 128;
}  // namespace

PhiloxGenerator::PhiloxGenerator(c10::DeviceIndex device)
    : c10::GeneratorImpl(c10::Device(c10::DeviceType::PrivateUse1, device),
                         c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      seed_(c10::default_rng_seed_val) {}

void PhiloxGenerator::set_current_seed(uint64_t seed) {
  seed_ = seed;
  offset_ = 0;
}

uint64_t PhiloxGenerator::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom());
  return seed_;
}

void PhiloxGenerator::set_state(const c10::TensorImpl& state) {
  TORCH_CHECK_TYPE(
      state.device().type() == c10::DeviceType::CPU && state.dtype() == caffe2::TypeMeta::Make<uint8_t>(),
      "user error: the state of a neuron generator is a CPU tensor of bytes (torch.uint8)");
  TORCH_CHECK_VALUE(state.numel() == kStateBytes && state.is_contiguous(),
                    "user error: the state of a neuron generator has ", kStateBytes,
                    " bytes (seed, offset), not ", state.numel());
  const auto* bytes = static_cast<const uint8_t*>(state.data());
  std::memcpy(&seed_, bytes, 8);
  std::memcpy(&offset_, bytes + 8, 8);
}

c10::intrusive_ptr<c10::TensorImpl> PhiloxGenerator::get_state() const {
  at::Tensor state = at::empty({kStateBytes}, at::TensorOptions().dtype(at::kByte).device(at::kCPU));
  auto* bytes = state.mutable_data_ptr<uint8_t>();
  std::memcpy(bytes, &seed_, 8);
  std::memcpy(bytes + 8, &offset_, 8);
  return state.getIntrusivePtr();
}

std::array<uint32_t, 4> PhiloxGenerator::reserve(uint64_t words) {
  std::lock_guard lock(mutex_);
  const uint64_t offset = offset_;
  offset_ += (words + 3) / 4 * 4;
  return {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32), static_cast<uint32_t>(offset),
          static_cast<uint32_t>(offset >> 32)};
}

PhiloxGenerator* PhiloxGenerator::clone_impl() const {
  auto* copy = new PhiloxGenerator(device_.index());
  copy->seed_ = seed_;
  copy->offset_ = offset_;
  return copy;
}

const at::Generator& default_generator(c10::DeviceIndex device) {
  if (device < 0) device = current_device();
  TORCH_CHECK(device < kMaxDevices, "user error: invalid device index ", static_cast<int>(device));
  static std::once_flag flags[kMaxDevices];
  static auto* generators = new std::array<at::Generator, kMaxDevices>;
  std::call_once(flags[device], [&] { (*generators)[device] = at::make_generator<PhiloxGenerator>(device); });
  return (*generators)[device];
}

at::Generator new_generator(c10::DeviceIndex device) {
  if (device < 0) device = current_device();
  const int count = device_count();
  TORCH_CHECK(device < count, "user error: invalid device index neuron:", static_cast<int>(device),
              "; this process sees ", count, " neuron devices");
  return at::make_generator<PhiloxGenerator>(device);
}

PhiloxGenerator& generator_or_default(const std::optional<at::Generator>& given, c10::DeviceIndex device) {
  const at::Generator& generator = given && given->defined() ? *given : default_generator(device);
  TORCH_CHECK(generator.device().type() == c10::DeviceType::PrivateUse1,
              "Expected a 'neuron' device type for generator but found '", generator.device().type(), "'");
  return *static_cast<PhiloxGenerator*>(generator.unsafeGetGeneratorImpl());
}

at::Generator host_generator(const std::optional<at::Generator>& given, c10::DeviceIndex device) {
  const std::array<uint32_t, 4> words = generator_or_default(given, device).reserve(4);
  uint64_t seed = words[0] | (static_cast<uint64_t>(words[1]) << 32);
  const uint64_t offset = words[2] | (static_cast<uint64_t>(words[3]) << 32);
  seed ^= (offset + 0x9e3779b97f4a7c15ull) * 0xbf58476d1ce4e5b9ull;  // another stream for every call
  return at::make_generator<at::CPUGeneratorImpl>(seed);
}

}  // namespace trnsim::aten
