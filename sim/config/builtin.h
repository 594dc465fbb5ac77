// Text of the files of configs/, compiled in (generated source).
#pragma once

#include <string>
#include <vector>

namespace trnsim::config {

struct Builtin {
  std::string name;  // "trn2"
  std::string path;  // "configs/trn2.textproto", for messages
  std::string text;
};
const std::vector<Builtin>& builtins();

}  // namespace trnsim::config
