// Documentation made from the instruction table.
#pragma once

#include <string>
#include <string_view>

namespace trnsim::isa {

// The page docs/isa.md: all instructions with engines, operands, fields and rules, then dtypes and operators.
std::string isa_markdown();

// One instruction as plain text; for an unknown name a message with the nearest one.
std::string explain(std::string_view instruction);

}  // namespace trnsim::isa
