#include <limits>

#include "device_plugin/compiler/error.h"
#include "device_plugin/compiler/graph_text.h"
#include "tests/cpp/catch.h"

using namespace trnsim::compiler;

namespace {

Graph graph_with_every_argument_kind() {
  Graph g;
  g.name = "a \"quoted\"\nname";
  g.num_params = 6;
  g.values.push_back({{Dtype::kF32, {4, 8}, {16, 2}}, kNoValue});
  g.values.push_back({{Dtype::kI64, {}, {}}, kNoValue});
  g.values.push_back({{Dtype::kBF16, {0, 3}, {3, 1}}, 0});
  Value view{{Dtype::kF32, {2, 8}, {16, 2}}};
  view.view_of = 0;
  view.offset = 32;
  g.values.push_back(view);
  g.inputs = {0, 1};
  g.outputs = {2};
  Node n;
  n.op = "aten::everything.Kind";
  n.args = {Optional{},
            ValueId{0},
            ValueId{kNoValue},
            ValueList{{0, kNoValue, 1}},
            ValueList{},
            true,
            false,
            int64_t{-9223372036854775807LL - 1},
            0.1,
            -std::numeric_limits<double>::infinity(),
            std::string("tanh \\ \t"),
            Dtype::kF8E4M3FN,
            std::vector<int64_t>{1, -2},
            std::vector<int64_t>{},
            std::vector<double>{0.5, 1e300},
            std::vector<bool>{true, false},
            ParamRef{3, Dtype::kI32},
            std::vector<ParamRef>{{4, Dtype::kI32}, {5, Dtype::kF32}}};
  n.results = {2, kNoValue};
  n.file = "train.py";
  n.line = 12;
  g.nodes.push_back(n);
  n.results = {2};
  n.file.clear();
  n.line = 0;
  g.nodes.push_back(n);
  return g;
}

}  // namespace

TEST_CASE("the text form of a graph reads back to the same text and the same arguments") {
  Graph g = graph_with_every_argument_kind();
  std::string text = graph_text(g);
  Graph r = graph_from_text(text);
  CHECK(graph_text(r) == text);
  CHECK(r.name == g.name);
  CHECK(r.num_params == 6);
  REQUIRE(r.nodes.size() == 2);
  REQUIRE(r.nodes[0].args.size() == g.nodes[0].args.size());
  for (size_t i = 0; i < g.nodes[0].args.size(); ++i) {
    INFO("argument " << i);
    CHECK(r.nodes[0].args[i].index() == g.nodes[0].args[i].index());
  }
  CHECK(std::get<double>(r.nodes[0].args[8]) == 0.1);
  CHECK(std::get<std::string>(r.nodes[0].args[10]) == "tanh \\ \t");
  CHECK(r.values[2].alias == 0);
  CHECK(r.values[3].view_of == 0);
  CHECK(r.values[3].offset == 32);
  CHECK(r.nodes[0].line == 12);
}

TEST_CASE("malformed graph text is refused with the line and the reason") {
  auto message = [](const std::string& text) {
    try {
      graph_from_text(text);
    } catch (const CompileError& e) {
      CHECK(e.kind() == CompileResult::Status::kUserError);
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  CHECK_THAT(message("grph"), ContainsSubstring("line 1: expected 'graph'"));
  CHECK_THAT(message("graph \"a\" {\n  %1: fp32[2]\n}"), ContainsSubstring("line 2"));
  CHECK_THAT(message("graph \"a\" {\n  %0: float[2]\n}"), ContainsSubstring("unknown dtype 'float'"));
  CHECK_THAT(message("graph \"a\" {\n  %0: fp32[2]\n  %0 = \"aten::relu\"(%7)\n}"),
             ContainsSubstring("names %7, which is not declared"));
  CHECK_THAT(message("graph \"a\" {\n  %0: fp32[2] strides [1, 1]\n}"),
             ContainsSubstring("differ in number"));
  CHECK_THAT(message("graph \"a\" {\n  %0: fp32[2] view %0 + 1\n}"),
             ContainsSubstring("the base of a view is declared before it"));
  CHECK_THAT(message("graph \"a\" {\n  %0: fp32[2]\n  %1: fp32[1] view %0 + -1\n}"),
             ContainsSubstring("offset of a view is not negative"));
  CHECK_THAT(message("graph \"a\" {\n  %0: fp32[2]\n  %1: fp32[1] view %0 + 1\n  outputs %1\n}"),
             ContainsSubstring("line 5: the list of outputs names %1, which is a view"));
  CHECK_THAT(message("graph \"a"), ContainsSubstring("closing quote"));
  CHECK_THAT(message("graph \"a\" {"), ContainsSubstring("line 1"));
}
