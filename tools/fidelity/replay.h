// Rows of the measurement collection and their replay.
#pragma once

#include <array>
#include <boost/json.hpp>
#include <map>
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

// What other publications say about the parameters that the rows of one family set.
struct Source {
  std::string family, source;
  std::map<std::string, double> values;
};

// One row of the collection: its values are replayed, listed as open, or its id is among what is not reproduced.
struct Audited {
  std::string id, quality;
  int64_t values = 0;  // that the row gives
  int64_t replayed = 0, open = 0;
  bool listed = false;
  bool complete() const { return listed || replayed + open >= values; }
};

class Collection {
 public:
  // Reads rows.json, kernel_rows.json and programs/ of the folder.
  explicit Collection(std::string directory);
  // Replays the rows whose id begins with `only` (all when empty). family: only this one.
  std::vector<Outcome> replay(const config::Config& config, const std::string& only,
                              const std::string& family = "") const;
  // Rows by their place in what replay() returns for all of them.
  std::vector<Outcome> replay_rows(const config::Config& config, const std::vector<size_t>& rows) const;
  std::vector<Source> sources() const;
  // Every row of quality A and B of the collection.
  std::vector<Audited> audit() const;
  const boost::json::value& not_reproduced() const { return instructions_.at("not_reproduced"); }

 private:
  std::string directory_;
  boost::json::value instructions_, kernels_;
};

}  // namespace trnsim::fidelity
