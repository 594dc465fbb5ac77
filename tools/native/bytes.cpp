#include "tools/native/bytes.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace trnsim::native {

bool read_file(const std::string& path, std::vector<uint8_t>* out, std::string* error) {
  std::error_code ec;
  const auto status = std::filesystem::status(path, ec);
  const char* what = std::filesystem::is_directory(status)        ? "a folder"
                     : std::filesystem::is_character_file(status) ? "a device"
                     : std::filesystem::is_block_file(status)     ? "a device"
                                                                  : nullptr;
  if (what != nullptr) {
    *error = "user error: " + path + " is " + what + "; give a file";
    return false;
  }
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    *error = "user error: cannot open " + path + ": " + std::strerror(errno);
    return false;
  }
  constexpr size_t kPart = size_t{1} << 20;  // pipes do not tell their length
  out->clear();
  while (in) {
    const size_t begin = out->size();
    out->resize(begin + kPart);
    in.read(reinterpret_cast<char*>(out->data() + begin), kPart);
    out->resize(begin + static_cast<size_t>(in.gcount()));
  }
  if (!in.bad()) return true;
  *error = "user error: cannot read " + path + ": " + std::strerror(errno);
  return false;
}

bool write_file(const std::string& path, const std::vector<uint8_t>& bytes, std::string* error) {
  std::string why;
  if (runtime::write_whole(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, &why))
    return true;
  *error = "user error: cannot write " + path + ": " + why;
  return false;
}

bool check_output(const std::string& path, runtime::Replaces replaces, std::string* error) {
  std::string why;
  if (runtime::can_write(path, replaces, &why)) return true;
  *error = "user error: cannot write '" + path + "': " + why;
  return false;
}

}  // namespace trnsim::native
