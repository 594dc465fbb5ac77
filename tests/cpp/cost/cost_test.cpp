// Each timing law against the published number it stands for (sections of the hardware facts in brackets).
#include "sim/cost/cost.h"

#include "sim/chip/probe_programs.h"
#include "tests/cpp/catch.h"

using namespace trnsim;
using namespace trnsim::chip::probe;
using cost::Ps;

namespace {

const config::Config& trn2() {
  static const config::Config c = [] {
    std::string error;
    return *config::load("trn2", "", &error);
  }();
  return c;
}

double ns(Ps ps) { return static_cast<double>(ps) / 1000.0; }

// Slope in ns per element between two sizes, and the fixed part.
struct Line {
  double fixed, slope;
};
template <typename F>
Line line(F&& latency_ns) {
  const double a = latency_ns(int64_t{400}), b = latency_ns(int64_t{1200});
  const double slope = (b - a) / 800;
  return {a - 400 * slope, slope};
}

Line vector_copy(Dtype in, Dtype out, bool from_psum = false, int64_t step = 1) {
  return line([&](int64_t n) {
    Access src = sbuf(n, in, 0, 128, step);
    if (from_psum) src.space = isa::Space::kPsum;
    return ns(cost::vector_cost(copy(Engine::kVector, sbuf(n, out, 65536), src), trn2()).latency);
  });
}

void check(const Line& l, double fixed_low, double fixed_high, double slope, double tolerance = 0.03) {
  CHECK(l.fixed >= fixed_low - 3);
  CHECK(l.fixed <= fixed_high + 8);
  CHECK(l.slope == Approx(slope).epsilon(tolerance));
}

Line vector_op(Opcode op) {
  return line([&](int64_t n) {
    Instruction i = tensor_tensor(sbuf(n, Dtype::kF32, 65536), sbuf(n), sbuf(n, Dtype::kF32, 32768));
    i.opcode = op;
    return ns(cost::vector_cost(i, trn2()).latency);
  });
}

Line scalar_activation(isa::ActFunc f, bool from_psum, bool pointer) {
  return line([&](int64_t n) {
    Access src = from_psum ? psum(n) : sbuf(n);
    Instruction i = activation(sbuf(n, Dtype::kF32, 65536), src, f);
    if (pointer) {
      i.imm1.kind = isa::ScalarOperand::Kind::kPointer;
      i.imm1.pointer = sbuf(1, Dtype::kF32, 32768);
    }
    return ns(cost::scalar_cost(i, trn2()).latency);
  });
}

}  // namespace

TEST_CASE("Vector copies: rate by dtype and space [3.4]") {
  check(vector_copy(Dtype::kF32, Dtype::kF32), 153, 161, 0.52);
  check(vector_copy(Dtype::kBF16, Dtype::kBF16), 156, 156, 0.269, 0.05);
  check(vector_copy(Dtype::kF32, Dtype::kBF16), 155, 155, 0.522);
  check(vector_copy(Dtype::kF32, Dtype::kI32), 153, 153, 0.536);
  check(vector_copy(Dtype::kBF16, Dtype::kF32), 153, 153, 0.803);
  check(vector_copy(Dtype::kF32, Dtype::kF32, true), 156, 160, 1.042);
  check(vector_copy(Dtype::kF32, Dtype::kBF16, true), 156, 160, 1.037);
  // 2x mode: strided, or one side in PSUM.
  CHECK(vector_copy(Dtype::kBF16, Dtype::kBF16, true).slope == Approx(1 / 0.96 / 2).epsilon(0.01));
  CHECK(vector_copy(Dtype::kBF16, Dtype::kBF16, false, 2).slope == Approx(1 / 0.96 / 2).epsilon(0.01));
  // From 16 bytes of stride on (MB-06).
  CHECK(vector_copy(Dtype::kF32, Dtype::kF32, false, 9).slope == Approx(0.75 / 0.96).epsilon(0.01));
}

TEST_CASE("Vector two-operand instructions and the rest of the table [3.4]") {
  check(vector_op(Opcode::kTensorTensor), 144, 161, 1.04);
  const Line half = line([&](int64_t n) {
    return ns(cost::vector_cost(tensor_tensor(sbuf(n, Dtype::kBF16, 65536), sbuf(n, Dtype::kBF16),
                                              sbuf(n, Dtype::kBF16, 32768)),
                                trn2())
                  .latency);
  });
  check(half, 161, 161, 0.517);
  check(vector_op(Opcode::kReciprocal), 154, 154, 6.25);
  check(vector_op(Opcode::kTensorTensorScan), 158, 158, 2.083);
  check(vector_op(Opcode::kCopyPredicated), 155, 155, 1.109);
  check(vector_op(Opcode::kTensorReduce), 143, 156, 1.042);
  // max8 + match_replace8 = 2 (N + 144) cycles.
  check(vector_op(Opcode::kMax8), 150, 150, 1.042);
  Instruction short_scan = tensor_tensor(sbuf(4, Dtype::kF32, 65536), sbuf(4), sbuf(4, Dtype::kF32, 32768));
  short_scan.opcode = Opcode::kTensorTensorScan;
  CHECK(cost::vector_cost(short_scan, trn2()).stream == cost::ps_of_cycles(64, 0.96));
  Instruction block = copy(Engine::kVector, sbuf(32, Dtype::kF32, 8192, 32), sbuf(32, Dtype::kF32, 0, 32));
  block.opcode = Opcode::kTranspose;
  const auto k = cost::vector_cost(block, trn2());
  CHECK(ns(k.latency) == Approx(233).epsilon(0.02));
  CHECK(ns(k.issue) == Approx(93).epsilon(0.13));
}

TEST_CASE("Vector issue interval is the service and 64 to 68 cycles [3.4]") {
  const auto add =
      cost::vector_cost(tensor_tensor(sbuf(512, Dtype::kF32, 65536), psum(512), sbuf(512)), trn2());
  CHECK(ns(add.issue) == Approx(604).epsilon(0.01));
  CHECK(ns(add.latency) == Approx(687).epsilon(0.02));
  const auto move =
      cost::vector_cost(copy(Engine::kVector, sbuf(512, Dtype::kF32, 65536), sbuf(512)), trn2());
  CHECK(ns(move.issue) == Approx(344).epsilon(0.03));
  CHECK(ns(move.latency) == Approx(421).epsilon(0.02));
}

TEST_CASE("Time does not depend on the number of partitions [3.4]") {
  for (int p : {1, 32, 128}) {
    CHECK(cost::vector_cost(
              copy(Engine::kVector, sbuf(500, Dtype::kF32, 65536, p), sbuf(500, Dtype::kF32, 0, p)), trn2())
              .latency ==
          cost::vector_cost(copy(Engine::kVector, sbuf(500, Dtype::kF32, 65536), sbuf(500)), trn2()).latency);
  }
}

TEST_CASE("Scalar engine [3.5]") {
  check(scalar_activation(isa::ActFunc::kExp, false, true), 276, 296, 0.833);
  check(scalar_activation(isa::ActFunc::kExp, true, true), 251, 251, 0.974);
  check(scalar_activation(isa::ActFunc::kCopy, false, false), 202, 202, 0.834);
  CHECK(scalar_activation(isa::ActFunc::kCopy, false, true).fixed == Approx(202 + 91).epsilon(0.02));
  const auto copy_line = [](bool from_psum) {
    return line([&](int64_t n) {
      return ns(cost::scalar_cost(
                    copy(Engine::kScalar, sbuf(n, Dtype::kF32, 65536), from_psum ? psum(n) : sbuf(n)), trn2())
                    .latency);
    });
  };
  check(copy_line(false), 189, 193, 0.833);
  check(copy_line(true), 159, 174, 0.833);
  // The picture of exp in the DMA guide: 398 ns for 128 elements, 3703 for 4096.
  const Line e = scalar_activation(isa::ActFunc::kExp, false, false);
  CHECK(e.fixed + 128 * e.slope == Approx(398).epsilon(0.04));
  CHECK(e.fixed + 4096 * e.slope == Approx(3703).epsilon(0.01));
}

TEST_CASE("Scalar stride law: two cycles per 16-byte sector [2.3]") {
  const auto strided = [](int64_t step) {
    return ns(cost::scalar_cost(
                  copy(Engine::kScalar, sbuf(256, Dtype::kF32, 65536), sbuf(256, Dtype::kF32, 0, 128, step)),
                  trn2())
                  .stream);
  };
  CHECK(strided(2) == Approx(256 / 1.2));  // 128 sectors, 256 cycles
  CHECK(strided(3) == Approx(2 * 192 / 1.2).epsilon(0.01));
  CHECK(strided(4) == Approx(512 / 1.2));
  CHECK(strided(9) == Approx(512 / 1.2));
}

TEST_CASE("Accumulating activation: producer tail, forward and read [3.5]") {
  Instruction i = activation(sbuf(400, Dtype::kF32, 65536), sbuf(400), isa::ActFunc::kExp);
  i.reduce_op = isa::AluOp::kAdd;
  i.reduce = isa::ReduceCmd::kResetReduce;
  i.aux = sbuf(1, Dtype::kF32, 100000);
  const auto k = cost::scalar_cost(i, trn2());
  CHECK(ns(k.latency) == Approx(400 / 1.2 + 201 + 279).epsilon(0.001));
  CHECK(ns(k.issue) == Approx(400 / 1.2 + 201 + 185).epsilon(0.001));
}

TEST_CASE("Table set of an activation") {
  const auto k = cost::scalar_cost(activation(sbuf(8, Dtype::kF32, 64), sbuf(8), isa::ActFunc::kExp), trn2());
  CHECK(cost::table_load(k, -1, trn2()) == 1'283'300);
  CHECK(cost::table_load(k, isa::act_table_set(isa::ActFunc::kTanh), trn2()) == 1'283'300);
  CHECK(cost::table_load(k, isa::act_table_set(isa::ActFunc::kExp), trn2()) == 0);
}

TEST_CASE("GpSimd [3.7]") {
  Instruction select = copy(Engine::kGpSimd, sbuf(500, Dtype::kF32, 65536), sbuf(500));
  select.opcode = Opcode::kAffineSelect;
  CHECK(ns(cost::gpsimd_cost(select, trn2()).latency) == Approx(177 + 0.846 * 500).epsilon(0.02));
  const auto move =
      cost::gpsimd_cost(copy(Engine::kGpSimd, sbuf(500, Dtype::kF32, 65536), sbuf(500)), trn2());
  CHECK(ns(move.latency) == Approx((150 + 500) / 1.2).epsilon(0.001));
  // 32 bit per partition and cycle: two FP32 inputs halve the rate, two 16-bit inputs do not.
  const auto add = [](Dtype d) {
    return cost::gpsimd_cost(
               tensor_tensor(sbuf(500, d, 65536), sbuf(500, d), sbuf(500, d, 32768), Engine::kGpSimd), trn2())
        .stream;
  };
  CHECK(ns(add(Dtype::kF32)) == Approx(2 * ns(move.stream)).epsilon(1e-5));
  CHECK(add(Dtype::kBF16) == move.stream);
}

TEST_CASE("Matmul columns [3.3]") {
  const auto cycles = [](Dtype d, int64_t n, int64_t step = 1) {
    return cost::matmul(multiply(psum(n), sbuf(n, d, 0, 128, step)), trn2());
  };
  CHECK(cycles(Dtype::kBF16, 512).cycles == 512);
  CHECK(cycles(Dtype::kBF16, 16).cycles == 64);
  CHECK(cycles(Dtype::kF8E4M3, 512).cycles == 512);
  CHECK(cycles(Dtype::kF32R, 512).cycles == 512);
  CHECK(cycles(Dtype::kF32, 512).cycles == 1024);
  CHECK(cycles(Dtype::kF32, 512).passes == 2);
  // The pass of few columns waits for its half of 128 fp32 weights.
  CHECK(cycles(Dtype::kF32, 16).cycles == 256);
  CHECK(cycles(Dtype::kBF16, 512, 8).cycles == 1024);  // 16 bytes of stride: half rate
  CHECK(cycles(Dtype::kBF16, 512, 2).cycles == 512);
  CHECK(cost::matmul(multiply(psum(8), sbuf(8, Dtype::kBF16, 0, 64)), trn2()).rows == 64);
}

TEST_CASE("Weight loads: four columns per cycle when dense and narrow (MB-23..25)") {
  const auto occupancy = [](Dtype d, int64_t step) {
    return ns(cost::weight_load(load_stationary(sbuf(128, d, 0, 128, step)), trn2()).occupancy);
  };
  CHECK(occupancy(Dtype::kBF16, 1) == Approx(32 / 2.4).epsilon(0.001));
  CHECK(occupancy(Dtype::kBF16, 9) == Approx(128 / 2.4).epsilon(0.001));
  CHECK(occupancy(Dtype::kF32, 1) == Approx(256 / 2.4).epsilon(0.001));
}

TEST_CASE("The clock of the array splits a pass at the window edge") {
  cost::PeClock clock(trn2());
  const Ps window = cost::ps_of_cycles(8192, 2.4);
  // All of window 0 at half clock (4096 cycles), the rest at full clock.
  CHECK(clock.run(0, 5096, 128) == Approx(static_cast<double>(window) + 1000 / 2.4 * 1000).margin(3));
  CHECK(clock.last_window_use() == Approx(0.5).epsilon(0.001));
  cost::PeClock slow(trn2());
  CHECK(slow.run(0, 1200, 128) == 1'000'000);
}

TEST_CASE("DMA descriptors [4.3, DM-01, DM-04, DM-07]") {
  const auto time = [](int64_t bytes, int64_t run, bool store = false) {
    return ns(cost::descriptor_time(bytes, run, store, trn2()));
  };
  CHECK(time(4096, 4096) == Approx(155.3).epsilon(0.001));
  CHECK(time(36864, 36864) == Approx(1360.0).epsilon(0.001));
  CHECK(time(256, 256) == Approx(12.9).epsilon(0.01));
  CHECK(time(4096, 512) == time(4096, 4096));  // rows of 512 bytes are free
  CHECK(time(840, 28) == Approx(65.9).epsilon(0.02));
  CHECK(time(32000, 32000, true) / time(32000, 32000) == Approx(1.047).epsilon(0.001));
  CHECK(time(256, 2) > time(256, 4) * 1.9);  // two-byte elements
}

TEST_CASE("DMA transfers split by partition, by row and by byte") {
  const auto& c = trn2();
  const auto whole = cost::dma(dma_copy(Engine::kSync, sbuf(1000), hbm(0, 128000)), c);
  CHECK(whole.jobs.size() == 16);
  CHECK(whole.descriptors == 16);
  CHECK(whole.read_bytes == 512000);
  CHECK(whole.written_bytes == 0);
  const auto narrow = cost::dma(dma_copy(Engine::kSync, sbuf(1000, Dtype::kF32, 0, 1), hbm(0, 1000)), c);
  CHECK(narrow.jobs.size() == 1);
  const auto large = cost::dma(dma_copy(Engine::kSync, sbuf(50000), hbm(0, 128 * 50000)), c);
  CHECK(large.jobs[0].descriptors == 25);  // 8 x 200000 bytes in pieces of 64 KiB
  const auto hbm_copy = cost::dma(dma_copy(Engine::kSync, hbm(1, 100000), hbm(0, 100000)), c);
  CHECK(hbm_copy.jobs.size() == 16);
  CHECK(hbm_copy.read_bytes == 400000);
  CHECK(hbm_copy.written_bytes == 400000);
  const auto tiny = cost::dma(dma_copy(Engine::kSync, hbm(1, 10), hbm(0, 10)), c);
  CHECK(tiny.jobs.size() == 1);
  // A cast moves what each side stores.
  Instruction cast = dma_copy(Engine::kSync, sbuf(1000), hbm(0, 128000, Dtype::kBF16));
  CHECK(cost::dma(cast, c).read_bytes == 256000);
}

TEST_CASE("DMA triggers by descriptor mode [4.2, DM-08, DM-11, DM-12]") {
  const auto& c = trn2();
  const auto mode = [&](isa::DgeMode m) {
    return cost::dma(dma_copy(Engine::kSync, sbuf(16), hbm(0, 2048), m), c);
  };
  CHECK(ns(mode(isa::DgeMode::kStatic).trigger) == 76);
  CHECK(ns(mode(isa::DgeMode::kStatic).first_packet) == 816);
  CHECK(ns(mode(isa::DgeMode::kHardware).trigger) == Approx(485 + 0.8 * 128));
  CHECK(ns(mode(isa::DgeMode::kHardware).first_packet) == 1340);
  CHECK(ns(mode(isa::DgeMode::kSoftware).first_packet) == 760);
  CHECK(mode(isa::DgeMode::kSoftware).software);
}

TEST_CASE("Sectors and strides of operands") {
  CHECK(cost::sectors(sbuf(128)) == 32);
  CHECK(cost::sectors(sbuf(128, Dtype::kF32, 0, 128, 4)) == 128);
  CHECK(cost::sectors(sbuf(128, Dtype::kBF16)) == 16);
  CHECK(cost::sectors(sbuf(100, Dtype::kF32, 0, 128, 0)) == 1);
  CHECK(cost::innermost_stride_bytes(sbuf(128, Dtype::kBF16, 0, 128, 9)) == 18);
  CHECK(cost::psum_banks(psum(512, Dtype::kF32, 3)) == 0x08);
  Access two = psum(512, Dtype::kF32, 3);
  two.offset += 4;
  CHECK(cost::psum_banks(two) == 0x18);
  CHECK(cost::psum_banks(sbuf(4)) == 0);
}
