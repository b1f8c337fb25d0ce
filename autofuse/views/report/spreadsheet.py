"""Tables as CSV for spreadsheets, which take a cell that begins with = + - or @ for a formula, and run it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

_FORMULA = re.compile(r"[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
"""Letters with which a formula begins; the wide forms too."""
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")


def cell(value: object) -> object:
    """`value` as a cell that is no formula: a text that begins like one gets an apostrophe; numbers stay numbers."""
    if isinstance(value, str) and _FORMULA.match(value) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return value


def csv_safe(frame: pd.DataFrame) -> pd.DataFrame:
    """A copy of the frame in which no text is a formula."""
    texts = [name for name in frame.columns if frame[name].dtype.kind not in "biufcmM"]
    return frame.assign(**{name: frame[name].map(cell) for name in texts})
