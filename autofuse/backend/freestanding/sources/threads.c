/* Threads of our own: a launch of tasks on those of a session. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "threads.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>

enum { SPINS_A_LOOK = 64 };
static const int64_t SPIN_NS = 5000000; /* how long an idle thread looks for work before it sleeps */

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
    af_relax();
    if (looks % SPINS_A_LOOK == 0) sched_yield();
  }
  return atomic_load_explicit(&pool->failed, memory_order_relaxed) ? -1 : 0;
}

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
    af_relax();
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
  if (af_make_workspaces(pool, threads)) return AF(NO_MEMORY);
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
  af_free_workspaces(pool);
}
