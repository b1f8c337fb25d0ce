"""The boards that a job's options mean: which devices there are, and which of them answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autofuse.environment.device import find_device
from autofuse.errors import DeviceError, InputError
from autofuse.job.settings import BoardSpec


def named_boards(
    devices: Sequence[str],
    rpc: Sequence[str],
    rpc_tracker: str | None,
    rpc_key: str | None,
    count: int | None,
    say: Callable[[str], None],
) -> list[BoardSpec]:
    """One board a device; or one an address of `rpc`, of one device or each of its own; or `count` behind a tracker.

    Boards elsewhere are asked what they are; one that does not answer is left out with a word, and DeviceError is
    raised when none does. InputError for what cannot be meant.
    """
    if rpc and rpc_tracker:
        raise InputError("--rpc and --rpc-tracker exclude each other: name the boards, or their tracker")
    if count is not None and not rpc_tracker:
        raise InputError("--boards needs --rpc-tracker: it says how many of the tracker's boards to use")
    if rpc and len(devices) not in (1, len(rpc)):
        raise InputError(f"--device: got {len(devices)} for {len(rpc)} boards of --rpc, allowed: one, or as many")
    if rpc_tracker and len(devices) != 1:
        raise InputError(f"--device: got {len(devices)}, allowed with --rpc-tracker: one (the kind is its --rpc-key)")
    wanted: list[tuple[str, str | None, str | None]]
    if rpc:
        named = devices if len(devices) == len(rpc) else [devices[0]] * len(rpc)
        wanted = [(device, address, None) for device, address in zip(named, rpc, strict=True)]
    elif rpc_tracker:
        wanted = [(devices[0], None, rpc_tracker)] * (count or 1)
    else:
        wanted = [(device, None, None) for device in devices]
    return _answering(wanted, rpc_key, say)


def _answering(
    wanted: Sequence[tuple[str, str | None, str | None]], rpc_key: str | None, say: Callable[[str], None]
) -> list[BoardSpec]:
    boards: list[BoardSpec] = []
    problems: list[DeviceError] = []
    for number, (device, rpc, tracker) in enumerate(wanted, 1):
        try:
            found = find_device(device, rpc, tracker, rpc_key)
            found.require_measurable()
        except DeviceError as error:
            problems.append(error)
            continue
        name = f"{device} {number}" if found.address is None else found.address.text
        name = f"{name} ({number})" if tracker else name
        kind = device if found.address is None else found.profile.name
        boards.append(BoardSpec(name, kind, device, rpc, tracker, rpc_key))
    if not boards:
        raise problems[0]
    for problem in problems:
        say(f"without a board: {problem}")
    return boards
