// A program in memory: tensors and one decoded instruction stream per engine. The file forms are the container
// (isa/container.h, .trnp) and assembler text (isa/assembler.h, .trnasm).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "isa/instruction.h"

namespace trnsim::isa {

enum class TensorKind : uint8_t { kInput = 0, kOutput, kConstant, kScratch };

struct TensorDecl {
  std::string name;  // unique; inputs and outputs are bound by name
  TensorKind kind = TensorKind::kInput;
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;
  uint64_t bytes = 0;             // size of the memory the program may touch (strided views: the whole span)
  std::vector<uint8_t> constant;  // kConstant: the contents
};

struct SourceLocation {
  std::string file;
  int32_t line = 0;
  std::string what;  // operator or statement, for messages
};

struct Program {
  std::string name;
  std::string target = "trn2";
  std::vector<TensorDecl> tensors;
  std::array<std::vector<Instruction>, kNumEngines> streams;
  std::vector<SourceLocation> locations{SourceLocation{}};  // [0] = unknown
  std::vector<std::pair<std::string, std::string>> notes;   // compiler notes
  uint64_t flops = 0;      // model floating-point operations, for the roofline
  uint64_t hbm_bytes = 0;  // algorithmic HBM traffic, for the roofline
};

}  // namespace trnsim::isa
