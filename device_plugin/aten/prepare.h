// Rewriting of arguments before the plan of a call is looked up, for the few operators that need it.
#pragma once

#include <string>

#include "device_plugin/aten/op_table.h"

namespace trnsim::aten {

PrepareFn prepare_for(const std::string& functional);  // null for most

}  // namespace trnsim::aten
