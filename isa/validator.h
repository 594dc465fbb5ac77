// What the chip would refuse, found before it runs. Each message names the instruction, its place, the limit
// and the next step. The rules come from the instruction table.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "isa/program.h"
#include "isa/table.h"

namespace trnsim::isa {

enum class Severity : uint8_t { kError, kWarning };
enum class ErrorClass : uint8_t { kUserError, kIllegalOnHardware, kNotSimulated };
std::string_view name(ErrorClass c);  // "user error" "illegal on hardware" "not simulated"

struct Diagnostic {
  Severity severity = Severity::kError;
  ErrorClass error_class = ErrorClass::kIllegalOnHardware;
  int core = 0;
  Engine engine = Engine::kSync;
  int64_t index = -1;     // instruction in the stream of `engine`; -1: the program as a whole
  uint32_t location = 0;  // Program::locations
  std::string message;    // complete: class, place, limit, next step
};

// Where the public sources disagree (config group `rules`).
struct RuleChoices {
  bool pe_column_tiling = true;         // the systolic array tiles columns, not only rows
  int64_t mx_moving_columns = 4096;     // of one microscaling product into fp32
  bool hardware_transpose_128 = false;  // hardware descriptors: last dim a multiple of 128, any first dim
};

struct ValidateOptions {
  size_t max_diagnostics = 50;           // errors, and as many warnings beside them
  int64_t sbuf_bytes_per_partition = 0;  // 0: of the generation
  RuleChoices rules;
};

// Empty when the program is legal. Never throws, safe on any decoded program.
std::vector<Diagnostic> validate(const Program& program, Generation generation,
                                 const ValidateOptions& options = {});
// For the target the program names; an unknown target is a user error.
std::vector<Diagnostic> validate(const Program& program, const ValidateOptions& options = {});

// The words for a target that is no generation.
std::string unknown_target(std::string_view target);

// The first error, or nullptr.
const Diagnostic* first_error(const std::vector<Diagnostic>& diagnostics);

}  // namespace trnsim::isa
