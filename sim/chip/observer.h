// What a run tells whoever watches it: checkers, traces. Called in the order of the run; a run without an
// observer pays one predictable branch per event. C++17, no SystemC.
//
// Events of one stream come in its order, and an instruction is reported after everything whose semaphore
// updates it has waited for. Between streams there is no order: a module may run ahead of the others.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "isa/instruction.h"
#include "sim/cost/cost.h"

namespace trnsim::chip {

using cost::Ps;

// Index lists in SBUF, where the run has data.
class IndexReader {
 public:
  virtual ~IndexReader() = default;
  virtual std::vector<int64_t> read(const isa::Access& list) = 0;
};

// The registers of a sequencer. A bit of `unknown` is set where the value came from memory that a run without
// data does not have.
struct RegisterView {
  const int32_t* values;
  uint64_t unknown;
  IndexReader* indices = nullptr;  // of a run with data
  bool known(uint8_t reg) const { return (unknown >> reg & 1) == 0; }
};

class Observer {
 public:
  virtual ~Observer() = default;

  // Who is told of the second core of a program for two; nullptr: nobody.
  virtual Observer* of_second_core() { return nullptr; }

  // Instruction `index` of the stream begins: its waits are over, and nothing of it has happened yet. DMA: the
  // trigger. False stops the run with the status and text of stop_reason().
  virtual bool issue(isa::Engine engine, uint32_t index, const RegisterView& registers) { return true; }
  virtual std::string stop_reason() { return {}; }

  // Times, from the first instruction slot on (launch overhead excluded). `end`: results visible to the engine
  // (DMA: end of the trigger instruction). `part` 0 is the instruction; from 1 on a pass of a matmul of several
  // passes, or the weight load inside a transpose.
  virtual void span(isa::Engine engine, uint32_t index, uint32_t part, Ps start, Ps end) {}
  virtual void matmul_clock(bool full) {}  // clock state at the start of a matmul

  // `transfer` counts the triggers of the run, of both cores. An exchange: `first_packet` if the other core came at once.
  virtual void trigger(uint32_t transfer, isa::Engine engine, uint32_t index, Ps at, Ps first_packet) {}
  virtual void packet(uint32_t transfer, uint16_t dma_engine, Ps ready, Ps start, Ps end) {}
  virtual void complete(uint32_t transfer, Ps at) {}  // write acknowledged on every DMA engine
};

}  // namespace trnsim::chip
