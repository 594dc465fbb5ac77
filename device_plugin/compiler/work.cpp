#include "device_plugin/compiler/work.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <vector>

namespace trnsim::compiler {
namespace {

uint64_t product(const std::vector<int64_t>& v) {
  uint64_t n = 1;
  for (int64_t s : v) n *= static_cast<uint64_t>(s);
  return n;
}

bool is_arithmetic(ExprOp op) {
  switch (op) {
    case ExprOp::kInput:
    case ExprOp::kParam:
    case ExprOp::kConst:
    case ExprOp::kIota:
    case ExprOp::kCast:
      return false;
    default:
      return true;
  }
}

struct Counter {
  const KernelList& list;
  Work work;

  std::set<std::tuple<int32_t, int64_t, std::vector<int64_t>, std::vector<int64_t>>> touched;

  // Scratch could stay on chip: only what enters and leaves the program counts, and that once. Broadcast elements count
  // once.
  void touch(const View& v) {
    if (v.buffer < 0 || list.buffers[static_cast<size_t>(v.buffer)].kind == Buffer::Kind::kScratch) return;
    if (!touched.emplace(v.buffer, v.offset, v.sizes, v.strides).second) return;
    uint64_t n = 1;
    for (size_t d = 0; d < v.sizes.size(); ++d) {
      if (v.strides[d] != 0 || v.sizes[d] == 0) n *= static_cast<uint64_t>(v.sizes[d]);
    }
    work.hbm_bytes += n * isa::dtype_bytes(v.dtype);
  }
  void operator()(const MapKernel& k) {
    for (const View& v : k.inputs) touch(v);
    for (const auto& o : k.outputs) touch(o.view);
    uint64_t ops = 0;
    for (const Expr& e : k.exprs) ops += is_arithmetic(e.op) ? 1 : 0;
    work.flops += ops * product(k.domain);
  }
  void operator()(const DotKernel& k) {
    touch(k.a);
    touch(k.b);
    touch(k.out);
    for (const View& v : k.extra) touch(v);
    work.flops += 2 * product(k.out.sizes) * static_cast<uint64_t>(k.a.sizes.back());
  }
  void operator()(const ConvKernel& k) {
    touch(k.input);
    touch(k.weight);
    touch(k.out);
    touch(k.bias);
    for (const View& v : k.extra) touch(v);
    // per output element: one multiply-add per weight of its group
    uint64_t taps = product(k.weight.sizes) / std::max<uint64_t>(1, static_cast<uint64_t>(k.weight.sizes[0]));
    work.flops += 2 * product(k.out.sizes) * taps;
  }
  void operator()(const WindowKernel& k) {
    touch(k.input);
    touch(k.out);
    touch(k.indices);
    work.flops += product(k.out.sizes) * product(k.kernel);
  }
  void operator()(const MoveKernel& k) {
    touch(k.src);
    touch(k.dst);
  }
  void operator()(const GatherKernel& k) {
    for (const View& v : k.index) touch(v);
    touch(k.out);
    work.hbm_bytes += product(k.out.sizes) * isa::dtype_bytes(k.src.dtype);
  }
  void operator()(const ScatterKernel& k) {
    for (const View& v : k.index) touch(v);
    touch(k.src);
    uint64_t n = product(k.src.sizes);
    bool add = k.combine == ScatterKernel::Combine::kAdd;
    work.hbm_bytes += n * isa::dtype_bytes(k.out.dtype) * (add ? 2 : 1);
    work.flops += add ? n : 0;
  }
  void operator()(const ScanKernel& k) {
    touch(k.input);
    touch(k.out);
    work.flops += product(k.input.sizes);
  }
  void operator()(const TopKernel& k) {
    touch(k.input);
    touch(k.values);
    touch(k.indices);
  }
  void operator()(const RandomKernel& k) {
    touch(k.out);
    touch(k.probability);
  }
  void operator()(const CheckKernel&) {}
  void operator()(const AttentionKernel& k) {
    for (const View* v : {&k.q, &k.k, &k.v, &k.mask, &k.out, &k.lse}) touch(*v);
    work.flops += attention_products(k) * 2 * static_cast<uint64_t>(k.q.sizes[3] + k.v.sizes[3]);
  }
  void operator()(const AttentionGradKernel& k) {
    const AttentionKernel& f = k.forward;
    for (const View* v :
         {&f.q, &f.k, &f.v, &f.mask, &f.out, &f.lse, &k.grad_out, &k.grad_q, &k.grad_k, &k.grad_v})
      touch(*v);
    // Scores and two gradients contract or make d, two products e.
    work.flops += attention_products(f) * 2 * static_cast<uint64_t>(3 * f.q.sizes[3] + 2 * f.v.sizes[3]);
  }
  // Pairs of query and key that the band lets meet.
  static uint64_t attention_products(const AttentionKernel& k) {
    const int64_t queries = k.q.sizes[2], keys = k.k.sizes[2];
    uint64_t pairs = 0;
    for (int64_t i = 0; i < queries; ++i) {
      const int64_t low = k.behind >= i ? 0 : i - k.behind;
      const int64_t high = k.ahead >= keys - i ? keys : i + k.ahead + 1;
      if (high > low) pairs += static_cast<uint64_t>(high - low);
    }
    return pairs * static_cast<uint64_t>(k.q.sizes[0] * k.q.sizes[1]);
  }
};

}  // namespace

Work count_work(const KernelList& list) {
  Counter counter{list, {}, {}};
  for (const Kernel& k : list.kernels) std::visit(counter, k);
  return counter.work;
}

}  // namespace trnsim::compiler
