// Cost of the calls around a launch, on a chip that does nothing: what every small operator pays to the
// runtime. Prints nanoseconds per operator of three tensors; the floor is 3 us.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "sim/runtime/nrt.h"
#include "sim/runtime/trnsim_ext.h"

int main() {
  if (nrt_init(NRT_FRAMEWORK_TYPE_NO_FW, "", "") != NRT_SUCCESS) {
    std::fprintf(stderr, "%s\n", trnsim_last_error());
    return 1;
  }
  const char text[] = "program add\nin input0 1\nin input1 1\nout output0 1\n";
  nrt_model_t* model = nullptr;
  if (nrt_load(text, sizeof text - 1, 0, 1, &model) != NRT_SUCCESS) return 1;
  nrt_tensor_t* segment = nullptr;
  nrt_tensor_allocate(NRT_TENSOR_PLACEMENT_DEVICE, 0, 1 << 20, "segment", &segment);
  const char* names[] = {"input0", "input1", "output0"};
  constexpr int kOperators = 20000;
  std::vector<double> ns;
  for (int round = 0; round < 9; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kOperators; ++i) {
      nrt_tensor_t* slices[3];
      nrt_tensor_set_t* in = nullptr;
      nrt_tensor_set_t* out = nullptr;
      nrt_allocate_tensor_set(&in);
      nrt_allocate_tensor_set(&out);
      for (int k = 0; k < 3; ++k) {
        nrt_tensor_allocate_slice(segment, static_cast<size_t>(64 * k), 64, names[k], &slices[k]);
        nrt_add_tensor_to_tensor_set(k == 2 ? out : in, names[k], slices[k]);
      }
      if (nrt_execute(model, in, out) != NRT_SUCCESS) return 1;
      for (auto& s : slices) nrt_tensor_free(&s);
      nrt_destroy_tensor_set(&in);
      nrt_destroy_tensor_set(&out);
    }
    const std::chrono::duration<double, std::nano> d = std::chrono::steady_clock::now() - start;
    ns.push_back(d.count() / kOperators);
  }
  std::sort(ns.begin(), ns.end());
  std::printf("runtime calls of one operator: %.0f ns (median of %zu; slices, sets, execute, frees)\n",
              ns[ns.size() / 2], ns.size());
  nrt_close();
  return 0;
}
