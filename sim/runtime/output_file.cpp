#include "sim/runtime/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace trnsim::runtime {

namespace {

namespace fs = std::filesystem;

std::string folder_of(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

bool begins_with(std::string_view text, std::string_view with) { return text.substr(0, with.size()) == with; }

// What cannot be replaced by a file of the same name. A descriptor of this process may lead to a file that others
// write as well.
bool is_stream(const std::string& path) {
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  if (!fs::exists(status)) return false;
  return !fs::is_regular_file(status) || begins_with(path, "/proc/") || begins_with(path, "/dev/fd/") ||
         begins_with(path, "/dev/std");
}

// -1 with errno.
int create_beside(const std::string& path, std::string* name) {
  static std::atomic<unsigned> count{0};
  *name = folder_of(path) + "/.trnsim-" + std::to_string(getpid()) + "-" + std::to_string(count++);
  return open(name->c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
}

bool write_all(int fd, std::string_view contents) {
  while (!contents.empty()) {
    const ssize_t n = write(fd, contents.data(), contents.size());
    if (n < 0 && errno != EINTR) return false;
    if (n > 0) contents.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

// Also closes. False with errno.
bool fill(int fd, std::string_view contents) {
  const bool good = write_all(fd, contents);
  const int error = errno;
  const bool closed = close(fd) == 0;
  if (!good) errno = error;
  return good && closed;
}

bool may_be_replaced(const std::string& path, Replaces replaces, std::string* why) {
  if (replaces == Replaces::kAnything) return true;
  std::ifstream in(path, std::ios::binary);
  std::string head(256, '\0');
  in.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<size_t>(in.gcount()));
  if (in.eof() && head.empty()) return true;
  const bool report = replaces == Replaces::kReport;
  if (report) {  // as this version and the plugin write it
    std::string dense;
    for (const char c : head)
      if (std::isspace(static_cast<unsigned char>(c)) == 0) dense += c;
    if (begins_with(dense, "{\"schema_version\":")) return true;
  } else if (begins_with(head, "\x93NUMPY")) {
    return true;
  }
  *why = std::string("the file that is there is no ") + (report ? "report" : ".npy file") +
         "; give another name, or remove it";
  return false;
}

}  // namespace

bool can_write(const std::string& path, Replaces replaces, std::string* why) {
  std::error_code code;
  if (path.empty()) {
    *why = "the name is empty";
    return false;
  }
  const fs::file_status status = fs::status(path, code);
  if (fs::is_directory(status)) {
    *why = "it is a folder";
    return false;
  }
  if (status.type() == fs::file_type::none) {
    *why = code.message();
    return false;
  }
  if (fs::exists(status)) {
    bool writable = access(path.c_str(), W_OK) == 0;
    if (writable && fs::is_regular_file(status)) {
      const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
      writable = fd >= 0;
      if (writable) close(fd);
    }
    if (!writable) {
      *why = std::strerror(errno);
      return false;
    }
    return is_stream(path) || may_be_replaced(path, replaces, why);
  }
  const std::string folder = folder_of(path);
  if (!fs::is_directory(folder, code)) {
    *why = "there is no folder " + folder;
    return false;
  }
  // Permissions do not tell: there are folders, as those of /proc, in which nobody can make a file.
  std::string trial;
  const int fd = create_beside(path, &trial);
  if (fd < 0) {
    *why = "no file can be made in the folder " + folder + ": " + std::strerror(errno);
    return false;
  }
  close(fd);
  unlink(trial.c_str());
  return true;
}

bool write_whole(const std::string& path, std::string_view contents, std::string* why) {
  std::error_code code;
  const bool exists = fs::exists(path, code), stream = is_stream(path);
  const auto failed = [why] {
    *why = std::strerror(errno);
    return false;
  };
  if (!stream) {
    // A link goes on to lead to the file.
    const std::string target = exists ? fs::canonical(path, code).string() : path;
    std::string temporary;
    const int fd = create_beside(target, &temporary);
    if (fd < 0 && !exists) return failed();
    if (fd >= 0) {
      struct stat old;
      if (exists && stat(target.c_str(), &old) == 0) fchmod(fd, old.st_mode & 07777);
      const bool filled = fill(fd, contents);
      if (filled && rename(temporary.c_str(), target.c_str()) == 0) return true;
      const int error = errno;
      unlink(temporary.c_str());
      errno = error;
      if (!filled || !exists) return failed();
    }
    // A file that is there may be writable where no other can be made in its place.
  }
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC | (stream ? O_APPEND : O_TRUNC));
  if (fd < 0 || !fill(fd, contents)) return failed();
  return true;
}

}  // namespace trnsim::runtime
