// The verbs of trnsim-native. Each takes its own arguments and gives an exit code: 0 good, 1 failed, 2 wrong
// use.
#pragma once

#include <string>
#include <vector>

namespace trnsim::native {

using Arguments = std::vector<std::string>;

constexpr int kGood = 0;
constexpr int kFailed = 1;
constexpr int kUsage = 2;

int run_verb(const Arguments& arguments);
int asm_verb(const Arguments& arguments);
int disasm_verb(const Arguments& arguments);
int validate_verb(const Arguments& arguments);
int isa_verb(const Arguments& arguments);
int config_verb(const Arguments& arguments);

}  // namespace trnsim::native
