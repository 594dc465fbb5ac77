// Loops, first half: which loops stay loops, and the few copies of their bodies that the other passes see.
//
// A loop is written out as copies of `slots` iterations each: two in front, the one that the streams repeat,
// one behind, and the iterations that are left over. Inside a copy the iterations rotate over the buffers,
// and every copy uses the same places, so that all copies but the first look alike. The passes treat the
// copies as straight code; build_streams checks that the waits of the third and fourth copy are the same up
// to the distance of one copy, and then closes the third into a loop.
//
// In a staggered loop the second half of an iteration takes turns with the first half of the next, also across the
// borders of the copies: a copy begins with what the one before it left over.
//
// Only copies of neighbours are analysed, so an iteration must not meet a distant one in HBM. That is proven
// here from the strides; a loop without the proof is unrolled and ordered like any other code.
#include <algorithm>
#include <numeric>

#include "device_plugin/compiler/backend.h"
#include "device_plugin/compiler/backend_region.h"
#include "device_plugin/compiler/error.h"

namespace trnsim::compiler {

using isa::Instruction;
using isa::Space;

namespace {

constexpr int64_t kMinRepeats = 2;
constexpr int kCopiesAround = 3;  // two in front, one behind
constexpr int kMinSlots = 4, kMaxSlots = 12;
// Two staggered iterations compute while the operands of the next come in.
constexpr int64_t kMinStaggered = 3;
constexpr int64_t kDepth = 6;  // iterations in flight beyond which nothing is gained

struct HbmUse {
  const Access* access;
  int64_t stride;
  bool write;
};

// True when no two different iterations touch common bytes of which one writes.
bool iterations_independent(const TileProgram& program, const TileLoop& loop) {
  std::vector<HbmUse> uses;
  for (size_t k = loop.begin; k < loop.end; ++k) {
    Operand operands[6];
    int n = list_operands(const_cast<Instruction&>(program.code[k]), operands);
    for (int j = 0; j < n; ++j) {
      const Access& a = *operands[j].access;
      if (a.space != Space::kHbm) continue;
      int64_t stride = a.address_register == isa::kNoRegister ? 0 : loop.strides[a.address_register];
      uses.push_back({&a, stride, operands[j].write});
    }
  }
  for (const HbmUse& w : uses) {
    if (!w.write) continue;
    for (const HbmUse& u : uses) {
      if (program.alias_group[w.access->tensor] != program.alias_group[u.access->tensor]) continue;
      if (w.stride == u.stride && w.stride != 0) {
        // One stays, the other moves on by 1 .. count - 1 iterations.
        Access later_u = *u.access, later_w = *w.access;
        later_u.offset += u.stride;
        later_w.offset += w.stride;
        if (overlap(region_of(*w.access), region_of(later_u, u.stride, loop.count - 1)) ||
            overlap(region_of(*u.access), region_of(later_w, w.stride, loop.count - 1))) {
          return false;
        }
      } else if (overlap(region_of(*w.access, w.stride, loop.count),
                         region_of(*u.access, u.stride, loop.count))) {
        return false;
      }
    }
  }
  return true;
}

struct Use {
  size_t first = SIZE_MAX, last = 0;
};

std::vector<Use> tile_uses(const TileProgram& program) {
  std::vector<Use> uses(program.tiles.size());
  for (size_t k = 0; k < program.code.size(); ++k) {
    Operand operands[6];
    int n = list_operands(const_cast<Instruction&>(program.code[k]), operands);
    for (int j = 0; j < n; ++j) {
      if (operands[j].access->space == Space::kHbm) continue;
      Use& u = uses[operands[j].access->tensor];
      u.first = std::min(u.first, k);
      u.last = std::max(u.last, k);
    }
  }
  return uses;
}

int64_t capacity_of(const TileProgram& program, Space space) {
  return space == Space::kPsum ? isa::kPsumBankBytes * isa::kPsumBanks
                               : program.options.sbuf_bytes_per_partition;
}

// Iterations that have room side by side, up to kDepth.
int64_t depth_of(const TileProgram& program, const TileLoop& loop, const std::vector<Use>& uses) {
  std::vector<bool> local(program.tiles.size());
  int64_t live[2] = {0, 0};
  for (size_t t = 0; t < local.size(); ++t) {
    if (uses[t].first == SIZE_MAX) continue;
    local[t] = uses[t].first >= loop.begin && uses[t].last < loop.end;
    if (!local[t] && uses[t].first < loop.end && uses[t].last >= loop.begin) {
      live[program.tiles[t].space == Space::kPsum] += program.tiles[t].bytes;
    }
  }
  int64_t fits[2];
  for (Space space : {Space::kSbuf, Space::kPsum}) {
    int at = space == Space::kPsum;
    int64_t window = capacity_of(program, space) - live[at];
    int64_t bytes = choose_layout(program, loop.begin, loop.end, space, local, window).bytes;
    fits[at] = bytes == 0 ? kDepth : window / bytes;
  }
  return std::min({fits[0], fits[1], kDepth});
}

// Iterations per copy: as many as buffers fit, and so that transfers spread evenly over the queues.
int choose_slots(const TileProgram& program, const TileLoop& loop, int64_t depth) {
  if (depth < 1) return 0;
  int loads = 0, stores = 0;
  for (size_t k = loop.begin; k < loop.end; ++k) {
    if (program.code[k].is_dma()) ++(program.code[k].dst.space == Space::kSbuf ? loads : stores);
  }
  int best = 0;
  int64_t best_score = -1;
  for (int slots = kMinSlots; slots <= kMaxSlots; ++slots) {
    int64_t buffers = 1;
    for (int64_t d = 1; d <= depth; ++d) {
      if (slots % d == 0) buffers = d;
    }
    int64_t score = 2 * buffers + (slots * loads % 6 == 0 && slots * stores % 6 == 0);
    if (score > best_score) {
      best = slots;
      best_score = score;
    }
  }
  return best;
}

bool uses_registers(const TileProgram& program) {
  return std::any_of(program.code.begin(), program.code.end(), [](const Instruction& i) {
    return i.is_control() && i.opcode != isa::Opcode::kSemaphore;
  });
}

class Expander {
 public:
  Expander(TileProgram& rolled, TileProgram& out) : rolled_(rolled), out_(out), uses_(tile_uses(rolled)) {}

  void run() {
    bool registers = uses_registers(rolled_);
    size_t at = 0;
    for (size_t l = 0; l < rolled_.loops.size(); ++l) {
      TileLoop& loop = rolled_.loops[l];
      copy_code(at, loop.begin);
      at = loop.end;
      int slots = 0;
      const int64_t depth = depth_of(rolled_, loop, uses_);
      const bool independent = iterations_independent(rolled_, loop);
      loop.staggered = loop.staggered && independent && depth >= kMinStaggered && carries_nothing(loop);
      if (!loop.unrolled && !registers && independent &&
          loop.count >= kMinSlots * (kCopiesAround + kMinRepeats)) {
        slots = choose_slots(rolled_, loop, depth);
        loop.unrolled =
            slots == 0 || loop.count / slots < kCopiesAround + kMinRepeats || !registers_suffice(loop, slots);
      } else {
        loop.unrolled = true;
      }
      if (loop.unrolled) {
        for (int64_t i = 0; i < loop.count; ++i) add_iteration(loop, Origin{}, i, nullptr);
        put_left();
      } else {
        expand(loop, slots, static_cast<uint32_t>(l));
      }
    }
    copy_code(at, rolled_.code.size());
    if (out_.expanded.empty()) out_.origins.clear();
  }

 private:
  void push(Instruction i, const Origin& origin) {
    out_.code.push_back(std::move(i));
    out_.origins.push_back(origin);
  }

  struct Placed {
    Instruction instruction;
    Origin origin;
  };

  // One iteration, or its first half beside what is left of the iteration before. Of each in turn: one instruction of an
  // engine, with the transfers in front of it.
  void put(std::vector<Placed> iteration, bool staggered) {
    size_t now = iteration.size();
    if (staggered) {
      const auto computes = [](const Placed& p) { return !p.instruction.is_dma(); };
      auto half = std::count_if(iteration.begin(), iteration.end(), computes) / 2;
      for (now = 0; half > 0; ++now) half -= computes(iteration[now]);
    }
    const auto turn = [&](std::vector<Placed>& code, size_t& at, size_t end) {
      for (bool more = true; more && at < end; ++at) {
        more = code[at].instruction.is_dma();
        push(std::move(code[at].instruction), code[at].origin);
      }
    };
    for (size_t k = 0, l = 0; k < now || l < left_.size();) {
      turn(left_, l, left_.size());
      turn(iteration, k, now);
    }
    left_.assign(std::make_move_iterator(iteration.begin() + static_cast<std::ptrdiff_t>(now)),
                 std::make_move_iterator(iteration.end()));
  }

  void put_left() { put({}, false); }

  // Nothing stays for a later instruction but in tiles of the iteration: the weights in the array would.
  bool carries_nothing(const TileLoop& loop) const {
    for (size_t k = loop.begin; k < loop.end; ++k) {
      if (rolled_.code[k].opcode == isa::Opcode::kLoadStationary) return false;
      Operand operands[6];
      int n = list_operands(rolled_.code[k], operands);
      for (int j = 0; j < n; ++j) {
        const Access& a = *operands[j].access;
        if (a.space != Space::kHbm && operands[j].write && !local(loop, a.tensor)) return false;
      }
    }
    return true;
  }

  void copy_code(size_t begin, size_t end) {
    for (size_t k = begin; k < end; ++k) push(rolled_.code[k], {});
  }

  // A register holds 32 bits: the step of one copy must fit, and two repeats at least.
  static bool registers_suffice(const TileLoop& loop, int slots) {
    return std::all_of(loop.strides.begin(), loop.strides.end(),
                       [&](int64_t s) { return std::abs(s) <= INT32_MAX / 2 / slots; });
  }

  bool local(const TileLoop& loop, uint32_t tile) const {
    return uses_[tile].first >= loop.begin && uses_[tile].last < loop.end;
  }

  // `twins`: tiles of this slot in the first copy, in order of first use; filled there.
  void add_iteration(const TileLoop& loop, Origin origin, int64_t iteration, std::vector<uint32_t>* twins) {
    origin.iteration = iteration;
    std::vector<std::pair<uint32_t, uint32_t>> fresh;
    std::vector<Placed> code;
    code.reserve(loop.end - loop.begin);
    size_t met = 0;
    auto name = [&](uint32_t tile) {
      for (auto [from, to] : fresh) {
        if (from == tile) return to;
      }
      uint32_t to = static_cast<uint32_t>(out_.tiles.size());
      // The first iteration keeps the numbers of the body, so that none stays unused.
      if (iteration == 0) {
        to = tile;
      } else {
        out_.tiles.push_back(rolled_.tiles[tile]);
      }
      TileInfo& info = out_.tiles[to];
      info.loop = origin.loop;
      info.slot = origin.slot;
      info.order = static_cast<int32_t>(met);
      info.twin = to;
      if (twins && origin.loop >= 0) {
        if (origin.copy == kCopyFirst) {
          twins->push_back(to);
        } else {
          info.twin = (*twins)[met];
        }
      }
      ++met;
      fresh.emplace_back(tile, to);
      return to;
    };
    for (size_t k = loop.begin; k < loop.end; ++k) {
      Instruction i = rolled_.code[k];
      Operand operands[6];
      int n = list_operands(i, operands);
      for (int j = 0; j < n; ++j) {
        Access& a = *operands[j].access;
        if (a.space != Space::kHbm) {
          if (local(loop, a.tensor)) a.tensor = name(a.tensor);
          continue;
        }
        if (a.address_register == isa::kNoRegister) continue;
        a.offset += loop.strides[a.address_register] * iteration;
        if (origin.loop < 0) a.address_register = isa::kNoRegister;
      }
      origin.index = k - loop.begin;
      code.push_back({std::move(i), origin});
    }
    put(std::move(code), loop.staggered);
  }

  // What the copy before left over stands in this copy. `missing`: iterations that the code leaves out between the two.
  void enter_copy(const TileLoop& loop, int32_t copy, int64_t missing) {
    for (Placed& p : left_) {
      p.origin.copy = copy;
      p.origin.iteration += missing;
      Operand operands[6];
      int n = list_operands(p.instruction, operands);
      for (int j = 0; j < n; ++j) {
        Access& a = *operands[j].access;
        if (a.space == Space::kHbm && a.address_register != isa::kNoRegister)
          a.offset += loop.strides[a.address_register] * missing;
      }
    }
  }

  void expand(const TileLoop& loop, int slots, uint32_t source) {
    ExpandedLoop e;
    e.count = loop.count;
    e.slots = slots;
    e.length = loop.end - loop.begin;
    e.staggered = loop.staggered;
    e.strides = loop.strides;
    e.source = source;
    int64_t copies = loop.count / slots;
    e.repeats = copies - kCopiesAround;
    Origin origin;
    origin.loop = static_cast<int32_t>(out_.expanded.size());
    out_.expanded.push_back(e);
    std::vector<std::vector<uint32_t>> twins(slots);
    const int64_t first_of[] = {0, 1, 2, copies - 1, copies};
    for (int32_t c = 0; c < kNumCopies; ++c) {
      int64_t n = c == kCopyRest ? loop.count % slots : slots;
      enter_copy(loop, c, c == kCopyLast ? (e.repeats - 1) * slots : 0);
      for (int64_t s = 0; s < n; ++s) {
        origin.copy = c;
        origin.slot = static_cast<int32_t>(s);
        origin.sequence = c * slots + s;
        add_iteration(loop, origin, first_of[c] * slots + s, &twins[s]);
      }
    }
    put_left();
  }

  TileProgram& rolled_;
  TileProgram& out_;
  std::vector<Use> uses_;
  std::vector<Placed> left_;  // second half of the newest iteration of a staggered loop
};

}  // namespace

TileProgram expand_loops(TileProgram& rolled) {
  TileProgram out;
  out.program = std::move(rolled.program);
  out.tiles = rolled.tiles;
  out.alias_group = rolled.alias_group;
  out.shared = rolled.shared;
  out.options = rolled.options;
  Expander(rolled, out).run();
  return out;
}

}  // namespace trnsim::compiler
