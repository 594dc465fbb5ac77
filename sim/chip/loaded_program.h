// A program loaded into a device: the container it came from, and what is derived from it on first use.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "isa/container.h"
#include "isa/validator.h"
#include "sim/chip/device.h"
#include "sim/chip/simulator.h"
#include "sim/chip/timed_program.h"
#include "sim/config/config.h"
#include "sim/exec/exec.h"

namespace trnsim::chip {

// What one device knows about the time of one program.
struct ProgramTiming {
  enum class Control : uint8_t { kUnknown, kConstant, kFromData };
  std::unique_ptr<TimedProgram> timed;
  Control control = Control::kUnknown;
  bool has_memo = false;
  TimingResult memo;
  std::map<uint64_t, Verdict> verdicts;  // by arrangement of the tensors
};

class ContainerProgram : public LoadedProgram {
 public:
  // False with a worded error when the bytes are no program for `target`.
  bool open(const uint8_t* container, size_t bytes, const std::string& target, LoadError* error);

  const std::string& name() const override { return container_.name; }
  const std::string& target() const override { return container_.target; }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  const std::vector<uint8_t>& constant(size_t tensor) const override { return constants_[tensor]; }
  int cores() const override { return container_.cores; }
  uint64_t code_bytes() const override;
  int64_t instructions() const override { return static_cast<int64_t>(container_.instructions()); }
  uint64_t flops() const override { return container_.flops; }
  uint64_t hbm_bytes() const override { return container_.hbm_bytes; }

  // Decodes and validates on the first call; the outcome is kept. nullptr: *failure says why.
  const isa::Program* program(const config::Config& config, LaunchResult* failure) const;
  std::shared_ptr<const exec::PreparedProgram> prepared(const exec::CoreSizes& sizes,
                                                        LaunchResult* failure) const;

  // Guards everything that is derived lazily, the timings included.
  std::mutex& mutex() const { return mutex_; }
  ProgramTiming& timing(uint64_t device) const { return timings_[device]; }

 private:
  std::vector<uint8_t> bytes_;
  isa::LoadedContainer container_;
  std::vector<TensorInfo> tensors_;
  std::vector<std::vector<uint8_t>> constants_;

  mutable std::mutex mutex_;
  mutable bool decoded_ = false;
  mutable isa::Program program_;
  mutable LaunchResult decode_failure_;
  mutable bool prepare_tried_ = false;
  mutable std::shared_ptr<const exec::PreparedProgram> prepared_;
  mutable LaunchResult prepare_failure_;
  mutable std::map<uint64_t, ProgramTiming> timings_;
};

LaunchResult::Status status_of(exec::Status::Kind kind);
// The choices of the configuration that values and legality depend on.
exec::Numerics numerics_of(const config::Config& config);
isa::RuleChoices rules_of(const config::Config& config);

}  // namespace trnsim::chip
