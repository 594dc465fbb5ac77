// What the tilers produce: compile time, instructions, wall time of the values, simulated time with its
// bound.
//   trnsim_bench_kernels [FILTER]
#include <chrono>
#include <cstdio>
#include <string>

#include "device_plugin/compiler/tilers/tilers.h"
#include "sim/chip/simulator.h"
#include "sim/exec/exec.h"

using namespace trnsim;
using namespace trnsim::compiler;

namespace {

double since(std::chrono::steady_clock::time_point t) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - t).count();
}

std::vector<int64_t> contiguous(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> s(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;) s[i - 1] = s[i] * sizes[i];
  return s;
}

struct Bench {
  KernelList list;
  std::string filter;
  const config::Config* config;

  View tensor(Buffer::Kind kind, Dtype d, std::vector<int64_t> sizes, std::vector<int64_t> strides = {}) {
    View v;
    v.buffer = static_cast<int32_t>(list.buffers.size());
    v.dtype = d;
    v.sizes = sizes;
    v.strides = strides.empty() ? contiguous(sizes) : strides;
    Buffer b;
    b.kind = kind;
    b.dtype = d;
    b.elements = v.numel();
    for (const Buffer& x : list.buffers) b.index += x.kind == kind ? 1 : 0;
    list.buffers.push_back(b);
    return v;
  }
  View in(Dtype d, std::vector<int64_t> s, std::vector<int64_t> strides = {}) {
    return tensor(Buffer::Kind::kInput, d, s, strides);
  }
  View out(Dtype d, std::vector<int64_t> s) { return tensor(Buffer::Kind::kOutput, d, s); }

  void run(const std::string& name, const Kernel& kernel, double flops) {
    KernelList taken;
    std::swap(taken, list);
    if (name.find(filter) == std::string::npos) return;
    taken.name = name;
    taken.kernels = {kernel};
    auto t = std::chrono::steady_clock::now();
    const isa::Program program = compile_kernels(taken, TileOptions{});
    const double compile = since(t);
    int64_t instructions = 0;
    for (const auto& s : program.streams) instructions += static_cast<int64_t>(s.size());
    std::vector<std::vector<float>> memory;
    std::vector<exec::HbmTensor> hbm;
    for (const auto& d : program.tensors) {
      memory.emplace_back(d.bytes / 4 + 1, isa::is_integer(d.dtype) ? 0.0f : 0.5f);
      hbm.push_back({reinterpret_cast<std::byte*>(memory.back().data()), d.bytes});
    }
    exec::Core core;
    exec::Status status;
    const auto prepared = exec::prepare(program, core.sizes(), &status);
    double wall = 0;
    for (int i = 0; i < 2 && status.ok(); ++i) {
      t = std::chrono::steady_clock::now();
      status = exec::run(core, *prepared, hbm);
      wall = since(t);
    }
    if (!status.ok()) std::printf("%s: %s\n", name.c_str(), status.message.c_str());
    chip::TimedProgram timed;
    std::string message;
    if (!chip::build_timed_program(program, *config, &timed, &message)) {
      std::printf("%s: %s\n", name.c_str(), message.c_str());
      return;
    }
    const chip::TimingResult r = chip::run_timed(timed, *config, nullptr, nullptr);
    const double us = static_cast<double>(r.stats.total_ps) / 1e6;
    std::printf(
        "%-34s compile %7.2f ms  %7lld instr  wall %8.2f ms (%6.1f GF/s)  simulated %9.1f us (%6.2f TF/s)  "
        "busy %%:",
        name.c_str(), compile * 1e3, static_cast<long long>(instructions), wall * 1e3, flops / wall / 1e9, us,
        flops / us / 1e6);
    const char* engines[] = {"T", "V", "S", "G", "Y"};
    for (int e = 0; e < isa::kNumEngines; ++e)
      std::printf(" %s %.0f", engines[e],
                  100.0 * static_cast<double>(r.stats.engines[static_cast<size_t>(e)].busy_ps) /
                      static_cast<double>(r.stats.total_ps));
    std::printf(" dma %.0f, %.1f MB read\n",
                100.0 * static_cast<double>(r.stats.dma_busy_ps) / static_cast<double>(r.stats.total_ps),
                static_cast<double>(r.stats.dma_bytes_read) / 1e6);
    std::fflush(stdout);
  }

  void dot(const std::string& name, Dtype d, std::vector<int64_t> batch, int64_t m, int64_t k, int64_t n,
           bool tb) {
    DotKernel x;
    auto with = [&](int64_t a, int64_t b) {
      auto s = batch;
      s.push_back(a);
      s.push_back(b);
      return s;
    };
    x.a = in(d, with(m, k));
    if (tb) {
      auto s = contiguous(with(n, k));
      std::swap(s[s.size() - 1], s[s.size() - 2]);
      x.b = in(d, with(k, n), s);
    } else {
      x.b = in(d, with(k, n));
    }
    x.out = out(d, with(m, n));
    double flops = 2.0 * static_cast<double>(m * n * k);
    for (int64_t b : batch) flops *= static_cast<double>(b);
    run("dot " + name, x, flops);
  }

  void conv(const std::string& name, Dtype d, ConvKernel::Mode mode, int64_t n, int64_t c, int64_t o,
            int64_t size, int64_t kernel, int64_t stride, int64_t padding, int64_t groups = 1) {
    ConvKernel x;
    using Mode = ConvKernel::Mode;
    x.mode = mode;
    const int64_t t = (size + 2 * padding - kernel) / stride + 1;
    x.input = mode == Mode::kInputGrad ? out(d, {n, c, size, size}) : in(d, {n, c, size, size});
    x.weight = mode == Mode::kWeightGrad ? out(d, {o, c / groups, kernel, kernel})
                                         : in(d, {o, c / groups, kernel, kernel});
    x.out = mode == Mode::kForward ? out(d, {n, o, t, t}) : in(d, {n, o, t, t});
    x.bias.buffer = -1;
    x.stride = {stride, stride}, x.padding = {padding, padding}, x.dilation = {1, 1}, x.groups = groups;
    const char* modes[] = {" forward", " input grad", " weight grad"};
    run("conv " + name + modes[static_cast<int>(mode)], x,
        2.0 * static_cast<double>(n * o * t * t * c / groups * kernel * kernel));
  }
};

}  // namespace

int main(int argc, char** argv) {
  std::string error;
  const auto config = config::load("trn2", "", &error);
  if (!config) {
    std::fprintf(stderr, "%s\n", error.c_str());
    return 1;
  }
  Bench b;
  b.filter = argc > 1 ? argv[1] : "";
  b.config = &*config;
  b.dot("64x64x64 fp32", Dtype::kF32, {}, 64, 64, 64, false);
  b.dot("512^3 fp32", Dtype::kF32, {}, 512, 512, 512, false);
  b.dot("1024^3 fp32", Dtype::kF32, {}, 1024, 1024, 1024, false);
  b.dot("1024^3 bf16", Dtype::kBF16, {}, 1024, 1024, 1024, false);
  b.dot("2048^3 bf16", Dtype::kBF16, {}, 2048, 2048, 2048, false);
  b.dot("linear 512x768x3072 bf16", Dtype::kBF16, {}, 512, 768, 3072, true);
  b.dot("linear 128x256x256 fp32", Dtype::kF32, {}, 128, 256, 256, true);
  b.dot("vector 1x4096x4096 bf16", Dtype::kBF16, {}, 1, 4096, 4096, true);
  b.dot("heads 1024x16x64x16 fp32", Dtype::kF32, {1024}, 16, 64, 16, true);
  b.dot("attention 32x512x64x512 bf16", Dtype::kBF16, {32}, 512, 64, 512, true);
  b.dot("attention 32x512x512x64 bf16", Dtype::kBF16, {32}, 512, 512, 64, false);
  using Mode = ConvKernel::Mode;
  for (Mode m : {Mode::kForward, Mode::kInputGrad, Mode::kWeightGrad}) {
    b.conv("digits 64x1x8x8 -> 16 fp32", Dtype::kF32, m, 64, 1, 16, 8, 3, 1, 1);
    b.conv("16x64x32x32 -> 64 fp32", Dtype::kF32, m, 16, 64, 64, 32, 3, 1, 1);
    b.conv("stem 4x3x112x112 -> 64 7x7/2 bf16", Dtype::kBF16, m, 4, 3, 64, 112, 7, 2, 3);
    b.conv("4x256x14x14 -> 256 bf16", Dtype::kBF16, m, 4, 256, 256, 14, 3, 1, 1);
    b.conv("depthwise 8x128x28x28 fp32", Dtype::kF32, m, 8, 128, 128, 28, 3, 1, 1, 128);
  }
  {
    GatherKernel g;
    g.src = b.in(Dtype::kF32, {30000, 768});
    g.index = {b.in(Dtype::kI64, {2048})};
    g.out = b.out(Dtype::kF32, {2048, 768});
    b.run("gather 2048 rows of 768 fp32", g, 0);
    ScatterKernel s;
    s.combine = ScatterKernel::Combine::kAdd;
    s.out = b.out(Dtype::kF32, {30000, 768});
    s.index = {b.in(Dtype::kI64, {2048})};
    s.src = b.in(Dtype::kF32, {2048, 768});
    b.run("scatter-add 2048 rows of 768 fp32", s, 0);
    for (int64_t k : {1, 50, 4096}) {
      TopKernel t;
      t.input = b.in(Dtype::kF32, {64, 4096});
      t.values = b.out(Dtype::kF32, {64, k});
      t.indices = b.out(Dtype::kI64, {64, k});
      t.k = k;
      b.run("top 64x4096 k=" + std::to_string(k), t, 0);
    }
    WindowKernel w;
    w.input = b.in(Dtype::kF32, {16, 64, 32, 32});
    w.out = b.out(Dtype::kF32, {16, 64, 16, 16});
    w.indices = b.out(Dtype::kI64, {16, 64, 16, 16});
    w.kernel = {2, 2}, w.stride = {2, 2}, w.padding = {0, 0}, w.dilation = {1, 1};
    b.run("max pool 16x64x32x32 2x2", w, 0);
  }
  return 0;
}
