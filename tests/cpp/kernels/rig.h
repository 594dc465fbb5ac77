// Runs one kernel from level 1 down to values: tiler, back half, validator, functional executor. Tests
// compare the output memory with plain loops.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "device_plugin/compiler/kernels.h"
#include "device_plugin/compiler/tilers/tilers.h"

namespace trnsim::compiler::test {

class Rig {
 public:
  explicit Rig(uint32_t seed = 1) : random_(seed) {}

  // Strides empty: contiguous. Memory outside the view is poison.
  View input(Dtype dtype, std::vector<int64_t> sizes, std::vector<int64_t> strides = {}, int64_t offset = 0);
  View output(Dtype dtype, std::vector<int64_t> sizes, std::vector<int64_t> strides = {}, int64_t offset = 0);
  // Values in row-major order; float dtypes round. `fill` draws small numbers, exact in every dtype for
  // integers.
  void write(const View& v, const std::vector<double>& values);
  void fill(const View& v, double low = -1, double high = 1);
  std::vector<double> read(const View& v) const;
  int param(float value);
  int param_bits(int32_t value);

  // Tiles, validates and executes. Fails the test on any diagnostic.
  void run(const Kernel& kernel);
  // The same by the oracle (compiler/reference.h), into the same memory.
  void run_reference(const Kernel& kernel);
  // The message of a run-time error; empty when the program ran.
  std::string run_error(const Kernel& kernel);

  int64_t instructions() const { return instructions_; }
  double run_seconds() const { return run_seconds_; }
  std::mt19937& random() { return random_; }

 private:
  View add(Buffer::Kind kind, Dtype dtype, std::vector<int64_t> sizes, std::vector<int64_t> strides,
           int64_t offset);
  int64_t byte_of(const View& v, int64_t flat) const;

  std::mt19937 random_;
  KernelList list_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<bool> filled_;  // by the test
  std::vector<int32_t> params_;
  int inputs_ = 0, outputs_ = 0;
  int64_t instructions_ = 0;
  double run_seconds_ = 0;
};

std::vector<int64_t> contiguous(const std::vector<int64_t>& sizes);
// Largest |a - b| / (1 + |b|); infinite where NaN and infinities disagree.
double worst_error(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace trnsim::compiler::test
