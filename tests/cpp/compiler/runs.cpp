#include "tests/cpp/compiler/runs.h"

#include <cmath>
#include <cstring>
#include <random>

#include "tests/cpp/catch.h"

namespace trnsim::compiler {
namespace {

size_t tensor_bytes(const TensorType& t) {
  int64_t last = 0;
  for (size_t d = 0; d < t.sizes.size(); ++d) {
    if (t.sizes[d] == 0) return 0;
    last += (t.sizes[d] - 1) * t.strides[d];
  }
  return static_cast<size_t>(last + 1) * trnsim::isa::dtype_bytes(t.dtype);
}

}  // namespace

Memory random_inputs(const Graph& g) {
  std::mt19937 rng(7);
  Memory memory;
  for (ValueId id : g.inputs) {
    const TensorType& t = g.values[static_cast<size_t>(id)].type;
    size_t n = tensor_bytes(t), width = trnsim::isa::dtype_bytes(t.dtype);
    std::vector<std::byte> bytes(n);
    for (size_t at = 0; at < n; at += width) {
      if (trnsim::isa::is_float(t.dtype)) {
        trnsim::isa::store_from_f32(t.dtype, &bytes[at], std::normal_distribution<float>()(rng));
      } else {
        trnsim::isa::store_from_int(t.dtype, &bytes[at], static_cast<int64_t>(rng() % 4));
      }
    }
    memory.push_back(std::move(bytes));
  }
  return memory;
}

Memory run(const Graph& g, RunMode mode, Memory inputs) {
  Memory outputs;
  std::vector<std::byte*> in, out;
  for (auto& m : inputs) in.push_back(m.data());
  for (ValueId id : g.outputs) {
    outputs.emplace_back(tensor_bytes(g.values[static_cast<size_t>(id)].type));
  }
  for (size_t i = 0; i < g.outputs.size(); ++i) {
    std::byte* p = outputs[i].data();
    ValueId alias = g.values[static_cast<size_t>(g.outputs[i])].alias;
    for (size_t j = 0; j < g.inputs.size(); ++j) {
      if (g.inputs[j] == alias) p = inputs[j].data();
    }
    out.push_back(p);
  }
  std::vector<uint32_t> params(static_cast<size_t>(g.num_params));
  for (size_t i = 0; i < params.size(); ++i) {
    float v = 0.25f * static_cast<float>(i + 1);
    std::memcpy(&params[i], &v, 4);
  }
  CompileResult r = run_graph(g, mode, in, out, params);
  INFO(r.message);
  REQUIRE(r.status == CompileResult::Status::kOk);
  for (size_t i = 0; i < g.outputs.size(); ++i) std::memcpy(outputs[i].data(), out[i], outputs[i].size());
  return outputs;
}

void check_same(const TensorType& t, const std::vector<std::byte>& a, const std::vector<std::byte>& b,
                float tolerance) {
  size_t width = trnsim::isa::dtype_bytes(t.dtype);
  for (size_t at = 0; at < a.size(); at += width) {
    if (trnsim::isa::is_float(t.dtype)) {
      float x = trnsim::isa::load_as_f32(t.dtype, &a[at]), y = trnsim::isa::load_as_f32(t.dtype, &b[at]);
      if (std::isnan(x) && std::isnan(y)) continue;
      if (std::abs(x - y) <= tolerance * (1 + std::abs(x))) continue;
      FAIL_CHECK("element " << at / width << ": " << x << " and " << y);
    } else if (std::memcmp(&a[at], &b[at], width) != 0) {
      FAIL_CHECK("element " << at / width << " differs");
    }
  }
}

}  // namespace trnsim::compiler
