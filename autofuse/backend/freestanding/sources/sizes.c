/* Open sizes of a session: extents that are set between calls, in memory that was planned at the largest sizes. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "session.h"

#include <stdlib.h>
#include <string.h>

static uint32_t described(const af_program *p) { return p->inputs + p->outputs + p->caches; }

const AF(tensor) *af_largest(const af_program *p, uint32_t number) {
  if (number < p->inputs) return &p->input[number];
  number -= p->inputs;
  return number < p->outputs ? &p->output[number] : &p->cache[number - p->outputs];
}

static size_t elements(const AF(tensor) *tensor) {
  size_t count = 1;
  for (int axis = 0; axis < tensor->rank; axis++) count *= (size_t)tensor->shape[axis];
  return count;
}

static int rank_of(const af_program *p, uint32_t tensor) {
  return tensor < p->rows ? p->row[tensor].rank : af_largest(p, tensor - p->rows)->rank;
}

static int is_first(const af_program *p, uint32_t extent) {
  return !extent || p->extent[extent].tensor != p->extent[extent - 1].tensor;
}

/* Shapes of the session's own, for what has an open size. */
static void own_shapes(AF(session) *session) {
  const af_program *p = session->program;
  int64_t *free_one = session->shapes;
  for (uint32_t i = 0; i < p->extents; i++) {
    uint32_t tensor = p->extent[i].tensor;
    const int64_t **shape = tensor < p->rows ? &session->tensors[tensor].shape : &session->now[tensor - p->rows].shape;
    if (is_first(p, i)) {
      size_t rank = (size_t)rank_of(p, tensor);
      *shape = memcpy(free_one, *shape, rank * sizeof **shape);
      free_one += rank;
    }
    session->extent[i] = (int64_t *)*shape + p->extent[i].axis;
  }
}

int af_start_sizes(AF(session) *session) {
  const af_program *p = session->program;
  size_t sizes = 1;
  for (uint32_t i = 0; i < p->extents; i++)
    if (is_first(p, i)) sizes += (size_t)rank_of(p, p->extent[i].tensor);
  session->now = calloc(described(p) + 1, sizeof *session->now);
  session->size = calloc(p->ranges + 1, sizeof *session->size);
  session->extent = calloc(p->extents + 1, sizeof *session->extent);
  session->shapes = calloc(sizes, sizeof *session->shapes);
  if (p->kept_bytes && (session->kept = af_aligned(p->kept_bytes)) != NULL) memset(session->kept, 0, p->kept_bytes);
  if (!session->now || !session->size || !session->extent || !session->shapes || (p->kept_bytes && !session->kept))
    return af_fail(AF(NO_MEMORY), "out of memory: the caches of a session need %llu bytes", (unsigned long long)p->kept_bytes);
  for (uint32_t i = 0; i < described(p); i++) session->now[i] = *af_largest(p, i);
  return AF(OK);
}

void af_bind_sizes(AF(session) *session) {
  const af_program *p = session->program;
  own_shapes(session);
  for (uint32_t i = 0; i < p->ranges; i++) af_resize(session, i, p->range[i].added ? p->range[i].low : p->range[i].high);
}

void af_end_sizes(AF(session) *session) {
  free(session->shapes);
  free(session->extent);
  free(session->size);
  free(session->now);
  free(session->kept);
}

static int is_further(const af_extent *one) { return one->times < AF_ALONE; }

/* The first of the parts of an extent, which stand before it. */
static const af_extent *first_part(const af_program *p, const af_extent *one) {
  while (one > p->extent && is_further(one - 1)) one--;
  return one;
}

static int follows(const af_program *p, const af_extent *one, uint32_t number) {
  if (one->times == (int32_t)number) return 1;
  for (const af_extent *part = first_part(p, one); part <= one; part++)
    if (part->size == number) return 1;
  return 0;
}

static int64_t part_at(const af_extent *one, const int64_t *size) {
  return (one->factor * ((size[one->size] + one->shift) / one->per) + one->more) * (one->times < 0 ? 1 : size[one->times]);
}

static int64_t extent_at(const af_program *p, const af_extent *one, const int64_t *size) {
  int64_t whole = 0, last = part_at(one, size);
  for (const af_extent *part = first_part(p, one); part < one; part++) {
    if (part->times == AF_ADDS) whole += last, last = 1;
    last *= part_at(part, size);
  }
  return whole + last;
}

/* The last plan takes all sizes. */
static const af_plan *plan_at(const AF(session) *session) {
  const af_plan *plan = session->program->plan;
  int64_t product = 1;
  for (uint32_t i = 0; i < session->program->ranges; i++)
    if (__builtin_mul_overflow(product, session->size[i], &product)) product = INT64_MAX;
  while (product > plan->most) plan++;
  return plan;
}

void af_resize(AF(session) *session, uint32_t number, int64_t size) {
  const af_program *p = session->program;
  session->size[number] = size;
  session->plan = plan_at(session);
  for (uint32_t i = 0; i < p->extents; i++) {
    const af_extent *one = &p->extent[i];
    if (!is_further(one) && follows(p, one, number)) *session->extent[i] = extent_at(p, one, session->size);
  }
  for (uint32_t i = 0; i < p->extents; i++) {
    if (is_further(&p->extent[i]) || !follows(p, &p->extent[i], number) || p->extent[i].tensor < p->rows) continue;
    uint32_t place = p->extent[i].tensor - p->rows;
    const AF(tensor) *largest = af_largest(p, place);
    size_t most = elements(largest);
    session->now[place].bytes = most ? largest->bytes / most * elements(&session->now[place]) : 0;
  }
}

/* The size along which the caches of a session have rows now; NULL where they are empty, or there are none. */
static const af_range *held_rows(const AF(session) *session) {
  for (uint32_t i = 0; i < session->program->ranges; i++) {
    const af_range *range = &session->program->range[i];
    if (range->added && session->size[i] > range->low) return range;
  }
  return NULL;
}

/* Whether caches have a size: the rows of each, or the sequences. */
static int in_caches(const af_program *p, uint32_t number) {
  for (uint32_t i = 0; i < p->extents; i++)
    if (p->extent[i].tensor >= p->rows + p->inputs + p->outputs && follows(p, &p->extent[i], number)) return 1;
  return 0;
}

int af_set_size(AF(session) *session, uint32_t number, int64_t size, const char *who) {
  const af_range *range = &session->program->range[number];
  if (size < range->low || size > range->high)
    return af_fail(AF(BAD_ARGUMENT), "%s: %s is %lld, the library takes %lld to %lld: compile it with a wider range, --sizes %s=LOW:HIGH", who,
                range->name, (long long)size, (long long)range->low, (long long)range->high, range->name);
  const af_range *rows = range->added || !in_caches(session->program, number) ? NULL : held_rows(session);
  if (rows && size > session->size[number])
    return af_fail(AF(BAD_ARGUMENT), "%s: %s is %lld, but the caches have rows of %lld sequences only: set %s to %lld first, which begins new ones", who,
                range->name, (long long)size, (long long)session->size[number], rows->name, (long long)rows->low);
  if (size % range->step)
    return af_fail(AF(BAD_ARGUMENT), "%s: %s is %lld, the library takes multiples of %lld, from %lld to %lld", who, range->name, (long long)size,
                (long long)range->step, (long long)range->low, (long long)range->high);
  if (session->size[number] != size) af_resize(session, number, size);
  return AF(OK);
}

int af_check_caches(const AF(session) *session) {
  const af_program *p = session->program;
  for (uint32_t i = 0; i < p->ranges; i++)
    if (session->size[i] > p->range[i].high)
      return af_fail(AF(BAD_ARGUMENT), "run: the caches are full: %s is %lld, the library takes %lld at most: set it back, or compile with a wider range, --sizes %s=LOW:HIGH",
                  p->range[i].name, (long long)session->size[i], (long long)p->range[i].high, p->range[i].name);
  return AF(OK);
}

void af_extend_caches(AF(session) *session) {
  for (uint32_t i = 0; i < session->program->ranges; i++)
    if (session->program->range[i].added) af_resize(session, i, session->size[i] + session->program->range[i].added);
}
