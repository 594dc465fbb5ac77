#include "isa/disassembler.h"

#include <charconv>
#include <cmath>
#include <cstring>
#include <set>
#include <unordered_map>

#include "isa/names.h"
#include "isa/table.h"

namespace trnsim::isa {
namespace {

constexpr char kHex[] = "0123456789abcdef";

class Printer {
 public:
  explicit Printer(const Program* program) : program_(program) {
    if (program == nullptr) return;
    for (const TensorDecl& t : program->tensors) ++names_[t.name];
  }

  std::string take() { return std::move(out_); }

  void program(const DisassembleOptions& options) {
    const Program& p = *program_;
    text("program ");
    quoted(p.name);
    text(" target ");
    quoted(p.target);
    text("\n");
    if (p.cores > 1) line("cores", p.cores);
    if (p.flops) line("flops", p.flops);
    if (p.hbm_bytes) line("hbm_bytes", p.hbm_bytes);
    for (const auto& [key, value] : p.notes) {
      text("note ");
      quoted(key);
      text(" ");
      quoted(value);
      text("\n");
    }
    for (const TensorDecl& t : p.tensors) tensor(t, options.constants);
    for (size_t n = 0; n < p.locations.size(); ++n) {
      const SourceLocation& l = p.locations[n];
      if (n == 0 && l.file.empty() && l.line == 0 && l.what.empty()) continue;
      text("location ");
      number(n);
      text(" ");
      quoted(l.file);
      text(" ");
      number(l.line);
      text(" ");
      quoted(l.what);
      text("\n");
    }
    for (int core = 0; core < p.cores; ++core) {
      if (core > 0) {
        text("\n");
        line("core", core);
      }
      for (int e = 0; e < kNumEngines; ++e)
        stream(stream_number(core, static_cast<Engine>(e)), options.comments);
    }
  }

  void instruction(const Instruction& i, size_t stream_size) {
    const Row& r = row(i.opcode);
    for (int w = 0; w < i.sync.num_waits && w < 2; ++w) {
      const SemWait& wait = i.sync.waits[w];
      text(w == 0 ? "wait s" : ", s");
      number(wait.semaphore);
      text(">=");
      if (wait.value_register != kNoRegister) {
        text("r");
        number(wait.value_register);
        if (wait.value >= 0) text("+");
      }
      number(wait.value);
    }
    if (i.sync.num_waits > 0) text(" | ");
    text(r.name);
    if (r.uses(kFieldOp0) && i.op0 != AluOp::kNone) named("op0", name(i.op0));
    if (r.uses(kFieldOp1) && i.op1 != AluOp::kNone) named("op1", name(i.op1));
    if (r.uses(kFieldFunc)) named("func", name(i.func));
    if (i.flags) named("flags", flags_text(i.flags));
    for (int s = 0; s < kNumSlots; ++s) {
      const auto slot = static_cast<Slot>(s);
      if (r.operand(slot).role == Role::kNone || !operand(i, slot).present()) continue;
      key(name(slot));
      access(operand(i, slot));
    }
    if (r.uses(kFieldImm0)) scalar("imm0", i.imm0);
    if (r.uses(kFieldImm1)) scalar("imm1", i.imm1);
    if (r.uses(kFieldReduceDims)) named("reduce_dims", i.reduce_dims);
    if (r.uses(kFieldQueue)) named("queue", i.queue);
    if (r.uses(kFieldPriority) && i.priority != 0) named("priority", i.priority);
    if (r.uses(kFieldDge)) named("dge", name(i.dge));
    if (r.uses(kFieldRegDst)) reg("reg_dst", i.reg_dst);
    if (r.uses(kFieldRegA)) reg("reg_a", i.reg_a);
    if (r.uses(kFieldRegB)) reg("reg_b", i.reg_b);
    if (r.uses(kFieldImm)) named("imm", i.imm);
    if (r.uses(kFieldPattern)) {
      named("base", i.pattern.base);
      named("partition_step", i.pattern.partition_step);
      key("step");
      for (size_t d = 0; d < i.pattern.step.size(); ++d) {
        text(d == 0 ? "[" : ",");
        number(i.pattern.step[d]);
      }
      text("]");
    }
    if (r.uses(kFieldReduce) && i.reduce_op != AluOp::kNone) named("reduce_op", name(i.reduce_op));
    if (r.uses(kFieldReduce) && i.reduce != ReduceCmd::kIdle) named("reduce", name(i.reduce));
    if (r.uses(kFieldCount) && i.count != 0) named("count", i.count);
    if (r.uses(kFieldParam)) {
      ScalarOperand param;
      param.kind = ScalarOperand::Kind::kImmediate;
      param.value = i.param;
      if (i.param != 0 || std::signbit(i.param)) scalar("param", param);
    }
    if (r.uses(kFieldMask)) {
      key("mask");
      for (size_t d = 0; d < i.mask.size(); ++d) {
        text(d == 0 ? "[" : ",");
        number(i.mask[d]);
      }
      text("]");
    }
    if (r.uses(kFieldTile) && !i.tile.whole()) {
      key("tile");
      text("[");
      number(i.tile.row);
      text(",");
      number(i.tile.column);
      text(",");
      number(i.tile.rows);
      text(",");
      number(i.tile.columns);
      text("]");
    }
    if (r.uses(kFieldTarget)) {
      key("target");
      if (i.target <= stream_size) text("L");
      number(i.target);
    }
    if (i.sync.update != SemOp::kNone) {
      text(" | then s");
      number(i.sync.update_semaphore);
      text(i.sync.update == SemOp::kAdd ? "+=" : i.sync.update == SemOp::kSubtract ? "-=" : "=");
      number(i.sync.update_value);
    }
    if (i.location != 0) {
      text(" !");
      number(i.location);
    }
  }

 private:
  void text(std::string_view s) { out_ += s; }
  template <typename T>
  void number(T v) {
    char buffer[32];
    const auto r = std::to_chars(buffer, buffer + sizeof buffer, v);
    out_.append(buffer, r.ptr);
  }
  void number(uint8_t v) { number(static_cast<int>(v)); }
  void line(std::string_view what, uint64_t v) {
    text(what);
    text(" ");
    number(v);
    text("\n");
  }
  void key(std::string_view k) {
    out_ += ' ';
    out_ += k;
    out_ += '=';
  }
  void named(std::string_view k, std::string_view v) {
    key(k);
    text(v);
  }
  template <typename T>
  void named(std::string_view k, T v) {
    key(k);
    number(v);
  }
  void named(std::string_view k, const std::string& v) { named(k, std::string_view(v)); }
  void reg(std::string_view k, uint8_t v) {
    key(k);
    text("r");
    number(v);
  }

  void quoted(std::string_view s) {
    out_ += '"';
    for (char c : s) {
      const auto u = static_cast<unsigned char>(c);
      if (c == '"' || c == '\\') {
        out_ += '\\';
        out_ += c;
      } else if (c == '\n') {
        out_ += "\\n";
      } else if (c == '\t') {
        out_ += "\\t";
      } else if (u < 0x20 || u == 0x7f) {
        out_ += "\\x";
        out_ += kHex[u >> 4];
        out_ += kHex[u & 15];
      } else {
        out_ += c;
      }
    }
    out_ += '"';
  }

  void tensor(const TensorDecl& t, bool contents) {
    text("tensor ");
    quoted(t.name);
    text(" ");
    text(name(t.kind));
    text(" ");
    text(dtype_name(t.dtype));
    text(" [");
    for (size_t d = 0; d < t.shape.size(); ++d) {
      if (d) text(", ");
      number(t.shape[d]);
    }
    text("] ");
    number(t.bytes);
    text(" bytes");
    if (!t.constant.empty()) {
      if (contents) {
        text(" = hex ");
        out_.reserve(out_.size() + 2 * t.constant.size());
        for (uint8_t b : t.constant) {
          out_ += kHex[b >> 4];
          out_ += kHex[b & 15];
        }
      } else {
        text(" = external");
      }
    }
    text("\n");
  }

  void stream(size_t number_of_stream, bool comments) {
    const auto& code = program_->streams[number_of_stream];
    if (code.empty()) return;
    text("\nstream ");
    text(name(engine_of_stream(number_of_stream)));
    text("\n");
    std::set<uint32_t> labels;
    for (const Instruction& i : code) {
      if (row(i.opcode).uses(kFieldTarget) && i.target <= code.size()) labels.insert(i.target);
    }
    auto next_label = labels.begin();
    for (size_t n = 0; n <= code.size(); ++n) {
      if (next_label != labels.end() && *next_label == n) {
        text("L");
        number(n);
        text(":\n");
        ++next_label;
      }
      if (n == code.size()) break;
      text("  ");
      instruction(code[n], code.size());
      comment(code[n], comments);
      text("\n");
    }
  }

  void comment(const Instruction& i, bool comments) {
    if (!comments || i.location == 0 || i.location >= program_->locations.size()) return;
    const SourceLocation& l = program_->locations[i.location];
    if (l.file.empty()) return;
    text("  # ");
    for (char c : l.file) out_ += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
    text(":");
    number(l.line);
  }

  void access(const Access& a) {
    text(name(a.space));
    if (a.space == Space::kHbm || a.tensor != 0) {
      text("(");
      if (a.space == Space::kHbm && program_ != nullptr && a.tensor < program_->tensors.size() &&
          names_[program_->tensors[a.tensor].name] == 1) {
        quoted(program_->tensors[a.tensor].name);
      } else {
        text("#");
        number(a.tensor);
      }
      text(")");
    }
    text(".");
    text(dtype_name(a.dtype));
    if (a.space != Space::kHbm || a.start_partition != 0 || a.num_partitions != 0) {
      text("[");
      number(a.start_partition);
      text("+");
      number(a.num_partitions);
      text("]");
    }
    if (a.offset != 0 || a.address_register != kNoRegister) {
      text("@");
      number(a.offset);
      if (a.address_register != kNoRegister) {
        text("+r");
        number(a.address_register);
      }
    }
    text("{");
    for (int d = 0; d < a.num_dims && d < kMaxDims; ++d) {
      if (d) text(",");
      number(a.size[d]);
      text(":");
      number(a.step[d]);
    }
    text("}");
    if (a.indirect) {
      text("<");
      text(dtype_name(a.index_dtype));
      text("[");
      number(a.index_partition);
      text("]@");
      number(a.index_offset);
      text(">");
    }
  }

  void scalar(std::string_view k, const ScalarOperand& s) {
    if (s.kind == ScalarOperand::Kind::kNone) return;
    key(k);
    if (s.kind == ScalarOperand::Kind::kPointer) return access(s.pointer);
    if (std::isnan(s.value)) {
      // NaNs differ in sign and payload.
      uint32_t bits;
      std::memcpy(&bits, &s.value, sizeof bits);
      text("bits:0x");
      for (int shift = 28; shift >= 0; shift -= 4) out_ += kHex[(bits >> shift) & 15];
      return;
    }
    number(s.value);
  }

  const Program* program_;
  std::unordered_map<std::string_view, int> names_;
  std::string out_;
};

}  // namespace

std::string disassemble(const Program& program, const DisassembleOptions& options) {
  Printer printer(&program);
  printer.program(options);
  return printer.take();
}

std::string disassemble(const Instruction& instruction, const Program* program) {
  Printer printer(program);
  const size_t size = program == nullptr ? 0 : program->streams[static_cast<int>(instruction.engine)].size();
  printer.instruction(instruction, size);
  return printer.take();
}

}  // namespace trnsim::isa
