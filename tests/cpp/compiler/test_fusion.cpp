// The graph level: what fuses, what must not, and that the values stay the same: the oracle before and after the passes,
// and the compiled program.
#include <algorithm>
#include <string>

#include "device_plugin/compiler/fusion/fusion.h"
#include "device_plugin/compiler/graph_text.h"
#include "device_plugin/compiler/kernels_text.h"
#include "device_plugin/compiler/lower.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/compiler/runs.h"

using namespace trnsim::compiler;

namespace {

struct Case {
  const char* name;
  size_t before, after;  // kernels
  std::string text;
};

// softmax(0.3 q k) v of q %0, k %1, v %2: `softmax` makes the probabilities %7 of the scores %5, with the mask %3 if any.
std::string attention(const std::string& dtype, const std::string& outputs, const std::string& softmax) {
  const std::string q = dtype + "[6, 70, 16]\n", k = dtype + "[6, 16, 70]\n",
                    scores = dtype + "[6, 70, 70]\n";
  return "graph \"attention\" {\n  %0: " + q + "  %1: " + k + "  %2: " + q +
         "  %3: fp32[6, 70, 70]\n  %4: " + scores + "  %5: " + scores + "  %6: " + scores +
         "  %7: " + scores + "  %8: " + q + "  inputs %0, %1, %2, %3\n  outputs " + outputs + R"(
  %4 = "aten::bmm"(%0, %1)
  %5 = "aten::mul.Tensor"(%4, f:0.3))" +
         softmax + R"(
  %8 = "aten::bmm"(%7, %2)
})";
}

const Case kCases[] = {
    {"pointwise chain", 3, 1, R"(graph "chain" params 1 {
  %0: fp32[5, 7] strides [1, 5]
  %1: fp32[7]
  %2: fp32[5, 7]
  %3: fp32[5, 7]
  %4: fp32[5, 7]
  inputs %0, %1
  outputs %4
  %2 = "aten::add.Tensor"(%0, %1, p0:fp32)
  %3 = "aten::exp"(%2)
  %4 = "aten::mul.Tensor"(%3, %0)
})"},
    {"an intermediate that leaves the graph is a second result", 2, 1, R"(graph "kept" {
  %0: fp32[33, 5]
  %1: fp32[33, 5]
  %2: fp32[33, 5]
  inputs %0
  outputs %1, %2
  %1 = "aten::exp"(%0)
  %2 = "aten::neg"(%1)
})"},
    {"every operator of a bf16 chain rounds", 3, 1, R"(graph "bf16" params 2 {
  %0: bf16[300]
  %1: bf16[300]
  %2: bf16[300]
  %3: bf16[300]
  inputs %0
  outputs %3
  %1 = "aten::mul.Tensor"(%0, p0:fp32)
  %2 = "aten::add.Tensor"(%1, %0, 1)
  %3 = "aten::sub.Tensor"(%2, %0, p1:fp32)
})"},
    {"integers wrap between operators", 2, 1, R"(graph "int8" {
  %0: int8[40]
  %1: int8[40]
  %2: int32[40]
  inputs %0
  outputs %2
  %1 = "aten::mul.Tensor"(%0, 100)
  %2 = "aten::_to_copy"(%1, dtype:int32, none, none, none, false, none)
})"},
    {"layer norm written out", 9, 1, R"(graph "norm" {
  %0: fp32[6, 33]
  %1: fp32[33]
  %2: fp32[33]
  %3: fp32[6, 1]
  %4: fp32[6, 33]
  %5: fp32[6, 33]
  %6: fp32[6, 1]
  %7: fp32[6, 1]
  %8: fp32[6, 1]
  %9: fp32[6, 33]
  %10: fp32[6, 33]
  %11: fp32[6, 33]
  inputs %0, %1, %2
  outputs %11
  %3 = "aten::mean.dim"(%0, [1], true, none)
  %4 = "aten::sub.Tensor"(%0, %3, 1)
  %5 = "aten::mul.Tensor"(%4, %4)
  %6 = "aten::mean.dim"(%5, [1], true, none)
  %7 = "aten::add.Tensor"(%6, f:0.00001, 1)
  %8 = "aten::rsqrt"(%7)
  %9 = "aten::mul.Tensor"(%4, %8)
  %10 = "aten::mul.Tensor"(%9, %1)
  %11 = "aten::add.Tensor"(%10, %2, 1)
})"},
    {"softmax written out over the first axis", 5, 1, R"(graph "softmax" {
  %0: fp32[20, 9]
  %1: fp32[1, 9]
  %2: fp32[20, 9]
  %3: fp32[20, 9]
  %4: fp32[1, 9]
  %5: fp32[20, 9]
  inputs %0
  outputs %5
  %1 = "aten::amax"(%0, [0], true)
  %2 = "aten::sub.Tensor"(%0, %1, 1)
  %3 = "aten::exp"(%2)
  %4 = "aten::sum.dim_IntList"(%3, [0], true, none)
  %5 = "aten::div.Tensor"(%3, %4)
})"},
    {"sums over different axes stay apart", 3, 2, R"(graph "sums" {
  %0: fp32[40, 24]
  %1: fp32[40, 24]
  %2: fp32[40]
  %3: fp32[24]
  inputs %0
  outputs %2, %3
  %1 = "aten::exp"(%0)
  %2 = "aten::sum.dim_IntList"(%1, [1], false, none)
  %3 = "aten::sum.dim_IntList"(%1, [0], false, none)
})"},
    {"through a transposed view", 2, 1, R"(graph "transposed" {
  %0: fp32[6, 10]
  %1: fp32[6, 10]
  %2: fp32[10, 6] strides [1, 10] view %1 + 0
  %3: fp32[10, 6]
  inputs %0
  outputs %3
  %1 = "aten::exp"(%0)
  %3 = "aten::neg"(%2)
})"},
    {"through a reshape and a slice", 2, 1, R"(graph "sliced" {
  %0: fp32[4, 6, 10]
  %1: fp32[4, 6, 10]
  %2: fp32[24, 5] strides [10, 1] view %1 + 5
  %3: fp32[24, 5]
  inputs %0
  outputs %3
  %1 = "aten::exp"(%0)
  %3 = "aten::neg"(%2)
})"},
    {"a flipped result is read from memory", 2, 2, R"(graph "flip" {
  %0: fp32[12]
  %1: fp32[12]
  %2: fp32[12]
  inputs %0
  outputs %2
  %1 = "aten::exp"(%0)
  %2 = "aten::flip"(%1, [0])
})"},
    {"in place: the update of an optimiser", 4, 1, R"(graph "momentum" params 2 {
  %0: fp32[70]
  %1: fp32[70]
  %2: fp32[70]
  %3: fp32[70] alias %2
  %4: fp32[70] alias %0
  %5: fp32[70] view %3 + 0
  %6: fp32[70]
  %7: fp32[70]
  inputs %0, %1, %2
  outputs %3, %4
  %6 = "aten::mul.Tensor"(%2, p0:fp32)
  %3 = "aten::add.Tensor"(%6, %1, 1)
  %7 = "aten::mul.Tensor"(%5, p1:fp32)
  %4 = "aten::sub.Tensor"(%0, %7, 1)
})"},
    {"in place: a reader of the old contents in another order stays before the write", 3, 2, R"(graph "war" {
  %0: fp32[8, 8]
  %1: fp32[8, 8] strides [1, 8] view %0 + 0
  %2: fp32[8, 8] alias %0
  %3: fp32[8, 8]
  %4: fp32[8, 8]
  inputs %0
  outputs %2, %3
  %4 = "aten::cos"(%1)
  %2 = "aten::exp"(%0)
  %3 = "aten::neg"(%4)
})"},
    {"a path through a third kernel keeps two apart", 3, 3, R"(graph "path" {
  %0: fp32[16, 16]
  %1: fp32[16, 16]
  %2: fp32[16, 16]
  %3: fp32[16, 16]
  inputs %0
  outputs %1, %3
  %1 = "aten::exp"(%0)
  %2 = "aten::cumsum"(%1, 0, none)
  %3 = "aten::maximum"(%1, %2)
})"},
    {"bias, activation and residual behind a product", 4, 1, R"(graph "epilogue" {
  %0: fp32[3, 20, 17]
  %1: fp32[17, 30]
  %2: fp32[30]
  %3: fp32[3, 20, 30]
  %4: fp32[60, 17] strides [17, 1] view %0 + 0
  %5: fp32[60, 30]
  %6: fp32[3, 20, 30] view %5 + 0
  %7: fp32[3, 20, 30]
  %8: fp32[3, 20, 30]
  %9: fp32[3, 20, 30]
  inputs %0, %1, %2, %3
  outputs %9
  %5 = "aten::mm"(%4, %1)
  %7 = "aten::add.Tensor"(%6, %2, 1)
  %8 = "aten::relu"(%7)
  %9 = "aten::add.Tensor"(%8, %3, 1)
})"},
    {"the product of bf16 rounds before its epilogue", 2, 1, R"(graph "epilogue16" {
  %0: bf16[20, 17]
  %1: bf16[17, 30]
  %2: bf16[20, 30]
  %3: bf16[20, 30]
  inputs %0, %1
  outputs %3
  %2 = "aten::mm"(%0, %1)
  %3 = "aten::mul.Tensor"(%2, f:1.7)
})"},
    {"a product that two kernels read is stored", 3, 2, R"(graph "twice" {
  %0: fp32[20, 17]
  %1: fp32[17, 30]
  %2: fp32[20, 30]
  %3: fp32[20, 30]
  %4: fp32[30]
  inputs %0, %1
  outputs %3, %4
  %2 = "aten::mm"(%0, %1)
  %3 = "aten::exp"(%2)
  %4 = "aten::sum.dim_IntList"(%2, [0], false, none)
})"},
    {"masked scores of a batch of heads", 3, 2, R"(graph "scores" {
  %0: fp32[6, 9, 8]
  %1: fp32[6, 8, 9]
  %2: fp32[2, 1, 1, 9]
  %3: fp32[6, 9, 9]
  %4: fp32[2, 3, 9, 9] view %3 + 0
  %5: fp32[2, 3, 9, 9]
  %6: fp32[2, 3, 9, 9]
  inputs %0, %1, %2
  outputs %6
  %3 = "aten::bmm"(%0, %1)
  %5 = "aten::add.Tensor"(%4, %2, 1)
  %6 = "aten::_softmax"(%5, -1, false)
})"},
    {"copies vanish in a product's operands", 3, 1, R"(graph "copies" {
  %0: fp32[4, 16, 5]
  %1: fp32[5, 16] strides [1, 5]
  %2: fp32[4, 16, 5]
  %3: fp32[64, 5] view %2 + 0
  %4: fp32[5, 16]
  %5: fp32[64, 16]
  inputs %0, %1
  outputs %5
  %2 = "aten::clone"(%0, none)
  %4 = "aten::clone"(%1, none)
  %5 = "aten::mm"(%3, %4)
})"},
    {"a copy of what is written over stays", 3, 3, R"(graph "copied" {
  %0: fp32[9]
  %1: fp32[9]
  %2: fp32[9] alias %0
  %3: fp32[9]
  inputs %0
  outputs %2, %3
  %1 = "aten::clone"(%0, none)
  %2 = "aten::exp"(%0)
  %3 = "aten::cumsum"(%1, 0, none)
})"},
    {"what nobody reads is not computed", 3, 1, R"(graph "dead" {
  %0: fp32[9, 3]
  %1: fp32[9, 3]
  %2: fp32[9, 3]
  %3: fp32[9, 3]
  inputs %0
  outputs %3
  %1 = "aten::cumsum"(%0, 0, none)
  %2 = "aten::exp"(%1)
  %3 = "aten::neg"(%0)
})"},
    {"two maps that read a tensor load it once", 2, 1, R"(graph "siblings" {
  %0: fp32[70, 3]
  %1: fp32[70, 3]
  %2: fp32[70]
  inputs %0
  outputs %1, %2
  %1 = "aten::exp"(%0)
  %2 = "aten::sum.dim_IntList"(%0, [1], false, none)
})"},
    {"a write into a part of a buffer is seen by a reader of all", 3, 2, R"(graph "parts" {
  %0: fp32[4, 6]
  %1: fp32[4, 8]
  %2: fp32[4, 8]
  %3: fp32[4, 6] strides [8, 1] view %1 + 0
  %4: fp32[4, 2] strides [8, 1] view %1 + 6
  %5: fp32[4, 2]
  inputs %0, %5
  outputs %2
  %3 = "aten::exp"(%0)
  %4 = "aten::neg"(%5)
  %2 = "aten::sin"(%1)
})"},
    {"a rotated copy is read in halves", 4, 2, R"(graph "rotary" {
  %0: fp32[5, 8]
  %1: fp32[5, 8]
  %2: fp32[5, 4] strides [8, 1] view %0 + 0
  %3: fp32[5, 4] strides [8, 1] view %0 + 4
  %4: fp32[5, 4]
  %5: fp32[5, 8]
  %6: fp32[5, 8]
  inputs %0, %1
  outputs %6
  %4 = "aten::neg"(%3)
  %5 = "aten::cat"((%4, %2), 1)
  %6 = "aten::mul.Tensor"(%5, %1)
})"},
    {"padded gradients add up part by part", 5, 2, R"(graph "padded" {
  %0: fp32[5, 3]
  %1: fp32[5, 5]
  %2: fp32[5, 8]
  %3: fp32[5, 8]
  %4: fp32[5, 8]
  inputs %0, %1
  outputs %4
  %2 = "aten::slice_backward"(%0, [5, 8], 1, 0, 3, 1)
  %3 = "aten::slice_backward"(%1, [5, 8], 1, 3, 8, 1)
  %4 = "aten::add.Tensor"(%2, %3, 1)
})"},
    {"index values follow their axes", 2, 1, R"(graph "triangle" {
  %0: fp32[12, 9]
  %1: fp32[12, 9]
  %2: fp32[4, 27] view %1 + 0
  %3: fp32[4, 27]
  inputs %0
  outputs %3
  %1 = "aten::tril"(%0, 1)
  %3 = "aten::neg"(%2)
})"},
    {"cross entropy: forward and gradient share their rows", 3, 1, R"(graph "loss" {
  %0: fp32[24, 10]
  %1: fp32[24, 10]
  %2: fp32[24, 10]
  %3: fp32[24, 10]
  %4: fp32[24, 10]
  inputs %0, %4
  outputs %1, %3
  %1 = "aten::_log_softmax"(%0, 1, false)
  %2 = "aten::mul.Tensor"(%4, f:0.5)
  %3 = "aten::_log_softmax_backward_data"(%2, %1, 1, dtype:fp32)
})"},
    {"attention as PyTorch writes it out: factors, a causal mask, a safe softmax", 8, 1, R"(graph "causal" {
  %0: fp32[2, 3, 80, 16]
  %1: fp32[2, 3, 80, 16]
  %2: fp32[2, 3, 80, 16]
  %3: fp32[2, 3, 80, 16]
  %4: fp32[2, 3, 80, 16]
  %5: fp32[80, 80]
  %6: fp32[80, 80]
  %7: fp32[80, 80]
  %8: fp32[2, 3, 16, 80] strides [3840, 1280, 1, 16] view %4 + 0
  %9: fp32[6, 80, 16] view %3 + 0
  %10: fp32[6, 16, 80] strides [1280, 1, 16] view %8 + 0
  %11: fp32[6, 80, 80]
  %12: fp32[2, 3, 80, 80] view %11 + 0
  %13: fp32[2, 3, 80, 80]
  %14: fp32[2, 3, 80, 80]
  %15: fp32[6, 80, 80] view %14 + 0
  %16: fp32[6, 80, 16] view %2 + 0
  %17: fp32[6, 80, 16]
  inputs %0, %1, %2
  outputs %17
  %3 = "aten::mul.Scalar"(%0, f:0.5)
  %4 = "aten::mul.Scalar"(%1, f:0.5)
  %5 = "aten::full"([80, 80], f:-inf, none, none, none, none)
  %6 = "aten::triu"(%5, 1)
  %11 = "aten::bmm"(%9, %10)
  %13 = "aten::add.Tensor"(%12, %6, 1)
  %14 = "aten::_safe_softmax"(%13, -1, none)
  %17 = "aten::bmm"(%15, %16)
})"},
    {"attention with a mask given as a tensor", 5, 1, attention("fp32", "%8", R"(
  %6 = "aten::add.Tensor"(%5, %3, 1)
  %7 = "aten::_safe_softmax"(%6, -1, none))")},
    {"attention without a mask", 4, 1, attention("fp32", "%8", R"(
  %7 = "aten::_softmax"(%5, -1, false))")},
    {"attention with a mask given as a tensor and a plain softmax", 5, 1, attention("fp32", "%8", R"(
  %6 = "aten::add.Tensor"(%5, %3, 1)
  %7 = "aten::_softmax"(%6, -1, false))")},
    {"probabilities that leave the graph are stored", 5, 3, attention("fp32", "%7, %8", R"(
  %6 = "aten::add.Tensor"(%5, %3, 1)
  %7 = "aten::_safe_softmax"(%6, -1, none))")},
    {"scores of bf16 were rounded and stay", 4, 3, attention("bf16", "%8", R"(
  %7 = "aten::_softmax"(%5, -1, false))")},
};

}  // namespace

TEST_CASE("fused graphs have the kernels they should and the values they had") {
  for (const Case& c : kCases) {
    DYNAMIC_SECTION(c.name) {
      const Graph g = graph_from_text(c.text);
      KernelList list = lower_graph(g);
      const FusionReport report = fuse_kernels(list);
      INFO(kernels_text(list));
      CHECK(report.kernels_before == c.before);
      CHECK(report.kernels_after == c.after);
      CHECK(list.kernels.size() == c.after);
      CHECK(list.locations.size() == c.after);
      const Memory inputs = random_inputs(g);
      const Memory plain = run(g, RunMode::kReference, inputs), fused = run(g, RunMode::kFused, inputs),
                   compiled = run(g, RunMode::kCompiled, inputs),
                   divided = run(g, RunMode::kTwoCores, inputs);
      for (size_t i = 0; i < g.outputs.size(); ++i) {
        const TensorType& t = g.values[static_cast<size_t>(g.outputs[i])].type;
        check_same(t, plain[i], fused[i], 1e-6f);
        // sums of other order may round to the next bf16
        check_same(t, plain[i], compiled[i], t.dtype == Dtype::kBF16 ? 0.01f : 2e-5f);
        check_same(t, plain[i], divided[i], t.dtype == Dtype::kBF16 ? 0.01f : 2e-5f);
      }
    }
  }
}
