#include "sim/check/hbm_memory.h"

#include <algorithm>

#include "isa/table.h"

namespace trnsim::check {

HbmMemory::HbmMemory(const isa::Program& program, const std::vector<TensorPlace>& places, Finds* finds)
    : places_(places), finds_(finds) {
  const size_t tensors = program.tensors.size();
  for (size_t t = places_.size(); t < tensors; ++t) places_.push_back({static_cast<uint32_t>(t), 0, 0});
  for (const TensorPlace& p : places_) {
    if (p.group >= groups_.size()) groups_.resize(p.group + size_t{1});
  }
  for (size_t t = 0; t < tensors; ++t) {
    const isa::TensorKind kind = program.tensors[t].kind;
    if (kind == isa::TensorKind::kInput || kind == isa::TensorKind::kConstant)
      groups_[places_[t].group].has_input = true;
    const auto& [group, base, values] = places_[t];
    if (values > 0) initialise(groups_[group], base, base + values);
  }
  for (size_t e = 0; e < program.streams.size(); ++e) {
    for (const isa::Instruction& i : program.streams[e]) {
      if (!i.is_dma() && i.opcode != isa::Opcode::kRegLoad && i.opcode != isa::Opcode::kRegStore) continue;
      isa::for_each_operand(i, [&](auto, isa::Role role, const isa::Access& a) {
        if (a.space != isa::Space::kHbm || a.tensor >= tensors) return;
        Group& g = groups_[places_[a.tensor].group];
        g.streams = static_cast<uint16_t>(g.streams | 1u << e);
        if (role != isa::Role::kRead) g.written = true;
        if (role != isa::Role::kWrite) g.read = true;
      });
    }
  }
}

void HbmMemory::touch(const Access& a, int64_t move) {
  const Operand& o = *a.operand;
  const TensorPlace place = places_[o.tensor];
  Group& g = groups_[place.group];
  const bool tracked = g.read && !g.has_input;
  if (!g.written && !tracked) return;
  move += place.base;
  Record own;
  own.who = a.self;
  own.use = o.use;
  own.lo = o.region.lo + move;
  own.hi = own.lo + o.region.span;
  own.move = move;
  const bool writing = writes(o.use);
  for (const Record& r : g.records) {
    if (r.hi <= own.lo || r.lo >= own.hi || (!writing && !writes(r.use))) continue;
    if (a.known(r.who) || (r.who.agent == a.self.agent && r.who.clock == a.self.clock)) continue;
    if (!overlap(r.region, r.move, o.region, move)) continue;
    finds_->race(a, r.who, r.use, Meant::kUnknown,
                 {std::max(r.lo, own.lo) - place.base, std::min(r.hi, own.hi) - place.base, 0, 0});
  }
  if (tracked) {
    if (o.use != Use::kWrite) check_initialised(g, a, move, place.base);
    if (writing) initialise(g, a, move);
  }
  own.region = o.region;
  g.records.push_back(own);
  if (g.records.size() >= g.tidy_at) tidy(g, *a.order);
}

void HbmMemory::tidy(Group& g, const Order& order) const {
  std::array<uint32_t, kMaxAgents> known{};
  for (int agent = 0; agent < order.agents(); ++agent)
    known[static_cast<size_t>(agent)] = order.known_to_all(static_cast<uint8_t>(agent), g.streams);
  g.records.erase(std::remove_if(g.records.begin(), g.records.end(),
                                 [&](const Record& r) { return known[r.who.agent] >= r.who.clock; }),
                  g.records.end());
  g.tidy_at = std::max<size_t>(32, 2 * g.records.size());
}

void HbmMemory::initialise(Group& g, int64_t lo, int64_t hi) {
  auto it = g.initialised.upper_bound(lo);
  if (it != g.initialised.begin()) {
    auto before = std::prev(it);
    if (before->second >= hi) return;
    if (before->second >= lo) {
      lo = before->first;
      it = before;
    }
  }
  while (it != g.initialised.end() && it->first <= hi) {
    hi = std::max(hi, it->second);
    it = g.initialised.erase(it);
  }
  g.initialised.emplace_hint(it, lo, hi);
}

void HbmMemory::initialise(Group& g, const Access& a, int64_t move) {
  const Region& r = a.operand->region;
  // Which rows an index picks is not known here; that all of them get written is the program's business.
  if (a.operand->indexed) {
    initialise(g, r.lo + move, r.lo + move + r.span);
  } else {
    for_each_run(r, move, [&](int64_t lo, int64_t hi) { initialise(g, lo, hi); });
  }
}

void HbmMemory::check_initialised(const Group& g, const Access& a, int64_t move, int64_t base) {
  const Region& r = a.operand->region;
  if (a.operand->indexed) {
    if (g.initialised.empty()) finds_->unwritten(a, {r.lo + move - base, r.lo + move + r.span - base, 0, 0});
    return;
  }
  bool told = false;
  for_each_run(r, move, [&](int64_t lo, int64_t hi) {
    if (told) return;
    const auto it = g.initialised.upper_bound(lo);
    const int64_t from = it == g.initialised.begin() ? lo : std::max(lo, std::prev(it)->second);
    if (from >= hi) return;
    told = true;
    finds_->unwritten(
        a, {from - base, it == g.initialised.end() ? hi - base : std::min(hi, it->first) - base, 0, 0});
  });
}

}  // namespace trnsim::check
