"""The C interface of libraries with an open size: right at each, refused outside of the range; caches of the caller."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from typer.testing import CliRunner

from autofuse import api
from autofuse.cli.main import app
from tests.backend.forging import forged
from tests.compiler.open_sizes.decoders import Decoder, step_inputs, written
from tests.compiler.open_sizes.detectors import SCORE_RANGES, SCORE_SHAPES, SCORES, WEIGHTS
from tests.compiler.open_sizes.images import built_images, images_at
from tests.compiler.open_sizes.models import (
    PERCEPTRON,
    PERCEPTRON_WEIGHTS,
    TOLERANCE,
    Array,
    built,
    built_over,
    inputs_at,
    inputs_of,
    write,
)
from tests.compiler.open_sizes.sequences import MERGED, MERGED_WEIGHTS
from tests.compiler.open_sizes.tokens import Form
from tests.compiler.open_sizes.tokens import written as tokens

DRIVER = r"""
#include "autofuse.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t bytes_of(const DLTensor *tensor) {
  size_t bytes = tensor->dtype.bits / 8;
  for (int axis = 0; axis < tensor->ndim; axis++) bytes *= tensor->shape[axis];
  return bytes;
}

/* driver LIBRARY FOLDER SIZE...: reads SIZE.INDEX.in, writes SIZE.INDEX.out; a cache stays from size to size. Two
   sizes are one such as 3x7. */
int main(int argc, char **argv) {
  af_model *model = af_load(argv[1], 1);
  if (model == NULL) return fprintf(stderr, "%s\n", af_error()), 1;
  const char *name;
  int64_t low, high;
  for (int i = 0; !af_open_size(model, i, &name, &low, &high); i++) printf("%s %d %d\n", name, (int)low, (int)high);
  void *memory[16] = {0};
  for (int i = 0; af_input(model, i); i++) {
    size_t bytes = (bytes_of(af_input(model, i)) * 2 + 63) / 64 * 64;
    memory[i] = aligned_alloc(64, bytes);
    memset(memory[i], 0, bytes);
  }
  for (int run = 3; run < argc; run++) {
    DLTensor inputs[16];
    int64_t sizes[2] = {atoi(argv[run]), 0}, shapes[16][16];
    if (strchr(argv[run], 'x')) sizes[1] = atoi(strchr(argv[run], 'x') + 1);
    int count = 0;
    for (; af_input(model, count); count++) {
      inputs[count] = *af_input(model, count);
      if (af_input_shape(model, count, sizes, shapes[count])) return 1;
      inputs[count].shape = shapes[count];
      inputs[count].data = memory[count];
      if (af_is_cache(model, count)) continue;
      char path[4096];
      snprintf(path, sizeof path, "%s/%s.%d.in", argv[2], argv[run], count);
      FILE *file = fopen(path, "rb");
      size_t read = fread(memory[count], 1, bytes_of(&inputs[count]), file);
      fclose(file);
      if (read != bytes_of(&inputs[count])) return printf("%s has another size\n", path), 1;
    }
    if (af_run(model, inputs, count)) {
      printf("refused: %s\n", af_error());
      continue;
    }
    for (int i = 0; af_output(model, i); i++) {
      const DLTensor *output = af_output(model, i);
      char path[4096];
      snprintf(path, sizeof path, "%s/%s.%d.out", argv[2], argv[run], i);
      FILE *file = fopen(path, "wb");
      fwrite((char *)output->data + output->byte_offset, 1, bytes_of(output), file);
      fclose(file);
    }
  }
  for (int i = 0; i < 16; i++) free(memory[i]);
  af_free(model);
  return 0;
}
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("c")
    (folder / "driver.c").write_text(DRIVER)
    flags = shlex.split(CliRunner().invoke(app, ["cflags"]).stdout)
    command = ["gcc", "-Wall", "-Wextra", "-Werror", "-g", "-fsanitize=address,undefined", "driver.c", *flags]
    subprocess.run([*command, "-o", "driver"], cwd=folder, check=True)
    return folder / "driver"


def run(driver: Path, library: Path, folder: Path, feeds: Mapping[int | str, list[Array]]) -> list[str]:
    """What the program says; `feeds`: inputs by size, in the order of the calls."""
    for size, arrays in feeds.items():
        for place, array in enumerate(arrays):
            (folder / f"{size}.{place}.in").write_bytes(np.ascontiguousarray(array).tobytes())
    done = subprocess.run(
        [driver, library, folder, *map(str, feeds)],
        capture_output=True, text=True, check=False, timeout=600, env={"ASAN_OPTIONS": "detect_leaks=0"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("kind", ["rows", "tokens"])
def test_every_size_is_right_and_others_are_refused(driver: Path, tmp_path: Path, kind: str) -> None:
    if kind == "rows":
        name, low, model = "batch", 0, write(tmp_path / "rows.onnx", PERCEPTRON, PERCEPTRON_WEIGHTS)
    else:
        name, low, model = "tokens", 1, write(tmp_path / "tokens.onnx", *tokens(Form(masks=("padding",), picked=0)))
    built(model, name, low, 37)
    feeds = {size: list(inputs_at(model, name, size).values()) for size in (37, low, 2, 19, 36, 38)}
    said = run(driver, model.with_suffix(".so"), tmp_path, feeds)
    assert said[0] == f"{name} {low} 37"
    assert said[1:] == [
        f"refused: {name} is 38, the library takes {low} to 37: compile it with a wider range, --sizes {name}=LOW:HIGH"
    ]
    theirs = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    for size in (37, low, 2, 19, 36):
        for place, wanted in enumerate(theirs.run(None, inputs_at(model, name, size))):
            found = np.frombuffer((tmp_path / f"{size}.{place}.out").read_bytes(), wanted.dtype).reshape(wanted.shape)
            np.testing.assert_allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE, err_msg=f"size {size}")


@pytest.mark.long
def test_each_size_is_right_under_the_plan_of_its_part(driver: Path, tmp_path: Path) -> None:
    model = write(tmp_path / "rows.onnx", PERCEPTRON, PERCEPTRON_WEIGHTS)
    library = built(model, "batch", 1, 37, plan="none@5,default")
    sizes = (37, 5, 6, 1)
    assert run(
        driver,
        model.with_suffix(".so"),
        tmp_path,
        {size: [*inputs_at(model, "batch", size).values()] for size in sizes},
    ) == ["batch 1 37"]
    for size in sizes:
        for place, wanted in enumerate(library(inputs_at(model, "batch", size))):
            found = np.frombuffer((tmp_path / f"{size}.{place}.out").read_bytes(), wanted.dtype).reshape(wanted.shape)
            np.testing.assert_allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE, err_msg=f"size {size}")


def test_two_sizes_are_right_together(driver: Path, tmp_path: Path) -> None:
    """One output has both in one axis."""
    model = write(tmp_path / "merged.onnx", MERGED, MERGED_WEIGHTS)
    built_over(model, {"batch": (1, 5), "tokens": (1, 40)})
    points = {f"{batch}x{tokens}": {"batch": batch, "tokens": tokens} for batch, tokens in ((5, 40), (1, 1), (3, 17))}
    feeds = {name: list(inputs_of(model, point).values()) for name, point in points.items()}
    feeds["2x41"] = list(inputs_of(model, {"batch": 2, "tokens": 41}).values())
    said = run(driver, model.with_suffix(".so"), tmp_path, feeds)
    assert said[:2] == ["batch 1 5", "tokens 1 40"]
    assert [line.split(":")[1] for line in said[2:]] == [" tokens is 41, the library takes 1 to 40"]
    theirs = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    for name, point in points.items():
        for place, wanted in enumerate(theirs.run(None, inputs_of(model, point))):
            found = np.frombuffer((tmp_path / f"{name}.{place}.out").read_bytes(), wanted.dtype).reshape(wanted.shape)
            np.testing.assert_allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE, err_msg=name)


def test_an_extent_may_be_a_sum_of_products(driver: Path, tmp_path: Path) -> None:
    model = write(tmp_path / "scores.onnx", SCORES, WEIGHTS)
    built_images(model, SCORE_RANGES, threads=1)
    points = {f"{high}x{wide}": {"height": high, "width": wide} for high, wide in SCORE_SHAPES}
    run(driver, model.with_suffix(".so"), tmp_path, {n: [*images_at(model, one).values()] for n, one in points.items()})
    theirs = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    for name, point in points.items():
        (wanted,) = theirs.run(None, images_at(model, point))
        found = np.frombuffer((tmp_path / f"{name}.0.out").read_bytes(), wanted.dtype).reshape(wanted.shape)
        np.testing.assert_allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE, err_msg=name)


@pytest.mark.long
def test_a_table_whose_sums_do_not_fit_is_refused(driver: Path, tmp_path: Path) -> None:
    model = write(tmp_path / "scores.onnx", SCORES, WEIGHTS)
    built_images(model, SCORE_RANGES, threads=1)
    for line in (b"further 1 1 1 1 0 2 0 0", b"further 0 1 1 1 0 2 0 0", b"further 1 2 1 1 0 2 0 1", b"further 1 1 2"):

        def added(table: bytes, line: bytes = line) -> bytes:
            return table.replace(b"\nfurther", b"\n" + line + b"\nfurther", 1)

        library = forged(model.with_suffix(".so"), tmp_path / "forged.so", table=added)
        done = subprocess.run([driver, library, tmp_path], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "its table" in done.stderr


@pytest.mark.long
@pytest.mark.parametrize("batch", [1, 3])
def test_caches_lie_with_the_caller(driver: Path, tmp_path: Path, batch: int) -> None:
    form = Decoder(masks=("causal", "padding"), layers=1, batched=batch > 1)
    model = written(tmp_path / "decoder.onnx", form)
    sizes = {"batch": (1, 4), "past": (0, 12)} if batch > 1 else {"past": (0, 12)}
    built_over(model, sizes, caches={"present*": "past*"})
    session = api.Session(model.with_suffix(".so"))
    own = [one.name for one in session.get_inputs()]
    every = [spec.name for spec in session.metadata.inputs]
    none = np.zeros(0, np.uint8)
    feeds = {size: {name: step_inputs(model, size, batch=batch)[name] for name in own} for size in range(13)}
    points = {size: f"{batch}x{size}" if batch > 1 else str(size) for size in feeds}
    given = {points[size]: [feeds[size].get(name, none) for name in every] for size in feeds}
    assert run(driver, model.with_suffix(".so"), tmp_path, given) == [
        f"{name} {low} {high}" for name, (low, high) in sizes.items()
    ]
    for size in feeds:
        wanted = session.run(None, feeds[size])[0]
        found = np.frombuffer((tmp_path / f"{points[size]}.0.out").read_bytes(), wanted.dtype).reshape(wanted.shape)
        np.testing.assert_allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE, err_msg=f"past {size}")


def test_a_library_of_before_tables_had_sizes_is_read(tmp_path: Path) -> None:
    model = write(tmp_path / "rows.onnx", PERCEPTRON, PERCEPTRON_WEIGHTS)
    built(model, "batch", 1, 37)

    def without_sizes(text: bytes) -> bytes:
        return b"".join(line for line in text.splitlines(True) if not line.startswith((b"size ", b"open ")))

    older = forged(model.with_suffix(".so"), tmp_path / "older.so", table=without_sizes)
    assert api.Session(older).run(None, inputs_at(model, "batch", 5))[0].shape == (5, 40)


def test_a_table_whose_sizes_do_not_fit_is_refused(driver: Path, tmp_path: Path) -> None:
    model = write(tmp_path / "rows.onnx", PERCEPTRON, PERCEPTRON_WEIGHTS)
    built(model, "batch", 1, 37)
    for line, wrong in (
        (b"size 1 37 batch", b"size 38 37 batch"),
        (b"open 0 0 0 1 0", b"open 9 0 0 1 0"),
        (b"open 0 0 0 1 0", b"open 0 5 0 1 0"),
        (b"open 0 0 0 1 0", b"open 0 0 1 1 0"),
        (b"open 0 0 0 1 0", b"open 0 0 0 2 0"),
    ):
        library = forged(
            model.with_suffix(".so"), tmp_path / "f.so", table=lambda text, pair=(line, wrong): text.replace(*pair)
        )
        done = subprocess.run([driver, library, tmp_path], capture_output=True, text=True, check=False)
        assert done.returncode == 1 and "the library is damaged (its table" in done.stderr, done.stderr
