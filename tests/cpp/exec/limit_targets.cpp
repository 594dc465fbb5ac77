// Linked into a second copy of the tests: the kernels then run as on an older host.
#include "hwy/targets.h"

namespace {
const bool kLimited = [] {
  hwy::DisableTargets(TRNSIM_DISABLED_TARGETS);
  return true;
}();
}  // namespace
