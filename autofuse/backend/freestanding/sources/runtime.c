/* The runtime of a free-standing library: sessions over the tables of a network (network.c), and the functions that
   TVM's generated code calls: errors, workspace, and a launch of tasks on threads. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "runtime.h"

#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

enum { ALIGNMENT = 64, MOST_THREADS = 1024, MOST_BLOCKS = 64, MOST_TEXT = 512, HUGE_PAGE = 2 << 20 };
enum { KIND_TENSOR = 7, DEVICE_CPU = 1 }; /* kTVMFFIDLTensorPtr, kDLCPU */
enum { SPINS_A_LOOK = 64 };
static const int64_t SPIN_NS = 5000000; /* how long an idle thread looks for work before it sleeps */

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

/* The threads of a session; number 0 is the caller. What changes hands often has cache lines of its own. */
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
};

struct AF(session) {
  af_pool pool;
  atomic_flag busy;
  const af_program *program;
  af_tensor *tensors;
  af_value *values;
  unsigned char *arena;
  void **staged; /* aligned copies of inputs, then outputs, once they were given unaligned */
};

static _Thread_local char error_text[MOST_TEXT];
static _Thread_local af_thread *current; /* the thread of a pool that runs a kernel here */

static int fail(int code, const char *format, ...) {
  va_list values;
  va_start(values, format);
  vsnprintf(error_text, sizeof error_text, format, values);
  va_end(values);
  return code;
}

static void *aligned(uint64_t bytes) {
  void *made = NULL;
  uint64_t step = bytes >= HUGE_PAGE ? HUGE_PAGE : ALIGNMENT;
  if (posix_memalign(&made, step, bytes ? bytes : ALIGNMENT)) return NULL;
#ifdef MADV_HUGEPAGE
  if (bytes >= HUGE_PAGE) madvise(made, bytes, MADV_HUGEPAGE);
#endif
  return made;
}

/* what kernels call ------------------------------------------------------------------------------------------- */

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
  if (current) note(current->pool, parts, count);
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
    *spare = (af_block){aligned(bytes), bytes, 0};
    if (!spare->data) return spare->bytes = 0, NULL;
    chosen = spare;
  }
  chosen->used = 1;
  return chosen->data;
}

void *TVMBackendAllocWorkspace(int device, int number, uint64_t bytes, int code, int bits) {
  (void)device, (void)number, (void)code, (void)bits;
  void *made = current ? workspace(current, bytes) : NULL;
  if (!made && current) atomic_store(&current->pool->no_memory, 1);
  return made;
}

int TVMBackendFreeWorkspace(int device, int number, void *data) {
  (void)device, (void)number;
  if (!current) return -1;
  for (af_block *block = current->blocks; block < current->blocks + MOST_BLOCKS; block++)
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
  af_pool *pool = current ? current->pool : NULL;
  if (!pool || pool->threads == 1 || current->number) {
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

/* threads ------------------------------------------------------------------------------------------------------ */

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
  current = argument;
  for (;;) {
    done = next_job(pool, done);
    if (atomic_load(&pool->ending)) return NULL;
    run_tasks(pool, current->number);
    atomic_fetch_sub_explicit(&pool->pending, 1, memory_order_release);
  }
}

static int start_threads(af_pool *pool, int threads) {
  if ((pool->thread = calloc((size_t)threads, sizeof *pool->thread)) == NULL) return fail(AF(NO_MEMORY), "out of memory");
  pool->threads = threads;
  for (int i = 0; i < threads; i++) pool->thread[i] = (af_thread){.pool = pool, .number = i};
  for (pool->started = 1; pool->started < threads; pool->started++) {
    af_thread *one = &pool->thread[pool->started];
    int problem = pthread_create(&one->handle, NULL, work, one);
    if (problem) return fail(AF(NO_THREAD), "thread %d of %d was not started (error %d)", pool->started + 1, threads, problem);
  }
  return AF(OK);
}

static void end_threads(af_pool *pool) {
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

/* the CPU ------------------------------------------------------------------------------------------------------ */

#if defined(__x86_64__)
enum { EAX, EBX, ECX, EDX };
enum { OS_VECTORS = 0x6, OS_AVX512 = 0xe6 }; /* registers that the system keeps: XCR0 */

static const struct {
  const char *name;
  uint32_t leaf, subleaf, part, bit, kept;
} cpu_features[] = {
    {"sse4.1", 1, 0, ECX, 19, 0},
    {"sse4.2", 1, 0, ECX, 20, 0},
    {"fma", 1, 0, ECX, 12, OS_VECTORS},
    {"avx", 1, 0, ECX, 28, OS_VECTORS},
    {"f16c", 1, 0, ECX, 29, OS_VECTORS},
    {"bmi", 7, 0, EBX, 3, 0},
    {"bmi2", 7, 0, EBX, 8, 0},
    {"avx2", 7, 0, EBX, 5, OS_VECTORS},
    {"avx512f", 7, 0, EBX, 16, OS_AVX512},
    {"avx512dq", 7, 0, EBX, 17, OS_AVX512},
    {"avx512ifma", 7, 0, EBX, 21, OS_AVX512},
    {"avx512cd", 7, 0, EBX, 28, OS_AVX512},
    {"avx512bw", 7, 0, EBX, 30, OS_AVX512},
    {"avx512vl", 7, 0, EBX, 31, OS_AVX512},
    {"avx512vbmi", 7, 0, ECX, 1, OS_AVX512},
    {"avx512vbmi2", 7, 0, ECX, 6, OS_AVX512},
    {"avx512vnni", 7, 0, ECX, 11, OS_AVX512},
    {"avx512bitalg", 7, 0, ECX, 12, OS_AVX512},
    {"avx512vpopcntdq", 7, 0, ECX, 14, OS_AVX512},
    {"avx512vp2intersect", 7, 0, EDX, 8, OS_AVX512},
    {"avx512fp16", 7, 0, EDX, 23, OS_AVX512},
    {"avxvnni", 7, 1, EAX, 4, OS_VECTORS},
    {"avx512bf16", 7, 1, EAX, 5, OS_AVX512},
    {"avxifma", 7, 1, EAX, 23, OS_VECTORS},
    {"avxvnniint8", 7, 1, EDX, 4, OS_VECTORS},
    {"avxneconvert", 7, 1, EDX, 5, OS_VECTORS},
    {"avxvnniint16", 7, 1, EDX, 10, OS_VECTORS},
};

static uint32_t kept_registers(void) {
  uint32_t found[4] = {0}, low, high;
  if (!__get_cpuid(1, &found[EAX], &found[EBX], &found[ECX], &found[EDX]) || !(found[ECX] >> 27 & 1)) return 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

/* Whether this CPU has a feature; one that has no row is not looked for. */
static int has_feature(const char *name) {
  for (size_t i = 0; i < sizeof cpu_features / sizeof *cpu_features; i++) {
    uint32_t found[4] = {0}, kept = cpu_features[i].kept;
    if (strcmp(name, cpu_features[i].name)) continue;
    if (!__get_cpuid_count(cpu_features[i].leaf, cpu_features[i].subleaf, &found[EAX], &found[EBX], &found[ECX], &found[EDX]))
      return 0;
    return (found[cpu_features[i].part] >> cpu_features[i].bit & 1) && (kept_registers() & kept) == kept;
  }
  return 1;
}
#elif defined(__aarch64__)
static const struct {
  const char *name;
  int type, bit;
} cpu_features[] = {{"neon", AT_HWCAP, 1},  {"fullfp16", AT_HWCAP, 10}, {"dotprod", AT_HWCAP, 20},
                    {"sve", AT_HWCAP, 22},  {"sve2", AT_HWCAP2, 1},     {"sve-bitperm", AT_HWCAP2, 4},
                    {"i8mm", AT_HWCAP2, 13}, {"bf16", AT_HWCAP2, 14}};

static int has_feature(const char *name) {
  for (size_t i = 0; i < sizeof cpu_features / sizeof *cpu_features; i++)
    if (!strcmp(name, cpu_features[i].name)) return getauxval(cpu_features[i].type) >> cpu_features[i].bit & 1;
  return 1;
}
#else
#error "free-standing libraries are for x86-64 and AArch64"
#endif

static int check_cpu(void) {
  for (const char *const *feature = AF(network).features; *feature; feature++)
    if (!has_feature(*feature))
      return fail(AF(WRONG_CPU), "this CPU lacks %s: compile the model on this machine or for its device profile", *feature);
  return AF(OK);
}

static int usable_cpus(void) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return CPU_COUNT(&allowed);
  long online = sysconf(_SC_NPROCESSORS_ONLN); /* a machine of more CPUs than such a set holds */
  return online > 0 ? (int)online : 1;
}

/* sessions ----------------------------------------------------------------------------------------------------- */

static void bind(AF(session) *session) {
  const af_program *p = session->program;
  for (uint32_t i = 0; i < p->rows; i++) {
    const af_row *row = &p->row[i];
    void *data = row->place == AF_ARENA ? session->arena + row->offset : NULL;
    if (row->place == AF_WEIGHTS) data = (void *)(AF(weights) + row->offset); /* kernels only read them */
    session->tensors[i] = (af_tensor){data, DEVICE_CPU, 0, row->rank, row->code, row->bits, 1, row->shape, NULL, 0};
  }
  for (uint32_t i = 0; i < p->values; i++)
    session->values[i] = (af_value){.kind = KIND_TENSOR, .as = {.pointer = &session->tensors[p->value[i]]}};
}

static int fill(AF(session) *session, int threads) {
  const af_program *p = session->program;
  session->tensors = calloc(p->rows + 1, sizeof *session->tensors);
  session->values = calloc(p->values + 1, sizeof *session->values);
  session->staged = calloc(p->inputs + p->outputs + 1, sizeof *session->staged);
  session->arena = aligned(p->arena_bytes);
  if (!session->tensors || !session->values || !session->staged || !session->arena)
    return fail(AF(NO_MEMORY), "out of memory: a session needs %llu bytes", (unsigned long long)p->arena_bytes);
  bind(session);
  return start_threads(&session->pool, threads);
}

int AF(create)(AF(session) **made, int shapes, int threads) {
  AF(session) *session;
  error_text[0] = 0;
  if (!made) return fail(AF(BAD_ARGUMENT), "create: where the session is to be put is NULL");
  *made = NULL;
  if (shapes < 0 || shapes >= AF(network).programs)
    return fail(AF(BAD_ARGUMENT), "create: got shapes %d, allowed: 0 to %d", shapes, AF(network).programs - 1);
  if (threads < 0 || threads > MOST_THREADS)
    return fail(AF(BAD_ARGUMENT), "create: got %d threads, allowed: 0 to %d", threads, MOST_THREADS);
  if (check_cpu()) return AF(WRONG_CPU);
  if (!threads) {
    int cpus = usable_cpus();
    threads = AF(network).threads < cpus ? AF(network).threads : cpus;
  }
  if ((session = aligned(sizeof *session)) == NULL) return fail(AF(NO_MEMORY), "out of memory");
  memset(session, 0, sizeof *session);
  atomic_flag_clear(&session->busy);
  pthread_mutex_init(&session->pool.lock, NULL);
  pthread_cond_init(&session->pool.wake, NULL);
  session->program = &AF(network).program[shapes];
  int code = fill(session, threads);
  if (code) AF(destroy)(session);
  else *made = session;
  return code;
}

void AF(destroy)(AF(session) *session) {
  if (!session) return;
  end_threads(&session->pool);
  pthread_cond_destroy(&session->pool.wake);
  pthread_mutex_destroy(&session->pool.lock);
  if (session->staged)
    for (uint32_t i = 0; i < session->program->inputs + session->program->outputs; i++) free(session->staged[i]);
  free(session->staged);
  free(session->arena);
  free(session->values);
  free(session->tensors);
  free(session);
}

static int check_index(const AF(tensor) *input, const af_index *index, const void *data) {
  size_t count = index->rows ? input->bytes / index->element_bytes : 0;
  for (size_t i = 0; i < count; i++) {
    int64_t value = 0;
    int32_t narrow = 0;
    if (index->element_bytes == sizeof value) memcpy(&value, (const char *)data + i * sizeof value, sizeof value);
    else memcpy(&narrow, (const char *)data + i * sizeof narrow, sizeof narrow), value = narrow;
    if (value < -index->rows || value >= index->rows)
      return fail(AF(BAD_ARGUMENT), "run: input %s: value %lld, but it indexes a table of %lld", input->name, (long long)value,
                  (long long)index->rows);
  }
  return AF(OK);
}

/* Where kernels find the memory that the caller gave: there when it is aligned, else in a copy. NULL: no memory. */
static void *staged(AF(session) *session, uint32_t slot, const void *given, size_t bytes) {
  if ((uintptr_t)given % ALIGNMENT == 0) return (void *)given;
  if (!session->staged[slot]) session->staged[slot] = aligned(bytes);
  return session->staged[slot];
}

static int take(AF(session) *session, const void *const *inputs, void *const *outputs, void **found) {
  const af_program *p = session->program;
  if ((p->inputs && !inputs) || (p->outputs && !outputs)) return fail(AF(BAD_ARGUMENT), "run: inputs or outputs are NULL");
  for (uint32_t i = 0; i < p->inputs + p->outputs; i++) {
    int reads = i < p->inputs;
    const AF(tensor) *want = reads ? &p->input[i] : &p->output[i - p->inputs];
    const void *given = reads ? inputs[i] : outputs[i - p->inputs];
    if (!given && want->bytes) return fail(AF(BAD_ARGUMENT), "run: %s %s is NULL", reads ? "input" : "output", want->name);
    if ((found[i] = staged(session, i, given, want->bytes)) == NULL && want->bytes)
      return fail(AF(NO_MEMORY), "out of memory: %llu bytes", (unsigned long long)want->bytes);
    if (!reads) continue;
    if (found[i] != given) memcpy(found[i], given, want->bytes);
    if (check_index(want, &p->index[i], found[i])) return AF(BAD_ARGUMENT);
  }
  return AF(OK);
}

static int compute(AF(session) *session) {
  const af_program *p = session->program;
  af_thread *before = current;
  const af_step *step = p->step, *end = p->step + p->steps;
  atomic_store(&session->pool.no_memory, 0);
  session->pool.text[0] = 0;
  current = session->pool.thread;
  for (; step < end; step++) {
    af_value result = {0};
    if (step->kernel(NULL, session->values + step->first, (int32_t)step->count, &result)) break;
  }
  current = before;
  if (step == end) return AF(OK);
  for (int i = 0; i < session->pool.threads; i++) /* a kernel that fails may not give back what it took */
    for (int k = 0; k < MOST_BLOCKS; k++) session->pool.thread[i].blocks[k].used = 0;
  if (atomic_load(&session->pool.no_memory)) return fail(AF(NO_MEMORY), "out of memory for a kernel's workspace");
  return fail(AF(KERNEL_FAILED), "kernel %d failed: %s", (int)(step - p->step), session->pool.text);
}

/* Outputs that are something else's memory, then those that were given unaligned. */
static void give(AF(session) *session, void *const *outputs, void **found) {
  const af_program *p = session->program;
  for (const af_copy *copy = p->copy; copy < p->copy + p->copies; copy++) {
    const void *source = copy->place == AF_WEIGHTS  ? (const void *)(AF(weights) + copy->offset)
                         : copy->place == AF_OUTPUT ? found[p->inputs + copy->offset]
                                                    : found[copy->offset];
    if (p->output[copy->output].bytes) memcpy(found[p->inputs + copy->output], source, p->output[copy->output].bytes);
  }
  for (uint32_t i = 0; i < p->outputs; i++)
    if (found[p->inputs + i] != outputs[i]) memcpy(outputs[i], found[p->inputs + i], p->output[i].bytes);
}

int AF(run)(AF(session) *session, const void *const *inputs, void *const *outputs) {
  error_text[0] = 0;
  if (!session) return fail(AF(BAD_ARGUMENT), "run: the session is NULL");
  if (atomic_flag_test_and_set(&session->busy))
    return fail(AF(BAD_ARGUMENT), "run: another thread uses this session: make one for each thread");
  const af_program *p = session->program;
  void *found[p->inputs + p->outputs + 1];
  int code = take(session, inputs, outputs, found);
  for (uint32_t i = 0; !code && i < p->bound; i++)
    session->tensors[i].data = found[p->row[i].offset + (p->row[i].place == AF_OUTPUT ? p->inputs : 0)];
  if (!code) code = compute(session);
  if (!code) give(session, outputs, found);
  atomic_flag_clear(&session->busy);
  return code;
}

static const AF(tensor) *described(int shapes, int index, int inputs) {
  if (shapes < 0 || shapes >= AF(network).programs || index < 0) return NULL;
  const af_program *p = &AF(network).program[shapes];
  if ((uint32_t)index >= (inputs ? p->inputs : p->outputs)) return NULL;
  return (inputs ? p->input : p->output) + index;
}

const AF(tensor) *AF(input)(int shapes, int index) { return described(shapes, index, 1); }
const AF(tensor) *AF(output)(int shapes, int index) { return described(shapes, index, 0); }
int AF(threads)(const AF(session) *session) { return session ? session->pool.threads : 0; }
const char *AF(error)(void) { return error_text; }
