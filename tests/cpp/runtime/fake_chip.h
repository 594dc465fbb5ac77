// A chip for tests of the driver and the runtime: programs are lines of text, a launch adds 1 to every byte.
//   program NAME / in NAME BYTES / out NAME BYTES / scratch NAME BYTES / const NAME BYTES VALUE /
//   ps SIMULATED_PS / fail CLASS
// Output i = input (i mod inputs) + 1; constants add their first byte. `fail` ends the launch with that
// class.
#pragma once

#include <atomic>
#include <memory>

#include "sim/chip/device.h"

namespace trnsim::testing {

std::unique_ptr<chip::Device> make_fake_chip(chip::Mode mode);
extern std::atomic<int> launches;
extern std::atomic<int> resets;
extern std::atomic<int> null_bindings;  // tensors without data in the newest launch
extern std::atomic<uint64_t>
    output_initialised;  // bytes of the last output of the newest launch that hold values
extern std::atomic<int> launch_sleep_ms;

}  // namespace trnsim::testing
