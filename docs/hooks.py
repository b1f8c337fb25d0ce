"""What the site takes from elsewhere, so that it cannot drift: columns of frames, exit codes, CONTRIBUTING."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from autofuse import errors
from autofuse.cli import failures
from autofuse.views.frames.columns import COLUMNS


def on_page_markdown(markdown: str, **_: object) -> str:
    """Replace `<!-- frames -->` and its like by what the code says."""
    for marker, text in MARKERS.items():
        if (sign := f"<!-- {marker} -->") in markdown:
            markdown = markdown.replace(sign, "\n".join(text()))
    return markdown


def _frames() -> Iterator[str]:
    for frame, columns in COLUMNS.items():
        yield from (f"## {frame}", "", "| column | meaning |", "|---|---|")
        yield from (f"| `{column}` | {meaning.replace('|', '&#124;')} |" for column, meaning in columns.items())
        yield ""


def _exit_codes() -> Iterator[str]:
    yield from ("| exit code | error | meaning |", "|---|---|---|")
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    for kind in sorted(kinds, key=lambda kind: int(kind.exit_code)):
        yield f"| {kind.exit_code} | `{kind.__name__}` | {(kind.__doc__ or '').splitlines()[0]} |"
    yield f"| {failures.EXIT_FAILED_CHECK} | | A check failed (`doctor`, `db check`). |"


def _contributing() -> Iterator[str]:
    """The file at the top of the repository, whose links begin there."""
    text = Path(__file__).resolve().parents[1].joinpath("CONTRIBUTING.md").read_text(encoding="utf-8")
    yield text.replace("](docs/", "](")


MARKERS: dict[str, Callable[[], Iterator[str]]] = {
    "frames": _frames,
    "exit codes": _exit_codes,
    "CONTRIBUTING.md": _contributing,
}
