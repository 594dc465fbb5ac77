// Arrays in .npy files (NumPy's format, versions 1 to 3), to and from tensors of a program.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "isa/dtype.h"

namespace trnsim::native {

struct Array {
  std::string descr;  // NumPy's type text, e.g. "<f4"
  std::vector<int64_t> shape;
  std::vector<uint8_t> bytes;  // C order
};

// False with a worded error that names the file.
bool read_npy(const std::string& path, Array* out, std::string* error);
bool write_npy(const std::string& path, const Array& array, std::string* error);

// The bytes of a tensor from an array: same element type, a float of another width (rounded), or raw bits of
// the same width ("<V2", "<u2" for bf16). The shape must agree, up to dimensions of 1.
bool to_tensor(const Array& array, isa::Dtype dtype, const std::vector<int64_t>& shape,
               std::vector<uint8_t>* out, std::string* error);
// The array of a tensor's bytes; types NumPy lacks (bf16, fp8) become "<f4", which holds them exactly.
Array from_tensor(const std::vector<uint8_t>& bytes, isa::Dtype dtype, const std::vector<int64_t>& shape);

}  // namespace trnsim::native
