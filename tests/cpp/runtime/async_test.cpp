#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "tests/cpp/runtime/session.h"

using namespace trnsim::testing;

namespace {

const std::string kAddOne = "program add_one\nin a 4\nout b 4\n";

nrta_error_tracker_t* tracker() {
  nrta_error_tracker_t* t = nullptr;
  REQUIRE(nrta_error_tracker_create(0, &t) == NRT_SUCCESS);
  return t;
}

void wait(nrta_seq_t s) {
  bool done = false;
  while (!done) {
    REQUIRE(nrta_is_completed(s, &done) == NRT_SUCCESS);
    std::this_thread::yield();
  }
}

}  // namespace

TEST_CASE("write, run and read in order of polling") {
  Session session;
  nrta_error_tracker_t* errors = tracker();
  nrt_model_t* m = load(kAddOne);
  nrt_tensor_t* a = device_tensor(4);
  nrt_tensor_t* b = device_tensor(4);
  nrt_tensor_t* c = device_tensor(4);
  nrta_seq_t s = 0;
  REQUIRE(nrta_tensor_write(a, "abcd", 0, 4, 0, errors, &s) == NRT_SUCCESS);
  CHECK((s & 0xffffffffffff) == 1);
  wait(s);
  nrt_tensor_set_t* in = tensor_set({{"a", a}});
  nrt_tensor_set_t* out = tensor_set({{"b", b}});
  for (int i = 0; i < 3; ++i) REQUIRE(nrta_execute_schedule(m, in, out, 0, errors, &s) == NRT_SUCCESS);
  nrta_seq_t last = 0;
  REQUIRE(nrta_get_sequence(0, NRTA_XU_COMPUTE, 0, &last) == NRT_SUCCESS);
  CHECK(last == s);
  wait(s);
  CHECK(nrt_tensor_check_output_completion(b, 0, 3) == NRT_SUCCESS);
  REQUIRE(nrta_tensor_copy(b, 0, c, 0, 4, 1, errors, &s) == NRT_SUCCESS);
  wait(s);
  char text[5] = {};
  REQUIRE(nrta_tensor_read(text, c, 0, 4, 0, errors, &s) == NRT_SUCCESS);
  wait(s);
  CHECK(std::string(text) == "bcde");
  const nrta_error_t* list = nullptr;
  size_t n = 9;
  REQUIRE(nrta_error_tracker_get_list(errors, &list, &n) == NRT_SUCCESS);
  CHECK(n == 0);
  nrta_error_tracker_destroy(errors);
  CHECK(nrta_tensor_read(text, c, 0, 4, 0, errors, &s) == NRT_INVALID_HANDLE);
}

TEST_CASE("a completion handle becomes readable") {
  Session session;
  nrta_error_tracker_t* errors = tracker();
  nrt_model_t* m = load(kAddOne);
  nrt_tensor_t* a = device_tensor(4);
  nrt_tensor_set_t* in = tensor_set({{"a", a}});
  nrt_tensor_set_t* out = tensor_set({{"b", a}});
  launch_sleep_ms = 50;
  nrta_seq_t s = 0;
  REQUIRE(nrta_execute_schedule(m, in, out, 0, errors, &s) == NRT_SUCCESS);
  int fd = -1, closed = -1;
  REQUIRE(nrta_get_completion_handle(s, &fd) == NRT_SUCCESS);
  REQUIRE(nrta_get_completion_handle(s, &closed) == NRT_SUCCESS);
  close(closed);  // the caller may lose interest
  pollfd p{fd, POLLIN, 0};
  CHECK(poll(&p, 1, 0) == 0);
  CHECK(poll(&p, 1, 5000) == 1);
  bool done = false;
  CHECK(nrta_is_completed(s, &done) == NRT_SUCCESS);
  CHECK(done);
  close(fd);
  launch_sleep_ms = 0;
  REQUIRE(nrta_get_completion_handle(s, &fd) == NRT_SUCCESS);
  p = {fd, POLLIN, 0};
  CHECK(poll(&p, 1, 0) == 1);
  close(fd);
}

TEST_CASE("errors show up in the tracker, and a timeout stops the core") {
  Session session;
  nrta_error_tracker_t* errors = tracker();
  nrt_tensor_t* a = device_tensor(4);
  nrt_tensor_set_t* in = tensor_set({{"a", a}});
  nrt_tensor_set_t* out = tensor_set({{"b", a}});
  nrta_seq_t bad = 0, s = 0;
  REQUIRE(nrta_execute_schedule(load(kAddOne + "fail oob\n"), in, out, 0, errors, &bad) == NRT_SUCCESS);
  REQUIRE(nrta_execute_schedule(load(kAddOne), in, out, 0, errors, &s) == NRT_SUCCESS);
  wait(s);
  const nrta_error_t* list = nullptr;
  size_t n = 0;
  REQUIRE(nrta_error_tracker_get_list(errors, &list, &n) == NRT_SUCCESS);
  REQUIRE(n == 1);
  CHECK(list[0].seq_id == bad);
  CHECK(list[0].error_code == NRT_EXEC_OOB);
  REQUIRE(nrta_execute_schedule(load(kAddOne + "fail hang\n"), in, out, 0, errors, &s) == NRT_SUCCESS);
  wait(s);
  CHECK(nrta_execute_schedule(load(kAddOne), in, out, 0, errors, &s) == NRT_EXEC_UNIT_UNRECOVERABLE);
}

TEST_CASE("queues, sequences and handles that do not exist") {
  Session session;
  nrta_error_tracker_t* errors = tracker();
  nrt_tensor_t* a = device_tensor(4);
  nrt_model_t* m = load(kAddOne);
  nrta_seq_t s = 0;
  bool done = false;
  int fd = 0;
  CHECK(nrta_execute_schedule(m, nullptr, nullptr, 1, errors, &s) == NRT_INVALID);
  CHECK(nrta_tensor_copy(a, 0, a, 0, 1, 2, errors, &s) == NRT_INVALID);
  CHECK(nrta_tensor_write(a, "x", 0, 1, 0, nullptr, &s) == NRT_INVALID_HANDLE);
  CHECK(nrta_tensor_write(a, "x", 0, 1, 0, errors, nullptr) == NRT_INVALID);
  CHECK(nrta_is_completed(12345, &done) == NRT_INVALID);
  CHECK(nrta_get_completion_handle(12345, &fd) == NRT_INVALID);
  CHECK(nrta_get_sequence(9, NRTA_XU_COMPUTE, 0, &s) == NRT_INVALID);
  CHECK(nrta_get_sequence(0, NRTA_XU_TYPE_NUM, 0, &s) == NRT_INVALID);
  CHECK(nrta_error_tracker_create(9, &errors) == NRT_INVALID);
}

TEST_CASE("a full queue says so and close drains it") {
  Session session;
  nrta_error_tracker_t* errors = tracker();
  nrt_model_t* m = load(kAddOne);
  nrt_tensor_t* a = device_tensor(4);
  nrt_tensor_set_t* in = tensor_set({{"a", a}});
  nrt_tensor_set_t* out = tensor_set({{"b", a}});
  launch_sleep_ms = 200;
  nrta_seq_t s = 0;
  REQUIRE(nrta_execute_schedule(m, in, out, 0, errors, &s) == NRT_SUCCESS);
  NRT_STATUS status = NRT_SUCCESS;
  int accepted = 0;
  for (int i = 0; i < 5000 && status == NRT_SUCCESS; ++i) {
    status = nrta_execute_schedule(m, in, out, 0, errors, &s);
    accepted += status == NRT_SUCCESS ? 1 : 0;
  }
  CHECK(status == NRT_QUEUE_FULL);
  CHECK(accepted >= 1023);
  launch_sleep_ms = 0;
}
