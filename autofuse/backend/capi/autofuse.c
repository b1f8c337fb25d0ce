/* See autofuse.h. Drives TVM's virtual machine through tvm-ffi's C interface; the container is described in
   autofuse/backend/container/container.py, its table in autofuse/backend/container/table.py. */
#define _GNU_SOURCE
#include "autofuse.h"
#include "check.h"

#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <tvm/ffi/c_api.h>

enum { MAX_RANK = 16, ALIGNMENT = 64, PAGE = 4096, MAX_CORES = 64 };
enum { SIGNATURE_BYTES = 32 + 64 + 8, DIGEST_BYTES = 32 };
enum { ONE_CORE_A_THREAD = -2, POOLED_ALLOCATOR = 2 };
static const int64_t TRAILER_BYTES = 8 + 4 * 8 + 4 * 32, MAX_TENSOR_BYTES = 1ll << 44;

typedef struct {
  DLTensor tensor;
  int64_t shape[MAX_RANK];
  char *name;
} af_spec;

typedef struct {
  char entry[64];
  int inputs, outputs, weights;
  af_spec *input, *output;
  int *uses;
  TVMFFIObjectHandle function;
} af_program;

struct af_model {
  char *file;
  size_t file_bytes;
  int64_t weights_start, weights_end, lines;
  int threads, weight_count, program_count, last, outputs_held;
  int programs_read;
  TVMFFIObjectHandle *weights;
  af_program *programs;
  TVMFFIObjectHandle module, machine, get_item, results;
  TVMFFIObjectHandle *outputs;
};

static _Thread_local char error_text[1024];

const char *af_error(void) { return error_text; }

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

static TVMFFIObjectHandle function_of(TVMFFIObjectHandle module, const char *name) {
  TVMFFIAny values[3] = {of_object(module), of_text(name), {.type_index = kTVMFFIBool, .v_int64 = 0}}, result;
  if (call_global("ffi.ModuleGetFunction", values, 3, &result)) return NULL;
  if (result.type_index != kTVMFFIFunction) {
    fail("the library has no function %s", name);
    return NULL;
  }
  return result.v_obj;
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

/* the table -------------------------------------------------------------------------------------------------- */

static int is_type(int code, int bits) {
  int whole = bits == 8 || bits == 16 || bits == 32 || bits == 64;
  if (code == kDLInt || code == kDLUInt) return whole;
  return code == kDLFloat ? whole && bits > 8 : code == kDLBool && bits == 8;
}

static int read_type(const char *text, af_spec *spec, int *used) {
  int code, bits, rank, here, place = 0;
  if (sscanf(text, "%d %d %d%n", &code, &bits, &rank, &place) != 3 || rank < 0 || rank > MAX_RANK ||
      !is_type(code, bits))
    return -1;
  spec->tensor = (DLTensor){.device = {kDLCPU, 0}, .ndim = rank, .dtype = {(uint8_t)code, (uint8_t)bits, 1}};
  spec->tensor.shape = spec->shape;
  for (int axis = 0; axis < rank; axis++) {
    long long size;
    if (sscanf(text + place, "%lld%n", &size, &here) != 1 || size < 0) return -1;
    spec->shape[axis] = size;
    place += here;
  }
  *used = place;
  return bytes_of(&spec->tensor) > MAX_TENSOR_BYTES ? -1 : 0;
}

static int read_weight(af_model *model, int index, const char *text) {
  af_spec spec;
  int used;
  long long offset;
  if (read_type(text, &spec, &used) || sscanf(text + used, "%lld", &offset) != 1) return -1;
  if (offset < model->weights_start || offset > model->weights_end - bytes_of(&spec.tensor)) return -1;
  spec.tensor.data = model->file + offset;
  model->weights[index] = tensor_over(&spec.tensor);
  return model->weights[index] == NULL ? -1 : 0;
}

static int read_spec(const char *text, af_spec *spec) {
  int used;
  if (read_type(text, spec, &used)) return -1;
  spec->name = strdup(text + used + (text[used] == ' '));
  return spec->name == NULL ? -1 : 0;
}

/* Whether the lines of the last program that was begun are all there. */
static int is_whole(const af_model *model, const int *seen) {
  if (!model->programs_read) return 1;
  const af_program *p = &model->programs[model->programs_read - 1];
  return seen[1] == p->inputs && seen[2] == p->outputs && seen[3] == p->weights;
}

static int begin_program(af_model *model, const char *text) {
  if (model->programs_read >= model->program_count) return -1;
  af_program *p = &model->programs[model->programs_read++];
  if (sscanf(text, "%63s %d %d %d", p->entry, &p->inputs, &p->outputs, &p->weights) != 4) return -1;
  if (p->inputs < 0 || p->outputs < 0 || p->weights < 0) return -1;
  model->lines -= (int64_t)p->inputs + p->outputs + p->weights; /* each has a line of its own */
  if (model->lines < 0) return p->inputs = p->outputs = p->weights = 0, -1;
  if (p->inputs != model->programs->inputs || p->outputs != model->programs->outputs) return -1;
  p->input = calloc(p->inputs + 1, sizeof *p->input);
  p->output = calloc(p->outputs + 1, sizeof *p->output);
  p->uses = calloc(p->weights + 1, sizeof *p->uses);
  for (int i = 0; i < p->inputs; i++) p->input[i].tensor.shape = p->input[i].shape;
  return p->input && p->output && p->uses ? 0 : -1;
}

static int has_feature(const char *flags, const char *wanted) {
  char want[64] = " ", have[64];
  size_t length = 1;
  for (const char *c = wanted; *c && length < sizeof want - 2; c++)
    if (*c != '_' && *c != '.') want[length++] = *c;
  want[length] = 0;
  while (*flags) {
    size_t size = 0;
    have[size++] = ' ';
    for (; *flags && *flags != ' ' && *flags != '\n'; flags++)
      if (*flags != '_' && size < sizeof have - 1) have[size++] = *flags;
    have[size] = 0;
    const char *plain = strcmp(have, " bmi1") ? have : " bmi";
    if (!strcmp(plain, " asimd")) plain = " neon";
    if (!strcmp(plain, " asimdhp")) plain = " fullfp16";
    if (!strcmp(plain, " asimddp")) plain = " dotprod";
    if (!strcmp(plain, want)) return 1;
    if (*flags) flags++;
  }
  return 0;
}

static int check_feature(const char *name) {
  static _Thread_local char flags[16384];
  FILE *info = flags[0] ? NULL : fopen("/proc/cpuinfo", "r");
  if (info) {
    while (fgets(flags, sizeof flags, info))
      if (!strncmp(flags, "flags", 5) || !strncmp(flags, "Features", 8)) break;
    fclose(info);
  }
  if (has_feature(flags, name)) return 0;
  return fail("this machine's CPU lacks %s: compile the model on this machine or for its device profile", name);
}

/* One line of the table; the counts of what came before say where it belongs. */
static int read_line(af_model *model, const char *word, const char *rest, int *seen) {
  af_program *p = model->programs_read ? &model->programs[model->programs_read - 1] : NULL;
  if (!strcmp(word, "feature")) return check_feature(rest);
  if (!strcmp(word, "threads")) return sscanf(rest, "%d", &model->threads) == 1 ? 0 : -1;
  if (!strcmp(word, "weights")) {
    if (model->weights) return -1;
    if (sscanf(rest, "%d", &model->weight_count) != 1 || model->weight_count < 0 || model->weight_count > model->lines)
      return model->weight_count = 0, -1;
    return (model->weights = calloc(model->weight_count + 1, sizeof *model->weights)) ? 0 : -1;
  }
  if (!strcmp(word, "weight")) return seen[0] < model->weight_count ? read_weight(model, seen[0]++, rest) : -1;
  if (!strcmp(word, "programs")) {
    if (model->programs) return -1;
    if (sscanf(rest, "%d", &model->program_count) != 1 || model->program_count < 1 || model->program_count > model->lines)
      return model->program_count = 0, -1;
    return (model->programs = calloc(model->program_count, sizeof *model->programs)) ? 0 : -1;
  }
  if (!strcmp(word, "program")) {
    if (!is_whole(model, seen)) return -1;
    return seen[1] = seen[2] = seen[3] = 0, begin_program(model, rest);
  }
  if (!strcmp(word, "input")) return p && seen[1] < p->inputs ? read_spec(rest, &p->input[seen[1]++]) : -1;
  if (!strcmp(word, "output")) return p && seen[2] < p->outputs ? read_spec(rest, &p->output[seen[2]++]) : -1;
  if (!strcmp(word, "uses")) {
    int position;
    if (!p || seen[3] >= p->weights || sscanf(rest, "%d", &position) != 1) return -1;
    if (position < 0 || position >= model->weight_count) return -1;
    return p->uses[seen[3]++] = position, 0;
  }
  return 0;
}

static int read_table(af_model *model, const char *path, char *text) {
  int seen[4] = {0, 0, 0, 0}, version = 0;
  char word[32], *rest = NULL;
  for (const char *c = text; *c; c++) model->lines += *c == '\n';
  for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
    int used = 0;
    if (sscanf(line, "%31s %n", word, &used) < 1) continue;
    if (!strcmp(word, "autofuse") && sscanf(line + used, "%d", &version) == 1 && version == 2)
      return fail("%s: ONNX Runtime runs a part of this model, so only Python loads it", path);
    if (!strcmp(word, "autofuse") && (sscanf(line + used, "%d", &version) != 1 || version != 1))
      return fail("%s: made for another version of autofuse.c: compile the model again", path);
    error_text[0] = 0;
    if (read_line(model, word, line + used, seen))
      return error_text[0] ? -1 : fail("%s: the library is damaged (its table: %.60s)", path, line);
  }
  int whole = is_whole(model, seen) && seen[0] == model->weight_count && model->programs_read == model->program_count;
  if (version && model->program_count && whole) return 0;
  return fail("%s: the library is damaged (its table is incomplete)", path);
}

static int64_t number_at(const char *bytes) {
  uint64_t value;
  memcpy(&value, bytes, sizeof value);
  return (int64_t)value;
}

/* The parts of the file, in this order: ELF image, weights, JSON, table; their digests stand in the trailer. */
static int read_parts(af_model *model, const char *path, int64_t end) {
  const char *trailer = model->file + end;
  int64_t size[4], start[4];
  for (int i = 0; i < 4; i++) {
    size[i] = number_at(trailer + 8 + 8 * i);
    if (size[i] < 0 || size[i] > end) return fail("%s: not a library that autofuse wrote, or cut off", path);
    start[i] = i == 0 ? 0 : i == 1 ? (size[0] + PAGE - 1) / PAGE * PAGE : start[i - 1] + size[i - 1];
  }
  if (memcmp(trailer, "AUTOFUS2", 8) || start[3] + size[3] != end)
    return fail("%s: not a library that this version of autofuse wrote, or cut off", path);
  for (int i = 0; i < 4; i++)
    if (!sha_is(model->file + start[i], size[i], trailer + 8 + 4 * 8 + DIGEST_BYTES * i))
      return fail("%s: the library is damaged (it does not match its checksum)", path);
  const char *problem = elf_problem(model->file, size[0]);
  if (problem) return fail("%s: the library is damaged (its code: %s)", path, problem);
  model->weights_start = start[1];
  model->weights_end = start[1] + size[1];
  char *text = strndup(model->file + start[3], size[3]);
  int code = text ? read_table(model, path, text) : fail("out of memory");
  free(text);
  return code;
}

static int read_container(af_model *model, const char *path) {
  struct stat status;
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0 || fstat(file, &status)) return (void)(file >= 0 && close(file)), fail("%s: cannot be read", path);
  if (!S_ISREG(status.st_mode) || status.st_size <= TRAILER_BYTES)
    return close(file), fail("%s: not a library that autofuse wrote, or cut off", path);
  model->file_bytes = status.st_size;
  model->file = mmap(NULL, model->file_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
  close(file);
  if (model->file == MAP_FAILED) return model->file = NULL, fail("%s: cannot be mapped", path);
  int64_t end = status.st_size - TRAILER_BYTES;
  if (end > SIGNATURE_BYTES && !memcmp(model->file + status.st_size - 8, "AFSIGNED", 8)) end -= SIGNATURE_BYTES;
  return read_parts(model, path, end);
}

/* loading and running ---------------------------------------------------------------------------------------- */

static int start_threads(int threads) {
  cpu_set_t before;
  TVMFFIAny cores[MAX_CORES], values[3] = {of_int(ONE_CORE_A_THREAD), of_int(threads)}, result;
  char names[MAX_CORES][16];
  int count = 0, code;
  CPU_ZERO(&before);
  if (sched_getaffinity(0, sizeof before, &before)) return fail("the CPUs of this process are not known");
  for (int cpu = 0; cpu < CPU_SETSIZE && count < MAX_CORES; cpu++) {
    if (!CPU_ISSET(cpu, &before)) continue;
    snprintf(names[count], sizeof names[count], "%d", cpu);
    cores[count] = of_text(names[count]);
    count++;
  }
  if (threads < 1 || threads > count) return fail("threads: got %d, this process may use 1 to %d", threads, count);
  if (call_global("ffi.Array", cores, threads > 1 ? count : 1, &result)) return -1;
  values[2] = of_object(result.v_obj);
  code = call_global("runtime.config_threadpool", values, 3, &result);
  TVMFFIObjectDecRef(values[2].v_obj);
  sched_setaffinity(0, sizeof before, &before); /* TVM moved the caller too */
  return code;
}

/* The dynamic linker looks for a bare name on its search path only, and not in the working folder. */
static int load_module(af_model *model, const char *path) {
  char *local = NULL;
  if (strchr(path, '/') == NULL) {
    if ((local = malloc(strlen(path) + 3)) == NULL) return fail("out of memory");
    strcat(strcpy(local, "./"), path);
  }
  TVMFFIAny name = of_text(local ? local : path), result;
  int code = call_global("ffi.ModuleLoadFromFile", &name, 1, &result);
  free(local);
  if (code == 0) model->module = result.v_obj;
  return code;
}

static int start_machine(af_model *model, const char *path) {
  TVMFFIAny nothing, result;
  if (load_module(model, path)) return -1;
  TVMFFIObjectHandle load = function_of(model->module, "vm_load_executable");
  if (load == NULL) return -1;
  int code = call(load, NULL, 0, &result);
  TVMFFIObjectDecRef(load);
  if (code) return fail_tvm("vm_load_executable");
  model->machine = result.v_obj;
  TVMFFIObjectHandle start = function_of(model->machine, "vm_initialization");
  if (start == NULL) return -1;
  TVMFFIAny values[3] = {of_int(kDLCPU), of_int(0), of_int(POOLED_ALLOCATOR)};
  code = call(start, values, 3, &nothing);
  TVMFFIObjectDecRef(start);
  if (code) return fail_tvm("vm_initialization");
  for (int i = 0; i < model->program_count; i++)
    if ((model->programs[i].function = function_of(model->machine, model->programs[i].entry)) == NULL) return -1;
  return (model->get_item = global("ffi.ArrayGetItem")) ? 0 : -1;
}

af_model *af_load(const char *path, int threads) {
  af_model *model = calloc(1, sizeof *model);
  if (model == NULL) return fail("out of memory"), NULL;
  if (read_container(model, path) || start_machine(model, path) || start_threads(threads ? threads : model->threads)) {
    af_free(model);
    return NULL;
  }
  model->outputs = calloc(model->programs[0].outputs + 1, sizeof *model->outputs);
  return model;
}

static void drop(TVMFFIObjectHandle handle) {
  if (handle) TVMFFIObjectDecRef(handle);
}

static void drop_outputs(af_model *model) {
  for (int i = 0; i < model->outputs_held; i++) drop(model->outputs[i]);
  drop(model->results);
  model->outputs_held = 0;
  model->results = NULL;
}

void af_free(af_model *model) {
  if (model == NULL) return;
  drop_outputs(model);
  for (int i = 0; i < model->program_count; i++) {
    af_program *p = &model->programs[i];
    for (int k = 0; p->input && k < p->inputs; k++) free(p->input[k].name);
    for (int k = 0; p->output && k < p->outputs; k++) free(p->output[k].name);
    free(p->input);
    free(p->output);
    free(p->uses);
    drop(p->function);
  }
  for (int i = 0; model->weights && i < model->weight_count; i++) drop(model->weights[i]);
  drop(model->get_item);
  drop(model->machine);
  drop(model->module);
  free(model->weights);
  free(model->programs);
  free(model->outputs);
  if (model->file) munmap(model->file, model->file_bytes);
  free(model);
}

const DLTensor *af_input(const af_model *model, int index) {
  const af_program *p = &model->programs[0];
  return index >= 0 && index < p->inputs ? &p->input[index].tensor : NULL;
}

const char *af_input_name(const af_model *model, int index) {
  const af_program *p = &model->programs[0];
  return index >= 0 && index < p->inputs ? p->input[index].name : NULL;
}

const char *af_output_name(const af_model *model, int index) {
  const af_program *p = &model->programs[0];
  return index >= 0 && index < p->outputs ? p->output[index].name : NULL;
}

static int accepts(const af_program *p, const DLTensor *inputs, int count) {
  if (count != p->inputs) return 0;
  for (int i = 0; i < count; i++) {
    const DLTensor *want = &p->input[i].tensor, *have = &inputs[i];
    if (have->ndim != want->ndim || memcmp(have->shape, want->shape, want->ndim * sizeof(int64_t))) return 0;
    if (have->dtype.code != want->dtype.code || have->dtype.bits != want->dtype.bits || have->dtype.lanes != 1) return 0;
    if (have->device.device_type != kDLCPU || !is_compact(have)) return 0;
  }
  return 1;
}

int af_run(af_model *model, const DLTensor *inputs, int count) {
  int number = 0, code = 0, made = 0;
  while (number < model->program_count && !accepts(&model->programs[number], inputs, count)) number++;
  if (number == model->program_count)
    return fail("the library has no program for these inputs (number, shapes, types, compact, on the CPU)");
  af_program *p = &model->programs[number];
  TVMFFIAny *values = calloc(p->inputs + p->weights + 1, sizeof *values), result;
  if (values == NULL) return fail("out of memory");
  drop_outputs(model);
  for (; made < count && !code; made++) {
    TVMFFIObjectHandle tensor = tensor_over(&inputs[made]);
    if (tensor == NULL) code = -1;
    else values[made] = of_object(tensor);
  }
  made -= code ? 1 : 0;
  for (int i = 0; i < p->weights; i++) values[p->inputs + i] = of_object(model->weights[p->uses[i]]);
  if (!code && call(p->function, values, p->inputs + p->weights, &result)) code = fail_tvm("the model");
  for (int i = 0; i < made; i++) drop(values[i].v_obj);
  free(values);
  if (code) return code;
  model->results = result.v_obj;
  model->last = number;
  for (int i = 0; i < p->outputs; i++, model->outputs_held++) {
    TVMFFIAny item[2] = {of_object(model->results), of_int(i)};
    if (call(model->get_item, item, 2, &result)) return fail_tvm("an output");
    model->outputs[i] = result.v_obj;
  }
  return 0;
}

const DLTensor *af_output(const af_model *model, int index) {
  if (index < 0 || index >= model->outputs_held) return NULL;
  return (const DLTensor *)((char *)model->outputs[index] + sizeof(TVMFFIObject));
}
