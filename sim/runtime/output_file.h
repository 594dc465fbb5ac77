// Whether a result can be written, asked before the run that makes it: a run of hours must not end in an error
// about a missing folder.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

namespace trnsim::runtime {

// False with the reason. Creates nothing.
inline bool can_write(const std::string& path, std::string* why) {
  namespace fs = std::filesystem;
  std::error_code code;
  if (path.empty()) {
    *why = "the name is empty";
    return false;
  }
  if (fs::is_directory(path, code)) {
    *why = "it is a folder";
    return false;
  }
  const bool exists = fs::exists(path, code);
  const fs::path parent = fs::path(path).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  if (!exists && !fs::is_directory(folder, code)) {
    *why = "there is no folder " + folder;
    return false;
  }
  // A file that is there may be written although its folder may not.
  if (access(exists ? path.c_str() : folder.c_str(), exists ? W_OK : W_OK | X_OK) != 0) {
    *why = (exists ? "" : "the folder " + folder + ": ") + std::strerror(errno);
    return false;
  }
  return true;
}

}  // namespace trnsim::runtime
