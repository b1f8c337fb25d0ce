/* The threads of a session, and the workspace that each keeps. workspace.c has what all need; threads that are our own
   come from threads.c. */
#ifndef AUTOFUSE_THREADS_H
#define AUTOFUSE_THREADS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "runtime.h"

#pragma GCC visibility push(hidden)

enum { ALIGNMENT = 64, MOST_THREADS = 1024, MOST_BLOCKS = 64, MOST_TEXT = 512 };

/* Workspace of a thread that stays allocated for the next kernel. */
typedef struct {
  void *data;
  uint64_t bytes;
  int used;
} af_block;

typedef struct af_pool af_pool;

typedef struct {
  af_pool *pool;
  pthread_t handle;
  int number;
  af_block blocks[MOST_BLOCKS];
} af_thread;

/* TVM's TVMParallelGroupEnv: what each task is told. */
typedef struct {
  void *sync;
  int32_t tasks;
} af_group;

typedef int (*af_task)(int number, af_group *group, void *data);

/* The threads of a session; number 0 is the caller. What changes hands often has cache lines of its own.
   `ticket`: of threads that are lent, see backend/epcontext. */
struct af_pool {
  int threads, started;
  af_thread *thread;
  pthread_mutex_t lock;
  pthread_cond_t wake;
  af_task task;
  void *data;
  af_group group;
  char text[MOST_TEXT];
  atomic_int no_memory;
  atomic_int failed;
  _Alignas(ALIGNMENT) atomic_uint job;
  atomic_int ending;
  _Alignas(ALIGNMENT) atomic_int pending;
  _Alignas(ALIGNMENT) atomic_int sleeping;
  _Alignas(ALIGNMENT) _Atomic uint64_t ticket;
};

extern _Thread_local char af_error_text[MOST_TEXT];
extern _Thread_local af_thread *af_current; /* the thread of a pool that runs a kernel here */

/* Keeps what is wrong for whoever asks this thread, and gives `code` back. */
int af_fail(int code, const char *format, ...);

/* Memory as kernels want it; NULL: there is none. */
void *af_aligned(uint64_t bytes);

/* The `threads` of a pool with their workspace, and the end of those. */
int af_make_workspaces(af_pool *pool, int threads);
void af_free_workspaces(af_pool *pool);

/* What a pool is made of: the threads, and a launch that gives each its tasks. */
int TVMBackendParallelLaunch(af_task task, void *data, int tasks);
int af_start_threads(af_pool *pool, int threads);
void af_end_threads(af_pool *pool);

/* The processor waits for a moment. */
static inline void af_relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* runtime.c: the threads of a session. */
af_pool *af_pool_of(AF(session) *session);

/* cpu.c: whether this CPU has what the code wants, and how many CPUs the process may use. */
int af_check_cpu(void);
int af_usable_cpus(void);

#pragma GCC visibility pop
#endif
