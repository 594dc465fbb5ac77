#include "tools/native/files.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include "isa/assembler.h"
#include "isa/container.h"

namespace trnsim::native {
namespace po = boost::program_options;

int complain(const std::string& text, int code) {
  std::cerr << "trnsim: " << text << '\n';
  return code;
}

bool read_file(const std::string& path, std::vector<uint8_t>* out, std::string* error) {
  std::error_code ec;
  if (std::filesystem::is_directory(path, ec)) {
    *error = "user error: " + path + " is a directory";
    return false;
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    *error = "user error: cannot open " + path + ": " + std::strerror(errno);
    return false;
  }
  out->assign(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  return true;
}

bool write_file(const std::string& path, const std::vector<uint8_t>& bytes, std::string* error) {
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  out.flush();
  if (out) return true;
  *error = "user error: cannot write " + path + ": " + std::strerror(errno);
  return false;
}

bool read_program_file(const std::string& path, isa::Program* out, std::string* error) {
  std::vector<uint8_t> bytes;
  if (!read_file(path, &bytes, error)) return false;
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
    if (isa::assemble(view, *out, errors, options)) return true;
    *error = isa::to_text(errors, path);
    while (!error->empty() && error->back() == '\n') error->pop_back();
    return false;
  }
  isa::ContainerError refused;
  if (isa::read_program({bytes.data(), bytes.size()}, *out, &refused)) return true;
  *error = path + ": " + refused.message;
  return false;
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
      std::cout << "usage: trnsim-native " << usage << "\n" << all;
      *code = kGood;
      return std::nullopt;
    }
    po::notify(map);
  } catch (const po::error& e) {
    *code = complain(std::string("user error: ") + e.what() + "\nusage: trnsim-native " + usage, kUsage);
    return std::nullopt;
  }
  return map;
}

}  // namespace trnsim::native
