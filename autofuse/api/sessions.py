"""Sessions over a compiled library, or over a model that is compiled first."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autofuse.api.models import compile as compile_model
from autofuse.backend.library.session import Provider, wished_threads
from autofuse.backend.library.session import Session as LibrarySession
from autofuse.errors import InputError
from autofuse.values.arguments import Shapes, StrPath
from autofuse.values.scratch import scratch_folder

MODEL_SUFFIX = ".onnx"


class Session(LibrarySession):
    """As over a library, see there; a model is compiled first, by what the database knows and without measuring.

    `path_or_bytes`: of a library, or of a model whose name ends in ".onnx"; bytes are a model. `shapes`, `database`:
    of a model, see `autofuse.compile`. That takes seconds at each start: `autofuse compile` does it once.
    """

    def __init__(
        self,
        path_or_bytes: StrPath | bytes,
        sess_options: Any = None,
        providers: Sequence[Provider] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        *,
        threads: int | None = None,
        pad: bool = False,
        trust: Sequence[StrPath] = (),
        shapes: Shapes | Sequence[Shapes] | None = None,
        database: str | None = None,
    ) -> None:
        threads = threads or wished_threads(sess_options)
        given = (sess_options, providers, provider_options)
        if not isinstance(path_or_bytes, bytes) and Path(path_or_bytes).suffix.lower() != MODEL_SUFFIX:
            if shapes is not None or database is not None:
                raise InputError(
                    f"{os.fspath(path_or_bytes)}: shapes and database are of an ONNX file, not of a library"
                )
            super().__init__(path_or_bytes, *given, threads=threads, pad=pad, trust=trust)
            return
        if trust:
            raise InputError("trust: a signature is of a library; what is compiled here has none")
        with scratch_folder() as folder:
            model = _file_of(path_or_bytes, folder)
            library = folder / "model.so"
            compile_model(model, library, database=database, threads=threads, shapes=shapes)
            super().__init__(library, *given, threads=threads, pad=pad)


def _file_of(path_or_bytes: StrPath | bytes, folder: Path) -> Path:
    if not isinstance(path_or_bytes, bytes):
        return Path(path_or_bytes)
    model = folder / f"model{MODEL_SUFFIX}"
    model.write_bytes(path_or_bytes)
    return model
