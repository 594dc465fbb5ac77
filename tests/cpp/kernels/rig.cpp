#include "tests/cpp/kernels/rig.h"

#include <chrono>
#include <cmath>
#include <cstring>

#include "isa/validator.h"
#include "sim/exec/exec.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/check/strict.h"
#include "tests/cpp/compiler/reference.h"

namespace trnsim::compiler::test {

std::vector<int64_t> contiguous(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> s(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;) s[i - 1] = s[i] * std::max<int64_t>(sizes[i], 1);
  return s;
}

View Rig::add(Buffer::Kind kind, Dtype dtype, std::vector<int64_t> sizes, std::vector<int64_t> strides,
              int64_t offset) {
  View v;
  v.buffer = static_cast<int32_t>(list_.buffers.size());
  v.dtype = dtype;
  v.offset = offset;
  v.sizes = std::move(sizes);
  v.strides = strides.empty() ? contiguous(v.sizes) : std::move(strides);
  Buffer b;
  b.kind = kind;
  b.dtype = dtype;
  b.index = kind == Buffer::Kind::kInput ? inputs_++ : outputs_++;
  b.elements = offset + 1;
  for (size_t i = 0; i < v.sizes.size(); ++i)
    b.elements += (std::max<int64_t>(v.sizes[i], 1) - 1) * v.strides[i];
  list_.buffers.push_back(b);
  memory_.emplace_back(static_cast<size_t>(b.elements) * isa::dtype_bytes(dtype), std::byte{0x7f});
  filled_.push_back(false);
  return v;
}

View Rig::input(Dtype dtype, std::vector<int64_t> sizes, std::vector<int64_t> strides, int64_t offset) {
  View v = add(Buffer::Kind::kInput, dtype, std::move(sizes), std::move(strides), offset);
  fill(v, isa::is_integer(dtype) ? -5 : -1, isa::is_integer(dtype) ? 5 : 1);
  return v;
}

View Rig::output(Dtype dtype, std::vector<int64_t> sizes, std::vector<int64_t> strides, int64_t offset) {
  return add(Buffer::Kind::kOutput, dtype, std::move(sizes), std::move(strides), offset);
}

int64_t Rig::byte_of(const View& v, int64_t flat) const {
  int64_t at = v.offset;
  for (size_t i = v.sizes.size(); i-- > 0;) {
    at += flat % v.sizes[i] * v.strides[i];
    flat /= v.sizes[i];
  }
  return at * static_cast<int64_t>(isa::dtype_bytes(v.dtype));
}

void Rig::write(const View& v, const std::vector<double>& values) {
  REQUIRE(static_cast<int64_t>(values.size()) == v.numel());
  auto& m = memory_[static_cast<size_t>(v.buffer)];
  filled_[static_cast<size_t>(v.buffer)] = true;
  for (int64_t i = 0; i < v.numel(); ++i) {
    std::byte* p = m.data() + byte_of(v, i);
    const double x = values[static_cast<size_t>(i)];
    if (v.dtype == Dtype::kF64) {
      std::memcpy(p, &x, 8);
    } else if (isa::is_integer(v.dtype)) {
      isa::store_from_int(v.dtype, p, static_cast<int64_t>(x));
    } else {
      isa::store_from_f32(v.dtype, p, static_cast<float>(x));
    }
  }
}

void Rig::fill(const View& v, double low, double high) {
  std::vector<double> values(static_cast<size_t>(v.numel()));
  if (isa::is_integer(v.dtype)) {
    std::uniform_int_distribution<int64_t> d(static_cast<int64_t>(low), static_cast<int64_t>(high));
    for (double& x : values) x = static_cast<double>(d(random_));
  } else {
    std::uniform_real_distribution<double> d(low, high);
    for (double& x : values) x = d(random_);
  }
  write(v, values);
}

std::vector<double> Rig::read(const View& v) const {
  const auto& m = memory_[static_cast<size_t>(v.buffer)];
  std::vector<double> values(static_cast<size_t>(v.numel()));
  for (int64_t i = 0; i < v.numel(); ++i) {
    const std::byte* p = m.data() + byte_of(v, i);
    double x = 0;
    if (v.dtype == Dtype::kF64) {
      std::memcpy(&x, p, 8);
    } else if (isa::is_integer(v.dtype)) {
      x = static_cast<double>(isa::load_as_int(v.dtype, p));
    } else {
      x = static_cast<double>(isa::load_as_f32(v.dtype, p));
    }
    values[static_cast<size_t>(i)] = x;
  }
  return values;
}

int Rig::param(float value) {
  int32_t bits;
  std::memcpy(&bits, &value, 4);
  return param_bits(bits);
}
int Rig::param_bits(int32_t value) {
  params_.push_back(value);
  list_.num_params = static_cast<int32_t>(params_.size());
  return list_.num_params - 1;
}

std::string Rig::run_error(const Kernel& kernel) {
  list_.name = "test";
  list_.kernels = {kernel};
  list_.locations = {"test kernel"};
  const isa::Program program = compile_kernels(list_, TileOptions{});
  for (const isa::Diagnostic& d : isa::validate(program)) FAIL_CHECK("validator: " << d.message);
  instructions_ = 0;
  for (const auto& stream : program.streams) instructions_ += static_cast<int64_t>(stream.size());

  std::vector<std::vector<std::byte>> scratch;
  std::vector<exec::HbmTensor> hbm;
  std::vector<uint64_t> initialised;
  for (const isa::TensorDecl& t : program.tensors) {
    exec::HbmTensor h;
    h.bytes = t.bytes;
    bool filled = false;
    if (t.name == "params") {
      h.data = reinterpret_cast<std::byte*>(params_.data());
    } else if (t.kind == isa::TensorKind::kInput || t.kind == isa::TensorKind::kOutput) {
      const bool in = t.name.rfind("in", 0) == 0;
      const int index = std::stoi(t.name.substr(in ? 2 : 3));
      for (size_t b = 0; b < list_.buffers.size(); ++b) {
        const Buffer& buffer = list_.buffers[b];
        if (buffer.index != index || (buffer.kind == Buffer::Kind::kInput) != in) continue;
        h.data = memory_[b].data();
        filled = filled_[b];
      }
    } else {
      scratch.emplace_back(static_cast<size_t>(t.bytes), std::byte{0x7f});
      if (t.kind == isa::TensorKind::kConstant)
        std::memcpy(scratch.back().data(), t.constant.data(), t.constant.size());
      h.data = scratch.back().data();
    }
    REQUIRE(h.data != nullptr);
    hbm.push_back(h);
    initialised.push_back(filled ? h.bytes : 0);
  }
  CHECK(check::testing::strict_error(program, hbm, initialised) == "");
  exec::Core core;
  exec::Status status;
  const auto prepared = exec::prepare(program, core.sizes(), &status);
  if (!status.ok()) return status.message;
  const auto start = std::chrono::steady_clock::now();
  status = exec::run(core, *prepared, hbm);
  run_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return status.ok() ? "" : status.message;
}

void Rig::run(const Kernel& kernel) {
  const std::string error = run_error(kernel);
  INFO(error);
  REQUIRE(error.empty());
}

void Rig::run_reference(const Kernel& kernel) {
  list_.kernels = {kernel};
  std::vector<std::byte*> memory;
  for (auto& m : memory_) memory.push_back(m.data());
  reference::run(list_, memory, {params_.begin(), params_.end()});
}

double worst_error(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return INFINITY;
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (a[i] == b[i]) continue;
    const double e = std::fabs(a[i] - b[i]) / (1 + std::fabs(b[i]));
    if (!(e <= worst)) worst = std::isnan(e) ? INFINITY : e;
  }
  return worst;
}

}  // namespace trnsim::compiler::test
