#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/cpp/runtime/session.h"

using namespace trnsim::testing;
namespace json = boost::json;

namespace {

void run(const std::string& name, int vnc, int count, bool unload) {
  nrt_model_t* m = load("program " + name + "\nin a 4\nout b 4\n", vnc);
  nrt_tensor_t* a = device_tensor(4, vnc);
  nrt_tensor_set_t* in = tensor_set({{"a", a}});
  nrt_tensor_set_t* out = tensor_set({{"b", a}});
  for (int i = 0; i < count; ++i) REQUIRE(nrt_execute(m, in, out) == NRT_SUCCESS);
  if (unload) REQUIRE(nrt_unload(m) == NRT_SUCCESS);
  nrt_tensor_free(&a);
}

json::object report() { return json::parse(trnsim_report_json()).as_object(); }

}  // namespace

TEST_CASE("the report adds up programs, engines and cores") {
  Session session(Environment{{"TRNSIM_SET", "hbm.stack_bandwidth_gb_per_s=800"}});
  run("p", 0, 3, true);
  run("p", 0, 2, false);
  run("q", 1, 1, false);
  const json::object r = report();
  CHECK(r.at("schema_version").to_number<int>() == 1);
  CHECK(r.at("config").as_object().at("name") == "trn2");
  CHECK(r.at("config").as_object().at("overrides").as_array()[0] == "hbm.stack_bandwidth_gb_per_s=800");
  CHECK(r.at("mode") == "both");
  CHECK(r.at("simulated_ns").to_number<double>() == 5000);  // the busiest core
  REQUIRE(r.at("programs").as_array().size() == 2);
  const auto& p = r.at("programs").as_array()[0].as_object();
  CHECK(p.at("name") == "p");
  CHECK(p.at("count").to_number<int>() == 5);
  CHECK(p.at("simulated_ns").to_number<double>() == 5000);
  CHECK(r.at("instructions").to_number<int>() == 42);
  const auto& tensor = r.at("engines").as_object().at("tensor").as_object();
  CHECK(tensor.at("busy_ns").to_number<double>() == 3000);
  CHECK(tensor.at("utilisation").to_number<double>() == Approx(0.5));
  CHECK(r.at("engines").as_object().size() == 5);
  CHECK(r.at("dma").as_object().at("bytes_written").to_number<int>() == 120);
  CHECK(r.at("hbm").as_object().at("peak_bytes").to_number<int64_t>() > 0);
  CHECK(r.at("roofline").as_object().at("flops").to_number<int>() == 6000);
  CHECK(r.at("roofline").as_object().at("bound") == "compute");
  CHECK(r.at("caches").as_object().at("memo").as_object().at("misses").to_number<int>() == 6);
  CHECK(r.at("cost").as_object().at("usd").to_number<double>() > 0);
  const auto& band = r.at("error_band").as_object();
  CHECK(band.at("parameters").to_number<double>() > 0);
  CHECK(band.at("measured").to_number<double>() > 0);
  CHECK(band.at("relative").to_number<double>() > band.at("measured").to_number<double>());
  CHECK_FALSE(band.at("nearest_family").as_string().empty());
  CHECK(p.at("error_band").to_number<double>() > 0);
  CHECK(r.at("warnings").as_array().empty());
  CHECK(r.at("wall_s").to_number<double>() > 0);
  trnsim_reset_report();
  CHECK(report().at("programs").as_array().empty());
  CHECK(report().at("roofline").as_object().at("bound") == "nothing ran");
  CHECK(trnsim_simulated_ps(0) == 5000000);  // since init, whatever the report
}

TEST_CASE("the report tells the physical cores of a logical core apart") {
  Session session;
  run("p\ncores 2", 0, 3, true);
  run("q", 0, 1, false);
  run("r", 1, 1, false);
  const json::object r = report();
  CHECK(r.at("simulated_ns").to_number<double>() == 4000);
  const auto& cores = r.at("physical_cores").as_array();
  REQUIRE(cores.size() == 3);
  const auto time = [&](size_t n) { return cores[n].as_object().at("simulated_ns").to_number<double>(); };
  CHECK(cores[0].as_object().at("core").to_number<int>() == 0);
  CHECK(cores[1].as_object().at("core").to_number<int>() == 1);
  CHECK(cores[2].as_object().at("core").to_number<int>() == 2);
  CHECK((time(0) == 4000 && time(1) == 3000 && time(2) == 1000));
  for (const auto& core : cores) {
    const auto& tensor = core.as_object().at("engines").as_object().at("tensor").as_object();
    CHECK(tensor.at("utilisation").to_number<double>() == Approx(0.5));
  }
  // Shares of the cores that the programs ran on.
  CHECK(r.at("engines").as_object().at("tensor").as_object().at("utilisation").to_number<double>() ==
        Approx(0.5));
  CHECK(r.at("engines").as_object().at("tensor").as_object().at("busy_ns").to_number<double>() == 4000);
  // The roof of 8 us of physical cores over 5 us of logical ones.
  const auto& roof = r.at("roofline").as_object();
  trnsim_reset_report();
  run("one", 1, 1, false);
  CHECK(roof.at("peak_flops_per_s").to_number<double>() ==
        Approx(1.6 * report().at("roofline").as_object().at("peak_flops_per_s").to_number<double>()));
}

TEST_CASE("the report file is written at close, but not for PyTorch") {
  const std::string file = (std::filesystem::temp_directory_path() / "trnsim-report-test.json").string();
  std::filesystem::remove(file);
  {
    Session session(Environment{{"TRNSIM_JSON", file}});
    run("p", 0, 1, false);
  }
  std::ifstream in(file);
  std::stringstream text;
  text << in.rdbuf();
  CHECK(json::parse(text.str()).as_object().at("instructions").to_number<int>() == 7);
  std::filesystem::remove(file);
  EnvironmentGuard guard(Environment{{"TRNSIM_JSON", file}});
  REQUIRE(nrt_init(NRT_FRAMEWORK_TYPE_PYTORCH, "", "") == NRT_SUCCESS);
  nrt_close();
  CHECK_FALSE(std::filesystem::exists(file));
}

TEST_CASE("no report after close") {
  { Session session; }
  CHECK(std::string(trnsim_report_json()) == "{}");
  CHECK(trnsim_simulated_ps(0) == 0);
}

TEST_CASE("a run without time has no cost, not a cost of nothing") {
  Session session(Environment{{"TRNSIM_MODE", "data"}});
  run("p", 0, 1, false);
  CHECK(report().at("cost").as_object().at("usd").is_null());
  CHECK(report().at("cost").as_object().at("usd_per_hour").to_number<double>() > 0);
}

TEST_CASE("calls that are not simulated say so by name") {
  Session session(Environment{{"NEURON_RT_LOG_LEVEL", "CRITICAL"}});
  CHECK(nrt_barrier(0, 0, 2) == NRT_FAILURE);
  CHECK(error_has("not simulated: nrt_barrier"));
  nrt_inspect_config_t* config = nullptr;
  CHECK(nrt_inspect_config_allocate(&config) == NRT_FAILURE);
  CHECK(config == nullptr);
  void* address = nullptr;
  size_t size = 0;
  CHECK(nrt_get_hbm_mmap_va(0, 3, &address, &size) == NRT_SUCCESS);
  CHECK(address != nullptr);
  CHECK(nrt_get_hbm_mmap_va(0, 4, &address, &size) == NRT_INVALID_HANDLE);
  char message[64];
  int error = 0;
  CHECK(nrt_get_libnccl_net(&error, message, sizeof message) == nullptr);
  CHECK(error == NRT_FAILURE);
}
