// Rows of the measurement collection and their replay.
#pragma once

#include <array>
#include <boost/json.hpp>
#include <string>
#include <vector>

#include "sim/config/config.h"

namespace trnsim::fidelity {

struct Outcome {
  std::string id, what, quality, family;
  std::string group;       // variants of one kernel, for the rank order; empty: compared with nothing
  std::string base;        // time base of a kernel row: NKB, KDA, PROF, device
  std::string open;        // why the description leaves the schedule open; such rows do not count
  std::string error_text;  // the replay failed
  bool kernel = false;
  bool predicted_any = false;
  std::string unit = "ns";
  double measured = 0, predicted = 0, error = 0;
  bool inside = true;  // of the published range, where there is one
  std::vector<std::string> sets;
  // Kernels: busy time of tensor, vector, scalar, gpsimd, DMA and the launch, as shares of the time of a launch.
  std::array<double, 6> shares{};
};

// One family of rows with the parameters that its rows set taken from elsewhere.
struct LeftOut {
  std::string family, overrides, source;
  std::vector<Outcome> rows;
};

class Collection {
 public:
  // Reads rows.json, kernel_rows.json and programs/ of the folder.
  explicit Collection(std::string directory);
  // Replays the rows whose id begins with `only` (all when empty). family: only this one.
  std::vector<Outcome> replay(const config::Config& config, const std::string& only,
                              const std::string& family = "") const;
  std::vector<LeftOut> leave_families_out(const config::Config& config) const;
  const boost::json::value& not_reproduced() const { return instructions_.at("not_reproduced"); }

 private:
  std::string directory_;
  boost::json::value instructions_, kernels_;
};

}  // namespace trnsim::fidelity
