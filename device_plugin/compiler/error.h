// What the compiler throws inside its library; Compiler::compile turns it into a CompileResult.
#pragma once

#include <stdexcept>
#include <string>

#include "device_plugin/compiler/compiler.h"

namespace trnsim::compiler {

class CompileError : public std::runtime_error {
 public:
  using Kind = CompileResult::Status;
  CompileError(Kind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

// "not simulated": a case the compiler does not lower. The device falls back and reports the message.
[[noreturn]] inline void throw_unsupported(const std::string& message) {
  throw CompileError(CompileError::Kind::kUnsupported, "not simulated: " + message);
}
// The caller broke a contract between the parts (a bug of ours, not of the user).
[[noreturn]] inline void throw_internal(const std::string& message) {
  throw CompileError(CompileError::Kind::kInternalError, "internal compiler error: " + message);
}
[[noreturn]] inline void throw_user_error(const std::string& message) {
  throw CompileError(CompileError::Kind::kUserError, "user error: " + message);
}

}  // namespace trnsim::compiler
