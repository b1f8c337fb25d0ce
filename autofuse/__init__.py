"""Searches fusion plans of ONNX models by measuring them on this machine's CPU, and compiles the best through TVM.

The functions here are what the command line calls; each is imported when it is first used, so that
`import autofuse` stays cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = ["__version__"]

if TYPE_CHECKING:
    pass
