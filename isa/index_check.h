// What a program says about the indices that its indirect DMAs check.
//
// A program turns indices into row numbers of a table. For an index that is not legal it stores a code instead: a number
// outside the table, so that the range check of the DMA engine stops the program, and from which the index can be told
// again. A note of the program, keyed by source location, says in which words to report it.
//
// With K indices per row and a table of B rows, index number i with value v and limit `size` has the code
//   v >= size:  B + (v - size) * K + i          v < 0:  v * K + K - 1 - i
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trnsim::isa {

struct IndexCheck {
  struct Index {
    int64_t size = 0;
    // The class of the error, ": " and the sentence; {} stands for the index. "IndexError: index {} is out of range".
    std::string words;
  };
  std::vector<Index> indices;
};

// The note about the instructions of one source location.
std::pair<std::string, std::string> index_check_note(uint32_t location, const IndexCheck& check);

// Whether the instructions of a source location check indices.
bool checks_indices(const std::vector<std::pair<std::string, std::string>>& notes, uint32_t location);

// The words for row number `row` of a table of `rows` rows; empty when no note speaks of the location.
std::string explain_index(const std::vector<std::pair<std::string, std::string>>& notes, uint32_t location,
                          int64_t row, int64_t rows);

}  // namespace trnsim::isa
