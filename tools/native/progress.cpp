#include "tools/native/progress.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <utility>

namespace trnsim::native {

namespace {
constexpr auto kPatience = std::chrono::seconds(2);
constexpr auto kRefresh = std::chrono::milliseconds(200);
constexpr const char* kClear = "\r\033[K";
}  // namespace

Progress::Progress(std::string what) : what_(std::move(what)) {
  if (isatty(STDERR_FILENO) != 0) thread_ = std::thread([this] { show(); });
}

Progress::~Progress() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Progress::step(std::string what) {
  const std::lock_guard lock(mutex_);
  what_ = std::move(what);
}

void Progress::show() {
  const auto start = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  const auto done = [this] { return done_; };
  if (changed_.wait_for(lock, kPatience, done)) return;
  do {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    std::fprintf(stderr, "%strnsim: %s, %.0f s", kClear, what_.c_str(), seconds.count());
    std::fflush(stderr);
  } while (!changed_.wait_for(lock, kRefresh, done));
  std::fputs(kClear, stderr);
}

}  // namespace trnsim::native
