#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "tests/cpp/runtime/session.h"

using namespace trnsim::testing;

namespace {

uint32_t visible() {
  uint32_t n = 0;
  INFO(trnsim_last_error());
  REQUIRE(nrt_get_visible_vnc_count(&n) == NRT_SUCCESS);
  return n;
}

// The counts are read from the environment until nrt_init; configure with nothing makes it look again.
void refresh() { REQUIRE(trnsim_configure(nullptr, nullptr, nullptr, nullptr) == NRT_SUCCESS); }

NRT_STATUS init_with(const Environment& env) {
  EnvironmentGuard guard(env);
  const NRT_STATUS s = nrt_init(NRT_FRAMEWORK_TYPE_NO_FW, "", "");
  if (s == NRT_SUCCESS) nrt_close();
  return s;
}

}  // namespace

TEST_CASE("counts work before init and follow the logical core size") {
  refresh();
  CHECK(visible() == 4);
  uint32_t n = 0;
  CHECK(nrt_get_total_nc_count(&n) == NRT_SUCCESS);
  CHECK(n == 4);
  CHECK(nrt_get_visible_nc_count(nullptr) == NRT_INVALID);
  {
    EnvironmentGuard guard(Environment{{"NEURON_LOGICAL_NC_CONFIG", "1"}});
    refresh();
    CHECK(visible() == 8);
  }
  {
    EnvironmentGuard guard(Environment{{"NEURON_RT_VIRTUAL_CORE_SIZE", "1"}, {"NEURON_RT_NUM_CORES", "3"}});
    refresh();
    CHECK(visible() == 3);
    CHECK(nrt_get_total_vnc_count(&n) == NRT_SUCCESS);
    CHECK(n == 8);
  }
  refresh();
}

TEST_CASE("visible cores: one, a range, a list; renumbered from 0; beats the number of cores") {
  const struct {
    const char* text;
    uint32_t count;
  } kRows[] = {{"2", 1}, {"1-3", 3}, {"0,1", 2}, {"3-3", 1}, {"1,2-3", 3}};
  for (const auto& row : kRows) {
    EnvironmentGuard guard(Environment{{"NEURON_RT_VISIBLE_CORES", row.text}, {"NEURON_RT_NUM_CORES", "4"}});
    refresh();
    CHECK(visible() == row.count);
  }
  Environment bad;
  for (const char* text : {"4", "a", "3-1", "0,2", "-1", "1-", "0-9"}) {
    CHECK(init_with({{"NEURON_RT_VISIBLE_CORES", text}}) == NRT_INVALID);
    CHECK(error_has("NEURON_RT_VISIBLE_CORES"));
  }
  refresh();
}

TEST_CASE("wrong names and values of variables are errors that say the right one") {
  const struct {
    Environment env;
    const char* text;
  } kRows[] = {
      {{{"TRNSIM_MOD", "time"}}, "nearest name is TRNSIM_MODE"},
      {{{"TRNSIM_MODE", "tim"}}, "nearest: time"},
      {{{"TRNSIM_CHECK", "strong"}}, "pedantic|strict|warn|off"},
      {{{"TRNSIM_FALLBACK", "never"}}, "allow|error"},
      {{{"TRNSIM_CONFIG", "trn9"}}, "trn"},
      {{{"TRNSIM_SET", "chip.core=4"}}, "chip.cores"},
      {{{"TRNSIM_SET", "chip.generation=trn9"}}, "known targets: trn2, trn3"},
      {{{"TRNSIM_FAULT", "hung"}}, "hang"},
      {{{"NEURON_LOGICAL_NC_CONFIG", "3"}}, "1 to 2"},
      {{{"NEURON_LOGICAL_NC_CONFIG", "1"}, {"NEURON_RT_VIRTUAL_CORE_SIZE", "2"}}, "contradict"},
      {{{"NEURON_RT_NUM_CORES", "5"}}, "has 4 logical cores"},
      {{{"NEURON_RT_EXEC_TIMEOUT", "soon"}}, "seconds"},
      {{{"NEURON_RT_LOG_LEVEL", "LOUD"}}, "WARNING"},
      {{{"NEURON_PLATFORM_TARGET_OVERRIDE", "trn9"}}, "known targets: trn2, trn3"},
      {{{"NEURON_PLATFORM_TARGET_OVERRIDE", "trn3"}, {"TRNSIM_CONFIG", "trn2"}}, "unset one of the two"},
      {{{"TRNSIM_JSON", "/nowhere/r.json"}}, "there is no folder /nowhere"},
      {{{"TRNSIM_JSON", "/proc/r.json"}}, "no file can be made in the folder /proc"},
  };
  for (const auto& row : kRows) {
    INFO(row.text);
    CHECK(init_with(row.env) == NRT_INVALID);
    INFO(trnsim_last_error());
    CHECK(error_has(row.text));
  }
  CHECK(init_with({}) == NRT_SUCCESS);
}

TEST_CASE("all faults of an environment are told at once, in text that Python takes") {
  const Environment all = {{"NEURON_RT_VISIBLE_CORES", "9"},
                           {"NEURON_RT_LOG_LEVEL", "LOUD\xff"},
                           {"NEURON_RT_EXEC_TIMEOUT", "soon"},
                           {"TRNSIM_FAULT", "hung"},
                           {"TRNSIM_JSON", "/nowhere/r.json"}};
  CHECK(init_with(all) == NRT_INVALID);
  for (const auto& [name, value] : all) CHECK(error_has(value == "hung" ? "'hung'" : name.c_str()));
  CHECK(error_has("'LOUD\xef\xbf\xbd'"));
}

TEST_CASE("configure before init, not after, and wrong values leave the old ones") {
  CHECK(trnsim_configure("nowhere", nullptr, nullptr, nullptr) == NRT_INVALID);
  CHECK(trnsim_configure(nullptr, "a.b=1", nullptr, nullptr) == NRT_INVALID);
  CHECK(trnsim_configure(nullptr, nullptr, "fast", nullptr) == NRT_INVALID);
  REQUIRE(trnsim_configure("trn3", "chip.hbm_capacity_gib=64", "time", "warn") == NRT_SUCCESS);
  const std::string json = trnsim_config_json();
  CHECK(json.rfind("{\"target\": \"trn3\", \"mode\": \"time\"", 0) == 0);
  {
    Session session;
    CHECK(trnsim_configure("trn2", nullptr, nullptr, nullptr) == NRT_INVALID);
    CHECK(error_has("after nrt_init"));
    nrt_instance_info_t info{};
    REQUIRE(nrt_get_instance_info(&info, sizeof info) == NRT_SUCCESS);
    CHECK(info.family == NRT_INSTANCE_TRN3);
    CHECK(std::string(info.arch_name) == "trn3");
  }
  REQUIRE(trnsim_configure("", "", "", "") == NRT_SUCCESS);
}

TEST_CASE("version and status texts") {
  nrt_version_t v{};
  CHECK(nrt_get_version(&v, sizeof v - 1) == NRT_INVALID);
  REQUIRE(nrt_get_version(&v, sizeof v) == NRT_SUCCESS);
  CHECK(v.rt_major == 2);
  CHECK(std::string(nrt_get_status_as_str(NRT_EXEC_OOB)) == "NRT_EXEC_OOB");
  CHECK(std::string(nrt_get_status_as_str(static_cast<NRT_STATUS>(77))) == "NRT_UNKNOWN");
}

TEST_CASE("a core that another process holds is refused by its name, and two machines do not meet") {
  const std::string dir =
      (std::filesystem::temp_directory_path() / ("trnsim-env-" + std::to_string(getpid()))).string();
  int ready[2], done[2];
  REQUIRE(pipe(ready) == 0);
  REQUIRE(pipe(done) == 0);
  const pid_t child = fork();
  if (child == 0) {
    setenv("TRNSIM_RUN_DIR", dir.c_str(), 1);
    setenv("NEURON_RT_VISIBLE_CORES", "1", 1);
    const char answer = nrt_init(NRT_FRAMEWORK_TYPE_NO_FW, "", "") == NRT_SUCCESS ? 'y' : 'n';
    (void)!write(ready[1], &answer, 1);
    char c;
    (void)!read(done[0], &c, 1);
    _exit(0);
  }
  char answer = 0;
  REQUIRE(read(ready[0], &answer, 1) == 1);
  REQUIRE(answer == 'y');
  CHECK(init_with({{"TRNSIM_RUN_DIR", dir}}) == NRT_RESOURCE);
  CHECK(error_has("pid "));
  CHECK(init_with({{"TRNSIM_RUN_DIR", dir}, {"NEURON_RT_VISIBLE_CORES", "1"}}) == NRT_RESOURCE);
  CHECK(init_with({{"TRNSIM_RUN_DIR", dir}, {"NEURON_RT_VISIBLE_CORES", "2-3"}}) == NRT_SUCCESS);
  CHECK(init_with({{"TRNSIM_RUN_DIR", dir}, {"NEURON_RT_NUM_CORES", "2"}}) == NRT_SUCCESS);
  CHECK(init_with({{"TRNSIM_RUN_DIR", dir}, {"NEURON_RT_NUM_CORES", "3"}}) == NRT_RESOURCE);
  CHECK(init_with({}) == NRT_SUCCESS);  // a machine of its own
  (void)!write(done[1], "x", 1);
  waitpid(child, nullptr, 0);
  CHECK(init_with({{"TRNSIM_RUN_DIR", dir}}) == NRT_SUCCESS);
  std::error_code ignored;
  std::filesystem::remove_all(dir, ignored);
}
