#include "isa/assembler.h"
#include "isa/disassembler.h"
#include "isa/random_program.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/isa/same_program.h"

using namespace trnsim::isa;

namespace {

const char kAxpy[] = R"(# comment
program "axpy" target "trn2"
flops 16384
hbm_bytes 98304
note "fused" "one map"
tensor "x" input fp32 [128, 64] 32768 bytes
tensor "y" output fp32 [128, 64] 32768 bytes
tensor "w" constant uint8 [4] 4 bytes = hex 00ff10a0
location 1 "model.py" 12 "x + y"

stream sync
  dma_copy dst=sbuf.fp32[0+128]{64:1} src0=hbm("x").fp32{128:64,64:1} queue=2 | then s3+=16 !1
stream vector
again: wait s3>=16, s4>=r2+1 | tensor_scalar op0=multiply dst=sbuf.fp32[0+128]@1024{64:1} src0=sbuf.fp32[0+128]{64:1} imm0=2.5 | then s1+=1 !1
  loop reg_a=r0 target=again   # back
  jump target=end
end:
)";

std::string first_error(const std::string& text) {
  Program p;
  std::vector<AssembleError> errors;
  REQUIRE_FALSE(assemble(text, p, errors));
  return to_text(errors, "t.trnasm");
}

// A program around one vector instruction, on line 3.
std::string with(const std::string& line) {
  return "program \"t\" target \"trn2\"\nstream vector\n" + line + "\n";
}

}  // namespace

TEST_CASE("a program is read from text") {
  Program p;
  std::vector<AssembleError> errors;
  const bool ok = assemble(kAxpy, p, errors);
  INFO(to_text(errors, "axpy.trnasm"));
  REQUIRE(ok);
  CHECK(p.name == "axpy");
  CHECK(p.flops == 16384);
  REQUIRE(p.tensors.size() == 3);
  CHECK(p.tensors[2].constant == std::vector<uint8_t>{0, 255, 16, 160});
  REQUIRE(p.streams[1].size() == 3);
  const Instruction& i = p.streams[1][0];
  CHECK(i.sync.num_waits == 2);
  CHECK(i.sync.waits[1].value_register == 2);
  CHECK(i.sync.waits[1].value == 1);
  CHECK(i.sync.update == SemOp::kAdd);
  CHECK(i.dst.offset == 1024);
  CHECK(i.imm0.value == 2.5f);
  CHECK(i.location == 1);
  CHECK(p.streams[1][1].target == 0);
  CHECK(p.streams[1][2].target == 3);
  CHECK(p.streams[4][0].src0.tensor == 0);
  CHECK(p.streams[4][0].queue == 2);
}

TEST_CASE("program, text, program: every opcode, any field") {
  RandomProgram random(11);
  for (int n = 0; n < 60; ++n) {
    const Program p = random.any_program(n == 0 ? 0 : 60);
    const std::string text = disassemble(p);
    Program back;
    std::vector<AssembleError> errors;
    const bool ok = assemble(text, back, errors);
    INFO(to_text(errors, "random"));
    REQUIRE(ok);
    check_same_program(p, back);
    CHECK(disassemble(back) == text);
  }
}

TEST_CASE("legal programs round-trip too") {
  RandomProgram random(12);
  for (int cores : {1, 2}) {
    const Program p = random.legal_program(500, Generation::kTrn2, cores);
    Program back;
    std::vector<AssembleError> errors;
    REQUIRE(assemble(disassemble(p), back, errors));
    check_same_program(p, back);
  }
}

TEST_CASE("the streams behind `core 1` are those of the second core") {
  Program p;
  std::vector<AssembleError> errors;
  const std::string head = "program \"p\" target \"trn2\"\n";
  REQUIRE(
      assemble(head + "cores 2\nstream sync\nend: halt\ncore 1\nstream sync\n  jump target=end\nend: halt\n",
               p, errors));
  CHECK(p.cores == 2);
  CHECK(p.streams[stream_number(0, Engine::kSync)].size() == 1);
  REQUIRE(p.streams[stream_number(1, Engine::kSync)].size() == 2);
  CHECK(p.streams[stream_number(1, Engine::kSync)][0].target == 1);  // labels belong to their stream
  CHECK_FALSE(assemble(head + "core 1\nstream sync\n", p, errors));
  CHECK_THAT(to_text(errors, "f"),
             ContainsSubstring("f:2:6: core 1 of a program of 1; a program of two cores says so"));
  CHECK_FALSE(assemble(head + "cores 3\n", p, errors));
  CHECK_THAT(to_text(errors, "f"), ContainsSubstring("a program has 1 or 2 physical cores"));
}

TEST_CASE("tensors without a unique name are named by number") {
  Program p;
  p.tensors.resize(2);
  p.tensors[0].name = p.tensors[1].name = "x";
  Instruction i;
  i.opcode = Opcode::kRegStore;
  i.dst.space = Space::kHbm;
  i.dst.dtype = Dtype::kI32;
  i.dst.tensor = 1;
  CHECK(disassemble(i, &p) == "reg_store dst=hbm(#1).int32{} reg_a=r0");
  CHECK(disassemble(i) == "reg_store dst=hbm(#1).int32{} reg_a=r0");
  p.tensors[1].name = "y";
  CHECK(disassemble(i, &p) == "reg_store dst=hbm(\"y\").int32{} reg_a=r0");
}

TEST_CASE("constants: hex, file, external") {
  Program p;
  p.tensors.push_back({"w", TensorKind::kConstant, Dtype::kU8, {2}, 2, {1, 2}});
  DisassembleOptions external;
  external.constants = false;
  CHECK_THAT(disassemble(p, external), ContainsSubstring("2 bytes = external"));
  Program back;
  std::vector<AssembleError> errors;
  REQUIRE(assemble(disassemble(p, external), back, errors));
  CHECK(back.tensors[0].constant.empty());

  const std::string text =
      "program \"t\" target \"trn2\"\ntensor \"w\" constant uint8 [2] 2 bytes = file \"w.bin\"\n";
  AssembleOptions options;
  options.read_file = [](const std::string& path, std::vector<uint8_t>& contents, std::string* why) {
    *why = "no such file";
    contents = {7, 8};
    return path == "w.bin";
  };
  REQUIRE(assemble(text, back, errors, options));
  CHECK(back.tensors[0].constant == std::vector<uint8_t>{7, 8});
  CHECK_THAT(first_error(text), ContainsSubstring("2:41: cannot read 'w.bin'"));
}

TEST_CASE("errors name line, column and the nearest valid name") {
  CHECK_THAT(
      first_error(with("  tensor_tensr op0=add")),
      ContainsSubstring("t.trnasm:3:3: unknown instruction 'tensor_tensr'; did you mean 'tensor_tensor'?"));
  CHECK_THAT(first_error(with("tensor_tensor op0=ad")),
             ContainsSubstring("3:19: unknown operator 'ad'; did you mean 'add'?"));
  CHECK_THAT(first_error(with("tensor_tensor opo=add")),
             ContainsSubstring("3:15: unknown field of tensor_tensor 'opo'; did you mean 'op0'?"));
  CHECK_THAT(first_error(with("copy dst=sbuf.fp23[0+128]")),
             ContainsSubstring("unknown dtype 'fp23'; did you mean 'fp32'?"));
  CHECK_THAT(first_error(with("copy dst=sbif.fp32[0+128]")), ContainsSubstring("did you mean 'sbuf'?"));
  CHECK_THAT(first_error(with("copy dst=sbuf.fp32")), ContainsSubstring("3:19: expected '[first+count]'"));
  CHECK_THAT(first_error(with("copy dst=sbuf.fp32[0+70000]")),
             ContainsSubstring("out of range (0 to 65535)"));
  CHECK_THAT(first_error(with("copy dst=sbuf.fp32[0+1]{1:1,1:1,1:1,1:1,1:1,1:1}")),
             ContainsSubstring("5 dims at most"));
  CHECK_THAT(first_error(with("copy dst=hbm(\"z\").fp32{}")), ContainsSubstring("unknown tensor 'z'"));
  CHECK_THAT(first_error(with("jump target=strat\nstart:")),
             ContainsSubstring("3:13: unknown label 'strat'; did you mean 'start'?"));
  CHECK_THAT(first_error(with("a:\na:")), ContainsSubstring("exists already"));
  CHECK_THAT(first_error(with("wait s1>=1, s2>=1, s3>=1 | copy")), ContainsSubstring("2 semaphores at most"));
  CHECK_THAT(first_error(with("wait s300>=1 | copy")), ContainsSubstring("out of range (0 to 255)"));
  CHECK_THAT(first_error(with("wait s1>=1 copy")),
             ContainsSubstring("expected '|' after the waits, found 'copy'"));
  CHECK_THAT(first_error(with("copy | then s1*=1")), ContainsSubstring("expected +=, -= or ="));
  CHECK_THAT(first_error(with("multiply_moving flags=acumulate")),
             ContainsSubstring("did you mean 'accumulate'?"));
  CHECK_THAT(first_error(with("halt queue=1")), ContainsSubstring("halt has no fields"));
  CHECK_THAT(first_error(with("halt !3")), ContainsSubstring("location 3 is used but not defined"));
  CHECK_THAT(first_error("copy\n"), ContainsSubstring("1:1: an instruction outside of a stream"));
  CHECK_THAT(first_error("stream vectr\n"), ContainsSubstring("did you mean 'vector'?"));
  CHECK_THAT(first_error(""), ContainsSubstring("no program statement"));
  CHECK_THAT(first_error("program \"t target \"trn2\""), ContainsSubstring("expected 'target'"));
  CHECK_THAT(first_error("program \"t"), ContainsSubstring("1:9: the string does not end"));
  CHECK_THAT(
      first_error("program \"t\" target \"trn2\"\ntensor \"w\" constant uint8 [2] 3 bytes = hex 0001\n"),
      ContainsSubstring("the tensor has 3 bytes, its contents 2"));
  // One error per line, all lines.
  const std::string two = first_error(with("copyy\n\nmemsett"));
  CHECK_THAT(two, ContainsSubstring("t.trnasm:3:1") && ContainsSubstring("t.trnasm:5:1"));
}

TEST_CASE("damaged text is an error or another program, never a crash") {
  RandomProgram random(13);
  const std::string text = disassemble(random.any_program(20));
  for (int n = 0; n < 3000; ++n) {
    std::string damaged = text;
    const size_t at = random.below(damaged.size());
    if (random.chance(30)) {
      damaged.resize(at);
    } else if (random.chance(50)) {
      damaged[at] = static_cast<char>(random.below(256));
    } else {
      damaged.erase(at, 1 + random.below(20));
    }
    Program p;
    std::vector<AssembleError> errors;
    if (!assemble(damaged, p, errors)) {
      REQUIRE(errors[0].line >= 1);
      REQUIRE_FALSE(errors[0].message.empty());
    }
  }
}
