#include "device_plugin/compiler/graph_text.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <type_traits>

#include "device_plugin/compiler/error.h"

namespace trnsim::compiler {
namespace {

// ---- printing
// ----------------------------------------------------------------------------------------------------

std::string quoted(const std::string& s) {
  static const char* hex = "0123456789abcdef";
  std::string out = "\"";
  for (unsigned char c : s) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c < 0x20) {
      out += "\\x";
      out += hex[c >> 4];
      out += hex[c & 15];
    } else {
      out += static_cast<char>(c);
    }
  }
  return out + "\"";
}

// The shortest decimal form that reads back to the same double.
std::string number(double v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  char buffer[40];
  auto r = std::to_chars(buffer, buffer + sizeof(buffer), v);
  return std::string(buffer, r.ptr);
}

std::string value_name(ValueId id) { return id == kNoValue ? "%none" : "%" + std::to_string(id); }

template <typename T, typename F>
std::string joined(const std::vector<T>& list, const char* open, const char* close, F&& text) {
  std::string out = open;
  for (size_t i = 0; i < list.size(); ++i) {
    if (i) out += ", ";
    out += text(list[i]);
  }
  return out + close;
}

std::string int_list(const std::vector<int64_t>& v) {
  return joined(v, "[", "]", [](int64_t i) { return std::to_string(i); });
}

std::string param_text(const ParamRef& p) {
  return "p" + std::to_string(p.slot) + ":" + std::string(isa::dtype_name(p.dtype));
}

std::string arg_text(const Arg& arg) {
  return std::visit(
      [](const auto& a) -> std::string {
        using T = std::decay_t<decltype(a)>;
        if constexpr (std::is_same_v<T, Optional>) {
          return "none";
        } else if constexpr (std::is_same_v<T, ValueId>) {
          return value_name(a);
        } else if constexpr (std::is_same_v<T, ValueList>) {
          return joined(a.ids, "(", ")", value_name);
        } else if constexpr (std::is_same_v<T, bool>) {
          return a ? "true" : "false";
        } else if constexpr (std::is_same_v<T, int64_t>) {
          return std::to_string(a);
        } else if constexpr (std::is_same_v<T, double>) {
          return "f:" + number(a);
        } else if constexpr (std::is_same_v<T, std::string>) {
          return quoted(a);
        } else if constexpr (std::is_same_v<T, Dtype>) {
          return "dtype:" + std::string(isa::dtype_name(a));
        } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
          return int_list(a);
        } else if constexpr (std::is_same_v<T, std::vector<double>>) {
          return joined(a, "f:[", "]", number);
        } else if constexpr (std::is_same_v<T, std::vector<bool>>) {
          return joined(a, "b:[", "]", [](bool b) { return std::string(b ? "true" : "false"); });
        } else if constexpr (std::is_same_v<T, ParamRef>) {
          return param_text(a);
        } else {
          static_assert(std::is_same_v<T, std::vector<ParamRef>>);
          return joined(a, "p:[", "]", param_text);
        }
      },
      arg);
}

// ---- parsing
// -----------------------------------------------------------------------------------------------------

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Graph graph() {
    Graph g;
    expect_word("graph");
    g.name = string();
    if (word_follows("params")) g.num_params = static_cast<int32_t>(integer());
    expect('{');
    while (!follows('}')) {
      if (word_follows("inputs")) {
        g.inputs = ids();
      } else if (word_follows("outputs")) {
        g.outputs = ids();
      } else if (peek() == '%') {
        value_or_node(g);
      } else if (peek() == '(') {
        expect('(');  // a node without results or with several
        std::vector<ValueId> results;
        while (!follows(')')) {
          results.push_back(value_id());
          follows(',');
        }
        expect('=');
        node(g, std::move(results));
      } else {
        fail("expected a value, a node, 'inputs' or 'outputs'");
      }
    }
    if (peek() != '\0') fail("text after the closing brace");
    check(g);
    return g;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw_user_error("graph text, line " + std::to_string(line_) + ": " + what);
  }

  char peek() {
    while (pos_ < text_.size()) {
      char c = text_[pos_];
      if (c == '#') {
        while (pos_ < text_.size() && text_[pos_] != '\n') ++pos_;
      } else if (c == '\n') {
        ++line_;
        ++pos_;
      } else if (c == ' ' || c == '\t' || c == '\r') {
        ++pos_;
      } else {
        return c;
      }
    }
    return '\0';
  }
  bool follows(char c) {
    if (peek() != c) return false;
    ++pos_;
    return true;
  }
  void expect(char c) {
    if (!follows(c)) fail(std::string("expected '") + c + "'");
  }
  bool word_follows(std::string_view w) {
    peek();
    if (text_.substr(pos_, w.size()) != w) return false;
    if (pos_ + w.size() < text_.size() && is_word(text_[pos_ + w.size()])) return false;
    pos_ += w.size();
    return true;
  }
  void expect_word(std::string_view w) {
    if (!word_follows(w)) fail("expected '" + std::string(w) + "'");
  }
  static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  }
  int64_t integer() {
    peek();
    int64_t v = 0;
    const char* end = text_.data() + text_.size();
    auto r = std::from_chars(text_.data() + pos_, end, v);
    if (r.ec != std::errc()) fail("expected an integer of 64 bits");
    pos_ = static_cast<size_t>(r.ptr - text_.data());
    return v;
  }
  double real() {
    peek();
    const char* begin = text_.data() + pos_;
    const char* end = text_.data() + text_.size();
    double v = 0;
    // from_chars knows inf and nan, but not the 0x prefix.
    bool negative = begin < end && *begin == '-';
    const char* digits = negative ? begin + 1 : begin;
    if (end - digits > 2 && digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X')) {
      auto r = std::from_chars(digits + 2, end, v, std::chars_format::hex);
      if (r.ec != std::errc()) fail("expected a number");
      pos_ = static_cast<size_t>(r.ptr - text_.data());
      return negative ? -v : v;
    }
    auto r = std::from_chars(begin, end, v);
    if (r.ec != std::errc()) fail("expected a number");
    pos_ = static_cast<size_t>(r.ptr - text_.data());
    return v;
  }
  std::string string() {
    expect('"');
    std::string out;
    while (true) {
      if (pos_ >= text_.size() || text_[pos_] == '\n') fail("a string without its closing quote");
      char c = text_[pos_++];
      if (c == '"') return out;
      if (c != '\\') {
        out += c;
        continue;
      }
      if (pos_ >= text_.size()) fail("a string without its closing quote");
      c = text_[pos_++];
      if (c == 'n') {
        out += '\n';
      } else if (c == 'x') {
        int v = 0;
        for (int i = 0; i < 2; ++i) {
          char h = pos_ < text_.size() ? text_[pos_++] : '\0';
          if (h >= '0' && h <= '9') {
            v = v * 16 + (h - '0');
          } else if (h >= 'a' && h <= 'f') {
            v = v * 16 + (h - 'a' + 10);
          } else {
            fail("expected two hexadecimal digits after \\x");
          }
        }
        out += static_cast<char>(v);
      } else if (c == '"' || c == '\\') {
        out += c;
      } else {
        fail(std::string("unknown escape \\") + c);
      }
    }
  }
  Dtype dtype() {
    peek();
    size_t begin = pos_;
    while (pos_ < text_.size() && is_word(text_[pos_])) ++pos_;
    std::string name(text_.substr(begin, pos_ - begin));
    auto d = isa::dtype_from_name(name);
    if (!d) fail("unknown dtype '" + name + "'");
    return *d;
  }
  ValueId value_id() {
    expect('%');
    if (word_follows("none")) return kNoValue;
    int64_t v = integer();
    if (v < 0 || v > std::numeric_limits<ValueId>::max()) fail("value number out of range");
    return static_cast<ValueId>(v);
  }
  std::vector<ValueId> ids() {
    std::vector<ValueId> out;
    while (peek() == '%') {
      out.push_back(value_id());
      if (!follows(',')) break;
    }
    return out;
  }
  template <typename F>
  auto list(F&& item) {
    std::vector<decltype(item())> out;
    expect('[');
    while (!follows(']')) {
      if (!out.empty()) expect(',');
      out.push_back(item());
    }
    return out;
  }
  bool boolean() {
    if (word_follows("true")) return true;
    expect_word("false");
    return false;
  }
  ParamRef param() {
    expect('p');
    ParamRef p;
    p.slot = static_cast<int32_t>(integer());
    expect(':');
    p.dtype = dtype();
    return p;
  }

  Arg argument() {
    char c = peek();
    if (c == '%') return value_id();
    if (c == '"') return string();
    if (c == '[') return list([this] { return integer(); });
    if (c == '(') {
      ValueList v;
      expect('(');
      while (!follows(')')) {
        if (!v.ids.empty()) expect(',');
        v.ids.push_back(value_id());
      }
      return v;
    }
    if (word_follows("none")) return Optional{};
    if (word_follows("true")) return true;
    if (word_follows("false")) return false;
    std::string_view rest = text_.substr(pos_);
    if (rest.starts_with("dtype:")) {
      pos_ += 6;
      return dtype();
    }
    if (rest.starts_with("f:")) {
      pos_ += 2;
      if (peek() == '[') return list([this] { return real(); });
      return real();
    }
    if (rest.starts_with("b:")) {
      pos_ += 2;
      return list([this] { return boolean(); });
    }
    if (rest.starts_with("p:")) {
      pos_ += 2;
      return list([this] { return param(); });
    }
    if (c == 'p') return param();
    if (c == '-' || (c >= '0' && c <= '9')) return integer();
    fail("expected an argument");
  }

  void value_or_node(Graph& g) {
    std::vector<ValueId> results{value_id()};
    if (follows(':')) {
      if (results[0] != static_cast<ValueId>(g.values.size())) {
        fail("values are declared in order; expected %" + std::to_string(g.values.size()));
      }
      Value v;
      v.type.dtype = dtype();
      v.type.sizes = list([this] { return integer(); });
      if (word_follows("strides")) {
        v.type.strides = list([this] { return integer(); });
      } else {
        v.type.strides.assign(v.type.sizes.size(), 1);
        for (size_t d = v.type.sizes.size(); d-- > 1;) {
          v.type.strides[d - 1] = v.type.strides[d] * std::max<int64_t>(v.type.sizes[d], 1);
        }
      }
      if (v.type.strides.size() != v.type.sizes.size()) fail("sizes and strides differ in number");
      if (word_follows("alias")) v.alias = value_id();
      if (word_follows("view")) {
        v.view_of = value_id();
        expect('+');
        v.offset = integer();
        if (v.view_of < 0 || v.view_of >= results[0]) fail("the base of a view is declared before it");
        if (v.offset < 0) fail("the offset of a view is not negative");
      }
      g.values.push_back(std::move(v));
      return;
    }
    expect('=');
    node(g, std::move(results));
  }

  void node(Graph& g, std::vector<ValueId> results) {
    Node n;
    n.results = std::move(results);
    n.op = string();
    expect('(');
    while (!follows(')')) {
      if (!n.args.empty()) expect(',');
      n.args.push_back(argument());
    }
    if (word_follows("at")) {
      n.file = string();
      expect(':');
      n.line = static_cast<int32_t>(integer());
    }
    g.nodes.push_back(std::move(n));
  }

  void check(const Graph& g) const {
    auto good = [&](ValueId id) { return id >= 0 && id < static_cast<ValueId>(g.values.size()); };
    auto need = [&](ValueId id, const std::string& where) {
      if (id != kNoValue && !good(id))
        fail(where + " names %" + std::to_string(id) + ", which is not declared");
    };
    for (const Value& v : g.values) need(v.alias, "an alias");
    for (const auto* ids : {&g.inputs, &g.outputs}) {
      const std::string where = ids == &g.inputs ? "the list of inputs" : "the list of outputs";
      for (ValueId id : *ids) {
        need(id, where);
        if (good(id) && g.values[static_cast<size_t>(id)].view_of != kNoValue)
          fail(where + " names %" + std::to_string(id) + ", which is a view");
      }
    }
    for (const Node& n : g.nodes) {
      for (ValueId id : n.results) need(id, "a result of " + n.op);
      for (const Arg& a : n.args) {
        if (const ValueId* id = std::get_if<ValueId>(&a)) need(*id, "an argument of " + n.op);
        if (const ValueList* l = std::get_if<ValueList>(&a)) {
          for (ValueId id : l->ids) need(id, "an argument of " + n.op);
        }
      }
    }
  }

  std::string_view text_;
  size_t pos_ = 0;
  int line_ = 1;
};

}  // namespace

std::string graph_text(const Graph& graph) {
  std::string out = "graph " + quoted(graph.name);
  if (graph.num_params) out += " params " + std::to_string(graph.num_params);
  out += " {\n";
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const Value& v = graph.values[i];
    out += "  %" + std::to_string(i) + ": " + std::string(isa::dtype_name(v.type.dtype)) +
           int_list(v.type.sizes) + " strides " + int_list(v.type.strides);
    if (v.alias != kNoValue) out += " alias " + value_name(v.alias);
    if (v.view_of != kNoValue) out += " view " + value_name(v.view_of) + " + " + std::to_string(v.offset);
    out += "\n";
  }
  auto id_line = [&](const char* word, const std::vector<ValueId>& ids) {
    if (!ids.empty()) out += joined(ids, word, "\n", value_name);
  };
  id_line("  inputs ", graph.inputs);
  id_line("  outputs ", graph.outputs);
  for (const Node& n : graph.nodes) {
    out += "  ";
    out += n.results.size() == 1 ? value_name(n.results[0]) : joined(n.results, "(", ")", value_name);
    out += " = " + quoted(n.op) + joined(n.args, "(", ")", arg_text);
    if (!n.file.empty() || n.line) out += " at " + quoted(n.file) + ":" + std::to_string(n.line);
    out += "\n";
  }
  return out + "}\n";
}

Graph graph_from_text(std::string_view text) { return Parser(text).graph(); }

}  // namespace trnsim::compiler
