#include "tools/fidelity/kernels/kernel.h"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

namespace trnsim::fidelity {

using isa::Access;
using isa::AluOp;
using isa::Dtype;
using isa::Engine;
using isa::Instruction;
using isa::Opcode;
using isa::Space;

namespace {

// How far ahead of program order an engine may take an instruction. Hundreds are as good as all: beyond 200 no time moves
// by more than one per cent.
constexpr size_t kReach = 384;

int64_t bytes_of(Dtype d) { return static_cast<int64_t>(isa::dtype_bytes(d)); }

struct Range {
  int64_t low, high;
};
Range bytes_touched(const Access& a) {
  Range r{a.offset, a.offset + bytes_of(a.dtype) - 1};
  for (int d = 0; d < a.num_dims; ++d) {
    const int64_t reach = a.step[d] * (static_cast<int64_t>(a.size[d]) - 1) * bytes_of(a.dtype);
    (reach < 0 ? r.low : r.high) += reach;
  }
  return r;
}

// Engines count in semaphores 0 to 4, DMA queues from 16 on.
int semaphore_of(int counter) {
  return counter < isa::kNumEngines ? counter : 16 + counter - isa::kNumEngines;
}

}  // namespace

// ---- tiles ----

Tile Tile::columns(int64_t first, int64_t count, int64_t step) const {
  Tile t = *this;
  t.access.num_dims = 1;
  t.access.offset += first * bytes_of(access.dtype);
  t.access.size[0] = static_cast<uint32_t>(count);
  t.access.step[0] = step;
  return t;
}

Tile Tile::rows(int64_t count) const {
  Tile t = *this;
  t.access.num_partitions = static_cast<uint16_t>(count);
  return t;
}

Tile Tile::shaped(std::initializer_list<int64_t> sizes, std::initializer_list<int64_t> steps) const {
  Tile t = *this;
  t.access.num_dims = static_cast<uint8_t>(sizes.size());
  size_t d = 0;
  for (int64_t s : sizes) t.access.size[d++] = static_cast<uint32_t>(s);
  d = 0;
  for (int64_t s : steps) t.access.step[d++] = s;
  return t;
}

Tile Tile::as(Dtype dtype) const {
  Tile t = *this;
  t.access.dtype = dtype;
  if (access.num_dims == 1)
    t.access.size[0] = static_cast<uint32_t>(access.size[0] * bytes_of(access.dtype) / bytes_of(dtype));
  return t;
}

std::vector<Tile> Ring::take(int64_t count) {
  std::vector<Tile> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(next());
  return out;
}

// ---- buffers ----

Kernel::Kernel(std::string name, const config::Config& config)
    : config_(config), sbuf_limit_(config.memory.sbuf_usable_bytes_per_partition) {
  program_.name = std::move(name);
  program_.target = config.chip.generation;
  isa::TensorDecl hbm;
  hbm.name = "in";
  hbm.dtype = Dtype::kU8;
  hbm.kind = isa::TensorKind::kInput;
  program_.tensors.push_back(hbm);
  hbm.name = "out";
  hbm.kind = isa::TensorKind::kOutput;
  program_.tensors.push_back(hbm);
}

Tile Kernel::place(Space space, int64_t offset, int64_t elements, Dtype dtype, int partitions) {
  Tile t;
  t.buffer = static_cast<int>(buffers_.size());
  buffers_.emplace_back();
  Access& a = t.access;
  a.space = space;
  a.dtype = dtype;
  a.num_dims = 1;
  a.num_partitions = static_cast<uint16_t>(partitions);
  a.offset = offset;
  a.size[0] = static_cast<uint32_t>(elements);
  a.step[0] = 1;
  return t;
}

Ring Kernel::sbuf(int copies, int64_t elements, Dtype dtype, int partitions) {
  Ring ring;
  const int64_t bytes = (elements * bytes_of(dtype) + 63) / 64 * 64;
  for (int c = 0; c < copies; ++c) {
    if (sbuf_used_ + bytes > sbuf_limit_) {
      throw std::runtime_error(program_.name + ": the buffers need more than the " +
                               std::to_string(sbuf_limit_) + " usable bytes of an SBUF partition");
    }
    ring.tiles_.push_back(place(Space::kSbuf, sbuf_used_, elements, dtype, partitions));
    sbuf_used_ += bytes;
  }
  return ring;
}

Ring Kernel::psum(int copies, int64_t elements, Dtype dtype, int partitions) {
  Ring ring;
  const int banks =
      static_cast<int>((elements * bytes_of(dtype) + isa::kPsumBankBytes - 1) / isa::kPsumBankBytes);
  for (int c = 0; c < copies; ++c) {
    if (psum_used_ + banks > isa::kPsumBanks)
      throw std::runtime_error(program_.name + ": the buffers need more than the 8 PSUM banks");
    ring.tiles_.push_back(place(Space::kPsum, psum_used_ * isa::kPsumBankBytes, elements, dtype, partitions));
    psum_used_ += banks;
  }
  return ring;
}

Tile Kernel::one(int64_t elements, Dtype dtype, int partitions) {
  return sbuf(1, elements, dtype, partitions).next();
}

Tile Kernel::scratch(int64_t rows, int64_t elements, Dtype dtype) {
  Tile t = place(Space::kHbm, 0, elements, dtype, 0);
  t.access.tensor = static_cast<uint32_t>(program_.tensors.size());
  t.access.num_dims = 2;
  t.access.size[0] = static_cast<uint32_t>(rows);
  t.access.size[1] = static_cast<uint32_t>(elements);
  t.access.step[0] = elements;
  t.access.step[1] = 1;
  isa::TensorDecl d = program_.tensors[0];
  d.name = "scratch" + std::to_string(program_.tensors.size());
  d.kind = isa::TensorKind::kScratch;
  d.bytes = static_cast<uint64_t>(rows * elements * bytes_of(dtype));
  d.shape = {static_cast<int64_t>(d.bytes)};
  program_.tensors.push_back(d);
  return t;
}

// ---- nodes ----

void Kernel::depend(const Tile& tile, bool write, std::vector<uint32_t>* needs) const {
  if (tile.buffer < 0) return;
  const Range r = bytes_touched(tile.access);
  const int first = tile.access.start_partition;
  const int last = first + std::max<int>(tile.access.num_partitions, 1) - 1;
  for (const Use& u : buffers_[static_cast<size_t>(tile.buffer)]) {
    if (!write && !u.write) continue;
    if (u.low > r.high || r.low > u.high || u.first > last || first > u.last) continue;
    needs->push_back(u.node);
  }
}

void Kernel::record(const Tile& tile, bool write, uint32_t node) {
  if (tile.buffer < 0) return;
  const Range r = bytes_touched(tile.access);
  const int first = tile.access.start_partition;
  const int last = first + std::max<int>(tile.access.num_partitions, 1) - 1;
  auto& uses = buffers_[static_cast<size_t>(tile.buffer)];
  if (write) {  // everything inside it is history
    uses.erase(std::remove_if(uses.begin(), uses.end(),
                              [&](const Use& u) {
                                return u.low >= r.low && u.high <= r.high && u.first >= first &&
                                       u.last <= last;
                              }),
               uses.end());
  }
  uses.push_back({r.low, r.high, first, last, write, node});
}

void Kernel::add(Node node, std::initializer_list<const Tile*> reads,
                 std::initializer_list<const Tile*> writes) {
  for (const Tile* t : reads) depend(*t, false, &node.needs);
  for (const Tile* t : writes) depend(*t, true, &node.needs);
  std::sort(node.needs.begin(), node.needs.end());
  node.needs.erase(std::unique(node.needs.begin(), node.needs.end()), node.needs.end());
  const auto number = static_cast<uint32_t>(nodes_.size());
  for (const Tile* t : reads) record(*t, false, number);
  for (const Tile* t : writes) record(*t, true, number);
  nodes_.push_back(std::move(node));
}

void Kernel::emit(const Instruction& i, std::initializer_list<const Tile*> reads, const Tile* write,
                  const Tile* second_write) {
  Node node;
  node.instruction = i;
  node.counter = i.is_dma() ? isa::kNumEngines + i.queue : static_cast<int>(i.engine);
  if (i.is_dma()) {
    const cost::Dma d = cost::dma(i, config_);
    cost::Ps longest = 0;
    for (const cost::DmaJob& j : d.jobs)
      longest = std::max<cost::Ps>(longest, j.packet * (j.packets - 1) + j.last_packet);
    node.issue = d.software ? cost::ps(config_.dma.software_spacing_ns) : d.trigger;
    node.latency = d.first_packet + d.read_latency + longest + d.ack;
  } else if (i.engine == Engine::kTensor) {
    const cost::Matmul k = cost::matmul(i, config_);
    node.issue = cost::ps_of_cycles(static_cast<double>(k.cycles * k.passes), config_.tensor.clock_ghz);
    node.latency = node.issue + cost::ps(config_.tensor.fill_fixed_ns);
  } else {
    const cost::Compute k = cost::compute_cost(i, config_);
    node.issue = k.issue;
    node.latency = k.latency;
  }
  if (write == nullptr) {
    add(std::move(node), reads, {});
  } else if (second_write == nullptr) {
    add(std::move(node), reads, {write});
  } else {
    add(std::move(node), reads, {write, second_write});
  }
}

// ---- order of the streams ----

// List scheduling: an engine takes the first node in program order, unless a later one within its reach fills more
// time than it costs the first.
std::vector<uint32_t> Kernel::order() const {
  struct Stream {
    std::vector<uint32_t> nodes;
    size_t head = 0;  // first node not taken
    cost::Ps free = 0;
  };
  std::array<Stream, isa::kNumEngines> streams;
  std::vector<uint32_t> missing(nodes_.size()), position(nodes_.size());
  std::vector<std::vector<uint32_t>> users(nodes_.size());
  std::vector<cost::Ps> earliest(nodes_.size(), 0);
  std::vector<bool> taken(nodes_.size(), false);
  for (uint32_t n = 0; n < nodes_.size(); ++n) {
    streams[static_cast<size_t>(nodes_[n].instruction.engine)].nodes.push_back(n);
    missing[n] = static_cast<uint32_t>(nodes_[n].needs.size());
    for (uint32_t d : nodes_[n].needs) users[d].push_back(n);
  }
  const cost::Ps hop = cost::ps(config_.semaphore.visible_ns + config_.semaphore.wake_ns);
  cost::Ps dma_free = 0;
  std::vector<uint32_t> out;
  out.reserve(nodes_.size());
  while (out.size() < nodes_.size()) {
    cost::Ps best_start = INT64_MAX;
    uint32_t best = 0;
    for (const Stream& s : streams) {
      cost::Ps start = INT64_MAX;
      uint32_t choice = 0;
      const auto engine = static_cast<size_t>(&s - streams.data());
      const bool fixed = in_order_[engine];
      const size_t end = std::min(s.nodes.size(), s.head + (fixed ? 1 : kReach));
      for (size_t at = s.head; at < end; ++at) {
        const uint32_t n = s.nodes[at];
        if (taken[n] || missing[n] != 0) continue;
        const cost::Ps begin = std::max(s.free, earliest[n]);
        // The gap in front of `choice` against the time that it then waits.
        if (start == INT64_MAX || start - begin > (busy_[engine] ? 0 : begin + nodes_[n].issue - start)) {
          start = begin;
          choice = n;
        }
        if (start == s.free) break;
      }
      if (start < best_start) {
        best_start = start;
        best = choice;
      }
    }
    if (best_start == INT64_MAX) throw std::logic_error(program_.name + ": the order of nodes has a cycle");
    const Node& node = nodes_[best];
    Stream& s = streams[static_cast<size_t>(node.instruction.engine)];
    taken[best] = true;
    while (s.head < s.nodes.size() && taken[s.nodes[s.head]]) ++s.head;
    s.free = best_start + node.issue;
    cost::Ps end = best_start + node.latency;
    if (node.instruction.is_dma()) {
      // The engines are shared by all transfers.
      const isa::Access& a =
          node.instruction.dst.space == Space::kSbuf ? node.instruction.dst : node.instruction.src0;
      const auto bytes = static_cast<double>(a.elements() * bytes_of(a.dtype));
      dma_free = std::max(dma_free, best_start) +
                 cost::ps(bytes / (config_.dma.bytes_per_cycle * config_.dma.clock_ghz *
                                   static_cast<double>(config_.dma.engines)));
      end = std::max(end, dma_free);
    }
    for (uint32_t u : users[best]) {
      const bool own = nodes_[u].instruction.engine == node.instruction.engine && !node.instruction.is_dma();
      const cost::Ps at = !own ? end + hop : node.instruction.engine == Engine::kTensor ? s.free : end;
      earliest[u] = std::max(earliest[u], at);
      --missing[u];
    }
    out.push_back(best);
  }
  return out;
}

// Writes the streams in the given order (a valid serial order) with the waits that the dependences need and that no
// earlier wait implies.
void Kernel::synchronise(const std::vector<uint32_t>& order) {
  std::array<Clock, isa::kNumEngines> known{};        // complete when the engine issues its next instruction
  std::array<std::vector<Clock>, kCounters> implied;  // complete when the n-th event of a counter is
  std::vector<int32_t> count_of(nodes_.size(), 0);
  for (uint32_t number : order) {
    Node& node = nodes_[number];
    const auto engine = static_cast<size_t>(node.instruction.engine);
    const bool is_dma = node.instruction.is_dma();
    auto& stream = program_.streams[engine];
    Clock& now = known[engine];
    Clock needed{};
    for (uint32_t d : node.needs) {
      const auto counter = static_cast<size_t>(nodes_[d].counter);
      if (counter == engine && !is_dma) continue;  // its own stream is in order
      needed[counter] = std::max(needed[counter], count_of[d]);
    }
    struct Event {
      size_t counter;
      int32_t count;
    };
    std::vector<Event> waits;
    for (size_t c = 0; c < needed.size(); ++c) {
      if (needed[c] > now[c]) waits.push_back({c, needed[c]});
    }
    const auto clock_of = [&](const Event& e) -> const Clock& {
      return implied[e.counter][static_cast<size_t>(e.count - 1)];
    };
    for (size_t w = 0; w < waits.size();) {
      const bool redundant = std::any_of(waits.begin(), waits.end(), [&](const Event& o) {
        return o.counter != waits[w].counter && clock_of(o)[waits[w].counter] >= waits[w].count;
      });
      if (redundant) {
        waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(w));
      } else {
        ++w;
      }
    }
    for (const Event& w : waits) {
      const Clock& clock = clock_of(w);
      for (size_t c = 0; c < now.size(); ++c) now[c] = std::max(now[c], clock[c]);
    }
    const auto add_wait = [](Instruction* target, const Event& w) {
      isa::SemWait& wait = target->sync.waits[target->sync.num_waits++];
      wait.semaphore = static_cast<uint8_t>(semaphore_of(static_cast<int>(w.counter)));
      wait.value = w.counter < isa::kNumEngines ? w.count : w.count * isa::kDmaCompletionIncrement;
    };
    while (waits.size() > 2) {
      Instruction extra;
      extra.opcode = Opcode::kSemaphore;
      extra.engine = node.instruction.engine;
      while (waits.size() > 2 && extra.sync.num_waits < 2) {
        add_wait(&extra, waits.back());
        waits.pop_back();
      }
      stream.push_back(extra);
    }
    for (const Event& w : waits) add_wait(&node.instruction, w);
    Instruction& counted = node.paired ? node.pair : node.instruction;
    const auto counter = static_cast<size_t>(node.counter);
    auto& history = implied[counter];
    count_of[number] = static_cast<int32_t>(history.size()) + 1;
    Clock clock = now;
    if (!history.empty()) {
      for (size_t c = 0; c < clock.size(); ++c) clock[c] = std::max(clock[c], history.back()[c]);
    }
    clock[counter] = count_of[number];
    history.push_back(clock);
    counted.sync.update = isa::SemOp::kAdd;
    counted.sync.update_semaphore = static_cast<uint8_t>(semaphore_of(node.counter));
    counted.sync.update_value = is_dma ? isa::kDmaCompletionIncrement : 1;
    stream.push_back(node.instruction);
    if (node.paired) stream.push_back(node.pair);
  }
}

// ---- DMA ----

Access Kernel::rows_of(uint32_t tensor, int64_t rows, int64_t n, int64_t run, Dtype dtype) {
  if (run <= 0 || run >= n) run = n;
  Access a;
  a.space = Space::kHbm;
  a.dtype = dtype;
  a.num_dims = 3;
  a.size = {static_cast<uint32_t>(rows), static_cast<uint32_t>(n / run), static_cast<uint32_t>(run)};
  a.step = {2 * n, 2 * run, 1};
  a.tensor = tensor;
  const auto bytes = static_cast<uint64_t>(bytes_touched(a).high + 1);
  if (tensor == kInput) {
    input_bytes_ = std::max(input_bytes_, bytes);
  } else {
    a.offset = static_cast<int64_t>(output_bytes_);
    output_bytes_ += (bytes + 63) / 64 * 64;
  }
  return a;
}

void Kernel::dma(const Trigger& trigger, int queue, Instruction i, const Tile* read, const Tile* write) {
  i.engine = trigger.engine;
  i.queue = static_cast<uint8_t>(queue);
  if (both_load && &trigger == &loads) {
    // Two sequencers never share a queue: the order of their transfers would not be known.
    i.engine = turn_ ? Engine::kScalar : Engine::kSync;
    if (turn_) i.queue = static_cast<uint8_t>(queue + isa::kNumDmaQueues / 2);
    turn_ = !turn_;
  }
  i.dge = trigger.mode;
  if (read != nullptr) {
    emit(i, {read}, write);
  } else {
    emit(i, {}, write);
  }
}

void Kernel::load(const Tile& dst, int queue, int64_t run) {
  Instruction i = make(Opcode::kDmaCopy, loads.engine, dst);
  i.src0 = rows_of(kInput, dst.access.num_partitions, dst.n(), run, dst.access.dtype);
  dma(loads, queue, i, nullptr, &dst);
}

void Kernel::load_from(const Tile& dst, const Tile& hbm, int queue) {
  Instruction i = make(Opcode::kDmaCopy, loads.engine, dst);
  i.src0 = hbm.access;
  dma(loads, queue, i, &hbm, &dst);
}

void Kernel::load_transposed(const Tile& dst, int queue) {
  Instruction i = make(Opcode::kDmaTranspose, loads.engine, dst);
  i.src0 = rows_of(kInput, dst.n(), dst.access.num_partitions, 0, dst.access.dtype);
  i.src0.num_dims = 2;
  i.src0.size = {static_cast<uint32_t>(dst.n()), static_cast<uint32_t>(dst.access.num_partitions)};
  i.src0.step = {2 * dst.access.num_partitions, 1};
  dma(loads, queue, i, nullptr, &dst);
}

void Kernel::store(const Tile& src, int queue, int64_t run) {
  Instruction i = make(Opcode::kDmaCopy, stores.engine, src);
  i.src0 = src.access;
  i.dst = rows_of(kOutput, src.access.num_partitions, src.n(), run, src.access.dtype);
  dma(stores, queue, i, &src, nullptr);
}

void Kernel::store_to(const Tile& hbm, const Tile& src, int queue) {
  Instruction i = make(Opcode::kDmaCopy, stores.engine, hbm);
  i.src0 = src.access;
  dma(stores, queue, i, &src, &hbm);
}

// ---- compute ----

Instruction Kernel::make(Opcode opcode, Engine engine, const Tile& dst) const {
  Instruction i;
  i.opcode = opcode;
  i.engine = engine;
  i.dst = dst.access;
  return i;
}

void Kernel::matmul(const Tile& dst, const Tile& weights, const Tile& moving, bool accumulate) {
  Node node;
  node.instruction = make(Opcode::kLoadStationary, Engine::kTensor, Tile{});
  node.instruction.src0 = weights.access;
  node.pair = make(Opcode::kMultiplyMoving, Engine::kTensor, dst);
  node.pair.src0 = moving.access;
  if (accumulate) node.pair.flags = isa::kFlagAccumulate;
  if (weights.access.num_dims == 2 && bytes_of(weights.access.dtype) == 1) {
    node.instruction.flags |= isa::kFlagDoubleRow;
    node.pair.flags |= isa::kFlagDoubleRow;
  }
  node.paired = true;
  node.counter = static_cast<int>(Engine::kTensor);
  const cost::Matmul k = cost::matmul(node.pair, config_);
  node.issue = cost::ps_of_cycles(static_cast<double>(k.cycles * k.passes), config_.tensor.clock_ghz);
  node.latency = node.issue + cost::ps(config_.tensor.fill_fixed_ns);
  add(std::move(node), {&weights, &moving}, {&dst});
}

void Kernel::transpose(const Tile& dst, const Tile& src) {
  Instruction i = make(Opcode::kTranspose, Engine::kTensor, dst);
  i.src0 = src.access;
  emit(i, {&src}, &dst);
}

void Kernel::transpose(const Tile& dst, const Tile& src, const Tile& identity) {
  Instruction i = make(Opcode::kTranspose, Engine::kTensor, dst);
  i.src0 = src.access;
  emit(i, {&src, &identity}, &dst);
}

void Kernel::transpose_blocks(const Tile& dst, const Tile& src) {
  Instruction i = make(Opcode::kTranspose, Engine::kVector, dst);
  i.src0 = src.access;
  emit(i, {&src}, &dst);
}

void Kernel::copy(Engine engine, const Tile& dst, const Tile& src) {
  Instruction i = make(Opcode::kCopy, engine, dst);
  i.src0 = src.access;
  emit(i, {&src}, &dst);
}

void Kernel::tensor_tensor(const Tile& dst, const Tile& a, const Tile& b, Engine engine, AluOp op) {
  Instruction i = make(Opcode::kTensorTensor, engine, dst);
  i.op0 = op;
  i.src0 = a.access;
  i.src1 = b.access;
  emit(i, {&a, &b}, &dst);
}

void Kernel::scalar_tensor_tensor(const Tile& dst, const Tile& a, const Tile& b) {
  Instruction i = make(Opcode::kScalarTensorTensor, Engine::kVector, dst);
  i.op0 = AluOp::kMultiply;
  i.op1 = AluOp::kAdd;
  i.src0 = a.access;
  i.src1 = b.access;
  i.imm0.kind = isa::ScalarOperand::Kind::kImmediate;
  emit(i, {&a, &b}, &dst);
}

void Kernel::tensor_scalar(const Tile& dst, const Tile& a, Engine engine) {
  Instruction i = make(Opcode::kTensorScalar, engine, dst);
  i.op0 = AluOp::kMultiply;
  i.src0 = a.access;
  i.imm0.kind = isa::ScalarOperand::Kind::kImmediate;
  emit(i, {&a}, &dst);
}

void Kernel::tensor_scalar(const Tile& dst, const Tile& a, const Tile& column, Engine engine) {
  Instruction i = make(Opcode::kTensorScalar, engine, dst);
  i.op0 = AluOp::kMultiply;
  i.src0 = a.access;
  i.imm0.kind = isa::ScalarOperand::Kind::kPointer;
  i.imm0.pointer = column.access;
  emit(i, {&a, &column}, &dst);
}

void Kernel::reduce(const Tile& dst, const Tile& src, AluOp op, int dims) {
  Instruction i = make(Opcode::kTensorReduce, Engine::kVector, dst);
  i.op0 = op;
  i.reduce_dims = static_cast<uint8_t>(dims);
  i.src0 = src.access;
  emit(i, {&src}, &dst);
}

void Kernel::reciprocal(const Tile& dst, const Tile& src) {
  Instruction i = make(Opcode::kReciprocal, Engine::kVector, dst);
  i.src0 = src.access;
  emit(i, {&src}, &dst);
}

void Kernel::scan(const Tile& dst, const Tile& a, const Tile& b, const Tile& seed) {
  Instruction i = make(Opcode::kTensorTensorScan, Engine::kVector, dst);
  i.op0 = AluOp::kMultiply;
  i.op1 = AluOp::kAdd;
  i.src0 = a.access;
  i.src1 = b.access;
  i.imm0.kind = isa::ScalarOperand::Kind::kPointer;
  i.imm0.pointer = seed.access;
  emit(i, {&a, &b, &seed}, &dst);
}

void Kernel::memset(Engine engine, const Tile& dst) {
  Instruction i = make(Opcode::kMemset, engine, dst);
  i.imm0.kind = isa::ScalarOperand::Kind::kImmediate;
  emit(i, {}, &dst);
}

namespace {

Instruction activation_of(Instruction i, isa::ActFunc func, const Tile& src) {
  i.func = func;
  i.src0 = src.access;
  i.imm0.kind = isa::ScalarOperand::Kind::kImmediate;
  i.imm0.value = 1.0f;
  i.imm1.kind = isa::ScalarOperand::Kind::kImmediate;
  return i;
}

}  // namespace

void Kernel::activation(isa::ActFunc func, const Tile& dst, const Tile& src) {
  emit(activation_of(make(Opcode::kActivation, Engine::kScalar, dst), func, src), {&src}, &dst);
}

void Kernel::activation(isa::ActFunc func, const Tile& dst, const Tile& src, const Tile& bias) {
  Instruction i = activation_of(make(Opcode::kActivation, Engine::kScalar, dst), func, src);
  i.imm1.kind = isa::ScalarOperand::Kind::kPointer;
  i.imm1.pointer = bias.access;
  emit(i, {&src, &bias}, &dst);
}

void Kernel::activation_sum(isa::ActFunc func, const Tile& dst, const Tile& src, const Tile& bias,
                            const Tile& sum) {
  Instruction i = activation_of(make(Opcode::kActivation, Engine::kScalar, dst), func, src);
  i.imm1.kind = isa::ScalarOperand::Kind::kPointer;
  i.imm1.pointer = bias.access;
  i.reduce_op = AluOp::kAdd;
  i.reduce = isa::ReduceCmd::kResetReduce;
  i.aux = sum.access;
  emit(i, {&src, &bias}, &dst, &sum);
}

isa::Program Kernel::finish() {
  synchronise(order());
  const uint64_t bytes[] = {input_bytes_, output_bytes_};
  for (uint32_t t : {kInput, kOutput}) {
    program_.tensors[t].bytes = bytes[t];
    program_.tensors[t].shape = {static_cast<int64_t>(bytes[t])};
  }
  for (int e = 0; e < isa::kNumEngines; ++e) {
    auto& stream = program_.streams[static_cast<size_t>(e)];
    if (stream.empty()) continue;
    Instruction halt;
    halt.opcode = Opcode::kHalt;
    halt.engine = static_cast<Engine>(e);
    stream.push_back(halt);
  }
  return std::move(program_);
}

}  // namespace trnsim::fidelity
