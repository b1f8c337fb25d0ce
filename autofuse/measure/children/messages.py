"""What crosses a pipe: frozen dataclasses as JSON behind the name of their class, with a length in front."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, TypeVar, get_args

from pydantic import ConfigDict, PlainSerializer, PlainValidator, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

HEADER = struct.Struct(">4sI")
MAGIC = b"AFm2"
MAX_BYTES = 64 << 20
MOST_REASONS = 3
MAX_BYTE = 255
_ADAPTERS: dict[type, TypeAdapter[Any]] = {}
"""What writes and reads each class of messages, made when it is first needed."""


def _letters(path: Path) -> str:
    return os.fsencode(path).decode("latin-1")


def _named(letters: object) -> Path:
    """The inverse of `_letters`; ValueError for what cannot come from it."""
    if isinstance(letters, Path):
        return letters
    if not isinstance(letters, str) or any(ord(one) > MAX_BYTE for one in letters):
        raise ValueError("expected a path, a letter a byte")
    return Path(os.fsdecode(letters.encode("latin-1")))


FilePath = Annotated[Path, PlainSerializer(_letters), PlainValidator(_named)]
"""A path in a message: a letter a byte, as the name of a file need not be text."""


class ProtocolError(ValueError):
    """The bytes are no message, or none that is understood here; the text says why."""


@dataclass(frozen=True)
class Message:
    """A message of one process to another. One with other fields, or with values of other types, is refused."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True, ser_json_inf_nan="constants")


A = TypeVar("A", bound=Message)
M = TypeVar("M", bound=Message)
Known = Mapping[str, type[M]]
"""The messages that a process understands, by name."""


@dataclass(frozen=True)
class Request(Message, Generic[A]):
    """A message that is answered by an `A`, or by `Refused`."""

    answer: ClassVar[type[Message]]

    def __init_subclass__(cls) -> None:
        cls.answer = get_args(cls.__orig_bases__[0])[0]  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Done(Message):
    """The answer to a request that asks for nothing back."""


@dataclass(frozen=True)
class Refused(Message):
    """The answer that there is none. `kind`: of a failure ("": what a crash would count as); `message`: for people."""

    kind: str
    message: str


def known(types: Iterable[type[M]]) -> Known[M]:
    """The table that `decode` takes."""
    return {one.__name__: one for one in types}


def encode(message: Message) -> bytes:
    """The text of a message: its name, a space, its fields as JSON. ProtocolError for values of other types."""
    try:
        fields = _adapter(type(message)).dump_json(message, warnings="error")
    except PydanticSerializationError as error:
        raise ProtocolError(f"{type(message).__name__} cannot be sent: {error}") from error
    return b"%s %s" % (type(message).__name__.encode(), fields)


def decode(text: bytes, table: Known[M]) -> M:
    """The inverse of `encode`; ProtocolError with a reason for what is not in `table` or not of its types."""
    head, _, fields = text.partition(b" ")
    name = head[:40].decode(errors="replace")
    if name not in table:
        raise ProtocolError(f"unknown message {name!r}: expected one of {', '.join(sorted(table))}")
    try:
        message: M = _adapter(table[name]).validate_json(fields)
    except ValidationError as error:
        raise ProtocolError(f"{name}: {_reasons(error)}") from error
    return message


def framed(text: bytes) -> bytes:
    """`text` with its length in front; ProtocolError when it is too long."""
    if len(text) > MAX_BYTES:
        raise ProtocolError(f"message of {len(text)} bytes exceeds {MAX_BYTES}")
    return HEADER.pack(MAGIC, len(text)) + text


def unframed(buffer: bytearray) -> bytes | None:
    """Take the first whole text off `buffer`; None while it is incomplete, ProtocolError for garbage."""
    if len(buffer) < HEADER.size:
        if not MAGIC.startswith(bytes(buffer[: len(MAGIC)])):
            raise ProtocolError(f"not a message: {bytes(buffer[:40])!r}")
        return None
    magic, length = HEADER.unpack_from(buffer)
    if magic != MAGIC or length > MAX_BYTES:
        raise ProtocolError(f"not a message: {bytes(buffer[:40])!r}")
    if len(buffer) < HEADER.size + length:
        return None
    text = bytes(buffer[HEADER.size : HEADER.size + length])
    del buffer[: HEADER.size + length]
    return text


def _adapter(kind: type[Message]) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def _reasons(error: ValidationError) -> str:
    """The first mistakes, each with the field that it stands in."""
    found = error.errors(include_url=False, include_context=False)
    said = [": ".join(filter(None, (".".join(map(str, one["loc"])), one["msg"]))) for one in found[:MOST_REASONS]]
    return "; ".join([*said, "..."] if len(found) > MOST_REASONS else said)
