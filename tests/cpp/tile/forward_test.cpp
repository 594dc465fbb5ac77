// Values that stay in SBUF between kernels: which loads take the stored tile, and which must not.
#include "tests/cpp/tile/harness.h"

using namespace trnsim;
using namespace trnsim::compiler;
using namespace trnsim::compiler::testing;

namespace {

constexpr int64_t kColumns = 64;

// in0 -> tile x -> scratch -> tile y -> out0, with what a case puts between.
struct Chain {
  TileBuilder b{"forward"};
  Access in = b.tensor("in0", isa::TensorKind::kInput, Dtype::kF32, {32, kColumns});
  Access between = b.tensor("scratch0", isa::TensorKind::kScratch, Dtype::kF32, {32, kColumns});
  Access out = b.tensor("out0", isa::TensorKind::kOutput, Dtype::kF32, {32, kColumns});
  Access x = b.sbuf(32, {kColumns}, Dtype::kF32), y = b.sbuf(32, {kColumns}, Dtype::kF32);

  void begin() {
    b.load(x, in);
    b.tensor_scalar(x, x, AluOp::kAdd, TileBuilder::imm(1));
    b.store(between, x);
  }
  void end() {
    b.activation(y, y, ActFunc::kTanh);
    b.store(out, y);
  }
  struct Count {
    int transfers = 0, copies = 0;
  };
  Count finish() {
    b.forward_stores();
    b.remove_unread();
    Count count;
    isa::Program p = b.finish();
    check_valid(p);
    for (const auto& stream : p.streams) {
      for (const isa::Instruction& i : stream) {
        count.transfers += i.opcode == isa::Opcode::kDmaCopy;
        count.copies += i.opcode == isa::Opcode::kCopy;
      }
    }
    return count;
  }
};

}  // namespace

TEST_CASE("a load of what was just stored takes the tile") {
  Chain c;
  c.begin();
  Access z = c.b.sbuf(32, {kColumns}, Dtype::kF32);
  c.b.load(z, c.between);
  c.b.tensor_scalar(c.y, z, AluOp::kMultiply, TileBuilder::imm(2));
  c.end();
  const Chain::Count n = c.finish();
  CHECK(n.transfers == 2);  // the scratch tensor is gone
  CHECK(n.copies == 0);
}

TEST_CASE("a tile that its reader changes is copied in SBUF") {
  Chain c;
  c.begin();
  c.b.load(c.y, c.between);
  c.end();  // in place
  const Chain::Count n = c.finish();
  CHECK(n.transfers == 2);
  CHECK(n.copies == 1);
}

TEST_CASE("a load onto other partitions comes from the tile") {
  Chain c;
  c.begin();
  Access z = c.b.sbuf(16, {2 * kColumns}, Dtype::kF32);
  c.b.load(z, reshape(c.between, {16, 2 * kColumns}));
  c.b.activation(z, z, ActFunc::kTanh);
  CHECK(c.b.stored_from(c.between) == 32);
  CHECK(c.b.stored_from(slice(c.between, 0, 0, 16)) == 0);
  c.b.store(reshape(c.out, {16, 2 * kColumns}), z);
  const Chain::Count n = c.finish();
  CHECK(n.transfers == 3);  // from SBUF to SBUF; nobody loads the scratch tensor
  CHECK(n.copies == 0);
}

TEST_CASE("loads of other contents stay") {
  SECTION("the memory was written over") {
    Chain c;
    c.begin();
    Access z = c.b.sbuf(1, {8}, Dtype::kF32);
    c.b.memset(z, 1);
    c.b.store(slice(slice(c.between, 0, 3, 1), 1, 0, 8), z);
    c.b.load(c.y, c.between);
    c.end();
    CHECK(c.finish().transfers == 5);
  }
  SECTION("the memory may be written by rows") {
    Chain c;
    c.begin();
    Access z = c.b.sbuf(1, {1, kColumns}, Dtype::kF32), index = c.b.sbuf(1, {1}, Dtype::kI32);
    c.b.memset(z, 1);
    c.b.memset(index, 1);
    c.b.scatter(c.between, z, index, false);
    c.b.load(c.y, c.between);
    c.end();
    CHECK(c.finish().transfers == 4);
  }
  SECTION("the tile was written over") {
    Chain c;
    c.begin();
    c.b.memset(c.x, 5);
    c.b.load(c.y, c.between);
    c.b.tensor_tensor(c.y, c.y, c.x, AluOp::kAdd);
    c.end();
    CHECK(c.finish().transfers == 4);
  }
  SECTION("a part") {
    Chain c;
    c.begin();
    Access z = c.b.sbuf(16, {kColumns}, Dtype::kF32);
    c.b.load(z, slice(c.between, 0, 16, 16));
    c.b.activation(z, z, ActFunc::kTanh);
    c.b.store(slice(c.out, 0, 0, 16), z);
    CHECK(c.finish().transfers == 4);
  }
}

TEST_CASE("an output that is loaded again is stored all the same") {
  Chain c;
  c.b.load(c.x, c.in);
  c.b.store(c.out, c.x);
  c.b.load(c.y, c.out);
  c.b.tensor_scalar(c.y, c.y, AluOp::kAdd, TileBuilder::imm(1));
  c.b.store(c.between, c.y);  // nobody loads it
  CHECK(c.finish().transfers == 2);
}
