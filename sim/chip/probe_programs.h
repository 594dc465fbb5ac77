// Small programs built in C++: timing probes of the tests and standard programs of the benchmark.
#pragma once

#include <string>
#include <vector>

#include "isa/program.h"

namespace trnsim::chip::probe {

using isa::Access;
using isa::Dtype;
using isa::Engine;
using isa::Instruction;
using isa::Opcode;

// Operands. `n` elements per partition, dense unless a step is given.
Access sbuf(int64_t n, Dtype dtype = Dtype::kF32, int64_t offset = 0, int partitions = 128, int64_t step = 1,
            int first_partition = 0);
Access psum(int64_t n, Dtype dtype = Dtype::kF32, int bank = 0, int partitions = 128);
Access hbm(uint32_t tensor, int64_t elements, Dtype dtype = Dtype::kF32, int64_t offset = 0);

// Instructions with the fields a probe needs; the caller sets the rest.
Instruction copy(Engine engine, const Access& dst, const Access& src);
Instruction tensor_tensor(const Access& dst, const Access& a, const Access& b,
                          Engine engine = Engine::kVector);
Instruction tensor_scalar(const Access& dst, const Access& src, bool pointer,
                          Engine engine = Engine::kVector);
Instruction activation(const Access& dst, const Access& src, isa::ActFunc func);
Instruction load_stationary(const Access& weights);
Instruction multiply(const Access& dst, const Access& moving);
Instruction dma_copy(Engine engine, const Access& dst, const Access& src,
                     isa::DgeMode mode = isa::DgeMode::kStatic, int queue = 0);
Instruction halt(Engine engine);

Instruction& wait(Instruction& i, int semaphore, int value);
Instruction& signal(Instruction& i, int semaphore, int value = 1);

// Assembles streams by engine, adds tensors of `tensor_bytes` each and the halts. For two cores when an instruction
// needs both: each gets the same streams.
isa::Program program(const std::vector<Instruction>& instructions,
                     const std::vector<uint64_t>& tensor_bytes = {});

// Loads tiles, multiplies them (fp32 or bf16), drains PSUM with activations, adds on Vector, stores: `tiles`
// times, double buffered, one completion counter per engine and queue. `unrolled` false keeps a loop.
isa::Program matmul_pipeline(int tiles, Dtype dtype);
// Compute streams without DMA: what the sequencers and semaphores cost.
isa::Program compute_chain(int instructions_per_engine);
// A loop of copies, additions and transfers whose queue is full most of the time: any number of instructions from a
// stream of a few.
isa::Program long_loop(int iterations);
// Token generation as one loop: a step loads a tile of weights, multiplies one column block by it, activates, adds and
// appends a row to a cache in HBM. The engines wait for each other with counts and addresses from registers.
isa::Program decode_loop(int steps);

// One instruction of the row for `engine` with n (a multiple of 32, at least 64) elements per partition, n
// columns or n elements in HBM rows, fp32 in SBUF where the row leaves a choice; and what has to come before it (a
// weight load). Every row of the table has one.
std::vector<Instruction> row_probe(Opcode opcode, Engine engine, int64_t n);
std::vector<uint64_t> row_probe_tensors();  // bytes of the tensors it names

// Every law of the configuration takes part in at least one of these.
std::vector<isa::Program> standard_programs();

}  // namespace trnsim::chip::probe
