/* Runs a library once on ones: `gcc example.c $(autofuse cflags) -o example && ./example model.so` */
#include "autofuse.h"
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
  af_model *model = af_load(argc > 1 ? argv[1] : "model.so", 1);
  if (model == NULL) return fprintf(stderr, "%s\n", af_error()), 1;

  DLTensor inputs[16];
  int count = 0;
  for (const DLTensor *want; count < 16 && (want = af_input(model, count)) != NULL; count++) {
    if (want->dtype.code != kDLFloat || want->dtype.bits != 32) return fprintf(stderr, "float32 inputs only\n"), 1;
    size_t elements = 1;
    for (int axis = 0; axis < want->ndim; axis++) elements *= want->shape[axis];
    float *data = aligned_alloc(64, (elements * sizeof(float) + 63) / 64 * 64);
    for (size_t i = 0; i < elements; i++) data[i] = 1.0f;
    inputs[count] = *want;
    inputs[count].data = data;
  }
  if (af_run(model, inputs, count)) return fprintf(stderr, "%s\n", af_error()), 1;

  for (int i = 0; af_output(model, i) != NULL; i++) {
    const DLTensor *output = af_output(model, i);
    printf("%s: rank %d, first value %.9g\n", af_output_name(model, i), output->ndim, ((float *)output->data)[0]);
  }
  for (int i = 0; i < count; i++) free(inputs[i].data);
  af_free(model);
  return 0;
}
