#include "device_plugin/compiler/fusion/split_readers.h"

#include <algorithm>
#include <optional>

#include "device_plugin/compiler/fusion/flow.h"
#include "device_plugin/compiler/fusion/views.h"

namespace trnsim::compiler::fusion {
namespace {

constexpr int64_t kMinRunBytes = 64;
constexpr int64_t kSmallElements = 16 * 1024;
constexpr size_t kMaxParts = 4;

struct Interval {
  int axis = -1;  // -1: all of the view
  int64_t lo = 0, hi = 0;
};

// The part of `read` that `written` covers, when it is one interval of one axis.
std::optional<Interval> covered(const View& read, const View& written) {
  if (meet(written, read) == Meeting::kCovers) return Interval{};
  const size_t rank = read.sizes.size();
  std::vector<int64_t> counts(rank, 1);
  std::vector<size_t> moving;
  for (size_t d = 0; d < rank; ++d) {
    if (read.sizes[d] == 1 || read.strides[d] == 0) continue;
    if (read.strides[d] < 0) return std::nullopt;
    moving.push_back(d);
  }
  std::stable_sort(moving.begin(), moving.end(),
                   [&](size_t a, size_t b) { return read.strides[a] > read.strides[b]; });
  for (size_t x = 0; x < written.sizes.size(); ++x) {
    if (written.sizes[x] == 1) continue;
    const auto same = std::find_if(moving.begin(), moving.end(), [&](size_t d) {
      return read.strides[d] == written.strides[x] && counts[d] == 1;
    });
    if (same == moving.end()) return std::nullopt;
    counts[*same] = written.sizes[x];
  }
  int64_t rest = written.offset - read.offset;
  if (rest < 0 || read.dtype != written.dtype) return std::nullopt;
  Interval result;
  for (size_t d : moving) {
    const int64_t lo = rest / read.strides[d];
    rest %= read.strides[d];
    if (lo + counts[d] > read.sizes[d]) return std::nullopt;
    if (counts[d] == read.sizes[d]) continue;
    if (result.axis >= 0) return std::nullopt;
    result = {static_cast<int>(d), lo, lo + counts[d]};
  }
  return rest == 0 ? std::optional<Interval>(result) : std::nullopt;
}

MapKernel part_of(const MapKernel& kernel, size_t axis, int64_t lo, int64_t hi) {
  MapKernel part = kernel;
  part.domain[axis] = hi - lo;
  auto cut = [&](View& v) {
    v.offset += lo * v.strides[axis];
    v.sizes[axis] = hi - lo;
  };
  for (View& v : part.inputs) cut(v);
  for (auto& o : part.outputs) cut(o.view);
  return part;
}

bool is_pointwise(const MapKernel& k) {
  return k.num_kept == static_cast<int32_t>(k.domain.size()) &&
         std::none_of(k.exprs.begin(), k.exprs.end(), [](const Expr& e) { return e.op == ExprOp::kReduce; });
}

class Splitter {
 public:
  explicit Splitter(KernelList& list) : list_(list), buffers_(list.buffers.size()) {}

  void run() {
    for (Kernel& k : list_.kernels) {
      const auto* map = std::get_if<MapKernel>(&k);
      const bool pointwise = map && is_pointwise(*map);
      const bool writes_parts = map || std::holds_alternative<MoveKernel>(k);
      for (const Use& use : uses_of(k)) {
        Parts& b = buffers_[static_cast<size_t>(use.view->buffer)];
        if ((use.reads && !pointwise) || (use.writes && !writes_parts)) b.fixed = true;
      }
    }
    for (size_t i = 0; i < list_.kernels.size(); ++i) {
      Kernel& k = list_.kernels[i];
      const std::string location = i < list_.locations.size() ? list_.locations[i] : std::string();
      std::vector<Kernel> parts;
      if (auto* map = std::get_if<MapKernel>(&k); map && is_pointwise(*map)) {
        split(*map, kMaxParts, parts);
      } else {
        parts.push_back(std::move(k));
      }
      for (Kernel& p : parts) {
        for (const Use& use : uses_of(p)) {
          if (use.writes) note(*use.view);
        }
        kernels_.push_back(std::move(p));
        locations_.push_back(location);
      }
    }
    list_.kernels = std::move(kernels_);
    list_.locations = std::move(locations_);
  }

 private:
  struct Parts {
    bool fixed = false;  // has to be in memory as a whole
    std::vector<View> written;
  };

  void note(const View& v) {
    std::vector<View>& written = buffers_[static_cast<size_t>(v.buffer)].written;
    written.erase(std::remove_if(written.begin(), written.end(),
                                 [&](const View& w) { return meet(v, w) == Meeting::kCovers; }),
                  written.end());
    written.push_back(v);
  }

  // Where an input falls into parts: the axis and the cuts.
  bool cuts_of(const MapKernel& k, const View& read, int& axis, std::vector<int64_t>& cuts) const {
    const Parts& parts = buffers_[static_cast<size_t>(read.buffer)];
    if (parts.fixed || parts.written.size() < 2 || parts.written.size() > kMaxParts ||
        list_.buffers[static_cast<size_t>(read.buffer)].kind != Buffer::Kind::kScratch)
      return false;
    axis = -1;
    cuts.clear();
    for (const View& w : parts.written) {
      if (meet(w, read) == Meeting::kDisjoint) continue;
      const std::optional<Interval> i = covered(read, w);
      if (!i || (i->axis >= 0 && axis >= 0 && i->axis != axis)) return false;
      if (i->axis < 0) continue;
      axis = i->axis;
      cuts.push_back(i->lo);
      cuts.push_back(i->hi);
    }
    if (axis < 0) return false;
    const int64_t size = k.domain[static_cast<size_t>(axis)];
    cuts.push_back(0);
    cuts.push_back(size);
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    const bool indexed = std::any_of(k.exprs.begin(), k.exprs.end(),
                                     [&](const Expr& e) { return e.op == ExprOp::kIota && e.index == axis; });
    int64_t elements = 1, shortest = size;
    for (int64_t s : k.domain) elements *= s;
    for (size_t c = 1; c < cuts.size(); ++c) shortest = std::min(shortest, cuts[c] - cuts[c - 1]);
    const int64_t run = read.strides[static_cast<size_t>(axis)] * shortest *
                        static_cast<int64_t>(isa::dtype_bytes(read.dtype));
    return !indexed && cuts.size() > 2 && (run >= kMinRunBytes || elements <= kSmallElements);
  }

  void split(const MapKernel& k, size_t budget, std::vector<Kernel>& out) {
    int axis;
    std::vector<int64_t> cuts;
    const bool empty = std::find(k.domain.begin(), k.domain.end(), 0) != k.domain.end();
    // A part may not write what another one reads.
    const bool in_place = std::any_of(k.outputs.begin(), k.outputs.end(), [&](const auto& o) {
      return list_.buffers[static_cast<size_t>(o.view.buffer)].alias_input >= 0 ||
             std::any_of(k.inputs.begin(), k.inputs.end(),
                         [&](const View& v) { return v.buffer == o.view.buffer; });
    });
    for (const View& read : k.inputs) {
      if (empty || in_place || !cuts_of(k, read, axis, cuts) || cuts.size() - 1 > budget) continue;
      for (size_t c = 1; c < cuts.size(); ++c)
        split(part_of(k, static_cast<size_t>(axis), cuts[c - 1], cuts[c]), budget / (cuts.size() - 1), out);
      return;
    }
    out.emplace_back(k);
  }

  KernelList& list_;
  std::vector<Parts> buffers_;
  std::vector<Kernel> kernels_;
  std::vector<std::string> locations_;
};

}  // namespace

void split_readers(KernelList& list) { Splitter(list).run(); }

}  // namespace trnsim::compiler::fusion
