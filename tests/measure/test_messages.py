import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autofuse.job import requests as job
from autofuse.measure import machine
from autofuse.measure.children import requests as kernels
from autofuse.measure.children.messages import (
    HEADER,
    MAGIC,
    MAX_BYTES,
    Done,
    FilePath,
    Message,
    ProtocolError,
    Refused,
    Request,
    decode,
    encode,
    framed,
    known,
    unframed,
)
from autofuse.measure.cluster import requests as cluster
from autofuse.measure.measurement import Slice
from autofuse.measure.networks import requests as networks
from autofuse.measure.remote import requests as remote

ROOMS = (kernels, networks, remote, cluster, machine, job)


@dataclass(frozen=True)
class Everything(Request[Done]):
    """A field of each kind that messages have."""

    text: str
    number: int
    share: float
    maybe: float | None
    flag: bool
    path: FilePath
    maybe_path: FilePath | None
    pieces: tuple[Slice, ...]
    schedule: Mapping[str, int | str]


TABLE = known((Everything, Done, Refused))
NUMBERS = st.floats(allow_nan=False)
SLICES = st.builds(Slice, NUMBERS, st.integers(0, 9), NUMBERS, NUMBERS, st.booleans())
PATHS = st.binary(min_size=1).filter(lambda name: b"\0" not in name).map(lambda name: Path(os.fsdecode(name)))
MESSAGES = st.one_of(
    st.just(Done()),
    st.builds(Refused, st.text(), st.text()),
    st.builds(
        Everything, st.text(), st.integers(-(2**53), 2**53), NUMBERS, st.none() | NUMBERS, st.booleans(),
        PATHS, st.none() | PATHS, st.lists(SLICES, max_size=2).map(tuple),
        st.dictionaries(st.text(), st.integers(-(2**53), 2**53) | st.text(), max_size=3),
    ),
)  # fmt: skip
GOOD = Everything("", 1, 0.5, None, True, Path("a"), None, (), {})


@given(st.lists(MESSAGES, max_size=4), st.integers(1, 50))
def test_messages_survive_any_chunking_of_the_stream(messages, step):
    stream = b"".join(framed(encode(message)) for message in messages)
    buffer, found = bytearray(), []
    for start in range(0, len(stream), step):
        buffer += stream[start : start + step]
        while (text := unframed(buffer)) is not None:
            found.append(decode(text, TABLE))
    assert found == messages
    assert not buffer


@pytest.mark.parametrize(
    "garbage", [b"Segmentation fault", b"S", HEADER.pack(MAGIC, MAX_BYTES + 1), b"AFm1" + bytes(9)]
)
def test_anything_else_on_the_pipe_is_refused(garbage):
    with pytest.raises(ProtocolError, match="not a message"):
        unframed(bytearray(garbage))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "unknown message ''"),
        (b"Dance {}", "unknown message 'Dance': expected one of Done, Everything, Refused"),
        (b"\xff\xfe {}", "unknown message"),
        (b"Done", "Done: Invalid JSON"),
        (b"Done []", "Done: Input should be"),
        (b'Done {"ok":true}', "Done: ok: Unexpected keyword argument"),
        (b'Refused {"kind":"wrong"}', "Refused: message: Field required"),
        (b'Refused {"kind":1,"message":"x"}', "Refused: kind: Input should be a valid string"),
    ],
)
def test_what_is_no_message_that_is_expected_is_refused_with_a_reason(text, reason):
    with pytest.raises(ProtocolError) as refused:
        decode(text, TABLE)
    assert str(refused.value).startswith(reason)


@pytest.mark.parametrize(
    ("field", "value", "where"),
    [
        ("number", b'"1"', "number"),
        ("number", b"true", "number"),
        ("flag", b"1", "flag"),
        ("path", b"7", "path"),
        ("path", b'"\\u0141"', "path"),
        ("pieces", b"[[1]]", "pieces.0"),
        ("pieces", b'[{"us":1,"calls":1,"clock":1,"waited":"no","good":true}]', "pieces.0.waited"),
        ("schedule", b'{"tile":1.5}', "schedule.tile"),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_place(field, value, where):
    text = encode(GOOD)
    start = text.index(b'"%s":' % field.encode()) + len(field) + 3
    end = start + len(encode(GOOD)[start:].split(b',"')[0].rstrip(b"}" if field != "schedule" else b""))
    damaged = text[:start] + value + (text[end:] if field != "schedule" else b"}")
    with pytest.raises(ProtocolError) as refused:
        decode(damaged, TABLE)
    assert str(refused.value).startswith(f"Everything: {where}")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_without_a_finite_value_cross(value):
    found = decode(encode(replace(GOOD, share=value)), TABLE)
    assert repr(found.share) == repr(value)


def test_a_message_that_would_not_fit_is_not_sent():
    with pytest.raises(ProtocolError, match="exceeds"):
        framed(encode(Refused("", "x" * MAX_BYTES)))


def test_a_value_of_another_type_is_not_sent():
    with pytest.raises(ProtocolError, match="Refused cannot be sent"):
        encode(Refused("wrong", 7))


def test_a_path_crosses_whatever_its_bytes_are():
    fields = [
        (one.__name__, name, kind)
        for room in ROOMS
        for one in vars(room).values()
        if isinstance(one, type) and issubclass(one, Message)
        for name, kind in get_type_hints(one, include_extras=True).items()
    ]
    assert any(kind is FilePath for _, _, kind in fields)
    assert not [where for *where, kind in fields if kind != FilePath and Path in (kind, *get_args(kind))]


def test_every_message_has_a_name_of_its_own_and_every_request_an_answer():
    found = {
        one.__name__: one
        for room in ROOMS
        for one in vars(room).values()
        if isinstance(one, type) and issubclass(one, Message)
    }
    classes = {
        one for room in ROOMS for one in vars(room).values() if isinstance(one, type) and issubclass(one, Message)
    }
    assert len(found) == len(classes) > 40
    for one in classes - {Message, Request}:
        assert one.__doc__, one
        assert not issubclass(one, Request) or issubclass(one.answer, Message)
