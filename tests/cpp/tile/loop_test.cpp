// Loops of tile programs: the same values as the unrolled program in any order of the streams, short streams,
// and nothing kept as a loop that iterations could not share.
#include <sys/mman.h>

#include "tests/cpp/tile/shuffle.h"

using namespace trnsim;
using namespace trnsim::compiler;
using namespace trnsim::compiler::testing;

namespace {

int num_loops(const isa::Program& program) {
  int n = 0;
  for (const auto& stream : program.streams) {
    for (const auto& i : stream) n += i.opcode == isa::Opcode::kLoop;
  }
  return n;
}
size_t num_instructions(const isa::Program& program) {
  size_t n = 0;
  for (const auto& stream : program.streams) n += stream.size();
  return n;
}

Access moved(const Access& a, int64_t bytes) {
  Access r = a;
  r.offset += bytes;
  return r;
}

// Emits `body` as a loop or unrolled; body(place) where place(access, stride) is the access of the iteration.
using Place = std::function<Access(const Access&, int64_t)>;
void repeat(TileBuilder& b, bool rolled, int64_t count, const std::function<void(const Place&)>& body,
            bool staggered = false) {
  if (rolled) {
    b.loop(
        count, [&] { body([&](const Access& a, int64_t stride) { return b.advance(a, stride); }); },
        staggered);
    return;
  }
  for (int64_t i = 0; i < count; ++i) body([&](const Access& a, int64_t s) { return moved(a, s * i); });
}

struct Case {
  Setup setup;
  isa::Program rolled, unrolled;
};

void check_same(const Case& c, unsigned orders) {
  check_valid(c.rolled);
  CHECK_FALSE(exec::has_data_dependent_control(c.rolled));
  Memory want = execute(c.setup, c.unrolled);
  CHECK(execute(c.setup, c.rolled) == want);
  for (unsigned seed = 0; seed < orders; ++seed) {
    Random random(seed);
    Memory memory = c.setup.memory;
    Bound bound = bind_memory(c.rolled, c.setup, memory);
    run_shuffled(c.rolled, bound.tensors, random);
    INFO("order " << seed);
    CHECK(memory == want);
  }
}

// y = tanh(x0 * x1) and z = x0 + y over [partitions, columns] tiles of a long row.
Case pointwise(int64_t count, int64_t columns, bool in_place, bool staggered = false) {
  Case c;
  Random random(1);
  int64_t n = 64 * columns * count;
  int x0 = c.setup.add_buffer(Dtype::kF32, n), x1 = c.setup.add_buffer(Dtype::kF32, n);
  fill(c.setup, x0, random, -1, 1);
  fill(c.setup, x1, random, -1, 1);
  int y = c.setup.add_buffer(Dtype::kF32, n, Buffer::Kind::kOutput);
  int z = c.setup.add_buffer(Dtype::kF32, n, Buffer::Kind::kOutput);
  if (in_place) c.setup.list.buffers[z].alias_input = 0;
  for (bool rolled : {true, false}) {
    TileBuilder b("pointwise");
    KernelContext context = bind_buffers(c.setup.list, b);
    auto part = [&](int buffer) {
      View v = dense(buffer, Dtype::kF32, {64, columns});
      v.strides[0] = columns * count;
      return hbm_view_exact(context, v);
    };
    const auto body = [&](const Place& place) {
      Access s0 = b.sbuf(64, {columns}, Dtype::kF32), s1 = b.sbuf(64, {columns}, Dtype::kF32);
      b.load(s0, place(part(x0), 4 * columns));
      b.load(s1, place(part(x1), 4 * columns));
      Access p = b.sbuf(64, {columns}, Dtype::kF32), q = b.sbuf(64, {columns}, Dtype::kF32);
      b.tensor_tensor(p, s0, s1, AluOp::kMultiply);
      b.activation(p, p, ActFunc::kTanh);
      b.store(place(part(y), 4 * columns), p);
      b.tensor_tensor(q, s0, p, AluOp::kAdd);
      b.store(place(part(z), 4 * columns), q);
    };
    repeat(b, rolled, count, body, staggered);
    (rolled ? c.rolled : c.unrolled) = b.finish();
  }
  return c;
}

}  // namespace

TEST_CASE("a loop gives the values of the unrolled program in any order of the streams") {
  for (bool in_place : {false, true}) {
    for (int64_t count : {60, 61, 75, 100}) {
      INFO("count " << count << " in place " << in_place);
      Case c = pointwise(count, 32, in_place);
      CHECK(num_loops(c.rolled) > 0);
      check_same(c, 4);
    }
  }
}

TEST_CASE("a staggered loop gives the values of the unrolled program in any order of the streams") {
  for (bool in_place : {false, true}) {
    for (int64_t count :
         {9, 60, 61, 75, 100}) {  // the first stays unrolled; with and without iterations left over
      INFO("count " << count << " in place " << in_place);
      const Case c = pointwise(count, 32, in_place, true);
      CHECK((num_loops(c.rolled) > 0) == (count > 9));
      CHECK(num_instructions(c.rolled) <= num_instructions(pointwise(count, 32, in_place).rolled) + 8);
      check_same(c, 4);
    }
  }
}

TEST_CASE("the size of a looped program does not depend on the count") {
  Case c = pointwise(200, 8, false), d = pointwise(1000, 8, false);
  CHECK(num_loops(c.rolled) > 0);
  CHECK(num_instructions(c.rolled) < num_instructions(c.unrolled) / 2);
  // The left-over iterations differ.
  CHECK(num_instructions(d.rolled) < num_instructions(c.rolled) + 100);
  check_same(d, 1);
}

TEST_CASE("large tiles rotate over fewer buffers") {
  Case c = pointwise(40, 6000, false);  // two iterations fit
  CHECK(num_loops(c.rolled) > 0);
  check_same(c, 2);
  check_same(pointwise(40, 6000, false, true), 2);  // no room to stagger
  Case d = pointwise(30, 13000, true);              // one fits
  check_same(d, 1);
}

TEST_CASE("short loops stay unrolled") { CHECK(num_loops(pointwise(9, 32, false).rolled) == 0); }

TEST_CASE("iterations that meet in HBM stay in order") {
  // Every iteration reads what the one before wrote: shifted by one, and always the same place.
  for (int64_t read_back : {0, 1, 7}) {
    for (int way = 0; way < 4; ++way) {
      const bool moves = way % 2 == 0, staggered = way >= 2;
      Case c;
      Random random(2);
      constexpr int64_t kCount = 70, kColumns = 16;
      int x = c.setup.add_buffer(Dtype::kF32, (kCount + 8) * 64 * kColumns);
      fill(c.setup, x, random, -1, 1);
      for (bool rolled : {true, false}) {
        TileBuilder b("meets");
        KernelContext context = bind_buffers(c.setup.list, b);
        View v = dense(x, Dtype::kF32, {64, kColumns});
        Access from = hbm_view_exact(context, v);
        Access to = moved(from, 4 * 64 * kColumns * read_back);
        int64_t stride = moves ? 4 * 64 * kColumns : 0;
        const auto body = [&](const Place& place) {
          Access t = b.sbuf(64, {kColumns}, Dtype::kF32);
          b.load(t, place(from, stride));
          b.activation(t, t, ActFunc::kSin, TileBuilder::imm(0.7f));
          b.store(place(to, stride), t);
        };
        repeat(b, rolled, kCount, body, staggered);
        (rolled ? c.rolled : c.unrolled) = b.finish();
      }
      INFO("read back " << read_back << " moves " << moves << " staggered " << staggered);
      CHECK((num_loops(c.rolled) > 0) == (moves && read_back == 0));
      check_same(c, 3);
    }
  }
}

TEST_CASE("tiles from outside carry values through a loop; code around it is ordered") {
  constexpr int64_t kCount = 90, kColumns = 24;
  const bool staggered = GENERATE(false, true);
  Case c;
  Random random(3);
  int x = c.setup.add_buffer(Dtype::kF32, kCount * 32 * kColumns);
  int w = c.setup.add_buffer(Dtype::kF32, 32 * kColumns);
  fill(c.setup, x, random, -1, 1);
  fill(c.setup, w, random, -1, 1);
  int y = c.setup.add_buffer(Dtype::kF32, kCount * 32 * kColumns, Buffer::Kind::kOutput);
  int z = c.setup.add_buffer(Dtype::kF32, kCount * 32 * kColumns, Buffer::Kind::kOutput);
  int sum = c.setup.add_buffer(Dtype::kF32, 32 * kColumns, Buffer::Kind::kOutput);
  int slot = c.setup.add_param(1.25f);
  for (bool rolled : {true, false}) {
    TileBuilder b("around");
    KernelContext context = bind_buffers(c.setup.list, b);
    auto tile_of = [&](int buffer) {
      return hbm_view_exact(context, dense(buffer, Dtype::kF32, {32, kColumns}));
    };
    int64_t stride = 4 * 32 * kColumns;
    Access total = b.sbuf(32, {kColumns}, Dtype::kF32);
    b.memset(total, 0);
    // x -> y, with a weight that is loaded once, a parameter and a running sum.
    Access weight;
    const auto sums = [&](const Place& place) {
      if (!weight.present()) {
        weight = b.sbuf(32, {kColumns}, Dtype::kF32);
        b.before_loop([&] { b.load(weight, tile_of(w)); });
      }
      Access t = b.sbuf(32, {kColumns}, Dtype::kF32), p = b.psum(24, {kColumns});
      b.load(t, place(tile_of(x), stride));
      b.tensor_scalar(t, t, AluOp::kMultiply, b.param(slot));
      b.tensor_tensor(t, t, weight, AluOp::kAdd);
      b.tensor_tensor(total, total, t, AluOp::kAdd);
      b.matmul(p, weight, t, false);
      b.tensor_scalar(slice_partitions(t, 0, 24), p, AluOp::kMultiply, TileBuilder::imm(0.1f));
      b.store(place(tile_of(y), stride), t);
    };
    repeat(b, rolled, kCount, sums, staggered);
    // Reads all of y, backwards.
    Access last = moved(tile_of(y), (kCount - 1) * stride);
    Access out = moved(tile_of(z), (kCount - 1) * stride);
    const auto backwards = [&](const Place& place) {
      Access t = b.sbuf(32, {kColumns}, Dtype::kF32), u = b.sbuf(32, {kColumns}, Dtype::kF32);
      b.load(t, place(last, -stride));
      b.tensor_tensor(u, t, total, AluOp::kMultiply);
      b.activation(u, u, ActFunc::kTanh);
      b.activation(u, u, ActFunc::kGelu);
      b.store(place(out, -stride), u);
    };
    repeat(b, rolled, kCount, backwards, staggered);
    Access t = b.sbuf(32, {kColumns}, Dtype::kF32);
    b.load(t, moved(tile_of(z), 17 * stride));
    b.tensor_tensor(total, total, t, AluOp::kAdd);
    b.store(tile_of(sum), total);
    (rolled ? c.rolled : c.unrolled) = b.finish();
  }
  CHECK(num_loops(c.rolled) >= 4);
  check_same(c, 12);
}

TEST_CASE("code behind a loop waits for every iteration that it reads") {
  constexpr int64_t kCount = 84, kColumns = 16;
  for (int64_t back : {1, 8, 13, 18, 25, 83}) {
    Case c;
    Random init(4);
    int x = c.setup.add_buffer(Dtype::kF32, kCount * 64 * kColumns);
    fill(c.setup, x, init, -1, 1);
    int y = c.setup.add_buffer(Dtype::kF32, kCount * 64 * kColumns, Buffer::Kind::kOutput);
    int z = c.setup.add_buffer(Dtype::kF32, 64 * kColumns, Buffer::Kind::kOutput);
    for (bool rolled : {true, false}) {
      TileBuilder b("behind");
      KernelContext context = bind_buffers(c.setup.list, b);
      auto tile_of = [&](int buffer) {
        return hbm_view_exact(context, dense(buffer, Dtype::kF32, {64, kColumns}));
      };
      int64_t stride = 4 * 64 * kColumns;
      // The place of the tile behind the loop is free all the time, so only HBM orders its load.
      Access own = b.sbuf(64, {kColumns}, Dtype::kF32);
      b.load(own, tile_of(x));
      repeat(b, rolled, kCount, [&](const Place& place) {
        Access s = b.sbuf(64, {kColumns}, Dtype::kF32), p = b.sbuf(64, {kColumns}, Dtype::kF32);
        b.load(s, place(tile_of(x), stride));
        b.activation(p, s, ActFunc::kTanh);
        b.store(place(tile_of(y), stride), p);
      });
      b.load(own, moved(tile_of(y), (kCount - back) * stride));
      b.store(tile_of(z), own);
      (rolled ? c.rolled : c.unrolled) = b.finish();
    }
    INFO("back " << back);
    CHECK(num_loops(c.rolled) > 0);
    check_same(c, 40);
  }
}

TEST_CASE("addresses beyond 32 bits are reached by several loops") {
  // 6 GB of address space, of which only the touched pages exist.
  constexpr int64_t kCount = 64, kStride = int64_t{100} << 20, kBytes = kCount * kStride;
  TileBuilder b("far");
  Access x = b.tensor("in0", isa::TensorKind::kInput, Dtype::kF32, {kBytes / 4});
  Access y = b.tensor("out0", isa::TensorKind::kOutput, Dtype::kF32, {kBytes / 4});
  b.loop(kCount, [&] {
    Access t = b.sbuf(1, {32}, Dtype::kF32);
    b.load(t, b.advance(slice(x, 0, 0, 32), kStride));
    b.tensor_scalar(t, t, AluOp::kMultiply, TileBuilder::imm(2));
    b.store(b.advance(slice(y, 0, kBytes / 4 - 32, 32), -kStride), t);
  });
  isa::Program program = b.finish();
  check_valid(program);
  CHECK(num_loops(program) >= 3 * 2);
  std::vector<exec::HbmTensor> hbm;
  for (int i = 0; i < 2; ++i) {
    void* at =
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(at != MAP_FAILED);
    hbm.push_back({static_cast<std::byte*>(at), static_cast<uint64_t>(kBytes)});
  }
  auto value = [&](int tensor, int64_t byte) -> float& {
    return *reinterpret_cast<float*>(hbm[tensor].data + byte);
  };
  for (int64_t i = 0; i < kCount; ++i) value(0, i * kStride + 12) = static_cast<float>(i + 1);
  Random random(1);
  run_shuffled(program, hbm, random);
  for (int64_t i = 0; i < kCount; ++i) {
    float& got = value(1, kBytes - 128 - i * kStride + 12);
    CHECK(got == static_cast<float>(2 * (i + 1)));
    got = 0;
  }
  exec::Core core;
  exec::Status status;
  auto prepared = exec::prepare(program, core.sizes(), &status);
  REQUIRE(prepared);
  REQUIRE(exec::run(core, *prepared, hbm).ok());
  for (int64_t i = 0; i < kCount; ++i) {
    CHECK(value(1, kBytes - 128 - i * kStride + 12) == static_cast<float>(2 * (i + 1)));
  }
  for (auto& tensor : hbm) munmap(tensor.data, kBytes);
}

TEST_CASE("random loop bodies give the values of the unrolled program") {
  int kept = 0;
  for (unsigned seed = 0; seed < 40; ++seed) {
    Case c;
    Random init(seed);
    constexpr int64_t kColumns = 16;
    int64_t count = 50 + static_cast<int64_t>(seed) * 2;
    int x = c.setup.add_buffer(Dtype::kF32, (count + 4) * 16 * kColumns);
    fill(c.setup, x, init, -1, 1);
    int y = c.setup.add_buffer(Dtype::kF32, (count + 4) * 16 * kColumns, Buffer::Kind::kOutput);
    if (seed % 4 == 0) c.setup.list.buffers[y].alias_input = 0;
    for (bool rolled : {true, false}) {
      Random random(seed + 1000);
      auto pick = [&](int n) { return std::uniform_int_distribution<int>(0, n - 1)(random); };
      TileBuilder b("random");
      KernelContext context = bind_buffers(c.setup.list, b);
      auto tile_of = [&](int buffer) {
        return hbm_view_exact(context, dense(buffer, Dtype::kF32, {16, kColumns}));
      };
      int64_t stride = 4 * 16 * kColumns;
      std::vector<Access> outer;
      for (int i = 0; i < 3; ++i) {
        outer.push_back(b.sbuf(16, {kColumns}, Dtype::kF32));
        b.load(outer.back(), moved(tile_of(x), i * stride));
      }
      for (int round = 0; round < 2; ++round) {
        Random body_random(seed * 2 + static_cast<unsigned>(round));
        int steps = 3 + pick(10);
        int64_t wide = 16 << pick(10);  // big tiles leave room for few buffers
        const auto body = [&](const Place& place) {
          Random r = body_random;
          auto choose = [&](int n) { return std::uniform_int_distribution<int>(0, n - 1)(r); };
          std::vector<Access> live;
          auto fresh = [&] {
            Access t = b.sbuf(16, {wide}, Dtype::kF32);
            return slice(t, 0, 0, kColumns);
          };
          Access first = fresh();
          b.load(first, place(tile_of(x), stride));
          live.push_back(first);
          auto any = [&] {
            int at = choose(static_cast<int>(live.size()) + (choose(4) == 0 ? 3 : 0));
            return at < static_cast<int>(live.size()) ? live[at] : outer[at - static_cast<int>(live.size())];
          };
          for (int s = 0; s < steps; ++s) {
            Access d = choose(3)   ? fresh()
                       : choose(8) ? live[choose(static_cast<int>(live.size()))]
                                   : outer[choose(3)];
            bool is_new = std::none_of(live.begin(), live.end(), [&](const Access& a) { return a == d; });
            for (const Access& o : outer) is_new = is_new && o != d;
            Access a = any(), e = any();
            switch (choose(6)) {
              case 0:
                b.tensor_tensor(d, a, e, AluOp::kMax);
                break;
              case 1:
                b.activation(d, a, choose(2) ? ActFunc::kTanh : ActFunc::kGelu);
                break;
              case 2:
                b.copy(d, a);
                break;
              case 3:
                b.load(d, place(tile_of(x), stride));
                break;
              case 4: {
                Access p = b.psum(16, {kColumns});
                b.matmul(p, a, e, false);
                b.tensor_scalar(d, p, AluOp::kMultiply, TileBuilder::imm(0.1f));
                break;
              }
              default:
                b.store(place(tile_of(y), stride), a);
                is_new = false;
            }
            if (is_new) live.push_back(d);
          }
          b.store(place(tile_of(y), stride), live.back());
        };
        repeat(b, rolled, count, body, (seed + static_cast<unsigned>(round)) % 2 != 0);
      }
      for (int i = 0; i < 3; ++i) b.store(moved(tile_of(y), (count + i) * stride), outer[i]);
      (rolled ? c.rolled : c.unrolled) = b.finish();
    }
    INFO("seed " << seed);
    kept += num_loops(c.rolled) > 0;
    check_same(c, 4);
  }
  CHECK(kept >= 30);
}
