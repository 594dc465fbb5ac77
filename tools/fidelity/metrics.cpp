#include "tools/fidelity/metrics.h"

#include <algorithm>

#include "sim/cost/cost.h"

namespace trnsim::fidelity {
namespace {

using chip::Trace;

int64_t number(const boost::json::object& o, const char* key, int64_t fallback = 0) {
  const auto* v = o.if_contains(key);
  return v != nullptr ? v->to_number<int64_t>() : fallback;
}

const chip::InstructionSpan* find(const Trace& trace, std::string_view engine, int64_t index, int64_t part) {
  static constexpr std::string_view kNames[] = {"tensor", "vector", "scalar", "gpsimd", "sync"};
  for (const auto& s : trace.instructions) {
    if (kNames[static_cast<size_t>(s.engine)] == engine && s.index == index && s.part == part) return &s;
  }
  return nullptr;
}

// Packets of one transfer in the order of their engines.
std::vector<chip::PacketSpan> packets(const Trace& trace, int64_t transfer) {
  std::vector<chip::PacketSpan> out;
  for (const auto& p : trace.packets) {
    if (p.transfer == transfer) out.push_back(p);
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) {
    return a.engine != b.engine ? a.engine < b.engine : a.start < b.start;
  });
  return out;
}

}  // namespace

std::optional<double> evaluate(const boost::json::object& metric, const Trace& trace,
                               const config::Config& config, std::string* error) {
  const std::string kind(metric.at("kind").as_string());
  const auto text = [&](const char* key) -> std::string_view {
    const auto* v = metric.if_contains(key);
    return v != nullptr ? std::string_view(v->as_string()) : std::string_view();
  };
  const auto span = [&](const char* engine, const char* index, const char* part) {
    const auto* s = find(trace, text(engine), number(metric, index), number(metric, part));
    if (s == nullptr)
      *error = "no instruction " + std::to_string(number(metric, index)) + " on " +
               std::string(text(engine)) + " in the trace";
    return s;
  };
  const auto ns = [](chip::Ps ps) { return static_cast<double>(ps) / 1000.0; };

  if (kind == "duration") {
    const auto* s = span("engine", "index", "part");
    if (s == nullptr) return std::nullopt;
    return ns(s->end - s->start);
  }
  if (kind == "interval") {
    const auto* a = span("engine", "index", "part");
    const auto* b = span("engine", "to", "part_to");
    if (a == nullptr || b == nullptr) return std::nullopt;
    return ns(b->start - a->start);
  }
  if (kind == "hop") {
    const auto* a = span("engine", "index", "part");
    const auto* b = span("to_engine", "to", "part_to");
    if (a == nullptr || b == nullptr) return std::nullopt;
    return ns(b->start - a->end);
  }

  const int64_t number_of_transfer = number(metric, "transfer");
  if (number_of_transfer < 0 || static_cast<size_t>(number_of_transfer) >= trace.transfers.size()) {
    *error = "no transfer " + std::to_string(number_of_transfer) + " in the trace";
    return std::nullopt;
  }
  const auto& transfer = trace.transfers[static_cast<size_t>(number_of_transfer)];
  const auto parts = packets(trace, number_of_transfer);
  if (parts.empty()) {
    *error = "the transfer moved no packet";
    return std::nullopt;
  }
  chip::Ps data_end = 0;
  for (const auto& p : parts) data_end = std::max(data_end, p.end);

  if (kind == "packet") return ns(parts[0].end - parts[0].start);
  if (kind == "first_packet") return ns(transfer.first_packet - transfer.trigger);
  if (kind == "first_descriptor") return ns(parts[0].end - transfer.first_packet);
  if (kind == "acknowledge") return ns(transfer.complete - data_end);
  if (kind == "engine_spacing") {
    if (parts.size() < 2) {
      *error = "the transfer uses one engine";
      return std::nullopt;
    }
    return ns(parts.back().end - parts.front().end) / static_cast<double>(parts.size() - 1);
  }
  if (kind == "ring_event") {
    const auto& trigger = *std::find_if(
        trace.instructions.begin(), trace.instructions.end(),
        [&](const auto& s) { return s.engine == transfer.engine && s.index == transfer.index; });
    return ns(transfer.first_packet - trigger.end);
  }
  if (kind == "transfer_spacing")
    return ns(transfer.first_packet -
              trace.transfers[static_cast<size_t>(number_of_transfer - 1)].first_packet);
  if (kind == "all_complete") {
    chip::Ps last = 0;
    for (const auto& t : trace.transfers) last = std::max(last, t.complete);
    return ns(last + cost::ps(config.semaphore.visible_ns) - transfer.trigger);
  }
  if (kind == "completion_hop") {
    const auto* b = span("to_engine", "to", "part_to");
    if (b == nullptr) return std::nullopt;
    return ns(b->start - transfer.complete - cost::ps(config.semaphore.visible_ns));
  }
  *error = "unknown metric '" + kind + "'";
  return std::nullopt;
}

}  // namespace trnsim::fidelity
