// Text names of the enums: one spelling for assembler text, messages, documentation and reports.
// C++17: included by sim/chip.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "isa/instruction.h"
#include "isa/program.h"

namespace trnsim::isa {

// "invalid" for a value outside the enum. Opcode names come from the instruction table.
std::string_view name(Opcode v);
std::string_view name(Engine v);  // "tensor" "vector" "scalar" "gpsimd" "sync"
std::string_view name(AluOp v);
std::string_view name(ActFunc v);
std::string_view name(Space v);       // "none" "sbuf" "psum" "hbm"
std::string_view name(DgeMode v);     // "static" "hardware" "software"
std::string_view name(ReduceCmd v);   // "idle" "reset" "reduce" "reset_reduce" "load_reduce"
std::string_view name(SemOp v);       // "none" "add" "subtract" "write"
std::string_view name(TensorKind v);  // "input" "output" "constant" "scratch"
std::string_view flag_name(Flags single_flag);
std::string flags_text(uint16_t flags);  // "accumulate|negate"; unknown bits as "0x40"; "" for none

// For messages: "Vector", and "Vector instruction 12 (tensor_tensor, model.py:31)" as far as the program knows.
std::string_view engine_label(Engine v);
// With the core where the program has two: "Vector of core 1", "Vector of core 1 instruction 12 (...)".
std::string stream_label(const Program& program, size_t stream);
std::string instruction_label(const Program& program, size_t stream, size_t index);

std::optional<Opcode> opcode_from_name(std::string_view text);
std::optional<Engine> engine_from_name(std::string_view text);
std::optional<AluOp> alu_op_from_name(std::string_view text);
std::optional<ActFunc> act_func_from_name(std::string_view text);
std::optional<Space> space_from_name(std::string_view text);
std::optional<DgeMode> dge_mode_from_name(std::string_view text);
std::optional<ReduceCmd> reduce_cmd_from_name(std::string_view text);
std::optional<TensorKind> tensor_kind_from_name(std::string_view text);
std::optional<Flags> flag_from_name(std::string_view text);

std::vector<std::string_view> opcode_names();
std::vector<std::string_view> engine_names();
std::vector<std::string_view> alu_op_names();
std::vector<std::string_view> act_func_names();
std::vector<std::string_view> dtype_names();
std::vector<std::string_view> flag_names();

// The candidate with the smallest edit distance to `text`, or "" when nothing is near enough to be a typing
// error.
std::string_view nearest_name(std::string_view text, const std::vector<std::string_view>& candidates);

}  // namespace trnsim::isa
