#include "isa/index_check.h"

#include <algorithm>
#include <charconv>

namespace trnsim::isa {
namespace {

std::string key_of(uint32_t location) { return "index_check " + std::to_string(location); }

// One line per index: size, blank, words.
IndexCheck parse(const std::string& text) {
  IndexCheck check;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line(text.data() + at, end - at);
    IndexCheck::Index index;
    const auto number = std::from_chars(line.data(), line.data() + line.size(), index.size);
    const auto used = static_cast<size_t>(number.ptr - line.data());
    if (used < line.size()) index.words = line.substr(used + 1);
    check.indices.push_back(std::move(index));
    at = end + 1;
  }
  return check;
}

}  // namespace

std::pair<std::string, std::string> index_check_note(uint32_t location, const IndexCheck& check) {
  std::string text;
  for (const IndexCheck::Index& index : check.indices) {
    if (!text.empty()) text += '\n';
    text += std::to_string(index.size) + " " + index.words;
  }
  return {key_of(location), text};
}

bool checks_indices(const std::vector<std::pair<std::string, std::string>>& notes, uint32_t location) {
  const std::string key = key_of(location);
  return std::any_of(notes.begin(), notes.end(), [&](const auto& note) { return note.first == key; });
}

std::string explain_index(const std::vector<std::pair<std::string, std::string>>& notes, uint32_t location,
                          int64_t row, int64_t rows) {
  const std::string key = key_of(location);
  for (const auto& [name, text] : notes) {
    if (name != key) continue;
    const IndexCheck check = parse(text);
    const auto count = static_cast<int64_t>(check.indices.size());
    if (count == 0) break;
    const int64_t code = row < 0 ? -1 - row : row - rows;
    const IndexCheck::Index& index = check.indices[static_cast<size_t>(code % count)];
    const int64_t value = row < 0 ? -1 - code / count : index.size + code / count;
    std::string words = index.words;
    if (const size_t at = words.find("{}"); at != std::string::npos)
      words.replace(at, 2, std::to_string(value));
    return words;
  }
  return {};
}

}  // namespace trnsim::isa
