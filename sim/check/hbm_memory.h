// State of the HBM tensors of a program: accesses that not everybody knows to be over, and which bytes of
// outputs and scratch tensors have been written.
//
// Tensors that nothing writes cost nothing. The others keep a short list: an access leaves it when every
// stream that touches the tensor knows that it is over.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "isa/program.h"
#include "sim/check/operand.h"

namespace trnsim::check {

// Where a tensor lies: tensors of one group share memory. By default every tensor is alone.
struct TensorPlace {
  uint32_t group = 0;
  int64_t base = 0;
  int64_t initialised = 0;  // leading bytes that hold values before the program runs
};

class HbmMemory {
 public:
  HbmMemory(const isa::Program& program, const std::vector<TensorPlace>& places, Finds* finds);
  void touch(const Access& a, int64_t move);

 private:
  struct Record {
    Epoch who;
    Use use;
    int64_t lo = 0, hi = 0;
    int64_t move = 0;
    Region region;
  };
  struct Group {
    bool written = false;    // by some instruction
    bool has_input = false;  // holds values before the program runs
    bool read = false;
    uint16_t streams = 0;  // that touch it
    std::vector<Record> records;
    size_t tidy_at = 32;
    std::map<int64_t, int64_t> initialised;  // begin -> end
  };

  void tidy(Group& g, const Order& order) const;
  void initialise(Group& g, const Access& a, int64_t move);
  static void initialise(Group& g, int64_t lo, int64_t hi);
  void check_initialised(const Group& g, const Access& a, int64_t move, int64_t base);

  std::vector<TensorPlace> places_;
  std::vector<Group> groups_;
  Finds* finds_;
};

}  // namespace trnsim::check
