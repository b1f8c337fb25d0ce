"""What a free-standing library does when memory or threads are short."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import autofuse
from tests.conftest import OnnxBuilder

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")

FAILING = r"""
/* Each allocation and each start of a thread fails once, in turn: a code comes back, and all works afterwards. */
#define _GNU_SOURCE
#include "net.h"
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOTHING, BLOCKS, ZEROS, THREADS };
static int which = NOTHING, left = 0;
static int fails(int kind) { return which == kind && left-- == 0; }

extern void *__libc_calloc(size_t, size_t);
extern void *__libc_memalign(size_t, size_t);
void *calloc(size_t count, size_t size) { return fails(ZEROS) ? NULL : __libc_calloc(count, size); }
int posix_memalign(void **made, size_t step, size_t bytes) {
  return fails(BLOCKS) || (*made = __libc_memalign(step, bytes)) == NULL ? ENOMEM : 0;
}
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument) {
  int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
  *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
  return fails(THREADS) ? EAGAIN : real(thread, attributes, start, argument);
}

static char input[1 << 16], output[256], first[256];

static int go(void) {
  net_session *session;
  const void *inputs[] = {input + 4};
  void *outputs[] = {output + 4};
  memset(output, 0, sizeof output);
  int code = net_create(&session, 0, 3);
  if (code) return session == NULL ? code : -1;
  code = net_run(session, inputs, outputs);
  int kind = which;
  which = NOTHING;
  if (code && net_run(session, inputs, outputs)) code = -2; /* it works again */
  which = kind;
  net_destroy(session);
  return code;
}

static int every(int kind, int wanted) {
  for (int number = 0;; number++) {
    which = kind, left = number;
    int code = go();
    if (left >= 0) return code ? printf("code %d without a failure\n", code), -1 : number;
    if (code != wanted) return printf("kind %d number %d: code %d (%s)\n", kind, number, code, net_error()), -1;
    if (memcmp(output, first, sizeof first) && strstr(net_error(), "out of memory") == NULL && kind != THREADS)
      return printf("kind %d number %d: %s\n", kind, number, net_error()), -1;
  }
}

int main(void) {
  for (int i = 0; i < 3000; i++) ((float *)(input + 64))[i] = (float)(i % 7);
  if (go()) return 1;
  memcpy(first, output, sizeof first);
  int blocks = every(BLOCKS, net_NO_MEMORY), zeros = every(ZEROS, net_NO_MEMORY);
  int threads = every(THREADS, net_NO_THREAD);
  printf("%d %d %d\n", blocks, zeros, threads);
  which = NOTHING;
  return blocks < 5 || zeros < 4 || threads != 2 || go() || memcmp(output, first, sizeof first);
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library `net`, one of whose kernels has workspace."""
    folder = tmp_path_factory.mktemp("faults")
    net = OnnxBuilder()
    net.op("Relu", "a", net.conv_bn("stem", "x", (3, 16)))
    net.op("GlobalAveragePool", "pool", net.conv_bn("depth", "a", (16, 16), group=16))
    net.op("Flatten", "flat", "pool")
    model = net.save(
        folder / "net.onnx", {"x": (1, 3, 32, 32)}, [net.op("Softmax", "y", net.dense("fc", "flat", (16, 8)))]
    )
    autofuse.compile(model, folder / "libnet.so", database=str(folder / "p.db"), threads=2, format="c")
    return folder / "libnet.so"


def test_every_want_of_memory_or_threads_is_a_code(library: Path, tmp_path: Path) -> None:
    (tmp_path / "failing.c").write_text(FAILING)
    command = ["gcc", "-rdynamic", "-I", library.parent, "failing.c", library, "-pthread", "-ldl", "-o", "failing"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=600)
    path = {"LD_LIBRARY_PATH": str(library.parent)}
    done = subprocess.run([tmp_path / "failing"], env=path, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
