// Random legal programs: what the validator accepts, the executor runs; and a program means the same after a
// trip through the container and through assembler text.
#include <cstddef>
#include <vector>

#include "isa/assembler.h"
#include "isa/container.h"
#include "isa/disassembler.h"
#include "isa/random_program.h"
#include "isa/validator.h"
#include "sim/exec/exec.h"
#include "tests/cpp/catch.h"

using namespace trnsim;

namespace {

std::vector<std::byte> run(const isa::Program& program, std::vector<std::byte>& input) {
  std::vector<std::byte> output(program.tensors[1].bytes);
  exec::Status status;
  exec::CoreSizes sizes;
  sizes.sbuf_bytes_per_partition =
      isa::limits(*isa::generation_from_target(program.target)).sbuf_bytes_per_partition;
  const auto prepared = exec::prepare(program, sizes, &status);
  INFO(status.message);
  REQUIRE(status.ok());
  exec::Core core(sizes);
  core.reset();
  status =
      exec::run(core, *prepared, {{input.data(), input.size()}, {output.data(), output.size()}}, 1000000);
  INFO(status.message);
  REQUIRE(status.ok());
  return output;
}

}  // namespace

TEST_CASE("legal programs run, and run alike after container and text") {
  isa::RandomProgram random(20);
  for (isa::Generation generation : {isa::Generation::kTrn2, isa::Generation::kTrn3}) {
    for (int n = 0; n < 20; ++n) {
      const isa::Program program = random.legal_program(120, generation);
      REQUIRE(isa::validate(program).empty());
      std::vector<std::byte> input(program.tensors[0].bytes);
      for (std::byte& b : input) b = static_cast<std::byte>(random.below(256));
      const auto expected = run(program, input);

      const auto file = isa::write_container(program);
      isa::Program from_file;
      REQUIRE(isa::read_program({file.data(), file.size()}, from_file, nullptr));
      CHECK((run(from_file, input) == expected));

      isa::Program from_text;
      std::vector<isa::AssembleError> errors;
      REQUIRE(isa::assemble(isa::disassemble(program), from_text, errors));
      CHECK((run(from_text, input) == expected));
    }
  }
}
