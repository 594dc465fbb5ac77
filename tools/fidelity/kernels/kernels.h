// The generators: one per kernel family, variants are parameters.
#pragma once

#include <boost/json.hpp>
#include <map>
#include <set>
#include <string>

#include "isa/program.h"
#include "sim/config/config.h"
#include "tools/fidelity/kernels/kernel.h"

namespace trnsim::fidelity {

// Parameters of a variant; a name that the generator never asks for is an error.
class Params {
 public:
  explicit Params(const boost::json::object& values) : values_(values) {}
  int64_t number(const std::string& name) const;
  int64_t number(const std::string& name, int64_t fallback) const;
  std::string text(const std::string& name, const std::string& fallback) const;
  bool is(const std::string& name, const std::string& value) const { return text(name, "") == value; }
  isa::Dtype dtype(const std::string& name) const;
  // "static" (default) or "hardware" descriptor generation for the kernel's transfers.
  void dma_mode(Kernel* k) const;
  void check_all_used() const;

 private:
  const boost::json::object& values_;
  mutable std::set<std::string> used_;
};

using Generator = isa::Program (*)(const Params&, const config::Config&);

// kernels_streaming.cpp
isa::Program vector_add(const Params& p, const config::Config& c);
isa::Program silu(const Params& p, const config::Config& c);
isa::Program adamw(const Params& p, const config::Config& c);
isa::Program rope(const Params& p, const config::Config& c);
isa::Program mamba_scan(const Params& p, const config::Config& c);
isa::Program transpose_tiles(const Params& p, const config::Config& c);
// kernels_matmul.cpp
isa::Program matmul(const Params& p, const config::Config& c);
isa::Program matmul_double_row(const Params& p, const config::Config& c);
isa::Program matmul_accumulate(const Params& p, const config::Config& c);
isa::Program rmsnorm_matmul(const Params& p, const config::Config& c);
isa::Program swiglu(const Params& p, const config::Config& c);
isa::Program mlp(const Params& p, const config::Config& c);
// kernels_attention.cpp
isa::Program bmm(const Params& p, const config::Config& c);
isa::Program attention(const Params& p, const config::Config& c);
isa::Program gqa(const Params& p, const config::Config& c);
// kernels_conv.cpp
isa::Program conv_small(const Params& p, const config::Config& c);
isa::Program conv_large(const Params& p, const config::Config& c);

// The generator of a name, or an error that lists the names.
Generator generator(const std::string& name);

}  // namespace trnsim::fidelity
