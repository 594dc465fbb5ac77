// The simulated device as the driver sees it: programs go in as bytes, launches come back as results. Plain
// C++17; SystemC stays behind it. Calls from any thread are safe; the one SystemC kernel of the process serves
// one run at a time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "isa/program.h"

namespace trnsim::config {
struct Config;  // sim/config/config.h
}

namespace trnsim::chip {

class Observer;  // sim/chip/observer.h

enum class Mode : uint8_t { kBoth, kData, kTime };

// Host view of a bound HBM tensor. data may be null in Mode::kTime.
struct Binding {
  std::byte* data = nullptr;
  uint64_t bytes = 0;
  uint64_t device_address = 0;
  // Leading bytes that the host or an earlier launch has written; of interest where a program reads its own output.
  uint64_t initialised = 0;
};

struct EngineStats {
  int64_t busy_ps = 0;
  int64_t instructions = 0;
};

// Of one physical core, or summed over those of a launch.
struct CoreStats {
  std::array<EngineStats, isa::kNumEngines> engines{};
  int64_t dma_busy_ps = 0;
  int64_t dma_bytes_read = 0;     // from HBM
  int64_t dma_bytes_written = 0;  // to HBM
  int64_t dma_descriptors = 0;
  int64_t instructions = 0;

  void add(const CoreStats& o) {
    for (size_t e = 0; e < engines.size(); ++e) {
      engines[e].busy_ps += o.engines[e].busy_ps;
      engines[e].instructions += o.engines[e].instructions;
    }
    dma_busy_ps += o.dma_busy_ps;
    dma_bytes_read += o.dma_bytes_read;
    dma_bytes_written += o.dma_bytes_written;
    dma_descriptors += o.dma_descriptors;
    instructions += o.instructions;
  }
};

struct LaunchStats : CoreStats {
  int64_t total_ps = 0;  // launch overhead included
  int cores = 1;         // physical cores of the program
  std::array<CoreStats, isa::kMaxCores> of_core{};
  bool from_memo = false;
  // Highest byte per partition that the program writes; 0 where nobody watched it.
  int64_t sbuf_bytes = 0, psum_bytes = 0;
};

struct LaunchResult {
  // kOk, or the class of the fault. Messages follow design section 3.
  enum class Status : uint8_t {
    kOk,
    kUserError,
    kIllegal,
    kNotSimulated,
    kOutOfBounds,
    kHang,
    kNumericalError
  };
  Status status = Status::kOk;
  std::string message;
  LaunchStats stats;
  std::vector<std::string> warnings;  // of the launch that found them
};

struct TensorInfo {
  std::string name;
  uint8_t kind = 0;  // isa::TensorKind
  isa::Dtype dtype = isa::Dtype::kF32;
  std::vector<int64_t> shape;
  uint64_t bytes = 0;
};

// A loaded program. Immutable but for its memo; shared by launches.
class LoadedProgram {
 public:
  virtual ~LoadedProgram() = default;
  virtual const std::string& name() const = 0;
  virtual const std::string& target() const = 0;
  virtual const std::vector<TensorInfo>& tensors() const = 0;
  virtual const std::vector<uint8_t>& constant(size_t tensor) const = 0;
  virtual int cores() const = 0;  // physical cores that it runs on
  virtual uint64_t code_bytes() const = 0;
  virtual int64_t instructions() const = 0;
  virtual uint64_t flops() const = 0;
  virtual uint64_t hbm_bytes() const = 0;
};

struct LoadError {
  enum class Kind : uint8_t {
    kNone,
    kInvalid,
    kNotAContainer,
    kNeff,
    kNewerVersion,
    kWrongTarget
  } kind = Kind::kNone;
  std::string message;
};

// What watching a run has led to.
struct Verdict {
  LaunchResult::Status status = LaunchResult::Status::kOk;  // an error: so ends every launch of the program
  std::string message;
  std::vector<std::string> warnings;
  bool depends_on_indices =
      false;  // a find is about rows that an index list may pick: a run with data decides
  int64_t sbuf_bytes = 0, psum_bytes = 0;
};

// Watches programs (sim/check). A program is watched in its first run, and in every run when its control flow
// depends on data.
class WatchedRun {
 public:
  virtual ~WatchedRun() = default;
  virtual Observer* observer() = 0;
  virtual Verdict verdict(bool complete) = 0;  // complete: the program came to its end
};
class Watcher {
 public:
  virtual ~Watcher() = default;
  // Equal for launches whose tensors share memory in the same way and hold values as far.
  virtual uint64_t arrangement(const std::vector<TensorInfo>& tensors,
                               const std::vector<Binding>& bindings) const = 0;
  virtual std::unique_ptr<WatchedRun> watch(const isa::Program& program,
                                            const std::vector<TensorInfo>& tensors,
                                            const std::vector<Binding>& bindings) const = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::shared_ptr<LoadedProgram> load(const uint8_t* container, size_t bytes, LoadError* error) = 0;
  // `bindings` has one entry per program tensor, in order. `core` is a physical core number, the first of those that
  // the program runs on.
  virtual LaunchResult launch(int core, const LoadedProgram& program,
                              const std::vector<Binding>& bindings) = 0;
  virtual void reset_core(int core) = 0;
  virtual void set_memo(bool enabled) = 0;
  virtual void set_watcher(std::shared_ptr<const Watcher> watcher) = 0;  // before the first launch
};

std::unique_ptr<Device> make_device(const config::Config& config, Mode mode);

}  // namespace trnsim::chip
