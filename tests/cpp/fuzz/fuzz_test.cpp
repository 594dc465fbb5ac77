// The short run of tools/fuzz.
#include "isa/container.h"
#include "tests/cpp/catch.h"
#include "tools/fuzz/cases.h"

using namespace trnsim;
using fuzz::Verdict;

TEST_CASE("generated programs, containers and texts keep what must hold") {
  fuzz::Judge judge;
  int counts[fuzz::kNumKinds][2] = {};
  for (uint64_t n = 0; n < 1200; ++n) {
    INFO("trnsim_fuzz --seed 7 --programs 1 --skip " << n);
    const fuzz::Case c = fuzz::make_case(fuzz::case_seed(7, n));
    const Verdict v = judge.judge(c);
    INFO(v.why);
    CHECK(v.result != Verdict::Result::kFailed);
    ++counts[static_cast<int>(c.kind)][v.result == Verdict::Result::kRefused ? 1 : 0];
  }
  // The generator reaches both sides of what is legal.
  CHECK(counts[static_cast<int>(fuzz::Kind::kLegal)][0] > 200);
  CHECK(counts[static_cast<int>(fuzz::Kind::kLegal)][1] == 0);
  for (const fuzz::Kind k : {fuzz::Kind::kMutated, fuzz::Kind::kContainer, fuzz::Kind::kText}) {
    CHECK(counts[static_cast<int>(k)][0] > 10);
    CHECK(counts[static_cast<int>(k)][1] > 10);
  }
}

TEST_CASE("modes may end differently where time alone decides which transfer a queue takes first") {
  // Two engines of a core exchange over one queue, each when a semaphore lets them: one order ends, the other hangs.
  const fuzz::Verdict v = fuzz::Judge().judge(fuzz::make_case(fuzz::case_seed(3, 270255)));
  INFO(v.why);
  CHECK(v.result == Verdict::Result::kRan);
}

TEST_CASE("a seed names one program") {
  for (uint64_t seed = 1; seed < 40; ++seed) {
    const fuzz::Case a = fuzz::make_case(seed), b = fuzz::make_case(seed);
    CHECK(a.kind == b.kind);
    CHECK((a.bytes == b.bytes));
    CHECK((isa::write_container(a.program) == isa::write_container(b.program)));
  }
  CHECK(fuzz::case_seed(1, 2) != fuzz::case_seed(2, 1));
}

TEST_CASE("a failing program becomes small") {
  isa::RandomProgram random(3);
  isa::Program program = random.legal_program(60);
  const auto has_iota = [](const isa::Program& p) {
    int found = 0;
    for (const auto& stream : p.streams) {
      for (const isa::Instruction& i : stream) found += i.opcode == isa::Opcode::kIota;
    }
    return found > 0;
  };
  isa::Instruction iota = random.legal_instruction(isa::Opcode::kIota, isa::Engine::kGpSimd);
  program.streams[static_cast<size_t>(isa::Engine::kGpSimd)].push_back(iota);
  const isa::Program small = fuzz::shrink(program, has_iota);
  size_t instructions = 0;
  for (const auto& stream : small.streams) instructions += stream.size();
  CHECK(instructions == 1);
}
