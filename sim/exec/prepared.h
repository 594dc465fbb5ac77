// The executable form of instructions: operands resolved to base + pitch + merged dims, bounds checked,
// kernels chosen.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "isa/program.h"
#include "sim/exec/exec.h"
#include "sim/exec/rows.h"
#include "sim/exec/scratchpad.h"

namespace trnsim::exec {

// Raised while an instruction executes; caught at the public interface.
struct Fault {
  Status::Kind kind;
  std::string message;
};

// Free-axis dims, outermost first, adjacent dims merged where possible. Steps in bytes.
struct Pattern {
  int dims = 0;
  std::array<int64_t, isa::kMaxDims> size{};
  std::array<int64_t, isa::kMaxDims> step{};

  int64_t elements() const {
    int64_t n = 1;
    for (int i = 0; i < dims; ++i) n *= size[i];
    return n;
  }
};

struct Operand {
  isa::Space space = isa::Space::kNone;
  isa::Dtype dtype = isa::Dtype::kF32;
  uint8_t address_register = isa::kNoRegister;
  bool dense = false;       // the free axis is one run without gaps
  bool direct_f32 = false;  // dense, FP32 and aligned: kernels work on the memory itself
  int bytes = 4;            // of an element
  int rows = 1;             // partitions; 1 for HBM
  int first_partition = 0;
  int64_t n = 1;           // free elements
  int64_t base = 0;        // byte offset from the start of the memory (partition * pitch + offset)
  int64_t pitch = 0;       // bytes between partitions
  int64_t offset = 0;      // as given: inside a partition, or inside the tensor
  int64_t lo = 0, hi = 0;  // bytes touched, relative to `offset`
  uint32_t tensor = 0;
  std::byte* host = nullptr;  // staged copy of an indirect operand: `base` counts from here
  Pattern pattern;

  bool present() const { return space != isa::Space::kNone; }
  int64_t elements() const { return rows * n; }
};

struct Scalar {
  isa::ScalarOperand::Kind kind = isa::ScalarOperand::Kind::kNone;
  float value = 0;
  const Operand* pointer = nullptr;

  bool present() const { return kind != isa::ScalarOperand::Kind::kNone; }
};

struct Prepared;
struct Context;
using ExecuteFn = void (*)(Context&, const Prepared&);

// Plans that only some instructions need (DMA loop nests); owned by the arena.
struct CopyPlan;
struct TransposePlan;
struct IndirectPlan;

struct Prepared {
  ExecuteFn fn = nullptr;
  ExecuteFn fp32_fn = nullptr;  // of an integer instruction that numerics.fp32_integers may send through FP32
  const Operand* dst = nullptr;  // never null: absent operands point to one with space kNone
  const Operand* src0 = nullptr;
  const Operand* src1 = nullptr;
  const Operand* aux = nullptr;
  Scalar imm0, imm1;
  const CopyPlan* copy = nullptr;
  const TransposePlan* transpose = nullptr;
  IndirectPlan* indirect = nullptr;
  RowKernels::Binary tensor_fn = nullptr;
  RowKernels::BinaryScalar scalar0_fn = nullptr, scalar1_fn = nullptr;
  RowKernels::BinaryScalar2 fused_fn = nullptr;
  isa::Opcode opcode = isa::Opcode::kHalt;
  isa::Engine engine = isa::Engine::kSync;
  uint8_t core = 0;
  uint8_t queue = 0;
  isa::AluOp op0 = isa::AluOp::kNone, op1 = isa::AluOp::kNone;
  isa::ActFunc func = isa::ActFunc::kCopy;
  uint8_t reduce_dims = 0;
  uint8_t reg_dst = 0, reg_a = 0, reg_b = 0;
  uint16_t flags = 0;
  uint32_t target = 0;
  uint32_t location = 0;
  uint32_t index = 0;  // in its stream
  isa::AluOp reduce_op = isa::AluOp::kNone;
  isa::ReduceCmd reduce = isa::ReduceCmd::kIdle;
  isa::PeTile tile;
  uint32_t count = 0;
  float param = 0;
  int64_t imm = 0;
  int64_t reduce_length = 1;
  isa::Sync sync;
  isa::AffinePattern pattern;
  std::array<uint32_t, 4> affine_size{};  // dims of dst, for the affine pattern
  int affine_dims = 0;
  std::array<uint8_t, 32> mask{};

  bool has(isa::Flags f) const { return (flags & f) != 0; }
};

struct CopyPlan {
  // Common loop nest of both sides, outermost first. dims == -1: the two shapes have no common nest.
  int dims = 0;
  static constexpr int kMax = 14;
  std::array<int64_t, kMax> size{}, dst_step{}, src_step{};
};

struct TransposePlan {
  std::vector<int64_t> src_row, src_col;   // byte offsets of src rows / columns
  std::vector<int64_t> dst_row, dst_col;   // byte offsets of dst rows (= src columns) / columns (= src rows)
  bool uniform = false;                    // all four have a constant step
  int64_t table_rows = 0, table_step = 0;  // gathering transpose: rows of src0 in HBM; src_row is within one
};

// Operands whose elements come from index lists. They are staged: gathered into a dense copy before the
// kernel runs and, when written, scattered afterwards.
struct IndirectPlan {
  struct Side {
    const Operand* list = nullptr;   // null: not indirect
    const Operand* where = nullptr;  // the operand as given: base, pitch and step of dims[0]
    int64_t entries = 0, step = 0;   // of dims[0]; step in bytes
    Pattern rest;                    // dims[1..]
    int64_t lo = 0, hi = 0;          // bytes that one entry touches
    int64_t limit = 0;               // bytes of a partition
  };
  Side side[3];  // dst, src0, src1
  const Operand* staged[3] = {};
  ExecuteFn inner = nullptr;
};

// Owns what Prepared points to. Deques keep addresses stable.
struct Arena {
  std::deque<Operand> operands;
  std::deque<CopyPlan> copies;
  std::deque<TransposePlan> transposes;
  std::deque<IndirectPlan> indirects;
  void clear() {
    indirects.clear();
    operands.clear();
    copies.clear();
    transposes.clear();
  }
};

// What a prepared program needs of its source for messages and checks at run time.
struct ProgramInfo {
  std::string name;
  int cores = 1;
  std::vector<std::string> tensor_names;
  std::vector<uint64_t> tensor_bytes;
  std::vector<isa::SourceLocation> locations;
  std::vector<std::pair<std::string, std::string>> notes;
};

// Largest offsets used, so that storage can be poisoned up to there and bindings checked once per run.
struct Footprint {
  int64_t sbuf_end = 0;
  int64_t psum_end = 0;
  std::vector<uint64_t> hbm_end;  // 0: not touched by a static access
  std::vector<bool> hbm_used;
};

class PreparedProgram {
 public:
  std::array<std::vector<Prepared>, isa::kNumStreams> streams;
  Arena arena;
  ProgramInfo info;
  Footprint footprint;
  CoreSizes sizes;
};

// Resolves one instruction. Throws Fault.
class Resolver {
 public:
  Resolver(const isa::Program& program, const CoreSizes& sizes, Arena& arena, Footprint& footprint)
      : program_(program), sizes_(sizes), arena_(arena), footprint_(footprint) {}
  void resolve(const isa::Instruction& instruction, int core, uint32_t index, Prepared* out);

 private:
  const Operand* operand(const isa::Access& access, const char* role);
  void check_opaque(const isa::Instruction& instruction, const Prepared& p) const;
  void stage_indirect(const isa::Instruction& instruction, Prepared* p);
  Scalar scalar(const isa::ScalarOperand& s, const char* role);
  void choose(const isa::Instruction& instruction, Prepared* p);
  void choose_elementwise(Prepared* p);
  void choose_rows(const isa::Instruction& instruction, Prepared* p);  // choose_rows.cpp
  void accumulator(const isa::Instruction& instruction, const Prepared& p) const;
  void activation_function(const isa::Instruction& instruction) const;
  void pe_tile(const isa::Instruction& instruction) const;
  void on_chip(const Operand* o, const char* role) const { need(o, role, true, true, false); }
  void scalar_rows(const Prepared& p, const Scalar& s, const char* role) const;
  void elementwise(const Prepared& p, bool with_src0, bool with_src1) const;
  void choose_dma(const isa::Instruction& instruction, Prepared* p);
  [[noreturn]] void fail(Status::Kind kind, const std::string& what) const;
  [[noreturn]] void illegal(const std::string& what) const { fail(Status::Kind::kIllegal, what); }
  void need(const Operand* o, const char* role, bool sbuf, bool psum, bool hbm) const;
  void same_shape(const Operand* a, const char* role_a, const Operand* b, const char* role_b) const;
  void need_pair(const isa::Instruction& in) const;
  void need_alu(isa::AluOp op, bool integer, const char* field) const;

  const isa::Program& program_;
  const CoreSizes& sizes_;
  Arena& arena_;
  Footprint& footprint_;
  const isa::Instruction* current_ = nullptr;
  int core_ = 0;
  uint32_t index_ = 0;
};

// "tensor_tensor on vector (instruction 12, model.py:34: relu)"; "on vector of core 1" where there are two cores
// (`core` of a program of one: -1).
std::string describe(isa::Opcode opcode, int core, isa::Engine engine, uint32_t index, uint32_t location,
                     const std::vector<isa::SourceLocation>& locations);

// One kernel per group of opcodes.
void execute_nothing(Context&, const Prepared&);
void execute_copy(Context&, const Prepared&);
void execute_tensor_tensor(Context&, const Prepared&);
void execute_tensor_tensor_int(Context&, const Prepared&);
void execute_tensor_scalar(Context&, const Prepared&);
void execute_tensor_scalar_int(Context&, const Prepared&);
void execute_scalar_tensor_tensor(Context&, const Prepared&);
void execute_scalar_tensor_tensor_int(Context&, const Prepared&);
void execute_activation(Context&, const Prepared&);
void execute_reciprocal(Context&, const Prepared&);
void execute_memset(Context&, const Prepared&);
void execute_iota(Context&, const Prepared&);
void execute_affine_select(Context&, const Prepared&);
void execute_copy_predicated(Context&, const Prepared&);
void execute_tensor_reduce(Context&, const Prepared&);
void execute_tensor_reduce_int(Context&, const Prepared&);
void execute_partition_reduce(Context&, const Prepared&);
void execute_partition_reduce_int(Context&, const Prepared&);
void execute_scan(Context&, const Prepared&);
void execute_scan_int(Context&, const Prepared&);
void execute_bn_stats(Context&, const Prepared&);
void execute_bn_aggr(Context&, const Prepared&);
void execute_max8(Context&, const Prepared&);
void execute_max_index8(Context&, const Prepared&);
void execute_match_replace8(Context&, const Prepared&);
void execute_load_stationary(Context&, const Prepared&);
void execute_load_stationary_sparse(Context&, const Prepared&);
void execute_multiply_moving(Context&, const Prepared&);
void execute_transpose_tensor(Context&, const Prepared&);
void execute_transpose_vector(Context&, const Prepared&);
void execute_philox(Context&, const Prepared&);
void execute_load_stationary_mx(Context&, const Prepared&);
void execute_multiply_moving_mx(Context&, const Prepared&);
void execute_quantize_mx(Context&, const Prepared&);
void execute_activate2(Context&, const Prepared&);
void execute_exponential(Context&, const Prepared&);
void execute_tensor_scalar_reduce(Context&, const Prepared&);
void execute_tensor_scalar_cumulative(Context&, const Prepared&);
void execute_range_select(Context&, const Prepared&);
void execute_select_reduce(Context&, const Prepared&);
void execute_stream_shuffle(Context&, const Prepared&);
void execute_local_gather(Context&, const Prepared&);
void execute_n_gather(Context&, const Prepared&);
void execute_sequence_bounds(Context&, const Prepared&);
void execute_nonzero_with_count(Context&, const Prepared&);
void execute_topk(Context&, const Prepared&);
void execute_custom(Context&, const Prepared&);
void execute_rng(Context&, const Prepared&);
void execute_rand2(Context&, const Prepared&);
void execute_dropout(Context&, const Prepared&);
void execute_set_rng_seed(Context&, const Prepared&);
void execute_rand_get_state(Context&, const Prepared&);
void execute_rand_set_state(Context&, const Prepared&);
void execute_dma_compute(Context&, const Prepared&);
void execute_dma_gather_transpose(Context&, const Prepared&);
void execute_indirect(Context&, const Prepared&);
void execute_dma_copy(Context&, const Prepared&);
void execute_dma_transpose(Context&, const Prepared&);
void execute_dma_gather(Context&, const Prepared&);
void execute_dma_scatter(Context&, const Prepared&);
void execute_send_recv(Context&, const Prepared&);
void execute_reg_move(Context&, const Prepared&);
void execute_reg_alu(Context&, const Prepared&);
void execute_reg_load(Context&, const Prepared&);
void execute_reg_store(Context&, const Prepared&);

}  // namespace trnsim::exec
