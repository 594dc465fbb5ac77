// Indirect operands: elements picked by an index list in SBUF. They are staged as dense copies around the kernel
// of the instruction, so that every row has them without knowing.
#include "isa/table.h"
#include "sim/exec/block.h"

namespace trnsim::exec {

void Resolver::stage_indirect(const isa::Instruction& in, Prepared* p) {
  const isa::Access* accesses[3] = {&in.dst, &in.src0, &in.src1};
  const Operand** operands[3] = {&p->dst, &p->src0, &p->src1};
  IndirectPlan* plan = nullptr;
  for (int s = 0; s < 3; ++s) {
    const isa::Access& a = *accesses[s];
    if (!a.present() || !a.indirect) continue;
    if (a.space == isa::Space::kHbm || a.num_dims == 0)
      illegal("an indirect operand lies in SBUF or PSUM and has dims");
    if (!isa::is_integer(a.index_dtype) || a.index_dtype >= isa::Dtype::kCount)
      illegal("an index list holds integers");
    if (plan == nullptr) plan = &arena_.indirects.emplace_back();
    IndirectPlan::Side& side = plan->side[s];
    side.where = *operands[s];
    side.list = operand(isa::index_list(a, in.engine), "index list");
    side.entries = a.size[0];
    if (a.step[0] < INT16_MIN || a.step[0] > INT16_MAX) illegal("a step has 16 bits");
    side.step = a.step[0] * side.where->bytes;
    side.hi = side.where->bytes;
    for (int i = 1; i < a.num_dims; ++i) {
      const auto u = static_cast<size_t>(i);
      const int64_t step = a.step_bytes(i), reach = step * (int64_t{a.size[u]} - 1);
      (reach < 0 ? side.lo : side.hi) += reach;
      const auto d = static_cast<size_t>(side.rest.dims++);
      side.rest.size[d] = a.size[u];
      side.rest.step[d] = step;
    }
    side.limit =
        a.space == isa::Space::kSbuf ? sizes_.sbuf_bytes_per_partition : sizes_.psum_bytes_per_partition;
    // What the kernel sees: rows of n packed elements.
    Operand& staged = arena_.operands.emplace_back(*side.where);
    staged.address_register = isa::kNoRegister;
    staged.base = staged.offset = 0;
    staged.pitch = staged.n * staged.bytes;
    staged.pattern = {};
    staged.pattern.dims = staged.n > 1 ? 1 : 0;
    staged.pattern.size[0] = staged.n;
    staged.pattern.step[0] = staged.bytes;
    staged.dense = true;
    staged.direct_f32 = false;
    *operands[s] = plan->staged[s] = &staged;
  }
  p->indirect = plan;
}

namespace {

// Moves all elements between memory and the staged copy.
void move(Context& c, const Prepared& p, const IndirectPlan::Side& side, std::byte* staged, bool gather) {
  const Operand& o = *side.where;
  const Operand& list = *side.list;
  const std::byte* entries = c.at(p, list);
  std::byte* memory = c.at(p, o);
  Operand rest = o;
  rest.pattern = side.rest;
  const int64_t per_entry = side.rest.elements();
  const int64_t pitch = o.n * o.bytes;
  const auto copy = row_kernels().copy_raw[o.bytes];
  for (int64_t e = 0; e < side.entries; ++e) {
    const std::byte* at = entries + e % list.rows * list.pitch + element_offset(list, e / list.rows);
    const int64_t index = isa::load_as_int(list.dtype, at);
    const int64_t offset = index * side.step;
    if (o.offset + offset + side.lo < 0 || o.offset + offset + side.hi > side.limit) {
      throw Fault{Status::Kind::kOutOfBounds, "entry " + std::to_string(e) + " of an index list is " +
                                                  std::to_string(index) + ": byte " +
                                                  std::to_string(o.offset + offset) + " of a partition of " +
                                                  std::to_string(side.limit) + " bytes; at " + c.where(p)};
    }
    for_each_run(rest, 0, per_entry, [&](int64_t run, int64_t first, int64_t length, int64_t step) {
      std::byte* far = memory + offset + run;
      std::byte* near = staged + (e * per_entry + first) * o.bytes;
      if (gather) {
        copy(far, o.pitch, step, near, pitch, o.bytes, o.rows, length);
      } else {
        copy(near, pitch, o.bytes, far, o.pitch, step, o.rows, length);
      }
    });
  }
}

}  // namespace

void execute_indirect(Context& c, const Prepared& p) {
  const IndirectPlan& plan = *p.indirect;
  std::vector<std::byte> storage[3];
  Operand operands[3];
  Prepared inner = p;
  const Operand** places[3] = {&inner.dst, &inner.src0, &inner.src1};
  for (int s = 0; s < 3; ++s) {
    const IndirectPlan::Side& side = plan.side[s];
    if (side.list == nullptr) continue;
    storage[s].resize(static_cast<size_t>(side.where->elements() * side.where->bytes));
    // dst too: the instruction may keep part of it.
    move(c, p, side, storage[s].data(), true);
    // The staged operand of this side, wherever the kernel's choice has put it (it may swap sources).
    for (const Operand** place : places) {
      if (*place != plan.staged[s]) continue;
      operands[s] = **place;
      operands[s].host = storage[s].data();
      *place = &operands[s];
    }
  }
  plan.inner(c, inner);
  if (plan.side[0].list != nullptr) move(c, p, plan.side[0], storage[0].data(), false);
}

}  // namespace trnsim::exec
