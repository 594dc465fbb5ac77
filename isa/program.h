// A program in memory: tensors and one decoded instruction stream per engine of its one or two physical cores. The
// cores share the tensors; SBUF, PSUM, semaphores, registers and DMA queues belong to each core. The file forms are the container
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

// Streams are numbered core by core; those of the first core by their engine.
constexpr int kMaxCores = 2;  // physical cores of a logical core
constexpr int kNumStreams = kMaxCores * kNumEngines;
constexpr size_t stream_number(int core, Engine e) {
  return static_cast<size_t>(core * kNumEngines + static_cast<int>(e));
}
constexpr int core_of_stream(size_t stream) { return static_cast<int>(stream) / kNumEngines; }
constexpr Engine engine_of_stream(size_t stream) {
  return static_cast<Engine>(static_cast<int>(stream) % kNumEngines);
}

struct SourceLocation {
  std::string file;
  int32_t line = 0;
  std::string what;  // operator or statement, for messages
};

struct Program {
  std::string name;
  std::string target = "trn2";
  std::vector<TensorDecl> tensors;
  int cores = 1;  // physical cores that run it
  std::array<std::vector<Instruction>, kNumStreams> streams;
  std::vector<SourceLocation> locations{SourceLocation{}};  // [0] = unknown
  std::vector<std::pair<std::string, std::string>> notes;   // compiler notes
  uint64_t flops = 0;      // model floating-point operations, for the roofline
  uint64_t hbm_bytes = 0;  // algorithmic HBM traffic, for the roofline
};

}  // namespace trnsim::isa
