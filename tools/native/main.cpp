#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iostream>
#include <iterator>

#include "tools/native/files.h"

namespace {

// Results that did not arrive are a failure: a full disk, a closed pipe whose signal is ignored.
int finished(int code) {
  using namespace trnsim::native;
  std::cout.flush();
  const bool good = std::cout.good() && std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  return good || code != kGood ? code : complain("the standard output cannot be written", kFailed);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace trnsim::native;
  if (argc > 0) command_name = std::filesystem::path(argv[0]).filename().string();
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
    out << "usage: " << command_name << " VERB [ARGUMENTS]; " << command_name << " VERB --help; "
        << command_name << " --version\n";
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
    return finished(kGood);
  }
  if (arguments[0] == "--version") {
    std::cout << "trnsim " TRNSIM_VERSION "\n";
    return finished(kGood);
  }
  const auto verb = std::find_if(std::begin(kVerbs), std::end(kVerbs),
                                 [&](const Verb& v) { return arguments[0] == v.name; });
  if (verb == std::end(kVerbs)) {
    complain("user error: no verb is named '" + arguments[0] + "'", kUsage);
    usage(std::cerr);
    return kUsage;
  }
  try {
    return finished(verb->run(Arguments(arguments.begin() + 1, arguments.end())));
  } catch (const std::exception& e) {
    return complain(e.what(), kFailed);
  }
}
