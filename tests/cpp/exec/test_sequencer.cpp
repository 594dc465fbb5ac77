// The oracle of the sequencer rows: random streams of register and control instructions against a plain
// interpreter. Jumps go forward and loops count down, so that every stream ends.
#include "isa/names.h"
#include "isa/table.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/exec/generator.h"
#include "tests/cpp/exec/oracle_parts.h"

using namespace trnsim;
using namespace trnsim::test;
using isa::AluOp;
using isa::Engine;
using isa::Instruction;
using isa::Opcode;

namespace {

constexpr int kLoopRegister = 20;

std::vector<Instruction> random_stream(Generator& g, int length) {
  std::vector<Instruction> code;
  const auto add = [&](Instruction i) { code.push_back(i); };
  const auto target = [&] {
    return static_cast<uint32_t>(code.size()) + 1 + static_cast<uint32_t>(g.below(4));
  };
  while (static_cast<int>(code.size()) < length) {
    Instruction i;
    switch (g.below(7)) {
      case 0:
      case 1:
        add(g.row(Opcode::kRegMove, Engine::kSync));
        break;
      case 2:
        add(g.row(Opcode::kRegAlu, Engine::kSync));
        break;
      case 3:
        i.opcode = Opcode::kBranch;
        i.op0 = g.pick({AluOp::kEqual, AluOp::kNotEqual, AluOp::kGreaterEqual, AluOp::kGreater,
                        AluOp::kLessEqual, AluOp::kLess});
        i.reg_a = static_cast<uint8_t>(g.below(8));
        i.reg_b = static_cast<uint8_t>(g.below(8));
        if (g.chance(50)) i.flags = isa::kFlagImmediate;
        i.imm = g.below(1000) - 500;
        i.target = target();
        add(i);
        break;
      case 4:
        i.opcode = Opcode::kJump;
        i.target = target();
        add(i);
        break;
      case 5:
        i.opcode = Opcode::kSemaphore;
        i.sync.update = isa::SemOp::kAdd;
        i.sync.update_semaphore = 3;
        i.sync.update_value = 1;
        add(i);
        break;
      default: {  // a counted loop around additions that nothing jumps into
        i.opcode = Opcode::kRegMove;
        i.reg_dst = kLoopRegister;
        i.imm = 1 + g.below(5);
        add(i);
        const auto body = static_cast<uint32_t>(code.size());
        Instruction step = g.row(Opcode::kRegAlu, Engine::kSync);
        step.op0 = AluOp::kAdd;
        add(step);
        Instruction loop;
        loop.opcode = Opcode::kLoop;
        loop.reg_a = kLoopRegister;
        loop.target = body;
        add(loop);
      }
    }
  }
  Instruction halt;
  if (g.chance(50)) add(halt);
  // A jump into a loop would meet a counter of 0 and run 2^32 times: it goes to the move before.
  const auto length_now = static_cast<uint32_t>(code.size());
  for (Instruction& i : code) {
    if (i.opcode != Opcode::kBranch && i.opcode != Opcode::kJump) continue;
    i.target = std::min(i.target, length_now);  // the end of the stream
    if (i.target == length_now) continue;
    if (code[i.target].opcode == Opcode::kLoop) i.target -= 2;
    if (i.target > 0 && code[i.target].opcode == Opcode::kRegAlu && i.target + 1 < length_now &&
        code[i.target + 1].opcode == Opcode::kLoop) {
      i.target -= 1;
    }
  }
  return code;
}

// Returns how often each opcode ran.
std::map<Opcode, int> interpret(const std::vector<Instruction>& code, Memory& m, int* semaphore) {
  std::map<Opcode, int> ran;
  for (size_t pc = 0; pc < code.size();) {
    REQUIRE(ran[code[pc].opcode] < 10000);  // the generator makes streams that end
    const Instruction& i = code[pc];
    ++ran[i.opcode];
    size_t next = pc + 1;
    const int32_t b = i.has(isa::kFlagImmediate) ? static_cast<int32_t>(i.imm) : m.registers[i.reg_b];
    if (i.opcode == Opcode::kBranch && alu_int(i.op0, m.registers[i.reg_a], b, 32) != 0) next = i.target;
    if (i.opcode == Opcode::kJump) next = i.target;
    if (i.opcode == Opcode::kLoop && --m.registers[i.reg_a] != 0) next = i.target;
    if (i.opcode == Opcode::kHalt) next = code.size();
    if (i.opcode == Opcode::kSemaphore) ++*semaphore;
    if (i.opcode == Opcode::kRegMove || i.opcode == Opcode::kRegAlu) REQUIRE(execute_oracle(i, m));
    pc = next;
  }
  return ran;
}

}  // namespace

TEST_CASE("sequencer rows agree with an interpreter") {
  Generator g(31);
  std::map<Opcode, int> ran;
  for (int n = 0; n < 300; ++n) {
    const std::vector<Instruction> code = random_stream(g, 30);
    Memory m(64, 64);
    int semaphore = 0;
    for (const auto& [opcode, count] : interpret(code, m, &semaphore)) ran[opcode] += count;
    // A second stream sees the semaphore only when the first has raised it often enough.
    isa::Program p;
    p.streams[static_cast<int>(Engine::kSync)] = code;
    Instruction watch;
    watch.opcode = Opcode::kRegMove;
    watch.reg_dst = 5;
    watch.imm = 77;
    watch.sync.num_waits = 1;
    watch.sync.waits[0].semaphore = 3;
    watch.sync.waits[0].value = semaphore;
    p.streams[static_cast<int>(Engine::kVector)] = {watch};
    exec::CoreSizes sizes{64 * 1024, 16 * 1024};
    exec::Status status;
    const auto prepared = exec::prepare(p, sizes, &status);
    INFO(status.message);
    REQUIRE(status.ok());
    exec::Core core(sizes);
    core.reset();
    status = exec::run(core, *prepared, {}, 100000);
    INFO(status.message);
    REQUIRE(status.ok());
    for (int r = 0; r < isa::kNumRegisters; ++r) REQUIRE(core.reg(Engine::kSync, r) == m.registers[r]);
    CHECK(core.reg(Engine::kVector, 5) == 77);
  }
  for (const isa::Row& r : isa::all_rows()) {
    const bool sequencer = r.opcode == Opcode::kSemaphore || r.cost == isa::CostClass::kBranch;
    INFO(r.name);
    if (sequencer) CHECK(ran[r.opcode] > 0);
  }
}
