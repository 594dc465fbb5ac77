// trnsim_fuzz: runs generated programs and judges them (cases.h). Every case runs in a child process, so a crash or a
// hang is a find like any other; finds are made smaller and saved.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <boost/program_options.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <iostream>
#include <stdexcept>
#include <thread>

#include "isa/assembler.h"
#include "isa/disassembler.h"
#include "tools/fuzz/cases.h"
#include "tools/native/bytes.h"

using namespace trnsim;
using Clock = std::chrono::steady_clock;

#if defined(__SANITIZE_ADDRESS__)
// Freed memory is kept long enough for a program, and the stacks of allocations to the depth that names the place.
extern "C" const char* __asan_default_options() {
  return "quarantine_size_mb=8:thread_local_quarantine_size_kb=256:malloc_context_size=6:detect_leaks=0";
}
#endif

namespace {

constexpr uint64_t kBatch = 5000;  // cases of one child process
// Without progress: of processor time, so that a busy machine does not count, and of time for one that sleeps.
constexpr double kTimeoutCpuSeconds = 60, kTimeoutSeconds = 1800;

// What a child tells its parent, in memory that both share.
struct Shared {
  std::atomic<uint64_t> next;                        // case to run, or the one that runs
  std::atomic<uint64_t> counts[fuzz::kNumKinds][2];  // ran, refused
  std::atomic<bool> failed;
  char why[4096];
};

Shared* make_shared_memory() {
  void* p = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw std::runtime_error("no memory");
  return new (p) Shared{};
}

void tell(Shared& shared, const std::string& why) {
  std::snprintf(shared.why, sizeof shared.why, "%s", why.c_str());
  shared.failed = true;
}

double cpu_seconds(pid_t process) {
  clockid_t clock{};
  timespec t{};
  if (clock_getcpuclockid(process, &clock) != 0 || clock_gettime(clock, &t) != 0) return 0;
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// Runs `body` in a child. Empty when it went well, else what is wrong.
template <typename Body>
std::string in_child(Shared& shared, Body body) {
  shared.failed = false;
  std::cout.flush();
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    body();
    _exit(0);
  }
  uint64_t seen = shared.next;
  auto since = Clock::now();
  double cpu_since = 0;
  int status = 0;
  for (auto pause = std::chrono::microseconds(200);;) {
    if (waitpid(child, &status, WNOHANG) == child) break;
    std::this_thread::sleep_for(pause);
    if (pause < std::chrono::milliseconds(20)) pause *= 2;
    if (shared.next != seen) {
      seen = shared.next;
      since = Clock::now();
      cpu_since = cpu_seconds(child);
    } else if (cpu_seconds(child) - cpu_since > kTimeoutCpuSeconds ||
               Clock::now() - since > std::chrono::duration<double>(kTimeoutSeconds)) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return "hang: no end";
    }
  }
  if (shared.failed) return shared.why;
  if (WIFSIGNALED(status)) return std::string("crash: ") + strsignal(WTERMSIG(status));
  if (WEXITSTATUS(status) != 0)
    return "crash: exit code " + std::to_string(WEXITSTATUS(status)) + " (see above)";
  return {};
}

// Failures of one kind begin with the same words.
std::string kind_of(const std::string& why) { return why.substr(0, why.find_first_of("0123456789:'")); }

std::string judge_in_child(Shared& shared, const isa::Program& program, bool legal) {
  return in_child(shared, [&] {
    fuzz::Judge judge;
    const fuzz::Verdict v = judge.judge_program(program, legal);
    if (v.result == fuzz::Verdict::Result::kFailed) tell(shared, v.why);
  });
}

void write(const std::string& path, const std::vector<uint8_t>& bytes) {
  std::string error;
  if (!native::write_file(path, bytes, &error)) throw std::runtime_error(error);
}

std::string save(const fuzz::Case& c, uint64_t seed, uint64_t number, const std::string& why,
                 const std::string& folder, Shared& shared) {
  std::string path = folder + "/fuzz-" + std::to_string(seed) + "-" + std::to_string(number);
  if (c.kind == fuzz::Kind::kContainer || c.kind == fuzz::Kind::kText) {
    path += c.kind == fuzz::Kind::kContainer ? ".trnp" : ".trnasm";
    write(path, c.bytes);
    return path;
  }
  const bool legal = c.kind == fuzz::Kind::kLegal;
  const isa::Program small = fuzz::shrink(c.program, [&](const isa::Program& p) {
    return kind_of(judge_in_child(shared, p, legal)) == kind_of(why);
  });
  path += ".trnasm";
  const std::string text = "# " + why + "\n" + isa::disassemble(small);
  write(path, {text.begin(), text.end()});
  return path;
}

int replay(const std::vector<std::string>& files) {
  int bad = 0;
  fuzz::Judge judge;
  for (const std::string& path : files) {
    fuzz::Case c;
    std::string error;
    if (!native::read_file(path, &c.bytes, &error)) throw std::runtime_error(error);
    const bool text = path.size() > 7 && path.compare(path.size() - 7, 7, ".trnasm") == 0;
    c.kind = text ? fuzz::Kind::kText : fuzz::Kind::kContainer;
    const fuzz::Verdict v = judge.judge(c);
    static const char* const kResults[] = {"ran", "refused", "FAILED"};
    std::cout << path << ": " << kResults[static_cast<int>(v.result)] << (v.why.empty() ? "" : ": ") << v.why
              << "\n";
    bad += v.result == fuzz::Verdict::Result::kFailed;
  }
  return bad > 0 ? 1 : 0;
}

int run(uint64_t seed, uint64_t skip, uint64_t programs, double seconds, const std::string& folder) {
  Shared& shared = *make_shared_memory();
  const auto begin = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  const bool terminal = isatty(STDERR_FILENO) != 0;
  uint64_t failures = 0, number = skip;
  while (number < skip + programs && (seconds <= 0 || elapsed() < seconds)) {
    shared.next = number;
    const uint64_t end = std::min(number + kBatch, skip + programs);
    const std::string why = in_child(shared, [&] {
      fuzz::Judge judge;
      for (uint64_t n = number; n < end && (seconds <= 0 || elapsed() < seconds); ++n) {
        const fuzz::Case c = fuzz::make_case(fuzz::case_seed(seed, n));
        const fuzz::Verdict v = judge.judge(c);
        if (v.result == fuzz::Verdict::Result::kFailed) {
          tell(shared, v.why);
          return;
        }
        ++shared.counts[static_cast<size_t>(c.kind)][v.result == fuzz::Verdict::Result::kRefused ? 1 : 0];
        shared.next = n + 1;
      }
    });
    number = shared.next;
    if (!why.empty()) {
      ++failures;
      const fuzz::Case c = fuzz::make_case(fuzz::case_seed(seed, number));
      std::cout << "program " << number << " of seed " << seed << " (" << fuzz::name(c.kind) << "): " << why
                << std::endl;
      std::cout << "  saved: " << save(c, seed, number, why, folder, shared) << std::endl;
      ++number;
    } else if (number < end) {
      break;  // the time is over
    }
    // In a log, one line per batch: a run that is cut off goes on with --skip.
    std::cerr << (terminal ? "\r" : "") << number - skip << " programs, " << static_cast<int64_t>(elapsed())
              << " s" << (terminal ? "" : "\n") << std::flush;
  }
  if (terminal) std::cerr << "\n";
  std::cout << number - skip << " programs of seed " << seed << " in " << static_cast<int64_t>(elapsed())
            << " s:";
  for (int k = 0; k < fuzz::kNumKinds; ++k) {
    std::cout << (k > 0 ? "," : "") << " " << fuzz::name(static_cast<fuzz::Kind>(k)) << " "
              << shared.counts[k][0] << " ran " << shared.counts[k][1] << " refused";
  }
  std::cout << "; " << failures << " failures" << std::endl;
  return failures > 0 ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  namespace po = boost::program_options;
  uint64_t programs = 0, seed = 0, skip = 0;
  double seconds = 0;
  std::string folder;
  po::options_description options("trnsim_fuzz [OPTIONS] [FILE.trnasm|FILE.trnp ...]");
  options.add_options()("help", "this text")("programs", po::value(&programs)->default_value(10000),
                                             "how many programs")("seed", po::value(&seed)->default_value(1),
                                                                  "the same seed gives the same programs")(
      "skip", po::value(&skip)->default_value(0), "begin with this program of the seed")(
      "seconds", po::value(&seconds)->default_value(0), "stop after this time; 0: never")(
      "save", po::value(&folder)->default_value("."), "folder for the programs that fail")(
      "file", po::value<std::vector<std::string>>(), "saved programs to judge again, in place of new ones");
  po::positional_options_description files;
  files.add("file", -1);
  po::variables_map given;
  try {
    po::store(po::command_line_parser(argc, argv).options(options).positional(files).run(), given);
    po::notify(given);
    if (given.count("help") != 0) {
      std::cout << options;
      return 0;
    }
    if (given.count("file") != 0) return replay(given["file"].as<std::vector<std::string>>());
    return run(seed, skip, programs, seconds, folder);
  } catch (const std::exception& e) {
    std::cerr << "trnsim_fuzz: " << e.what() << "\n";
    return 2;
  }
}
