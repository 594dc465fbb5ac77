// The program container (.trnp): a versioned file that is mapped and loaded without parsing each instruction.
//
//   offset  bytes  field (little endian)
//        0      8  magic 89 54 52 4e 50 0d 0a 1a ("\x89TRNP\r\n\x1a": damaged by text-mode transfers on
//        purpose) 8      4  format version
//       12      4  bytes of metadata (Protobuf, isa/program.proto)
//       16      8  bytes of payload
//       24      4  CRC-32 of the metadata and its padding
//       28      4  CRC-32 of the payload
//       32         metadata, zero padding up to a multiple of 64 bytes from the start of the file
//                  payload: packed instruction streams, then constants, each at a multiple of 64 bytes
// C++17: included by sim/chip.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "isa/encoding.h"
#include "isa/program.h"

namespace trnsim::isa {

// Programs of one core are written as version 4: nothing in them is newer.
constexpr uint32_t kContainerVersion = 5;

std::vector<uint8_t> write_container(const Program& program);

struct ContainerError {
  enum class Kind : uint8_t {
    kNone,
    kInvalid,        // truncated, damaged or inconsistent
    kNotAContainer,  // some other file
    kNeff,           // a NEFF of the AWS compiler
    kNewerVersion,
  } kind = Kind::kNone;
  std::string message;
};

struct StreamRange {
  ByteRange bytes;
  uint64_t instructions = 0;
};

// Refers to the memory it was read from.
struct LoadedContainer {
  std::string name, target;
  std::vector<TensorDecl> tensors;   // `constant` stays empty, see constants
  std::vector<ByteRange> constants;  // one per tensor; empty for tensors without contents
  int cores = 1;
  std::array<StreamRange, kNumStreams> streams;  // numbered as those of Program
  std::vector<SourceLocation> locations;
  std::vector<std::pair<std::string, std::string>> notes;
  uint64_t flops = 0;
  uint64_t hbm_bytes = 0;

  uint64_t instructions() const {
    uint64_t n = 0;
    for (const StreamRange& s : streams) n += s.instructions;
    return n;
  }
};

// False with a worded error for anything but a sound container. Never crashes on any bytes.
bool read_container(ByteRange file, LoadedContainer& out, ContainerError* error);

// Everything, decoded. False with a message when an instruction does not decode.
bool decode_program(const LoadedContainer& container, Program& out, std::string* error);

// read_container and decode_program in one.
bool read_program(ByteRange file, Program& out, ContainerError* error);

}  // namespace trnsim::isa
