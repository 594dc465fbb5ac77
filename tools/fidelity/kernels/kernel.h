// A kernel of the measurement collection, rebuilt: the generator calls one function per instruction in program
// order and says which buffers it uses. The builder places the buffers, orders the streams as the vendor's compiler
// does (a list scheduler of bounded reach; program order is the priority) and adds the semaphores that the reads and
// writes ask for. Loops, tile sizes and the number of copies of a buffer come from the description of the row.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "isa/program.h"
#include "sim/config/config.h"
#include "sim/cost/cost.h"

namespace trnsim::fidelity {

// A rectangle of a buffer: `access` says which elements of every partition.
struct Tile {
  int buffer = -1;
  isa::Access access;
  int64_t n() const { return access.free_elements(); }
  Tile columns(int64_t first, int64_t count, int64_t step = 1) const;  // of a tile of one dense dim
  Tile rows(int64_t count) const;                                      // the first partitions
  Tile shaped(std::initializer_list<int64_t> sizes, std::initializer_list<int64_t> steps) const;
  Tile as(isa::Dtype dtype) const;  // the same bytes as elements of another size
};

// `copies` buffers of one shape, used in turn.
class Ring {
 public:
  const Tile& next() { return tiles_[at_++ % tiles_.size()]; }
  std::vector<Tile> take(int64_t count);

 private:
  friend class Kernel;
  std::vector<Tile> tiles_;
  size_t at_ = 0;
};

class Kernel {
 public:
  Kernel(std::string name, const config::Config& config);  // the configuration outlives the kernel

  // ---- buffers; more than the memory holds is an error of the description ----
  Ring sbuf(int copies, int64_t elements, isa::Dtype dtype = isa::Dtype::kF32, int partitions = 128);
  int64_t sbuf_left() const { return sbuf_limit_ - sbuf_used_; }  // bytes per partition
  // Each copy starts on a bank of its own.
  Ring psum(int copies, int64_t elements, isa::Dtype dtype = isa::Dtype::kF32, int partitions = 128);
  Tile one(int64_t elements, isa::Dtype dtype = isa::Dtype::kF32, int partitions = 128);
  // Rows of an HBM tensor that is written and read back.
  Tile scratch(int64_t rows, int64_t elements, isa::Dtype dtype = isa::Dtype::kF32);

  // ---- DMA: which sequencer triggers, and who builds the descriptors ----
  struct Trigger {
    isa::Engine engine = isa::Engine::kSync;
    isa::DgeMode mode = isa::DgeMode::kStatic;
  };
  Trigger loads, stores{isa::Engine::kGpSimd, isa::DgeMode::kStatic};
  bool both_load = false;  // Sync and Scalar trigger loads in turn
  // An engine whose instructions the description gives in their order keeps to it.
  void keep_order(isa::Engine engine) { in_order_[static_cast<size_t>(engine)] = true; }
  // One whose published share of busy time leaves no gaps takes whatever is ready first.
  void keep_busy(isa::Engine engine) { busy_[static_cast<size_t>(engine)] = true; }
  // Rows of `run` contiguous elements in HBM (0 = a whole row of the tile).
  void load(const Tile& dst, int queue, int64_t run = 0);
  void load_from(const Tile& dst, const Tile& hbm, int queue);
  void load_transposed(const Tile& dst, int queue);  // transposing DMA of 16-bit elements, [rows, n]
  void store(const Tile& src, int queue, int64_t run = 0);
  void store_to(const Tile& hbm, const Tile& src, int queue);

  // ---- compute ----
  // Operands [K, 2, n] are pairs of fp8 rows.
  void matmul(const Tile& dst, const Tile& weights, const Tile& moving, bool accumulate);
  void transpose(const Tile& dst, const Tile& src);                        // through the array
  void transpose(const Tile& dst, const Tile& src, const Tile& identity);  // when the identity is loaded
  void transpose_blocks(const Tile& dst, const Tile& src);                 // 32x32 blocks on Vector
  void copy(isa::Engine engine, const Tile& dst, const Tile& src);
  void tensor_tensor(const Tile& dst, const Tile& a, const Tile& b, isa::Engine engine = isa::Engine::kVector,
                     isa::AluOp op = isa::AluOp::kMultiply);
  void scalar_tensor_tensor(const Tile& dst, const Tile& a, const Tile& b);
  void tensor_scalar(const Tile& dst, const Tile& a, isa::Engine engine = isa::Engine::kVector);
  void tensor_scalar(const Tile& dst, const Tile& a, const Tile& column,
                     isa::Engine engine = isa::Engine::kVector);
  void reduce(const Tile& dst, const Tile& src, isa::AluOp op, int dims = 1);
  void reciprocal(const Tile& dst, const Tile& src);
  void scan(const Tile& dst, const Tile& a, const Tile& b, const Tile& seed);
  void memset(isa::Engine engine, const Tile& dst);
  void activation(isa::ActFunc func, const Tile& dst, const Tile& src);
  void activation(isa::ActFunc func, const Tile& dst, const Tile& src, const Tile& bias);
  void activation_sum(isa::ActFunc func, const Tile& dst, const Tile& src, const Tile& bias, const Tile& sum);

  isa::Program finish();

 private:
  // A node of the program: one instruction, or a weight load with its matmul.
  struct Node {
    isa::Instruction instruction;
    isa::Instruction pair;  // the matmul that follows a weight load
    bool paired = false;
    int counter = 0;                  // engine, or 5 + DMA queue, that counts its completion
    std::vector<uint32_t> needs;      // nodes that must be complete before
    cost::Ps issue = 0, latency = 0;  // estimates for the order
  };
  struct Use {
    int64_t low = 0, high = 0;
    int first = 0, last = 0;
    bool write = false;
    uint32_t node = 0;
  };
  static constexpr int kCounters = isa::kNumEngines + isa::kNumDmaQueues;
  using Clock = std::array<int32_t, kCounters>;

  Tile place(isa::Space space, int64_t offset, int64_t elements, isa::Dtype dtype, int partitions);
  void emit(const isa::Instruction& i, std::initializer_list<const Tile*> reads, const Tile* write,
            const Tile* second_write = nullptr);
  void add(Node node, std::initializer_list<const Tile*> reads, std::initializer_list<const Tile*> writes);
  void depend(const Tile& tile, bool write, std::vector<uint32_t>* needs) const;
  void record(const Tile& tile, bool write, uint32_t node);
  void dma(const Trigger& trigger, int queue, isa::Instruction i, const Tile* read, const Tile* write);
  isa::Access rows_of(uint32_t tensor, int64_t rows, int64_t n, int64_t run, isa::Dtype dtype);
  isa::Instruction make(isa::Opcode opcode, isa::Engine engine, const Tile& dst) const;
  std::vector<uint32_t> order() const;
  void synchronise(const std::vector<uint32_t>& order);

  const config::Config& config_;
  isa::Program program_;
  std::vector<Node> nodes_;
  int64_t sbuf_limit_ = 0, sbuf_used_ = 0;
  int psum_used_ = 0;
  bool turn_ = false;
  std::array<bool, isa::kNumEngines> in_order_{}, busy_{};
  // All plain loads read from the start of one tensor; every plain store has a place of its own in another.
  static constexpr uint32_t kInput = 0, kOutput = 1;
  uint64_t input_bytes_ = 0, output_bytes_ = 0;
  std::vector<std::vector<Use>> buffers_;
};

}  // namespace trnsim::fidelity
