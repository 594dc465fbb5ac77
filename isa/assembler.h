// Assembler text (.trnasm) -> Program. One statement per line; # starts a comment.
//
//   program "axpy" target "trn2"
//   flops 16384                                     hbm_bytes NUMBER      note "key" "value"
//   tensor "x" input fp32 [128, 64] 32768 bytes     kinds: input output constant scratch
//   tensor "w" constant uint8 [4] 4 bytes = hex 00ff10a0    or = file "w.bin"    or = external (bound when
//   loaded) location 1 "model.py" 12 "x + y" stream vector                                   engines: tensor
//   vector scalar gpsimd sync again:
//     wait s3>=5, s4>=r2+1 | tensor_scalar op0=multiply dst=sbuf.fp32[0+128]@1024{64:1}
//         src0=... imm0=2.5 | then s1+=1 !1           (one line; !1 is the source location)
//     loop reg_a=r0 target=again
//
// A program of two physical cores says `cores 2` before its streams; the streams behind `core 1` are the second's.
//
// Operands: SPACE[(TENSOR)].DTYPE[FIRST_PARTITION+PARTITIONS]@BYTE_OFFSET+rREGISTER{SIZE:STEP,...}; a tensor
// is a quoted name or #number; parts that are zero may be left out. Instructions, fields and flags are those
// of the instruction table; fields left out have their default value.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "isa/program.h"

namespace trnsim::isa {

struct AssembleError {
  int line = 0;
  int column = 0;
  std::string message;
};

struct AssembleOptions {
  // Reads the contents of `= file "path"`; returns false with *why. Without it such constants are errors.
  std::function<bool(const std::string& path, std::vector<uint8_t>& contents, std::string* why)> read_file;
  size_t max_errors = 20;
};

// False when there are errors (at most one per line). Only form is checked: validate() says what the chip
// refuses.
bool assemble(std::string_view text, Program& out, std::vector<AssembleError>& errors,
              const AssembleOptions& options = {});

// "file:line:column: message" for each.
std::string to_text(const std::vector<AssembleError>& errors, std::string_view file_name);

}  // namespace trnsim::isa
