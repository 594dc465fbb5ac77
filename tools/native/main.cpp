#include <algorithm>
#include <exception>
#include <iostream>
#include <iterator>

#include "tools/native/files.h"

int main(int argc, char** argv) {
  using namespace trnsim::native;
  struct Verb {
    const char* name;
    const char* doc;
    int (*run)(const Arguments&);
  };
  static const Verb kVerbs[] = {
      {"run", "run a program on the simulated chip", run_verb},
      {"asm", "assembler text to container", asm_verb},
      {"disasm", "container to assembler text", disasm_verb},
      {"validate", "check a program against the rules of the chip", validate_verb},
      {"isa", "the instruction table, or one instruction", isa_verb},
      {"config", "list, show, check, diff and explain parameters", config_verb},
  };
  const auto usage = [](std::ostream& out) {
    out << "usage: trnsim-native VERB [ARGUMENTS]; trnsim-native VERB --help\n";
    for (const Verb& v : kVerbs)
      out << "  " << v.name << std::string(10 - std::string(v.name).size(), ' ') << v.doc << '\n';
  };
  const Arguments arguments(argv + 1, argv + argc);
  if (arguments.empty()) {
    usage(std::cerr);
    return kUsage;
  }
  if (arguments[0] == "--help" || arguments[0] == "-h" || arguments[0] == "help") {
    usage(std::cout);
    return kGood;
  }
  const auto verb = std::find_if(std::begin(kVerbs), std::end(kVerbs),
                                 [&](const Verb& v) { return arguments[0] == v.name; });
  if (verb == std::end(kVerbs)) {
    complain("user error: no verb is named '" + arguments[0] + "'", kUsage);
    usage(std::cerr);
    return kUsage;
  }
  try {
    return verb->run(Arguments(arguments.begin() + 1, arguments.end()));
  } catch (const std::exception& e) {
    return complain(e.what(), kFailed);
  }
}
