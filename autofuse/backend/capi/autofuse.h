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

/* Runs the program made for the shapes of `inputs` (in the model's order; compact, on the CPU; read in place when
   aligned to 64 bytes). 0 on success, -1 on failure: see af_error. */
int af_run(af_model *model, const DLTensor *inputs, int count);

/* An output of the last run; its memory is the model's, until the next run. NULL beyond the last. */
const DLTensor *af_output(const af_model *model, int index);

/* Why the last call of this thread failed. */
const char *af_error(void);

#ifdef __cplusplus
}
#endif

#endif
