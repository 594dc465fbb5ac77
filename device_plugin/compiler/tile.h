// Level 2: tile programs, the level of nki.isa. A TileBuilder records isa instructions in program order on
// logical tiles; finish() runs the back half (level 3): SBUF/PSUM allocation, engine and DMA queue choice,
// semaphores, streams.
//
// Tiles: an Access whose space is SBUF/PSUM and whose `tensor` is the tile number; offsets are relative to
// the tile. The program order is the meaning of the program. Tilers never place a semaphore, an address or a
// queue.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "isa/index_check.h"
#include "isa/program.h"

namespace trnsim::compiler {

using isa::Access;
using isa::ActFunc;
using isa::AluOp;
using isa::Dtype;
using isa::Engine;
using isa::ScalarOperand;

struct TileOptions {
  std::string target = "trn2";
  int64_t sbuf_bytes_per_partition = 212984;
  int32_t num_params = 0;  // run-time parameters of the graph
};

class TileBuilder {
 public:
  explicit TileBuilder(std::string name, TileOptions options = {});
  ~TileBuilder();

  // HBM tensors. Returns a contiguous access of rank `shape` (folded to at most 5 dims).
  Access tensor(const std::string& name, isa::TensorKind kind, Dtype dtype, std::vector<int64_t> shape,
                uint64_t bytes = 0, std::vector<uint8_t> constant = {});
  // Declares that two HBM tensors may share memory (an in-place output and its input): they are ordered like
  // one.
  void alias(const Access& a, const Access& b);
  // Programs of two cores: the HBM tensors through which the cores see each other, and the place where they meet. What
  // lies on different sides of it stays in order on these tensors.
  void share(const std::vector<Access>& tensors);
  void core_barrier();
  int num_tensors() const;
  const std::string& target() const;
  int num_instructions() const;
  // Partitions of the tile from which one store put exactly these elements there, in this order, with nothing written
  // over them since; 0: no such store. A load of them needs no way through HBM (forward_stores).
  int stored_from(const Access& hbm) const;
  // Largest number of SBUF bytes per partition that live tiles occupy at one point so far.
  int64_t peak_sbuf_bytes() const;
  // Row-major logical tiles of [partitions, dims...]; at most 4 free dims. Freed after their last use.
  Access sbuf(int partitions, std::vector<int64_t> dims, Dtype dtype);
  Access psum(int partitions, std::vector<int64_t> dims,
              Dtype dtype = Dtype::kF32);  // at most one bank (2 KiB)
  // SBUF [partitions, 1] column with run-time parameter `slot` in every partition (loaded once per program).
  ScalarOperand param(int slot, Dtype dtype = Dtype::kF32);
  static ScalarOperand imm(float v);
  static ScalarOperand column(const Access& sbuf_column);

  // Data movement. Any engine hint may be overridden by the back half where the table allows another engine.
  void load(const Access& dst_sbuf, const Access& src_hbm);
  void store(const Access& dst_hbm, const Access& src_sbuf);
  void dma(const Access& dst, const Access& src);  // HBM -> HBM, SBUF -> SBUF
  // dst [F, P] = transpose of src_hbm [P, F...], 2- or 4-byte elements of one dtype.
  void load_transposed(const Access& dst_sbuf, const Access& src_hbm);
  void gather(const Access& dst_sbuf, const Access& src_hbm_rows, const Access& index_sbuf);
  void scatter(const Access& dst_hbm_rows, const Access& src_sbuf, const Access& index_sbuf, bool accumulate);
  void copy(const Access& dst, const Access& src);
  void memset(const Access& dst, float value);
  void iota(const Access& dst, const isa::AffinePattern& pattern);
  void affine_select(const Access& dst, const Access& src, const isa::AffinePattern& pattern, AluOp cmp,
                     float fill);
  // Compute
  void tensor_tensor(const Access& dst, const Access& a, const Access& b, AluOp op);
  void tensor_scalar(const Access& dst, const Access& a, AluOp op0, const ScalarOperand& s0,
                     AluOp op1 = AluOp::kNone, const ScalarOperand& s1 = {}, bool reverse0 = false,
                     bool reverse1 = false);
  void scalar_tensor_tensor(const Access& dst, const Access& a, AluOp op0, const ScalarOperand& s0, AluOp op1,
                            const Access& b);
  void activation(const Access& dst, const Access& src, ActFunc func, const ScalarOperand& scale = {},
                  const ScalarOperand& bias = {}, const Access* row_sum = nullptr);
  void reciprocal(const Access& dst, const Access& src);
  void copy_predicated(const Access& dst, const Access& src, const Access& predicate);
  void reduce(const Access& dst, const Access& src, AluOp op, int trailing_dims);
  void partition_reduce(const Access& dst, const Access& src, AluOp op);
  void scan(const Access& dst, const Access& a, const Access& b, AluOp op0, AluOp op1,
            const ScalarOperand& initial);
  void bn_stats(const Access& dst, const Access& src);
  void bn_aggr(const Access& dst, const Access& src);
  void max8(const Access& dst, const Access& src);
  void max_index8(const Access& dst, const Access& src, const Access& values);
  void match_replace8(const Access& dst, const Access& src, const Access& values, float replacement);
  void philox(const Access& dst, const Access& state, int64_t base);
  // `on`: the tile of the systolic array, absent: all of it. Products on tiles that share no cell run side by side.
  void matmul(const Access& dst_psum, const Access& stationary, const Access& moving, bool accumulate,
              const isa::PeTile& on = {});
  void transpose(const Access& dst,
                 const Access& src);  // tensor engine when dst is PSUM, else vector (<= 32x32)
  isa::Instruction& emit(isa::Instruction instruction);  // anything else; engine field is a hint

  // Loops. `body` emits one iteration, which then runs `count` times. HBM accesses move from iteration to
  // iteration as advance() says; tiles that only the body touches are fresh in every iteration (double
  // buffering), other tiles carry their contents on. Iterations meet in HBM as in the unrolled program: what
  // is not proven independent stays in order. Not nested.
  // `staggered`: the second half of an iteration takes turns with the first half of the next, so that engines that wait for
  // each other in a long chain have work. Of independent iterations that carry nothing on.
  void loop(int64_t count, const std::function<void()>& body, bool staggered = false);
  Access advance(const Access& hbm, int64_t bytes_per_iteration);
  // Inside a body: what `emit` emits runs once, ahead of the loop. Elsewhere: here.
  void before_loop(const std::function<void()>& emit);
  bool in_loop() const;

  void set_location(const std::string& file, int line, const std::string& what);
  void note(const std::string& key, const std::string& value);
  // The instructions that follow, up to the next location, check indices: what to say of one that is not legal.
  void check_indices(const isa::IndexCheck& check);
  void add_work(uint64_t flops, uint64_t hbm_bytes);

  void forward_stores();     // loads of what a tile was stored to take the tile; before remove_unread
  void remove_unread();      // takes out instructions whose results nothing reads; the last call but finish()
  std::string text() const;  // level 2 dump
  isa::Program finish();     // throws CompileError

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Row-major free dims and no tile behind it, for questions to the laws of time (cost.h).
Access dense_access(isa::Space space, int64_t partitions, const std::vector<int64_t>& dims, Dtype dtype);
// Narrows an access: [begin, begin + count) of free dim `dim`, or of the partitions of an SBUF/PSUM tile.
Access slice(const Access& a, int dim, int64_t begin, int64_t count);
Access slice_partitions(const Access& a, int begin, int count);
// The same elements with another list of free dims (needs a contiguous access).
Access reshape(const Access& a, std::vector<int64_t> dims);
// Appends / replaces dims with a stride-0 broadcast.
Access broadcast(const Access& a, int dim, int64_t count);

}  // namespace trnsim::compiler
