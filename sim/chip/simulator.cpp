// Owns the SystemC kernel: elaborates the cores once and runs one program after another.
#include "sim/chip/simulator.h"

#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <mutex>

#include "sim/chip/modules.h"

// libsystemc.so refers to this symbol; the kernel is driven by run_timed() instead.
extern "C" __attribute__((visibility("default"), used)) int sc_main(int, char**) { return 0; }

namespace trnsim::chip {
namespace {

struct Job {
  const TimedProgram* program;
  const config::Config* config;
  const DataHooks* hooks;
  Observer* observer;
};

std::atomic<uint64_t> runs{0};
std::atomic<bool> run_ahead{true};

// The kernel and its modules live until the process ends: SystemC cannot elaborate twice. They hold no thread
// state, so a child of fork() goes on with its copy.
PairModule* pair_module = nullptr;

TimingResult run_job(const Job& job) {
  try {
    if (pair_module == nullptr) {
      sc_core::sc_set_time_resolution(1, sc_core::SC_PS);
      // A short program may run in one activation, without any movement of the kernel's clock.
      sc_core::sc_report_handler::set_actions(sc_core::SC_ID_NO_SC_START_ACTIVITY_, sc_core::SC_DO_NOTHING);
      pair_module = new PairModule("neuron_cores");
    }
    runs.fetch_add(1, std::memory_order_relaxed);
    pair_module->run_ahead = run_ahead.load(std::memory_order_relaxed);
    return pair_module->run(*job.program, *job.config, job.hooks, job.observer);
  } catch (const std::exception& e) {
    TimingResult failed;
    failed.status = LaunchResult::Status::kNotSimulated;
    failed.message = std::string("not simulated: the SystemC kernel refused the run: ") + e.what();
    return failed;
  }
}

// The kernel, for one run at a time: in the thread of the caller, because handing a run to another thread costs more
// than a short program, and far more on a busy machine.
class Kernel {
 public:
  TimingResult run(const Job& job) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (closed_) {
      TimingResult refused;
      refused.status = LaunchResult::Status::kNotSimulated;
      refused.message = "not simulated: the process is exiting";
      return refused;
    }
    return run_job(job);
  }

  // Waits for a moment without a run; none begins before resume().
  void quiesce() { mutex_.lock(); }
  void resume() { mutex_.unlock(); }
  void close() {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
  }

 private:
  std::mutex mutex_;
  bool closed_ = false;
};

// Never destroyed: other threads may come while the process exits.
Kernel& kernel() {
  static Kernel* const one = [] {
    auto* created = new Kernel;
    // A child of fork() is born between two runs and goes on with its copy.
    pthread_atfork([] { kernel().quiesce(); }, [] { kernel().resume(); }, [] { kernel().resume(); });
    // Registered after SystemC was loaded, so it runs before SystemC's own destructors.
    std::atexit([] { kernel().close(); });
    return created;
  }();
  return *one;
}

// Keeps every event of a core.
class TraceRecorder : public Observer {
 public:
  explicit TraceRecorder(Trace* trace, int core = 0) : trace_(trace), core_(core) {}
  Observer* of_second_core() override {
    second_ = std::make_unique<TraceRecorder>(trace_, 1);
    return second_.get();
  }
  void span(isa::Engine engine, uint32_t index, uint32_t part, Ps start, Ps end) override {
    trace_->instructions.push_back({core_, engine, index, part, start, end});
  }
  void matmul_clock(bool full) override { trace_->pe_windows.push_back(full); }
  void trigger(uint32_t, isa::Engine engine, uint32_t index, Ps at, Ps first_packet) override {
    trace_->transfers.push_back({core_, engine, index, at, first_packet, kNever});
  }
  void packet(uint32_t transfer, uint16_t dma_engine, Ps ready, Ps start, Ps end) override {
    trace_->packets.push_back({transfer, dma_engine, ready, start, end});
  }
  void complete(uint32_t transfer, Ps at) override { trace_->transfers[transfer].complete = at; }

 private:
  Trace* trace_;
  int core_;
  std::unique_ptr<TraceRecorder> second_;
};

}  // namespace

TimingResult run_timed(const TimedProgram& program, const config::Config& config, const DataHooks* hooks,
                       Observer* observer) {
  return kernel().run({&program, &config, hooks, observer});
}

TimingResult run_timing(const isa::Program& program, const config::Config& config, Trace* trace) {
  TraceRecorder recorder(trace);
  return run_timing(program, config, trace != nullptr ? &recorder : static_cast<Observer*>(nullptr));
}

TimingResult run_timing(const isa::Program& program, const config::Config& config, Observer* observer) {
  TimedProgram timed;
  TimingResult result;
  if (!build_timed_program(program, config, &timed, &result.message)) {
    result.status = LaunchResult::Status::kUserError;
    return result;
  }
  return run_timed(timed, config, nullptr, observer);
}

void set_run_ahead(bool enabled) { run_ahead.store(enabled, std::memory_order_relaxed); }

uint64_t kernel_runs() { return runs.load(std::memory_order_relaxed); }

}  // namespace trnsim::chip
