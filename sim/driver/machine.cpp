#include "sim/driver/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace trnsim::driver {
namespace fs = std::filesystem;

namespace {

constexpr char kAliveFile[] = "alive";
constexpr char kPrivatePrefix[] = "pid-";

Status io_error(const std::string& what, const std::string& path) {
  return {Code::kIo, "user error: cannot " + what + " " + path + ": " + std::strerror(errno) +
                         "; set TRNSIM_RUN_DIR to a directory that this user can write"};
}

Status make_directory(const std::string& path) {
  std::error_code ec;
  fs::create_directories(path, ec);
  if (ec) {
    errno = ec.value();
    return io_error("create the run directory", path);
  }
  if (access(path.c_str(), W_OK | X_OK) != 0) return io_error("write to the run directory", path);
  return {};
}

// POSIX record locks: they fall away when the owner dies, and forked children do not inherit them.
bool try_lock(int fd) {
  struct flock l {};
  l.l_type = F_WRLCK;
  l.l_whence = SEEK_SET;
  return fcntl(fd, F_SETLK, &l) == 0;
}

}  // namespace

uint64_t hbm_base_address(int stack) {
  // Two dies of two stacks each.
  const uint64_t die = static_cast<uint64_t>(stack) / 2;
  return die * 0x800000000000u + static_cast<uint64_t>(stack % 2) * 0x4000000000u;
}

std::string default_run_base() {
  const std::string leaf = "trnsim-" + std::to_string(getuid());
  if (access("/dev/shm", W_OK | X_OK) == 0) return "/dev/shm/" + leaf;
  const char* tmp = std::getenv("TMPDIR");
  return std::string(tmp != nullptr && *tmp != '\0' ? tmp : "/tmp") + "/" + leaf;
}

void sweep_stale_machines(const std::string& base) {
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(base, ec)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind(kPrivatePrefix, 0) != 0) continue;
    if (name == kPrivatePrefix + std::to_string(getpid())) continue;
    const std::string alive = entry.path().string() + "/" + kAliveFile;
    const int fd = ::open(alive.c_str(), O_RDWR | O_CLOEXEC);
    // A directory without the file may be one that is being made right now: leave it.
    if (fd < 0) continue;
    const bool stale = try_lock(fd);
    if (stale) {
      std::error_code ignored;
      fs::remove_all(entry.path(), ignored);
    }
    ::close(fd);
  }
}

RunDirectory::RunDirectory(RunDirectory&& other) noexcept
    : path_(std::move(other.path_)), private_(other.private_), lock_fd_(other.lock_fd_) {
  other.lock_fd_ = -1;
  other.private_ = false;
}

RunDirectory& RunDirectory::operator=(RunDirectory&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(private_, other.private_);
  std::swap(lock_fd_, other.lock_fd_);
  return *this;
}

RunDirectory::~RunDirectory() {
  if (private_ && !path_.empty()) {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  if (lock_fd_ >= 0) ::close(lock_fd_);
}

Status RunDirectory::open_shared(const std::string& path, RunDirectory* out) {
  RunDirectory dir;
  dir.path_ = path.empty() ? default_run_base() + "/machine" : path;
  if (Status s = make_directory(dir.path_); !s.ok()) return s;
  *out = std::move(dir);
  return {};
}

Status RunDirectory::open_private(RunDirectory* out) {
  const std::string base = default_run_base();
  if (Status s = make_directory(base); !s.ok()) return s;
  sweep_stale_machines(base);
  RunDirectory dir;
  dir.path_ = base + "/" + kPrivatePrefix + std::to_string(getpid());
  std::error_code ignored;
  fs::remove_all(dir.path_, ignored);  // left by a dead process with the same number
  if (Status s = make_directory(dir.path_); !s.ok()) return s;
  const std::string alive = dir.path_ + "/" + kAliveFile;
  dir.lock_fd_ = ::open(alive.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (dir.lock_fd_ < 0) return io_error("create", alive);
  if (!try_lock(dir.lock_fd_)) return io_error("lock", alive);
  dir.private_ = true;
  *out = std::move(dir);
  return {};
}

}  // namespace trnsim::driver
