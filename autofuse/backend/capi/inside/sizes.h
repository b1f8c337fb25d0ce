/* Open sizes of a program, as the table has them: read, and looked for in the shapes of a call's inputs. */
#ifndef AUTOFUSE_SIZES_H
#define AUTOFUSE_SIZES_H

#include "runtime.h"

typedef struct {
  DLTensor tensor;
  int64_t shape[MAX_RANK];
  char *name;
} af_spec;

/* A size that is open: any of `low` to `high`. */
typedef struct {
  char *name;
  int64_t low, high;
} af_size;

/* Axis `axis` of an input, or of an output behind all inputs, is `factor` times the open size number `size`, and `more`. */
typedef struct {
  int port, axis, size;
  int64_t factor, more;
} af_extent;

typedef struct {
  char entry[64];
  int inputs, outputs, weights;
  af_spec *input, *output;
  int *uses;
  int sizes, extents, caches;
  af_size *size;
  af_extent *extent;
  int *cache;
  TVMFFIObjectHandle function;
} af_program;

/* Room for one more element behind `count` of them; NULL where there is no memory. */
static void *one_more(void **array, int count, size_t bytes) {
  void *larger = realloc(*array, (count + 1) * bytes);
  return larger ? (char *)(*array = larger) + count * bytes : NULL;
}

static int read_size(af_program *p, const char *text) {
  long long low, high;
  int used = 0;
  if (sscanf(text, "%lld %lld%n", &low, &high, &used) != 2 || low < 0 || low > high) return -1;
  af_size *size = one_more((void **)&p->size, p->sizes, sizeof *size);
  if (size == NULL) return -1;
  *size = (af_size){strdup(text + used + (text[used] == ' ')), low, high};
  if (size->name == NULL) return -1;
  return p->sizes++, 0;
}

static af_spec *port_of(const af_program *p, int port) {
  return port < p->inputs ? &p->input[port] : &p->output[port - p->inputs];
}

/* Its extent in the table is that at the largest size. */
static int read_extent(af_program *p, const char *text) {
  af_extent one;
  long long factor, more;
  int64_t largest;
  if (sscanf(text, "%d %d %d %lld %lld", &one.port, &one.axis, &one.size, &factor, &more) != 5) return -1;
  if (one.port < 0 || one.port >= p->inputs + p->outputs || one.size < 0 || one.size >= p->sizes || factor < 1) return -1;
  const af_spec *spec = port_of(p, one.port);
  if (one.axis < 0 || one.axis >= spec->tensor.ndim || more < 0) return -1;
  if (__builtin_mul_overflow(p->size[one.size].high, factor, &largest) || spec->shape[one.axis] - more != largest) return -1;
  one.factor = factor, one.more = more;
  af_extent *kept = one_more((void **)&p->extent, p->extents, sizeof *kept);
  if (kept == NULL) return -1;
  *kept = one;
  return p->extents++, 0;
}

static int read_cache(af_program *p, const char *text) {
  int input, *kept;
  if (sscanf(text, "%d", &input) != 1 || input < 0 || input >= p->inputs) return -1;
  if ((kept = one_more((void **)&p->cache, p->caches, sizeof *kept)) == NULL) return -1;
  *kept = input;
  return p->caches++, 0;
}

static const af_extent *extent_of(const af_program *p, int port, int axis) {
  for (int i = 0; i < p->extents; i++)
    if (p->extent[i].port == port && p->extent[i].axis == axis) return &p->extent[i];
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
    shape[axis] = one ? one->factor * sizes[one->size] + one->more : spec->shape[axis];
  }
}

static int refuse_shape(const af_program *p, int input, const DLTensor *have) {
  char text[512];
  int used = 0;
  for (int axis = 0; axis < p->input[input].tensor.ndim && used < 400; axis++) {
    const af_extent *one = extent_of(p, input, axis);
    const char *between = axis ? ", " : "";
    if (!one) used += snprintf(text + used, sizeof text - used, "%s%lld", between, (long long)p->input[input].shape[axis]);
    else if (one->factor == 1) used += snprintf(text + used, sizeof text - used, "%s%.40s", between, p->size[one->size].name);
    else used += snprintf(text + used, sizeof text - used, "%s%lld*%.40s", between, (long long)one->factor, p->size[one->size].name);
    if (one && one->more) used += snprintf(text + used, sizeof text - used, " + %lld", (long long)one->more);
  }
  text[used] = 0;
  return fail("input %s: its rank is %d, and its shape does not fit (%s), the same size in all inputs", p->input[input].name, have->ndim, text);
}

/* The open sizes of a call, from the shapes of its inputs. */
static int find_sizes(const af_program *p, const DLTensor *inputs, int64_t *sizes) {
  for (int i = 0; i < p->sizes; i++) sizes[i] = -1;
  for (int i = 0; i < p->inputs; i++) {
    const DLTensor *have = &inputs[i];
    if (have->ndim != p->input[i].tensor.ndim) return refuse_shape(p, i, have);
    for (int axis = 0; axis < have->ndim; axis++) {
      const af_extent *one = extent_of(p, i, axis);
      int64_t times = have->shape[axis] - (one ? one->more : p->input[i].shape[axis]);
      if (!one && times) return refuse_shape(p, i, have);
      if (!one) continue;
      if (times < 0 || times % one->factor) return refuse_shape(p, i, have);
      if (sizes[one->size] >= 0 && sizes[one->size] != times / one->factor) return refuse_shape(p, i, have);
      sizes[one->size] = times / one->factor;
    }
  }
  for (int i = 0; i < p->sizes; i++)
    if (sizes[i] < p->size[i].low || sizes[i] > p->size[i].high)
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
