// A machine in a directory of its own, and children that share it.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "sim/driver/driver.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/runtime/fake_chip.h"

namespace trnsim::testing {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "trnsim-test-XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline driver::Options options(const std::string& dir, chip::Mode mode = chip::Mode::kBoth) {
  driver::Options o;
  o.run_dir = dir;
  o.mode = mode;
  o.process_tag = "test";
  o.make_chip = [mode] { return make_fake_chip(mode); };
  return o;
}

inline std::unique_ptr<driver::Driver> open(driver::Options o) {
  std::unique_ptr<driver::Driver> d;
  const driver::Status s = driver::Driver::open(std::move(o), &d);
  INFO(s.message);
  REQUIRE(s.ok());
  return d;
}

// A process that claims cores first..first+count-1 and holds them until it is killed.
class Holder {
 public:
  Holder(const std::string& dir, int first, int count) {
    int ready[2];
    REQUIRE(pipe(ready) == 0);
    pid_ = fork();
    if (pid_ == 0) {
      std::unique_ptr<driver::Driver> d;
      const bool good = driver::Driver::open(options(dir), &d).ok() && d->claim_range(first, count).ok();
      const char answer = good ? 'y' : 'n';
      (void)!write(ready[1], &answer, 1);
      for (;;) pause();
    }
    char answer = 0;
    REQUIRE(read(ready[0], &answer, 1) == 1);
    close(ready[0]);
    close(ready[1]);
    claimed_ = answer == 'y';
  }
  ~Holder() { end(); }
  void end() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  bool claimed() const { return claimed_; }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  bool claimed_ = false;
};

}  // namespace trnsim::testing
