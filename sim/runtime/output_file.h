// Files that a run leaves. Whether one can be written is asked before the run that makes it: a run of hours must not
// end in an error about a missing folder. What is there stays until the new contents are whole.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trnsim::runtime {

// What a file that is there already may hold to be replaced. An empty one always may.
enum class Replaces : uint8_t { kAnything, kReport, kArray };

// False with the reason. Leaves nothing behind.
bool can_write(const std::string& path, Replaces replaces, std::string* why);

// Writes a temporary file and renames it. Devices, pipes and open descriptors (/dev/stdout) are written to as they are.
bool write_whole(const std::string& path, std::string_view contents, std::string* why);

}  // namespace trnsim::runtime
