/* Calls a library as a C program that makes mistakes: each is an error with a message, none a crash. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checked.h"

static int failures;

static void expect(hloom_status got, hloom_status wanted, const char *message) {
  if (got == wanted && (!wanted || strstr(checked_error(), message))) return;
  printf("wanted %d '%s', got %d '%s'\n", (int)wanted, message, (int)got, checked_error());
  failures++;
}

static long held, most;
static void *count_allocate(void *context, size_t bytes, size_t alignment) {
  if (*(long *)context == 0) return 0;
  --*(long *)context;
  void *memory = 0;
  if (posix_memalign(&memory, alignment < sizeof(void *) ? sizeof(void *) : alignment, bytes)) return 0;
  held++;
  most++;
  return memory;
}
static void count_release(void *context, void *memory) {
  (void)context;
  held--;
  free(memory);
}

static hloom_program *shared;
static void *caller(void *result) {
  float x[5 * 4], y[5 * 3];
  for (int k = 0; k < 20; k++) x[k] = (float)k;
  *(hloom_status *)result = HLOOM_OK;
  for (int k = 0; k < 500 && !*(hloom_status *)result; k++) *(hloom_status *)result = checked_predict(shared, 5, x, y);
  return 0;
}

int main(int count, char **arguments) {
  (void)count;
  const hloom_library *library = checked_library();
  hloom_options options = HLOOM_OPTIONS;
  hloom_program *p = 0;
  float x[64 * 4] = {0}, y[64 * 3];
  const int64_t xs[] = {2, 4}, ys[] = {2, 3}, wide[] = {2, 5}, many[] = {65, 4}, none[] = {0, 4};
  hloom_tensor in = {x, HLOOM_F32, 2, xs}, out = {y, HLOOM_F32, 2, ys}, bad;

  expect(checked_create(&options, 0), HLOOM_ERROR_ARGUMENT, "null pointer");
  options.abi = 7;
  expect(checked_create(&options, &p), HLOOM_ERROR_VERSION, "interface version 1, the caller was compiled for 7");
  options.abi = HLOOM_ABI;
  options.num_threads = -1;
  expect(checked_create(&options, &p), HLOOM_ERROR_ARGUMENT, "num_threads is -1");
  options.num_threads = 1;
  options.allocate = count_allocate;
  expect(checked_create(&options, &p), HLOOM_ERROR_ARGUMENT, "must be set together");
  options.release = count_release;
  /* Memory that ends after so many blocks: an error, and nothing is kept. */
  for (long blocks = 0;; blocks++) {
    long left = blocks;
    options.context = &left;
    hloom_status status = checked_create(&options, &p);
    if (!status) status = checked_init(p);
    if (!status) status = checked_predict(p, 2, x, y);
    checked_destroy(p);
    if (held) printf("%ld blocks were kept after %ld\n", held, blocks), failures++;
    if (!status) break;
    expect(status, HLOOM_ERROR_MEMORY, "no memory");
    if (blocks > 100) return 9;
  }
  expect(checked_create(0, &p), HLOOM_OK, "");

  expect(checked_predict(p, 2, x, y), HLOOM_ERROR_STATE, "no values yet");
  expect(checked_save_state(p, arguments[1]), HLOOM_ERROR_STATE, "no values yet");
  expect(checked_init(p), HLOOM_OK, "");
  expect(checked_predict(0, 2, x, y), HLOOM_ERROR_ARGUMENT, "the program is a null pointer");
  expect(checked_predict(p, 2, 0, y), HLOOM_ERROR_ARGUMENT, "'x' is a null pointer");
  expect(checked_predict(p, 2, x, 0), HLOOM_ERROR_ARGUMENT, "'result' is a null pointer");
  expect(checked_predict(p, 2, (float *)((char *)x + 1), y), HLOOM_ERROR_ARGUMENT, "not aligned");
  expect(checked_predict(p, 65, x, y), HLOOM_ERROR_EXTENT, "'batch' is 65; it may be 1 to 64");
  expect(checked_predict(p, -1, x, y), HLOOM_ERROR_EXTENT, "'batch' is -1");
  expect(library->run(p, 1, &in, 1, &out, 1), HLOOM_OK, "");
  expect(library->run(p, 9, &in, 1, &out, 1), HLOOM_ERROR_ARGUMENT, "no function 9");
  expect(library->run(p, 1, &in, 2, &out, 1), HLOOM_ERROR_ARGUMENT, "2 inputs were passed; it has 1");
  expect(library->run(p, 1, 0, 1, &out, 1), HLOOM_ERROR_ARGUMENT, "null pointer");
  bad = in, bad.dtype = HLOOM_F64;
  expect(library->run(p, 1, &bad, 1, &out, 1), HLOOM_ERROR_DTYPE, "'x' is f64; it must be f32");
  bad = in, bad.dtype = (hloom_dtype)99;
  expect(library->run(p, 1, &bad, 1, &out, 1), HLOOM_ERROR_DTYPE, "'x' is unknown");
  bad = in, bad.rank = 1;
  expect(library->run(p, 1, &bad, 1, &out, 1), HLOOM_ERROR_RANK, "has 1 dimensions; it must have 2");
  bad = in, bad.shape = wide;
  expect(library->run(p, 1, &bad, 1, &out, 1), HLOOM_ERROR_EXTENT, "dimension 1 of input 'x' is 5; it must be 4");
  bad = in, bad.shape = many;
  expect(library->run(p, 1, &bad, 1, &out, 1), HLOOM_ERROR_EXTENT, "'batch' is 65");
  bad = in, bad.shape = none;
  expect(library->run(p, 1, &bad, 1, &out, 1), HLOOM_ERROR_EXTENT, "'batch' is 0");
  bad = in, bad.shape = 0;
  expect(library->run(p, 1, &bad, 1, &out, 1), HLOOM_ERROR_ARGUMENT, "shape of input 'x' is a null pointer");
  bad = in, bad.data = 0;
  expect(library->run(p, 1, &bad, 1, &out, 1), HLOOM_ERROR_ARGUMENT, "data of input 'x' is a null pointer");
  bad = out, bad.shape = wide;
  expect(library->run(p, 1, &in, 1, &bad, 1), HLOOM_ERROR_EXTENT, "dimension 1 of output 'result' is 5");
  expect(library->read_state(p, 0, x, 5), HLOOM_ERROR_EXTENT, "bytes; 5 were passed");
  expect(library->read_state(p, 9, x, 5), HLOOM_ERROR_ARGUMENT, "no part 9");
  expect(library->write_state(p, 0, 0, 48), HLOOM_ERROR_ARGUMENT, "null pointer");
  expect(checked_load_state(p, "absent.safetensors"), HLOOM_ERROR_FILE, "cannot be opened");
  expect(checked_load_state(p, 0), HLOOM_ERROR_ARGUMENT, "null pointer");
  expect(checked_save_state(p, arguments[1]), HLOOM_OK, "");
  expect(checked_load_state(p, arguments[1]), HLOOM_OK, "");

  /* Any number of threads call one program. */
  shared = p;
  pthread_t threads[4];
  hloom_status answers[4];
  for (int k = 0; k < 4; k++) pthread_create(&threads[k], 0, caller, &answers[k]);
  for (int k = 0; k < 4; k++) {
    pthread_join(threads[k], 0);
    expect(answers[k], HLOOM_OK, "");
  }
  checked_destroy(p);
  checked_destroy(0);

  FILE *maps = fopen("/proc/self/maps", "r");
  char line[4096];
  while (maps && fgets(line, sizeof line, maps))
    if (strstr(line, "python")) printf("python is in the process: %s", line), failures++;
  printf("%d failures\n", failures);
  return failures != 0;
}
