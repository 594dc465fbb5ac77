// One tile of a map: loads, expression code, stores (internal to map*.cpp).
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "device_plugin/compiler/tilers/map_box.h"

namespace trnsim::compiler {

using RowValues = std::map<int32_t, Access>;  // by kReduce expression

struct EmitOptions {
  const RowValues* known = nullptr;
  bool across = false;  // reduced axes on partitions
  bool full_outputs = true;
  bool row_outputs = true;
};

class MapTiles {
 public:
  MapTiles(const MapKernel& kernel, const KernelContext& context, TileBuilder& tile);

  struct Output {
    int view;  // index into views()
    int32_t expr;
    bool row;
  };
  const std::vector<View>& views() const { return views_; }
  const std::vector<Output>& outputs() const { return outputs_; }
  std::vector<int> views_by_weight() const;  // real operands, outputs first
  const KernelContext& context() const { return context_; }
  bool has_iota() const { return !iotas_.empty(); }
  bool has_reduced_axes() const { return num_reduced_axes_ > 0; }
  bool has_full_outputs() const;
  // Goes from engine to engine and back, with work for all of them only where iterations overlap.
  bool is_long_chain() const;
  bool only_float_sums() const;
  uint64_t operations() const { return operations_; }
  uint64_t traffic_bytes() const;
  // SBUF bytes per partition and tile element at the fullest point, found by emitting the expression once
  // aside.
  int64_t bytes_per_element() const;
  // kReduce nodes that are live, by depth.
  std::vector<std::vector<int32_t>> reduce_levels() const;

  void emit(Box box, const EmitOptions& options);
  // `count` boxes, of which `first` is the first and every view moves by steps[view] elements to the next.
  // False when that cannot be one loop; nothing is emitted then.
  bool emit_loop(const Box& first, int64_t count, const std::vector<int64_t>& steps,
                 const EmitOptions& options);
  // Partial row values (not combined over partitions) of the given kReduce nodes; fresh tiles.
  std::vector<Access> emit_partials(Box box, const std::vector<int32_t>& reduces, const RowValues& known,
                                    bool across);
  Access combine(const Access& partial, int32_t reduce, int partitions);
  void accumulate(const Access& acc, const Access& value, int32_t reduce);

 private:
  struct Frame;
  void mark_live();
  Frame make_frame(Box box, bool across, const std::vector<int32_t>& roots);
  void emit_roots(Frame& frame, const EmitOptions& options, const std::vector<int32_t>& roots,
                  const std::vector<Access>& into,
                  const std::function<void(const std::vector<Access>&)>& done, bool partial);
  Access load(const Box& box, int view, const std::vector<int>& dims);
  Access iota_tile(const Frame& frame, int view);
  Access combine_values(const Access& partial, ReduceOp op, Dtype expr_class, int partitions);
  Access ones(int partitions);
  std::vector<bool> needed(const std::vector<int32_t>& roots, const RowValues* known) const;

  const MapKernel& kernel_;
  const KernelContext& context_;
  TileBuilder& tile_;
  std::vector<View> views_;
  std::vector<int> input_view_;  // per kernel input, -1: not used
  std::map<int, int> iotas_;     // domain axis -> pseudo view
  std::vector<Output> outputs_;
  std::vector<bool> live_;
  // Inside of a loop: elements that the views move per iteration.
  const std::vector<int64_t>* loop_steps_ = nullptr;
  int64_t step_bytes(int view) const {
    return loop_steps_ ? (*loop_steps_)[view] * static_cast<int64_t>(isa::dtype_bytes(views_[view].dtype))
                       : 0;
  }
  int num_reduced_axes_ = 0;
  uint64_t operations_ = 0;
  std::map<int, Access> ones_;
  struct Cached {
    Access hbm, tile;
    int partitions = 0;
  };
  std::map<int, Cached>
      cache_;  // last tile loaded per view: operands that do not change between tiles load once
};

}  // namespace trnsim::compiler
