// The entry point of libtrnsim_compiler.so: graph -> kernels -> tiles -> streams -> container.
#include "device_plugin/compiler/compiler.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>

#include "device_plugin/compiler/error.h"
#include "device_plugin/compiler/fusion/fusion.h"
#include "device_plugin/compiler/graph_text.h"
#include "device_plugin/compiler/kernels_text.h"
#include "device_plugin/compiler/lower.h"
#include "device_plugin/compiler/tilers/tilers.h"
#include "device_plugin/compiler/work.h"
#include "isa/container.h"
#include "isa/validator.h"

namespace trnsim::compiler {
namespace {

std::string operators_of(const Graph& graph) {
  std::string s;
  for (const Node& n : graph.nodes) {
    if (s.find(n.op) != std::string::npos) continue;
    if (s.size() > 200) return s + ", ...";
    if (!s.empty()) s += ", ";
    s += n.op;
  }
  return s;
}

// One file per level. The name carries a hash, because eager graphs of one operator share their name.
class Dump {
 public:
  Dump(const std::string& folder, const Graph& graph) {
    if (folder.empty()) return;
    std::string text = graph_text(graph);
    std::string stem = graph.name.empty() ? "graph" : graph.name;
    for (char& c : stem) {
      bool plain =
          (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
      if (!plain) c = '_';
    }
    char hash[20];
    std::snprintf(hash, sizeof(hash), "-%016zx", std::hash<std::string>{}(text));
    std::error_code failed;
    std::filesystem::create_directories(folder, failed);
    if (failed)
      throw_user_error("cannot make the folder '" + folder +
                       "' (TORCH_NEURONX_DEBUG_DIR): " + failed.message());
    path_ = (std::filesystem::path(folder) / (stem + hash)).string();
    write(".graph.txt", text);
  }
  void write(const std::string& suffix, const std::string& text) const {
    if (path_.empty()) return;
    std::ofstream file(path_ + suffix);
    file << text << std::flush;
    if (!file) throw_user_error("cannot write " + path_ + suffix + " (TORCH_NEURONX_DEBUG_DIR)");
  }
  bool active() const { return !path_.empty(); }

 private:
  std::string path_;
};

class CompilerImpl : public Compiler {
 public:
  std::vector<OpInfo> lowered_ops() const override {
    std::vector<OpInfo> out;
    for (const LowerRow& r : lower_rows()) out.push_back({r.name, r.const_args, r.random});
    return out;
  }

  CompileResult compile(const Graph& graph, const CompileOptions& options) const override {
    CompileResult result;
    try {
      compile_or_throw(graph, options, result);
    } catch (const CompileError& e) {
      result.status = e.kind();
      result.message = e.what();
    } catch (const std::exception& e) {
      result.status = CompileResult::Status::kInternalError;
      result.message = "internal compiler error in " + operators_of(graph) + ": " + e.what();
    }
    return result;
  }

 private:
  static void compile_or_throw(const Graph& graph, const CompileOptions& options, CompileResult& result) {
    Dump dump(options.dump_dir, graph);
    KernelList kernels = lower_graph(graph);
    if (dump.active()) dump.write(".kernels.txt", kernels_text(kernels));
    const Work work = count_work(kernels);
    const FusionReport fusion = fuse_kernels(kernels);
    if (dump.active()) dump.write(".fused.txt", kernels_text(kernels));

    TileOptions tile_options;
    tile_options.target = options.target;
    tile_options.num_params = graph.num_params;
    std::string tile_text;
    isa::Program program = compile_kernels(kernels, tile_options, {options.cores, options.always_divide},
                                           dump.active() ? &tile_text : nullptr);
    dump.write(".tiles.txt", tile_text);

    program.flops = work.flops;
    program.hbm_bytes = work.hbm_bytes;
    program.notes.emplace_back("operators", operators_of(graph));
    if (fusion.kernels_before > 1) {
      program.notes.emplace_back(
          "kernels", std::to_string(fusion.kernels_before) + " -> " + std::to_string(fusion.kernels_after));
      program.notes.emplace_back("scratch_bytes", std::to_string(fusion.scratch_bytes_before) + " -> " +
                                                      std::to_string(fusion.scratch_bytes_after));
    }

    std::vector<isa::Diagnostic> diagnostics = isa::validate(program);
    if (const isa::Diagnostic* error = isa::first_error(diagnostics)) {
      throw_internal(operators_of(graph) + " became an illegal program: " + error->message);
    }
    for (const auto& stream : program.streams) result.instructions += static_cast<int64_t>(stream.size());
    result.container = isa::write_container(program);
  }
};

}  // namespace
}  // namespace trnsim::compiler

extern "C" __attribute__((visibility("default"))) trnsim::compiler::Compiler* trnsim_compiler() {
  static trnsim::compiler::CompilerImpl compiler;
  return &compiler;
}
