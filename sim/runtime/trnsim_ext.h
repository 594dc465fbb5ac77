/* What libnrt.so.1 offers beyond the public nrt C ABI: configuration, simulated time, reports. Plain C.
 * Every function that returns int gives an NRT_STATUS value; text results are owned by the library and valid
 * until the next call of the same function on the same thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Before nrt_init. NULL keeps what an earlier call or the environment (TRNSIM_CONFIG, TRNSIM_SET,
 * TRNSIM_MODE, TRNSIM_CHECK) says; an empty text goes back to the environment. config: a name (trn2, trn3) or a
 * file; overrides: "a.b=1,c.d=2"; mode: "both", "data", "time"; check: "pedantic", "strict", "warn", "off". Returns
 * NRT_INVALID with the reason in trnsim_last_error(). */
int trnsim_configure(const char* config, const char* overrides, const char* mode, const char* check);

/* Text of the newest error on this thread: class, what, where, limit, next step. Never NULL. */
const char* trnsim_last_error(void);

/* Simulated time of the logical core's compute queue since nrt_init, picoseconds. */
int64_t trnsim_simulated_ps(uint32_t vnc);

/* The report of design section 7 as JSON (without the parts only the framework knows: fallbacks, plan
 * caches). Whole also before nrt_init; "{}" after nrt_close, and when the configuration is refused. */
const char* trnsim_report_json(void);
void trnsim_reset_report(void);

/* Simulated duration and instruction count of the newest completed nrt_execute of this model; 0 before the
 * first. */
int64_t trnsim_model_last_ps(const void* model);
int64_t trnsim_model_instructions(const void* model);

/* Configuration as JSON, for the CLI: every key with value, unit, range, default, origin, band. */
const char* trnsim_config_json(void);

/* HBM of one logical core in bytes; usable before nrt_init. */
uint64_t trnsim_hbm_bytes(uint32_t vnc);

#ifdef __cplusplus
}
#endif
