// Differences between the PyTorch minors this device is built for, all in one place.
#pragma once

#include <torch/headeronly/version.h>

#define TRNSIM_TORCH_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR > (major) || (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

#if !TRNSIM_TORCH_AT_LEAST(2, 13)
#error "trnsim needs PyTorch 2.13 or newer"
#endif
