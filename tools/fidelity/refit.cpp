#include "tools/fidelity/refit.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>

#include "tools/fidelity/summary.h"

namespace trnsim::fidelity {
namespace {

// Spread of a row. What a description leaves open moves all kernels of one family together: their common error is one
// more unknown of the fit, and says nothing about a parameter unless it is larger than kFamilySpread.
constexpr double kInstructionSpread = 0.01, kKernelSpread = 0.03, kFamilySpread = 0.06;
// The other source is one more observation of its parameter, and a weak one.
constexpr double kSourceSpread = 0.3;
// A row depends on a parameter when a tenth of the parameter moves it by at least so much.
constexpr double kStep = 0.1, kDependence = 1e-3;
// Longer kernels are predicted but not fitted on: the fit replays its rows some hundred times.
constexpr double kLongestFittedNs = 5e6;
constexpr int kRounds = 2;

using Values = std::map<std::string, double>;

std::string text_of(double v) {
  std::ostringstream s;
  s.precision(12);
  s << v;
  return s.str();
}

config::Config with(const config::Config& base, const Values& values) {
  config::Config c = base;
  std::string error;
  for (const auto& [key, value] : values) {
    if (!config::set(c, key, text_of(value), &error)) throw std::runtime_error(key + ": " + error);
  }
  return c;
}

// Solves a x = b for a small symmetric positive matrix.
std::vector<double> solve(std::vector<std::vector<double>> a, std::vector<double> b) {
  const size_t n = b.size();
  for (size_t i = 0; i < n; ++i) {
    size_t pivot = i;
    for (size_t r = i + 1; r < n; ++r) {
      if (std::fabs(a[r][i]) > std::fabs(a[pivot][i])) pivot = r;
    }
    std::swap(a[i], a[pivot]);
    std::swap(b[i], b[pivot]);
    for (size_t r = i + 1; r < n; ++r) {
      const double f = a[r][i] / a[i][i];
      for (size_t c = i; c < n; ++c) a[r][c] -= f * a[i][c];
      b[r] -= f * b[i];
    }
  }
  for (size_t i = n; i-- > 0;) {
    for (size_t c = i + 1; c < n; ++c) b[i] -= a[i][c] * b[c];
    b[i] /= a[i][i];
  }
  return b;
}

class Fit {
 public:
  Fit(const Collection& collection, const config::Config& config, const std::vector<Outcome>& full,
      std::vector<size_t> rows)
      : collection_(collection), config_(config), rows_(std::move(rows)) {
    std::map<std::string, int> number;
    for (size_t r : rows_) {
      spread_.push_back(full[r].kernel ? kKernelSpread : kInstructionSpread);
      family_.push_back(full[r].kernel ? number.emplace(full[r].family, number.size()).first->second : -1);
    }
    families_ = number.size();
  }

  // Relative errors of the rows at the given values.
  std::vector<double> errors(const Values& values) const {
    std::vector<double> out;
    for (const Outcome& o : collection_.replay_rows(with(config_, values), rows_)) {
      if (!o.error_text.empty()) throw std::runtime_error(o.id + ": " + o.error_text);
      out.push_back(o.error);
    }
    return out;
  }

  // Gauss-Newton from the source values, which `values` holds. In the first round parameters that no row depends on
  // leave `free` and keep theirs; `dependent` counts the rows of each.
  void run(const Values& source, std::vector<std::string> free,
           const std::map<std::string, std::pair<double, double>>& limits, Values* values,
           std::map<std::string, size_t>* dependent) const {
    for (int round = 0; round < kRounds && !free.empty(); ++round) {
      const std::vector<double> now = errors(*values);
      std::vector<std::vector<double>> slope;
      std::vector<std::string> determined;
      for (const std::string& key : free) {
        Values moved = *values;
        moved[key] *= 1 + kStep;
        std::vector<double> e = errors(moved);
        size_t rows = 0;
        for (size_t r = 0; r < now.size(); ++r) {
          rows += std::fabs(e[r] - now[r]) >= kDependence;
          e[r] = (e[r] - now[r]) / kStep;
        }
        if (round == 0) (*dependent)[key] = rows;
        if (rows == 0) continue;
        determined.push_back(key);
        slope.push_back(std::move(e));
      }
      free = determined;
      // Unknowns: relative changes of the parameters, then the common errors of the kernel families. A row far off
      // says little more than one at three spreads.
      const size_t n = free.size(), all = n + families_;
      std::vector<std::vector<double>> a(all, std::vector<double>(all, 0));
      std::vector<double> b(all, 0);
      for (size_t r = 0; r < now.size(); ++r) {
        double weight = 1 / (spread_[r] * spread_[r]);
        weight *= std::min(1.0, 3 * spread_[r] / std::max(std::fabs(now[r]), 1e-9));
        const auto of = [&](size_t i) {
          return i < n ? slope[i][r] : static_cast<int>(i - n) == family_[r] ? -1.0 : 0.0;
        };
        for (size_t i = 0; i < all; ++i) {
          b[i] -= weight * of(i) * now[r];
          for (size_t j = 0; j < all; ++j) a[i][j] += weight * of(i) * of(j);
        }
      }
      for (size_t f = n; f < all; ++f) a[f][f] += 1 / (kFamilySpread * kFamilySpread);
      for (size_t i = 0; i < n; ++i) {
        const double v = values->at(free[i]), s = source.at(free[i]);
        const double scale = v / (kSourceSpread * (s != 0 ? s : v));
        a[i][i] += scale * scale;
        b[i] -= scale * (v - s) / (kSourceSpread * (s != 0 ? s : v));
      }
      const std::vector<double> step = solve(a, b);
      for (size_t i = 0; i < n; ++i) {
        const auto& [low, high] = limits.at(free[i]);
        double& v = (*values)[free[i]];
        v = std::clamp(v * (1 + std::clamp(step[i], -0.5, 1.0)), low, high);
      }
    }
  }

 private:
  const Collection& collection_;
  const config::Config& config_;
  std::vector<size_t> rows_;
  std::vector<double> spread_;
  std::vector<int> family_;  // of a kernel row; -1 for others
  size_t families_ = 0;
};

LeftOut leave_out(const Collection& collection, const config::Config& config,
                  const std::vector<Outcome>& full, const Source& source) {
  LeftOut out;
  out.family = source.family;
  out.source = source.source;
  std::set<std::string> keys;
  std::vector<size_t> own, others;
  for (size_t r = 0; r < full.size(); ++r) {
    if (!counts(full[r])) continue;
    if (full[r].family == source.family) {
      own.push_back(r);
      keys.insert(full[r].sets.begin(), full[r].sets.end());
    } else if (full[r].unit == "ns" && (!full[r].kernel || full[r].predicted <= kLongestFittedNs)) {
      others.push_back(r);
    }
  }
  out.fitted_on = others.size();
  std::map<std::string, double> present;
  std::map<std::string, std::pair<double, double>> limits;
  std::set<std::string> fixed;  // documented values, and counts, which are structure
  for (const config::ParameterInfo& p : config::describe(config)) {
    if (p.is_text || keys.count(p.key) == 0) continue;
    present[p.key] = std::stod(p.value);
    limits[p.key] = {p.min, p.max};
    config::Config c = config;
    std::string error;
    if (p.origin == config::Origin::kDocument ||
        !config::set(c, p.key, text_of(present[p.key] + 0.5), &error)) {
      fixed.insert(p.key);
    }
  }
  Values start;
  for (const std::string& key : keys) {
    const auto s = source.values.find(key);
    if (s == source.values.end()) {
      throw std::runtime_error("sources, family " + source.family + ": no value for " + key);
    }
    start[key] = s->second;
  }
  std::vector<std::string> free;
  Values values = start;
  for (auto& [key, value] : values) {
    if (fixed.count(key) != 0) continue;
    free.push_back(key);
    if (value == 0) value = present.at(key) * kStep;  // a zero cannot be moved by a factor
  }
  const Fit fit(collection, config, full, others);
  std::map<std::string, size_t> dependent;
  fit.run(start, free, limits, &values, &dependent);
  for (auto& [key, value] : values) {
    if (dependent[key] == 0) value = start.at(key);
  }
  for (const auto& [key, value] : values)
    out.parameters.push_back({key, present.at(key), start.at(key), value, dependent[key]});
  out.rows = collection.replay_rows(with(config, values), own);
  return out;
}

}  // namespace

std::vector<LeftOut> leave_families_out(const Collection& collection, const config::Config& config,
                                        const std::function<void(const std::string&)>& progress) {
  const std::vector<Outcome> full = collection.replay(config, "");
  std::vector<LeftOut> out;
  for (const Source& s : collection.sources()) {
    progress(s.family);
    out.push_back(leave_out(collection, config, full, s));
  }
  return out;
}

}  // namespace trnsim::fidelity
