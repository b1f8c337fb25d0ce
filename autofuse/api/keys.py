"""Keys that sign libraries and exports, and those of whom one trusts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from autofuse.values.arguments import StrPath


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
