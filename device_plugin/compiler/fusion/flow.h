// The flow of values between the kernels of a list: which kernel reads what another one wrote, and in which order kernels
// may stand. The passes of this folder change it; apply() writes the list anew.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "device_plugin/compiler/fusion/map_form.h"
#include "device_plugin/compiler/fusion/uses.h"
#include "device_plugin/compiler/kernels.h"

namespace trnsim::compiler::fusion {

// What one kernel wrote into one view, until it is written over; or what a memory held at the start.
struct FlowValue {
  int memory = -1;  // a buffer; an output that aliases an input counts as that input
  int writer = -1;  // node, -1: the contents at the start
  View view;
  std::vector<int> readers;  // nodes that may read an element of it
  bool escapes = false;      // seen after the program
  bool overwritten = false;  // all or part of it is written over by a later kernel
};

struct FlowNode {
  bool alive = true;
  bool pinned = false;                  // has an effect beyond its results
  std::optional<MapForm> map;           // maps and copies
  Kernel kernel;                        // the other kinds
  std::vector<std::vector<int>> reads;  // the other kinds, per use: the values it reads, newest first
  std::vector<int> writes;              // the other kinds, per use: the value it writes, or -1
  std::vector<int> next;                // nodes that have to come later
  std::string location;
};

class Flow {
 public:
  explicit Flow(KernelList& list);
  // Writes the living kernels back, in an order that respects the flow.
  void apply();

  std::vector<FlowNode>& nodes() { return nodes_; }
  FlowNode& node(int n) { return nodes_[static_cast<size_t>(n)]; }
  FlowValue& value(int v) { return values_[static_cast<size_t>(v)]; }
  int memory_of(int32_t buffer) const { return memory_[static_cast<size_t>(buffer)]; }
  // Nodes in their present order; -1 where one is gone.
  const std::vector<int>& order() const { return order_; }
  void set_order(const std::vector<int>& order);  // all living nodes, as the edges demand
  int position(int n) const { return position_[static_cast<size_t>(n)]; }
  // Where a node went that was absorbed by another.
  int find(int n);

  // The only living node that reads the value, `besides` aside; -1: none, several, or it is seen after the program.
  int only_reader(int value, int besides = -1);
  // The living node that wrote all of what is read from these values, or -1.
  int only_writer(const std::vector<int>& values);
  // Somebody other than `node` needs the value.
  bool needed_besides(int value, int node);
  // Whether node `from` may be taken into `to`, which comes later: no third node has to stand between them.
  bool adjacent(int from, int to);
  // `to` takes the place of both; adjacent() was true. The caller has set the new contents of `to`.
  void absorb(int from, int to);
  // `node` does not read the value any more. Writers that nobody needs any more go.
  void release(int value, int node);
  void add_reader(int value, int node);
  // Removes kernels and results that nobody needs.
  void remove_dead();

 private:
  std::vector<int> read(int n, const View& v);
  int write(int n, const View& v);
  bool wanted(int n);
  void kill(int n);
  std::vector<int> values_read(int n);

  KernelList& list_;
  std::vector<FlowNode> nodes_;
  std::vector<FlowValue> values_;
  std::vector<int> memory_, alias_, order_, position_;
  // Per memory, oldest first: the values not written over, and all. A write has to follow whoever touched its elements
  // before, even if another write stands between: that one may go.
  std::vector<std::vector<int>> live_, all_;
  std::vector<int> stamp_;
  int now_ = 0;
};

}  // namespace trnsim::compiler::fusion
