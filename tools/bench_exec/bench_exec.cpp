// Speed of the functional executor on this host, one JSON object on standard output. Rates are the best of
// several repeats; the plain library product of a large square matrix stands beside the tile products for
// comparison.
#include <dnnl.h>
#include <omp.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "isa/names.h"
#include "sim/exec/exec.h"

namespace {

using namespace trnsim;
using isa::Access;
using isa::Dtype;
using isa::Engine;
using isa::Instruction;
using isa::Opcode;
using isa::Space;

// Processor time of this thread, which other load on the host does not touch; wall time when a product may
// use several threads.
double now() {
  timespec t;
  clock_gettime(omp_get_max_threads() > 1 ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

double best_seconds(const std::function<void()>& f, int inner) {
  f();
  double best = 1e9;
  for (int repeat = 0; repeat < 25; ++repeat) {
    const double start = now();
    for (int i = 0; i < inner; ++i) f();
    best = std::min(best, (now() - start) / inner);
  }
  return best;
}

Access tile(Space space, Dtype d, int partitions, int n, int64_t offset) {
  Access a;
  a.space = space;
  a.dtype = d;
  a.num_partitions = static_cast<uint16_t>(partitions);
  a.offset = offset;
  a.num_dims = 1;
  a.step[0] = 1;
  a.size[0] = static_cast<uint32_t>(n);
  return a;
}

Access tensor(uint32_t index, Dtype d, int rows, int n) {
  Access a;
  a.space = Space::kHbm;
  a.dtype = d;
  a.tensor = index;
  a.num_dims = 2;
  a.step = {n, 1};
  a.size = {static_cast<uint32_t>(rows), static_cast<uint32_t>(n)};
  return a;
}

Instruction make(Opcode op, Engine e, Access dst, Access src0 = {}, Access src1 = {}) {
  Instruction i;
  i.opcode = op;
  i.engine = e;
  i.dst = dst;
  i.src0 = src0;
  i.src1 = src1;
  return i;
}

isa::ScalarOperand imm(float v) {
  isa::ScalarOperand s;
  s.kind = isa::ScalarOperand::Kind::kImmediate;
  s.value = v;
  return s;
}

struct Bench {
  exec::Core core;
  std::vector<std::vector<std::byte>> memory;
  std::vector<exec::HbmTensor> bound;

  double seconds(const isa::Program& program, int inner) {
    memory.clear();
    bound.clear();
    for (const isa::TensorDecl& t : program.tensors) {
      memory.emplace_back(t.bytes);
      bound.push_back({memory.back().data(), t.bytes});
    }
    exec::Status status;
    const auto prepared = exec::prepare(program, core.sizes(), &status);
    if (!status.ok()) {
      std::fprintf(stderr, "%s\n", status.message.c_str());
      return 0;
    }
    return best_seconds([&] { status = exec::run(core, *prepared, bound); }, inner);
  }

  void fill(int64_t bytes) {
    for (int p = 0; p < 128; ++p) {
      for (int64_t i = 0; i < bytes; i += 4) {
        const float v = static_cast<float>((i / 4 + p) % 17) * 0.25f - 2.0f;
        std::memcpy(core.sbuf(p, i), &v, 4);
      }
    }
  }
};

// Many copies of one instruction, so that the cost of a run vanishes.
double nanoseconds_each(Bench& b, const Instruction& in) {
  constexpr int kCopies = 64;
  isa::Program program;
  program.streams[static_cast<size_t>(in.engine)].assign(kCopies, in);
  return b.seconds(program, 5) / kCopies * 1e9;
}

double tile_gflops(Bench& b, Dtype d) {
  isa::Program program;
  const int64_t bytes = static_cast<int64_t>(isa::dtype_bytes(d));
  auto& stream = program.streams[0];
  for (int k = 0; k < 4; ++k) {
    stream.push_back(
        make(Opcode::kLoadStationary, Engine::kTensor, {}, tile(Space::kSbuf, d, 128, 128, 128 * bytes * k)));
    Instruction mm =
        make(Opcode::kMultiplyMoving, Engine::kTensor, tile(Space::kPsum, Dtype::kF32, 128, 512, 0),
             tile(Space::kSbuf, d, 128, 512, 8192 + 512 * bytes * k));
    if (k > 0) mm.flags = isa::kFlagAccumulate;
    stream.push_back(mm);
  }
  return 4 * 2.0 * 128 * 128 * 512 / b.seconds(program, 3) * 1e-9;
}

double library_gflops() {
  constexpr int64_t n = 1024;
  std::vector<float> a(n * n, 1.0f), b(n * n, 0.5f), c(n * n);
  return 2.0 * n * n * n /
         best_seconds([&] { dnnl_sgemm('N', 'N', n, n, n, 1, a.data(), n, b.data(), n, 0, c.data(), n); },
                      1) *
         1e-9;
}

// Load two tiles, a few vector and scalar operations, store: what an eager operator on [128, 16] runs.
isa::Program small_program() {
  isa::Program program;
  for (const char* name : {"a", "b", "out"}) {
    isa::TensorDecl t;
    t.name = name;
    t.shape = {128, 16};
    t.bytes = 128 * 16 * 4;
    program.tensors.push_back(t);
  }
  const Dtype f = Dtype::kF32;
  const auto at = [&](int slot) { return tile(Space::kSbuf, f, 128, 16, slot * 64); };
  const auto wait = [](Instruction i, int semaphore, int value) {
    i.sync.waits[i.sync.num_waits].semaphore = static_cast<uint8_t>(semaphore);
    i.sync.waits[i.sync.num_waits++].value = value;
    return i;
  };
  const auto signal = [](Instruction i, int semaphore) {
    i.sync.update = isa::SemOp::kAdd;
    i.sync.update_semaphore = static_cast<uint8_t>(semaphore);
    i.sync.update_value = 1;
    return i;
  };
  auto& sync = program.streams[static_cast<size_t>(Engine::kSync)];
  auto& vector = program.streams[static_cast<size_t>(Engine::kVector)];
  auto& scalar = program.streams[static_cast<size_t>(Engine::kScalar)];
  sync.push_back(signal(make(Opcode::kDmaCopy, Engine::kSync, at(0), tensor(0, f, 128, 16)), 0));
  sync.push_back(signal(make(Opcode::kDmaCopy, Engine::kSync, at(1), tensor(1, f, 128, 16)), 0));
  Instruction add = make(Opcode::kTensorTensor, Engine::kVector, at(2), at(0), at(1));
  add.op0 = isa::AluOp::kAdd;
  vector.push_back(wait(add, 0, 32));
  Instruction scale = make(Opcode::kTensorScalar, Engine::kVector, at(3), at(2));
  scale.op0 = isa::AluOp::kMultiply;
  scale.imm0 = imm(0.5f);
  scale.op1 = isa::AluOp::kAdd;
  scale.imm1 = imm(1.0f);
  vector.push_back(signal(scale, 1));
  Instruction relu = make(Opcode::kActivation, Engine::kScalar, at(4), at(3));
  relu.func = isa::ActFunc::kRelu;
  scalar.push_back(signal(wait(relu, 1, 1), 2));
  Instruction mul = make(Opcode::kTensorTensor, Engine::kVector, at(5), at(4), at(0));
  mul.op0 = isa::AluOp::kMultiply;
  vector.push_back(wait(mul, 2, 1));
  vector.push_back(make(Opcode::kCopy, Engine::kVector, at(6), at(5)));
  Instruction sub = make(Opcode::kTensorTensor, Engine::kVector, at(7), at(6), at(1));
  sub.op0 = isa::AluOp::kSubtract;
  vector.push_back(sub);
  Instruction reduce =
      make(Opcode::kTensorReduce, Engine::kVector, tile(Space::kSbuf, f, 128, 1, 1024), at(7));
  reduce.op0 = isa::AluOp::kAdd;
  reduce.reduce_dims = 1;
  vector.push_back(reduce);
  Instruction center = make(Opcode::kTensorScalar, Engine::kVector, at(8), at(7));
  center.op0 = isa::AluOp::kSubtract;
  center.imm0.kind = isa::ScalarOperand::Kind::kPointer;
  center.imm0.pointer = tile(Space::kSbuf, f, 128, 1, 1024);
  vector.push_back(signal(center, 1));
  sync.push_back(signal(wait(make(Opcode::kDmaCopy, Engine::kSync, tensor(2, f, 128, 16), at(8)), 1, 2), 3));
  sync.push_back(wait(make(Opcode::kSemaphore, Engine::kSync, {}), 3, 16));
  return program;
}

}  // namespace

int main() {
  // As the executor does: one thread unless OMP_NUM_THREADS asks for more.
  if (std::getenv("OMP_NUM_THREADS") == nullptr) omp_set_num_threads(1);
  Bench b;
  std::printf("{\n  \"threads\": %d,\n", omp_get_max_threads());

  const double start = now();
  auto fresh = std::make_unique<exec::Core>();
  const double made = now();
  isa::Program small = small_program();
  {
    std::vector<std::vector<std::byte>> memory(3, std::vector<std::byte>(128 * 64));
    std::vector<exec::HbmTensor> bound;
    for (auto& m : memory) bound.push_back({m.data(), m.size()});
    exec::Status status;
    const auto prepared = exec::prepare(small, fresh->sizes(), &status);
    exec::run(*fresh, *prepared, bound);
  }
  const double first = now();
  fresh.reset();
  std::printf("  \"core_construct_us\": %.1f,\n  \"first_small_program_us\": %.1f,\n", (made - start) * 1e6,
              (first - made) * 1e6);

  b.fill(32768);
  std::printf(
      "  \"gflops\": {\"library_sgemm_1024\": %.1f, \"tile_fp32_128x128x512\": %.1f, "
      "\"tile_bf16_128x128x512\": %.1f",
      library_gflops(), tile_gflops(b, Dtype::kF32), tile_gflops(b, Dtype::kBF16));
  if (omp_get_max_threads() > 1) {
    const int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    std::printf(
        ", \"one_thread\": {\"library_sgemm_1024\": %.1f, \"tile_fp32_128x128x512\": %.1f, "
        "\"tile_bf16_128x128x512\": %.1f}",
        library_gflops(), tile_gflops(b, Dtype::kF32), tile_gflops(b, Dtype::kBF16));
    omp_set_num_threads(threads);
  }
  std::printf("},\n  \"ns_per_instruction\": {\n");

  struct Case {
    std::string name;
    Instruction in;
  };
  std::vector<Case> cases;
  for (const int n : {16, 512}) {
    const std::string suffix = "_128x" + std::to_string(n);
    const Access a = tile(Space::kSbuf, Dtype::kF32, 128, n, 0),
                 c = tile(Space::kSbuf, Dtype::kF32, 128, n, 4096),
                 d = tile(Space::kSbuf, Dtype::kF32, 128, n, 8192);
    const Access h = tile(Space::kSbuf, Dtype::kBF16, 128, n, 0),
                 g = tile(Space::kSbuf, Dtype::kBF16, 128, n, 8192);
    const Access q = tile(Space::kSbuf, Dtype::kI32, 128, n, 0),
                 r = tile(Space::kSbuf, Dtype::kI32, 128, n, 8192);
    cases.push_back({"copy_fp32" + suffix, make(Opcode::kCopy, Engine::kVector, d, a)});
    cases.push_back({"copy_fp32_to_bf16" + suffix, make(Opcode::kCopy, Engine::kVector, g, a)});
    Instruction add = make(Opcode::kTensorTensor, Engine::kVector, d, a, c);
    add.op0 = isa::AluOp::kAdd;
    cases.push_back({"add_fp32" + suffix, add});
    add.dst = g;
    add.src0 = add.src1 = h;
    cases.push_back({"add_bf16" + suffix, add});
    add.dst = r;
    add.src0 = add.src1 = q;
    cases.push_back({"add_int32" + suffix, add});
    Instruction reduce =
        make(Opcode::kTensorReduce, Engine::kVector, tile(Space::kSbuf, Dtype::kF32, 128, 1, 8192), a);
    reduce.op0 = isa::AluOp::kAdd;
    reduce.reduce_dims = 1;
    cases.push_back({"reduce_add_fp32" + suffix, reduce});
    for (const isa::ActFunc f :
         {isa::ActFunc::kExp, isa::ActFunc::kGelu, isa::ActFunc::kTanh, isa::ActFunc::kLog}) {
      Instruction act = make(Opcode::kActivation, Engine::kScalar, d, a);
      act.func = f;
      cases.push_back({std::string(isa::name(f)) + suffix, act});
    }
    Instruction scan = make(Opcode::kTensorTensorScan, Engine::kVector, d, a, c);
    scan.op0 = isa::AluOp::kMultiply;
    scan.op1 = isa::AluOp::kAdd;
    cases.push_back({"scan" + suffix, scan});
    cases.push_back({"max8" + suffix,
                     make(Opcode::kMax8, Engine::kVector, tile(Space::kSbuf, Dtype::kF32, 128, 8, 8192), a)});
  }
  cases.push_back({"transpose_fp32_128x128",
                   make(Opcode::kTranspose, Engine::kTensor, tile(Space::kPsum, Dtype::kF32, 128, 128, 0),
                        tile(Space::kSbuf, Dtype::kF32, 128, 128, 0))});
  cases.push_back({"transpose_bf16_128x128",
                   make(Opcode::kTranspose, Engine::kTensor, tile(Space::kPsum, Dtype::kBF16, 128, 128, 0),
                        tile(Space::kSbuf, Dtype::kBF16, 128, 128, 0))});
  for (size_t i = 0; i < cases.size(); ++i) {
    std::printf("    \"%s\": %.0f%s\n", cases[i].name.c_str(), nanoseconds_each(b, cases[i].in),
                i + 1 < cases.size() ? "," : "");
  }
  std::printf("  },\n  \"small_program_us\": %.2f,\n", b.seconds(small, 200) * 1e6);

  isa::Program large;
  for (int i = 0; i < 1000; ++i) large.streams[1].insert(large.streams[1].end(), {cases[2].in, cases[5].in});
  const double prepare = best_seconds(
      [&] {
        exec::Status status;
        exec::prepare(large, b.core.sizes(), &status);
      },
      5);
  std::printf("  \"prepare_ns_per_instruction\": %.0f,\n", prepare / 2000 * 1e9);

  // The same instructions one by one through Core::execute, as the chip model does for data-dependent
  // programs.
  std::vector<std::vector<std::byte>> memory(3, std::vector<std::byte>(128 * 64));
  std::vector<exec::HbmTensor> bound;
  for (auto& m : memory) bound.push_back({m.data(), m.size()});
  const double single = best_seconds(
      [&] {
        for (const auto& stream : small.streams) {
          for (const Instruction& in : stream) b.core.execute(small, in, bound);
        }
      },
      200);
  std::printf("  \"small_program_by_single_instructions_us\": %.2f\n}\n", single * 1e6);
  return 0;
}
