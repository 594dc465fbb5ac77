// Layout of one instruction:
//   opcode byte; header byte = engine | waits << 3 | has update << 5 | has location << 6 | has flags << 7;
//   flags, location, waits, update when present; scalar fields of the row in the order of enum Field;
//   operands in the order of Slot. Integers are little-endian base-128 varints, signed ones zigzag coded.
#include "isa/encoding.h"

#include <cstring>

#include "isa/table.h"

namespace trnsim::isa {
namespace {

// Longest possible instruction, generously: six accesses of at most 99 bytes and less than 128 bytes of
// scalars.
constexpr size_t kMaxEncodedBytes = 1024;

uint64_t zigzag(int64_t v) { return (static_cast<uint64_t>(v) << 1) ^ static_cast<uint64_t>(v >> 63); }
int64_t unzigzag(uint64_t v) { return static_cast<int64_t>((v >> 1) ^ (~(v & 1) + 1)); }

class Writer {
 public:
  void byte(uint8_t v) { *p_++ = v; }
  void varint(uint64_t v) {
    while (v >= 0x80) {
      *p_++ = static_cast<uint8_t>(v | 0x80);
      v >>= 7;
    }
    *p_++ = static_cast<uint8_t>(v);
  }
  void svarint(int64_t v) { varint(zigzag(v)); }
  void f32(float v) {
    uint32_t bits;
    std::memcpy(&bits, &v, 4);
    for (int i = 0; i < 4; ++i) byte(static_cast<uint8_t>(bits >> (8 * i)));
  }
  void append_to(std::vector<uint8_t>& out) const {
    out.insert(out.end(), buffer_, buffer_ + (p_ - buffer_));
  }

 private:
  uint8_t buffer_[kMaxEncodedBytes];
  uint8_t* p_ = buffer_;
};

// kChecked is false only when at least kMaxEncodedBytes are readable.
template <bool kChecked>
class Reader {
 public:
  Reader(const uint8_t* begin, const uint8_t* end) : p_(begin), end_(end) {}
  uint8_t byte() {
    if (kChecked && p_ == end_) {
      fail("the instruction is cut off");
      return 0;
    }
    return *p_++;
  }
  uint64_t varint() {
    uint64_t v = byte();
    if (v < 0x80) return v;
    v &= 0x7f;
    for (int shift = 7; shift < 64; shift += 7) {
      const uint64_t b = byte();
      v |= (b & 0x7f) << shift;
      if (b < 0x80) return v;
    }
    fail("an integer is longer than 64 bits");
    return 0;
  }
  int64_t svarint() { return unzigzag(varint()); }
  template <typename T>
  T varint_as(const char* too_large) {
    const uint64_t v = varint();
    if (v > static_cast<uint64_t>(static_cast<T>(-1))) fail(too_large);
    return static_cast<T>(v);
  }
  int32_t svarint32() {
    const int64_t v = svarint();
    if (v != static_cast<int32_t>(v)) fail("an integer is longer than 32 bits");
    return static_cast<int32_t>(v);
  }
  float f32() {
    uint32_t bits = 0;
    for (int i = 0; i < 4; ++i) bits |= static_cast<uint32_t>(byte()) << (8 * i);
    float v;
    std::memcpy(&v, &bits, 4);
    return v;
  }
  template <typename E>
  E enumerator(unsigned count, const char* invalid) {
    const uint8_t v = byte();
    if (v >= count) {
      fail(invalid);
      return static_cast<E>(0);
    }
    return static_cast<E>(v);
  }
  void fail(const char* why) {
    if (error_ == nullptr) error_ = why;
  }
  const char* error() const { return error_; }
  const uint8_t* position() const { return p_; }

 private:
  const uint8_t* p_;
  const uint8_t* end_;
  const char* error_ = nullptr;
};

// Access: byte 0 = space | dims << 2 | has register << 5 | has tensor << 6 | has offset << 7 (0 alone:
// absent); byte 1 = dtype | dense << 5 | all partitions << 6 | indirect << 7. Dense steps are left out.
enum : uint8_t {
  kHasRegister = 1 << 5,
  kHasTensor = 1 << 6,
  kHasOffset = 1 << 7,
  kDense = 1 << 5,
  kAllPartitions = 1 << 6,
  kIndirectList = 1 << 7
};
static_assert(kNumDtypes <= 32);

// Exactly row-major steps (Access::contiguous ignores the steps of dims of size 1; an exact round trip may
// not). Wraps instead of overflowing: the writer and the reader must agree on any input.
bool dense(const Access& a) {
  uint64_t expect = 1;
  for (int i = (a.num_dims <= kMaxDims ? a.num_dims : kMaxDims) - 1; i >= 0; --i) {
    if (static_cast<uint64_t>(a.step[i]) != expect) return false;
    expect *= a.size[i];
  }
  return true;
}

void write_access(Writer& w, const Access& a) {
  if (!a.present()) {
    w.byte(0);
    return;
  }
  const int dims = a.num_dims <= kMaxDims ? a.num_dims : kMaxDims;
  const bool is_dense = dense(a);
  const bool all_partitions = a.start_partition == 0 && a.num_partitions == kMaxPartitions;
  w.byte(static_cast<uint8_t>(static_cast<uint8_t>(a.space) | (dims << 2) |
                              (a.address_register != kNoRegister ? kHasRegister : 0) |
                              (a.tensor != 0 ? kHasTensor : 0) | (a.offset != 0 ? kHasOffset : 0)));
  w.byte(static_cast<uint8_t>(static_cast<uint8_t>(a.dtype) | (is_dense ? kDense : 0) |
                              (all_partitions ? kAllPartitions : 0) | (a.indirect ? kIndirectList : 0)));
  if (!all_partitions) {
    w.varint(a.start_partition);
    w.varint(a.num_partitions);
  }
  if (a.address_register != kNoRegister) w.byte(a.address_register);
  if (a.tensor != 0) w.varint(a.tensor);
  if (a.offset != 0) w.svarint(a.offset);
  if (a.indirect) {
    w.byte(static_cast<uint8_t>(a.index_dtype));
    w.varint(a.index_partition);
    w.varint(a.index_offset);
  }
  for (int i = 0; i < dims; ++i) w.varint(a.size[i]);
  if (!is_dense) {
    for (int i = 0; i < dims; ++i) w.svarint(a.step[i]);
  }
}

template <bool kChecked>
void read_access(Reader<kChecked>& r, Access& a) {
  const uint8_t b0 = r.byte();
  if (b0 == 0) return;
  a.space = static_cast<Space>(b0 & 3);
  a.num_dims = (b0 >> 2) & 7;
  if (a.space == Space::kNone) return r.fail("an operand has no memory space");
  if (a.num_dims > kMaxDims) {
    a.num_dims = 0;
    return r.fail("an operand has more than 5 dims");
  }
  const uint8_t b1 = r.byte();
  a.dtype = static_cast<Dtype>(b1 & 31);
  if (b1 & kAllPartitions) {
    a.num_partitions = kMaxPartitions;
  } else {
    a.start_partition = r.template varint_as<uint16_t>("a partition number is out of range");
    a.num_partitions = r.template varint_as<uint16_t>("a partition count is out of range");
  }
  if (b0 & kHasRegister) a.address_register = r.byte();
  if (b0 & kHasTensor) a.tensor = r.template varint_as<uint32_t>("a tensor number is out of range");
  if (b0 & kHasOffset) a.offset = r.svarint();
  if (b1 & kIndirectList) {
    a.indirect = true;
    a.index_dtype = r.template enumerator<Dtype>(kNumDtypes, "unknown dtype of an index list");
    a.index_partition = r.template varint_as<uint16_t>("a partition number is out of range");
    a.index_offset = r.template varint_as<uint32_t>("the offset of an index list is out of range");
  }
  for (int i = 0; i < a.num_dims; ++i) a.size[i] = r.template varint_as<uint32_t>("a size is out of range");
  if (b1 & kDense) {
    uint64_t step = 1;
    for (int i = a.num_dims - 1; i >= 0; --i) {
      a.step[i] = static_cast<int64_t>(step);
      step *= a.size[i];
    }
  } else {
    for (int i = 0; i < a.num_dims; ++i) a.step[i] = r.svarint();
  }
}

void write_scalar(Writer& w, const ScalarOperand& s) {
  w.byte(static_cast<uint8_t>(s.kind));
  if (s.kind == ScalarOperand::Kind::kImmediate) w.f32(s.value);
  if (s.kind == ScalarOperand::Kind::kPointer) write_access(w, s.pointer);
}

template <bool kChecked>
void read_scalar(Reader<kChecked>& r, ScalarOperand& s) {
  s.kind = r.template enumerator<ScalarOperand::Kind>(3, "unknown kind of scalar operand");
  if (s.kind == ScalarOperand::Kind::kImmediate) s.value = r.f32();
  if (s.kind == ScalarOperand::Kind::kPointer) read_access(r, s.pointer);
}

template <bool kChecked>
const uint8_t* decode_with(const uint8_t* begin, const uint8_t* end, Instruction& out, const char** error) {
  static const Instruction kBlank{};
  out = kBlank;
  Reader<kChecked> r(begin, end);
  out.opcode = r.template enumerator<Opcode>(kNumOpcodes, "unknown opcode");
  const uint8_t header = r.byte();
  out.engine = static_cast<Engine>(header & 7);
  out.sync.num_waits = (header >> 3) & 3;
  if (out.engine >= Engine::kCount) r.fail("unknown engine");
  if (out.sync.num_waits > 2) r.fail("more than 2 semaphore waits");
  if (r.error() == nullptr) {
    const Row& row = isa::row(out.opcode);
    if (header & 0x80) out.flags = r.template varint_as<uint16_t>("unknown flags");
    if (header & 0x40) out.location = r.template varint_as<uint32_t>("a source location is out of range");
    for (int i = 0; i < out.sync.num_waits; ++i) {
      SemWait& wait = out.sync.waits[i];
      wait.semaphore = r.byte();
      const uint64_t v = r.varint();
      const int64_t value = unzigzag(v >> 1);
      if (value != static_cast<int32_t>(value)) r.fail("a semaphore value is longer than 32 bits");
      wait.value = static_cast<int32_t>(value);
      if (v & 1) wait.value_register = r.byte();
    }
    if (header & 0x20) {
      out.sync.update = r.template enumerator<SemOp>(4, "unknown semaphore operation");
      out.sync.update_semaphore = r.byte();
      out.sync.update_value = r.svarint32();
    }
    static_assert(static_cast<unsigned>(AluOp::kCount) <= 32);
    constexpr unsigned kOps = static_cast<unsigned>(AluOp::kCount);
    if (row.uses(kFieldOp0)) out.op0 = r.template enumerator<AluOp>(kOps, "unknown operator op0");
    if (row.uses(kFieldOp1)) out.op1 = r.template enumerator<AluOp>(kOps, "unknown operator op1");
    if (row.uses(kFieldFunc)) {
      out.func = r.template enumerator<ActFunc>(static_cast<unsigned>(ActFunc::kCount), "unknown function");
    }
    if (row.uses(kFieldImm0)) read_scalar(r, out.imm0);
    if (row.uses(kFieldImm1)) read_scalar(r, out.imm1);
    if (row.uses(kFieldQueue)) out.queue = r.byte();
    if (row.uses(kFieldPriority)) out.priority = r.byte();
    if (row.uses(kFieldDge))
      out.dge = r.template enumerator<DgeMode>(3, "unknown descriptor generation mode");
    if (row.uses(kFieldReduceDims)) out.reduce_dims = r.byte();
    if (row.uses(kFieldRegDst)) out.reg_dst = r.byte();
    if (row.uses(kFieldRegA)) out.reg_a = r.byte();
    if (row.uses(kFieldRegB)) out.reg_b = r.byte();
    if (row.uses(kFieldTarget))
      out.target = r.template varint_as<uint32_t>("a branch target is out of range");
    if (row.uses(kFieldImm)) out.imm = r.svarint();
    if (row.uses(kFieldPattern)) {
      out.pattern.base = r.svarint();
      out.pattern.partition_step = r.svarint32();
      for (int32_t& step : out.pattern.step) step = r.svarint32();
    }
    if (row.uses(kFieldReduce)) {
      const uint8_t v = r.byte();  // operator | command << 5
      out.reduce_op = static_cast<AluOp>(v & 31);
      out.reduce = static_cast<ReduceCmd>(v >> 5);
      if (out.reduce_op >= AluOp::kCount || out.reduce > ReduceCmd::kLoadReduce)
        r.fail("unknown use of the accumulator");
    }
    if (row.uses(kFieldCount)) out.count = r.template varint_as<uint32_t>("a count is out of range");
    if (row.uses(kFieldParam)) out.param = r.f32();
    if (row.uses(kFieldMask)) {
      for (uint8_t& m : out.mask) m = r.byte();
    }
    if (row.uses(kFieldTile)) {
      out.tile.rows = r.byte();
      if (!out.tile.whole()) {
        out.tile.columns = r.byte();
        out.tile.row = r.byte();
        out.tile.column = r.byte();
      }
    }
    for (int s = 0; s < kNumSlots; ++s) {
      const auto slot = static_cast<Slot>(s);
      if (row.operand(slot).role != Role::kNone) read_access(r, operand(out, slot));
      if (r.error() != nullptr) break;
    }
  }
  if (r.error() != nullptr) {
    if (error != nullptr) *error = r.error();
    return nullptr;
  }
  return r.position();
}

}  // namespace

void encode(const Instruction& i, std::vector<uint8_t>& out) {
  Writer w;
  const Row& row = isa::row(i.opcode);
  const int waits = i.sync.num_waits <= 2 ? i.sync.num_waits : 2;
  w.byte(static_cast<uint8_t>(i.opcode));
  w.byte(static_cast<uint8_t>(static_cast<uint8_t>(i.engine) | (waits << 3) |
                              (i.sync.update != SemOp::kNone ? 0x20 : 0) | (i.location != 0 ? 0x40 : 0) |
                              (i.flags != 0 ? 0x80 : 0)));
  if (i.flags != 0) w.varint(i.flags);
  if (i.location != 0) w.varint(i.location);
  for (int n = 0; n < waits; ++n) {
    const SemWait& wait = i.sync.waits[n];
    const bool has_register = wait.value_register != kNoRegister;
    w.byte(wait.semaphore);
    w.varint(zigzag(wait.value) << 1 | (has_register ? 1 : 0));
    if (has_register) w.byte(wait.value_register);
  }
  if (i.sync.update != SemOp::kNone) {
    w.byte(static_cast<uint8_t>(i.sync.update));
    w.byte(i.sync.update_semaphore);
    w.svarint(i.sync.update_value);
  }
  if (row.uses(kFieldOp0)) w.byte(static_cast<uint8_t>(i.op0));
  if (row.uses(kFieldOp1)) w.byte(static_cast<uint8_t>(i.op1));
  if (row.uses(kFieldFunc)) w.byte(static_cast<uint8_t>(i.func));
  if (row.uses(kFieldImm0)) write_scalar(w, i.imm0);
  if (row.uses(kFieldImm1)) write_scalar(w, i.imm1);
  if (row.uses(kFieldQueue)) w.byte(i.queue);
  if (row.uses(kFieldPriority)) w.byte(i.priority);
  if (row.uses(kFieldDge)) w.byte(static_cast<uint8_t>(i.dge));
  if (row.uses(kFieldReduceDims)) w.byte(i.reduce_dims);
  if (row.uses(kFieldRegDst)) w.byte(i.reg_dst);
  if (row.uses(kFieldRegA)) w.byte(i.reg_a);
  if (row.uses(kFieldRegB)) w.byte(i.reg_b);
  if (row.uses(kFieldTarget)) w.varint(i.target);
  if (row.uses(kFieldImm)) w.svarint(i.imm);
  if (row.uses(kFieldPattern)) {
    w.svarint(i.pattern.base);
    w.svarint(i.pattern.partition_step);
    for (int32_t step : i.pattern.step) w.svarint(step);
  }
  if (row.uses(kFieldReduce)) {
    w.byte(static_cast<uint8_t>(static_cast<unsigned>(i.reduce_op) | static_cast<unsigned>(i.reduce) << 5));
  }
  if (row.uses(kFieldCount)) w.varint(i.count);
  if (row.uses(kFieldParam)) w.f32(i.param);
  if (row.uses(kFieldMask)) {
    for (uint8_t m : i.mask) w.byte(m);
  }
  if (row.uses(kFieldTile)) {
    w.byte(i.tile.rows);
    if (!i.tile.whole()) {
      w.byte(i.tile.columns);
      w.byte(i.tile.row);
      w.byte(i.tile.column);
    }
  }
  for (int s = 0; s < kNumSlots; ++s) {
    const auto slot = static_cast<Slot>(s);
    if (row.operand(slot).role != Role::kNone) write_access(w, operand(i, slot));
  }
  w.append_to(out);
}

size_t decode(const uint8_t* bytes, size_t available, Instruction& out, const char** error) {
  const uint8_t* end = bytes + available;
  const uint8_t* next = available >= kMaxEncodedBytes ? decode_with<false>(bytes, end, out, error)
                                                      : decode_with<true>(bytes, end, out, error);
  return next == nullptr ? 0 : static_cast<size_t>(next - bytes);
}

bool decode_stream(ByteRange bytes, uint64_t instructions, std::vector<Instruction>& out,
                   std::string* error) {
  // Every instruction takes two bytes or more: a bound that keeps a wrong count from reserving memory.
  if (instructions > bytes.size / 2) {
    if (error != nullptr) {
      *error = "a stream of " + std::to_string(bytes.size) + " bytes cannot hold " +
               std::to_string(instructions) + " instructions";
    }
    return false;
  }
  out.resize(instructions);
  size_t position = 0;
  for (uint64_t n = 0; n < instructions; ++n) {
    const char* why = "";
    const size_t used = decode(bytes.data + position, bytes.size - position, out[n], &why);
    if (used == 0) {
      if (error != nullptr) {
        *error = "instruction " + std::to_string(n) + " at byte " + std::to_string(position) + ": " + why;
      }
      return false;
    }
    position += used;
  }
  if (position != bytes.size) {
    if (error != nullptr) {
      *error = std::to_string(bytes.size - position) + " bytes are left over after the last instruction";
    }
    return false;
  }
  return true;
}

}  // namespace trnsim::isa
