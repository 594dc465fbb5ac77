// Writes docs/isa.md and docs/support.md: trnsim_isa_docs DIRECTORY.
#include <cstdio>
#include <fstream>
#include <string>

#include "isa/docs.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: trnsim_isa_docs DIRECTORY\n");
    return 2;
  }
  const std::string directory = argv[1];
  std::ofstream isa(directory + "/isa.md", std::ios::binary),
      support(directory + "/support.md", std::ios::binary);
  isa << trnsim::isa::isa_markdown();
  support << trnsim::isa::support_markdown();
  return isa.flush() && support.flush() ? 0 : 1;
}
