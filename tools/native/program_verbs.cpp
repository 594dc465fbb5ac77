// asm, disasm, validate, isa: programs as text and as containers, and the instruction table.
#include <filesystem>
#include <iostream>

#include "isa/container.h"
#include "isa/disassembler.h"
#include "isa/docs.h"
#include "isa/names.h"
#include "isa/table.h"
#include "isa/validator.h"
#include "tools/native/files.h"

namespace trnsim::native {
namespace po = boost::program_options;

namespace {

po::positional_options_description one(const char* name) {
  po::positional_options_description p;
  p.add(name, 1);
  return p;
}

}  // namespace

int asm_verb(const Arguments& arguments) {
  po::options_description options("options");
  options.add_options()("file", po::value<std::string>()->required(), "assembler text (.trnasm)")(
      "output,o", po::value<std::string>(), "container to write; default: the input with suffix .trnp")(
      "no-validate", "write the container although the chip would refuse the program");
  int code = kGood;
  const auto map = parse(arguments, "asm FILE.trnasm [-o FILE.trnp]", options, one("file"), &code);
  if (!map) return code;
  const auto file = (*map)["file"].as<std::string>();
  const std::string output = map->count("output") != 0
                                 ? (*map)["output"].as<std::string>()
                                 : std::filesystem::path(file).replace_extension(".trnp").string();
  if (output == file)
    return complain("user error: input and output are both " + file + "; name one with -o", kUsage);
  isa::Program program;
  std::string error;
  if (code = read_program_file(file, &program); code != kGood) return code;
  if (!check_output(output, runtime::Replaces::kAnything, &error)) return complain(error, kUsage);
  if (map->count("no-validate") == 0) {
    const auto diagnostics = isa::validate(program);
    for (const auto& d : diagnostics) std::cerr << d.message << '\n';
    if (isa::first_error(diagnostics) != nullptr)
      return complain(file + ": the chip would refuse this program; nothing is written", kFailed);
  }
  if (!write_file(output, isa::write_container(program), &error)) return complain(error, kFailed);
  return kGood;
}

int disasm_verb(const Arguments& arguments) {
  po::options_description options("options");
  options.add_options()("file", po::value<std::string>()->required(), "container (.trnp)")(
      "output,o", po::value<std::string>(), "text to write; default: the terminal")(
      "no-constants", "leave contents of constants out");
  int code = kGood;
  const auto map = parse(arguments, "disasm FILE.trnp [-o FILE.trnasm]", options, one("file"), &code);
  if (!map) return code;
  isa::Program program;
  std::string error;
  if (code = read_program_file((*map)["file"].as<std::string>(), &program); code != kGood) return code;
  if (map->count("output") != 0 &&
      !check_output((*map)["output"].as<std::string>(), runtime::Replaces::kAnything, &error))
    return complain(error, kUsage);
  isa::DisassembleOptions how;
  how.constants = map->count("no-constants") == 0;
  const std::string text = isa::disassemble(program, how);
  if (map->count("output") == 0) {
    std::cout << text;
    return kGood;
  }
  if (!write_file((*map)["output"].as<std::string>(), {text.begin(), text.end()}, &error))
    return complain(error, kFailed);
  return kGood;
}

int validate_verb(const Arguments& arguments) {
  po::options_description options("options");
  options.add_options()("file", po::value<std::string>()->required(), "program (.trnp or .trnasm)")(
      "target", po::value<std::string>(), "chip to check for; default: the one the program names");
  int code = kGood;
  const auto map = parse(arguments, "validate FILE [--target trn2|trn3]", options, one("file"), &code);
  if (!map) return code;
  const auto file = (*map)["file"].as<std::string>();
  isa::Program program;
  if (code = read_program_file(file, &program); code != kGood) return code;
  if (map->count("target") != 0) {
    program.target = (*map)["target"].as<std::string>();
    if (!isa::generation_from_target(program.target))
      return complain("user error: --target: " + isa::unknown_target(program.target), kUsage);
  }
  const auto diagnostics = isa::validate(program);
  for (const auto& d : diagnostics) std::cout << d.message << '\n';
  if (isa::first_error(diagnostics) != nullptr) return kFailed;
  size_t instructions = 0;
  for (const auto& s : program.streams) instructions += s.size();
  std::cout << file << ": legal on " << program.target << " (" << instructions << " instructions, "
            << program.tensors.size() << " tensors)\n";
  std::cout << "What only running it shows (races, uninitialised reads, addresses): " << command_name
            << " run --check strict " << file << '\n';
  return kGood;
}

int isa_verb(const Arguments& arguments) {
  po::options_description options("options");
  options.add_options()("name", po::value<std::string>(), "instruction")("markdown",
                                                                         "the whole table as a page");
  int code = kGood;
  const auto map = parse(arguments, "isa [NAME] [--markdown]", options, one("name"), &code);
  if (!map) return code;
  if (map->count("markdown") != 0) {
    std::cout << isa::isa_markdown();
    return kGood;
  }
  if (map->count("name") == 0) {
    for (const isa::Row& row : isa::all_rows()) {
      std::string engines;
      for (int e = 0; e < isa::kNumEngines; ++e)
        if (row.runs_on(static_cast<isa::Engine>(e)))
          engines += (engines.empty() ? "" : ",") + std::string(isa::name(static_cast<isa::Engine>(e)));
      std::string line(row.name);
      line.resize(std::max<size_t>(line.size() + 1, 24), ' ');
      line += engines;
      line.resize(std::max<size_t>(line.size() + 1, 60), ' ');
      std::cout << line << row.doc << '\n';
    }
    return kGood;
  }
  const auto name = (*map)["name"].as<std::string>();
  const std::string text = isa::explain(name);
  if (isa::row_by_name(name) == nullptr) return complain(text.substr(0, text.find('\n')), kUsage);
  std::cout << text;
  return kGood;
}

}  // namespace trnsim::native
