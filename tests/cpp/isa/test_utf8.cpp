#include "isa/utf8.h"
#include "tests/cpp/catch.h"

using trnsim::isa::valid_utf8;

TEST_CASE("text in UTF-8 stays as it is") {
  for (const char* text : {"", "plain", "\xc3\xa9", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xef\xbf\xbd",
                           "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf", "a\xc3\xa9z"})
    CHECK(valid_utf8(text) == text);
  CHECK(valid_utf8(std::string_view("a\0b", 3)) == std::string("a\0b", 3));
}

TEST_CASE("every byte outside of a UTF-8 sequence becomes U+FFFD") {
  const std::string mark = "\xef\xbf\xbd";
  CHECK(valid_utf8("\xff") == mark);
  CHECK(valid_utf8("a\x80z") == "a" + mark + "z");
  CHECK(valid_utf8("\xc3") == mark);  // cut off
  CHECK(valid_utf8("\xe2\x82z") == mark + mark + "z");
  CHECK(valid_utf8("\xc0\xaf") == mark + mark);  // longer than it has to be
  CHECK(valid_utf8("\xe0\x80\x80") == mark + mark + mark);
  CHECK(valid_utf8("\xf0\x80\x80\x80") == mark + mark + mark + mark);
  CHECK(valid_utf8("\xed\xa0\x80") == mark + mark + mark);             // half of a pair
  CHECK(valid_utf8("\xf4\x90\x80\x80") == mark + mark + mark + mark);  // beyond U+10FFFF
  CHECK(valid_utf8("\xff\xc3\xa9") == mark + "\xc3\xa9");
}
