// The execution queue of one device: calls return at once, a worker thread runs them in order. Streams and
// events are positions in this one order, which makes every cross-stream dependency hold by construction.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "device_plugin/aten/allocator.h"
#include "device_plugin/aten/device_use.h"

namespace trnsim::aten {

struct Plan;

// One entry of the queue. Launches are the common case and stay free of allocations.
struct Command {
  std::shared_ptr<Plan> plan;         // a launch, or; keeps the program loaded until it has run
  std::function<void()> call;         // anything else; runs on the executing thread
  c10::SmallVector<Slice, 8> slices;  // inputs, then outputs
  c10::SmallVector<uint32_t, 8> params;
};

class Queue {
 public:
  explicit Queue(c10::DeviceIndex device);

  // Returns the sequence number of the entry. `fill` gets an empty Command.
  template <typename Fill>
  uint64_t submit(Fill&& fill);

  void synchronize();  // waits for everything; throws the first deferred error
  void synchronize_to(uint64_t sequence);
  void drain() noexcept;  // waits for everything; keeps the error for the next synchronize()
  // Runs `f` while no entry is being executed.
  template <typename F>
  void exclusively(F&& f) {
    std::lock_guard lock(executing_);
    f();
  }
  bool reached(uint64_t sequence) const { return completed_.load(std::memory_order_acquire) >= sequence; }
  uint64_t pending() const { return submitted_.load() - completed_.load(); }
  uint64_t last_submitted() const { return submitted_.load(std::memory_order_acquire); }
  c10::DeviceIndex device() const { return device_; }
  // At process exit, when nobody submits any more: runs what is queued and ends the worker. An interrupt meanwhile
  // drops the rest.
  void stop();

 private:
  // Far enough ahead of the device; what it holds should stay in the caches.
  static constexpr size_t kCapacity = 256;
  static constexpr size_t kCacheLineBytes = 64;

  void worker_loop();
  bool run_some();  // by whoever holds executing_
  // Interruptible: may throw what a signal handler of the interpreter throws.
  void wait_for(uint64_t sequence, bool interruptible);
  void throw_error();

  // What submitting threads write, what the executing thread writes and what hardly changes lie on different lines: two
  // threads that write to one line pay for it with every entry.
  alignas(kCacheLineBytes) std::mutex submit_mutex_;
  std::atomic<uint64_t> submitted_{0};
  alignas(kCacheLineBytes) std::mutex executing_;  // held by who runs entries: the worker, or one that waits
  std::atomic<uint64_t> completed_{0};
  alignas(kCacheLineBytes) const c10::DeviceIndex device_;
  std::vector<Command> ring_;
  std::atomic<bool> worker_sleeps_{false};
  std::atomic<int> waiting_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> has_error_{false};
  std::atomic<bool> dropping_{false};
  std::mutex error_mutex_;
  std::exception_ptr error_;  // the first one since the last synchronize()
  std::mutex sleep_mutex_;
  std::condition_variable work_arrived_, work_done_;
  std::thread worker_;

  void wake_worker();
};

template <typename Fill>
uint64_t Queue::submit(Fill&& fill) {
  const DeviceUse use;
  uint64_t sequence;
  {
    std::lock_guard lock(submit_mutex_);
    sequence = submitted_.load(std::memory_order_relaxed) + 1;
    // Full: wait for the oldest entry. Others wait for this lock, so Python must not be asked anything here.
    if (sequence > kCapacity) wait_for(sequence - kCapacity, /*interruptible=*/false);
    Command& entry = ring_[sequence % kCapacity];
    fill(entry);
    submitted_.store(sequence, std::memory_order_seq_cst);
  }
  if (worker_sleeps_.load(std::memory_order_seq_cst)) wake_worker();
  if (launch_blocking()) synchronize();
  return sequence;
}

Queue& queue(c10::DeviceIndex device);  // starts the worker on first use
bool queue_exists(c10::DeviceIndex device);
void stop_all_queues();

// ---- what a display of progress needs to know
struct Waiting {
  double seconds = 0;    // how long a thread has been waiting for a queue; 0: none does
  uint64_t entries = 0;  // still to be executed, all queues
};
Waiting waiting();
// From now on waits are timed, and `ended` runs in the thread that waited before it goes on.
void watch_waits(void (*ended)());

// ---- the current device and streams of a thread
c10::DeviceIndex current_device();
void set_current_device(c10::DeviceIndex device);            // checks the index
c10::DeviceIndex exchange_current_device(c10::DeviceIndex);  // negative: no change
c10::DeviceIndex checked_index(c10::Device device);          // -1 means the current one
c10::Stream current_stream(c10::DeviceIndex device);
c10::Stream exchange_stream(c10::Stream stream);
c10::Stream new_stream(c10::DeviceIndex device);

// Device-to-device bytes at host addresses of mapped HBM, after waiting for the queue.
void copy_device_bytes(void* destination, const void* source, size_t bytes);

}  // namespace trnsim::aten
