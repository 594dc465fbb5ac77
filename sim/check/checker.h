// The checkers: watch one run of a program and say what is wrong with it, in sentences.
//
// * Race detector: two accesses to common bytes, one of them a write, that nothing orders.
// * Scratchpad doctor: reads of bytes that nothing wrote, results that nothing reads, two live buffers in one
//   place, misuse of the PSUM accumulate flag, capacity in use.
// * Addresses: out of bounds, misaligned, across a PSUM bank, where only the run knows them.
// * Endless loops, semaphores beyond 32 bits, rings that overflow.
//
// Needs no data. Exact for the schedule space of the program: what holds for the observed run holds for every
// timing, as long as control flow does not depend on a race.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "isa/program.h"
#include "isa/validator.h"
#include "sim/check/hbm_memory.h"
#include "sim/check/operand.h"
#include "sim/check/order.h"
#include "sim/check/partition_memory.h"
#include "sim/check/shared_semaphores.h"
#include "sim/chip/observer.h"
#include "sim/config/config.h"

namespace trnsim::check {

struct Options {
  int64_t sbuf_bytes = 0, psum_bytes = 0;    // per partition
  bool accumulates_anything = false;         // PSUM accumulation on data that no matmul wrote is defined
  bool one_bank = true;                      // a matmul result lies in one PSUM bank
  bool counts_by_engine = false;             // every DMA engine counts a transfer for itself
  int64_t ring_transfers = 0;                // that a queue of prebuilt descriptors holds
  uint64_t instruction_budget = UINT64_MAX;  // of one engine
  std::vector<TensorPlace> tensors;          // which tensors share memory
};
Options options_of(const config::Config& config);

enum class Kind : uint8_t {
  kRace,
  kStandIn,
  kUnwritten,
  kLiveOverlap,
  kNeverRead,
  kAccumulate,
  kBank,
  kOutOfBounds,
  kMisaligned,
  kRingOverflow,
  kSemaphoreOverflow,
  kEndless,
};

// Wasteful or suspicious, but no fault: a warning under strict checks too.
constexpr bool is_advice(Kind k) { return k == Kind::kNeverRead || k == Kind::kRingOverflow; }

struct Finding {
  Kind kind = Kind::kRace;
  isa::ErrorClass error_class = isa::ErrorClass::kUserError;
  std::string message;          // complete: class, what, where, limit, next step
  bool between_writes = false;  // a race of two writes
  bool about_indices = false;   // rows that an index list may pick, in a run that could not read the list
  std::array<std::pair<uint8_t, uint32_t>, 2> instructions{};  // stream and index of those it is about
};

struct Report {
  std::vector<Finding> findings;                     // in the order of the run; at most kMaxFindings
  std::string unchecked;                             // what could not be checked and why; empty as a rule
  int64_t sbuf_high_water = 0, psum_high_water = 0;  // bytes per partition
};
constexpr size_t kMaxFindings = 100;

class Checker : public chip::Observer, private Finds {
 public:
  Checker(const isa::Program& program, Options options);
  ~Checker() override;

  bool issue(isa::Engine engine, uint32_t index, const chip::RegisterView& registers) override {
    return issue_on(isa::stream_number(0, engine), index, registers);
  }
  chip::Observer* of_second_core() override { return &second_core_; }
  std::string stop_reason() override { return stop_reason_; }

  // After the run. `complete`: every stream came to its end.
  Report finish(bool complete);

 private:
  class SecondCore : public chip::Observer {
   public:
    explicit SecondCore(Checker& checker) : checker_(checker) {}
    bool issue(isa::Engine engine, uint32_t index, const chip::RegisterView& registers) override {
      return checker_.issue_on(isa::stream_number(1, engine), index, registers);
    }
    std::string stop_reason() override { return checker_.stop_reason(); }

   private:
    Checker& checker_;
  };
  // A core stands at a barrier, or has triggered its half of an exchange.
  struct Arrival {
    const isa::Instruction* instruction = nullptr;
    Epoch self;
  };
  struct Logged {
    uint8_t stream = 0;
    uint32_t index = 0;
    uint32_t registers = 0;  // first of its values in logged_registers_
  };
  struct LoggedRegister {
    uint8_t reg = 0;
    bool known = true;
    int32_t value = 0;
  };
  // State of a stream at an earlier backward jump: the same state again means that it never ends.
  struct Progress {
    uint64_t instructions = 0;
    uint32_t last_index = 0;
    uint32_t saved_index = UINT32_MAX;
    uint64_t jumps = 0, save_at = 1;
    bool loaded = false;  // a register came from memory meanwhile
    std::array<int32_t, isa::kNumRegisters> saved{};
  };
  // A read of bytes that nobody had written when it was seen. A later unordered write makes it a race.
  struct TooEarly {
    Operand operand;
    Place place;
    Epoch reader;
  };
  using InstructionId = std::pair<uint8_t, uint32_t>;

  bool issue_on(size_t stream, uint32_t index, const chip::RegisterView& registers);
  bool moves_on(size_t stream, uint32_t index, const chip::RegisterView& registers);
  void log(size_t stream, uint32_t index, const chip::RegisterView& registers);
  void replay();
  void process(size_t stream, uint32_t index, const chip::RegisterView& registers, size_t event);
  void update(const isa::Instruction& i, const Epoch& self);
  void meet(const isa::Instruction& i, const Epoch& self);
  void touch(const isa::Instruction& i, const Epoch& self, const chip::RegisterView& registers);
  int64_t bytes_of(const Operand& o) const;  // of its tensor, or of a partition
  bool in_bounds(const Access& a, int64_t move);
  void check_ring(const isa::Instruction& i, const Epoch& self);
  void tell_never_read();
  void tell(const Order::StandIn& early);

  void race(const Access& a, const Epoch& other, Use other_use, Meant meant, const Place& place) override;
  void unwritten(const Access& a, const Place& place) override;
  void other_buffer(const Access& a, const Epoch& writer, uint32_t buffer, const Place& place) override;
  void accumulates_on_other(const Access& a, const Epoch& writer, const Place& place) override;
  void accumulates_on_read(const Access& a, const Epoch& reader, const Place& place) override;

  // Sentences (sentences.cpp).
  const isa::Instruction& instruction(const Epoch& e) const;
  std::string label(const Epoch& e) const;  // "Sync instruction 0 (dma_copy, a.py:2; DMA queue 0)"
  std::string short_label(const Epoch& e) const;
  std::string where(const Operand& o, const Place& place) const;
  std::string missing_edge(const Epoch& first, const Epoch& second) const;
  bool second_should_come_first(const Epoch& first, Use first_use, const Epoch& second, Use second_use) const;
  bool waits_for(const Epoch& waiter, uint8_t agent) const;
  std::string race_sentence(const Epoch& first, Use first_use, const Epoch& second, Use second_use,
                            const Operand& o, const Place& place) const;
  bool is_new(Kind kind, const Epoch& a, const Epoch& b);
  void add(Kind kind, isa::ErrorClass error_class, const std::string& text, const Epoch& a) {
    add(kind, error_class, text, a, a);
  }
  void add(Kind kind, isa::ErrorClass error_class, const std::string& text, const Epoch& a, const Epoch& b,
           bool between_writes = false);
  void sort_finds();

  SecondCore second_core_;
  const isa::Program& program_;
  const Options options_;
  Order order_;
  bool deferred_ = false;
  bool with_indices_ = false;  // index lists are read as the run goes on
  std::vector<Logged> log_;
  std::vector<LoggedRegister> logged_registers_;
  std::unique_ptr<SharedSemaphores> shared_;
  ReadFlags was_read_, wrote_;
  std::deque<PartitionMemory> sbuf_, psum_;  // of each core
  HbmMemory hbm_;
  std::array<Progress, isa::kNumStreams> progress_;
  // Who waits for the other core: by engine, and by pipe.
  std::map<std::pair<bool, int64_t>, std::deque<Arrival>> arrivals_;
  std::map<std::pair<InstructionId, uint8_t>, TooEarly> too_early_;  // by reader and space
  std::set<std::pair<Kind, std::pair<InstructionId, InstructionId>>> told_;
  std::vector<Epoch> overflows_;
  std::string stop_reason_;
  bool stopped_ = false;
  Report report_;
};

}  // namespace trnsim::check
