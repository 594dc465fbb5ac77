#include <algorithm>
#include <fstream>
#include <random>
#include <vector>

#include "tests/cpp/driver/machine_fixture.h"

using namespace trnsim;
using namespace trnsim::testing;
using driver::Allocation;
using driver::Code;
using driver::MemoryCategory;

namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;

driver::Options small_machine(const std::string& dir) {
  driver::Options o = options(dir);
  o.machine.bytes_per_stack = 96 * kMiB;  // 16 firmware, 76 main, 4 small
  return o;
}

uint64_t resident_bytes() {
  std::ifstream in("/proc/self/statm");
  uint64_t pages = 0, resident = 0;
  in >> pages >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

TEST_CASE("a stack fills to the last byte") {
  TemporaryDirectory dir;
  auto d = open(small_machine(dir.path()));
  CHECK(d->memory_limit(0) == 80 * kMiB);
  std::vector<Allocation> all;
  Allocation a;
  // Large blocks spill into the small pool, small ones into the main pool.
  for (uint64_t size : {16 * kMiB, kMiB, uint64_t{4096}, uint64_t{1024}, uint64_t{1}}) {
    while (d->allocate(0, size, 1, MemoryCategory::kTensors, &a).ok()) all.push_back(a);
  }
  CHECK(d->memory_used(0) == 80 * kMiB);
  const driver::Status s =
      d->allocate(1, 1, 1, MemoryCategory::kTensors, &a);  // the neighbour shares the stack
  CHECK(s.code == Code::kNoMemory);
  CHECK_THAT(s.message, ContainsSubstring("1 bytes asked for, 0 of 83886080 bytes are free"));
  CHECK(d->allocate(2, 1, 1, MemoryCategory::kTensors, &a).ok());  // another stack
  std::sort(all.begin(), all.end(), [](const auto& x, const auto& y) { return x.offset < y.offset; });
  for (size_t i = 1; i < all.size(); ++i) REQUIRE(all[i - 1].offset + all[i - 1].rounded <= all[i].offset);
  for (const auto& x : all) d->free(x);
  CHECK(d->memory_used(0) == 0);
  CHECK(d->allocate(0, 76 * kMiB, 1, MemoryCategory::kTensors, &a).ok());  // whole again
}

TEST_CASE("a random history leaves one free block per pool") {
  TemporaryDirectory dir;
  auto d = open(small_machine(dir.path()));
  std::mt19937 random(2);
  std::vector<Allocation> live;
  uint64_t used = 0;
  for (int step = 0; step < 5000; ++step) {
    if (live.empty() || random() % 2 == 0) {
      Allocation a;
      const uint64_t alignment = uint64_t{1} << random() % 16;
      if (!d->allocate(0, 1 + random() % (2 * kMiB), alignment, MemoryCategory::kTensors, &a).ok()) continue;
      REQUIRE(a.offset % alignment == 0);
      used += a.rounded;
      live.push_back(a);
    } else {
      const size_t i = random() % live.size();
      d->free(live[i]);
      used -= live[i].rounded;
      live[i] = live.back();
      live.pop_back();
    }
    REQUIRE(d->memory_used(0) == used);
  }
  for (const auto& x : live) d->free(x);
  Allocation a;
  CHECK(d->allocate(0, 76 * kMiB, 1, MemoryCategory::kTensors, &a).ok());
}

TEST_CASE("bad sizes and alignments") {
  TemporaryDirectory dir;
  auto d = open(small_machine(dir.path()));
  Allocation a;
  CHECK(d->allocate(0, 0, 64, MemoryCategory::kTensors, &a).code == Code::kInvalid);
  CHECK(d->allocate(0, 16, 3, MemoryCategory::kTensors, &a).code == Code::kInvalid);
  CHECK(d->allocate(8, 16, 64, MemoryCategory::kTensors, &a).code == Code::kInvalid);
  CHECK(d->allocate(-1, 16, 64, MemoryCategory::kTensors, &a).code == Code::kInvalid);
  CHECK(d->allocate(0, UINT64_MAX, 64, MemoryCategory::kTensors, &a).code == Code::kNoMemory);
  d->free(Allocation{});  // nothing
}

TEST_CASE("copies check their range") {
  TemporaryDirectory dir;
  auto d = open(small_machine(dir.path()));
  Allocation a, b;
  REQUIRE(d->allocate(0, 100, 64, MemoryCategory::kTensors, &a).ok());
  REQUIRE(d->allocate(0, 100, 64, MemoryCategory::kTensors, &b).ok());
  char text[5] = "abcd";
  CHECK(d->copy_in(a, 96, text, 4).ok());
  CHECK(d->copy_in(a, 97, text, 4).code == Code::kInvalid);
  CHECK(d->copy_in(a, UINT64_MAX, text, 4).code == Code::kInvalid);
  CHECK(d->copy(b, 0, a, 96, 4).ok());
  CHECK(d->fill(b, 1, 'x', 1).ok());
  char back[5] = {};
  CHECK(d->copy_out(b, 0, back, 4).ok());
  CHECK(std::string(back) == "axcd");
  CHECK(d->copy_out(b, 0, back, 101).code == Code::kInvalid);
}

TEST_CASE("device addresses follow the map of the chip") {
  TemporaryDirectory dir;
  auto d = open(options(dir.path()));
  const uint64_t bases[] = {0, 0x4000000000, 0x800000000000, 0x804000000000};
  for (int core = 0; core < 8; ++core) {
    Allocation a;
    REQUIRE(d->allocate(core, kMiB, 64, MemoryCategory::kTensors, &a).ok());
    CHECK(a.stack == core / 2);
    CHECK(a.device_address == bases[core / 2] + a.offset);
    CHECK(a.offset >= 16 * kMiB);
  }
}

TEST_CASE("memory costs only what is touched") {
  TemporaryDirectory dir;
  auto d = open(options(dir.path()));
  const uint64_t before = resident_bytes();
  Allocation a;
  REQUIRE(d->allocate(0, 20 * kGiB, 64, MemoryCategory::kTensors, &a).ok());
  a.data[10 * kGiB] = std::byte{1};
  CHECK(resident_bytes() < before + 64 * kMiB);
  CHECK(d->memory_peak() == 20 * kGiB);
}

TEST_CASE("a timing-only machine holds 40 GB") {
  TemporaryDirectory dir;
  driver::Options o = options(dir.path(), chip::Mode::kTime);
  o.machine.bytes_per_stack = 64 * kGiB;
  auto d = open(o);
  const uint64_t before = resident_bytes();
  Allocation a;
  REQUIRE(d->allocate(0, 40 * kGiB, 64, MemoryCategory::kTensors, &a).ok());
  CHECK(d->copy_in(a, 0, &a, sizeof a).ok());
  CHECK(d->fill(a, 0, 1, 40 * kGiB).ok());
  CHECK(resident_bytes() < before + 16 * kMiB);
}

TEST_CASE("large freed blocks give their pages back") {
  TemporaryDirectory dir;
  auto d = open(options(dir.path()));
  const uint64_t before = resident_bytes();
  Allocation a;
  REQUIRE(d->allocate(0, 64 * kMiB, 64, MemoryCategory::kTensors, &a).ok());
  REQUIRE(d->fill(a, 0, 1, 64 * kMiB).ok());
  CHECK(resident_bytes() > before + 60 * kMiB);
  d->free(a);
#if !defined(__SANITIZE_THREAD__)  // its shadow of the pages stays
  CHECK(resident_bytes() < before + 16 * kMiB);
#endif
}

TEST_CASE("new memory is poisoned by the rule that was chosen") {
  TemporaryDirectory dir;
  for (auto poison : {driver::Poison::kOff, driver::Poison::kSmall, driver::Poison::kAll}) {
    driver::Options o = small_machine(dir.path());
    o.poison = poison;
    auto d = open(o);
    Allocation small, large;
    REQUIRE(d->allocate(0, driver::kPoisonSmallBytes, 64, MemoryCategory::kTensors, &small).ok());
    REQUIRE(d->allocate(0, driver::kPoisonSmallBytes + 1, 64, MemoryCategory::kTensors, &large).ok());
    CHECK(small.data[100] == (poison == driver::Poison::kOff ? std::byte{0} : std::byte{0xFF}));
    CHECK(large.data[100] == (poison == driver::Poison::kAll ? std::byte{0xFF} : std::byte{0}));
  }
}

TEST_CASE("counters follow allocations by category") {
  TemporaryDirectory dir;
  auto d = open(small_machine(dir.path()));
  Allocation a, b;
  REQUIRE(d->allocate(0, kMiB, 64, MemoryCategory::kTensors, &a).ok());
  REQUIRE(d->allocate(0, 2 * kMiB, 64, MemoryCategory::kConstants, &b).ok());
  const auto& t = d->counters().memory(0, MemoryCategory::kTensors);
  CHECK(t.present == static_cast<int64_t>(kMiB));
  CHECK_THAT(d->memory_table(0),
             ContainsSubstring("tensors 1048576") && ContainsSubstring("constants 2097152"));
  d->free(a);
  CHECK(t.present == 0);
  CHECK(t.peak == static_cast<int64_t>(kMiB));
  CHECK(t.total == static_cast<int64_t>(kMiB));
}

TEST_CASE("machines that make no sense are refused") {
  TemporaryDirectory dir;
  std::unique_ptr<driver::Driver> d;
  driver::Options o = options(dir.path());
  SECTION("cores and stacks") { o.machine.stacks_per_device = 3; }
  SECTION("too many cores") { o.machine.devices = 65; }
  SECTION("no memory") { o.machine.bytes_per_stack = kMiB; }
  CHECK(driver::Driver::open(o, &d).code == Code::kInvalid);
}
