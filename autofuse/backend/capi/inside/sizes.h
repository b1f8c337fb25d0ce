/* Open sizes of a program, as the table has them: read, and looked for in the shapes of a call's inputs. */
#ifndef AUTOFUSE_SIZES_H
#define AUTOFUSE_SIZES_H

#include "runtime.h"

typedef struct {
  DLTensor tensor;
  int64_t shape[MAX_RANK];
  char *name;
} af_spec;

/* A size that is open: any multiple of `step` from `low` to `high`. */
typedef struct {
  char *name;
  int64_t low, high, step;
} af_size;

/* Axis `axis` of an input, or of an output behind all inputs, is `factor` times a `per`-th of the open size number `size` and `shift`, and `more`;
   all of this as often as size number `times` says, where that is none below 0. Where places of several maps stand one behind the other, an
   extent is a sum of products: what goes on from its first part stands before it, in order, and `MULTIPLIES` the last summand or `ADDS` one. */
enum { ALONE = -1, MULTIPLIES = -2, ADDS = -3 };
typedef struct {
  int port, axis, size, times;
  int64_t factor, more, per, shift;
} af_extent;

/* `most`: of several programs for the same open sizes, a call goes to the first whose product of them is no more. */
typedef struct {
  char entry[64];
  int inputs, outputs, weights;
  af_spec *input, *output;
  int *uses;
  int sizes, extents, caches;
  af_size *size;
  af_extent *extent;
  int *cache;
  int64_t most;
  TVMFFIObjectHandle function;
} af_program;

/* Room for one more element behind `count` of them; NULL where there is no memory. */
static void *one_more(void **array, int count, size_t bytes) {
  void *larger = realloc(*array, (count + 1) * bytes);
  return larger ? (char *)(*array = larger) + count * bytes : NULL;
}

static int read_size(af_program *p, const char *text, int stepped) {
  long long low, high, step = 1;
  int used = 0;
  if (sscanf(text, "%lld %lld%n", &low, &high, &used) != 2 || low < 0 || low > high) return -1;
  if (stepped && (sscanf(text, "%*d %*d %lld%n", &step, &used) != 1 || step < 1)) return -1;
  af_size *size = one_more((void **)&p->size, p->sizes, sizeof *size);
  if (size == NULL) return -1;
  *size = (af_size){strdup(text + used + (text[used] == ' ')), low, high, step};
  if (size->name == NULL) return -1;
  return p->sizes++, 0;
}

static af_spec *port_of(const af_program *p, int port) {
  return port < p->inputs ? &p->input[port] : &p->output[port - p->inputs];
}

/* Whether an extent says what its size is. */
static int says(const af_extent *one) { return one->times < 0 && one->per == 1; }

static int is_further(const af_extent *one) { return one->times < ALONE; }

static int64_t part_at(const af_extent *one, int64_t size, int64_t times) {
  int64_t part;
  if (__builtin_mul_overflow((size + one->shift) / one->per, one->factor, &part) || __builtin_add_overflow(part, one->more, &part)) return -1;
  return __builtin_mul_overflow(part, times, &part) ? -1 : part;
}

/* An extent whose first part is that much, by its `further` parts up to an end; below 0 where it is too large a number. */
static int64_t whole_extent(const af_extent *further, const af_extent *end, int64_t last, const int64_t *sizes) {
  int64_t whole = 0;
  for (; further < end; further++) {
    if (further->times == ADDS && __builtin_add_overflow(whole, last, &whole)) return -1;
    if (further->times == ADDS) last = 1;
    if (__builtin_mul_overflow(last, part_at(further, sizes[further->size], 1), &last)) return -1;
  }
  return __builtin_add_overflow(whole, last, &whole) ? -1 : whole;
}

static int64_t extent_at(const af_program *p, const af_extent *one, const int64_t *sizes) {
  const af_extent *further = one;
  while (further > p->extent && is_further(further - 1)) further--;
  return whole_extent(further, one, part_at(one, sizes[one->size], one->times < 0 ? 1 : sizes[one->times]), sizes);
}

static int keep_extent(af_program *p, af_extent one, long long factor, long long more, long long per, long long shift) {
  if (one.port < 0 || one.port >= p->inputs + p->outputs || one.size < 0 || one.size >= p->sizes) return -1;
  if (factor < 1 || per < 1 || shift < 0 || shift >= per || one.times >= p->sizes) return -1;
  if (one.axis < 0 || one.axis >= port_of(p, one.port)->tensor.ndim) return -1;
  const af_extent *before = p->extents ? &p->extent[p->extents - 1] : NULL;
  if (before && is_further(before) && (before->port != one.port || before->axis != one.axis)) return -1;
  one.factor = factor, one.more = more, one.per = per, one.shift = shift;
  af_extent *kept = one_more((void **)&p->extent, p->extents, sizeof *kept);
  if (kept == NULL) return -1;
  *kept = one;
  return p->extents++, 0;
}

/* Of an output, what its extent in the next such record has beside the first part. */
static int read_further(af_program *p, const char *text) {
  af_extent one;
  long long factor, more, per, shift;
  int adds;
  if (sscanf(text, "%d %d %d %lld %lld %lld %lld %d", &one.port, &one.axis, &one.size, &factor, &more, &per, &shift, &adds) != 8) return -1;
  one.times = adds ? ADDS : MULTIPLIES;
  return one.port < p->inputs ? -1 : keep_extent(p, one, factor, more, per, shift);
}

/* Its extent in the table is that at the largest sizes. */
static int read_extent(af_program *p, const char *text) {
  af_extent one;
  long long factor, more, per = 1, shift = 0;
  int64_t high[p->sizes + 1];
  one.times = ALONE;
  if (sscanf(text, "%d %d %d %lld %lld %lld %d %lld", &one.port, &one.axis, &one.size, &factor, &more, &per, &one.times, &shift) < 5) return -1;
  if (one.times < ALONE || keep_extent(p, one, factor, more, per, shift)) return -1;
  for (int i = 0; i < p->sizes; i++) high[i] = p->size[i].high;
  return port_of(p, one.port)->shape[one.axis] == extent_at(p, &p->extent[p->extents - 1], high) ? 0 : -1;
}

static int read_cache(af_program *p, const char *text) {
  int input, *kept;
  if (sscanf(text, "%d", &input) != 1 || input < 0 || input >= p->inputs) return -1;
  if ((kept = one_more((void **)&p->cache, p->caches, sizeof *kept)) == NULL) return -1;
  *kept = input;
  return p->caches++, 0;
}

static int read_most(af_program *p, const char *text) {
  long long most;
  if (sscanf(text, "%lld", &most) != 1 || most < 0) return -1;
  p->most = most;
  return 0;
}

/* Whether a call of such open sizes goes to a program, where it goes to none before it. */
static int answers(const af_program *p, const int64_t *sizes) {
  int64_t product = 1;
  for (int i = 0; i < p->sizes; i++)
    if (__builtin_mul_overflow(product, sizes[i], &product)) product = INT64_MAX;
  return !p->sizes || product <= p->most;
}

static const af_extent *extent_of(const af_program *p, int port, int axis) {
  for (int i = 0; i < p->extents; i++)
    if (p->extent[i].port == port && p->extent[i].axis == axis && !is_further(&p->extent[i])) return &p->extent[i];
  return NULL;
}

static int is_cache(const af_program *p, int input) {
  for (int i = 0; i < p->caches; i++)
    if (p->cache[i] == input) return 1;
  return 0;
}

static void shape_at(const af_program *p, int port, const int64_t *sizes, int64_t *shape) {
  const af_spec *spec = port_of(p, port);
  for (int axis = 0; axis < spec->tensor.ndim; axis++) {
    const af_extent *one = extent_of(p, port, axis);
    shape[axis] = one ? extent_at(p, one, sizes) : spec->shape[axis];
  }
}

static int refuse_shape(const af_program *p, int input, const DLTensor *have) {
  char text[512];
  int used = 0;
  for (int axis = 0; axis < p->input[input].tensor.ndim && used < 400; axis++) {
    const af_extent *one = extent_of(p, input, axis);
    used += snprintf(text + used, sizeof text - used, axis ? ", " : "");
    if (!one) used += snprintf(text + used, sizeof text - used, "%lld", (long long)p->input[input].shape[axis]);
    if (one && one->times >= 0) used += snprintf(text + used, sizeof text - used, "%.20s*", p->size[one->times].name);
    if (one && one->factor > 1) used += snprintf(text + used, sizeof text - used, "%lld*", (long long)one->factor);
    if (one) used += snprintf(text + used, sizeof text - used, "%.20s", p->size[one->size].name);
    if (one && one->per > 1) used += snprintf(text + used, sizeof text - used, "/%lld", (long long)one->per);
    if (one && one->more) used += snprintf(text + used, sizeof text - used, " %c %lld", one->more < 0 ? '-' : '+', llabs(one->more));
  }
  text[used] = 0;
  return fail("input %s: its rank is %d, and its shape does not fit (%s), the same size in all inputs", p->input[input].name, have->ndim, text);
}

/* The open sizes of a call, from the shapes of its inputs. */
static int find_sizes(const af_program *p, const DLTensor *inputs, int64_t *sizes) {
  for (int i = 0; i < p->sizes; i++) sizes[i] = -1;
  for (int i = 0; i < p->inputs; i++)
    if (inputs[i].ndim != p->input[i].tensor.ndim) return refuse_shape(p, i, &inputs[i]);
  for (const af_extent *one = p->extent; one < p->extent + p->extents; one++)
    if (one->port < p->inputs && says(one) && sizes[one->size] < 0 && inputs[one->port].shape[one->axis] >= one->more)
      sizes[one->size] = (inputs[one->port].shape[one->axis] - one->more) / one->factor;
  for (int i = 0; i < p->inputs; i++)
    for (int axis = 0; axis < inputs[i].ndim; axis++) {
      const af_extent *one = extent_of(p, i, axis);
      if (inputs[i].shape[axis] != (one ? extent_at(p, one, sizes) : p->input[i].shape[axis])) return refuse_shape(p, i, &inputs[i]);
    }
  for (int i = 0; i < p->sizes; i++)
    if (sizes[i] % p->size[i].step)
      return fail("%s is %lld, the library takes multiples of %lld", p->size[i].name, (long long)sizes[i], (long long)p->size[i].step);
    else if (sizes[i] < p->size[i].low || sizes[i] > p->size[i].high)
      return fail("%s is %lld, the library takes %lld to %lld: compile it with a wider range, --sizes %s=LOW:HIGH", p->size[i].name,
                  (long long)sizes[i], (long long)p->size[i].low, (long long)p->size[i].high, p->size[i].name);
  return 0;
}

static void free_sizes(af_program *p) {
  for (int i = 0; i < p->sizes; i++) free(p->size[i].name);
  free(p->size);
  free(p->extent);
  free(p->cache);
}

#endif
