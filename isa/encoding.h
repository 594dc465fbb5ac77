// Packed binary form of instructions: variable length, only the fields the row uses. Exact for those fields.
// C++17: included by sim/chip.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "isa/instruction.h"

namespace trnsim::isa {

// Memory that belongs to someone else.
struct ByteRange {
  const uint8_t* data = nullptr;
  size_t size = 0;
};

void encode(const Instruction& instruction, std::vector<uint8_t>& out);  // appends

// Decodes one instruction from `available` bytes. Returns the bytes used, or 0 when the bytes are no
// instruction: *error, when given, then says why (static text). Safe on arbitrary bytes.
size_t decode(const uint8_t* bytes, size_t available, Instruction& out, const char** error = nullptr);

// A whole stream of `instructions` instructions; all bytes must be used. False with a message on failure.
bool decode_stream(ByteRange bytes, uint64_t instructions, std::vector<Instruction>& out, std::string* error);

}  // namespace trnsim::isa
