// Text form of a tile program: tensors, tiles and instructions in program order.
#include <sstream>

#include "device_plugin/compiler/backend.h"
#include "isa/names.h"

namespace trnsim::compiler {

using isa::Instruction;
using isa::Space;

namespace {

void put_access(std::ostream& out, const Access& a) {
  out << (a.space == Space::kHbm    ? "hbm"
          : a.space == Space::kPsum ? "psum"
                                    : "sbuf")
      << a.tensor << ':' << isa::dtype_name(a.dtype);
  if (a.space != Space::kHbm) out << " p" << a.start_partition << '+' << a.num_partitions;
  if (a.offset) out << " @" << a.offset;
  if (a.address_register != isa::kNoRegister) out << " +s" << int{a.address_register};
  out << " [";
  for (int i = 0; i < a.num_dims; ++i) out << (i ? "," : "") << a.step[i] << 'x' << a.size[i];
  out << ']';
}

void put_scalar(std::ostream& out, const isa::ScalarOperand& s) {
  if (s.kind == isa::ScalarOperand::Kind::kPointer) {
    put_access(out, s.pointer);
  } else {
    out << s.value;
  }
}

void put_instruction(std::ostream& out, const Instruction& i) {
  out << isa::name(i.engine) << ' ' << isa::name(i.opcode);
  if (i.op0 != AluOp::kNone) out << ' ' << isa::name(i.op0);
  if (i.op1 != AluOp::kNone) out << ' ' << isa::name(i.op1);
  if (i.opcode == isa::Opcode::kActivation || i.opcode == isa::Opcode::kActTableLoad)
    out << ' ' << isa::name(i.func);
  const std::pair<const char*, const Access*> accesses[] = {
      {"dst", &i.dst}, {"src0", &i.src0}, {"src1", &i.src1}, {"aux", &i.aux}};
  for (auto [label, a] : accesses) {
    if (!a->present()) continue;
    out << ' ' << label << '=';
    put_access(out, *a);
  }
  for (auto [label, s] : {std::pair{"imm0", &i.imm0}, std::pair{"imm1", &i.imm1}}) {
    if (s->kind == isa::ScalarOperand::Kind::kNone) continue;
    out << ' ' << label << '=';
    put_scalar(out, *s);
  }
  if (i.opcode == isa::Opcode::kTensorReduce) out << " dims=" << int{i.reduce_dims};
  if (i.opcode == isa::Opcode::kIota || i.opcode == isa::Opcode::kAffineSelect ||
      i.opcode == isa::Opcode::kPhilox) {
    out << " base=" << i.pattern.base << " partition_step=" << i.pattern.partition_step
        << " step=" << i.pattern.step[0] << ',' << i.pattern.step[1] << ',' << i.pattern.step[2] << ','
        << i.pattern.step[3];
  }
  if (i.flags) out << ' ' << isa::flags_text(i.flags);
}

}  // namespace

std::string tile_program_text(const TileProgram& program) {
  std::ostringstream out;
  out << "tile program \"" << program.program.name << "\" target " << program.program.target << '\n';
  for (size_t t = 0; t < program.program.tensors.size(); ++t) {
    const auto& d = program.program.tensors[t];
    out << "  hbm" << t << " = " << isa::name(d.kind) << " \"" << d.name << "\" " << isa::dtype_name(d.dtype)
        << " [";
    for (size_t i = 0; i < d.shape.size(); ++i) out << (i ? ", " : "") << d.shape[i];
    out << "] " << d.bytes << " bytes";
    if (program.alias_group[t] != t) out << " aliases hbm" << program.alias_group[t];
    out << '\n';
  }
  for (size_t t = 0; t < program.tiles.size(); ++t) {
    const TileInfo& d = program.tiles[t];
    out << "  " << (d.space == Space::kPsum ? "psum" : "sbuf") << t << " = " << isa::dtype_name(d.dtype)
        << " [" << d.partitions;
    for (int64_t s : d.dims) out << ", " << s;
    out << "]\n";
  }
  uint32_t location = 0;
  size_t next_loop = 0;
  for (size_t k = 0; k < program.code.size(); ++k) {
    const Instruction& i = program.code[k];
    if (next_loop < program.loops.size() && program.loops[next_loop].begin == k) {
      const TileLoop& loop = program.loops[next_loop];
      out << "    loop " << loop.count << " times, " << loop.end - loop.begin << " instructions";
      for (size_t s = 0; s < loop.strides.size(); ++s) out << ", s" << s << " = " << loop.strides[s];
      out << '\n';
      ++next_loop;
    }
    if (i.location != location) {
      location = i.location;
      const auto& l = program.program.locations[location];
      out << "  # " << l.what;
      if (!l.file.empty()) out << ' ' << l.file << ':' << l.line;
      out << '\n';
    }
    bool inside = next_loop > 0 && k < program.loops[next_loop - 1].end;
    out << (inside ? "      " : "    ");
    put_instruction(out, i);
    out << '\n';
  }
  return out.str();
}

}  // namespace trnsim::compiler
