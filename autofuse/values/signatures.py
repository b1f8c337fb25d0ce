"""Ed25519 signatures of libraries and exports: who made a file, for whoever keeps a list of makers to trust.

Keys are PEM files, as OpenSSL makes and reads them. The package `cryptography` is loaded when it is needed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autofuse.errors import InputError
from autofuse.values.outputs import Kind, check_output

PUBLIC_BYTES, SIGNATURE_BYTES = 32, 64
PUBLIC_SUFFIX = ".pub"
_MAX_FILE_BYTES = 1 << 16
_DOMAIN = b"autofuse "
"""Begins all that is signed, with the kind of the file: a signature of one kind is none of another."""


@dataclass(frozen=True)
class Signature:
    """A signature: `public`, the signer's key (32 bytes, raw); `value`, 64 bytes."""

    public: bytes
    value: bytes

    @property
    def signer(self) -> str:
        """The key's fingerprint: the first 16 digits of its SHA-256."""
        return fingerprint(self.public)

    def to_json(self) -> dict[str, str]:
        """An object of texts."""
        return {"public": self.public.hex(), "value": self.value.hex()}

    @classmethod
    def from_json(cls, found: object, place: str) -> Signature | None:
        """What `to_json` made; None for None; InputError naming `place` for anything else."""
        if found is None:
            return None
        try:
            assert isinstance(found, dict)
            return cls(bytes.fromhex(found["public"]), bytes.fromhex(found["value"]))
        except (AssertionError, KeyError, TypeError, ValueError):
            raise InputError(f"{place}: expected public and value in hexadecimal digits") from None


def fingerprint(public: bytes) -> str:
    """16 hexadecimal digits that tell a raw public key from others."""
    return hashlib.sha256(public).hexdigest()[:16]


def new_key(path: Path) -> tuple[Path, str]:
    """Write a private key to `path` (readable by its owner only) and its public key beside it.

    The public key's path and its fingerprint. InputError when one of them is there already, or cannot be written.
    """
    beside = Path(f"{path}{PUBLIC_SUFFIX}")
    for file, kind in ((path, "a private key"), (beside, "a public key")):
        check_output(file, Kind(kind), option="key new")
    kinds, serialization = _library()
    private = kinds.Ed25519PrivateKey.generate()
    secret = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = private.public_key()
    text = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    _create(path, secret, 0o600)
    _create(beside, text, 0o644)
    return beside, fingerprint(public.public_bytes_raw())


def sign(key: Path, kind: str, content: bytes) -> Signature:
    """The signature of `content`, a file of `kind`, by the private key in the file `key`. InputError: no such key."""
    private = private_key(key)
    return Signature(private.public_key().public_bytes_raw(), private.sign(_message(kind, content)))


def private_key(key: Path) -> Any:
    """The Ed25519 key in a PEM file, as `cryptography` has it. InputError when it holds none."""
    kinds, serialization = _library()
    return _read(
        key,
        "--sign",
        kinds.Ed25519PrivateKey,
        lambda text: serialization.load_pem_private_key(text, None),
        "a private Ed25519 key without a password (`autofuse key new FILE` makes one)",
    )


def require_signature(
    name: str, kind: str, content: bytes, signature: Signature | None, trusted: Sequence[Path]
) -> None:
    """InputError unless `signature` is one of `content` by a key of the files `trusted`; `name`: for messages."""
    if signature is None:
        raise InputError(
            f"{name}: it is not signed, and --trust wants a signature; sign it with --sign where it is made"
        )
    kinds, _ = _library()
    if signature.public not in {public_key(path) for path in trusted}:
        raise InputError(
            f"{name}: signed by key {signature.signer}, which is none of those of --trust "
            f"({', '.join(fingerprint(public_key(path)) for path in trusted)})"
        )
    from cryptography.exceptions import InvalidSignature

    try:
        kinds.Ed25519PublicKey.from_public_bytes(signature.public).verify(signature.value, _message(kind, content))
    except (InvalidSignature, ValueError):
        raise InputError(
            f"{name}: its signature does not match its content: it was changed after it was signed"
        ) from None


def public_key(path: Path) -> bytes:
    """The raw public key in a PEM file. InputError when it holds none."""
    kinds, serialization = _library()
    key = _read(
        path,
        "--trust",
        kinds.Ed25519PublicKey,
        serialization.load_pem_public_key,
        f"a public Ed25519 key (`autofuse key new FILE` writes it to FILE{PUBLIC_SUFFIX})",
    )
    raw: bytes = key.public_bytes_raw()
    return raw


def _message(kind: str, content: bytes) -> bytes:
    return _DOMAIN + kind.encode() + b"\n" + content


def _library() -> tuple[Any, Any]:
    """`cryptography`'s modules of Ed25519 keys and of key files. InputError when it is not installed."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise InputError("signatures need the package cryptography: pip install 'autofuse[sign]'") from error
    return ed25519, serialization


def _read(path: Path, option: str, kind: Any, parse: Callable[[bytes], object], wanted: str) -> Any:
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_FILE_BYTES)
    except OSError as error:
        raise InputError(f"{option}: cannot read {path}: {error.strerror or error}") from None
    try:
        found = parse(text)
    except (ValueError, TypeError):  # TypeError: it wants a password
        found = None
    if not isinstance(found, kind):
        raise InputError(f"{option}: {path} is not {wanted}")
    return found


def _create(path: Path, content: bytes, mode: int) -> None:
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
    except OSError as error:
        raise InputError(f"{path}: cannot write the key: {error.strerror or error}") from error
