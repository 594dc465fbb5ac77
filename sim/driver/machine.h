// Shape of the simulated machine, and its run directory: the files through which processes of one machine see
// each other (core claims, counters).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "sim/driver/status.h"

namespace trnsim::driver {

struct MachineSpec {
  int devices = 1;
  int cores_per_device = 8;   // physical
  int stacks_per_device = 4;  // HBM; neighbouring cores share a stack
  uint64_t bytes_per_stack = uint64_t{24} << 30;
  uint64_t firmware_bytes = uint64_t{16} << 20;   // bottom of each stack, never handed out
  uint64_t small_pool_bytes = uint64_t{1} << 30;  // top of each stack, for requests up to small_limit_bytes
  uint64_t small_limit_bytes = uint64_t{512} << 10;

  int cores() const { return devices * cores_per_device; }
  int stack_of_core(int core_of_device) const {
    return core_of_device * stacks_per_device / cores_per_device;
  }
};

// Address of a stack in its device's address space (trn2 and trn3 share the map).
uint64_t hbm_base_address(int stack);

// Which machine a process belongs to. A shared machine is one directory that several processes use; a private
// one belongs to one process and disappears with it.
class RunDirectory {
 public:
  RunDirectory() = default;
  RunDirectory(RunDirectory&& other) noexcept;
  RunDirectory& operator=(RunDirectory&& other) noexcept;
  ~RunDirectory();

  // `path` empty: the default under /dev/shm (or the temporary directory) of this user.
  static Status open_shared(const std::string& path, RunDirectory* out);
  static Status open_private(RunDirectory* out);

  const std::string& path() const { return path_; }
  bool is_private() const { return private_; }

 private:
  std::string path_;
  bool private_ = false;
  int lock_fd_ = -1;  // held while a private machine is alive, so that others can tell it from a stale one
};

// Removes what a regular, not a killed, process would have removed. Never touches anything in use.
void sweep_stale_machines(const std::string& base);

std::string default_run_base();

}  // namespace trnsim::driver
