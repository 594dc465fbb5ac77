// Names of files and programs may hold any bytes; JSON and Python take UTF-8 only.
// C++17 and header only: the PyTorch device uses it without linking isa.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trnsim::isa {

// Bytes of the UTF-8 sequence at the start of `text` (RFC 3629), 0 when there is none.
inline size_t utf8_sequence_bytes(std::string_view text) {
  const auto at = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto follows = [&](size_t i) { return (at(i) & 0xc0) == 0x80; };
  const unsigned first = at(0), second = at(1);
  if (text.empty() || (first >= 0x80 && first < 0xc2) || first > 0xf4) return 0;
  if (first < 0x80) return 1;
  if (!follows(1)) return 0;
  if (first < 0xe0) return 2;
  if (!follows(2) || (first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f)) return 0;
  if (first < 0xf0) return 3;
  const bool in_range = !(first == 0xf0 && second < 0x90) && !(first == 0xf4 && second > 0x8f);
  return follows(3) && in_range ? 4 : 0;
}

// `text` with U+FFFD in place of every byte that is no part of a UTF-8 sequence.
inline std::string valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t bytes = utf8_sequence_bytes(text);
    if (bytes == 0)
      out += "\xef\xbf\xbd";
    else
      out += text.substr(0, bytes);
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return out;
}

}  // namespace trnsim::isa
