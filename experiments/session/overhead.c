/* What af_run costs above the virtual machine's own call: pairs of microseconds a call, one line a block.
   `gcc -O2 overhead.c $(autofuse cflags, without autofuse.c) -o overhead && ./overhead model.so BLOCKS CALLS` */
#include "autofuse.c"
#include <time.h>

static double now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1e6 + now.tv_nsec * 1e-3;
}

static double machine_us(af_program *p, TVMFFIAny *values, int count, int calls) {
  TVMFFIAny result;
  double start = now_us();
  for (int i = 0; i < calls; i++) {
    if (call(p->function, values, count, &result)) exit(fail_tvm("the model"));
    drop(result.v_obj);
  }
  return (now_us() - start) / calls;
}

static double api_us(af_model *model, DLTensor *inputs, int count, int calls) {
  double start = now_us();
  for (int i = 0; i < calls; i++)
    if (af_run(model, inputs, count) || af_output(model, 0) == NULL) exit(1);
  return (now_us() - start) / calls;
}

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  af_model *model = af_load(argv[1], 1);
  if (model == NULL) return fprintf(stderr, "%s\n", af_error()), 1;
  af_program *p = &model->programs[0];
  DLTensor *inputs = calloc(p->inputs + 1, sizeof *inputs);
  TVMFFIAny *values = calloc(p->inputs + p->weights + 1, sizeof *values);
  for (int i = 0; i < p->inputs; i++) {
    inputs[i] = *af_input(model, i);
    int64_t size = (bytes_of(&inputs[i]) + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
    inputs[i].data = memset(aligned_alloc(ALIGNMENT, size), 0, size);
    TVMFFIObjectHandle tensor = tensor_over(&inputs[i]);
    if (tensor == NULL) return fprintf(stderr, "%s\n", af_error()), 1;
    values[i] = of_object(tensor);
  }
  for (int i = 0; i < p->weights; i++) values[p->inputs + i] = of_object(model->weights[p->uses[i]]);
  int blocks = atoi(argv[2]), calls = atoi(argv[3]);
  for (int block = 0; block <= blocks; block++) { /* the first warms up */
    double machine = 0, api = 0;
    if (block % 2) machine = machine_us(p, values, p->inputs + p->weights, calls);
    api = api_us(model, inputs, p->inputs, calls);
    if (block % 2 == 0) machine = machine_us(p, values, p->inputs + p->weights, calls);
    if (block) printf("%.4f %.4f\n", machine, api);
  }
  return 0;
}
