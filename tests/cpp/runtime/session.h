// One nrt_init .. nrt_close, on a machine of its own, with the environment a test asks for.
#pragma once

#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "sim/runtime/nrt.h"
#include "sim/runtime/trnsim_ext.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/runtime/fake_chip.h"

namespace trnsim::testing {

using Environment = std::vector<std::pair<std::string, std::string>>;

class EnvironmentGuard {
 public:
  explicit EnvironmentGuard(Environment env) : env_(std::move(env)) {
    for (const auto& [k, v] : env_) setenv(k.c_str(), v.c_str(), 1);
  }
  ~EnvironmentGuard() {
    for (const auto& [k, v] : env_) unsetenv(k.c_str());
  }

 private:
  Environment env_;
};

class Session {
 public:
  explicit Session(Environment env = {}) : env_(std::move(env)) {
    const NRT_STATUS s = nrt_init(NRT_FRAMEWORK_TYPE_NO_FW, "", "");
    INFO(trnsim_last_error());
    REQUIRE(s == NRT_SUCCESS);
  }
  ~Session() { nrt_close(); }

 private:
  EnvironmentGuard env_;
};

inline nrt_tensor_t* device_tensor(size_t bytes, int vnc = 0) {
  nrt_tensor_t* t = nullptr;
  const NRT_STATUS s = nrt_tensor_allocate(NRT_TENSOR_PLACEMENT_DEVICE, vnc, bytes, nullptr, &t);
  INFO(trnsim_last_error());
  REQUIRE(s == NRT_SUCCESS);
  return t;
}

inline nrt_model_t* load(const std::string& text, int vnc = 0) {
  nrt_model_t* m = nullptr;
  const NRT_STATUS s = nrt_load(text.data(), text.size(), vnc, 1, &m);
  INFO(trnsim_last_error());
  REQUIRE(s == NRT_SUCCESS);
  return m;
}

inline nrt_tensor_set_t* tensor_set(const std::vector<std::pair<std::string, nrt_tensor_t*>>& tensors) {
  nrt_tensor_set_t* set = nullptr;
  REQUIRE(nrt_allocate_tensor_set(&set) == NRT_SUCCESS);
  for (const auto& [name, t] : tensors)
    REQUIRE(nrt_add_tensor_to_tensor_set(set, name.c_str(), t) == NRT_SUCCESS);
  return set;
}

inline void put(nrt_tensor_t* t, const std::string& bytes) {
  REQUIRE(nrt_tensor_write(t, bytes.data(), 0, bytes.size()) == NRT_SUCCESS);
}

inline std::string get(nrt_tensor_t* t) {
  std::string s(nrt_tensor_get_size(t), '\0');
  REQUIRE(nrt_tensor_read(t, s.data(), 0, s.size()) == NRT_SUCCESS);
  return s;
}

inline bool error_has(const char* text) {
  return std::string(trnsim_last_error()).find(text) != std::string::npos;
}

}  // namespace trnsim::testing
