#include "sim/runtime/handles.h"

#include <set>

#include "tests/cpp/catch.h"

using trnsim::runtime::HandleKind;
using trnsim::runtime::HandleTable;

TEST_CASE("handles are unique, typed and die once") {
  HandleTable<int, HandleKind::kTensor> table;
  HandleTable<int, HandleKind::kModel> other;
  std::set<void*> seen;
  for (int round = 0; round < 3; ++round) {
    std::vector<void*> live;
    for (int i = 0; i < 3000; ++i) {
      uint32_t index = 0;
      int* value = table.acquire(&index);
      REQUIRE(value != nullptr);
      *value = i;
      void* h = table.publish(index);
      REQUIRE(seen.insert(h).second);
      live.push_back(h);
    }
    for (int i = 0; i < 3000; ++i) {
      REQUIRE(*table.get(live[static_cast<size_t>(i)]) == i);
      REQUIRE(other.get(live[static_cast<size_t>(i)]) == nullptr);
    }
    int cleaned = 0;
    for (void* h : live) {
      REQUIRE(table.release(h, [&](int&) { ++cleaned; }));
      REQUIRE_FALSE(table.release(h, [&](int&) { ++cleaned; }));
    }
    CHECK(cleaned == 3000);
  }
}

TEST_CASE("release_all ends what is alive") {
  HandleTable<int, HandleKind::kTensor> table;
  uint32_t a = 0, b = 0;
  table.acquire(&a);
  void* ha = table.publish(a);
  table.acquire(&b);
  void* hb = table.publish(b);
  table.release(ha, [](int&) {});
  int n = 0;
  table.release_all([&](int&) { ++n; });
  CHECK(n == 1);
  CHECK(table.get(hb) == nullptr);
}
