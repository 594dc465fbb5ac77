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

StridedBox strided_box(const Access& a, int64_t repeat_bytes, int64_t repeat) {
  StridedBox r;
  const auto bytes = static_cast<int64_t>(dtype_bytes(a.dtype));
  r.lo = a.offset;
  for (int i = -1; i < a.num_dims; ++i) {
    int64_t stride = i < 0 ? repeat_bytes : a.step_bytes(i);
    const int64_t size = i < 0 ? repeat : a.size[i];
    if (size <= 1 || stride == 0) continue;
    if (stride < 0) {
      r.lo += stride * (size - 1);
      stride = -stride;
    }
    int at = r.num_dims++;
    while (at > 0 && r.stride[at - 1] < stride) {
      r.stride[at] = r.stride[at - 1];
      r.size[at] = r.size[at - 1];
      --at;
    }
    r.stride[at] = stride;
    r.size[at] = size;
  }
  r.run = bytes;
  while (r.num_dims > 0 && r.stride[r.num_dims - 1] <= r.run) {
    r.run += (r.size[r.num_dims - 1] - 1) * r.stride[r.num_dims - 1];
    --r.num_dims;
  }
  return r;
}

}  // namespace trnsim::isa
