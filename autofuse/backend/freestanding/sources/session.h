/* A session as the files of the runtime share it, and its open sizes (sizes.c). */
#ifndef AUTOFUSE_SESSION_H
#define AUTOFUSE_SESSION_H

#include "threads.h"

#pragma GCC visibility push(hidden)

struct AF(session) {
  af_pool pool;
  atomic_flag busy;
  const af_program *program;
  const af_plan *plan; /* the one of the program that runs at the session's sizes */
  af_tensor *tensors;
  af_value *values;
  unsigned char *arena, *kept;
  void **staged; /* aligned copies of inputs, then outputs, once they were given unaligned */
  AF(tensor) *now; /* inputs, outputs, caches, as they are at the open sizes of the session */
  int64_t *size, *shapes, **extent; /* these sizes, the shapes that follow them, where each extent stands in these */
};

/* An input, an output or a cache of a program by its number among them all, at the largest sizes. */
const AF(tensor) *af_largest(const af_program *program, uint32_t number);

/* Memory for what a session has of its own at its sizes: 0, or a code. Once its tensors are bound they get shapes of
   their own, at the largest sizes; where there are caches, which begin empty, at the smallest. */
int af_start_sizes(AF(session) *session);
void af_bind_sizes(AF(session) *session);
void af_end_sizes(AF(session) *session);

/* The size number `number` of the calls that follow; what has it gets new extents, and nothing is allocated. */
void af_resize(AF(session) *session, uint32_t number, int64_t size);

/* The same for a size that somebody names; a code where it is outside of its range. `who` asks. */
int af_set_size(AF(session) *session, uint32_t number, int64_t size, const char *who);

/* Before a run: whether caches have room for its rows; and after it, that they have them. */
int af_check_caches(const AF(session) *session);
void af_extend_caches(AF(session) *session);

#pragma GCC visibility pop
#endif
