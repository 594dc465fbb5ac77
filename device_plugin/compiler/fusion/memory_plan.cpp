#include "device_plugin/compiler/fusion/memory_plan.h"

#include <algorithm>
#include <map>

#include "device_plugin/compiler/fusion/flow.h"

namespace trnsim::compiler::fusion {
namespace {

constexpr int64_t kMinSharedBytes = int64_t{1} << 20;
// A buffer may take one that is larger by at most this factor.
constexpr int64_t kMaxWaste = 2;

int64_t bytes_of(const Buffer& b) { return b.elements * static_cast<int64_t>(isa::dtype_bytes(b.dtype)); }

}  // namespace

int64_t scratch_bytes(const KernelList& list) {
  int64_t bytes = 0;
  for (const Buffer& b : list.buffers) bytes += b.kind == Buffer::Kind::kScratch ? bytes_of(b) : 0;
  return bytes;
}

void plan_memory(KernelList& list) {
  struct Life {
    int first = -1, last = -1;
  };
  std::vector<Life> lives(list.buffers.size());
  for (size_t k = 0; k < list.kernels.size(); ++k) {
    for (const Use& use : uses_of(list.kernels[k])) {
      Life& life = lives[static_cast<size_t>(use.view->buffer)];
      if (life.first < 0) life.first = static_cast<int>(k);
      life.last = static_cast<int>(k);
    }
  }
  std::vector<std::vector<int32_t>> starts(list.kernels.size()), ends(list.kernels.size());
  std::vector<int32_t> place(list.buffers.size());
  for (size_t b = 0; b < list.buffers.size(); ++b) {
    place[b] = static_cast<int32_t>(b);
    Buffer& buffer = list.buffers[b];
    if (buffer.kind != Buffer::Kind::kScratch) continue;
    if (lives[b].first < 0) {
      buffer.elements = 0;
      continue;
    }
    if (bytes_of(buffer) < kMinSharedBytes) continue;
    starts[static_cast<size_t>(lives[b].first)].push_back(static_cast<int32_t>(b));
    ends[static_cast<size_t>(lives[b].last)].push_back(static_cast<int32_t>(b));
  }
  std::map<Dtype, std::vector<int32_t>> free;  // the one free for the longest time first
  bool shared = false;
  for (size_t k = 0; k < list.kernels.size(); ++k) {
    for (int32_t b : starts[k]) {
      const Buffer& want = list.buffers[static_cast<size_t>(b)];
      std::vector<int32_t>& pool = free[want.dtype];
      for (size_t i = 0; i < pool.size(); ++i) {
        const int64_t have = list.buffers[static_cast<size_t>(pool[i])].elements;
        if (have < want.elements || have > want.elements * kMaxWaste) continue;
        place[static_cast<size_t>(b)] = pool[i];
        pool.erase(pool.begin() + static_cast<std::ptrdiff_t>(i));
        shared = true;
        break;
      }
    }
    for (int32_t b : ends[k])
      free[list.buffers[static_cast<size_t>(b)].dtype].push_back(place[static_cast<size_t>(b)]);
  }
  if (!shared) return;
  for (Kernel& kernel : list.kernels) {
    for (const Use& use : uses_of(kernel)) use.view->buffer = place[static_cast<size_t>(use.view->buffer)];
  }
  for (size_t b = 0; b < list.buffers.size(); ++b) {
    if (place[b] != static_cast<int32_t>(b)) list.buffers[b].elements = 0;
  }
}

}  // namespace trnsim::compiler::fusion
