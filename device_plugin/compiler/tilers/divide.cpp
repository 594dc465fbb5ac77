#include "device_plugin/compiler/tilers/divide.h"

#include <algorithm>

#include "device_plugin/compiler/cost.h"
#include "device_plugin/compiler/fusion/uses.h"
#include "device_plugin/compiler/fusion/views.h"
#include "device_plugin/compiler/tilers/access_math.h"
#include "device_plugin/compiler/tilers/tilers.h"
#include "sim/config/config.h"

namespace trnsim::compiler {
namespace {

using fusion::Use;
using fusion::uses_of;

// What a barrier costs beside the wait for the slower core: transfers end before it, engines fill again behind it.
constexpr double kBarrierNs = 6000;
constexpr double kKernelNs = 2000;  // latency of a kernel's first loads and last stores
constexpr double kMinProgramNs = 10000;
constexpr double kMinGain = 0.9;         // of the time of one core
constexpr double kElementsPerNs = 200;   // of one expression node, Vector, Scalar and GpSimd together
constexpr double kScoresPerNs = 150;     // of a softmax
constexpr double kConvSlowdown = 4;      // of a convolution against the peak of the systolic array
constexpr double kOtherBytesPerNs = 50;  // of any other kernel

struct Halves {
  Kernel first, second;
};

// Rows of the first half: whole groups of partitions where there are enough.
int64_t middle(int64_t size) {
  const int64_t half = ceil_div(size, 2);
  const int64_t unit = size >= 4 * kPartitions ? kPartitions : size >= 128 ? 32 : 1;
  return ceil_div(half, unit) * unit;
}

// Cuts views of one kernel: each at its own axis.
struct Cut {
  int64_t at, size;
  bool second;
  void operator()(View& v, int axis) const {
    if (v.buffer >= 0) v = view_slice(v, axis, second ? at : 0, second ? size - at : at);
  }
};
template <typename K, typename Fn>
void add_cut(std::vector<Halves>* out, const K& kernel, int64_t size, int64_t at, Fn&& cut) {
  if (at <= 0 || at >= size) return;
  K first = kernel, second = kernel;
  cut(first, Cut{at, size, false});
  cut(second, Cut{at, size, true});
  out->push_back({std::move(first), std::move(second)});
}

bool counts_along(const std::vector<Expr>& exprs, int axis) {
  return std::any_of(exprs.begin(), exprs.end(),
                     [&](const Expr& e) { return e.op == ExprOp::kIota && e.index == axis; });
}

struct Cutter {
  std::vector<Halves> out;

  void operator()(const MapKernel& k) {
    int tried = 0;
    for (int axis = 0; axis < k.num_kept && tried < 3; ++axis) {
      const int64_t size = k.domain[static_cast<size_t>(axis)];
      if (size < 2 || counts_along(k.exprs, axis)) continue;
      ++tried;
      add_cut(&out, k, size, middle(size), [&](MapKernel& m, const Cut& c) {
        m.domain[static_cast<size_t>(axis)] = c.second ? size - c.at : c.at;
        for (View& v : m.inputs) c(v, axis);
        for (auto& o : m.outputs) c(o.view, axis);
      });
    }
  }
  void operator()(const DotKernel& k) {
    const int rank = static_cast<int>(k.out.sizes.size());
    for (int axis = 0; axis < rank; ++axis) {
      const int64_t size = k.out.sizes[static_cast<size_t>(axis)];
      if (counts_along(k.epilogue, axis)) continue;
      add_cut(&out, k, size, middle(size), [&](DotKernel& d, const Cut& c) {
        if (axis != rank - 1) c(d.a, axis);
        if (axis != rank - 2) c(d.b, axis);
        c(d.out, axis);
        for (View& v : d.extra) c(v, axis);
      });
    }
  }
  void operator()(const ConvKernel& k) {
    // Images, and output channels where their weights are apart.
    if (k.mode != ConvKernel::Mode::kWeightGrad && !counts_along(k.epilogue, 0)) {
      const int64_t images = k.input.sizes[0];
      add_cut(&out, k, images, middle(images), [](ConvKernel& v, const Cut& c) {
        c(v.input, 0);
        c(v.out, 0);
        for (View& e : v.extra) c(e, 0);
      });
    }
    if (k.groups != 1 || k.mode == ConvKernel::Mode::kInputGrad || counts_along(k.epilogue, 1)) return;
    const int64_t channels = k.weight.sizes[0];
    add_cut(&out, k, channels, middle(channels), [](ConvKernel& v, const Cut& c) {
      c(v.weight, 0);
      c(v.out, 1);
      c(v.bias, 0);
      for (View& e : v.extra) c(e, 1);
    });
  }
  void operator()(const WindowKernel& k) {
    if (k.input.sizes.size() <= k.kernel.size()) return;
    const int64_t size = k.input.sizes[0];
    add_cut(&out, k, size, middle(size), [](WindowKernel& w, const Cut& c) {
      c(w.input, 0);
      c(w.out, 0);
      c(w.indices, 0);
    });
  }
  void operator()(const MoveKernel& k) {
    if (k.src.sizes != k.dst.sizes) return;
    for (int axis = 0; axis < std::min<int>(2, static_cast<int>(k.dst.sizes.size())); ++axis) {
      const int64_t size = k.dst.sizes[static_cast<size_t>(axis)];
      add_cut(&out, k, size, middle(size), [&](MoveKernel& m, const Cut& c) {
        c(m.src, axis);
        c(m.dst, axis);
      });
    }
  }
  void operator()(const ScanKernel& k) {
    for (int axis = 0; axis < static_cast<int>(k.input.sizes.size()); ++axis) {
      const int64_t size = k.input.sizes[static_cast<size_t>(axis)];
      if (axis == k.axis || size < 2) continue;
      add_cut(&out, k, size, middle(size), [&](ScanKernel& s, const Cut& c) {
        c(s.input, axis);
        c(s.out, axis);
      });
      return;
    }
  }
  void operator()(const TopKernel& k) {
    if (k.input.sizes.size() < 2) return;
    const int64_t size = k.input.sizes[0];
    add_cut(&out, k, size, middle(size), [](TopKernel& t, const Cut& c) {
      c(t.input, 0);
      c(t.values, 0);
      c(t.indices, 0);
    });
  }
  // Batches, or heads with the keys they share.
  static void cut_forward(AttentionKernel& a, const Cut& c, int axis, int64_t heads_per_key) {
    const Cut heads{c.at * heads_per_key, c.size * heads_per_key, c.second};
    heads(a.q, axis);
    c(a.k, axis);
    c(a.v, axis);
    heads(a.mask, axis);
    heads(a.out, axis);
    heads(a.lse, axis);
  }
  template <typename Fn>
  static void each_attention_axis(const AttentionKernel& k, Fn&& fn) {
    for (int axis : {0, 1}) {
      const int64_t size = k.k.sizes[static_cast<size_t>(axis)];
      fn(axis, size, axis == 0 ? 1 : k.q.sizes[1] / size);
    }
  }
  void operator()(const AttentionKernel& k) {
    each_attention_axis(k, [&](int axis, int64_t size, int64_t per_key) {
      add_cut(&out, k, size, ceil_div(size, 2),
              [&](AttentionKernel& a, const Cut& c) { cut_forward(a, c, axis, per_key); });
    });
  }
  void operator()(const AttentionGradKernel& k) {
    each_attention_axis(k.forward, [&](int axis, int64_t size, int64_t per_key) {
      add_cut(&out, k, size, ceil_div(size, 2), [&](AttentionGradKernel& a, const Cut& c) {
        const Cut heads{c.at * per_key, c.size * per_key, c.second};
        cut_forward(a.forward, c, axis, per_key);
        heads(a.grad_out, axis);
        heads(a.grad_q, axis);
        c(a.grad_k, axis);
        c(a.grad_v, axis);
      });
    });
  }
  // Not cut: indices that are checked in words of the whole, streams of random words.
  void operator()(const GatherKernel&) {}
  void operator()(const ScatterKernel&) {}
  void operator()(const CheckKernel&) {}
  void operator()(const RandomKernel&) {}
};

// ---- time ----

struct Rates {
  double half_flops, fp32_flops, bytes;  // per ns, of one core
};

double elements(const View& v) { return static_cast<double>(v.numel()); }

double kernel_ns(Kernel& kernel, const Rates& rates) {
  double bytes = 0, compute = 0;
  for (const Use& use : uses_of(kernel)) {
    bytes += static_cast<double>(fusion::distinct_elements(*use.view)) *
             static_cast<double>(isa::dtype_bytes(use.view->dtype));
  }
  const auto product_ns = [&](double flops, Dtype dtype) {
    return flops / (isa::dtype_bytes(dtype) > 2 ? rates.fp32_flops : rates.half_flops);
  };
  const auto scores = [](const AttentionKernel& a) {
    const double all = elements(a.q) / static_cast<double>(a.q.sizes[3]) * static_cast<double>(a.k.sizes[2]);
    return a.ahead == 0 ? all / 2 : all;
  };
  if (const auto* map = std::get_if<MapKernel>(&kernel)) {
    double n = static_cast<double>(map->exprs.size());
    for (int64_t d : map->domain) n *= static_cast<double>(d);
    compute = n / kElementsPerNs;
  } else if (const auto* dot = std::get_if<DotKernel>(&kernel)) {
    compute = product_ns(2 * elements(dot->out) * static_cast<double>(dot->a.sizes.back()), dot->a.dtype);
  } else if (const auto* conv = std::get_if<ConvKernel>(&kernel)) {
    compute = product_ns(2 * elements(conv->out) * elements(conv->weight) /
                             static_cast<double>(conv->weight.sizes[0]),
                         conv->input.dtype) *
              kConvSlowdown;
  } else if (const auto* attention = std::get_if<AttentionKernel>(&kernel)) {
    compute = scores(*attention) / kScoresPerNs;
  } else if (const auto* grad = std::get_if<AttentionGradKernel>(&kernel)) {
    compute = 3 * scores(grad->forward) / kScoresPerNs;
  } else {
    compute = bytes / kOtherBytesPerNs;
  }
  return kKernelNs + std::max(compute, bytes / rates.bytes);
}

// ---- who touches what ----

struct Touch {
  View view;
  bool writes;
};

class Division {
 public:
  Division(const KernelList& list, const std::string& target, bool always)
      : list_(list), always_(always), memory_(fusion::memory_of_buffers(list.buffers)) {
    const config::Config& c = target_config(target);
    rates_ = {config::peak_half_flops_per_second(c) * 1e-9, config::peak_fp32_flops_per_second(c) * 1e-9,
              std::min(config::hbm_bytes_per_second_per_core(c) * 1e-9, c.hbm.stack_bandwidth_gb_per_s / 2)};
    touched_.resize(list.buffers.size());
    since_[0].resize(list.buffers.size());
    since_[1].resize(list.buffers.size());
  }

  std::optional<CorePlan> run() {
    double alone = 0, together = 0;
    for (size_t k = 0; k < list_.kernels.size(); ++k) {
      Kernel whole = list_.kernels[k];
      const double whole_ns = kernel_ns(whole, rates_);
      alone += whole_ns;
      Cutter cutter;
      std::visit(cutter, whole);
      // The first core alone, or a cut.
      CoreStep best;
      best.on_core[0] = whole;
      bool barrier = meets_other(whole, 0);
      const double barrier_ns = always_ ? 0 : kBarrierNs;
      double cost = whole_ns + (barrier ? barrier_ns : 0);
      if (always_) cost += kKernelNs;
      for (Halves& h : cutter.out) {
        if (conflict(h.first, h.second)) continue;
        const bool needs = meets_other(h.first, 0) || meets_other(h.second, 1);
        const double ns =
            std::max(kernel_ns(h.first, rates_), kernel_ns(h.second, rates_)) + (needs ? barrier_ns : 0);
        if (ns >= cost) continue;
        cost = ns;
        barrier = needs;
        best.on_core[0] = std::move(h.first);
        best.on_core[1] = std::move(h.second);
      }
      together += cost;
      if (barrier) {
        CoreStep meeting;
        meeting.barrier = true;
        plan_.steps.push_back(meeting);
        ++plan_.barriers;
        for (auto& core : since_) {
          for (auto& list : core) list.clear();
        }
      }
      for (int core = 0; core < 2; ++core) {
        if (best.on_core[core]) note(*best.on_core[core], core);
      }
      if (k < list_.locations.size()) best.location = list_.locations[k];
      plan_.steps.push_back(std::move(best));
    }
    if (!always_ && (alone < kMinProgramNs || together > kMinGain * alone)) return std::nullopt;
    for (size_t b = 0; b < touched_.size(); ++b) {
      const Sides& s = touched_[static_cast<size_t>(memory_[b])];
      if (s.by[0] && s.by[1] && s.written) plan_.shared.push_back(static_cast<int32_t>(b));
    }
    return std::move(plan_);
  }

 private:
  struct Sides {
    bool by[2] = {}, written = false;
  };

  size_t memory(const View& v) const { return static_cast<size_t>(memory_[static_cast<size_t>(v.buffer)]); }

  static bool clash(const View& a, bool a_writes, const View& b, bool b_writes) {
    return (a_writes || b_writes) && fusion::meet(a, b) != fusion::Meeting::kDisjoint;
  }

  bool conflict(Kernel& a, Kernel& b) const {
    const std::vector<Use> other = uses_of(b);
    for (const Use& x : uses_of(a)) {
      for (const Use& y : other) {
        if (memory(*x.view) == memory(*y.view) && clash(*x.view, x.writes, *y.view, y.writes)) return true;
      }
    }
    return false;
  }

  // Does it touch what the other core has written since the last barrier, or write what it has touched?
  bool meets_other(Kernel& kernel, int core) const {
    for (const Use& use : uses_of(kernel)) {
      for (const Touch& t : since_[1 - core][memory(*use.view)]) {
        if (clash(*use.view, use.writes, t.view, t.writes)) return true;
      }
    }
    return false;
  }

  void note(Kernel& kernel, int core) {
    for (const Use& use : uses_of(kernel)) {
      since_[core][memory(*use.view)].push_back({*use.view, use.writes});
      Sides& s = touched_[memory(*use.view)];
      s.by[core] = true;
      s.written = s.written || use.writes;
    }
  }

  const KernelList& list_;
  const bool always_;
  Rates rates_{};
  const std::vector<int> memory_;
  std::vector<Sides> touched_;
  std::vector<std::vector<Touch>> since_[2];  // per core and memory, since the last barrier
  CorePlan plan_;
};

}  // namespace

std::optional<CorePlan> divide(const KernelList& list, const std::string& target, bool always) {
  return Division(list, target, always).run();
}

}  // namespace trnsim::compiler
