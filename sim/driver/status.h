// What a driver call gives back: a code in the spirit of errno, and a text for people.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace trnsim::driver {

enum class Code : uint8_t {
  kOk,
  kInvalid,    // EINVAL: a bad argument
  kNoMemory,   // ENOMEM: the pool is full
  kBusy,       // EBUSY: another process holds the core
  kNotEnough,  // fewer free cores than asked for
  kNotFound,   // ENOENT
  kIo,         // EIO: the host refused (files, mappings)
};

struct [[nodiscard]] Status {
  Code code = Code::kOk;
  std::string message;

  Status() = default;
  Status(Code c, std::string text) : code(c), message(std::move(text)) {}
  bool ok() const { return code == Code::kOk; }
};

}  // namespace trnsim::driver
