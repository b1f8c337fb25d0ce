"""The stand-in for a device takes every call that the real thing takes, so that it cannot drift from it unseen."""

from __future__ import annotations

from inspect import Parameter, signature
from typing import Any

import pytest

from autofuse.environment.device import open_runner
from autofuse.measure.networks.libraries import build_libraries
from autofuse.measure.runner import Runner

CALLS = {
    **{name: getattr(Runner, name) for name in ("measure", "stream", "race", "outputs", "close")},
    "build": build_libraries,
    "__call__": open_runner,
}


@pytest.mark.parametrize("name", CALLS)
def test_the_stand_in_takes_what_the_real_one_takes(name: str, device: Any) -> None:
    real = signature(CALLS[name]).parameters.values()
    own = signature(getattr(device, name))
    given = [one for one in real if one.name != "self" and one.kind != Parameter.KEYWORD_ONLY]
    named = [one.name for one in real if one.kind == Parameter.KEYWORD_ONLY]
    required = [one.name for one in given if one.default is Parameter.empty]
    optional = [one.name for one in given if one.default is not Parameter.empty]
    own.bind(*(one.name for one in given), **dict.fromkeys(named))
    own.bind(*required, **dict.fromkeys((*optional, *named)))
