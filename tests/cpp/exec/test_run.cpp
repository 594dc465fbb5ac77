// Whole programs: streams, semaphores, control flow, registers, faults, hangs.
#include <sys/time.h>

#include <cmath>
#include <csignal>
#include <cstring>

#include "isa/random_program.h"
#include "sim/exec/exec.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/isa/operands.h"

using namespace trnsim;
using isa::Access;
using isa::AluOp;
using isa::Dtype;
using isa::Engine;
using isa::Instruction;
using isa::Opcode;
using isa::Space;

namespace {

Access tile(int partitions, int n, int64_t offset, Dtype d = Dtype::kF32, Space space = Space::kSbuf) {
  return isa::test::tile(space, partitions, {static_cast<uint32_t>(n)}, d, offset);
}

Access tensor(uint32_t index, std::vector<uint32_t> sizes, Dtype d = Dtype::kF32) {
  Access a = isa::test::tile(Space::kHbm, 0, sizes, d);
  a.tensor = index;
  return a;
}

struct Fixture {
  isa::Program program;
  exec::Core core{exec::CoreSizes{4096, 2048}};
  std::vector<std::vector<float>> memory;

  uint32_t declare(const std::string& name, size_t elements) {
    isa::TensorDecl t;
    t.name = name;
    t.bytes = elements * 4;
    program.tensors.push_back(t);
    memory.emplace_back(elements);
    return static_cast<uint32_t>(memory.size() - 1);
  }
  Instruction& add(Engine e, Opcode op, Access dst = {}, Access src0 = {}, Access src1 = {}) {
    auto& stream = program.streams[static_cast<size_t>(e)];
    Instruction& in = stream.emplace_back();
    in.opcode = op;
    in.engine = e;
    in.dst = dst;
    in.src0 = src0;
    in.src1 = src1;
    return in;
  }
  static Instruction& wait(Instruction& in, int semaphore, int value) {
    in.sync.waits[in.sync.num_waits].semaphore = static_cast<uint8_t>(semaphore);
    in.sync.waits[in.sync.num_waits++].value = value;
    return in;
  }
  static Instruction& signal(Instruction& in, int semaphore, int value = 1) {
    in.sync.update = isa::SemOp::kAdd;
    in.sync.update_semaphore = static_cast<uint8_t>(semaphore);
    in.sync.update_value = value;
    return in;
  }
  std::vector<exec::HbmTensor> bound() {
    std::vector<exec::HbmTensor> b;
    for (auto& m : memory) b.push_back({reinterpret_cast<std::byte*>(m.data()), m.size() * 4});
    return b;
  }
  exec::Status run(uint64_t budget = UINT64_MAX) {
    exec::Status s;
    const auto prepared = exec::prepare(program, core.sizes(), &s);
    return prepared == nullptr ? s : exec::run(core, *prepared, bound(), budget);
  }
  exec::Status prepare() {
    exec::Status s;
    exec::prepare(program, core.sizes(), &s);
    return s;
  }
};

isa::ScalarOperand imm(float v) {
  isa::ScalarOperand s;
  s.kind = isa::ScalarOperand::Kind::kImmediate;
  s.value = v;
  return s;
}

}  // namespace

TEST_CASE("engines meet through semaphores whatever the order of the streams") {
  Fixture f;
  const uint32_t in = f.declare("in", 128 * 4), out = f.declare("out", 128 * 4);
  for (size_t i = 0; i < f.memory[in].size(); ++i) f.memory[in][i] = static_cast<float>(i);
  // The tensor stream comes first in the round robin but is last in program order.
  f.wait(f.add(Engine::kTensor, Opcode::kDmaCopy, tensor(out, {128, 4}), tile(128, 4, 64)), 1, 1);
  Instruction& square =
      f.add(Engine::kVector, Opcode::kTensorTensor, tile(128, 4, 64), tile(128, 4, 0), tile(128, 4, 0));
  square.op0 = AluOp::kMultiply;
  f.signal(f.wait(square, 0, 16), 1);
  // A DMA adds 16 to its semaphore.
  f.signal(f.add(Engine::kSync, Opcode::kDmaCopy, tile(128, 4, 0), tensor(in, {128, 4})), 0);
  for (int repeat = 0; repeat < 3; ++repeat) {  // semaphores start at 0 each time
    const exec::Status s = f.run();
    INFO(s.message);
    REQUIRE(s.ok());
    for (size_t i = 0; i < f.memory[out].size(); ++i)
      REQUIRE(f.memory[out][i] == static_cast<float>(i) * static_cast<float>(i));
  }
}

TEST_CASE("semaphores subtract, are written, and compare with a register") {
  Fixture f;
  Instruction& a = f.add(Engine::kVector, Opcode::kSemaphore);
  f.signal(a, 5, 7);
  Instruction& b = f.add(Engine::kVector, Opcode::kSemaphore);
  b.sync.update = isa::SemOp::kSubtract;
  b.sync.update_semaphore = 5;
  b.sync.update_value = 4;
  Instruction& c = f.add(Engine::kVector, Opcode::kSemaphore);
  c.sync.update = isa::SemOp::kWrite;
  c.sync.update_semaphore = 6;
  c.sync.update_value = 100;
  Instruction& move = f.add(Engine::kScalar, Opcode::kRegMove);
  move.reg_dst = 2;
  move.imm = 2;
  Instruction& d = f.add(Engine::kScalar, Opcode::kSemaphore);
  f.wait(f.wait(d, 5, 1), 6, 100);
  d.sync.waits[0].value_register = 2;  // 1 + 2 = 3 = 7 - 4
  CHECK(f.run().ok());
  d.sync.waits[0].value = 2;
  const exec::Status s = f.run();
  CHECK(s.kind == exec::Status::Kind::kHang);
  CHECK_THAT(s.message, ContainsSubstring("semaphore 5 >= 4, which is 3"));
}

TEST_CASE("a loop with an address register walks HBM") {
  Fixture f;
  const uint32_t in = f.declare("in", 10 * 8), out = f.declare("out", 10 * 8);
  for (size_t i = 0; i < f.memory[in].size(); ++i) f.memory[in][i] = static_cast<float>(i);
  const auto reg = [&](Opcode op, int dst, int a, int64_t value, AluOp alu = AluOp::kAdd) {
    Instruction& i = f.add(Engine::kGpSimd, op);
    i.reg_dst = static_cast<uint8_t>(dst);
    i.reg_a = static_cast<uint8_t>(a);
    i.op0 = alu;
    i.imm = value;
    i.flags = isa::kFlagImmediate;
  };
  reg(Opcode::kRegMove, 0, 0, 0);
  reg(Opcode::kRegMove, 1, 0, 10);
  Access row = tensor(in, {8});
  row.address_register = 0;
  f.add(Engine::kGpSimd, Opcode::kDmaCopy, tile(1, 8, 0), row);  // 2
  Instruction& twice = f.add(Engine::kGpSimd, Opcode::kTensorScalar, tile(1, 8, 0), tile(1, 8, 0));
  twice.op0 = AluOp::kMultiply;
  twice.imm0 = imm(2);
  row.tensor = out;
  f.add(Engine::kGpSimd, Opcode::kDmaCopy, row, tile(1, 8, 0));
  reg(Opcode::kRegAlu, 0, 0, 32);
  Instruction& loop = f.add(Engine::kGpSimd, Opcode::kLoop);
  loop.reg_a = 1;
  loop.target = 2;
  f.add(Engine::kGpSimd, Opcode::kHalt);
  f.add(Engine::kGpSimd, Opcode::kMemset, tile(1, 1, 1 << 30));  // would be out of bounds if prepared
  f.program.streams[static_cast<size_t>(Engine::kGpSimd)].pop_back();
  const exec::Status s = f.run();
  INFO(s.message);
  REQUIRE(s.ok());
  for (size_t i = 0; i < 80; ++i) REQUIRE(f.memory[out][i] == 2 * static_cast<float>(i));
  CHECK_FALSE(exec::has_data_dependent_control(f.program));
}

TEST_CASE("an address register that leaves the tensor is reported with the tensor's name") {
  Fixture f;
  const uint32_t in = f.declare("weights", 16);
  Instruction& move = f.add(Engine::kSync, Opcode::kRegMove);
  move.reg_dst = 7;
  move.imm = 60;
  Access a = tensor(in, {8});
  a.address_register = 7;
  f.add(Engine::kSync, Opcode::kDmaCopy, tile(1, 8, 0), a);
  exec::Status s = f.run();
  CHECK(s.kind == exec::Status::Kind::kOutOfBounds);
  CHECK_THAT(s.message, ContainsSubstring("weights"));
  CHECK_THAT(s.message, ContainsSubstring("[60, 92)"));
  f.program.streams[static_cast<size_t>(Engine::kSync)][0].imm = -4;
  s = f.run();
  CHECK(s.kind == exec::Status::Kind::kOutOfBounds);
}

TEST_CASE("the step of a dim of one entry means nothing, however large") {
  for (const int64_t step : {INT64_MAX, INT64_MIN, int64_t{1} << 61, int64_t{0}}) {
    INFO(step);
    Fixture f;
    const uint32_t in = f.declare("in", 128 * 4), row = f.declare("row", 4), index = f.declare("index", 1),
                   out = f.declare("out", 128 * 4), picked = f.declare("picked", 4);
    for (size_t i = 0; i < f.memory[in].size(); ++i) f.memory[in][i] = static_cast<float>(i);
    f.memory[row] = {5, 6, 7, 8};
    const auto with_step = [&](Access a) {  // as the outermost dim
      a.num_dims = static_cast<uint8_t>(a.num_dims + 1);
      for (int d = a.num_dims - 1; d > 0; --d) {
        a.size[static_cast<size_t>(d)] = a.size[static_cast<size_t>(d - 1)];
        a.step[static_cast<size_t>(d)] = a.step[static_cast<size_t>(d - 1)];
      }
      a.size[0] = 1;
      a.step[0] = step;
      return a;
    };
    f.add(Engine::kGpSimd, Opcode::kDmaCopy, with_step(tile(128, 4, 0)), with_step(tensor(in, {128, 4})));
    f.add(Engine::kGpSimd, Opcode::kTensorTensor, with_step(tile(128, 4, 64)), with_step(tile(128, 4, 0)),
          with_step(tile(128, 4, 0)))
        .op0 = AluOp::kAdd;
    f.add(Engine::kGpSimd, Opcode::kDmaCopy, with_step(tensor(out, {128, 4})), with_step(tile(128, 4, 64)));
    // Row 0 of a table of one row.
    f.add(Engine::kGpSimd, Opcode::kDmaCopy, tile(1, 1, 128, Dtype::kI32),
          tensor(index, {1, 1}, Dtype::kI32));
    f.add(Engine::kGpSimd, Opcode::kDmaGather, tile(1, 4, 256), with_step(tensor(row, {4})),
          tile(1, 1, 128, Dtype::kI32));
    f.add(Engine::kGpSimd, Opcode::kDmaCopy, tensor(picked, {1, 4}), tile(1, 4, 256));
    const exec::Status s = f.run();
    INFO(s.message);
    REQUIRE(s.ok());
    for (size_t i = 0; i < f.memory[out].size(); ++i) REQUIRE(f.memory[out][i] == 2 * static_cast<float>(i));
    CHECK(f.memory[picked] == f.memory[row]);
  }
}

TEST_CASE("signals that arrive during matrix products change nothing") {
  static volatile std::sig_atomic_t arrived = 0;
  arrived = 0;
  struct sigaction ours {
  }, before{};
  ours.sa_handler = [](int) { arrived = arrived + 1; };
  ours.sa_flags = SA_RESTART;
  sigaction(SIGALRM, &ours, &before);
  const itimerval often{{0, 300}, {0, 300}}, never{};
  setitimer(ITIMER_REAL, &often, nullptr);
  Fixture f;
  const uint32_t out = f.declare("out", 128 * 512);
  isa::ScalarOperand one;
  one.kind = isa::ScalarOperand::Kind::kImmediate;
  one.value = 1;
  f.add(Engine::kVector, Opcode::kMemset, tile(128, 128, 0)).imm0 = one;
  Fixture::signal(f.add(Engine::kVector, Opcode::kMemset, tile(128, 512, 512)), 20).imm0 = one;
  Fixture::wait(f.add(Engine::kTensor, Opcode::kLoadStationary, {}, tile(128, 128, 0)), 20, 1);
  Fixture::signal(f.add(Engine::kTensor, Opcode::kMultiplyMoving,
                        tile(128, 512, 0, Dtype::kF32, Space::kPsum), tile(128, 512, 512)),
                  21);
  Fixture::signal(Fixture::wait(f.add(Engine::kVector, Opcode::kCopy, tile(128, 512, 512),
                                      tile(128, 512, 0, Dtype::kF32, Space::kPsum)),
                                21, 1),
                  22);
  Fixture::wait(f.add(Engine::kGpSimd, Opcode::kDmaCopy, tensor(out, {128, 512}), tile(128, 512, 512)), 22,
                1);
  bool right = true;
  for (int i = 0; i < 300 && right; ++i) {
    std::vector<std::vector<float>> scattered(64, std::vector<float>(100 + static_cast<size_t>(i)));
    right = f.run().ok();
    for (float v : f.memory[out]) right = right && v == 128;
  }
  setitimer(ITIMER_REAL, &never, nullptr);
  sigaction(SIGALRM, &before, nullptr);
  CHECK(right);
  CHECK(arrived > 10);
}

TEST_CASE("64-bit scalars live in pairs of registers") {
  Fixture f;
  const uint32_t in = f.declare("in", 2), out = f.declare("out", 2);
  const auto step = [&](Opcode op, uint8_t dst, uint8_t a, int64_t value) {
    Instruction& i = f.add(Engine::kSync, op);
    i.flags = isa::kFlagWide | (op == Opcode::kRegAlu ? isa::kFlagImmediate : 0);
    i.reg_dst = dst;
    i.reg_a = a;
    i.op0 = AluOp::kMultiply;
    i.imm = value;
  };
  Instruction& load = f.add(Engine::kSync, Opcode::kRegLoad, {}, tensor(in, {1}, Dtype::kI64));
  load.flags = isa::kFlagWide;
  load.reg_dst = 10;
  step(Opcode::kRegAlu, 20, 10, -3);
  Instruction& add = f.add(Engine::kSync, Opcode::kRegAlu);
  add.flags = isa::kFlagWide;
  add.op0 = AluOp::kAdd;
  add.reg_dst = 20;
  add.reg_a = 20;
  add.reg_b = 10;
  Instruction& store = f.add(Engine::kSync, Opcode::kRegStore, tensor(out, {1}, Dtype::kI64));
  store.flags = isa::kFlagWide;
  store.reg_a = 20;
  const int64_t value = (int64_t{7} << 40) + 5;
  std::memcpy(f.memory[in].data(), &value, 8);
  const exec::Status s = f.run();
  INFO(s.message);
  REQUIRE(s.ok());
  int64_t result = 0;
  std::memcpy(&result, f.memory[out].data(), 8);
  CHECK(result == -2 * value);
}

TEST_CASE("branches decide on values from memory") {
  Fixture f;
  const uint32_t flag = f.declare("flag", 1), out = f.declare("out", 1);
  Instruction& load = f.add(Engine::kSync, Opcode::kRegLoad, {}, tensor(flag, {1}, Dtype::kI32));
  load.reg_dst = 3;
  Instruction& branch = f.add(Engine::kSync, Opcode::kBranch);
  branch.reg_a = 3;
  branch.op0 = AluOp::kGreater;
  branch.flags = isa::kFlagImmediate;
  branch.imm = 10;
  branch.target = 4;
  Instruction& low = f.add(Engine::kSync, Opcode::kRegMove);
  low.reg_dst = 4;
  low.imm = -1;
  Instruction& jump = f.add(Engine::kSync, Opcode::kJump);
  jump.target = 5;
  Instruction& high = f.add(Engine::kSync, Opcode::kRegMove);
  high.reg_dst = 4;
  high.imm = 1;
  Instruction& store = f.add(Engine::kSync, Opcode::kRegStore, tensor(out, {1}, Dtype::kI32));
  store.reg_a = 4;
  CHECK(exec::has_data_dependent_control(f.program));
  for (const auto& [value, want] : {std::pair<int32_t, int32_t>{11, 1}, {10, -1}, {-5, -1}}) {
    std::memcpy(f.memory[flag].data(), &value, 4);
    REQUIRE(f.run().ok());
    int32_t got;
    std::memcpy(&got, f.memory[out].data(), 4);
    CHECK(got == want);
  }
}

TEST_CASE("taint follows register arithmetic into loops, waits and addresses") {
  const auto tainted = [](auto use) {
    Fixture f;
    f.declare("n", 4);
    Instruction& load = f.add(Engine::kSync, Opcode::kRegLoad, {}, tensor(0, {1}, Dtype::kI32));
    load.reg_dst = 1;
    Instruction& alu = f.add(Engine::kSync, Opcode::kRegAlu);
    alu.op0 = AluOp::kAdd;
    alu.reg_dst = 2;
    alu.reg_a = 5;
    alu.reg_b = 1;
    use(f);
    return exec::has_data_dependent_control(f.program);
  };
  CHECK(tainted([](Fixture& f) { f.add(Engine::kSync, Opcode::kLoop).reg_a = 2; }));
  CHECK(tainted([](Fixture& f) {
    f.wait(f.add(Engine::kSync, Opcode::kSemaphore), 0, 1).sync.waits[0].value_register = 2;
  }));
  CHECK(tainted([](Fixture& f) {
    Access a = tensor(0, {1});
    a.address_register = 2;
    f.add(Engine::kSync, Opcode::kDmaCopy, tile(1, 1, 0), a);
  }));
  // Another engine has its own registers; a register that is only stored decides nothing.
  CHECK_FALSE(tainted([](Fixture& f) { f.add(Engine::kVector, Opcode::kLoop).reg_a = 2; }));
  CHECK_FALSE(tainted(
      [](Fixture& f) { f.add(Engine::kSync, Opcode::kRegStore, tensor(0, {1}, Dtype::kI32)).reg_a = 2; }));
}

TEST_CASE("a deadlock names who waits for what, and where") {
  Fixture f;
  f.program.locations.push_back({"model.py", 42, "relu"});
  Instruction& a = f.add(Engine::kVector, Opcode::kSemaphore);
  f.signal(f.wait(a, 3, 1), 4);
  a.location = 1;
  f.signal(f.wait(f.add(Engine::kScalar, Opcode::kSemaphore), 4, 2), 3);
  const exec::Status s = f.run();
  CHECK(s.kind == exec::Status::Kind::kHang);
  CHECK_THAT(s.message, ContainsSubstring("vector"));
  CHECK_THAT(s.message, ContainsSubstring("model.py:42: relu"));
  CHECK_THAT(s.message, ContainsSubstring("semaphore 3 >= 1, which is 0"));
  CHECK_THAT(s.message, ContainsSubstring("scalar"));
  CHECK_THAT(s.message, ContainsSubstring("semaphore 4 >= 2, which is 0"));
}

TEST_CASE("an endless loop ends with the instruction budget") {
  Fixture f;
  f.add(Engine::kVector, Opcode::kJump).target = 0;
  const exec::Status s = f.run(1000);
  CHECK(s.kind == exec::Status::Kind::kHang);
  CHECK_THAT(s.message, ContainsSubstring("endless loop"));
  CHECK_THAT(s.message, ContainsSubstring("1000 instructions"));
  CHECK_THAT(s.message, ContainsSubstring("sequencer.instruction_budget"));
}

TEST_CASE("what cannot be executed is refused when the program is prepared") {
  const auto message = [](auto build, exec::Status::Kind kind) {
    Fixture f;
    f.declare("t", 64);
    build(f);
    const exec::Status s = f.prepare();
    CHECK(s.kind == kind);
    return s.message;
  };
  constexpr auto kOut = exec::Status::Kind::kOutOfBounds;
  constexpr auto kIllegal = exec::Status::Kind::kIllegal;
  CHECK_THAT(
      message([](Fixture& f) { f.add(Engine::kSync, Opcode::kDmaCopy, tile(1, 65, 0), tensor(0, {65})); },
              kOut),
      ContainsSubstring("[0, 260) of tensor 't', which has 256 bytes"));
  CHECK_THAT(
      message([](Fixture& f) { f.add(Engine::kVector, Opcode::kCopy, tile(1, 2, 4092), tile(1, 2, 0)); },
              kOut),
      ContainsSubstring("[4092, 4100) of a SBUF partition"));
  CHECK_THAT(
      message([](Fixture& f) { f.add(Engine::kVector, Opcode::kCopy, tile(129, 2, 0), tile(1, 2, 0)); },
              kOut),
      ContainsSubstring("partitions [0, 129)"));
  CHECK_THAT(message([](Fixture& f) { f.add(Engine::kVector, Opcode::kCopy, tile(4, 2, 0), tile(4, 3, 0)); },
                     kIllegal),
             ContainsSubstring("dst is [4, 2] and src0 is [4, 3]"));
  CHECK_THAT(message(
                 [](Fixture& f) {
                   f.add(Engine::kSync, Opcode::kDmaCopy, tile(1, 4, 0, Dtype::kF32, Space::kPsum),
                         tensor(0, {4}));
                 },
                 kIllegal),
             ContainsSubstring("PSUM"));
  CHECK_THAT(message([](Fixture& f) { f.add(Engine::kVector, Opcode::kCopy, tile(1, 4, 0), tensor(0, {4})); },
                     kIllegal),
             ContainsSubstring("src0 may not be in hbm"));
  CHECK_THAT(message(
                 [](Fixture& f) {
                   f.add(Engine::kVector, Opcode::kCopy, tile(1, 4, 0, Dtype::kI64), tile(1, 4, 0));
                 },
                 kIllegal),
             ContainsSubstring("64-bit"));
  CHECK_THAT(
      message(
          [](Fixture& f) {
            f.add(Engine::kVector, Opcode::kTensorTensor, tile(1, 4, 0), tile(1, 4, 0), tile(1, 4, 0)).op0 =
                AluOp::kBitAnd;
          },
          kIllegal),
      ContainsSubstring("needs integer operands"));
  CHECK_THAT(message([](Fixture& f) { f.add(Engine::kVector, Opcode::kJump).target = 9; }, kIllegal),
             ContainsSubstring("jump to instruction 9"));
}

TEST_CASE("a multiplication without a stationary matrix is refused") {
  Fixture f;
  f.add(Engine::kTensor, Opcode::kMultiplyMoving, tile(8, 8, 0, Dtype::kF32, Space::kPsum), tile(8, 8, 0));
  const exec::Status s = f.run();
  CHECK(s.kind == exec::Status::Kind::kIllegal);
  CHECK_THAT(s.message, ContainsSubstring("no stationary matrix"));
}

TEST_CASE("bindings are checked before anything runs") {
  Fixture f;
  f.declare("x", 64);
  f.declare("unused", 4);
  f.add(Engine::kSync, Opcode::kDmaCopy, tile(1, 64, 0), tensor(0, {64}));
  exec::Status s;
  const auto prepared = exec::prepare(f.program, f.core.sizes(), &s);
  REQUIRE(s.ok());
  auto bound = f.bound();
  bound[1] = {};  // nobody touches it
  CHECK(exec::run(f.core, *prepared, bound).ok());
  bound[0].bytes = 252;
  s = exec::run(f.core, *prepared, bound);
  CHECK(s.kind == exec::Status::Kind::kOutOfBounds);
  CHECK_THAT(s.message, ContainsSubstring("'x'"));
  bound[0].data = nullptr;
  CHECK(exec::run(f.core, *prepared, bound).kind == exec::Status::Kind::kIllegal);
}

TEST_CASE("indirect DMA out of bounds is an error unless it is skipped") {
  Fixture f;
  const uint32_t table = f.declare("table", 4 * 8);
  for (size_t i = 0; i < 32; ++i) f.memory[table][i] = static_cast<float>(i);
  Instruction& gather = f.add(Engine::kGpSimd, Opcode::kDmaGather, tile(2, 8, 64), tensor(table, {4, 8}),
                              tile(2, 1, 0, Dtype::kI32));
  const int32_t index[2] = {3, 4};
  for (int p = 0; p < 2; ++p) std::memcpy(f.core.sbuf(p, 0), &index[p], 4);
  exec::Status s = f.run();
  CHECK(s.kind == exec::Status::Kind::kOutOfBounds);
  CHECK_THAT(s.message, ContainsSubstring("row index 4"));
  CHECK_THAT(s.message, ContainsSubstring("'table', which has 4 rows"));
  gather.flags = isa::kFlagSkipOutOfBounds;
  CHECK(f.run().ok());
  float v;
  std::memcpy(&v, f.core.sbuf(0, 64 + 4), 4);
  CHECK(v == 25.0f);
  std::memcpy(&v, f.core.sbuf(1, 64), 4);
  CHECK(std::isnan(v));  // left alone: still poison
}

TEST_CASE("memory is poison until it is written, and again after a reset") {
  Fixture f;
  const uint32_t out = f.declare("out", 4);
  f.add(Engine::kSync, Opcode::kDmaCopy, tensor(out, {4}), tile(1, 4, 1024));
  REQUIRE(f.run().ok());
  for (float v : f.memory[out]) CHECK(std::isnan(v));
  const float one = 1;
  std::memcpy(f.core.sbuf(0, 1024), &one, 4);
  REQUIRE(f.run().ok());
  CHECK(f.memory[out][0] == 1.0f);
  f.core.set_reg(Engine::kVector, 3, 17);
  CHECK(f.core.reg(Engine::kVector, 3) == 17);
  f.core.reset();
  CHECK(f.core.reg(Engine::kVector, 3) == 0);
  REQUIRE(f.run().ok());
  for (float v : f.memory[out]) CHECK(std::isnan(v));
}

TEST_CASE("a bit pattern survives same-dtype moves on every path") {
  Fixture f;
  const uint32_t in = f.declare("in", 32), out = f.declare("out", 32);
  for (uint32_t i = 0; i < 32; ++i) {
    const uint32_t signalling = 0x7f800001u + i;
    std::memcpy(&f.memory[in][i], &signalling, 4);
  }
  f.add(Engine::kVector, Opcode::kDmaCopy, tile(32, 1, 0), tensor(in, {32}));
  f.add(Engine::kVector, Opcode::kCopy, tile(32, 1, 64), tile(32, 1, 0));
  f.add(Engine::kVector, Opcode::kTranspose, tile(1, 32, 128), tile(32, 1, 64));
  f.add(Engine::kVector, Opcode::kDmaCopy, tensor(out, {32}), tile(1, 32, 128));
  REQUIRE(f.run().ok());
  CHECK(std::memcmp(f.memory[in].data(), f.memory[out].data(), 128) == 0);
}

TEST_CASE("random legal programs run, twice to the same values") {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    isa::RandomProgram random(seed);
    const isa::Program program = random.legal_program(60);
    exec::Core a, b;
    std::vector<std::vector<std::byte>> ma, mb;
    std::vector<exec::HbmTensor> ha, hb;
    for (const isa::TensorDecl& t : program.tensors) {
      ma.emplace_back(t.bytes, std::byte{0x3c});
      mb.emplace_back(t.bytes, std::byte{0x3c});
    }
    for (size_t i = 0; i < ma.size(); ++i) {
      ha.push_back({ma[i].data(), ma[i].size()});
      hb.push_back({mb[i].data(), mb[i].size()});
    }
    exec::Status s;
    const auto prepared = exec::prepare(program, a.sizes(), &s);
    INFO("seed " << seed << ": " << s.message);
    REQUIRE(prepared != nullptr);
    s = exec::run(a, *prepared, ha);
    INFO(s.message);
    REQUIRE(s.ok());
    REQUIRE(exec::run(b, *prepared, hb).ok());
    CHECK(ma == mb);
  }
}
