// Operands: from Access to base, pitch and merged dims, with the static bounds checks.
#include <cmath>

#include "isa/names.h"
#include "isa/table.h"
#include "sim/exec/prepared.h"

namespace trnsim::exec {
namespace {

const Operand kAbsent;

std::string text(int64_t v) { return std::to_string(v); }

}  // namespace

std::string describe(isa::Opcode opcode, int core, isa::Engine engine, uint32_t index, uint32_t location,
                     const std::vector<isa::SourceLocation>& locations) {
  std::string s = std::string(isa::name(opcode)) + " on " + std::string(isa::name(engine)) +
                  (core < 0 ? std::string() : " of core " + std::to_string(core)) + " (instruction " +
                  std::to_string(index);
  if (location != 0 && location < locations.size()) {
    const isa::SourceLocation& l = locations[location];
    if (!l.file.empty()) s += ", " + l.file + ":" + std::to_string(l.line);
    if (!l.what.empty()) s += (l.file.empty() ? ", " : ": ") + l.what;
  }
  return s + ")";
}

void Resolver::fail(Status::Kind kind, const std::string& what) const {
  throw Fault{kind, what + "; at " +
                        describe(current_->opcode, program_.cores > 1 ? core_ : -1, current_->engine, index_,
                                 current_->location, program_.locations)};
}

const Operand* Resolver::operand(const isa::Access& a, const char* role) {
  using isa::Space;
  if (a.space == Space::kNone) return &kAbsent;
  if (a.num_dims > isa::kMaxDims) illegal(std::string(role) + " has more than 5 dims");
  if (a.dtype >= isa::Dtype::kCount) illegal(std::string(role) + " has an invalid dtype");
  Operand& o = arena_.operands.emplace_back();
  o.space = a.space;
  o.dtype = a.dtype;
  o.address_register = a.address_register;
  o.bytes = static_cast<int>(isa::dtype_bytes(a.dtype));
  o.offset = a.offset;
  o.tensor = a.tensor;
  o.hi = o.bytes;

  // Dims of size 1 vanish; a dim merges into the one inside it when its step continues it.
  for (int i = 0; i < a.num_dims; ++i) {
    const int64_t size = a.size[i], step = a.step_bytes(i);
    if (size == 0) illegal(std::string(role) + " has a dim of size 0");
    if (size == 1) continue;
    o.n *= size;
    if (step > 0) o.hi += step * (size - 1);
    if (step < 0) o.lo += step * (size - 1);
    Pattern& p = o.pattern;
    if (p.dims > 0 && p.step[p.dims - 1] == step * size) {
      p.size[p.dims - 1] *= size;
      p.step[p.dims - 1] = step;
    } else {
      p.size[p.dims] = size;
      p.step[p.dims] = step;
      ++p.dims;
    }
  }
  o.dense = o.pattern.dims == 0 || (o.pattern.dims == 1 && o.pattern.step[0] == o.bytes);

  const bool dynamic = a.address_register != isa::kNoRegister || a.indirect;
  if (a.address_register != isa::kNoRegister && a.address_register >= isa::kNumRegisters) {
    illegal(std::string(role) + " names address register " + text(a.address_register) + "; an engine has 64");
  }
  if (a.space == Space::kHbm) {
    if (a.tensor >= program_.tensors.size()) {
      illegal(std::string(role) + " names tensor " + text(a.tensor) + "; the program has " +
              text(static_cast<int64_t>(program_.tensors.size())));
    }
    const isa::TensorDecl& t = program_.tensors[a.tensor];
    o.base = a.offset;
    if (!dynamic && (a.offset + o.lo < 0 || a.offset + o.hi > static_cast<int64_t>(t.bytes))) {
      fail(Status::Kind::kOutOfBounds, std::string(role) + " touches bytes [" + text(a.offset + o.lo) + ", " +
                                           text(a.offset + o.hi) + ") of tensor '" + t.name +
                                           "', which has " + text(static_cast<int64_t>(t.bytes)) + " bytes");
    }
    footprint_.hbm_used[a.tensor] = true;
    if (!dynamic) {
      uint64_t& end = footprint_.hbm_end[a.tensor];
      end = std::max(end, static_cast<uint64_t>(a.offset + o.hi));
    }
    return &o;
  }

  const bool sbuf = a.space == Space::kSbuf;
  const int64_t limit = sbuf ? sizes_.sbuf_bytes_per_partition : sizes_.psum_bytes_per_partition;
  const char* memory = sbuf ? "SBUF" : "PSUM";
  if (a.num_partitions == 0 || a.start_partition + a.num_partitions > isa::kMaxPartitions) {
    fail(Status::Kind::kOutOfBounds, std::string(role) + " covers partitions [" + text(a.start_partition) +
                                         ", " + text(a.start_partition + a.num_partitions) + ") of " +
                                         memory + ", which has 128");
  }
  if (o.bytes == 8 && !current_->is_control()) {
    illegal(std::string(role) + " is " + std::string(isa::dtype_name(a.dtype)) + " in " + memory +
            "; 64-bit elements exist in HBM only, the DMA narrows them");
  }
  if (!dynamic && (a.offset + o.lo < 0 || a.offset + o.hi > limit)) {
    fail(Status::Kind::kOutOfBounds, std::string(role) + " touches bytes [" + text(a.offset + o.lo) + ", " +
                                         text(a.offset + o.hi) + ") of a " + memory +
                                         " partition, which has " + text(limit) + " bytes");
  }
  o.rows = a.num_partitions;
  o.first_partition = a.start_partition;
  o.pitch = pitch_of(limit);
  o.base = a.start_partition * o.pitch + a.offset;
  o.direct_f32 = o.dense && !dynamic && (a.dtype == isa::Dtype::kF32 || a.dtype == isa::Dtype::kF32R) &&
                 a.offset % 4 == 0;
  int64_t& end = sbuf ? footprint_.sbuf_end : footprint_.psum_end;
  end = std::max(end, dynamic ? limit : a.offset + o.hi);
  return &o;
}

Scalar Resolver::scalar(const isa::ScalarOperand& s, const char* role) {
  Scalar out;
  out.kind = s.kind;
  out.value = s.value;
  if (s.kind != isa::ScalarOperand::Kind::kPointer) return out;
  out.pointer = operand(s.pointer, role);
  need(out.pointer, role, true, true, false);
  if (out.pointer->n != 1) illegal(std::string(role) + " must be one element per partition");
  return out;
}

void Resolver::need(const Operand* o, const char* role, bool sbuf, bool psum, bool hbm) const {
  if (!o->present()) illegal(std::string(role) + " is missing");
  const bool ok = (o->space == isa::Space::kSbuf && sbuf) || (o->space == isa::Space::kPsum && psum) ||
                  (o->space == isa::Space::kHbm && hbm);
  if (!ok) illegal(std::string(role) + " may not be in " + std::string(isa::name(o->space)));
}

void Resolver::same_shape(const Operand* a, const char* role_a, const Operand* b, const char* role_b) const {
  if (a->rows != b->rows || a->n != b->n) {
    illegal(std::string(role_a) + " is [" + text(a->rows) + ", " + text(a->n) + "] and " + role_b + " is [" +
            text(b->rows) + ", " + text(b->n) + "]; partitions and elements per partition must be equal");
  }
}

void Resolver::need_alu(isa::AluOp op, bool integer, const char* field) const {
  const int i = static_cast<int>(op);
  if (i >= RowKernels::kAlu) illegal(std::string(field) + " is not an ALU operation");
  const RowKernels& k = row_kernels();
  if (integer ? k.binary_int[i] == nullptr : k.binary[i] == nullptr) {
    illegal(std::string(field) + " " + std::string(isa::name(op)) + " needs integer operands");
  }
}

void Resolver::resolve(const isa::Instruction& in, int core, uint32_t index, Prepared* p) {
  current_ = &in;
  core_ = core;
  index_ = index;
  p->opcode = in.opcode;
  p->engine = in.engine;
  p->core = static_cast<uint8_t>(core);
  p->queue = in.queue;
  p->op0 = in.op0;
  p->op1 = in.op1;
  p->func = in.func;
  p->reduce_dims = in.reduce_dims;
  p->reg_dst = in.reg_dst;
  p->reg_a = in.reg_a;
  p->reg_b = in.reg_b;
  p->flags = in.flags;
  p->target = in.target;
  p->location = in.location;
  p->index = index;
  p->reduce_op = in.reduce_op;
  p->reduce = in.reduce;
  p->tile = in.tile;
  p->count = in.count;
  p->param = in.param;
  p->mask = in.mask;
  p->imm = in.imm;
  p->sync = in.sync;
  if (in.engine >= isa::Engine::kCount) illegal("invalid engine");
  if (in.opcode >= isa::Opcode::kCount) illegal("invalid opcode");
  if (in.sync.num_waits > 2) illegal("more than 2 semaphore waits");
  for (int i = 0; i < in.sync.num_waits; ++i) {
    const uint8_t r = in.sync.waits[i].value_register;
    if (r != isa::kNoRegister && r >= isa::kNumRegisters) illegal("semaphore wait names an invalid register");
  }
  if (in.reg_dst >= isa::kNumRegisters || in.reg_a >= isa::kNumRegisters || in.reg_b >= isa::kNumRegisters) {
    illegal("invalid register; an engine has 64");
  }
  p->dst = operand(in.dst, "dst");
  p->src0 = operand(in.src0, "src0");
  p->src1 = operand(in.src1, "src1");
  p->aux = operand(in.aux, "aux");
  p->imm0 = scalar(in.imm0, "imm0");
  p->imm1 = scalar(in.imm1, "imm1");
  check_opaque(in, *p);
  stage_indirect(in, p);
  choose(in, p);
  if (p->indirect != nullptr) {
    p->indirect->inner = p->fn;
    p->fn = execute_indirect;
  }
}

// Dtypes without a conversion go where the row says, and moves do not change them.
void Resolver::check_opaque(const isa::Instruction& in, const Prepared& p) const {
  const isa::Row& row = isa::row(in.opcode);
  const Operand* operands[] = {p.dst, p.src0, p.src1, p.aux};
  bool any = false;
  for (int s = 0; s < isa::kNumSlots; ++s) {
    if (!operands[s]->present() || !isa::is_opaque(operands[s]->dtype)) continue;
    any = true;
    if (!isa::contains(row.operands[s].dtypes, operands[s]->dtype)) {
      illegal("dtype " + std::string(isa::dtype_name(operands[s]->dtype)) + " is not possible here");
    }
  }
  const bool moves = row.has_rule(isa::Rule::kOpaqueMoves) || in.is_dma();
  if (any && moves && p.src0->present() && p.src0->dtype != p.dst->dtype) {
    illegal("microscaling dtypes are moved unchanged");
  }
  for (const Scalar* s : {&p.imm0, &p.imm1}) {
    if (s->pointer != nullptr && isa::is_opaque(s->pointer->dtype))
      illegal("a scalar operand cannot be packed");
  }
}

}  // namespace trnsim::exec
