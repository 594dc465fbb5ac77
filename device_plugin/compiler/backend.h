// Level 3: what TileBuilder recorded, and the passes that turn it into engine streams.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "device_plugin/compiler/tile.h"

namespace trnsim::compiler {

// One logical tile. Row-major [partitions, dims...], always from partition 0 on.
struct TileInfo {
  isa::Space space = isa::Space::kSbuf;
  int partitions = 0;
  int64_t bytes = 0;  // per partition
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> dims;
  // Expanded programs: a tile of a loop body, the iteration of the copy it belongs to, and the tile of the
  // first copy whose place it shares (itself there).
  int32_t loop = -1;
  int32_t slot = 0;
  int32_t order = 0;  // among the tiles of its iteration
  uint32_t twin = 0;
};

// A counted loop over code [begin, end). An HBM access in it whose address_register is r moves by strides[r]
// bytes per iteration; tiles that only the body touches are fresh in every iteration.
struct TileLoop {
  size_t begin = 0, end = 0;
  int64_t count = 0;
  std::vector<int64_t> strides;
  // The second half of an iteration takes turns with the first half of the next.
  bool staggered = false;
  bool unrolled = false;  // cannot be kept as a loop
};

// An expanded loop: a few copies of `slots` iterations each. The third copy is the one that the streams run
// `repeats` times; the copies around it bring the pipeline into its steady state and drain it.
enum LoopCopy : int32_t { kCopyFirst = 0, kCopySecond, kCopyLooped, kCopyLast, kCopyRest, kNumCopies };
struct ExpandedLoop {
  int64_t count = 0, repeats = 0;
  int slots = 0;
  size_t length = 0;  // instructions of an iteration
  bool staggered = false;
  std::vector<int64_t> strides;
  uint32_t source = 0;  // index into TileProgram::loops
};

// Where an instruction of an expanded program comes from.
struct Origin {
  int32_t loop = -1;  // index into TileProgram::expanded
  int32_t copy = 0;   // where it stands: the second half of a staggered iteration may stand in the next copy
  int32_t slot = 0;
  size_t index = 0;       // in its iteration
  int64_t iteration = 0;  // whose bytes it touches
  int64_t sequence = 0;   // number of the iteration in the expanded code, which leaves out the repeats
};

struct TileProgram {
  isa::Program program;  // everything but the streams
  std::vector<TileInfo> tiles;
  std::vector<isa::Instruction>
      code;  // program order; SBUF/PSUM accesses name tiles; DMA queues not chosen yet
  std::vector<uint32_t> alias_group;   // per program tensor: tensors that may share memory have equal numbers
  std::vector<TileLoop> loops;         // in program order, disjoint
  std::vector<ExpandedLoop> expanded;  // after expand_loops
  std::vector<Origin> origins;         // per instruction; empty without expanded loops
  std::vector<uint32_t>
      shared;  // tensors that the other core of the program touches too, in order of core_barrier
  TileOptions options;
};

constexpr int kNumProcs = isa::kNumEngines + isa::kNumDmaQueues;  // things that complete work in order

// Passes, in this order. Each reads and rewrites `TileProgram::code`.

// Loads of what a tile was just stored to read the tile instead.
void forward_stores(TileProgram& tiles);
// Dims of size 1 dropped, runs merged: equal for equal sequences of elements.
Access plain_access(const Access& a);
// A copy of elements as they are, between places that are known.
bool is_plain_transfer(const isa::Instruction& i);

// Takes out what only writes tiles that nothing reads afterwards, or scratch memory that nothing loads. Of a gather that checks indices the check is
// the effect: it stays.
void remove_unread(TileProgram& tiles);

// Decides which loops stay loops (marks the others `unrolled`) and writes their copies; takes the
// declarations of `rolled` over.
TileProgram expand_loops(TileProgram& rolled);

// Engine of every compute instruction, by earliest estimated finish among the engines that may run it;
// issuing engine and queue of every DMA; activation-table loads.
void choose_engines(TileProgram& tiles);

// Loads with descriptors made beforehand leave ahead of those that cost the issuing engine time, where nothing waits.
void order_loads(TileProgram& tiles);

// Places of the tiles. `offset[t]`: byte offset per partition. `replaced[t]`: tiles whose space tile t took
// over.
struct Allocation {
  std::vector<int64_t> offset;
  std::vector<std::vector<uint32_t>> replaced;
  int64_t sbuf_high_water = 0;
  int32_t failed_loop = -1;  // expanded loop whose tiles found no room
};
Allocation allocate_tiles(const TileProgram& tiles);

// Places of the tiles of one iteration relative to its first byte. Packed: space is used again after a tile's
// last use, which is tighter and gives up overlap inside the iteration.
struct IterationLayout {
  std::vector<std::pair<uint32_t, int64_t>> places;  // tile, offset
  int64_t bytes = 0;
};
IterationLayout lay_out_iteration(const TileProgram& tiles, size_t begin, size_t end, isa::Space space,
                                  const std::vector<bool>& local, bool packed);
// The layout of the two that lets more iterations overlap in `window` bytes.
IterationLayout choose_layout(const TileProgram& tiles, size_t begin, size_t end, isa::Space space,
                              const std::vector<bool>& local, int64_t window);

// Semaphores and streams. Accesses are rewritten from tiles to addresses. Empty when the waits of an expanded
// loop are not the same in every copy: *failed_loop says which; the declarations are left in place then.
std::optional<isa::Program> build_streams(TileProgram& tiles, const Allocation& allocation,
                                          int32_t* failed_loop);

isa::Program run_back_half(TileProgram&& tiles);

std::string tile_program_text(const TileProgram& tiles);

// All operand accesses of an instruction, also the pointers of scalar operands.
struct Operand {
  isa::Access* access;
  bool write;
};
inline int list_operands(isa::Instruction& i, Operand (&out)[6]) {
  int n = 0;
  if (i.dst.present()) out[n++] = {&i.dst, true};
  if (i.aux.present()) out[n++] = {&i.aux, true};
  if (i.src0.present()) out[n++] = {&i.src0, false};
  if (i.src1.present()) out[n++] = {&i.src1, false};
  if (i.imm0.kind == isa::ScalarOperand::Kind::kPointer) out[n++] = {&i.imm0.pointer, false};
  if (i.imm1.kind == isa::ScalarOperand::Kind::kPointer) out[n++] = {&i.imm1.pointer, false};
  return n;
}
// Instructions that keep part of the old contents of dst, or add to it.
bool reads_destination(const isa::Instruction& i);

}  // namespace trnsim::compiler
