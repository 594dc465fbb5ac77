// Build tool: prints the compiler's table of lowerings as rows of op_table.cpp.
#include <cstdio>

#include "device_plugin/compiler/compiler.h"

int main() {
  for (const trnsim::compiler::OpInfo& op : trnsim_compiler()->lowered_ops())
    std::printf("{\"%s\", %lluull, %s},\n", op.name.c_str(), static_cast<unsigned long long>(op.const_args),
                op.random ? "true" : "false");
  return 0;
}
