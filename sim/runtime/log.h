// One line per event on the console or into a file, by NEURON_RT_LOG_LEVEL and NEURON_RT_LOG_LOCATION; and
// the text of the newest error of a thread, which every failing call leaves.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "sim/runtime/nrt.h"

namespace trnsim::runtime {

enum class LogLevel : uint8_t { kCritical, kError, kWarning, kInfo, kDebug };

void set_log(LogLevel level, const std::string& location);  // "console", "syslog" or a file
extern std::atomic<uint8_t> g_log_level;
inline bool log_enabled(LogLevel level) {
  return static_cast<uint8_t>(level) <= g_log_level.load(std::memory_order_relaxed);
}
void log(LogLevel level, const std::string& text);

// Leaves `text` for trnsim_last_error, logs it at level info, and returns `status`.
NRT_STATUS fail(NRT_STATUS status, const std::string& text);
const char* last_error();

}  // namespace trnsim::runtime
