/* Runs @NAME@ once, on inputs of zeros. In the package's folder:
   `cc share/@NAME@/example.c -Iinclude lib/@FILE@ @LINK@ -o example && ./example` */
#include "@NAME@.h"
#include <stdio.h>
#include <stdlib.h>

static int failed(const char *what) { return fprintf(stderr, "%s: %s\n", what, @NAME@_error()), 1; }

int main(void) {
  @NAME@_session *session;
  if (@NAME@_create(&session, 0, 0)) return failed("create");
  const @NAME@_tensor *tensor;
  void *inputs[@INPUTS@], *outputs[@OUTPUTS@];
  for (int i = 0; (tensor = @NAME@_input(0, i)) != NULL; i++)
    if ((inputs[i] = calloc(1, tensor->bytes + 1)) == NULL) return 1;
  for (int i = 0; (tensor = @NAME@_output(0, i)) != NULL; i++)
    if ((outputs[i] = calloc(1, tensor->bytes + 1)) == NULL) return 1;
@SIZES@
  if (@NAME@_run(session, (const void *const *)inputs, outputs)) return failed("run");
  for (int i = 0; (tensor = @OUTPUT@) != NULL; i++) {
    printf("%s: %s, %zu bytes", tensor->name, tensor->type, tensor->bytes);
    for (size_t byte = 0; byte < 4 && byte < tensor->bytes; byte++) printf(" %02x", ((unsigned char *)outputs[i])[byte]);
    printf("\n");
  }

  for (int i = 0; @NAME@_input(0, i) != NULL; i++) free(inputs[i]);
  for (int i = 0; @NAME@_output(0, i) != NULL; i++) free(outputs[i]);
  @NAME@_destroy(session);
  return 0;
}
