"""Which places a job's options mean, and what becomes of those that do not answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from autofuse.environment.place import Place
from autofuse.errors import DeviceError, InputError
from autofuse.job.places import answering, places
from autofuse.job.settings import WorkerSpec

said: list[str] = []


@pytest.fixture(autouse=True)
def devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices that answer, but for those at port 1."""
    said.clear()

    def find(place: Place, *, measuring: bool) -> Any:
        assert measuring
        if place.rpc is not None and place.rpc.endswith(":1"):
            raise DeviceError(f"{place.rpc}: no session within 30 s")
        where = place.rpc or place.rpc_tracker
        address = None if where is None else SimpleNamespace(text=where)
        profile = SimpleNamespace(name="cortex-a76")
        return SimpleNamespace(address=address, profile=profile, require_measurable=lambda: None)

    monkeypatch.setattr(Place, "find", find)


def named(
    devices: list[str], rpc: list[str] | None = None, tracker: str | None = None, count: int | None = None
) -> Any:
    return answering(places(devices, rpc or [], tracker, "key", count), said.append)


def test_without_an_address_each_device_is_a_worker_of_its_own_kind() -> None:
    assert named(["local", "zen3"]) == [
        WorkerSpec("local 1", "local", Place(device="local", rpc_key="key")),
        WorkerSpec("zen3 2", "zen3", Place(device="zen3", rpc_key="key")),
    ]


def test_workers_of_one_kind_share_their_tasks() -> None:
    found = named(["pi5"], ["one:9091", "two:9091"])
    assert [(worker.name, worker.device, worker.place.rpc) for worker in found] == [
        ("one:9091", "cortex-a76", "one:9091"),
        ("two:9091", "cortex-a76", "two:9091"),
    ]


def test_a_tracker_hands_out_as_many_as_asked_for() -> None:
    found = named(["local"], tracker="rack:9190", count=3)
    assert len({worker.name for worker in found}) == 3
    assert {worker.place.rpc_tracker for worker in found} == {"rack:9190"}


def test_a_worker_that_does_not_answer_is_left_out_with_a_word() -> None:
    found = named(["pi5"], ["dead:1", "two:9091"])
    assert [worker.place.rpc for worker in found] == ["two:9091"]
    assert said == ["goes on without a device: dead:1: no session within 30 s"]
    with pytest.raises(DeviceError, match="dead:1"):
        named(["pi5"], ["dead:1"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["pi5"], ["a:1"], "rack:9190"), "exclude each other"),
        ((["pi5"], ["a:1"], None, 2), "--workers needs --rpc-tracker"),
        ((["pi4", "pi5"], ["a:1", "b:1", "c:1"]), "--device: got 2 for 3 addresses"),
        ((["pi4", "pi5"], None, "rack:9190"), "--device: got 2, allowed with --rpc-tracker: one"),
    ],
)
def test_what_cannot_be_meant_is_refused(arguments: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        named(*arguments)
