/* An execution provider for ONNX Runtime 1.23 and later: it runs the segments that autofuse compiled into a model.

   Such a model has EPContext nodes whose attribute `source` is "autofuse"; all other nodes are left to others. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "provider.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef AUTOFUSE_VERSION
#error "compile with -DAUTOFUSE_VERSION"
#endif

#define EXPORT __attribute__((visibility("default")))

static const char PROVIDER[] = "AutofuseExecutionProvider";
static const char TRUSTED[] = "ep.autofuseexecutionprovider.sha256"; /* as sessions spell the option */

const OrtApi *ort;
bool ort_newer;
static const OrtEpApi *ort_ep;

/* A provider of one session. `trusted`: digests of payloads, one of which it must be; NULL: any. */
typedef struct {
  OrtEp ep;
  char *trusted;
} af_ep;

OrtStatus *af_status(int code, const char *format, ...) {
  char text[REASON_BYTES + 512];
  va_list values;
  va_start(values, format);
  vsnprintf(text, sizeof text, format, values);
  va_end(values);
  return ort->CreateStatus(code, text);
}

OrtStatus *af_no_memory(void) { return ort->CreateStatus(ORT_FAIL, "autofuse: out of memory"); }

static OrtStatus *claim(OrtEp *self, const OrtGraph *graph, OrtSupport *support) {
  (void)self;
  const OrtNode **nodes = NULL;
  const OrtFusion options = {ORT_VERSION, false};
  size_t count = 0;
  OrtStatus *status = af_nodes_of(graph, &nodes, &count);
  for (size_t i = 0; !status && i < count; i++) {
    bool ours;
    if (!(status = af_is_ours(nodes[i], &ours)) && ours) status = ort_ep->EpGraphSupportInfo_AddNodesToFuse(support, &nodes[i], 1, &options);
  }
  free(nodes);
  return status;
}

static void release_nodes(OrtEp *self, OrtNodeComputeInfo **infos, size_t count) {
  (void)self;
  for (size_t i = 0; i < count; i++) {
    af_end_node((af_node *)infos[i]);
    infos[i] = NULL;
  }
}

static OrtStatus *compile(OrtEp *self, const OrtGraph **graphs, const OrtNode **fused, size_t count, OrtNodeComputeInfo **made, OrtNode **contexts) {
  (void)contexts;
  OrtStatus *status = NULL;
  for (size_t i = 0; i < count; i++) made[i] = NULL;
  for (size_t i = 0; !status && i < count; i++) status = af_make_node(((af_ep *)self)->trusted, graphs[i], fused[i], &made[i]);
  if (status) release_nodes(self, made, count);
  return status;
}

static const char *ep_name(const OrtEp *self) { return (void)self, PROVIDER; }
static const char *name(const OrtEpFactory *self) { return (void)self, PROVIDER; }
static const char *vendor(const OrtEpFactory *self) { return (void)self, AF_SOURCE; }
static const char *version(const OrtEpFactory *self) { return (void)self, AUTOFUSE_VERSION; }
static uint32_t vendor_id(const OrtEpFactory *self) { return (void)self, 0; }
static bool is_stream_aware(const OrtEpFactory *self) { return (void)self, false; }

static OrtStatus *supported(OrtEpFactory *self, const OrtHardwareDevice *const *devices, size_t count, OrtEpDevice **made, size_t most, size_t *made_count) {
  *made_count = 0;
  for (size_t i = 0; i < count && *made_count < most; i++)
    if (ort->HardwareDevice_Type(devices[i]) == ORT_DEVICE_CPU) {
      TRY(ort_ep->CreateEpDevice(self, devices[i], NULL, NULL, &made[*made_count]));
      ++*made_count;
    }
  return NULL;
}

static OrtStatus *read_trusted(const OrtSessionOptions *options, char **trusted) {
  int has = 0;
  size_t size = 0;
  TRY(ort->HasSessionConfigEntry(options, TRUSTED, &has));
  if (!has) return NULL;
  OrtStatus *status = ort->GetSessionConfigEntry(options, TRUSTED, NULL, &size);
  if (status) ort->ReleaseStatus(status);
  if ((*trusted = calloc(size + 1, 1)) == NULL) return af_no_memory();
  return size ? ort->GetSessionConfigEntry(options, TRUSTED, *trusted, &size) : NULL;
}

static void release_ep(OrtEpFactory *self, OrtEp *given) {
  (void)self;
  if (given) free(((af_ep *)given)->trusted);
  free(given);
}

static OrtStatus *create_ep(OrtEpFactory *self, const OrtHardwareDevice *const *devices, const void *const *metadata, size_t count, const OrtSessionOptions *options, const void *logger, OrtEp **made) {
  (void)devices, (void)metadata, (void)count, (void)logger;
  af_ep *ep = calloc(1, sizeof *ep);
  *made = NULL;
  if (!ep) return af_no_memory();
  ep->ep = (OrtEp){.version = ORT_VERSION, .GetName = ep_name, .GetCapability = claim, .Compile = compile, .ReleaseNodeComputeInfos = release_nodes};
  OrtStatus *status = read_trusted(options, &ep->trusted);
  if (status) release_ep(self, &ep->ep);
  else *made = &ep->ep;
  return status;
}

/* Memory is the CPU's: ONNX Runtime's own allocator is right, and nothing is to be transferred. */
static OrtStatus *create_allocator(OrtEpFactory *self, const void *memory, const void *options, void **made) {
  (void)self, (void)memory, (void)options;
  *made = NULL;
  return NULL;
}

static void release_allocator(OrtEpFactory *self, void *allocator) { (void)self, (void)allocator; }

static OrtStatus *create_transfer(OrtEpFactory *self, void **made) {
  (void)self;
  *made = NULL;
  return NULL;
}

static OrtStatus *create_stream(OrtEpFactory *self, const void *device, const void *options, void **made) {
  (void)self, (void)device, (void)options;
  *made = NULL;
  return NULL;
}

/* OrtCompiledModelCompatibility: 0, nothing to say. */
static OrtStatus *validate(OrtEpFactory *self, const OrtHardwareDevice *const *devices, size_t count, const char *said, int *compatibility) {
  (void)self, (void)devices, (void)count, (void)said;
  *compatibility = 0;
  return NULL;
}

static OrtEpFactory factory = {
    .version = ORT_VERSION,
    .GetName = name,
    .GetVendor = vendor,
    .GetSupportedDevices = supported,
    .CreateEp = create_ep,
    .ReleaseEp = release_ep,
    .GetVendorId = vendor_id,
    .GetVersion = version,
    .ValidateCompiledModelCompatibilityInfo = validate,
    .CreateAllocator = create_allocator,
    .ReleaseAllocator = release_allocator,
    .CreateDataTransfer = create_transfer,
    .IsStreamAware = is_stream_aware,
    .CreateSyncStreamForDevice = create_stream,
};

/* The version of the API: the minor number of "1.23.2". */
static int api_version(const OrtApiBase *base) {
  int major = 0, minor = 0;
  if (sscanf(base->GetVersionString(), "%d.%d", &major, &minor) != 2) return 0;
  return major > 1 ? ORT_VERSION_OF_SHAPES : minor;
}

EXPORT OrtStatus *CreateEpFactories(const char *registered, const OrtApiBase *base, const void *logger, OrtEpFactory **factories, size_t most, size_t *count) {
  (void)registered, (void)logger;
  *count = 0;
  const OrtApi *found = api_version(base) >= ORT_VERSION ? base->GetApi(ORT_VERSION) : NULL;
  if (!found) { /* a table of any version has its first functions */
    const OrtApi *old = base->GetApi(1);
    return old ? old->CreateStatus(ORT_FAIL, "autofuse: its execution provider needs ONNX Runtime 1.23 or later") : NULL;
  }
  ort = found;
  if (api_version(base) >= ORT_VERSION_OF_SHAPES) ort_newer = base->GetApi(ORT_VERSION_OF_SHAPES) != NULL;
  ort_ep = ort->GetEpApi();
  if (!most) return af_status(ORT_INVALID_ARGUMENT, "autofuse: there is no room for its factory");
  factories[0] = &factory;
  *count = 1;
  return NULL;
}

EXPORT OrtStatus *ReleaseEpFactory(OrtEpFactory *released) {
  (void)released;
  return NULL;
}
