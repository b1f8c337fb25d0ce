/* Running a library that `autofuse compile` wrote, from C or C++. `autofuse cflags` prints what to compile with. */
#ifndef AUTOFUSE_H
#define AUTOFUSE_H

#include <dlpack/dlpack.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A loaded library. One thread uses it at a time; several threads load it several times. */
typedef struct af_model af_model;

/* Loads `path` for `threads` threads (0: those it was tuned for). NULL on failure: see af_error.
   Its code runs with your rights, and no signature is verified here: `autofuse library check FILE --trust KEY` does. */
af_model *af_load(const char *path, int threads);
void af_free(af_model *model);

/* The model's inputs (and outputs) with the shapes of its first program; NULL beyond the last. */
const DLTensor *af_input(const af_model *model, int index);
const char *af_input_name(const af_model *model, int index);
const char *af_output_name(const af_model *model, int index);

/* A size that the library leaves open (`autofuse compile --sizes`): its name, and from where to where it goes; inputs
   and outputs above have the shapes of the largest. 0, or -1 beyond the last, and of a library of fixed sizes at once. */
int af_open_size(const af_model *model, int index, const char **name, int64_t *low, int64_t *high);

/* The shape of an input where the open sizes are `sizes`, in their order: as many numbers as its rank. 0, or -1. */
int af_input_shape(const af_model *model, int index, const int64_t *sizes, int64_t *shape);

/* 1 for an input that a run extends in place (`--cache`), else 0. Its memory, aligned to 64 bytes, is that of the shape
   of af_input, in which rows lie; its shape in a run is that of af_input_shape, with the rows that the run adds. */
int af_is_cache(const af_model *model, int index);

/* Runs the program made for the shapes of `inputs` (in the model's order; compact, on the CPU; read in place when
   aligned to 64 bytes), of any open size; outputs have the shapes of the call. 0 on success, -1 on failure: see af_error. */
int af_run(af_model *model, const DLTensor *inputs, int count);

/* An output of the last run; its memory is the model's, until the next run. NULL beyond the last. */
const DLTensor *af_output(const af_model *model, int index);

/* Why the last call of this thread failed. */
const char *af_error(void);

#ifdef __cplusplus
}
#endif

#endif
