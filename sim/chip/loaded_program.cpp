#include "sim/chip/loaded_program.h"

#include "isa/table.h"
#include "isa/validator.h"

namespace trnsim::chip {

using Status = LaunchResult::Status;

LaunchResult::Status status_of(exec::Status::Kind kind) {
  switch (kind) {
    case exec::Status::Kind::kOk:
      return Status::kOk;
    case exec::Status::Kind::kOutOfBounds:
      return Status::kOutOfBounds;
    case exec::Status::Kind::kHang:
      return Status::kHang;
    default:
      return Status::kIllegal;
  }
}

exec::Numerics numerics_of(const config::Config& config) {
  const config::Numerics& c = config.numerics;
  exec::Numerics n;
  n.stochastic_rounding = c.stochastic_rounding != 0;
  n.rounding_seed = static_cast<uint64_t>(c.rounding_seed);
  n.saturate_infinity = c.saturate_infinity != 0;
  n.strict_activation_range = c.strict_activation_range != 0;
  n.vector_xorwow = c.vector_generator != 0;
  n.mx_scale_offset = static_cast<int>(c.mx_scale_offset);
  n.fp32_integers = c.fp32_integers != 0;
  return n;
}

isa::RuleChoices rules_of(const config::Config& config) {
  isa::RuleChoices r;
  r.pe_column_tiling = config.rules.pe_column_tiling != 0;
  r.mx_moving_columns = config.rules.mx_moving_columns;
  r.hardware_transpose_128 = config.rules.hardware_transpose != 0;
  return r;
}

bool ContainerProgram::open(const uint8_t* container, size_t bytes, const std::string& target,
                            LoadError* error) {
  bytes_.assign(container, container + bytes);
  isa::ContainerError bad;
  if (!isa::read_container({bytes_.data(), bytes_.size()}, container_, &bad)) {
    using Kind = isa::ContainerError::Kind;
    error->message = bad.message;
    error->kind = bad.kind == Kind::kNotAContainer  ? LoadError::Kind::kNotAContainer
                  : bad.kind == Kind::kNeff         ? LoadError::Kind::kNeff
                  : bad.kind == Kind::kNewerVersion ? LoadError::Kind::kNewerVersion
                                                    : LoadError::Kind::kInvalid;
    return false;
  }
  if (!isa::generation_from_target(container_.target)) {
    error->kind = LoadError::Kind::kWrongTarget;
    error->message =
        "user error: program '" + container_.name + "': " + isa::unknown_target(container_.target);
    return false;
  }
  if (container_.target != target) {
    error->kind = LoadError::Kind::kWrongTarget;
    error->message = "user error: program '" + container_.name + "' was compiled for " + container_.target +
                     " and the configured chip is " + target + "; compile it for " + target +
                     " or choose --config " + container_.target;
    return false;
  }
  for (size_t t = 0; t < container_.tensors.size(); ++t) {
    const isa::TensorDecl& d = container_.tensors[t];
    tensors_.push_back({d.name, static_cast<uint8_t>(d.kind), d.dtype, d.shape, d.bytes});
    const isa::ByteRange c = t < container_.constants.size() ? container_.constants[t] : isa::ByteRange{};
    constants_.emplace_back(c.data, c.data + c.size);
  }
  return true;
}

uint64_t ContainerProgram::code_bytes() const {
  uint64_t n = 0;
  for (const auto& s : container_.streams) n += s.bytes.size;
  return n;
}

const isa::Program* ContainerProgram::program(const config::Config& config, LaunchResult* failure) const {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!decoded_) {
    decoded_ = true;
    std::string message;
    if (!isa::decode_program(container_, program_, &message)) {
      decode_failure_.status = Status::kUserError;
      decode_failure_.message = message;
    } else {
      isa::ValidateOptions options;
      options.max_diagnostics = 1;
      options.sbuf_bytes_per_partition = config.memory.sbuf_bytes_per_partition;
      options.rules = rules_of(config);
      const auto diagnostics = isa::validate(program_, options);
      if (const isa::Diagnostic* d = isa::first_error(diagnostics)) {
        decode_failure_.status = d->error_class == isa::ErrorClass::kUserError      ? Status::kUserError
                                 : d->error_class == isa::ErrorClass::kNotSimulated ? Status::kNotSimulated
                                                                                    : Status::kIllegal;
        decode_failure_.message = d->message;
      }
    }
  }
  if (decode_failure_.status != Status::kOk) {
    *failure = decode_failure_;
    return nullptr;
  }
  return &program_;
}

std::shared_ptr<const exec::PreparedProgram> ContainerProgram::prepared(const exec::CoreSizes& sizes,
                                                                        LaunchResult* failure) const {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!prepare_tried_) {
    prepare_tried_ = true;
    exec::Status status;
    prepared_ = exec::prepare(program_, sizes, &status);
    if (!status.ok() || prepared_ == nullptr) {
      prepared_.reset();
      prepare_failure_.status = status.ok() ? Status::kIllegal : status_of(status.kind);
      prepare_failure_.message = status.message;
    }
  }
  if (prepared_ == nullptr) *failure = prepare_failure_;
  return prepared_;
}

}  // namespace trnsim::chip
