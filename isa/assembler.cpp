#include "isa/assembler.h"

#include <charconv>
#include <cstring>
#include <limits>
#include <unordered_map>

#include "isa/names.h"
#include "isa/table.h"

namespace trnsim::isa {
namespace {

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}
int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Thrown inside the assembler only; assemble() turns it into an AssembleError and goes on with the next line.
struct ParseFailure {
  size_t position;
  std::string message;
};

// Reads one line from left to right.
class Cursor {
 public:
  explicit Cursor(std::string_view line) : line_(line) {}

  size_t position() const { return at_; }
  [[noreturn]] void fail(std::string message) const { throw ParseFailure{at_, std::move(message)}; }
  [[noreturn]] void fail_at(size_t position, std::string message) const {
    throw ParseFailure{position, std::move(message)};
  }

  void skip_space() {
    while (at_ < line_.size() && (line_[at_] == ' ' || line_[at_] == '\t' || line_[at_] == '\r')) ++at_;
  }
  bool at_end() {
    skip_space();
    return at_ >= line_.size() || line_[at_] == '#';
  }
  char peek() const { return at_ < line_.size() ? line_[at_] : '\0'; }
  bool accept(std::string_view s) {
    if (line_.substr(at_, s.size()) != s) return false;
    at_ += s.size();
    return true;
  }
  void expect(std::string_view s, std::string_view where) {
    if (!accept(s)) fail("expected '" + std::string(s) + "' " + std::string(where) + ", found " + found());
  }
  void expect_end() {
    if (!at_end()) fail("unexpected " + found() + " at the end of the statement");
  }
  std::string found() const {
    if (at_ >= line_.size()) return "the end of the line";
    size_t n = 1;
    while (is_name_char(line_[at_]) && at_ + n < line_.size() && is_name_char(line_[at_ + n]) && n < 30) ++n;
    return "'" + std::string(line_.substr(at_, n)) + "'";
  }

  std::string_view word(std::string_view what) {
    skip_space();
    const size_t begin = at_;
    while (at_ < line_.size() && is_name_char(line_[at_])) ++at_;
    if (at_ == begin) fail("expected " + std::string(what) + ", found " + found());
    return line_.substr(begin, at_ - begin);
  }
  void keyword(std::string_view k) {
    skip_space();
    const size_t begin = at_;
    if (word("'" + std::string(k) + "'") != k) fail_at(begin, "expected '" + std::string(k) + "'");
  }

  template <typename T>
  T integer(std::string_view what) {
    const size_t begin = at_;
    T v = 0;
    const bool hex = line_.substr(at_, 2) == "0x";
    const char* first = line_.data() + at_ + (hex ? 2 : 0);
    const auto r = std::from_chars(first, line_.data() + line_.size(), v, hex ? 16 : 10);
    if (r.ec == std::errc::result_out_of_range) {
      fail_at(begin, std::string(what) + " is out of range (" +
                         std::to_string(std::numeric_limits<T>::min()) + " to " +
                         std::to_string(std::numeric_limits<T>::max()) + ")");
    }
    if (r.ec != std::errc()) fail("expected " + std::string(what) + ", found " + found());
    at_ = static_cast<size_t>(r.ptr - line_.data());
    return v;
  }

  float real(std::string_view what) {
    if (accept("bits:0x")) {
      uint32_t bits = 0;
      const auto r = std::from_chars(line_.data() + at_, line_.data() + line_.size(), bits, 16);
      if (r.ec != std::errc()) fail("expected 8 hex digits");
      at_ = static_cast<size_t>(r.ptr - line_.data());
      float v;
      std::memcpy(&v, &bits, sizeof v);
      return v;
    }
    float v = 0;
    const auto r = std::from_chars(line_.data() + at_, line_.data() + line_.size(), v);
    if (r.ec == std::errc::result_out_of_range) fail(std::string(what) + " is outside the range of fp32");
    if (r.ec != std::errc()) fail("expected " + std::string(what) + ", found " + found());
    at_ = static_cast<size_t>(r.ptr - line_.data());
    return v;
  }

  std::string quoted(std::string_view what) {
    skip_space();
    if (peek() != '"') fail("expected " + std::string(what) + " in double quotes, found " + found());
    const size_t begin = at_++;
    std::string s;
    while (peek() != '"') {
      if (at_ >= line_.size()) fail_at(begin, "the string does not end on this line");
      char c = line_[at_++];
      if (c == '\\') {
        const char escape = peek();
        ++at_;
        switch (escape) {
          case '"':
          case '\\':
            c = escape;
            break;
          case 'n':
            c = '\n';
            break;
          case 't':
            c = '\t';
            break;
          case 'x': {
            const int high = hex_digit(peek()), low = at_ + 1 < line_.size() ? hex_digit(line_[at_ + 1]) : -1;
            if (high < 0 || low < 0) fail("\\x needs two hex digits");
            c = static_cast<char>(high * 16 + low);
            at_ += 2;
            break;
          }
          default:
            fail_at(at_ - 1, "unknown escape; possible are \\\" \\\\ \\n \\t \\xNN");
        }
      }
      s += c;
    }
    ++at_;
    return s;
  }

  std::vector<uint8_t> hex_bytes() {
    skip_space();
    std::vector<uint8_t> bytes;
    while (at_ < line_.size() && hex_digit(line_[at_]) >= 0) {
      const int low = at_ + 1 < line_.size() ? hex_digit(line_[at_ + 1]) : -1;
      if (low < 0) fail("an odd number of hex digits");
      bytes.push_back(static_cast<uint8_t>(hex_digit(line_[at_]) * 16 + low));
      at_ += 2;
    }
    return bytes;
  }

 private:
  std::string_view line_;
  size_t at_ = 0;
};

std::string unknown(std::string_view what, std::string_view given,
                    const std::vector<std::string_view>& names) {
  std::string message = "unknown " + std::string(what) + " '" + std::string(given) + "'";
  const std::string_view nearest = nearest_name(given, names);
  if (!nearest.empty()) return message + "; did you mean '" + std::string(nearest) + "'?";
  if (names.size() <= 16) {
    message += "; known:";
    for (std::string_view n : names) message += " " + std::string(n);
  }
  return message;
}

template <typename E>
E enumerator(Cursor& c, std::string_view what, std::optional<E> (*find)(std::string_view),
             const std::vector<std::string_view>& names) {
  c.skip_space();
  const size_t begin = c.position();
  const std::string_view word = c.word(what);
  const auto v = find(word);
  if (!v) c.fail_at(begin, unknown(what, word, names));
  return *v;
}

class Assembler {
 public:
  Assembler(Program& out, std::vector<AssembleError>& errors, const AssembleOptions& options)
      : p_(out), errors_(errors), options_(options) {}

  void run(std::string_view text) {
    p_ = Program{};
    p_.target.clear();
    size_t begin = 0;
    while (begin <= text.size() && errors_.size() < options_.max_errors) {
      size_t end = text.find('\n', begin);
      if (end == std::string_view::npos) end = text.size();
      ++line_;
      try {
        statement(text.substr(begin, end - begin));
      } catch (const ParseFailure& f) {
        error(line_, f.position, f.message);
      }
      begin = end + 1;
    }
    resolve();
    if (!has_program_ && errors_.empty()) {
      error(1, 0, "the text has no program statement: program \"name\" target \"trn2\"");
    }
  }

 private:
  void error(int line, size_t position, const std::string& message) {
    errors_.push_back({line, static_cast<int>(position) + 1, message});
  }

  void statement(std::string_view line) {
    Cursor c(line);
    if (c.at_end()) return;
    const Cursor start = c;
    const std::string_view word = c.word("a statement");
    if (c.peek() == ':') {
      c.accept(":");
      label(std::string(word), start);
      if (c.at_end()) return;
      return instruction(c);
    }
    if (word == "program") return program(c);
    if (word == "tensor") return tensor(c);
    if (word == "stream") return stream(c);
    if (word == "cores" || word == "core") {
      c.skip_space();
      const size_t begin = c.position();
      const auto n = c.integer<uint32_t>("a number");
      if (word == "cores") {
        if (n < 1 || n > kMaxCores) c.fail_at(begin, "a program has 1 or 2 physical cores");
        p_.cores = static_cast<int>(n);
      } else {
        if (n >= static_cast<uint32_t>(p_.cores)) {
          c.fail_at(begin, "core " + std::to_string(n) + " of a program of " + std::to_string(p_.cores) +
                               "; a program of two cores says so before its streams: cores 2");
        }
        core_ = static_cast<int>(n);
        in_stream_ = false;
      }
      return c.expect_end();
    }
    if (word == "location") return location(c);
    if (word == "note") {
      std::string key = c.quoted("a key"), value = c.quoted("a value");
      p_.notes.emplace_back(std::move(key), std::move(value));
      return c.expect_end();
    }
    if (word == "flops" || word == "hbm_bytes") {
      c.skip_space();
      (word == "flops" ? p_.flops : p_.hbm_bytes) = c.integer<uint64_t>("a number");
      return c.expect_end();
    }
    Cursor again = start;
    instruction(again);
  }

  void program(Cursor& c) {
    if (has_program_) c.fail("a second program statement");
    has_program_ = true;
    p_.name = c.quoted("the name of the program");
    c.keyword("target");
    p_.target = c.quoted("the target");
    c.expect_end();
  }

  void tensor(Cursor& c) {
    TensorDecl t;
    t.name = c.quoted("the name of the tensor");
    t.kind = enumerator<TensorKind>(c, "kind of tensor", tensor_kind_from_name,
                                    {"input", "output", "constant", "scratch"});
    t.dtype = enumerator<Dtype>(c, "dtype", dtype_from_name, dtype_names());
    c.skip_space();
    c.expect("[", "before the shape");
    c.skip_space();
    while (!c.accept("]")) {
      if (!t.shape.empty()) {
        c.expect(",", "between the sizes");
        c.skip_space();
      }
      t.shape.push_back(c.integer<int64_t>("a size"));
      c.skip_space();
    }
    c.skip_space();
    t.bytes = c.integer<uint64_t>("the size in bytes");
    c.keyword("bytes");
    c.skip_space();
    if (c.accept("=")) {
      c.skip_space();
      const size_t begin = c.position();
      const std::string_view how = c.word("'hex', 'file' or 'external'");
      if (how == "hex") {
        t.constant = c.hex_bytes();
      } else if (how == "file") {
        const std::string path = c.quoted("a path");
        std::string why = "this reader gives no access to files";
        if (!options_.read_file || !options_.read_file(path, t.constant, &why)) {
          c.fail_at(begin, "cannot read '" + path + "': " + why);
        }
      } else if (how != "external") {
        c.fail_at(begin, "expected 'hex', 'file' or 'external'");
      }
      if (!t.constant.empty() && t.constant.size() != t.bytes) {
        c.fail_at(begin, "the tensor has " + std::to_string(t.bytes) + " bytes, its contents " +
                             std::to_string(t.constant.size()));
      }
    }
    c.expect_end();
    tensors_.emplace(t.name, static_cast<uint32_t>(p_.tensors.size()));
    p_.tensors.push_back(std::move(t));
  }

  void location(Cursor& c) {
    c.skip_space();
    const size_t begin = c.position();
    const auto n = c.integer<uint32_t>("the number of the location");
    if (n > p_.locations.size()) {
      c.fail_at(begin, "locations are numbered in order; the next is " + std::to_string(p_.locations.size()));
    }
    SourceLocation l;
    l.file = c.quoted("a file name");
    c.skip_space();
    l.line = c.integer<int32_t>("a line number");
    l.what = c.quoted("a statement");
    c.expect_end();
    if (n == p_.locations.size()) p_.locations.emplace_back();
    p_.locations[n] = std::move(l);
  }

  void stream(Cursor& c) {
    engine_ = enumerator<Engine>(c, "engine", engine_from_name, engine_names());
    in_stream_ = true;
    c.expect_end();
  }

  size_t number() const { return stream_number(core_, engine_); }
  std::vector<Instruction>& code() { return p_.streams[number()]; }

  static std::string label_key(size_t stream, std::string_view label) {
    return std::to_string(stream) + ":" + std::string(label);
  }

  void label(const std::string& label, const Cursor& c) {
    if (!in_stream_) c.fail("a label outside of a stream; start one with: stream vector");
    if (!labels_.emplace(label_key(number(), label), static_cast<uint32_t>(code().size())).second) {
      c.fail("label '" + label + "' exists already in this stream");
    }
  }

  void instruction(Cursor& c) {
    c.skip_space();
    const size_t begin = c.position();
    Instruction i;
    Cursor first = c;
    std::string_view word = first.word("an instruction");
    if (word == "wait") {
      c = first;
      waits(c, i.sync);
      c.skip_space();
    }
    const size_t at = c.position();
    word = c.word("an instruction");
    const auto opcode = opcode_from_name(word);
    if (!opcode) {
      std::vector<std::string_view> names = opcode_names();
      if (!in_stream_ || at == begin) {
        for (std::string_view s :
             {"program", "tensor", "cores", "core", "stream", "location", "note", "flops", "hbm_bytes"})
          names.push_back(s);
      }
      c.fail_at(at, unknown("instruction", word, names));
    }
    if (!in_stream_) c.fail_at(begin, "an instruction outside of a stream; start one with: stream vector");
    i.opcode = *opcode;
    i.engine = engine_;
    const Row& r = row(i.opcode);
    while (!c.at_end() && c.peek() != '|' && c.peek() != '!') field(c, i, r);
    if (c.accept("|")) update(c, i.sync);
    c.skip_space();
    if (c.accept("!")) i.location = c.integer<uint32_t>("the number of a location");
    c.expect_end();
    code().push_back(i);
  }

  uint8_t semaphore(Cursor& c) {
    c.skip_space();
    c.expect("s", "and the number of a semaphore");
    return c.integer<uint8_t>("the number of a semaphore");
  }

  void waits(Cursor& c, Sync& s) {
    do {
      if (s.num_waits == 2) c.fail("an instruction waits for 2 semaphores at most");
      SemWait& w = s.waits[s.num_waits++];
      w.semaphore = semaphore(c);
      c.expect(">=", "after the semaphore");
      if (c.accept("r")) {
        w.value_register = c.integer<uint8_t>("the number of a register");
        c.accept("+");
        if (c.peek() != ' ' && c.peek() != ',' && c.peek() != '|') w.value = c.integer<int32_t>("a value");
      } else {
        w.value = c.integer<int32_t>("a value");
      }
      c.skip_space();
    } while (c.accept(","));
    c.expect("|", "after the waits");
  }

  void update(Cursor& c, Sync& s) {
    c.keyword("then");
    s.update_semaphore = semaphore(c);
    if (c.accept("+=")) {
      s.update = SemOp::kAdd;
    } else if (c.accept("-=")) {
      s.update = SemOp::kSubtract;
    } else if (c.accept("=")) {
      s.update = SemOp::kWrite;
    } else {
      c.fail("expected +=, -= or = after the semaphore");
    }
    s.update_value = c.integer<int32_t>("a value");
  }

  static std::vector<std::string_view> field_names(const Row& r) {
    std::vector<std::string_view> names;
    auto add = [&](bool used, std::string_view n) {
      if (used) names.push_back(n);
    };
    for (int s = 0; s < kNumSlots; ++s) add(r.operands[s].role != Role::kNone, name(static_cast<Slot>(s)));
    add(r.uses(kFieldOp0), "op0");
    add(r.uses(kFieldOp1), "op1");
    add(r.uses(kFieldFunc), "func");
    add(r.uses(kFieldImm0), "imm0");
    add(r.uses(kFieldImm1), "imm1");
    add(r.uses(kFieldQueue), "queue");
    add(r.uses(kFieldPriority), "priority");
    add(r.uses(kFieldDge), "dge");
    add(r.uses(kFieldReduceDims), "reduce_dims");
    add(r.uses(kFieldRegDst), "reg_dst");
    add(r.uses(kFieldRegA), "reg_a");
    add(r.uses(kFieldRegB), "reg_b");
    add(r.uses(kFieldTarget), "target");
    add(r.uses(kFieldImm), "imm");
    add(r.uses(kFieldPattern), "base");
    add(r.uses(kFieldPattern), "partition_step");
    add(r.uses(kFieldPattern), "step");
    add(r.uses(kFieldReduce), "reduce_op");
    add(r.uses(kFieldReduce), "reduce");
    add(r.uses(kFieldCount), "count");
    add(r.uses(kFieldParam), "param");
    add(r.uses(kFieldMask), "mask");
    add(r.uses(kFieldTile), "tile");
    add(r.flags != 0, "flags");
    return names;
  }

  void field(Cursor& c, Instruction& i, const Row& r) {
    c.skip_space();
    const size_t begin = c.position();
    const std::string_view key = c.word("a field");
    const std::vector<std::string_view> names = field_names(r);
    bool known = false;
    for (std::string_view n : names) known = known || n == key;
    if (!known) {
      if (names.empty()) c.fail_at(begin, std::string(r.name) + " has no fields");
      c.fail_at(begin, unknown("field of " + std::string(r.name), key, names));
    }
    c.expect("=", "after the field");
    if (key == "op0") {
      i.op0 = enumerator<AluOp>(c, "operator", alu_op_from_name, alu_op_names());
    } else if (key == "op1") {
      i.op1 = enumerator<AluOp>(c, "operator", alu_op_from_name, alu_op_names());
    } else if (key == "func") {
      i.func = enumerator<ActFunc>(c, "activation function", act_func_from_name, act_func_names());
    } else if (key == "flags") {
      i.flags = flags(c);
    } else if (key == "imm0") {
      i.imm0 = scalar(c);
    } else if (key == "imm1") {
      i.imm1 = scalar(c);
    } else if (key == "queue") {
      i.queue = c.integer<uint8_t>("the number of a queue");
    } else if (key == "priority") {
      i.priority = c.integer<uint8_t>("a traffic class");
    } else if (key == "dge") {
      i.dge = enumerator<DgeMode>(c, "descriptor generation mode", dge_mode_from_name,
                                  {"static", "hardware", "software"});
    } else if (key == "reduce_dims") {
      i.reduce_dims = c.integer<uint8_t>("a number of dims");
    } else if (key == "reg_dst") {
      i.reg_dst = reg(c);
    } else if (key == "reg_a") {
      i.reg_a = reg(c);
    } else if (key == "reg_b") {
      i.reg_b = reg(c);
    } else if (key == "target") {
      target(c, i);
    } else if (key == "imm") {
      i.imm = c.integer<int64_t>("an integer");
    } else if (key == "reduce_op") {
      i.reduce_op = enumerator<AluOp>(c, "operator", alu_op_from_name, alu_op_names());
    } else if (key == "reduce") {
      i.reduce = enumerator<ReduceCmd>(c, "use of the accumulator", reduce_cmd_from_name,
                                       {"idle", "reset", "reduce", "reset_reduce", "load_reduce"});
    } else if (key == "count") {
      i.count = c.integer<uint32_t>("a number");
    } else if (key == "param") {
      i.param = c.real("a constant");
    } else if (key == "mask") {
      list(c, "a partition of a quadrant, or 255", i.mask);
    } else if (key == "tile") {
      std::array<uint8_t, 4> t{};
      list(c, "row, column, rows and columns of the tile", t);
      i.tile = {t[0], t[1], t[2], t[3]};
      if (i.tile.whole()) c.fail("a tile has rows; leave tile out for the whole array");
    } else if (key == "base") {
      i.pattern.base = c.integer<int64_t>("an integer");
    } else if (key == "partition_step") {
      i.pattern.partition_step = c.integer<int32_t>("an integer");
    } else if (key == "step") {
      c.expect("[", "before the steps");
      size_t d = 0;
      while (!c.accept("]")) {
        if (d > 0) c.expect(",", "between the steps");
        if (d == i.pattern.step.size()) c.fail("a pattern has 4 steps at most");
        c.skip_space();
        i.pattern.step[d++] = c.integer<int32_t>("a step");
        c.skip_space();
      }
    } else {
      for (int s = 0; s < kNumSlots; ++s) {
        if (key == name(static_cast<Slot>(s))) operand(i, static_cast<Slot>(s)) = access(c);
      }
    }
  }

  template <size_t N>
  static void list(Cursor& c, std::string_view what, std::array<uint8_t, N>& values) {
    c.expect("[", "before the list");
    for (size_t d = 0; d < N; ++d) {
      if (d > 0) c.expect(",", "between the numbers");
      c.skip_space();
      values[d] = c.integer<uint8_t>(what);
      c.skip_space();
    }
    c.expect("]", "after " + std::to_string(N) + " numbers");
  }

  static uint16_t flags(Cursor& c) {
    uint16_t f = 0;
    do {
      if (c.accept("0x")) {
        c.fail("flags are written by name");
      }
      f = static_cast<uint16_t>(f | enumerator<Flags>(c, "flag", flag_from_name, flag_names()));
    } while (c.accept("|"));
    return f;
  }

  static uint8_t reg(Cursor& c) {
    c.expect("r", "and the number of a register");
    return c.integer<uint8_t>("the number of a register");
  }

  void target(Cursor& c, Instruction& i) {
    if (c.peek() >= '0' && c.peek() <= '9') {
      i.target = c.integer<uint32_t>("an instruction number");
      return;
    }
    const size_t begin = c.position();
    const std::string label(c.word("a label"));
    jumps_.push_back({number(), code().size(), label, line_, begin});
  }

  ScalarOperand scalar(Cursor& c) {
    ScalarOperand s;
    const char first = c.peek();
    if ((first >= 'a' && first <= 'z') && first != 'i' && first != 'b' && first != 'n') {
      s.kind = ScalarOperand::Kind::kPointer;
      s.pointer = access(c);
    } else {
      s.kind = ScalarOperand::Kind::kImmediate;
      s.value = c.real("a constant or an operand");
    }
    return s;
  }

  Access access(Cursor& c) {
    Access a;
    a.space = enumerator<Space>(c, "memory space", space_from_name, {"sbuf", "psum", "hbm"});
    if (a.space == Space::kNone) c.fail("an operand lies in sbuf, psum or hbm");
    if (c.accept("(")) {
      if (c.accept("#")) {
        a.tensor = c.integer<uint32_t>("the number of a tensor");
      } else {
        const size_t begin = c.position();
        const std::string tensor = c.quoted("the name of a tensor");
        const auto it = tensors_.find(tensor);
        if (it == tensors_.end()) {
          std::vector<std::string_view> names;
          for (const auto& [n, index] : tensors_) names.push_back(n);
          c.fail_at(begin, unknown("tensor", tensor, names) +
                               (names.empty() ? " (tensors come before streams)" : ""));
        }
        a.tensor = it->second;
      }
      c.expect(")", "after the tensor");
    } else if (a.space == Space::kHbm) {
      c.fail("expected '(' and the tensor of the hbm operand, found " + c.found());
    }
    c.expect(".", "and the dtype");
    a.dtype = enumerator<Dtype>(c, "dtype", dtype_from_name, dtype_names());
    if (c.accept("[")) {
      a.start_partition = c.integer<uint16_t>("the first partition");
      c.expect("+", "and the number of partitions");
      a.num_partitions = c.integer<uint16_t>("the number of partitions");
      c.expect("]", "after the partitions");
    } else if (a.space != Space::kHbm) {
      c.fail("expected '[first+count]', the partitions of the operand, found " + c.found());
    }
    if (c.accept("@")) {
      a.offset = c.integer<int64_t>("a byte offset");
      if (c.accept("+")) a.address_register = reg(c);
    }
    if (c.accept("{")) {
      while (!c.accept("}")) {
        if (a.num_dims > 0) c.expect(",", "between the dims");
        if (a.num_dims == kMaxDims) c.fail("an operand has 5 dims at most");
        c.skip_space();
        a.size[a.num_dims] = c.integer<uint32_t>("a size");
        c.expect(":", "between size and step");
        a.step[a.num_dims++] = c.integer<int64_t>("a step");
        c.skip_space();
      }
    }
    if (c.accept("<")) {
      a.indirect = true;
      a.index_dtype = enumerator<Dtype>(c, "dtype", dtype_from_name, dtype_names());
      c.expect("[", "and the first partition of the index list");
      a.index_partition = c.integer<uint16_t>("the first partition of the index list");
      c.expect("]@", "and the byte offset of the index list");
      a.index_offset = c.integer<uint32_t>("the byte offset of the index list");
      c.expect(">", "after the index list");
    }
    return a;
  }

  // Labels may come after their use.
  void resolve() {
    for (const Jump& j : jumps_) {
      const auto it = labels_.find(label_key(j.stream, j.label));
      auto& code = p_.streams[j.stream];
      if (it != labels_.end()) {
        if (j.instruction < code.size()) code[j.instruction].target = it->second;
        continue;
      }
      std::vector<std::string_view> names;
      const std::string prefix = label_key(j.stream, "");
      for (const auto& [key, index] : labels_) {
        if (key.compare(0, prefix.size(), prefix) == 0)
          names.push_back(std::string_view(key).substr(prefix.size()));
      }
      if (errors_.size() < options_.max_errors) error(j.line, j.position, unknown("label", j.label, names));
    }
    const size_t locations = p_.locations.size();
    for (const auto& stream : p_.streams) {
      for (const Instruction& i : stream) {
        if (i.location >= locations && errors_.empty()) {
          error(line_, 0, "location " + std::to_string(i.location) + " is used but not defined");
        }
      }
    }
  }

  struct Jump {
    size_t stream;
    size_t instruction;
    std::string label;
    int line;
    size_t position;
  };

  Program& p_;
  std::vector<AssembleError>& errors_;
  const AssembleOptions& options_;
  int line_ = 0;
  bool has_program_ = false;
  bool in_stream_ = false;
  int core_ = 0;
  Engine engine_ = Engine::kSync;
  std::unordered_map<std::string, uint32_t> tensors_;
  std::unordered_map<std::string, uint32_t> labels_;
  std::vector<Jump> jumps_;
};

}  // namespace

bool assemble(std::string_view text, Program& out, std::vector<AssembleError>& errors,
              const AssembleOptions& options) {
  errors.clear();
  Assembler(out, errors, options).run(text);
  return errors.empty();
}

std::string to_text(const std::vector<AssembleError>& errors, std::string_view file_name) {
  std::string text;
  for (const AssembleError& e : errors) {
    text += std::string(file_name) + ":" + std::to_string(e.line) + ":" + std::to_string(e.column) + ": " +
            e.message + "\n";
  }
  return text;
}

}  // namespace trnsim::isa
