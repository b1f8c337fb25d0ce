"""A program in C runs a compiled model through ONNX Runtime's C interface: no Python, no TVM in its process."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.ort.compiled import compiled, image, network, plain

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

PROGRAM = r"""
/* Without ONNX Runtime's headers: each function at its slot in the table. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { void **(*get_api)(uint32_t); const char *(*version)(void); } base;
const base *OrtGetApiBase(void);
static void **ort;
#define CALL(slot, types, ...) check(((void *(*)types)ort[slot])(__VA_ARGS__))

static void check(void *status) {
  if (!status) return;
  fprintf(stderr, "%s\n", ((const char *(*)(void *))ort[2])(status));
  exit(1);
}

int main(int count, char **given) {
  static float input[3 * 24 * 24];
  void *environment, *options, *session, *memory, *value, *output = NULL, **devices, *ours = NULL;
  size_t number;
  int64_t shape[] = {1, 3, 24, 24};
  const char *inputs[] = {"x"}, *outputs[] = {"y"};
  FILE *file = fopen(given[3], "rb");
  if (count != 4 || !file || fread(input, sizeof input, 1, file) != 1) return 2;
  ort = OrtGetApiBase()->get_api(23);
  CALL(3, (int, const char *, void **), 3, "test", &environment);
  CALL(301, (void *, const char *, const char *), environment, "AutofuseExecutionProvider", given[1]);
  CALL(303, (void *, void ***, size_t *), environment, &devices, &number);
  for (size_t i = 0; i < number; i++)
    if (!strcmp(((const char *(*)(void *))ort[312])(devices[i]), "AutofuseExecutionProvider")) ours = devices[i];
  if (!ours) return 3;
  CALL(10, (void **), &options);
  CALL(24, (void *, int), options, 2);
  CALL(304, (void *, void *, void **, size_t, void *, void *, size_t), options, environment, &ours, 1, NULL, NULL, 0);
  CALL(7, (void *, const char *, void *, void **), environment, given[2], options, &session);
  CALL(69, (int, int, void **), 0, 0, &memory);
  CALL(49, (void *, void *, size_t, int64_t *, size_t, int, void **), memory, input, sizeof input, shape, 4, 1, &value);
  CALL(9, (void *, void *, const char **, void **, size_t, const char **, size_t, void **), session, NULL, inputs,
       &value, 1, outputs, 1, &output);
  float *made;
  CALL(51, (void *, float **), output, &made);
  for (int i = 0; i < 4; i++) printf("%.9g\n", made[i]);
  ((void (*)(void *))ort[96])(output), ((void (*)(void *))ort[96])(value), ((void (*)(void *))ort[94])(memory);
  ((void (*)(void *))ort[95])(session), ((void (*)(void *))ort[100])(options);
  CALL(302, (void *, const char *), environment, "AutofuseExecutionProvider");
  ((void (*)(void *))ort[92])(environment);
  FILE *maps = fopen("/proc/self/maps", "r");
  char line[4096];
  while (maps && fgets(line, sizeof line, maps))
    if (strstr(line, "memfd:autofuse") || strstr(line, "tvm") || strstr(line, "libpython")) return 4;
  return 0;
}
"""


def test_a_program_in_c_runs_a_compiled_model(tmp_path: Path) -> None:
    spec = importlib.util.find_spec("onnxruntime")
    assert spec is not None and spec.origin is not None
    library = next((Path(spec.origin).parent / "capi").glob("libonnxruntime.so.*"), None)
    if library is None:
        pytest.skip("this onnxruntime has no C library of its own")
    network(tmp_path / "net.onnx")
    compiled(tmp_path / "net.onnx", tmp_path / "tuned.onnx", threads=2)
    (tmp_path / "program.c").write_text(PROGRAM)
    (tmp_path / "x.bin").write_bytes(image()["x"].tobytes())
    for name in ("libonnxruntime.so", "libonnxruntime.so.1"):
        (tmp_path / name).symlink_to(library)
    command = ["cc", "program.c", "-L.", "-lonnxruntime", f"-Wl,-rpath,{tmp_path}", "-o", "program"]
    subprocess.run(command, cwd=tmp_path, check=True)
    given = ["libautofuse_ort.so", "tuned.onnx", "x.bin"]
    done = subprocess.run(
        [tmp_path / "program", *(tmp_path / name for name in given)],
        env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, (done.returncode, done.stderr)
    wanted = plain(tmp_path / "net.onnx").run(None, image())[0]
    np.testing.assert_allclose([float(line) for line in done.stdout.split()], wanted[0], rtol=1e-4)
