"""Verbs over libraries that load nothing of them (check, package, those of torch.compile), and over keys that sign."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from autofuse.values.arguments import StrPath

if TYPE_CHECKING:
    from autofuse.backend.freestanding.package import PackageReport
    from autofuse.graph.transform.quantize.certificate import Certificate
    from autofuse.torch_backend.cache import CacheReport


@dataclass(frozen=True)
class CheckedLibrary:
    """A library file that is whole. `signer`: fingerprint of the key that it names as its signer's, "" for none.

    `trusted`: whether the signature was verified, by one of the keys that were given. `sha256`: of the whole file.
    `sizes`: what it leaves open, from where to where; `steps`: of those that are multiples of a number, that number.
    `plans`: kernels of the plan for each part of their range, such as "tokens up to 16", where there are several.
    `caches`: inputs that it keeps between calls. `certificate`: of the model, where `quantize` wrote it.
    """

    library: str
    signer: str
    trusted: bool
    sha256: str
    architecture: str
    cpu_features: tuple[str, ...]
    threads: int
    kernels: int
    sizes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    caches: tuple[str, ...] = ()
    steps: Mapping[str, int] = field(default_factory=dict)
    certificate: Certificate | None = None
    plans: Mapping[str, int] = field(default_factory=dict)


def library_check(library: StrPath, *, trust: Sequence[StrPath] = ()) -> CheckedLibrary:
    """Check that a library is whole, and signed by one of the keys of `trust`; none of its code is loaded.

    InputError when it is not. What loads it later (a program in C) checks nothing again: let nobody else write there.
    """
    from autofuse.backend.library.library import check
    from autofuse.graph.transform.quantize.certificate import certificate_of

    keys = [Path(key) for key in trust]
    metadata, signer, digest = check(Path(library), keys)
    opened = metadata.opened
    ranges = (metadata.parts.sizes if metadata.parts else ()) or (opened.sizes if opened else ())
    sizes = {size.name: (size.low, size.high) for size in ranges}
    steps = {size.name: size.step for size in ranges if size.step > 1}
    return CheckedLibrary(
        str(library), signer, bool(keys), digest, metadata.architecture, metadata.cpu_features, metadata.threads,
        metadata.kernels, sizes, opened.kept if opened else (), steps,
        certificate_of(metadata.origin), metadata.kernels_by_part,
    )  # fmt: skip


@dataclass(frozen=True)
class KeyPair:
    """Two files: the private key, to be kept, and the public one, to be given away; `fingerprint` of the latter."""

    private: str
    public: str
    fingerprint: str


@dataclass(frozen=True)
class PublicKey:
    """A public key's file, and its fingerprint as messages name it."""

    public: str
    fingerprint: str


def key_new(file: StrPath) -> KeyPair:
    """Make a pair of keys: the private one in `file`, the public one beside it as FILE.pub."""
    from autofuse.values.signatures import new_key

    public, fingerprint = new_key(Path(file))
    return KeyPair(str(file), str(public), fingerprint)


def key_show(file: StrPath) -> PublicKey:
    """The fingerprint of a public key."""
    from autofuse.values.signatures import fingerprint, public_key

    return PublicKey(str(file), fingerprint(public_key(Path(file))))


def cache_info() -> CacheReport:
    """What is kept on the disk: libraries of `torch.compile(model, backend="autofuse")`, machine code of kernels.

    Where, how many, how many bytes.
    """
    from autofuse.torch_backend.cache import kept

    return _with_objects(kept())


def cache_clear() -> CacheReport:
    """Remove all that `cache_info` tells of; what needs it is compiled again."""
    from autofuse.backend.compile.objects import remove_objects
    from autofuse.torch_backend.cache import cleared

    remove_objects()
    return _with_objects(cleared())


def _with_objects(report: CacheReport) -> CacheReport:
    from autofuse.backend.compile.objects import kept_bytes

    sizes = kept_bytes()
    return replace(report, objects=len(sizes), object_bytes=sum(sizes))


def package(library: StrPath, output_folder: StrPath) -> PackageReport:
    """Write a folder in which C and C++ projects find a free-standing library (`compile` with the format "c").

    It holds the library, its header, an example, and files for CMake (`find_package`) and pkg-config.
    """
    from autofuse.backend.freestanding.package import write_package

    return write_package(Path(library), Path(output_folder))
