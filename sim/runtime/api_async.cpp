// Explicit async calls: a worker per (logical core, execution unit, queue) runs requests in order; sequence
// numbers, pollable completion handles and error trackers tell the caller how far it is.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "sim/runtime/log.h"
#include "sim/runtime/runtime.h"
#include "sim/runtime/unsupported.h"

namespace trnsim::runtime {
namespace {

constexpr size_t kQueueDepth = 1024;
constexpr int kQueuesPerUnit[NRTA_XU_TYPE_NUM] = {1, 1, 2, 1, 3};
constexpr uint64_t kCounterMask = (uint64_t{1} << 48) - 1;

struct ErrorTracker {
  std::mutex mutex;
  std::vector<nrta_error_t> errors;
  std::vector<nrta_error_t> listed;
};
using TrackerTable = HandleTable<ErrorTracker, HandleKind::kErrorTracker>;

TrackerTable& trackers() {
  static TrackerTable* const table = new TrackerTable;
  return *table;
}

uint16_t unit_id(uint32_t lnc, int unit, int queue) {
  return static_cast<uint16_t>(lnc << 8 | static_cast<uint32_t>(unit) << 4 | static_cast<uint32_t>(queue));
}
uint16_t unit_of(nrta_seq_t s) { return static_cast<uint16_t>(s >> 48); }

class Queue {
 public:
  explicit Queue(uint16_t id) : id_(id), worker_([this] { run(); }) {}
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  ~Queue() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_one();
    worker_.join();
  }

  bool push(std::function<NRT_STATUS()> work, nrta_error_tracker_t* tracker, nrta_seq_t* sequence) {
    {
      const std::lock_guard lock(mutex_);
      if (tasks_.size() >= kQueueDepth) return false;
      tasks_.push_back({std::move(work), tracker});
      *sequence = encode(++scheduled_);
    }
    wake_.notify_one();
    return true;
  }

  nrta_seq_t last() {
    const std::lock_guard lock(mutex_);
    return encode(scheduled_);
  }

  // False: that number was never given out.
  bool completed(nrta_seq_t s, bool* done) {
    const std::lock_guard lock(mutex_);
    if ((s & kCounterMask) > scheduled_) return false;
    *done = (s & kCounterMask) <= done_;
    return true;
  }

  bool completion_handle(nrta_seq_t s, int* fd) {
    const std::lock_guard lock(mutex_);
    if ((s & kCounterMask) > scheduled_) return false;
    *fd = eventfd(0, EFD_CLOEXEC);
    if (*fd < 0) return false;
    // The caller may close its end at any time, so the signal goes through one of our own.
    const int ours = fcntl(*fd, F_DUPFD_CLOEXEC, 0);
    if (ours < 0) {
      ::close(*fd);
      return false;
    }
    if ((s & kCounterMask) <= done_)
      signal(ours);
    else
      waiting_.emplace(s & kCounterMask, ours);
    return true;
  }

 private:
  struct Task {
    std::function<NRT_STATUS()> work;
    nrta_error_tracker_t* tracker;
  };

  nrta_seq_t encode(uint64_t counter) const { return static_cast<uint64_t>(id_) << 48 | counter; }

  static void signal(int fd) {
    const uint64_t one = 1;
    if (::write(fd, &one, sizeof one) < 0)
      log(LogLevel::kWarning, "a completion handle could not be signalled");
    ::close(fd);
  }

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return stop_ || !tasks_.empty(); });
      if (tasks_.empty()) return;  // stop, with nothing left to do
      Task task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      const NRT_STATUS status = task.work();
      if (status != NRT_SUCCESS) {
        if (ErrorTracker* t = trackers().get(task.tracker)) {
          const std::lock_guard tracker_lock(t->mutex);
          t->errors.push_back({encode(done_ + 1), static_cast<uint64_t>(status)});
        }
      }
      lock.lock();
      ++done_;  // written here only
      const auto end = waiting_.upper_bound(done_);
      for (auto it = waiting_.begin(); it != end; ++it) signal(it->second);
      waiting_.erase(waiting_.begin(), end);
    }
  }

  const uint16_t id_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Task> tasks_;
  std::multimap<uint64_t, int> waiting_;
  uint64_t scheduled_ = 0;
  uint64_t done_ = 0;
  bool stop_ = false;
  std::thread worker_;  // last: it uses all of the above
};

std::mutex g_mutex;
std::map<uint16_t, std::unique_ptr<Queue>> g_queues;

Queue* find_queue(uint16_t id) {
  const std::lock_guard lock(g_mutex);
  const auto it = g_queues.find(id);
  return it == g_queues.end() ? nullptr : it->second.get();
}

NRT_STATUS schedule(const char* function, uint32_t lnc, nrta_xu_t unit, int queue,
                    nrta_error_tracker_t* tracker, nrta_seq_t* sequence, std::function<NRT_STATUS()> work) {
  if (sequence == nullptr)
    return fail(NRT_INVALID, std::string("user error: ") + function + ": sequence is NULL");
  if (trackers().get(tracker) == nullptr) return bad_handle(function, "error tracker");
  if (queue < 0 || queue >= kQueuesPerUnit[unit])
    return fail(NRT_INVALID, std::string("user error: ") + function + ": queue " + std::to_string(queue) +
                                 "; this execution unit has " + std::to_string(kQueuesPerUnit[unit]));
  if (g_runtime->cores[lnc]->dead.load())
    return fail(NRT_EXEC_UNIT_UNRECOVERABLE, std::string(function) + ": logical core " + std::to_string(lnc) +
                                                 " stopped after an error; nrt_close and nrt_init reset it");
  const uint16_t id = unit_id(lnc, unit, queue);
  Queue* q = nullptr;
  {
    const std::lock_guard lock(g_mutex);
    auto& slot = g_queues[id];
    if (slot == nullptr) slot = std::make_unique<Queue>(id);
    q = slot.get();
  }
  if (!q->push(std::move(work), tracker, sequence))
    return fail(NRT_QUEUE_FULL, std::string(function) + ": " + std::to_string(kQueueDepth) +
                                    " requests wait already; poll a sequence before the next");
  return NRT_SUCCESS;
}

uint32_t core_of(const Tensor& t) { return t.vnc < 0 ? 0 : static_cast<uint32_t>(t.vnc); }

// A timeout or a hardware error of an async run stops the core: requests behind it must not run on wrong
// values.
NRT_STATUS run_and_stop(nrt_model_t* model, const nrt_tensor_set_t* in, nrt_tensor_set_t* out, uint32_t lnc) {
  const NRT_STATUS s = nrt_execute(model, in, out);
  if (s == NRT_TIMEOUT || s == NRT_HW_ERROR) g_runtime->cores[lnc]->dead = true;
  return s;
}

}  // namespace

void close_async() {
  std::map<uint16_t, std::unique_ptr<Queue>> queues;
  {
    const std::lock_guard lock(g_mutex);
    queues.swap(g_queues);
  }
  queues.clear();  // drains and joins
  trackers().release_all([](ErrorTracker& t) { t.errors.clear(); });
}

}  // namespace trnsim::runtime

using namespace trnsim::runtime;  // NOLINT

extern "C" {

NRT_STATUS nrta_tensor_write(nrt_tensor_t* tensor, const void* buffer, uint64_t offset, uint64_t size,
                             int queue, nrta_error_tracker_t* tracker, nrta_seq_t* sequence) {
  TRNSIM_REQUIRE_INIT();
  const Tensor* t = tensors().get(tensor);
  if (t == nullptr) return bad_handle("nrta_tensor_write", "tensor");
  return schedule("nrta_tensor_write", core_of(*t), NRTA_XU_TENSOR_WRITE, queue, tracker, sequence,
                  [=] { return nrt_tensor_write(tensor, buffer, offset, size); });
}

NRT_STATUS nrta_tensor_read(void* buffer, nrt_tensor_t* tensor, uint64_t offset, uint64_t size, int queue,
                            nrta_error_tracker_t* tracker, nrta_seq_t* sequence) {
  TRNSIM_REQUIRE_INIT();
  const Tensor* t = tensors().get(tensor);
  if (t == nullptr) return bad_handle("nrta_tensor_read", "tensor");
  return schedule("nrta_tensor_read", core_of(*t), NRTA_XU_TENSOR_READ, queue, tracker, sequence,
                  [=] { return nrt_tensor_read(tensor, buffer, offset, size); });
}

NRT_STATUS nrta_tensor_copy(nrt_tensor_t* source, uint64_t source_offset, nrt_tensor_t* destination,
                            uint64_t destination_offset, uint64_t size, int queue,
                            nrta_error_tracker_t* tracker, nrta_seq_t* sequence) {
  TRNSIM_REQUIRE_INIT();
  if (tensors().get(source) == nullptr) return bad_handle("nrta_tensor_copy", "source");
  const Tensor* t = tensors().get(destination);
  if (t == nullptr) return bad_handle("nrta_tensor_copy", "destination");
  return schedule("nrta_tensor_copy", core_of(*t), NRTA_XU_TENSOR_OP, queue, tracker, sequence, [=] {
    return nrt_tensor_copy(source, source_offset, destination, destination_offset, size);
  });
}

NRT_STATUS nrta_execute_schedule(nrt_model_t* model, const nrt_tensor_set_t* inputs,
                                 nrt_tensor_set_t* outputs, int queue, nrta_error_tracker_t* tracker,
                                 nrta_seq_t* sequence) {
  TRNSIM_REQUIRE_INIT();
  const ModelSlot* m = models().get(model);
  if (m == nullptr) return bad_handle("nrta_execute_schedule", "model");
  const uint32_t lnc = m->vnc;
  return schedule("nrta_execute_schedule", lnc, NRTA_XU_COMPUTE, queue, tracker, sequence,
                  [=] { return run_and_stop(model, inputs, outputs, lnc); });
}

NRT_STATUS nrta_cc_prepare(nrt_cc_comm_t*, nrt_tensor_list_t*, nrt_tensor_list_t*, nrt_dtype_t, nrt_op_type_t,
                           nrt_cc_op_type_t, nrt_cc_context_t** context) {
  if (context != nullptr) *context = nullptr;
  return unsupported(__func__, kCollectives);
}

NRT_STATUS nrta_cc_schedule(nrt_cc_context_t**, int, nrta_error_tracker_t*, nrta_seq_t*) {
  return unsupported(__func__, kCollectives);
}

NRT_STATUS nrta_is_completed(nrta_seq_t sequence, bool* completed) {
  TRNSIM_REQUIRE_INIT();
  Queue* q = find_queue(unit_of(sequence));
  if (completed == nullptr || q == nullptr || !q->completed(sequence, completed))
    return fail(NRT_INVALID, "user error: nrta_is_completed: sequence " + std::to_string(sequence) +
                                 " was never scheduled");
  return NRT_SUCCESS;
}

NRT_STATUS nrta_get_sequence(uint32_t lnc, nrta_xu_t unit, uint32_t queue, nrta_seq_t* sequence) {
  TRNSIM_REQUIRE_INIT();
  if (sequence == nullptr || lnc >= g_runtime->cores.size() || unit < 0 || unit >= NRTA_XU_TYPE_NUM ||
      queue >= static_cast<uint32_t>(kQueuesPerUnit[unit]))
    return fail(NRT_INVALID, "user error: nrta_get_sequence: no queue " + std::to_string(queue) +
                                 " of unit " + std::to_string(unit) + " on logical core " +
                                 std::to_string(lnc));
  const uint16_t id = unit_id(lnc, unit, static_cast<int>(queue));
  Queue* q = find_queue(id);
  *sequence = q == nullptr ? static_cast<uint64_t>(id) << 48 : q->last();
  return NRT_SUCCESS;
}

NRT_STATUS nrta_get_completion_handle(nrta_seq_t sequence, int* fd) {
  TRNSIM_REQUIRE_INIT();
  Queue* q = find_queue(unit_of(sequence));
  if (fd == nullptr || q == nullptr || !q->completion_handle(sequence, fd))
    return fail(NRT_INVALID, "user error: nrta_get_completion_handle: sequence " + std::to_string(sequence) +
                                 " was never scheduled");
  return NRT_SUCCESS;
}

NRT_STATUS nrta_error_tracker_create(uint32_t lnc, nrta_error_tracker_t** tracker) {
  TRNSIM_REQUIRE_INIT();
  if (tracker == nullptr || lnc >= g_runtime->cores.size())
    return fail(NRT_INVALID, "user error: nrta_error_tracker_create: logical core " + std::to_string(lnc) +
                                 " of " + std::to_string(g_runtime->cores.size()));
  uint32_t index = 0;
  ErrorTracker* t = trackers().acquire(&index);
  if (t == nullptr) return fail(NRT_RESOURCE, "user error: too many error trackers");
  t->errors.clear();
  *tracker = static_cast<nrta_error_tracker_t*>(trackers().publish(index));
  return NRT_SUCCESS;
}

void nrta_error_tracker_destroy(nrta_error_tracker_t* tracker) {
  if (!trackers().release(tracker, [](ErrorTracker& t) { t.errors.clear(); }) && ready())
    bad_handle("nrta_error_tracker_destroy", "error tracker");
}

NRT_STATUS nrta_error_tracker_get_list(nrta_error_tracker_t* tracker, const nrta_error_t** list,
                                       size_t* count) {
  TRNSIM_REQUIRE_INIT();
  ErrorTracker* t = trackers().get(tracker);
  if (t == nullptr) return bad_handle("nrta_error_tracker_get_list", "error tracker");
  if (list == nullptr || count == nullptr)
    return fail(NRT_INVALID, "user error: nrta_error_tracker_get_list: NULL");
  const std::lock_guard lock(t->mutex);
  t->listed = t->errors;
  *list = t->listed.data();
  *count = t->listed.size();
  return NRT_SUCCESS;
}

}  // extern "C"
