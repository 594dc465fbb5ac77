/* A client in plain C11: the public nrt ABI without PyTorch, Python or C++. Usage: run_program FILE.trnp */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/runtime/nrt.h"
#include "sim/runtime/trnsim_ext.h"

static int failures = 0;

#define EXPECT(condition)                                                                                   \
  do {                                                                                                      \
    if (!(condition)) {                                                                                     \
      fprintf(stderr, "%s:%d: %s (last error: %s)\n", __FILE__, __LINE__, #condition, trnsim_last_error()); \
      ++failures;                                                                                           \
    }                                                                                                       \
  } while (0)

enum { kRows = 4, kColumns = 64, kBytes = kRows * kColumns * 4 };

static unsigned char* read_all(const char* path, size_t* bytes) {
  FILE* file = fopen(path, "rb");
  unsigned char* data = NULL;
  if (file == NULL) return NULL;
  fseek(file, 0, SEEK_END);
  *bytes = (size_t)ftell(file);
  rewind(file);
  data = malloc(*bytes);
  if (data != NULL && fread(data, 1, *bytes, file) != *bytes) {
    free(data);
    data = NULL;
  }
  fclose(file);
  return data;
}

static void check_refusals(const unsigned char* container, size_t bytes) {
  nrt_model_t* model = NULL;
  unsigned char* damaged = malloc(bytes);
  unsigned char neff[2048];
  size_t i;
  EXPECT(damaged != NULL);
  memcpy(damaged, container, bytes);
  for (i = 0; i < bytes; i += 7) {
    damaged[i] ^= 0x10;
    EXPECT(nrt_load(damaged, bytes, 0, 1, &model) != NRT_SUCCESS);
    EXPECT(model == NULL);
    damaged[i] ^= 0x10;
  }
  for (i = 0; i < bytes; i += 13) EXPECT(nrt_load(damaged, i, 0, 1, &model) != NRT_SUCCESS);
  free(damaged);
  /* The public header of a NEFF: package version, header size, data size, format version 0.4. */
  memset(neff, 0, sizeof neff);
  neff[0] = 2;
  neff[9] = 4;  /* header size 1024 */
  neff[17] = 4; /* data size 1024 */
  neff[32] = 4; /* minor */
  EXPECT(nrt_load(neff, sizeof neff, 0, 1, &model) == NRT_UNSUPPORTED_NEFF_VERSION);
}

int main(int argc, char** argv) {
  float x[kRows][kColumns], y[kRows][kColumns];
  unsigned char* container;
  size_t bytes = 0;
  uint32_t count = 0;
  nrt_model_t* model = NULL;
  nrt_tensor_t *tx = NULL, *ty = NULL;
  nrt_tensor_set_t *in = NULL, *out = NULL;
  nrt_tensor_info_array_t* info = NULL;
  int64_t first_ps;
  int row, column, run;

  if (argc != 2 || (container = read_all(argv[1], &bytes)) == NULL) {
    fprintf(stderr, "usage: run_program FILE.trnp\n");
    return 2;
  }
  EXPECT(nrt_get_visible_nc_count(&count) == NRT_SUCCESS);
  EXPECT(count >= 1);
  EXPECT(nrt_load(container, bytes, 0, 1, &model) == NRT_UNINITIALIZED);
  EXPECT(strstr(trnsim_report_json(), "\"programs\":[]") != NULL); /* whole, of a chip that has run nothing */

  for (run = 0; run < 2; ++run) { /* init, close, init */
    EXPECT(nrt_init(NRT_FRAMEWORK_TYPE_NO_FW, "", "") == NRT_SUCCESS);
    EXPECT(nrt_load(container, bytes, 0, 1, &model) == NRT_SUCCESS);
    EXPECT(nrt_get_model_tensor_info(model, &info) == NRT_SUCCESS);
    EXPECT(info->tensor_count == 2);
    EXPECT(strcmp(info->tensor_array[0].name, "x") == 0);
    EXPECT(info->tensor_array[0].dtype == NRT_DTYPE_FLOAT32);
    EXPECT(info->tensor_array[1].usage == NRT_TENSOR_USAGE_OUTPUT);
    EXPECT(info->tensor_array[1].size == kBytes);
    EXPECT(nrt_free_model_tensor_info(info) == NRT_SUCCESS);

    EXPECT(nrt_tensor_allocate(NRT_TENSOR_PLACEMENT_DEVICE, 0, kBytes, "x", &tx) == NRT_SUCCESS);
    EXPECT(nrt_tensor_allocate(NRT_TENSOR_PLACEMENT_DEVICE, 0, kBytes, "y", &ty) == NRT_SUCCESS);
    for (row = 0; row < kRows; ++row)
      for (column = 0; column < kColumns; ++column) x[row][column] = (float)(row * 100 + column);
    EXPECT(nrt_tensor_write(tx, x, 0, sizeof x) == NRT_SUCCESS);
    EXPECT(nrt_allocate_tensor_set(&in) == NRT_SUCCESS);
    EXPECT(nrt_allocate_tensor_set(&out) == NRT_SUCCESS);
    EXPECT(nrt_execute(model, in, out) == NRT_EXEC_BAD_INPUT);
    EXPECT(nrt_add_tensor_to_tensor_set(in, "x", tx) == NRT_SUCCESS);
    EXPECT(nrt_add_tensor_to_tensor_set(out, "y", ty) == NRT_SUCCESS);
    EXPECT(nrt_execute(model, in, out) == NRT_SUCCESS);
    first_ps = trnsim_model_last_ps(model);
    EXPECT(first_ps > 0);
    EXPECT(nrt_execute(model, in, out) == NRT_SUCCESS);
    EXPECT(trnsim_model_last_ps(model) == first_ps); /* the same program takes the same time */
    EXPECT(trnsim_simulated_ps(0) == 2 * first_ps);
    EXPECT(trnsim_model_instructions(model) >= 4);
    EXPECT(nrt_tensor_read(ty, y, 0, sizeof y) == NRT_SUCCESS);
    for (row = 0; row < kRows; ++row)
      for (column = 0; column < kColumns; ++column)
        EXPECT(y[row][column] == 2.0f * x[row][column] + (float)(row + 1));
    if (run == 0) check_refusals(container, bytes);
    EXPECT(strstr(trnsim_report_json(), "\"scale_add\"") != NULL);
    nrt_destroy_tensor_set(&in);
    nrt_destroy_tensor_set(&out);
    nrt_tensor_free(&tx);
    nrt_tensor_free(&ty);
    EXPECT(nrt_unload(model) == NRT_SUCCESS);
    nrt_close();
    EXPECT(nrt_load(container, bytes, 0, 1, &model) == NRT_CLOSED);
  }
  free(container);
  if (failures == 0) printf("run_program: good, %lld ps per run\n", (long long)first_ps);
  return failures == 0 ? 0 : 1;
}
