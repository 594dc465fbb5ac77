#include "isa/access.h"

namespace trnsim::isa {

bool operator==(const Access& a, const Access& b) {
  if (a.space != b.space) return false;
  if (a.space == Space::kNone) return true;
  if (a.dtype != b.dtype || a.num_dims != b.num_dims || a.address_register != b.address_register ||
      a.start_partition != b.start_partition || a.num_partitions != b.num_partitions ||
      a.tensor != b.tensor || a.offset != b.offset || a.indirect != b.indirect) {
    return false;
  }
  if (a.indirect && (a.index_dtype != b.index_dtype || a.index_partition != b.index_partition ||
                     a.index_offset != b.index_offset)) {
    return false;
  }
  for (int i = 0; i < a.num_dims; ++i) {
    if (a.step[i] != b.step[i] || a.size[i] != b.size[i]) return false;
  }
  return true;
}

}  // namespace trnsim::isa
