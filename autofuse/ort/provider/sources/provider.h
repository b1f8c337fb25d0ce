/* The provider: what ONNX Runtime calls (provider.c), nodes when a session is made (node.c), and when it runs
   (compute.c, and sizes.c for open sizes). */
#ifndef AUTOFUSE_PROVIDER_H
#define AUTOFUSE_PROVIDER_H

#include <pthread.h>

#include "ort.h"
#include "payload.h"

#pragma GCC visibility push(hidden)

/* `newer`: the functions of API version 24 are there. */
extern const OrtApi *ort;
extern bool ort_newer;

/* Memory of one call at a time: a session of the segment, and outputs that ONNX Runtime does not ask for. */
typedef struct af_room {
  struct af_room *next;
  void *session;
  void **spare;
} af_room;

/* An input or output of a segment. `place`: among those of ONNX Runtime's node, -1 for an output that it left out.
   `type`: ONNX Runtime's number of the elements' type. `axis`: those that follow an open size. */
typedef struct {
  const af_io *io;
  const af_open_axis *axis;
  int place, type, axes;
} af_port;

/* One node of a model in one session. `payload`: NULL until its code is found, which another node of the model may have.
   `idle`: rooms that no call uses. */
typedef struct {
  OrtNodeComputeInfo info;
  unsigned char digest[DIGEST_BYTES];
  af_payload *payload;
  char *name;
  bool bound; /* its code is found, and fits */
  int segment, inputs, outputs, sizes; /* open ones */
  af_port *port; /* those of the inputs, then those of the outputs */
  pthread_mutex_t lock;
  af_room *idle;
} af_node;

#define AF_SOURCE "autofuse" /* the attribute `source` of nodes that are ours */

#define TRY(call)              \
  do {                         \
    OrtStatus *tried = (call); \
    if (tried) return tried;   \
  } while (0)

/* An error of ONNX Runtime's; `format` as printf has it. */
OrtStatus *af_status(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

OrtStatus *af_no_memory(void);

/* The nodes of a graph, to be freed; whether one is ours. */
OrtStatus *af_nodes_of(const OrtGraph *graph, const OrtNode ***nodes, size_t *count);
OrtStatus *af_is_ours(const OrtNode *node, bool *ours);

/* The node that computes the one of `graph`, as `fused` of ONNX Runtime's. `trusted`: digests of payloads, one of which it
   must have; NULL: any. */
OrtStatus *af_make_node(const char *trusted, const OrtGraph *graph, const OrtNode *fused, OrtNodeComputeInfo **info);

/* Finds the code of a node whose model is read: nodes of bodies are made before those of the graph around them. */
OrtStatus *af_bind(af_node *node);

/* Sets how the node computes; and finds its code and makes its first room, too. */
void af_prepare(af_node *node);
OrtStatus *af_ready(af_node *node);
void af_end_node(af_node *node);

enum { MOST_RANK = 64, SHAPE_BYTES = 256 };

/* sizes.c: open sizes of a call, each -1 until an input says it; and whether the shape of an input fits to them. */
void af_read_sizes(const af_port *port, const int64_t *shape, size_t rank, int64_t *sizes);
bool af_fits(const af_port *port, const int64_t *shape, size_t rank, const int64_t *sizes);
OrtStatus *af_resize(const af_node *node, void *session, const int64_t *sizes);
/* The shape of an output at these sizes, perhaps in `room` for MOST_RANK; a port's shape for people, in SHAPE_BYTES. */
const int64_t *af_shape_at(const af_port *port, const int64_t *sizes, int64_t *room);
void af_shape_text(const af_node *node, const af_port *port, char *text);

/* ONNX Runtime's number of a type that numpy names; 0 for none. */
int af_type_number(const char *numpy);

#pragma GCC visibility pop
#endif
