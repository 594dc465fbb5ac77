// Operands as the checkers see them, and what memory finds wrong with an access.
#pragma once

#include <cstdint>

#include "isa/instruction.h"
#include "sim/check/order.h"
#include "sim/check/region.h"

namespace trnsim::check {

enum class Use : uint8_t {
  kRead,
  kWrite,
  kUpdate,      // keeps or changes part of the old contents
  kAccumulate,  // matmul that adds to PSUM
};
constexpr bool writes(Use u) { return u != Use::kRead; }

enum class OperandName : uint8_t { kDst = 0, kSrc0, kSrc1, kAux, kImm0, kImm1 };
const char* name(OperandName n);

struct Operand {
  Region region;
  isa::Space space = isa::Space::kNone;
  uint8_t address_register = isa::kNoRegister;
  uint8_t element_bytes = 4;
  Use use = Use::kRead;
  OperandName name = OperandName::kDst;
  bool indexed = false;  // an index picks rows of it: any of its bytes may be touched, none must be
  uint16_t first_partition = 0, end_partition = 1;
  uint32_t tensor = 0;  // HBM: the tensor. SBUF, PSUM: the buffer it belongs to, 0 = not said
};

// Who touches memory, and what its stream knows.
struct Access {
  Epoch self;
  isa::Engine engine = isa::Engine::kSync;
  bool matmul = false;
  const Operand* operand = nullptr;
  const Order* order = nullptr;

  bool known(const Epoch& other) const { return order->known(other, self.stream); }
};

// A part of memory: bytes of partitions (SBUF, PSUM) or of a tensor.
struct Place {
  int64_t lo = 0, hi = 0;
  int first_partition = 0, end_partition = 0;
};

// What the history of the bytes says of an unordered write and read.
enum class Meant : uint8_t {
  kUnknown,
  kWriteFirst,  // nobody had written them before: the read has nothing else to see
  kReadFirst,   // the write covers a result that nobody has read yet
};

// Finds of the memories, made into sentences by the checker. All of them are rare.
class Finds {
 public:
  virtual ~Finds() = default;
  virtual void race(const Access& a, const Epoch& other, Use other_use, Meant meant, const Place& place) = 0;
  virtual void unwritten(const Access& a, const Place& place) = 0;
  virtual void other_buffer(const Access& a, const Epoch& writer, uint32_t buffer, const Place& place) = 0;
  virtual void accumulates_on_other(const Access& a, const Epoch& writer, const Place& place) = 0;
  virtual void accumulates_on_read(const Access& a, const Epoch& reader, const Place& place) = 0;
};

}  // namespace trnsim::check
