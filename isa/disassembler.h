// Program -> assembler text (.trnasm). isa/assembler.h describes the language; text and program round-trip
// exactly.
#pragma once

#include <string>

#include "isa/program.h"

namespace trnsim::isa {

struct DisassembleOptions {
  bool constants = true;  // contents of constants in hex; otherwise "external"
  bool comments = true;   // file:line of each instruction behind it
};

std::string disassemble(const Program& program, const DisassembleOptions& options = {});
// One instruction, as in a stream. Without a program, tensors are named by number.
std::string disassemble(const Instruction& instruction, const Program* program = nullptr);

}  // namespace trnsim::isa
