// Core ownership between processes: one shared file per machine, one record lock per physical core. The
// kernel drops the locks of a process that dies, however it dies, so a claim never outlives its owner.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/driver/status.h"

namespace trnsim::driver {

constexpr int kMaxCores = 512;  // 64 devices of 8 cores

struct ClaimOwner {
  int32_t pid = 0;
  std::string tag;
};

class ClaimTable {
 public:
  ClaimTable() = default;
  ClaimTable(const ClaimTable&) = delete;
  ClaimTable& operator=(const ClaimTable&) = delete;
  ~ClaimTable();

  // Opens or creates `directory`/claims. A file left by an older release is replaced when nobody holds a
  // core.
  Status open(const std::string& directory, int cores);

  // Claims cores first..first+count-1, all or none.
  Status claim_range(int first, int count, const std::string& tag);
  // Claims the first run of `count` free cores that starts at a multiple of `alignment`.
  Status claim_free(int count, int alignment, const std::string& tag, int* first);
  void release_all();

  const std::vector<int>& held() const { return held_; }
  int free_cores() const;                       // not held by another process
  bool owner(int core, ClaimOwner* out) const;  // of another process

 private:
  struct Block;
  Status lock_core(int core, const std::string& tag);
  void unlock_core(int core);

  int fd_ = -1;
  Block* block_ = nullptr;
  int cores_ = 0;
  std::vector<int> held_;
};

}  // namespace trnsim::driver
