"""The networks of a run: files, folders of files, or names of networks that are generated."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from autofuse.errors import InputError
from experiments.models.catalogue import NETWORKS
from experiments.models.run import generate

GENERATED = Path("out/models")
"""Where networks that are given by name are written."""


def asked_for(parser: argparse.ArgumentParser, given: Sequence[str]) -> list[Path]:
    """As `resolve`, in the usual folder; what is no model ends the program with the parser's message."""
    try:
        return resolve(given, GENERATED)
    except InputError as error:
        parser.error(str(error))


def resolve(given: Sequence[str], folder: Path) -> list[Path]:
    """Paths of ONNX files, in the order given; names are generated into `folder` where they are not there yet.

    InputError for what is neither, and for two files of one name.
    """
    found: list[Path] = []
    for text in given:
        names = list(NETWORKS) if text == "all" else [text] if text in NETWORKS else []
        if names:
            found += _generated(names, folder)
        elif Path(text).is_dir():
            found += sorted(Path(text).resolve().glob("*.onnx"))
        elif Path(text).is_file():
            found.append(Path(text).resolve())
        else:
            raise InputError(f"{text!r} is no file, no folder, and not one of all, {', '.join(NETWORKS)}")
    found = list(dict.fromkeys(found))
    stems = [path.stem for path in found]
    twice = sorted({stem for stem in stems if stems.count(stem) > 1})
    if twice or not found:
        raise InputError(f"two models are called {twice[0]!r}: rename one" if twice else "no ONNX file among them")
    return found


def _generated(names: Sequence[str], folder: Path) -> list[Path]:
    paths = [folder / f"{name}.onnx" for name in names]
    missing = [path.stem for path in paths if not path.exists()]
    if missing and generate(missing, folder):
        raise InputError(f"could not generate {', '.join(path.stem for path in paths if not path.exists())}")
    return paths
