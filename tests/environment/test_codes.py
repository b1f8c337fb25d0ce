"""What a search takes as known: only what would come out as the very code that was measured."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from autofuse.database.records import MeasuredSchedule
from autofuse.device.target import Target
from autofuse.environment import codes
from autofuse.environment.codes import Codes
from autofuse.kernels.tir.digest import digest
from autofuse.kernels.workload.workload import Value, Workload, WorkloadOperator
from autofuse.measure.measurement import Failure, Measurement

TARGET = Target("znver3", 8, 16, 2, 32768, 524288)
VERSIONS = {"tvm": "0.27", "tvm_ffi": "0.1", "llvm": "22"}


def workload(op_type: str) -> Workload:
    value = Value("input", (8, 8), "float32")
    return Workload((value, replace(value, kind="output")), (WorkloadOperator(op_type, (0,), (1,)),), 17)


OWN, IMPORTED = workload("Relu"), workload("CumSum")


def stored(digest: str, us: float | None = 5.0, versions: dict[str, str] | None = None) -> MeasuredSchedule:
    return MeasuredSchedule(
        candidate_id=1, workload_key=OWN.key, schedule='{"elementwise.tasks":2}', schedule_key="", tier="exact",
        state="ok" if us else "wrong", digest=digest, versions=json.dumps(versions or VERSIONS), failure=None,
        median_us=us, ci_lo_us=us, ci_hi_us=us, trusted=True, max_rel_error=None, build_s=None,
    )  # fmt: skip


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Codes:
    """Every kernel's code is what `emitted` says; how often it was asked stands in `asked`."""
    monkeypatch.setattr(codes, "emitted_code", lambda *_: "c" * 64)
    return Codes(TARGET, VERSIONS)


def of(code: str, **versions: str) -> str:
    return digest(code, TARGET, VERSIONS | versions)


def test_a_time_of_other_code_is_not_known(known: Codes) -> None:
    assert known.knows(OWN, stored(of("c" * 64)))
    assert not known.knows(OWN, stored(of("b" * 64)))
    assert not known.knows(OWN, stored("kernels-7")) and not known.knows(OWN, stored(""))


def test_what_other_versions_built_is_not_known_but_what_builds_nothing_does_not_count(known: Codes) -> None:
    newer = VERSIONS | {"llvm": "23"}
    assert not known.knows(OWN, stored(of("c" * 64, llvm="23"), versions=newer))
    assert known.knows(OWN, stored(of("c" * 64), versions=VERSIONS | {"tvm_ffi": "0.2"}))


def test_nothing_is_emitted_for_a_row_that_cannot_be_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> str:
        raise AssertionError("a kernel was emitted")

    monkeypatch.setattr(codes, "emitted_code", never)
    known = Codes(TARGET, VERSIONS)
    assert not known.knows(OWN, stored("kernels-7"))
    assert not known.knows(OWN, stored(of("c" * 64), versions=VERSIONS | {"tvm": "0.26"}))
    assert known.knows(IMPORTED, stored("", us=None)), "what crashed in another process is not tried in this one"


def test_the_process_that_built_a_kernel_says_which_code_it_is(known: Codes) -> None:
    failed = Failure("run_error", "it crashed")
    schedule = {"elementwise.tasks": 2}
    assert known.measured(OWN, schedule, Measurement(failure=failed)) == of("c" * 64), "emitted here"
    assert known.measured(IMPORTED, schedule, Measurement(failure=failed)) == ""
    assert known.measured(OWN, schedule, Measurement(failure=failed, code="a" * 64)) == of("a" * 64)
    assert known.knows(OWN, stored(of("a" * 64))), "and it is not emitted here again"


def test_a_schedule_without_a_kernel_has_no_digest_and_its_failure_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codes, "emitted_code", lambda *_: "")
    known = Codes(TARGET, VERSIONS)
    assert known.now(OWN, {}) == "" and known.knows(OWN, stored("", us=None))
    assert not known.knows(OWN, stored(of("c" * 64)))
