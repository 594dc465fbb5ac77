// The back half: any order of the streams that honours the semaphores gives the same values; limits; speed.
#include <chrono>

#include "tests/cpp/tile/harness.h"
#include "tests/cpp/tile/shuffle.h"

using namespace trnsim;
using namespace trnsim::compiler;
using namespace trnsim::compiler::testing;

namespace {

Expr make(ExprOp op, int a = -1, int b = -1) {
  Expr e;
  e.op = op;
  e.a = a;
  e.b = b;
  return e;
}

// out = tanh(a * b + c) / (1 + b), in pieces, plus a sum of it.
Setup chain(std::vector<int64_t> sizes, bool in_place) {
  Setup s;
  Random r(5);
  MapKernel k;
  k.domain = sizes;
  k.num_kept = 1;
  int64_t n = 1;
  for (int64_t d : sizes) n *= d;
  for (int i = 0; i < 3; ++i) {
    int b = s.add_buffer(Dtype::kF32, n);
    fill(s, b, r, 0, 1);
    k.inputs.push_back(dense(b, Dtype::kF32, sizes));
    Expr e = make(ExprOp::kInput);
    e.index = i;
    k.exprs.push_back(e);
  }
  k.exprs.push_back(make(ExprOp::kMul, 0, 1));
  k.exprs.push_back(make(ExprOp::kAdd, 3, 2));
  k.exprs.push_back(make(ExprOp::kTanh, 4));
  Expr one;
  one.value = 1;
  k.exprs.push_back(one);
  k.exprs.push_back(make(ExprOp::kAdd, 6, 1));
  k.exprs.push_back(make(ExprOp::kDiv, 5, 7));
  k.exprs.push_back(make(ExprOp::kReduce, 8));
  int out = s.add_buffer(Dtype::kF32, n, Buffer::Kind::kOutput);
  int sum = s.add_buffer(Dtype::kF32, sizes[0], Buffer::Kind::kOutput);
  if (in_place) s.list.buffers[out].alias_input = 0;
  k.outputs.push_back({dense(out, Dtype::kF32, sizes), 8});
  k.outputs.push_back({dense(sum, Dtype::kF32, {sizes[0]}), 9});
  s.list.kernels.push_back(k);
  return s;
}

}  // namespace

TEST_CASE("any order that honours the semaphores gives the same values") {
  for (bool in_place : {false, true}) {
    for (std::vector<int64_t> sizes : {std::vector<int64_t>{300, 700}, {4, 60000}, {1000, 33}}) {
      Setup s = chain(sizes, in_place);
      isa::Program program = compile(s);
      Memory want = execute(s, program);
      for (unsigned seed = 0; seed < 6; ++seed) {
        Random random(seed);
        Memory memory = s.memory;
        Bound bound = bind_memory(program, s, memory);
        run_shuffled(program, bound.tensors, random);
        INFO("seed " << seed << " in place " << in_place);
        CHECK(memory == want);
      }
    }
  }
}

TEST_CASE("random instruction sequences on few tiles are ordered correctly") {
  for (unsigned seed = 0; seed < 30; ++seed) {
    Random random(seed);
    auto pick = [&](int n) { return std::uniform_int_distribution<int>(0, n - 1)(random); };
    Setup s;
    s.add_buffer(Dtype::kF32, 64 * 64);
    fill(s, 0, random, -1, 1);
    TileBuilder b("random");
    KernelContext context = bind_buffers(s.list, b);
    std::vector<Access> live;
    View whole = dense(0, Dtype::kF32, {64, 64});
    for (int i = 0; i < 6; ++i) {
      live.push_back(b.sbuf(64, {64}, Dtype::kF32));
      b.load(live.back(), hbm_view_exact(context, whole));
    }
    for (int step = 0; step < 200; ++step) {
      int64_t begin = pick(40), count = 1 + pick(24);
      Access x = slice(live[pick(6)], 0, begin, count), y = slice(live[pick(6)], 0, pick(40), count);
      Access d = slice(live[pick(6)], 0, begin, count);
      // In place with the same columns only.
      if (x.tensor == d.tensor) x = d;
      if (y.tensor == d.tensor) y = d;
      View part = view_slice(whole, 1, begin, count);
      switch (pick(7)) {
        case 0:
          b.tensor_tensor(d, x, y, AluOp::kMax);
          break;
        case 1:
          b.activation(d, x, ActFunc::kTanh);
          break;
        case 2:
          b.copy(d, x);
          break;
        case 3:
          b.load(d, hbm_view_exact(context, part));
          break;
        case 4:
          b.store(hbm_view_exact(context, part), x);
          break;
        case 5: {
          Access fresh = b.sbuf(64, {64}, Dtype::kF32);
          b.load(fresh, hbm_view_exact(context, whole));
          live[pick(6)] = fresh;
          break;
        }
        default: {
          Access p = b.psum(64, {64});
          b.matmul(p, live[pick(6)], live[pick(6)], false);
          b.tensor_scalar(live[pick(6)], p, AluOp::kMultiply, TileBuilder::imm(0.1f));
        }
      }
    }
    for (const Access& a : live) b.store(hbm_view_exact(context, whole), a);
    isa::Program program = b.finish();
    Memory want;
    for (int round = 0; round < 4; ++round) {
      Memory memory = s.memory;
      Bound bound = bind_memory(program, s, memory);
      Random order(static_cast<unsigned>(round));
      run_shuffled(program, bound.tensors, order);
      if (round == 0) want = memory;
      INFO("seed " << seed << " round " << round);
      CHECK(memory == want);
    }
    check_valid(program);
    CHECK(execute(s, program) == want);
  }
}

TEST_CASE("a tile that does not fit is a worded refusal") {
  TileBuilder b("full");
  Access hbm = b.tensor("in0", isa::TensorKind::kInput, Dtype::kF32, {128, 40000});
  std::vector<Access> tiles;
  for (int i = 0; i < 2; ++i) {
    tiles.push_back(b.sbuf(128, {40000}, Dtype::kF32));
    b.load(tiles.back(), hbm);
  }
  b.tensor_tensor(tiles[0], tiles[0], tiles[1], AluOp::kAdd);
  try {
    b.finish();
    FAIL("expected a refusal");
  } catch (const CompileError& e) {
    CHECK(e.kind() == CompileError::Kind::kUnsupported);
    CHECK_THAT(std::string(e.what()), ContainsSubstring("SBUF is full"));
  }
}

TEST_CASE("matrix products with the same stationary tile load it once") {
  TileBuilder b("stationary");
  Access w = b.tensor("in0", isa::TensorKind::kInput, Dtype::kF32, {128, 128});
  Access ws = b.sbuf(128, {128}, Dtype::kF32);
  b.load(ws, w);
  for (int i = 0; i < 4; ++i) {
    Access p = b.psum(128, {128});
    b.matmul(p, ws, ws, false);
    Access o = b.sbuf(128, {128}, Dtype::kF32);
    b.copy(o, p);
    b.store(w, o);
  }
  isa::Program program = b.finish();
  int loads = 0;
  for (const auto& i : program.streams[static_cast<int>(Engine::kTensor)]) {
    loads += i.opcode == isa::Opcode::kLoadStationary;
  }
  CHECK(loads == 1);
  check_valid(program);
}

TEST_CASE("instructions whose results nothing reads are taken out") {
  TileBuilder b("unread");
  Access in = b.tensor("in0", isa::TensorKind::kInput, Dtype::kF32, {128, 64});
  Access out = b.tensor("out0", isa::TensorKind::kOutput, Dtype::kF32, {128, 64});
  auto tile = [&] { return b.sbuf(128, {64}, Dtype::kF32); };
  int unread = 0;
  Access x = tile(), y = tile(), z = tile(), sum = tile(), mask = b.sbuf(128, {64}, Dtype::kU8);
  b.load(x, in);
  b.copy(y, x), ++unread;  // only for what is taken out itself
  b.tensor_tensor(z, y, y, AluOp::kMultiply), ++unread;
  b.memset(slice(y, 0, 0, 32), 1), ++unread;  // written once more before anything reads it
  b.memset(slice(y, 0, 32, 32), 2);
  b.memset(slice(y, 0, 0, 32), 3);
  b.tensor_scalar(mask, x, AluOp::kGreater, TileBuilder::imm(0));
  b.copy_predicated(y, x, mask);  // keeps a part of what was there
  b.memset(sum, 0);
  Access first = tile(), carried = tile();
  b.copy(carried, x);
  b.loop(4, [&] {
    b.tensor_tensor(sum, sum, carried, AluOp::kAdd);
    b.copy(carried, y);  // for the next iteration
    b.copy(first, y), ++unread;
  });
  b.copy_predicated(y, sum, mask), ++unread;
  b.store(out, sum);
  Access index = b.sbuf(1, {1}, Dtype::kI32);
  b.memset(index, 0);
  b.gather(b.sbuf(1, {1, 64}, Dtype::kF32), in, index), ++unread;
  b.check_indices({{{128, "IndexError: {}"}}});
  b.gather(b.sbuf(1, {1, 64}, Dtype::kF32), in, index);
  b.copy(z, x), ++unread;
  const int before = b.num_instructions();
  b.remove_unread();
  CHECK(before - b.num_instructions() == unread);
  check_valid(b.finish());
}

TEST_CASE("compile times", "[.benchmark]") {
  auto time_us = [](auto&& fn, int repeat) {
    auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < repeat; ++i) fn();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() /
           repeat;
  };
  Setup small = chain({64, 64}, false);
  isa::Program p;
  double us = time_us([&] { p = compile(small); }, 200);
  size_t n = 0;
  for (auto& s : p.streams) n += s.size();
  WARN("row chain of " << n << " instructions: " << us << " us");
  TileBuilder b("long");
  Access in = b.tensor("in0", isa::TensorKind::kInput, Dtype::kF32, {128, 512});
  Access out = b.tensor("out0", isa::TensorKind::kOutput, Dtype::kF32, {128, 512});
  for (int i = 0; i < 40000; ++i) {
    Access x = b.sbuf(128, {512}, Dtype::kF32), y = b.sbuf(128, {512}, Dtype::kF32);
    b.load(x, in);
    b.tensor_tensor(y, x, x, AluOp::kAdd);
    b.activation(y, y, ActFunc::kTanh);
    b.tensor_tensor(y, y, x, AluOp::kMultiply);
    b.store(out, y);
  }
  us = time_us([&] { p = b.finish(); }, 1);
  WARN("back half of 200000 instructions: " << us / 1e6 << " s");
}

namespace {

std::vector<const isa::Instruction*> transfers_of_sync(const isa::Program& p) {
  std::vector<const isa::Instruction*> out;
  for (const isa::Instruction& i : p.streams[static_cast<size_t>(isa::Engine::kSync)])
    if (i.is_dma()) out.push_back(&i);
  return out;
}

}  // namespace

TEST_CASE("loads that cost the issuing engine time leave behind those that are needed with them") {
  const bool together = GENERATE(true, false);
  TileBuilder b("loads");
  const Access in = b.tensor("in0", isa::TensorKind::kInput, Dtype::kF32, {16, 64});
  const Access source = b.tensor("in1", isa::TensorKind::kInput, Dtype::kF32, {64, 256});
  const Access out = b.tensor("out0", isa::TensorKind::kOutput, Dtype::kF32, {16, 256});
  Access turned = in;  // runs of one element: the hardware builds their descriptors
  std::swap(turned.size[0], turned.size[1]);
  std::swap(turned.step[0], turned.step[1]);
  const Access w = b.sbuf(64, {16}, Dtype::kF32), x = b.sbuf(64, {256}, Dtype::kF32);
  b.load(w, turned);
  b.load(x, source);
  if (!together)
    for (int i = 0; i < 4; ++i) b.tensor_scalar(w, w, AluOp::kAdd, TileBuilder::imm(1));
  const Access sum = b.psum(16, {256}), y = b.sbuf(16, {256}, Dtype::kF32);
  b.matmul(sum, w, x, false);
  b.copy(y, sum);
  b.store(out, y);
  const isa::Program p = b.finish();
  check_valid(p);
  const auto transfers = transfers_of_sync(p);
  REQUIRE(transfers.size() == 2);
  CHECK(transfers[together ? 1 : 0]->dge == isa::DgeMode::kHardware);
  CHECK(transfers[together ? 0 : 1]->dge == isa::DgeMode::kStatic);
}

TEST_CASE("activation tables come while Scalar waits") {
  TileBuilder b("tables");
  const Access in = b.tensor("in0", isa::TensorKind::kInput, Dtype::kF32, {64, 512});
  const Access out = b.tensor("out0", isa::TensorKind::kOutput, Dtype::kF32, {64, 512});
  const Access x = b.sbuf(64, {512}, Dtype::kF32), y = b.sbuf(64, {512}, Dtype::kF32);
  b.load(x, in);
  b.activation(y, x, ActFunc::kSquare);
  const Access sum = b.psum(64, {512});
  b.matmul(sum, slice(y, 0, 0, 64), y, false);
  for (int i = 0; i < 4; ++i) b.reduce(slice(x, 0, 0, 1), y, AluOp::kAdd, 1);  // keeps Vector busy
  const Access z = b.sbuf(64, {512}, Dtype::kF32);
  b.copy(z, sum);
  b.activation(z, z, ActFunc::kExp);
  b.store(out, z);
  const isa::Program p = b.finish();
  check_valid(p);
  std::vector<isa::Opcode> codes;
  for (const isa::Instruction& i : p.streams[static_cast<size_t>(isa::Engine::kScalar)])
    if (!i.is_control() && !i.is_dma()) codes.push_back(i.opcode);
  using isa::Opcode;
  CHECK(codes == std::vector<Opcode>{Opcode::kActTableLoad, Opcode::kActivation, Opcode::kActTableLoad,
                                     Opcode::kCopy, Opcode::kActivation});
}
