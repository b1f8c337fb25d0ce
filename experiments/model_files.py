"""The ONNX files that an experiment is asked for: files, folders of files, or names of the catalogue."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from autofuse.errors import InputError
from experiments.catalogue import EXPORTED, GENERATED, NETWORKS, SMALL, WRITTEN, build, with_form
from experiments.models.run import FOLDER, generate

FOLDERS = {EXPORTED: FOLDER, WRITTEN: FOLDER / "written"}
"""Where networks that are given by name are written, by their form."""
GROUPS = {form: tuple(name for name in with_form(form) if name not in {**SMALL, **GENERATED}) for form in FOLDERS}
"""What `all` stands for: every network of that form but those that are drawn at random or cut down."""
HELP = "ONNX files, folders of them, names of networks, or `all`"


def asked_for(
    parser: argparse.ArgumentParser, given: Sequence[str], form: str = EXPORTED, everything: Sequence[str] = ()
) -> list[Path]:
    """As `resolve`, in the usual folder; what is no model ends the program with the parser's message."""
    try:
        return resolve(given, form, everything=everything)
    except InputError as error:
        parser.error(str(error))


def resolve(
    given: Sequence[str], form: str = EXPORTED, folder: Path | None = None, everything: Sequence[str] = ()
) -> list[Path]:
    """Paths of ONNX files, in the order given; names are made in `folder` where they are not there yet.

    A name stands for the network in that form, or in the other one where it has no such form. `everything`: what `all`
    stands for (empty: every network of the form). InputError for what is no model, and for two files of one name.
    """
    found: list[Path] = []
    for text in given:
        if text == "all" or text in NETWORKS:
            names = list(everything or GROUPS[form]) if text == "all" else [text]
            found += _made(names, form, folder)
        elif Path(text).is_dir():
            found += sorted(Path(text).resolve().glob("*.onnx"))
        elif Path(text).is_file():
            found.append(Path(text).resolve())
        else:
            raise InputError(f"{text!r} is no file, no folder, and no network: all, {', '.join(NETWORKS)}")
    found = list(dict.fromkeys(found))
    stems = [path.stem for path in found]
    twice = sorted({stem for stem in stems if stems.count(stem) > 1})
    if twice or not found:
        raise InputError(f"two models are called {twice[0]!r}: rename one" if twice else "no ONNX file among them")
    return found


def _made(names: Sequence[str], form: str, folder: Path | None) -> list[Path]:
    """The files of networks by name, in their order; those to be exported are exported in one go."""
    forms = {name: form if getattr(NETWORKS[name], form) else _other(form) for name in names}
    paths = {name: (folder or FOLDERS[forms[name]]) / f"{name}.onnx" for name in names}
    missing = [name for name in names if not paths[name].exists()]
    for name in missing:
        if forms[name] == WRITTEN:
            write(name, paths[name].parent)
    exported = [name for name in missing if forms[name] == EXPORTED]
    if exported:
        _export(exported, paths[exported[0]].parent)
    return list(paths.values())


def _other(form: str) -> str:
    return WRITTEN if form == EXPORTED else EXPORTED


def _export(names: Sequence[str], folder: Path) -> None:
    if generate(names, folder):
        lost = [name for name in names if not (folder / f"{name}.onnx").exists()]
        raise InputError(f"could not generate {', '.join(lost)}")


def write(name: str, folder: Path | None = None, form: str = WRITTEN) -> Path:
    """`folder/name.onnx` of a network that needs no torch, built unless it is there; KeyError for any other name."""
    import onnx

    folder = folder or FOLDERS[form]
    path = folder / f"{name}.onnx"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        onnx.save(build(name, form), part)
        part.replace(path)
    return path
