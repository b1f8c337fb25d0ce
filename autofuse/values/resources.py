"""Data files are at the top of a source checkout, or inside an installed wheel."""

from __future__ import annotations

from pathlib import Path

from autofuse.errors import InputError

_PACKAGE = Path(__file__).resolve().parents[1]


def data_path(name: str) -> Path:
    """Folder of the shipped data called `name` ("search_spaces" or "profiles").

    A wheel carries a copy in `autofuse/_data`; a checkout (also one installed with `pip install -e`) keeps it
    beside the package. InputError when neither is there: the installation is incomplete.
    """
    places = (_PACKAGE / "_data" / name, _PACKAGE.parent / name)
    for place in places:
        if place.is_dir():
            return place
    tried = " or ".join(str(place) for place in places)
    raise InputError(f"autofuse's data folder {name!r} is missing (looked for {tried}): reinstall autofuse")


def named_files(folder: str, suffix: str = ".toml") -> dict[str, Path]:
    """The shipped files below `folder` (such as "profiles/devices") by their name without the suffix, sorted."""
    top, _, below = folder.partition("/")
    return {path.stem: path for path in sorted((data_path(top) / below).glob(f"*{suffix}"))}
