/* The runtime of a free-standing library: sessions over the tables of a network (network.c). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "session.h"

#include <stdlib.h>
#include <string.h>

enum { KIND_TENSOR = 7, DEVICE_CPU = 1 }; /* kTVMFFIDLTensorPtr, kDLCPU */

static void bind(AF(session) *session) {
  const af_program *p = session->program;
  for (uint32_t i = 0; i < p->rows; i++) {
    const af_row *row = &p->row[i];
    void *data = row->place == AF_ARENA ? session->arena + row->offset : NULL;
    if (row->place == AF_KEPT) data = session->kept + row->offset;
    if (row->place == AF_WEIGHTS) data = (void *)(AF(weights) + row->offset); /* kernels only read them */
    const int64_t *shape = AF(network).extent + row->shape;
    session->tensors[i] = (af_tensor){data, DEVICE_CPU, 0, row->rank, row->code, row->bits, 1, shape, NULL, 0};
  }
  for (uint32_t i = 0; i < p->values; i++)
    session->values[i] = (af_value){.kind = KIND_TENSOR, .as = {.pointer = &session->tensors[p->value[i]]}};
}

static int fill(AF(session) *session, int threads) {
  const af_program *p = session->program;
  int code = af_start_sizes(session);
  if (code) return code;
  session->tensors = calloc(p->rows + 1, sizeof *session->tensors);
  session->values = calloc(p->values + 1, sizeof *session->values);
  session->staged = calloc(p->inputs + p->outputs + 1, sizeof *session->staged);
  session->arena = af_aligned(p->arena_bytes);
  if (!session->tensors || !session->values || !session->staged || !session->arena)
    return af_fail(AF(NO_MEMORY), "out of memory: a session needs %llu bytes", (unsigned long long)p->arena_bytes);
  bind(session);
  af_bind_sizes(session);
  return af_start_threads(&session->pool, threads);
}

int AF(create)(AF(session) **made, int shapes, int threads) {
  AF(session) *session;
  af_error_text[0] = 0;
  if (!made) return af_fail(AF(BAD_ARGUMENT), "create: where the session is to be put is NULL");
  *made = NULL;
  if (shapes < 0 || shapes >= AF(network).programs)
    return af_fail(AF(BAD_ARGUMENT), "create: got shapes %d, allowed: 0 to %d", shapes, AF(network).programs - 1);
  if (threads < 0 || threads > MOST_THREADS)
    return af_fail(AF(BAD_ARGUMENT), "create: got %d threads, allowed: 0 to %d", threads, MOST_THREADS);
  if (af_check_cpu()) return AF(WRONG_CPU);
  if (!threads) {
    int cpus = af_usable_cpus();
    threads = AF(network).threads < cpus ? AF(network).threads : cpus;
  }
  if ((session = af_aligned(sizeof *session)) == NULL) return af_fail(AF(NO_MEMORY), "out of memory");
  memset(session, 0, sizeof *session);
  atomic_flag_clear(&session->busy);
  pthread_mutex_init(&session->pool.lock, NULL);
  pthread_cond_init(&session->pool.wake, NULL);
  session->program = &AF(network).program[shapes];
  session->plan = session->program->plan;
  int code = fill(session, threads);
  if (code) AF(destroy)(session);
  else *made = session;
  return code;
}

void AF(destroy)(AF(session) *session) {
  if (!session) return;
  af_end_threads(&session->pool);
  pthread_cond_destroy(&session->pool.wake);
  pthread_mutex_destroy(&session->pool.lock);
  if (session->staged)
    for (uint32_t i = 0; i < session->program->inputs + session->program->outputs; i++) free(session->staged[i]);
  free(session->staged);
  af_end_sizes(session);
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
      return af_fail(AF(BAD_ARGUMENT), "run: input %s: value %lld, but it indexes a table of %lld", input->name, (long long)value,
                  (long long)index->rows);
  }
  return AF(OK);
}

/* Where kernels find the memory that the caller gave: there when it is aligned, else in a copy. NULL: no memory. */
static void *staged(AF(session) *session, uint32_t slot, const void *given, size_t bytes) {
  if ((uintptr_t)given % ALIGNMENT == 0) return (void *)given;
  if (!session->staged[slot]) session->staged[slot] = af_aligned(bytes);
  return session->staged[slot];
}

static int take(AF(session) *session, const void *const *inputs, void *const *outputs, void **found) {
  const af_program *p = session->program;
  if ((p->inputs && !inputs) || (p->outputs && !outputs)) return af_fail(AF(BAD_ARGUMENT), "run: inputs or outputs are NULL");
  for (uint32_t i = 0; i < p->inputs + p->outputs; i++) {
    int reads = i < p->inputs;
    const AF(tensor) *want = &session->now[i];
    size_t most = af_largest(p, i)->bytes;
    const void *given = reads ? inputs[i] : outputs[i - p->inputs];
    if (!given && want->bytes) return af_fail(AF(BAD_ARGUMENT), "run: %s %s is NULL", reads ? "input" : "output", want->name);
    if ((found[i] = staged(session, i, given, most)) == NULL && want->bytes)
      return af_fail(AF(NO_MEMORY), "out of memory: %llu bytes", (unsigned long long)most);
    if (!reads) continue;
    if (found[i] != given) memcpy(found[i], given, want->bytes);
    if (check_index(want, &p->index[i], found[i])) return AF(BAD_ARGUMENT);
  }
  return AF(OK);
}

static int compute(AF(session) *session) {
  const af_program *p = session->program;
  af_thread *before = af_current;
  const af_step *first = p->step + session->plan->step, *step = first, *end = first + session->plan->steps;
  atomic_store(&session->pool.no_memory, 0);
  session->pool.text[0] = 0;
  af_current = session->pool.thread;
  for (; step < end; step++) {
    af_value result = {0};
    af_kernel kernel = AF(network).kernel[step->kernel];
    if (kernel(NULL, session->values + step->first, (int32_t)step->count, &result)) break;
  }
  af_current = before;
  if (step == end) return AF(OK);
  for (int i = 0; i < session->pool.threads; i++) /* a kernel that fails may not give back what it took */
    for (int k = 0; k < MOST_BLOCKS; k++) session->pool.thread[i].blocks[k].used = 0;
  if (atomic_load(&session->pool.no_memory)) return af_fail(AF(NO_MEMORY), "out of memory for a kernel's workspace");
  return af_fail(AF(KERNEL_FAILED), "kernel %d failed: %s", (int)(step - first), session->pool.text);
}

/* Outputs that are something else's memory, then those that were given unaligned. */
static void give(AF(session) *session, void *const *outputs, void **found) {
  const af_program *p = session->program;
  const af_copy *copy = p->copy + session->plan->copy, *end = copy + session->plan->copies;
  for (; copy < end; copy++) {
    const void *source = copy->place == AF_WEIGHTS  ? (const void *)(AF(weights) + copy->offset)
                         : copy->place == AF_OUTPUT ? found[p->inputs + copy->offset]
                                                    : found[copy->offset];
    size_t bytes = session->now[p->inputs + copy->output].bytes;
    if (bytes) memcpy(found[p->inputs + copy->output], source, bytes);
  }
  for (uint32_t i = 0; i < p->outputs; i++)
    if (found[p->inputs + i] != outputs[i]) memcpy(outputs[i], found[p->inputs + i], session->now[p->inputs + i].bytes);
}

int AF(run)(AF(session) *session, const void *const *inputs, void *const *outputs) {
  af_error_text[0] = 0;
  if (!session) return af_fail(AF(BAD_ARGUMENT), "run: the session is NULL");
  if (atomic_flag_test_and_set(&session->busy))
    return af_fail(AF(BAD_ARGUMENT), "run: another thread uses this session: make one for each thread");
  const af_program *p = session->program;
  void *found[p->inputs + p->outputs + 1];
  int code = af_check_caches(session);
  if (!code) code = take(session, inputs, outputs, found);
  for (uint32_t i = 0; !code && i < p->bound; i++)
    session->tensors[i].data = found[p->row[i].offset + (p->row[i].place == AF_OUTPUT ? p->inputs : 0)];
  if (!code) code = compute(session);
  if (!code) give(session, outputs, found);
  if (!code) af_extend_caches(session);
  atomic_flag_clear(&session->busy);
  return code;
}

static const AF(tensor) *described(int shapes, int index, int inputs) {
  if (shapes < 0 || shapes >= AF(network).programs || index < 0) return NULL;
  const af_program *p = &AF(network).program[shapes];
  if ((uint32_t)index >= (inputs ? p->inputs : p->outputs)) return NULL;
  return (inputs ? p->input : p->output) + index;
}

af_pool *af_pool_of(AF(session) *session) { return &session->pool; }

const AF(tensor) *AF(input)(int shapes, int index) { return described(shapes, index, 1); }
const AF(tensor) *AF(output)(int shapes, int index) { return described(shapes, index, 0); }
int AF(threads)(const AF(session) *session) { return session ? session->pool.threads : 0; }
const char *AF(error)(void) { return af_error_text; }
