/* What a library with open sizes has besides: it has one program. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "session.h"

#include <string.h>

_Static_assert(offsetof(AF(range), step) == offsetof(af_range, step), "the header's range begins as ours");

static const af_program *program(void) { return &AF(network).program[0]; }

static int number_of(const char *name) {
  for (uint32_t i = 0; name && i < program()->ranges; i++)
    if (!strcmp(name, program()->range[i].name)) return (int)i;
  return -1;
}

const AF(range) *AF(open_size)(int index) {
  if (index < 0 || (uint32_t)index >= program()->ranges) return NULL;
  return (const AF(range) *)&program()->range[index];
}

int AF(set_size)(AF(session) *session, const char *name, int64_t size) {
  int number = number_of(name);
  af_error_text[0] = 0;
  if (!session) return af_fail(AF(BAD_ARGUMENT), "set_size: the session is NULL");
  if (number < 0)
    return af_fail(AF(BAD_ARGUMENT), "set_size: the library has no open size %s; its first one is %s", name ? name : "NULL", program()->range[0].name);
  if (atomic_flag_test_and_set(&session->busy))
    return af_fail(AF(BAD_ARGUMENT), "set_size: another thread uses this session: make one for each thread");
  int code = af_set_size(session, (uint32_t)number, size, "set_size");
  atomic_flag_clear(&session->busy);
  return code;
}

int64_t AF(size)(const AF(session) *session, const char *name) {
  int number = number_of(name);
  return session && number >= 0 ? session->size[number] : -1;
}

static const AF(tensor) *now(const AF(session) *session, int index, uint32_t first, uint32_t count) {
  return session && index >= 0 && (uint32_t)index < count ? &session->now[first + (uint32_t)index] : NULL;
}

const AF(tensor) *AF(input_now)(const AF(session) *session, int index) { return now(session, index, 0, program()->inputs); }

const AF(tensor) *AF(output_now)(const AF(session) *session, int index) {
  return now(session, index, program()->inputs, program()->outputs);
}

const AF(tensor) *AF(cache)(int index) {
  return index >= 0 && (uint32_t)index < program()->caches ? &program()->cache[index] : NULL;
}

void *AF(cache_memory)(AF(session) *session, int index) {
  return session && AF(cache)(index) ? session->kept + program()->kept[index] : NULL;
}
