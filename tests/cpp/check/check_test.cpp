// Every planted fault is found, in words that name it, and the correct programs are clean.
#include <cstring>
#include <map>
#include <set>
#include <sstream>

#include "isa/assembler.h"
#include "isa/container.h"
#include "isa/random_program.h"
#include "isa/validator.h"
#include "sim/chip/simulator.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/check/planted.h"
#include "tests/cpp/check/strict.h"

using namespace trnsim;
using Status = chip::LaunchResult::Status;

namespace planted {

std::string text_of(std::string_view parent) {
  for (const Parent& p : parents()) {
    if (p.name == parent) return std::string(p.text);
  }
  FAIL("no program is named " << parent);
  return {};
}

std::string plant(const Fault& fault) {
  std::string text = text_of(fault.parent);
  const size_t at = text.find(fault.find);
  INFO(fault.what << ": " << fault.find);
  REQUIRE(at != std::string::npos);
  return text.replace(at, fault.find.size(), fault.replace);
}

isa::Program assemble(std::string_view name, std::string text) {
  std::istringstream in(text);
  std::string out = "program \"" + std::string(name) + "\" target \"trn2\"\n", body, locations;
  std::vector<std::pair<std::string, std::string>> lets;
  int line = 0, number = 0;
  for (std::string l; std::getline(in, l);) {
    ++line;
    if (l.rfind("let ", 0) == 0) {
      const size_t space = l.find(' ', 4);
      lets.emplace_back("$" + l.substr(4, space - 4), l.substr(space + 1));
      continue;
    }
    // Longer names first, so that $X0a is not taken for $X0.
    for (size_t at = l.find('$'); at != std::string::npos; at = l.find('$', at + 1)) {
      const std::pair<std::string, std::string>* best = nullptr;
      for (const auto& let : lets) {
        if (l.compare(at, let.first.size(), let.first) == 0 &&
            (best == nullptr || let.first.size() > best->first.size()))
          best = &let;
      }
      REQUIRE(best != nullptr);
      l.replace(at, best->first.size(), best->second);
    }
    if (l.rfind("  ", 0) == 0) {
      l += " !" + std::to_string(++number);
      locations += "location " + std::to_string(number) + " \"" + std::string(name) + ".py\" " +
                   std::to_string(line) + " \"\"\n";
    }
    body += l + "\n";
  }
  isa::Program p;
  std::vector<isa::AssembleError> errors;
  const bool good = isa::assemble(out + locations + body, p, errors);
  INFO(isa::to_text(errors, std::string(name)));
  REQUIRE(good);
  const auto diagnostics = isa::validate(p);
  const isa::Diagnostic* bad = isa::first_error(diagnostics);
  INFO((bad != nullptr ? bad->message : std::string()));
  REQUIRE(bad == nullptr);
  return p;
}

}  // namespace planted

namespace {

struct Outcome {
  chip::TimingResult run;
  check::Report report;
};

config::Config trn2() {
  std::string error;
  auto c = config::load("trn2", "dma.queue_depth=4", &error);
  REQUIRE(c.has_value());
  return *c;
}

Outcome run(const isa::Program& program, bool pedantic = false) {
  const config::Config config = trn2();
  check::Options options = check::options_of(config);
  options.counts_by_engine = pedantic;
  options.instruction_budget = 10000;
  check::Checker checker(program, options);
  Outcome o;
  o.run = chip::run_timing(program, config, &checker);
  o.report = checker.finish(o.run.status == Status::kOk);
  return o;
}

}  // namespace

TEST_CASE("The correct programs are clean") {
  for (const planted::Parent& parent : planted::parents()) {
    INFO(parent.name);
    const Outcome o = run(planted::assemble(parent.name, std::string(parent.text)));
    INFO(o.run.message);
    CHECK(o.run.status == Status::kOk);
    for (const check::Finding& f : o.report.findings) UNSCOPED_INFO(f.message);
    CHECK(o.report.findings.empty());
    CHECK(o.report.unchecked.empty());
  }
}

TEST_CASE("An output that holds values may be read before the program writes it") {
  const isa::Program program = planted::assemble("accumulate", R"(
tensor "y" output fp32 [128, 64] 32768 bytes
let A sbuf.fp32[0+128]@0{64:1}
stream sync
  dma_copy queue=0 dst=$A src0=hbm("y").fp32{8192:1} | then s16+=16
  wait s1>=1 | dma_copy queue=0 dst=hbm("y").fp32{8192:1} src0=$A | then s16+=16
stream vector
  wait s16>=16 | tensor_scalar op0=multiply dst=$A src0=$A imm0=2 | then s1+=1
)");
  const auto launch = [&](const std::vector<uint64_t>& initialised) {
    std::vector<std::byte> y(32768);
    return check::testing::strict_error(program, {{y.data(), y.size()}}, initialised);
  };
  CHECK(launch({32768}) == "");
  CHECK_THAT(launch({0}), ContainsSubstring("bytes 0-32767"));
  CHECK_THAT(launch({32000}), ContainsSubstring("bytes 32000-32767"));
}

TEST_CASE("Random programs for two cores have no race, and the high water is that of the fuller core") {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    isa::RandomProgram random(seed);
    const isa::Program program = random.legal_program(80, isa::Generation::kTrn2, 2);
    INFO("seed " << seed);
    const Outcome o = run(program);
    for (const check::Finding& f : o.report.findings) {
      INFO(f.message);
      CHECK(f.kind != check::Kind::kRace);
    }
  }
  const Outcome o = run(planted::assemble("two", R"(cores 2
stream vector
  memset dst=sbuf.fp32[0+128]@0{64:1} imm0=1
core 1
stream vector
  memset dst=sbuf.fp32[0+128]@4096{64:1} imm0=1
)"));
  CHECK(o.report.sbuf_high_water == 4096 + 256);
}

TEST_CASE("Rows that an index list picks count as what the data says, where there is data") {
  // Rows are added to the output while others of its rows are copied out: no wait orders the two.
  const isa::Program program = planted::assemble("picked", R"(
tensor "i" input int32 [32, 1] 128 bytes
tensor "z" input fp32 [32, 64] 8192 bytes
tensor "y" output fp32 [256, 64] 65536 bytes
tensor "copy" output fp32 [32, 64] 8192 bytes
let I sbuf.int32[0+32]@0{1:1}
let G sbuf.fp32[0+32]@256{64:1}
let C sbuf.fp32[0+32]@1024{64:1}
stream sync
  dma_copy queue=0 dst=$I src0=hbm("i").int32{32:1} | then s16+=16
  dma_copy queue=1 dst=$G src0=hbm("z").fp32{2048:1} | then s17+=16
  dma_copy queue=4 dst=$C src0=hbm("y").fp32@32768{2048:1} | then s19+=16
  wait s19>=16 | dma_copy queue=4 dst=hbm("copy").fp32{2048:1} src0=$C | then s19+=16
stream gpsimd
  wait s16>=16, s17>=16 | dma_scatter queue=3 dge=software op0=add dst=hbm("y").fp32{256:64,64:1} src0=$G src1=$I | then s18+=16
)");
  const auto launch = [&](chip::Mode mode, int32_t first_row) {
    std::vector<std::vector<std::byte>> memory;
    std::vector<exec::HbmTensor> hbm;
    std::vector<uint64_t> initialised;
    for (const isa::TensorDecl& t : program.tensors) {
      memory.emplace_back(t.bytes);
      hbm.push_back({memory.back().data(), t.bytes});
      initialised.push_back(t.bytes);
    }
    for (int32_t k = 0; k < 32; ++k) {
      const int32_t row = first_row + k;
      std::memcpy(&memory[0][static_cast<size_t>(k) * 4], &row, 4);
    }
    return check::testing::strict_error(program, hbm, initialised, mode);
  };
  CHECK_THAT(launch(chip::Mode::kTime, 0), ContainsSubstring("race"));  // any row may be meant
  for (const chip::Mode mode : {chip::Mode::kBoth, chip::Mode::kData}) {
    CHECK(launch(mode, 0) == "");
    CHECK(launch(mode, 96) == "");
    CHECK_THAT(launch(mode, 97), ContainsSubstring("race"));
    CHECK_THAT(launch(mode, 97), ContainsSubstring("bytes 32768-33023 of tensor 'y'"));
  }
}

TEST_CASE("Elements that an index list picks beyond their memory are the instruction's fault to report") {
  const auto launch = [](const std::string& step, uint16_t index) {
    isa::Program program;
    std::vector<isa::AssembleError> errors;
    const bool good = isa::assemble(R"(program "far" target "trn3"
tensor "i" input uint16 [16] 32 bytes
tensor "n" input int32 [1] 4 bytes
stream sync
  reg_load reg_dst=r0 src0=hbm("n").int32{1:1}
  branch op0=not_equal reg_a=r0 imm=0 flags=immediate target=end
  dma_copy queue=0 dst=sbuf.uint16[0+16]@131072{1:1} src0=hbm("i").uint16{16:1} | then s16+=16
end:
  reg_load reg_dst=r0 src0=hbm("n").int32{1:1}
stream vector
  memset dst=sbuf.fp32[0+128]{16384:1} imm0=1
  wait s16>=16 | copy dst=sbuf.fp32[0+128]@65536{1:1} src0=sbuf.fp32[0+128]@256{1:)" +
                                        step +
                                        R"(}<uint16[0]@131072>
)",
                                    program, errors);
    INFO(isa::to_text(errors, "far"));
    REQUIRE(good);
    std::vector<uint16_t> list(16, index);
    int32_t zero = 0;
    return check::testing::strict_error(
        program, {{reinterpret_cast<std::byte*>(list.data()), 32}, {reinterpret_cast<std::byte*>(&zero), 4}},
        {}, chip::Mode::kBoth);
  };
  CHECK(launch("64", 3) == "");
  CHECK_THAT(launch("64", 40000), ContainsSubstring("entry 0 of an index list is 40000"));
  CHECK_THAT(launch("-64", 2), ContainsSubstring("entry 0 of an index list is 2"));
}

TEST_CASE("Pedantic checks tell of waits for one of several transfers that count together") {
  const auto sentences = [](std::string text, const std::vector<std::pair<std::string, std::string>>& edits) {
    for (const auto& [from, to] : edits) {
      const size_t at = text.find(from);
      INFO(from);
      REQUIRE(at != std::string::npos);
      text.replace(at, from.size(), to);
    }
    const isa::Program program = planted::assemble("p", text);
    CHECK(run(program).report.findings.empty());
    std::vector<std::string> out;
    for (const check::Finding& f : run(program, true).report.findings) {
      CHECK(f.kind == check::Kind::kStandIn);
      out.push_back(f.message);
    }
    return out;
  };
  // One transfer at a time, also in loops.
  CHECK(sentences(planted::text_of("chain"), {}).empty());
  CHECK(sentences(planted::text_of("loop"), {}).empty());
  // Two loads and two stores in flight.
  const auto tiles = sentences(planted::text_of("tiles"), {});
  REQUIRE(tiles.size() >= 2);
  for (const char* part :
       {"user error: early count: the wait of Vector instruction 0 (tensor_scalar, p.py:",
        ") for Sync instruction 0 (dma_copy, p.py:",
        "may pass before its end, because Sync instruction 1 (dma_copy, p.py:",
        "stands in for one that still works on the first", "Wait for both, trigger Sync instruction 1 after"})
    CHECK_THAT(tiles.front(), ContainsSubstring(part));
  // Semaphores of their own for the second load and the second store of every pair.
  const std::vector<std::pair<std::string, std::string>> own = {
      {"dst=$A1 src0=hbm(\"x\").fp32@32768{8192:1} | then s16",
       "dst=$A1 src0=hbm(\"x\").fp32@32768{8192:1} | then s18"},
      {"dst=$A1 src0=hbm(\"x\").fp32@98304{8192:1} | then s16",
       "dst=$A1 src0=hbm(\"x\").fp32@98304{8192:1} | then s18"},
      {"wait s16>=32 |", "wait s18>=16 |"},
      {"wait s16>=48, s17>=16", "wait s16>=32, s17>=16"},
      {"wait s16>=64, s17>=32", "wait s18>=32, s19>=16"},
      {"fp32@32768{8192:1} src0=$B1 | then s17", "fp32@32768{8192:1} src0=$B1 | then s19"},
      {"fp32@98304{8192:1} src0=$B1 | then s17", "fp32@98304{8192:1} src0=$B1 | then s19"}};
  CHECK(sentences(planted::text_of("tiles"), own).empty());
  // Of two loads that count together the last may be awaited; the first may not, whichever comes first in time.
  const std::string two = R"(
tensor "x" input fp32 [2, 128, 64] 65536 bytes
tensor "y" output fp32 [128, 64] 32768 bytes
let A sbuf.fp32[0+128]@0{64:1}
let B sbuf.fp32[0+128]@4096{64:1}
let C sbuf.fp32[0+128]@8192{64:1}
stream sync
  dma_copy queue=0 dst=$A src0=hbm("x").fp32@0{8192:1} | then s16+=16
  dma_copy queue=0 dst=$B src0=hbm("x").fp32@32768{8192:1} | then s16+=16
  wait s1>=1 | dma_copy queue=1 dst=hbm("y").fp32{8192:1} src0=$C | then s17+=16
  wait s17>=16 | semaphore
stream vector
  wait s16>=32 | tensor_tensor op0=add dst=$C src0=$A src1=$B | then s1+=1
)";
  CHECK(sentences(two, {}).empty());
  CHECK(sentences(two, {{"  wait s16>=32 |", "  wait s16>=16 | semaphore\n  wait s16>=32 |"}}).size() == 1);
  // The wait is over long before the second load is triggered, but nothing says so.
  std::string slow;
  for (int n = 0; n < 100; ++n) slow += "  reg_move reg_dst=r0 imm=1\n";
  CHECK(sentences(two, {{"  wait s16>=32 |", "  wait s16>=16 | semaphore\n  wait s16>=32 |"},
                        {"  dma_copy queue=0 dst=$B", slow + "  dma_copy queue=0 dst=$B"}})
            .size() == 1);
}

TEST_CASE("Every planted fault is found in the right words") {
  CHECK(planted::faults().size() >= 60);
  for (const planted::Fault& fault : planted::faults()) {
    INFO(fault.parent << ": " << fault.what);
    const Outcome o = run(planted::assemble(fault.parent, planted::plant(fault)));
    std::string sentence;
    if (!fault.kind.has_value() || *fault.kind == check::Kind::kEndless) {
      CHECK(o.run.status == Status::kHang);
      sentence = o.run.message;
    } else {
      INFO("run: " << o.run.message);
      CHECK(o.run.status == Status::kOk);
      INFO("findings: " << o.report.findings.size());
      if (o.report.findings.empty()) {
        CHECK_FALSE(o.report.findings.empty());
        continue;
      }
      CHECK(o.report.findings.front().kind == *fault.kind);
      sentence = o.report.findings.front().message;
    }
    for (std::string_view part : fault.parts) CHECK_THAT(sentence, ContainsSubstring(std::string(part)));
  }
}
