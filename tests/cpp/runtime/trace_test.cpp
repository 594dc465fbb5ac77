#include <boost/json.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/cpp/runtime/session.h"

using namespace trnsim::testing;
namespace json = boost::json;

namespace {

const std::string kAddOne = "program add_one\nin a 4\nout b 4\n";

void run(int vnc, int count, const std::string& extra = "") {
  nrt_model_t* m = load(kAddOne + extra, vnc);
  nrt_tensor_t* a = device_tensor(4, vnc);
  nrt_tensor_set_t* in = tensor_set({{"a", a}});
  nrt_tensor_set_t* out = tensor_set({{"b", a}});
  for (int i = 0; i < count; ++i) nrt_execute(m, in, out);
}

json::array fetch(const nrt_sys_trace_fetch_options_t* options) {
  char* text = nullptr;
  size_t bytes = 0;
  REQUIRE(nrt_sys_trace_fetch_events(&text, &bytes, options) == NRT_SUCCESS);
  json::value v = json::parse(std::string(text, bytes));
  nrt_sys_trace_buffer_free(text);
  return v.as_object().at("events").as_array();
}

}  // namespace

TEST_CASE("a trace session records executions of the chosen cores once") {
  Session session;
  nrt_sys_trace_config_t* config = nullptr;
  REQUIRE(nrt_sys_trace_config_allocate(&config) == NRT_SUCCESS);
  nrt_sys_trace_config_set_defaults(config);
  REQUIRE(nrt_sys_trace_config_set_capture_enabled_for_nc(config, 1, false) == NRT_SUCCESS);
  REQUIRE(nrt_sys_trace_start(config) == NRT_SUCCESS);
  CHECK(nrt_sys_trace_start(config) == NRT_FAILURE);
  nrt_sys_trace_config_free(config);
  run(0, 2);
  run(1, 2);
  run(2, 1, "fail nan\n");
  REQUIRE(nrt_sys_trace_stop() == NRT_SUCCESS);
  run(0, 1);
  nrt_sys_trace_fetch_options_t* options = nullptr;
  REQUIRE(nrt_sys_trace_fetch_options_allocate(&options) == NRT_SUCCESS);
  REQUIRE(nrt_sys_trace_fetch_options_set_nc_idx(options, 0) == NRT_SUCCESS);
  json::array events = fetch(options);
  REQUIRE(events.size() == 4);
  const auto& start = events[0].as_object();
  CHECK(start.at("event_type") == "nc_exec_running");
  CHECK(start.at("phase") == "start");
  CHECK(events[1].as_object().at("phase") == "stop");
  CHECK(events[1].as_object().at("tracking_id") == start.at("tracking_id"));
  CHECK(events[1].as_object().at("data").as_object().at("nc_timestamp_ns").as_double() -
            start.at("data").as_object().at("nc_timestamp_ns").as_double() ==
        1000.0);
  CHECK(fetch(options).empty());
  REQUIRE(nrt_sys_trace_fetch_options_set_defaults(options) == NRT_SUCCESS);
  events = fetch(options);
  REQUIRE(events.size() == 3);
  CHECK(events[2].as_object().at("event_type") == "numerical_err");
  CHECK(nrt_sys_trace_fetch_options_free(options) == NRT_SUCCESS);
  CHECK(nrt_sys_trace_fetch_options_free(options) == NRT_INVALID_HANDLE);
  CHECK(nrt_sys_trace_stop() == NRT_FAILURE);
}

TEST_CASE("event types can be listed and switched") {
  const char** types = nullptr;
  size_t n = 0;
  REQUIRE(nrt_sys_trace_get_event_types(&types, &n) == NRT_SUCCESS);
  CHECK(n == 7);
  nrt_sys_trace_free_event_types(types, n);
  nrt_sys_trace_config_t* config = nullptr;
  REQUIRE(nrt_sys_trace_config_allocate(&config) == NRT_SUCCESS);
  CHECK(nrt_sys_trace_config_set_capture_enabled_for_event_type(config, "no_such", true) == NRT_INVALID);
  REQUIRE(nrt_sys_trace_config_set_capture_enabled_for_event_type(config, "nc_exec_running", false) ==
          NRT_SUCCESS);
  REQUIRE(nrt_sys_trace_config_get_enabled_event_types(config, &types, &n) == NRT_SUCCESS);
  CHECK(n == 6);
  nrt_sys_trace_free_event_types(types, n);
  CHECK(nrt_sys_trace_config_set_max_events_per_nc(config, 0) == NRT_INVALID);
  nrt_sys_trace_config_free(config);
  CHECK(nrt_sys_trace_config_set_max_events_per_nc(config, 1) == NRT_INVALID_HANDLE);
}

TEST_CASE("what was not handed out, or was freed already, is refused and not touched") {
  Session session(Environment{{"NEURON_RT_LOG_LEVEL", "CRITICAL"}});
  char garbage[64] = {};
  const auto refused = [](const char* function) {
    INFO(trnsim_last_error());
    return error_has(function) && error_has("no valid handle");
  };
  const char** types = nullptr;
  size_t n = 0;
  REQUIRE(nrt_sys_trace_get_event_types(&types, &n) == NRT_SUCCESS);
  char* events = nullptr;
  REQUIRE(nrt_sys_trace_fetch_events(&events, nullptr, nullptr) == NRT_SUCCESS);
  nrt_sys_trace_free_event_types(reinterpret_cast<const char**>(events), n);  // of another kind
  CHECK(refused("nrt_sys_trace_free_event_types"));
  nrt_sys_trace_buffer_free(garbage);
  CHECK(refused("nrt_sys_trace_buffer_free"));
  nrt_sys_trace_buffer_free(events);
  nrt_sys_trace_free_event_types(types, n);
  nrt_sys_trace_free_event_types(types, n);
  CHECK(refused("nrt_sys_trace_free_event_types"));
  nrt_sys_trace_buffer_free(events);
  CHECK(refused("nrt_sys_trace_buffer_free"));
  nrt_sys_trace_buffer_free(nullptr);
  nrt_sys_trace_free_event_types(nullptr, 0);

  nrt_sys_trace_config_free(reinterpret_cast<nrt_sys_trace_config_t*>(garbage));
  CHECK(refused("nrt_sys_trace_config_free"));
  CHECK(nrt_sys_trace_fetch_options_free(reinterpret_cast<nrt_sys_trace_fetch_options_t*>(garbage)) ==
        NRT_INVALID_HANDLE);
  nrta_error_tracker_destroy(reinterpret_cast<nrta_error_tracker_t*>(garbage));
  CHECK(refused("nrta_error_tracker_destroy"));
  auto* tensor = reinterpret_cast<nrt_tensor_t*>(garbage);
  nrt_tensor_free(&tensor);
  CHECK(refused("nrt_tensor_free"));
  auto* set = reinterpret_cast<nrt_tensor_set_t*>(garbage);
  nrt_destroy_tensor_set(&set);
  CHECK(refused("nrt_destroy_tensor_set"));
  CHECK(nrt_unload(reinterpret_cast<nrt_model_t*>(garbage)) == NRT_INVALID_HANDLE);

  nrt_tensor_info_array_t* info = nullptr;
  REQUIRE(nrt_get_model_tensor_info(load(kAddOne), &info) == NRT_SUCCESS);
  CHECK(nrt_free_model_tensor_info(reinterpret_cast<nrt_tensor_info_array_t*>(garbage)) ==
        NRT_INVALID_HANDLE);
  CHECK(nrt_free_model_tensor_info(info) == NRT_SUCCESS);
  CHECK(nrt_free_model_tensor_info(info) == NRT_INVALID_HANDLE);
}

TEST_CASE("a trace keeps the newest events") {
  Session session;
  nrt_sys_trace_config_t* config = nullptr;
  REQUIRE(nrt_sys_trace_config_allocate(&config) == NRT_SUCCESS);
  REQUIRE(nrt_sys_trace_config_set_max_events_per_nc(config, 4) == NRT_SUCCESS);
  REQUIRE(nrt_sys_trace_start(config) == NRT_SUCCESS);
  run(0, 10);
  const json::array events = fetch(nullptr);
  REQUIRE(events.size() == 4);
  CHECK(events[3].as_object().at("tracking_id").to_number<int>() == 10);
  nrt_sys_trace_config_free(config);
}

TEST_CASE("a profile writes the runs of its model") {
  Session session;
  const std::string file = (std::filesystem::temp_directory_path() / "trnsim-profile-test.json").string();
  nrt_model_t* m = load(kAddOne);
  nrt_tensor_t* a = device_tensor(4);
  nrt_tensor_set_t* in = tensor_set({{"a", a}});
  nrt_tensor_set_t* out = tensor_set({{"b", a}});
  CHECK(nrt_profile_stop(file.c_str()) == NRT_FAILURE);
  REQUIRE(nrt_profile_start(m, file.c_str()) == NRT_SUCCESS);
  CHECK(nrt_profile_start(m, file.c_str()) == NRT_FAILURE);
  nrt_execute(m, in, out);
  nrt_execute(m, in, out);
  run(1, 1);
  REQUIRE(nrt_profile_stop(file.c_str()) == NRT_SUCCESS);
  std::ifstream text(file);
  std::stringstream all;
  all << text.rdbuf();
  const json::object o = json::parse(all.str()).as_object();
  CHECK(o.at("Summary").as_object().at("executions").to_number<int>() == 2);
  CHECK(o.at("Metadata").as_object().at("is_simulation").as_bool());
  CHECK(o.at("ExecutionInfo").as_array()[1].as_object().at("duration_ns").as_double() == 1000.0);
  std::remove(file.c_str());
}
