// Text dump of a kernel list (the level between the graph and tile programs), for people: it is not parsed.
#pragma once

#include <string>

#include "device_plugin/compiler/kernels.h"

namespace trnsim::compiler {

std::string kernels_text(const KernelList& list);
std::string_view expr_op_name(ExprOp op);
std::string_view reduce_op_name(ReduceOp op);

}  // namespace trnsim::compiler
