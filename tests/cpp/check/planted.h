// Correct programs and the faults planted in them.
//
// A program is assembler text with two shorthands: `let NAME operand` defines $NAME, and every instruction gets
// its line as source location ("tiles.py:LINE"). A fault replaces one piece of the text by another.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "isa/program.h"
#include "sim/check/checker.h"

namespace planted {

struct Parent {
  std::string_view name;
  std::string_view text;
};
const std::vector<Parent>& parents();

struct Fault {
  std::string_view parent;
  std::string_view what;
  std::string_view find, replace;
  // What finds it: a kind, or nothing for a hang (which the chip explains).
  std::optional<trnsim::check::Kind> kind;
  std::vector<std::string_view> parts;  // of the sentence
};
const std::vector<Fault>& faults();

// Fails the test when the text does not assemble or the chip would refuse it.
trnsim::isa::Program assemble(std::string_view name, std::string text);
std::string text_of(std::string_view parent);
std::string plant(const Fault& fault);

}  // namespace planted
