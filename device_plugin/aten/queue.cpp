#include "device_plugin/aten/queue.h"

#include <c10/util/Exception.h>

#include <array>
#include <chrono>
#include <cstring>

#include "device_plugin/aten/plan.h"

namespace trnsim::aten {
namespace {

constexpr int kMaxDevices = 128;
std::array<std::atomic<Queue*>, kMaxDevices> queues{};
std::mutex queues_mutex;

thread_local c10::DeviceIndex thread_device = 0;
// Stream ids per device; 0 is the default stream.
thread_local std::array<int32_t, kMaxDevices> thread_stream{};
std::atomic<int32_t> last_stream_id{0};

inline void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// How long a thread looks for work, or for completion, before it sleeps: waking a thread costs more than most
// programs.
constexpr auto kSpin = std::chrono::microseconds(60);
constexpr auto kWaitSlice = std::chrono::milliseconds(20);

template <typename Done>
bool spin_until(Done done) {
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 64; ++i) {
      if (done()) return true;
      pause_briefly();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return done();
}

std::atomic<void (*)()> wait_ended{nullptr};  // set: waits are watched
std::atomic<int64_t> wait_since_ns{0};

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The time of the outermost of the waits that overlap.
class WatchedWait {
 public:
  WatchedWait() {
    int64_t none = 0;
    if (wait_ended.load(std::memory_order_relaxed) != nullptr)
      mine_ = wait_since_ns.compare_exchange_strong(none, now_ns());
  }
  ~WatchedWait() {
    if (!mine_) return;
    wait_since_ns = 0;
    wait_ended.load()();
  }
  WatchedWait(const WatchedWait&) = delete;
  WatchedWait& operator=(const WatchedWait&) = delete;

 private:
  bool mine_ = false;
};

}  // namespace

Queue::Queue(c10::DeviceIndex device) : device_(device), ring_(kCapacity) {
  worker_ = std::thread([this] { worker_loop(); });
}

void Queue::worker_loop() {
  while (true) {
    auto has_work = [this] {
      return submitted_.load(std::memory_order_seq_cst) != completed_.load(std::memory_order_acquire) ||
             stopping_.load();
    };
    if (!spin_until(has_work)) {
      std::unique_lock lock(sleep_mutex_);
      worker_sleeps_.store(true, std::memory_order_seq_cst);
      work_arrived_.wait(lock, has_work);
      worker_sleeps_.store(false);
    }
    {
      std::lock_guard lock(executing_);
      while (run_some()) {
      }
    }
    if (stopping_.load() && submitted_.load() == completed_.load()) return;
  }
}

void Queue::wake_worker() {
  std::lock_guard lock(sleep_mutex_);
  work_arrived_.notify_one();
}

bool Queue::run_some() {
  const uint64_t next = completed_.load(std::memory_order_relaxed) + 1;
  if (submitted_.load(std::memory_order_acquire) < next) return false;
  Command& entry = ring_[next % kCapacity];
  try {
    if (dropping_.load(std::memory_order_relaxed)) {
    } else if (entry.plan != nullptr) {
      execute_plan(*entry.plan, entry.slices, entry.params);
    } else {
      entry.call();
    }
  } catch (...) {
    std::lock_guard lock(error_mutex_);
    if (error_ == nullptr) error_ = std::current_exception();
    has_error_ = true;
  }
  entry.plan.reset();
  entry.call = nullptr;
  entry.slices.clear();
  entry.params.clear();
  completed_.store(next, std::memory_order_seq_cst);
  if (waiting_.load(std::memory_order_seq_cst) > 0) {
    std::lock_guard lock(sleep_mutex_);
    work_done_.notify_all();
  }
  return true;
}

void Queue::wait_for(uint64_t sequence, bool interruptible) {
  using Clock = std::chrono::steady_clock;
  auto done = [&] { return completed_.load(std::memory_order_seq_cst) >= sequence; };
  if (done()) return;
  const WatchedWait watched;
  auto next_check = Clock::now() + kWaitSlice;
  while (!done()) {
    // A waiting thread runs the entries itself when the worker is not at it: no thread has to be woken.
    if (executing_.try_lock()) {
      std::lock_guard lock(executing_, std::adopt_lock);
      while (!done() && Clock::now() < next_check && run_some()) {
      }
    } else if (!spin_until(done)) {
      std::unique_lock lock(sleep_mutex_);
      waiting_.fetch_add(1, std::memory_order_seq_cst);
      work_done_.wait_for(lock, kWaitSlice, done);
      waiting_.fetch_sub(1);
    }
    if (Clock::now() < next_check) continue;
    next_check = Clock::now() + kWaitSlice;
    if (interruptible && interpreter() != nullptr && !done()) interpreter()->check_signals();
  }
}

void Queue::throw_error() {
  if (!has_error_.load(std::memory_order_acquire)) return;
  std::exception_ptr error;
  {
    std::lock_guard lock(error_mutex_);
    error.swap(error_);
    has_error_ = false;
  }
  if (error != nullptr) std::rethrow_exception(error);
}

void Queue::synchronize() { synchronize_to(last_submitted()); }

void Queue::synchronize_to(uint64_t sequence) {
  const DeviceUse use;
  wait_for(sequence, /*interruptible=*/true);
  throw_error();
}

void Queue::drain() noexcept { wait_for(last_submitted(), /*interruptible=*/false); }

void Queue::stop() {
  try {
    wait_for(last_submitted(), /*interruptible=*/true);
  } catch (...) {
    dropping_ = true;
  }
  stopping_ = true;
  wake_worker();
  if (worker_.joinable()) worker_.join();
}

Queue& queue(c10::DeviceIndex device) {
  TORCH_CHECK(device >= 0 && device < kMaxDevices, "user error: invalid device index ",
              static_cast<int>(device));
  Queue* existing = queues[device].load(std::memory_order_acquire);
  if (existing != nullptr) return *existing;
  ensure_initialized();
  std::lock_guard lock(queues_mutex);
  existing = queues[device].load();
  if (existing == nullptr) {
    existing = new Queue(device);  // lives until the process ends
    queues[device].store(existing, std::memory_order_release);
  }
  return *existing;
}

bool queue_exists(c10::DeviceIndex device) { return queues[device].load() != nullptr; }

void stop_all_queues() {
  for (auto& slot : queues)
    if (Queue* q = slot.load()) q->stop();
}

Waiting waiting() {
  Waiting w;
  const int64_t since = wait_since_ns.load();
  if (since != 0) w.seconds = static_cast<double>(now_ns() - since) * 1e-9;
  for (auto& slot : queues)
    if (Queue* q = slot.load()) w.entries += q->pending();
  return w;
}

void watch_waits(void (*ended)()) { wait_ended = ended; }

c10::DeviceIndex current_device() { return thread_device; }

void set_current_device(c10::DeviceIndex device) {
  if (device == thread_device) return;
  const int count = device_count();
  TORCH_CHECK(device >= 0 && device < count,
              "user error: invalid device index neuron:", static_cast<int>(device), "; this process sees ",
              count, " neuron device", count == 1 ? "" : "s",
              " (NEURON_RT_VISIBLE_CORES, NEURON_RT_NUM_CORES and NEURON_LOGICAL_NC_CONFIG decide)");
  thread_device = device;
}

c10::DeviceIndex exchange_current_device(c10::DeviceIndex device) {
  const c10::DeviceIndex previous = thread_device;
  if (device >= 0) set_current_device(device);
  return previous;
}

c10::DeviceIndex checked_index(c10::Device device) {
  if (!device.has_index()) return thread_device;
  if (device.index() != thread_device || !initialized()) {
    const int count = device_count();
    TORCH_CHECK(count > 0, "no neuron device is available: ", device_problem());
    TORCH_CHECK(device.index() < count, "user error: invalid device index ", device, "; this process sees ",
                count, " neuron device", count == 1 ? "" : "s",
                " (NEURON_RT_VISIBLE_CORES, NEURON_RT_NUM_CORES and NEURON_LOGICAL_NC_CONFIG decide)");
  }
  return device.index();
}

c10::Stream current_stream(c10::DeviceIndex device) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::DeviceType::PrivateUse1, device),
                     thread_stream[device]);
}

c10::Stream exchange_stream(c10::Stream stream) {
  const c10::DeviceIndex device = stream.device_index();
  const c10::Stream previous = current_stream(device);
  thread_stream[device] = static_cast<int32_t>(stream.id());
  return previous;
}

c10::Stream new_stream(c10::DeviceIndex device) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::DeviceType::PrivateUse1, device),
                     ++last_stream_id);
}

void copy_device_bytes(void* destination, const void* source, size_t bytes) {
  for (const void* p : {static_cast<const void*>(destination), source}) {
    const c10::DeviceIndex device = device_of_pointer(p);
    if (device >= 0) queue(device).synchronize();
  }
  if (!time_only()) std::memcpy(destination, source, bytes);
}

}  // namespace trnsim::aten
