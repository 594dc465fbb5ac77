#include "sim/check/watcher.h"

#include <algorithm>

#include "sim/check/checker.h"

namespace trnsim::check {
namespace {

using Status = chip::LaunchResult::Status;

Status status_of(const Finding& f) {
  if (f.kind == Kind::kOutOfBounds) return Status::kOutOfBounds;
  return f.error_class == isa::ErrorClass::kIllegalOnHardware ? Status::kIllegal
         : f.error_class == isa::ErrorClass::kNotSimulated    ? Status::kNotSimulated
                                                              : Status::kUserError;
}

// Tensors that share memory with one that is written form a group; the others are alone.
std::vector<TensorPlace> places_of(const std::vector<chip::TensorInfo>& tensors,
                                   const std::vector<chip::Binding>& bindings) {
  struct Span {
    uint64_t begin, end;
    uint32_t tensor;
  };
  std::vector<Span> spans;
  std::vector<TensorPlace> places(tensors.size());
  const auto written = [&](uint32_t t) {
    const auto kind = static_cast<isa::TensorKind>(tensors[t].kind);
    return kind == isa::TensorKind::kOutput || kind == isa::TensorKind::kScratch;
  };
  for (uint32_t t = 0; t < tensors.size(); ++t) {
    places[t] = {t, 0, 0};
    if (written(t))
      places[t].initialised = static_cast<int64_t>(std::min(bindings[t].initialised, bindings[t].bytes));
    const chip::Binding& b = bindings[t];
    const uint64_t at = b.data != nullptr ? reinterpret_cast<uint64_t>(b.data) : b.device_address;
    if (at != 0 && tensors[t].bytes > 0) spans.push_back({at, at + tensors[t].bytes, t});
  }
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
  for (size_t first = 0; first < spans.size();) {
    uint64_t end = spans[first].end;
    bool any_written = written(spans[first].tensor);
    size_t last = first + 1;
    for (; last < spans.size() && spans[last].begin < end; ++last) {
      end = std::max(end, spans[last].end);
      any_written = any_written || written(spans[last].tensor);
    }
    for (size_t s = first; any_written && s < last; ++s) {
      TensorPlace& place = places[spans[s].tensor];
      place.group = spans[first].tensor;
      place.base = static_cast<int64_t>(spans[s].begin - spans[first].begin);
    }
    first = last;
  }
  return places;
}

class CheckedRun : public chip::WatchedRun {
 public:
  CheckedRun(const isa::Program& program, Options options, Level level)
      : checker_(program, std::move(options)), level_(level) {}

  chip::Observer* observer() override { return &checker_; }

  chip::Verdict verdict(bool complete) override {
    Report report = checker_.finish(complete);
    chip::Verdict v;
    v.sbuf_bytes = report.sbuf_high_water;
    v.psum_bytes = report.psum_high_water;
    if (!report.unchecked.empty()) v.warnings.push_back(report.unchecked);
    for (const Finding& f : report.findings) v.depends_on_indices = v.depends_on_indices || f.about_indices;
    const auto fault = std::find_if(report.findings.begin(), report.findings.end(),
                                    [](const Finding& f) { return !is_advice(f.kind); });
    if (level_ >= Level::kStrict && complete && fault != report.findings.end()) {
      v.status = status_of(*fault);
      v.message = fault->message;
      const size_t more = report.findings.size() - 1;
      if (more > 0) v.message += ". " + std::to_string(more) + " more with --check warn";
      return v;
    }
    for (Finding& f : report.findings) v.warnings.push_back(std::move(f.message));
    return v;
  }

 private:
  Checker checker_;
  const Level level_;
};

class CheckWatcher : public chip::Watcher {
 public:
  CheckWatcher(Level level, const config::Config& config) : level_(level), options_(options_of(config)) {
    options_.counts_by_engine = level == Level::kPedantic;
  }

  uint64_t arrangement(const std::vector<chip::TensorInfo>& tensors,
                       const std::vector<chip::Binding>& bindings) const override {
    uint64_t hash = 0;  // of tensors that are alone and hold nothing
    const auto places = places_of(tensors, bindings);
    for (uint64_t t = 0; t < places.size(); ++t) {
      const TensorPlace& place = places[t];
      if (place.group == t && place.base == 0 && place.initialised == 0) continue;
      for (const uint64_t v : {t, uint64_t{place.group}, static_cast<uint64_t>(place.base),
                               static_cast<uint64_t>(place.initialised)})
        hash = (hash ^ v) * 0x9e3779b97f4a7c15u + 1;
    }
    return hash;
  }

  std::unique_ptr<chip::WatchedRun> watch(const isa::Program& program,
                                          const std::vector<chip::TensorInfo>& tensors,
                                          const std::vector<chip::Binding>& bindings) const override {
    Options options = options_;
    options.tensors = places_of(tensors, bindings);
    return std::make_unique<CheckedRun>(program, std::move(options), level_);
  }

 private:
  const Level level_;
  Options options_;
};

}  // namespace

std::shared_ptr<chip::Watcher> make_watcher(Level level, const config::Config& config) {
  if (level == Level::kOff) return nullptr;
  return std::make_shared<CheckWatcher>(level, config);
}

}  // namespace trnsim::check
