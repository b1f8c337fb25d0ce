"""ONNX Runtime, in the one room that imports it: sessions, models bound to memory, runs in a process of its own.

`register` is for users: with it, ONNX Runtime itself runs what `autofuse compile --format ort` wrote.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["register", "unregister"]


def register(
    sess_options: Any = None, *, library: str | os.PathLike[str] | None = None, sha256: Sequence[str] = ()
) -> Any:
    """Session options with the provider that runs models of the format "ort": `InferenceSession(path, register())`.

    It is registered once a process. `sess_options`: of ONNX Runtime's, to which it is added (None: fresh ones).
    `library`: the provider's library, such as the one beside a model (None: one that is compiled now and kept in the
    user's cache, which takes a C compiler and a second, once). `sha256`: of the segments' code, one of which it must
    have, as `autofuse compile` shows them (none: any model, and its code runs). DeviceError when ONNX Runtime is older
    than 1.23, or when there is no C compiler.
    """
    from autofuse.ort.provider.register import register as register_provider

    return register_provider(sess_options, None if library is None else Path(library), sha256)


def unregister() -> None:
    """Take the provider out of ONNX Runtime; sessions that use it must have ended."""
    from autofuse.ort.provider.register import unregister as unregister_provider

    unregister_provider()
