#include "isa/docs.h"

#include <vector>

#include "isa/names.h"
#include "isa/table.h"

namespace trnsim::isa {
namespace {

using Names = std::vector<std::string>;

std::string join(const Names& names, std::string_view separator = ", ") {
  std::string text;
  for (const std::string& n : names) {
    if (!text.empty()) text += separator;
    text += n;
  }
  return text;
}

std::string engines_text(const Row& r) {
  if (r.engines == (1u << kNumEngines) - 1) return "any";
  Names names;
  for (int e = 0; e < kNumEngines; ++e) {
    const auto engine = static_cast<Engine>(e);
    if (!r.runs_on(engine)) continue;
    names.push_back(std::string(name(engine)) + (r.runs_on(engine, r.since) ? "" : " (trn3)"));
  }
  return join(names);
}

std::string spaces_text(SpaceSet set) {
  Names names;
  for (Space s : {Space::kSbuf, Space::kPsum, Space::kHbm}) {
    if (contains(set, s)) names.emplace_back(name(s));
  }
  return join(names, "/");
}

std::string dtypes_text(DtypeSet set) {
  if (set == kDtypesCompute) return "any compute dtype";
  if (set == (kDtypesCompute | kDtypesOpaque)) return "any but int64, fp64";
  if (set == (kDtypesCompute | kDtypes64 | kDtypesOpaque)) return "any";
  Names names;
  for (int d = 0; d < kNumDtypes; ++d) {
    if (contains(set, static_cast<Dtype>(d))) names.emplace_back(dtype_name(static_cast<Dtype>(d)));
  }
  return join(names);
}

std::string operators_text(AluSet set) {
  Names names;
  for (int o = 0; o < static_cast<int>(AluOp::kCount); ++o) {
    if (contains(set, static_cast<AluOp>(o))) names.emplace_back(name(static_cast<AluOp>(o)));
  }
  return join(names);
}

std::string kinds_text(uint8_t kinds) {
  Names names;
  if (kinds & kScalarImmediate) names.emplace_back("constant");
  if (kinds & kScalarPointer) names.emplace_back("[P, 1] column in sbuf");
  return join(names, " or ") + (kinds & kScalarNone ? ", optional" : "");
}

std::string_view role_text(Role role) {
  switch (role) {
    case Role::kRead:
      return "read";
    case Role::kWrite:
      return "written";
    case Role::kReadWrite:
      return "updated";
    default:
      return "";
  }
}

struct FieldDoc {
  Field field;
  std::string_view name, text;
};
constexpr FieldDoc kFieldDocs[] = {
    {kFieldFunc, "func", "activation function"},
    {kFieldQueue, "queue", "DMA queue, 0 to 15"},
    {kFieldPriority, "priority",
     "traffic class 0 (most urgent) to 3, from trn3 on; of the packets that wait at a DMA engine the most "
     "urgent goes first"},
    {kFieldDge, "dge",
     "who builds the descriptors: static (in the program), hardware (from sync or scalar), software (from "
     "gpsimd)"},
    {kFieldReduceDims, "reduce_dims", "number of trailing dims to reduce"},
    {kFieldRegDst, "reg_dst", "register written"},
    {kFieldRegA, "reg_a", "register read"},
    {kFieldRegB, "reg_b", "register read, unless flag immediate"},
    {kFieldTarget, "target", "instruction in the same stream"},
    {kFieldImm, "imm", "32-bit integer constant"},
    {kFieldPattern, "base, partition_step, step", "affine pattern over partition and dims of dst"},
    {kFieldCount, "count", "a number whose meaning the text above gives"},
    {kFieldParam, "param", "slope of prelu"},
    {kFieldMask, "mask", "32 source partitions of a quadrant"},
    {kFieldTile, "tile", "[row, column, rows, columns] of the systolic array; absent: all of it"},
};

// (name, text) of everything the row takes besides operands.
std::vector<std::pair<std::string, std::string>> fields_of(const Row& r) {
  std::vector<std::pair<std::string, std::string>> fields;
  if (r.uses(kFieldOp0)) fields.emplace_back("op0", operators_text(r.op0));
  if (r.uses(kFieldOp1)) fields.emplace_back("op1", operators_text(r.op1));
  if (r.uses(kFieldImm0)) fields.emplace_back("imm0", kinds_text(r.imm0));
  if (r.uses(kFieldImm1)) fields.emplace_back("imm1", kinds_text(r.imm1));
  for (const FieldDoc& f : kFieldDocs) {
    if (r.uses(f.field)) fields.emplace_back(f.name, f.text);
  }
  if (r.uses(kFieldReduce)) {
    fields.emplace_back("reduce_op", operators_text(r.reduce_op));
    fields.emplace_back("reduce", "idle, reset, reduce, reset_reduce, load_reduce (start value imm1)");
  }
  if (r.flags) {
    fields.emplace_back(
        "flags",
        flags_text(r.flags) + (r.flags_trn3 ? " (from trn3 on: " + flags_text(r.flags_trn3) + ")" : ""));
  }
  return fields;
}

std::string operand_text(const OperandRule& o) {
  std::string text(o.shape);
  text += " in " + spaces_text(o.spaces) + ", " + std::string(role_text(o.role));
  if (!o.required) text += ", optional";
  text += "; dtypes: " + dtypes_text(o.dtypes);
  if (o.dtypes_trn3 != 0) text += ", from trn3 on " + dtypes_text(o.dtypes_trn3);
  if (o.indirect) text += "; may be indirect from trn3 on";
  if (o.max_free != 0) text += "; at most " + std::to_string(o.max_free) + " elements per partition";
  if (o.max_dims < 4) text += "; at most " + std::to_string(o.max_dims) + " free dims";
  return text;
}

// One line for each engine, or one when all agree.
std::string laws_text(const Row& r) {
  std::string text;
  std::string_view first;
  bool same = true;
  for (int e = 0; e < kNumEngines; ++e) {
    if (!r.runs_on(static_cast<Engine>(e))) continue;
    const std::string_view law = cost_law(r.cost, static_cast<Engine>(e));
    same &= first.empty() || law == first;
    first = law;
    text += "  " + std::string(name(static_cast<Engine>(e))) + ": " + std::string(law) + "\n";
  }
  return same ? "  " + std::string(first) + "\n" : text;
}

// Pipes would end a table cell.
std::string cell(std::string_view s) {
  std::string text;
  for (char c : s) {
    if (c == '|') text += '\\';
    text += c;
  }
  return text;
}

}  // namespace

std::string isa_markdown() {
  std::string md =
      "# Instructions\n\n"
      "Generated from the instruction table (`isa/rows.cpp`); do not edit. \"Source\" names the section of "
      "the public "
      "facts a row rests on; \"trnsim\" marks instructions of our own.\n\n"
      "| instruction | engines | since | cost class | does | source |\n|---|---|---|---|---|---|\n";
  for (const Row& r : all_rows()) {
    md += "| [`" + std::string(r.name) + "`](#" + std::string(r.name) + ") | " + engines_text(r) + " | " +
          std::string(name(r.since)) + " | " + std::string(name(r.cost)) + " | " + cell(r.doc) + " | " +
          cell(r.source) + " |\n";
  }
  md +=
      "\nEvery instruction may wait for two semaphores (`wait s3>=5`) and update one when its results are "
      "visible "
      "(`then s4+=1`; DMA adds 16 when the data has arrived).\n\n"
      "Operands of compute instructions in SBUF and PSUM: at most 128 partitions; the first partition is 0, "
      "32, 64 or 96 "
      "for up to 32 partitions, 0 or 64 for up to 64, else 0. At most 4 free dims with 16-bit sizes and "
      "steps, 65536 "
      "elements per partition in SBUF and 4096 in PSUM. The tensor engine reads SBUF and writes PSUM, vector "
      "and scalar "
      "reach both, gpsimd reaches SBUF only, DMA reaches SBUF and HBM. int64 and fp64 exist in HBM only; "
      "fp8e4fn takes part "
      "in arithmetic from trn3 on; e8m0, fp8e5x4, fp8e4fnx4 and fp4x4 (microscaling, trn3) are moved, "
      "quantised and "
      "multiplied only. An indirect operand, `sbuf.fp32[0+128]@0{64:1}<uint16[0]@4096>`, takes the place of "
      "each element "
      "of its first dim from a list of indices in SBUF. Which tests and probes stand behind a row: "
      "[support](support.md)."
      "\n";
  for (const Row& r : all_rows()) {
    md += "\n## " + std::string(r.name) + "\n\n" + std::string(r.doc);
    if (!r.detail.empty()) md += " " + std::string(r.detail);
    md += "\n";
    std::string list;
    for (int s = 0; s < kNumSlots; ++s) {
      const OperandRule& o = r.operands[s];
      if (o.role == Role::kNone) continue;
      list += "* `" + std::string(name(static_cast<Slot>(s))) + "`: " + operand_text(o) + "\n";
    }
    for (const auto& [field, text] : fields_of(r)) list += "* `" + field + "`: " + text + "\n";
    for (unsigned n = 0; n < static_cast<unsigned>(Rule::kCount); ++n) {
      if (r.has_rule(static_cast<Rule>(n)))
        list += "* rule: " + std::string(rule_text(static_cast<Rule>(n))) + "\n";
    }
    if (!list.empty()) md += "\n" + list;
  }
  return md;
}

std::string explain(std::string_view instruction) {
  const Row* r = row_by_name(instruction);
  if (r == nullptr) {
    std::string text = "user error: unknown instruction '" + std::string(instruction) + "'";
    const std::string_view nearest = nearest_name(instruction, opcode_names());
    if (!nearest.empty()) text += "; did you mean '" + std::string(nearest) + "'?";
    return text + "\n";
  }
  std::string text = std::string(r->name) + "\n  " + std::string(r->doc) + "\n";
  if (!r->detail.empty()) text += "  " + std::string(r->detail) + "\n";
  text += "engines:    " + engines_text(*r) + "\nsince:      " + std::string(name(r->since)) +
          "\ncost class: " + std::string(name(r->cost)) + "\ntime:       " + std::string(name(r->timing)) +
          "\nsource:     " + std::string(r->source) +
          "\ncost law (N: elements of dst per partition; parameters: trnsim config explain KEY):\n" +
          laws_text(*r);
  std::string operands, fields, rules;
  for (int s = 0; s < kNumSlots; ++s) {
    const OperandRule& o = r->operands[s];
    if (o.role != Role::kNone) {
      operands += "  " + std::string(name(static_cast<Slot>(s))) + ": " + operand_text(o) + "\n";
    }
  }
  for (const auto& [field, what] : fields_of(*r)) fields += "  " + field + ": " + what + "\n";
  for (unsigned n = 0; n < static_cast<unsigned>(Rule::kCount); ++n) {
    if (!r->has_rule(static_cast<Rule>(n))) continue;
    rules += "  " + std::string(rule_name(static_cast<Rule>(n))) + ": " +
             std::string(rule_text(static_cast<Rule>(n))) + "\n";
  }
  if (!operands.empty()) text += "operands:\n" + operands;
  if (!fields.empty()) text += "fields:\n" + fields;
  if (!rules.empty()) text += "rules:\n" + rules;
  return text;
}

}  // namespace trnsim::isa
