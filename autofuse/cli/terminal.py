"""What reaches a terminal: text whose control characters are made visible, whoever it comes from.

Names of models, devices and kernels are read from files of others. An escape sequence in one of them would move the
cursor, change the title or hide what follows; so all that verbs print passes through here.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console, RenderableType
from rich.segment import Segment

SHOWN = "\ufffd"
"""Stands for a character that is not shown."""

_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Control characters but tab and newline (also those of eight bits), and what turns the direction of writing."""


def printable(text: str) -> str:
    """`text` with `SHOWN` in place of every control character but tab and newline."""
    return _HIDDEN.sub(SHOWN, text)


def out(text: str) -> None:
    """Write text to the output."""
    sys.stdout.write(printable(text))
    sys.stdout.flush()


class Screen(Console):
    """Rich's console, whose own sequences pass, and those of texts do not."""

    def render(self, renderable: RenderableType, options: Any = None) -> Iterable[Segment]:
        """The segments of what is shown; those that are texts made printable."""
        for segment in super().render(renderable, options):
            if segment.control or not _HIDDEN.search(segment.text):
                yield segment
            else:
                yield Segment(printable(segment.text), segment.style)
