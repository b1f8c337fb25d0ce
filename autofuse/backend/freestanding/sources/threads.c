/* The functions that TVM's generated code calls: errors, workspace, and a launch of tasks on threads. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "threads.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { HUGE_PAGE = 2 << 20, SPINS_A_LOOK = 64 };
static const int64_t SPIN_NS = 5000000; /* how long an idle thread looks for work before it sleeps */

_Thread_local char af_error_text[MOST_TEXT];
_Thread_local af_thread *af_current;

int af_fail(int code, const char *format, ...) {
  va_list values;
  va_start(values, format);
  vsnprintf(af_error_text, sizeof af_error_text, format, values);
  va_end(values);
  return code;
}

void *af_aligned(uint64_t bytes) {
  void *made = NULL;
  uint64_t step = bytes >= HUGE_PAGE ? HUGE_PAGE : ALIGNMENT;
  if (posix_memalign(&made, step, bytes ? bytes : ALIGNMENT)) return NULL;
#ifdef MADV_HUGEPAGE
  if (bytes >= HUGE_PAGE) madvise(made, bytes, MADV_HUGEPAGE);
#endif
  return made;
}

static void note(af_pool *pool, const char *const *parts, int count) {
  size_t used = 0;
  pthread_mutex_lock(&pool->lock);
  for (int i = 0; i < count && used < MOST_TEXT - 1; i++) {
    size_t size = strlen(parts[i]), room = MOST_TEXT - 1 - used;
    memcpy(pool->text + used, parts[i], size < room ? size : room);
    used += size < room ? size : room;
  }
  pool->text[used] = 0;
  pthread_mutex_unlock(&pool->lock);
}

void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts, int32_t count) {
  (void)kind;
  if (af_current) note(af_current->pool, parts, count);
}

void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *text) {
  TVMFFIErrorSetRaisedFromCStrParts(kind, &text, 1);
}

/* The smallest block that is free and large enough, else one that is made larger; NULL when memory is short. */
static void *workspace(af_thread *thread, uint64_t bytes) {
  af_block *chosen = NULL, *spare = NULL;
  for (af_block *block = thread->blocks; block < thread->blocks + MOST_BLOCKS; block++) {
    if (block->used) continue;
    if (block->data && block->bytes >= bytes) {
      if (!chosen || block->bytes < chosen->bytes) chosen = block;
    } else if (!spare || block->bytes > spare->bytes) {
      spare = block;
    }
  }
  if (!chosen) {
    if (!spare) return NULL;
    free(spare->data);
    *spare = (af_block){af_aligned(bytes), bytes, 0};
    if (!spare->data) return spare->bytes = 0, NULL;
    chosen = spare;
  }
  chosen->used = 1;
  return chosen->data;
}

void *TVMBackendAllocWorkspace(int device, int number, uint64_t bytes, int code, int bits) {
  (void)device, (void)number, (void)code, (void)bits;
  void *made = af_current ? workspace(af_current, bytes) : NULL;
  if (!made && af_current) atomic_store(&af_current->pool->no_memory, 1);
  return made;
}

int TVMBackendFreeWorkspace(int device, int number, void *data) {
  (void)device, (void)number;
  if (!af_current) return -1;
  for (af_block *block = af_current->blocks; block < af_current->blocks + MOST_BLOCKS; block++)
    if (block->used && block->data == data) return block->used = 0;
  return -1;
}

static void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* The tasks of one thread: with as many tasks as threads, one. */
static void run_tasks(af_pool *pool, int thread) {
  for (int task = thread; task < pool->group.tasks; task += pool->threads)
    if (pool->task(task, &pool->group, pool->data)) atomic_store_explicit(&pool->failed, 1, memory_order_relaxed);
}

int TVMBackendParallelLaunch(af_task task, void *data, int tasks) {
  af_pool *pool = af_current ? af_current->pool : NULL;
  if (!pool || pool->threads == 1 || af_current->number) {
    af_group alone = {NULL, 1};
    return task(0, &alone, data);
  }
  pool->task = task;
  pool->data = data;
  pool->group = (af_group){NULL, tasks ? tasks : pool->threads};
  atomic_store_explicit(&pool->failed, 0, memory_order_relaxed);
  atomic_store_explicit(&pool->pending, pool->threads - 1, memory_order_relaxed);
  atomic_fetch_add(&pool->job, 1); /* whoever goes to sleep counts itself first, and looks at `job` again */
  if (atomic_load(&pool->sleeping)) {
    pthread_mutex_lock(&pool->lock);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
  }
  run_tasks(pool, 0);
  for (unsigned looks = 1; atomic_load_explicit(&pool->pending, memory_order_acquire); looks++) {
    relax();
    if (looks % SPINS_A_LOOK == 0) sched_yield();
  }
  return atomic_load_explicit(&pool->failed, memory_order_relaxed) ? -1 : 0;
}

/* Generated code calls through these; its own definitions are weak. */
int (*__TVMBackendParallelLaunch)(af_task, void *, int) = TVMBackendParallelLaunch;
void *(*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int) = TVMBackendAllocWorkspace;
int (*__TVMBackendFreeWorkspace)(int, int, void *) = TVMBackendFreeWorkspace;
void (*__TVMFFIErrorSetRaisedFromCStr)(const char *, const char *) = TVMFFIErrorSetRaisedFromCStr;
void (*__TVMFFIErrorSetRaisedFromCStrParts)(const char *, const char **, int32_t) = TVMFFIErrorSetRaisedFromCStrParts;

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The number of the job after `done`: looked for a while, then slept for. */
static unsigned next_job(af_pool *pool, unsigned done) {
  int64_t until = 0;
  unsigned job;
  for (unsigned looks = 1;; looks++) {
    if ((job = atomic_load_explicit(&pool->job, memory_order_acquire)) != done) return job;
    relax();
    if (looks % SPINS_A_LOOK) continue;
    int64_t now = now_ns();
    if (!until) until = now + SPIN_NS;
    else if (now > until) break;
    sched_yield();
  }
  pthread_mutex_lock(&pool->lock);
  atomic_fetch_add(&pool->sleeping, 1);
  while ((job = atomic_load(&pool->job)) == done) pthread_cond_wait(&pool->wake, &pool->lock);
  atomic_fetch_sub(&pool->sleeping, 1);
  pthread_mutex_unlock(&pool->lock);
  return job;
}

static void *work(void *argument) {
  af_pool *pool = ((af_thread *)argument)->pool;
  unsigned done = 0;
  af_current = argument;
  for (;;) {
    done = next_job(pool, done);
    if (atomic_load(&pool->ending)) return NULL;
    run_tasks(pool, af_current->number);
    atomic_fetch_sub_explicit(&pool->pending, 1, memory_order_release);
  }
}

int af_start_threads(af_pool *pool, int threads) {
  if ((pool->thread = calloc((size_t)threads, sizeof *pool->thread)) == NULL) return af_fail(AF(NO_MEMORY), "out of memory");
  pool->threads = threads;
  for (int i = 0; i < threads; i++) pool->thread[i] = (af_thread){.pool = pool, .number = i};
  for (pool->started = 1; pool->started < threads; pool->started++) {
    af_thread *one = &pool->thread[pool->started];
    int problem = pthread_create(&one->handle, NULL, work, one);
    if (problem) return af_fail(AF(NO_THREAD), "thread %d of %d was not started (error %d)", pool->started + 1, threads, problem);
  }
  return AF(OK);
}

void af_end_threads(af_pool *pool) {
  if (!pool->thread) return;
  atomic_store(&pool->ending, 1);
  atomic_fetch_add(&pool->job, 1);
  pthread_mutex_lock(&pool->lock);
  pthread_cond_broadcast(&pool->wake);
  pthread_mutex_unlock(&pool->lock);
  for (int i = 1; i < pool->started; i++) pthread_join(pool->thread[i].handle, NULL);
  for (int i = 0; i < pool->threads; i++)
    for (int k = 0; k < MOST_BLOCKS; k++) free(pool->thread[i].blocks[k].data);
  free(pool->thread);
}
