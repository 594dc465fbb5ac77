// Compiled programs by content: the same graph is compiled once per process, and once per machine with the
// disk cache.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device_plugin/compiler/compiler.h"

namespace trnsim::aten {

struct StoredProgram {
  compiler::CompileResult::Status status = compiler::CompileResult::Status::kOk;
  std::string message;
  std::shared_ptr<const std::vector<uint8_t>> container;
  bool compiled = false;   // by this call; otherwise it was found
  bool from_disk = false;  // by this call
};

StoredProgram find_or_compile(const compiler::Graph& graph);

// The graph as bytes that are equal exactly for equal graphs.
std::string graph_content(const compiler::Graph& graph);

}  // namespace trnsim::aten
