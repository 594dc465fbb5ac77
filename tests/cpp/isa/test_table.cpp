#include <set>
#include <string>

#include "isa/names.h"
#include "isa/table.h"
#include "tests/cpp/catch.h"

using namespace trnsim::isa;

TEST_CASE("every row is complete and stands at its opcode") {
  std::set<std::string> names;
  for (int i = 0; i < kNumOpcodes; ++i) {
    const Row& r = row(static_cast<Opcode>(i));
    INFO("row " << i << " " << r.name);
    CHECK(r.opcode == static_cast<Opcode>(i));
    CHECK(r.name == name(r.opcode));
    CHECK(names.insert(std::string(r.name)).second);
    CHECK(r.engines != 0);
    CHECK(r.cost != CostClass::kCount);
    CHECK(!r.doc.empty());
    CHECK(r.doc.back() == '.');
    CHECK(!r.source.empty());
    CHECK((r.op0 != 0) == r.uses(kFieldOp0));
    CHECK((r.op1 != 0) == r.uses(kFieldOp1));
    CHECK((r.imm0 != 0) == r.uses(kFieldImm0));
    CHECK((r.imm1 != 0) == r.uses(kFieldImm1));
    CHECK(row_by_name(r.name) == &r);
    for (const OperandRule& o : r.operands) {
      if (o.role == Role::kNone) continue;
      CHECK(o.spaces != 0);
      CHECK(o.dtypes != 0);
      CHECK(!o.shape.empty());
    }
  }
  CHECK(row_by_name("no_such_instruction") == nullptr);
}

TEST_CASE("for_each_operand visits reads before writes, with the pointers of scalar operands") {
  Instruction i;
  i.opcode = Opcode::kTensorScalar;
  i.engine = Engine::kVector;
  i.dst.space = i.src0.space = i.src1.space = Space::kSbuf;
  i.imm0.kind = ScalarOperand::Kind::kPointer;
  i.imm0.pointer.space = Space::kSbuf;
  std::string seen;
  for_each_operand(i, [&](std::string_view what, Role role, const Access&) {
    seen += std::string(what) + (role == Role::kRead ? "r " : "w ");
  });
  CHECK(seen == "src0r imm0r dstw ");

  Instruction m;
  m.opcode = Opcode::kMultiplyMoving;
  CHECK(operand_role(m, Slot::kDst) == Role::kWrite);
  m.flags = kFlagAccumulate;
  CHECK(operand_role(m, Slot::kDst) == Role::kReadWrite);
}

TEST_CASE("targets name generations") {
  CHECK(generation_from_target("trn2") == Generation::kTrn2);
  CHECK(generation_from_target("trn3") == Generation::kTrn3);
  CHECK(!generation_from_target("trn9"));
  CHECK(limits(Generation::kTrn2).sbuf_bytes_per_partition == 229376);
}
