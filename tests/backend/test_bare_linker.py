"""A library for another architecture is linked from objects of that architecture, and of nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from autofuse import api
from autofuse.errors import DeviceError
from autofuse.link import linking
from experiments.fuzz.bombs import padded_window

ELF, AARCH64 = b"\x7fELF", 183


def test_a_bare_linker_is_given_objects_of_its_architecture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[bytes, int]] = []

    class Noting(linking.BareLinker):
        def link(self, output: Path, objects: Sequence[Path]) -> None:
            heads = [path.read_bytes()[:20] for path in objects]
            given.extend((head[:4], int.from_bytes(head[18:], "little")) for head in heads)
            raise DeviceError("noted")

    monkeypatch.setattr(linking, "cross_linker", lambda architecture: Noting(architecture, ("ld",)))
    path = tmp_path / "window.onnx"
    path.write_bytes(padded_window("Conv", 9, 4, size=64).SerializeToString())
    with pytest.raises(DeviceError, match="noted"):
        api.compile(path, tmp_path / "m.so", database=str(tmp_path / "a.db"), threads=1, device="raspberry-pi-5")
    assert len(given) >= 2  # a kernel, and what the virtual machine runs
    assert set(given) == {(ELF, AARCH64)}
