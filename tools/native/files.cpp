#include "tools/native/files.h"

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <iostream>

#include "isa/assembler.h"
#include "isa/container.h"

namespace trnsim::native {
namespace po = boost::program_options;

std::string command_name = "trnsim-native";

int complain(const std::string& text, int code) {
  if (isatty(STDERR_FILENO) != 0) std::cerr << "\r\033[K";  // a line of progress may stand there
  std::cerr << "trnsim: " << text << '\n';
  return code;
}

int read_program_file(const std::string& path, isa::Program* out) {
  std::vector<uint8_t> bytes;
  std::string error;
  if (!read_file(path, &bytes, &error)) return complain(error, kUsage);
  const auto folder = std::filesystem::path(path).parent_path();
  // Text holds no zero byte and does not start like a container.
  const bool text =
      !bytes.empty() && bytes[0] < 0x80 && std::memchr(bytes.data(), 0, bytes.size()) == nullptr;
  if (text) {
    isa::AssembleOptions options;
    options.read_file = [&](const std::string& name, std::vector<uint8_t>& contents, std::string* why) {
      return read_file((folder / name).string(), &contents, why);  // relative to the program
    };
    std::vector<isa::AssembleError> errors;
    const std::string_view view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (isa::assemble(view, *out, errors, options)) return kGood;
    error = isa::to_text(errors, path);
    while (!error.empty() && error.back() == '\n') error.pop_back();
    return complain(error, kFailed);
  }
  isa::ContainerError refused;
  if (isa::read_program({bytes.data(), bytes.size()}, *out, &refused)) return kGood;
  return complain(path + ": " + refused.message, kFailed);
}

std::optional<po::variables_map> parse(const Arguments& arguments, const std::string& usage,
                                       const po::options_description& options,
                                       const po::positional_options_description& positional, int* code) {
  po::options_description all;
  all.add(options);
  all.add_options()("help,h", "this text");
  po::variables_map map;
  try {
    // No guessing of shortened names: an abbreviation would change its meaning with the next option.
    const int style = po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
    po::store(po::command_line_parser(arguments).options(all).positional(positional).style(style).run(), map);
    if (map.count("help") != 0) {
      std::cout << "usage: " << command_name << " " << usage << "\n" << all;
      *code = kGood;
      return std::nullopt;
    }
    po::notify(map);
  } catch (const po::required_option&) {  // the one required thing of every verb
    *code = complain("user error: the file is missing\nusage: " + command_name + " " + usage, kUsage);
    return std::nullopt;
  } catch (const po::error& e) {
    *code =
        complain(std::string("user error: ") + e.what() + "\nusage: " + command_name + " " + usage, kUsage);
    return std::nullopt;
  }
  return map;
}

}  // namespace trnsim::native
