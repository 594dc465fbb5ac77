#include "tests/cpp/runtime/fake_chip.h"

#include <chrono>
#include <sstream>
#include <thread>

#include "isa/program.h"

namespace trnsim::testing {

std::atomic<int> launches{0};
std::atomic<int> resets{0};
std::atomic<int> null_bindings{0};
std::atomic<uint64_t> output_initialised{0};
std::atomic<int> launch_sleep_ms{0};

namespace {

class Program : public chip::LoadedProgram {
 public:
  const std::string& name() const override { return name_; }
  const std::string& target() const override { return target_; }
  const std::vector<chip::TensorInfo>& tensors() const override { return tensors_; }
  const std::vector<uint8_t>& constant(size_t i) const override { return constants_[i]; }
  int cores() const override { return cores_; }
  uint64_t code_bytes() const override { return 256; }
  int64_t instructions() const override { return 7; }
  uint64_t flops() const override { return 1000; }
  uint64_t hbm_bytes() const override { return 64; }

  std::string name_ = "fake";
  std::string target_ = "trn2";
  std::vector<chip::TensorInfo> tensors_;
  std::vector<std::vector<uint8_t>> constants_;
  int64_t ps_ = 1000000;
  int cores_ = 1;
  std::string fail_;
};

class Chip : public chip::Device {
 public:
  explicit Chip(chip::Mode mode) : mode_(mode) {}

  std::shared_ptr<chip::LoadedProgram> load(const uint8_t* bytes, size_t size,
                                            chip::LoadError* error) override {
    auto p = std::make_shared<Program>();
    std::istringstream in(std::string(reinterpret_cast<const char*>(bytes), size));
    using K = chip::LoadError::Kind;
    const auto refuse = [&](K kind, const char* text) {
      *error = {kind, text};
      return nullptr;
    };
    for (std::string line; std::getline(in, line);) {
      std::istringstream words(line);
      std::string verb, name;
      uint64_t n = 0;
      words >> verb >> name >> n;
      const auto tensor = [&](isa::TensorKind kind) {
        p->tensors_.push_back(
            {name, static_cast<uint8_t>(kind), isa::Dtype::kU8, {static_cast<int64_t>(n)}, n});
        p->constants_.emplace_back();
      };
      if (verb == "program") {
        p->name_ = name;
      } else if (verb == "in") {
        tensor(isa::TensorKind::kInput);
      } else if (verb == "out") {
        tensor(isa::TensorKind::kOutput);
      } else if (verb == "scratch") {
        tensor(isa::TensorKind::kScratch);
      } else if (verb == "const") {
        int value = 0;
        words >> value;
        tensor(isa::TensorKind::kConstant);
        p->constants_.back().assign(n, static_cast<uint8_t>(value));
      } else if (verb == "ps") {
        p->ps_ = std::stoll(name);
      } else if (verb == "cores") {
        p->cores_ = std::stoi(name);
      } else if (verb == "fail") {
        p->fail_ = name;
      } else if (verb == "neff") {
        return refuse(K::kNeff, "user error: this is a NEFF");
      } else if (verb == "newer") {
        return refuse(K::kNewerVersion, "user error: newer container");
      } else if (verb == "target") {
        return refuse(K::kWrongTarget, "user error: for another chip");
      } else {
        return refuse(K::kInvalid, "user error: corrupt container");
      }
    }
    return p;
  }

  chip::LaunchResult launch(int core, const chip::LoadedProgram& program,
                            const std::vector<chip::Binding>& bindings) override {
    const auto& p = static_cast<const Program&>(program);
    ++launches;
    if (launch_sleep_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(launch_sleep_ms));
    chip::LaunchResult r;
    r.stats.total_ps = p.ps_;
    r.stats.cores = p.cores_;
    for (size_t n = 0; n < static_cast<size_t>(p.cores_); ++n) {
      chip::CoreStats& core = r.stats.of_core[n];
      core.instructions = 7;
      core.engines[0] = {p.ps_ / 2, 3};
      core.dma_busy_ps = p.ps_ / 4;
      core.dma_bytes_read = 10;
      core.dma_bytes_written = 20;
      core.dma_descriptors = 2;
      r.stats.add(core);
    }
    null_bindings = 0;
    for (const auto& b : bindings) null_bindings += b.data == nullptr ? 1 : 0;
    output_initialised = bindings.empty() ? 0 : bindings.back().initialised;
    using S = chip::LaunchResult::Status;
    if (p.fail_ == "oob") r.status = S::kOutOfBounds;
    if (p.fail_ == "hang") r.status = S::kHang;
    if (p.fail_ == "illegal") r.status = S::kIllegal;
    if (p.fail_ == "nan") r.status = S::kNumericalError;
    if (p.fail_ == "missing") r.status = S::kNotSimulated;
    if (r.status != S::kOk) r.message = "fake chip: " + p.fail_;
    if (r.status != S::kOk || mode_ == chip::Mode::kTime) return r;
    uint8_t extra = 1;
    std::vector<size_t> inputs;
    for (size_t i = 0; i < bindings.size(); ++i) {
      const auto kind = static_cast<isa::TensorKind>(p.tensors_[i].kind);
      if (kind == isa::TensorKind::kConstant)
        extra = static_cast<uint8_t>(extra + static_cast<uint8_t>(bindings[i].data[0]));
      if (kind == isa::TensorKind::kInput) inputs.push_back(i);
      if (kind == isa::TensorKind::kScratch)  // touches every byte: a scratchpad that is too small shows
        std::fill(bindings[i].data, bindings[i].data + p.tensors_[i].bytes, std::byte{0xAB});
    }
    size_t o = 0;
    for (size_t i = 0; i < bindings.size(); ++i) {
      if (static_cast<isa::TensorKind>(p.tensors_[i].kind) != isa::TensorKind::kOutput || inputs.empty())
        continue;
      const auto& from = bindings[inputs[o++ % inputs.size()]];
      for (uint64_t k = 0; k < std::min(p.tensors_[i].bytes, from.bytes); ++k)
        bindings[i].data[k] = static_cast<std::byte>(static_cast<uint8_t>(from.data[k]) + extra);
    }
    return r;
  }

  void reset_core(int) override { ++resets; }
  void set_memo(bool) override {}
  void set_watcher(std::shared_ptr<const chip::Watcher>) override {}

 private:
  chip::Mode mode_;
};

}  // namespace

std::unique_ptr<chip::Device> make_fake_chip(chip::Mode mode) { return std::make_unique<Chip>(mode); }

}  // namespace trnsim::testing
