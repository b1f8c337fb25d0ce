/* What the runtime of a free-standing library and the tables of its network share; names.h gives both their prefix. */
#ifndef AUTOFUSE_RUNTIME_H
#define AUTOFUSE_RUNTIME_H

#include "names.h"

#include <stddef.h>
#include <stdint.h>

/* DLPack's DLTensor, as kernels read it. */
typedef struct {
  void *data;
  int32_t device, device_number, rank;
  uint8_t code, bits;
  uint16_t lanes;
  const int64_t *shape, *strides;
  uint64_t byte_offset;
} af_tensor;
_Static_assert(sizeof(af_tensor) == 48, "a DLTensor of a machine of 64 bits");

/* An argument of a kernel: TVM's TVMFFIAny. */
typedef struct {
  int32_t kind;
  uint32_t unused;
  union {
    int64_t number;
    void *pointer;
  } as;
} af_value;
_Static_assert(sizeof(af_value) == 16, "a TVMFFIAny");

typedef int (*af_kernel)(void *self, af_value *arguments, int32_t count, af_value *result);

typedef enum { AF_ARENA, AF_WEIGHTS, AF_INPUT, AF_OUTPUT, AF_KEPT } af_place;

/* A tensor of a program. `offset`: bytes into the arena, the weights, or what a session keeps between calls; of an input
   or output, its number. `place`: an af_place. `shape`: where that at the largest size begins among the network's `extent`.
   Numbers, not pointers: the loader has nothing to do for them. */
typedef struct {
  uint8_t place, rank, code, bits;
  uint32_t shape;
  uint64_t offset;
} af_row;

/* A call of a kernel, by its number, on the arguments from `first` on. */
typedef struct {
  uint32_t kernel, first, count;
} af_step;

/* An output that holds what lies elsewhere: in an input, a weight, another output. */
typedef struct {
  uint32_t output;
  af_place place;
  uint64_t offset;
} af_copy;

/* The calls and copies of a plan, from `step` and `copy` on. Of several plans of a program, that one runs which is the first
   whose `most` is not less than the product of the open sizes. */
typedef struct {
  int64_t most;
  uint32_t step, steps, copy, copies;
} af_plan;

/* The values of an input that indexes a table lie in -rows ... rows - 1; `rows` 0: it indexes none. */
typedef struct {
  int64_t rows;
  uint32_t element_bytes;
} af_index;

/* A size that is open: any of `low` to `high`, in multiples of `step`. A call adds `added` to it where its caches grow along
   it. */
typedef struct {
  const char *name;
  int64_t low, high, step, added;
} af_range;

/* An extent that follows an open size: axis `axis` of a tensor is `factor` times a `per`-th of the size number `size` and
   `shift`, and `more`; all of this as often as size number `times` says, where that is not below 0.
   `tensor`: its number among the rows, then the inputs, the outputs, the caches; extents of one tensor stand together. Where
   an extent is a sum of products, what goes on from its first part stands before it, in order: by `times`, each multiplies
   the last summand or adds one. */
enum { AF_ALONE = -1, AF_MULTIPLIES = -2, AF_ADDS = -3 };
typedef struct {
  uint32_t tensor, axis, size;
  int32_t times;
  int64_t factor, more, per, shift;
} af_extent;

/* The model at one set of input shapes, or at any of its open sizes. The first `bound` rows lie in inputs and outputs.
   `cache`: what a session keeps between calls, each at its `kept` place among `kept_bytes`. */
typedef struct {
  uint32_t inputs, outputs, rows, bound, values;
  const AF(tensor) *input, *output;
  const af_index *index;
  const af_row *row;
  const uint32_t *value;
  const af_step *step;
  const af_copy *copy;
  const af_plan *plan;
  uint64_t arena_bytes;
  uint32_t ranges, extents, caches;
  const af_range *range;
  const af_extent *extent;
  const AF(tensor) *cache;
  const uint64_t *kept;
  uint64_t kept_bytes;
} af_program;

/* `kernel`: those of all programs. `extent`: of the shapes of all rows. `features`: what the code wants of the CPU, in
   LLVM's spelling, up to a NULL. */
typedef struct {
  int programs, threads;
  const af_program *program;
  const af_kernel *kernel;
  const int64_t *extent;
  const char *const *features;
} af_network;

extern const af_network AF(network) __attribute__((visibility("hidden")));
#ifdef AF_WEIGHTS_ELSEWHERE /* than in the library: whoever loads it says where */
extern const unsigned char *AF(weights) __attribute__((visibility("hidden")));
#else
extern const unsigned char AF(weights)[] __attribute__((visibility("hidden")));
#endif

#endif
