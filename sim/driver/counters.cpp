#include "sim/driver/counters.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace trnsim::driver {

namespace {
constexpr char kMagic[8] = {'t', 'r', 'n', 'c', 'o', 'u', 'n', 't'};
constexpr char kPrefix[] = "proc-";

const char* const kCounterNames[] = {
    "success",
    "failure",
    "timeout",
    "exec_bad_input",
    "hw_error",
    "execute_completed_with_error",
    "execute_completed_with_num_error",
    "generic_error",
    "resource_error",
    "resource_nc_error",
    "execute_failed_to_queue",
    "invalid_error",
    "unsupported_neff_version",
    "oob_error",
    "hw_collectives_error",
    "hw_hbm_ue_error",
    "hw_nc_ue_error",
    "hw_dma_abort_error",
    "hw_repairable_hbm_ue_error",
    "execute_sw_nq_overflow",
    "execute_sw_semaphore_error",
    "execute_sw_event_error",
    "execute_sw_psum_collision",
    "execute_sw_sequencer_fatal",
    "model_load_count",
    "reset_req_count",
    "reset_fail_count",
    "inference_count",
    "flop_count",
    "nc_time_in_use",
};
static_assert(std::size(kCounterNames) == static_cast<size_t>(CoreCounter::kCount));

const char* const kCategoryNames[] = {
    "model_code",           "tensors",        "constants",     "model_shared_scratchpad",
    "nonshared_scratchpad", "runtime_memory", "driver_memory", "collectives",
    "notifications",        "dma_rings",      "uncategorized",
};
static_assert(std::size(kCategoryNames) == static_cast<size_t>(MemoryCategory::kCount));

bool try_lock(int fd) {
  struct flock l {};
  l.l_type = F_WRLCK;
  l.l_whence = SEEK_SET;
  return fcntl(fd, F_SETLK, &l) == 0;
}

void sweep(const std::string& directory) {
  std::error_code ec;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ec)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind(kPrefix, 0) != 0 || name == kPrefix + std::to_string(getpid())) continue;
    const int fd = ::open(entry.path().c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) continue;
    // An empty file may be one that its owner has not locked yet.
    if (lseek(fd, 0, SEEK_END) > 0 && try_lock(fd)) unlink(entry.path().c_str());
    ::close(fd);
  }
}
}  // namespace

const char* counter_name(CoreCounter counter) { return kCounterNames[static_cast<int>(counter)]; }
const char* category_name(MemoryCategory category) { return kCategoryNames[static_cast<int>(category)]; }

Counters::~Counters() {
  if (block_ != nullptr) munmap(block_, sizeof(CounterBlock));
  if (fd_ >= 0) {
    unlink(path_.c_str());
    ::close(fd_);
  }
}

Status Counters::open(const std::string& directory, int cores, const std::string& tag) {
  sweep(directory);
  path_ = directory + "/" + kPrefix + std::to_string(getpid());
  fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd_ < 0 || !try_lock(fd_) || ftruncate(fd_, sizeof(CounterBlock)) != 0)
    return {Code::kIo, "user error: cannot create " + path_ + ": " + std::strerror(errno)};
  void* p = mmap(nullptr, sizeof(CounterBlock), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (p == MAP_FAILED) return {Code::kIo, "user error: cannot map " + path_ + ": " + std::strerror(errno)};
  block_ = static_cast<CounterBlock*>(p);  // a new file is all zero: the counters start there
  std::memcpy(block_->magic, kMagic, 8);
  block_->version = 1;
  block_->bytes = sizeof(CounterBlock);
  block_->pid = getpid();
  block_->cores = static_cast<uint32_t>(cores);
  std::memcpy(block_->tag, tag.data(), std::min(tag.size(), sizeof block_->tag - 1));
  return {};
}

void Counters::add_memory(int core, MemoryCategory category, int64_t bytes) {
  MemoryCounter& c = block_->core[core].memory[static_cast<int>(category)];
  const int64_t now = c.present.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (bytes <= 0) return;
  c.total.fetch_add(bytes, std::memory_order_relaxed);
  int64_t peak = c.peak.load(std::memory_order_relaxed);
  while (now > peak && !c.peak.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
}

}  // namespace trnsim::driver
