/* Threads that share the chunks of one kernel. Each has a share of them, the same share of every kernel, so that it
   finds in its core's cache what it wrote there before; who is done helps the others, from the far end of their shares.
   A ticket holds the job's number and the chunks of a share that nobody has taken yet, in one word, so that a thread
   which slept through the end of its job takes nothing. */

#if defined(__wasm__) || defined(HLOOM_NO_THREADS)
#define HLOOM_THREADS 0
#else
#define HLOOM_THREADS 1
#endif

typedef void (*kernel_type)(void *words, int64_t low, int64_t high);

#if HLOOM_THREADS
#include <stdatomic.h>
#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
typedef SRWLOCK mutex_type;
typedef CONDITION_VARIABLE condition_type;
typedef HANDLE thread_type;
static void mutex_init(mutex_type *m) { InitializeSRWLock(m); }
static void mutex_lock(mutex_type *m) { AcquireSRWLockExclusive(m); }
static void mutex_unlock(mutex_type *m) { ReleaseSRWLockExclusive(m); }
static void mutex_free(mutex_type *m) { (void)m; }
static void condition_init(condition_type *c) { InitializeConditionVariable(c); }
static void condition_wait(condition_type *c, mutex_type *m) { SleepConditionVariableSRW(c, m, INFINITE, 0); }
static void condition_wake(condition_type *c) { WakeAllConditionVariable(c); }
static void condition_free(condition_type *c) { (void)c; }
static void give_way(void) { SwitchToThread(); }
static int64_t nanoseconds(void) {
  LARGE_INTEGER now, rate;
  QueryPerformanceCounter(&now);
  QueryPerformanceFrequency(&rate);
  return (int64_t)((double)now.QuadPart * 1e9 / (double)rate.QuadPart);
}
static int processors(void) {
  SYSTEM_INFO info;
  GetSystemInfo(&info);
  return (int)info.dwNumberOfProcessors;
}
#else
#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>
typedef pthread_mutex_t mutex_type;
typedef pthread_cond_t condition_type;
typedef pthread_t thread_type;
static void mutex_init(mutex_type *m) { pthread_mutex_init(m, 0); }
static void mutex_lock(mutex_type *m) { pthread_mutex_lock(m); }
static void mutex_unlock(mutex_type *m) { pthread_mutex_unlock(m); }
static void mutex_free(mutex_type *m) { pthread_mutex_destroy(m); }
static void condition_init(condition_type *c) { pthread_cond_init(c, 0); }
static void condition_wait(condition_type *c, mutex_type *m) { pthread_cond_wait(c, m); }
static void condition_wake(condition_type *c) { pthread_cond_broadcast(c); }
static void condition_free(condition_type *c) { pthread_cond_destroy(c); }
static void give_way(void) { sched_yield(); }
static int64_t nanoseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
static int processors(void) {
#ifdef __linux__
  cpu_set_t set;
  if (!sched_getaffinity(0, sizeof set, &set)) return CPU_COUNT(&set);
#endif
  long count = sysconf(_SC_NPROCESSORS_ONLN);
  return count > 0 ? (int)count : 1;
}
#endif

static inline void pause_briefly(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");
#endif
}

enum { MOST_THREADS = 256, CHUNK_BITS = 18, JOB_SHIFT = 2 * CHUNK_BITS, SPIN_NANOSECONDS = 40000, LOOKS = 32 };
#define MOST_CHUNKS (((int64_t)1 << CHUNK_BITS) - 1)
#define MOST_JOBS (((int64_t)1 << (63 - JOB_SHIFT)) - 1)

/* What one thread writes while others spin on something else lies 128 bytes apart: lines are fetched in pairs. */
typedef struct { _Alignas(128) _Atomic int64_t word; } padded_word;

typedef struct pool {
  padded_word job, busy, finished, sleepers, tickets[MOST_THREADS];
  _Atomic int64_t items, grain, chunks, shares;
  _Atomic uintptr_t kernel, words;
  _Atomic int stop;
  int threads, started;
  mutex_type mutex;
  condition_type condition;
  thread_type workers[MOST_THREADS];
  struct seat { struct pool *pool; int number; } seats[MOST_THREADS];
} pool;

#define GET(place) atomic_load_explicit(&(place), memory_order_relaxed)
#define PUT(place, value) atomic_store_explicit(&(place), value, memory_order_relaxed)

static void work(pool *p, int64_t job, int64_t own) {
  const int64_t chunks = GET(p->chunks), shares = GET(p->shares);
  int64_t done = 0;
  for (int64_t turn = 0; turn < shares; turn++) {
    const int64_t share = (own + turn) % shares;
    const int helps = share != own && shares != 1;
    for (;;) {
      int64_t ticket = atomic_load(&p->tickets[share].word);
      const int64_t first = (ticket >> CHUNK_BITS) & MOST_CHUNKS, end = ticket & MOST_CHUNKS;
      if (ticket >> JOB_SHIFT != job || first == end) break;
      const kernel_type kernel = (kernel_type)GET(p->kernel);
      void *words = (void *)GET(p->words);
      const int64_t items = GET(p->items), grain = GET(p->grain);
      const int64_t chunk = helps ? end - 1 : first;
      const int64_t left = helps ? ticket - 1 : ticket + ((int64_t)1 << CHUNK_BITS);
      if (!atomic_compare_exchange_strong(&p->tickets[share].word, &ticket, left)) continue;
      const int64_t low = chunk * grain, high = low + grain;
      kernel(words, low, high < items ? high : items);
      done++;
    }
    if (turn == 0 && done) {
      if (atomic_fetch_add(&p->finished.word, done) + done == chunks) return;
      done = 0;
    }
  }
  if (done) atomic_fetch_add(&p->finished.word, done);
}

static void worker_loop(pool *p, int number) {
  int64_t seen = 0;
  for (;;) {
    int64_t job = atomic_load(&p->job.word);
    int64_t until = 0;
    for (int turn = 1; job == seen; turn++) {
      if (atomic_load(&p->stop)) return;
      if (turn % LOOKS == 0) {
        const int64_t now = nanoseconds();
        if (!until) until = now + SPIN_NANOSECONDS;
        if (now >= until) {
          mutex_lock(&p->mutex);
          atomic_fetch_add(&p->sleepers.word, 1);
          while (atomic_load(&p->job.word) == seen && !atomic_load(&p->stop)) condition_wait(&p->condition, &p->mutex);
          atomic_fetch_sub(&p->sleepers.word, 1);
          mutex_unlock(&p->mutex);
          until = 0;
        }
      }
      pause_briefly();
      job = atomic_load(&p->job.word);
    }
    seen = job;
    work(p, job, number);
  }
}

#ifdef _WIN32
static DWORD WINAPI worker(void *seat) {
#else
static void *worker(void *seat) {
#endif
  struct seat *own = seat;
  worker_loop(own->pool, own->number);
  return 0;
}

static int start_thread(thread_type *thread, void *seat) {
#ifdef _WIN32
  *thread = CreateThread(0, 0, worker, seat, 0, 0);
  return *thread == 0;
#else
  return pthread_create(thread, 0, worker, seat);
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

static void pool_end(pool *p) {
  mutex_lock(&p->mutex);
  atomic_store(&p->stop, 1);
  condition_wake(&p->condition);
  mutex_unlock(&p->mutex);
  for (int k = 0; k < p->started; k++) join_thread(p->workers[k]);
  condition_free(&p->condition);
  mutex_free(&p->mutex);
}

/* Whether all threads run. p: zeros. */
static int pool_begin(pool *p, int threads) {
  p->threads = threads;
  mutex_init(&p->mutex);
  condition_init(&p->condition);
  for (; p->started < threads - 1; p->started++) {
    p->seats[p->started].pool = p;
    p->seats[p->started].number = p->started + 1;
    if (start_thread(&p->workers[p->started], &p->seats[p->started])) {
      pool_end(p);
      return 0;
    }
  }
  return 1;
}

/* side_by_side: any thread takes the next chunk. ns: what one thread would need, roughly; sleeping threads are not woken
   for less than waking takes. */
static void parallel(pool *p, kernel_type kernel, void *words, int64_t items, int64_t grain, int64_t side_by_side,
                     int64_t ns) {
  const int64_t chunks = (items - 1) / grain + 1;
  int64_t idle = 0;
  const int64_t asleep = p ? atomic_load(&p->sleepers.word) : 0;
  const int wakes = !ns || ns >= 20000;
  if (!p || chunks > MOST_CHUNKS || !(wakes || asleep < p->started) ||
      !atomic_compare_exchange_strong(&p->busy.word, &idle, 1)) {
    for (int64_t low = 0; low < items; low += grain) kernel(words, low, low + grain < items ? low + grain : items);
    return;
  }
  const int64_t job = (atomic_load(&p->job.word) + 1) & MOST_JOBS;
  const int64_t shares = side_by_side ? 1 : p->threads < chunks ? p->threads : chunks;
  PUT(p->kernel, (uintptr_t)kernel);
  PUT(p->words, (uintptr_t)words);
  PUT(p->items, items);
  PUT(p->grain, grain);
  PUT(p->chunks, chunks);
  PUT(p->shares, shares);
  PUT(p->finished.word, 0);
  int64_t first = 0;
  for (int64_t share = 0; share < shares; share++) {
    const int64_t end = chunks * (share + 1) / shares;
    PUT(p->tickets[share].word, job << JOB_SHIFT | first << CHUNK_BITS | end);
    first = end;
  }
  atomic_store(&p->job.word, job);
  /* A worker counts itself as a sleeper before it looks for the last time: it sees the job or is seen here. */
  if (wakes && atomic_load(&p->sleepers.word)) {
    mutex_lock(&p->mutex);
    condition_wake(&p->condition);
    mutex_unlock(&p->mutex);
  }
  work(p, job, 0);
  for (int turn = 0; atomic_load(&p->finished.word) != chunks; turn++) {
    if (turn < 20000)
      pause_briefly();
    else
      give_way(); /* more threads than processors: let the one that holds the last chunk run */
  }
  atomic_store(&p->busy.word, 0);
}
#else
typedef int mutex_type;
static void mutex_init(mutex_type *m) { *m = 0; }
static void mutex_lock(mutex_type *m) { *m = 1; }
static void mutex_unlock(mutex_type *m) { *m = 0; }
static void mutex_free(mutex_type *m) { (void)m; }
typedef int condition_type;
static void condition_init(condition_type *c) { *c = 0; }
static void condition_wait(condition_type *c, mutex_type *m) { (void)c, (void)m; }
static void condition_wake(condition_type *c) { (void)c; }
static void condition_free(condition_type *c) { (void)c; }
static int processors(void) { return 1; }
typedef struct pool { int threads; } pool;

static void parallel(pool *p, kernel_type kernel, void *words, int64_t items, int64_t grain, int64_t side_by_side,
                     int64_t ns) {
  (void)p, (void)side_by_side, (void)ns;
  for (int64_t low = 0; low < items; low += grain) kernel(words, low, low + grain < items ? low + grain : items);
}
#endif
