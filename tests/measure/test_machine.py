import pytest

from autofuse.errors import DeviceError
from autofuse.measure.machine import probe_machine


def test_the_rates_of_this_machine_are_plausible_and_ordered(target):
    rates = probe_machine(target, target.cores)
    assert 1 < rates.gflops_1 < 1000
    assert rates.gflops_n > 0.1 * rates.gflops_1
    assert 0.5 < rates.dram_gbs_1 < 500
    assert rates.l2_gbs_1 > 0.1 * rates.dram_gbs_1, "by far; a neighbour takes its part of either"
    assert rates.threads == target.cores


def test_a_child_that_cannot_start_is_a_device_error(target, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    with pytest.raises(DeviceError, match="cannot start"):
        probe_machine(target, 1)
