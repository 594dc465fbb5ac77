#include "device_plugin/compiler/tile.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "device_plugin/compiler/backend.h"
#include "device_plugin/compiler/backend_region.h"
#include "device_plugin/compiler/error.h"

namespace trnsim::compiler {

using isa::Instruction;
using isa::Opcode;
using isa::Space;

namespace {

std::string shape_text(const Access& a) {
  std::string s = "[";
  if (a.space != Space::kHbm) s += std::to_string(a.num_partitions) + (a.num_dims ? ", " : "");
  for (int i = 0; i < a.num_dims; ++i) s += (i ? ", " : "") + std::to_string(a.size[i]);
  return s + "]";
}

void set_row_major(Access& a, const std::vector<int64_t>& dims) {
  int64_t step = 1;
  a.num_dims = static_cast<uint8_t>(dims.size());
  for (int i = static_cast<int>(dims.size()) - 1; i >= 0; --i) {
    a.size[i] = static_cast<uint32_t>(dims[i]);
    a.step[i] = step;
    step *= dims[i];
  }
}

// True when the tiles of the systolic array share a cell.
bool tiles_meet(const isa::PeTile& a, const isa::PeTile& b) {
  if (a.whole() || b.whole()) return true;
  return a.row < b.row + b.rows && b.row < a.row + a.rows && a.column < b.column + b.columns &&
         b.column < a.column + a.columns;
}

void check_tile(const char* what, int partitions, const std::vector<int64_t>& dims) {
  if (partitions < 1 || partitions > isa::kMaxPartitions) {
    throw_internal(std::string(what) + " tile with " + std::to_string(partitions) + " partitions (1 to 128)");
  }
  if (dims.size() > 4) {
    throw_internal(std::string(what) + " tile with " + std::to_string(dims.size()) +
                   " free dims (at most 4)");
  }
  for (int64_t d : dims) {
    if (d < 1) throw_internal(std::string(what) + " tile with an empty dim");
  }
}

}  // namespace

struct TileBuilder::Impl {
  TileProgram tiles;
  uint32_t location = 0;
  std::map<int, Access> params;  // by first slot
  int params_tensor = -1;
  std::vector<uint32_t> writes;  // per tile: how often it was written
  // In the tensor engine now, one per tile of its array that was loaded; valid while `writes` matches.
  struct Stationary {
    isa::PeTile on;
    Access matrix;
    uint32_t writes = 0;
  };
  std::vector<Stationary> stationary;
  bool in_loop = false, ahead_of_loop = false;
  std::vector<Instruction> ahead;  // emitted by before_loop()
  struct Written {
    Access hbm;  // plain_access
    Region region;
    int partitions = 0;  // of the tile; 0: not a plain store, or unknown where
  };
  std::map<uint32_t, std::vector<Written>> written;  // per group of tensors, in program order

  void note_write(const Instruction& i, const Access& hbm) {
    const bool plain = is_plain_transfer(i) && i.src0.space == Space::kSbuf && !in_loop;
    written[tiles.alias_group.at(hbm.tensor)].push_back(
        {plain_access(hbm), region_of(hbm), plain ? i.src0.num_partitions : 0});
  }

  Access new_tile(Space space, int partitions, const std::vector<int64_t>& dims, Dtype dtype) {
    Access a = dense_access(space, partitions, dims, dtype);
    a.tensor = static_cast<uint32_t>(tiles.tiles.size());
    int64_t bytes = static_cast<int64_t>(isa::dtype_bytes(dtype));
    for (int64_t d : dims) bytes *= d;
    tiles.tiles.push_back({space, partitions, bytes, dtype, dims});
    writes.push_back(0);
    return a;
  }
};

TileBuilder::TileBuilder(std::string name, TileOptions options) : impl_(std::make_unique<Impl>()) {
  impl_->tiles.program.name = std::move(name);
  impl_->tiles.program.target = options.target;
  impl_->tiles.options = std::move(options);
}
TileBuilder::~TileBuilder() = default;

Access TileBuilder::tensor(const std::string& name, isa::TensorKind kind, Dtype dtype,
                           std::vector<int64_t> shape, uint64_t bytes, std::vector<uint8_t> constant) {
  auto& tensors = impl_->tiles.program.tensors;
  for (const auto& t : tensors) {
    if (t.name == name) throw_internal("tensor '" + name + "' declared twice");
  }
  uint64_t dense = isa::dtype_bytes(dtype);
  for (int64_t d : shape) dense *= static_cast<uint64_t>(d);
  Access a;
  a.space = Space::kHbm;
  a.dtype = dtype;
  a.tensor = static_cast<uint32_t>(tensors.size());
  std::vector<int64_t> folded = shape;
  while (folded.size() > isa::kMaxDims) {
    folded[1] *= folded[0];
    folded.erase(folded.begin());
  }
  set_row_major(a, folded);
  if (name == "params") impl_->params_tensor = static_cast<int>(tensors.size());
  tensors.push_back({name, kind, dtype, std::move(shape), bytes ? bytes : dense, std::move(constant)});
  impl_->tiles.alias_group.push_back(a.tensor);
  return a;
}

void TileBuilder::alias(const Access& a, const Access& b) {
  auto& group = impl_->tiles.alias_group;
  uint32_t from = group.at(b.tensor), to = group.at(a.tensor);
  for (uint32_t& g : group) {
    if (g == from) g = to;
  }
}

void TileBuilder::share(const std::vector<Access>& tensors) {
  for (const Access& a : tensors) impl_->tiles.shared.push_back(a.tensor);
}
void TileBuilder::core_barrier() {
  const TileProgram& tiles = impl_->tiles;
  if (tiles.shared.empty()) throw_internal("a barrier between cores that share nothing");
  isa::Instruction i;
  i.opcode = isa::Opcode::kCoreBarrier;
  i.engine = Engine::kGpSimd;  // has the least to do as a rule
  i.src0.space = isa::Space::kHbm;
  i.src0.tensor = tiles.shared[0];
  i.src0.dtype = Dtype::kU8;
  i.src0.num_dims = 1;
  i.src0.size[0] = i.src0.step[0] = 1;
  emit(i);
}
int TileBuilder::num_tensors() const { return static_cast<int>(impl_->tiles.program.tensors.size()); }
const std::string& TileBuilder::target() const { return impl_->tiles.program.target; }
int TileBuilder::num_instructions() const { return static_cast<int>(impl_->tiles.code.size()); }

int TileBuilder::stored_from(const Access& hbm) const {
  const Impl& m = *impl_;
  const auto found = m.written.find(m.tiles.alias_group.at(hbm.tensor));
  if (found == m.written.end()) return 0;
  const Access wanted = plain_access(hbm);
  const Region region = region_of(hbm);
  for (size_t k = found->second.size(); k-- > 0;) {
    const Impl::Written& w = found->second[k];
    if (w.hbm == wanted || w.partitions == 0) return w.partitions;
    if (overlap(w.region, region)) return 0;
  }
  return 0;
}

int64_t TileBuilder::peak_sbuf_bytes() const {
  const TileProgram& t = impl_->tiles;
  std::vector<int> first(t.tiles.size(), -1), last(t.tiles.size(), -1);
  for (size_t k = 0; k < t.code.size(); ++k) {
    Operand operands[6];
    int n = list_operands(const_cast<Instruction&>(t.code[k]), operands);
    for (int j = 0; j < n; ++j) {
      if (operands[j].access->space != Space::kSbuf) continue;
      uint32_t tile = operands[j].access->tensor;
      if (first[tile] < 0) first[tile] = static_cast<int>(k);
      last[tile] = static_cast<int>(k);
    }
  }
  std::vector<int64_t> change(t.code.size() + 1, 0);
  for (size_t i = 0; i < t.tiles.size(); ++i) {
    if (first[i] < 0) continue;
    change[first[i]] += t.tiles[i].bytes;
    change[last[i] + 1] -= t.tiles[i].bytes;
  }
  int64_t live = 0, peak = 0;
  for (int64_t c : change) peak = std::max(peak, live += c);
  return peak;
}

Access TileBuilder::sbuf(int partitions, std::vector<int64_t> dims, Dtype dtype) {
  check_tile("SBUF", partitions, dims);
  if (dtype == Dtype::kI64 || dtype == Dtype::kF64) throw_internal("SBUF tile of a 64-bit dtype");
  return impl_->new_tile(Space::kSbuf, partitions, dims, dtype);
}

Access TileBuilder::psum(int partitions, std::vector<int64_t> dims, Dtype dtype) {
  check_tile("PSUM", partitions, dims);
  Access a = impl_->new_tile(Space::kPsum, partitions, dims, dtype);
  if (impl_->tiles.tiles.back().bytes > isa::kPsumBankBytes) {
    throw_internal("PSUM tile of " + std::to_string(impl_->tiles.tiles.back().bytes) +
                   " bytes per partition (one bank holds 2048)");
  }
  return a;
}

ScalarOperand TileBuilder::param(int slot, Dtype dtype) {
  if (isa::dtype_bytes(dtype) != 4) throw_internal("run-time parameters have 4 bytes");
  // One transfer brings the neighbours too.
  constexpr int kTogether = 512;
  const int known = impl_->tiles.options.num_params;
  const int first = slot < known ? slot / kTogether * kTogether : slot;
  const int count = slot < known ? std::min(kTogether, known - first) : 1;
  auto [it, fresh] = impl_->params.try_emplace(first);
  if (fresh) {
    if (impl_->params_tensor < 0) tensor("params", isa::TensorKind::kInput, Dtype::kI32, {first + count});
    auto& decl = impl_->tiles.program.tensors[impl_->params_tensor];
    if (decl.bytes < static_cast<uint64_t>(first + count) * 4) {
      decl.bytes = static_cast<uint64_t>(first + count) * 4;
      decl.shape = {first + count};
    }
    Access src;
    src.space = Space::kHbm;
    src.dtype = Dtype::kI32;
    src.tensor = static_cast<uint32_t>(impl_->params_tensor);
    src.offset = 4 * static_cast<int64_t>(first);
    src.num_dims = 2;
    src.size[0] = isa::kMaxPartitions;
    src.step[0] = 0;
    src.size[1] = static_cast<uint32_t>(count);
    src.step[1] = 1;
    it->second = sbuf(isa::kMaxPartitions, {count}, Dtype::kI32);
    before_loop([&] { load(it->second, src); });
  }
  Access value = slice(it->second, 0, slot - first, 1);
  value.dtype = dtype;
  return column(value);
}

ScalarOperand TileBuilder::imm(float v) {
  ScalarOperand s;
  s.kind = ScalarOperand::Kind::kImmediate;
  s.value = v;
  return s;
}

ScalarOperand TileBuilder::column(const Access& sbuf_column) {
  ScalarOperand s;
  s.kind = ScalarOperand::Kind::kPointer;
  s.pointer = sbuf_column;
  return s;
}

Instruction& TileBuilder::emit(Instruction instruction) {
  Impl& m = *impl_;
  instruction.location = m.location;
  // A column made for 128 partitions serves instructions on fewer.
  int partitions = instruction.dst.space == Space::kHbm ? 0 : instruction.dst.num_partitions;
  for (ScalarOperand* s : {&instruction.imm0, &instruction.imm1}) {
    if (s->kind == ScalarOperand::Kind::kPointer && s->pointer.num_partitions > partitions &&
        partitions > 0) {
      s->pointer.num_partitions = static_cast<uint16_t>(partitions);
    }
  }
  Operand operands[6];
  int n = list_operands(instruction, operands);
  for (int i = 0; i < n; ++i) {
    const Access& a = *operands[i].access;
    if (a.space == Space::kHbm) {
      if (a.tensor >= m.tiles.program.tensors.size()) throw_internal("access to an undeclared tensor");
      if (a.address_register != isa::kNoRegister && (!m.in_loop || m.ahead_of_loop)) {
        throw_internal("an access that moves with a loop outside of its body");
      }
      if (operands[i].write) m.note_write(instruction, a);
      continue;
    }
    if (a.tensor >= m.tiles.tiles.size()) throw_internal("access to an unknown tile");
    if (a.num_dims > 4) throw_internal("SBUF/PSUM access with more than 4 free dims");
    if (operands[i].write) ++m.writes[a.tensor];
  }
  if (instruction.opcode == Opcode::kTranspose && instruction.engine == Engine::kTensor) m.stationary = {};
  if (instruction.opcode == Opcode::kCoreBarrier) m.written.clear();
  std::vector<Instruction>& code = m.ahead_of_loop ? m.ahead : m.tiles.code;
  code.push_back(std::move(instruction));
  return code.back();
}

// ---- data movement
// -----------------------------------------------------------------------------------------------

void TileBuilder::dma(const Access& dst, const Access& src) {
  if (dst.elements() != src.elements()) {
    throw_internal("DMA from " + shape_text(src) + " to " + shape_text(dst) + ": element counts differ");
  }
  Instruction i;
  i.opcode = Opcode::kDmaCopy;
  i.engine = Engine::kSync;
  i.dst = dst;
  i.src0 = src;
  emit(std::move(i));
}
void TileBuilder::load_transposed(const Access& dst_sbuf, const Access& src_hbm) {
  Instruction i;
  i.opcode = Opcode::kDmaTranspose;
  i.engine = Engine::kSync;
  i.dst = dst_sbuf;
  i.src0 = src_hbm;
  emit(std::move(i));
}
void TileBuilder::load(const Access& dst_sbuf, const Access& src_hbm) { dma(dst_sbuf, src_hbm); }
void TileBuilder::store(const Access& dst_hbm, const Access& src_sbuf) { dma(dst_hbm, src_sbuf); }

void TileBuilder::gather(const Access& dst_sbuf, const Access& src_hbm_rows, const Access& index_sbuf) {
  Instruction i;
  i.opcode = Opcode::kDmaGather;
  i.engine = Engine::kGpSimd;  // software descriptors
  i.dge = isa::DgeMode::kSoftware;
  i.dst = dst_sbuf;
  i.src0 = src_hbm_rows;
  i.src1 = index_sbuf;
  emit(std::move(i));
}

void TileBuilder::scatter(const Access& dst_hbm_rows, const Access& src_sbuf, const Access& index_sbuf,
                          bool accumulate) {
  Instruction i;
  i.opcode = Opcode::kDmaScatter;
  i.engine = Engine::kGpSimd;
  i.dge = isa::DgeMode::kSoftware;
  i.op0 = accumulate ? AluOp::kAdd : AluOp::kNone;
  i.dst = dst_hbm_rows;
  i.src0 = src_sbuf;
  i.src1 = index_sbuf;
  emit(std::move(i));
}

// ---- compute
// -----------------------------------------------------------------------------------------------------

namespace {
Instruction make(Opcode opcode, Engine engine, const Access& dst, const Access& src0 = {},
                 const Access& src1 = {}) {
  Instruction i;
  i.opcode = opcode;
  i.engine = engine;
  i.dst = dst;
  i.src0 = src0;
  i.src1 = src1;
  return i;
}
}  // namespace

void TileBuilder::copy(const Access& dst, const Access& src) {
  emit(make(Opcode::kCopy, Engine::kVector, dst, src));
}

void TileBuilder::memset(const Access& dst, float value) {
  Instruction i = make(Opcode::kMemset, Engine::kVector, dst);
  i.imm0 = imm(value);
  emit(std::move(i));
}

void TileBuilder::iota(const Access& dst, const isa::AffinePattern& pattern) {
  Instruction i = make(Opcode::kIota, Engine::kGpSimd, dst);
  i.pattern = pattern;
  emit(std::move(i));
}

void TileBuilder::affine_select(const Access& dst, const Access& src, const isa::AffinePattern& pattern,
                                AluOp cmp, float fill) {
  Instruction i = make(Opcode::kAffineSelect, Engine::kGpSimd, dst, src);
  i.pattern = pattern;
  i.op0 = cmp;
  i.imm0 = imm(fill);
  emit(std::move(i));
}

void TileBuilder::tensor_tensor(const Access& dst, const Access& a, const Access& b, AluOp op) {
  Instruction i = make(Opcode::kTensorTensor, Engine::kVector, dst, a, b);
  i.op0 = op;
  emit(std::move(i));
}

void TileBuilder::tensor_scalar(const Access& dst, const Access& a, AluOp op0, const ScalarOperand& s0,
                                AluOp op1, const ScalarOperand& s1, bool reverse0, bool reverse1) {
  Instruction i = make(Opcode::kTensorScalar, Engine::kVector, dst, a);
  i.op0 = op0;
  i.op1 = op1;
  i.imm0 = s0;
  i.imm1 = s1;
  if (reverse0) i.flags |= isa::kFlagReverse0;
  if (reverse1) i.flags |= isa::kFlagReverse1;
  emit(std::move(i));
}

void TileBuilder::scalar_tensor_tensor(const Access& dst, const Access& a, AluOp op0, const ScalarOperand& s0,
                                       AluOp op1, const Access& b) {
  Instruction i = make(Opcode::kScalarTensorTensor, Engine::kVector, dst, a, b);
  i.op0 = op0;
  i.op1 = op1;
  i.imm0 = s0;
  emit(std::move(i));
}

void TileBuilder::activation(const Access& dst, const Access& src, ActFunc func, const ScalarOperand& scale,
                             const ScalarOperand& bias, const Access* row_sum) {
  Instruction i = make(Opcode::kActivation, Engine::kScalar, dst, src);
  i.func = func;
  i.imm0 = scale;
  i.imm1 = bias;
  if (row_sum) {
    i.aux = *row_sum;
    i.reduce_op = AluOp::kAdd;
    i.reduce = isa::ReduceCmd::kResetReduce;
  }
  emit(std::move(i));
}

void TileBuilder::reciprocal(const Access& dst, const Access& src) {
  emit(make(Opcode::kReciprocal, Engine::kVector, dst, src));
}

void TileBuilder::copy_predicated(const Access& dst, const Access& src, const Access& predicate) {
  emit(make(Opcode::kCopyPredicated, Engine::kVector, dst, src, predicate));
}

void TileBuilder::reduce(const Access& dst, const Access& src, AluOp op, int trailing_dims) {
  Instruction i = make(Opcode::kTensorReduce, Engine::kVector, dst, src);
  i.op0 = op;
  i.reduce_dims = static_cast<uint8_t>(trailing_dims);
  emit(std::move(i));
}

void TileBuilder::partition_reduce(const Access& dst, const Access& src, AluOp op) {
  Instruction i = make(Opcode::kPartitionReduce, Engine::kGpSimd, dst, src);
  i.op0 = op;
  emit(std::move(i));
}

void TileBuilder::scan(const Access& dst, const Access& a, const Access& b, AluOp op0, AluOp op1,
                       const ScalarOperand& initial) {
  Instruction i = make(Opcode::kTensorTensorScan, Engine::kVector, dst, a, b);
  i.op0 = op0;
  i.op1 = op1;
  i.imm0 = initial;
  emit(std::move(i));
}

void TileBuilder::bn_stats(const Access& dst, const Access& src) {
  emit(make(Opcode::kBnStats, Engine::kVector, dst, src));
}
void TileBuilder::bn_aggr(const Access& dst, const Access& src) {
  emit(make(Opcode::kBnAggr, Engine::kVector, dst, src));
}
void TileBuilder::max8(const Access& dst, const Access& src) {
  emit(make(Opcode::kMax8, Engine::kVector, dst, src));
}
void TileBuilder::max_index8(const Access& dst, const Access& src, const Access& values) {
  emit(make(Opcode::kMaxIndex8, Engine::kVector, dst, src, values));
}
void TileBuilder::match_replace8(const Access& dst, const Access& src, const Access& values,
                                 float replacement) {
  Instruction i = make(Opcode::kMatchReplace8, Engine::kVector, dst, src, values);
  i.imm0 = imm(replacement);
  emit(std::move(i));
}

void TileBuilder::philox(const Access& dst, const Access& state, int64_t base) {
  Instruction i = make(Opcode::kPhilox, Engine::kGpSimd, dst, state);
  i.pattern.base = base;
  emit(std::move(i));
}

void TileBuilder::matmul(const Access& dst_psum, const Access& stationary, const Access& moving,
                         bool accumulate, const isa::PeTile& on) {
  Impl& m = *impl_;
  // The weights stay in the array until another load of a cell of theirs or a transpose replaces them.
  const bool resident = std::any_of(m.stationary.begin(), m.stationary.end(), [&](const Impl::Stationary& s) {
    return s.on == on && s.matrix == stationary && m.writes.at(stationary.tensor) == s.writes;
  });
  if (!resident) {
    Instruction ls;
    ls.opcode = Opcode::kLoadStationary;
    ls.engine = Engine::kTensor;
    ls.src0 = stationary;
    ls.tile = on;
    emit(std::move(ls));
    std::erase_if(m.stationary, [&](const Impl::Stationary& s) { return tiles_meet(s.on, on); });
    m.stationary.push_back({on, stationary, m.writes[stationary.tensor]});
  }
  Instruction mm = make(Opcode::kMultiplyMoving, Engine::kTensor, dst_psum, moving);
  mm.tile = on;
  if (accumulate) mm.flags |= isa::kFlagAccumulate;
  emit(std::move(mm));
}

void TileBuilder::transpose(const Access& dst, const Access& src) {
  emit(make(Opcode::kTranspose, dst.space == Space::kPsum ? Engine::kTensor : Engine::kVector, dst, src));
}

// ---- program
// -----------------------------------------------------------------------------------------------------

void TileBuilder::loop(int64_t count, const std::function<void()>& body, bool staggered) {
  Impl& m = *impl_;
  if (m.in_loop) throw_internal("a loop inside the body of a loop");
  if (count < 1) return;
  m.in_loop = true;
  m.stationary.clear();
  TileLoop loop;
  loop.begin = m.tiles.code.size();
  loop.count = count;
  loop.staggered = staggered;
  m.tiles.loops.push_back(loop);
  body();
  // The body may have added instructions ahead of itself.
  auto& code = m.tiles.code;
  TileLoop& own = m.tiles.loops.back();
  code.insert(code.begin() + static_cast<int64_t>(own.begin), std::make_move_iterator(m.ahead.begin()),
              std::make_move_iterator(m.ahead.end()));
  own.begin += m.ahead.size();
  own.end = code.size();
  m.ahead.clear();
  m.stationary.clear();
  m.in_loop = false;
  if (own.begin == own.end) m.tiles.loops.pop_back();
}

Access TileBuilder::advance(const Access& hbm, int64_t bytes_per_iteration) {
  Impl& m = *impl_;
  if (!m.in_loop) throw_internal("an access that moves with a loop outside of its body");
  if (hbm.space != Space::kHbm) throw_internal("only HBM accesses move with a loop");
  if (bytes_per_iteration == 0) return hbm;
  std::vector<int64_t>& strides = m.tiles.loops.back().strides;
  auto it = std::find(strides.begin(), strides.end(), bytes_per_iteration);
  if (it == strides.end()) {
    if (strides.size() >= isa::kNumRegisters) throw_internal("too many different strides in a loop");
    it = strides.insert(strides.end(), bytes_per_iteration);
  }
  Access a = hbm;
  a.address_register = static_cast<uint8_t>(it - strides.begin());
  return a;
}

void TileBuilder::before_loop(const std::function<void()>& emit) {
  Impl& m = *impl_;
  bool outer = m.ahead_of_loop;
  m.ahead_of_loop = m.in_loop;
  emit();
  m.ahead_of_loop = outer;
}

bool TileBuilder::in_loop() const { return impl_->in_loop; }

void TileBuilder::set_location(const std::string& file, int line, const std::string& what) {
  auto& locations = impl_->tiles.program.locations;
  const auto& last = locations.back();
  if (last.file != file || last.line != line || last.what != what) locations.push_back({file, line, what});
  impl_->location = static_cast<uint32_t>(locations.size() - 1);
}
void TileBuilder::check_indices(const isa::IndexCheck& check) {
  isa::Program& program = impl_->tiles.program;
  const isa::SourceLocation here = program.locations[impl_->location];
  program.locations.push_back(here);
  impl_->location = static_cast<uint32_t>(program.locations.size() - 1);
  program.notes.push_back(isa::index_check_note(impl_->location, check));
}

void TileBuilder::note(const std::string& key, const std::string& value) {
  impl_->tiles.program.notes.emplace_back(key, value);
}
void TileBuilder::add_work(uint64_t flops, uint64_t hbm_bytes) {
  impl_->tiles.program.flops += flops;
  impl_->tiles.program.hbm_bytes += hbm_bytes;
}

void TileBuilder::forward_stores() { compiler::forward_stores(impl_->tiles); }
void TileBuilder::remove_unread() { compiler::remove_unread(impl_->tiles); }

std::string TileBuilder::text() const { return tile_program_text(impl_->tiles); }

isa::Program TileBuilder::finish() {
  TileProgram tiles = std::move(impl_->tiles);
  impl_ = std::make_unique<Impl>();
  return run_back_half(std::move(tiles));
}

// ---- access helpers
// ----------------------------------------------------------------------------------------------

Access slice(const Access& a, int dim, int64_t begin, int64_t count) {
  if (dim < 0 || dim >= a.num_dims || begin < 0 || count < 1 ||
      begin + count > static_cast<int64_t>(a.size[dim])) {
    throw_internal("slice [" + std::to_string(begin) + ", +" + std::to_string(count) + ") of dim " +
                   std::to_string(dim) + " of " + shape_text(a));
  }
  Access r = a;
  r.offset += begin * a.step[dim] * static_cast<int64_t>(isa::dtype_bytes(a.dtype));
  r.size[dim] = static_cast<uint32_t>(count);
  return r;
}

Access slice_partitions(const Access& a, int begin, int count) {
  if (a.space == Space::kHbm || begin < 0 || count < 1 || begin + count > a.num_partitions) {
    throw_internal("partition slice [" + std::to_string(begin) + ", +" + std::to_string(count) + ") of " +
                   shape_text(a));
  }
  Access r = a;
  r.start_partition = static_cast<uint16_t>(a.start_partition + begin);
  r.num_partitions = static_cast<uint16_t>(count);
  return r;
}

Access dense_access(isa::Space space, int64_t partitions, const std::vector<int64_t>& dims, Dtype dtype) {
  Access a;
  a.space = space;
  a.dtype = dtype;
  a.num_partitions = static_cast<uint16_t>(partitions);
  set_row_major(a, dims);
  return a;
}

Access reshape(const Access& a, std::vector<int64_t> dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  size_t limit = a.space == Space::kHbm ? 5 : 4;
  if (!a.contiguous() || n != a.free_elements() || dims.size() > limit) {
    throw_internal("reshape of " + shape_text(a) +
                   ": needs a dense access, equal element counts and few dims");
  }
  Access r = a;
  r.step = {};
  r.size = {};
  set_row_major(r, dims);
  return r;
}

Access broadcast(const Access& a, int dim, int64_t count) {
  Access r = a;
  int limit = a.space == Space::kHbm ? 5 : 4;
  if (dim == a.num_dims) {
    if (dim >= limit) throw_internal("broadcast of " + shape_text(a) + ": no room for one more dim");
    ++r.num_dims;
  } else if (dim < 0 || dim > a.num_dims || a.size[dim] != 1) {
    throw_internal("broadcast of dim " + std::to_string(dim) + " of " + shape_text(a) +
                   ": its size must be 1");
  }
  r.size[dim] = static_cast<uint32_t>(count);
  r.step[dim] = 0;
  return r;
}

}  // namespace trnsim::compiler
