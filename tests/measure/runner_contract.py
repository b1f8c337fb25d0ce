"""What every runner must do, wherever its device stands; subclassed once an implementation.

A subclass has a fixture `runner` of builders that misbehave on demand (see `rogue_builders`), with limits short enough
for tests, and may say that its processes are elsewhere.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autofuse.errors import DeviceError
from autofuse.measure.measurement import Measurement


def outcome(measured: Measurement) -> str:
    return measured.failure.kind if measured.failure else "ok"


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
            ("hang_build", "timeout", "no answer within"),
            ("hang_run", "timeout", "no answer within"),
            ("writes_input", "wrong", "changed its input 0"),
        ],
    )
    def test_an_accident_says_what_happened(self, runner: Any, ask: Any, act: str, kind: str, says: str) -> None:
        (measured, after) = runner.measure([ask(act), ask()])
        assert measured.failure is not None
        assert (measured.failure.kind, outcome(after)) == (kind, "ok")
        assert says in measured.failure.message

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
