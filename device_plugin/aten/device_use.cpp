#include "device_plugin/aten/device_use.h"

#include <c10/util/Exception.h>
#include <c10/util/env.h>
#include <torch/csrc/autograd/node.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace trnsim::aten {
namespace {

std::atomic<bool> forked_after_use{false};
std::atomic<std::thread::id> closing_thread{};

std::atomic<const Interpreter*> the_interpreter{nullptr};

// A program that runs longer than this keeps its thread; the process ends without closing the runtime then.
constexpr auto kLongestWait = std::chrono::seconds(30);
// How long a thread that has just left the device may take to get back into Python and come again.
constexpr auto kReturnWait = std::chrono::milliseconds(500);

std::atomic<int> python_users{0};  // Python threads that have used the device, live and do not sleep here
struct PythonUser {
  PythonUser() { ++python_users; }
  ~PythonUser() { --python_users; }
};

[[noreturn]] void sleep_until_the_process_ends() {
  // The autograd engine would wait ten seconds at exit for a worker of its own that sleeps here.
  if (torch::autograd::get_current_node() != nullptr)
    c10::utils::set_env("TORCH_AUTOGRAD_SHUTDOWN_WAIT_LIMIT", "0", /*overwrite=*/false);
  if (const Interpreter* python = interpreter(); python != nullptr && python->is_thread()) --python_users;
  while (true) pause();
}

}  // namespace

thread_local int DeviceUse::depth_ = 0;
thread_local bool DeviceUse::registered_ = false;
std::atomic<int> DeviceUse::users_{0};
std::atomic<bool> DeviceUse::refusing_{false};

void DeviceUse::refuse() {
  users_.fetch_sub(1, std::memory_order_release);
  TORCH_CHECK(
      !forked_after_use.load(),
      "user error: the neuron device was used before fork(), and a forked child cannot use it. Start workers "
      "with multiprocessing's 'spawn' method, or touch the device only in the child.");
  const bool may_sleep = std::this_thread::get_id() != closing_thread.load() &&
                         (interpreter() == nullptr || !interpreter()->holds_lock());
  TORCH_CHECK(
      may_sleep,
      "user error: the neuron device was shut down at the exit of the interpreter and cannot be used any "
      "more. Finish the work before, or register it with atexit after importing torch.");
  sleep_until_the_process_ends();
}

void DeviceUse::register_thread() {
  registered_ = true;
  if (interpreter() == nullptr || !interpreter()->is_thread()) return;
  static thread_local const PythonUser user;
}

void DeviceUse::stay() {
  if (forked_after_use.load() || std::this_thread::get_id() == closing_thread.load()) return;
  if (interpreter() == nullptr || interpreter()->holds_lock()) return;
  sleep_until_the_process_ends();
}

bool DeviceUse::end_all() {
  closing_thread = std::this_thread::get_id();
  refusing_.store(true, std::memory_order_seq_cst);
  const auto deadline = std::chrono::steady_clock::now() + kLongestWait;
  while (users_.load(std::memory_order_acquire) > 0) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  // Threads between the device and Python come back, when they do, at once.
  const auto last_return = std::chrono::steady_clock::now() + kReturnWait;
  const int own = registered_ ? 1 : 0;
  while (python_users.load() > own && std::chrono::steady_clock::now() < last_return)
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  return true;
}

void set_interpreter(const Interpreter* interpreter) { the_interpreter.store(interpreter); }
const Interpreter* interpreter() { return the_interpreter.load(std::memory_order_acquire); }

void DeviceUse::note_fork_in_child() {
  forked_after_use = true;
  refusing_ = true;
}

bool in_bad_fork() { return forked_after_use.load(); }

}  // namespace trnsim::aten
