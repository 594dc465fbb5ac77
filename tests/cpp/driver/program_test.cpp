#include "tests/cpp/driver/machine_fixture.h"

using namespace trnsim;
using namespace trnsim::testing;
using driver::Allocation;
using driver::Code;
using driver::CoreCounter;
using driver::Fault;
using driver::MemoryCategory;

namespace {

const uint8_t* bytes(const std::string& s) { return reinterpret_cast<const uint8_t*>(s.data()); }
const std::string kProgram = "program p\nin a 4\nconst c 4 2\nout b 4\n";

struct Loaded {
  std::unique_ptr<driver::Driver> driver;
  driver::LoadedImage image;
  Allocation in, out;
  std::vector<chip::Binding> bindings;
};

Loaded load(const std::string& dir) {
  Loaded l;
  l.driver = open(options(dir));
  chip::LoadError error;
  REQUIRE(l.driver->load(2, bytes(kProgram), kProgram.size(), &l.image, &error).ok());
  REQUIRE(l.driver->allocate(2, 4, 64, MemoryCategory::kTensors, &l.in).ok());
  REQUIRE(l.driver->allocate(2, 4, 64, MemoryCategory::kTensors, &l.out).ok());
  REQUIRE(l.driver->copy_in(l.in, 0, "abcd", 4).ok());
  const Allocation& c = l.image.constants[1];
  l.bindings = {{l.in.data, 4, l.in.device_address},
                {c.data, 4, c.device_address},
                {l.out.data, 4, l.out.device_address}};
  return l;
}

}  // namespace

TEST_CASE("load puts code and constants into memory, launch runs, unload frees") {
  TemporaryDirectory dir;
  Loaded l = load(dir.path());
  CHECK(l.image.code.category == MemoryCategory::kModelCode);
  CHECK(l.image.constants[1].data[3] == std::byte{2});
  CHECK_FALSE(l.image.constants[0].valid());
  const chip::LaunchResult r = l.driver->launch(l.image, l.bindings);
  CHECK(r.status == chip::LaunchResult::Status::kOk);
  CHECK(std::string(reinterpret_cast<char*>(l.out.data), 4) == "defg");
  CHECK(l.driver->counters().get(2, CoreCounter::kInferenceCount) == 1);
  CHECK(l.driver->counters().get(2, CoreCounter::kModelLoadCount) == 1);
  CHECK(l.driver->counters().get(2, CoreCounter::kNcTimeInUsePs) == 1000000);
  CHECK(l.driver->counters().get(2, CoreCounter::kFlopCount) == 1000);
  l.driver->free(l.in);
  l.driver->free(l.out);
  l.driver->unload(l.image);
  CHECK(l.driver->memory_used(2) == 0);
}

TEST_CASE("a refused program leaves nothing behind") {
  TemporaryDirectory dir;
  auto d = open(options(dir.path()));
  driver::LoadedImage image;
  chip::LoadError error;
  CHECK_FALSE(d->load(0, bytes("junk"), 4, &image, &error).ok());
  CHECK(error.kind == chip::LoadError::Kind::kInvalid);
  CHECK(d->memory_used(0) == 0);
  // The second of code and constants does not fit.
  d->faults().arm(Fault::kMemoryAlloc, 1, 1);
  CHECK(d->load(0, bytes(kProgram), kProgram.size(), &image, &error).code == Code::kNoMemory);
  CHECK(error.kind == chip::LoadError::Kind::kNone);
  CHECK(d->memory_used(0) == 0);
}

TEST_CASE("a machine without chip says so") {
  TemporaryDirectory dir;
  driver::Options o = options(dir.path());
  o.make_chip = nullptr;
  auto d = open(o);
  driver::LoadedImage image;
  chip::LoadError error;
  const driver::Status s = d->load(0, bytes(kProgram), kProgram.size(), &image, &error);
  CHECK_THAT(s.message, ContainsSubstring("not simulated"));
}

TEST_CASE("faults hit the chosen event and no other") {
  TemporaryDirectory dir;
  Loaded l = load(dir.path());
  l.driver->faults().arm(Fault::kDmaAbort, 1, 1);
  using S = chip::LaunchResult::Status;
  CHECK(l.driver->launch(l.image, l.bindings).status == S::kOk);
  CHECK(driver::Driver::last_launch_fault() == Fault::kCount);
  CHECK(l.driver->launch(l.image, l.bindings).status == S::kIllegal);
  CHECK(driver::Driver::last_launch_fault() == Fault::kDmaAbort);
  CHECK(l.driver->launch(l.image, l.bindings).status == S::kOk);
  l.driver->faults().arm(Fault::kDmaWait);
  char c = 0;
  CHECK(l.driver->copy_out(l.out, 0, &c, 1).code == Code::kIo);
  CHECK(l.driver->copy_out(l.out, 0, &c, 1).ok());
  l.driver->faults().arm(Fault::kCoreMap);
  CHECK(l.driver->claim_range(0, 1).code == Code::kBusy);
  l.driver->faults().arm(Fault::kHang, 5);
  CHECK(l.driver->launch(l.image, l.bindings).status == S::kHang);
  l.driver->faults().clear();
  CHECK(l.driver->launch(l.image, l.bindings).status == S::kOk);
}

TEST_CASE("fault texts") {
  driver::Faults f;
  CHECK(f.parse("").ok());
  CHECK(f.parse("hang,dma_abort:2,nc_ue:1:3").ok());
  CHECK(f.hit(Fault::kHang));
  CHECK_FALSE(f.hit(Fault::kHang));
  CHECK(f.hit(Fault::kDmaAbort));
  CHECK(f.hit(Fault::kDmaAbort));
  CHECK_FALSE(f.hit(Fault::kDmaAbort));
  for (int i = 0; i < 3; ++i) CHECK_FALSE(f.hit(Fault::kCoreParity));
  CHECK(f.hit(Fault::kCoreParity));
  const driver::Status s = f.parse("hung");
  CHECK(s.code == Code::kInvalid);
  CHECK_THAT(s.message, ContainsSubstring("dma_wait"));
  CHECK(f.parse("hang:x").code == Code::kInvalid);
}

TEST_CASE("reset reaches the chip and leaves memory alone") {
  TemporaryDirectory dir;
  Loaded l = load(dir.path());
  const int before = resets;
  l.driver->reset_core(2);
  CHECK(resets == before + 1);
  CHECK(std::string(reinterpret_cast<char*>(l.in.data), 4) == "abcd");
  CHECK(l.driver->counters().get(2, CoreCounter::kResetReqCount) == 1);
}

TEST_CASE("a spec of sixteen devices keeps devices apart") {
  TemporaryDirectory dir;
  driver::Options o = options(dir.path());
  o.machine.devices = 16;
  auto d = open(o);
  driver::LoadedImage image;
  chip::LoadError error;
  REQUIRE(d->load(127, bytes(kProgram), kProgram.size(), &image, &error).ok());
  CHECK(image.code.device == 15);
  CHECK(image.code.stack == 3);
  CHECK(d->claim_range(127, 1).ok());
}
