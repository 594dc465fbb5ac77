#include "sim/driver/claims.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace trnsim::driver {

namespace {
constexpr char kMagic[8] = {'t', 'r', 'n', 'c', 'l', 'a', 'i', 'm'};
constexpr uint32_t kVersion = 1;
// Lock bytes lie behind the contents: [kLockBase] guards the file itself, kLockBase + 1 + core a core.
constexpr off_t kLockBase = off_t{1} << 30;

int record_lock(int fd, short type, off_t offset, bool wait) {
  struct flock l {};
  l.l_type = type;
  l.l_whence = SEEK_SET;
  l.l_start = offset;
  l.l_len = 1;
  int rc;
  do {
    rc = fcntl(fd, wait ? F_SETLKW : F_SETLK, &l);
  } while (rc != 0 && errno == EINTR);
  return rc;
}

pid_t lock_holder(int fd, off_t offset, off_t length) {
  struct flock l {};
  l.l_type = F_WRLCK;
  l.l_whence = SEEK_SET;
  l.l_start = offset;
  l.l_len = length;
  if (fcntl(fd, F_GETLK, &l) != 0 || l.l_type == F_UNLCK) return 0;
  // A holder in another process namespace shows as 0 or -1.
  return l.l_pid > 0 ? l.l_pid : -1;
}
}  // namespace

struct ClaimTable::Block {
  struct Entry {
    int32_t pid;
    char tag[60];
  };
  char magic[8];
  uint32_t version;
  uint32_t cores;
  Entry entries[kMaxCores];
};

ClaimTable::~ClaimTable() {
  release_all();
  if (block_ != nullptr) munmap(block_, sizeof(Block));
  if (fd_ >= 0) ::close(fd_);
}

Status ClaimTable::open(const std::string& directory, int cores) {
  const std::string path = directory + "/claims";
  if (cores < 1 || cores > kMaxCores)
    return {Code::kInvalid, "user error: a machine of " + std::to_string(cores) + " cores; the limit is " +
                                std::to_string(kMaxCores)};
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd_ < 0) return {Code::kIo, "user error: cannot open " + path + ": " + std::strerror(errno)};
  record_lock(fd_, F_WRLCK, kLockBase, true);
  struct stat st {};
  fstat(fd_, &st);
  const bool fresh = st.st_size != static_cast<off_t>(sizeof(Block));
  Status status;
  if (fresh && ftruncate(fd_, sizeof(Block)) != 0) {
    status = {Code::kIo, "user error: cannot size " + path + ": " + std::strerror(errno)};
  } else {
    void* p = mmap(nullptr, sizeof(Block), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (p == MAP_FAILED) {
      status = {Code::kIo, "user error: cannot map " + path + ": " + std::strerror(errno)};
    } else {
      block_ = static_cast<Block*>(p);
      const bool good = !fresh && std::memcmp(block_->magic, kMagic, 8) == 0 && block_->version == kVersion;
      const bool resized = good && block_->cores != static_cast<uint32_t>(cores);
      const pid_t user = !good || resized ? lock_holder(fd_, kLockBase + 1, kMaxCores) : 0;
      if (user != 0) {
        status = {Code::kBusy,
                  "user error: the machine in " + directory + " has " +
                      (good ? std::to_string(block_->cores) + " cores" : std::string("another layout")) +
                      " and is in use by process " + std::to_string(user) + ", this process asks for " +
                      std::to_string(cores) + " cores; use the same configuration or another TRNSIM_RUN_DIR"};
      } else if (!good || resized) {
        std::memset(block_, 0, sizeof(Block));
        std::memcpy(block_->magic, kMagic, 8);
        block_->version = kVersion;
        block_->cores = static_cast<uint32_t>(cores);
      }
    }
  }
  record_lock(fd_, F_UNLCK, kLockBase, false);
  cores_ = cores;
  return status;
}

Status ClaimTable::lock_core(int core, const std::string& tag) {
  if (record_lock(fd_, F_WRLCK, kLockBase + 1 + core, false) != 0) {
    ClaimOwner who;
    std::string text = "user error: core " + std::to_string(core) + " is held by another process";
    if (owner(core, &who))
      text += " (pid " + std::to_string(who.pid) + (who.tag.empty() ? "" : ", " + who.tag) + ")";
    return {Code::kBusy, text};
  }
  Block::Entry& entry = block_->entries[core];
  entry.pid = getpid();
  std::memset(entry.tag, 0, sizeof entry.tag);
  std::memcpy(entry.tag, tag.data(), std::min(tag.size(), sizeof entry.tag - 1));
  held_.push_back(core);
  return {};
}

void ClaimTable::unlock_core(int core) {
  block_->entries[core].pid = 0;
  record_lock(fd_, F_UNLCK, kLockBase + 1 + core, false);
  held_.erase(std::remove(held_.begin(), held_.end(), core), held_.end());
}

Status ClaimTable::claim_range(int first, int count, const std::string& tag) {
  if (first < 0 || count < 1 || first + count > cores_)
    return {Code::kInvalid, "user error: cores " + std::to_string(first) + " to " +
                                std::to_string(first + count - 1) +
                                " asked for; the machine has cores 0 to " + std::to_string(cores_ - 1)};
  std::vector<int> taken;
  for (int core = first; core < first + count; ++core) {
    if (std::find(held_.begin(), held_.end(), core) != held_.end()) continue;
    if (Status s = lock_core(core, tag); !s.ok()) {
      for (int c : taken) unlock_core(c);
      return s;
    }
    taken.push_back(core);
  }
  return {};
}

Status ClaimTable::claim_free(int count, int alignment, const std::string& tag, int* first) {
  if (count < 1 || count > cores_)
    return {Code::kInvalid, "user error: " + std::to_string(count) + " cores asked for; the machine has " +
                                std::to_string(cores_)};
  Status last;
  for (int start = 0; start + count <= cores_; start += alignment) {
    const auto own = [&](int core) { return core >= start && core < start + count; };
    if (std::any_of(held_.begin(), held_.end(), own)) continue;
    last = claim_range(start, count, tag);
    if (last.ok()) {
      *first = start;
      return last;
    }
    if (last.code != Code::kBusy) return last;
  }
  return {Code::kNotEnough,
          "user error: no run of " + std::to_string(count) + " free cores; " + std::to_string(free_cores()) +
              " of " + std::to_string(cores_) + " are free. " + last.message +
              "; end that process, ask for fewer cores (NEURON_RT_NUM_CORES) or use another "
              "machine (TRNSIM_RUN_DIR)"};
}

void ClaimTable::release_all() {
  while (!held_.empty()) unlock_core(held_.back());
}

bool ClaimTable::owner(int core, ClaimOwner* out) const {
  const pid_t pid = lock_holder(fd_, kLockBase + 1 + core, 1);
  if (pid == 0) return false;
  const Block::Entry& entry = block_->entries[core];
  out->pid = pid > 0 ? pid : entry.pid;
  out->tag.assign(entry.tag, strnlen(entry.tag, sizeof entry.tag));
  return true;
}

int ClaimTable::free_cores() const {
  int n = 0;
  for (int core = 0; core < cores_; ++core) n += lock_holder(fd_, kLockBase + 1 + core, 1) == 0 ? 1 : 0;
  return n;
}

}  // namespace trnsim::driver
