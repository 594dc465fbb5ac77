// Who works with the device, so that it can be taken down while other threads still issue work: shutdown first
// refuses new uses, then waits for those that have begun, and only then stops the queues and the runtime.
#pragma once

#include <atomic>

namespace trnsim::aten {

// Marks the calling thread as a user of the device while it lives. Entry points of PyTorch and Python hold one;
// nesting costs an increment. Constructing it throws a worded error in a forked child of a process that had used
// the device, and in the thread that shut it down. Any other thread that comes, or leaves, after the shutdown sleeps
// until the process ends: those are Python's daemon threads, and on their way back they would ask for the lock of an
// interpreter that is being taken down, which ends the process with an error.
class DeviceUse {
 public:
  DeviceUse() {
    if (depth_ == 0) enter();
    ++depth_;
  }
  ~DeviceUse() {
    if (--depth_ != 0) return;
    users_.fetch_sub(1, std::memory_order_release);
    if (refusing_.load(std::memory_order_acquire)) stay();
  }
  DeviceUse(const DeviceUse&) = delete;
  DeviceUse& operator=(const DeviceUse&) = delete;

  // Refuses new uses from now on and waits until the present ones have ended. False: one did not end in time.
  static bool end_all();
  static bool ended() { return refusing_.load(std::memory_order_acquire); }

 private:
  static void enter() {
    if (!registered_) register_thread();
    users_.fetch_add(1, std::memory_order_seq_cst);
    if (refusing_.load(std::memory_order_seq_cst)) refuse();
  }
  static void register_thread();
  static void refuse();
  static void stay();
  static void note_fork_in_child();
  friend void ensure_initialized();

  static thread_local int depth_;
  static thread_local bool registered_;
  static std::atomic<int> users_;
  static std::atomic<bool> refusing_;  // after shutdown, or in a forked child
};

// What the device asks of the interpreter, when there is one.
struct Interpreter {
  void (*check_signals)();  // throws when a signal handler of Python did
  bool (*is_thread)();      // whether the calling thread runs Python code
  bool (*holds_lock)();     // whether it holds the interpreter's lock
};
void set_interpreter(const Interpreter* interpreter);  // lives as long as the process
const Interpreter* interpreter();                      // null: none

bool in_bad_fork();  // this process was forked after the device had been used

}  // namespace trnsim::aten
