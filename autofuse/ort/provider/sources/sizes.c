/* Open sizes of a call: read from the shapes of its inputs, checked, and told to the segment. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "provider.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_further(const af_open_axis *open) { return open->times < SEGMENTS_ALONE; }

static const af_open_axis *open_axis(const af_port *port, size_t axis) {
  for (int i = 0; i < port->axes; i++)
    if (port->axis[i].axis == axis && !is_further(&port->axis[i])) return &port->axis[i];
  return NULL;
}

static int64_t part_at(const af_open_axis *open, const int64_t *sizes) {
  int64_t once = open->factor * ((sizes[open->size] + open->shift) / open->per) + open->more;
  return open->times < 0 ? once : once * sizes[open->times];
}

static int64_t extent_at(const af_port *port, const af_open_axis *open, const int64_t *sizes) {
  const af_open_axis *part = open;
  int64_t whole = 0, last = part_at(open, sizes);
  while (part > port->axis && is_further(part - 1)) part--;
  for (; part < open; part++) {
    if (part->times == SEGMENTS_ADDS) whole += last, last = 1;
    last *= part_at(part, sizes);
  }
  return whole + last;
}

static bool is_known(const af_open_axis *open, const int64_t *sizes) {
  return sizes[open->size] >= 0 && (open->times < 0 || sizes[open->times] >= 0);
}

void af_read_sizes(const af_port *port, const int64_t *shape, size_t rank, int64_t *sizes) {
  for (const af_open_axis *open = port->axis; open < port->axis + port->axes; open++) {
    if (open->times != SEGMENTS_ALONE || open->per > 1 || open->axis >= rank || sizes[open->size] >= 0) continue;
    int64_t times = shape[open->axis] - open->more;
    if (times >= 0 && times % open->factor == 0) sizes[open->size] = times / open->factor;
  }
}

bool af_fits(const af_port *port, const int64_t *shape, size_t rank, const int64_t *sizes) {
  if (rank != (size_t)port->io->rank) return false;
  if (!port->axes) return !memcmp(shape, port->io->shape, rank * sizeof *shape);
  for (size_t i = 0; i < rank; i++) {
    const af_open_axis *open = open_axis(port, i);
    if (open ? !is_known(open, sizes) || shape[i] != extent_at(port, open, sizes) : shape[i] != port->io->shape[i]) return false;
  }
  return true;
}

OrtStatus *af_resize(const af_node *node, void *session, const int64_t *sizes) {
  const af_segments *segments = node->payload->segments;
  for (int i = 0; i < node->sizes; i++) {
    const af_open_size *open = segments->open_size(node->segment, i);
    if (sizes[i] < open->low || sizes[i] > open->high)
      return af_status(ORT_INVALID_ARGUMENT, "autofuse: %s: %s is %lld, compiled for %lld to %lld: compile the model with a wider range, --sizes %s=LOW:HIGH",
                    node->name, open->name, (long long)sizes[i], (long long)open->low, (long long)open->high, open->name);
    int code = segments->resize(session, i, sizes[i]);
    if (code) return af_status(code == SEGMENTS_BAD_ARGUMENT ? ORT_INVALID_ARGUMENT : ORT_EP_FAIL, "autofuse: %s: %s", node->name, segments->error());
  }
  return NULL;
}

const int64_t *af_shape_at(const af_port *port, const int64_t *sizes, int64_t *room) {
  if (!port->axes) return port->io->shape;
  memcpy(room, port->io->shape, (size_t)port->io->rank * sizeof *room);
  for (const af_open_axis *open = port->axis; open < port->axis + port->axes; open++)
    if (!is_further(open)) room[open->axis] = extent_at(port, open, sizes);
  return room;
}

static size_t extent_text(const af_node *node, const af_open_axis *open, char *text, size_t room) {
  const af_segments *segments = node->payload->segments;
  int used = 0;
  if (open->times >= 0) used += snprintf(text, room, "%.20s*", segments->open_size(node->segment, open->times)->name);
  if (open->factor > 1) used += snprintf(text + used, room - (size_t)used, "%lld*", (long long)open->factor);
  used += snprintf(text + used, room - (size_t)used, "%.20s", segments->open_size(node->segment, (int)open->size)->name);
  if (open->per > 1) used += snprintf(text + used, room - (size_t)used, "/%lld", (long long)open->per);
  if (open->more) used += snprintf(text + used, room - (size_t)used, " %c %lld", open->more < 0 ? '-' : '+', llabs(open->more));
  return (size_t)used;
}

void af_shape_text(const af_node *node, const af_port *port, char *text) {
  size_t used = (size_t)snprintf(text, SHAPE_BYTES, "(");
  for (size_t i = 0; i < (size_t)port->io->rank && used < SHAPE_BYTES - 96; i++) {
    const af_open_axis *open = open_axis(port, i);
    if (i) used += (size_t)snprintf(text + used, SHAPE_BYTES - used, ", ");
    if (open) used += extent_text(node, open, text + used, SHAPE_BYTES - used);
    else used += (size_t)snprintf(text + used, SHAPE_BYTES - used, "%lld", (long long)port->io->shape[i]);
  }
  snprintf(text + used, SHAPE_BYTES - used, ")");
}
