// How the axes of two maps correspond, found through a memory that both touch.
#pragma once

#include <optional>
#include <vector>

#include "device_plugin/compiler/fusion/map_form.h"

namespace trnsim::compiler::fusion {

struct Match {
  std::vector<int> axis;       // per axis of the first form: the axis of the second, or -1
  std::vector<int64_t> start;  // per axis of the first form: the coordinate at index 0 of the second
  bool whole = true;           // all of the first view: nothing fixed, cut or shifted
};

// Element by element, where does `second_view` (of `second`) read in `first_view` (of `first`)? Axes are split until
// every axis of the one is an axis of the other: strides of the second have to be steps along the first (permuted,
// reshaped, sliced and broadcast views; no flips, no diagonals). Axes that `first_view` does not have (stride 0) stay
// without a partner. Nothing when it is not so. The views are members of their forms.
std::optional<Match> align(MapForm& first, const View& first_view, MapForm& second, const View& second_view);

// Pairs two groups of axes of equal sizes (after splits), innermost first in the order of the strides of the views.
bool pair_axes(MapForm& first, std::vector<int> first_axes, const View& first_view, MapForm& second,
               std::vector<int> second_axes, const View& second_view, Match& match);

// Groups the axes of a form into the axes of an array of `sizes`: `tracer` (of the form) has the strides of that array in
// row-major order. group[d]: the axes that make up axis d, outermost first. False when some axis belongs to none or
// spans two.
bool group_axes(const MapForm& form, const View& tracer, const std::vector<int64_t>& sizes,
                std::vector<std::vector<int>>& groups);
// One step for a group of axes; nothing when the view does not move in equal steps along them.
std::optional<int64_t> merged_stride(const MapForm& form, const View& view, const std::vector<int>& group);
std::vector<int64_t> row_major(const std::vector<int64_t>& sizes);

// The elements that `read` reads of the result of `copy` (one input, one result, no arithmetic), in its input.
std::optional<View> seen_through(const MapForm& copy, const View& read);

}  // namespace trnsim::compiler::fusion
