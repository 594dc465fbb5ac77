// A map kernel as the fusion passes work on it: axes in any order with a role each, every view with one stride per axis,
// and the value that each operand reads or writes (flow.h).
#pragma once

#include <optional>
#include <vector>

#include "device_plugin/compiler/kernels.h"

namespace trnsim::compiler::fusion {

struct MapForm {
  struct Input {
    View view;                         // one stride per axis
    int value = -1;                    // the newest value it reads from
    std::vector<int> others;           // older ones that may hold a part of it
    std::vector<int> values() const {  // all of them
      std::vector<int> all{value};
      all.insert(all.end(), others.begin(), others.end());
      return all;
    }
  };
  struct Output {
    View view;  // one stride per axis; a row value has stride 0 on the reduced axes
    int32_t expr = -1;
    bool row = false;
    int value = -1;
  };
  std::vector<int64_t> sizes;
  std::vector<bool> reduced;  // per axis; all false without kReduce nodes
  std::vector<Input> inputs;
  std::vector<Expr> exprs;
  std::vector<Output> outputs;

  size_t rank() const { return sizes.size(); }
  bool reduces() const;
  int64_t elements() const;  // of the domain
  int64_t row_length() const;

  // The view with the sizes of the axes.
  View sized(const View& v) const {
    View s = v;
    s.sizes = sizes;
    return s;
  }
  // Axis `axis` becomes two, (size / inner, inner).
  void split(size_t axis, int64_t inner);
};

// Axes of size 1 are dropped. Nothing for an empty domain.
std::optional<MapForm> form_of(const MapKernel& kernel);
// A copy as a map: its expression is the input, or a cast of it.
std::optional<MapForm> form_of(const MoveKernel& kernel);
// Kept axes first, neighbours that are one run for every operand merged, only what the outputs need.
MapKernel kernel_of(const MapForm& form);
// Removes expressions and inputs that no output needs.
void prune(MapForm& form);
// The form is one input written to one output of the same dtype.
bool is_copy(const MapForm& form);

// Appends the expressions of another form; equal ones are shared.
class ExprMerger {
 public:
  explicit ExprMerger(std::vector<Expr>& into);
  int32_t add(const Expr& e);

 private:
  static size_t hash(const Expr& e);
  std::vector<Expr>& into_;
  std::vector<std::vector<int32_t>> table_;
};

// The value of `expr` after it was stored as `dtype` and loaded again: eager rounds between operators, so do we.
int32_t rounded(ExprMerger& merger, const std::vector<Expr>& exprs, const std::vector<MapForm::Input>& inputs,
                int32_t expr, Dtype dtype);

}  // namespace trnsim::compiler::fusion
