#include "tests/cpp/exec/generator.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>

#include "isa/names.h"

namespace trnsim::test {

using isa::Access;
using isa::AluOp;
using isa::Dtype;
using isa::Engine;
using isa::Instruction;
using isa::Opcode;
using isa::ScalarOperand;
using isa::Space;

Dtype Generator::any_dtype() {
  if (chance(5)) return Dtype::kF8E3M4;
  return static_cast<Dtype>(below(static_cast<int>(Dtype::kBool) + 1));
}
Dtype Generator::integer_dtype() { return static_cast<Dtype>(static_cast<int>(Dtype::kI32) + below(7)); }
Dtype Generator::float_dtype() { return static_cast<Dtype>(below(static_cast<int>(Dtype::kF8E5M2) + 1)); }
int Generator::partitions() { return pick({1, 2, 31, 32, 33, 64, 65, 127, 128}); }
int Generator::elements(Dtype d) {
  const int most = static_cast<int>(kSlotBytes / 2) / static_cast<int>(isa::dtype_bytes(d));
  return std::min(most, pick({1, 2, 3, 8, 15, 16, 17, 31, 60, 64, 127, 128, 130, 200}));
}

// Splits n into up to 4 dims and lays them out innermost first, with random gaps, order and direction.
void Generator::set_dims(Access* a, int n, int64_t available, bool source) {
  std::vector<int> sizes;
  for (int rest = n; static_cast<int>(sizes.size()) < 3 && rest > 1 && chance(60);) {
    std::vector<int> divisors;
    for (int d = 2; d < rest; ++d) {
      if (rest % d == 0) divisors.push_back(d);
    }
    if (divisors.empty()) break;
    const int d = divisors[static_cast<size_t>(below(static_cast<int>(divisors.size())))];
    sizes.push_back(d);
    rest /= d;
    n = rest;
  }
  sizes.push_back(n);
  std::vector<size_t> order(sizes.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = order.size() - 1 - i;
  if (chance(25)) std::shuffle(order.begin(), order.end(), random_);
  const auto bytes = static_cast<int64_t>(isa::dtype_bytes(a->dtype));
  a->num_dims = static_cast<uint8_t>(sizes.size());
  int64_t lowest = 0, extent = 1;
  for (size_t i : order) {  // innermost in memory first
    const bool gap = chance(25), broadcast = source && chance(8), backwards = chance(8);
    int64_t step = extent + (gap ? 1 + below(3) : 0);
    if (broadcast) step = 0;
    a->size[i] = static_cast<uint32_t>(sizes[i]);
    a->step[i] = backwards ? -step : step;
    if (step > 0) extent = step * sizes[i];
    if (backwards) lowest += step * (sizes[i] - 1);
  }
  if (extent * bytes > available) {  // too much: dense
    extent = 1;
    lowest = 0;
    for (size_t i = sizes.size(); i-- > 0;) {
      a->step[i] = extent;
      extent *= sizes[i];
    }
  }
  const int64_t free = std::max<int64_t>(0, available / bytes - extent);
  a->offset += (lowest + (free > 0 ? below(static_cast<int>(std::min<int64_t>(free, 20)) + 1) : 0)) * bytes;
}

Access Generator::tile(Space space, Dtype d, int partitions, int n, int slot, bool source) {
  Access a;
  a.space = space;
  a.dtype = d;
  a.num_partitions = static_cast<uint16_t>(partitions);
  a.start_partition =
      static_cast<uint16_t>(partitions <= 32 ? 32 * below(4) : (partitions <= 64 ? 64 * below(2) : 0));
  a.offset = slot * kSlotBytes;
  set_dims(&a, n, kSlotBytes, source);
  return a;
}

Access Generator::plain(Space space, Dtype d, int partitions, std::vector<int> dims, int slot) {
  Access a;
  a.space = space;
  a.dtype = d;
  a.num_partitions = static_cast<uint16_t>(partitions);
  a.offset = slot * kSlotBytes;
  a.num_dims = static_cast<uint8_t>(dims.size());
  int64_t step = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    a.size[i] = static_cast<uint32_t>(dims[i]);
    a.step[i] = step;
    step *= dims[i];
  }
  return a;
}

Access Generator::hbm(uint32_t tensor, Dtype d, std::vector<int> sizes, bool source) {
  Access a;
  a.space = Space::kHbm;
  a.dtype = d;
  a.tensor = tensor;
  a.num_dims = static_cast<uint8_t>(sizes.size());
  int64_t step = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (chance(20)) step += 1 + below(3);
    a.size[i] = static_cast<uint32_t>(sizes[i]);
    a.step[i] = source && chance(4) ? 0 : step;
    step *= sizes[i];
  }
  a.offset = below(4) * static_cast<int64_t>(isa::dtype_bytes(d));
  return a;
}

ScalarOperand Generator::immediate(bool integer) {
  ScalarOperand s;
  s.kind = ScalarOperand::Kind::kImmediate;
  s.value = integer ? static_cast<float>(below(41) - 20) : static_cast<float>(below(4001) - 2000) / 512.0f;
  return s;
}

ScalarOperand Generator::scalar(Dtype d, int partitions, int slot_offset) {
  if (chance(50)) return immediate(isa::is_integer(d));
  ScalarOperand s;
  s.kind = ScalarOperand::Kind::kPointer;
  s.pointer = tile(Space::kSbuf, d, partitions, 1, 3, true);
  s.pointer.num_dims = static_cast<uint8_t>(below(2));
  s.pointer.offset = 3 * kSlotBytes + slot_offset;
  return s;
}

void Generator::noise(Memory& m) {
  const auto words = [&](std::vector<std::byte>& v) {
    for (size_t i = 0; i + 8 <= v.size(); i += 8) {
      const uint64_t w = random_();
      std::memcpy(v.data() + i, &w, 8);
    }
  };
  words(m.sbuf);
  words(m.psum);
  for (auto& t : m.hbm) words(t);
}

void Generator::fill(const Access& a, Memory& m, Values values) {
  if (!a.present()) return;
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (int64_t p = 0; p < std::max<int64_t>(1, a.num_partitions); ++p) {
    for (int64_t k = 0; k < a.free_elements(); ++k) {
      std::byte* to = m.at(a, p, k);
      if (a.dtype == Dtype::kF64) {
        const double v = static_cast<double>(below(1000001) - 500000) / 1003.0;
        std::memcpy(to, &v, 8);
        continue;
      }
      if (isa::is_opaque(a.dtype)) {
        // Random codes near 1: the top exponent bit of each byte is clear.
        for (size_t i = 0; i < isa::dtype_bytes(a.dtype); ++i) {
          const int any = below(256);
          to[i] = static_cast<std::byte>(a.dtype == Dtype::kF8E8M0     ? 125 + below(4)
                                         : a.dtype == Dtype::kF4E2M1x4 ? any
                                                                       : any & 0xbf);
        }
        continue;
      }
      if (isa::is_integer(a.dtype)) {
        int64_t v = below(7) - 3;
        if (values == Values::kAny && chance(60)) v = static_cast<int64_t>(random_());
        if (values == Values::kModerate && a.dtype != Dtype::kBool) v = below(101) - 50;
        isa::store_from_int(a.dtype, to, v);
        continue;
      }
      float v = static_cast<float>(below(2001) - 1000) / 500.0f;
      if (values == Values::kSmallIntegers) v = static_cast<float>(below(7) - 3);
      if (values == Values::kAny) {
        const int kind = below(40);
        if (kind < 8) v = static_cast<float>(below(9) - 4);
        if (kind == 8) v = kInf;
        if (kind == 9) v = -kInf;
        if (kind == 10) v = std::numeric_limits<float>::quiet_NaN();
        if (kind == 11) v = -0.0f;
        if (kind == 12) v = 1e-41f;
        if (kind == 13) v = 3.4e38f;
        if (kind == 14) v = static_cast<float>(random_()) * (chance(50) ? 1.0f : -1.0f);
        if (kind == 15) v = static_cast<float>(below(100000)) + 0.5f;
        if (kind == 16) v = std::ldexp(v, below(60) - 30);
      }
      isa::store_from_f32(a.dtype, to, v);
    }
  }
}

AluOp Generator::arithmetic() { return static_cast<AluOp>(1 + below(static_cast<int>(AluOp::kLogicalXor))); }

void Generator::elementwise(Instruction* in) {
  const int p = partitions();
  const bool integers = chance(40);
  const auto dtype = [&] { return integers ? integer_dtype() : any_dtype(); };
  in->dst.dtype = dtype();
  in->src0.dtype = dtype();
  in->src1.dtype = dtype();
  const int n = std::min({elements(in->dst.dtype), elements(in->src0.dtype), elements(in->src1.dtype)});
  in->dst = tile(in->dst.dtype, p, n, 0, false);
  in->src0 = tile(in->src0.dtype, p, n, 1, true);
  const bool second = in->opcode != Opcode::kTensorScalar;
  const auto one_operand = [&] {
    if (integers) return pick({AluOp::kInvert, AluOp::kAbs, AluOp::kSquare, AluOp::kRelu});
    return pick({AluOp::kAbs, AluOp::kRsqrt, AluOp::kReciprocal, AluOp::kSquare, AluOp::kRelu});
  };
  in->src1 = second ? tile(in->src1.dtype, p, n, 2, true) : Access{};
  const auto op = [&] {
    if (in->opcode == Opcode::kTensorScalar && chance(15)) return one_operand();
    if (integers && chance(40)) return static_cast<AluOp>(static_cast<int>(AluOp::kBitAnd) + below(5));
    return chance(5) ? AluOp::kBypass : arithmetic();
  };
  in->op0 = op();
  if (in->opcode == Opcode::kTensorTensor) return;
  in->op1 = op();
  const Dtype s = integers ? integer_dtype() : Dtype::kF32;
  in->imm0 = scalar(s, p, 64);
  if (!second) {
    in->imm1 = scalar(s, p, 128);
    if (chance(25)) {
      in->op1 = AluOp::kNone;
      in->imm1 = {};
    }
  }
  if (chance(30)) in->flags |= isa::kFlagReverse0;
  if (chance(30)) in->flags |= isa::kFlagReverse1;
}

void Generator::dma(Instruction* in) {
  if (in->opcode == Opcode::kDmaCopy) {
    const bool same = chance(50);
    const int p = partitions();
    Dtype d = any_dtype(), s = same ? d : any_dtype();
    const int n = std::min(elements(d), elements(s));
    const auto side = [&](Dtype t, int slot, bool on_chip, bool source) {
      if (on_chip) return tile(Space::kSbuf, t, p, n, slot, source);
      std::vector<int> sizes = chance(50) ? std::vector<int>{p, n} : std::vector<int>{p * n};
      if (chance(20)) sizes = {n, p};
      if (n % 2 == 0 && chance(30)) sizes = {p, n / 2, 2};
      return hbm(static_cast<uint32_t>(slot), t, sizes, source);
    };
    const bool dst_chip = chance(50), src_chip = chance(50);
    if (!dst_chip && !src_chip && chance(30)) d = s = pick({Dtype::kI64, Dtype::kF64});
    if (!src_chip && chance(10)) s = d == Dtype::kI32 ? Dtype::kI64 : (d == Dtype::kF32 ? Dtype::kF64 : s);
    if (!dst_chip && chance(10)) d = s == Dtype::kI32 ? Dtype::kI64 : (s == Dtype::kF32 ? Dtype::kF64 : d);
    in->dst = side(d, 0, dst_chip, false);
    in->src0 = side(s, 1, src_chip, true);
    if (dst_chip && d == s && (d == Dtype::kF32 || d == Dtype::kBF16) && chance(50)) {
      in->flags = isa::kFlagAccumulate;
      // Every element once: a broadcast or overlapping destination would add in another order.
      in->dst = plain(Space::kSbuf, d, p, {n}, 0);
    }
    return;
  }
  if (in->opcode == Opcode::kDmaTranspose) {
    const Dtype d = pick({Dtype::kF32, Dtype::kBF16, Dtype::kI32, Dtype::kF16});
    const int r = pick({1, 16, 33, 64, 128}), c = pick({1, 16, 31, 64, 128});
    in->dst = tile(Space::kSbuf, d, c, r, 0, false);
    in->src0 = chance(50) ? tile(Space::kSbuf, d, r, c, 1, true) : hbm(1, d, {r, c}, true);
    if (chance(30)) {  // the outer dims of [rows, middle, columns] change places
      const int rows = pick({1, 4, 16}), middle = pick({2, 3, 8}), columns = pick({1, 20, 128});
      in->count = 3;
      in->src0 = chance(50) ? plain(Space::kSbuf, d, rows, {middle, columns}, 1)
                            : hbm(1, d, {rows, middle, columns}, true);
      if (in->src0.space == Space::kSbuf && middle * columns * 4 > kSlotBytes)
        in->src0 = hbm(1, d, {rows, middle, columns}, true);
      in->dst = plain(Space::kSbuf, d, columns, {middle, rows}, 0);
    } else if (chance(30)) {  // rows by index
      const int rows = pick({1, 9, 40}), picked = 16 * (1 + below(8));
      in->src0 = hbm(1, d, {rows, c}, true);
      in->src1 = plain(Space::kSbuf, Dtype::kU32, picked, {1}, 2);
      in->dst = tile(Space::kSbuf, d, c, picked, 0, false);
      in->flags = isa::kFlagSkipOutOfBounds;
    }
    return;
  }
  const bool gather = in->opcode == Opcode::kDmaGather;
  const int p = partitions(), per = pick({1, 2, 5}), rows = pick({1, 7, 100}), row = pick({1, 3, 8, 16, 40});
  const bool same = chance(60);
  const Dtype t = any_dtype(), u = same ? t : any_dtype();
  const Access table = hbm(
      gather ? 1 : 0, t,
      row % 2 == 0 && chance(30) ? std::vector<int>{rows, 2, row / 2} : std::vector<int>{rows, row}, gather);
  Access on_chip = plain(Space::kSbuf, u, p, {per, row}, gather ? 0 : 1);
  if (chance(30)) on_chip.step[0] += 1;
  if (on_chip.step[0] * per * static_cast<int64_t>(isa::dtype_bytes(u)) > kSlotBytes) on_chip.step[0] = row;
  in->src1 = tile(Space::kSbuf, pick({Dtype::kI32, Dtype::kU32, Dtype::kI16}), p, per, 2, true);
  in->dst = gather ? on_chip : table;
  in->src0 = gather ? table : on_chip;
  in->flags = isa::kFlagSkipOutOfBounds;
  if (chance(gather ? 30 : 50)) in->op0 = AluOp::kAdd;
}

Instruction Generator::instruction(Opcode op) {
  Instruction in;
  in.opcode = op;
  in.engine = Engine::kVector;
  const int p = partitions();
  switch (op) {
    case Opcode::kTensorTensor:
    case Opcode::kTensorScalar:
    case Opcode::kScalarTensorTensor:
      elementwise(&in);
      break;
    case Opcode::kCopy:
    case Opcode::kReciprocal:
    case Opcode::kCopyPredicated:
    case Opcode::kAffineSelect: {
      const Dtype d = any_dtype(), s = chance(50) ? d : any_dtype(),
                  q = pick({Dtype::kU8, Dtype::kU32, Dtype::kBool});
      const int n = std::min(elements(d), elements(s));
      in.dst = tile(d, p, n, 0, false);
      in.src0 = tile(s, p, n, 1, true);
      if (op == Opcode::kCopyPredicated) {
        in.src1 = tile(q, p, n, 2, true);
        if (chance(30)) in.flags = isa::kFlagNegate;
        if (chance(30)) {
          in.src0 = {};
          in.imm0 = scalar(Dtype::kF32, p, 64);
        }
      }
      if (op == Opcode::kAffineSelect) {
        in.op0 = pick({AluOp::kEqual, AluOp::kNotEqual, AluOp::kGreaterEqual, AluOp::kGreater,
                       AluOp::kLessEqual, AluOp::kLess});
        in.imm0 = immediate(false);
        in.pattern.base = below(41) - 20;
        in.pattern.partition_step = below(5) - 2;
        for (auto& s2 : in.pattern.step) s2 = below(5) - 2;
      }
      break;
    }
    case Opcode::kMemset:
      in.dst = tile(any_dtype(), p, 1, 0, false);
      in.dst = tile(in.dst.dtype, p, elements(in.dst.dtype), 0, false);
      in.imm0 = immediate(chance(50));
      break;
    case Opcode::kIota:
      in.dst.dtype = any_dtype();
      in.dst = tile(in.dst.dtype, p, elements(in.dst.dtype), 0, false);
      in.pattern.base = below(1000) - 500;
      in.pattern.partition_step = below(2001) - 1000;
      for (auto& s : in.pattern.step) s = below(201) - 100;
      break;
    case Opcode::kTensorReduce: {
      const bool integers = chance(40);
      const Dtype s = integers ? integer_dtype() : float_dtype(),
                  d = integers ? integer_dtype() : float_dtype();
      in.src0 = tile(s, p, elements(s), 1, true);
      in.reduce_dims = static_cast<uint8_t>(1 + below(in.src0.num_dims));
      int kept = 1;
      for (int i = 0; i < in.src0.num_dims - in.reduce_dims; ++i)
        kept *= static_cast<int>(in.src0.size[static_cast<size_t>(i)]);
      in.dst = tile(d, p, kept, 0, false);
      in.op0 =
          pick({AluOp::kAdd, AluOp::kSubtract, AluOp::kMultiply, AluOp::kMax, AluOp::kMin, AluOp::kAbsMax,
                AluOp::kAbsMin, AluOp::kLogicalAnd, AluOp::kLogicalOr, AluOp::kLogicalXor});
      if (integers && chance(30)) in.op0 = pick({AluOp::kBitAnd, AluOp::kBitOr, AluOp::kBitXor});
      if (chance(25)) in.flags = isa::kFlagNegate;
      break;
    }
    case Opcode::kPartitionReduce: {
      const bool integers = chance(40);
      const Dtype s = integers ? integer_dtype() : float_dtype(),
                  d = integers ? integer_dtype() : float_dtype();
      const int n = std::min(elements(s), elements(d));
      in.src0 = tile(s, p, n, 1, true);
      in.dst = tile(d, 1, n, 0, false);
      in.op0 = pick(
          {AluOp::kAdd, AluOp::kAverage, AluOp::kMax, AluOp::kMin, AluOp::kLogicalAnd, AluOp::kLogicalOr});
      if (integers && chance(30)) in.op0 = pick({AluOp::kBitAnd, AluOp::kBitOr});
      break;
    }
    case Opcode::kTensorTensorScan: {
      const bool integers = chance(40);
      const auto dtype = [&] { return integers ? integer_dtype() : float_dtype(); };
      const Dtype d = dtype(), a = dtype(), b = dtype();
      const int n = std::min({elements(d), elements(a), elements(b)});
      in.dst = tile(d, p, n, 0, false);
      in.src0 = tile(a, p, n, 1, true);
      in.src1 = tile(b, p, n, 2, true);
      in.op0 = pick({AluOp::kAdd, AluOp::kMultiply, AluOp::kMax, AluOp::kSubtract, AluOp::kMin});
      in.op1 = pick({AluOp::kAdd, AluOp::kMultiply, AluOp::kMax, AluOp::kSubtract, AluOp::kLess});
      in.imm0 = scalar(integers ? Dtype::kI32 : Dtype::kF32, p, 64);
      if (chance(30)) in.flags |= isa::kFlagReverse0;
      if (chance(30)) in.flags |= isa::kFlagReverse1;
      break;
    }
    case Opcode::kBnStats:
      in.src0.dtype = float_dtype();
      in.src0 = tile(in.src0.dtype, p, elements(in.src0.dtype), 1, true);
      in.dst = tile(Dtype::kF32, p, 6, 0, false);
      break;
    case Opcode::kBnAggr:
      in.src0 = tile(Dtype::kF32, p, 3 * pick({1, 2, 5, 21}), 1, false);
      in.dst = tile(Dtype::kF32, p, 2, 0, false);
      break;
    case Opcode::kMax8:
    case Opcode::kMaxIndex8:
    case Opcode::kMatchReplace8: {
      const Dtype s = chance(70) ? float_dtype() : pick({Dtype::kI32, Dtype::kU32, Dtype::kI16, Dtype::kU8});
      const int n = std::max(8, elements(s));
      in.src0 = tile(s, p, n, 1, true);
      in.src1 = op == Opcode::kMax8 ? Access{} : tile(s, p, 8, 2, true);
      in.dst = op == Opcode::kMaxIndex8 ? tile(pick({Dtype::kU32, Dtype::kU16}), p, 8, 0, false)
                                        : tile(s, p, op == Opcode::kMax8 ? 8 : n, 0, false);
      if (op == Opcode::kMatchReplace8) {
        in.imm0 = immediate(true);
        if (chance(50)) in.aux = plain(Space::kSbuf, pick({Dtype::kU32, Dtype::kU16}), p, {8}, 3);
      }
      break;
    }
    case Opcode::kPhilox:
      in.dst = tile(Dtype::kU32, p, elements(Dtype::kU32), 0, false);
      in.src0 = tile(Space::kSbuf, Dtype::kU32, 1, 4, 1, false);
      in.pattern.base = below(1000);
      break;
    case Opcode::kTranspose: {
      const Dtype d = any_dtype();
      int r = pick({1, 5, 31, 32, 33, 64, 128}), c = pick({1, 7, 16, 31, 64, 127, 128});
      if (chance(50)) {
        in.engine = Engine::kTensor;
        in.src0 = tile(Space::kSbuf, d, r, c, 1, true);
        in.dst = tile(Space::kPsum, d, c, r, 0, false);
        if (isa::dtype_bytes(in.dst.dtype) == 1) {  // written as two bytes each
          in.dst = plain(Space::kPsum, in.dst.dtype, c, {r}, 0);
          in.dst.step[0] = 2;
        }
      } else if (chance(50)) {
        r = std::min(r, 32);
        c = std::min(c, 32);
        in.src0 = tile(d, r, c, 1, true);
        in.dst = tile(d, c, r, 0, false);
      } else {
        r = pick({32, 64, 96, 128});
        c = pick({32, 64, 128});
        in.src0 = tile(d, r, c, 1, true);
        in.dst = tile(d, r, c, 0, false);
      }
      break;
    }
    case Opcode::kDmaCopy:
    case Opcode::kDmaTranspose:
    case Opcode::kDmaGather:
    case Opcode::kDmaScatter:
      dma(&in);
      break;
    default:
      break;
  }
  return in;
}

Pair::Pair(std::vector<uint64_t> tensor_bytes) {
  for (size_t i = 0; i < tensor_bytes.size(); ++i) {
    isa::TensorDecl t;
    t.name = "t" + std::to_string(i);
    t.bytes = tensor_bytes[i];
    program.tensors.push_back(t);
    hbm.emplace_back(tensor_bytes[i]);
    memory.hbm.emplace_back(tensor_bytes[i]);
  }
}

std::vector<exec::HbmTensor> Pair::bindings() {
  std::vector<exec::HbmTensor> b;
  for (auto& t : hbm) b.push_back({t.data(), t.size()});
  return b;
}

void Pair::to_core() {
  for (int p = 0; p < 128; ++p) {
    std::memcpy(core.sbuf(p, 0), memory.sbuf.data() + p * kSbufBytes, kSbufBytes);
    std::memcpy(core.psum(p, 0), memory.psum.data() + p * kPsumBytes, kPsumBytes);
  }
  hbm = memory.hbm;
}

namespace {

// Values of a float dtype in order, so that neighbours differ by one.
int64_t ordinal(float v) {
  int32_t b;
  std::memcpy(&b, &v, 4);
  return b < 0 ? int64_t{INT32_MIN} - b : b;
}

bool close(Dtype d, const std::byte* a, const std::byte* b, Agreement how) {
  const size_t bytes = isa::dtype_bytes(d);
  if (std::memcmp(a, b, bytes) == 0) return true;
  if (how == Agreement::kBits) return false;
  if (isa::is_integer(d)) {
    if (how == Agreement::kValue) return false;
    return std::llabs(isa::load_as_int(d, a) - isa::load_as_int(d, b)) <= (how == Agreement::kUlps ? 1 : 2);
  }
  const float x = isa::load_as_f32(d, a), y = isa::load_as_f32(d, b);
  if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y);
  if (how == Agreement::kValue) return false;
  // One step of the narrow format, two of FP32.
  float step = 0;
  if (d == Dtype::kBF16) step = 0x1p-7f;
  if (d == Dtype::kF16) step = 0x1p-10f;
  if (d == Dtype::kF8E4M3 || d == Dtype::kF8E4M3FN) step = 0x1p-3f;
  if (d == Dtype::kF8E5M2) step = 0x1p-2f;
  if (step > 0 && std::fabs(x - y) <= step * std::max(std::fabs(x), std::fabs(y))) return true;
  if (step > 0 && std::fabs(x - y) < 0.002f) return true;  // subnormal steps of the 8-bit formats
  if (std::llabs(ordinal(x) - ordinal(y)) <= 2) return true;
  return how == Agreement::kSums && std::fabs(x - y) <= 1e-4f + 2e-5f * std::fabs(y);
}

}  // namespace

std::string Pair::compare(const Instruction& in) {
  // Results element by element, then everything else bit by bit.
  const Agreement how = agreement(in);
  std::ostringstream s;
  const auto address = [&](const Access& a, int64_t p, int64_t k) -> std::byte* {
    const std::byte* o = memory.at(a, p, k);
    if (a.space == Space::kHbm) return hbm[a.tensor].data() + (o - memory.hbm[a.tensor].data());
    const bool sbuf = a.space == Space::kSbuf;
    const int64_t flat = o - (sbuf ? memory.sbuf : memory.psum).data(), row = sbuf ? kSbufBytes : kPsumBytes;
    return sbuf ? core.sbuf(static_cast<int>(flat / row), flat % row)
                : core.psum(static_cast<int>(flat / row), flat % row);
  };
  for (const Access* a : {&in.dst, &in.aux}) {
    if (!a->present()) continue;
    for (int64_t p = 0; p < std::max<int64_t>(1, a->num_partitions); ++p) {
      for (int64_t k = 0; k < a->free_elements(); ++k) {
        std::byte *want = memory.at(*a, p, k), *got = address(*a, p, k);
        if (!close(a->dtype, got, want, how)) {
          s << isa::name(in.opcode) << " op0 " << isa::name(in.op0) << " op1 " << isa::name(in.op1)
            << " func " << isa::name(in.func) << " flags " << in.flags << " dst "
            << isa::dtype_name(in.dst.dtype) << " src0 " << isa::dtype_name(in.src0.dtype) << " src1 "
            << isa::dtype_name(in.src1.dtype) << ": partition " << p << " of " << a->num_partitions
            << ", element " << k << " of " << a->free_elements() << " is " << isa::load_as_f32(a->dtype, got)
            << ", should be " << isa::load_as_f32(a->dtype, want);
          return s.str();
        }
        std::memcpy(got, want, isa::dtype_bytes(a->dtype));
      }
    }
  }
  for (int p = 0; p < 128; ++p) {
    if (std::memcmp(core.sbuf(p, 0), memory.sbuf.data() + p * kSbufBytes, kSbufBytes) != 0 ||
        std::memcmp(core.psum(p, 0), memory.psum.data() + p * kPsumBytes, kPsumBytes) != 0) {
      s << isa::name(in.opcode) << " wrote outside dst in partition " << p;
      return s.str();
    }
  }
  if (hbm != memory.hbm) return std::string(isa::name(in.opcode)) + " wrote outside dst in HBM";
  return {};
}

}  // namespace trnsim::test
