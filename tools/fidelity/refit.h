// Leave one family out: what the others say about the parameters that its rows set.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/fidelity/replay.h"

namespace trnsim::fidelity {

struct Refitted {
  std::string key;
  double full = 0;  // as the configuration has it
  double source =
      0;  // of another source: where the fit starts, and what stays when no other row depends on it
  double fitted = 0;
  size_t rows = 0;  // other rows that depend on it
};

struct LeftOut {
  std::string family, source;
  size_t fitted_on = 0;  // rows of other families
  std::vector<Refitted> parameters;
  std::vector<Outcome> rows;  // of the family, with the refitted parameters
};

// progress is called with the name of each family before its fit.
std::vector<LeftOut> leave_families_out(const Collection& collection, const config::Config& config,
                                        const std::function<void(const std::string&)>& progress);

}  // namespace trnsim::fidelity
