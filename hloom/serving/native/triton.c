/* Triton's backend for libraries that hloom exports.

   A version of a model is a folder with the library, `model.so`, and `options.txt`: lines of a word and its value,
   `function` (its name) and `threads` (of the kernels). The instances of a model share one program. What is used of
   Triton's interface (TRITONBACKEND, version 1) is declared here, from its documentation. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "hloom.h"

#define API __attribute__((visibility("default")))

/* ---- Triton's interface ---- */

typedef struct TRITONSERVER_Error TRITONSERVER_Error;
typedef struct TRITONBACKEND_Backend TRITONBACKEND_Backend;
typedef struct TRITONBACKEND_Model TRITONBACKEND_Model;
typedef struct TRITONBACKEND_ModelInstance TRITONBACKEND_ModelInstance;
typedef struct TRITONBACKEND_Request TRITONBACKEND_Request;
typedef struct TRITONBACKEND_Response TRITONBACKEND_Response;
typedef struct TRITONBACKEND_Input TRITONBACKEND_Input;
typedef struct TRITONBACKEND_Output TRITONBACKEND_Output;

enum { INTERNAL = 1, INVALID_ARGUMENT = 3, UNSUPPORTED = 5 }; /* codes of errors */
enum { ON_CPU = 0, PINNED = 1 };                              /* types of memory */
enum { FINAL = 1, RELEASE_ALL = 1 };                          /* flags of responses and of releases */
enum { VERSION = 1 };

TRITONSERVER_Error *TRITONSERVER_ErrorNew(int code, const char *message);
void TRITONSERVER_ErrorDelete(TRITONSERVER_Error *);
const char *TRITONSERVER_ErrorMessage(TRITONSERVER_Error *);
TRITONSERVER_Error *TRITONBACKEND_ApiVersion(uint32_t *major, uint32_t *minor);
TRITONSERVER_Error *TRITONBACKEND_ModelName(TRITONBACKEND_Model *, const char **);
TRITONSERVER_Error *TRITONBACKEND_ModelVersion(TRITONBACKEND_Model *, uint64_t *);
TRITONSERVER_Error *TRITONBACKEND_ModelRepository(TRITONBACKEND_Model *, int *kind, const char **location);
TRITONSERVER_Error *TRITONBACKEND_ModelState(TRITONBACKEND_Model *, void **);
TRITONSERVER_Error *TRITONBACKEND_ModelSetState(TRITONBACKEND_Model *, void *);
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceModel(TRITONBACKEND_ModelInstance *, TRITONBACKEND_Model **);
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceState(TRITONBACKEND_ModelInstance *, void **);
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceSetState(TRITONBACKEND_ModelInstance *, void *);
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReportStatistics(TRITONBACKEND_ModelInstance *, TRITONBACKEND_Request *,
                                                                bool success, uint64_t begin, uint64_t compute_begin,
                                                                uint64_t compute_end, uint64_t end);
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReportBatchStatistics(TRITONBACKEND_ModelInstance *, uint64_t size,
                                                                     uint64_t begin, uint64_t compute_begin,
                                                                     uint64_t compute_end, uint64_t end);
TRITONSERVER_Error *TRITONBACKEND_RequestInputCount(TRITONBACKEND_Request *, uint32_t *);
TRITONSERVER_Error *TRITONBACKEND_RequestInput(TRITONBACKEND_Request *, const char *name, TRITONBACKEND_Input **);
TRITONSERVER_Error *TRITONBACKEND_RequestOutputCount(TRITONBACKEND_Request *, uint32_t *);
TRITONSERVER_Error *TRITONBACKEND_RequestOutputName(TRITONBACKEND_Request *, uint32_t, const char **);
TRITONSERVER_Error *TRITONBACKEND_RequestRelease(TRITONBACKEND_Request *, uint32_t flags);
TRITONSERVER_Error *TRITONBACKEND_InputProperties(TRITONBACKEND_Input *, const char **name, int *datatype,
                                                  const int64_t **shape, uint32_t *rank, uint64_t *bytes,
                                                  uint32_t *buffers);
TRITONSERVER_Error *TRITONBACKEND_InputBuffer(TRITONBACKEND_Input *, uint32_t index, const void **buffer,
                                              uint64_t *bytes, int *memory, int64_t *memory_id);
TRITONSERVER_Error *TRITONBACKEND_ResponseNew(TRITONBACKEND_Response **, TRITONBACKEND_Request *);
TRITONSERVER_Error *TRITONBACKEND_ResponseOutput(TRITONBACKEND_Response *, TRITONBACKEND_Output **, const char *name,
                                                 int datatype, const int64_t *shape, uint32_t rank);
TRITONSERVER_Error *TRITONBACKEND_OutputBuffer(TRITONBACKEND_Output *, void **buffer, uint64_t bytes, int *memory,
                                               int64_t *memory_id);
TRITONSERVER_Error *TRITONBACKEND_ResponseSend(TRITONBACKEND_Response *, uint32_t flags, TRITONSERVER_Error *);

/* ---- what is ours ---- */

enum { MOST_RANK = 32 };
typedef int64_t sizes_type[MOST_RANK];
#define TRY(call)                           \
  do {                                      \
    TRITONSERVER_Error *found_ = (call);    \
    if (found_) return found_;              \
  } while (0)

/* By hloom_dtype: Triton's number of the datatype (0: it has none) and the bytes of an element. */
static const int DATATYPES[] = {0, 1, 6, 7, 8, 9, 2, 3, 4, 5, 10, 14, 11, 12, 0, 0};
static const int64_t ITEM_BYTES[] = {0, 1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8, 8, 16};

typedef struct {
  void *code;
  const hloom_library *library;
  hloom_program *program;
  const hloom_function *function;
  int32_t number;
  int batched;  /* whether all inputs and outputs have the same named dimension first */
  int64_t most; /* of that dimension */
  char name[256];
} model_type;

/* Memory that grows to what is needed, and stays. */
typedef struct {
  unsigned char *data;
  size_t bytes;
} room_type;

/* A thread of Triton's that computes. inputs, outputs: of batches, one room for each array. */
typedef struct {
  model_type *model;
  room_type *inputs, *outputs;
} instance_type;

typedef struct {
  TRITONBACKEND_Request *request;
  TRITONBACKEND_Response *response;
  TRITONSERVER_Error *error;
  hloom_tensor *inputs;
  sizes_type *shapes;           /* of outputs */
  const void *(*pieces);        /* data of inputs that lie in one piece; else null */
  int64_t rows;
  int done;
} one_type;

static TRITONSERVER_Error *failure(int code, const char *format, ...) {
  char text[1024];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  return TRITONSERVER_ErrorNew(code, text);
}

static void forget(TRITONSERVER_Error *error) {
  if (error) TRITONSERVER_ErrorDelete(error);
}

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void *room(room_type *place, int64_t bytes) {
  if (bytes < 0) return 0;
  if (place->bytes < (size_t)bytes + 1) {
    void *made = 0;
    if (posix_memalign(&made, 64, (size_t)bytes + 1)) return 0;
    free(place->data);
    *place = (room_type){made, (size_t)bytes + 1};
  }
  return place->data;
}

/* The bytes of an array; -1 where they are too many to count or a size is negative. */
static int64_t bytes_of(hloom_dtype dtype, const int64_t *shape, int32_t rank, int32_t from) {
  int64_t bytes = ITEM_BYTES[dtype];
  for (int32_t axis = from; axis < rank; axis++)
    if (shape[axis] < 0 || __builtin_mul_overflow(bytes, shape[axis], &bytes)) return -1;
  return bytes;
}

/* ---- models ---- */

static int is_batched(const model_type *model) {
  const hloom_function *f = model->function;
  const char *name = 0;
  for (int32_t k = 0; k < f->input_count + f->output_count; k++) {
    const hloom_value *v = k < f->input_count ? &f->inputs[k] : &f->outputs[k - f->input_count];
    if (!v->rank || v->shape[0] >= 0) return 0;
    if (name && strcmp(name, v->extents[0])) return 0;
    name = v->extents[0];
  }
  return name && f->input_count;
}

static TRITONSERVER_Error *read_options(const char *path, char *function, size_t room_bytes, int32_t *threads) {
  FILE *file = fopen(path, "r");
  char line[512];
  if (!file) return failure(INVALID_ARGUMENT, "%s cannot be read", path);
  *function = 0;
  while (fgets(line, sizeof line, file)) {
    line[strcspn(line, "\r\n")] = 0;
    char *value = strchr(line, ' ');
    if (!value) continue;
    *value++ = 0;
    if (!strcmp(line, "function")) snprintf(function, room_bytes, "%s", value);
    if (!strcmp(line, "threads")) *threads = atoi(value);
  }
  fclose(file);
  return 0;
}

static TRITONSERVER_Error *load(model_type *model, const char *folder) {
  char path[PATH_MAX], real[PATH_MAX], function[256];
  int32_t threads = 1;
  if (snprintf(path, sizeof path, "%s/options.txt", folder) >= (int)sizeof path)
    return failure(INVALID_ARGUMENT, "the path of the model is too long");
  TRY(read_options(path, function, sizeof function, &threads));
  if (snprintf(path, sizeof path, "%s/model.so", folder) >= (int)sizeof path)
    return failure(INVALID_ARGUMENT, "the path of the model is too long");
  if (!realpath(path, real)) return failure(INVALID_ARGUMENT, "%s: there is no such file", path);
  model->code = dlopen(real, RTLD_NOW | RTLD_LOCAL);
  if (!model->code) return failure(INVALID_ARGUMENT, "%s", dlerror());
  const hloom_library *(*entry)(void) = (const hloom_library *(*)(void))dlsym(model->code, "hloom_get_library");
  if (!entry) return failure(INVALID_ARGUMENT, "%s is no library of hloom's: export it with hl.export", real);
  const hloom_library *library = model->library = entry();
  if (library->abi != HLOOM_ABI)
    return failure(UNSUPPORTED, "%s has interface version %d, the server %d: export it anew", real, (int)library->abi,
                   HLOOM_ABI);
  for (model->number = 0; model->number < library->function_count; model->number++)
    if (!strcmp(library->functions[model->number].name, function)) break;
  if (model->number == library->function_count)
    return failure(INVALID_ARGUMENT, "%s has no function '%s'", real, function);
  model->function = &library->functions[model->number];
  if (model->function->updates_state)
    return failure(INVALID_ARGUMENT, "'%s' changes the state that all clients share", function);
  for (int32_t k = 0; k < model->function->input_count + model->function->output_count; k++) {
    const int32_t inputs = model->function->input_count;
    const hloom_value *v = k < inputs ? &model->function->inputs[k] : &model->function->outputs[k - inputs];
    if (!DATATYPES[v->dtype] || v->rank > MOST_RANK)
      return failure(UNSUPPORTED, "'%s' has a dtype or a rank that the protocol does not have", v->name);
  }
  model->batched = is_batched(model);
  if (model->batched)
    for (int32_t k = 0; k < library->dimension_count; k++)
      if (!strcmp(library->dimensions[k].name, model->function->inputs[0].extents[0]))
        model->most = library->dimensions[k].most;
  hloom_options options = HLOOM_OPTIONS;
  options.num_threads = threads;
  if (library->weights) {
    char *end = strrchr(real, '/');
    if (snprintf(path, sizeof path, "%.*s/%s", (int)(end - real), real, library->weights) >= (int)sizeof path)
      return failure(INVALID_ARGUMENT, "the path of the weights is too long");
    options.weights = path;
  }
  if (library->create(&options, &model->program)) return failure(INVALID_ARGUMENT, "%s", library->error());
  return 0;
}

static void release_model(model_type *model) {
  if (model->program) model->library->destroy(model->program);
  if (model->code) dlclose(model->code);
  free(model);
}

API TRITONSERVER_Error *TRITONBACKEND_Initialize(TRITONBACKEND_Backend *backend) {
  uint32_t major = 0, minor = 0;
  (void)backend;
  TRY(TRITONBACKEND_ApiVersion(&major, &minor));
  if (major != VERSION)
    return failure(UNSUPPORTED, "this Triton has interface version %u of backends, hloom's has %d", major, VERSION);
  return 0;
}

API TRITONSERVER_Error *TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model *triton) {
  const char *name, *location;
  uint64_t version;
  int kind;
  char folder[PATH_MAX];
  TRY(TRITONBACKEND_ModelName(triton, &name));
  TRY(TRITONBACKEND_ModelVersion(triton, &version));
  TRY(TRITONBACKEND_ModelRepository(triton, &kind, &location));
  if (snprintf(folder, sizeof folder, "%s/%llu", location, (unsigned long long)version) >= (int)sizeof folder)
    return failure(INVALID_ARGUMENT, "the path of model '%s' is too long", name);
  model_type *model = calloc(1, sizeof *model);
  if (!model) return failure(INTERNAL, "no memory for model '%s'", name);
  snprintf(model->name, sizeof model->name, "%s", name);
  TRITONSERVER_Error *error = load(model, folder);
  if (!error) error = TRITONBACKEND_ModelSetState(triton, model);
  if (error) release_model(model);
  return error;
}

API TRITONSERVER_Error *TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model *triton) {
  void *model = 0;
  TRY(TRITONBACKEND_ModelState(triton, &model));
  if (model) release_model(model);
  return 0;
}

API TRITONSERVER_Error *TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance *triton) {
  TRITONBACKEND_Model *owner;
  void *model = 0;
  TRY(TRITONBACKEND_ModelInstanceModel(triton, &owner));
  TRY(TRITONBACKEND_ModelState(owner, &model));
  instance_type *made = calloc(1, sizeof *made);
  if (!made) return failure(INTERNAL, "no memory for an instance");
  made->model = model;
  made->inputs = calloc((size_t)made->model->function->input_count + 1, sizeof(room_type));
  made->outputs = calloc((size_t)made->model->function->output_count + 1, sizeof(room_type));
  if (!made->inputs || !made->outputs) return failure(INTERNAL, "no memory for an instance");
  return TRITONBACKEND_ModelInstanceSetState(triton, made);
}

API TRITONSERVER_Error *TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance *triton) {
  void *state = 0;
  TRY(TRITONBACKEND_ModelInstanceState(triton, &state));
  instance_type *instance = state;
  if (!instance) return 0;
  for (int32_t k = 0; k < instance->model->function->input_count; k++) free(instance->inputs[k].data);
  for (int32_t k = 0; k < instance->model->function->output_count; k++) free(instance->outputs[k].data);
  free(instance->inputs);
  free(instance->outputs);
  free(instance);
  return 0;
}

/* ---- requests ---- */

/* Copies an input to a place with room for all of it. */
static TRITONSERVER_Error *gather(TRITONBACKEND_Input *input, unsigned char *place, int64_t bytes) {
  uint32_t buffers;
  TRY(TRITONBACKEND_InputProperties(input, 0, 0, 0, 0, 0, &buffers));
  for (uint32_t k = 0; k < buffers; k++) {
    const void *data;
    uint64_t found;
    int memory = ON_CPU;
    int64_t memory_id = 0;
    TRY(TRITONBACKEND_InputBuffer(input, k, &data, &found, &memory, &memory_id));
    if (memory != ON_CPU && memory != PINNED) return failure(UNSUPPORTED, "inputs in a GPU's memory are not supported");
    if ((uint64_t)bytes < found) return failure(INVALID_ARGUMENT, "an input has more bytes than its shape takes");
    memcpy(place, data, found);
    place += found;
    bytes -= (int64_t)found;
  }
  return bytes ? failure(INVALID_ARGUMENT, "an input has fewer bytes than its shape takes") : 0;
}

/* Checks a request alone, so that a bad one never fails the others of its batch. */
static TRITONSERVER_Error *check(const model_type *model, one_type *one) {
  const hloom_function *f = model->function;
  uint32_t count;
  TRY(TRITONBACKEND_RequestInputCount(one->request, &count));
  if (count != (uint32_t)f->input_count)
    return failure(INVALID_ARGUMENT, "model %s: %u inputs, it takes %d", model->name, count, (int)f->input_count);
  for (int32_t k = 0; k < f->input_count; k++) {
    const hloom_value *v = &f->inputs[k];
    TRITONBACKEND_Input *input;
    int datatype, memory = ON_CPU;
    const int64_t *shape;
    uint32_t rank, buffers;
    uint64_t bytes, piece;
    int64_t memory_id = 0;
    TRITONSERVER_Error *missing = TRITONBACKEND_RequestInput(one->request, v->name, &input);
    if (missing) {
      TRITONSERVER_ErrorDelete(missing);
      return failure(INVALID_ARGUMENT, "model %s: the input '%s' is missing", model->name, v->name);
    }
    TRY(TRITONBACKEND_InputProperties(input, 0, &datatype, &shape, &rank, &bytes, &buffers));
    if (datatype != DATATYPES[v->dtype])
      return failure(INVALID_ARGUMENT, "model %s: '%s' has another datatype than the model", model->name, v->name);
    if (!v->rank && rank == 1 && shape[0] == 1) rank = 0; /* Triton's scalars have one element */
    if (rank != (uint32_t)v->rank)
      return failure(INVALID_ARGUMENT, "model %s: '%s' has %u dimensions, it must have %d", model->name, v->name, rank,
                     (int)v->rank);
    const int64_t wanted = bytes_of(v->dtype, shape, v->rank, 0);
    if (wanted < 0 || (uint64_t)wanted != bytes)
      return failure(INVALID_ARGUMENT, "model %s: '%s' has %llu bytes, its shape takes %lld", model->name, v->name,
                     (unsigned long long)bytes, (long long)wanted);
    const void *data = 0;
    if (buffers == 1) {
      TRY(TRITONBACKEND_InputBuffer(input, 0, &data, &piece, &memory, &memory_id));
      if (piece != bytes || (memory != ON_CPU && memory != PINNED) || (uintptr_t)data % 16) data = 0;
    }
    one->pieces[k] = data;
    /* Only the shapes are looked at before the data are there. */
    one->inputs[k] = (hloom_tensor){(void *)(uintptr_t)64, v->dtype, v->rank, shape};
    if (!k) one->rows = rank ? shape[0] : 1;
  }
  for (int32_t k = 0; k < f->output_count || !k; k++) {
    int64_t none[MOST_RANK];
    if (model->library->output_shape(model->program, model->number, one->inputs, (size_t)f->input_count,
                                     k < f->output_count ? k : 0, k < f->output_count ? one->shapes[k] : none))
      return failure(INVALID_ARGUMENT, "model %s: %s", model->name, model->library->error());
  }
  return 0;
}

static TRITONSERVER_Error *input_data(const model_type *model, one_type *one, int32_t k, unsigned char *place) {
  const hloom_value *v = &model->function->inputs[k];
  const int64_t bytes = bytes_of(v->dtype, one->inputs[k].shape, v->rank, 0);
  if (one->pieces[k]) {
    memcpy(place, one->pieces[k], (size_t)bytes);
    return 0;
  }
  TRITONBACKEND_Input *input;
  TRY(TRITONBACKEND_RequestInput(one->request, v->name, &input));
  return gather(input, place, bytes);
}

/* Whether the client wants an output: none that is named means all. */
static int is_wanted(TRITONBACKEND_Request *request, const char *name) {
  uint32_t count = 0;
  forget(TRITONBACKEND_RequestOutputCount(request, &count));
  for (uint32_t k = 0; k < count; k++) {
    const char *found = 0;
    TRITONSERVER_Error *error = TRITONBACKEND_RequestOutputName(request, k, &found);
    forget(error);
    if (!error && !strcmp(found, name)) return 1;
  }
  return !count;
}

/* The memory of the response for an output; null where the client does not want it. */
static TRITONSERVER_Error *output_place(const model_type *model, one_type *one, int32_t k, int64_t bytes, void **place) {
  const hloom_value *v = &model->function->outputs[k];
  TRITONBACKEND_Output *output;
  int memory = ON_CPU;
  int64_t memory_id = 0;
  *place = 0;
  if (!is_wanted(one->request, v->name)) return 0;
  const int64_t single = 1;
  TRY(TRITONBACKEND_ResponseOutput(one->response, &output, v->name, DATATYPES[v->dtype],
                                   v->rank ? one->shapes[k] : &single, v->rank ? (uint32_t)v->rank : 1));
  TRY(TRITONBACKEND_OutputBuffer(output, place, (uint64_t)bytes, &memory, &memory_id));
  if (memory != ON_CPU && memory != PINNED) return failure(UNSUPPORTED, "outputs in a GPU's memory are not supported");
  return 0;
}

static TRITONSERVER_Error *run(const model_type *model, const hloom_tensor *inputs, const hloom_tensor *outputs) {
  const hloom_function *f = model->function;
  if (model->library->run(model->program, model->number, inputs, (size_t)f->input_count, outputs,
                          (size_t)f->output_count))
    return failure(INTERNAL, "model %s: %s", model->name, model->library->error());
  return 0;
}

/* One request by itself: what lies in one piece is not copied. */
static TRITONSERVER_Error *compute_one(instance_type *instance, one_type *one, hloom_tensor *outputs) {
  const model_type *model = instance->model;
  const hloom_function *f = model->function;
  for (int32_t k = 0; k < f->input_count; k++) {
    hloom_tensor *t = &one->inputs[k];
    t->data = (void *)one->pieces[k];
    if (t->data) continue;
    t->data = room(&instance->inputs[k], bytes_of(t->dtype, t->shape, t->rank, 0));
    if (!t->data) return failure(INTERNAL, "model %s: no memory for an input", model->name);
    TRY(input_data(model, one, k, t->data));
  }
  for (int32_t k = 0; k < f->output_count; k++) {
    const hloom_value *v = &f->outputs[k];
    const int64_t bytes = bytes_of(v->dtype, one->shapes[k], v->rank, 0);
    void *place;
    TRY(output_place(model, one, k, bytes, &place));
    if (!place) place = room(&instance->outputs[k], bytes);
    if (!place) return failure(INTERNAL, "model %s: no memory for an output", model->name);
    outputs[k] = (hloom_tensor){place, v->dtype, v->rank, one->shapes[k]};
  }
  return run(model, one->inputs, outputs);
}

/* Whether a request can join others: all sizes but the first are the same. */
static int joins(const model_type *model, const one_type *a, const one_type *b) {
  for (int32_t k = 0; k < model->function->input_count; k++)
    for (int32_t axis = 0; axis < a->inputs[k].rank; axis++)
      if (axis ? a->inputs[k].shape[axis] != b->inputs[k].shape[axis] : b->inputs[k].shape[0] != b->rows) return 0;
  return 1;
}

/* Several requests by one call. Their responses get their rows. */
static TRITONSERVER_Error *compute_batch(instance_type *instance, one_type **ones, uint32_t count, int64_t rows,
                                         hloom_tensor *inputs, hloom_tensor *outputs, sizes_type *shapes) {
  const model_type *model = instance->model;
  const hloom_function *f = model->function;
  for (int32_t k = 0; k < f->input_count + f->output_count; k++) {
    const int is_input = k < f->input_count;
    const int32_t n = is_input ? k : k - f->input_count;
    const hloom_value *v = is_input ? &f->inputs[n] : &f->outputs[n];
    memcpy(shapes[k], is_input ? ones[0]->inputs[n].shape : ones[0]->shapes[n], (size_t)v->rank * sizeof(int64_t));
    shapes[k][0] = rows;
    void *place = room(is_input ? &instance->inputs[n] : &instance->outputs[n], bytes_of(v->dtype, shapes[k], v->rank, 0));
    if (!place) return failure(INTERNAL, "model %s: no memory for a batch", model->name);
    (is_input ? inputs : outputs)[n] = (hloom_tensor){place, v->dtype, v->rank, shapes[k]};
    int64_t row = 0;
    for (uint32_t r = 0; is_input && r < count; row += ones[r++]->rows)
      TRY(input_data(model, ones[r], n, (unsigned char *)place + row * bytes_of(v->dtype, shapes[k], v->rank, 1)));
  }
  TRY(run(model, inputs, outputs));
  for (int32_t k = 0; k < f->output_count; k++) {
    const int64_t bytes = bytes_of(f->outputs[k].dtype, outputs[k].shape, f->outputs[k].rank, 1);
    const unsigned char *from = outputs[k].data;
    for (uint32_t r = 0; r < count; from += ones[r++]->rows * bytes) {
      void *place = 0;
      if (!ones[r]->error) ones[r]->error = output_place(model, ones[r], k, ones[r]->rows * bytes, &place);
      if (place && !ones[r]->error) memcpy(place, from, (size_t)(ones[r]->rows * bytes));
    }
  }
  return 0;
}

API TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance *triton,
                                                           TRITONBACKEND_Request **requests, uint32_t count) {
  void *state;
  TRY(TRITONBACKEND_ModelInstanceState(triton, &state));
  instance_type *instance = state;
  const model_type *model = instance->model;
  const uint64_t begin = now();
  const size_t ins = (size_t)model->function->input_count + 1, outs = (size_t)model->function->output_count + 1;
  /* One block for all that is as long as the requests are. */
  const size_t each = sizeof(one_type) + sizeof(one_type *) + ins * (sizeof(hloom_tensor) + sizeof(void *)) +
                      outs * sizeof(sizes_type);
  const size_t shared = (ins + outs) * (sizeof(hloom_tensor) + sizeof(sizes_type));
  unsigned char *block = calloc(1, each * count + shared), *next = block;
  if (!block) return failure(INTERNAL, "model %s: no memory for %u requests", model->name, count);
#define PART(type, many) ((type *)(next += (many) * sizeof(type), next - (many) * sizeof(type)))
  one_type *ones = PART(one_type, count), **group = PART(one_type *, count);
  sizes_type *shapes = PART(sizes_type, ins + outs);
  hloom_tensor *inputs = PART(hloom_tensor, ins), *outputs = PART(hloom_tensor, outs);
  for (uint32_t r = 0; r < count; r++) {
    one_type *one = &ones[r];
    one->inputs = PART(hloom_tensor, ins);
    one->shapes = PART(sizes_type, outs);
    one->pieces = PART(const void *, ins);
    one->request = requests[r];
    TRITONSERVER_Error *error = TRITONBACKEND_ResponseNew(&one->response, requests[r]);
    if (error) one->response = 0;
    one->error = error ? error : check(model, one);
    one->done = one->error != 0;
  }
#undef PART
  const uint64_t compute_begin = now();
  int64_t computed = 0;
  for (uint32_t r = 0; r < count; r++) {
    if (ones[r].done) continue;
    uint32_t size = 0;
    int64_t rows = 0;
    for (uint32_t s = r; s < count; s++) {
      one_type *one = &ones[s];
      if (one->done || (size && (!model->batched || rows + one->rows > model->most || !joins(model, &ones[r], one))))
        continue;
      group[size++] = one;
      rows += one->rows;
      one->done = 1;
    }
    computed += rows;
    if (size == 1) {
      group[0]->error = compute_one(instance, group[0], outputs);
      continue;
    }
    TRITONSERVER_Error *error = compute_batch(instance, group, size, rows, inputs, outputs, shapes);
    for (uint32_t s = 0; error && s < size; s++)
      if (!group[s]->error) group[s]->error = failure(INTERNAL, "%s", TRITONSERVER_ErrorMessage(error));
    forget(error);
  }
  const uint64_t compute_end = now();
  for (uint32_t r = 0; r < count; r++) {
    one_type *one = &ones[r];
    if (one->response) forget(TRITONBACKEND_ResponseSend(one->response, FINAL, one->error));
    forget(TRITONBACKEND_ModelInstanceReportStatistics(triton, one->request, !one->error, begin, compute_begin,
                                                       compute_end, now()));
    forget(one->error);
  }
  if (computed)
    forget(TRITONBACKEND_ModelInstanceReportBatchStatistics(triton, (uint64_t)computed, begin, compute_begin,
                                                            compute_end, now()));
  for (uint32_t r = 0; r < count; r++) forget(TRITONBACKEND_RequestRelease(requests[r], RELEASE_ALL));
  free(block);
  return 0;
}
