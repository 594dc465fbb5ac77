// Whole files as bytes, with worded errors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/runtime/output_file.h"

namespace trnsim::native {

bool read_file(const std::string& path, std::vector<uint8_t>* out, std::string* error);
bool write_file(const std::string& path, const std::vector<uint8_t>& bytes, std::string* error);
// Asked of every output before work begins.
bool check_output(const std::string& path, runtime::Replaces replaces, std::string* error);

}  // namespace trnsim::native
