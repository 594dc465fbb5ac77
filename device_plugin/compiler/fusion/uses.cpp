#include "device_plugin/compiler/fusion/uses.h"

namespace trnsim::compiler::fusion {
namespace {

struct Uses {
  std::vector<Use> list;
  void add(View& v, bool reads, bool writes) {
    if (v.buffer >= 0) list.push_back({&v, reads, writes});
  }
  void in(View& v) { add(v, true, false); }
  void out(View& v) { add(v, false, true); }

  void operator()(MapKernel& k) {
    for (View& v : k.inputs) in(v);
    for (auto& o : k.outputs) out(o.view);
  }
  void operator()(DotKernel& k) {
    in(k.a);
    in(k.b);
    for (View& v : k.extra) in(v);
    out(k.out);
  }
  void operator()(ConvKernel& k) {
    using Mode = ConvKernel::Mode;
    add(k.input, k.mode != Mode::kInputGrad, k.mode == Mode::kInputGrad);
    add(k.weight, k.mode != Mode::kWeightGrad, k.mode == Mode::kWeightGrad);
    in(k.bias);
    for (View& v : k.extra) in(v);
    add(k.out, k.mode != Mode::kForward, k.mode == Mode::kForward);
  }
  void operator()(WindowKernel& k) {
    using Mode = WindowKernel::Mode;
    const bool forward = k.mode == Mode::kMaxForward || k.mode == Mode::kAvgForward;
    add(k.input, forward, !forward);
    add(k.indices, !forward, forward);
    add(k.out, !forward, forward);
  }
  void operator()(MoveKernel& k) {
    in(k.src);
    out(k.dst);
  }
  void operator()(GatherKernel& k) {
    in(k.src);
    for (View& v : k.index) in(v);
    out(k.out);
  }
  void operator()(ScatterKernel& k) {
    in(k.src);
    for (View& v : k.index) in(v);
    add(k.out, true, true);
  }
  void operator()(ScanKernel& k) {
    in(k.input);
    out(k.out);
  }
  void operator()(TopKernel& k) {
    in(k.input);
    out(k.values);
    out(k.indices);
  }
  void operator()(RandomKernel& k) {
    in(k.probability);
    out(k.out);
  }
  void operator()(CheckKernel& k) { in(k.row); }
  void operator()(AttentionKernel& k) {
    for (View* v : {&k.q, &k.k, &k.v, &k.mask}) in(*v);
    for (View* v : {&k.out, &k.lse}) out(*v);
  }
  void operator()(AttentionGradKernel& k) {
    AttentionKernel& f = k.forward;
    for (View* v : {&f.q, &f.k, &f.v, &f.mask, &f.out, &f.lse, &k.grad_out}) in(*v);
    for (View* v : {&k.grad_q, &k.grad_k, &k.grad_v}) out(*v);
  }
};

}  // namespace

std::vector<Use> uses_of(Kernel& kernel) {
  Uses uses;
  std::visit(uses, kernel);
  return uses.list;
}

std::vector<bool> read_buffers(const KernelList& list) {
  std::vector<bool> read(list.buffers.size(), false);
  for (Kernel kernel : list.kernels)
    for (const Use& use : uses_of(kernel))
      if (use.reads) read[static_cast<size_t>(use.view->buffer)] = true;
  return read;
}

std::vector<int> memory_of_buffers(const std::vector<Buffer>& buffers) {
  std::vector<int> memory;
  for (const Buffer& b : buffers) {
    memory.push_back(static_cast<int>(memory.size()));
    if (b.kind != Buffer::Kind::kOutput || b.alias_input < 0) continue;
    for (size_t j = 0; j < buffers.size(); ++j) {
      if (buffers[j].kind == Buffer::Kind::kInput && buffers[j].index == b.alias_input)
        memory.back() = static_cast<int>(j);
    }
  }
  return memory;
}

}  // namespace trnsim::compiler::fusion
