/* The public nrt C ABI, in our own declarations: what libnrt.so.1 exports (126 functions). Plain C11.
 * Values of enums and sizes of structs match the published ABI; the asserts at the end hold them.
 *
 * Conventions: handles are opaque and never dereferenced by the caller; `vnc` is a logical core of this
 * process, counted from 0; sizes and offsets are bytes; a function may be called from any thread unless it
 * says otherwise. After a failure the text is in trnsim_last_error() (trnsim_ext.h). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NRT_MAJOR_VERSION 2
#define NRT_MINOR_VERSION 0

/* --- status
 * ------------------------------------------------------------------------------------------------------ */

typedef enum {
  NRT_SUCCESS = 0,
  NRT_FAILURE = 1,
  NRT_INVALID = 2,
  NRT_INVALID_HANDLE = 3,
  NRT_RESOURCE = 4,
  NRT_TIMEOUT = 5,
  NRT_HW_ERROR = 6,
  NRT_QUEUE_FULL = 7,
  NRT_LOAD_NOT_ENOUGH_NC = 9,
  NRT_UNSUPPORTED_NEFF_VERSION = 10,
  NRT_FAIL_HOST_MEM_ALLOC = 11,
  NRT_UNINITIALIZED = 13,
  NRT_CLOSED = 14,
  NRT_QUEUE_EMPTY = 15,
  NRT_EXEC_UNIT_UNRECOVERABLE = 101,
  NRT_EXEC_BAD_INPUT = 1002,
  NRT_EXEC_COMPLETED_WITH_NUM_ERR = 1003,
  NRT_EXEC_COMPLETED_WITH_ERR = 1004,
  NRT_EXEC_NC_BUSY = 1005,
  NRT_EXEC_OOB = 1006,
  NRT_COLL_PENDING = 1100,
  NRT_EXEC_HW_ERR_COLLECTIVES = 1200,
  NRT_EXEC_HW_ERR_HBM_UE = 1201,
  NRT_EXEC_HW_ERR_NC_UE = 1202,
  NRT_EXEC_HW_ERR_DMA_ABORT = 1203,
  NRT_EXEC_SW_NQ_OVERFLOW = 1204,
  NRT_EXEC_HW_ERR_REPAIRABLE_HBM_UE = 1205,
  NRT_NETWORK_PROXY_FAILURE = 1206
} NRT_STATUS;

/* --- enums
 * ------------------------------------------------------------------------------------------------------- */

typedef enum {
  NRT_TENSOR_PLACEMENT_DEVICE = 0,
  NRT_TENSOR_PLACEMENT_HOST = 1,   /* small host-side tensors, at most 4 MiB */
  NRT_TENSOR_PLACEMENT_VIRTUAL = 2 /* left the ABI; refused */
} nrt_tensor_placement_t;

typedef enum {
  NRT_FRAMEWORK_TYPE_INVALID = 0,
  NRT_FRAMEWORK_TYPE_NO_FW = 1,
  NRT_FRAMEWORK_TYPE_TENSORFLOW = 2,
  NRT_FRAMEWORK_TYPE_PYTORCH = 3,
  NRT_FRAMEWORK_TYPE_MXNET = 4,
  NRT_FRAMEWORK_TYPE_PRECHECK = 5
} nrt_framework_type_t;

typedef enum {
  NRT_DTYPE_UNKNOWN = 0,
  NRT_DTYPE_UINT64 = 1,
  NRT_DTYPE_INT8 = 2,
  NRT_DTYPE_UINT8 = 3,
  NRT_DTYPE_INT16 = 4,
  NRT_DTYPE_UINT16 = 5,
  NRT_DTYPE_BFLOAT16 = 6,
  NRT_DTYPE_FLOAT16 = 7,
  NRT_DTYPE_INT32 = 8,
  NRT_DTYPE_UINT32 = 9,
  NRT_DTYPE_FLOAT32 = 10,
  NRT_DTYPE_FP32R = 11,
  NRT_DTYPE_INT64 = 12,
  NRT_DTYPE_FP8_E3 = 13,
  NRT_DTYPE_FP8_E4 = 14,
  NRT_DTYPE_FP8_E5 = 15
} nrt_dtype_t;

typedef enum { NRT_TENSOR_USAGE_INPUT = 0, NRT_TENSOR_USAGE_OUTPUT = 1 } nrt_tensor_usage_t;

typedef enum {
  NRT_INSTANCE_UNKNOWN = 0,
  NRT_INSTANCE_INF1 = 1,
  NRT_INSTANCE_TRN1 = 2,
  NRT_INSTANCE_TRN1N = 3,
  NRT_INSTANCE_INF2 = 4,
  NRT_INSTANCE_TRN2 = 5,
  NRT_INSTANCE_TRN2N = 6,
  NRT_INSTANCE_INF2E = 7,
  NRT_INSTANCE_TRN2P = 8,
  NRT_INSTANCE_TRN2U = 9,
  NRT_INSTANCE_TRN2E = 10,
  NRT_INSTANCE_TRN2EU = 11,
  NRT_INSTANCE_TRN2AC = 12,
  NRT_INSTANCE_TRN2UAC = 13,
  NRT_INSTANCE_TRN3 = 14,
  NRT_INSTANCE_TRN3PDS98 = 15
} nrt_instance_family_t;

typedef enum {
  NRT_OP_ADD = 0,
  NRT_OP_FMA = 1,
  NRT_OP_MAX = 2,
  NRT_OP_MIN = 3,
  NRT_OP_INVALID = 15
} nrt_op_type_t;

typedef enum { NRT_CC_ALLGATHER = 0, NRT_CC_ALLREDUCE = 1, NRT_CC_REDUCESCATTER = 2 } nrt_cc_op_type_t;

typedef enum {
  NRTA_XU_TENSOR_READ = 0,
  NRTA_XU_TENSOR_WRITE = 1,
  NRTA_XU_TENSOR_OP = 2,
  NRTA_XU_COMPUTE = 3,
  NRTA_XU_COLLECTIVES = 4,
  NRTA_XU_TYPE_NUM = 5
} nrta_xu_t;

/* --- handles and structs
 * ----------------------------------------------------------------------------------------- */

typedef struct nrt_model nrt_model_t;
typedef struct nrt_tensor nrt_tensor_t;
typedef void nrt_tensor_set_t;
typedef struct nrt_cc_context nrt_cc_context_t;
typedef struct nrta_error_tracker nrta_error_tracker_t;
typedef struct nrt_profile_continuous_options nrt_profile_continuous_options_t;
typedef struct nrt_inspect_config nrt_inspect_config_t;
typedef struct nrt_sys_trace_config nrt_sys_trace_config_t;
typedef struct nrt_sys_trace_fetch_options nrt_sys_trace_fetch_options_t;
typedef struct nrt_async_sendrecv_comm nrt_async_sendrecv_comm_t;
typedef struct nrt_async_sendrecv_request nrt_async_sendrecv_request_t;

typedef struct {
  uint64_t rt_major, rt_minor, rt_patch, rt_maintenance;
  char rt_detail[128];
  char git_hash[64];
} nrt_version_t;

typedef struct {
  uint32_t family; /* nrt_instance_family_t */
  uint32_t size;   /* devices of the instance */
  char arch_name[16];
  char device_revision[8];
} nrt_instance_info_t;

typedef struct {
  size_t bytes_used;
  size_t bytes_limit;
} nrt_vnc_memory_stats_t;

typedef struct {
  char name[256];
  nrt_tensor_usage_t usage;
  size_t size;
  nrt_dtype_t dtype;
  uint32_t* shape;
  uint32_t ndim;
} nrt_tensor_info_t;

typedef struct {
  uint64_t tensor_count;
  nrt_tensor_info_t tensor_array[];
} nrt_tensor_info_array_t;

typedef struct {
  uint32_t vnc;
} nrt_model_info_t;

typedef struct {
  uint64_t offset;
  uint64_t size;
  void* buffer;
} nrt_tensor_batch_op_t;

typedef struct {
  const nrt_tensor_t* tensor;
  const nrt_tensor_batch_op_t* ops;
  uint32_t num_ops;
} nrt_tensor_batch_t;

typedef struct {
  uint64_t physical_address;
  size_t size; /* may exceed the size asked for */
  int hbm_index;
} nrt_tensor_device_allocation_info_t;

/* 16-bit execution-unit id in the top bits, 48-bit counter below. */
typedef uint64_t nrta_seq_t;

typedef struct {
  nrta_seq_t seq_id;
  uint64_t error_code; /* NRT_STATUS */
} nrta_error_t;

typedef struct {
  uint32_t vnc;
  uint32_t rank;
  uint32_t world_size;
  uint32_t reserved0;
  uint64_t reserved[2];
} nrt_cc_comm_t;

typedef struct {
  nrt_tensor_t** tensors;
  size_t num_tensors;
} nrt_tensor_list_t;

typedef struct {
  uint64_t data_size;
  uint32_t type; /* 1: tensor print */
  char reserved[52];
} ndebug_stream_event_header_t;

typedef struct {
  char prefix[512];
  uint32_t lnc;
  uint32_t pipe;
  char dtype[16];
  uint64_t shape[8];
  uint64_t data_size;
  char reserved[416];
  char data[];
} ndebug_stream_payload_tensor_read_t;

typedef void (*nrt_async_exec_callback_t)(void* params, uint32_t model_id, uint32_t vnc, uint64_t job_id,
                                          NRT_STATUS status);

/* --- init, close, device and library information
 * ----------------------------------------------------------------- */

NRT_STATUS nrt_init(nrt_framework_type_t framework, const char* fw_version, const char* fal_version);
void nrt_close(void);
NRT_STATUS nrt_get_visible_nc_count(uint32_t* count); /* before nrt_init too, as the next three */
NRT_STATUS nrt_get_visible_vnc_count(uint32_t* count);
NRT_STATUS nrt_get_total_nc_count(uint32_t* count);
NRT_STATUS nrt_get_total_vnc_count(uint32_t* count);
NRT_STATUS nrt_get_instance_info(nrt_instance_info_t* info, size_t size);
NRT_STATUS nrt_get_version(nrt_version_t* version, size_t size);
const char* nrt_get_status_as_str(NRT_STATUS status);
NRT_STATUS nrt_get_vnc_memory_stats(uint32_t vnc, nrt_vnc_memory_stats_t* stats, size_t size_in,
                                    size_t* size_out);
NRT_STATUS nrt_host_device_id_get(int device, uint32_t* host_device_id);
NRT_STATUS nrt_host_device_id_rid_map_get(uint32_t* count, uint32_t* routing_ids);
NRT_STATUS nrt_get_hbm_mmap_va(int device, int hbm_index, void** address, size_t* size);
NRT_STATUS nrt_get_dmabuf_fd(uint64_t va, uint64_t size, int* fd);
NRT_STATUS nrt_get_attached_efa_bdf(const void* va, char* bdf, size_t* length);

/* --- tensors
 * ------------------------------------------------------------------------------------------------------ */

NRT_STATUS nrt_tensor_allocate(nrt_tensor_placement_t placement, int vnc, size_t size, const char* name,
                               nrt_tensor_t** tensor);
void nrt_tensor_free(nrt_tensor_t** tensor); /* sets *tensor to NULL; harmless after nrt_close */
NRT_STATUS nrt_tensor_allocate_slice(const nrt_tensor_t* source, size_t offset, size_t size, const char* name,
                                     nrt_tensor_t** slice);
NRT_STATUS nrt_tensor_read(const nrt_tensor_t* tensor, void* buffer, size_t offset, size_t size);
NRT_STATUS nrt_tensor_write(nrt_tensor_t* tensor, const void* buffer, size_t offset, size_t size);
void* nrt_tensor_get_va(const nrt_tensor_t* tensor); /* NULL for a bad handle */
size_t nrt_tensor_get_size(const nrt_tensor_t* tensor);
NRT_STATUS nrt_tensor_copy(const nrt_tensor_t* source, size_t source_offset, nrt_tensor_t* destination,
                           size_t destination_offset, size_t size);
NRT_STATUS nrt_tensor_memset(nrt_tensor_t* tensor, uint64_t offset, int value, size_t size);
NRT_STATUS nrt_tensor_allocate_empty(const char* name, nrt_tensor_t** tensor);
NRT_STATUS nrt_tensor_attach_buffer(nrt_tensor_t* tensor, void* buffer, size_t size);
NRT_STATUS nrt_tensor_read_batch(const nrt_tensor_batch_t* batches, uint64_t count, bool unsafe);
NRT_STATUS nrt_tensor_write_batch(const nrt_tensor_batch_t* batches, uint64_t count, bool unsafe);
NRT_STATUS nrt_tensor_get_device_allocation_info(const nrt_tensor_t* tensor,
                                                 nrt_tensor_device_allocation_info_t* info);
NRT_STATUS nrt_tensor_check_output_completion(const nrt_tensor_t* tensor, int64_t timeout_us,
                                              uint64_t expected_count);
NRT_STATUS nrt_tensor_reset_output_completion(nrt_tensor_t* tensor);
NRT_STATUS nrt_memcpy_to_device(void* destination, const void* source, size_t size);

NRT_STATUS nrt_allocate_tensor_set(nrt_tensor_set_t** result);
void nrt_destroy_tensor_set(nrt_tensor_set_t** set);
NRT_STATUS nrt_add_tensor_to_tensor_set(nrt_tensor_set_t* set, const char* name, nrt_tensor_t* tensor);
NRT_STATUS nrt_get_tensor_from_tensor_set(nrt_tensor_set_t* set, const char* name, nrt_tensor_t** tensor);

/* --- models
 * ------------------------------------------------------------------------------------------------------- */

NRT_STATUS nrt_load(const void* container, size_t size, int32_t vnc, int32_t vnc_count, nrt_model_t** model);
NRT_STATUS nrt_load_collectives(const void* container, size_t size, int32_t vnc, int32_t vnc_count,
                                uint32_t ctx_device_id, uint32_t ctx_device_count, nrt_model_t** model);
NRT_STATUS nrt_unload(nrt_model_t* model);
NRT_STATUS nrt_execute(nrt_model_t* model, const nrt_tensor_set_t* inputs, nrt_tensor_set_t* outputs);
NRT_STATUS nrt_execute_repeat(nrt_model_t* model, const nrt_tensor_set_t* inputs, nrt_tensor_set_t* outputs,
                              int count);
NRT_STATUS nrt_get_model_tensor_info(nrt_model_t* model, nrt_tensor_info_array_t** info);
NRT_STATUS nrt_free_model_tensor_info(nrt_tensor_info_array_t* info);
NRT_STATUS nrt_get_model_nc_count(const nrt_model_t* model, uint32_t* count);
NRT_STATUS nrt_get_model_vnc_count(const nrt_model_t* model, uint32_t* count);
NRT_STATUS nrt_get_model_info(const nrt_model_t* model, nrt_model_info_t* info, size_t size_in,
                              size_t* size_out);
NRT_STATUS nrt_get_model_instance_count(const nrt_model_t* model, uint32_t* count);
NRT_STATUS nrt_set_pool_eng_ucode(const void* image, size_t size);
NRT_STATUS nrt_register_async_exec_callback(nrt_async_exec_callback_t callback);
NRT_STATUS nrt_async_drain_queued_execs(uint32_t vnc);
NRT_STATUS nrt_trace_start(bool trace_memory);
NRT_STATUS nrt_trace_stop(const char* file);

/* --- explicit async
 * ----------------------------------------------------------------------------------------------- */

NRT_STATUS nrta_tensor_write(nrt_tensor_t* tensor, const void* buffer, uint64_t offset, uint64_t size,
                             int queue, nrta_error_tracker_t* tracker, nrta_seq_t* sequence);
NRT_STATUS nrta_tensor_read(void* buffer, nrt_tensor_t* tensor, uint64_t offset, uint64_t size, int queue,
                            nrta_error_tracker_t* tracker, nrta_seq_t* sequence);
NRT_STATUS nrta_tensor_copy(nrt_tensor_t* source, uint64_t source_offset, nrt_tensor_t* destination,
                            uint64_t destination_offset, uint64_t size, int queue,
                            nrta_error_tracker_t* tracker, nrta_seq_t* sequence);
NRT_STATUS nrta_execute_schedule(nrt_model_t* model, const nrt_tensor_set_t* inputs,
                                 nrt_tensor_set_t* outputs, int queue, nrta_error_tracker_t* tracker,
                                 nrta_seq_t* sequence);
NRT_STATUS nrta_cc_prepare(nrt_cc_comm_t* comm, nrt_tensor_list_t* inputs, nrt_tensor_list_t* outputs,
                           nrt_dtype_t dtype, nrt_op_type_t op, nrt_cc_op_type_t collective,
                           nrt_cc_context_t** context);
NRT_STATUS nrta_cc_schedule(nrt_cc_context_t** context, int queue, nrta_error_tracker_t* tracker,
                            nrta_seq_t* sequence);
NRT_STATUS nrta_is_completed(nrta_seq_t sequence, bool* completed);
NRT_STATUS nrta_get_sequence(uint32_t lnc, nrta_xu_t unit, uint32_t queue, nrta_seq_t* sequence);
NRT_STATUS nrta_get_completion_handle(nrta_seq_t sequence,
                                      int* fd); /* readable when complete; the caller closes it */
NRT_STATUS nrta_error_tracker_create(uint32_t lnc, nrta_error_tracker_t** tracker);
void nrta_error_tracker_destroy(nrta_error_tracker_t* tracker);
/* The list belongs to the tracker until the next call on it. */
NRT_STATUS nrta_error_tracker_get_list(nrta_error_tracker_t* tracker, const nrta_error_t** list,
                                       size_t* count);

/* --- collectives and communication
 * -------------------------------------------------------------------------------- */

NRT_STATUS nrt_build_global_comm(int32_t vnc, uint32_t global_id, uint32_t world_size);
NRT_STATUS nrt_cc_global_comm_init(uint32_t vnc, uint32_t global_id, uint32_t world_size);
NRT_STATUS nrt_barrier(int32_t vnc, uint32_t global_id, uint32_t world_size);
NRT_STATUS nrt_all_gather(int32_t vnc, uint32_t global_id, uint32_t world_size, uint32_t bytes_per_rank,
                          void* input, void* output);
void* nrt_get_libnccl_net(int* error, char* message, size_t message_size);

NRT_STATUS nrt_async_sendrecv_init(int lnc);
NRT_STATUS nrt_async_sendrecv_close(int lnc);
NRT_STATUS nrt_async_sendrecv_flush(int lnc);
NRT_STATUS nrt_async_sendrecv_connect(const char* peer_ip, int peer_lnc, int lnc,
                                      nrt_async_sendrecv_comm_t** comm);
NRT_STATUS nrt_async_sendrecv_accept(const char* peer_ip, int peer_lnc, int lnc,
                                     nrt_async_sendrecv_comm_t** comm);
NRT_STATUS nrt_async_sendrecv_test_comm(nrt_async_sendrecv_comm_t* comm, bool* done);
NRT_STATUS nrt_async_sendrecv_test_request(nrt_async_sendrecv_request_t* request, bool* done, size_t* size);
NRT_STATUS nrt_async_sendrecv_send_tensor(nrt_tensor_t* tensor, size_t offset, size_t length,
                                          nrt_async_sendrecv_comm_t* comm,
                                          nrt_async_sendrecv_request_t** request);
NRT_STATUS nrt_async_sendrecv_recv_tensor(nrt_tensor_t* tensor, size_t offset, size_t length,
                                          nrt_async_sendrecv_comm_t* comm,
                                          nrt_async_sendrecv_request_t** request);
NRT_STATUS nrt_async_sendrecv_get_max_num_communicators_per_lnc(int* count);
NRT_STATUS nrt_async_sendrecv_get_max_num_pending_request(int* count);

/* --- profiling
 * ---------------------------------------------------------------------------------------------------- */

/* Between start and stop the runs of the model are measured; stop writes them as JSON (tables ExecutionInfo,
 * Summary and Metadata), whatever the suffix of the file. */
NRT_STATUS nrt_profile_start(nrt_model_t* model, const char* file);
NRT_STATUS nrt_profile_stop(const char* file);
NRT_STATUS nrt_profile_continuous_options_allocate(nrt_profile_continuous_options_t** options);
NRT_STATUS nrt_profile_continuous_options_free(nrt_profile_continuous_options_t* options);
NRT_STATUS nrt_profile_continuous_options_set_output_dir(nrt_profile_continuous_options_t* options,
                                                         const char* dir);
NRT_STATUS nrt_profile_continuous_start(nrt_profile_continuous_options_t* options);
NRT_STATUS nrt_profile_continuous_save(uint32_t vnc);
NRT_STATUS nrt_profile_continuous_stop(void);

NRT_STATUS nrt_inspect_begin(void);
NRT_STATUS nrt_inspect_stop(void);
NRT_STATUS nrt_inspect_begin_with_options(nrt_inspect_config_t* config);
NRT_STATUS nrt_inspect_config_allocate(nrt_inspect_config_t** config);
NRT_STATUS nrt_inspect_config_free(nrt_inspect_config_t* config);
NRT_STATUS nrt_inspect_config_set_defaults(nrt_inspect_config_t* config);
NRT_STATUS nrt_inspect_config_set_session_id(nrt_inspect_config_t* config, int session_id);
NRT_STATUS nrt_inspect_config_set_output_dir(nrt_inspect_config_t* config, const char* dir);
NRT_STATUS nrt_inspect_config_set_sys_trace_max_events_per_nc(nrt_inspect_config_t* config,
                                                              uint64_t max_events);
NRT_STATUS nrt_inspect_config_set_capture_enabled_for_nc(nrt_inspect_config_t* config, uint32_t nc,
                                                         bool enabled);
NRT_STATUS nrt_inspect_config_set_capture_enabled_for_event_type_string(nrt_inspect_config_t* config,
                                                                        const char* event_type, bool enabled);
NRT_STATUS nrt_inspect_config_set_enable_inspect(nrt_inspect_config_t* config, bool enabled);
NRT_STATUS nrt_inspect_config_set_enable_inspect_on_fail(nrt_inspect_config_t* config, bool enabled);
NRT_STATUS nrt_inspect_config_set_activity(nrt_inspect_config_t* config, const char* activity, bool enabled);
NRT_STATUS nrt_inspect_config_get_all_activity_types(const char*** types, size_t* count);
NRT_STATUS nrt_inspect_config_get_enabled_activity_types(nrt_inspect_config_t* config, const char*** types,
                                                         size_t* count);
void nrt_inspect_config_free_activity_types(const char** types, size_t count);

/* --- system trace
 * ------------------------------------------------------------------------------------------------- */

NRT_STATUS nrt_sys_trace_config_allocate(nrt_sys_trace_config_t** config);
void nrt_sys_trace_config_free(nrt_sys_trace_config_t* config);
void nrt_sys_trace_config_set_defaults(nrt_sys_trace_config_t* config);
NRT_STATUS nrt_sys_trace_config_set_max_events_per_nc(nrt_sys_trace_config_t* config, uint64_t max_events);
NRT_STATUS nrt_sys_trace_config_set_capture_enabled_for_nc(nrt_sys_trace_config_t* config, uint32_t nc,
                                                           bool enabled);
NRT_STATUS nrt_sys_trace_config_set_capture_enabled_for_event_type(nrt_sys_trace_config_t* config,
                                                                   const char* event_type, bool enabled);
NRT_STATUS nrt_sys_trace_config_get_enabled_event_types(const nrt_sys_trace_config_t* config,
                                                        const char*** types, size_t* count);
NRT_STATUS nrt_sys_trace_get_event_types(const char*** types, size_t* count);
void nrt_sys_trace_free_event_types(const char** types, size_t count);
NRT_STATUS nrt_sys_trace_start(nrt_sys_trace_config_t* config);
NRT_STATUS nrt_sys_trace_stop(void);
NRT_STATUS nrt_sys_trace_fetch_options_allocate(nrt_sys_trace_fetch_options_t** options);
NRT_STATUS nrt_sys_trace_fetch_options_free(nrt_sys_trace_fetch_options_t* options);
NRT_STATUS nrt_sys_trace_fetch_options_set_defaults(nrt_sys_trace_fetch_options_t* options);
NRT_STATUS nrt_sys_trace_fetch_options_set_max_events_per_nc(nrt_sys_trace_fetch_options_t* options,
                                                             uint64_t max_events);
NRT_STATUS nrt_sys_trace_fetch_options_set_nc_idx(nrt_sys_trace_fetch_options_t* options, uint32_t nc);
NRT_STATUS nrt_sys_trace_fetch_events(char** buffer, size_t* bytes,
                                      const nrt_sys_trace_fetch_options_t* options);
void nrt_sys_trace_buffer_free(char* buffer);

/* --- debug stream
 * ------------------------------------------------------------------------------------------------- */

NRT_STATUS nrt_debug_client_connect(int lnc, int* fd);
void nrt_debug_client_connect_close(int fd);
NRT_STATUS nrt_debug_client_read_one_event(int fd, ndebug_stream_event_header_t* header, void** payload);

/* --- layout
 * ------------------------------------------------------------------------------------------------------- */

#ifdef __cplusplus
#define TRNSIM_NRT_ASSERT(e) static_assert(e, #e)
#else
#define TRNSIM_NRT_ASSERT(e) _Static_assert(e, #e)
#endif
TRNSIM_NRT_ASSERT(sizeof(nrt_tensor_info_t) == 296);
TRNSIM_NRT_ASSERT(offsetof(nrt_tensor_info_t, usage) == 256);
TRNSIM_NRT_ASSERT(offsetof(nrt_tensor_info_t, size) == 264);
TRNSIM_NRT_ASSERT(offsetof(nrt_tensor_info_t, dtype) == 272);
TRNSIM_NRT_ASSERT(offsetof(nrt_tensor_info_t, shape) == 280);
TRNSIM_NRT_ASSERT(offsetof(nrt_tensor_info_t, ndim) == 288);
TRNSIM_NRT_ASSERT(offsetof(nrt_tensor_info_array_t, tensor_array) == 8);
TRNSIM_NRT_ASSERT(sizeof(nrt_version_t) == 224);
TRNSIM_NRT_ASSERT(sizeof(nrt_instance_info_t) == 32);
TRNSIM_NRT_ASSERT(sizeof(nrt_tensor_batch_op_t) == 24);
TRNSIM_NRT_ASSERT(sizeof(nrt_cc_comm_t) == 32);
TRNSIM_NRT_ASSERT(sizeof(nrta_error_t) == 16);
TRNSIM_NRT_ASSERT(sizeof(ndebug_stream_event_header_t) == 64);
TRNSIM_NRT_ASSERT(offsetof(ndebug_stream_payload_tensor_read_t, data) == 1024);
TRNSIM_NRT_ASSERT(sizeof(NRT_STATUS) == 4);

#ifdef __cplusplus
}
#endif
