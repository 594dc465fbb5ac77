#include "isa/random_program.h"

#include <cstring>

#include "isa/table.h"

namespace trnsim::isa {

// Integers of every magnitude, so that short and long encodings are met alike.
int64_t RandomProgram::any_int(int bits) {
  const auto used = static_cast<int>(below(static_cast<uint64_t>(bits) + 1));
  if (used == 0) return 0;
  const auto magnitude = static_cast<int64_t>(random_() >> (64 - used) >> 1);
  return chance(50) ? magnitude : -magnitude - 1;
}

float RandomProgram::any_float() {
  if (chance(50)) return static_cast<float>(static_cast<int64_t>(below(2001)) - 1000) / 8;
  const auto bits = static_cast<uint32_t>(random_());
  float f;
  std::memcpy(&f, &bits, sizeof f);
  return f;
}

Access RandomProgram::any_access(uint32_t spaces) {
  Access a;
  do {
    a.space = static_cast<Space>(1 + below(3));
  } while (!contains(spaces, a.space));
  a.dtype = static_cast<Dtype>(below(kNumDtypes));
  a.num_dims = static_cast<uint8_t>(below(kMaxDims + 1));
  if (chance(20)) a.address_register = static_cast<uint8_t>(below(kNumRegisters));
  if (a.space != Space::kHbm) {
    a.num_partitions = kMaxPartitions;
    if (chance(50)) {
      a.start_partition = static_cast<uint16_t>(32 * below(4));
      a.num_partitions = static_cast<uint16_t>(1 + below(128));
    }
  }
  if (a.space == Space::kHbm || chance(10)) a.tensor = static_cast<uint32_t>(below(3));
  if (chance(60)) a.offset = any_int(40);
  uint64_t step = 1;
  for (int d = a.num_dims - 1; d >= 0; --d) {
    a.size[d] = static_cast<uint32_t>(any_int(32));
    a.step[d] = static_cast<int64_t>(step);
    step *= a.size[d];
  }
  if (chance(50)) {
    for (int d = 0; d < a.num_dims; ++d) a.step[d] = any_int(40);
  }
  if (chance(10)) {
    a.indirect = true;
    a.index_dtype = static_cast<Dtype>(below(kNumDtypes));
    a.index_partition = static_cast<uint16_t>(below(kMaxPartitions));
    a.index_offset = static_cast<uint32_t>(any_int(31)) & INT32_MAX;
  }
  return a;
}

ScalarOperand RandomProgram::any_scalar(uint8_t kinds) {
  ScalarOperand s;
  do {
    s.kind = static_cast<ScalarOperand::Kind>(below(3));
  } while (!contains(kinds, s.kind));
  if (s.kind == ScalarOperand::Kind::kImmediate) s.value = any_float();
  if (s.kind == ScalarOperand::Kind::kPointer) s.pointer = any_access(bit(Space::kSbuf));
  return s;
}

Instruction RandomProgram::any_instruction(Opcode opcode) {
  const Row& r = row(opcode);
  Instruction i;
  i.opcode = opcode;
  do {
    i.engine = static_cast<Engine>(below(kNumEngines));
  } while (!r.runs_on(i.engine));
  auto any_op = [&](AluSet set) {
    AluOp op;
    do {
      op = static_cast<AluOp>(below(static_cast<uint64_t>(AluOp::kCount)));
    } while (!contains(set, op));
    return op;
  };
  if (r.uses(kFieldOp0)) i.op0 = any_op(r.op0);
  if (r.uses(kFieldOp1)) i.op1 = any_op(r.op1);
  if (r.uses(kFieldFunc)) i.func = static_cast<ActFunc>(below(static_cast<uint64_t>(ActFunc::kCount)));
  if (r.uses(kFieldImm0)) i.imm0 = any_scalar(r.imm0);
  if (r.uses(kFieldImm1)) i.imm1 = any_scalar(r.imm1);
  if (r.uses(kFieldQueue)) i.queue = static_cast<uint8_t>(below(kNumDmaQueues));
  if (r.uses(kFieldPriority)) i.priority = static_cast<uint8_t>(below(256));
  if (r.uses(kFieldDge)) i.dge = static_cast<DgeMode>(below(3));
  if (r.uses(kFieldReduceDims)) i.reduce_dims = static_cast<uint8_t>(below(6));
  if (r.uses(kFieldRegDst)) i.reg_dst = static_cast<uint8_t>(below(kNumRegisters));
  if (r.uses(kFieldRegA)) i.reg_a = static_cast<uint8_t>(below(kNumRegisters));
  if (r.uses(kFieldRegB)) i.reg_b = static_cast<uint8_t>(below(kNumRegisters));
  if (r.uses(kFieldTarget)) i.target = static_cast<uint32_t>(any_int(32));
  if (r.uses(kFieldImm)) i.imm = any_int(64);
  if (r.uses(kFieldPattern)) {
    i.pattern.base = any_int(64);
    i.pattern.partition_step = static_cast<int32_t>(any_int(32));
    for (int32_t& step : i.pattern.step) step = static_cast<int32_t>(any_int(32));
  }
  if (r.uses(kFieldReduce)) {
    i.reduce_op = any_op(r.reduce_op | bit(AluOp::kNone));
    i.reduce = static_cast<ReduceCmd>(below(5));
  }
  if (r.uses(kFieldCount)) i.count = static_cast<uint32_t>(any_int(32));
  if (r.uses(kFieldParam)) i.param = any_float();
  if (r.uses(kFieldMask)) {
    for (uint8_t& m : i.mask) m = static_cast<uint8_t>(below(256));
  }
  if (r.uses(kFieldTile) && chance(50)) {
    i.tile = {static_cast<uint8_t>(below(256)), static_cast<uint8_t>(below(256)),
              static_cast<uint8_t>(1 + below(255)), static_cast<uint8_t>(below(256))};
  }
  i.flags = static_cast<uint16_t>(random_()) & r.flags;
  i.location = static_cast<uint32_t>(below(3));
  i.sync.num_waits = static_cast<uint8_t>(below(3));
  for (int w = 0; w < i.sync.num_waits; ++w) {
    i.sync.waits[w].semaphore = static_cast<uint8_t>(below(kNumSemaphores));
    i.sync.waits[w].value = static_cast<int32_t>(any_int(32));
    if (chance(20)) i.sync.waits[w].value_register = static_cast<uint8_t>(below(kNumRegisters));
  }
  i.sync.update = static_cast<SemOp>(below(4));
  if (i.sync.update != SemOp::kNone) {
    i.sync.update_semaphore = static_cast<uint8_t>(below(kNumSemaphores));
    i.sync.update_value = static_cast<int32_t>(any_int(32));
  }
  for (int s = 0; s < kNumSlots; ++s) {
    const auto slot = static_cast<Slot>(s);
    const OperandRule& rule = r.operand(slot);
    if (rule.role == Role::kNone || (!rule.required && chance(50))) continue;
    operand(i, slot) = any_access(rule.spaces);
  }
  return i;
}

Program RandomProgram::any_program(int per_stream) {
  Program p;
  p.name = "random program";
  p.target = chance(50) ? "trn2" : "trn3";
  p.tensors.resize(3);
  p.tensors[0] = {"x", TensorKind::kInput, Dtype::kBF16, {2, 3}, 12, {}};
  p.tensors[1] = {"out \"y\"", TensorKind::kOutput, Dtype::kI64, {}, 8, {}};
  p.tensors[2] = {"table", TensorKind::kConstant, Dtype::kU8, {5}, 5, {0, 1, 2, 254, 255}};
  p.locations.push_back({"model.py", 12, "x + y"});
  p.locations.push_back({"dir with space/net.py", 7, "linear \"q\"\n"});
  p.notes.emplace_back("fused", "3 maps");
  p.notes.emplace_back("fused", "again, with a\ttab");
  p.flops = random_() >> 1;
  p.hbm_bytes = below(1000);
  p.cores = chance(30) ? kMaxCores : 1;
  for (size_t s = 0; s < stream_number(p.cores, Engine::kTensor); ++s) {
    int opcode = static_cast<int>(below(kNumOpcodes));
    while (static_cast<int>(p.streams[s].size()) < per_stream) {
      opcode = (opcode + 1) % kNumOpcodes;
      if (!row(static_cast<Opcode>(opcode)).runs_on(engine_of_stream(s))) continue;
      Instruction i = any_instruction(static_cast<Opcode>(opcode));
      i.engine = engine_of_stream(s);
      if (row(i.opcode).uses(kFieldTarget)) i.target = static_cast<uint32_t>(below(per_stream));
      p.streams[s].push_back(i);
    }
  }
  return p;
}

}  // namespace trnsim::isa
