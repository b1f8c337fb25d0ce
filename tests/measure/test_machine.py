import pytest

from autofuse.errors import DeviceError
from autofuse.kernels.families.narrow.instructions import bfloat16_multipliers
from autofuse.measure.machine import probe_machine


def test_the_rates_of_this_machine_are_plausible_and_ordered(target):
    rates = probe_machine(target, target.cores)
    assert 1 < rates.gflops_1 < 1000
    assert rates.gflops_n > 0.1 * rates.gflops_1
    assert 0.5 < rates.dram_gbs_1 < 500
    assert rates.l2_gbs_1 > 0.1 * rates.dram_gbs_1, "by far; a neighbour takes its part of either"
    assert rates.threads == target.cores


@pytest.mark.long
def test_each_level_of_memory_answers_later_than_the_one_before(target):
    rates = probe_machine(target, 1, l3_bytes=32 << 20)
    assert 0.1 < rates.l1_ns < rates.l2_ns < rates.l3_ns and rates.dram_ns > rates.l2_ns
    assert rates.l1_gbs_1 > rates.dram_gbs_1 and rates.l3_gbs_1 > 0.5
    assert rates.gflops_1 > rates.add_gflops_1 > rates.divide_gflops_1 > 0.1, "two operations, one, and a slow one"
    assert 0.0 < rates.dispatch_us < 1000.0


@pytest.mark.long
def test_a_machine_without_a_third_cache_has_no_rates_of_it(target):
    rates = probe_machine(target, 1)
    assert (rates.l3_ns, rates.l3_gbs_1) == (0.0, 0.0)


def test_a_child_that_cannot_start_is_a_device_error(target, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    with pytest.raises(DeviceError, match="cannot start"):
        probe_machine(target, 1)


@pytest.mark.long
def test_an_instruction_on_bfloat16_has_a_rate_where_there_is_one(target):
    rates = probe_machine(target, 1)
    assert (rates.dots_gflops_1 > 0.1) == ("dots" in bfloat16_multipliers(target))
