/* See autofuse.h. Loads a library (inside/container.h) and drives TVM's virtual machine (inside/runtime.h). */
#define _GNU_SOURCE
#include "autofuse.h"
#include "inside/container.h"
#include "inside/runtime.h"

#include <sched.h>

enum { MAX_CORES = 64, ONE_CORE_A_THREAD = -2, POOLED_ALLOCATOR = 2 };

const char *af_error(void) { return error_text; }

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
  setenv("TVM_THREAD_POOL_SPIN_COUNT", "3000", 0); /* idle workers leave their cores after 2 ms, not 160 */
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

/* Kernels do not look at their arguments: a function of the library does, of all that its table says of a program.
   Programs with open sizes have none, and look on every run; neither have older libraries, whose kernels look. */
static int look_at(const af_model *model, const af_program *p, const char *path) {
  static _Alignas(ALIGNMENT) char nothing[ALIGNMENT];
  char name[sizeof p->entry + 8], what[512];
  TVMFFIObjectHandle look;
  TVMFFIAny result;
  int made = 0, code = 0;
  snprintf(name, sizeof name, "looks_%s", p->entry);
  if (find_function(model->machine, name, &look)) return -1;
  if (look == NULL) return 0;
  if (p->sizes) return drop(look), fail("%s: the library is damaged (its code has no open sizes)", path);
  snprintf(what, sizeof what, "%.400s: the library is damaged (its code is not what its table says)", path);
  TVMFFIAny *values = calloc(p->inputs + p->weights + 1, sizeof *values);
  if (values == NULL) code = fail("out of memory");
  for (; made < p->inputs && !code; made += !code) {
    DLTensor blank = p->input[made].tensor;
    blank.data = nothing; /* nobody reads it */
    TVMFFIObjectHandle tensor = tensor_over(&blank);
    if (tensor == NULL) code = -1;
    else values[made] = of_object(tensor);
  }
  for (int i = 0; i < p->weights && !code; i++) values[p->inputs + i] = of_object(model->weights[p->uses[i]]);
  if (!code) {
    code = call(look, values, p->inputs + p->weights, &result);
    if (code) fail_tvm(what);
    else if (result.type_index >= kTVMFFIStaticObjectBegin) drop(result.v_obj);
  }
  for (int i = 0; i < made; i++) drop(values[i].v_obj);
  free(values);
  drop(look);
  return code ? -1 : 0;
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
  for (int i = 0; i < model->program_count; i++) {
    af_program *p = &model->programs[i];
    if ((p->function = function_of(model->machine, p->entry)) == NULL || look_at(model, p, path)) return -1;
  }
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
    free_sizes(p);
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

int af_open_size(const af_model *model, int index, const char **name, int64_t *low, int64_t *high) {
  const af_program *p = &model->programs[0];
  if (index < 0 || index >= p->sizes) return -1;
  *name = p->size[index].name, *low = p->size[index].low, *high = p->size[index].high;
  return 0;
}

int af_input_shape(const af_model *model, int index, const int64_t *sizes, int64_t *shape) {
  const af_program *p = &model->programs[0];
  return index >= 0 && index < p->inputs ? shape_at(p, index, sizes, shape), 0 : fail("there is no input %d", index);
}

int af_is_cache(const af_model *model, int index) { return is_cache(&model->programs[0], index); }

/* Whether a program takes these inputs, at the sizes that it leaves open. */
static int accepts(const af_program *p, const DLTensor *inputs, int count, const int64_t *sizes) {
  if (count != p->inputs) return 0;
  for (int i = 0; i < count; i++) {
    const DLTensor *want = &p->input[i].tensor, *have = &inputs[i];
    int64_t shape[MAX_RANK];
    shape_at(p, i, sizes, shape);
    if (have->ndim != want->ndim || memcmp(have->shape, shape, want->ndim * sizeof(int64_t))) return 0;
    if (have->dtype.code != want->dtype.code || have->dtype.bits != want->dtype.bits) return 0;
    if (have->dtype.lanes != 1) return 0;
    if (have->device.device_type != kDLCPU || !is_compact(have)) return 0;
  }
  return 1;
}

/* The program is given the memory of a cache itself, never a copy. */
static int check_caches(const af_program *p, const DLTensor *inputs) {
  for (int i = 0; i < p->caches; i++) {
    const DLTensor *cache = &inputs[p->cache[i]];
    if (((uintptr_t)cache->data + cache->byte_offset) % ALIGNMENT)
      return fail("input %s: it is extended in place, so its memory must be aligned to %d bytes",
                  p->input[p->cache[i]].name, ALIGNMENT);
  }
  return 0;
}

/* The number of the first program that takes these inputs and answers them, or -1 with the reason. */
static int find_program(const af_model *model, const DLTensor *inputs, int count) {
  const af_program *first = &model->programs[0];
  int64_t sizes[first->sizes + 1];
  if (first->sizes && count == first->inputs && find_sizes(first, inputs, sizes)) return -1;
  for (int number = 0; number < model->program_count; number++) {
    const af_program *p = &model->programs[number];
    if (accepts(p, inputs, count, sizes) && answers(p, sizes)) return number;
  }
  return fail("the library has no program for these inputs (number, shapes, types, compact, on the CPU)");
}

int af_run(af_model *model, const DLTensor *inputs, int count) {
  int code = 0, made = 0, number = find_program(model, inputs, count);
  if (number < 0) return -1;
  af_program *p = &model->programs[number];
  if (check_caches(p, inputs)) return -1;
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
