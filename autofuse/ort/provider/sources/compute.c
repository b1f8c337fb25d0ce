/* A node that runs: from ONNX Runtime's values to a segment, and back. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "provider.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
  const char *numpy;
  int number;
} types[] = {{"float32", 1}, {"uint8", 2},   {"int8", 3},     {"uint16", 4},   {"int16", 5},   {"int32", 6},
             {"int64", 7},   {"bool", 9},    {"float16", 10}, {"float64", 11}, {"uint32", 12}, {"uint64", 13},
             {"bfloat16", 16}};

int af_type_number(const char *numpy) {
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (!strcmp(types[i].numpy, numpy)) return types[i].number;
  return 0;
}

static const char *type_name(int number) {
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (types[i].number == number) return types[i].numpy;
  return "another type";
}

static void shape_text(char *text, const int64_t *sizes, size_t rank) {
  size_t used = (size_t)snprintf(text, SHAPE_BYTES, "(");
  for (size_t i = 0; i < rank && used < SHAPE_BYTES - 32; i++)
    used += (size_t)snprintf(text + used, SHAPE_BYTES - used, i ? ", %lld" : "%lld", (long long)sizes[i]);
  snprintf(text + used, SHAPE_BYTES - used, ")");
}

/* The same as GetTensorElementTypeAndShapeDataReference, which is not there before 1.24. */
static OrtStatus *type_and_sizes(const OrtValue *value, int *type, int64_t *sizes, size_t *rank) {
  OrtShapeInfo *info;
  OrtStatus *status = ort->GetTensorTypeAndShape(value, &info);
  if (status) return status;
  if (!(status = ort->GetTensorElementType(info, type)) && !(status = ort->GetDimensionsCount(info, rank)) && *rank <= MOST_RANK)
    status = ort->GetDimensions(info, sizes, *rank);
  ort->ReleaseTensorTypeAndShapeInfo(info);
  return status;
}

/* Type and shape of a value; the shape may stand in `own`, for MOST_RANK sizes. */
static OrtStatus *look_at(const OrtValue *value, int *type, int64_t *own, const int64_t **sizes, size_t *rank) {
  *sizes = own;
  *rank = 0;
  return ort_newer ? ort->GetTensorElementTypeAndShapeDataReference(value, type, sizes, rank) : type_and_sizes(value, type, own, rank);
}

/* The open sizes that an input says. */
static OrtStatus *read_sizes(const af_port *port, const OrtValue *value, int64_t *open_sizes) {
  int64_t own[MOST_RANK];
  const int64_t *sizes;
  size_t rank;
  int type = 0;
  TRY(look_at(value, &type, own, &sizes, &rank));
  if (rank <= MOST_RANK) af_read_sizes(port, sizes, rank, open_sizes);
  return NULL;
}

static OrtStatus *check(const af_node *node, const af_port *port, const OrtValue *value, const int64_t *open_sizes) {
  const af_io *io = port->io;
  int64_t own[MOST_RANK];
  const int64_t *sizes;
  char wanted[SHAPE_BYTES], given[SHAPE_BYTES];
  size_t rank;
  int type = 0;
  TRY(look_at(value, &type, own, &sizes, &rank));
  if (type != port->type)
    return af_status(ORT_INVALID_ARGUMENT, "autofuse: %s: input %s is %s, compiled for %s", node->name, io->name, type_name(type), io->type);
  if (af_fits(port, sizes, rank, open_sizes)) return NULL;
  af_shape_text(node, port, wanted);
  shape_text(given, sizes, rank <= MOST_RANK ? rank : 0);
  return af_status(ORT_INVALID_ARGUMENT, "autofuse: %s: input %s has the shape %s, compiled for %s: compile the model for this shape", node->name,
                io->name, given, wanted);
}

static void end_room(const af_node *node, af_room *room) {
  if (!room) return;
  for (int i = 0; room->spare && i < node->outputs; i++) free(room->spare[i]);
  free(room->spare);
  node->payload->segments->destroy(room->session);
  free(room);
}

static OrtStatus *new_room(const af_node *node, af_room **made) {
  const af_segments *segments = node->payload->segments;
  af_room *room = calloc(1, sizeof *room);
  if (!room || !(room->spare = calloc((size_t)node->outputs + 1, sizeof *room->spare))) {
    end_room(node, room);
    return af_no_memory();
  }
  if (segments->create(&room->session, node->segment)) {
    OrtStatus *status = af_status(ORT_EP_FAIL, "autofuse: %s: %s", node->name, segments->error());
    end_room(node, room);
    return status;
  }
  for (int i = 0; i < node->outputs; i++) {
    const af_port *port = &node->port[node->inputs + i];
    if (port->place < 0 && posix_memalign(&room->spare[i], 64, port->io->bytes ? port->io->bytes : 64)) {
      room->spare[i] = NULL;
      end_room(node, room);
      return af_no_memory();
    }
  }
  *made = room;
  return NULL;
}

static OrtStatus *take_room(af_node *node, af_room **room) {
  pthread_mutex_lock(&node->lock);
  OrtStatus *status = node->bound ? NULL : af_bind(node);
  if ((*room = node->idle)) node->idle = node->idle->next;
  pthread_mutex_unlock(&node->lock);
  if (status) return status;
  return *room ? NULL : new_room(node, room);
}

static void leave_room(af_node *node, af_room *room) {
  pthread_mutex_lock(&node->lock);
  room->next = node->idle;
  node->idle = room;
  pthread_mutex_unlock(&node->lock);
}

/* ONNX Runtime's threads, for the length of a call. */
static void lend(void *lender, void (*work)(void *, size_t), size_t count, void *data) {
  OrtStatus *status = ort->KernelContext_ParallelFor(lender, work, count, 0, data);
  if (status) ort->ReleaseStatus(status); /* then this thread does all of it */
}

static OrtStatus *input_of(const af_node *node, const af_port *port, OrtKernelContext *context, const OrtValue **given) {
  TRY(ort->KernelContext_GetInput(context, (size_t)port->place, given));
  return *given ? NULL : af_status(ORT_INVALID_ARGUMENT, "autofuse: %s: input %s is missing", node->name, port->io->name);
}

static OrtStatus *bind(const af_node *node, const af_room *room, OrtKernelContext *context, const void **inputs, void **outputs) {
  OrtStatus *status = NULL;
  const OrtValue *given;
  OrtValue *value;
  int64_t sizes[node->sizes + 1], shape[MOST_RANK];
  for (int i = 0; i < node->sizes; i++) sizes[i] = -1;
  for (int i = 0; i < node->inputs; i++) {
    const af_port *port = &node->port[i];
    if (!port->axes) continue;
    if ((status = input_of(node, port, context, &given)) || (status = read_sizes(port, given, sizes))) return status;
  }
  for (int i = 0; i < node->inputs; i++) {
    const af_port *port = &node->port[i];
    if ((status = input_of(node, port, context, &given))) return status;
    if ((status = check(node, port, given, sizes))) return status;
    if ((status = ort->GetTensorMutableData((OrtValue *)given, (void **)&inputs[i]))) return status;
  }
  if (node->sizes && (status = af_resize(node, room->session, sizes))) return status;
  for (int i = 0; i < node->outputs; i++) {
    const af_port *port = &node->port[node->inputs + i];
    outputs[i] = room->spare[i];
    if (port->place < 0) continue;
    if ((status = ort->KernelContext_GetOutput(context, (size_t)port->place, af_shape_at(port, sizes, shape), (size_t)port->io->rank, &value))) return status;
    if ((status = ort->GetTensorMutableData(value, &outputs[i]))) return status;
  }
  return NULL;
}

static OrtStatus *compute(OrtNodeComputeInfo *self, void *state, OrtKernelContext *context) {
  (void)state;
  af_node *node = (af_node *)self;
  const void *inputs[node->inputs + 1];
  void *outputs[node->outputs + 1];
  char text[SEGMENTS_TEXT];
  af_room *room;
  OrtStatus *status = take_room(node, &room);
  if (status) return status;
  if (!(status = bind(node, room, context, inputs, outputs))) {
    int code = node->payload->segments->run(room->session, inputs, outputs, lend, context, text);
    if (code) status = af_status(code == SEGMENTS_BAD_ARGUMENT ? ORT_INVALID_ARGUMENT : ORT_EP_FAIL, "autofuse: %s: %s", node->name, text);
  }
  leave_room(node, room);
  return status;
}

/* ONNX Runtime asks for states when all nodes of the model are made; here the code of a node is there at the latest. What
   fails here it would tell nobody: then the first call says why. */
static OrtStatus *create_state(OrtNodeComputeInfo *self, void *context, void **state) {
  (void)context;
  af_room *room;
  OrtStatus *status = take_room((af_node *)self, &room);
  if (status) ort->ReleaseStatus(status);
  else leave_room((af_node *)self, room);
  *state = self;
  return NULL;
}

static void release_state(OrtNodeComputeInfo *self, void *state) { (void)self, (void)state; }

void af_prepare(af_node *node) { node->info = (OrtNodeComputeInfo){ORT_VERSION, create_state, compute, release_state}; }

OrtStatus *af_ready(af_node *node) {
  af_prepare(node);
  TRY(af_bind(node));
  return new_room(node, &node->idle);
}

void af_end_node(af_node *node) {
  if (!node) return;
  for (af_room *room = node->idle, *next; room; room = next) {
    next = room->next;
    end_room(node, room);
  }
  af_leave_payload(node->payload);
  pthread_mutex_destroy(&node->lock);
  free(node->port);
  free(node->name);
  free(node);
}
