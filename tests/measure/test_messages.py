import pytest
from hypothesis import given
from hypothesis import strategies as st

from autofuse.measure.children.messages import HEADER, MAGIC, MAX_BYTES, ProtocolError, decode, encode

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
MESSAGES = st.dictionaries(st.text(), VALUES, max_size=4)


@given(st.lists(MESSAGES, max_size=4), st.integers(1, 50))
def test_messages_survive_any_chunking_of_the_stream(messages, step):
    stream = b"".join(map(encode, messages))
    buffer, found = bytearray(), []
    for start in range(0, len(stream), step):
        buffer += stream[start : start + step]
        while (message := decode(buffer)) is not None:
            found.append(message)
    assert found == messages
    assert not buffer


@pytest.mark.parametrize(
    "garbage",
    [
        b"Segmentation fault",
        b"S",
        HEADER.pack(MAGIC, MAX_BYTES + 1),
        HEADER.pack(MAGIC, 4) + b"oops",
        HEADER.pack(MAGIC, 2) + b"[]",
        HEADER.pack(MAGIC, 2) + b"\xff\xfe",
    ],
)
def test_anything_else_on_the_pipe_is_refused(garbage):
    with pytest.raises(ProtocolError):
        decode(bytearray(garbage))


def test_a_message_that_would_not_fit_is_not_sent():
    with pytest.raises(ProtocolError, match="exceeds"):
        encode({"text": "x" * MAX_BYTES})
