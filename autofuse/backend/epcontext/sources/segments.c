/* The segments of a model as a provider sees them: the programs of a network whose weights lie elsewhere. */
#include "segments.h"

#include "runtime.h"
#include "team.h"

#include <string.h>

_Static_assert(sizeof(af_io) == sizeof(AF(tensor)) && offsetof(af_io, bytes) == offsetof(AF(tensor), bytes), "the same");
_Static_assert(SEGMENTS_TEXT >= MOST_TEXT && SEGMENTS_OK == AF(OK) && SEGMENTS_BAD_ARGUMENT == AF(BAD_ARGUMENT), "the same");

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

const af_segments *autofuse_open_segments(const unsigned char *weights);

const af_segments *autofuse_open_segments(const unsigned char *weights) {
  static af_segments made = {0, create, destroy, run, input, output, AF(error)};
  AF(weights) = weights;
  made.count = AF(network).programs;
  return &made;
}
