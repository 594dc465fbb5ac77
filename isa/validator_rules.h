// Internal to the validator: the checks of one instruction.
#pragma once

#include <string>
#include <vector>

#include "isa/validator.h"

namespace trnsim::isa {

std::string number(int64_t v);
// Sizes, steps and immediates are arbitrary before they are checked.
__extension__ using Wide = __int128;
std::string wide_number(Wide v);
std::string spaces_text(SpaceSet set);
std::string dtypes_text(DtypeSet set);
std::string operators_text(AluSet set);
std::string shape_text(const Access& a);  // "[128, 4, 8]"
constexpr bool no_operator(AluOp op) { return op == AluOp::kNone || op == AluOp::kBypass; }

class InstructionChecker {
 public:
  InstructionChecker(const Program& program, Generation generation, const ValidateOptions& options,
                     std::vector<Diagnostic>& out)
      : program_(program),
        generation_(generation),
        sbuf_bytes_(options.sbuf_bytes_per_partition),
        choices_(options.rules),
        max_(options.max_diagnostics),
        out_(out),
        errors_(out.size()) {}

  void begin_stream(const std::vector<Instruction>& stream);
  void check(const Instruction& i, size_t stream_of_program, int64_t index);
  void report(ErrorClass c, Severity severity, const std::string& message);
  bool full() const { return errors_ >= max_; }

 private:
  void user(const std::string& m) { report(ErrorClass::kUserError, Severity::kError, m); }
  void illegal(const std::string& m) { report(ErrorClass::kIllegalOnHardware, Severity::kError, m); }
  void malformed(ErrorClass c, const std::string& m) {
    shapes_ok_ = false;
    report(c, Severity::kError, m);
  }
  void too_many(std::string_view what, int64_t count, int64_t limit);

  void check_fields();
  void check_operator(AluOp op, AluSet allowed, std::string_view what);
  void check_sync();
  void check_operand(Slot slot);
  void check_indirect(const Access& a, const OperandRule& rule, std::string_view what);
  void check_access(const Access& a, const OperandRule& rule, std::string_view what, bool by_dma);
  bool pure_move() const;

  // validator_rules.cpp
  void check_scalars();
  void check_scalar(const ScalarOperand& s, uint8_t kinds, bool needed, DtypeSet dtypes,
                    std::string_view what);
  void check_rules();
  void check_rule(Rule rule);
  void rule_same_partitions();
  void rule_same_elements();
  void rule_operator_class();
  void rule_scalar_tensor_operators();
  void rule_moving_shape();
  void rule_matmul_dtypes();
  void rule_transpose_shape();
  void rule_reduce_shape();
  void rule_dma_cast();
  void rule_dma_transpose_shape();
  void rule_indirect();
  // validator_rows.cpp: rules of single rows
  void check_row_rule(Rule rule);
  void rule_pe_tile();
  void rule_double_row();
  void rule_sparse_tags();
  void rule_mx_scales(const Access& scale, std::string_view what, int64_t partitions, int64_t columns);
  void rule_accumulator();
  void rule_activate2();
  void rule_opaque_moves();
  void rule_quantize();
  void rule_shuffle();
  void rule_local_gather();
  void rule_nonzero();
  void rule_topk();
  void rule_generator_state();
  void rule_dma_accumulate();
  void rule_dma_sources();
  void rule_exchange();
  void expect_elements(const Access& a, std::string_view what, int64_t count);
  void track_stationary();

  const Program& program_;
  const Generation generation_;
  const int64_t sbuf_bytes_;
  const RuleChoices choices_;
  const size_t max_;
  std::vector<Diagnostic>& out_;
  size_t errors_, warnings_ = 0;

  const Instruction* i_ = nullptr;
  const Row* row_ = nullptr;
  size_t stream_ = 0;
  Engine engine_ = Engine::kSync;
  int64_t index_ = 0;
  bool shapes_ok_ = true;  // operands are sound enough to compare shapes

  // The stationary matrix along the straight-line path; unknown where paths meet.
  enum class Stationary : uint8_t { kNone, kKnown, kUnknown } stationary_ = Stationary::kNone;
  int64_t stationary_k_ = 0, stationary_m_ = 0;
  bool stationary_double_ = false;
  uint32_t stationary_ratio_ = 0;  // of a sparse matrix
  Dtype stationary_dtype_ = Dtype::kF32;
  std::vector<uint32_t> branch_targets_;  // sorted
};

}  // namespace trnsim::isa
