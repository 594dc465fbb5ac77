// DMA: how a transfer splits over the engines, and the service time of its descriptors.
#include <algorithm>
#include <cmath>

#include "sim/cost/cost.h"

namespace trnsim::cost {
namespace {

using isa::Access;
using isa::Instruction;
using isa::Opcode;
using isa::Space;

constexpr int kPartitions = 128;
constexpr int64_t kSemaphoreWriteBytes = 4;
constexpr int64_t kMinSplitBytes = 512;  // HBM to HBM: no engine gets less

// Bytes of the longest run that is contiguous in memory, of the trailing `dims` dims.
int64_t run_bytes(const Access& a, int first_dim = 0) {
  int64_t run = 1;
  for (int d = a.num_dims - 1; d >= first_dim; --d) {
    if (a.size[d] == 1) continue;
    if (a.step[d] != run) break;
    run *= a.size[d];
  }
  return run * static_cast<int64_t>(isa::dtype_bytes(a.dtype));
}

// Descriptors and time of `bytes` in runs of `run` bytes.
struct Work {
  int64_t descriptors = 0;
  double cycles = 0;
};

double beat_cycles(int64_t bytes, int64_t run, bool store, const config::Dma& d) {
  if (bytes <= 0) return 0;
  run = std::max<int64_t>(1, std::min(run, bytes));
  const double runs = static_cast<double>((bytes + run - 1) / run);
  double per_run = std::ceil(static_cast<double>(run) / d.bytes_per_cycle);
  if (runs > 1) per_run = std::max(per_run, d.element_min_cycles);
  if (run <= 2) per_run += d.two_byte_extra_cycles;
  return runs * per_run * (store ? d.store_factor : 1.0);
}

double overhead_cycles(int64_t bytes, const config::Dma& d) {
  return static_cast<double>(bytes) <= d.small_descriptor_bytes ? d.small_descriptor_overhead_cycles
                                                                : d.descriptor_overhead_cycles;
}

// Fills packets of the job from `descriptors` equal descriptors of `bytes` each (the last may be shorter).
// fetched: descriptors that come from a ring in HBM, a burst after the other.
void finish_job(DmaJob* job, int64_t bytes, int64_t descriptors, int64_t fetched, Ps fetch, double cycles,
                int64_t hbm_bytes, const config::Config& c) {
  const int64_t per_descriptor = std::max<int64_t>(1, bytes / descriptors);
  const int64_t per_packet =
      std::clamp<int64_t>(c.dma.descriptor_max_bytes / per_descriptor, 1, c.dma.packet_descriptors);
  const int64_t burst = c.dma.ring_prefetch_descriptors;
  const int64_t packets =
      std::max((descriptors + per_packet - 1) / per_packet, (fetched + burst - 1) / burst);
  job->packet_fetch = fetch * fetched / (burst * packets);
  job->descriptors = static_cast<uint32_t>(descriptors);
  job->packets = static_cast<uint32_t>(packets);
  const Ps total = ps_of_cycles(cycles, c.dma.clock_ghz);
  job->packet = total / packets;
  job->last_packet = total - job->packet * (packets - 1);
  const auto mixed = [&](Ps t) { return static_cast<Ps>(static_cast<double>(t) * c.dma.mixed_factor + 0.5); };
  job->packet_mixed = mixed(job->packet);
  job->last_packet_mixed = mixed(job->last_packet);
  // Cores that stream at the same time get equal shares of their stack.
  const double ps_per_byte =
      1000.0 / (c.hbm.stack_bandwidth_gb_per_s / static_cast<double>(c.hbm.active_cores));
  const auto occupied = [&](int64_t b) {
    return static_cast<Ps>(static_cast<double>(b) * ps_per_byte + 0.5);
  };
  const int64_t per_packet_hbm = hbm_bytes / packets;
  job->packet_hbm = occupied(per_packet_hbm);
  job->last_packet_hbm = occupied(hbm_bytes - per_packet_hbm * (packets - 1));
}

}  // namespace

Ps descriptor_time(int64_t bytes, int64_t run, bool store, const config::Config& c) {
  return ps_of_cycles(beat_cycles(bytes, run, store, c.dma) + overhead_cycles(bytes, c.dma), c.dma.clock_ghz);
}

Dma dma(const Instruction& i, const config::Config& c) {
  const config::Dma& d = c.dma;
  Dma out;
  const bool load = i.dst.space != Space::kHbm;  // into SBUF
  switch (i.dge) {
    case isa::DgeMode::kStatic:
      out.trigger = ps(d.static_trigger_ns);
      out.first_packet = ps(d.static_trigger_ns + d.static_first_packet_ns);
      out.read_latency = ps(d.static_ring_fetch_ns);
      break;
    case isa::DgeMode::kHardware:
      // One descriptor per row, that is per partition of the SBUF side.
      out.trigger = ps(d.hardware_trigger_ns +
                       d.hardware_row_ns * std::max<double>(i.dst.num_partitions, i.src0.num_partitions));
      out.first_packet = ps(d.hardware_first_packet_ns);
      break;
    case isa::DgeMode::kSoftware:
      out.trigger = ps(d.software_trigger_ns);
      out.first_packet = ps(d.software_first_packet_ns);
      out.software = true;
      break;
  }
  out.read_latency += ps(i.src0.space == Space::kHbm ? c.hbm.read_latency_ns : d.sbuf_read_latency_ns);
  out.ack = ps(load ? d.load_ack_ns : d.store_ack_ns);

  const bool indirect = i.opcode == Opcode::kDmaGather || i.opcode == Opcode::kDmaScatter;
  const Access& counted = i.opcode == Opcode::kDmaGather    ? i.dst
                          : i.opcode == Opcode::kDmaScatter ? i.src0
                                                            : i.dst;
  const int64_t elements = counted.elements();
  // A sum reads every source in turn.
  int64_t sources = 1;
  if (i.opcode == Opcode::kDmaCompute && elements > 0) {
    sources = (i.src0.elements() + (i.src1.present() ? i.src1.elements() : 0)) / elements;
  }
  const int64_t src_element = static_cast<int64_t>(isa::dtype_bytes(i.src0.dtype));
  const int64_t dst_element = static_cast<int64_t>(isa::dtype_bytes(i.dst.dtype));
  const int64_t element = std::max(src_element, dst_element);

  // A contiguous run must be contiguous on both sides; a cast keeps elements, not bytes.
  int64_t run_elements;
  if (i.opcode == Opcode::kDmaTranspose) {
    run_elements = std::max<int64_t>(1, i.src0.free_elements());
  } else if (indirect) {
    const Access& table = i.opcode == Opcode::kDmaGather ? i.src0 : i.dst;
    run_elements = std::min(run_bytes(table, 1) / static_cast<int64_t>(isa::dtype_bytes(table.dtype)),
                            run_bytes(counted) / static_cast<int64_t>(isa::dtype_bytes(counted.dtype)));
  } else {
    run_elements = std::min(run_bytes(i.src0) / src_element, run_bytes(i.dst) / dst_element);
  }
  run_elements = std::max<int64_t>(1, run_elements);

  double efficiency = 1.0;
  if (i.opcode == Opcode::kDmaTranspose) {
    efficiency = i.src0.space == Space::kSbuf && i.dst.space == Space::kSbuf ? d.transpose_sbuf_efficiency
                                                                             : d.transpose_efficiency;
  }
  const bool accumulate = indirect && i.op0 == isa::AluOp::kAdd;
  if (accumulate || i.opcode == Opcode::kDmaCompute) efficiency *= d.accumulate_efficiency;
  efficiency /= static_cast<double>(std::max<int64_t>(sources, 1));
  if (i.has(isa::kFlagAccumulate)) efficiency *= c.instructions.sbuf_accumulate_efficiency;

  int64_t row_elements = 0;  // indirect: elements per index
  if (indirect) {
    const int64_t rows = std::max<int64_t>(1, i.src1.elements());
    row_elements = std::max<int64_t>(1, elements / rows);
  }

  const bool ring = i.dge == isa::DgeMode::kStatic;
  const Ps fetch = ps(d.static_ring_fetch_ns + c.hbm.read_latency_ns);
  const auto add_job = [&](int engine, int64_t n) {
    if (n <= 0) return;
    const int64_t bytes = n * element;
    const int64_t run = std::min(run_elements, n) * element;
    int64_t descriptors;
    double cycles;
    if (indirect) {
      descriptors = (n + row_elements - 1) / row_elements;
      const int64_t row = row_elements * element;
      cycles = static_cast<double>(descriptors) *
               (beat_cycles(row, std::min(run, row), !load, d) / efficiency + overhead_cycles(row, d));
    } else {
      descriptors = (bytes + d.descriptor_max_bytes - 1) / d.descriptor_max_bytes;
      cycles = beat_cycles(bytes, run, !load, d) / efficiency +
               static_cast<double>(descriptors) * overhead_cycles(bytes / descriptors, d);
    }
    // The last descriptor carries the semaphore write.
    if (i.sync.update != isa::SemOp::kNone) cycles += std::ceil(kSemaphoreWriteBytes / d.bytes_per_cycle);
    DmaJob job;
    job.engine = static_cast<uint16_t>(engine);
    int64_t hbm = 0;
    if (i.src0.space == Space::kHbm) hbm += n * src_element * sources;
    if (i.dst.space == Space::kHbm) hbm += n * dst_element * (accumulate ? 2 : 1);
    const int64_t runs = run < d.merged_run_bytes ? (bytes + run - 1) / run : 0;
    const int64_t fetched = ring ? std::max(descriptors, runs) : 0;
    finish_job(&job, bytes, descriptors, fetched, fetch, cycles, hbm, c);
    out.ring = std::max(out.ring, fetch * fetched / d.ring_prefetch_descriptors);
    out.descriptors += descriptors;
    out.jobs.push_back(job);
  };

  const Access& side = i.dst.space == Space::kSbuf ? i.dst : i.src0;
  const int engines = static_cast<int>(d.engines);
  if (side.space == Space::kSbuf) {
    // Engine e serves an equal share of the 128 partitions.
    const int64_t per_partition = side.free_elements();
    const int first = side.start_partition, last = side.start_partition + side.num_partitions;
    for (int e = 0; e < engines; ++e) {
      const int from = e * kPartitions / engines, to = (e + 1) * kPartitions / engines;
      const int covered = std::min(last, to) - std::max(first, from);
      add_job(e, covered > 0 ? covered * per_partition : 0);
    }
  } else {
    const int64_t wanted = std::clamp<int64_t>(elements * element / kMinSplitBytes, 1, engines);
    for (int64_t e = 0; e < wanted; ++e)
      add_job(static_cast<int>(e), elements * (e + 1) / wanted - elements * e / wanted);
  }
  if (i.src0.space == Space::kHbm) out.read_bytes += elements * src_element * sources;
  if (i.dst.space == Space::kHbm) {
    out.written_bytes += elements * dst_element;
    if (accumulate) out.read_bytes += elements * dst_element;
  }
  return out;
}

}  // namespace trnsim::cost
