// Takes the place of the real chip in the runtime tests.
#include "tests/cpp/runtime/fake_chip.h"

namespace trnsim::chip {
std::unique_ptr<Device> make_device(const config::Config&, Mode mode) {
  return testing::make_fake_chip(mode);
}
}  // namespace trnsim::chip
