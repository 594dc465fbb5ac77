#include "sim/driver/faults.h"

#include <charconv>
#include <iterator>

namespace trnsim::driver {

namespace {
const char* const kNames[] = {
    "memory_alloc", "dma_wait",  "core_map",        "hang",        "hbm_ue", "hbm_repairable_ue",
    "nc_ue",        "dma_abort", "numerical_error", "nq_overflow",
};
static_assert(std::size(kNames) == static_cast<size_t>(Fault::kCount));

bool to_int(const std::string& text, int* out) {
  const auto r = std::from_chars(text.data(), text.data() + text.size(), *out);
  return r.ec == std::errc() && r.ptr == text.data() + text.size() && *out >= 0;
}
}  // namespace

const char* fault_name(Fault fault) { return kNames[static_cast<int>(fault)]; }

void Faults::arm(Fault fault, int count, int skip) {
  skip_[static_cast<int>(fault)] = skip;
  count_[static_cast<int>(fault)] = count;
  any_ = true;
}

void Faults::clear() {
  any_ = false;
  for (auto& c : count_) c = 0;
}

bool Faults::hit_armed(Fault fault) {
  const int i = static_cast<int>(fault);
  int left = count_[i].load();
  if (left <= 0) return false;
  for (int skip = skip_[i].load(); skip > 0;)
    if (skip_[i].compare_exchange_weak(skip, skip - 1)) return false;
  while (left > 0)
    if (count_[i].compare_exchange_weak(left, left - 1)) return true;
  return false;
}

Status Faults::parse(const std::string& text) {
  for (size_t begin = 0; begin < text.size();) {
    size_t end = text.find(',', begin);
    if (end == std::string::npos) end = text.size();
    std::string item = text.substr(begin, end - begin);
    begin = end + 1;
    int number[2] = {1, 0};
    const size_t colon = item.find(':');
    std::string rest = colon == std::string::npos ? "" : item.substr(colon + 1);
    item = item.substr(0, colon);
    for (int i = 0; i < 2 && !rest.empty(); ++i) {
      const size_t next = rest.find(':');
      if (!to_int(rest.substr(0, next), &number[i]))
        return {Code::kInvalid, "user error: fault '" + item + "': '" + rest + "' is not count[:skip]"};
      rest = next == std::string::npos ? "" : rest.substr(next + 1);
    }
    bool found = false;
    for (int f = 0; f < static_cast<int>(Fault::kCount); ++f) {
      if (item != kNames[f]) continue;
      arm(static_cast<Fault>(f), number[0], number[1]);
      found = true;
    }
    if (!found) {
      std::string all;
      for (const char* n : kNames) all += std::string(all.empty() ? "" : ", ") + n;
      return {Code::kInvalid, "user error: no fault is named '" + item + "'; the names are " + all};
    }
  }
  return {};
}

}  // namespace trnsim::driver
