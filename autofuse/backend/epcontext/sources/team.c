/* A launch of tasks on threads that are lent: in place of threads.c, which has threads of its own.

   Nobody knows whether a thread that was asked for comes at once, late, or only after the others have gone. So the
   thread that comes first leads, and it alone must come: whoever joins takes tasks of the launch that is under way, and
   the leader does what nobody took. Nobody ever waits for a thread that has not come. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "team.h"

#include <sched.h>

enum { SPINS_A_LOOK = 64, TASK_BITS = 16 };
_Static_assert(MOST_THREADS < 1 << TASK_BITS, "a ticket has room for the number of a task");

/* A ticket: the number of the launch, of its tasks, and of the next one that nobody has taken. Whoever takes a task
   may read what the launch is: the leader makes no other before that task is done. */
static uint64_t ticket_of(uint64_t launch, uint64_t tasks) { return launch << 2 * TASK_BITS | tasks << TASK_BITS; }

static int take_task(af_pool *pool) {
  const uint64_t most = (1u << TASK_BITS) - 1;
  uint64_t ticket = atomic_load_explicit(&pool->ticket, memory_order_acquire);
  do {
    if ((ticket & most) >= (ticket >> TASK_BITS & most)) return -1;
  } while (!atomic_compare_exchange_weak_explicit(&pool->ticket, &ticket, ticket + 1, memory_order_acq_rel, memory_order_acquire));
  return (int)(ticket & most);
}

/* Tasks as long as there are any; each has the workspace of its number, whoever does it. */
static int take_tasks(af_pool *pool) {
  int task, taken = 0;
  for (; (task = take_task(pool)) >= 0; taken++) {
    af_thread *before = af_current;
    af_current = &pool->thread[task % pool->threads];
    if (pool->task(task, &pool->group, pool->data)) atomic_store_explicit(&pool->failed, 1, memory_order_relaxed);
    af_current = before;
    atomic_fetch_sub_explicit(&pool->pending, 1, memory_order_release);
  }
  return taken;
}

int TVMBackendParallelLaunch(af_task task, void *data, int tasks) {
  af_pool *pool = af_current ? af_current->pool : NULL;
  if (!pool || pool->threads == 1 || af_current->number) {
    af_group alone = {NULL, 1};
    return task(0, &alone, data);
  }
  if (tasks < 1 || tasks > pool->threads) tasks = pool->threads; /* no two tasks share a workspace */
  pool->task = task;
  pool->data = data;
  pool->group = (af_group){NULL, tasks};
  atomic_store_explicit(&pool->failed, 0, memory_order_relaxed);
  atomic_store_explicit(&pool->pending, tasks, memory_order_relaxed);
  uint64_t launch = (atomic_load_explicit(&pool->ticket, memory_order_relaxed) >> 2 * TASK_BITS) + 1;
  atomic_store_explicit(&pool->ticket, ticket_of(launch, (uint64_t)tasks), memory_order_release);
  take_tasks(pool);
  for (unsigned looks = 1; atomic_load_explicit(&pool->pending, memory_order_acquire); looks++) {
    af_relax();
    if (looks % SPINS_A_LOOK == 0) sched_yield();
  }
  return atomic_load_explicit(&pool->failed, memory_order_relaxed) ? -1 : 0;
}

void af_join(void *given, size_t number) {
  (void)number;
  af_team *team = given;
  if (!atomic_exchange(&team->led, 1)) {
    team->code = team->lead(team->data);
    atomic_store_explicit(&team->over, 1, memory_order_release);
    return;
  }
  for (unsigned looks = 1; !atomic_load_explicit(&team->over, memory_order_acquire); looks++) {
    if (take_tasks(team->pool)) continue;
    af_relax();
    if (looks % SPINS_A_LOOK == 0) sched_yield();
  }
}

int af_start_threads(af_pool *pool, int threads) { return af_make_workspaces(pool, threads); }

void af_end_threads(af_pool *pool) {
  if (pool->thread) af_free_workspaces(pool);
}
