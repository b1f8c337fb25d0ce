"""The runner over RPC with a real server on this machine, and what becomes of both when something goes wrong."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from autofuse.device.address import Address
from autofuse.errors import DeviceError
from autofuse.measure.cluster.farm import BuildFarm
from autofuse.measure.measurement import Limits
from autofuse.measure.remote.link import BusyError, Link, LinkLimits, describe_device
from autofuse.measure.remote.remote_rates import probe_device
from autofuse.measure.remote.remote_runner import RemoteRunner
from autofuse.measure.timing.sampling import SamplingPolicy
from tests.measure.runner_contract import RunnerContract, outcome, shortened

pytestmark = pytest.mark.slow

KEY = "kept-secret"
QUICK = SamplingPolicy(cap_s=0.2, settle_probes=2)
SHORT = Limits(build_s=120, run_s=120)
LINK = LinkLimits(connect_s=60, start_s=60, recover_s=60)
BRIEF = replace(LINK, recover_s=3)
"""For devices that do not come back; the others may be slow, on a busy machine."""


def wait_until(happened: Callable[[], bool], what: str) -> None:
    """Returns once it has; a busy machine is given ten minutes."""
    deadline = time.monotonic() + 600.0
    while not happened():
        assert time.monotonic() < deadline, f"not within ten minutes: {what}"
        time.sleep(0.05)


ONLY_HERE = ("alembic", "lightgbm", "onnx", "onnxruntime", "optuna", "pandas", "scipy", "sqlalchemy")
"""Libraries that a board needs not have (README: TVM's runtime, numpy and a few small ones are enough there)."""
BARE = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"a board has no {name}", name=name)

sys.meta_path.insert(0, Missing())
"""


def bare_python(folder: Path, missing: Sequence[str]) -> str:
    """PYTHONPATH of processes that find none of the libraries `missing`, and the package as here."""
    (folder / "bare").mkdir(exist_ok=True)
    (folder / "bare" / "sitecustomize.py").write_text(BARE.replace("{missing!r}", repr(tuple(missing))))
    return os.pathsep.join([str(folder / "bare"), *filter(None, [os.environ.get("PYTHONPATH")])])


class Served:
    """`autofuse serve` in a process of its own, where the libraries `missing` are not installed."""

    def __init__(self, folder: Path, *options: str, port: int = 0, missing: Sequence[str] = ONLY_HERE) -> None:
        command = [sys.executable, "-m", "autofuse", "serve", "--port", str(port), "--key", KEY, *options]
        self.log = folder / "serve.log"
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
                env={**os.environ, "TMPDIR": str(folder), "PYTHONPATH": bare_python(folder, missing)},
            )  # fmt: skip
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("serving at 127.0.0.1:"), self.log.read_text()
        self.port = int(line.split(",")[0].rpartition(":")[2])
        self.address = Address("127.0.0.1", self.port, KEY)

    def sessions(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()

    def kill(self) -> None:
        for process in [*self.sessions(), self.process]:
            os.killpg(process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("served"))
    yield made
    made.kill()


def runner_at(address: Address, target: Any, rogues: Any, link: LinkLimits = LINK) -> RemoteRunner:
    farm = BuildFarm(target, workers=2, limits=SHORT, **rogues)
    return RemoteRunner(Link(address, link), farm, target, limits=SHORT, policy=QUICK)


@pytest.fixture(scope="class")  # its session would keep other clients waiting
def remote(served: Served, target: Any, rogues: Any) -> Iterator[RemoteRunner]:
    with runner_at(served.address, target, rogues) as made:
        yield made


@pytest.mark.long
class TestRemoteRunner(RunnerContract):
    @pytest.fixture
    def runner(self, remote: RemoteRunner) -> RemoteRunner:
        return remote


def test_a_wrong_key_is_refused_and_the_next_client_served(served: Served) -> None:
    with pytest.raises(DeviceError, match="refuses the key"):
        describe_device(Address("127.0.0.1", served.port, "guessed"), LINK)
    assert describe_device(served.address, LINK).host.cores >= 1
    assert "wrong key" in served.log.read_text()


@pytest.mark.parametrize("said", [b"GET / HTTP/1.0\r\n\r\n", b"", struct.pack("<ii", 0xFF271, 1 << 30)])
def test_strangers_and_silence_do_not_stop_the_server(served: Served, said: bytes) -> None:
    with socket.create_connection(("127.0.0.1", served.port)) as stranger:
        stranger.sendall(said)
        if said:
            assert describe_device(served.address, LINK).instance


def test_fifty_silent_connections_do_not_keep_a_client_waiting(served: Served) -> None:
    with ExitStack() as stack:
        for _ in range(50):
            stack.enter_context(socket.create_connection(("127.0.0.1", served.port)))
        assert describe_device(served.address, LINK).instance  # one after another they took 250 s


def test_nothing_listens_there_is_told(target: Any, rogues: Any, ask: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        free = probe.getsockname()[1]
    limits = LinkLimits(connect_s=10)
    with pytest.raises(DeviceError, match=f"127.0.0.1:{free}"):
        describe_device(Address("127.0.0.1", free, KEY), limits)
    with runner_at(Address("127.0.0.1", free, KEY), target, rogues, limits) as runner:
        assert {outcome(measured) for measured in runner.measure([ask(), ask()])} == {"device_lost"}


@pytest.mark.long
def test_a_hung_kernel_is_ended_on_the_device_too(served: Served, target: Any, rogues: Any, ask: Any) -> None:
    with runner_at(served.address, target, rogues) as runner:
        with shortened(runner, run_s=1.0):
            assert outcome(runner.measure([ask("hang_run")])[0]) == "timeout"
        with pytest.raises(DeviceError, match="serves somebody else"):
            describe_device(served.address, LinkLimits(connect_s=3))
        wait_until(lambda: len(served.sessions()) == 1, "the session that hung is gone")
        (session,) = served.sessions()
        wait_until(lambda: session.cpu_percent(0.3) < 50, "the new session is idle")
    wait_until(lambda: not served.sessions(), "a closed runner leaves no session")


def test_files_of_clients_stay_in_their_folder(served: Served) -> None:
    code = (
        "import sys; from tvm import rpc\n"
        f"session = rpc.connect('127.0.0.1', {served.port}, '{KEY}')\n"
        "session.upload(bytearray(b'x'), target='../../escaped')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode != 0
    assert "leads out of the session's folder" in done.stderr
    assert not list(served.log.parent.rglob("escaped"))


@pytest.mark.long
def test_a_device_that_is_gone_gives_all_its_candidates_back(
    tmp_path: Path, target: Any, rogues: Any, ask: Any
) -> None:
    served = Served(tmp_path)
    with runner_at(served.address, target, rogues, BRIEF) as runner:
        stream = runner.stream([ask() for _ in range(6)])
        first = next(stream)
        served.kill()
        rest = dict([first, *stream])
    assert sorted(rest) == list(range(6))
    kinds = [outcome(rest[index]) for index in range(6)]
    assert kinds.count("device_lost") >= 3
    assert set(kinds) <= {"ok", "device_lost"}
    assert "is lost" in next(m.failure.message for m in rest.values() if m.failure)


@pytest.mark.long
def test_a_device_that_restarts_measures_the_candidate_again(
    tmp_path: Path, target: Any, rogues: Any, ask: Any
) -> None:
    served = Served(tmp_path)
    with runner_at(served.address, target, rogues) as runner:
        stream = runner.stream([ask() for _ in range(5)])
        first = next(stream)
        served.kill()
        again = Served(tmp_path, port=served.port)
        try:
            found = dict([first, *stream])
        finally:
            again.kill()
    assert [outcome(found[index]) for index in range(5)] == ["ok"] * 5


@pytest.mark.long
def test_a_killed_session_costs_no_candidate(served: Served, target: Any, rogues: Any, ask: Any) -> None:
    """kill -9 of the process that holds the session here, then of the one there."""
    with runner_at(served.address, target, rogues) as runner:
        stream = runner.stream([ask() for _ in range(5)])
        found = dict([next(stream)])
        os.kill(runner._link.child.pid, signal.SIGKILL)
        found.update([next(stream)])
        for session in served.sessions():
            with suppress(psutil.NoSuchProcess):
                session.kill()
        found.update(stream)
    assert [outcome(found[index]) for index in range(5)] == ["ok"] * 5


@pytest.mark.long
def test_a_tracker_hands_the_device_out_and_takes_it_back(tmp_path: Path, target: Any, rogues: Any, ask: Any) -> None:
    code = (
        "import sys, time; from tvm.rpc.tracker import Tracker\n"
        "tracker = Tracker('127.0.0.1', 19190, 19290, silent=True)\n"
        "print(tracker.port, flush=True); sys.stdin.read(); tracker.terminate()\n"
    )
    pipe = subprocess.PIPE
    tracker = subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True)
    assert tracker.stdout is not None
    port = int(tracker.stdout.readline())
    served = Served(tmp_path, "--tracker", f"127.0.0.1:{port}", "--announce", "127.0.0.1")
    try:
        address = Address("127.0.0.1", port, KEY, tracker=True)
        for _ in range(2):
            with runner_at(address, target, rogues) as runner:
                assert outcome(runner.measure([ask()])[0]) == "ok"
        other = Address("127.0.0.1", port, "another-kind", tracker=True)
        with pytest.raises(DeviceError, match="no device became free within 3 s"):
            describe_device(other, LinkLimits(connect_s=3))
    finally:
        served.kill()
        tracker.communicate("")


@pytest.mark.parametrize("by", ["file", "environment"])
def test_a_key_that_was_not_given_on_the_command_line_is_not_printed(tmp_path: Path, by: str) -> None:
    (tmp_path / "key").write_text("hidden-word\n")
    command = [sys.executable, "-m", "autofuse", "serve", "--port", "0"]
    environment = dict(os.environ)
    if by == "file":
        command += ["--key-file", str(tmp_path / "key")]
    else:
        environment["AUTOFUSE_RPC_KEY"] = "hidden-word"
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    port = int(first.split(",")[0].rpartition(":")[2])
    assert describe_device(Address("127.0.0.1", port, "hidden-word"), LINK).instance
    process.terminate()
    said = "".join(process.communicate(timeout=600))
    assert "hidden-word" not in first + said


def test_serving_beyond_this_machine_is_warned_of(tmp_path: Path) -> None:
    done = subprocess.Popen(
        [sys.executable, "-m", "autofuse", "serve", "--host", "0.0.0.0", "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert done.stdout is not None
    first = done.stdout.readline()
    done.terminate()
    _, said = done.communicate(timeout=600)
    assert "serving at 0.0.0.0:" in first
    assert "without encryption" in said
    assert done.returncode != 0


@pytest.mark.long
def test_the_peak_rates_of_a_device_are_probed_there(served: Served, target: Any) -> None:
    threads = min(2, len(os.sched_getaffinity(0)))
    rates = probe_device(served.address, target, threads, limits=LINK)
    assert rates.threads == threads and 0.1 < rates.gflops_1 < 2000 and rates.gflops_n > 0.1
    assert rates.l2_gbs_1 > 0.1 and rates.dram_gbs_n > 0.1
    with pytest.raises(DeviceError):
        probe_device(Address("127.0.0.1", served.port, "guessed"), target, 1, limits=LINK)


@pytest.mark.parametrize(("busy_s", "answers"), [(300.0, True), (0.0, False)])
def test_the_outputs_of_a_plan_wait_for_a_device_that_others_hold(
    busy_s: float, answers: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    link = Link(Address("127.0.0.1", 9190, "rack", tracker=True), LinkLimits(busy_s=busy_s))
    farm: Any = None
    target: Any = None
    runner = RemoteRunner(link, farm, target)
    said = iter([BusyError("all held"), BusyError("all held"), DeviceError("the session broke"), BusyError("held")])

    def outputs(_library: Path, _inputs: object) -> list[Any]:
        for error in said:
            raise error
        return ["right"]

    monkeypatch.setattr(runner, "_outputs", outputs)
    if answers:
        assert runner.outputs(tmp_path, {}) == ["right"]
    else:
        with pytest.raises(BusyError, match="all held"):
            runner.outputs(tmp_path, {})
