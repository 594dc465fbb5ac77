// What the tilers of attention and of its gradient share.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>

#include "device_plugin/compiler/tilers/access_math.h"
#include "device_plugin/compiler/tilers/panel.h"
#include "device_plugin/compiler/tilers/tilers.h"

namespace trnsim::compiler {

constexpr int64_t kAttentionGroup = 1024;  // keys whose scores meet in one step of the online softmax

// Keys that the queries [first, last] may see, as a range of whole tiles of 128 (the last may be short).
struct KeyRange {
  int64_t begin = 0, end = 0;
};
KeyRange visible_keys(const AttentionKernel& k, int64_t first, int64_t last);
// True when some of the queries [i0, i0 + queries) does not see some of the keys [j0, j0 + keys).
bool crosses_band(const AttentionKernel& k, int64_t i0, int64_t queries, int64_t j0, int64_t keys);

// Adds mask and band to scores, both made once and kept where they serve again.
class AttentionMask {
 public:
  AttentionMask(const AttentionKernel& k, const KernelContext& context, TileBuilder& tile);

  // Scores of a block as the softmax takes them: [queries, keys] in units of `unit()`. `scores` itself (PSUM) where
  // nothing is to be added.
  Access apply(const Access& scores, int64_t batch, int64_t head, int64_t i0, int64_t j0);
  // What the exponential multiplies scores with: 1 when `apply` has done so.
  double unit() const { return scaled_ ? 1 : k_.scale; }
  // Scores of -inf are possible.
  bool hides() const { return hides_; }
  // A row may see no key at all.
  bool may_blind() const { return may_blind_; }

 private:
  Access band(int64_t queries, int64_t keys, int64_t delta);
  Access given(int64_t batch, int64_t head, int64_t i0, int64_t queries, int64_t j0, int64_t keys);

  const AttentionKernel& k_;
  const KernelContext& context_;
  TileBuilder& tile_;
  bool rounds_, scaled_, hides_ = false, may_blind_ = false;
  std::map<std::tuple<int64_t, int64_t, int64_t>, Access> bands_;
};

// One head of an operand [batch, heads, rows, columns] as a matrix with `rows` or `columns` contracted.
MatrixOperand head_operand(const View& v, int64_t batch, int64_t head, bool contract_rows);

}  // namespace trnsim::compiler
