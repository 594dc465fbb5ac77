#include "sim/chip/probe_programs.h"

#include "isa/table.h"

namespace trnsim::chip::probe {
namespace {

using isa::ActFunc;
using isa::AluOp;
using isa::DgeMode;
using isa::ScalarOperand;

// One completion counter per engine, as the compiler's back half assigns them.
int counter_of(Engine e) { return static_cast<int>(e); }
int queue_counter(int queue) { return 16 + queue; }

Access column() { return sbuf(1, Dtype::kF32, 200 * 1024); }

Instruction make(Opcode opcode, Engine engine) {
  Instruction i;
  i.opcode = opcode;
  i.engine = engine;
  return i;
}

}  // namespace

Access sbuf(int64_t n, Dtype dtype, int64_t offset, int partitions, int64_t step, int first_partition) {
  Access a;
  a.space = isa::Space::kSbuf;
  a.dtype = dtype;
  a.num_dims = 1;
  a.start_partition = static_cast<uint16_t>(first_partition);
  a.num_partitions = static_cast<uint16_t>(partitions);
  a.offset = offset;
  a.step[0] = step;
  a.size[0] = static_cast<uint32_t>(n);
  return a;
}

Access psum(int64_t n, Dtype dtype, int bank, int partitions) {
  Access a = sbuf(n, dtype, bank * isa::kPsumBankBytes, partitions);
  a.space = isa::Space::kPsum;
  return a;
}

Access hbm(uint32_t tensor, int64_t elements, Dtype dtype, int64_t offset) {
  Access a;
  a.space = isa::Space::kHbm;
  a.dtype = dtype;
  a.num_dims = 1;
  a.tensor = tensor;
  a.offset = offset;
  a.step[0] = 1;
  a.size[0] = static_cast<uint32_t>(elements);
  return a;
}

Instruction copy(Engine engine, const Access& dst, const Access& src) {
  Instruction i = make(Opcode::kCopy, engine);
  i.dst = dst;
  i.src0 = src;
  return i;
}

Instruction tensor_tensor(const Access& dst, const Access& a, const Access& b, Engine engine) {
  Instruction i = make(Opcode::kTensorTensor, engine);
  i.op0 = AluOp::kAdd;
  i.dst = dst;
  i.src0 = a;
  i.src1 = b;
  return i;
}

Instruction tensor_scalar(const Access& dst, const Access& src, bool pointer, Engine engine) {
  Instruction i = make(Opcode::kTensorScalar, engine);
  i.op0 = AluOp::kMultiply;
  i.dst = dst;
  i.src0 = src;
  i.imm0.kind = pointer ? ScalarOperand::Kind::kPointer : ScalarOperand::Kind::kImmediate;
  i.imm0.value = 2.0f;
  if (pointer) {
    i.imm0.pointer = column();
    i.imm0.pointer.num_partitions = src.num_partitions;
  }
  return i;
}

Instruction activation(const Access& dst, const Access& src, ActFunc func) {
  Instruction i = make(Opcode::kActivation, Engine::kScalar);
  i.func = func;
  i.dst = dst;
  i.src0 = src;
  i.imm0.kind = ScalarOperand::Kind::kImmediate;
  i.imm0.value = 1.0f;
  i.imm1.kind = ScalarOperand::Kind::kImmediate;
  return i;
}

Instruction load_stationary(const Access& weights) {
  Instruction i = make(Opcode::kLoadStationary, Engine::kTensor);
  i.src0 = weights;
  return i;
}

Instruction multiply(const Access& dst, const Access& moving) {
  Instruction i = make(Opcode::kMultiplyMoving, Engine::kTensor);
  i.dst = dst;
  i.src0 = moving;
  return i;
}

Instruction dma_copy(Engine engine, const Access& dst, const Access& src, DgeMode mode, int queue) {
  Instruction i = make(Opcode::kDmaCopy, engine);
  i.dst = dst;
  i.src0 = src;
  i.dge = mode;
  i.queue = static_cast<uint8_t>(queue);
  return i;
}

Instruction halt(Engine engine) { return make(Opcode::kHalt, engine); }

Instruction& wait(Instruction& i, int semaphore, int value) {
  isa::SemWait& w = i.sync.waits[i.sync.num_waits++];
  w.semaphore = static_cast<uint8_t>(semaphore);
  w.value = value;
  return i;
}

Instruction& signal(Instruction& i, int semaphore, int value) {
  i.sync.update = isa::SemOp::kAdd;
  i.sync.update_semaphore = static_cast<uint8_t>(semaphore);
  i.sync.update_value = i.is_dma() ? isa::kDmaCompletionIncrement : value;
  return i;
}

isa::Program program(const std::vector<Instruction>& instructions,
                     const std::vector<uint64_t>& tensor_bytes) {
  isa::Program p;
  p.name = "probe";
  for (size_t t = 0; t < tensor_bytes.size(); ++t) {
    isa::TensorDecl d;
    d.name = "t" + std::to_string(t);
    d.kind = isa::TensorKind::kInput;
    d.dtype = Dtype::kU8;
    d.shape = {static_cast<int64_t>(tensor_bytes[t])};
    d.bytes = tensor_bytes[t];
    p.tensors.push_back(d);
  }
  // What two cores do together, both do.
  for (const Instruction& i : instructions) {
    if (isa::row(i.opcode).has_rule(isa::Rule::kTwoCores)) p.cores = 2;
  }
  for (int core = 0; core < p.cores; ++core) {
    for (Instruction i : instructions) {
      if (i.opcode == Opcode::kSendRecv) i.count = static_cast<uint32_t>(1 - core);
      p.streams[isa::stream_number(core, i.engine)].push_back(i);
    }
  }
  for (size_t s = 0; s < p.streams.size(); ++s) {
    if (!p.streams[s].empty()) p.streams[s].push_back(halt(isa::engine_of_stream(s)));
  }
  return p;
}

isa::Program matmul_pipeline(int tiles, Dtype dtype) {
  const int64_t element = static_cast<int64_t>(isa::dtype_bytes(dtype));
  const int64_t tile = 128 * 512;
  std::vector<Instruction> all;
  int adds = 0, copies = 0, matmuls = 0;
  const int tensor = counter_of(Engine::kTensor), vector = counter_of(Engine::kVector),
            scalar = counter_of(Engine::kScalar);
  for (int t = 0; t < tiles; ++t) {
    const int64_t buffer = (t % 2) * 8192;
    Access moving = sbuf(512, dtype, buffer);
    Access weights = sbuf(128, dtype, 32768 + (t % 2) * 1024);
    Instruction load_a =
        dma_copy(Engine::kSync, moving, hbm(0, tile, dtype, t * tile * element), DgeMode::kHardware, 0);
    Instruction load_w = dma_copy(Engine::kSync, weights, hbm(1, 128 * 128, dtype, t * 128 * 128 * element),
                                  DgeMode::kHardware, 1);
    if (t >= 2) {  // the buffer is free when the matmuls of two tiles ago have run
      wait(load_a, tensor, 4 * (t - 1));
      wait(load_w, tensor, 4 * (t - 1));
    }
    all.push_back(signal(load_a, queue_counter(0)));
    all.push_back(signal(load_w, queue_counter(1)));

    for (int k = 0; k < 2; ++k) {
      Instruction ls = load_stationary(weights);
      if (k == 0) {
        wait(ls, queue_counter(0), 16 * (t + 1));
        wait(ls, queue_counter(1), 16 * (t + 1));
      }
      all.push_back(signal(ls, tensor));
      Instruction mm = multiply(psum(512, Dtype::kF32, t % 4), moving);
      if (k == 1) mm.flags = isa::kFlagAccumulate;
      if (k == 0 && t >= 4) wait(mm, scalar, copies - 3);
      all.push_back(signal(mm, tensor));
      ++matmuls;
    }
    Instruction act = activation(sbuf(512, Dtype::kF32, 65536 + (t % 2) * 4096),
                                 psum(512, Dtype::kF32, t % 4), ActFunc::kExp);
    wait(act, tensor, 4 * (t + 1));
    if (t >= 2) wait(act, vector, adds - 1);
    all.push_back(signal(act, scalar));
    ++copies;
    Instruction add =
        tensor_tensor(sbuf(512, Dtype::kF32, 98304 + (t % 2) * 4096),
                      sbuf(512, Dtype::kF32, 65536 + (t % 2) * 4096), sbuf(512, Dtype::kF32, 131072));
    wait(add, scalar, t + 1);
    if (t >= 2) wait(add, queue_counter(2), 16 * (t - 1));
    all.push_back(signal(add, vector));
    ++adds;
    Instruction store = dma_copy(Engine::kSync, hbm(2, tile, Dtype::kF32, t * tile * 4),
                                 sbuf(512, Dtype::kF32, 98304 + (t % 2) * 4096), DgeMode::kHardware, 2);
    wait(store, vector, t + 1);
    all.push_back(signal(store, queue_counter(2)));
  }
  isa::Program p = program(
      all, {static_cast<uint64_t>(tiles * tile * element), static_cast<uint64_t>(tiles * 128 * 128 * element),
            static_cast<uint64_t>(tiles * tile * 4)});
  p.name = "matmul_pipeline";
  return p;
}

isa::Program compute_chain(int n) {
  // Scalar produces, Vector consumes and hands back: every instruction waits and signals.
  std::vector<Instruction> all;
  const int vector = counter_of(Engine::kVector), scalar = counter_of(Engine::kScalar),
            tensor = counter_of(Engine::kTensor);
  for (int k = 0; k < n; ++k) {
    Instruction ls = load_stationary(sbuf(128, Dtype::kBF16));
    all.push_back(ls);
    Instruction mm = multiply(psum(128, Dtype::kF32, k % 8), sbuf(128, Dtype::kBF16, 4096));
    if (k >= 8) wait(mm, scalar, k - 7);
    all.push_back(signal(mm, tensor));
    Instruction c =
        copy(Engine::kScalar, sbuf(128, Dtype::kF32, 8192 + (k % 4) * 512), psum(128, Dtype::kF32, k % 8));
    wait(c, tensor, k + 1);
    if (k >= 4) wait(c, vector, k - 3);
    all.push_back(signal(c, scalar));
    Instruction a = tensor_tensor(sbuf(128, Dtype::kF32, 16384), sbuf(128, Dtype::kF32, 8192 + (k % 4) * 512),
                                  sbuf(128, Dtype::kF32, 20480));
    wait(a, scalar, k + 1);
    all.push_back(signal(a, vector));
  }
  isa::Program p = program(all);
  p.name = "compute_chain";
  return p;
}

isa::Program long_loop(int iterations) {
  std::vector<Instruction> all;
  const auto repeat = [&](Engine engine, const std::vector<Instruction>& body) {
    Instruction move = make(Opcode::kRegMove, engine);
    move.reg_dst = 1;
    move.imm = iterations;
    all.push_back(move);
    for (const Instruction& i : body) all.push_back(i);
    Instruction loop = make(Opcode::kLoop, engine);
    loop.reg_a = 1;
    loop.target = 1;
    all.push_back(loop);
  };
  Instruction produce = copy(Engine::kScalar, sbuf(64), sbuf(64, Dtype::kF32, 4096));
  signal(produce, counter_of(Engine::kScalar));
  repeat(Engine::kScalar, {produce});
  const Instruction add = tensor_tensor(sbuf(64, Dtype::kF32, 8192), sbuf(64), sbuf(64, Dtype::kF32, 4096));
  repeat(Engine::kVector, {add, add});
  repeat(Engine::kSync, {dma_copy(Engine::kSync, sbuf(16, Dtype::kF32, 16384, 8), hbm(0, 128))});
  isa::Program p = program(all, {512});
  p.name = "long_loop";
  return p;
}

isa::Program decode_loop(int steps) {
  constexpr uint8_t kLeft = 0, kStep = 1, kTransfers = 2, kBuffer = 3, kAddress = 4;
  constexpr int64_t kTileBytes = 128 * 128 * 2, kWeightBytes = 1 << 24, kBufferBytes = 256,
                    kRowBytes = 128 * 4;
  constexpr int kLoads = 0, kStores = 1;
  std::vector<Instruction> all;
  // The body runs `steps` times; every register gets its step's value from the one before.
  struct Update {
    uint8_t reg;
    isa::AluOp op;
    int64_t imm;
  };
  const auto loop = [&](Engine engine, const std::vector<Instruction>& body,
                        const std::vector<Update>& updates) {
    const auto control = [&](Opcode opcode, uint8_t reg, int64_t imm) {
      Instruction i = make(opcode, engine);
      i.reg_dst = i.reg_a = reg;
      i.imm = imm;
      all.push_back(i);
      return all.size() - 1;
    };
    control(Opcode::kRegMove, kLeft, steps);
    uint32_t begin = 1;
    for (const uint8_t r : {kStep, kTransfers, kBuffer, kAddress}) {
      control(Opcode::kRegMove, r, 0);
      ++begin;
    }
    all.insert(all.end(), body.begin(), body.end());
    for (const Update& u : updates) {
      Instruction& i = all[control(Opcode::kRegAlu, u.reg, u.imm)];
      i.op0 = u.op;
      i.flags = isa::kFlagImmediate;
    }
    all[control(Opcode::kLoop, kLeft, 0)].target = begin;
  };
  // Waits for the `ahead`-th event after those of the steps before.
  const auto wait_step = [](Instruction& i, int semaphore, int ahead, uint8_t reg) {
    wait(i, semaphore, ahead);
    i.sync.waits[i.sync.num_waits - 1].value_register = reg;
  };
  const int tensor = counter_of(Engine::kTensor), vector = counter_of(Engine::kVector),
            scalar = counter_of(Engine::kScalar);
  const Update step{kStep, isa::AluOp::kAdd, 1}, transfers{kTransfers, isa::AluOp::kAdd, 16},
      buffer{kBuffer, isa::AluOp::kBitXor, kBufferBytes};

  Access weights = sbuf(128, Dtype::kBF16), tile = hbm(0, 128 * 128, Dtype::kBF16);
  weights.address_register = kBuffer;
  tile.address_register = kAddress;
  Instruction load = dma_copy(Engine::kSync, weights, tile, DgeMode::kHardware, kLoads);
  wait_step(load, tensor, -1, kStep);  // the product of two steps ago has read the buffer
  loop(Engine::kSync, {signal(load, queue_counter(kLoads))},
       {step,
        buffer,
        {kAddress, isa::AluOp::kAdd, kTileBytes},
        {kAddress, isa::AluOp::kBitAnd, kWeightBytes - 1}});

  Instruction stationary = load_stationary(weights);
  wait_step(stationary, queue_counter(kLoads), 16, kTransfers);
  Instruction product = multiply(psum(64), sbuf(64, Dtype::kBF16, 4096));
  wait_step(product, scalar, 0, kStep);
  loop(Engine::kTensor, {stationary, signal(product, tensor)}, {step, transfers, buffer});

  Instruction activate = activation(sbuf(64, Dtype::kF32, 8192), psum(64), ActFunc::kExp);
  wait_step(activate, tensor, 1, kStep);
  wait_step(activate, vector, 0, kStep);
  loop(Engine::kScalar, {signal(activate, scalar)}, {step});

  Instruction add =
      tensor_tensor(sbuf(64, Dtype::kF32, 12288), sbuf(64, Dtype::kF32, 8192), sbuf(64, Dtype::kF32, 16384));
  wait_step(add, scalar, 1, kStep);
  wait_step(add, queue_counter(kStores), 0, kTransfers);
  loop(Engine::kVector, {signal(add, vector)}, {step, transfers});

  Access row = hbm(1, 128);
  row.address_register = kAddress;
  Instruction append = dma_copy(Engine::kGpSimd, row, sbuf(1, Dtype::kF32, 12288), DgeMode::kStatic, kStores);
  wait_step(append, vector, 1, kStep);
  loop(Engine::kGpSimd, {signal(append, queue_counter(kStores))},
       {step, {kAddress, isa::AluOp::kAdd, kRowBytes}, {kAddress, isa::AluOp::kBitAnd, (1 << 20) - 1}});
  isa::Program p = program(all, {kWeightBytes, 1 << 20});
  p.tensors[1].kind = isa::TensorKind::kOutput;
  p.name = "decode_loop";
  return p;
}

std::vector<isa::Program> standard_programs() {
  std::vector<isa::Program> out;
  out.push_back(matmul_pipeline(12, Dtype::kF32));
  out.push_back(matmul_pipeline(12, Dtype::kBF16));
  out.push_back(compute_chain(40));

  const auto one = [&](const std::string& name, std::vector<Instruction> instructions,
                       const std::vector<uint64_t>& tensors = {}) {
    isa::Program p = program(instructions, tensors);
    p.name = name;
    out.push_back(p);
  };
  const auto with = [](Instruction i, auto&& change) {
    change(i);
    return i;
  };
  // One instruction at a time, so that its latency is the time of the program.
  const Access f = sbuf(500), h = sbuf(512, Dtype::kBF16, 8192), g = sbuf(512, Dtype::kBF16, 16384);
  one("vector_copy_fp32", {copy(Engine::kVector, sbuf(500, Dtype::kF32, 4096), f)});
  one("vector_copy_half", {copy(Engine::kVector, g, h)});
  one("vector_copy_half_psum", {copy(Engine::kVector, g, psum(512, Dtype::kBF16))});
  one("vector_widen", {copy(Engine::kVector, sbuf(512, Dtype::kF32, 32768), h)});
  one("vector_strided",
      {copy(Engine::kVector, sbuf(128, Dtype::kF32, 32768), sbuf(128, Dtype::kF32, 0, 128, 9))});
  one("vector_half_add", {tensor_tensor(sbuf(512, Dtype::kBF16, 32768), h, g)});
  one("vector_pointer", {tensor_scalar(sbuf(500, Dtype::kF32, 4096), f, true)});
  one("vector_reduce", {with(copy(Engine::kVector, sbuf(1, Dtype::kF32, 4096), f), [](Instruction& i) {
        i.opcode = Opcode::kTensorReduce;
        i.op0 = AluOp::kMax;
        i.reduce_dims = 1;
      })});
  one("vector_reciprocal", {with(copy(Engine::kVector, sbuf(500, Dtype::kF32, 4096), f),
                                 [](Instruction& i) { i.opcode = Opcode::kReciprocal; })});
  for (int64_t n : {8, 500}) {
    one("vector_scan", {with(tensor_tensor(sbuf(n, Dtype::kF32, 8192), sbuf(n), sbuf(n, Dtype::kF32, 4096)),
                             [](Instruction& i) {
                               i.opcode = Opcode::kTensorTensorScan;
                               i.op0 = AluOp::kMultiply;
                               i.op1 = AluOp::kAdd;
                             })});
  }
  one("vector_predicated", {with(tensor_tensor(sbuf(500, Dtype::kF32, 8192), f, sbuf(500, Dtype::kU32, 4096)),
                                 [](Instruction& i) { i.opcode = Opcode::kCopyPredicated; })});
  one("vector_top8", {with(copy(Engine::kVector, sbuf(8, Dtype::kF32, 8192), f),
                           [](Instruction& i) { i.opcode = Opcode::kMax8; })});
  one("vector_transpose",
      {with(copy(Engine::kVector, sbuf(32, Dtype::kF32, 8192, 32), sbuf(32, Dtype::kF32, 0, 32)),
            [](Instruction& i) { i.opcode = Opcode::kTranspose; })});
  one("vector_statistics", {with(copy(Engine::kVector, sbuf(6, Dtype::kF32, 8192), f),
                                 [](Instruction& i) { i.opcode = Opcode::kBnStats; })});
  one("vector_memset", {with(copy(Engine::kVector, f, f), [](Instruction& i) {
        i.opcode = Opcode::kMemset;
        i.src0 = Access{};
        i.imm0.kind = ScalarOperand::Kind::kImmediate;
      })});
  one("vector_back_to_back", {copy(Engine::kVector, sbuf(64, Dtype::kF32, 4096), sbuf(64)),
                              copy(Engine::kVector, sbuf(64, Dtype::kF32, 8192), sbuf(64)),
                              copy(Engine::kVector, sbuf(64, Dtype::kF32, 12288), sbuf(64))});
  one("scalar_copy", {copy(Engine::kScalar, sbuf(500, Dtype::kF32, 4096), f),
                      copy(Engine::kScalar, sbuf(500, Dtype::kF32, 8192), f)});
  one("scalar_copy_half", {copy(Engine::kScalar, sbuf(500, Dtype::kBF16, 4096), sbuf(500, Dtype::kBF16))});
  one("scalar_copy_psum", {copy(Engine::kScalar, sbuf(500, Dtype::kF32, 4096), psum(500))});
  one("scalar_strided",
      {copy(Engine::kScalar, sbuf(128, Dtype::kF32, 32768), sbuf(128, Dtype::kF32, 0, 128, 9))});
  one("scalar_activation", {activation(sbuf(500, Dtype::kF32, 4096), f, ActFunc::kExp),
                            activation(sbuf(500, Dtype::kF32, 8192), f, ActFunc::kExp),
                            activation(sbuf(500, Dtype::kF32, 12288), f, ActFunc::kTanh)});
  one("scalar_activation_psum", {activation(sbuf(500, Dtype::kF32, 4096), psum(500), ActFunc::kExp)});
  one("scalar_activation_copy",
      {with(activation(sbuf(500, Dtype::kF32, 4096), f, ActFunc::kCopy), [](Instruction& i) {
        i.imm0.kind = ScalarOperand::Kind::kPointer;
        i.imm0.pointer = column();
      })});
  const auto accumulate = [](Instruction& i) {
    i.reduce_op = AluOp::kAdd;
    i.reduce = isa::ReduceCmd::kResetReduce;
    i.aux = sbuf(1, Dtype::kF32, 100 * 1024);
  };
  one("scalar_accumulate", {with(activation(sbuf(500, Dtype::kF32, 4096), f, ActFunc::kExp), accumulate),
                            with(activation(sbuf(500, Dtype::kF32, 8192), f, ActFunc::kExp), accumulate)});
  one("gpsimd_add",
      {tensor_tensor(sbuf(500, Dtype::kF32, 8192), f, sbuf(500, Dtype::kF32, 4096), Engine::kGpSimd),
       tensor_tensor(sbuf(500, Dtype::kF32, 12288), f, sbuf(500, Dtype::kF32, 4096), Engine::kGpSimd)});
  one("gpsimd_iota", {with(copy(Engine::kGpSimd, sbuf(500, Dtype::kI32), sbuf(500)), [](Instruction& i) {
        i.opcode = Opcode::kIota;
        i.src0 = Access{};
      })});
  one("gpsimd_memset", {with(copy(Engine::kGpSimd, f, f), [](Instruction& i) {
        i.opcode = Opcode::kMemset;
        i.src0 = Access{};
        i.imm0.kind = ScalarOperand::Kind::kImmediate;
      })});
  one("gpsimd_partition_reduce",
      {with(copy(Engine::kGpSimd, sbuf(64, Dtype::kF32, 4096, 1), sbuf(64)), [](Instruction& i) {
        i.opcode = Opcode::kPartitionReduce;
        i.op0 = AluOp::kAdd;
      })});
  one("gpsimd_philox", {with(copy(Engine::kGpSimd, sbuf(64, Dtype::kU32, 4096), sbuf(4, Dtype::kU32, 0, 1)),
                             [](Instruction& i) { i.opcode = Opcode::kPhilox; })});
  // GpSimd and a fast vector mode compete for the bus; two engines for one PSUM bank.
  one("bus_contention",
      {tensor_tensor(sbuf(500, Dtype::kF32, 8192), f, sbuf(500, Dtype::kF32, 4096), Engine::kGpSimd),
       copy(Engine::kVector, sbuf(2000, Dtype::kF32, 65536), sbuf(2000, Dtype::kF32, 32768))});
  one("bank_contention", {copy(Engine::kScalar, sbuf(500, Dtype::kF32, 4096), psum(500)),
                          copy(Engine::kVector, sbuf(500, Dtype::kF32, 8192), psum(500))});
  // Tensor: short columns, strided operands, plain and fp32 loads, transposes.
  one("tensor_short",
      {load_stationary(sbuf(128, Dtype::kBF16)), multiply(psum(16), sbuf(16, Dtype::kBF16, 4096))});
  one("tensor_strided", {load_stationary(sbuf(128, Dtype::kBF16, 0, 128, 9)),
                         multiply(psum(256), sbuf(256, Dtype::kBF16, 4096, 128, 9))});
  one("tensor_fp32", {load_stationary(sbuf(128)), multiply(psum(420), sbuf(420, Dtype::kF32, 4096))});
  one("tensor_load_only", {load_stationary(sbuf(128))});
  {
    std::vector<Instruction> many;
    for (int k = 0; k < 60; ++k) {
      many.push_back(load_stationary(sbuf(128, Dtype::kBF16)));
      many.push_back(multiply(psum(512, Dtype::kF32, k % 8), sbuf(512, Dtype::kBF16, 4096)));
    }
    one("tensor_stream", many);
    // A short pause between two full windows tells the two thresholds of the governor apart.
    for (int k = 0; k < 5; ++k) {
      Instruction v = copy(Engine::kVector, sbuf(4000, Dtype::kF32, 65536), sbuf(4000, Dtype::kF32, 32768));
      if (k > 0) wait(v, 40, 12 * k);
      many.push_back(signal(v, 41));
      for (int m = 0; m < 12; ++m) {
        Instruction mm = multiply(psum(256, Dtype::kF32, m % 8), sbuf(256, Dtype::kBF16, 4096));
        if (m == 0) wait(mm, 41, k + 1);
        many.push_back(signal(mm, 40));
      }
    }
    one("tensor_paused", many);
  }
  // DMA in all three modes, small and large, both directions, strided, transposed, accumulated.
  for (DgeMode mode : {DgeMode::kStatic, DgeMode::kHardware, DgeMode::kSoftware}) {
    std::vector<Instruction> load, store;
    for (int k = 0; k < 3; ++k) {
      load.push_back(
          dma_copy(Engine::kSync, sbuf(4096, Dtype::kF32, k * 16384), hbm(0, 128 * 4096), mode, k));
      store.push_back(dma_copy(Engine::kGpSimd, hbm(0, 128 * 16), sbuf(16), mode, k));
    }
    one("dma_load", load, {128 * 4096 * 4});
    one("dma_store", store, {128 * 4096 * 4});
  }
  {
    // The whole of it must wait for a semaphore in the end.
    Instruction load = dma_copy(Engine::kSync, sbuf(1), hbm(0, 128));
    signal(load, 9);
    Instruction use = copy(Engine::kVector, sbuf(1, Dtype::kF32, 4096), sbuf(1));
    wait(use, 9, 16);
    one("dma_consumer", {load, use}, {512});
  }
  {
    Access rows = hbm(0, 0);
    rows.num_dims = 2;
    rows.size = {128, 30};
    rows.step = {64, 2};
    one("dma_elements", {dma_copy(Engine::kSync, sbuf(30), rows)}, {1 << 20});
    Access short_rows = rows;
    short_rows.num_dims = 3;
    short_rows.size = {128, 10, 3};
    short_rows.step = {64, 6, 1};
    one("dma_short_rows", {dma_copy(Engine::kSync, sbuf(30), short_rows)}, {1 << 20});
    rows.dtype = Dtype::kBF16;
    one("dma_two_byte", {dma_copy(Engine::kSync, sbuf(30, Dtype::kBF16), rows)}, {1 << 20});
    Instruction t = dma_copy(Engine::kSync, sbuf(128, Dtype::kBF16), hbm(0, 128 * 128, Dtype::kBF16));
    t.opcode = Opcode::kDmaTranspose;
    t.src0.num_dims = 2;
    t.src0.size = {128, 128};
    t.src0.step = {128, 1};
    one("dma_transpose", {t}, {1 << 20});
    t.src0 = sbuf(128, Dtype::kBF16, 4096);
    one("dma_transpose_sbuf", {t}, {1 << 20});
    Instruction scatter = dma_copy(Engine::kGpSimd, hbm(0, 0), sbuf(64), DgeMode::kSoftware);
    scatter.opcode = Opcode::kDmaScatter;
    scatter.op0 = AluOp::kAdd;
    scatter.src1 = sbuf(1, Dtype::kI32, 4096);
    scatter.dst.num_dims = 2;
    scatter.dst.size = {1024, 64};
    scatter.dst.step = {64, 1};
    one("dma_scatter_add", {scatter}, {1024 * 64 * 4});
  }
  {
    // Many small transfers on one queue beside large ones on another, and one to HBM from HBM.
    std::vector<Instruction> many;
    for (int k = 0; k < 80; ++k)
      many.push_back(dma_copy(Engine::kSync, sbuf(64, Dtype::kF32, 4096 + k * 256, 8), hbm(0, 512),
                              DgeMode::kStatic, 0));
    many.push_back(
        dma_copy(Engine::kScalar, sbuf(16384, Dtype::kF32, 65536), hbm(1, 128 * 16384), DgeMode::kStatic, 1));
    many.push_back(dma_copy(Engine::kScalar, hbm(1, 1 << 20), hbm(0, 1 << 20), DgeMode::kStatic, 2));
    one("dma_queues", many, {8 << 20, 8 << 20});
    // Small descriptors of a gather in packets, with another queue in between.
    Instruction gather = dma_copy(Engine::kGpSimd, sbuf(4096), hbm(0, 0), DgeMode::kSoftware);
    gather.opcode = Opcode::kDmaGather;
    gather.src0.num_dims = 2;
    gather.src0.size = {1024, 16};
    gather.src0.step = {16, 1};
    gather.src1 = sbuf(256, Dtype::kI32, 65536);
    one("dma_gather",
        {gather,
         dma_copy(Engine::kSync, sbuf(1024, Dtype::kF32, 100000), hbm(0, 128 * 1024), DgeMode::kStatic, 3)},
        {1 << 20});
  }
  // Registers: a counted loop with a branch around nothing, and a load.
  {
    std::vector<Instruction> r;
    Instruction move = make(Opcode::kRegMove, Engine::kVector);
    move.reg_dst = 1;
    move.imm = 5;
    r.push_back(move);
    r.push_back(copy(Engine::kVector, sbuf(64, Dtype::kF32, 4096), sbuf(64)));
    Instruction load = make(Opcode::kRegLoad, Engine::kVector);
    load.reg_dst = 2;
    load.src0 = sbuf(1, Dtype::kI32, 8192, 1);
    r.push_back(load);
    Instruction loop = make(Opcode::kLoop, Engine::kVector);
    loop.reg_a = 1;
    loop.target = 1;
    r.push_back(loop);
    one("registers", r);
    // A jump just beyond what is prefetched.
    std::vector<Instruction> far(700, make(Opcode::kSemaphore, Engine::kScalar));
    far[0].opcode = Opcode::kJump;
    far[0].target = 600;
    one("far_jump", far);
    std::vector<Instruction> s(40, make(Opcode::kSemaphore, Engine::kSync));
    one("control", s);
    std::vector<Instruction> issue(2, load_stationary(sbuf(4, Dtype::kBF16)));
    for (int k = 0; k < 6; ++k) issue.push_back(issue[0]);
    one("dispatch", issue);
  }
  // Every row of the instruction table by itself, with its results read out and its operands indirect where it can.
  for (const isa::Row& row : isa::all_rows()) {
    for (int e = 0; e < isa::kNumEngines; ++e) {
      const auto engine = static_cast<Engine>(e);
      if (!row.runs_on(engine) || row.cost == isa::CostClass::kBranch) continue;
      std::vector<Instruction> probe = row_probe(row.opcode, engine, 128);
      one("row_" + std::string(row.name), probe, row_probe_tensors());
      Instruction& i = probe.back();
      if (row.operand(isa::Slot::kSrc0).indirect) i.src0.indirect = true;
      if (row.uses(isa::kFieldReduce) && row.operand(isa::Slot::kAux).role != isa::Role::kNone) {
        i.reduce_op = AluOp::kMax;
        i.reduce = isa::ReduceCmd::kResetReduce;
        i.aux = column();
      }
      for (Instruction& p : probe) {
        p.flags = static_cast<uint16_t>(p.flags | (row.flags & (isa::kFlagOneZero | isa::kFlagAccumulate)));
        if (p.has(isa::kFlagOneZero)) p.src0.dtype = Dtype::kF32;  // other dtypes take one pass anyway
      }
      one("row_variant_" + std::string(row.name), probe, row_probe_tensors());
    }
  }
  return out;
}

}  // namespace trnsim::chip::probe
