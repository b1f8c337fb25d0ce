"""Messages between a coordinator and its children: JSON objects with a length in front, nothing else."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping

HEADER = struct.Struct(">4sI")
MAGIC = b"AFm1"
MAX_BYTES = 64 << 20

Message = Mapping[str, object]


class ProtocolError(ValueError):
    """The bytes on the pipe are no message."""


def encode(message: Message) -> bytes:
    """The frame of `message`; ProtocolError when it is too long."""
    body = json.dumps(message, separators=(",", ":")).encode()
    if len(body) > MAX_BYTES:
        raise ProtocolError(f"message of {len(body)} bytes exceeds {MAX_BYTES}")
    return HEADER.pack(MAGIC, len(body)) + body


def decode(buffer: bytearray) -> Message | None:
    """Take the first whole message off `buffer`; None while it is incomplete, ProtocolError for garbage."""
    if len(buffer) < HEADER.size:
        if not MAGIC.startswith(bytes(buffer[: len(MAGIC)])):
            raise ProtocolError(f"not a message: {bytes(buffer[:40])!r}")
        return None
    magic, length = HEADER.unpack_from(buffer)
    if magic != MAGIC or length > MAX_BYTES:
        raise ProtocolError(f"not a message: {bytes(buffer[:40])!r}")
    if len(buffer) < HEADER.size + length:
        return None
    body = bytes(buffer[HEADER.size : HEADER.size + length])
    del buffer[: HEADER.size + length]
    try:
        message = json.loads(body)
    except ValueError as error:
        raise ProtocolError(f"message is not JSON: {error}") from error
    if not isinstance(message, dict):
        raise ProtocolError(f"message is a {type(message).__name__}, not an object")
    return message
