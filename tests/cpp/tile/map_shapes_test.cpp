// Random map kernels and row chains over odd shapes, strides, broadcasts and dtypes; moves and scans.
#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "tests/cpp/tile/harness.h"

using namespace trnsim;
using namespace trnsim::compiler;
using namespace trnsim::compiler::testing;

namespace {

int pick(Random& r, int low, int high) { return std::uniform_int_distribution<int>(low, high)(r); }

// A view of `sizes` on a new buffer: permuted, padded, flipped or broadcast memory.
View random_view(Setup& s, Random& r, Dtype dtype, const std::vector<int64_t>& sizes, Buffer::Kind kind,
                 bool allow_broadcast) {
  View v;
  v.dtype = dtype;
  v.sizes = sizes;
  v.strides.assign(sizes.size(), 0);
  std::vector<int> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  if (pick(r, 0, 2) == 0) std::shuffle(order.begin(), order.end(), r);
  int64_t extent = 1;
  for (int i = static_cast<int>(order.size()) - 1; i >= 0; --i) {
    int d = order[i];
    if (allow_broadcast && pick(r, 0, 3) == 0) continue;
    v.strides[d] = extent;
    extent *= sizes[d];
    if (pick(r, 0, 4) == 0) extent += pick(r, 1, 3);
  }
  v.offset = pick(r, 0, 3) == 0 ? 5 : 0;
  if (kind == Buffer::Kind::kInput && !sizes.empty() && pick(r, 0, 5) == 0) {
    int d = pick(r, 0, static_cast<int>(sizes.size()) - 1);
    v.offset += v.strides[d] * (sizes[d] - 1);
    v.strides[d] = -v.strides[d];
  }
  v.buffer = s.add_buffer(dtype, extent + 8, kind);
  return v;
}

Expr make(ExprOp op, Dtype dtype, int a = -1, int b = -1, int c = -1) {
  Expr e;
  e.op = op;
  e.dtype = dtype;
  e.a = a;
  e.b = b;
  e.c = c;
  return e;
}

std::vector<int64_t> random_domain(Random& r, int64_t limit) {
  static const int64_t kSizes[] = {1, 2, 3, 5, 7, 16, 33, 64, 100, 127, 128, 129, 257, 513, 1000};
  while (true) {
    std::vector<int64_t> d(pick(r, 0, 5));
    int64_t n = 1;
    for (int64_t& s : d) n *= s = kSizes[pick(r, 0, 14)];
    if (n <= limit) return d;
  }
}

Dtype random_float(Random& r) {
  static const Dtype kDtypes[] = {Dtype::kF32,  Dtype::kF32, Dtype::kF32,
                                  Dtype::kBF16, Dtype::kF16, Dtype::kF64};
  return kDtypes[pick(r, 0, 5)];
}

// A float expression of the earlier nodes.
void grow(MapKernel& k, Setup& s, Random& r, int count) {
  for (int i = 0; i < count; ++i) {
    int n = static_cast<int>(k.exprs.size());
    int a = pick(r, 0, n - 1), b = pick(r, 0, n - 1);
    if (k.exprs[a].dtype != Dtype::kF32) a = 0;
    if (k.exprs[b].dtype != Dtype::kF32) b = 0;
    static const ExprOp kBinary[] = {ExprOp::kAdd, ExprOp::kSub, ExprOp::kMul, ExprOp::kMax, ExprOp::kMin};
    static const ExprOp kUnary[] = {ExprOp::kTanh, ExprOp::kSigmoid, ExprOp::kAbs, ExprOp::kNeg,
                                    ExprOp::kRelu};
    switch (pick(r, 0, 6)) {
      case 0:
      case 1:
      case 2:
        k.exprs.push_back(make(kBinary[pick(r, 0, 4)], Dtype::kF32, a, b));
        break;
      case 3:
        k.exprs.push_back(make(kUnary[pick(r, 0, 4)], Dtype::kF32, a));
        break;
      case 4: {
        Expr c;
        c.value = std::uniform_real_distribution<float>(-1, 1)(r);
        if (pick(r, 0, 1)) {
          c.op = ExprOp::kParam;
          c.index = s.add_param(static_cast<float>(c.value));
        }
        k.exprs.push_back(c);
        k.exprs.push_back(make(kBinary[pick(r, 0, 4)], Dtype::kF32, a, n));
        break;
      }
      case 5:
        k.exprs.push_back(make(ExprOp::kGt, Dtype::kBool, a, b));
        k.exprs.push_back(make(ExprOp::kSelect, Dtype::kF32, n, a, b));
        break;
      default:
        if (!k.domain.empty()) {
          Expr e = make(ExprOp::kIota, Dtype::kI32);
          e.index = pick(r, 0, static_cast<int>(k.domain.size()) - 1);
          k.exprs.push_back(e);
          Expr c = make(ExprOp::kCast, Dtype::kF32, n);
          k.exprs.push_back(c);
          Expr scale;
          scale.value = 0.01;
          k.exprs.push_back(scale);
          k.exprs.push_back(make(ExprOp::kMul, Dtype::kF32, n + 1, n + 2));
          k.exprs.push_back(make(ExprOp::kAdd, Dtype::kF32, n + 3, a));
        }
    }
  }
}

void add_inputs(MapKernel& k, Setup& s, Random& r, int count) {
  for (int i = 0; i < count; ++i) {
    Dtype d = random_float(r);
    k.inputs.push_back(random_view(s, r, d, k.domain, Buffer::Kind::kInput, i > 0));
    fill(s, k.inputs.back().buffer, r, -1, 1);
    Expr e = make(ExprOp::kInput, Dtype::kF32);
    e.index = i;
    k.exprs.push_back(e);
  }
}

}  // namespace

TEST_CASE("random maps agree with the reference") {
  for (unsigned seed = 0; seed < 150; ++seed) {
    Random r(seed);
    Setup s;
    MapKernel k;
    k.domain = random_domain(r, 60000);
    k.num_kept = static_cast<int32_t>(k.domain.size());
    add_inputs(k, s, r, pick(r, 1, 3));
    grow(k, s, r, pick(r, 1, 6));
    int n = static_cast<int>(k.exprs.size());
    for (int o = 0; o < pick(r, 1, 2); ++o) {
      int e = o == 0 ? n - 1 : pick(r, 0, n - 1);
      if (k.exprs[e].dtype != Dtype::kF32) e = 0;
      k.outputs.push_back({random_view(s, r, random_float(r), k.domain, Buffer::Kind::kOutput, false), e});
    }
    s.list.kernels.push_back(k);
    INFO("seed " << seed);
    check_map(s, 1e-5, 1e-5);
  }
}

TEST_CASE("random row chains agree with the reference") {
  for (unsigned seed = 0; seed < 150; ++seed) {
    Random r(seed + 1000);
    Setup s;
    MapKernel k;
    k.domain = random_domain(r, 60000);
    int rank = static_cast<int>(k.domain.size());
    k.num_kept = pick(r, 0, rank);
    add_inputs(k, s, r, pick(r, 1, 3));
    int reductions = pick(r, 1, 2);
    for (int i = 0; i < reductions; ++i) {
      grow(k, s, r, pick(r, 0, 2));
      int n = static_cast<int>(k.exprs.size());
      int a = n - 1;
      while (k.exprs[a].dtype != Dtype::kF32) --a;
      Expr e = make(ExprOp::kReduce, Dtype::kF32, a);
      static const ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin};
      e.reduce = kOps[pick(r, 0, 3)];
      k.exprs.push_back(e);
      Expr scale;
      scale.value = e.reduce == ReduceOp::kSum ? 0.001 : 1;
      k.exprs.push_back(scale);
      k.exprs.push_back(make(ExprOp::kMul, Dtype::kF32, n, n + 1));
      std::vector<int64_t> kept(k.domain.begin(), k.domain.begin() + k.num_kept);
      k.outputs.push_back({random_view(s, r, Dtype::kF32, kept, Buffer::Kind::kOutput, false), n + 2});
    }
    if (pick(r, 0, 1)) {
      grow(k, s, r, pick(r, 1, 3));
      int n = static_cast<int>(k.exprs.size()) - 1;
      if (k.exprs[n].dtype == Dtype::kF32) {
        k.outputs.push_back({random_view(s, r, random_float(r), k.domain, Buffer::Kind::kOutput, false), n});
      }
    }
    s.list.kernels.push_back(k);
    INFO("seed " << seed);
    check_map(s, 3e-5, 3e-5);
  }
}

// A statistic of every channel of images [n, c, pixels], taken from the elements: channels lie on partitions beside each
// other, several for each image.
TEST_CASE("reductions of rows that share the partitions with their shares") {
  for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
    for (auto [n, c, pixels] :
         {std::array<int64_t, 3>{64, 16, 64}, {42, 6, 96}, {32, 20, 640}, {100, 5, 64}, {3, 8, 9000}}) {
      Random r(static_cast<unsigned>(n));
      Setup s;
      MapKernel k;
      k.domain = {c, n, pixels};
      k.num_kept = 1;
      View x;
      x.dtype = Dtype::kF32;
      x.sizes = k.domain;
      x.strides = {pixels, c * pixels, 1};
      View y = x, row = dense(0, Dtype::kF32, {c});
      x.buffer = s.add_buffer(Dtype::kF32, n * c * pixels);
      y.buffer = s.add_buffer(Dtype::kF32, n * c * pixels, Buffer::Kind::kOutput);
      row.buffer = s.add_buffer(Dtype::kF32, c, Buffer::Kind::kOutput);
      k.inputs = {x};
      k.exprs = {make(ExprOp::kInput, Dtype::kF32), make(ExprOp::kReduce, Dtype::kF32, 0),
                 make(ExprOp::kSub, Dtype::kF32, 0, 1)};
      k.exprs[1].reduce = op;
      k.outputs = {{y, 2}, {row, 1}};
      fill(s, x.buffer, r, -1, 1);
      // An infinity stays in its channel.
      auto* values = reinterpret_cast<float*>(s.memory[static_cast<size_t>(x.buffer)].data());
      values[(c + 1) * pixels] = std::numeric_limits<float>::infinity();
      s.list.kernels.push_back(k);
      INFO("n " << n << " c " << c << " pixels " << pixels);
      check_map(s, 1e-4, 1e-3);
    }
  }
}

TEST_CASE("integer reductions are exact modulo 2^32") {
  for (unsigned seed = 0; seed < 40; ++seed) {
    Random r(seed + 2000);
    Setup s;
    MapKernel k;
    k.domain = random_domain(r, 30000);
    k.num_kept = pick(r, 0, static_cast<int>(k.domain.size()));
    Dtype dtype =
        std::vector<Dtype>{Dtype::kI32, Dtype::kI64, Dtype::kU8, Dtype::kI8, Dtype::kBool}[seed % 5];
    k.inputs.push_back(random_view(s, r, dtype, k.domain, Buffer::Kind::kInput, false));
    float range = isa::dtype_bytes(dtype) >= 4 ? 1.5e9f : 100.0f;
    fill(s, k.inputs[0].buffer, r, dtype == Dtype::kU8 || dtype == Dtype::kBool ? 0 : -range,
         dtype == Dtype::kBool ? 2 : range);
    Dtype cls = dtype == Dtype::kBool ? Dtype::kBool : Dtype::kI32;
    k.exprs.push_back(make(ExprOp::kInput, cls));
    std::vector<int64_t> kept(k.domain.begin(), k.domain.begin() + k.num_kept);
    std::vector<ReduceOp> ops{ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kProd};
    if (cls == Dtype::kBool) ops = {ReduceOp::kAny, ReduceOp::kAll};
    for (ReduceOp op : ops) {
      Expr e = make(ExprOp::kReduce, cls, 0);
      e.reduce = op;
      k.exprs.push_back(e);
      k.outputs.push_back({random_view(s, r, cls == Dtype::kBool ? Dtype::kBool : Dtype::kI32, kept,
                                       Buffer::Kind::kOutput, false),
                           static_cast<int32_t>(k.exprs.size()) - 1});
    }
    s.list.kernels.push_back(k);
    INFO("seed " << seed);
    check_map(s, 0, 0);
  }
}

TEST_CASE("softmax over long and short rows, over outer and inner axes") {
  struct Shape {
    std::vector<int64_t> domain;
    std::vector<int64_t> strides;
  };
  for (const Shape& shape :
       {Shape{{300, 10}, {10, 1}}, Shape{{5, 3000}, {3000, 1}}, Shape{{3, 100000}, {100000, 1}},
        Shape{{200, 64}, {1, 200}}, Shape{{130, 20000}, {20000, 1}}}) {
    Random r(7);
    Setup s;
    MapKernel k;
    k.domain = shape.domain;
    k.num_kept = 1;
    int64_t n = shape.domain[0] * shape.domain[1];
    int in = s.add_buffer(Dtype::kF32, n), out = s.add_buffer(Dtype::kF32, n, Buffer::Kind::kOutput);
    fill(s, in, r, -5, 5);
    View v = dense(in, Dtype::kF32, shape.domain);
    v.strides = shape.strides;
    View w = v;
    w.buffer = out;
    k.inputs.push_back(v);
    k.exprs.push_back(make(ExprOp::kInput, Dtype::kF32));
    Expr max = make(ExprOp::kReduce, Dtype::kF32, 0);
    max.reduce = ReduceOp::kMax;
    k.exprs.push_back(max);
    k.exprs.push_back(make(ExprOp::kSub, Dtype::kF32, 0, 1));
    k.exprs.push_back(make(ExprOp::kExp, Dtype::kF32, 2));
    k.exprs.push_back(make(ExprOp::kReduce, Dtype::kF32, 3));
    k.exprs.push_back(make(ExprOp::kDiv, Dtype::kF32, 3, 4));
    k.outputs.push_back({w, 5});
    s.list.kernels.push_back(k);
    INFO(shape.domain[0] << " x " << shape.domain[1]);
    check_map(s, 1e-5, 1e-9);
  }
}

TEST_CASE("empty domains") {
  Setup s;
  MapKernel k;
  k.domain = {3, 0};
  k.num_kept = 1;
  int in = s.add_buffer(Dtype::kF32, 1), out = s.add_buffer(Dtype::kF32, 3, Buffer::Kind::kOutput);
  k.inputs.push_back(dense(in, Dtype::kF32, {3, 0}));
  k.exprs.push_back(make(ExprOp::kInput, Dtype::kF32));
  Expr e = make(ExprOp::kReduce, Dtype::kF32, 0);
  e.reduce = ReduceOp::kProd;
  k.exprs.push_back(e);
  k.outputs.push_back({dense(out, Dtype::kF32, {3}), 1});
  s.list.kernels.push_back(k);
  Memory got = execute(s, compile(s));
  for (int i = 0; i < 3; ++i) CHECK(isa::load_as_f32(Dtype::kF32, got[out].data() + 4 * i) == 1.0f);
  MapKernel none = k;
  none.domain = {0, 3};
  none.inputs[0].sizes = {0, 3};
  none.outputs[0].view.sizes = {0};
  s.list.kernels = {none};
  execute(s, compile(s));
}

TEST_CASE("moves copy any strides bit for bit") {
  for (unsigned seed = 0; seed < 60; ++seed) {
    Random r(seed + 3000);
    Setup s;
    static const Dtype kDtypes[] = {Dtype::kF32, Dtype::kBF16, Dtype::kU8, Dtype::kI64, Dtype::kF64};
    Dtype d = kDtypes[pick(r, 0, 4)];
    std::vector<int64_t> sizes = random_domain(r, 30000);
    MoveKernel m;
    m.src = random_view(s, r, d, sizes, Buffer::Kind::kInput, true);
    m.dst = random_view(s, r, d, sizes, Buffer::Kind::kOutput, false);
    for (uint8_t& byte : s.memory[m.src.buffer]) byte = static_cast<uint8_t>(r());
    s.list.kernels.push_back(m);
    INFO("seed " << seed);
    Memory got = execute(s, compile(s));
    int64_t n = m.dst.numel();
    bool equal = true;
    size_t bytes = isa::dtype_bytes(d);
    for (int64_t i = 0; i < n && equal; ++i) {
      int64_t rest = i, from = m.src.offset, to = m.dst.offset;
      for (int a = static_cast<int>(sizes.size()) - 1; a >= 0; --a) {
        from += rest % sizes[a] * m.src.strides[a];
        to += rest % sizes[a] * m.dst.strides[a];
        rest /= sizes[a];
      }
      equal = std::memcmp(got[m.dst.buffer].data() + to * bytes, s.memory[m.src.buffer].data() + from * bytes,
                          bytes) == 0;
    }
    CHECK(equal);
  }
}

TEST_CASE("scans run along any axis") {
  for (unsigned seed = 0; seed < 40; ++seed) {
    Random r(seed + 4000);
    Setup s;
    std::vector<int64_t> sizes = random_domain(r, 20000);
    if (seed == 0) sizes = {2, 5000};
    if (sizes.empty()) continue;
    bool floats = seed % 2 == 0;
    ScanKernel k;
    k.axis = pick(r, 0, static_cast<int>(sizes.size()) - 1);
    if (seed == 0) k.axis = 1;
    k.op = std::vector<ReduceOp>{ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kProd}[seed / 2 % 3];
    Dtype d = floats ? Dtype::kF32 : Dtype::kI64;
    k.input = random_view(s, r, d, sizes, Buffer::Kind::kInput, false);
    k.out = random_view(s, r, d, sizes, Buffer::Kind::kOutput, false);
    fill(s, k.input.buffer, r, k.op == ReduceOp::kProd && floats ? 0.95f : -3,
         k.op == ReduceOp::kProd && floats ? 1.05f : 4);
    s.list.kernels.push_back(k);
    INFO("seed " << seed);
    check_map(s, 1e-4, 1e-4);
  }
}
