// The command as a user calls it: output, messages, exit codes.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "tests/cpp/catch.h"
#include "tools/native/npy.h"

using namespace trnsim;

namespace {

struct Outcome {
  int code = -1;
  std::string text;  // both streams
};

Outcome command(const std::string& arguments, const std::string& environment = "") {
  const std::string line = environment + " '" TRNSIM_NATIVE "' 2>&1 " + arguments;
  Outcome o;
  std::FILE* pipe = popen(line.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::array<char, 4096> buffer;
  while (const size_t n = fread(buffer.data(), 1, buffer.size(), pipe)) o.text.append(buffer.data(), n);
  o.code = WEXITSTATUS(pclose(pipe));
  return o;
}

class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / ("trnsim-native-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

std::string scale_add() {
  return std::string(std::getenv("TRNSIM_SOURCE_DIR")) + "/tests/c/scale_add.trnasm";
}

}  // namespace

TEST_CASE("assemble, disassemble and assemble again give the same container") {
  const Folder f;
  REQUIRE(command("asm " + scale_add() + " -o " + f.file("a.trnp")).code == 0);
  REQUIRE(command("disasm " + f.file("a.trnp") + " -o " + f.file("b.trnasm")).code == 0);
  REQUIRE(command("asm " + f.file("b.trnasm")).code == 0);
  const auto read = [](const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return std::string((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  };
  CHECK(read(f.file("a.trnp")) == read(f.file("b.trnp")));
  const Outcome o = command("validate " + f.file("a.trnp"));
  CHECK(o.code == 0);
  CHECK_THAT(o.text, ContainsSubstring("legal on trn2"));
}

TEST_CASE("run reads and writes arrays and writes the report") {
  const Folder f;
  native::Array x{"<f4", {4, 64}, std::vector<uint8_t>(1024)};
  for (size_t i = 0; i < 256; ++i) {
    const float v = static_cast<float>(i);
    std::memcpy(&x.bytes[4 * i], &v, 4);
  }
  std::string error;
  REQUIRE(native::write_npy(f.file("x.npy"), x, &error));
  for (const char* suffix : {"", " --set hbm.stack_bandwidth_gb_per_s=1000", " --mode data"}) {
    const Outcome o = command("run " + scale_add() + " --input x=" + f.file("x.npy") +
                              " --output y=" + f.file("y.npy") + " --json " + f.file("r.json") + suffix);
    INFO(o.text);
    REQUIRE(o.code == 0);
    CHECK_THAT(o.text, ContainsSubstring("simulated time"));
    native::Array y;
    REQUIRE(native::read_npy(f.file("y.npy"), &y, &error));
    float v = 0;
    std::memcpy(&v, &y.bytes[4 * 130], 4);  // row 2
    CHECK(v == 2 * 130.0f + 3);
    CHECK(std::filesystem::file_size(f.file("r.json")) > 100);
  }
}

TEST_CASE("time alone needs no arrays") {
  const Outcome o = command("run " + scale_add() + " --mode time");
  CHECK(o.code == 0);
  CHECK(command("run " + scale_add() + " --mode time --output y=/tmp/y.npy").code == 2);
}

TEST_CASE("wrong use is said in words, with exit codes 1 and 2") {
  const Folder f;
  const struct {
    std::string arguments;
    int code;
    const char* text;
  } kRows[] = {
      {"", 2, "usage"},
      {"fly", 2, "no verb is named 'fly'"},
      {"run", 2, "file"},
      {"run " + scale_add(), 2, "input 'x' (fp32) has no value"},
      {"run " + scale_add() + " --input z=a.npy", 2, "has no such input; it has x"},
      {"run " + scale_add() + " --input x", 2, "is not name=file.npy"},
      {"run " + scale_add() + " --input x=/nowhere.npy", 2, "/nowhere.npy"},
      {"run " + scale_add() + " --confg trn2", 2, "confg"},
      {"run " + scale_add() + " --config trn9 --mode time", 2, "trn9"},
      {"run " + scale_add() + " --set vector.clok_ghz=1 --mode time", 2, "vector.clock_ghz"},
      {"run " + scale_add() + " --mode tim", 2, "nearest: time"},
      {"run " + scale_add() + " --repeat 0", 2, "at least 1"},
      {"run /nowhere.trnp", 2, "cannot open /nowhere.trnp"},
      {"asm " + f.file("bad.trnasm"), 1, "bad.trnasm:2"},
      {"disasm " + f.file("noise.trnp"), 1, "noise.trnp"},
      {"isa tensor_tenso", 2, "tensor_tensor"},
      {"config explain chip.core", 2, "chip.cores"},
      {"config check /nowhere.textproto", 2, "nowhere"},
      {"config fly", 2, "usage"},
      {"config", 2, "needs a verb"},
      {"config diff trn2", 2, "1 arguments"},
      {"config list --set chip.cores=4", 2, "takes no --set"},
      {"config explain foo", 2, "the nearest name is"},
      {"config explain zzzzzzzzzz", 2, "config show"},
      {"config check " + f.file(""), 2, "it is a folder"},
      {"config check /dev/zero", 2, "larger than 1 MiB"},
      {"config check " + f.file("noise.trnp"), 2, "binary"},
      {"config check " + f.file("empty"), 2, "gives no value"},
      {"config show trn9", 2, "trn9"},
      {"config diff trn2 trn9", 2, "trn9"},
      {"validate /nowhere.trnp", 2, "cannot open"},
      {"validate " + scale_add() + " --target trn9", 2, "known targets: trn2, trn3"},
      {"asm /nowhere.trnasm", 2, "cannot open"},
      {"disasm " + f.file(""), 2, "is a folder"},
      {"config check " + f.file("empty"), 2, "gives no value"},
      {"run " + scale_add() + " --mode time --set chip.cores=99999999999999999999", 2, "range"},
      {"run " + scale_add() + " --mode time --set vector.clock_ghz=nan", 2, "range"},
      {"run " + scale_add() + " --mode time --set foo=1", 2, "the nearest name is"},
      {"run " + scale_add() + " --mode time --set chip.cores=4 --set chip.cores=8", 2, "already set by"},
      {"run " + f.file("trn9.trnasm") + " --mode time", 1, "known targets: trn2, trn3"},
      {"run " + scale_add() + " --mode time --json " + f.file("no/r.json"), 2, "there is no folder"},
      {"run " + scale_add() + " --mode time --json " + f.file(""), 2, "it is a folder"},
      {"run " + scale_add() + " --mode time --json /proc/x", 2, "no file can be made in the folder /proc"},
      {"run " + scale_add() + " --mode time --json " + f.file("bad.trnasm"), 2, "is no report"},
      {"run " + scale_add() + " --mode time --json /dev/full", 1, "cannot write /dev/full: No space left"},
      {"run " + scale_add() + " --input x=a.npy --output y=" + f.file("bad.trnasm"), 2, "is no .npy file"},
      {"run " + scale_add() + " --input x=a.npy --output y=" + f.file("no/y.npy"), 2, "there is no folder"},
      {"run " + scale_add() + " --input x=a.npy --input x=b.npy", 2, "is given twice"},
      {"run " + scale_add() + " --input x=" + f.file(""), 2, "a folder"},
      {"run " + scale_add() + " --input x=" + f.file("empty"), 2, "no .npy file"},
      {"run " + f.file(""), 2, "is a folder"},
      {"run " + f.file("empty"), 1, "empty"},
      {"run /dev/zero", 2, "is a device"},
      {"asm " + scale_add() + " -o " + f.file("no/a.trnp"), 2, "there is no folder"},
      {"disasm " + scale_add() + " -o " + f.file("no/a.trnasm"), 2, "there is no folder"},
      {"isa > /dev/full", 1, "standard output cannot be written"},
      {"config show > /dev/full", 1, "standard output cannot be written"},
  };
  std::ofstream(f.file("empty"));
  std::ofstream(f.file("trn9.trnasm")) << "program \"p\" target \"trn9\"\n";
  std::ofstream(f.file("bad.trnasm")) << "program \"p\" target \"trn2\"\nnonsense here\n";
  std::ofstream(f.file("noise.trnp"), std::ios::binary) << std::string("\xff\x00\x01 noise", 9);
  for (const auto& row : kRows) {
    INFO(row.arguments);
    const Outcome o = command(row.arguments);
    INFO(o.text);
    CHECK(o.code == row.code);
    CHECK_THAT(o.text, ContainsSubstring(row.text));
  }
  CHECK(std::filesystem::file_size(f.file("bad.trnasm")) ==
        std::strlen("program \"p\" target \"trn2\"\nnonsense here\n"));
  const Outcome o = command("run " + scale_add() + " --mode time", "TRNSIM_MEMOO=on");
  CHECK(o.code == 2);
  CHECK_THAT(o.text, ContainsSubstring("TRNSIM_MEMO"));
}

TEST_CASE("the report alone on the standard output") {
  const Outcome o = command("run " + scale_add() + " --mode time --json - 2>/dev/null");
  CHECK(o.code == 0);
  CHECK(o.text.rfind("{\"schema_version\"", 0) == 0);
  CHECK(o.text.find('\n') == o.text.size() - 1);
}

TEST_CASE("a container with any byte changed or cut off gives words, or runs") {
  const Folder f;
  REQUIRE(command("asm " + scale_add() + " -o " + f.file("a.trnp")).code == 0);
  std::ifstream in(f.file("a.trnp"), std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  uint32_t random = 1;
  for (int i = 0; i < 60; ++i) {
    random = random * 1664525 + 1013904223;
    std::string bad = good;
    const size_t at = (random >> 8) % bad.size();
    if (i % 3 == 0)
      bad.resize(at);
    else
      bad[at] = static_cast<char>(bad[at] ^ (1 << (random & 7)));
    std::ofstream(f.file("b.trnp"), std::ios::binary) << bad;
    const Outcome o = command("run " + f.file("b.trnp") + " --mode time");
    INFO(o.text);
    CHECK((o.code == 0 || o.code == 1));
    if (o.code == 1) CHECK_THAT(o.text, ContainsSubstring("trnsim: "));
  }
}

TEST_CASE("config check looks at what the environment asks for") {
  CHECK(command("config check").code == 0);
  const struct {
    const char *environment, *text;
  } kRows[] = {
      {"TRNSIM_CONFIG=trn9", "did you mean 'trn2'"},
      {"TRNSIM_SET=foo=1", "unknown parameter 'foo'"},
      {"TRNSIM_MODE=fast", "both|data|time"},
      {"TRNSIM_JSON=/nowhere/r.json", "there is no folder /nowhere"},
      {"TRNSIM_JSON=-", "--json -"},
      {"NEURON_PLATFORM_TARGET_OVERRIDE=trn9", "known targets: trn2, trn3"},
      {"NEURON_PLATFORM_TARGET_OVERRIDE=inf2", "not simulated"},
      {"TRNSIM_CONFIG=trn2 NEURON_PLATFORM_TARGET_OVERRIDE=gen4", "unset one of the two"},
      {"NEURON_LAUNCH_BLOCKING=maybe", "0|1|false|true"},
  };
  for (const auto& row : kRows) {
    const Outcome o = command("config check", row.environment);
    INFO(o.text);
    CHECK(o.code == 2);
    CHECK_THAT(o.text, ContainsSubstring(row.text));
  }
  CHECK(command("config check", "NEURON_PLATFORM_TARGET_OVERRIDE=trn3").text == "trn3: good\n");
  CHECK(command("config check", "NEURON_LAUNCH_BLOCKING=True").code == 0);
}

TEST_CASE("an instruction is shown with its law, and the law names parameters that exist") {
  const std::string parameters = command("config show").text;
  const std::regex parameter("[a-z]+\\.[a-z0-9_]+_[a-z0-9_]+");
  std::istringstream lines(command("isa").text);
  int rows = 0;
  for (std::string line; std::getline(lines, line); ++rows) {
    const std::string name = line.substr(0, line.find(' '));
    INFO(name);
    const std::string text = command("isa " + name).text;
    const size_t at = text.find("cost law");
    REQUIRE(at != std::string::npos);
    const std::string law = text.substr(at, text.find("\noperands:", at) - at);
    CHECK(law.find(": \n") == std::string::npos);  // an engine without words
    for (std::sregex_iterator it(law.begin(), law.end(), parameter), end; it != end; ++it) {
      INFO(it->str());
      CHECK_THAT(parameters, ContainsSubstring(it->str() + " "));
    }
  }
  CHECK(rows > 30);
}

TEST_CASE("configuration verbs") {
  Outcome o = command("config list");
  CHECK(o.code == 0);
  CHECK_THAT(o.text, ContainsSubstring("trn2\n") && ContainsSubstring("trn3\n"));
  o = command("config show trn3");
  CHECK(o.code == 0);
  CHECK_THAT(o.text, ContainsSubstring("chip.hbm_capacity_gib"));
  o = command("config diff trn2 trn3");
  CHECK(o.code == 0);
  CHECK_THAT(o.text, ContainsSubstring("chip.generation"));
  CHECK(command("config diff trn2 trn2").text.empty());
  o = command("config explain chip.cores");
  CHECK(o.code == 0);
  CHECK_THAT(o.text, ContainsSubstring("physical NeuronCores per chip"));
  o = command("config explain hbm");  // a group: each of its parameters
  CHECK(o.code == 0);
  CHECK_THAT(o.text, ContainsSubstring("hbm.stack_bandwidth_gb_per_s"));
  o = command("config show trn2 --set vector.clock_ghz=1.5");
  CHECK_THAT(o.text, ContainsSubstring("1.5 *"));
  o = command("isa dma_copy");
  CHECK(o.code == 0);
  CHECK_THAT(o.text, ContainsSubstring("dma_copy"));
}
