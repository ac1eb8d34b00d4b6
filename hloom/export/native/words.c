/* What the functions of the driver call: locks, the clock, and memory by address, where a value is a word of 8 bytes. */

#if defined(__wasm__) || defined(HLOOM_NO_THREADS)
#define HLOOM_THREADS 0
#else
#define HLOOM_THREADS 1
#endif

#if HLOOM_THREADS
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
#define ATOMIC_LOAD(place, order) __atomic_load_n(place, order)
#define ATOMIC_STORE(place, value, order) __atomic_store_n(place, value, order)
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
static void give_way(void) {}
static int64_t nanoseconds(void) { return 0; }
static int processors(void) { return 1; }
static inline void pause_briefly(void) {}
#define ATOMIC_LOAD(place, order) (*(place))
#define ATOMIC_STORE(place, value, order) (*(place) = (value))
#endif

static inline int64_t *word_at(int64_t address, int64_t index) { return (int64_t *)(uintptr_t)address + index; }
static inline int64_t word_load(int64_t address, int64_t index) { return *word_at(address, index); }
static inline void word_store(int64_t address, int64_t index, int64_t value) { *word_at(address, index) = value; }
static inline int64_t byte_load(int64_t address) { return *(const unsigned char *)(uintptr_t)address; }

static inline int64_t word_relaxed_load(int64_t address, int64_t index) {
  return ATOMIC_LOAD(word_at(address, index), __ATOMIC_RELAXED);
}

static inline void word_relaxed_store(int64_t address, int64_t index, int64_t value) {
  ATOMIC_STORE(word_at(address, index), value, __ATOMIC_RELAXED);
}

static inline int64_t word_atomic_load(int64_t address, int64_t index) {
  return ATOMIC_LOAD(word_at(address, index), __ATOMIC_SEQ_CST);
}

static inline void word_atomic_store(int64_t address, int64_t index, int64_t value) {
  ATOMIC_STORE(word_at(address, index), value, __ATOMIC_SEQ_CST);
}

/* The value before. */
static inline int64_t word_atomic_add(int64_t address, int64_t index, int64_t value) {
#if HLOOM_THREADS
  return __atomic_fetch_add(word_at(address, index), value, __ATOMIC_SEQ_CST);
#else
  const int64_t old = word_load(address, index);
  word_store(address, index, old + value);
  return old;
#endif
}

static inline int word_compare_exchange(int64_t address, int64_t index, int64_t expected, int64_t value) {
#if HLOOM_THREADS
  return __atomic_compare_exchange_n(word_at(address, index), &expected, value, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
#else
  if (word_load(address, index) != expected) return 0;
  word_store(address, index, value);
  return 1;
#endif
}

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t greatest(int64_t a, int64_t b) { return a > b ? a : b; }

static inline int64_t magnitude(int64_t a) { return a < 0 ? -a : a; }

static inline int64_t floor_quotient(int64_t a, int64_t b) {
  const int64_t q = a / b;
  return a % b && (a < 0) != (b < 0) ? q - 1 : q;
}

static inline int64_t floor_rest(int64_t a, int64_t b) { return a - floor_quotient(a, b) * b; }

typedef void (*kernel_type)(void *words, int64_t low, int64_t high);

static inline void call_kernel(int64_t kernel, int64_t words, int64_t low, int64_t high) {
  ((kernel_type)(uintptr_t)kernel)((void *)(uintptr_t)words, low, high);
}

static inline void copy_bytes(int64_t target, int64_t source, int64_t count) {
  memmove((void *)(uintptr_t)target, (const void *)(uintptr_t)source, (size_t)count);
}

static inline void lock_at(int64_t mutex) { mutex_lock((mutex_type *)(uintptr_t)mutex); }
static inline void unlock_at(int64_t mutex) { mutex_unlock((mutex_type *)(uintptr_t)mutex); }
static inline void wake_at(int64_t condition) { condition_wake((condition_type *)(uintptr_t)condition); }
static inline void wait_at(int64_t condition, int64_t mutex) {
  condition_wait((condition_type *)(uintptr_t)condition, (mutex_type *)(uintptr_t)mutex);
}

static inline int64_t hloom_now(int64_t pool) {
  (void)pool;
  return nanoseconds();
}
