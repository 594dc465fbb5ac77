// Programs, options and messages shared by the verbs.
#pragma once

#include <boost/program_options.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "isa/program.h"
#include "tools/native/bytes.h"
#include "tools/native/verbs.h"

namespace trnsim::native {

extern std::string command_name;                  // as the user called it: trnsim or trnsim-native
int complain(const std::string& text, int code);  // "trnsim: text" on stderr

// A program from a container or from assembler text, told apart by the contents. The exit code: a file that cannot be
// read is wrong use, a program with an error has failed. Anything but kGood has been said.
int read_program_file(const std::string& path, isa::Program* out);

// Parses the arguments of a verb; nothing and *code set when the verb is to end (help asked, or a wrong
// option).
std::optional<boost::program_options::variables_map> parse(
    const Arguments& arguments, const std::string& usage,
    const boost::program_options::options_description& options,
    const boost::program_options::positional_options_description& positional, int* code);

}  // namespace trnsim::native
