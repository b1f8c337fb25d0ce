/* The segments of a model as a provider sees them: the programs of a network whose weights lie elsewhere. */
#include "segments.h"

#include "session.h"
#include "team.h"

#include <string.h>

_Static_assert(sizeof(af_io) == sizeof(AF(tensor)) && offsetof(af_io, bytes) == offsetof(AF(tensor), bytes), "the same");
_Static_assert(SEGMENTS_TEXT >= MOST_TEXT && SEGMENTS_OK == AF(OK) && SEGMENTS_BAD_ARGUMENT == AF(BAD_ARGUMENT), "the same");
_Static_assert(sizeof(af_open_axis) == sizeof(af_extent) && offsetof(af_open_axis, shift) == offsetof(af_extent, shift), "the same");
_Static_assert(offsetof(af_open_size, high) == offsetof(af_range, high), "ours begins as theirs");

const unsigned char *AF(weights);

typedef struct {
  AF(session) *session;
  const void *const *inputs;
  void *const *outputs;
  char *text;
} call;

static int lead(void *data) {
  call *one = data;
  int code = AF(run)(one->session, one->inputs, one->outputs);
  if (code) memcpy(one->text, AF(error)(), MOST_TEXT); /* of the thread that leads, which the caller need not be */
  return code;
}

static int run(void *session, const void *const *inputs, void *const *outputs, af_lend lend, void *lender, char *text) {
  call one = {session, inputs, outputs, text};
  af_team team = {.pool = af_pool_of(session), .lead = lead, .data = &one};
  if (team.pool->threads > 1) lend(lender, af_join, (size_t)team.pool->threads, &team);
  if (!atomic_load(&team.led)) af_join(&team, 0);
  return team.code;
}

static int create(void **session, int segment) { return AF(create)((AF(session) **)session, segment, 0); }
static void destroy(void *session) { AF(destroy)(session); }
static const af_io *input(int segment, int index) { return (const af_io *)AF(input)(segment, index); }
static const af_io *output(int segment, int index) { return (const af_io *)AF(output)(segment, index); }

static const af_open_size *open_size(int segment, int index) {
  const af_program *p = &AF(network).program[segment];
  return (uint32_t)index < p->ranges ? (const af_open_size *)&p->range[index] : NULL;
}

/* The axes of a port among the extents of a program, which stand together behind those of its rows. */
static const af_open_axis *open_axes(int segment, int port, int *count) {
  const af_program *p = &AF(network).program[segment];
  const af_extent *one = p->extent, *end = p->extent + p->extents;
  while (one < end && one->tensor != p->rows + (uint32_t)port) one++;
  for (*count = 0; one + *count < end && one[*count].tensor == p->rows + (uint32_t)port; ++*count) continue;
  return (const af_open_axis *)one;
}

static int resize(void *session, int size, int64_t value) { return af_set_size(session, (uint32_t)size, value, "resize"); }

const af_segments *autofuse_open_segments(const unsigned char *weights);

const af_segments *autofuse_open_segments(const unsigned char *weights) {
  static af_segments made = {0, create, destroy, run, input, output, AF(error), open_size, open_axes, resize};
  AF(weights) = weights;
  made.count = AF(network).programs;
  return &made;
}
