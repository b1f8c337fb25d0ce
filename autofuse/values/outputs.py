"""Files that a user named: read with a bound; written whole or not at all, never over what autofuse did not write."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from autofuse.errors import InputError

DATABASE_SUFFIXES = ("", "-wal", "-shm", "-journal")
"""A database file, and the files that SQLite keeps beside it."""

MARKED_BYTES = 64 << 10
"""Bytes from either end of a file in which its mark is looked for."""

METADATA_BYTES = 1 << 20
"""The same for the metadata of a model, which may be many."""

MOST_TEXT_BYTES = 64 << 20
"""Far more than a plan, a device or a search space has."""

FULL_DISK = ("No space left on device", "Disk quota exceeded", "File too large", "File size limit exceeded")
"""What the system, a compiler and a linker say when a file cannot grow."""

_MODEL_HEAD = b"\x08"
"""How an ONNX model begins that a library wrote: with its version of the format."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_SPECIAL: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
)

Inputs = Mapping[str, Path | None]
"""The files that a verb reads, by what messages call them ("the model")."""


def read_text(path: Path) -> str:
    """The UTF-8 text in a file or pipe; OSError when it is larger than any file of ours, or cannot be read."""
    with path.open("rb") as file:
        content = file.read(MOST_TEXT_BYTES + 1)
    if len(content) > MOST_TEXT_BYTES:
        raise OSError(errno.EFBIG, f"it is larger than {MOST_TEXT_BYTES >> 20} MiB")
    return content.decode("utf-8")


def model_file(model: str | os.PathLike[str], device: str = "") -> Path:
    """The path of a model. InputError at once where no file is there, or none of a `device` that is named by its
    profile: before anything is loaded that takes seconds and would find the same."""
    path, profile = Path(model), Path(device)
    status = _status(path, "the model")
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{path}: not a file; give the path of an .onnx file")
    if profile.suffix == ".toml":
        _status(profile, "the device profile")
    return path


def _status(path: Path, what: str) -> os.stat_result:
    try:
        return path.stat()
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot read {what}: {getattr(error, 'strerror', None) or error}") from error


def refuse_pipe(path: Path) -> None:
    """OSError for a pipe in place of a file that is read from its end: opening one waits for whoever writes there."""
    if path.is_fifo():
        raise OSError(errno.ESPIPE, "it is a pipe, no regular file")


@dataclass(frozen=True)
class Kind:
    """A kind of output: what a verb writes.

    `name`: with its article, such as "a library of autofuse". `is_ours`: whether a file is of this kind, by its
    content; only such a file (or an empty one) is replaced. None: nothing is ever replaced.
    """

    name: str
    is_ours: Callable[[Path], bool] | None = None


def check_output(path: Path, kind: Kind, inputs: Inputs | None = None, *, option: str = "--output") -> Path:
    """The file that writing to `path` makes or replaces: `path` with its symbolic links followed.

    InputError when it is no regular file, is one of `inputs` (also by another name, or through a link), or exists and
    is not of `kind`. `option`: what messages call the path.
    """
    where = f"{option}: {str(path)!r}"
    try:
        real = _followed(path, where)
        for name, given in (inputs or {}).items():
            if given is not None and _same(real, given):
                raise InputError(f"{where} is {name}, which is read; name another file")
        refuse_beside_database(real, where)
        if real.exists():
            _refuse_existing(real, kind, where)
        if real.parent.is_dir() and not os.access(real.parent, os.W_OK):  # said before the work, not after it
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise _unwritable(where, error) from error
    return real


def database_files(path: Path | None) -> dict[str, Path]:
    """A database as inputs of a verb, with what SQLite keeps beside it; none for a server or one in memory."""
    if path is None:
        return {}
    return {f"the database ({path.name}{end})": path.with_name(path.name + end) for end in DATABASE_SUFFIXES}


@contextmanager
def output_file(
    path: Path, kind: Kind, inputs: Inputs | None = None, *, option: str = "--output", parents: bool = False
) -> Iterator[Path]:
    """An empty file to write to, which stands at `path` once the block ends; after an error, what was there stays.

    See `check_output` for what is refused. It lies beside `path`, is forced to the disk, and has the permissions of
    the file that it replaces. What killed processes left beside it goes first. `parents`: missing folders are made.
    InputError when it cannot be written.
    """
    real = check_output(path, kind, inputs, option=option)
    from autofuse.values.scratch import part_name, sweep_parts  # late: it needs psutil, and most verbs write nothing

    sweep_parts(real.parent)
    part = real.with_name(part_name())
    where = f"{option}: {str(path)!r}"
    try:
        if parents:
            real.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        yield part
        force(part)
        check_output(path, kind, inputs, option=option)  # what stands there may have changed meanwhile
        _move(part, real, kind, where)
    except OSError as error:
        raise _unwritable(where, error) from error
    finally:
        with suppress(OSError):  # the folder itself may be what is wrong
            part.unlink(missing_ok=True)


def write_output(
    path: Path, content: str | bytes, kind: Kind, inputs: Inputs | None = None, *, option: str = "--output"
) -> None:
    """Write a text (UTF-8) or bytes to `path`; see `output_file`."""
    with output_file(path, kind, inputs, option=option) as part:
        part.write_bytes(content.encode() if isinstance(content, str) else content)


def output_folder(folder: Path, *, option: str = "--output") -> Path:
    """`folder`, made where it is missing; InputError when it is a file, or cannot be made."""
    refuse_beside_database(folder, f"{option}: {str(folder)!r}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise InputError(f"{option}: {str(folder)!r} is no folder; name a folder") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{option}: {str(folder)!r} cannot be made: {reason}; name another folder") from error
    return folder


@contextmanager
def all_or_none(folders: Iterable[Path], files: Iterable[Path] = ()) -> Iterator[None]:
    """After an error, of `folders`, `files` and the folders above them, what was missing before is gone again.

    Of folders only those go that are empty then.
    """
    files = list(files)
    named = [*folders, *(path.parent for path in files)]
    made = {above for folder in named for above in (folder, *folder.parents) if not above.exists()}
    absent = [path for path in files if not path.exists()]
    try:
        yield
    except BaseException:
        for path in absent:
            with suppress(OSError):
                path.unlink()
        for folder in sorted(made, key=lambda path: len(path.parts), reverse=True):
            with suppress(OSError):
                folder.rmdir()
        raise


def force(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk: a full one is noticed before anything is replaced."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        if not path.is_dir():  # not every file system can do that for a folder
            raise
    finally:
        os.close(descriptor)


def has_head(path: Path, *heads: bytes) -> bool:
    """Whether a file begins with one of `heads`."""
    with path.open("rb") as file:
        return file.read(max(map(len, heads))).startswith(heads)


def has_tail(path: Path, tail: bytes) -> bool:
    """Whether `tail` is the last line of a file: whoever wrote more below made the file theirs."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - len(tail) - MARKED_BYTES))
        return file.read().rstrip().endswith(b"\n" + tail)


def has_mark(path: Path, mark: bytes, size: int = MARKED_BYTES) -> bool:
    """Whether `mark` stands in the first or the last `size` bytes of a file."""
    with path.open("rb") as file:
        if mark in file.read(size):
            return True
        file.seek(max(0, path.stat().st_size - size))
        return mark in file.read(size)


def has_metadata(path: Path, key: str) -> bool:
    """Whether a file is an ONNX model whose own metadata have an entry `key`: a text that only names it is none.

    An entry is found as it is encoded (the key's field and length, the key, the field of its value), at the end, where
    models keep it; nothing is parsed.
    """
    text = key.encode()
    entry = bytes((0x0A, len(text))) + text + b"\x12"
    return has_head(path, _MODEL_HEAD) and has_mark(path, entry, METADATA_BYTES)


def _followed(path: Path, where: str) -> Path:
    """The file that symbolic links lead to; links that lead nowhere are refused: nobody sees what would be made
    there."""
    if "\0" in str(path):
        raise InputError(f"{where} names no file")
    if not path.name:
        raise InputError(f"{where} is a folder; name a file in it")
    try:
        real = path.resolve()
    except RuntimeError as error:  # a loop
        raise InputError(f"{where} is a symbolic link that leads to itself; name another file") from error
    if path.is_symlink() and not real.exists():
        raise InputError(f"{where} is a symbolic link that leads nowhere ({real}); remove it, or name another file")
    return real


def refuse_beside_database(path: Path, where: str) -> None:
    """InputError for a name that SQLite takes for its own beside a database: it reads such a file, removes it, or
    fails.
    """
    for end in filter(None, DATABASE_SUFFIXES):
        name = path.name.removesuffix(end)
        if name not in ("", path.name) and _is_database(path.with_name(name)):
            raise InputError(f"{where} is a name that the database {name} needs; name another one")


def _is_database(path: Path) -> bool:
    try:
        return path.is_file() and has_head(path, b"SQLite format 3\0")
    except (OSError, ValueError):
        return False


def _same(real: Path, given: Path) -> bool:
    """Whether both are one file: by number of device and file, or, while it does not exist, by name."""
    try:
        one, other = real.stat(), given.stat()
    except FileNotFoundError:
        return real == given.resolve()
    except (OSError, ValueError):
        return False
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


def _refuse_existing(real: Path, kind: Kind, where: str) -> None:
    status = real.stat()
    if stat.S_ISDIR(status.st_mode):
        raise InputError(f"{where} is a folder; name a file in it")
    for is_special, name in _SPECIAL:
        if is_special(status.st_mode):
            raise InputError(f"{where} is {name}, no regular file; name a regular file")
    if kind.is_ours is None:
        raise InputError(f"{where}: it exists already; name a new file")
    if not os.access(real, os.W_OK):
        raise InputError(f"{where} is read-only; make it writable, or name another file")
    if status.st_size and not kind.is_ours(real):
        raise InputError(f"{where} exists and is not {kind.name}; name another file, or move that one away")


def _move(part: Path, real: Path, kind: Kind, where: str) -> None:
    if kind.is_ours is None:
        try:
            os.link(part, real)  # unlike a renaming, it never replaces
        except FileExistsError as error:
            raise InputError(f"{where}: it exists already; name a new file") from error
        except OSError:  # a file system without links
            part.rename(real)
    else:
        with suppress(FileNotFoundError):
            old = real.stat()
            part.chmod(stat.S_IMODE(old.st_mode))
            with suppress(PermissionError):
                os.chown(part, old.st_uid, old.st_gid)
        part.replace(real)
    force(real.parent)


def _unwritable(where: str, error: Exception) -> InputError:
    reason = getattr(error, "strerror", None) or error
    short = isinstance(error, OSError) and error.errno is None and "requested and" in str(error)  # NumPy's short write
    full = short or getattr(error, "errno", None) in _FULL
    advice = "free some space, or name another file" if full else "name another file"
    return InputError(f"{where} cannot be written: {reason}; {advice}")
