#include <fstream>

#include "tests/cpp/driver/machine_fixture.h"

using namespace trnsim;
using namespace trnsim::testing;
using driver::Code;

TEST_CASE("a core of another process is busy, and free again when that process is killed") {
  TemporaryDirectory dir;
  auto mine = open(options(dir.path()));
  Holder other(dir.path(), 2, 2);
  REQUIRE(other.claimed());
  const driver::Status busy = mine->claim_range(0, 4);
  CHECK(busy.code == Code::kBusy);
  CHECK_THAT(busy.message, ContainsSubstring("core 2 is held by another process (pid " +
                                             std::to_string(other.pid()) + ", test)"));
  CHECK(mine->claimed().empty());  // all or none
  CHECK(mine->free_cores() == 6);
  CHECK(mine->claim_range(0, 2).ok());
  other.end();
  CHECK(mine->claim_range(2, 2).ok());
  CHECK(mine->claimed().size() == 4);
}

TEST_CASE("free runs are found at the alignment of a logical core") {
  TemporaryDirectory dir;
  auto mine = open(options(dir.path()));
  Holder other(dir.path(), 1, 1);
  REQUIRE(other.claimed());
  int first = -1;
  REQUIRE(mine->claim_free(4, 2, &first).ok());
  CHECK(first == 2);
  CHECK(mine->claim_free(4, 2, &first).code == Code::kNotEnough);
}

TEST_CASE("two processes cannot hold one core") {
  TemporaryDirectory dir;
  Holder a(dir.path(), 0, 8);
  Holder b(dir.path(), 7, 1);
  CHECK(a.claimed());
  CHECK_FALSE(b.claimed());
}

TEST_CASE("a released core can be taken at once") {
  TemporaryDirectory dir;
  auto mine = open(options(dir.path()));
  REQUIRE(mine->claim_range(0, 8).ok());
  mine->release_claims();
  Holder other(dir.path(), 0, 8);
  CHECK(other.claimed());
}

TEST_CASE("a stale or foreign claim file is replaced") {
  TemporaryDirectory dir;
  SECTION("garbage") { std::ofstream(dir.path() + "/claims") << "something else"; }
  SECTION("empty") { std::ofstream(dir.path() + "/claims"); }
  SECTION("counters of a dead process") { std::ofstream(dir.path() + "/proc-1") << "x"; }
  auto mine = open(options(dir.path()));
  CHECK(mine->claim_range(0, 8).ok());
  CHECK_FALSE(std::filesystem::exists(dir.path() + "/proc-1"));
}

TEST_CASE("a machine in use keeps its shape") {
  TemporaryDirectory dir;
  Holder other(dir.path(), 0, 1);
  driver::Options o = options(dir.path());
  o.machine.devices = 2;
  std::unique_ptr<driver::Driver> d;
  const driver::Status s = driver::Driver::open(o, &d);
  CHECK(s.code == Code::kBusy);
  CHECK_THAT(s.message, ContainsSubstring("has 8 cores") && ContainsSubstring("TRNSIM_RUN_DIR"));
  other.end();
  CHECK(driver::Driver::open(o, &d).ok());
}

TEST_CASE("ranges outside the machine") {
  TemporaryDirectory dir;
  auto mine = open(options(dir.path()));
  int first = 0;
  CHECK(mine->claim_range(7, 2).code == Code::kInvalid);
  CHECK(mine->claim_range(-1, 1).code == Code::kInvalid);
  CHECK(mine->claim_range(0, 0).code == Code::kInvalid);
  CHECK(mine->claim_free(9, 1, &first).code == Code::kInvalid);
}

TEST_CASE("a private machine is gone after use, also after a kill") {
  std::string path;
  {
    driver::Options o = options("");
    o.shared = false;
    auto d = open(o);
    path = d->run_dir();
    CHECK(std::filesystem::exists(path));
    CHECK(d->claim_range(0, 8).ok());
  }
  CHECK_FALSE(std::filesystem::exists(path));

  int channel[2];
  REQUIRE(pipe(channel) == 0);
  const pid_t child = fork();
  if (child == 0) {
    driver::Options o = options("");
    o.shared = false;
    std::unique_ptr<driver::Driver> d;
    const bool good = driver::Driver::open(o, &d).ok();
    const char answer = good ? 'y' : 'n';
    (void)!write(channel[1], &answer, 1);
    for (;;) pause();
  }
  char answer = 0;
  REQUIRE(read(channel[0], &answer, 1) == 1);
  close(channel[0]);
  close(channel[1]);
  const std::string stale = driver::default_run_base() + "/pid-" + std::to_string(child);
  CHECK(std::filesystem::exists(stale));
  driver::sweep_stale_machines(driver::default_run_base());
  CHECK(std::filesystem::exists(stale));  // its owner lives
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  driver::sweep_stale_machines(driver::default_run_base());
  CHECK_FALSE(std::filesystem::exists(stale));
}

TEST_CASE("a directory that cannot be written is refused with its name") {
  std::unique_ptr<driver::Driver> d;
  const driver::Status s = driver::Driver::open(options("/proc/trnsim"), &d);
  CHECK(s.code == Code::kIo);
  CHECK_THAT(s.message, ContainsSubstring("/proc/trnsim"));
}

TEST_CASE("counters are readable from another process") {
  TemporaryDirectory dir;
  auto mine = open(options(dir.path()));
  mine->counters().add(3, driver::CoreCounter::kInferenceCount, 5);
  std::ifstream in(dir.path() + "/proc-" + std::to_string(getpid()), std::ios::binary);
  auto block = std::make_unique<char[]>(sizeof(driver::CounterBlock));
  in.read(block.get(), sizeof(driver::CounterBlock));
  REQUIRE(in.gcount() == static_cast<std::streamsize>(sizeof(driver::CounterBlock)));
  const auto* b = reinterpret_cast<const driver::CounterBlock*>(block.get());
  CHECK(std::string(b->magic, 8) == "trncount");
  CHECK(b->pid == getpid());
  CHECK(b->core[3].value[static_cast<int>(driver::CoreCounter::kInferenceCount)] == 5);
}
