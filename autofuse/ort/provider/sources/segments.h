/* What the code of a model's segments and the provider know of each other. */
#ifndef AUTOFUSE_SEGMENTS_H
#define AUTOFUSE_SEGMENTS_H

#include <stddef.h>
#include <stdint.h>

/* Before the code: its place and that of the weights among the bytes of the payload. All numbers are little-endian. */
typedef struct {
  char magic[8];
  uint32_t format, unused;
  uint64_t image_offset, image_bytes, weights_offset, weights_bytes;
} af_payload_head;
_Static_assert(sizeof(af_payload_head) == 48, "as payload.py writes it");

/* `SEGMENTS_FORMAT_OF_SIZES`: a segment has open sizes; then what `af_segments` has at its end is there.
   `SEGMENTS_FORMAT_OF_SUMS`: one of its extents is a sum of products, too. */
enum { SEGMENTS_FORMAT = 1, SEGMENTS_FORMAT_OF_SIZES = 4, SEGMENTS_FORMAT_OF_SUMS = 5, SEGMENTS_TEXT = 512, SEGMENTS_OK = 0, SEGMENTS_BAD_ARGUMENT = 1 };
#define SEGMENTS_MAGIC "AUTOFUSP"

/* An input or output: compact, the last axis fastest. `type`: as numpy has it, such as "float32". */
typedef struct {
  const char *name, *type;
  int rank;
  const int64_t *shape;
  size_t bytes;
} af_io;

/* A size that is open: any of `low` to `high`; `shape` and `bytes` of inputs and outputs are those at the largest. */
typedef struct {
  const char *name;
  int64_t low, high;
} af_open_size;

/* An axis of an input or output whose extent is `factor` times a `per`-th of the open size number `size` and `shift`, and
   `more`; all of this as often as size number `times` says, where that is not below 0. Where an extent is a sum of products,
   what goes on from its first part stands before it, in order: by `times`, each multiplies the last summand or adds one. */
enum { SEGMENTS_ALONE = -1, SEGMENTS_MULTIPLIES = -2, SEGMENTS_ADDS = -3 };
typedef struct {
  uint32_t port, axis, size;
  int32_t times;
  int64_t factor, more, per, shift;
} af_open_axis;

/* Calls `work(data, number)` for each number below `count`, on threads of the lender's: at the same time, or not. */
typedef void (*af_lend)(void *lender, void (*work)(void *data, size_t number), size_t count, void *data);

/* `count` segments. A session is of one segment, and for one thread at a time. Functions that return an int return 0,
   or else a code of the network's header. `run` writes why into `text`, of SEGMENTS_TEXT bytes. `open_size`: NULL beyond
   the last. `open_axes`: those of an input, or of an output behind all inputs, and how many. `resize`: an open size of the
   runs that follow. */
typedef struct {
  int count;
  int (*create)(void **session, int segment);
  void (*destroy)(void *session);
  int (*run)(void *session, const void *const *inputs, void *const *outputs, af_lend lend, void *lender, char *text);
  const af_io *(*input)(int segment, int index);
  const af_io *(*output)(int segment, int index);
  const char *(*error)(void);
  const af_open_size *(*open_size)(int segment, int index);
  const af_open_axis *(*open_axes)(int segment, int port, int *count);
  int (*resize)(void *session, int size, int64_t value);
} af_segments;

/* The one function that the code exports. `weights`: where they lie; they stay there as long as the code is used. */
typedef const af_segments *(*af_open_segments)(const unsigned char *weights);
#define SEGMENTS_OPEN "autofuse_open_segments"

#endif
