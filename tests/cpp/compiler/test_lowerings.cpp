// One representative of every family of lowerings: compiled and run on the functional executor, compared with
// the oracle of the kernel kinds on the same inputs. Values against PyTorch itself:
// tests/python/compiler_harness.
#include <cmath>
#include <cstring>
#include <random>
#include <set>

#include "device_plugin/compiler/graph_text.h"
#include "device_plugin/compiler/kernels_text.h"
#include "device_plugin/compiler/lower.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/compiler/runs.h"

using namespace trnsim::compiler;

namespace {

struct Case {
  const char* name;
  const char* text;
};

const Case kCases[] = {
    {"pointwise with a run-time scalar, strided and broadcast", R"(graph "add" params 1 {
  %0: fp32[5, 7] strides [1, 5]
  %1: fp32[7]
  %2: fp32[5, 7]
  inputs %0, %1
  outputs %2
  %2 = "aten::add.Tensor"(%0, %1, p0:fp32)
})"},
    {"in place", R"(graph "addcmul" params 1 {
  %0: fp32[33]
  %1: fp32[33]
  %2: fp32[33] alias %0
  inputs %0, %1
  outputs %2
  %2 = "aten::addcmul"(%0, %1, %1, p0:fp32)
})"},
    {"views of inputs and of values between nodes, a view of a view", R"(graph "views" {
  %0: fp32[6, 8]
  %1: fp32[2, 3] strides [8, 2] view %0 + 17
  %2: fp32[3, 2] strides [2, 8] view %1 + 0
  %3: fp32[6, 8]
  %4: fp32[3, 2] strides [1, 8] view %3 + 5
  %5: fp32[3, 2]
  %6: fp32[2, 3] strides [1, 2] view %5 + 0
  %7: fp32[3, 3]
  inputs %0
  outputs %7
  %3 = "aten::exp"(%0)
  %5 = "aten::mul.Tensor"(%2, %4)
  %7 = "aten::mm"(%4, %6)
})"},
    {"nodes that write parts of a value, read back whole", R"(graph "parts" params 1 {
  %0: fp32[5, 4]
  %1: fp32[5, 8]
  %2: fp32[5, 4] strides [8, 1] view %1 + 0
  %3: fp32[5, 4] strides [8, 1] view %1 + 4
  %4: fp32[5, 8]
  inputs %0
  outputs %4
  %2 = "aten::neg"(%0)
  %3 = "aten::exp"(%0)
  %2 = "aten::add.Scalar"(%2, p0:fp32, 1)
  %4 = "aten::exp"(%1)
})"},
    {"a part of an input changed in place, then used", R"(graph "cache" {
  %0: fp32[6, 4]
  %1: fp32[2, 4]
  %2: fp32[6, 4] alias %0
  %3: fp32[2, 4] view %2 + 12
  %4: fp32[6]
  inputs %0, %1
  outputs %2, %4
  %3 = "aten::copy"(%none, %1, false)
  %4 = "aten::sum.dim_IntList"(%2, [1], false, none)
})"},
    {"reduction over the middle axis", R"(graph "sum" {
  %0: fp32[3, 130, 4]
  %1: fp32[3, 4]
  inputs %0
  outputs %1
  %1 = "aten::sum.dim_IntList"(%0, [1], false, none)
})"},
    {"attention, causal, with a mask", R"(graph "attention" {
  %0: fp32[2, 4, 20, 8]
  %1: fp32[2, 2, 30, 8] strides [480, 8, 16, 1]
  %2: fp32[2, 2, 30, 6]
  %3: fp32[20, 30]
  %4: fp32[2, 4, 20, 6]
  %5: fp32[2, 4, 20]
  inputs %0, %1, %2, %3
  outputs %4, %5
  (%4, %5) = "trnsim::attention"(%0, %1, %2, %3, true, f:0.35, false, false)
})"},
    {"row chain", R"(graph "softmax" {
  %0: fp32[129, 13]
  %1: fp32[129, 13]
  inputs %0
  outputs %1
  %1 = "aten::_softmax"(%0, -1, false)
})"},
    {"norm with three results", R"(graph "layer_norm" {
  %0: fp32[6, 32]
  %1: fp32[32]
  %2: fp32[32]
  %3: fp32[6, 32]
  %4: fp32[6, 1]
  %5: fp32[6, 1]
  inputs %0, %1, %2
  outputs %3, %4, %5
  (%3, %4, %5) = "aten::native_layer_norm"(%0, [32], %1, %2, f:1e-5)
})"},
    {"matrix product with an addend", R"(graph "addmm" {
  %0: fp32[5]
  %1: fp32[9, 17]
  %2: fp32[17, 5] strides [1, 17]
  %3: fp32[9, 5]
  inputs %0, %1, %2
  outputs %3
  %3 = "aten::addmm"(%0, %1, %2, 1, 1)
})"},
    {"convolution", R"(graph "conv" {
  %0: fp32[2, 3, 8, 8]
  %1: fp32[4, 3, 3, 3]
  %2: fp32[4]
  %3: fp32[2, 4, 8, 8]
  inputs %0, %1, %2
  outputs %3
  %3 = "aten::convolution"(%0, %1, %2, [1, 1], [1, 1], [1, 1], false, [0, 0], 1)
})"},
    {"max pool with indices", R"(graph "pool" {
  %0: fp32[2, 3, 8, 8]
  %1: fp32[2, 3, 4, 4]
  %2: int64[2, 3, 4, 4]
  inputs %0
  outputs %1, %2
  (%1, %2) = "aten::max_pool2d_with_indices"(%0, [2, 2], [], [0, 0], [1, 1], false)
})"},
    {"interpolation as a product", R"(graph "upsample" {
  %0: fp32[1, 2, 3, 4]
  %1: fp32[1, 2, 6, 8]
  inputs %0
  outputs %1
  %1 = "aten::upsample_bilinear2d"(%0, [6, 8], false, none, none)
})"},
    {"concatenation with a cast", R"(graph "cat" {
  %0: fp32[2, 3]
  %1: bf16[2, 5]
  %2: fp32[2, 8]
  inputs %0, %1
  outputs %2
  %2 = "aten::cat"((%0, %1), 1)
})"},
    {"rows by index", R"(graph "embedding" {
  %0: fp32[4, 8]
  %1: int64[2, 3]
  %2: fp32[2, 3, 8]
  inputs %0, %1
  outputs %2
  %2 = "aten::embedding"(%0, %1, -1, false, false)
})"},
    {"rows added by index", R"(graph "embedding_backward" {
  %0: fp32[2, 3, 8]
  %1: int64[2, 3]
  %2: fp32[4, 8]
  inputs %0, %1
  outputs %2
  %2 = "aten::embedding_dense_backward"(%0, %1, 4, 2, false)
})"},
    {"order", R"(graph "topk" {
  %0: fp32[6, 20]
  %1: fp32[6, 3]
  %2: int64[6, 3]
  inputs %0
  outputs %1, %2
  (%1, %2) = "aten::topk"(%0, 3, -1, true, true)
})"},
    {"scan", R"(graph "cumsum" {
  %0: int64[3, 40]
  %1: int64[3, 40]
  inputs %0
  outputs %1
  %1 = "aten::cumsum"(%0, 1, none)
})"},
    {"class loss", R"(graph "nll" {
  %0: fp32[16, 4]
  %1: int64[16]
  %2: fp32[]
  %3: fp32[]
  inputs %0, %1
  outputs %2, %3
  (%2, %3) = "aten::nll_loss_forward"(%0, %1, %none, 1, -100)
})"},
    {"two nodes with a value between them", R"(graph "chain" {
  %0: fp32[4, 6]
  %1: fp32[4, 6]
  %2: fp32[4]
  inputs %0
  outputs %2
  %1 = "aten::tanh"(%0)
  %2 = "aten::amax"(%1, [1], false)
})"},
    {"empty operands", R"(graph "empty" {
  %0: fp32[0, 6]
  %1: fp32[6]
  inputs %0
  outputs %1
  %1 = "aten::sum.dim_IntList"(%0, [0], false, none)
})"},
};

CompileResult compile(const std::string& text) {
  return trnsim_compiler()->compile(graph_from_text(text), {});
}

}  // namespace

TEST_CASE("compiled programs give the values of the kernel oracle") {
  for (const Case& c : kCases) {
    DYNAMIC_SECTION(c.name) {
      Graph g = graph_from_text(c.text);
      INFO(kernels_text(lower_graph(g)));
      Memory inputs = random_inputs(g);
      Memory expected = run(g, RunMode::kReference, inputs);
      for (RunMode mode : {RunMode::kCompiled, RunMode::kTwoCores}) {
        Memory actual = run(g, mode, inputs);
        for (size_t i = 0; i < g.outputs.size(); ++i) {
          check_same(g.values[static_cast<size_t>(g.outputs[i])].type, expected[i], actual[i]);
        }
      }
    }
  }
}

TEST_CASE("what is not lowered is refused with a reason") {
  CompileResult r = compile(
      "graph \"a\" {\n %0: fp32[2]\n %1: fp32[2]\n inputs %0\n outputs %1\n"
      " %1 = \"aten::no_such_op\"(%0)\n}");
  CHECK(r.status == CompileResult::Status::kUnsupported);
  CHECK_THAT(r.message, ContainsSubstring("not simulated: aten::no_such_op"));

  r = compile(
      "graph \"a\" {\n %0: fp32[4]\n %1: bool[4]\n %2: fp32[2]\n inputs %0, %1\n outputs %2\n"
      " %2 = \"aten::index.Tensor\"(%0, (%1))\n}");
  CHECK(r.status == CompileResult::Status::kUnsupported);
  CHECK_THAT(r.message, ContainsSubstring("data-dependent shape"));

  r = compile(
      "graph \"a\" params 1 {\n %0: fp32[4]\n %1: fp32[4]\n inputs %0\n outputs %1\n"
      " %1 = \"aten::pow.Tensor_Scalar\"(%0, p0:fp32)\n}");
  CHECK(r.status == CompileResult::Status::kUnsupported);
  CHECK_THAT(r.message, ContainsSubstring("`exponent` has to be a constant"));
}

TEST_CASE("a node that breaks the contract is an internal error, not a crash") {
  CompileResult r = compile(
      "graph \"a\" {\n %0: fp32[2]\n %1: fp32[2]\n inputs %0\n outputs %1\n"
      " %1 = \"aten::add.Tensor\"(%0)\n}");
  CHECK(r.status == CompileResult::Status::kInternalError);
  CHECK_THAT(r.message, ContainsSubstring("argument 1 is missing"));
}

TEST_CASE("a view beyond its base is an internal error") {
  CompileResult r = compile(
      "graph \"a\" {\n %0: fp32[2, 2]\n %1: fp32[2] strides [2] view %0 + 2\n %2: fp32[2]\n inputs %0\n"
      " outputs %2\n %2 = \"aten::neg\"(%1)\n}");
  CHECK(r.status == CompileResult::Status::kInternalError);
  CHECK_THAT(r.message, ContainsSubstring("the view %1 goes beyond its base"));
}

TEST_CASE("the table of lowerings is sorted and without duplicates") {
  std::set<std::string> names;
  std::string last;
  for (const OpInfo& op : trnsim_compiler()->lowered_ops()) {
    CHECK(names.insert(op.name).second);
    CHECK(last < op.name);
    CHECK((op.name.starts_with("aten::") || op.name.starts_with("trnsim::")));
    last = op.name;
  }
  CHECK(names.count("aten::add.Tensor") == 1);
}

TEST_CASE("views reshape only when the strides allow it") {
  View v;
  v.buffer = 0;
  v.sizes = {2, 3, 4};
  v.strides = {12, 4, 1};
  REQUIRE(view_reshaped(v, {6, 4}).has_value());
  CHECK(view_reshaped(v, {24})->strides == std::vector<int64_t>{1});
  CHECK(view_reshaped(v, {2, 1, 12})->strides.back() == 1);
  CHECK_FALSE(view_reshaped(view_permuted(v, {1, 0, 2}), {24}).has_value());
  v.strides = {24, 8, 2};
  CHECK(view_reshaped(v, {4, 6})->strides == std::vector<int64_t>{12, 2});
}
