"""What every runner must do, wherever its device stands; subclassed once an implementation.

A subclass has a fixture `runner` of builders that misbehave on demand (see `rogue_builders`), with limits that a busy
machine keeps, and may say that its processes are elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autofuse.errors import DeviceError
from autofuse.measure.measurement import Measurement


def outcome(measured: Measurement) -> str:
    return measured.failure.kind if measured.failure else "ok"


def holders(runner: Any) -> Iterator[tuple[Any, str]]:
    """Where the limits of a runner stand: in it, and in the farm that builds for it."""
    yield runner, "limits"
    if hasattr(runner, "_farm"):
        yield runner._farm, "_limits"


@contextmanager
def shortened(runner: Any, **seconds: float) -> Iterator[None]:
    """The runner with other limits for a while: a test that waits for one to be reached waits a second, and what is
    measured before and after has all the time that a busy machine takes."""
    with pytest.MonkeyPatch.context() as patch:
        for holder, name in holders(runner):
            patch.setattr(holder, name, replace(getattr(holder, name), **seconds))
        yield


class RunnerContract:
    """The contract; tests of one runner that goes on working after each accident."""

    def test_a_good_candidate_is_built_checked_and_timed(self, runner: Any, ask: Any) -> None:
        (measured,) = runner.measure([ask()])
        assert measured.failure is None
        assert measured.median_us > 0.01
        assert measured.max_rel_error < 1e-6
        assert measured.build_s > 0
        assert measured.timing.slices
        assert measured.threads == 1

    def test_one_batch_holds_every_kind_of_end_and_each_candidate_gets_its_own(self, runner: Any, ask: Any) -> None:
        acts = ["good", "raise", "crash_build", "wrong", "good", "nan", "exit_build", "unwritten", "crash_run", "good"]
        kinds = ["ok", "build_error", "build_error", "wrong", "ok", "wrong", "build_error", "wrong", "run_error", "ok"]
        assert [outcome(measured) for measured in runner.measure([ask(act) for act in acts])] == kinds

    @pytest.mark.parametrize(
        ("act", "kind", "says"),
        [
            ("raise", "build_error", "tile 7 does not divide 12"),
            ("crash_build", "build_error", "SIGSEGV"),
            ("crash_run", "run_error", "SIGSEGV"),
            ("wrong", "wrong", "relative error"),
            ("unwritten", "wrong", "1 of 4096 elements"),
            ("writes_input", "wrong", "changed its input 0"),
        ],
    )
    def test_an_accident_says_what_happened(self, runner: Any, ask: Any, act: str, kind: str, says: str) -> None:
        (measured, after) = runner.measure([ask(act), ask()])
        assert measured.failure is not None
        assert (measured.failure.kind, outcome(after)) == (kind, "ok")
        assert says in measured.failure.message

    @pytest.mark.parametrize(("act", "limit"), [("hang_build", "build_s"), ("hang_run", "run_s")])
    def test_a_candidate_that_hangs_is_ended_and_the_next_one_is_good(
        self, runner: Any, ask: Any, act: str, limit: str
    ) -> None:
        with shortened(runner, **{limit: 1.0}):
            failure = runner.measure([ask(act)])[0].failure
        assert failure is not None
        assert failure.kind == "timeout"
        assert "no answer within" in failure.message
        assert outcome(runner.measure([ask()])[0]) == "ok"

    def test_a_candidate_whose_process_is_killed_is_tried_again(self, runner: Any, ask: Any, tmp_path: Path) -> None:
        """SIGKILL comes from outside; only a candidate under which it comes each time is taken for its cause."""
        mark = str(tmp_path / "mark")
        (once, always) = runner.measure([ask("killed_once", mark=mark), ask("killed")])
        assert (outcome(once), outcome(always)) == ("ok", "out_of_memory")
        assert "killed by the system" in always.failure.message

    def test_a_candidate_wrong_on_its_second_input_only_is_wrong(self, runner: Any, ask: Any) -> None:
        assert outcome(runner.measure([ask(cases_named="second bad")])[0]) == "wrong"

    def test_the_incumbent_stops_a_slower_candidate_early(self, runner: Any, ask: Any) -> None:
        (measured,) = runner.measure([ask(work=2_000, best_us=0.01)])
        assert measured.timing is not None
        assert measured.timing.stopped == "slower"

    def test_an_abandoned_batch_leaves_the_runner_usable(self, runner: Any, ask: Any) -> None:
        stream = runner.stream([ask("raise"), ask(), ask()])
        index, measured = next(stream)
        assert (index, outcome(measured)) == (0, "build_error")
        stream.close()
        assert outcome(runner.measure([ask()])[0]) == "ok"

    def test_an_empty_batch_is_no_work(self, runner: Any) -> None:
        assert runner.measure([]) == []

    def test_a_closed_runner_starts_anew_when_it_is_used(self, runner: Any, ask: Any) -> None:
        runner.close()
        assert outcome(runner.measure([ask()])[0]) == "ok"

    def test_a_device_says_who_it_is(self, runner: Any) -> None:
        described = runner.describe()
        assert described.host.cores >= 1
        assert described.host.features
        assert described.instance
        assert runner.name

    def test_a_library_that_is_none_is_refused(self, runner: Any, tmp_path: Path) -> None:
        path = tmp_path / "none.so"
        path.write_bytes(b"nothing")
        with pytest.raises((DeviceError, ValueError), match="not a library"):
            runner.outputs(path, {"x": np.zeros(1, "float32")})
