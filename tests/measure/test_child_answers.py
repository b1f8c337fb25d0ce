"""What a child answers when its handler fails: whose fault it was."""

from __future__ import annotations

import errno
import os

import pytest

from autofuse.measure.children.child import RefusedError, answer
from autofuse.measure.children.messages import Message, Refused, encode
from autofuse.measure.children.requests import Drop


def kind_of(error: Exception) -> str:
    def fail(_request: object) -> Message:
        raise error

    reply = answer({Drop: fail}, encode(Drop(1)))
    assert isinstance(reply, Refused)
    assert reply.message
    return reply.kind


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_no_candidates_fault(number: int) -> None:
    assert kind_of(OSError(number, os.strerror(number), "/tmp/kernel.so")) == "device_lost"


@pytest.mark.parametrize(
    "text",
    [
        "ld: final link failed: No space left on device",
        "ld terminated with signal 25 [File size limit exceeded]",
    ],
)
def test_nor_is_one_that_a_linker_met(text: str) -> None:
    assert kind_of(RuntimeError(text)) == "device_lost"


def test_an_array_that_could_be_written_in_part_only_met_one_too() -> None:
    assert kind_of(OSError("4096 requested and 1024 written")) == "device_lost"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("tile 7 does not divide 12"), ""),
        (OSError(errno.ENOENT, "No such file"), ""),
        (RuntimeError("std::bad_alloc"), "out_of_memory"),
        (MemoryError(), "out_of_memory"),
        (RefusedError("wrong", "off by 2"), "wrong"),
    ],
)
def test_other_failures_keep_their_kind(error: Exception, kind: str) -> None:
    assert kind_of(error) == kind
