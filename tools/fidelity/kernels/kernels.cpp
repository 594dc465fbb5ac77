#include "tools/fidelity/kernels/kernels.h"

#include <stdexcept>

namespace trnsim::fidelity {

int64_t Params::number(const std::string& name) const {
  used_.insert(name);
  const auto* v = values_.if_contains(name);
  if (v == nullptr) throw std::runtime_error("the kernel needs the parameter '" + name + "'");
  return v->to_number<int64_t>();
}

int64_t Params::number(const std::string& name, int64_t fallback) const {
  used_.insert(name);
  const auto* v = values_.if_contains(name);
  return v != nullptr ? v->to_number<int64_t>() : fallback;
}

std::string Params::text(const std::string& name, const std::string& fallback) const {
  used_.insert(name);
  const auto* v = values_.if_contains(name);
  return v != nullptr ? std::string(v->as_string()) : fallback;
}

isa::Dtype Params::dtype(const std::string& name) const {
  const std::string t = text(name, "fp32");
  if (t == "fp32") return isa::Dtype::kF32;
  if (t == "bf16") return isa::Dtype::kBF16;
  if (t == "fp16") return isa::Dtype::kF16;
  throw std::runtime_error("'" + t + "' is no dtype of a kernel: fp32, bf16 or fp16");
}

void Params::dma_mode(Kernel* k) const {
  const std::string t = text("dma", "static");
  if (t == "hardware" || t == "hardware both") {
    k->both_load = t == "hardware both";
    k->loads = {isa::Engine::kSync, isa::DgeMode::kHardware};
    k->stores = {isa::Engine::kGpSimd, isa::DgeMode::kSoftware};
  } else if (t != "static") {
    throw std::runtime_error("'" + t + "' is no descriptor generation: static, hardware or hardware both");
  }
}

void Params::check_all_used() const {
  for (const auto& v : values_) {
    if (used_.count(std::string(v.key())) == 0)
      throw std::runtime_error("the kernel has no parameter '" + std::string(v.key()) + "'");
  }
}

Generator generator(const std::string& name) {
  static const std::map<std::string, Generator> kAll = {
      {"vector_add", vector_add},
      {"silu", silu},
      {"adamw", adamw},
      {"rope", rope},
      {"mamba_scan", mamba_scan},
      {"transpose_tiles", transpose_tiles},
      {"matmul", matmul},
      {"matmul_double_row", matmul_double_row},
      {"matmul_accumulate", matmul_accumulate},
      {"rmsnorm_matmul", rmsnorm_matmul},
      {"swiglu", swiglu},
      {"mlp", mlp},
      {"bmm", bmm},
      {"attention", attention},
      {"gqa", gqa},
      {"conv_small", conv_small},
      {"conv_large", conv_large},
  };
  const auto it = kAll.find(name);
  if (it != kAll.end()) return it->second;
  std::string names;
  for (const auto& g : kAll) names += (names.empty() ? "" : ", ") + g.first;
  throw std::runtime_error("no kernel '" + name + "'; there are " + names);
}

}  // namespace trnsim::fidelity
