// Documentation made from the instruction table.
#pragma once

#include <string>
#include <string_view>

#include "isa/table.h"

namespace trnsim::isa {

// The page docs/isa.md: all instructions with engines, operands, fields and rules, then dtypes and operators.
std::string isa_markdown();
// docs/support.md: what stands behind every row, dtype and activation function.
std::string support_markdown();

// The law that sim/cost applies, with the names of its parameters; N: elements of dst per partition. Empty when
// the engine does not run the class.
std::string_view cost_law(CostClass cost, Engine engine);

// One instruction as plain text; for an unknown name a message with the nearest one.
std::string explain(std::string_view instruction);

}  // namespace trnsim::isa
