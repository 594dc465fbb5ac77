#include <cstdlib>
#include <fstream>
#include <sstream>

#include "isa/docs.h"
#include "isa/table.h"
#include "tests/cpp/catch.h"

using namespace trnsim::isa;

TEST_CASE("the page has a line and a section for every instruction") {
  const std::string md = isa_markdown();
  for (const Row& r : all_rows()) {
    CHECK_THAT(md, ContainsSubstring("| [`" + std::string(r.name) + "`]"));
    CHECK_THAT(md, ContainsSubstring("\n## " + std::string(r.name) + "\n"));
  }
}

TEST_CASE("one instruction is explained, a wrong name gets the nearest") {
  const std::string text = explain("multiply_moving");
  CHECK_THAT(text, ContainsSubstring("engines:    tensor"));
  CHECK_THAT(text, ContainsSubstring("moving_shape"));
  CHECK_THAT(explain("dma_gather"), ContainsSubstring("skip_out_of_bounds"));
  CHECK_THAT(explain("multiply_mooving"), ContainsSubstring("did you mean 'multiply_moving'?"));
}

TEST_CASE("docs/isa.md and docs/support.md are what the table says") {
  const char* source = std::getenv("TRNSIM_SOURCE_DIR");
  if (source == nullptr) return;  // set by ctest
  const auto page = [&](const char* name) {
    std::ifstream in(std::string(source) + "/docs/" + name, std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  };
  INFO("run: ninja isa_docs");
  CHECK((page("isa.md") == isa_markdown()));
  CHECK((page("support.md") == support_markdown()));
}
