#include "tools/fidelity/summary.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>

namespace trnsim::fidelity {
namespace {

std::string joined(const std::vector<std::string>& list) {
  std::string out;
  for (const std::string& s : list) out += (out.empty() ? "" : ", ") + s;
  return out;
}

boost::json::object json_of(const Errors& e) {
  return {{"rows", e.rows}, {"median_error", e.median}, {"mean_error", e.mean}, {"max_error", e.worst}};
}

bool instruction(const Outcome& o) { return counts(o) && !o.kernel; }
bool held_out(const Outcome& o) { return instruction(o) && o.sets.empty(); }
bool kernel(const Outcome& o) { return counts(o) && o.kernel; }
bool blind_kernel(const Outcome& o) { return kernel(o) && o.sets.empty(); }

std::vector<std::string> families(const std::vector<Outcome>& rows) {
  std::vector<std::string> out;
  for (const Outcome& o : rows) {
    if (std::find(out.begin(), out.end(), o.family) == out.end()) out.push_back(o.family);
  }
  return out;
}

std::vector<Outcome> of_family(const std::vector<Outcome>& rows, const std::string& family) {
  std::vector<Outcome> out;
  for (const Outcome& o : rows) {
    if (o.family == family) out.push_back(o);
  }
  return out;
}

std::set<std::string> parameters(const std::vector<Outcome>& rows) {
  std::set<std::string> out;
  for (const Outcome& o : rows) {
    if (counts(o)) out.insert(o.sets.begin(), o.sets.end());
  }
  return out;
}

}  // namespace

bool counts(const Outcome& o) { return o.predicted_any && o.open.empty(); }

Errors errors_of(const std::vector<Outcome>& rows, bool (*take)(const Outcome&)) {
  std::vector<double> v;
  for (const Outcome& o : rows) {
    if (take(o)) v.push_back(std::fabs(o.error));
  }
  Errors e;
  e.rows = v.size();
  if (v.empty()) return e;
  std::sort(v.begin(), v.end());
  const size_t n = v.size();
  e.median = n % 2 != 0 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
  for (double x : v) e.mean += x / static_cast<double>(n);
  e.worst = v.back();
  return e;
}

Ranks ranks_of(const std::vector<Outcome>& rows, double tolerance) {
  Ranks r;
  for (size_t a = 0; a < rows.size(); ++a) {
    for (size_t b = a + 1; b < rows.size(); ++b) {
      const Outcome &x = rows[a], &y = rows[b];
      if (!counts(x) || !counts(y) || x.group.empty() || x.group != y.group) continue;
      if (std::fabs(x.measured - y.measured) <= tolerance * std::min(x.measured, y.measured)) continue;
      ++r.pairs;
      if ((x.measured < y.measured) == (x.predicted < y.predicted)) {
        ++r.right;
      } else {
        r.wrong.emplace_back(x.measured < y.measured ? &x : &y, x.measured < y.measured ? &y : &x);
      }
    }
  }
  return r;
}

boost::json::object to_json(const std::vector<Outcome>& all, const std::vector<LeftOut>& left_out,
                            const Collection& collection, const config::Config& config) {
  boost::json::object root;
  root["schema_version"] = 2;
  root["config"] = config.name;
  root["overrides"] = config.overrides;
  boost::json::array rows;
  int failed = 0;
  for (const Outcome& o : all) {
    boost::json::object r;
    r["id"] = o.id;
    r["what"] = o.what;
    r["quality"] = o.quality;
    r["kind"] = o.kernel ? "kernel" : "instruction";
    r["family"] = o.family;
    if (!o.group.empty()) r["group"] = o.group;
    if (!o.base.empty()) r["base"] = o.base;
    r["unit"] = o.unit;
    r["measured"] = o.measured;
    if (o.predicted_any) {
      r["predicted"] = o.predicted;
      r["error"] = o.error;
      r["inside_published_range"] = o.inside;
    }
    if (!o.open.empty()) r["open"] = o.open;
    if (!o.error_text.empty()) {
      r["failed"] = o.error_text;
      ++failed;
    }
    r["sets"] = boost::json::value_from(o.sets);
    rows.push_back(std::move(r));
  }
  root["rows"] = std::move(rows);
  root["instructions"] = json_of(errors_of(all, instruction));
  root["instructions_held_out"] = json_of(errors_of(all, held_out));
  root["kernels"] = json_of(errors_of(all, kernel));
  root["kernels_blind"] = json_of(errors_of(all, blind_kernel));
  boost::json::array per_family;
  for (const std::string& f : families(all)) {
    const std::vector<Outcome> part = of_family(all, f);
    boost::json::object o = json_of(errors_of(part, counts));
    o["family"] = f;
    o["kind"] = part.front().kernel ? "kernel" : "instruction";
    o["parameters"] = boost::json::value_from(parameters(part));
    if (part.front().kernel) {
      std::array<double, 6> shares{};
      double n = 0;
      for (const Outcome& r : part) {
        if (!counts(r)) continue;
        ++n;
        for (size_t s = 0; s < shares.size(); ++s) shares[s] += r.shares[s];
      }
      boost::json::array mean;
      for (double s : shares) mean.push_back(n > 0 ? s / n : 0.0);
      o["shares"] = std::move(mean);
    }
    for (const LeftOut& l : left_out) {
      if (l.family != f) continue;
      o["left_out"] = json_of(errors_of(l.rows, counts));
      o["left_out_source"] = l.source;
      o["left_out_fitted_on"] = l.fitted_on;
      boost::json::array refitted;
      for (const Refitted& p : l.parameters) {
        refitted.push_back(
            {{"key", p.key}, {"full", p.full}, {"source", p.source}, {"fitted", p.fitted}, {"rows", p.rows}});
      }
      o["left_out_parameters"] = std::move(refitted);
    }
    per_family.push_back(std::move(o));
  }
  root["families"] = std::move(per_family);
  const std::set<std::string> fitted = parameters(all);
  root["parameters"] = boost::json::value_from(fitted);
  const Ranks strict = ranks_of(all, 0), clear = ranks_of(all, kRankTolerance),
              beyond = ranks_of(all, kStatedSpread);
  root["ranks"] = {{"pairs", clear.pairs},         {"right", clear.right},
                   {"tolerance", kRankTolerance},  {"stated_spread", kStatedSpread},
                   {"beyond_pairs", beyond.pairs}, {"beyond_right", beyond.right},
                   {"all_pairs", strict.pairs},    {"all_right", strict.right}};
  boost::json::array wrong;
  for (const auto& [fast, slow] : clear.wrong) {
    wrong.push_back({{"group", fast->group},
                     {"fast", fast->what},
                     {"slow", slow->what},
                     {"measured_ratio", slow->measured / fast->measured},
                     {"predicted_ratio", slow->predicted / fast->predicted}});
  }
  root["wrong_pairs"] = std::move(wrong);
  root["failed"] = failed;
  root["not_reproduced"] = collection.not_reproduced();
  boost::json::array audit;
  for (const Audited& a : collection.audit()) {
    audit.push_back({{"id", a.id},
                     {"quality", a.quality},
                     {"values", a.values},
                     {"replayed", a.replayed},
                     {"open", a.open},
                     {"listed", a.listed},
                     {"complete", a.complete()}});
  }
  root["audit"] = std::move(audit);
  return root;
}

void print(const std::vector<Outcome>& all, const std::vector<LeftOut>& left_out) {
  std::printf("%-6s %-1s %-14s %-58s %12s %12s %7s  %s\n", "row", "q", "family", "what", "measured", "model",
              "error", "sets");
  for (const Outcome& o : all) {
    std::printf("%-6s %-1s %-14s %-58s %12.1f ", o.id.c_str(), o.quality.c_str(), o.family.c_str(),
                o.what.c_str(), o.measured);
    if (!o.error_text.empty()) {
      std::printf("failed: %s\n", o.error_text.c_str());
    } else if (!o.predicted_any) {
      std::printf("%12s %7s  open: %s\n", "-", "-", o.open.c_str());
    } else {
      std::printf("%12.1f %+6.1f%%  %s%s\n", o.predicted, o.error * 100, joined(o.sets).c_str(),
                  o.open.empty() ? "" : (" open: " + o.open).c_str());
    }
  }
  std::printf("\n%-16s %5s %8s %8s %8s %10s\n", "family", "rows", "median", "mean", "largest", "left out");
  for (const std::string& f : families(all)) {
    const Errors e = errors_of(of_family(all, f), counts);
    std::printf("%-16s %5zu %7.2f%% %7.2f%% %7.1f%%", f.c_str(), e.rows, e.median * 100, e.mean * 100,
                e.worst * 100);
    for (const LeftOut& l : left_out) {
      if (l.family == f) std::printf(" %9.2f%%", errors_of(l.rows, counts).mean * 100);
    }
    std::printf("\n");
  }
  const Errors one = errors_of(all, instruction), held = errors_of(all, held_out),
               big = errors_of(all, kernel), blind = errors_of(all, blind_kernel);
  std::printf(
      "\ninstructions and DMA: %zu rows, median %.2f %%, mean %.2f %%, largest %.1f %%; the %zu that set no "
      "parameter: median %.2f %%\n",
      one.rows, one.median * 100, one.mean * 100, one.worst * 100, held.rows, held.median * 100);
  std::printf(
      "kernels: %zu rows, median %.2f %%, mean %.2f %%, largest %.1f %%; the %zu that set no parameter: "
      "mean %.2f %%\n",
      big.rows, big.median * 100, big.mean * 100, big.worst * 100, blind.rows, blind.mean * 100);
  const Ranks strict = ranks_of(all, 0), clear = ranks_of(all, kRankTolerance),
              beyond = ranks_of(all, kStatedSpread);
  std::printf(
      "rank order of variants: %d of %d pairs that differ by more than %.0f %%, %d of %d beyond the stated "
      "spread of %.0f %%, %d of all %d\n",
      clear.right, clear.pairs, kRankTolerance * 100, beyond.right, beyond.pairs, kStatedSpread * 100,
      strict.right, strict.pairs);
  std::printf("%zu parameters set by %zu rows; listed without counting, schedule open: %zd\n",
              parameters(all).size(), one.rows + big.rows,
              std::count_if(all.begin(), all.end(), [](const Outcome& o) { return !o.open.empty(); }));
}

}  // namespace trnsim::fidelity
