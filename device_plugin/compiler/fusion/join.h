// Two maps as one.
#pragma once

#include <optional>

#include "device_plugin/compiler/fusion/align.h"
#include "device_plugin/compiler/fusion/flow.h"

namespace trnsim::compiler::fusion {

struct Joined {
  MapForm form;
  bool keeps_first = true;  // the results of the first map are among the results
};

// Map `second` with the values of map `first` in place of its loads of them. Results of `first` that only
// `second` reads are left out; with `inline_only` all are left out (and `first` stays where it is). The order of the
// kernels is the caller's business.
//
// Legal when
//  - every element that `second` reads of a result of `first` is one of that result's elements, found by align(): then the
//    expression takes the place of the load, rounded to the dtype that it would have been stored in;
//  - both iterate over the same elements, if results of `first` are kept; a row value of `first` may be read along the
//    rows that it was reduced from, or by a map over the rows alone; a map over rows may be read by a map that
//    reduces exactly the other axes;
//  - reduced axes are the same where both reduce;
//  - a result lies in memory that an operand is read from only where both are the same elements in the same order (in
//    place), and no two results share elements.
std::optional<Joined> join_maps(Flow& flow, MapForm first, int second, bool inline_only);

// Two maps of which none reads the other's results, over the same elements. `shared` is the value both read.
std::optional<Joined> join_siblings(Flow& flow, int first, int second, int shared);

std::string joined_location(const std::string& first, const std::string& second);

}  // namespace trnsim::compiler::fusion
