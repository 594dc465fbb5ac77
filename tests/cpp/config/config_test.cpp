#include "sim/config/config.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <fstream>
#include <set>

#include "tests/cpp/catch.h"

using namespace trnsim;

namespace {

// A file in the working directory that goes away with the test.
struct TempFile {
  explicit TempFile(const std::string& name, const std::string& text)
      : path("config_test_" + name + ".textproto") {
    std::ofstream(path) << text;
  }
  ~TempFile() { std::remove(path.c_str()); }
  std::string path;
};

std::string error_of(const std::string& name, const std::string& overrides = "") {
  std::string error;
  CHECK_FALSE(config::load(name, overrides, &error).has_value());
  return error;
}

config::Config must_load(const std::string& name, const std::string& overrides = "") {
  std::string error;
  auto c = config::load(name, overrides, &error);
  INFO(error);
  REQUIRE(c.has_value());
  return *c;
}

}  // namespace

TEST_CASE("Built-in names load without any file") {
  for (const std::string& name : config::builtin_names()) {
    const auto c = must_load(name);
    CHECK(c.name == name);
    CHECK_FALSE(c.chip.generation.empty());
  }
  const auto trn2 = must_load("trn2");
  CHECK(trn2.chip.generation == "trn2");
  CHECK(config::physical_cores(trn2) == 8);
  CHECK(config::logical_cores(trn2) == 4);
  CHECK(config::hbm_bytes_per_physical_core(trn2) == uint64_t{12} << 30);
  CHECK(trn2.tensor.clock_ghz == 2.4);
  CHECK(trn2.instance.price_usd_per_hour == 2.235);
  const auto big = must_load("trn2.48xlarge");
  CHECK(config::physical_cores(big) == 128);
  CHECK(big.instance.price_usd_per_hour == 35.7608);
  CHECK(must_load("trn3").vector.clock_ghz == 1.2);
  CHECK(must_load("trn3").chip.generation == "trn3");
}

TEST_CASE("The compiled-in text is the file") {
  const char* root = std::getenv("TRNSIM_SOURCE_DIR");
  if (root == nullptr) return;
  for (const char* name : {"trn2", "trn3"}) {
    const auto from_file = must_load(std::string(root) + "/configs/" + name + ".textproto");
    CHECK(config::diff(must_load(name), from_file).empty());
  }
}

TEST_CASE("A file starts from its base") {
  TempFile f("base", "base: \"trn2\"\nhbm { stack_bandwidth_gb_per_s: 1000 }\n");
  const auto c = must_load(f.path);
  CHECK(c.hbm.stack_bandwidth_gb_per_s == 1000);
  CHECK(c.vector.clock_ghz == 0.96);
  CHECK(c.chip_name == "trn2");
  const auto d = config::diff(must_load("trn2"), c);
  REQUIRE(d.size() == 1);
  CHECK(d[0].key == "hbm.stack_bandwidth_gb_per_s");
  CHECK(d[0].a == "716");
  CHECK(d[0].b == "1000");

  TempFile g("base_of_base", "base: \"" + f.path + "\"\nvector { clock_ghz: 1.5 }\n");
  const auto e = must_load(g.path);
  CHECK(e.hbm.stack_bandwidth_gb_per_s == 1000);
  CHECK(e.vector.clock_ghz == 1.5);
}

TEST_CASE("Errors of a file name line, column and the way out") {
  {
    TempFile f("unknown", "base: \"trn2\"\nvector {\n  clok_ghz: 1.0\n}\n");
    const auto e = error_of(f.path);
    CHECK_THAT(e, ContainsSubstring(f.path + ":3:"));
    CHECK_THAT(e, ContainsSubstring("did you mean 'clock_ghz'?"));
    CHECK_THAT(e, ContainsSubstring("user error"));
  }
  {
    TempFile f("group", "base: \"trn2\"\nvectr { clock_ghz: 1.0 }\n");
    CHECK_THAT(error_of(f.path), ContainsSubstring("did you mean 'vector'?"));
  }
  {
    TempFile f("range", "base: \"trn2\"\nvector {\n  clock_ghz: 99\n}\n");
    const auto e = error_of(f.path);
    CHECK_THAT(e, ContainsSubstring(f.path + ":3:3"));
    CHECK_THAT(e, ContainsSubstring("range 0.1 to 10"));
  }
  {
    TempFile f("type", "base: \"trn2\"\nchip { cores: \"eight\" }\n");
    CHECK_THAT(error_of(f.path), ContainsSubstring(f.path + ":2:"));
  }
  {
    TempFile f("missing", "chip { generation: \"trn9\" }\n");
    CHECK_THAT(error_of(f.path), ContainsSubstring("gives no value for"));
  }
  {
    TempFile f("provenance", "base: \"trn2\"\nprovenance { key: \"tensor.clock\" origin: GUESS }\n");
    CHECK_THAT(error_of(f.path), ContainsSubstring("did you mean 'tensor.clock_ghz'?"));
  }
  {
    TempFile f("loop", "base: \"config_test_loop.textproto\"\n");
    CHECK_THAT(error_of(f.path), ContainsSubstring("may not be its own base"));
  }
  {
    TempFile f("relation", "base: \"trn2\"\nmemory { sbuf_bytes_per_partition: 4096 }\n");
    CHECK_THAT(error_of(f.path), ContainsSubstring("larger than memory.sbuf_bytes_per_partition"));
  }
  CHECK_THAT(error_of("trn22"), ContainsSubstring("did you mean 'trn2'?"));
  CHECK_THAT(error_of("no/such/file"), ContainsSubstring("nor a configuration file: no such file"));
  CHECK_THAT(error_of("/"), ContainsSubstring("it is a folder"));
  CHECK_THAT(error_of("/dev/zero"), ContainsSubstring("larger than 1 MiB"));  // a device has no end
}

TEST_CASE("All errors are told at once") {
  TempFile f("several",
             "base: \"trn2\"\nvector {\n  clok_ghz: 1.0\n  clock_ghz: 99\n}\nvectr { a: 1 }\n"
             "provenance { key: \"tensor.clock\" origin: GUESS }\n");
  const auto e = error_of(f.path);
  for (const char* part :
       {":3:", "'clock_ghz'?", ":4:3", "range 0.1 to 10", "'vector'?", "'tensor.clock_ghz'?"})
    CHECK_THAT(e, ContainsSubstring(part));
  CHECK(std::count(e.begin(), e.end(), '\n') == 3);
  const auto overrides = error_of("trn2", "vector.clock_ghz=-1,chip.cores,hbm.bandwith=1");
  for (const char* part : {"override 1", "override 2", "override 3"})
    CHECK_THAT(overrides, ContainsSubstring(part));
}

TEST_CASE("Overrides are typed and checked") {
  const auto c = must_load("trn2", "hbm.stack_bandwidth_gb_per_s=1432, chip.cores=4 ,instance.name=mine,");
  CHECK(c.hbm.stack_bandwidth_gb_per_s == 1432);
  CHECK(c.chip.cores == 4);
  CHECK(c.instance.name == "mine");
  CHECK_THAT(error_of("trn2", "hbm.bandwith=1"), ContainsSubstring("unknown parameter 'hbm.bandwith'"));
  CHECK_THAT(error_of("trn2", "tensor.clok_ghz=1"), ContainsSubstring("did you mean 'tensor.clock_ghz'?"));
  CHECK_THAT(error_of("trn2", "governor_threshold=1"), ContainsSubstring("'tensor.governor_threshold'"));
  CHECK_THAT(error_of("trn2", "chip.cores=4,vector.clock_ghz=-1"), ContainsSubstring("override 2"));
  CHECK_THAT(error_of("trn2", "vector.clock_ghz=-1"), ContainsSubstring("range 0.1 to 10"));
  CHECK_THAT(error_of("trn2", "vector.clock_ghz=nan"), ContainsSubstring("vector.clock_ghz"));
  CHECK_THAT(error_of("trn2", "vector.clock_ghz=1e999"), ContainsSubstring("range 0.1 to 10"));
  CHECK_THAT(error_of("trn2", "hbm.bandwith=1"), ContainsSubstring("mean 'hbm.stack_bandwidth_gb_per_s'?"));
  CHECK_THAT(error_of("trn2", "bandwidth=1"), ContainsSubstring("mean 'hbm.stack_bandwidth_gb_per_s'?"));
  CHECK_THAT(error_of("trn2", "foo=1"), ContainsSubstring("the nearest name is '"));
  CHECK_THAT(error_of("trn2", "chip.cores=4, chip.cores=8"),
             ContainsSubstring("already set by 'chip.cores=4'"));
  CHECK_THAT(error_of("trn2", "chip.cores=2.5"), ContainsSubstring("needs an integer"));
  CHECK_THAT(error_of("trn2", "chip.cores"), ContainsSubstring("expected key=value"));
  CHECK_THAT(error_of("trn2", "chip.cores=7"), ContainsSubstring("no multiple"));
}

TEST_CASE("Numbers of trn3 are documented, or no surer than those of trn2") {
  std::string error;
  const auto trn2 = config::load("trn2", "", &error), trn3 = config::load("trn3", "", &error);
  REQUIRE(trn2.has_value());
  REQUIRE(trn3.has_value());
  const auto old = config::describe(*trn2), present = config::describe(*trn3);
  REQUIRE(old.size() == present.size());
  for (size_t i = 0; i < old.size(); ++i) {
    INFO(present[i].key);
    CHECK(present[i].origin != config::Origin::kMeasured);  // nothing of this chip is published
    CHECK_FALSE(present[i].source.empty());
    if (present[i].origin != config::Origin::kDocument) CHECK(present[i].band >= old[i].band);
  }
}

TEST_CASE("Every parameter is described") {
  const auto c = must_load("trn2", "vector.clock_ghz=1.1");
  const auto all = config::describe(c);
  CHECK(all.size() > 100);
  std::set<std::string> keys;
  for (const auto& p : all) {
    INFO(p.key);
    CHECK(keys.insert(p.key).second);
    CHECK_FALSE(p.unit.empty());
    CHECK_FALSE(p.doc.empty());
    CHECK_FALSE(p.source.empty());
    CHECK_FALSE(p.value.empty());
    if (!p.is_text) {
      CHECK(p.min < p.max);
      const bool choice =
          p.unit == "0/1" || p.unit == "seed";  // no quantity that could be off by a part of itself
      if (p.origin == config::Origin::kGuess && !choice) CHECK(p.band > 0);
    }
    if (p.key == "vector.clock_ghz") {
      CHECK(p.value == "1.1");
      CHECK(p.default_value == "0.96");
      CHECK(p.origin == config::Origin::kOverride);
    }
    if (p.key == "gpsimd.philox_cycles_per_element") CHECK(p.origin == config::Origin::kGuess);
  }
  for (const auto& p : config::describe(must_load("trn3"))) {
    INFO(p.key);
    CHECK(p.origin != config::Origin::kMeasured);  // nothing was measured on this chip
    if (p.key == "tensor.load_fixed_ns") CHECK(p.origin == config::Origin::kGuess);
    if (p.key == "tensor.clock_ghz") CHECK(p.origin == config::Origin::kDocument);
    if (p.key == "vector.clock_ghz") CHECK(p.default_value == "1.2");
  }
  const auto json = boost::json::parse(config::describe_json(c)).as_object();
  CHECK(json.at("parameters").as_array().size() == all.size());
}
