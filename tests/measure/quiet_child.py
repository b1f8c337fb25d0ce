"""A child without TVM for tests of the pipes: `python -m quiet_child`."""

import mmap
import os
import sys
import time

from autofuse.measure.children.child import serve
from autofuse.measure.children.messages import encode

kept = []


def sleep(request):
    time.sleep(3600)


def stubborn(request):
    """Native code that holds the interpreter's lock."""
    return {"sum": sum(range(1 << 62))}


def grow(request):
    """Take memory that RLIMIT_DATA does not count."""
    while True:
        piece = mmap.mmap(-1, 1 << 24)
        for page in range(0, 1 << 24, 4096):
            piece[page] = 1
        kept.append(piece)


def twice(request):
    for descriptor in range(3, 10):
        try:
            os.write(descriptor, encode({"ok": True}) * 2)
        except OSError:
            continue
    return {}


def complain(request):
    sys.stderr.write('Traceback (most recent call last):\n  File "x.py", line 1\nthe sky is falling\n')
    sys.stderr.flush()
    os._exit(9)


if __name__ == "__main__":
    serve(
        {
            "echo": lambda request: {"echo": request},
            "sleep": sleep,
            "stubborn": stubborn,
            "grow": grow,
            "twice": twice,
            "complain": complain,
        }
    )
