// The simulated device: values through sim/exec in the calling thread, time through the SystemC kernel or
// the memo.
#include "sim/chip/device.h"

#include <atomic>

#include "sim/chip/loaded_program.h"

namespace trnsim::chip {
namespace {

using Status = LaunchResult::Status;

LaunchResult failure(Status status, std::string message) {
  LaunchResult r;
  r.status = status;
  r.message = std::move(message);
  return r;
}

// Data effects of a program whose branches depend on what it computes.
class CoreHook : public DataHook {
 public:
  CoreHook(exec::Core& core, int number, const isa::Program& program, const std::vector<exec::HbmTensor>& hbm)
      : core_(core), number_(number), program_(program), hbm_(hbm) {
    for (int e = 0; e < isa::kNumEngines; ++e) {
      for (int r = 0; r < isa::kNumRegisters; ++r) core_.set_reg(static_cast<isa::Engine>(e), r, 0);
    }
  }
  bool execute(isa::Engine engine, uint32_t index) override {
    status_ =
        core_.execute(program_, program_.streams[isa::stream_number(number_, engine)][index], hbm_, number_);
    return status_.ok();
  }
  int32_t reg(isa::Engine engine, int index) override { return core_.reg(engine, index); }
  void set_reg(isa::Engine engine, int index, int32_t value) override { core_.set_reg(engine, index, value); }
  std::vector<int64_t> read(const isa::Access& list) override {
    std::vector<int64_t> all;
    const isa::StridedBox box = isa::strided_box(list);
    const auto bytes = static_cast<int64_t>(isa::dtype_bytes(list.dtype));
    for (int p = 0; p < list.num_partitions; ++p) {
      isa::for_each_run(box, 0, [&](int64_t at, int64_t end) {
        for (; at < end; at += bytes)
          all.push_back(isa::load_as_int(list.dtype, core_.sbuf(list.start_partition + p, at, bytes)));
      });
    }
    return all;
  }
  const exec::Status& status() const { return status_; }

 private:
  exec::Core& core_;
  const int number_;
  const isa::Program& program_;
  const std::vector<exec::HbmTensor>& hbm_;
  exec::Status status_;
};

class SimulatedDevice : public Device {
 public:
  SimulatedDevice(const config::Config& config, Mode mode) : config_(config), mode_(mode) {
    static std::atomic<uint64_t> next_id{1};
    id_ = next_id.fetch_add(1);
    sizes_.sbuf_bytes_per_partition = config.memory.sbuf_bytes_per_partition;
    sizes_.psum_bytes_per_partition = config.memory.psum_bytes_per_partition;
    cores_ = std::vector<CoreState>(static_cast<size_t>(config::physical_cores(config)));
  }

  std::shared_ptr<LoadedProgram> load(const uint8_t* container, size_t bytes, LoadError* error) override {
    LoadError local;
    if (error == nullptr) error = &local;
    *error = LoadError{};
    auto program = std::make_shared<ContainerProgram>();
    if (!program->open(container, bytes, config_.chip.generation, error)) return nullptr;
    return program;
  }

  LaunchResult launch(int core, const LoadedProgram& program, const std::vector<Binding>& bindings) override {
    if (core < 0 || static_cast<size_t>(core) >= cores_.size()) {
      return failure(Status::kUserError, "user error: core " + std::to_string(core) +
                                             " does not exist; configuration '" + config_.name +
                                             "' has cores 0 to " + std::to_string(cores_.size() - 1));
    }
    const auto* loaded = dynamic_cast<const ContainerProgram*>(&program);
    if (loaded == nullptr)
      return failure(Status::kUserError, "user error: the program was not loaded by this library");
    if (loaded->cores() > 1 &&
        (core % loaded->cores() != 0 || static_cast<size_t>(core + 1) >= cores_.size())) {
      return failure(Status::kUserError,
                     "user error: program '" + loaded->name() +
                         "' runs on the two cores beside one HBM stack, an even core and the next; core " +
                         std::to_string(core) + " of " + std::to_string(cores_.size()) +
                         " does not begin such a pair");
    }
    LaunchResult result = check_bindings(*loaded, bindings);
    if (result.status != Status::kOk) return result;
    const isa::Program* decoded = loaded->program(config_, &result);
    if (decoded == nullptr) return result;

    // Time first: it tells whether control flow needs the data.
    ProgramTiming::Control control = ProgramTiming::Control::kConstant;
    const Verdict* verdict = nullptr;
    std::vector<std::string> warnings;
    if (watcher_ != nullptr) {
      verdict = verdict_of(*loaded, *decoded, bindings, &control, &warnings, &result);
      if (control == ProgramTiming::Control::kFromData && mode_ != Mode::kTime)
        return driven_by_data(core, *loaded, *decoded, bindings);
      result.warnings = std::move(warnings);
      if (result.status != Status::kOk) return result;
    }
    if (mode_ != Mode::kData) {
      warnings = std::move(result.warnings);
      result = time_of(*loaded, *decoded, &control);
      if (control == ProgramTiming::Control::kFromData && mode_ == Mode::kBoth)
        return driven_by_data(core, *loaded, *decoded, bindings);
      result.warnings = std::move(warnings);
      if (result.status != Status::kOk) return result;
    }
    if (verdict != nullptr) {
      result.stats.sbuf_bytes = verdict->sbuf_bytes;
      result.stats.psum_bytes = verdict->psum_bytes;
    }
    if (mode_ == Mode::kTime) return result;

    const auto prepared = loaded->prepared(sizes_, &result);
    if (prepared == nullptr) return result;
    const CoreLocks locks = lock_cores(core, *loaded);
    const auto budget = static_cast<uint64_t>(config_.sequencer.instruction_budget);
    const exec::Status status =
        loaded->cores() > 1
            ? exec::run(memory_of(core), memory_of(core + 1), *prepared, hbm_of(bindings), budget)
            : exec::run(memory_of(core), *prepared, hbm_of(bindings), budget);
    if (!status.ok()) {
      result.status = status_of(status.kind);
      result.message = status.message;
    }
    if (mode_ == Mode::kData) result.stats.instructions = loaded->instructions();
    return result;
  }

  void reset_core(int core) override {
    if (core < 0 || static_cast<size_t>(core) >= cores_.size()) return;
    CoreState& state = cores_[static_cast<size_t>(core)];
    std::lock_guard<std::mutex> lock(state.mutex);
    if (state.memory != nullptr) state.memory->reset();
  }

  void set_memo(bool enabled) override { memo_.store(enabled); }
  void set_watcher(std::shared_ptr<const Watcher> watcher) override { watcher_ = std::move(watcher); }

 private:
  struct CoreState {
    std::mutex mutex;
    std::unique_ptr<exec::Core> memory;  // SBUF and PSUM exist once the core has run with data
  };
  using CoreLocks = std::vector<std::unique_lock<std::mutex>>;

  CoreLocks lock_cores(int first, const ContainerProgram& program) {
    CoreLocks locks;
    for (int n = 0; n < program.cores(); ++n)
      locks.emplace_back(cores_[static_cast<size_t>(first + n)].mutex);
    return locks;
  }
  // Of a core that is locked.
  exec::Core& memory_of(int core) {
    CoreState& state = cores_[static_cast<size_t>(core)];
    if (state.memory == nullptr) {
      state.memory = std::make_unique<exec::Core>(sizes_);
      state.memory->set_numerics(numerics_of(config_));
    }
    return *state.memory;
  }

  LaunchResult check_bindings(const ContainerProgram& program, const std::vector<Binding>& bindings) const {
    const auto& tensors = program.tensors();
    if (bindings.size() != tensors.size()) {
      return failure(Status::kUserError,
                     "user error: program '" + program.name() + "' has " + std::to_string(tensors.size()) +
                         " tensors and the launch binds " + std::to_string(bindings.size()));
    }
    for (size_t t = 0; t < tensors.size(); ++t) {
      if (bindings[t].bytes < tensors[t].bytes) {
        return failure(Status::kUserError, "user error: tensor '" + tensors[t].name + "' of program '" +
                                               program.name() + "' needs " +
                                               std::to_string(tensors[t].bytes) + " bytes, the binding has " +
                                               std::to_string(bindings[t].bytes));
      }
      if (mode_ != Mode::kTime && bindings[t].data == nullptr && tensors[t].bytes > 0) {
        return failure(Status::kUserError, "user error: tensor '" + tensors[t].name + "' of program '" +
                                               program.name() +
                                               "' has no memory; only mode 'time' runs without data");
      }
    }
    return {};
  }

  static std::vector<exec::HbmTensor> hbm_of(const std::vector<Binding>& bindings) {
    std::vector<exec::HbmTensor> hbm;
    hbm.reserve(bindings.size());
    for (const Binding& b : bindings) hbm.push_back({b.data, b.bytes});
    return hbm;
  }

  static LaunchResult launch_result(const TimingResult& t) {
    LaunchResult r;
    r.status = t.status;
    r.message = t.message;
    r.stats = t.stats;
    return r;
  }

  bool build(const isa::Program& decoded, ProgramTiming* timing, LaunchResult* bad) const {
    if (timing->timed != nullptr) return true;
    auto timed = std::make_unique<TimedProgram>();
    std::string message;
    if (!build_timed_program(decoded, config_, timed.get(), &message)) {
      *bad = failure(Status::kUserError, std::move(message));
      return false;
    }
    timing->timed = std::move(timed);
    return true;
  }

  // A program starts cold (clock, tables, queues) whatever ran before it: its time is a constant, so the
  // first run is kept.
  LaunchResult time_of(const ContainerProgram& program, const isa::Program& decoded,
                       ProgramTiming::Control* control) const {
    std::lock_guard<std::mutex> lock(program.mutex());
    ProgramTiming& timing = program.timing(id_);
    *control = timing.control;
    if (timing.has_memo && memo_.load()) {
      LaunchResult r = launch_result(timing.memo);
      r.stats.from_memo = true;
      return r;
    }
    if (timing.control == ProgramTiming::Control::kFromData && mode_ == Mode::kBoth) return {};
    LaunchResult bad;
    if (!build(decoded, &timing, &bad)) return bad;
    timing.memo = run_timed(*timing.timed, config_, nullptr, nullptr);
    const bool from_data = timing.memo.status == Status::kNotSimulated && timing.timed->unresolved_registers;
    timing.control = *control =
        from_data ? ProgramTiming::Control::kFromData : ProgramTiming::Control::kConstant;
    timing.has_memo = !from_data;
    return launch_result(timing.memo);
  }

  // The verdict on a program, from a watched run where none is known for this arrangement of its tensors. Fills
  // the warnings of that run, and *bad where the launch must not go on.
  const Verdict* verdict_of(const ContainerProgram& program, const isa::Program& decoded,
                            const std::vector<Binding>& bindings, ProgramTiming::Control* control,
                            std::vector<std::string>* warnings, LaunchResult* bad) const {
    const uint64_t arrangement = watcher_->arrangement(program.tensors(), bindings);
    std::lock_guard<std::mutex> lock(program.mutex());
    ProgramTiming& timing = program.timing(id_);
    *control = timing.control;
    if (timing.control == ProgramTiming::Control::kFromData) return nullptr;
    auto known = timing.verdicts.find(arrangement);
    if (known == timing.verdicts.end()) {
      if (!build(decoded, &timing, bad)) return nullptr;
      const auto run = watcher_->watch(decoded, program.tensors(), bindings);
      const TimingResult timed = run_timed(*timing.timed, config_, nullptr, run->observer());
      if (timed.status == Status::kNotSimulated && timing.timed->unresolved_registers) {
        timing.control = *control = ProgramTiming::Control::kFromData;
        if (mode_ == Mode::kTime) *bad = launch_result(timed);
        return nullptr;
      }
      timing.control = *control = ProgramTiming::Control::kConstant;
      timing.memo = timed;
      timing.has_memo = true;
      known = timing.verdicts.emplace(arrangement, run->verdict(timed.status == Status::kOk)).first;
      *warnings = known->second.warnings;
    }
    if (known->second.depends_on_indices && mode_ != Mode::kTime && timing.memo.status == Status::kOk) {
      // Rows that indices pick may meet or not: the run with data tells.
      timing.control = *control = ProgramTiming::Control::kFromData;
      return nullptr;
    }
    if (timing.has_memo && timing.memo.status != Status::kOk) {
      *bad = launch_result(timing.memo);
    } else if (known->second.status != Status::kOk) {
      *bad = failure(known->second.status, known->second.message);
    }
    return &known->second;
  }

  LaunchResult driven_by_data(int core, const ContainerProgram& program, const isa::Program& decoded,
                              const std::vector<Binding>& bindings) {
    LaunchResult bad;
    if (program.prepared(sizes_, &bad) == nullptr) return bad;  // operand bounds
    const TimedProgram* timed = nullptr;
    {
      std::lock_guard<std::mutex> lock(program.mutex());
      ProgramTiming& timing = program.timing(id_);
      if (!build(decoded, &timing, &bad)) return bad;
      timed = timing.timed.get();
    }
    const CoreLocks locks = lock_cores(core, program);
    const std::vector<exec::HbmTensor> hbm = hbm_of(bindings);
    std::vector<std::unique_ptr<CoreHook>> hooks;
    DataHooks by_core;
    for (int n = 0; n < program.cores(); ++n) {
      hooks.push_back(std::make_unique<CoreHook>(memory_of(core + n), n, decoded, hbm));
      by_core.of_core[n] = hooks.back().get();
    }
    std::unique_ptr<exec::CorePair> pair;
    if (program.cores() > 1) pair = std::make_unique<exec::CorePair>(memory_of(core), memory_of(core + 1));
    std::unique_ptr<WatchedRun> run;
    if (watcher_ != nullptr) run = watcher_->watch(decoded, program.tensors(), bindings);
    const TimingResult timing =
        run_timed(*timed, config_, &by_core, run != nullptr ? run->observer() : nullptr);
    LaunchResult r = launch_result(timing);
    for (const auto& hook : hooks) {
      if (hook->status().ok()) continue;
      r.status = status_of(hook->status().kind);
      r.message = hook->status().message;
    }
    if (run != nullptr) {
      Verdict verdict = run->verdict(r.status == Status::kOk);
      if (r.status == Status::kOk && verdict.status != Status::kOk) {
        r.status = verdict.status;
        r.message = std::move(verdict.message);
      }
      r.warnings = std::move(verdict.warnings);
      r.stats.sbuf_bytes = verdict.sbuf_bytes;
      r.stats.psum_bytes = verdict.psum_bytes;
    }
    if (mode_ == Mode::kData) {
      const int64_t instructions = r.stats.instructions;
      r.stats = LaunchStats{};
      r.stats.instructions = instructions;
    }
    return r;
  }

  const config::Config config_;
  const Mode mode_;
  uint64_t id_ = 0;
  exec::CoreSizes sizes_;
  std::atomic<bool> memo_{true};
  std::shared_ptr<const Watcher> watcher_;
  std::vector<CoreState> cores_;
};

}  // namespace

std::unique_ptr<Device> make_device(const config::Config& config, Mode mode) {
  return std::make_unique<SimulatedDevice>(config, mode);
}

}  // namespace trnsim::chip
