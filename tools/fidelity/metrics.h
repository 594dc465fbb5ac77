// What a row of the measurement collection means on a simulated trace.
#pragma once

#include <boost/json.hpp>
#include <optional>
#include <string>

#include "sim/chip/simulator.h"

namespace trnsim::fidelity {

// The metric in nanoseconds, or nothing with the reason in *error.
std::optional<double> evaluate(const boost::json::object& metric, const chip::Trace& trace,
                               const config::Config& config, std::string* error);

}  // namespace trnsim::fidelity
