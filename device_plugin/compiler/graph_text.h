// Text form of the Graph IR. Exact round trip: graph_from_text(graph_text(g)) == g.
//
//   graph "add_f32" params 1 {
//     %0: fp32[4, 8] strides [8, 1]
//     %1: fp32[4, 8] strides [8, 1] alias %0
//     inputs %0
//     outputs %1
//     %1 = "aten::add.Tensor"(%0, %0, p0:fp32) at "train.py":12
//   }
//
// A view says its base and offset: `%2: fp32[4, 4] strides [8, 1] view %1 + 4`.
//
// Arguments: `none`, `%3`, `%none` (a tensor that was not given), `(%1, %2)`, `true`, `42`, `f:0.5` (any
// double in hexadecimal or decimal notation), `"text"`, `dtype:bf16`, `[1, 2]`, `f:[1, 0x1p-1]`, `b:[true]`,
// `p0:fp32`, `p:[p0:int32, p1:int32]`. `#` starts a comment that runs to the end of the line.
#pragma once

#include <string>
#include <string_view>

#include "device_plugin/compiler/graph.h"

namespace trnsim::compiler {

std::string graph_text(const Graph& graph);
// Throws CompileError (user error) with the line number on malformed text.
Graph graph_from_text(std::string_view text);

}  // namespace trnsim::compiler
