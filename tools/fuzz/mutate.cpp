// Changes of legal programs, containers and texts. Most make them illegal, some move them to the edge of what is legal.
#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "isa/table.h"
#include "tools/fuzz/cases.h"

namespace trnsim::fuzz {
namespace {

using isa::Access;
using isa::Instruction;
using isa::Program;
using isa::RandomProgram;

// A step that is mostly small.
int64_t change(RandomProgram& random) {
  static constexpr std::array<int64_t, 18> kSteps = {1,      -1,     2,           -2,         4,     -4,
                                                     16,     32,     64,          -128,       2048,  16384,
                                                     196608, 262144, -2147483648, 2147483647, 65535, -65536};
  return random.chance(90) ? kSteps[random.below(kSteps.size())]
                           : static_cast<int64_t>((random.below(UINT64_MAX) >> random.below(64)));
}

template <typename T>
void nudge(T& value, RandomProgram& random) {
  value = static_cast<T>(random.chance(15)
                             ? random.below(4)
                             : static_cast<uint64_t>(value) + static_cast<uint64_t>(change(random)));
}

void change_access(Access& a, RandomProgram& random) {
  const auto dim = static_cast<size_t>(random.below(isa::kMaxDims));
  const auto used = static_cast<size_t>(a.num_dims > 0 ? random.below(a.num_dims) : 0);
  switch (random.below(14)) {
    case 0:
      a.dtype = static_cast<isa::Dtype>(random.below(isa::kNumDtypes));
      break;
    case 1:
    case 2:
      nudge(a.offset, random);
      break;
    case 3:
      nudge(a.start_partition, random);
      break;
    case 4:
      nudge(a.num_partitions, random);
      break;
    case 5:
    case 6:
      nudge(a.size[used], random);
      break;
    case 7:
    case 8:
      nudge(a.step[used], random);
      break;
    case 9:
      a.num_dims = static_cast<uint8_t>(random.below(isa::kMaxDims + 1));
      for (size_t d = dim; d < a.num_dims; ++d) a.size[d] = static_cast<uint32_t>(1 + random.below(4));
      break;
    case 10:
      a.address_register = static_cast<uint8_t>(random.below(isa::kNumRegisters));
      break;
    case 11:
      a.space = static_cast<isa::Space>(random.below(4));
      break;
    case 12:
      nudge(a.tensor, random);
      break;
    default:
      a.indirect = !a.indirect;
      a.index_partition = static_cast<uint16_t>(random.below(isa::kMaxPartitions));
      a.index_dtype = static_cast<isa::Dtype>(random.below(isa::kNumDtypes));
      nudge(a.index_offset, random);
  }
}

void change_sync(isa::Sync& s, RandomProgram& random) {
  switch (random.below(6)) {
    case 0:
      s.num_waits = static_cast<uint8_t>(random.below(3));
      break;
    case 1:
      nudge(s.waits[0].value, random);
      break;
    case 2:
      s.waits[random.below(2)].semaphore = static_cast<uint8_t>(random.below(3));
      break;
    case 3:
      s.waits[0].value_register = static_cast<uint8_t>(random.below(isa::kNumRegisters));
      break;
    case 4:
      s.update = static_cast<isa::SemOp>(random.below(4));
      break;
    default:
      nudge(s.update_value, random);
  }
}

// Takes some fields from an instruction whose fields are all random.
void cross(Instruction& i, const Instruction& other, RandomProgram& random) {
  switch (random.below(12)) {
    case 0:
      i.op0 = other.op0;
      break;
    case 1:
      i.op1 = other.op1;
      break;
    case 2:
      i.func = other.func;
      break;
    case 3:
      i.imm0 = other.imm0;
      break;
    case 4:
      i.imm1 = other.imm1;
      break;
    case 5:
      i.imm = random.chance(50) ? other.imm : static_cast<int64_t>(random.below(64));
      break;
    case 6:
      i.flags = other.flags;
      break;
    case 7:
      i.reduce = other.reduce;
      i.reduce_op = other.reduce_op;
      break;
    case 8:
      i.count = random.chance(50) ? other.count : static_cast<uint32_t>(random.below(64));
      break;
    case 9:
      i.tile = other.tile;
      i.mask = other.mask;
      i.dge = other.dge;
      i.queue = other.queue;
      i.priority = other.priority;
      break;
    case 10:
      i.reg_dst = other.reg_dst;
      i.reg_a = other.reg_a;
      i.reg_b = other.reg_b;
      i.reduce_dims = other.reduce_dims;
      break;
    default:
      i.pattern = other.pattern;
      i.param = other.param;
  }
}

void change_tensor(isa::TensorDecl& t, RandomProgram& random) {
  switch (random.below(4)) {
    case 0:
      nudge(t.bytes, random);
      break;
    case 1:
      t.kind = static_cast<isa::TensorKind>(random.below(4));
      break;
    case 2:
      t.dtype = static_cast<isa::Dtype>(random.below(isa::kNumDtypes));
      break;
    default:
      t.shape.push_back(change(random));
  }
}

void change_instruction(Program& program, std::vector<Instruction>& stream, size_t at,
                        RandomProgram& random) {
  Instruction& i = stream[at];
  const isa::Engine engine = i.engine;
  switch (random.below(16)) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4:
    case 5: {
      // Operands that are there.
      std::vector<Access*> present;
      for (Access* a : {&i.dst, &i.src0, &i.src1, &i.aux, &i.imm0.pointer, &i.imm1.pointer}) {
        if (a->present()) present.push_back(a);
      }
      if (!present.empty()) change_access(*present[random.below(present.size())], random);
      break;
    }
    case 6:
    case 7:
    case 8:
      cross(i, random.any_instruction(i.opcode), random);
      break;
    case 9:
    case 10:
      change_sync(i.sync, random);
      break;
    case 11:
      i.target = static_cast<uint32_t>(random.below(stream.size() + 2));
      break;
    case 12:
      i.opcode = static_cast<isa::Opcode>(random.below(isa::kNumOpcodes));
      break;
    case 13:
      i = random.any_instruction(static_cast<isa::Opcode>(random.below(isa::kNumOpcodes)));
      i.engine = engine;
      break;
    case 14:
      std::swap(i, stream[random.below(stream.size())]);
      break;
    default:
      if (random.chance(50)) {
        stream.insert(stream.begin() + static_cast<std::ptrdiff_t>(at), stream[random.below(stream.size())]);
      } else {
        stream.erase(stream.begin() + static_cast<std::ptrdiff_t>(at));
      }
  }
  if (random.chance(3)) change_tensor(program.tensors[random.below(program.tensors.size())], random);
}

void put32(std::vector<uint8_t>& bytes, size_t at, uint32_t v) {
  for (size_t i = 0; i < 4; ++i) bytes[at + i] = static_cast<uint8_t>(v >> (8 * i));
}

// Makes the checksums right, so that what lies behind them is reached. Header as in isa/container.h.
void repair(std::vector<uint8_t>& bytes) {
  if (bytes.size() < 64) return;
  uint32_t metadata = 0;
  std::memcpy(&metadata, &bytes[12], 4);
  const size_t end = (32 + static_cast<size_t>(metadata) + 63) / 64 * 64;
  if (end > bytes.size()) return;
  put32(bytes, 24, static_cast<uint32_t>(crc32(0, &bytes[32], static_cast<uInt>(end - 32))));
  put32(bytes, 28,
        static_cast<uint32_t>(crc32(0, bytes.data() + end, static_cast<uInt>(bytes.size() - end))));
  for (size_t i = 0; i < 8; ++i) bytes[16 + i] = static_cast<uint8_t>((bytes.size() - end) >> (8 * i));
}

}  // namespace

void mutate(Program& program, RandomProgram& random) {
  for (uint64_t n = 1 + random.below(4); n > 0; --n) {
    auto& stream = program.streams[random.below(isa::stream_number(program.cores, isa::Engine::kTensor))];
    if (!stream.empty()) change_instruction(program, stream, random.below(stream.size()), random);
  }
}

void damage_container(std::vector<uint8_t>& bytes, RandomProgram& random) {
  for (uint64_t n = 1 + random.below(3); n > 0; --n) {
    const size_t at = random.below(bytes.size());
    switch (random.below(6)) {
      case 0:
      case 1:
        bytes[at] = static_cast<uint8_t>(bytes[at] ^ 1u << random.below(8));
        break;
      case 2:
        bytes[at] = static_cast<uint8_t>(random.below(256));
        break;
      case 3: {
        const size_t count = std::min<size_t>(1 + random.below(32), bytes.size() - at);
        std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), count, random.chance(50) ? 0xff : 0);
        break;
      }
      case 4: {
        const size_t from = random.below(bytes.size());
        const size_t count =
            std::min({static_cast<size_t>(1 + random.below(64)), bytes.size() - at, bytes.size() - from});
        std::memmove(&bytes[at], &bytes[from], count);
        break;
      }
      default:
        if (random.chance(70)) {
          bytes.resize(at + 1);
        } else {
          bytes.resize(bytes.size() + random.below(100));
        }
    }
  }
  if (random.chance(70)) repair(bytes);
}

void damage_text(std::string& text, RandomProgram& random) {
  static constexpr const char* kTokens[] = {
      "-1",    "r64",  "@",     "{",   "}",       "]", "[0+129]", "4294967296", "18446744073709551616", "nan",
      "\"",    "then", "wait ", " | ", "stream ", ":", "\n",      "fp32",       "99999999999999999999", "0x",
      "imm0=", "dst=", ";",     "\t",  "#"};
  for (uint64_t n = 1 + random.below(4); n > 0 && !text.empty(); --n) {
    const size_t at = random.below(text.size());
    switch (random.below(6)) {
      case 0:
        text[at] = static_cast<char>(random.below(256));
        break;
      case 1:
        text.erase(at, 1 + random.below(8));
        break;
      case 2:
        text.insert(at, kTokens[random.below(std::size(kTokens))]);
        break;
      case 3: {  // another number
        const size_t digit = text.find_first_of("0123456789", at);
        if (digit == std::string::npos) break;
        size_t end = digit;
        while (end < text.size() && text[end] >= '0' && text[end] <= '9') ++end;
        text.replace(digit, end - digit, std::to_string(random.below(UINT64_MAX) >> random.below(64)));
        break;
      }
      case 4: {  // a line again somewhere else
        const size_t begin = text.rfind('\n', at), end = text.find('\n', at);
        if (begin == std::string::npos || end == std::string::npos || end <= begin) break;
        const std::string line = text.substr(begin, end - begin);
        const size_t to = text.find('\n', random.below(text.size()));
        if (to != std::string::npos) text.insert(to, line);
        break;
      }
      default:
        if (random.chance(20)) text.resize(at);
    }
  }
}

}  // namespace trnsim::fuzz
