#include <chrono>
#include <thread>

#include "tests/cpp/runtime/session.h"

using namespace trnsim::testing;

namespace {
const std::string kAddOne = "program add_one\nin a 8\nout b 8\n";
}

TEST_CASE("a program runs on tensors bound by name") {
  Session session;
  nrt_model_t* m = load("program p\nin a 4\nconst c 4 2\nscratch s 100000\nout b 4\n");
  nrt_tensor_t* a = device_tensor(4);
  nrt_tensor_t* b = device_tensor(4);
  put(a, "abcd");
  nrt_tensor_set_t* in = tensor_set({{"a", a}});
  nrt_tensor_set_t* out = tensor_set({{"b", b}});
  REQUIRE(nrt_execute(m, in, out) == NRT_SUCCESS);
  CHECK(get(b) == "defg");
  CHECK(trnsim_model_last_ps(m) == 1000000);
  CHECK(trnsim_model_instructions(m) == 7);
  CHECK(trnsim_simulated_ps(0) == 1000000);
  CHECK(trnsim_simulated_ps(1) == 0);
  CHECK(nrt_tensor_check_output_completion(b, 0, 1) == NRT_SUCCESS);
  CHECK(nrt_tensor_check_output_completion(b, 10, 2) == NRT_TIMEOUT);
  CHECK(nrt_tensor_reset_output_completion(b) == NRT_SUCCESS);
  CHECK(nrt_tensor_check_output_completion(b, 0, 1) == NRT_TIMEOUT);
  CHECK(nrt_unload(m) == NRT_SUCCESS);
  CHECK(nrt_unload(m) == NRT_INVALID_HANDLE);
  CHECK(nrt_execute(m, in, out) == NRT_INVALID_HANDLE);
}

TEST_CASE("a launch knows which outputs hold values") {
  Session session;
  nrt_model_t* m = load("program p\nin a 8\nout b 8\n");
  nrt_tensor_t* a = device_tensor(8);
  nrt_tensor_t* b = device_tensor(16);
  const auto known = [&](nrt_tensor_t* out) {
    REQUIRE(nrt_execute(m, tensor_set({{"a", a}}), tensor_set({{"b", out}})) == NRT_SUCCESS);
    return output_initialised.load();
  };
  const auto slice = [&](size_t offset) {
    nrt_tensor_t* s = nullptr;
    REQUIRE(nrt_tensor_allocate_slice(b, offset, 8, nullptr, &s) == NRT_SUCCESS);
    return s;
  };
  CHECK(known(slice(0)) == 0);  // through another name of the memory
  CHECK(nrt_tensor_write(b, "xyz", 0, 3) == NRT_SUCCESS);
  CHECK(nrt_tensor_memset(b, 3, 0, 3) == NRT_SUCCESS);
  CHECK(nrt_tensor_memset(b, 10, 0, 2) == NRT_SUCCESS);  // behind a gap
  CHECK(known(slice(0)) == 6);
  CHECK(known(slice(4)) == 2);
  CHECK(known(b) == 6);
  CHECK(known(b) == 8);  // the launch before wrote it
}

TEST_CASE("containers that are refused") {
  Session session;
  nrt_model_t* m = nullptr;
  CHECK(nrt_load("neff", 4, 0, 1, &m) == NRT_UNSUPPORTED_NEFF_VERSION);
  CHECK(error_has("NEFF"));
  CHECK(nrt_load("newer", 5, 0, 1, &m) == NRT_UNSUPPORTED_NEFF_VERSION);
  CHECK(nrt_load("garbage", 7, 0, 1, &m) == NRT_INVALID);
  CHECK(nrt_load("target", 6, 0, 1, &m) == NRT_INVALID);
  CHECK(nrt_load("", 0, 0, 1, &m) == NRT_INVALID);
  CHECK(nrt_load(kAddOne.data(), kAddOne.size(), 9, 1, &m) == NRT_INVALID);
  CHECK(nrt_load(kAddOne.data(), kAddOne.size(), 0, 2, &m) == NRT_LOAD_NOT_ENOUGH_NC);
  CHECK(nrt_load_collectives(kAddOne.data(), kAddOne.size(), 0, 1, 3, 2, &m) == NRT_INVALID);
  CHECK(m == nullptr);
  CHECK(nrt_load_collectives(kAddOne.data(), kAddOne.size(), 0, 1, 0, 1, &m) == NRT_SUCCESS);
}

TEST_CASE("a program for two physical cores needs logical cores of two") {
  const std::string pair = "program wide\ncores 2\nin a 8\nout b 8\n";
  {
    Session session(Environment{{"NEURON_LOGICAL_NC_CONFIG", "1"}});
    nrt_model_t* m = nullptr;
    CHECK(nrt_load(pair.data(), pair.size(), 0, 1, &m) == NRT_INVALID);
    CHECK(
        error_has("program 'wide' is compiled for logical cores of 2 physical cores, and this process has "
                  "logical cores "
                  "of 1; the two must match: set NEURON_LOGICAL_NC_CONFIG=2"));
    CHECK(m == nullptr);
  }
  Session session;  // two are the default, and one-core programs run there too
  nrt_model_t* wide = load(pair);
  nrt_model_t* narrow = load(kAddOne);
  nrt_tensor_t* a = device_tensor(8);
  nrt_tensor_t* b = device_tensor(8);
  for (nrt_model_t* m : {wide, narrow})
    CHECK(nrt_execute(m, tensor_set({{"a", a}}), tensor_set({{"b", b}})) == NRT_SUCCESS);
}

TEST_CASE("bindings that are refused name the tensor") {
  Session session;
  nrt_model_t* m = load(kAddOne);
  nrt_tensor_t* a = device_tensor(8);
  nrt_tensor_t* small = device_tensor(7);
  nrt_tensor_t* far = device_tensor(8, 2);
  nrt_tensor_set_t* out = tensor_set({{"b", a}});
  CHECK(nrt_execute(m, tensor_set({}), out) == NRT_EXEC_BAD_INPUT);
  CHECK(error_has("'a' (uint8 [8], 8 bytes) of program 'add_one'"));
  CHECK(nrt_execute(m, tensor_set({{"a", small}}), out) == NRT_INVALID);
  CHECK(error_has("has 7 bytes"));
  CHECK(nrt_execute(m, tensor_set({{"a", far}}), out) == NRT_INVALID);
  CHECK(error_has("logical core 2"));
  CHECK(nrt_execute(m, tensor_set({{"a", a}}), tensor_set({{"c", a}})) == NRT_EXEC_BAD_INPUT);
  CHECK(nrt_execute(m, nullptr, out) == NRT_INVALID_HANDLE);
  nrt_tensor_t* gone = device_tensor(8);
  nrt_tensor_set_t* in = tensor_set({{"a", gone}});
  nrt_tensor_free(&gone);
  CHECK(nrt_execute(m, in, out) == NRT_INVALID_HANDLE);
}

TEST_CASE("sets replace by name, look up, and work in any order and size") {
  Session session;
  std::string text = "program many\n";
  constexpr int kTensors = 100;
  for (int i = 0; i < kTensors; ++i) text += "in input_with_a_long_name_" + std::to_string(i) + " 1\n";
  text += "out b 1\n";
  nrt_model_t* m = load(text);
  nrt_tensor_t* t = device_tensor(1);
  nrt_tensor_t* other = device_tensor(1);
  nrt_tensor_t* b = device_tensor(1);
  put(t, "x");
  put(other, "A");
  nrt_tensor_set_t* in = tensor_set({});
  for (int i = kTensors - 1; i >= 0; --i)
    REQUIRE(nrt_add_tensor_to_tensor_set(in, ("input_with_a_long_name_" + std::to_string(i)).c_str(), t) ==
            NRT_SUCCESS);
  REQUIRE(nrt_add_tensor_to_tensor_set(in, "input_with_a_long_name_0", other) == NRT_SUCCESS);
  REQUIRE(nrt_execute(m, in, tensor_set({{"b", b}})) == NRT_SUCCESS);
  CHECK(get(b) == "B");
  nrt_tensor_t* found = nullptr;
  CHECK(nrt_get_tensor_from_tensor_set(in, "input_with_a_long_name_0", &found) == NRT_SUCCESS);
  CHECK(found == other);
  CHECK(nrt_get_tensor_from_tensor_set(in, "nobody", &found) == NRT_FAILURE);
  CHECK(nrt_add_tensor_to_tensor_set(in, "", t) == NRT_INVALID);
  CHECK(nrt_add_tensor_to_tensor_set(in, nullptr, t) == NRT_INVALID);
}

TEST_CASE("model information") {
  Session session;
  nrt_model_t* m = load("program p\nin a 8\nscratch s 4\nout b 16\n", 2);
  nrt_tensor_info_array_t* info = nullptr;
  REQUIRE(nrt_get_model_tensor_info(m, &info) == NRT_SUCCESS);
  REQUIRE(info->tensor_count == 2);
  CHECK(std::string(info->tensor_array[0].name) == "a");
  CHECK(info->tensor_array[0].usage == NRT_TENSOR_USAGE_INPUT);
  CHECK(info->tensor_array[1].usage == NRT_TENSOR_USAGE_OUTPUT);
  CHECK(info->tensor_array[1].size == 16);
  CHECK(info->tensor_array[1].dtype == NRT_DTYPE_UINT8);
  CHECK(info->tensor_array[1].ndim == 1);
  CHECK(info->tensor_array[1].shape[0] == 16);
  CHECK(nrt_free_model_tensor_info(info) == NRT_SUCCESS);
  nrt_model_info_t mi{};
  size_t written = 0;
  REQUIRE(nrt_get_model_info(m, &mi, sizeof mi, &written) == NRT_SUCCESS);
  CHECK(mi.vnc == 2);
  uint32_t n = 0;
  CHECK(nrt_get_model_nc_count(m, &n) == NRT_SUCCESS);
  CHECK(nrt_get_model_vnc_count(m, &n) == NRT_SUCCESS);
  CHECK(nrt_get_model_instance_count(m, &n) == NRT_SUCCESS);
  CHECK(n == 1);
  nrt_model_t* elsewhere = load(kAddOne, -1);  // the first free core
  REQUIRE(nrt_get_model_info(elsewhere, &mi, sizeof mi, &written) == NRT_SUCCESS);
  CHECK(mi.vnc == 0);
}

TEST_CASE("classes of failure have their status codes") {
  Session session;
  nrt_tensor_t* a = device_tensor(8);
  nrt_tensor_t* b = device_tensor(8);
  nrt_tensor_set_t* in = tensor_set({{"a", a}});
  nrt_tensor_set_t* out = tensor_set({{"b", b}});
  const auto run = [&](const std::string& fail) {
    return nrt_execute(load(kAddOne + "fail " + fail + "\n"), in, out);
  };
  CHECK(run("oob") == NRT_EXEC_OOB);
  CHECK(error_has("fake chip: oob"));
  CHECK(run("illegal") == NRT_EXEC_COMPLETED_WITH_ERR);
  CHECK(run("nan") == NRT_EXEC_COMPLETED_WITH_NUM_ERR);
  CHECK(run("missing") == NRT_FAILURE);
  const int before = resets;
  CHECK(run("hang") == NRT_TIMEOUT);
  CHECK(resets == before + 1);
  CHECK(nrt_execute(load(kAddOne), in, out) == NRT_SUCCESS);
}

TEST_CASE("a program longer than the execution timeout is refused") {
  Session session(Environment{{"NEURON_RT_EXEC_TIMEOUT", "2"}});
  nrt_tensor_t* a = device_tensor(8);
  nrt_tensor_set_t* in = tensor_set({{"a", a}});
  nrt_tensor_set_t* out = tensor_set({{"b", a}});
  CHECK(nrt_execute(load(kAddOne + "ps 1900000000000\n"), in, out) == NRT_SUCCESS);
  CHECK(nrt_execute(load(kAddOne + "ps 2100000000000\n"), in, out) == NRT_TIMEOUT);
  CHECK(error_has("NEURON_RT_EXEC_TIMEOUT"));
}

TEST_CASE("injected hardware faults stop the core until the next init") {
  const struct {
    const char* fault;
    NRT_STATUS status;
  } kRows[] = {{"hbm_ue", NRT_EXEC_HW_ERR_HBM_UE},
               {"hbm_repairable_ue", NRT_EXEC_HW_ERR_REPAIRABLE_HBM_UE},
               {"nc_ue", NRT_EXEC_HW_ERR_NC_UE},
               {"dma_abort", NRT_EXEC_HW_ERR_DMA_ABORT}};
  for (const auto& row : kRows) {
    Session session(Environment{{"TRNSIM_FAULT", std::string(row.fault) + ":1:1"}});
    nrt_tensor_t* a = device_tensor(8);
    nrt_tensor_set_t* in = tensor_set({{"a", a}});
    nrt_tensor_set_t* out = tensor_set({{"b", a}});
    nrt_model_t* m = load(kAddOne);
    CHECK(nrt_execute(m, in, out) == NRT_SUCCESS);
    CHECK(nrt_execute(m, in, out) == row.status);
    CHECK(nrt_execute(m, in, out) == NRT_EXEC_UNIT_UNRECOVERABLE);
    // Another core of the process works on.
    nrt_tensor_t* c = device_tensor(8, 1);
    CHECK(nrt_execute(load(kAddOne, 1), tensor_set({{"a", c}}), tensor_set({{"b", c}})) == NRT_SUCCESS);
  }
  {
    Session session(Environment{{"TRNSIM_FAULT", "nq_overflow"}});
    nrt_tensor_t* a = device_tensor(8);
    nrt_model_t* m = load(kAddOne);
    CHECK(nrt_execute(m, tensor_set({{"a", a}}), tensor_set({{"b", a}})) == NRT_EXEC_SW_NQ_OVERFLOW);
    CHECK(nrt_execute(m, tensor_set({{"a", a}}), tensor_set({{"b", a}})) == NRT_SUCCESS);
  }
  {
    Session session(Environment{{"TRNSIM_FAULT", "memory_alloc:1:1"}});
    device_tensor(8);
    nrt_tensor_t* t = nullptr;
    CHECK(nrt_tensor_allocate(NRT_TENSOR_PLACEMENT_DEVICE, 0, 8, nullptr, &t) == NRT_RESOURCE);
    device_tensor(8);
  }
}

TEST_CASE("execute_repeat feeds outputs back") {
  Session session;
  nrt_model_t* m = load("program p\nin a 2\nout b 2\n");
  nrt_tensor_t* a = device_tensor(2);
  nrt_tensor_t* b = device_tensor(2);
  put(a, "AB");
  REQUIRE(nrt_execute_repeat(m, tensor_set({{"a", a}}), tensor_set({{"b", b}}), 3) == NRT_SUCCESS);
  CHECK(get(b) == "DE");
  nrt_model_t* unequal = load("program p\nin a 2\nout b 3\n");
  CHECK(nrt_execute_repeat(unequal, tensor_set({{"a", a}}), tensor_set({{"b", b}}), 2) == NRT_INVALID);
  CHECK(nrt_execute_repeat(m, tensor_set({{"a", a}}), tensor_set({{"b", b}}), 0) == NRT_INVALID);
}

TEST_CASE("scratch is shared by the programs of a core and survives a failed load") {
  Session session(Environment{{"TRNSIM_SET", "chip.hbm_capacity_gib=0.25"}});
  nrt_model_t* small = load("program s\nin a 1\nscratch x 1000000\nout b 1\n");
  nrt_tensor_t* a = device_tensor(1);
  nrt_tensor_set_t* in = tensor_set({{"a", a}});
  nrt_tensor_set_t* out = tensor_set({{"b", a}});
  REQUIRE(nrt_execute(small, in, out) == NRT_SUCCESS);
  const std::string huge = "program h\nin a 1\nscratch x 100000000\nout b 1\n";
  nrt_model_t* m = nullptr;
  CHECK(nrt_load(huge.data(), huge.size(), 0, 1, &m) == NRT_RESOURCE);
  CHECK(error_has("scratchpad"));
  REQUIRE(nrt_execute(small, in, out) == NRT_SUCCESS);
  nrt_model_t* big = load("program b\nin a 1\nscratch x 10000000\nscratch y 1000000\nout b 1\n");
  CHECK(nrt_execute(big, in, out) == NRT_SUCCESS);
  CHECK(nrt_execute(small, in, out) == NRT_SUCCESS);
}

TEST_CASE("time-only launches get no data") {
  Session session(Environment{{"TRNSIM_MODE", "time"}});
  nrt_model_t* m = load("program p\nin a 4\nconst c 4 2\nscratch s 16\nout b 4\n");
  nrt_tensor_t* a = device_tensor(4);
  REQUIRE(nrt_execute(m, tensor_set({{"a", a}}), tensor_set({{"b", a}})) == NRT_SUCCESS);
  CHECK(null_bindings == 4);
  CHECK(trnsim_simulated_ps(0) == 1000000);
}

TEST_CASE("threads run programs on the same and on different cores") {
  Session session;
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&failures, i] {
      nrt_model_t* m = nullptr;
      nrt_tensor_t* t = nullptr;
      nrt_tensor_set_t* in = nullptr;
      nrt_tensor_set_t* out = nullptr;
      if (nrt_load(kAddOne.data(), kAddOne.size(), i / 2, 1, &m) != NRT_SUCCESS) ++failures;
      nrt_tensor_allocate(NRT_TENSOR_PLACEMENT_DEVICE, i / 2, 8, nullptr, &t);
      nrt_tensor_memset(t, 0, 0, 8);
      for (int k = 0; k < 100; ++k) {
        nrt_allocate_tensor_set(&in);
        nrt_allocate_tensor_set(&out);
        nrt_add_tensor_to_tensor_set(in, "a", t);
        nrt_add_tensor_to_tensor_set(out, "b", t);
        if (nrt_execute(m, in, out) != NRT_SUCCESS) ++failures;
        nrt_destroy_tensor_set(&in);
        nrt_destroy_tensor_set(&out);
      }
      if (static_cast<unsigned char*>(nrt_tensor_get_va(t))[7] != 100) ++failures;
      nrt_tensor_free(&t);
      nrt_unload(m);
    });
  }
  for (auto& t : threads) t.join();
  CHECK(failures == 0);
}
