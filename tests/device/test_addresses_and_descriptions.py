"""How devices are reached, what they say of themselves, and when a profile is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autofuse.backend.compile.host_cpu import device_named, local_device
from autofuse.cli.main import app
from autofuse.device.address import KEY_VARIABLE, Address, choose_address, parse_address, told_key
from autofuse.device.arm_cores import core_name
from autofuse.device.description import DeviceDescription
from autofuse.device.profile import (
    Connection,
    DeviceProfile,
    load_profile,
    require_features,
    require_measurable,
    resolve_profile,
    shipped_profiles,
)
from autofuse.device.provenance import Provenance
from autofuse.errors import DeviceError, InputError

ARM = sorted(name for name, path in shipped_profiles().items() if load_profile(path).architecture == "aarch64")


def shipped(name: str) -> DeviceProfile:
    return load_profile(shipped_profiles()[name])


def test_every_kind_of_device_that_is_promised_has_a_profile() -> None:
    promised = {
        *("generic-avx2", "generic-avx512", "zen4", "raspberry-pi-3", "raspberry-pi-4", "raspberry-pi-5"),
        *("jetson-orin", "graviton2", "graviton3", "graviton4", "apple-m1", "snapdragon-888"),
    }
    assert promised <= set(shipped_profiles())
    cores = {shipped(name).mcpu for name in ARM}
    assert {"cortex-a53", "cortex-a72", "cortex-a76", "cortex-a78ae", "neoverse-n1", "neoverse-v1"} <= cores


@pytest.mark.parametrize("name", ARM)
def test_llvm_knows_the_core_of_every_shipped_profile_and_gives_it_the_features(name: str) -> None:
    profile = device_named(name)
    assert (profile.lanes, profile.registers) == (4, 32)
    assert profile.governor == "performance"


def test_cores_that_differ_are_listed_by_cluster() -> None:
    phone = shipped("snapdragon-888")
    assert [(cluster.core, cluster.cores) for cluster in phone.clusters] == [
        ("cortex-x1", 1),
        ("cortex-a78", 3),
        ("cortex-a55", 4),
    ]
    assert set(phone.pinning) == {4, 5, 6, 7}, "the four larger ones"
    assert phone.threads == 4


def test_a_feature_that_the_core_lacks_is_refused_with_the_features_it_has() -> None:
    wrong = shipped("raspberry-pi-4").model_copy(update={"mattr": ("+neon", "+dotprod")})
    with pytest.raises(InputError, match=r"'raspberry-pi-4': key 'mattr': cortex-a72 has no dotprod.*neon"):
        require_features(wrong, {"neon", "aes", "crc"})


def test_a_profile_file_with_a_wrong_core_or_feature_is_refused_as_device(tmp_path) -> None:
    path = tmp_path / "board.toml"
    text = shipped("raspberry-pi-4").to_toml()
    path.write_text(text.replace('"cortex-a72"', '"cortex-a72x"'))
    with pytest.raises(
        InputError, match=r"mcpu 'cortex-a72x' is not known for aarch64-linux-gnu; allowed: .*cortex-a72"
    ):
        device_named(str(path))
    path.write_text(text.replace('features = ["neon"]', 'features = ["neon", "i8mm"]'))
    with pytest.raises(InputError, match="key 'features': cortex-a72 has no i8mm"):
        device_named(str(path))


def test_a_cpu_that_is_not_the_profiles_is_refused_with_the_difference() -> None:
    board = shipped("raspberry-pi-4")
    other = board.model_copy(update={"mcpu": "cortex-a76", "features": ("neon", "dotprod")})
    with pytest.raises(DeviceError, match="is for cortex-a72, the CPU is cortex-a76"):
        require_measurable(board, other, "the device at pi:9091")
    require_measurable(board, board, "the device at pi:9091")


def test_a_probed_profile_fits_the_machine_it_was_probed_on_and_no_other() -> None:
    host = local_device()
    require_measurable(host, host)
    other = host.model_copy(update={"caches": host.caches.model_copy(update={"l2_kib": host.caches.l2_kib * 2})})
    with pytest.raises(DeviceError, match=rf"l2_kib {host.caches.l2_kib} in the profile, {other.caches.l2_kib} in"):
        require_measurable(host, other)


def test_generic_profiles_fit_any_cpu_with_their_features() -> None:
    host = shipped("zen4")
    require_measurable(resolve_profile("generic-avx512", host), host)
    with pytest.raises(DeviceError, match="for znver3, the CPU is znver4"):
        require_measurable(resolve_profile("zen3", host), host)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("cores = 8", "cores = 9", "cores = 9, but its clusters have 1 + 3 + 4"),
        ('mcpu = "cortex-a78"', 'mcpu = "cortex-a72"', "mcpu = 'cortex-a72' is the core of no cluster"),
        ("cpus = [7]", "cpus = [-1]", "key 'clusters.0.cpus.0': got -1"),
        ("cool_down_s = 60.0", "cool_down_s = -1.0", "key 'cool_down_s': got -1.0"),
        ("[caches]", '[connection]\nkind = "rpc"\n[caches]', "kind = 'rpc' needs an address"),
        ("[caches]", '[connection]\nkind = "usb"\n[caches]', "key 'connection.kind': got 'usb'"),
    ],
)
def test_a_bad_cluster_or_connection_says_what_is_wrong(tmp_path, old: str, new: str, message: str) -> None:
    path = tmp_path / "phone.toml"
    path.write_text(shipped_profiles()["snapdragon-888"].read_text().replace(old, new, 1))
    with pytest.raises(InputError) as caught:
        load_profile(path)
    assert message in str(caught.value)


def test_a_profile_says_how_its_device_is_reached(tmp_path) -> None:
    path = tmp_path / "phone.toml"
    text = shipped("snapdragon-888").to_toml().replace('kind = "local"', 'kind = "rpc"\naddress = "phone.lan:9100"')
    path.write_text(text)
    profile = load_profile(path)
    assert profile.connection.address_or_none("secret") == choose_address("phone.lan:9100", None, "secret")
    assert load_profile(_written(tmp_path, profile)) == profile
    with pytest.raises(InputError, match="--rpc-key .*is missing"):
        profile.connection.address_or_none(None)
    assert shipped("zen3").connection.address_or_none(None) is None


def _written(folder, profile: DeviceProfile):
    path = folder / "again.toml"
    path.write_text(profile.to_toml())
    return path


@pytest.mark.parametrize(
    ("text", "parts"),
    [("board.lan:9091", ("board.lan", 9091)), ("[::1]:80", ("::1", 80)), (" 10.0.0.2:65535", ("10.0.0.2", 65535))],
)
def test_addresses_are_host_and_port(text: str, parts: tuple[str, int]) -> None:
    assert parse_address(text, "--rpc") == parts


@pytest.mark.parametrize(
    "text",
    [
        "board",
        "board:",
        ":9091",
        "board:0",
        "board:65536",
        "a b:1",
        "::1:80",
        "x:1e3",
        "a..b:1",
        ".:1",
        f"{'x' * 64}:1",
    ],
)
def test_anything_else_is_refused_by_the_name_of_the_option(text: str) -> None:
    with pytest.raises(InputError, match=r"--rpc-tracker: got .*, allowed: HOST:PORT"):
        parse_address(text, "--rpc-tracker")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("h:1", "t:1", "k"), "exclude each other"),
        ((None, None, "k"), "--rpc-key needs --rpc"),
        (("h:1", None, None), "AUTOFUSE_RPC_KEY.* is missing: the key that `autofuse serve` printed"),
        ((None, "t:1", None), "--rpc-key-file.* is missing: the key that the devices are registered under"),
        (("h:1", None, "a b"), "--rpc-key: got 'a b'"),
    ],
)
def test_options_that_clash_say_so(given: tuple[str | None, str | None, str | None], message: str) -> None:
    with pytest.raises(InputError, match=message):
        choose_address(*given)


def test_the_key_may_stand_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("kept.secret\n")
    assert told_key(None, file) == "kept.secret"
    assert told_key("given", None) == "given"
    assert told_key(None, None) is None


@pytest.mark.parametrize("content", [b"", b"two words", b"one\ntwo\n", b"\xff\xfe", b"x" * 5000])
def test_a_file_that_holds_no_key_is_refused_without_showing_it(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "key"
    file.write_bytes(content)
    with pytest.raises(InputError, match="--rpc-key-file") as caught:
        told_key(None, file)
    assert "two" not in str(caught.value)


def test_a_key_and_a_file_or_no_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--key and --key-file exclude each other"):
        told_key("a", tmp_path / "b", "--key")
    with pytest.raises(InputError, match="--rpc-key-file: cannot read .*No such file"):
        told_key(None, tmp_path / "b")


def test_the_key_of_the_environment_counts_where_an_address_needs_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "from.environment")
    assert choose_address("h:1", None, None) == choose_address("h:1", None, "from.environment")
    assert choose_address("h:1", None, "given") == Address("h", 1, "given")
    assert choose_address(None, None, None) is None
    profile = Connection(kind="rpc", address="h:1", key="of.profile")
    assert profile.address_or_none(None) == Address("h", 1, "from.environment")
    monkeypatch.setenv(KEY_VARIABLE, "no key")
    with pytest.raises(InputError, match="AUTOFUSE_RPC_KEY: got something else"):
        choose_address("h:1", None, None)


@pytest.mark.parametrize("verb", ["doctor", "tune", "compile", "bench"])
def test_every_verb_with_a_key_takes_a_file_too(verb: str) -> None:
    shown = CliRunner().invoke(app, [verb, "--help"], terminal_width=200).output
    assert "--rpc-key KEY" in shown
    assert "--rpc-key-file FILE" in shown


def test_a_servers_key_stays_out_of_what_is_shown() -> None:
    direct, handed_out = choose_address("h:1", None, "secret"), choose_address(None, "t:2", "pi5")
    assert direct is not None and handed_out is not None
    assert direct.text == "h:1"
    assert handed_out.text == "pi5 at tracker t:2"
    assert choose_address(None, None, None) is None


def test_a_description_survives_the_wire_and_another_version_is_told() -> None:
    described = DeviceDescription(local_device(), Provenance(kernel="6.1", mhz=1800.0), "boot-1")
    assert DeviceDescription.from_json(described.to_json()) == described
    newer = {**described.to_json(), "provenance": {**Provenance().as_dict(), "colour": "red"}}
    assert DeviceDescription.from_json(newer).provenance == Provenance()
    for damaged in ({}, {**described.to_json(), "host": {"name": "x"}}, "text"):
        with pytest.raises(DeviceError, match="same version of autofuse"):
            DeviceDescription.from_json(damaged)
    assert replace(described, instance="boot-2") != described


def test_arm_cores_are_told_by_their_numbers() -> None:
    assert core_name("0x41", "0xd0b") == "cortex-a76"
    assert core_name("0x41", "0xd40") == "neoverse-v1"
    assert core_name("0x41", "0xfff") is None
    assert core_name("", "") is None
