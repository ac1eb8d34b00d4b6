/* The threads that share the chunks of a kernel: `words` are those of a pool in runtime/driver_source.py. */

enum { MOST_THREADS = 256 };

#if HLOOM_THREADS
typedef struct { int64_t pool; int number; thread_type thread; } seat_type;
#else
typedef struct { int number; } seat_type;
#endif

typedef struct {
  int64_t *words;
  seat_type *seats;
  int started;
} pool_type;

_Static_assert(sizeof(mutex_type) <= 8 * (DRIVER_POOL_CONDITION - DRIVER_POOL_MUTEX), "a mutex has 128 bytes");
_Static_assert(sizeof(condition_type) <= 8 * (DRIVER_POOL_WORDS - DRIVER_POOL_CONDITION), "a condition has 128 bytes");

static size_t pool_bytes(int threads) { return 8 * (size_t)(DRIVER_POOL_WORDS + DRIVER_TICKET_WORDS * threads); }
static int64_t pool_address(const pool_type *p) { return (int64_t)(uintptr_t)p->words; }
static mutex_type *pool_mutex(pool_type *p) { return (mutex_type *)(p->words + DRIVER_POOL_MUTEX); }
static condition_type *pool_condition(pool_type *p) { return (condition_type *)(p->words + DRIVER_POOL_CONDITION); }

#if HLOOM_THREADS
#ifdef _WIN32
static DWORD WINAPI worker(void *seat) {
#else
static void *worker(void *seat) {
#endif
  const seat_type *own = seat;
  hloom_worker(own->pool, own->number);
  return 0;
}

static int start_thread(seat_type *seat) {
#ifdef _WIN32
  seat->thread = CreateThread(0, 0, worker, seat, 0, 0);
  return seat->thread == 0;
#else
  return pthread_create(&seat->thread, 0, worker, seat);
#endif
}

static void join_thread(thread_type thread) {
#ifdef _WIN32
  WaitForSingleObject(thread, INFINITE);
  CloseHandle(thread);
#else
  pthread_join(thread, 0);
#endif
}

/* Iterations of the waiting loop in SPIN_NANOSECONDS, as `Driver._calibrate` of the runtime has them. */
static int64_t pool_spins(int64_t pool) {
  enum { TURNS = 500 };
  int64_t best = INT64_MAX;
  hloom_spin(pool, 10);
  for (int k = 0; k < 3; k++) {
    const int64_t start = nanoseconds();
    hloom_spin(pool, TURNS);
    best = least(best, nanoseconds() - start);
  }
  return greatest(20, least(100000, DRIVER_SPIN_NANOSECONDS * TURNS / greatest(best, 1)));
}
#endif

static void pool_end(pool_type *p) {
#if HLOOM_THREADS
  hloom_stop(pool_address(p));
  for (int k = 0; k < p->started; k++) join_thread(p->seats[k].thread);
#endif
  condition_free(pool_condition(p));
  mutex_free(pool_mutex(p));
}

/* Whether all threads run. p: memory for so many threads, zeros. */
static int pool_begin(pool_type *p, int threads) {
  mutex_init(pool_mutex(p));
  condition_init(pool_condition(p));
  p->words[DRIVER_POOL_THREADS] = threads;
  p->words[DRIVER_POOL_WAKING] = DRIVER_WAKING;
#if HLOOM_THREADS
  if (threads > 1) p->words[DRIVER_POOL_SPINS] = pool_spins(pool_address(p));
  for (; p->started < threads - 1; p->started++) {
    seat_type *seat = &p->seats[p->started];
    seat->pool = pool_address(p);
    seat->number = p->started + 1;
    if (start_thread(seat)) return 0;
  }
  p->words[DRIVER_POOL_STARTED] = threads > 1;
#endif
  return 1;
}
