// Writes docs/isa.md: trnsim_isa_docs FILE.
#include <cstdio>
#include <fstream>

#include "isa/docs.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: trnsim_isa_docs FILE\n");
    return 2;
  }
  std::ofstream out(argv[1], std::ios::binary);
  out << trnsim::isa::isa_markdown();
  return out.flush() ? 0 : 1;
}
