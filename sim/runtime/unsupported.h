// Calls of the ABI that do nothing yet: an honest status, a text, and one log line for the first use of each.
#pragma once

#include "sim/runtime/nrt.h"

namespace trnsim::runtime {

inline constexpr const char* kCollectives = "collectives between cores";
inline constexpr const char* kContinuousProfile =
    "continuous profiling; use nrt_profile_start or trnsim_report_json";
inline constexpr const char* kInspect = "capture sessions; use nrt_sys_trace_start or trnsim_report_json";
inline constexpr const char* kDebugStream = "device prints";
inline constexpr const char* kNetwork = "network adapters and peer memory";

// `what` follows the class "not simulated". FAILURE, or UNINITIALIZED / CLOSED.
NRT_STATUS unsupported(const char* function, const char* what);

}  // namespace trnsim::runtime
