/* A node of a model: whether it is ours, and what its attributes lead to. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "provider.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* An attribute that is a text, as it is; NULL where there is none. To be freed. */
static OrtStatus *text_of(const OrtNode *node, const char *name, char **text) {
  const OrtOpAttr *attribute = NULL;
  size_t wanted = 0;
  *text = NULL;
  TRY(ort->Node_GetAttributeByName(node, name, &attribute));
  if (!attribute) return NULL;
  OrtStatus *status = ort->ReadOpAttr(attribute, ORT_ATTRIBUTE_STRING, NULL, 0, &wanted);
  if (status) ort->ReleaseStatus(status); /* it does not fit into nothing; `wanted` says what it takes */
  if (!wanted) return NULL;
  if ((*text = calloc(wanted + 1, 1)) == NULL) return af_no_memory();
  return ort->ReadOpAttr(attribute, ORT_ATTRIBUTE_STRING, *text, wanted, &wanted);
}

static OrtStatus *number_of(const OrtNode *node, const char *name, int64_t otherwise, int64_t *number) {
  const OrtOpAttr *attribute = NULL;
  size_t wanted = 0;
  *number = otherwise;
  TRY(ort->Node_GetAttributeByName(node, name, &attribute));
  return attribute ? ort->ReadOpAttr(attribute, ORT_ATTRIBUTE_INT, number, sizeof *number, &wanted) : NULL;
}

OrtStatus *af_is_ours(const OrtNode *node, bool *ours) {
  const char *type, *domain;
  char *source;
  *ours = false;
  TRY(ort->Node_GetOperatorType(node, &type));
  TRY(ort->Node_GetDomain(node, &domain));
  if (strcmp(type, "EPContext") || strcmp(domain, "com.microsoft")) return NULL;
  OrtStatus *status = text_of(node, "source", &source);
  *ours = !status && source && !strcmp(source, AF_SOURCE);
  free(source);
  return status;
}

OrtStatus *af_nodes_of(const OrtGraph *graph, const OrtNode ***nodes, size_t *count) {
  TRY(ort->Graph_GetNumNodes(graph, count));
  if ((*nodes = calloc(*count + 1, sizeof **nodes)) == NULL) return af_no_memory();
  return ort->Graph_GetNodes(graph, *nodes, *count);
}

/* Where a payload is read from: an attribute of a node, or a file beside the model. */
typedef struct {
  const OrtOpAttr *attribute;
  const char *path;
} af_source;

/* Some versions of ONNX Runtime count the zero that they write behind a text: then its head says what it is. */
static size_t without_zero(const unsigned char *bytes, size_t size) {
  af_payload_head head = {0};
  if (size > sizeof head) memcpy(&head, bytes, sizeof head);
  return size && !bytes[size - 1] && head.weights_offset + head.weights_bytes == size - 1 ? size - 1 : size;
}

static int read_attribute(void *given, unsigned char *bytes, size_t *size, char *reason) {
  const af_source *source = given;
  size_t wanted = 0;
  OrtStatus *status = source->attribute ? ort->ReadOpAttr(source->attribute, ORT_ATTRIBUTE_STRING, bytes, bytes ? *size : 0, &wanted) : NULL;
  int failed = bytes && status;
  if (failed) snprintf(reason, REASON_BYTES, "%s", ort->GetErrorMessage(status));
  if (status) ort->ReleaseStatus(status); /* it does not fit into nothing; `wanted` says what it takes */
  *size = bytes ? without_zero(bytes, wanted) : wanted;
  return failed ? -1 : 0;
}

static int read_file(void *given, unsigned char *bytes, size_t *size, char *reason) {
  const af_source *source = given;
  struct stat about;
  FILE *file = fopen(source->path, "rbe");
  int there = file && !fstat(fileno(file), &about) && S_ISREG(about.st_mode);
  int whole = there && (bytes ? fread(bytes, 1, *size, file) == *size : 1);
  if (there && !bytes) *size = (size_t)about.st_size;
  if (file) fclose(file);
  if (!whole) snprintf(reason, REASON_BYTES, "the file %s of its code cannot be read: it belongs beside the model", source->path);
  return whole ? 0 : -1;
}

/* A file beside the model: its path, to be freed. Only a plain name, so that a model names no file of others. */
static OrtStatus *beside(const OrtGraph *graph, const char *name, const char *file, char **path) {
  const char *model = NULL;
  TRY(ort->Graph_GetModelPath(graph, &model));
  if (!*file || strchr(file, '/') || !strcmp(file, ".."))
    return af_status(ORT_INVALID_ARGUMENT, "autofuse: %s: ep_cache_context names %.200s, which is no file beside the model", name, file);
  if (!model || !*model)
    return af_status(ORT_INVALID_ARGUMENT, "autofuse: %s: its code is in the file %.200s beside the model: load the model by its path, not as bytes", name, file);
  const char *slash = strrchr(model, '/');
  int folder = slash ? (int)(slash - model) + 1 : 0;
  return asprintf(path, "%.*s%s", folder, model, file) < 0 ? (*path = NULL, af_no_memory()) : NULL;
}

static OrtStatus *check_trust(const char *trusted, const char *name, const char *notes) {
  const char *digest = notes + strlen(notes) - 2 * DIGEST_BYTES;
  if (!trusted || strstr(trusted, digest)) return NULL;
  return af_status(ORT_INVALID_ARGUMENT, "autofuse: %s: its code has the SHA-256 %s, which the option sha256 does not name", name, digest);
}

/* Reads the code that the node has. */
static OrtStatus *read_payload(const OrtGraph *graph, const OrtNode *node, af_node *made) {
  char *file = NULL, *path = NULL, reason[REASON_BYTES] = "";
  af_source source = {0};
  int64_t embedded;
  OrtStatus *status = number_of(node, "embed_mode", 1, &embedded);
  if (!status) status = ort->Node_GetAttributeByName(node, "ep_cache_context", &source.attribute);
  if (!status && !source.attribute) return NULL;
  if (!status && !embedded && !(status = text_of(node, "ep_cache_context", &file))) status = beside(graph, made->name, file ? file : "", &path);
  source.path = path;
  if (!status && !(made->payload = af_take_payload(made->digest, embedded ? read_attribute : read_file, &source, reason)))
    status = af_status(ORT_EP_FAIL, "autofuse: %s: %s", made->name, reason);
  free(file), free(path);
  return status;
}

static OrtStatus *find_payload(const char *trusted, const OrtGraph *graph, const OrtNode *node, af_node *made) {
  char *notes = NULL;
  OrtStatus *status = text_of(node, "notes", &notes);
  if (!status && !(notes && af_digest_of(notes, made->digest)))
    status = af_status(ORT_INVALID_ARGUMENT, "autofuse: %s: the model is damaged: it does not name the SHA-256 of its code", made->name);
  if (!status) status = check_trust(trusted, made->name, notes);
  if (!status) status = read_payload(graph, node, made);
  free(notes);
  return status;
}

typedef OrtStatus *(*af_count)(const OrtNode *node, size_t *count);
typedef OrtStatus *(*af_list)(const OrtNode *node, const OrtValueInfo **found, size_t count);

/* The place of `name` among the inputs or outputs of a node; -1 where there is none. */
static OrtStatus *place_of(const OrtNode *node, af_count how_many, af_list which, const char *name, int *place) {
  size_t count = 0;
  TRY(how_many(node, &count));
  const OrtValueInfo *infos[count + 1];
  TRY(which(node, infos, count));
  *place = -1;
  for (size_t i = 0; i < count && *place < 0; i++) {
    const char *found = NULL;
    if (infos[i]) TRY(ort->GetValueInfoName(infos[i], &found));
    if (found && !strcmp(found, name)) *place = (int)i;
  }
  return NULL;
}

/* The segment's values stand in the order of the model's node; ONNX Runtime's own node may leave outputs out, and have
   another order. */
static OrtStatus *find_places(const OrtNode *node, const OrtNode *fused, bool reads, size_t count, af_port *ports, const af_node *made) {
  af_count how_many = reads ? ort->Node_GetNumInputs : ort->Node_GetNumOutputs;
  af_list which = reads ? ort->Node_GetInputs : ort->Node_GetOutputs;
  const OrtValueInfo *infos[count + 1];
  TRY(which(node, infos, count));
  for (size_t i = 0; i < count; i++) {
    const char *name = NULL;
    if (!infos[i]) return af_status(ORT_INVALID_ARGUMENT, "autofuse: %s: the model is damaged: a value is missing", made->name);
    TRY(ort->GetValueInfoName(infos[i], &name));
    TRY(place_of(fused, how_many, which, name, &ports[i].place));
    if (reads && ports[i].place < 0) return af_status(ORT_INVALID_ARGUMENT, "autofuse: %s: ONNX Runtime does not hand on its input %s", made->name, name);
  }
  return NULL;
}

static OrtStatus *find_ports(const OrtNode *node, const OrtNode *fused, af_node *made) {
  size_t inputs, outputs;
  TRY(ort->Node_GetNumInputs(node, &inputs));
  TRY(ort->Node_GetNumOutputs(node, &outputs));
  if ((made->port = calloc(inputs + outputs + 1, sizeof *made->port)) == NULL) return af_no_memory();
  made->inputs = (int)inputs, made->outputs = (int)outputs;
  TRY(find_places(node, fused, true, inputs, made->port, made));
  return find_places(node, fused, false, outputs, made->port + inputs, made);
}

/* The segment that `partition_name` numbers: "segment3". */
static OrtStatus *segment_of(const OrtNode *node, af_node *made) {
  char *text = NULL, *end = NULL;
  OrtStatus *status = text_of(node, "partition_name", &text);
  const char *digits = text ? text + strcspn(text, "0123456789") : "";
  long number = strtol(digits, &end, 10);
  if (!status && (!*digits || *end || number < 0 || number > INT_MAX))
    status = af_status(ORT_INVALID_ARGUMENT, "autofuse: %s: the model is damaged: its code has no partition %.200s", made->name, text ? text : "without a name");
  made->segment = (int)number;
  free(text);
  return status;
}

static int nothing_to_read(void *source, unsigned char *bytes, size_t *size, char *reason) {
  (void)source, (void)bytes, (void)size;
  snprintf(reason, REASON_BYTES, "the model is damaged: no node of it has its code");
  return -1;
}

OrtStatus *af_bind(af_node *made) {
  char reason[REASON_BYTES] = "";
  if (!made->payload && !(made->payload = af_take_payload(made->digest, nothing_to_read, NULL, reason)))
    return af_status(ORT_EP_FAIL, "autofuse: %s: %s", made->name, reason);
  const af_segments *segments = made->payload->segments;
  if (made->segment >= segments->count)
    return af_status(ORT_INVALID_ARGUMENT, "autofuse: %s: the model is damaged: its code has no partition segment%d", made->name, made->segment);
  int inputs = 0, outputs = 0;
  while (segments->input(made->segment, inputs)) inputs++;
  while (segments->output(made->segment, outputs)) outputs++;
  if (inputs != made->inputs || outputs != made->outputs)
    return af_status(ORT_INVALID_ARGUMENT, "autofuse: %s: the model is damaged: it has %d inputs and %d outputs, its code %d and %d", made->name,
                  made->inputs, made->outputs, inputs, outputs);
  for (int i = 0; i < inputs + outputs; i++) {
    af_port *port = &made->port[i];
    port->io = i < inputs ? segments->input(made->segment, i) : segments->output(made->segment, i - inputs);
    port->type = af_type_number(port->io->type);
    if (made->payload->has_sizes) port->axis = segments->open_axes(made->segment, i, &port->axes);
    if (port->io->rank > MOST_RANK) return af_status(ORT_INVALID_ARGUMENT, "autofuse: %s: %s has too many axes", made->name, port->io->name);
  }
  while (made->payload->has_sizes && segments->open_size(made->segment, made->sizes)) made->sizes++;
  made->bound = true;
  return NULL;
}

static OrtStatus *prepare(const char *trusted, const OrtGraph *graph, const OrtNode *node, const OrtNode *fused, af_node *made) {
  char reason[REASON_BYTES];
  const char *name = NULL;
  TRY(ort->Node_GetName(node, &name));
  if ((made->name = strdup(name && *name ? name : "a segment")) == NULL) return af_no_memory();
  TRY(find_payload(trusted, graph, node, made));
  TRY(segment_of(node, made));
  TRY(find_ports(node, fused, made));
  if (!made->payload) made->payload = af_take_payload(made->digest, nothing_to_read, NULL, reason);
  return made->payload ? af_ready(made) : (af_prepare(made), NULL);
}

OrtStatus *af_make_node(const char *trusted, const OrtGraph *graph, const OrtNode *fused, OrtNodeComputeInfo **info) {
  const OrtNode **nodes = NULL;
  size_t count = 0;
  af_node *made = calloc(1, sizeof *made);
  if (!made) return af_no_memory();
  pthread_mutex_init(&made->lock, NULL);
  OrtStatus *status = af_nodes_of(graph, &nodes, &count);
  if (!status && count != 1) status = af_status(ORT_FAIL, "autofuse: ONNX Runtime made one of %zu nodes", count);
  if (!status) status = prepare(trusted, graph, nodes[0], fused, made);
  free(nodes);
  if (status) af_end_node(made);
  else *info = &made->info;
  return status;
}
