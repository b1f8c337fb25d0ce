"""The provider in Python's ONNX Runtime: registered once a process, and chosen for a session."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autofuse.errors import DeviceError, InputError
from autofuse.ort.provider.build import PROVIDER, kept_library, provider_library
from autofuse.ort.session import first_line

OLDEST = "1.23"
"""The oldest ONNX Runtime that takes execution providers from libraries."""
_LOCK = threading.Lock()


def register_image(options: Any, image: bytes) -> None:
    """Add the provider to session options; `image`: its library, for where none is registered yet; see `register`."""
    register(options, kept_library(image), ())


def register(options: Any, library: Path | None, sha256: Sequence[str]) -> Any:
    """See `autofuse.ort.register`."""
    import onnxruntime

    if not hasattr(onnxruntime, "register_execution_provider_library"):
        raise DeviceError(
            f"onnxruntime {onnxruntime.__version__} takes no execution providers: install {OLDEST} or later"
        )
    for one in sha256:
        if len(one) != 64 or set(one) - set("0123456789abcdef"):
            raise InputError(f"sha256: got {one!r}, allowed: 64 hexadecimal digits, as `autofuse compile` shows them")
    with _LOCK:
        devices = _devices() or _registered(provider_library() if library is None else library)
    made = onnxruntime.SessionOptions() if options is None else options
    made.add_provider_for_devices(devices[:1], {"sha256": ",".join(sha256)} if sha256 else {})
    return made


def unregister() -> None:
    """See `autofuse.ort.unregister`."""
    import onnxruntime

    with _LOCK:
        if _devices():
            onnxruntime.unregister_execution_provider_library(PROVIDER)


def _registered(library: Path) -> list[Any]:
    import onnxruntime

    try:
        onnxruntime.register_execution_provider_library(PROVIDER, str(library.absolute()))
    except Exception as error:  # onnxruntime's own exception classes share no base but Exception
        raise DeviceError(f"{library}: ONNX Runtime does not take the provider: {first_line(error)}") from error
    return _devices()


def _devices() -> list[Any]:
    import onnxruntime

    return [device for device in onnxruntime.get_ep_devices() if device.ep_name == PROVIDER]
