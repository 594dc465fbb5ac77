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
  int across = 0;  // reduced axes on partitions: rows that these hold beside each other, as a rule 1; else 0
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
  uint64_t element_operations() const;  // those on all elements, not on rows
  uint64_t traffic_bytes() const;
  // SBUF bytes per partition and tile element at the fullest point, found by emitting the expression once
  // aside.
  int64_t bytes_per_element() const;
  // kReduce nodes that are live, by depth.
  std::vector<std::vector<int32_t>> reduce_levels() const;

  // What loads of the box wait for: of every view how its elements came into HBM.
  enum class Source : uint8_t {
    kGiven,     // before the program
    kComputed,  // by a kernel before this one
    kInSbuf,    // so, and they lie in SBUF in the order of the box
    kResident   // and on the same partitions: no transfer
  };
  Source source(Box box, int view) const;
  // Whether a kernel reads an output that goes to memory in another order than it lies on the partitions. In the same
  // order it can be read from SBUF.
  bool is_read_turned(Box box, int view) const;
  void emit(Box box, const EmitOptions& options);
  // `count` boxes, of which `first` is the first and every view moves by steps[view] elements to the next.
  // False when that cannot be one loop; nothing is emitted then.
  bool emit_loop(const Box& first, int64_t count, const std::vector<int64_t>& steps,
                 const EmitOptions& options);
  // Partial row values (not combined over partitions) of the given kReduce nodes; fresh tiles.
  std::vector<Access> emit_partials(Box box, const std::vector<int32_t>& reduces, const RowValues& known,
                                    int across);
  // `rows`: EmitOptions::across.
  Access combine(const Access& partial, int32_t reduce, int partitions, int rows);
  void accumulate(const Access& acc, const Access& value, int32_t reduce);

 private:
  struct Frame;
  void mark_live();
  Frame make_frame(Box box);
  std::vector<Access> emit_roots(Frame& frame, const EmitOptions& options, const std::vector<int32_t>& roots,
                                 const std::vector<Access>& into, const std::function<void(size_t)>& done,
                                 bool partial);
  Access load(const Box& box, int view, const std::vector<int>& dims);
  // The elements of a view, without axes that it does not have in the free dims.
  Access box_access(const Box& box, int view, const std::vector<int>& dims) const;
  Access iota_tile(const Frame& frame, int view);
  Access combine_values(const Access& partial, ReduceOp op, Dtype expr_class, int partitions, int rows);
  Access own_row(int partitions, int rows);
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
  std::map<std::pair<int, int>, Access> own_row_;
  struct Cached {
    Access hbm, tile;
    int partitions = 0;
  };
  std::map<int, Cached>
      cache_;  // last tile loaded per view: operands that do not change between tiles load once
};

}  // namespace trnsim::compiler
