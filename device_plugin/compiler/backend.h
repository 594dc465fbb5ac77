// Level 3: what TileBuilder recorded, and the passes that turn it into engine streams.
#pragma once

#include <cstdint>
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
};

struct TileProgram {
  isa::Program program;  // everything but the streams
  std::vector<TileInfo> tiles;
  std::vector<isa::Instruction>
      code;  // program order; SBUF/PSUM accesses name tiles; DMA queues not chosen yet
  std::vector<uint32_t> alias_group;  // per program tensor: tensors that may share memory have equal numbers
  TileOptions options;
};

constexpr int kNumProcs = isa::kNumEngines + isa::kNumDmaQueues;  // things that complete work in order

// Passes, in this order. Each reads and rewrites `TileProgram::code`.

// Engine of every compute instruction, by earliest estimated finish among the engines that may run it;
// issuing engine and queue of every DMA; activation-table loads.
void choose_engines(TileProgram& tiles);

// Places of the tiles. `offset[t]`: byte offset per partition. `replaced[t]`: tiles whose space tile t took
// over.
struct Allocation {
  std::vector<int64_t> offset;
  std::vector<std::vector<uint32_t>> replaced;
  int64_t sbuf_high_water = 0;
};
Allocation allocate_tiles(const TileProgram& tiles);

// Semaphores and streams. Accesses are rewritten from tiles to addresses.
isa::Program build_streams(TileProgram&& tiles, const Allocation& allocation);

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
