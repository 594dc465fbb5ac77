// Fuzzing: programs, containers and texts made from a seed, and the judgement on them.
//
// What must hold: nothing crashes or runs for ever; what the validator refuses every mode refuses with the same words;
// `data` and `both` give the same values and end alike, `time` and `both` take the same time; a program means the same
// after a trip through text; programs that are legal by construction run and have no race.
// C++17 (drives sim/chip).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "isa/program.h"
#include "isa/random_program.h"
#include "isa/validator.h"
#include "sim/chip/device.h"
#include "sim/config/config.h"

namespace trnsim::fuzz {

enum class Kind : uint8_t {
  kLegal,      // a legal program
  kMutated,    // a legal program with a few changed fields: most are refused
  kContainer,  // the bytes of a legal program, damaged
  kText,       // its assembler text, damaged
};
constexpr int kNumKinds = 4;
const char* name(Kind kind);

struct Case {
  Kind kind = Kind::kLegal;
  isa::Program program;        // kLegal, kMutated
  std::vector<uint8_t> bytes;  // kContainer, kText
};

// The same case for the same seed, on every machine.
Case make_case(uint64_t seed);
uint64_t case_seed(uint64_t seed, uint64_t number);  // of one case of a run

// Changes one to four things in the program, legal or not (mutate.cpp).
void mutate(isa::Program& program, isa::RandomProgram& random);
void damage_container(std::vector<uint8_t>& bytes, isa::RandomProgram& random);
void damage_text(std::string& text, isa::RandomProgram& random);

struct Verdict {
  enum class Result : uint8_t { kRan, kRefused, kFailed } result = Result::kRan;
  std::string why;  // kFailed: what does not hold; kRefused: the words of the refusal
};

class Judge {
 public:
  Judge();
  ~Judge();
  Verdict judge(const Case& c);
  Verdict judge_program(const isa::Program& written, bool legal_by_construction);

 private:
  struct Chip;
  struct Run;
  using Memory = std::vector<std::vector<std::byte>>;  // of every tensor
  Run run(chip::Device& device, const isa::Program& program, const std::vector<uint8_t>& container,
          Memory* memory);
  std::vector<std::unique_ptr<Chip>> chips_;  // one per generation
  std::vector<std::byte> filler_;             // what tensors hold before a run
  Memory both_memory_, data_memory_;
};

// A program with fewer instructions for which `fails` still holds (shrink.cpp).
isa::Program shrink(isa::Program program, const std::function<bool(const isa::Program&)>& fails);

}  // namespace trnsim::fuzz
