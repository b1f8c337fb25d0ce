"""Device profiles: every shipped file loads, bad files say what to change, and codes that cannot run are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from autofuse.device.profile import (
    DeviceProfile,
    ProbedRates,
    load_profile,
    require_measurable,
    resolve_profile,
    shipped_profiles,
)
from autofuse.errors import DeviceError, InputError

GOOD = """\
schema = 1
name = "board"
architecture = "aarch64"
mcpu = "cortex-a72"
mtriple = "aarch64-linux-gnu"
mattr = ["+neon"]
lanes = 4
registers = 32
cores = 4
threads = 2
pinning = [0, 2]
features = ["neon"]

[caches]
l1d_kib = 32
l2_kib = 1024
l2_cores = 4
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "board.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def host() -> DeviceProfile:
    return load_profile(shipped_profiles()["zen3"])


@pytest.mark.parametrize("name", shipped_profiles())
def test_every_shipped_profile_loads_under_its_file_name(name: str) -> None:
    profile = load_profile(shipped_profiles()[name])
    assert profile.name == name
    assert profile.target().isa in ("avx2", "avx512", "neon")
    assert profile.description


def test_the_shipped_profiles_cover_the_families_that_we_promise() -> None:
    promised = {"generic-avx2", "generic-avx512", "zen3", "zen4", "raspberry-pi-4", "raspberry-pi-5", "neoverse-n1"}
    assert promised <= set(shipped_profiles())


def test_a_shared_l2_counts_with_one_cores_share(tmp_path: Path) -> None:
    target = load_profile(written(tmp_path, GOOD)).target()
    assert (target.l1_bytes, target.l2_bytes) == (32 * 1024, 256 * 1024)
    assert (target.isa, target.mtriple, target.mattr) == ("neon", "aarch64-linux-gnu", ("+neon",))


def test_a_profile_survives_being_written_and_read(tmp_path: Path) -> None:
    profile = load_profile(written(tmp_path, GOOD))
    assert load_profile(written(tmp_path, profile.to_toml())) == profile


def test_what_was_probed_is_written_and_read_with_it(tmp_path: Path) -> None:
    rates = ProbedRates(threads=2, gflops_1=40.25, l1_ns=1.2, dispatch_us=0.8)
    probed = load_profile(written(tmp_path, GOOD)).model_copy(update={"rates": rates})
    assert load_profile(written(tmp_path, probed.to_toml())) == probed
    with pytest.raises(InputError, match=r"key 'rates\.gflops': .*unknown|key 'rates.gflops' is unknown"):
        load_profile(written(tmp_path, probed.to_toml().replace("gflops_1", "gflops")))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("schema = 1", "schema = 2", "key 'schema': got 2, allowed: 1"),
        ("schema = 1\n", "", "key 'schema': got None, allowed: 1"),
        ("lanes = 4", "lanes = 5", "key 'lanes': got 5, it should be 4, 8 or 16"),
        ("lanes = 4", 'lanes = "4"', "key 'lanes': got '4', it should be 4, 8 or 16"),
        ("cores = 4\n", "", "key 'cores' is missing"),
        ("cores = 4\n", "cores = 0\n", "key 'cores': got 0, it should be greater than or equal to 1"),
        ("threads = 2", "threads = 5", "threads = 5 is more than cores = 4"),
        ("cores = 4", "cores = 4\ncolour = 1", "key 'colour' is unknown, allowed: schema, name"),
        ("l2_kib = 1024", "l2 = 1024", "key 'caches.l2' is unknown, allowed: l1d_kib, l2_kib"),
        ('["+neon"]', '["neon"]', "'neon' must be a feature with its sign"),
        ("pinning = [0, 2]", "pinning = [0]", "pinning names 1 CPUs for threads = 2"),
        ("pinning = [0, 2]", 'pinning = "some"', "key 'pinning': got 'some', it should be 'cores', 'none' or a list"),
        ('mtriple = "aarch64-linux-gnu"\n', "", "key 'mtriple' is missing: aarch64 needs one"),
        ('"aarch64"', '"x86_64"', "mtriple = 'aarch64-linux-gnu' is not of architecture = 'x86_64'"),
        ('"aarch64"', '"riscv"', "key 'architecture': got 'riscv', it should be 'x86_64' or 'aarch64'"),
        ('"board"', '"A Board"', "key 'name': got 'A Board'"),
        ("schema = 1", "schema 1", "not a TOML file"),
    ],
)
def test_a_bad_profile_names_file_key_value_and_what_is_allowed(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    path = written(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(InputError) as caught:
        load_profile(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_a_profile_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the device profile"):
        load_profile(tmp_path / "absent.toml")


def test_device_means_the_host_a_shipped_name_or_a_file(tmp_path: Path, host: DeviceProfile) -> None:
    assert resolve_profile("local", host) is host
    assert resolve_profile("neoverse-n1", host).mcpu == "neoverse-n1"
    assert resolve_profile(str(written(tmp_path, GOOD)), host).name == "board"


def test_an_unknown_device_lists_the_known_ones(host: DeviceProfile) -> None:
    with pytest.raises(InputError, match=r"'pi' is unknown; allowed: local, .*raspberry-pi-4.*\.toml file"):
        resolve_profile("pi", host)


def test_a_device_that_this_cpu_covers_may_be_measured_here(host: DeviceProfile) -> None:
    require_measurable(resolve_profile("generic-avx2", host), host)


def test_a_device_with_features_that_this_cpu_lacks_is_refused_with_the_reason(host: DeviceProfile) -> None:
    with pytest.raises(DeviceError, match="'zen4' needs avx512f, .*which this machine's CPU does not offer"):
        require_measurable(resolve_profile("zen4", host), host)


def test_a_device_of_another_architecture_is_refused_with_the_reason(host: DeviceProfile) -> None:
    with pytest.raises(DeviceError, match="'raspberry-pi-5' is aarch64 and this machine is x86_64"):
        require_measurable(resolve_profile("raspberry-pi-5", host), host)
