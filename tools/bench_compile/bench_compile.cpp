// Compiles graphs given as text (graph_text.h) and runs them on the chip without data.
//   trnsim_bench_compile [--spans FILE] [--kernels] GRAPH...
// Prints a JSON list, one object per graph. --spans writes engine, start and end in ns of every instruction of the
// last graph: the timeline behind "what bounds it". --kernels prints to stderr what every kernel of a graph takes: its
// first start and last end, how long that is behind the end of all kernels before it, the busy time of every engine and
// what its transfers move.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "device_plugin/compiler/compiler.h"
#include "device_plugin/compiler/graph_text.h"
#include "isa/container.h"
#include "isa/table.h"
#include "sim/chip/simulator.h"

using namespace trnsim;

namespace {

constexpr const char* kEngines[] = {"tensor", "vector", "scalar", "gpsimd", "sync"};
static_assert(std::size(kEngines) == isa::kNumEngines);

double share(int64_t part, int64_t whole) { return static_cast<double>(part) / static_cast<double>(whole); }

void write_spans(const std::string& path, const isa::Program& program, const chip::Trace& trace) {
  std::ofstream file(path);
  for (const chip::InstructionSpan& s : trace.instructions) {
    const isa::Instruction& i = program.streams[isa::stream_number(s.core, s.engine)][s.index];
    file << kEngines[static_cast<int>(s.engine)] << ' ' << s.index << ' ' << isa::row(i.opcode).name << ' '
         << static_cast<double>(s.start) / 1e3 << ' ' << static_cast<double>(s.end) / 1e3 << '\n';
  }
  for (const chip::TransferSpan& t : trace.transfers) {
    const isa::Instruction& i = program.streams[isa::stream_number(t.core, t.engine)][t.index];
    file << "dma" << static_cast<int>(i.queue) << ' ' << t.index << ' '
         << (i.dst.space == isa::Space::kHbm ? "store" : "load") << i.dst.elements() << ' '
         << static_cast<double>(t.trigger) / 1e3 << ' ' << static_cast<double>(t.complete) / 1e3 << '\n';
  }
}

// Kernels overlap: the column `adds` sums to the time of the program, the busy times do not.
void print_kernels(const isa::Program& program, const chip::Trace& trace) {
  struct Use {
    bool used = false;
    int64_t start = INT64_MAX, end = 0, busy[isa::kNumEngines] = {}, loads = 0, stores = 0, bytes = 0;
  };
  std::vector<Use> uses(program.locations.size());
  const auto use = [&](const isa::Instruction& i, int64_t start, int64_t end) -> Use& {
    Use& u = uses[i.location];
    u.used = true;
    u.start = std::min(u.start, start);
    u.end = std::max(u.end, end);
    return u;
  };
  // An engine is busy with an instruction until it starts the next one or the results are there.
  std::vector<const chip::InstructionSpan*> last(isa::kNumStreams, nullptr);
  const auto busy = [&](const chip::InstructionSpan& s, int64_t until) {
    const isa::Instruction& i = program.streams[isa::stream_number(s.core, s.engine)][s.index];
    if (!i.is_control())
      uses[i.location].busy[static_cast<size_t>(s.engine)] += std::min(s.end, until) - s.start;
  };
  for (const chip::InstructionSpan& s : trace.instructions) {
    if (s.part != 0) continue;
    const isa::Instruction& i = program.streams[isa::stream_number(s.core, s.engine)][s.index];
    if (!i.is_control() && !i.is_dma()) use(i, s.start, s.end);
    const chip::InstructionSpan*& before = last[isa::stream_number(s.core, s.engine)];
    if (before != nullptr) busy(*before, s.start);
    before = &s;
  }
  for (const chip::InstructionSpan* s : last)
    if (s != nullptr) busy(*s, s->end);
  for (const chip::TransferSpan& t : trace.transfers) {
    const isa::Instruction& i = program.streams[isa::stream_number(t.core, t.engine)][t.index];
    Use& u = use(i, t.trigger, t.complete);
    ++(i.dst.space == isa::Space::kHbm ? u.stores : u.loads);
    u.bytes += i.dst.elements() * static_cast<int64_t>(isa::dtype_bytes(i.dst.dtype));
  }
  std::fprintf(stderr, "%9s %9s %9s %8s %8s %8s %8s %6s %6s %9s  kernel (us)\n", "start", "end", "adds",
               "tensor", "vector", "scalar", "gpsimd", "loads", "stores", "KiB");
  int64_t reached = 0;
  for (size_t k = 0; k < uses.size(); ++k) {
    const Use& u = uses[k];
    if (!u.used) continue;
    const auto us = [](int64_t ps) { return static_cast<double>(ps) / 1e6; };
    std::fprintf(stderr, "%9.2f %9.2f %9.2f %8.2f %8.2f %8.2f %8.2f %6lld %6lld %9.1f  %s\n", us(u.start),
                 us(u.end), us(std::max<int64_t>(0, u.end - reached)), us(u.busy[0]), us(u.busy[1]),
                 us(u.busy[2]), us(u.busy[3]), static_cast<long long>(u.loads),
                 static_cast<long long>(u.stores), static_cast<double>(u.bytes) / 1024,
                 program.locations[k].what.c_str());
    reached = std::max(reached, u.end);
  }
}

int run(const char* path, bool comma, const std::string& spans, bool kernels, int cores,
        const config::Config& config) {
  std::ifstream file(path);
  if (!file) {
    std::fprintf(stderr, "user error: cannot read %s\n", path);
    return 1;
  }
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  compiler::Graph graph;
  try {
    graph = compiler::graph_from_text(text);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: %s\n", path, e.what());
    return 1;
  }
  const auto start = std::chrono::steady_clock::now();
  compiler::CompileOptions options;
  options.cores = cores;
  const compiler::CompileResult compiled = trnsim_compiler()->compile(graph, options);
  const double compile_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (compiled.status != compiler::CompileResult::Status::kOk) {
    std::fprintf(stderr, "%s: %s\n", path, compiled.message.c_str());
    return 1;
  }
  isa::Program program;
  isa::ContainerError error;
  if (!isa::read_program({compiled.container.data(), compiled.container.size()}, program, &error)) {
    std::fprintf(stderr, "%s: %s\n", path, error.message.c_str());
    return 1;
  }
  chip::Trace trace;
  const chip::TimingResult r =
      chip::run_timing(program, config, spans.empty() && !kernels ? nullptr : &trace);
  if (r.status != chip::LaunchResult::Status::kOk) {
    std::fprintf(stderr, "%s: %s\n", path, r.message.c_str());
    return 1;
  }
  if (!spans.empty()) write_spans(spans, program, trace);
  if (kernels) print_kernels(program, trace);
  const int64_t total = r.stats.total_ps;
  std::printf("%s{\"name\": \"%s\", \"simulated_ns\": %.3f, \"launch_ns\": %.3f, \"compile_s\": %.4f, ",
              comma ? ",\n" : "", graph.name.c_str(), static_cast<double>(total) / 1e3,
              config.launch.start_ns + config.launch.end_ns, compile_s);
  std::printf("\"cores\": %d, ", r.stats.cores);
  std::printf("\"instructions\": %lld, \"flops\": %llu, \"hbm_bytes\": %llu, ",
              static_cast<long long>(compiled.instructions), static_cast<unsigned long long>(program.flops),
              static_cast<unsigned long long>(program.hbm_bytes));
  for (size_t e = 0; e < isa::kNumEngines; ++e)
    std::printf("\"%s\": %.4f, ", kEngines[e], share(r.stats.engines[e].busy_ps, total * r.stats.cores));
  std::printf("\"dma\": %.4f, \"bytes_read\": %lld, \"bytes_written\": %lld}",
              share(r.stats.dma_busy_ps, total * r.stats.cores),
              static_cast<long long>(r.stats.dma_bytes_read),
              static_cast<long long>(r.stats.dma_bytes_written));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::string error, spans;
  const auto config = config::load("trn2", "", &error);
  if (!config) {
    std::fprintf(stderr, "%s\n", error.c_str());
    return 1;
  }
  bool kernels = false;
  int first = 1, cores = 1;
  for (; first < argc; ++first) {
    if (first + 1 < argc && std::strcmp(argv[first], "--spans") == 0) {
      spans = argv[++first];
    } else if (first + 1 < argc && std::strcmp(argv[first], "--cores") == 0) {
      cores = std::strcmp(argv[++first], "2") == 0 ? 2 : 1;
    } else if (std::strcmp(argv[first], "--kernels") == 0) {
      kernels = true;
    } else {
      break;
    }
  }
  std::printf("[");
  for (int i = first; i < argc; ++i) {
    if (run(argv[i], i > first, spans, kernels, cores, *config) != 0) return 1;
  }
  std::printf("]\n");
  return 0;
}
