#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "isa/assembler.h"
#include "isa/container.h"
#include "isa/disassembler.h"
#include "isa/table.h"
#include "sim/check/watcher.h"
#include "sim/exec/exec.h"
#include "tools/fuzz/cases.h"

namespace trnsim::fuzz {
namespace {

using Status = chip::LaunchResult::Status;
using Result = Verdict::Result;

constexpr uint64_t kMaxTensorBytes = 4 << 20;  // of all tensors: more is not given memory
constexpr int64_t kBudget = 3000;              // instructions of a stream
constexpr int64_t kWindow = 4096;              // bytes of each SBUF partition that programs use
// PSUM banks that most programs use: a run poisons what its program can touch, which costs more than the program.
constexpr int kBanks = 2;

uint64_t mix(uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

Verdict failed(std::string why) { return {Result::kFailed, std::move(why)}; }

std::string text_of(Status s) {
  static const char* const kNames[] = {
      "ok", "user error", "illegal on hardware", "not simulated", "out of bounds", "hang", "numerical error"};
  return kNames[static_cast<size_t>(s)];
}

// Whether the order of what goes on at once may decide that a program ends. It may not where semaphores count up alone
// and no engine triggers on a queue in which a transfer of another engine may wait for the other core.
bool order_decides_end(const isa::Program& p) {
  struct Queue {
    size_t stream = 0;
    bool shared = false, exchanges = false;
  };
  std::map<std::pair<int, int>, Queue> queues;  // by core and number
  for (size_t s = 0; s < p.streams.size(); ++s) {
    for (const isa::Instruction& i : p.streams[s]) {
      if (i.sync.update == isa::SemOp::kWrite || i.sync.update == isa::SemOp::kSubtract ||
          (i.sync.update == isa::SemOp::kAdd && i.sync.update_value < 0))
        return true;
      if (!i.is_dma()) continue;
      Queue& queue = queues.try_emplace({isa::core_of_stream(s), i.queue}, Queue{s}).first->second;
      queue.shared |= queue.stream != s;
      queue.exchanges |= i.opcode == isa::Opcode::kSendRecv;
      if (queue.shared && queue.exchanges) return true;
    }
  }
  return false;
}

}  // namespace

const char* name(Kind kind) {
  static const char* const kNames[] = {"legal", "mutated", "container", "text"};
  return kNames[static_cast<size_t>(kind)];
}

uint64_t case_seed(uint64_t seed, uint64_t number) { return mix(mix(seed) ^ number); }

Case make_case(uint64_t seed) {
  isa::RandomProgram random(seed);
  random.set_sbuf_window(kWindow);
  if (random.chance(95)) random.set_psum_window(kBanks);
  Case c;
  c.kind = static_cast<Kind>(random.below(kNumKinds));
  const auto target = random.chance(50) ? isa::Generation::kTrn2 : isa::Generation::kTrn3;
  const auto length = static_cast<int>(1 + random.below(random.chance(10) ? 150 : 25));
  c.program = random.legal_program(length, target, random.chance(25) ? isa::kMaxCores : 1);
  switch (c.kind) {
    case Kind::kLegal:
      break;
    case Kind::kMutated:
      mutate(c.program, random);
      break;
    case Kind::kContainer:
      c.bytes = isa::write_container(c.program);
      damage_container(c.bytes, random);
      break;
    case Kind::kText: {
      std::string text = isa::disassemble(c.program);
      damage_text(text, random);
      c.bytes.assign(text.begin(), text.end());
      break;
    }
  }
  return c;
}

// One generation: the same program in every mode, and watched.
struct Judge::Chip {
  config::Config config;
  isa::ValidateOptions rules;
  std::unique_ptr<chip::Device> both, data, time, watched;
};

struct Judge::Run {
  Status status = Status::kOk;
  std::string message;
  int64_t total_ps = 0;
  std::vector<std::string> warnings;
};

Judge::Judge() : filler_(kMaxTensorBytes) {
  for (size_t i = 0; i < filler_.size(); i += 8) {
    const uint64_t v = mix(i);
    std::memcpy(&filler_[i], &v, 8);
  }
  for (const char* target : {"trn2", "trn3"}) {
    auto chip = std::make_unique<Chip>();
    std::string error;
    const auto config =
        config::load(target, "sequencer.instruction_budget=" + std::to_string(kBudget), &error);
    chip->config = config.value();
    chip->rules.max_diagnostics = 1;
    chip->rules.sbuf_bytes_per_partition = chip->config.memory.sbuf_bytes_per_partition;
    chip->both = chip::make_device(chip->config, chip::Mode::kBoth);
    chip->data = chip::make_device(chip->config, chip::Mode::kData);
    chip->time = chip::make_device(chip->config, chip::Mode::kTime);
    chip->watched = chip::make_device(chip->config, chip::Mode::kBoth);
    chip->watched->set_watcher(check::make_watcher(check::Level::kWarn, chip->config));
    chips_.push_back(std::move(chip));
  }
}
Judge::~Judge() = default;

Judge::Run Judge::run(chip::Device& device, const isa::Program& program,
                      const std::vector<uint8_t>& container, Memory* memory) {
  Run r;
  chip::LoadError error;
  const auto loaded = device.load(container.data(), container.size(), &error);
  if (loaded == nullptr) {
    r.status = Status::kUserError;
    r.message = error.message;
    return r;
  }
  std::vector<chip::Binding> bindings;
  if (memory != nullptr) memory->resize(program.tensors.size());
  size_t filled = 0;
  for (size_t t = 0; t < program.tensors.size(); ++t) {
    const isa::TensorDecl& d = program.tensors[t];
    bindings.push_back({nullptr, d.bytes, 0});
    if (memory == nullptr) continue;
    std::vector<std::byte>& m = (*memory)[t];
    if (m.size() != d.bytes) m = std::vector<std::byte>(d.bytes);  // exactly, so that a byte too far is found
    bindings.back().data = m.data();
    if (m.empty()) continue;
    std::memcpy(m.data(), &filler_[filled], m.size());
    filled += m.size();
    const size_t constant = std::min(m.size(), d.constant.size());
    if (constant > 0) std::memcpy(m.data(), d.constant.data(), constant);
  }
  for (int core = 0; core < isa::kMaxCores; ++core) device.reset_core(core);
  chip::LaunchResult result = device.launch(0, *loaded, bindings);
  r.status = result.status;
  r.message = std::move(result.message);
  r.total_ps = result.stats.total_ps;
  r.warnings = std::move(result.warnings);
  return r;
}

Verdict Judge::judge(const Case& c) {
  isa::Program program;
  if (c.kind == Kind::kContainer) {
    isa::ContainerError error;
    if (!isa::read_program({c.bytes.data(), c.bytes.size()}, program, &error)) {
      if (error.message.empty()) return failed("a container was refused without a word");
      return {Result::kRefused, error.message};
    }
    return judge_program(program, false);
  }
  if (c.kind == Kind::kText) {
    std::vector<isa::AssembleError> errors;
    const std::string_view text(reinterpret_cast<const char*>(c.bytes.data()), c.bytes.size());
    if (!isa::assemble(text, program, errors)) {
      if (errors.empty() || errors[0].message.empty()) return failed("a text was refused without a word");
      return {Result::kRefused, errors[0].message};
    }
    return judge_program(program, false);
  }
  return judge_program(c.program, c.kind == Kind::kLegal);
}

Verdict Judge::judge_program(const isa::Program& written, bool legal_by_construction) {
  const auto generation = isa::generation_from_target(written.target);
  Chip& chip = *chips_[generation == isa::Generation::kTrn3 ? 1 : 0];
  const auto refusal = isa::validate(written, chip.rules);
  const std::vector<uint8_t> container = isa::write_container(written);
  isa::Program program;
  isa::ContainerError broken;
  if (!isa::read_program({container.data(), container.size()}, program, &broken)) {
    // What the container cannot hold is refused when it is read.
    if (const isa::Diagnostic* e = isa::first_error(refusal)) return {Result::kRefused, e->message};
    return failed("the container of a legal program cannot be read: " + broken.message);
  }
  if (isa::write_container(program) != container)
    return failed("the container changes when it is read and written");
  // Fields that a row does not use are errors in `written` and absent from the container.
  const auto diagnostics = isa::validate(program, chip.rules);
  const isa::Diagnostic* error = isa::first_error(diagnostics);
  if (error != nullptr && error->message.empty()) return failed("a program was refused without a word");
  if (legal_by_construction && isa::first_error(refusal) != nullptr)
    return failed("a legal program was refused: " + isa::first_error(refusal)->message);
  uint64_t bytes = 0;
  for (const isa::TensorDecl& t : program.tensors) bytes += std::min(t.bytes, kMaxTensorBytes + 1);
  if (error != nullptr) {
    const Run time = run(*chip.time, program, container, nullptr);
    if (time.status == Status::kOk)
      return failed("mode time runs what the validator refuses: " + error->message);
    return {Result::kRefused, error->message};
  }
  std::vector<isa::AssembleError> errors;
  isa::Program from_text;
  if (!isa::assemble(isa::disassemble(program), from_text, errors))
    return failed("the text of a legal program does not assemble: " + isa::to_text(errors, "text"));
  if (isa::write_container(from_text) != container)
    return failed("the text of a legal program means another program");

  const Run time = run(*chip.time, program, container, nullptr);
  if (time.status != Status::kOk && time.message.empty()) return failed("mode time fails without a word");
  if (bytes > kMaxTensorBytes) return {Result::kRan, {}};
  const bool from_data =
      time.status == Status::kNotSimulated && time.message.find("loaded from memory") != std::string::npos;
  // Watching must not change what a program does; races are of interest where they decide what must be equal.
  const bool watched = legal_by_construction || from_data;
  const Run both = run(watched ? *chip.watched : *chip.both, program, container, &both_memory_),
            data = run(*chip.data, program, container, &data_memory_);
  std::string race;
  for (const std::string& w : both.warnings) {
    if (race.empty() && w.find("race") != std::string::npos) race = w;
  }
  for (const Run* r : {&both, &data}) {
    if (r->status != Status::kOk && r->message.empty()) return failed("a run with data fails without a word");
  }
  if (legal_by_construction) {
    if (!race.empty()) return failed("a race in a program that has none: " + race);
    if (both.status == Status::kHang) return failed("a legal program hangs: " + both.message);
  }
  const bool same_order = !from_data || race.empty();
  // Of a hang and a fault of the data that wait in one program, the one that is met first ends it.
  const auto data_fault = [](Status s) { return s == Status::kOutOfBounds || s == Status::kIllegal; };
  const bool two_faults = (both.status == Status::kHang && data_fault(data.status)) ||
                          (data.status == Status::kHang && data_fault(both.status));
  if (both.status != data.status && !two_faults && !order_decides_end(program) && same_order) {
    return failed("mode both ends with '" + text_of(both.status) + "' (" + both.message +
                  "), mode data with '" + text_of(data.status) + "' (" + data.message + ")");
  }
  if (!from_data && time.status != both.status && time.status != Status::kOk) {
    return failed("mode time ends with '" + text_of(time.status) + "' (" + time.message +
                  "), mode both with '" + text_of(both.status) + "' (" + both.message + ")");
  }
  if (both.status != Status::kOk) return {Result::kRan, both.message};
  if (!from_data && both.total_ps != time.total_ps) {
    return failed("mode both takes " + std::to_string(both.total_ps) + " ps, mode time " +
                  std::to_string(time.total_ps));
  }
  for (size_t t = 0; data.status == Status::kOk && same_order && t < both_memory_.size(); ++t) {
    const auto &a = both_memory_[t], &b = data_memory_[t];
    if (!a.empty() && std::memcmp(a.data(), b.data(), a.size()) != 0)
      return failed("modes both and data give different values in tensor '" + program.tensors[t].name + "'");
  }
  return {Result::kRan, {}};
}

}  // namespace trnsim::fuzz
