/* @TITLE@, compiled by autofuse @VERSION@ for @TARGET@: plain C, which needs the C library, its mathematics and threads.
@DESCRIPTION@
   Functions that return an int return @NAME@_OK, or another code of the list below; @NAME@_error then says why. */
#ifndef @GUARD@
#define @GUARD@

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  @NAME@_OK = 0,
  @NAME@_BAD_ARGUMENT = 1, /* a NULL pointer, a number or a value out of its range */
  @NAME@_NO_MEMORY = 2,
  @NAME@_NO_THREAD = 3,    /* the system starts no further thread */
  @NAME@_WRONG_CPU = 4,    /* this CPU lacks instructions that the code was compiled for */
  @NAME@_KERNEL_FAILED = 5 /* a kernel refused its arguments: a defect */
};

enum { @NAME@_SHAPES = @SHAPES@ }; /* sets of input shapes that it was compiled for */

/* An input or output: compact, the last axis fastest; `bytes` is all of it. `type`: as numpy has it, such as "float32". */
typedef struct {
  const char *name;
  const char *type;
  int rank;
  const int64_t *shape;
  size_t bytes;
} @NAME@_tensor;

/* A network with memory and threads of its own. One thread uses it at a time; each thread may make sessions. */
typedef struct @NAME@_session @NAME@_session;

/* Makes a session for the set of input shapes number `shapes` (0: the first, often the only one) that runs on `threads`
   threads, the caller among them (0: as many as it was tuned for, at most the CPUs of this process). */
int @NAME@_create(@NAME@_session **session, int shapes, int threads);

/* Ends its threads and frees its memory; NULL is none. */
void @NAME@_destroy(@NAME@_session *session);

/* Reads each input from and writes each output to the memory that is given, in the model's order. What is aligned to 64
   bytes is used where it lies, other memory through a copy. Outputs overlap neither inputs nor each other. */
int @NAME@_run(@NAME@_session *session, const void *const *inputs, void *const *outputs);

/* An input or output at a set of input shapes; NULL beyond the last. */
const @NAME@_tensor *@NAME@_input(int shapes, int index);
const @NAME@_tensor *@NAME@_output(int shapes, int index);

/* Threads that a session runs on. */
int @NAME@_threads(const @NAME@_session *session);

/* Why the last call of this thread failed; "" when it did not. */
const char *@NAME@_error(void);
@OPEN@
#ifdef __cplusplus
}
#endif

#endif
