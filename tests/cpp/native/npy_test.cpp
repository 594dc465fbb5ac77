#include "tools/native/npy.h"

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/cpp/catch.h"

using namespace trnsim;
using native::Array;

namespace {

std::string temporary(const char* name) {
  return (std::filesystem::temp_directory_path() / (std::to_string(getpid()) + name)).string();
}

Array floats(const std::vector<float>& values, std::vector<int64_t> shape) {
  Array a{"<f4", std::move(shape), std::vector<uint8_t>(values.size() * 4)};
  std::memcpy(a.bytes.data(), values.data(), a.bytes.size());
  return a;
}

}  // namespace

TEST_CASE("arrays round-trip in any rank") {
  const std::string file = temporary(".npy");
  for (const auto& shape : std::vector<std::vector<int64_t>>{{}, {4}, {2, 2}, {1, 2, 2, 1}}) {
    const Array a = floats(std::vector<float>(shape.empty() ? 1 : 4, 1.5f), shape);
    std::string error;
    REQUIRE(native::write_npy(file, a, &error));
    CHECK(std::filesystem::file_size(file) % 64 == a.bytes.size() % 64);
    Array b;
    REQUIRE(native::read_npy(file, &b, &error));
    CHECK(b.descr == a.descr);
    CHECK(b.shape == a.shape);
    CHECK(b.bytes == a.bytes);
  }
  std::filesystem::remove(file);
}

TEST_CASE("damaged files are refused at every length") {
  const std::string file = temporary("-damaged.npy");
  std::string error;
  REQUIRE(native::write_npy(file, floats({1, 2, 3, 4}, {4}), &error));
  std::ifstream in(file, std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  for (size_t n = 0; n < good.size(); ++n) {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << good.substr(0, n);
    Array a;
    REQUIRE_FALSE(native::read_npy(file, &a, &error));
    REQUIRE_THAT(error, ContainsSubstring(file));
  }
  const auto refused = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    std::ofstream(file, std::ios::binary | std::ios::trunc) << text;
    Array a;
    return !native::read_npy(file, &a, &error);
  };
  CHECK(refused("<f4", ">f4"));
  CHECK(refused("<f4", "|O8"));
  CHECK(refused("False", "True "));
  CHECK_THAT(error, ContainsSubstring("Fortran"));
  CHECK(refused("(4, )", "(5, )"));
  CHECK(refused("(4, )", "(x, )"));
  CHECK(refused("NUMPY", "LUMPY"));
  std::filesystem::remove(file);
  Array a;
  CHECK_FALSE(native::read_npy(file, &a, &error));
}

TEST_CASE("arrays become tensors of the same type, of another float width, or of raw bits") {
  std::vector<uint8_t> bytes;
  std::string error;
  const Array a = floats({1.0f, -2.5f}, {2});
  REQUIRE(native::to_tensor(a, isa::Dtype::kF32, {2, 1}, &bytes, &error));
  CHECK(bytes == a.bytes);
  REQUIRE(native::to_tensor(a, isa::Dtype::kBF16, {2}, &bytes, &error));
  CHECK(bytes == std::vector<uint8_t>{0x80, 0x3f, 0x20, 0xc0});
  const Array back = native::from_tensor(bytes, isa::Dtype::kBF16, {2});
  CHECK(back.descr == "<f4");
  CHECK(back.bytes == a.bytes);
  REQUIRE(native::to_tensor({"<u2", {2}, {1, 2, 3, 4}}, isa::Dtype::kBF16, {2}, &bytes, &error));
  CHECK(bytes == std::vector<uint8_t>{1, 2, 3, 4});
  CHECK_FALSE(native::to_tensor(a, isa::Dtype::kI32, {2}, &bytes, &error));
  CHECK_FALSE(native::to_tensor(a, isa::Dtype::kF32, {3}, &bytes, &error));
  CHECK_THAT(error, ContainsSubstring("shape [2] does not fit [3]"));
}
