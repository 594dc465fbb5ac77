// The laws of sim/cost in words, for `trnsim isa NAME`; the parameters are those of `trnsim config explain`.
#include "isa/docs.h"

namespace trnsim::isa {
namespace {

struct Law {
  CostClass cost;
  Engine engine;  // kSync: any
  std::string_view text;
};

constexpr Engine T = Engine::kTensor, V = Engine::kVector, S = Engine::kScalar, G = Engine::kGpSimd,
                 kAny = Engine::kSync;

constexpr std::string_view kVectorCopy =
    "N cycles, fewer in SBUF: N / vector.half_copy_elements_per_cycle (contiguous 16-bit), N / "
    "vector.half_slow_elements_per_cycle (other 16-bit), N / vector.fp32_copy_elements_per_cycle, widening N "
    "x "
    "vector.widening_cycles_per_element; never below N x vector.strided_cycles_per_element when strided; "
    "result "
    "vector.copy_fixed_ns later";
constexpr std::string_view kGpSimd =
    "N x gpsimd.cycles_per_element, twice that for two fp32 inputs; result gpsimd.fixed_cycles later";
constexpr std::string_view kAccumulating =
    "N cycles; result vector.copy_fixed_ns later; reading the accumulator out adds "
    "instructions.accumulator_read_cycles";
constexpr std::string_view kStatistics =
    "N of src0 x vector.statistics_cycles_per_element; result vector.reduce_fixed_ns later";
constexpr std::string_view kDma =
    "bytes over dma.engines engines of dma.bytes_per_cycle each, per descriptor "
    "dma.descriptor_overhead_cycles, never "
    "above hbm.stack_bandwidth_gb_per_s nor faster than a host-built ring fetches descriptors "
    "(dma.ring_prefetch_"
    "descriptors per dma.static_ring_fetch_ns + hbm.read_latency_ns; runs below dma.merged_run_bytes have "
    "one each); begins after the trigger and first-packet times of its dge mode, "
    "complete "
    "after dma.load_ack_ns or dma.store_ack_ns";

constexpr Law kLaws[] = {
    {CostClass::kStationaryLoad, T,
     "tensor.load_fixed_ns + one column per cycle; 16-bit and narrower tensor.fast_load_columns_per_cycle, "
     "fp32 "
     "tensor.fp32_load_cycles_per_column; hidden behind the multiplication before it"},
    {CostClass::kMatmul, T,
     "N columns, at least tensor.min_columns, one per cycle; fp32 takes tensor.fp32_passes passes; half "
     "clock until the "
     "governor (tensor.governor_threshold) has seen work; result tensor.fill_cycles and tensor.fill_fixed_ns "
     "later"},
    {CostClass::kTranspose, T, "a weight load of src0 and a pass of as many columns as it has partitions"},
    {CostClass::kTranspose, V, "N cycles; result vector.transpose_fixed_ns later"},
    {CostClass::kCopy, V, kVectorCopy},
    {CostClass::kCopy, S, "N cycles; result scalar.copy_fixed_ns later (PSUM scalar.copy_psum_fixed_ns)"},
    {CostClass::kTensorScalar, V, kVectorCopy},
    {CostClass::kTensorScalar, S,
     "N cycles; result scalar.copy_fixed_ns later (PSUM scalar.copy_psum_fixed_ns)"},
    {CostClass::kTensorTensor, V,
     "N cycles, 16-bit in SBUF N / vector.half_tensor_tensor_elements_per_cycle, strided N x "
     "vector.strided_cycles_per_element; result vector.tensor_tensor_fixed_ns later"},
    {CostClass::kActivation, S,
     "N cycles; result scalar.activation_fixed_ns later (PSUM scalar.activation_psum_fixed_ns); another "
     "table set first "
     "takes scalar.table_load_ns; accumulation adds scalar.accumulate_read_ns"},
    {CostClass::kActivationTable, S, "scalar.table_load_ns"},
    {CostClass::kPredicated, V,
     "N x vector.predicated_cycles_per_element; result vector.copy_fixed_ns later"},
    {CostClass::kReciprocal, V,
     "N x vector.reciprocal_cycles_per_element; result vector.copy_fixed_ns later"},
    {CostClass::kMemset, V, "N / vector.fill_elements_per_cycle; result vector.copy_fixed_ns later"},
    {CostClass::kMemset, G, "N x gpsimd.cycles_per_element; result gpsimd.memset_fixed_ns later"},
    {CostClass::kPatternGenerate, V, "N / vector.fill_elements_per_cycle; result vector.copy_fixed_ns later"},
    {CostClass::kPatternGenerate, G, "N x gpsimd.cycles_per_element; result gpsimd.select_fixed_ns later"},
    {CostClass::kReduce, V, "N of src0 cycles; result vector.reduce_fixed_ns later"},
    {CostClass::kPartitionReduce, G,
     "N of src0 x its partitions x gpsimd.partition_reduce_cycles; result gpsimd.fixed_cycles later"},
    {CostClass::kScan, V,
     "N x vector.scan_cycles_per_element, at least vector.scan_floor_cycles; result vector.copy_fixed_ns "
     "later"},
    {CostClass::kScalarReduce, V, kAccumulating},
    {CostClass::kSelectReduce, V, kAccumulating},
    {CostClass::kExponential, V,
     "N / instructions.exponential_elements_per_cycle; result vector.copy_fixed_ns later; reading the "
     "accumulator out adds instructions.accumulator_read_cycles"},
    {CostClass::kQuantize, V,
     "N of src0 / instructions.quantize_elements_per_cycle; result vector.copy_fixed_ns later"},
    {CostClass::kShuffle, V, "N cycles; result instructions.shuffle_fixed_ns later"},
    {CostClass::kStatistics, V, kStatistics},
    {CostClass::kStatisticsMerge, V, kStatistics},
    {CostClass::kTop8, V, "N of src0 + vector.top8_fixed_cycles"},
    {CostClass::kRandom, V,
     "N / instructions.random_elements_per_cycle, rand2 N / instructions.uniform_elements_per_cycle; result "
     "vector.copy_fixed_ns later"},
    {CostClass::kRandom, G,
     "philox N x gpsimd.philox_cycles_per_element, rng N / instructions.random_elements_per_cycle; result "
     "gpsimd.fixed_cycles later"},
    {CostClass::kRandomState, V, "instructions.generator_state_cycles; result vector.copy_fixed_ns later"},
    {CostClass::kRandomState, G, "instructions.generator_state_cycles; result gpsimd.fixed_cycles later"},
    {CostClass::kLocalGather, G,
     "N / C with C = (instructions.local_gather_setup_cycles + count x e) / (count x e) / min(4 / element "
     "bytes, count), e = instructions.local_gather_element_cycles; result gpsimd.fixed_cycles later"},
    {CostClass::kListScan, G,
     "list elements x instructions.list_cycles_per_element; result gpsimd.fixed_cycles later"},
    {CostClass::kTopk, G,
     "imm x instructions.topk_cycles_per_value + count x instructions.topk_cycles_per_result; result "
     "gpsimd.fixed_cycles later"},
    {CostClass::kCustom, G, "N x instructions.custom_cycles_per_element; result gpsimd.fixed_cycles later"},
    {CostClass::kDma, kAny, kDma},
    {CostClass::kSemaphore, kAny, "sequencer.dispatch_ns; others see the update semaphore.visible_ns later"},
    {CostClass::kCoreBarrier, kAny,
     "sequencer.control_ns; goes on semaphore.remote_visible_ns and semaphore.wake_ns after the other core "
     "has come"},
    {CostClass::kRegister, kAny, "sequencer.control_ns"},
    {CostClass::kRegisterMemory, kAny, "sequencer.register_memory_ns"},
    {CostClass::kBranch, kAny, "sequencer.control_ns, taken sequencer.branch_ns"},
};

}  // namespace

std::string_view cost_law(CostClass cost, Engine engine) {
  for (const Law& law : kLaws)
    if (law.cost == cost && (law.engine == engine || law.engine == kAny)) return law.text;
  return engine == G ? kGpSimd : std::string_view();
}

}  // namespace trnsim::isa
