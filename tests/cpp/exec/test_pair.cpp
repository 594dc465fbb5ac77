// Programs for the two cores of a logical core: values, and what is said when they lose each other.
#include <cstring>

#include "isa/assembler.h"
#include "isa/random_program.h"
#include "isa/table.h"
#include "isa/validator.h"
#include "sim/exec/exec.h"
#include "tests/cpp/catch.h"

using namespace trnsim;

namespace {

isa::Program assemble(const std::string& body) {
  isa::Program p;
  std::vector<isa::AssembleError> errors;
  const bool good = isa::assemble("program \"pair\" target \"trn2\"\ncores 2\n" + body, p, errors);
  INFO(isa::to_text(errors, "pair"));
  REQUIRE(good);
  const auto diagnostics = isa::validate(p);
  INFO((diagnostics.empty() ? "" : diagnostics[0].message));
  REQUIRE(isa::first_error(diagnostics) == nullptr);
  return p;
}

struct Run {
  exec::Core first, second;
  std::vector<std::vector<std::byte>> memory;
  exec::Status status;

  explicit Run(const isa::Program& program) {
    std::vector<exec::HbmTensor> hbm;
    for (const isa::TensorDecl& t : program.tensors) memory.emplace_back(t.bytes, std::byte{0x11});
    for (auto& m : memory) hbm.push_back({m.data(), m.size()});
    const auto prepared = exec::prepare(program, first.sizes(), &status);
    if (prepared == nullptr) return;
    status = exec::run(first, second, *prepared, hbm);
  }
  float value(size_t tensor, size_t index) const {
    float v;
    std::memcpy(&v, memory[tensor].data() + 4 * index, 4);
    return v;
  }
};

std::string hang(const std::string& body) {
  const Run run(assemble(body));
  CHECK(run.status.kind == exec::Status::Kind::kHang);
  return run.status.message;
}

}  // namespace

TEST_CASE("an exchange gives each core the tile of the other, element by element") {
  isa::RandomProgram random(5);
  for (int n = 0; n < 60; ++n) {
    isa::Program p;
    p.cores = 2;
    p.tensors.push_back({"x", isa::TensorKind::kInput, isa::Dtype::kU8, {1 << 18}, 1 << 18, {}});
    p.tensors.push_back({"y", isa::TensorKind::kOutput, isa::Dtype::kU8, {1 << 18}, 1 << 18, {}});
    isa::Instruction halves[] = {random.legal_instruction(isa::Opcode::kSendRecv, isa::Engine::kSync), {}};
    // The other core has the tiles elsewhere, in another order of the free dims.
    halves[1] = halves[0];
    halves[1].count = 0;
    std::swap(halves[1].src0.offset, halves[1].dst.offset);
    for (int core = 0; core < 2; ++core)
      p.streams[isa::stream_number(core, isa::Engine::kSync)] = {halves[core]};
    exec::Core cores[2];
    std::vector<std::byte> before[2];
    for (int core = 0; core < 2; ++core) {
      for (int partition = 0; partition < isa::kMaxPartitions; ++partition) {
        std::byte* row = cores[core].sbuf(partition, 0);
        for (int64_t b = 0; b < cores[core].sizes().sbuf_bytes_per_partition; ++b)
          row[b] = static_cast<std::byte>(random.below(256));
        before[core].insert(before[core].end(), row, row + cores[core].sizes().sbuf_bytes_per_partition);
      }
    }
    std::vector<std::byte> x(1 << 18), y(1 << 18);
    exec::Status status;
    const auto prepared = exec::prepare(p, cores[0].sizes(), &status);
    INFO(status.message);
    REQUIRE(prepared != nullptr);
    status = exec::run(cores[0], cores[1], *prepared, {{x.data(), x.size()}, {y.data(), y.size()}});
    INFO(status.message);
    REQUIRE(status.ok());
    // The slow way: element k of each operand.
    const auto offset_of = [](const isa::Access& a, int64_t k) {
      int64_t offset = a.offset;
      for (int d = a.num_dims - 1; d >= 0; --d) {
        offset += k % a.size[d] * a.step[d] * static_cast<int64_t>(isa::dtype_bytes(a.dtype));
        k /= a.size[d];
      }
      return offset;
    };
    const int64_t pitch = cores[0].sizes().sbuf_bytes_per_partition;
    const size_t bytes = isa::dtype_bytes(halves[0].dst.dtype);
    for (int core = 0; core < 2; ++core) {
      std::vector<std::byte> expected = before[core];
      const isa::Access &to = halves[core].dst, &from = halves[1 - core].src0;
      for (int64_t row = 0; row < to.num_partitions; ++row) {
        for (int64_t k = 0; k < to.free_elements(); ++k) {
          std::memcpy(&expected[static_cast<size_t>((to.start_partition + row) * pitch + offset_of(to, k))],
                      &before[1 - core]
                             [static_cast<size_t>((from.start_partition + row) * pitch + offset_of(from, k))],
                      bytes);
        }
      }
      bool same = true;
      for (int partition = 0; partition < isa::kMaxPartitions; ++partition) {
        same = same &&
               std::memcmp(cores[core].sbuf(partition, 0), &expected[static_cast<size_t>(partition * pitch)],
                           static_cast<size_t>(pitch)) == 0;
      }
      CHECK(same);
    }
  }
}

TEST_CASE("what one core writes before a barrier, the other reads behind it") {
  const Run run(assemble(R"(tensor "t" scratch fp32 [4] 16 bytes
tensor "y" output fp32 [4] 16 bytes
stream vector
  memset dst=sbuf.fp32[0+1]{4:1} imm0=7 | then s0+=1
stream sync
  wait s0>=1 | dma_copy dst=hbm("t").fp32{1:4,4:1} src0=sbuf.fp32[0+1]{4:1} queue=0 dge=static | then s1+=16
  wait s1>=16 | core_barrier src0=hbm("t").fp32{4:1}
core 1
stream sync
  core_barrier src0=hbm("t").fp32{4:1} | then s0+=1
  wait s0>=1 | dma_copy dst=sbuf.fp32[0+1]{4:1} src0=hbm("t").fp32{1:4,4:1} queue=0 dge=static | then s1+=16
  wait s1>=16 | dma_copy dst=hbm("y").fp32{1:4,4:1} src0=sbuf.fp32[0+1]{4:1} queue=0 dge=static
)"));
  INFO(run.status.message);
  REQUIRE(run.status.ok());
  for (size_t k = 0; k < 4; ++k) CHECK(run.value(1, k) == 7);
}

TEST_CASE("the cores have registers, semaphores and memories of their own") {
  const Run run(assemble(R"(tensor "y" output fp32 [2] 8 bytes
stream vector
  reg_move reg_dst=r0 imm=3
again:
  tensor_scalar dst=sbuf.fp32[0+1]{1:1} src0=sbuf.fp32[0+1]@64{1:1} op0=add imm0=0 | then s0+=1
  loop reg_a=r0 target=again
  memset dst=sbuf.fp32[0+1]{1:1} imm0=1 | then s0+=1
stream sync
  wait s0>=4 | dma_copy dst=hbm("y").fp32{1:1} src0=sbuf.fp32[0+1]{1:1} queue=0 dge=static
core 1
stream vector
  memset dst=sbuf.fp32[0+1]{1:1} imm0=2 | then s0+=1
stream sync
  wait s0>=1 | dma_copy dst=hbm("y").fp32@4{1:1} src0=sbuf.fp32[0+1]{1:1} queue=0 dge=static
)"));
  INFO(run.status.message);
  REQUIRE(run.status.ok());
  CHECK(run.value(0, 0) == 1);
  CHECK(run.value(0, 1) == 2);
}

TEST_CASE("a core that waits for the other in vain says so") {
  const std::string shared = "tensor \"t\" scratch fp32 [4] 16 bytes\nlocation 1 \"net.py\" 8 \"x + y\"\n";
  CHECK_THAT(hang(shared + "stream gpsimd\n  core_barrier src0=hbm(\"t\").fp32{4:1} !1\n"),
             ContainsSubstring(
                 "core_barrier on gpsimd of core 0 (instruction 0, net.py:8: x + y) waits for core 1, whose "
                 "gpsimd engine has reached 0 of 1 barriers"));
  const std::string half =
      "send_recv dst=sbuf.fp32[0+4]@64{4:1} src0=sbuf.fp32[0+4]{4:1} queue=2 dge=static imm=";
  CHECK_THAT(hang(shared + "stream sync\n  " + half +
                  "1 count=1 | then s0+=16 !1\n  wait s0>=16 | semaphore\ncore 1\n" + "stream sync\n  " +
                  half + "2 count=0\n"),
             ContainsSubstring(
                 "send_recv on sync of core 0 (instruction 0, net.py:8: x + y) waits for core 1 to exchange "
                 "over pipe 1") &&
                 ContainsSubstring("waits for core 0 to exchange over pipe 2"));
  // The exchange holds its queue.
  CHECK_THAT(hang(shared + "stream sync\n  " + half + "1 count=1\n" +
                  "  dma_copy dst=hbm(\"t\").fp32{4:1} src0=sbuf.fp32[0+1]{4:1} queue=2 dge=static\n"),
             ContainsSubstring("waits for its queue 2, where an exchange waits for the other core"));
}

TEST_CASE("cores that meet with different things in mind are told apart") {
  const std::string shared =
      "tensor \"t\" scratch fp32 [4] 16 bytes\ntensor \"u\" scratch fp32 [4] 16 bytes\n";
  const Run barriers(assemble(shared +
                              "stream sync\n  core_barrier src0=hbm(\"t\").fp32{4:1}\ncore 1\nstream sync\n"
                              "  core_barrier src0=hbm(\"u\").fp32{4:1}\n"));
  CHECK(barriers.status.kind == exec::Status::Kind::kIllegal);
  CHECK_THAT(barriers.status.message,
             ContainsSubstring("two barriers meet that name different tensors: 'u' at") &&
                 ContainsSubstring("'t' at core_barrier on sync of core 0"));
  const Run tiles(assemble(
      shared +
      "stream sync\n  send_recv dst=sbuf.fp32[0+4]@64{4:1} src0=sbuf.fp32[0+4]{4:1} dge=static count=1\n"
      "core 1\nstream sync\n  send_recv dst=sbuf.fp32[0+4]@64{8:1} src0=sbuf.fp32[0+4]{8:1} dge=static\n"));
  CHECK(tiles.status.kind == exec::Status::Kind::kIllegal);
  CHECK_THAT(tiles.status.message,
             ContainsSubstring(
                 "the exchange of pipe 0 has different tiles: fp32 [4, 8] at send_recv on sync of core 1"));
}

TEST_CASE("a program for two cores does not run on one, nor the other way round") {
  isa::RandomProgram random(1);
  exec::Core a, b;
  exec::Status status;
  const auto two = exec::prepare(random.legal_program(10, isa::Generation::kTrn2, 2), a.sizes(), &status);
  const auto one = exec::prepare(random.legal_program(10), a.sizes(), &status);
  CHECK_THAT(exec::run(a, *two, {}).message, ContainsSubstring("is for 2 physical cores, not for 1"));
  CHECK_THAT(exec::run(a, b, *one, {}).message, ContainsSubstring("is for 1 physical cores, not for 2"));
}
