"""Sessions over a compiled library, or over a model that is compiled first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autofuse.api.models import compile as compile_model
from autofuse.backend.library.compiled import Library
from autofuse.backend.library.parted import PartedLibrary
from autofuse.backend.library.session import Provider
from autofuse.backend.library.session import Session as LibrarySession
from autofuse.errors import InputError
from autofuse.values.arguments import Constants, Shapes, StrPath
from autofuse.values.scratch import scratch_folder

MODEL_SUFFIX = ".onnx"
IN_MEMORY = f"model{MODEL_SUFFIX}"
"""The name of a model that is given as bytes."""


class Session(LibrarySession):
    """As over a library, see there; a model is compiled first, by what the database knows and without measuring.

    `path_or_bytes`: of a library, or of a model whose name ends in ".onnx"; bytes are a model. `shapes`,
    `constants`, `database`: of a model, see `autofuse.compile`. That takes seconds at each start: `autofuse compile`
    does it once.
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
        record_sizes: bool = False,
        shapes: Shapes | Sequence[Shapes] | None = None,
        constants: Constants | None = None,
        database: str | None = None,
    ) -> None:
        self._named: dict[str, Any] = {"shapes": shapes, "constants": constants, "database": database}
        self._content = path_or_bytes if isinstance(path_or_bytes, bytes) else None
        path = IN_MEMORY if isinstance(path_or_bytes, bytes) else path_or_bytes
        super().__init__(
            path, sess_options, providers, provider_options,
            threads=threads, pad=pad, trust=trust, record_sizes=record_sizes,
        )  # fmt: skip

    def _loaded(self, path: Path, threads: int | None, pad: bool, trust: Sequence[Path]) -> Library | PartedLibrary:
        if path.suffix.lower() != MODEL_SUFFIX:
            if any(one is not None for one in self._named.values()):
                raise InputError(f"{path}: shapes, constants and database are of an ONNX file, not of a library")
            return super()._loaded(path, threads, pad, trust)
        if trust:
            raise InputError("trust: a signature is of a library; what is compiled here has none")
        with scratch_folder() as folder:
            library = folder / "model.so"
            if self._content is not None:
                path = folder / IN_MEMORY
                path.write_bytes(self._content)
                self._content = None
            compile_model(path, library, threads=threads, **self._named)
            return super()._loaded(library, threads, pad, ())
