"""A small database, and builders of what goes into it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from autofuse.database.database import ProfilingDatabase
from autofuse.database.records import Candidate, CandidateOutcome, RunStart, SampleBlock, Setting, content_key
from autofuse.device.target import Target

TARGET = Target("znver4", 16, 32, 2, 32768, 1 << 20)
MakeSetting = Callable[..., Setting]
MakeOutcome = Callable[..., CandidateOutcome]
MakeRun = Callable[..., RunStart]


@pytest.fixture
def make_setting(database: ProfilingDatabase) -> MakeSetting:
    def make(
        device: str = "laptop", threads: int = 1, tvm: str = "0.27", into: ProfilingDatabase = database
    ) -> Setting:
        return into.setting(
            fingerprint=content_key(device),
            device_name=device,
            device_facts={"cores": 2},
            target=TARGET,
            threads=threads,
            versions={"tvm": tvm},
        )

    return make


@pytest.fixture
def setting(make_setting: MakeSetting) -> Setting:
    return make_setting()


@pytest.fixture
def make_outcome() -> MakeOutcome:
    def make(
        workload: str = "conv",
        tile: int = 8,
        us: float | None = 100.0,
        trusted: bool = True,
        code: str = "today",
        **more: object,
    ) -> CandidateOutcome:
        candidate = Candidate(
            content_key(workload),
            f'"{workload}"',
            workload,
            f'{{"tile": {tile}}}',
            content_key(f"{workload} {tile} {code}"),
        )
        if us is None:
            return CandidateOutcome(
                candidate=candidate,
                **{"state": "build_error", "failure": "LLVM said no", **more},  # type: ignore[arg-type]
            )
        blocks = tuple(SampleBlock((us * 0.99, us, us * 1.01), 1.0) for _ in range(3))
        times = {"median_us": us, "ci_lo_us": us * 0.99, "ci_hi_us": us * 1.01, "trusted": trusted, "blocks": blocks}
        return CandidateOutcome(candidate=candidate, **{"state": "ok", **times, **more})  # type: ignore[arg-type]

    return make


@pytest.fixture
def make_run() -> MakeRun:
    def make(name: str = "night", model: str = "net") -> RunStart:
        return RunStart(
            name=name,
            model_name=f"{model}.onnx",
            model_sha256=content_key(model),
            graph_key=content_key(f"graph of {model}"),
            seed=7,
            arguments={"budget": "10m"},
            provenance={"governor": None, "mhz": 3700},
        )

    return make
