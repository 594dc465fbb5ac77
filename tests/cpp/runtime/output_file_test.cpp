#include "sim/runtime/output_file.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/cpp/catch.h"

using trnsim::runtime::can_write;
using trnsim::runtime::Replaces;
using trnsim::runtime::write_whole;
namespace fs = std::filesystem;

namespace {

class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("trnsim-output-" + std::to_string(getpid()))) {
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  std::ptrdiff_t files() const {
    return std::distance(fs::directory_iterator(path_), fs::directory_iterator());
  }

 private:
  fs::path path_;
};

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace

TEST_CASE("only what a run itself writes is replaced, and nothing is touched before") {
  const Folder f;
  const struct {
    const char *contents, *report, *array;  // why not, or empty
  } kRows[] = {
      {"", "", ""},
      {"{\"schema_version\":1}", "", "is no .npy file"},
      {"{\n  \"schema_version\": 1,", "", "is no .npy file"},
      {"\x93NUMPY\x01", "is no report", ""},
      {"print(1)\n", "is no report", "is no .npy file"},
      {"{}", "is no report", "is no .npy file"},
  };
  for (const auto& row : kRows) {
    INFO(row.contents);
    std::ofstream(f.file("a")) << row.contents;
    const struct {
      Replaces replaces;
      const char* why_not;
    } kKinds[] = {{Replaces::kReport, row.report}, {Replaces::kArray, row.array}, {Replaces::kAnything, ""}};
    for (const auto& kind : kKinds) {
      std::string why;
      CHECK(can_write(f.file("a"), kind.replaces, &why) == (*kind.why_not == 0));
      CHECK_THAT(why, ContainsSubstring(kind.why_not));
      CHECK(read(f.file("a")) == row.contents);
    }
  }
  std::string why;
  CHECK(can_write(f.file("new"), Replaces::kReport, &why));
  CHECK_FALSE(can_write(f.file(std::string(300, 'x')), Replaces::kReport, &why));
  CHECK_FALSE(can_write("/proc/new", Replaces::kReport, &why));
  CHECK(can_write("/dev/null", Replaces::kReport, &why));
  CHECK(f.files() == 1);
}

TEST_CASE("a file is replaced as a whole, with its permissions and through links") {
  const Folder f;
  std::string why;
  REQUIRE(write_whole(f.file("a"), "old", &why));
  fs::permissions(f.file("a"), fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink("a", f.file("link"));
  std::ifstream reader(f.file("a"));  // who reads the old one goes on to
  REQUIRE(write_whole(f.file("link"), "new", &why));
  CHECK(fs::is_symlink(f.file("link")));
  CHECK(read(f.file("a")) == "new");
  CHECK(std::string(std::istreambuf_iterator<char>(reader), {}) == "old");
  CHECK(fs::status(f.file("a")).permissions() == (fs::perms::owner_read | fs::perms::owner_write));
  CHECK_FALSE(write_whole(f.file("no/a"), "new", &why));
  CHECK_FALSE(write_whole("/dev/full", "new", &why));
  CHECK_THAT(why, ContainsSubstring("No space left"));
  CHECK(f.files() == 2);
}
