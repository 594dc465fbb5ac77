#include <cstring>
#include <ctime>
#include <iostream>

#include "isa/container.h"
#include "isa/random_program.h"
#include "isa/table.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/isa/same_program.h"

using namespace trnsim::isa;

namespace {
ByteRange range(const std::vector<uint8_t>& v) { return {v.data(), v.size()}; }
}  // namespace

TEST_CASE("every opcode goes through encode and decode unchanged") {
  RandomProgram random(1);
  for (int op = 0; op < kNumOpcodes; ++op) {
    for (int n = 0; n < 300; ++n) {
      const Instruction i = random.any_instruction(static_cast<Opcode>(op));
      std::vector<uint8_t> bytes;
      encode(i, bytes);
      Instruction back;
      INFO(row(i.opcode).name);
      REQUIRE(decode(bytes.data(), bytes.size(), back) == bytes.size());
      REQUIRE(same_instruction(i, back));
      // With readable memory behind it, decoding takes the unchecked path.
      std::vector<uint8_t> roomy(bytes);
      roomy.resize(bytes.size() + 1024, 0xff);
      REQUIRE(decode(roomy.data(), roomy.size(), back) == bytes.size());
      REQUIRE(same_instruction(i, back));
      for (size_t cut = 0; cut < bytes.size(); ++cut) {
        const std::vector<uint8_t> exact(bytes.begin(), bytes.begin() + static_cast<long>(cut));
        const char* why = nullptr;
        REQUIRE(decode(exact.data(), exact.size(), back, &why) == 0);
        REQUIRE(why != nullptr);
      }
    }
  }
}

TEST_CASE("decoding arbitrary bytes never crashes, and what decodes encodes again") {
  RandomProgram random(2);
  int decoded = 0;
  for (int n = 0; n < 200000; ++n) {
    std::vector<uint8_t> bytes(random.below(n % 10 == 0 ? 2000 : 60));
    for (auto& b : bytes) b = static_cast<uint8_t>(random.chance(50) ? random.below(4) : random.below(256));
    Instruction i;
    if (decode(bytes.data(), bytes.size(), i) == 0) continue;
    ++decoded;
    std::vector<uint8_t> again;
    encode(i, again);
    Instruction back;
    REQUIRE(decode(again.data(), again.size(), back) == again.size());
    REQUIRE(same_instruction(i, back));
  }
  CHECK(decoded > 1000);
}

TEST_CASE("programs go through the container unchanged") {
  RandomProgram random(3);
  for (int n : {0, 1, 40}) {
    const Program p = random.any_program(n);
    const auto file = write_container(p);
    LoadedContainer c;
    ContainerError error;
    REQUIRE(read_container(range(file), c, &error));
    CHECK(c.instructions() == static_cast<uint64_t>(5 * n * p.cores));
    REQUIRE(c.constants[2].size == 5);
    CHECK((c.constants[2].data - file.data()) % 64 == 0);
    Program back;
    std::string message;
    REQUIRE(decode_program(c, back, &message));
    check_same_program(p, back);
    CHECK(write_container(back) == file);
  }
}

TEST_CASE("programs of one core are files of the version before, programs of two are not") {
  RandomProgram random(9);
  const auto one = write_container(random.legal_program(20)),
             two = write_container(random.legal_program(20, Generation::kTrn2, 2));
  CHECK(one[8] == kContainerVersion - 1);
  CHECK(two[8] == kContainerVersion);
  for (auto file : {one, two}) {
    file[8] ^= 1;
    Program p;
    ContainerError error;
    REQUIRE_FALSE(read_program(range(file), p, &error));
    CHECK_THAT(error.message, ContainsSubstring("does not go with"));
  }
}

TEST_CASE("a truncated container is an error at every length") {
  RandomProgram random(4);
  const auto file = write_container(random.any_program(4));
  for (size_t n = 0; n < file.size(); ++n) {
    const std::vector<uint8_t> cut(file.begin(), file.begin() + static_cast<long>(n));
    Program p;
    ContainerError error;
    REQUIRE_FALSE(read_program(range(cut), p, &error));
    REQUIRE(error.kind != ContainerError::Kind::kNone);
    REQUIRE_FALSE(error.message.empty());
  }
  auto longer = file;
  longer.push_back(0);
  Program p;
  CHECK_FALSE(read_program(range(longer), p, nullptr));
}

TEST_CASE("a flipped bit is an error") {
  RandomProgram random(5);
  const auto file = write_container(random.any_program(10));
  for (int n = 0; n < 2000; ++n) {
    auto damaged = file;
    const auto bit_number = n < 256 ? static_cast<uint64_t>(n) : random.below(8 * file.size());
    damaged[bit_number / 8] ^= static_cast<uint8_t>(1u << (bit_number % 8));
    Program p;
    ContainerError error;
    REQUIRE_FALSE(read_program(range(damaged), p, &error));
    REQUIRE_FALSE(error.message.empty());
  }
}

TEST_CASE("damage with a right checksum is an error or another program, never a crash") {
  RandomProgram random(6);
  const auto file = write_container(random.any_program(10));
  auto crc = [](const uint8_t* data, size_t size) {
    uint32_t c = 0xffffffffu;
    for (size_t i = 0; i < size; ++i) {
      c ^= data[i];
      for (int k = 0; k < 8; ++k) c = (c >> 1) ^ (0xedb88320u & (0u - (c & 1)));
    }
    return ~c;
  };
  uint32_t metadata_bytes;
  std::memcpy(&metadata_bytes, &file[12], 4);
  const size_t payload = (32 + metadata_bytes + 63) / 64 * 64;
  int accepted = 0;
  for (int n = 0; n < 2000; ++n) {
    auto damaged = file;
    for (int k = 0; k < 3; ++k)
      damaged[32 + random.below(file.size() - 32)] = static_cast<uint8_t>(random.below(256));
    const uint32_t a = crc(&damaged[32], payload - 32), b = crc(&damaged[payload], file.size() - payload);
    std::memcpy(&damaged[24], &a, 4);
    std::memcpy(&damaged[28], &b, 4);
    Program p;
    ContainerError error;
    if (read_program(range(damaged), p, &error)) {
      ++accepted;
      write_container(p);
    } else {
      REQUIRE_FALSE(error.message.empty());
    }
  }
  CHECK(accepted > 0);
}

TEST_CASE("foreign files are refused with the reason") {
  Program p;
  ContainerError error;
  std::vector<uint8_t> neff(2048);
  neff[0] = 2;
  neff[9] = 4;  // header size 1024
  CHECK_FALSE(read_program(range(neff), p, &error));
  CHECK(error.kind == ContainerError::Kind::kNeff);
  CHECK_THAT(error.message, ContainsSubstring("NEFF") && ContainsSubstring("refused"));

  const std::string text = "program \"x\" target trn2";
  CHECK_FALSE(read_program({reinterpret_cast<const uint8_t*>(text.data()), text.size()}, p, &error));
  CHECK(error.kind == ContainerError::Kind::kNotAContainer);
  CHECK_THAT(error.message, ContainsSubstring("70 72 6f 67"));

  CHECK_FALSE(read_program({}, p, &error));
  CHECK_THAT(error.message, ContainsSubstring("empty"));

  auto newer = write_container(Program{});
  newer[8] = kContainerVersion + 1;
  CHECK_FALSE(read_program(range(newer), p, &error));
  CHECK(error.kind == ContainerError::Kind::kNewerVersion);
  CHECK_THAT(error.message, ContainsSubstring("version " + std::to_string(kContainerVersion + 1)));
}

// Run by name: test_isa "[benchmark]".
TEST_CASE("speed of encode, decode and load", "[.][benchmark]") {
  RandomProgram random(7);
  const Program p = random.legal_program(100000);
  // Processor time: the machine may be busy.
  auto now = [] { return std::clock(); };
  auto ns = [](std::clock_t d) { return 1e9 * static_cast<double>(d) / CLOCKS_PER_SEC; };
  const auto t0 = now();
  const auto file = write_container(p);
  const auto t1 = now();
  LoadedContainer c;
  read_container(range(file), c, nullptr);
  const auto t2 = now();
  uint64_t used = 0;
  Instruction instruction;
  for (const StreamRange& s : c.streams) {
    for (size_t at = 0; at < s.bytes.size;) {
      at += decode(s.bytes.data + at, s.bytes.size - at, instruction);
      ++used;
    }
  }
  const auto t3 = now();
  const auto small = write_container(random.any_program(2));
  const auto t4 = now();
  for (int n = 0; n < 1000; ++n) read_container(range(small), c, nullptr);
  const auto t5 = now();
  std::cout << "bytes per instruction " << static_cast<double>(file.size()) / static_cast<double>(used)
            << ", write " << ns(t1 - t0) / static_cast<double>(used) << " ns/instruction, load "
            << ns(t2 - t1) / static_cast<double>(used) << ", decode "
            << ns(t3 - t2) / static_cast<double>(used) << ", load of a small container " << ns(t5 - t4) / 1000
            << " ns, sizeof(Instruction) " << sizeof(Instruction) << "\n";
}
