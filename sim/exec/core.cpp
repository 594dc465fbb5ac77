// Architectural state, single instructions, registers.
#include <cstring>

#include "isa/dtype.h"
#include "isa/names.h"
#include "sim/exec/pair.h"
#include "sim/exec/state.h"

namespace trnsim::exec {

Core::Impl::Impl(const CoreSizes& s)
    : sizes(s), sbuf(s.sbuf_bytes_per_partition), psum(s.psum_bytes_per_partition), work(new Work) {
  for (isa::Engine e : {isa::Engine::kVector, isa::Engine::kGpSimd}) seed_generators(*this, e, 0);
}

Core::Core(const CoreSizes& sizes) : impl_(std::make_unique<Impl>(sizes)) {}
Core::~Core() = default;

void Core::reset() {
  impl_->sbuf.forget();
  impl_->psum.forget();
  for (auto& file : impl_->registers) file.fill(0);
  impl_->semaphores.fill(0);
  impl_->stationary = {};
  for (auto& a : impl_->accumulators) a.fill(0);
  impl_->rounded.fill(0);
  for (isa::Engine e : {isa::Engine::kVector, isa::Engine::kGpSimd}) seed_generators(*impl_, e, 0);
}

void Core::set_numerics(const Numerics& numerics) {
  impl_->numerics = numerics;
  impl_->rounded.fill(0);
  for (isa::Engine e : {isa::Engine::kVector, isa::Engine::kGpSimd}) seed_generators(*impl_, e, 0);
}

const CoreSizes& Core::sizes() const { return impl_->sizes; }

int32_t Core::reg(isa::Engine e, int index) const {
  return impl_->registers[static_cast<size_t>(e)][static_cast<size_t>(index)];
}
void Core::set_reg(isa::Engine e, int index, int32_t value) {
  impl_->registers[static_cast<size_t>(e)][static_cast<size_t>(index)] = value;
}

std::byte* Core::sbuf(int partition, int64_t offset) {
  impl_->sbuf.ensure(impl_->sbuf.bytes());
  return impl_->sbuf.base() + partition * impl_->sbuf.pitch() + offset;
}
const std::byte* Core::sbuf(int partition, int64_t offset, int64_t bytes) const {
  impl_->sbuf.ensure(offset + bytes);
  return impl_->sbuf.base() + partition * impl_->sbuf.pitch() + offset;
}
std::byte* Core::psum(int partition, int64_t offset) {
  impl_->psum.ensure(impl_->psum.bytes());
  return impl_->psum.base() + partition * impl_->psum.pitch() + offset;
}

Status Core::execute(const isa::Program& program, const isa::Instruction& instruction,
                     const std::vector<HbmTensor>& hbm, int number) {
  Impl& core = *impl_;
  Footprint& footprint = core.single_footprint;
  core.single_arena.clear();
  footprint.sbuf_end = footprint.psum_end = 0;
  footprint.hbm_end.assign(program.tensors.size(), 0);
  footprint.hbm_used.assign(program.tensors.size(), false);
  try {
    Prepared p;
    Resolver(program, core.sizes, core.single_arena, footprint).resolve(instruction, number, 0, &p);
    Context c{core, *core.work, hbm.data(), nullptr, &program};
    c.check_bindings(footprint, hbm);
    core.sbuf.ensure(footprint.sbuf_end);
    core.psum.ensure(footprint.psum_end);
    c.execute(p);
    return {};
  } catch (const Fault& f) {
    return {f.kind, f.message};
  }
}

CorePair::CorePair(Core& first, Core& second) : impl_(std::make_unique<Impl>()) {
  impl_->cores[0] = &first.impl();
  impl_->cores[1] = &second.impl();
  for (Core::Impl* c : impl_->cores) c->pair = impl_.get();
}
CorePair::~CorePair() {
  for (Core::Impl* c : impl_->cores) c->pair = nullptr;
}

std::byte* Context::at_register(const Prepared& p, const Operand& o) {
  const int64_t added = registers(p)[o.address_register];
  const int64_t lo = o.offset + added + o.lo, hi = o.offset + added + o.hi;
  const bool on_hbm = o.space == isa::Space::kHbm;
  const int64_t limit = bytes_of(o);
  if (!in_bounds(p, o)) {
    throw Fault{Status::Kind::kOutOfBounds,
                "with register " + std::to_string(o.address_register) + " = " + std::to_string(added) +
                    " an operand touches bytes [" + std::to_string(lo) + ", " + std::to_string(hi) + ") of " +
                    (on_hbm ? "tensor '" + tensor_name(o.tensor) + "'"
                            : "a partition of " + std::string(isa::name(o.space))) +
                    ", which has " + std::to_string(limit) + " bytes; at " + where(p)};
  }
  return (on_hbm ? hbm[o.tensor].data : memory(o.space).base()) + o.base + added;
}

void Context::check_bindings(const Footprint& footprint, const std::vector<HbmTensor>& bound) const {
  for (size_t i = 0; i < footprint.hbm_used.size(); ++i) {
    if (!footprint.hbm_used[i]) continue;
    const auto t = static_cast<uint32_t>(i);
    if (i >= bound.size() || bound[i].data == nullptr) {
      throw Fault{Status::Kind::kIllegal,
                  "tensor '" + tensor_name(t) + "' is used but no memory is bound to it"};
    }
    if (bound[i].bytes < footprint.hbm_end[i]) {
      throw Fault{Status::Kind::kOutOfBounds,
                  "the program touches bytes up to " + std::to_string(footprint.hbm_end[i]) + " of tensor '" +
                      tensor_name(t) + "', to which " + std::to_string(bound[i].bytes) + " bytes are bound"};
    }
  }
}

int32_t register_alu(isa::AluOp op, int32_t a, int32_t b) {
  const auto ua = static_cast<uint32_t>(a), ub = static_cast<uint32_t>(b);
  const auto wrap = [](uint32_t v) { return static_cast<int32_t>(v); };
  const auto magnitude = [&](int32_t v) {
    return v < 0 ? 0 - static_cast<uint32_t>(v) : static_cast<uint32_t>(v);
  };
  switch (op) {
    case isa::AluOp::kAdd:
      return wrap(ua + ub);
    case isa::AluOp::kSubtract:
      return wrap(ua - ub);
    case isa::AluOp::kMultiply:
      return wrap(ua * ub);
    case isa::AluOp::kMax:
      return a > b ? a : b;
    case isa::AluOp::kMin:
      return a < b ? a : b;
    case isa::AluOp::kAbsMax:
      return wrap(std::max(magnitude(a), magnitude(b)));
    case isa::AluOp::kAbsMin:
      return wrap(std::min(magnitude(a), magnitude(b)));
    case isa::AluOp::kEqual:
      return a == b;
    case isa::AluOp::kNotEqual:
      return a != b;
    case isa::AluOp::kGreaterEqual:
      return a >= b;
    case isa::AluOp::kGreater:
      return a > b;
    case isa::AluOp::kLessEqual:
      return a <= b;
    case isa::AluOp::kLess:
      return a < b;
    case isa::AluOp::kLogicalAnd:
      return a != 0 && b != 0;
    case isa::AluOp::kLogicalOr:
      return a != 0 || b != 0;
    case isa::AluOp::kLogicalXor:
      return (a != 0) != (b != 0);
    case isa::AluOp::kBitAnd:
      return wrap(ua & ub);
    case isa::AluOp::kBitOr:
      return wrap(ua | ub);
    case isa::AluOp::kBitXor:
      return wrap(ua ^ ub);
    case isa::AluOp::kShiftLeft:
      return ub < 32 ? wrap(ua << ub) : 0;
    case isa::AluOp::kShiftRight:
      return ub < 32 ? wrap(ua >> ub) : 0;
    default:
      return a;
  }
}

int64_t register_alu_wide(isa::AluOp op, int64_t a, int64_t b) {
  const auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  return static_cast<int64_t>(op == isa::AluOp::kAdd        ? ua + ub
                              : op == isa::AluOp::kSubtract ? ua - ub
                                                            : ua * ub);
}

void execute_reg_move(Context& c, const Prepared& p) {
  if (p.has(isa::kFlagWide)) return set_register_pair(&c.registers(p)[p.reg_dst], p.imm);
  c.registers(p)[p.reg_dst] = static_cast<int32_t>(static_cast<uint64_t>(p.imm));
}

void execute_reg_alu(Context& c, const Prepared& p) {
  auto& r = c.registers(p);
  if (p.has(isa::kFlagWide)) {
    const int64_t wide = p.has(isa::kFlagImmediate) ? p.imm : register_pair(&r[p.reg_b]);
    return set_register_pair(&r[p.reg_dst], register_alu_wide(p.op0, register_pair(&r[p.reg_a]), wide));
  }
  const int32_t b =
      p.has(isa::kFlagImmediate) ? static_cast<int32_t>(static_cast<uint64_t>(p.imm)) : r[p.reg_b];
  r[p.reg_dst] = register_alu(p.op0, r[p.reg_a], b);
}

// A 4-byte element is taken as it is; other integers are widened or truncated to the register.
void execute_reg_load(Context& c, const Prepared& p) {
  const std::byte* s = c.at(p, *p.src0);
  if (p.has(isa::kFlagWide))
    return set_register_pair(&c.registers(p)[p.reg_dst], isa::load_as_int(p.src0->dtype, s));
  int32_t v = 0;
  if (p.src0->bytes != 4 && isa::is_integer(p.src0->dtype)) {
    v = static_cast<int32_t>(static_cast<uint64_t>(isa::load_as_int(p.src0->dtype, s)));
  } else {
    std::memcpy(&v, s, static_cast<size_t>(std::min(p.src0->bytes, 4)));
  }
  c.registers(p)[p.reg_dst] = v;
}

void execute_reg_store(Context& c, const Prepared& p) {
  std::byte* d = c.at(p, *p.dst);
  const int32_t v = c.registers(p)[p.reg_a];
  if (p.dst->bytes == 8) {
    const int64_t wide = p.has(isa::kFlagWide) ? register_pair(&c.registers(p)[p.reg_a]) : v;
    std::memcpy(d, &wide, 8);
  } else {
    std::memcpy(d, &v, 4);
  }
}

}  // namespace trnsim::exec
