#include "device_plugin/compiler/fusion/join.h"

#include <algorithm>

#include "device_plugin/compiler/fusion/views.h"
#include "device_plugin/compiler/lower.h"

namespace trnsim::compiler::fusion {
namespace {

// Where the axes of a form lie in the joined form.
struct Placement {
  std::vector<int> axis;       // -1: the axis stands still at `start`
  std::vector<int64_t> start;  // index 0 of the joined axis is this index
};

Placement identity(const MapForm& f) {
  Placement p;
  for (size_t d = 0; d < f.rank(); ++d) p.axis.push_back(static_cast<int>(d));
  p.start.assign(f.rank(), 0);
  return p;
}

View placed(const View& v, const Placement& p, size_t rank) {
  View out = v;
  out.strides.assign(rank, 0);
  for (size_t d = 0; d < p.axis.size(); ++d) {
    out.offset += p.start[d] * v.strides[d];
    if (p.axis[d] >= 0) out.strides[static_cast<size_t>(p.axis[d])] += v.strides[d];
  }
  return out;
}

bool same_elements(const MapForm& joined, const View& a, const View& b) {
  if (a.buffer != b.buffer || a.dtype != b.dtype || a.offset != b.offset) return false;
  for (size_t d = 0; d < joined.rank(); ++d) {
    if (joined.sizes[d] > 1 && a.strides[d] != b.strides[d]) return false;
  }
  return true;
}

// Builds the joined form, whose sizes and roles are set.
class Joiner {
 public:
  explicit Joiner(MapForm& joined) : joined_(joined), merger_(joined.exprs) {}

  // The expressions of `f`. `inlined(i)` is the expression that stands for input i, or -1.
  template <typename Inlined>
  std::vector<int32_t> add(const MapForm& f, const Placement& p, Inlined inlined) {
    std::vector<int32_t> renamed;
    for (const Expr& original : f.exprs) {
      Expr e = original;
      for (int32_t* o : {&e.a, &e.b, &e.c}) {
        if (*o >= 0) *o = renamed[static_cast<size_t>(*o)];
      }
      if (e.op == ExprOp::kInput) {
        const size_t i = static_cast<size_t>(e.index);
        const int32_t other = inlined(i);
        if (other >= 0) {
          renamed.push_back(other);
          continue;
        }
        e.index = input(f.inputs[i], p);
      }
      renamed.push_back(e.op == ExprOp::kIota ? index(e, p) : merger_.add(e));
    }
    return renamed;
  }
  ExprMerger& merger() { return merger_; }

 private:
  int32_t input(const MapForm::Input& i, const Placement& p) {
    MapForm::Input moved = i;
    moved.view = placed(i.view, p, joined_.rank());
    for (size_t k = 0; k < joined_.inputs.size(); ++k) {
      MapForm::Input& have = joined_.inputs[k];
      if (have.value != moved.value || !same_elements(joined_, have.view, moved.view)) continue;
      for (int v : moved.others) {
        if (std::find(have.others.begin(), have.others.end(), v) == have.others.end())
          have.others.push_back(v);
      }
      return static_cast<int32_t>(k);
    }
    joined_.inputs.push_back(std::move(moved));
    return static_cast<int32_t>(joined_.inputs.size() - 1);
  }

  int32_t index(const Expr& e, const Placement& p) {
    const size_t axis = static_cast<size_t>(e.index);
    Expr start;
    start.dtype = e.dtype;
    start.value = static_cast<double>(p.start[axis]);
    if (p.axis[axis] < 0) return merger_.add(start);
    Expr moved = e;
    moved.index = p.axis[axis];
    const int32_t i = merger_.add(moved);
    if (p.start[axis] == 0) return i;
    Expr sum;
    sum.op = ExprOp::kAdd;
    sum.dtype = e.dtype;
    sum.a = i;
    sum.b = merger_.add(start);
    return merger_.add(sum);
  }

  MapForm& joined_;
  ExprMerger merger_;
};

// Results and operands in one memory: in place, element by element, or apart.
bool memory_legal(Flow& flow, const MapForm& f) {
  const bool full_results =
      std::any_of(f.outputs.begin(), f.outputs.end(), [](const auto& o) { return !o.row; });
  for (size_t k = 0; k < f.outputs.size(); ++k) {
    const auto& o = f.outputs[k];
    const int memory = flow.memory_of(o.view.buffer);
    for (size_t l = 0; l < k; ++l) {
      const View& other = f.outputs[l].view;
      if (flow.memory_of(other.buffer) == memory &&
          meet(f.sized(o.view), f.sized(other)) != Meeting::kDisjoint)
        return false;
    }
    for (const auto& i : f.inputs) {
      if (i.view.buffer < 0 || flow.memory_of(i.view.buffer) != memory) continue;
      View read = i.view;
      read.buffer = o.view.buffer;
      const bool in_place = same_elements(f, read, o.view) && !(o.row && full_results);
      if (!in_place && meet(f.sized(o.view), f.sized(i.view)) != Meeting::kDisjoint) return false;
    }
  }
  return true;
}

std::vector<int> unpaired(const MapForm& second, const Match& match) {
  std::vector<int> axes;
  for (size_t d = 0; d < second.rank(); ++d) {
    const int axis = static_cast<int>(d);
    const bool paired = std::find(match.axis.begin(), match.axis.end(), axis) != match.axis.end();
    if (!paired && second.sizes[d] > 1) axes.push_back(axis);
  }
  return axes;
}

std::vector<int> reduced_axes(const MapForm& f) {
  std::vector<int> axes;
  for (size_t d = 0; d < f.rank(); ++d) {
    if (f.reduced[d] && f.sizes[d] > 1) axes.push_back(static_cast<int>(d));
  }
  return axes;
}

// The operands that tell how the reduced axes of a row producer lie against the free axes of its consumer: a value that
// both read, or else the largest operands.
struct Hint {
  const View* first = nullptr;
  const View* second = nullptr;
};
Hint row_hint(const MapForm& first, const std::vector<int>& a, const MapForm& second,
              const std::vector<int>& b) {
  auto moves = [](const View& v, const std::vector<int>& axes) {
    return std::all_of(axes.begin(), axes.end(),
                       [&](int d) { return v.strides[static_cast<size_t>(d)] != 0; });
  };
  Hint hint;
  for (const auto& i : first.inputs) {
    if (!moves(i.view, a)) continue;
    if (!hint.first) hint.first = &i.view;
    for (const auto& j : second.inputs) {
      if (i.value == j.value && i.view.buffer == j.view.buffer && moves(j.view, b)) return {&i.view, &j.view};
    }
  }
  for (const auto& o : second.outputs) {
    if (!hint.second && moves(o.view, b)) hint.second = &o.view;
  }
  for (const auto& j : second.inputs) {
    if (!hint.second && moves(j.view, b)) hint.second = &j.view;
  }
  return hint;
}

}  // namespace

std::string joined_location(const std::string& first, const std::string& second) {
  constexpr size_t kMaxLength = 200;
  const std::string between = " + ";
  auto part_of = [&](const std::string& whole, const std::string& part) {
    return (between + whole + between).find(between + part + between) != std::string::npos;
  };
  if (first.empty() || part_of(second, first)) return second;
  if (second.empty() || part_of(first, second)) return first;
  if (first.size() + second.size() > kMaxLength) return first.size() > second.size() ? first : second;
  return first + between + second;
}

std::optional<Joined> join_maps(Flow& flow, MapForm first, int second_node, bool inline_only) {
  MapForm second = *flow.node(second_node).map;
  auto result_of = [&](int v) -> const MapForm::Output* {
    for (const auto& o : first.outputs) {
      if (o.value == v) return &o;
    }
    return nullptr;
  };
  // Elements read from a result of `first` that is not the newest value there cannot be told apart.
  const MapForm::Output* through = nullptr;
  const MapForm::Input* read = nullptr;
  for (const auto& i : second.inputs) {
    const MapForm::Output* o = result_of(i.value);
    if (o && !through) {
      through = o;
      read = &i;
    }
    if (o || inline_only) continue;
    for (const auto& w : first.outputs) {
      if (flow.memory_of(w.view.buffer) == flow.memory_of(i.view.buffer) &&
          meet(first.sized(w.view), second.sized(i.view)) != Meeting::kDisjoint)
        return std::nullopt;
    }
  }
  if (!through) return std::nullopt;
  std::optional<Match> match = align(first, through->view, second, read->view);
  if (!match) return std::nullopt;

  // ---- the axes of the joined map
  Joined result;
  MapForm& joined = result.form;
  const std::vector<int> rows = reduced_axes(first);
  std::vector<int> left = unpaired(second, *match);
  Placement at_first{match->axis, match->start}, at_second = identity(second);
  bool first_as_rows = false, second_as_rows = false;
  if (first.reduces()) {
    if (inline_only || !match->whole) return std::nullopt;
    if (through->row && left.empty() && !second.reduces()) {
      // A map over the rows alone.
      second_as_rows = true;
      at_first = identity(first);
      at_second.axis.assign(second.rank(), -1);
      for (size_t d = 0; d < first.rank(); ++d) {
        if (match->axis[d] >= 0) at_second.axis[static_cast<size_t>(match->axis[d])] = static_cast<int>(d);
      }
      joined.sizes = first.sizes;
      joined.reduced = first.reduced;
    } else {
      if (through->row) {
        const Hint hint = row_hint(first, rows, second, left);
        if (!hint.first || !hint.second) return std::nullopt;
        if (!pair_axes(first, rows, *hint.first, second, left, *hint.second, *match)) return std::nullopt;
        at_second = identity(second);
        at_first = {match->axis, match->start};
      } else if (!left.empty()) {
        return std::nullopt;
      }
      joined.sizes = second.sizes;
      joined.reduced.assign(second.rank(), false);
      for (size_t d = 0; d < first.rank(); ++d) {
        if (first.reduced[d] && match->axis[d] >= 0)
          joined.reduced[static_cast<size_t>(match->axis[d])] = true;
      }
      if (std::find(joined.reduced.begin(), joined.reduced.end(), true) == joined.reduced.end())
        return std::nullopt;  // rows of one element
      for (size_t d = 0; second.reduces() && d < second.rank(); ++d) {
        if (second.sizes[d] > 1 && second.reduced[d] != joined.reduced[d]) return std::nullopt;
      }
    }
  } else {
    joined.sizes = second.sizes;
    joined.reduced = second.reduced;
    const bool same = match->whole && left.empty();
    first_as_rows = match->whole && !left.empty() && second.reduces() && left == reduced_axes(second);
    result.keeps_first = !inline_only && (same || first_as_rows);
  }

  // ---- results of `first` that stay
  std::vector<const MapForm::Output*> stay;
  for (const auto& o : first.outputs) {
    if (inline_only) break;
    if (!flow.needed_besides(o.value, second_node)) continue;
    if (!result.keeps_first) return std::nullopt;
    stay.push_back(&o);
  }

  // ---- expressions
  Joiner joiner(joined);
  const std::vector<int32_t> of_first = joiner.add(first, at_first, [](size_t) { return -1; });
  bool legal = true;
  const std::vector<int32_t> of_second = joiner.add(second, at_second, [&](size_t i) {
    const MapForm::Input& in = second.inputs[i];
    const MapForm::Output* o = result_of(in.value);
    if (!o) return -1;
    const View from = placed(o->view, at_first, joined.rank()),
               to = placed(in.view, at_second, joined.rank());
    if (!same_elements(joined, from, to)) {
      legal = legal && inline_only;  // that load stays
      return -1;
    }
    return rounded(joiner.merger(), joined.exprs, joined.inputs, of_first[static_cast<size_t>(o->expr)],
                   o->view.dtype);
  });
  if (!legal) return std::nullopt;
  for (const auto* o : stay) {
    joined.outputs.push_back({placed(o->view, at_first, joined.rank()),
                              of_first[static_cast<size_t>(o->expr)], o->row || first_as_rows, o->value});
  }
  for (const auto& o : second.outputs) {
    joined.outputs.push_back({placed(o.view, at_second, joined.rank()),
                              of_second[static_cast<size_t>(o.expr)], o.row || second_as_rows, o.value});
  }
  prune(joined);
  if (!memory_legal(flow, joined)) return std::nullopt;
  return result;
}

std::optional<Joined> join_siblings(Flow& flow, int first_node, int second_node, int shared) {
  MapForm first = *flow.node(first_node).map, second = *flow.node(second_node).map;
  auto read_of = [&](const MapForm& f) -> const View* {  // the shared operand, if it has every axis
    for (const auto& i : f.inputs) {
      if (i.value == shared && is_injective(f.sized(i.view))) return &i.view;
    }
    return nullptr;
  };
  const View *a = read_of(first), *b = read_of(second);
  if (!a || !b || a->dtype != b->dtype) return std::nullopt;
  const std::optional<Match> match = align(first, *a, second, *b);
  if (!match || !match->whole || !unpaired(second, *match).empty()) return std::nullopt;
  Joined result;
  MapForm& joined = result.form;
  joined.sizes = second.sizes;
  joined.reduced.assign(second.rank(), false);
  for (size_t d = 0; d < first.rank(); ++d) {
    if (match->axis[d] >= 0) joined.reduced[static_cast<size_t>(match->axis[d])] = first.reduced[d];
  }
  if (!first.reduces()) joined.reduced = second.reduced;
  for (size_t d = 0; first.reduces() && second.reduces() && d < second.rank(); ++d) {
    if (second.sizes[d] > 1 && joined.reduced[d] != second.reduced[d]) return std::nullopt;
  }
  if (joined.reduces() != (first.reduces() || second.reduces())) return std::nullopt;
  Joiner joiner(joined);
  const Placement at_first{match->axis, match->start}, at_second = identity(second);
  auto take = [&](const MapForm& f, const Placement& p) {
    const std::vector<int32_t> exprs = joiner.add(f, p, [](size_t) { return -1; });
    for (const auto& o : f.outputs) {
      joined.outputs.push_back(
          {placed(o.view, p, joined.rank()), exprs[static_cast<size_t>(o.expr)], o.row, o.value});
    }
  };
  take(first, at_first);
  take(second, at_second);
  if (!memory_legal(flow, joined)) return std::nullopt;
  return result;
}

}  // namespace trnsim::compiler::fusion
