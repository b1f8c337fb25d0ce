/* What autofuse.c asks of TVM's runtime, through tvm-ffi's C interface: errors as texts, calls, tensors over memory. */
#ifndef AUTOFUSE_RUNTIME_H
#define AUTOFUSE_RUNTIME_H

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tvm/ffi/c_api.h>

enum { MAX_RANK = 16, ALIGNMENT = 64 };

static _Thread_local char error_text[1024];

static int fail(const char *format, ...) {
  va_list values;
  va_start(values, format);
  vsnprintf(error_text, sizeof error_text, format, values);
  va_end(values);
  return -1;
}

static int fail_tvm(const char *what) {
  TVMFFIObjectHandle raised = NULL;
  TVMFFIErrorMoveFromRaised(&raised);
  if (raised == NULL) return fail("%s failed", what);
  const TVMFFIErrorCell *cell = (const TVMFFIErrorCell *)((char *)raised + sizeof(TVMFFIObject));
  fail("%s: %.*s", what, (int)cell->message.size, cell->message.data);
  TVMFFIObjectDecRef(raised);
  return -1;
}

/* values for calls ------------------------------------------------------------------------------------------- */

static TVMFFIAny of_int(int64_t value) {
  TVMFFIAny any = {.type_index = kTVMFFIInt, .v_int64 = value};
  return any;
}

static TVMFFIAny of_text(const char *text) {
  TVMFFIAny any = {.type_index = kTVMFFIRawStr, .v_c_str = text};
  return any;
}

static TVMFFIAny of_object(TVMFFIObjectHandle handle) {
  TVMFFIAny any = {.type_index = ((TVMFFIObject *)handle)->type_index, .v_obj = (TVMFFIObject *)handle};
  return any;
}

static int call(TVMFFIObjectHandle function, TVMFFIAny *values, int count, TVMFFIAny *result) {
  memset(result, 0, sizeof *result);
  return TVMFFIFunctionCall(function, values, count, result);
}

static TVMFFIObjectHandle global(const char *name) {
  TVMFFIByteArray text = {name, strlen(name)};
  TVMFFIObjectHandle found = NULL;
  if (TVMFFIFunctionGetGlobal(&text, &found) || found == NULL) {
    fail("TVM's runtime has no function %s: link with libtvm_runtime, see `autofuse cflags`", name);
    return NULL;
  }
  return found;
}

static int call_global(const char *name, TVMFFIAny *values, int count, TVMFFIAny *result) {
  TVMFFIObjectHandle function = global(name);
  if (function == NULL) return -1;
  int code = call(function, values, count, result);
  TVMFFIObjectDecRef(function);
  return code ? fail_tvm(name) : 0;
}

/* A function of a module; NULL in `found` where there is none of this name. */
static int find_function(TVMFFIObjectHandle module, const char *name, TVMFFIObjectHandle *found) {
  TVMFFIAny values[3] = {of_object(module), of_text(name), {.type_index = kTVMFFIBool, .v_int64 = 0}}, result;
  *found = NULL;
  if (call_global("ffi.ModuleGetFunction", values, 3, &result)) return -1;
  if (result.type_index == kTVMFFIFunction) *found = result.v_obj;
  return 0;
}

static TVMFFIObjectHandle function_of(TVMFFIObjectHandle module, const char *name) {
  TVMFFIObjectHandle found;
  if (find_function(module, name, &found) == 0 && found == NULL) fail("the library has no function %s", name);
  return found;
}

/* tensors ---------------------------------------------------------------------------------------------------- */

typedef struct {
  DLManagedTensor managed;
  int64_t shape[MAX_RANK];
  void *copy;
} af_view;

static void forget(DLManagedTensor *managed) {
  af_view *view = (af_view *)managed->manager_ctx;
  free(view->copy);
  free(view);
}

static int64_t bytes_of(const DLTensor *tensor) {
  int64_t count = (tensor->dtype.bits * tensor->dtype.lanes + 7) / 8;
  for (int axis = 0; axis < tensor->ndim; axis++)
    if (__builtin_mul_overflow(count, tensor->shape[axis], &count)) return INT64_MAX;
  return count;
}

static int is_compact(const DLTensor *tensor) {
  int64_t step = 1;
  if (tensor->strides == NULL) return 1;
  for (int axis = tensor->ndim - 1; axis >= 0; axis--) {
    if (tensor->shape[axis] != 1 && tensor->strides[axis] != step) return 0;
    step *= tensor->shape[axis];
  }
  return 1;
}

/* TVM's tensor over the memory of `source`, or over a copy when that is not aligned. */
static TVMFFIObjectHandle tensor_over(const DLTensor *source) {
  TVMFFIObjectHandle made = NULL;
  af_view *view = calloc(1, sizeof *view);
  if (view == NULL) return fail("out of memory"), NULL;
  char *data = (char *)source->data + source->byte_offset;
  if ((uintptr_t)data % ALIGNMENT) {
    int64_t size = bytes_of(source);
    if (posix_memalign(&view->copy, ALIGNMENT, size ? size : 1)) return free(view), fail("out of memory"), NULL;
    data = memcpy(view->copy, data, size);
  }
  memcpy(view->shape, source->shape, source->ndim * sizeof(int64_t));
  view->managed.dl_tensor = *source;
  view->managed.dl_tensor.data = data;
  view->managed.dl_tensor.byte_offset = 0;
  view->managed.dl_tensor.shape = view->shape;
  view->managed.dl_tensor.strides = NULL;
  view->managed.manager_ctx = view;
  view->managed.deleter = forget;
  if (TVMFFITensorFromDLPack(&view->managed, ALIGNMENT, 1, &made)) return forget(&view->managed), fail_tvm("tensor"), NULL;
  return made;
}

static void drop(TVMFFIObjectHandle handle) {
  if (handle) TVMFFIObjectDecRef(handle);
}

#endif
