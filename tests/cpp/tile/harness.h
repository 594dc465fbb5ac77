// Builds, validates and runs kernels; compares memory with the reference.
#pragma once

#include <cstring>
#include <random>
#include <string>
#include <variant>

#include "device_plugin/compiler/tilers/tilers.h"
#include "isa/validator.h"
#include "sim/exec/exec.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/check/strict.h"
#include "tests/cpp/compiler/reference.h"

namespace trnsim::compiler::testing {

using Memory = std::vector<std::vector<uint8_t>>;  // per buffer
using Random = std::mt19937;

struct Setup {
  KernelList list;
  Memory memory;  // per buffer
  std::vector<uint32_t> params;

  int add_buffer(Dtype dtype, int64_t elements, Buffer::Kind kind = Buffer::Kind::kInput) {
    Buffer b;
    b.kind = kind;
    b.dtype = dtype;
    b.elements = elements;
    for (const Buffer& other : list.buffers) b.index += other.kind == kind;
    list.buffers.push_back(b);
    memory.emplace_back(static_cast<size_t>(elements) * isa::dtype_bytes(dtype), 0);
    return static_cast<int>(list.buffers.size()) - 1;
  }
  int add_param(float v) {
    uint32_t bits;
    std::memcpy(&bits, &v, 4);
    params.push_back(bits);
    list.num_params = static_cast<int>(params.size());
    return static_cast<int>(params.size()) - 1;
  }
  int add_int_param(int32_t v) {
    params.push_back(static_cast<uint32_t>(v));
    list.num_params = static_cast<int>(params.size());
    return static_cast<int>(params.size()) - 1;
  }
};

inline View dense(int buffer, Dtype dtype, std::vector<int64_t> sizes) {
  View v;
  v.buffer = buffer;
  v.dtype = dtype;
  v.sizes = sizes;
  v.strides.assign(sizes.size(), 1);
  for (int i = static_cast<int>(sizes.size()) - 2; i >= 0; --i)
    v.strides[i] = v.strides[i + 1] * sizes[i + 1];
  return v;
}

inline isa::Program compile(const Setup& s, std::string* text = nullptr) {
  TileBuilder tile("test");
  KernelContext context = bind_buffers(s.list, tile);
  for (const Kernel& k : s.list.kernels) {
    if (auto* map = std::get_if<MapKernel>(&k)) tile_map(*map, context, tile);
    if (auto* move = std::get_if<MoveKernel>(&k)) tile_move(*move, context, tile);
    if (auto* scan = std::get_if<ScanKernel>(&k)) tile_scan(*scan, context, tile);
  }
  if (text) *text = tile.text();
  return tile.finish();
}

// HBM of a program, bound by name to the buffers of a setup.
struct Bound {
  std::vector<std::vector<std::byte>> owned;
  std::vector<exec::HbmTensor> tensors;
};
inline Bound bind_memory(const isa::Program& program, const Setup& s, Memory& memory) {
  Bound b;
  b.owned.resize(program.tensors.size());
  for (size_t t = 0; t < program.tensors.size(); ++t) {
    const auto& d = program.tensors[t];
    std::byte* data = nullptr;
    for (size_t i = 0; i < s.list.buffers.size(); ++i) {
      const Buffer& buffer = s.list.buffers[i];
      bool in = buffer.kind == Buffer::Kind::kInput && d.name == "in" + std::to_string(buffer.index);
      bool out = buffer.kind == Buffer::Kind::kOutput && d.name == "out" + std::to_string(buffer.index);
      if (in) data = reinterpret_cast<std::byte*>(memory[i].data());
      if (out) {
        data = reinterpret_cast<std::byte*>(memory[i].data());
        for (size_t j = 0; j < s.list.buffers.size() && buffer.alias_input >= 0; ++j) {
          const Buffer& other = s.list.buffers[j];
          if (other.kind == Buffer::Kind::kInput && other.index == buffer.alias_input) {
            data = reinterpret_cast<std::byte*>(memory[j].data());
          }
        }
      }
    }
    if (!data) {
      b.owned[t].resize(d.bytes);
      if (d.name == "params") std::memcpy(b.owned[t].data(), s.params.data(), s.params.size() * 4);
      data = b.owned[t].data();
    }
    b.tensors.push_back({data, d.bytes});
  }
  return b;
}

inline void check_valid(const isa::Program& program) {
  auto diagnostics = isa::validate(program);
  if (auto* e = isa::first_error(diagnostics)) FAIL(e->message);
}

inline Memory execute(const Setup& s, const isa::Program& program) {
  check_valid(program);
  Memory memory = s.memory;
  Bound bound = bind_memory(program, s, memory);
  exec::Core core;
  exec::Status status;
  auto prepared = exec::prepare(program, core.sizes(), &status);
  if (!prepared) FAIL(status.message);
  status = exec::run(core, *prepared, bound.tensors);
  if (!status.ok()) FAIL(status.message);
  CHECK(check::testing::strict_error(program, bound.tensors) == "");
  return memory;
}

inline bool close(float a, float b, double rtol, double atol) {
  if (a == b || (a != a && b != b)) return true;
  return std::fabs(static_cast<double>(a) - b) <= atol + rtol * std::fabs(b) && std::isfinite(a) &&
         std::isfinite(b);
}

// Empty when equal, else the first difference.
inline std::string difference(const Setup& s, const Memory& got, const Memory& want, double rtol,
                              double atol) {
  for (size_t i = 0; i < want.size(); ++i) {
    const Buffer& b = s.list.buffers[i];
    size_t bytes = isa::dtype_bytes(b.dtype);
    for (int64_t e = 0; e < b.elements; ++e) {
      const uint8_t *p = got[i].data() + e * bytes, *q = want[i].data() + e * bytes;
      std::string what = "buffer " + std::to_string(i) + " element " + std::to_string(e) + ": ";
      if (isa::is_float(b.dtype)) {
        float x, y;
        if (b.dtype == Dtype::kF64) {
          double dx, dy;
          std::memcpy(&dx, p, 8);
          std::memcpy(&dy, q, 8);
          x = static_cast<float>(dx);
          y = static_cast<float>(dy);
        } else {
          x = isa::load_as_f32(b.dtype, p);
          y = isa::load_as_f32(b.dtype, q);
        }
        double r = bytes == 2 ? std::max(rtol, b.dtype == Dtype::kBF16 ? 0.008 : 0.001) : rtol;
        if (!close(x, y, r, atol)) return what + std::to_string(x) + " instead of " + std::to_string(y);
      } else if (std::memcmp(p, q, bytes) != 0) {
        return what + std::to_string(isa::load_as_int(b.dtype, p)) + " instead of " +
               std::to_string(isa::load_as_int(b.dtype, q));
      }
    }
  }
  return "";
}

inline void fill(Setup& s, int buffer, Random& random, float low, float high) {
  const Buffer& b = s.list.buffers[buffer];
  size_t bytes = isa::dtype_bytes(b.dtype);
  for (int64_t e = 0; e < b.elements; ++e) {
    uint8_t* p = s.memory[buffer].data() + e * bytes;
    float v = std::uniform_real_distribution<float>(low, high)(random);
    if (b.dtype == Dtype::kF64) {
      double d = v;
      std::memcpy(p, &d, 8);
    } else if (isa::is_float(b.dtype)) {
      isa::store_from_f32(b.dtype, p, v);
    } else {
      isa::store_from_int(b.dtype, p, static_cast<int64_t>(std::floor(v)));
    }
  }
}

// What the kernels mean, by the reference.
inline Memory expected(const Setup& s) {
  Memory memory = s.memory;
  std::vector<std::byte*> buffers;
  for (size_t i = 0; i < memory.size(); ++i) {
    size_t at = i;
    const Buffer& b = s.list.buffers[i];
    for (size_t j = 0; j < memory.size() && b.alias_input >= 0; ++j) {
      const Buffer& other = s.list.buffers[j];
      if (other.kind == Buffer::Kind::kInput && other.index == b.alias_input) at = j;
    }
    buffers.push_back(reinterpret_cast<std::byte*>(memory[at].data()));
  }
  reference::run(s.list, buffers, s.params);
  return memory;
}

inline void check_map(const Setup& s, double rtol = 1e-5, double atol = 1e-30) {
  isa::Program program = compile(s);
  Memory got = execute(s, program);
  Memory want = expected(s);
  INFO("instructions " << program.streams[0].size() + program.streams[1].size() + program.streams[2].size() +
                              program.streams[3].size() + program.streams[4].size());
  CHECK(difference(s, got, want, rtol, atol) == "");
}

}  // namespace trnsim::compiler::testing
