// The device's random generator: Philox4x32-10. State is (seed, offset), 16 bytes; the offset counts 32-bit
// words.
#pragma once

#include <ATen/core/Generator.h>

#include <array>
#include <cstdint>
#include <optional>

namespace trnsim::aten {

class PhiloxGenerator final : public c10::GeneratorImpl {
 public:
  explicit PhiloxGenerator(c10::DeviceIndex device);
  static c10::DeviceType device_type() { return c10::DeviceType::PrivateUse1; }

  void set_current_seed(uint64_t seed) override;
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override;
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

  // seed lo, seed hi, offset lo, offset hi for one launch that uses `words` 32-bit words.
  std::array<uint32_t, 4> reserve(uint64_t words);

 private:
  PhiloxGenerator* clone_impl() const override;

  uint64_t seed_;
  uint64_t offset_ = 0;
};

const at::Generator& default_generator(c10::DeviceIndex device);  // -1: the current device
at::Generator new_generator(c10::DeviceIndex device);

// `given`, or the default generator; a generator of another device is a user error.
PhiloxGenerator& generator_or_default(const std::optional<at::Generator>& given, c10::DeviceIndex device);

// A CPU generator seeded from the device's stream, for random operators that run on the host.
at::Generator host_generator(const std::optional<at::Generator>& given, c10::DeviceIndex device);

}  // namespace trnsim::aten
