"""A free-standing library as a folder that C projects find: by CMake, by pkg-config, or by two options."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from autofuse.backend.freestanding import source
from autofuse.backend.freestanding.description import FREESTANDING, HEADER, HEADER_MARK, Description, read
from autofuse.backend.freestanding.link import is_archive
from autofuse.errors import InputError
from autofuse.link.c_compiler import ARCHITECTURE_NAMES
from autofuse.values.outputs import Kind, all_or_none, check_output, has_mark, output_file, output_folder, write_output

_PACKAGED = Kind("a file of a package of autofuse", lambda path: has_mark(path, HEADER_MARK))


@dataclass(frozen=True)
class PackageReport:
    """A folder that holds a library for C projects. `name`: of the CMake package, its target and the pkg-config module.

    `files`: what it holds, relative to `folder`.
    """

    name: str
    folder: str
    files: tuple[str, ...]


def write_package(library: Path, folder: Path) -> PackageReport:
    """Write the package of a free-standing library; its own files of before are replaced, and those of nobody else.

    InputError when `library` is no free-standing one, or when a file of others stands where one of the package must.
    """
    description = read(library)
    if not re.fullmatch(r"[A-Za-z0-9._+-]+", library.name):
        raise InputError(
            f"{str(library)!r}: build systems need a name of letters, digits, '.', '_', '+' and '-': compile it under "
            "one such as libnet.so"
        )
    texts = _texts(description, library.name)
    copy = folder / "lib" / library.name
    with all_or_none([folder], [copy, *(folder / place for place in texts)]):
        output_folder(folder)
        check_output(copy, FREESTANDING, {"the library": library})
        for place, text in texts.items():
            output_folder((folder / place).parent)
            write_output(folder / place, text, HEADER if place.endswith(".h") else _PACKAGED)
        with output_file(copy, FREESTANDING) as part:
            shutil.copyfile(library, part)
    return PackageReport(description.name, str(folder), (f"lib/{library.name}", *texts))


def _texts(description: Description, file: str) -> dict[str, str]:
    """Each text of the package, by its place in the folder."""
    name = description.name
    static = is_archive(file)
    needs = "-pthread -lm" if static else ""
    values = {
        "KIND": "STATIC" if static else "SHARED",
        "PROPERTY": f'    INTERFACE_LINK_LIBRARIES "{needs}"' if static else f'    IMPORTED_SONAME "{file}"',
        "LIBS": f" {needs}".rstrip(),
        "LINK": needs or "-Wl,-rpath,lib",
        "NAME": name,
        "FILE": file,
        "VERSION": description.version,
        "ARCHITECTURE": description.architecture,
        "PROCESSORS": "|".join(ARCHITECTURE_NAMES.get(description.architecture, (description.architecture,))),
        "INPUTS": str(len(description.shapes[0].given) + 1),
        "OUTPUTS": str(len(description.shapes[0].outputs)),
        "OUTPUT": f"{name}_output_now(session, i)" if source.is_open(description) else f"{name}_output(0, i)",
        "SIZES": source.example_sizes(description),
    }
    mark = f"{name}: {HEADER_MARK.decode()} {description.version}"
    return {
        f"include/{name}.h": source.header(description),
        f"lib/cmake/{name}/{name}Config.cmake": f"# {mark}\n{source.filled('config.cmake', values)}",
        f"lib/cmake/{name}/{name}ConfigVersion.cmake": f"# {mark}\n{source.filled('version.cmake', values)}",
        f"lib/pkgconfig/{name}.pc": f"# {mark}\n{source.filled('pkg.pc', values)}",
        f"share/{name}/example.c": f"/* {mark} */\n{source.filled('example.c', values)}",
    }
