#include "sim/runtime/log.h"

#include <syslog.h>

#include <cstdio>
#include <mutex>

#include "isa/utf8.h"

namespace trnsim::runtime {

std::atomic<uint8_t> g_log_level{static_cast<uint8_t>(LogLevel::kError)};

namespace {
std::mutex g_mutex;
std::string g_location = "console";
thread_local std::string t_error;
const char* const kNames[] = {"CRITICAL", "ERROR", "WARNING", "INFO", "DEBUG"};
}  // namespace

void set_log(LogLevel level, const std::string& location) {
  const std::lock_guard lock(g_mutex);
  g_log_level = static_cast<uint8_t>(level);
  g_location = location.empty() ? "console" : location;
}

void log(LogLevel level, const std::string& text) {
  if (!log_enabled(level)) return;
  const std::lock_guard lock(g_mutex);
  const char* name = kNames[static_cast<int>(level)];
  if (g_location == "syslog") {
    syslog(LOG_USER | LOG_NOTICE, "trnsim nrt %s: %s", name, text.c_str());
    return;
  }
  std::FILE* out = stderr;
  if (g_location != "console") {
    out = std::fopen(g_location.c_str(), "a");
    if (out == nullptr) out = stderr;
  }
  std::fprintf(out, "trnsim nrt %s: %s\n", name, text.c_str());
  if (out != stderr) std::fclose(out);
}

NRT_STATUS fail(NRT_STATUS status, const std::string& text) {
  if (log_enabled(LogLevel::kInfo))
    log(LogLevel::kInfo, std::string(nrt_get_status_as_str(status)) + ": " + text);
  t_error = isa::valid_utf8(text);  // Python takes nothing else
  return status;
}

const char* last_error() { return t_error.c_str(); }

}  // namespace trnsim::runtime
