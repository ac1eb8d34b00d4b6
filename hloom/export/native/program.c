/* The beginning and the end of a program. */

#if defined(__arm__)
/* LLVM calls these where the processor has no such instruction, and C libraries without C23 lack them. */
#include <math.h>
__attribute__((weak, visibility("hidden"))) double roundeven(double x) { return rint(x); }
__attribute__((weak, visibility("hidden"))) float roundevenf(float x) { return rintf(x); }
#endif

#if defined(__x86_64__)
static void cpuid(unsigned leaf, unsigned subleaf, unsigned *r) {
  __asm__ volatile("cpuid" : "=a"(r[0]), "=b"(r[1]), "=c"(r[2]), "=d"(r[3]) : "a"(leaf), "c"(subleaf));
}
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* A feature that the processor or the system lacks; null where there is none. */
static const char *missing_feature(void) {
  unsigned r[4], most, most_extended;
  cpuid(0, 0, r);
  most = r[0];
  cpuid(0x80000000u, 0, r);
  most_extended = r[0];
  cpuid(1, 0, r);
  unsigned saved = 0;
  if (r[2] >> 27 & 1) {
    unsigned high;
    __asm__ volatile("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
  }
  for (const feature_type *f = FEATURES; f->name; f++) {
    if (f->leaf > (f->leaf & 0x80000000u ? most_extended : most)) return f->name;
    cpuid(f->leaf, f->subleaf, r);
    if (!(r[f->reg] >> f->bit & 1) || (saved & f->saved) != f->saved) return f->name;
#if defined(__linux__)
    if (!strcmp(f->name, "amx-tile") && syscall(158, 0x1023, 18)) return f->name; /* ARCH_REQ_XCOMP_PERM */
#endif
  }
  return 0;
}
#elif defined(__linux__) && (defined(__aarch64__) || defined(__arm__) || defined(__riscv))
#include <sys/auxv.h>
static const char *missing_feature(void) {
  for (const feature_type *f = FEATURES; f->name; f++)
    if (!(getauxval(f->leaf) >> f->bit & 1)) return f->name;
  return 0;
}
#else
static const char *missing_feature(void) { return 0; }
#endif

static void destroy(hloom_program *program) {
  if (!program) return;
  const hloom_options o = program->options;
  if (program->has_workers) pool_end(&program->workers);
  give(&o, program->workers.words);
  give(&o, program->workers.seats);
  for (int32_t k = 0; k < FUNCTION_COUNT; k++) {
    for (frame_type *f = program->idle[k], *next; f; f = next) {
      next = f->next;
      frame_free(&o, f);
    }
  }
  for (int32_t k = 0; k < STATE_COUNT; k++) {
    give(&o, program->state[k]);
    give(&o, program->next[k]);
  }
  give(&o, program->loaded);
  condition_free(&program->condition);
  mutex_free(&program->mutex);
  give(&o, program);
}

/* Constants that are in a file beside the library. */
static hloom_status load_constants(hloom_program *program) {
  unsigned char *places[STORED_COUNT + 1];
  size_t bytes = 0;
  if (!STORED_COUNT) return HLOOM_OK;
  if (!program->options.weights)
    return fail(HLOOM_ERROR_FILE, "the constants of '%s' are in %s: set options.weights to its path", LIBRARY_NAME,
                LIBRARY.weights);
  for (int32_t k = 0; k < STORED_COUNT; k++) bytes += ((size_t)STORED[k].bytes + 63) / 64 * 64;
  program->loaded = take(&program->options, bytes, 64);
  if (!program->loaded) return fail(HLOOM_ERROR_MEMORY, "no memory for %lld bytes of constants", (long long)bytes);
  bytes = 0;
  for (int32_t k = 0; k < STORED_COUNT; k++) {
    places[k] = program->loaded + bytes;
    bytes += ((size_t)STORED[k].bytes + 63) / 64 * 64;
    program->constants[STORED_NUMBERS[k]] = places[k];
  }
  return read_file(&program->options, program->options.weights, STORED, STORED_COUNT, places);
}

static hloom_status create(const hloom_options *options, hloom_program **result) {
  hloom_options o = HLOOM_OPTIONS;
  if (!result) return fail(HLOOM_ERROR_ARGUMENT, "the place for the program is a null pointer");
  *result = 0;
  if (options) {
    if (options->abi != HLOOM_ABI)
      return fail(HLOOM_ERROR_VERSION, "'%s' has interface version %d, the caller was compiled for %d: begin options with "
                  "HLOOM_OPTIONS, and compile with the hloom.h beside the library", LIBRARY_NAME, HLOOM_ABI,
                  (int)options->abi);
    o = *options;
  }
  if (!o.allocate != !o.release)
    return fail(HLOOM_ERROR_ARGUMENT, "options.allocate and options.release must be set together");
  if (!o.allocate) {
    o.allocate = c_allocate;
    o.release = c_release;
  }
  if (o.num_threads < 0) return fail(HLOOM_ERROR_ARGUMENT, "num_threads is %d; it must be 0 or more", (int)o.num_threads);
  if (!o.num_threads) o.num_threads = processors();
  if (!HLOOM_THREADS) o.num_threads = 1;
  if (o.num_threads > MOST_THREADS) o.num_threads = MOST_THREADS;
  const char *missing = missing_feature();
  if (missing)
    return fail(HLOOM_ERROR_PROCESSOR, "'%s' was compiled for a processor with '%s' (%s), which this one lacks: export it "
                "for another one (features=)", LIBRARY_NAME, missing, LIBRARY.processor);
  hloom_program *program = take_zeros(&o, sizeof *program, 128);
  if (!program) return fail(HLOOM_ERROR_MEMORY, "no memory for the program");
  program->options = o;
  mutex_init(&program->mutex);
  condition_init(&program->condition);
  hloom_status status = HLOOM_OK;
  for (int32_t k = 0; k < CONSTANT_COUNT; k++) program->constants[k] = CONSTANTS[k];
  for (int32_t k = 0; k < STATE_COUNT && !status; k++) {
    program->state[k] = take_zeros(&o, (size_t)STATE[k].bytes, 64);
    program->next[k] = take_zeros(&o, (size_t)STATE[k].bytes, 64);
    if (!program->state[k] || !program->next[k]) status = fail(HLOOM_ERROR_MEMORY, "no memory for the state");
  }
  if (!status) status = load_constants(program);
  if (!status) {
    pool_type *workers = &program->workers;
    workers->words = take_zeros(&o, pool_bytes(o.num_threads), 128);
    workers->seats = take_zeros(&o, (size_t)o.num_threads * sizeof *workers->seats, 64);
    program->has_workers = workers->words && workers->seats;
    if (!program->has_workers)
      status = fail(HLOOM_ERROR_MEMORY, "no memory for threads");
    else if (!pool_begin(workers, o.num_threads))
      status = fail(HLOOM_ERROR_THREAD, "the system did not start %d threads", (int)o.num_threads - 1);
  }
  if (status) {
    destroy(program);
    return status;
  }
  *result = program;
  return HLOOM_OK;
}
