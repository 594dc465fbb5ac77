// What the errors of many rows come to.
#pragma once

#include <boost/json.hpp>
#include <string>
#include <vector>

#include "tools/fidelity/refit.h"
#include "tools/fidelity/replay.h"

namespace trnsim::fidelity {

struct Errors {
  size_t rows = 0;
  double median = 0, mean = 0, worst = 0;  // of the absolute relative error
};
Errors errors_of(const std::vector<Outcome>& rows, bool (*take)(const Outcome&));
bool counts(const Outcome& o);  // replayed, and its schedule is not open

// Pairs of variants of one kernel, and how many the simulator puts in the measured order. Two times within
// `tolerance` of each other have no order.
struct Ranks {
  int pairs = 0, right = 0;
  std::vector<std::pair<const Outcome*, const Outcome*>> wrong;  // the faster one first
};
Ranks ranks_of(const std::vector<Outcome>& rows, double tolerance);

// Repeated runs of one kernel in the collection differ by about this much.
constexpr double kRankTolerance = 0.02;
// What the collection states for times that it doubles.
constexpr double kStatedSpread = 0.05;

boost::json::object to_json(const std::vector<Outcome>& rows, const std::vector<LeftOut>& left_out,
                            const Collection& collection, const config::Config& config);
void print(const std::vector<Outcome>& rows, const std::vector<LeftOut>& left_out);

}  // namespace trnsim::fidelity
