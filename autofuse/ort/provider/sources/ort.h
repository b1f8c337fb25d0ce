/* ONNX Runtime's C ABI as far as the provider uses it: tables of functions that only grow, each at its slot.

   The layout is that of API version 23, the first with execution providers in libraries; `newer` functions say their
   own version. Whatever a later ONNX Runtime adds stands behind. */
#ifndef AUTOFUSE_ORT_H
#define AUTOFUSE_ORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ORT_VERSION = 23, ORT_VERSION_OF_SHAPES = 24 };
enum { ORT_FAIL = 1, ORT_INVALID_ARGUMENT = 2, ORT_EP_FAIL = 11 };
enum { ORT_DEVICE_CPU = 0, ORT_ATTRIBUTE_INT = 1, ORT_ATTRIBUTE_STRING = 5 };

typedef struct OrtStatus OrtStatus;
typedef struct OrtGraph OrtGraph;
typedef struct OrtNode OrtNode;
typedef struct OrtOpAttr OrtOpAttr;
typedef struct OrtValue OrtValue;
typedef struct OrtValueInfo OrtValueInfo;
typedef struct OrtShapeInfo OrtShapeInfo;
typedef struct OrtKernelContext OrtKernelContext;
typedef struct OrtHardwareDevice OrtHardwareDevice;
typedef struct OrtEpDevice OrtEpDevice;
typedef struct OrtSupport OrtSupport;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtEpApi OrtEpApi;

#define SLOTS(from, to) void *skipped_##from[(to) - (from)]
#define AT(table, name, slot) _Static_assert(offsetof(table, name) == (slot) * sizeof(void *), #name)

typedef struct {
  OrtStatus *(*CreateStatus)(int code, const char *text);
  void *GetErrorCode;
  const char *(*GetErrorMessage)(const OrtStatus *status);
  SLOTS(3, 51);
  OrtStatus *(*GetTensorMutableData)(OrtValue *value, void **data);
  SLOTS(52, 60);
  OrtStatus *(*GetTensorElementType)(const OrtShapeInfo *info, int *type);
  OrtStatus *(*GetDimensionsCount)(const OrtShapeInfo *info, size_t *rank);
  OrtStatus *(*GetDimensions)(const OrtShapeInfo *info, int64_t *sizes, size_t rank);
  SLOTS(63, 65);
  OrtStatus *(*GetTensorTypeAndShape)(const OrtValue *value, OrtShapeInfo **info);
  SLOTS(66, 90);
  OrtStatus *(*KernelContext_GetInput)(const OrtKernelContext *context, size_t index, const OrtValue **value);
  OrtStatus *(*KernelContext_GetOutput)(OrtKernelContext *context, size_t index, const int64_t *sizes, size_t rank, OrtValue **value);
  void *ReleaseEnv;
  void (*ReleaseStatus)(OrtStatus *status);
  SLOTS(94, 99);
  void (*ReleaseTensorTypeAndShapeInfo)(OrtShapeInfo *info);
  SLOTS(100, 237);
  OrtStatus *(*HasSessionConfigEntry)(const OrtSessionOptions *options, const char *key, int *has);
  OrtStatus *(*GetSessionConfigEntry)(const OrtSessionOptions *options, const char *key, char *value, size_t *size);
  SLOTS(239, 272);
  OrtStatus *(*ReadOpAttr)(const OrtOpAttr *attribute, int type, void *data, size_t bytes, size_t *wanted);
  void *SetDeterministicCompute;
  OrtStatus *(*KernelContext_ParallelFor)(const OrtKernelContext *context, void (*work)(void *, size_t), size_t count, size_t batches, void *data);
  SLOTS(275, 289);
  OrtStatus *(*GetValueInfoName)(const OrtValueInfo *info, const char **name);
  SLOTS(290, 307);
  int (*HardwareDevice_Type)(const OrtHardwareDevice *device);
  SLOTS(308, 317);
  const OrtEpApi *(*GetEpApi)(void);
  SLOTS(318, 334);
  OrtStatus *(*Graph_GetModelPath)(const OrtGraph *graph, const char **path);
  SLOTS(335, 344);
  OrtStatus *(*Graph_GetNumNodes)(const OrtGraph *graph, size_t *count);
  OrtStatus *(*Graph_GetNodes)(const OrtGraph *graph, const OrtNode **nodes, size_t count);
  SLOTS(346, 349);
  OrtStatus *(*Node_GetName)(const OrtNode *node, const char **name);
  OrtStatus *(*Node_GetOperatorType)(const OrtNode *node, const char **type);
  OrtStatus *(*Node_GetDomain)(const OrtNode *node, const char **domain);
  void *Node_GetSinceVersion;
  OrtStatus *(*Node_GetNumInputs)(const OrtNode *node, size_t *count);
  OrtStatus *(*Node_GetInputs)(const OrtNode *node, const OrtValueInfo **inputs, size_t count);
  OrtStatus *(*Node_GetNumOutputs)(const OrtNode *node, size_t *count);
  OrtStatus *(*Node_GetOutputs)(const OrtNode *node, const OrtValueInfo **outputs, size_t count);
  SLOTS(357, 361);
  OrtStatus *(*Node_GetAttributeByName)(const OrtNode *node, const char *name, const OrtOpAttr **attribute);
  SLOTS(362, 414);
  OrtStatus *(*GetTensorElementTypeAndShapeDataReference)(const OrtValue *value, int *type, const int64_t **sizes, size_t *rank); /* newer: 24 */
} OrtApi;
AT(OrtApi, GetTensorMutableData, 51);
AT(OrtApi, GetTensorElementType, 60);
AT(OrtApi, GetTensorTypeAndShape, 65);
AT(OrtApi, KernelContext_GetInput, 90);
AT(OrtApi, ReleaseStatus, 93);
AT(OrtApi, ReleaseTensorTypeAndShapeInfo, 99);
AT(OrtApi, HasSessionConfigEntry, 237);
AT(OrtApi, ReadOpAttr, 272);
AT(OrtApi, KernelContext_ParallelFor, 274);
AT(OrtApi, GetValueInfoName, 289);
AT(OrtApi, HardwareDevice_Type, 307);
AT(OrtApi, GetEpApi, 317);
AT(OrtApi, Graph_GetModelPath, 334);
AT(OrtApi, Graph_GetNodes, 345);
AT(OrtApi, Node_GetOutputs, 356);
AT(OrtApi, Node_GetAttributeByName, 361);
AT(OrtApi, GetTensorElementTypeAndShapeDataReference, 414);

typedef struct {
  const OrtApi *(*GetApi)(uint32_t version);
  const char *(*GetVersionString)(void);
} OrtApiBase;

typedef struct {
  uint32_t version;
  bool drop_constant_initializers;
} OrtFusion;

typedef struct OrtNodeComputeInfo OrtNodeComputeInfo;
struct OrtNodeComputeInfo {
  uint32_t version;
  OrtStatus *(*CreateState)(OrtNodeComputeInfo *self, void *context, void **state);
  OrtStatus *(*Compute)(OrtNodeComputeInfo *self, void *state, OrtKernelContext *context);
  void (*ReleaseState)(OrtNodeComputeInfo *self, void *state);
};

typedef struct OrtEp OrtEp;
struct OrtEp {
  uint32_t version;
  const char *(*GetName)(const OrtEp *self);
  OrtStatus *(*GetCapability)(OrtEp *self, const OrtGraph *graph, OrtSupport *support);
  OrtStatus *(*Compile)(OrtEp *self, const OrtGraph **graphs, const OrtNode **fused, size_t count, OrtNodeComputeInfo **made, OrtNode **contexts);
  void (*ReleaseNodeComputeInfos)(OrtEp *self, OrtNodeComputeInfo **infos, size_t count);
  SLOTS(5, 64); /* whatever a later ONNX Runtime looks for is not there */
};

typedef struct OrtEpFactory OrtEpFactory;
struct OrtEpFactory {
  uint32_t version;
  const char *(*GetName)(const OrtEpFactory *self);
  const char *(*GetVendor)(const OrtEpFactory *self);
  OrtStatus *(*GetSupportedDevices)(OrtEpFactory *self, const OrtHardwareDevice *const *devices, size_t count, OrtEpDevice **made, size_t most, size_t *made_count);
  OrtStatus *(*CreateEp)(OrtEpFactory *self, const OrtHardwareDevice *const *devices, const void *const *metadata, size_t count, const OrtSessionOptions *options, const void *logger, OrtEp **made);
  void (*ReleaseEp)(OrtEpFactory *self, OrtEp *ep);
  uint32_t (*GetVendorId)(const OrtEpFactory *self);
  const char *(*GetVersion)(const OrtEpFactory *self);
  OrtStatus *(*ValidateCompiledModelCompatibilityInfo)(OrtEpFactory *self, const OrtHardwareDevice *const *devices, size_t count, const char *said, int *compatibility);
  OrtStatus *(*CreateAllocator)(OrtEpFactory *self, const void *memory, const void *options, void **made);
  void (*ReleaseAllocator)(OrtEpFactory *self, void *allocator);
  OrtStatus *(*CreateDataTransfer)(OrtEpFactory *self, void **made);
  bool (*IsStreamAware)(const OrtEpFactory *self);
  OrtStatus *(*CreateSyncStreamForDevice)(OrtEpFactory *self, const void *device, const void *options, void **made);
  SLOTS(14, 64);
};
AT(OrtEpFactory, CreateSyncStreamForDevice, 13);

struct OrtEpApi {
  OrtStatus *(*CreateEpDevice)(OrtEpFactory *factory, const OrtHardwareDevice *device, const void *metadata, const void *options, OrtEpDevice **made);
  void *ReleaseEpDevice;
  OrtStatus *(*EpGraphSupportInfo_AddNodesToFuse)(OrtSupport *support, const OrtNode *const *nodes, size_t count, const OrtFusion *options);
};

#endif
