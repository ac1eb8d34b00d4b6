/* Calls of an exported program: checks, and what the driver runs. */

typedef struct { int64_t op, a, b; } node_type;      /* one operation of an expression; a, b: numbers of nodes */
typedef struct { int32_t position, kind; int64_t number; } fix_type;
typedef struct { int32_t kind, index, node; } use_type;
typedef struct { int32_t kind, number; } slot_type;  /* where an input or output of the plan comes from */

/* A plan, for all sizes of the dimensions for which its guards hold: nodes that are not 0. The nodes of guards come
   first. */
typedef struct {
  const int64_t *words;
  const fix_type *fixes;
  const int64_t (*rows)[8];
  int64_t arena_bytes;
  const node_type *nodes;
  const int32_t *guards;
  const use_type *uses;
  int32_t word_count, fix_count, row_count, node_count, guard_nodes, guard_count, use_count;
} plan_type;

/* slots: of the plan's inputs, then of its outputs. input_nodes, output_nodes: for each extent of the inputs and of the
   outputs a node of `shapes`. facts: nodes of `shapes` that are not 0 for sizes that it takes, with their texts. */
typedef struct {
  const plan_type *plans;
  const slot_type *slots;
  const node_type *shapes;
  const int32_t *input_nodes, *output_nodes, *facts;
  const char *const *fact_texts;
  int32_t plan_count, slot_count, plan_inputs, shape_count, fact_count;
  int64_t uses_dimensions; /* bit k: dimension k */
  const int32_t *kept;     /* parts of the state that are computed in place, ended by -1 */
} body_type;

enum { FIX_SLOT, FIX_CONSTANT, FIX_ARENA, FIX_KERNEL };
enum { USE_WORD, USE_ROW, USE_FIX, USE_ARENA };
enum { SLOT_INPUT, SLOT_OUTPUT, SLOT_STATE, SLOT_NEXT };
enum { MOST_DIMENSIONS = 8, MESSAGE = 512 };

typedef struct frame {
  struct frame *next;
  const plan_type *plan;
  int64_t sizes[MOST_DIMENSIONS];
  int64_t *words, (*rows)[8], *values;
  fix_type *fixes;
  unsigned char *arena;
  size_t arena_bytes;
} frame_type;

struct hloom_program {
  hloom_options options;
  pool_type workers;
  int32_t has_workers;
  mutex_type mutex;
  condition_type condition;
  int32_t readers, writing;
  frame_type *idle[FUNCTION_COUNT];
  const unsigned char *constants[CONSTANT_COUNT + 1];
  unsigned char *loaded; /* constants that were read from a file */
  unsigned char *state[STATE_COUNT + 1], *next[STATE_COUNT + 1];
  int32_t has_state;
};

#ifdef __wasm__
static char message[MESSAGE];
#else
static _Thread_local char message[MESSAGE];
#endif

static hloom_status fail(hloom_status status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  return status;
}

static const char *last_error(void) { return message; }

static void *c_allocate(void *context, size_t bytes, size_t alignment) {
  (void)context;
  unsigned char *raw = malloc(bytes + alignment + sizeof(void *));
  if (!raw) return 0;
  unsigned char *place = (unsigned char *)(((uintptr_t)raw + sizeof(void *) + alignment - 1) & ~(uintptr_t)(alignment - 1));
  memcpy(place - sizeof(void *), &raw, sizeof raw);
  return place;
}

static void c_release(void *context, void *memory) {
  (void)context;
  void *raw;
  memcpy(&raw, (unsigned char *)memory - sizeof(void *), sizeof raw);
  free(raw);
}

static void *take(const hloom_options *o, size_t bytes, size_t alignment) {
  return o->allocate(o->context, bytes ? bytes : 1, alignment);
}

static void *take_zeros(const hloom_options *o, size_t bytes, size_t alignment) {
  void *memory = take(o, bytes, alignment);
  if (memory) memset(memory, 0, bytes ? bytes : 1);
  return memory;
}

static void give(const hloom_options *o, void *memory) {
  if (memory) o->release(o->context, memory);
}

/* ---- sizes that depend on dimensions ---- */

/* The values of nodes from `first` to `count`; a quotient by 0 is 0. Returns 0 where one has more than 64 bits. */
static int evaluate(const node_type *nodes, int32_t first, int32_t count, const int64_t *sizes, int64_t *values) {
  int fits = 1;
  for (int32_t k = first; k < count; k++) {
    const node_type n = nodes[k];
    values[k] = n.op == NODE_CONSTANT ? n.a : n.op == NODE_DIMENSION ? sizes[n.a] : 0;
    if (n.op == NODE_CONSTANT || n.op == NODE_DIMENSION) continue;
    const int64_t row[] = {n.op, n.a, n.b, k};
    fits &= hloom_evaluate((int64_t)(uintptr_t)row, 1, (int64_t)(uintptr_t)values) != DRIVER_OVERFLOW;
  }
  return fits;
}

/* ---- frames: the memory of one running call ---- */

static void frame_free(const hloom_options *o, frame_type *f) {
  if (!f) return;
  give(o, f->arena);
  give(o, f->words);
  give(o, f->rows);
  give(o, f->fixes);
  give(o, f->values);
  give(o, f);
}

static frame_type *frame_new(const hloom_options *o, const body_type *body) {
  int32_t words = 1, rows = 1, fixes = 1, values = 1;
  for (int32_t k = 0; k < body->plan_count; k++) {
    const plan_type *p = &body->plans[k];
    if (p->word_count > words) words = p->word_count;
    if (p->row_count > rows) rows = p->row_count;
    if (p->fix_count > fixes) fixes = p->fix_count;
    if (p->node_count > values) values = p->node_count;
  }
  frame_type *f = take_zeros(o, sizeof *f, 64);
  if (!f) return 0;
  f->words = take(o, (size_t)words * 8, 128);
  f->rows = take(o, (size_t)rows * 64, 64);
  f->fixes = take(o, (size_t)fixes * sizeof(fix_type), 64);
  f->values = take(o, (size_t)values * 8, 64);
  if (!f->words || !f->rows || !f->fixes || !f->values) {
    frame_free(o, f);
    return 0;
  }
  return f;
}

/* Makes a frame ready for a plan and sizes of the dimensions; f->values are those of its nodes. Returns 0 where memory
   is lacking. */
static int frame_prepare(hloom_program *program, frame_type *f, const plan_type *p, const int64_t *sizes) {
  const hloom_options *o = &program->options;
  size_t arena = (size_t)p->arena_bytes;
  memcpy(f->words, p->words, (size_t)p->word_count * 8);
  memcpy(f->rows, p->rows, (size_t)p->row_count * 64);
  memcpy(f->fixes, p->fixes, (size_t)p->fix_count * sizeof(fix_type));
  for (int32_t k = 0; k < p->row_count; k++) {
    int64_t *row = f->rows[k];
    if (row[0] == DRIVER_KERNEL) row[1] = (int64_t)(uintptr_t)KERNELS[row[1]];
  }
  for (int32_t k = 0; k < p->use_count; k++) {
    const use_type use = p->uses[k];
    const int64_t value = f->values[use.node];
    if (use.kind == USE_WORD) f->words[use.index] = value;
    if (use.kind == USE_ROW) f->rows[use.index / 8][use.index % 8] = value;
    if (use.kind == USE_FIX) f->fixes[use.index].number = value;
    if (use.kind == USE_ARENA) arena = (size_t)value;
  }
  if (arena > f->arena_bytes || !f->arena) {
    give(o, f->arena);
    f->arena_bytes = 0;
    f->arena = take(o, arena < 64 ? 64 : arena, 128);
    if (!f->arena) {
      f->plan = 0;
      return 0;
    }
    f->arena_bytes = arena;
  }
  for (int32_t k = 0; k < p->fix_count; k++) {
    const fix_type fix = f->fixes[k];
    int64_t value = 0;
    if (fix.kind == FIX_SLOT) continue;
    if (fix.kind == FIX_CONSTANT) value = (int64_t)(uintptr_t)program->constants[fix.number];
    if (fix.kind == FIX_ARENA) value = (int64_t)(uintptr_t)(f->arena + fix.number);
    if (fix.kind == FIX_KERNEL) value = (int64_t)(uintptr_t)KERNELS[fix.number];
    f->words[fix.position] = value;
  }
  f->plan = p;
  memcpy(f->sizes, sizes, sizeof f->sizes);
  return 1;
}

/* ---- calls ---- */

static hloom_status too_large(const hloom_function *function) {
  return fail(HLOOM_ERROR_EXTENT, "%s: a number of its arrays has more than 64 bits for these sizes", function->name);
}

static hloom_status check_sizes(const body_type *body, const hloom_function *function, const int64_t *sizes) {
  for (int32_t k = 0; k < DIMENSION_COUNT; k++) {
    if (!(body->uses_dimensions >> k & 1)) continue;
    if (sizes[k] < DIMENSIONS[k].least || sizes[k] > DIMENSIONS[k].most)
      return fail(HLOOM_ERROR_EXTENT, "%s: dimension '%s' is %lld; it may be %lld to %lld", function->name,
                  DIMENSIONS[k].name, (long long)sizes[k], (long long)DIMENSIONS[k].least, (long long)DIMENSIONS[k].most);
    if (sizes[k] % MULTIPLES[k])
      return fail(HLOOM_ERROR_EXTENT, "%s: dimension '%s' is %lld; it has to be a multiple of %lld", function->name,
                  DIMENSIONS[k].name, (long long)sizes[k], (long long)MULTIPLES[k]);
  }
  int64_t values[MOST_SHAPES];
  if (body->fact_count && !evaluate(body->shapes, 0, body->shape_count, sizes, values)) return too_large(function);
  for (int32_t k = 0; k < body->fact_count; k++)
    if (!values[body->facts[k]])
      return fail(HLOOM_ERROR_EXTENT, "%s: %s does not hold for these sizes", function->name, body->fact_texts[k]);
  return HLOOM_OK;
}

/* The call itself, of arrays that were checked. */
static hloom_status call(hloom_program *program, int32_t number, const int64_t *sizes, const void *const *inputs,
                         void *const *outputs) {
  const body_type *body = &BODIES[number];
  const hloom_function *function = &FUNCTIONS[number];
  const hloom_status status = check_sizes(body, function, sizes);
  if (status) return status;
  mutex_lock(&program->mutex);
  if (function->updates_state)
    while (program->readers || program->writing) condition_wait(&program->condition, &program->mutex);
  else
    while (program->writing) condition_wait(&program->condition, &program->mutex);
  if (function->reads_state && !program->has_state) {
    mutex_unlock(&program->mutex);
    return fail(HLOOM_ERROR_STATE, "%s: the state has no values yet; call the function that initializes it, or load it",
                function->name);
  }
  if (function->updates_state)
    program->writing = 1;
  else
    program->readers++;
  frame_type *f = program->idle[number];
  if (f) program->idle[number] = f->next;
  mutex_unlock(&program->mutex);

  hloom_status result = HLOOM_OK;
  if (!f && !(f = frame_new(&program->options, body))) result = fail(HLOOM_ERROR_MEMORY, "%s: no memory", function->name);
  if (!result && (!f->plan || (DIMENSION_COUNT && memcmp(f->sizes, sizes, sizeof f->sizes)))) {
    const plan_type *found = 0;
    for (int32_t k = 0; k < body->plan_count && !found; k++) {
      const plan_type *p = &body->plans[k];
      int holds = evaluate(p->nodes, 0, p->guard_nodes, sizes, f->values);
      for (int32_t g = 0; g < p->guard_count && holds; g++) holds = f->values[p->guards[g]] != 0;
      if (holds) found = p;
    }
    if (!found)
      result = fail(HLOOM_ERROR_EXTENT, "%s: no plan for these sizes", function->name);
    else if (!evaluate(found->nodes, found->guard_nodes, found->node_count, sizes, f->values))
      result = fail(HLOOM_ERROR_EXTENT, "%s: a number of bytes for these sizes has more than 64 bits", function->name);
    else if (!frame_prepare(program, f, found, sizes))
      result = fail(HLOOM_ERROR_MEMORY, "%s: no memory for temporaries", function->name);
  }
  if (!result) {
    for (int32_t k = 0; k < f->plan->fix_count; k++) {
      const fix_type fix = f->plan->fixes[k];
      if (fix.kind != FIX_SLOT) continue;
      const slot_type slot = body->slots[fix.number];
      const void *place = 0;
      switch (slot.kind) {
        case SLOT_INPUT: place = inputs[slot.number]; break;
        case SLOT_OUTPUT: place = outputs[slot.number]; break;
        case SLOT_STATE: place = program->state[slot.number]; break;
        case SLOT_NEXT: place = program->next[slot.number]; break;
      }
      f->words[fix.position] = (int64_t)(uintptr_t)place;
    }
    hloom_run(pool_address(&program->workers), (int64_t)(uintptr_t)f->rows, f->plan->row_count,
              (int64_t)(uintptr_t)f->words);
  }

  mutex_lock(&program->mutex);
  if (f) {
    f->next = program->idle[number];
    program->idle[number] = f;
  }
  if (function->updates_state) {
    if (!result) {
      for (int32_t k = body->plan_inputs; k < body->slot_count; k++) {
        const slot_type slot = body->slots[k];
        if (slot.kind != SLOT_NEXT) continue;
        unsigned char *old = program->state[slot.number];
        program->state[slot.number] = program->next[slot.number];
        program->next[slot.number] = old;
      }
      program->has_state = 1;
    }
    program->writing = 0;
    condition_wake(&program->condition);
  } else if (!--program->readers) {
    condition_wake(&program->condition);
  }
  mutex_unlock(&program->mutex);
  return result;
}

static const char *dtype_name(hloom_dtype dtype) {
  static const char *const names[] = {"?",   "pred", "s8",  "s16",  "s32", "s64", "u8",  "u16",
                                      "u32", "u64",  "f16", "bf16", "f32", "f64", "c64", "c128"};
  return (int)dtype > 0 && (int)dtype < 16 ? names[dtype] : "unknown";
}

static int64_t item_bytes(hloom_dtype dtype) {
  static const int64_t bytes[] = {0, 1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8, 8, 16};
  return bytes[dtype];
}

/* Checks arrays against what the library says of them. sizes: of the dimensions; -1 where not yet known, which an input
   that has the dimension alone then decides. */
static hloom_status check_arrays(const hloom_function *function, const char *what, const hloom_value *wanted,
                                 int32_t wanted_count, const hloom_tensor *given, size_t count, const node_type *shapes,
                                 int32_t shape_count, const int32_t *nodes, int64_t *sizes, int binds) {
  if (count != (size_t)wanted_count)
    return fail(HLOOM_ERROR_ARGUMENT, "%s: %lld %ss were passed; it has %d", function->name, (long long)count, what,
                (int)wanted_count);
  if (!given && count) return fail(HLOOM_ERROR_ARGUMENT, "%s: the array of %ss is a null pointer", function->name, what);
  int64_t values[MOST_SHAPES];
  for (int pass = binds ? 0 : 1; pass < 2; pass++) {
    const int32_t *node = nodes;
    if (pass && !evaluate(shapes, 0, shape_count, sizes, values)) return too_large(function);
    for (int32_t k = 0; k < wanted_count; k++) {
      const hloom_value *w = &wanted[k];
      const hloom_tensor *t = &given[k];
      if (t->dtype != w->dtype)
        return fail(HLOOM_ERROR_DTYPE, "%s: %s '%s' is %s; it must be %s", function->name, what, w->name,
                    dtype_name(t->dtype), dtype_name(w->dtype));
      if (t->rank != w->rank)
        return fail(HLOOM_ERROR_RANK, "%s: %s '%s' has %d dimensions; it must have %d", function->name, what, w->name,
                    (int)t->rank, (int)w->rank);
      if (w->rank && !t->shape)
        return fail(HLOOM_ERROR_ARGUMENT, "%s: the shape of %s '%s' is a null pointer", function->name, what, w->name);
      int64_t elements = 1;
      for (int32_t axis = 0; axis < w->rank; axis++, node++) {
        const int64_t size = t->shape[axis];
        if (!pass) {
          if (shapes[*node].op == NODE_DIMENSION && sizes[shapes[*node].a] < 0) sizes[shapes[*node].a] = size;
        } else if (size != values[*node]) {
          const int named = w->shape[axis] < 0;
          return fail(HLOOM_ERROR_EXTENT, "%s: dimension %d of %s '%s' is %lld; it must be %lld%s%s%s", function->name,
                      (int)axis, what, w->name, (long long)size, (long long)values[*node], named ? " (" : "",
                      named ? w->extents[axis] : "", named ? ")" : "");
        }
        elements = size ? elements : 0;
      }
      if (!t->data && elements)
        return fail(HLOOM_ERROR_ARGUMENT, "%s: the data of %s '%s' is a null pointer", function->name, what, w->name);
      const int64_t item = item_bytes(w->dtype);
      if ((uintptr_t)t->data % (uintptr_t)(item > 8 ? 8 : item))
        return fail(HLOOM_ERROR_ARGUMENT, "%s: the data of %s '%s' is not aligned to its elements", function->name, what,
                    w->name);
    }
    if (!pass) {
      for (int32_t k = 0; k < DIMENSION_COUNT; k++)
        if (sizes[k] < 0) sizes[k] = DIMENSIONS[k].least;
    }
  }
  return HLOOM_OK;
}

static hloom_status check_function(const hloom_program *program, int32_t number) {
  if (!program) return fail(HLOOM_ERROR_ARGUMENT, "the program is a null pointer");
  if (number < 0 || number >= FUNCTION_COUNT)
    return fail(HLOOM_ERROR_ARGUMENT, "there is no function %d; there are %d", (int)number, FUNCTION_COUNT);
  return HLOOM_OK;
}

static hloom_status bind_inputs(int32_t number, const hloom_tensor *inputs, size_t count, int64_t *sizes) {
  const body_type *body = &BODIES[number];
  const hloom_function *function = &FUNCTIONS[number];
  for (int32_t k = 0; k < MOST_DIMENSIONS; k++) sizes[k] = -1;
  hloom_status status = check_arrays(function, "input", function->inputs, function->input_count, inputs, count,
                                     body->shapes, body->shape_count, body->input_nodes, sizes, 1);
  return status ? status : check_sizes(body, function, sizes);
}

static hloom_status run(hloom_program *program, int32_t number, const hloom_tensor *inputs, size_t input_count,
                        const hloom_tensor *outputs, size_t output_count) {
  hloom_status status = check_function(program, number);
  if (status) return status;
  const hloom_function *function = &FUNCTIONS[number];
  const body_type *body = &BODIES[number];
  int64_t sizes[MOST_DIMENSIONS];
  if ((status = bind_inputs(number, inputs, input_count, sizes))) return status;
  status = check_arrays(function, "output", function->outputs, function->output_count, outputs, output_count,
                        body->shapes, body->shape_count, body->output_nodes, sizes, 0);
  if (status) return status;
  const void *in[MOST_VALUES];
  void *out[MOST_VALUES];
  for (int32_t k = 0; k < function->input_count; k++) in[k] = inputs[k].data;
  for (int32_t k = 0; k < function->output_count; k++) out[k] = outputs[k].data;
  return call(program, number, sizes, in, out);
}

static hloom_status output_shape(const hloom_program *program, int32_t number, const hloom_tensor *inputs,
                                 size_t input_count, int32_t output, int64_t *shape) {
  hloom_status status = check_function(program, number);
  if (status) return status;
  const hloom_function *function = &FUNCTIONS[number];
  const body_type *body = &BODIES[number];
  if (output < 0 || output >= function->output_count || !shape)
    return fail(HLOOM_ERROR_ARGUMENT, "%s: there is no output %d, or the place for its shape is a null pointer",
                function->name, (int)output);
  int64_t sizes[MOST_DIMENSIONS], values[MOST_SHAPES];
  if ((status = bind_inputs(number, inputs, input_count, sizes))) return status;
  if (!evaluate(body->shapes, 0, body->shape_count, sizes, values)) return too_large(function);
  const int32_t *node = body->output_nodes;
  for (int32_t k = 0; k < output; k++) node += function->outputs[k].rank;
  for (int32_t axis = 0; axis < function->outputs[output].rank; axis++) shape[axis] = values[node[axis]];
  return HLOOM_OK;
}

/* A call with plain pointers (the functions of NAME.h). */
static hloom_status call_plain(hloom_program *program, int32_t number, const int64_t *sizes, const void *const *inputs,
                               void *const *outputs) {
  hloom_status status = check_function(program, number);
  if (status) return status;
  const hloom_function *function = &FUNCTIONS[number];
  for (int32_t k = 0; k < function->input_count + function->output_count; k++) {
    const int is_input = k < function->input_count;
    const hloom_value *value = is_input ? &function->inputs[k] : &function->outputs[k - function->input_count];
    const void *data = is_input ? inputs[k] : outputs[k - function->input_count];
    if (!data && value->bytes)
      return fail(HLOOM_ERROR_ARGUMENT, "%s: '%s' is a null pointer", function->name, value->name);
    const int64_t item = item_bytes(value->dtype);
    if ((uintptr_t)data % (uintptr_t)(item > 8 ? 8 : item))
      return fail(HLOOM_ERROR_ARGUMENT, "%s: '%s' is not aligned to its elements", function->name, value->name);
  }
  return call(program, number, sizes, inputs, outputs);
}

/* ---- the state ---- */

static hloom_status check_part(hloom_program *program, int32_t part, const void *data, size_t bytes) {
  if (!program) return fail(HLOOM_ERROR_ARGUMENT, "the program is a null pointer");
  if (part < 0 || part >= STATE_COUNT)
    return fail(HLOOM_ERROR_ARGUMENT, "there is no part %d of the state; there are %d", (int)part, STATE_COUNT);
  if (!data) return fail(HLOOM_ERROR_ARGUMENT, "state '%s': the data is a null pointer", STATE[part].name);
  if ((int64_t)bytes != STATE[part].bytes)
    return fail(HLOOM_ERROR_EXTENT, "state '%s' has %lld bytes; %lld were passed", STATE[part].name,
                (long long)STATE[part].bytes, (long long)bytes);
  return HLOOM_OK;
}

static void begin_update(hloom_program *program) {
  mutex_lock(&program->mutex);
  while (program->readers || program->writing) condition_wait(&program->condition, &program->mutex);
  program->writing = 1;
  mutex_unlock(&program->mutex);
}

static void end_update(hloom_program *program) {
  mutex_lock(&program->mutex);
  program->writing = 0;
  condition_wake(&program->condition);
  mutex_unlock(&program->mutex);
}

static hloom_status read_state(hloom_program *program, int32_t part, void *data, size_t bytes) {
  hloom_status status = check_part(program, part, data, bytes);
  if (status) return status;
  begin_update(program);
  if (program->has_state)
    memcpy(data, program->state[part], bytes);
  else
    status = fail(HLOOM_ERROR_STATE, "the state has no values yet");
  end_update(program);
  return status;
}

/* A program whose state was never written has zeros in its other parts. */
static hloom_status write_state(hloom_program *program, int32_t part, const void *data, size_t bytes) {
  hloom_status status = check_part(program, part, data, bytes);
  if (status) return status;
  begin_update(program);
  memcpy(program->state[part], data, bytes);
  program->has_state = 1;
  end_update(program);
  return HLOOM_OK;
}
