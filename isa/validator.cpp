#include "isa/validator.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_set>

#include "isa/names.h"
#include "isa/validator_rules.h"

namespace trnsim::isa {
namespace {

std::string join(std::initializer_list<std::string_view> parts) {
  std::string text;
  for (std::string_view p : parts) text += p;
  return text;
}

}  // namespace

std::string number(int64_t v) { return std::to_string(v); }

std::string place(const Program& program, const Instruction& i, int core, int64_t index) {
  std::string text = join({name(i.engine), program.cores > 1 ? " of core " + number(core) : std::string(),
                           " instruction ", number(index), " (",
                           i.opcode < Opcode::kCount ? name(i.opcode) : std::string_view("invalid opcode")});
  if (i.location != 0 && i.location < program.locations.size()) {
    const SourceLocation& l = program.locations[i.location];
    if (!l.file.empty()) text += join({", ", l.file, ":", number(l.line)});
    if (!l.what.empty()) text += join({", ", l.what});
  }
  return text + ")";
}

std::string_view name(ErrorClass c) {
  switch (c) {
    case ErrorClass::kUserError:
      return "user error";
    case ErrorClass::kIllegalOnHardware:
      return "illegal on hardware";
    default:
      return "not simulated";
  }
}

const Diagnostic* first_error(const std::vector<Diagnostic>& diagnostics) {
  for (const Diagnostic& d : diagnostics) {
    if (d.severity == Severity::kError) return &d;
  }
  return nullptr;
}

void InstructionChecker::report(ErrorClass c, Severity severity, const std::string& message) {
  // Warnings have a budget of their own: they must not keep an error from being seen.
  size_t& reported = severity == Severity::kError ? errors_ : warnings_;
  if (reported >= max_) return;
  ++reported;
  out_.push_back(
      {severity, c, core_of_stream(stream_), engine_, index_, i_->location,
       join({name(c), ": ", place(program_, *i_, core_of_stream(stream_), index_), ": ", message})});
}

void InstructionChecker::check(const Instruction& i, size_t stream_of_program, int64_t index) {
  const Engine stream = engine_of_stream(stream_of_program);
  i_ = &i;
  stream_ = stream_of_program;
  engine_ = stream;
  index_ = index;
  if (i.opcode >= Opcode::kCount) return user("unknown opcode " + number(static_cast<int>(i.opcode)));
  row_ = &row(i.opcode);
  if (i.engine != stream) {
    user(join({"it names engine ", name(i.engine), " but lies in the stream of ", name(stream)}));
  }
  if (!row_->runs_on(stream)) {
    std::string engines;
    for (int e = 0; e < kNumEngines; ++e) {
      if (row_->runs_on(static_cast<Engine>(e)))
        engines += join({engines.empty() ? "" : ", ", name(static_cast<Engine>(e))});
    }
    illegal(join({"the engine has no such instruction; it runs on ", engines}));
    return;
  }
  if (row_->since > generation_) {
    illegal(join(
        {"the instruction exists from ", name(row_->since), " on; the program is for ", name(generation_)}));
  } else if (!row_->runs_on(stream, generation_)) {
    illegal(join({"the ", name(stream), " engine has the instruction from trn3 on; the program is for ",
                  name(generation_)}));
  }
  check_fields();
  check_sync();
  shapes_ok_ = true;
  for (int s = 0; s < kNumSlots; ++s) check_operand(static_cast<Slot>(s));
  check_scalars();
  // The shape rules compare operands; on malformed ones they would only repeat the message.
  if (shapes_ok_) check_rules();
  track_stationary();
}

void InstructionChecker::check_fields() {
  const Instruction& i = *i_;
  const Row& r = *row_;
  if ((i.flags & ~r.flags) != 0) {
    const std::string allowed =
        r.flags == 0 ? std::string("it takes none") : "allowed: " + flags_text(r.flags);
    user(join(
        {"flag ", flags_text(static_cast<uint16_t>(i.flags & ~r.flags)), " has no meaning here; ", allowed}));
  }
  if ((i.flags & r.flags_trn3) != 0 && generation_ < Generation::kTrn3) {
    illegal(join({"flag ", flags_text(static_cast<uint16_t>(i.flags & r.flags_trn3)),
                  " exists from trn3 on; the program is for ", name(generation_)}));
  }
  if (r.uses(kFieldOp0)) check_operator(i.op0, r.op0, "op0");
  if (r.uses(kFieldOp1)) check_operator(i.op1, r.op1, "op1");
  if (r.uses(kFieldFunc) && i.func >= ActFunc::kCount) user("unknown activation function");
  if (r.uses(kFieldQueue) && i.queue >= kNumDmaQueues) {
    illegal(
        join({"DMA queue ", number(i.queue), "; each engine has queues 0 to ", number(kNumDmaQueues - 1)}));
  }
  if (r.uses(kFieldPriority) && i.priority != 0) {
    if (generation_ < Generation::kTrn3) {
      illegal(join({"traffic classes exist from trn3 on; the program is for ", name(generation_)}));
    } else if (i.priority >= kTrafficClasses) {
      illegal(join(
          {"priority ", number(i.priority), "; the traffic classes are 0 to ", number(kTrafficClasses - 1)}));
    }
  }
  auto check_register = [&](Field f, uint8_t reg, std::string_view what) {
    if (r.uses(f) && reg >= kNumRegisters) {
      illegal(join({what, " is register ", number(reg), "; a sequencer has ", number(kNumRegisters)}));
    }
  };
  check_register(kFieldRegDst, i.reg_dst, "reg_dst");
  check_register(kFieldRegA, i.reg_a, "reg_a");
  if (!i.has(kFlagImmediate)) check_register(kFieldRegB, i.reg_b, "reg_b");
  if (r.uses(kFieldImm) && !i.has(kFlagWide) &&
      (i.imm < INT32_MIN || i.imm > static_cast<int64_t>(UINT32_MAX))) {
    illegal(join({"the immediate ", number(i.imm), " does not fit a 32-bit register"}));
  }
  if (r.uses(kFieldTarget)) {
    const size_t size = program_.streams[stream_].size();
    if (i.target >= size) {
      user(join({"the branch target ", number(i.target), " is outside the stream of ",
                 number(static_cast<int64_t>(size)), " instructions"}));
    }
  }
  if (i.location >= program_.locations.size()) {
    user(join({"source location ", number(i.location), " does not exist; the program has ",
               number(static_cast<int64_t>(program_.locations.size()))}));
  }
  if (i.is_dma()) {
    if (i.dge == DgeMode::kHardware && engine_ != Engine::kSync && engine_ != Engine::kScalar) {
      illegal(
          "hardware descriptor generation is driven by the sync or the scalar engine only; move the "
          "instruction or "
          "use static descriptors");
    }
    if (i.dge == DgeMode::kSoftware && engine_ != Engine::kGpSimd) {
      illegal(
          "software descriptor generation runs on gpsimd only; move the instruction or use static "
          "descriptors");
    }
  }
}

void InstructionChecker::check_operator(AluOp op, AluSet allowed, std::string_view what) {
  if (op >= AluOp::kCount || !contains(allowed, op)) {
    illegal(
        join({"operator ", name(op), " is not possible as ", what, "; allowed: ", operators_text(allowed)}));
  } else if (since(op) > generation_) {
    illegal(join({"operator ", name(op), " exists from ", name(since(op)), " on; the program is for ",
                  name(generation_), ". Use an activation, or two instructions"}));
  }
}

void InstructionChecker::check_sync() {
  const Sync& s = i_->sync;
  if (s.num_waits > 2)
    illegal(join({number(s.num_waits),
                  " semaphore waits; an instruction holds 2. Put a semaphore instruction before it"}));
  for (int w = 0; w < std::min<int>(s.num_waits, 2); ++w) {
    const uint8_t reg = s.waits[w].value_register;
    if (reg != kNoRegister && reg >= kNumRegisters) {
      illegal(join({"the wait names register ", number(reg), "; a sequencer has ", number(kNumRegisters)}));
    }
  }
  if (static_cast<unsigned>(s.update) > static_cast<unsigned>(SemOp::kWrite))
    user("unknown semaphore operation");
  if (i_->is_dma() && s.update != SemOp::kNone &&
      (s.update != SemOp::kAdd || s.update_value != kDmaCompletionIncrement)) {
    illegal(join({"a DMA completion adds ", number(kDmaCompletionIncrement),
                  " to its semaphore (1 from each engine); it cannot do anything else"}));
  }
}

void InstructionChecker::check_operand(Slot slot) {
  const OperandRule& rule = row_->operand(slot);
  const Access& a = operand(*i_, slot);
  if (rule.role == Role::kNone) {
    if (a.present()) user(join({"operand ", name(slot), " is given but not used"}));
    return;
  }
  if (!a.present()) {
    if (rule.required) malformed(ErrorClass::kUserError, join({"operand ", name(slot), " is missing"}));
    return;
  }
  check_access(a, rule, name(slot), i_->is_dma() || i_->is_control());
}

void InstructionChecker::check_access(const Access& a, const OperandRule& rule, std::string_view what,
                                      bool by_dma) {
  const ErrorClass illegal_class = ErrorClass::kIllegalOnHardware;
  // Scales lie at offsets 0, 4, 8 and 12 of their quadrants (rule mx_scales).
  const bool scale_rows = (what == "src1" && row_->has_rule(Rule::kMxScales)) ||
                          (what == "aux" && row_->has_rule(Rule::kQuantizeShape));
  if (a.space > Space::kHbm)
    return malformed(ErrorClass::kUserError, join({what, " has an unknown memory space"}));
  if (!contains(rule.spaces, a.space)) {
    return malformed(illegal_class,
                     join({what, " lies in ", name(a.space), "; allowed: ", spaces_text(rule.spaces)}));
  }
  if (!by_dma &&
      !contains(reachable_spaces(engine_, rule.role == Role::kRead ? Role::kRead : Role::kWrite), a.space)) {
    return malformed(illegal_class,
                     join({what, " lies in ", name(a.space), ", which the ", name(engine_), " engine cannot ",
                           rule.role == Role::kRead ? "read" : "write",
                           engine_ == Engine::kGpSimd ? "; copy it to SBUF, or use the vector engine" : ""}));
  }
  if (a.dtype >= Dtype::kCount)
    return malformed(ErrorClass::kUserError, join({what, " has an unknown dtype"}));
  if (!contains(rule.dtypes_of(generation_), a.dtype)) {
    malformed(illegal_class,
              join({what, " has dtype ", dtype_name(a.dtype),
                    "; allowed: ", dtypes_text(rule.dtypes_of(generation_)),
                    contains(rule.dtypes_trn3, a.dtype) ? " (the dtype given: from trn3 on)" : ""}));
  } else if (contains(kDtypes64, a.dtype) && a.space != Space::kHbm && !i_->is_control()) {
    malformed(illegal_class, join({what, " is ", dtype_name(a.dtype),
                                   " outside HBM; 64-bit elements exist in HBM only, DMA narrows them to ",
                                   a.dtype == Dtype::kI64 ? "int32" : "fp32"}));
  } else if (since(a.dtype) > generation_ && !pure_move()) {
    malformed(
        illegal_class,
        join({what, " is ", dtype_name(a.dtype), a.dtype == Dtype::kF8E4M3FN ? " (float8_e4m3fn)" : "",
              ", which takes part in arithmetic from ", name(since(a.dtype)), " on, and the program is for ",
              name(generation_),
              a.dtype == Dtype::kF8E4M3FN
                  ? " (NCC_EVRF051); use fp8e4 (largest value 240), fp8e5 (float8_e5m2) or bf16, or choose "
                    "--config trn3"
                  : "; choose --config trn3"}));
  }
  if (a.indirect) check_indirect(a, rule, what);
  const int max_dims = a.space == Space::kHbm ? kMaxDims : std::min<int>(rule.max_dims, 4);
  if (a.num_dims > max_dims) {
    return malformed(illegal_class,
                     join({what, " has ", number(a.num_dims), " dims; the limit is ", number(max_dims)}));
  }
  if (a.address_register != kNoRegister && a.address_register >= kNumRegisters) {
    illegal(join({what, " names address register ", number(a.address_register), "; a sequencer has ",
                  number(kNumRegisters)}));
  }
  // Byte range of the pattern.
  Wide lowest = a.offset, highest = a.offset;
  Wide elements = 1;
  const auto bytes = static_cast<int64_t>(dtype_bytes(a.dtype));
  for (int d = 0; d < a.num_dims; ++d) {
    if (a.size[d] == 0)
      return malformed(ErrorClass::kUserError, join({what, " is empty: dim ", number(d), " has size 0"}));
    if (!by_dma) {
      if (a.size[d] > UINT16_MAX) {
        malformed(illegal_class, join({what, " dim ", number(d), " has ", number(a.size[d]),
                                       " elements; a size has 16 bits. Split the instruction"}));
      }
      const bool steps = a.size[d] > 1 || (a.indirect && d == 0);  // an index list multiplies it
      if (steps && (a.step[d] < INT16_MIN || a.step[d] > INT16_MAX)) {
        malformed(illegal_class,
                  join({what, " dim ", number(d), " has step ", number(a.step[d]),
                        "; a step has 16 bits (-32768 to 32767 elements). Split the instruction"}));
      }
    }
    const Wide reach = static_cast<Wide>(a.step[d]) * bytes * (a.size[d] - 1);
    (reach < 0 ? lowest : highest) += reach;
    elements = std::min<Wide>(elements * a.size[d], static_cast<Wide>(INT64_MAX));
  }
  highest += bytes;
  // Far beyond any memory; keeps the arithmetic of the rules below in 64 bits.
  const int log2_limit = a.space == Space::kHbm ? 40 : 22;
  if (elements > (int64_t{1} << log2_limit)) {
    return malformed(ErrorClass::kUserError,
                     join({what, " has more than 2^", number(log2_limit), " elements"}));
  }
  const int64_t count = static_cast<int64_t>(elements);
  // The same for its range, to which an address register or an index adds.
  const Wide far = Wide{1} << 40;
  const auto check_reach = [&] {
    if (lowest >= -far && highest <= far) return;
    malformed(ErrorClass::kUserError, join({what, " covers bytes ", wide_number(lowest), " to ",
                                            wide_number(highest), "; no memory has more than 2^40"}));
  };
  if (a.space == Space::kHbm) {
    if (a.tensor >= program_.tensors.size()) {
      return malformed(ErrorClass::kUserError,
                       join({what, " names tensor ", number(a.tensor), "; the program has ",
                             number(static_cast<int64_t>(program_.tensors.size()))}));
    }
    const TensorDecl& t = program_.tensors[a.tensor];
    if (rule.role != Role::kRead && t.kind == TensorKind::kConstant) {
      user(join({what, " writes the constant tensor ", t.name}));
    }
    if (rule.max_free != 0 && count > rule.max_free) too_many(what, count, rule.max_free);
    const Wide end = static_cast<Wide>(t.bytes);
    if (a.address_register == kNoRegister && (lowest < 0 || highest > end)) {
      malformed(ErrorClass::kUserError,
                join({what, " covers bytes ", wide_number(lowest), " to ", wide_number(highest),
                      " of tensor ", t.name, ", which has ", number(static_cast<int64_t>(t.bytes))}));
    } else {
      check_reach();
    }
    return;
  }
  if (a.num_partitions == 0 || a.start_partition + a.num_partitions > kMaxPartitions) {
    return malformed(illegal_class, join({what, " covers partitions ", number(a.start_partition), " to ",
                                          number(a.start_partition + a.num_partitions - 1),
                                          "; the memory has 0 to ", number(kMaxPartitions - 1)}));
  }
  if (!by_dma) {
    const int start = a.start_partition, n = a.num_partitions;
    const int unit = n > 64 ? 128 : n > 32 ? 64 : 32;
    if (start % unit != 0 && !scale_rows) {
      illegal(join({what, " starts at partition ", number(start), " with ", number(n),
                    " partitions; allowed starts: ",
                    n > 64   ? "0"
                    : n > 32 ? "0, 64"
                             : "0, 32, 64, 96"}));
    }
    const int64_t limit = a.space == Space::kPsum ? kMaxFreeElementsPsum : kMaxFreeElementsSbuf;
    if (rule.max_free == 0 && count > limit) too_many(what, count, limit);
  }
  if (rule.max_free != 0 && count > rule.max_free) too_many(what, count, rule.max_free);
  if (a.offset % bytes != 0) {
    illegal(join({what, " has byte offset ", number(a.offset), ", not a multiple of the element size ",
                  number(bytes)}));
  }
  const int64_t capacity =
      a.space == Space::kSbuf ? sbuf_bytes_ : limits(generation_).psum_bytes_per_partition;
  if (a.address_register == kNoRegister && !a.indirect && (lowest < 0 || highest > capacity)) {
    malformed(illegal_class, join({what, " covers bytes ", wide_number(lowest), " to ", wide_number(highest),
                                   " of a ", name(a.space), " partition, which has ", number(capacity)}));
  } else {
    check_reach();
  }
  // The tensor engine accumulates bank by bank.
  if (engine_ == Engine::kTensor && !by_dma && a.space == Space::kPsum &&
      limits(generation_).matmul_output_in_one_bank && !a.indirect && lowest >= 0 &&
      lowest / kPsumBankBytes != (highest - 1) / kPsumBankBytes) {
    illegal(join({what, " covers bytes ", wide_number(lowest), " to ", wide_number(highest),
                  " of PSUM: on trn2 a tensor engine result lies within one bank of ", number(kPsumBankBytes),
                  " bytes"}));
  }
}

void InstructionChecker::too_many(std::string_view what, int64_t count, int64_t limit) {
  malformed(ErrorClass::kIllegalOnHardware,
            join({what, " has ", number(count), " elements per partition; the limit is ", number(limit),
                  ". Split the instruction"}));
}

bool InstructionChecker::pure_move() const {
  return i_->is_dma() && i_->opcode != Opcode::kDmaCompute && i_->dst.dtype == i_->src0.dtype &&
         i_->op0 != AluOp::kAdd && !i_->has(kFlagAccumulate);
}

void InstructionChecker::check_indirect(const Access& a, const OperandRule& rule, std::string_view what) {
  const ErrorClass illegal_class = ErrorClass::kIllegalOnHardware;
  if (!rule.indirect || a.space == Space::kHbm) {
    return malformed(illegal_class,
                     join({what, " of ", row_->name, " cannot be indirect; copy the elements first"}));
  }
  if (generation_ < Generation::kTrn3) {
    illegal(join({what, " is indirect, which exists from trn3 on; gather with DMA, or use gpsimd"}));
  }
  if (a.index_dtype != Dtype::kU16 && a.index_dtype != Dtype::kU32 && a.index_dtype != Dtype::kI32) {
    malformed(illegal_class, join({"the index list of ", what, " is ", dtype_name(a.index_dtype),
                                   "; allowed: uint16, uint32, int32"}));
    return;
  }
  if (a.num_dims == 0) {
    return malformed(ErrorClass::kUserError,
                     join({what, " is indirect but has no dims; dims[0] is the indexed one"}));
  }
  if (a.address_register != kNoRegister) illegal(join({what, " is indirect and has an address register"}));
  const int rows = index_partitions(engine_);
  const int64_t columns = (a.size[0] + rows - 1) / rows;
  const auto bytes = static_cast<int64_t>(dtype_bytes(a.index_dtype));
  if (a.index_partition % 32 != 0 || a.index_partition + rows > kMaxPartitions) {
    illegal(join({"the index list of ", what, " starts at partition ", number(a.index_partition),
                  "; allowed: 0, 32, 64, 96"}));
  }
  if (a.index_offset % bytes != 0 || a.index_offset + columns * bytes > sbuf_bytes_) {
    illegal(join({"the index list of ", what, " covers bytes ", number(a.index_offset), " to ",
                  number(a.index_offset + columns * bytes), " of an sbuf partition, which has ",
                  number(sbuf_bytes_), "; it must be aligned to its elements"}));
  }
  const bool read = rule.role == Role::kRead;
  if (read && a.index_partition != a.start_partition) {
    illegal(join({"the index list of ", what, " starts at partition ", number(a.index_partition), ", ", what,
                  " at ", number(a.start_partition), "; they must be equal"}));
  }
  if (!read && engine_ == Engine::kScalar && a.space == Space::kPsum) {
    illegal("the scalar engine cannot scatter to psum; scatter to sbuf, or use the vector engine");
  }
  const Access& src = i_->src0;
  if (!read && engine_ != Engine::kTensor && src.present()) {
    const int want = src.space == Space::kSbuf ? src.start_partition
                     : src.indirect            ? src.index_partition
                                               : a.index_partition;
    if (a.index_partition != want) {
      illegal(join({"the index list of ", what, " starts at partition ", number(a.index_partition),
                    "; it must be ", number(want), ", as that of src0"}));
    }
  }
  if (engine_ == Engine::kTensor && dtype_bytes(read ? a.dtype : Dtype::kBF16) > 2 && !is_packed(a.dtype)) {
    illegal(join(
        {what, " is ", dtype_name(a.dtype), "; indirect operands of the tensor engine have 8 or 16 bits"}));
  }
}

std::vector<Diagnostic> validate(const Program& program, Generation generation,
                                 const ValidateOptions& options) {
  std::vector<Diagnostic> out;
  std::unordered_set<std::string_view> names;
  auto program_error = [&](const std::string& message) {
    if (out.size() < options.max_diagnostics) {
      out.push_back(
          {Severity::kError, ErrorClass::kUserError, 0, Engine::kSync, -1, 0, "user error: " + message});
    }
  };
  for (const TensorDecl& t : program.tensors) {
    if (t.name.empty()) program_error("a tensor has no name; inputs and outputs are bound by name");
    if (!names.insert(t.name).second) program_error("two tensors are named " + t.name);
    if (!t.constant.empty() && t.constant.size() != t.bytes) {
      program_error("tensor " + t.name + " has " + number(static_cast<int64_t>(t.constant.size())) +
                    " bytes of contents but a size of " + number(static_cast<int64_t>(t.bytes)));
    }
    if (!t.constant.empty() && t.kind != TensorKind::kConstant) {
      program_error("tensor " + t.name + " has contents but is no constant");
    }
    if (t.dtype >= Dtype::kCount) program_error("tensor " + t.name + " has an unknown dtype");
  }

  ValidateOptions chosen = options;
  if (chosen.sbuf_bytes_per_partition == 0) {
    chosen.sbuf_bytes_per_partition = limits(generation).sbuf_bytes_per_partition;
  }
  if (program.cores < 1 || program.cores > kMaxCores) {
    program_error("the program has " + number(program.cores) + " physical cores; a logical core has 1 or 2");
    return out;
  }
  std::array<std::array<bool, kNumSemaphores>, kMaxCores> updated_of_core{};
  for (size_t s = 0; s < program.streams.size(); ++s) {
    for (const Instruction& i : program.streams[s]) {
      if (i.sync.update != SemOp::kNone)
        updated_of_core[static_cast<size_t>(core_of_stream(s))][i.sync.update_semaphore] = true;
    }
    if (core_of_stream(s) >= program.cores && !program.streams[s].empty()) {
      program_error("the program has one physical core and instructions for core 1; give it two (cores 2)");
      return out;
    }
  }
  InstructionChecker checker(program, generation, chosen, out);
  for (size_t s = 0; s < program.streams.size(); ++s) {
    const auto& stream = program.streams[s];
    const auto& updated = updated_of_core[static_cast<size_t>(core_of_stream(s))];
    checker.begin_stream(stream);
    for (size_t n = 0; n < stream.size() && !checker.full(); ++n) {
      const Instruction& i = stream[n];
      checker.check(i, s, static_cast<int64_t>(n));
      for (int w = 0; w < std::min<int>(i.sync.num_waits, 2); ++w) {
        const SemWait& wait = i.sync.waits[w];
        if (!updated[wait.semaphore] && wait.value > 0 && wait.value_register == kNoRegister) {
          checker.report(ErrorClass::kUserError, Severity::kWarning,
                         "waits for semaphore " + number(wait.semaphore) + " >= " + number(wait.value) +
                             ", which no instruction updates: the core will hang");
        }
      }
    }
  }
  return out;
}

std::string unknown_target(std::string_view target) {
  return "unknown target '" + std::string(target) + "'; known targets: trn2, trn3";
}

std::vector<Diagnostic> validate(const Program& program, const ValidateOptions& options) {
  const auto generation = generation_from_target(program.target);
  if (generation) return validate(program, *generation, options);
  return {{Severity::kError, ErrorClass::kUserError, 0, Engine::kSync, -1, 0,
           "user error: " + unknown_target(program.target)}};
}

}  // namespace trnsim::isa
