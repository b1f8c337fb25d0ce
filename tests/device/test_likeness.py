"""How alike two devices are: by the numbers that decide a kernel's best schedule, never by what they are called."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest

from autofuse.device.likeness import RATES, DeviceNumbers
from autofuse.device.profile import ProbedRates
from autofuse.measure.machine import MachineRates

FACTS = {"architecture": "x86_64", "mcpu": "one", "caches": {"l3_kib": 8192, "l3_cores": 4}}
TARGET = {"mcpu": "one", "lanes": 16, "registers": 32, "l1_bytes": 32768, "l2_bytes": 1 << 20}


def numbers(rates: dict[str, float] | None = None, facts: dict[str, Any] | None = None, **target: Any) -> DeviceNumbers:
    found = DeviceNumbers.of({**FACTS, **(facts or {})}, json.dumps({**TARGET, **target}), rates)
    assert found is not None
    return found


def test_a_device_is_as_near_to_itself_as_can_be() -> None:
    assert numbers({"gflops_1": 100.0}).doublings(numbers({"gflops_1": 100.0})) == 0.0


def test_names_do_not_count() -> None:
    other = numbers(None, {"mcpu": "another", "cpu": {"vendor": "Other", "family": "7"}}, mcpu="another")
    assert numbers().doublings(other) == 0.0


@pytest.mark.parametrize("other", [{"lanes": 8}, {"registers": 16}])
def test_other_vectors_are_other_code(other: dict[str, int]) -> None:
    assert numbers().doublings(numbers(**other)) is None
    assert numbers().doublings(numbers(None, {"architecture": "aarch64"})) is None


def test_caches_of_twice_the_size_are_a_doubling_apart() -> None:
    twice = numbers(None, {"caches": {"l3_kib": 16384, "l3_cores": 4}}, l1_bytes=65536, l2_bytes=2 << 20)
    assert numbers().doublings(twice) == twice.doublings(numbers()) == pytest.approx(1.0)


def test_rates_count_as_much_as_sizes_where_both_were_probed() -> None:
    fast = numbers({"gflops_1": 400.0, "dram_gbs_1": 40.0})
    assert numbers({"gflops_1": 100.0, "dram_gbs_1": 10.0}).doublings(fast) == pytest.approx(1.0)
    assert numbers().doublings(fast) == 0.0, "one that nobody probed is judged by its sizes"


def test_a_rate_that_was_not_probed_is_no_rate() -> None:
    assert numbers({"l1_ns": 0.0, "gflops_1": 100.0}).rates == {"gflops_1": 100.0}
    assert numbers({"threads": 2, "gflops_n": 100.0}).rates == {}, "rates of several threads depend on how many"


@pytest.mark.parametrize("text", ["", "[]", '{"lanes": 16}', '{"lanes": "wide", "registers": 32}'])
def test_a_damaged_target_has_no_numbers(text: str) -> None:
    assert DeviceNumbers.of(FACTS, text) is None


def test_a_cache_that_nobody_describes_is_left_out() -> None:
    assert "l3_bytes" not in numbers(None, {"caches": {"l3_kib": 0, "l3_cores": 0}}).sizes
    assert numbers(None, {"caches": None}).doublings(numbers()) == 0.0


def test_what_is_probed_is_called_the_same_everywhere() -> None:
    names = {one.name for one in fields(MachineRates)}
    assert set(ProbedRates.model_fields) == names and set(RATES) < names
