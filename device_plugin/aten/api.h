// What the Python module calls, in plain C++: the module needs no ATen headers.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace trnsim::aten {
struct Interpreter;
}

namespace trnsim::aten::api {

// configuration and reports
void configure(const std::string& config, const std::string& overrides, const std::string& mode,
               const std::string& check);
std::string runtime_report_json();  // "" before the first use of the device
std::string config_json();
void reset_report();
int64_t simulated_ps(int device);  // -1: current device. 0 before the first use
struct Fallback {
  std::string op, reason;
  uint64_t count;
};
std::vector<Fallback> fallbacks();
struct Caches {
  uint64_t hits, misses, compiles, disk_hits, compile_us;
};
Caches caches();
std::vector<std::string> lowered_ops();

// progress of waits
struct Progress {
  double wait_s;     // 0: no thread waits
  uint64_t entries;  // operators still to be executed
  int64_t simulated_ps;
};
Progress progress();
void watch_waits(void (*ended)());

// op tracking
void clear_op_tracking();
std::vector<std::string> executed_ops();
std::vector<std::string> fallback_ops();

// device
int device_count();
std::string device_problem();  // why there is no device; empty when there is one
void set_interpreter(const Interpreter* interpreter);
bool is_initialized();
bool in_bad_fork();
void init();
void shutdown();
int current_device();
void set_device(int device);
int exchange_device(int device);
void synchronize(int device);
int64_t hbm_bytes(int device);
std::string target();

// memory
std::vector<std::pair<std::string, int64_t>> memory_stats(int device);  // flattened names
void empty_cache();
void reset_peak_memory_stats(int device);
void reset_accumulated_memory_stats(int device);
std::pair<int64_t, int64_t> mem_get_info(int device);  // free, total

// random numbers: the state is (seed, offset)
void manual_seed(int device, uint64_t seed);
uint64_t seed(int device);
uint64_t initial_seed(int device);
std::pair<uint64_t, uint64_t> rng_state(int device);
void set_rng_state(int device, uint64_t seed, uint64_t offset);

}  // namespace trnsim::aten::api
