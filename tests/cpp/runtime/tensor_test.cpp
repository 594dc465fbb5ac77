#include <thread>

#include "tests/cpp/runtime/session.h"

using namespace trnsim::testing;

TEST_CASE("every call says so before init and after close") {
  nrt_tensor_t* t = nullptr;
  // The order of test cases is not fixed: both states may be the one before init.
  const NRT_STATUS s = nrt_tensor_allocate(NRT_TENSOR_PLACEMENT_DEVICE, 0, 16, nullptr, &t);
  CHECK((s == NRT_UNINITIALIZED || s == NRT_CLOSED));
  { Session session; }
  CHECK(nrt_tensor_allocate(NRT_TENSOR_PLACEMENT_DEVICE, 0, 16, nullptr, &t) == NRT_CLOSED);
  nrt_model_t* m = nullptr;
  CHECK(nrt_load("x", 1, 0, 1, &m) == NRT_CLOSED);
  CHECK(nrt_execute(m, nullptr, nullptr) == NRT_CLOSED);
  CHECK(error_has("after nrt_close"));
}

TEST_CASE("init, close, init works and old handles stay dead") {
  nrt_tensor_t* old = nullptr;
  {
    Session session;
    old = device_tensor(64);
  }
  Session session;
  nrt_tensor_t* copy = old;
  nrt_tensor_t* fresh = device_tensor(64);
  CHECK(nrt_tensor_get_size(old) == 0);
  CHECK(nrt_tensor_get_va(old) == nullptr);
  CHECK(nrt_tensor_write(old, "x", 0, 1) == NRT_INVALID_HANDLE);
  nrt_tensor_free(&copy);
  CHECK(copy == nullptr);
  CHECK(nrt_tensor_get_size(fresh) == 64);
  CHECK(nrt_init(NRT_FRAMEWORK_TYPE_NO_FW, "", "") == NRT_FAILURE);
}

TEST_CASE("a tensor freed after close is harmless") {
  nrt_tensor_t* t = nullptr;
  {
    Session session;
    t = device_tensor(64);
  }
  nrt_tensor_free(&t);
  CHECK(t == nullptr);
}

TEST_CASE("write, read, memset, copy and va see the same bytes") {
  Session session;
  nrt_tensor_t* a = device_tensor(8);
  nrt_tensor_t* b = device_tensor(8);
  put(a, "abcdefgh");
  CHECK(std::memcmp(nrt_tensor_get_va(a), "abcdefgh", 8) == 0);
  REQUIRE(nrt_tensor_memset(b, 0, '.', 8) == NRT_SUCCESS);
  REQUIRE(nrt_tensor_copy(a, 2, b, 3, 4) == NRT_SUCCESS);
  CHECK(get(b) == "...cdef.");
  CHECK(nrt_tensor_write(a, "xx", 7, 2) == NRT_INVALID);
  CHECK(error_has("bytes 7 to 9 of a tensor of 8 bytes"));
  CHECK(nrt_tensor_read(a, nullptr, 0, 1) == NRT_INVALID);
  CHECK(nrt_tensor_copy(a, SIZE_MAX, b, 0, 2) == NRT_INVALID);
  CHECK(nrt_tensor_memset(a, 4, 0, 5) == NRT_INVALID);
}

TEST_CASE("small new tensors are poisoned") {
  Session session;
  nrt_tensor_t* t = device_tensor(100);
  CHECK(get(t) == std::string(100, '\xff'));
}

TEST_CASE("poison can be switched off") {
  Session session(Environment{{"TRNSIM_POISON", "off"}});
  CHECK(get(device_tensor(100)) == std::string(100, '\0'));
}

TEST_CASE("slices share storage and keep it alive") {
  Session session;
  nrt_tensor_t* whole = device_tensor(64);
  put(whole, std::string(64, 'a'));
  nrt_tensor_t* slice = nullptr;
  REQUIRE(nrt_tensor_allocate_slice(whole, 16, 32, "s", &slice) == NRT_SUCCESS);
  nrt_tensor_t* inner = nullptr;
  REQUIRE(nrt_tensor_allocate_slice(slice, 8, 8, nullptr, &inner) == NRT_SUCCESS);
  put(inner, "12345678");
  CHECK(static_cast<char*>(nrt_tensor_get_va(inner)) == static_cast<char*>(nrt_tensor_get_va(whole)) + 24);
  CHECK(get(whole).substr(24, 8) == "12345678");
  nrt_vnc_memory_stats_t stats{};
  nrt_tensor_free(&whole);
  CHECK(get(inner) == "12345678");
  nrt_tensor_free(&slice);
  REQUIRE(nrt_get_vnc_memory_stats(0, &stats, sizeof stats, nullptr) == NRT_SUCCESS);
  CHECK(stats.bytes_used > 0);
  nrt_tensor_free(&inner);
  REQUIRE(nrt_get_vnc_memory_stats(0, &stats, sizeof stats, nullptr) == NRT_SUCCESS);
  CHECK(stats.bytes_used == 0);
  nrt_tensor_t* t = device_tensor(16);
  nrt_tensor_t* bad = nullptr;
  CHECK(nrt_tensor_allocate_slice(t, 8, 9, nullptr, &bad) == NRT_INVALID);
  CHECK(nrt_tensor_allocate_slice(t, 8, 0, nullptr, &bad) == NRT_INVALID);
}

TEST_CASE("bad arguments of allocate") {
  Session session;
  nrt_tensor_t* t = nullptr;
  CHECK(nrt_tensor_allocate(NRT_TENSOR_PLACEMENT_DEVICE, 0, 0, nullptr, &t) == NRT_INVALID);
  CHECK(nrt_tensor_allocate(NRT_TENSOR_PLACEMENT_DEVICE, 4, 16, nullptr, &t) == NRT_INVALID);
  CHECK(error_has("cores 0 to 3"));
  CHECK(nrt_tensor_allocate(NRT_TENSOR_PLACEMENT_VIRTUAL, 0, 16, nullptr, &t) == NRT_INVALID);
  CHECK(nrt_tensor_allocate(NRT_TENSOR_PLACEMENT_HOST, -1, 5 << 20, nullptr, &t) == NRT_INVALID);
  CHECK(nrt_tensor_allocate(NRT_TENSOR_PLACEMENT_DEVICE, 0, 16, nullptr, nullptr) == NRT_INVALID);
}

TEST_CASE("bad handles never crash") {
  Session session;
  nrt_tensor_t* real = device_tensor(16);
  const uintptr_t value = reinterpret_cast<uintptr_t>(real);
  int local = 0;
  for (uintptr_t v : {uintptr_t{0}, uintptr_t{1}, uintptr_t{0xdeadbeef}, reinterpret_cast<uintptr_t>(&local),
                      value + 1, value ^ (uintptr_t{1} << 60), value + (uintptr_t{1} << 33), ~uintptr_t{0}}) {
    auto* t = reinterpret_cast<nrt_tensor_t*>(v);
    char c = 0;
    CHECK(nrt_tensor_read(t, &c, 0, 1) == NRT_INVALID_HANDLE);
    CHECK(nrt_tensor_get_va(t) == nullptr);
    CHECK(nrt_execute(reinterpret_cast<nrt_model_t*>(v), nullptr, nullptr) == NRT_INVALID_HANDLE);
    CHECK(nrt_unload(reinterpret_cast<nrt_model_t*>(v)) == NRT_INVALID_HANDLE);
    CHECK(nrt_add_tensor_to_tensor_set(reinterpret_cast<void*>(v), "x", real) == NRT_INVALID_HANDLE);
    nrt_tensor_free(&t);
    auto* set = reinterpret_cast<nrt_tensor_set_t*>(v);
    nrt_destroy_tensor_set(&set);
  }
  nrt_tensor_t* again = real;
  nrt_tensor_free(&real);
  nrt_tensor_t* reuse = device_tensor(16);  // the same slot with the next generation
  CHECK(nrt_tensor_get_size(again) == 0);
  CHECK(nrt_tensor_get_size(reuse) == 16);
}

TEST_CASE("out of memory gives the sizes") {
  Session session(Environment{{"TRNSIM_SET", "chip.hbm_capacity_gib=0.25"}});
  CHECK(trnsim_hbm_bytes(0) == (uint64_t{64} << 20) - (uint64_t{16} << 20));
  nrt_tensor_t* keep = device_tensor(40 << 20);
  nrt_tensor_t* t = nullptr;
  CHECK(nrt_tensor_allocate(NRT_TENSOR_PLACEMENT_DEVICE, 0, 20 << 20, nullptr, &t) == NRT_RESOURCE);
  CHECK(error_has("20971520 bytes asked for"));
  CHECK(error_has("tensors 41943040"));
  CHECK(nrt_tensor_allocate(NRT_TENSOR_PLACEMENT_DEVICE, 1, 20 << 20, nullptr, &t) == NRT_SUCCESS);
  CHECK(keep != nullptr);
}

TEST_CASE("host tensors and attached buffers") {
  Session session;
  nrt_tensor_t* host = nullptr;
  REQUIRE(nrt_tensor_allocate(NRT_TENSOR_PLACEMENT_HOST, -1, 16, nullptr, &host) == NRT_SUCCESS);
  put(host, "0123456789abcdef");
  CHECK(get(host) == "0123456789abcdef");
  nrt_tensor_device_allocation_info_t info{};
  CHECK(nrt_tensor_get_device_allocation_info(host, &info) == NRT_INVALID);
  char buffer[4] = {'w', 'x', 'y', 'z'};
  nrt_tensor_t* empty = nullptr;
  REQUIRE(nrt_tensor_allocate_empty("e", &empty) == NRT_SUCCESS);
  CHECK(nrt_tensor_get_size(empty) == 0);
  REQUIRE(nrt_tensor_attach_buffer(empty, buffer, 4) == NRT_SUCCESS);
  CHECK(nrt_tensor_get_va(empty) == buffer);
  nrt_tensor_t* device = device_tensor(8);
  REQUIRE(nrt_tensor_copy(empty, 0, device, 4, 4) == NRT_SUCCESS);
  CHECK(get(device).substr(4) == "wxyz");
  REQUIRE(nrt_tensor_get_device_allocation_info(device, &info) == NRT_SUCCESS);
  CHECK(info.size >= 8);
  CHECK(info.hbm_index == 0);
}

TEST_CASE("copies between cores go through the host") {
  Session session;
  nrt_tensor_t* a = device_tensor(16, 0);
  nrt_tensor_t* b = device_tensor(16, 1);
  CHECK(nrt_tensor_copy(a, 0, b, 0, 16) == NRT_INVALID);
  CHECK(error_has("illegal on hardware"));
}

TEST_CASE("batches") {
  Session session;
  nrt_tensor_t* t = device_tensor(8);
  char in[8] = {'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'};
  char out[8] = {};
  nrt_tensor_batch_op_t write[2] = {{0, 4, in}, {4, 4, in + 4}};
  nrt_tensor_batch_t b{t, write, 2};
  REQUIRE(nrt_tensor_write_batch(&b, 1, false) == NRT_SUCCESS);
  nrt_tensor_batch_op_t read{0, 8, out};
  b = {t, &read, 1};
  REQUIRE(nrt_tensor_read_batch(&b, 1, true) == NRT_SUCCESS);
  CHECK(std::memcmp(in, out, 8) == 0);
  read.size = 9;
  CHECK(nrt_tensor_read_batch(&b, 1, true) == NRT_INVALID);
}

TEST_CASE("time-only runs hold 40 GB without touching memory") {
  Session session(Environment{{"TRNSIM_MODE", "time"}, {"TRNSIM_SET", "chip.hbm_capacity_gib=256"}});
  nrt_tensor_t* t = device_tensor(size_t{40} << 30);
  put(t, "dropped");
  char c = 'x';
  REQUIRE(nrt_tensor_read(t, &c, 0, 1) == NRT_SUCCESS);
  CHECK(c == '\0');
  nrt_vnc_memory_stats_t stats{};
  size_t written = 0;
  REQUIRE(nrt_get_vnc_memory_stats(0, &stats, sizeof stats, &written) == NRT_SUCCESS);
  CHECK(stats.bytes_used == size_t{40} << 30);
  CHECK(written == sizeof stats);
}

TEST_CASE("threads allocate, slice and free side by side") {
  Session session;
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  nrt_tensor_t* whole = device_tensor(1 << 20);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int k = 0; k < 2000; ++k) {
        nrt_tensor_t* slice = nullptr;
        if (nrt_tensor_allocate_slice(whole, static_cast<size_t>(64 * k), 64, nullptr, &slice) != NRT_SUCCESS)
          ++failures;
        nrt_tensor_t* own = nullptr;
        if (nrt_tensor_allocate(NRT_TENSOR_PLACEMENT_DEVICE, i, 128, nullptr, &own) != NRT_SUCCESS)
          ++failures;
        nrt_tensor_free(&slice);
        nrt_tensor_free(&own);
      }
    });
  }
  for (auto& t : threads) t.join();
  CHECK(failures == 0);
  nrt_tensor_free(&whole);
}
