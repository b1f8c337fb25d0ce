"""The database as training data: which times count, and which decisions they decide."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autofuse.database.ask.training import TimedWorkload, networks_of_workloads, timed_workloads
from autofuse.database.database import open_database
from autofuse.database.records import Candidate, CandidateOutcome
from autofuse.device.target import Target
from autofuse.kernels.workload.workload import Value, Workload, WorkloadOperator
from autofuse.learning.dataset import Dataset, feature_columns, make_dataset, read_dataset


def workload(kinds: tuple[str, ...], size: int = 1000) -> Workload:
    """A chain of operators on one tensor."""
    last = len(kinds)
    names = ["input", *["inner"] * (last - 1), "output"]
    values = tuple(Value(kind, (4, size), "float32") for kind in names)
    steps = tuple(
        WorkloadOperator(kind, (n,), (n + 1,), (("axis", 1),) if kind == "Softmax" else ())
        for n, kind in enumerate(kinds)
    )
    return Workload(values, steps, 18)


def timed(kinds: tuple[str, ...], us: float, trusted: bool = True, threads: int = 1) -> TimedWorkload:
    made = workload(kinds)
    return TimedWorkload(
        workload_key=made.key, workload=made.text, label=made.label, device="desk", fingerprint="f" * 64,
        device_facts={"caches": {"l3_kib": 8192}}, target=json.dumps(asdict(Target("x", 8, 16, 2, 32768, 1 << 19))),
        threads=threads, median_us=us, ci_lo_us=us * 0.9, ci_hi_us=us * 1.1, trusted=trusted, candidates=3,
    )  # fmt: skip


def test_every_way_that_is_known_to_cut_a_group_is_a_decision() -> None:
    chain = ("Exp", "Neg", "Softmax")
    known = {chain: 10.0, chain[:2]: 5.0, chain[1:]: 9.0, chain[:1]: 4.0, chain[1:2]: 2.0, chain[2:]: 6.0}
    rows = [timed(kinds, us) for kinds, us in known.items()]
    found = make_dataset(rows, {rows[0].workload_key: ("net", "other")}).decisions
    whole = found[found["workload"] == rows[0].workload_key]
    assert set(whole["cut"]) == {"edge", "singles"} and whole["site"].nunique() == 1
    by_parts = {round(us, 6): cell for us, cell in zip(whole["apart_us"], whole["relation"], strict=True)}
    launch = 0.3
    assert by_parts == {
        round(4.0 + 9.0 + 2 * launch, 6): "one-to-one > one-to-one",
        round(5.0 + 6.0 + 2 * launch, 6): "one-to-one > many-to-many",
        round(4.0 + 2.0 + 6.0 + 3 * launch, 6): "several",
    }
    assert set(whole["fused_us"].round(6)) == {10.3}
    assert np.allclose(whole["log_gain"], np.log2(whole["apart_us"] / whole["fused_us"]))
    assert set(whole["network"]) == {"net"} and set(whole["networks"]) == {"net,other"}
    pairs = found[found["workload"] != rows[0].workload_key]
    assert sorted(pairs["apart_us"].round(6)) == pytest.approx([4.0 + 2.0 + 0.6, 2.0 + 6.0 + 0.6])


def test_a_longer_cut_takes_the_fastest_measured_parts() -> None:
    chain = ("Exp", "Neg", "Abs", "Softmax")
    known = {chain: 20.0, chain[:2]: 3.0, chain[2:3]: 2.0, chain[3:]: 4.0, chain[1:2]: 1.0}
    found = make_dataset([timed(kinds, us) for kinds, us in known.items()], {}).decisions
    assert list(found["cut"]) == ["chain"], "Exp alone is not known, so neither singles nor an edge are"
    assert found["apart_us"].iloc[0] == pytest.approx(3.0 + 2.0 + 4.0 + 0.9)
    assert (found["parts"].iloc[0], found["relation"].iloc[0]) == (3, "several")


def test_a_view_costs_no_kernel() -> None:
    shape = Value("literal", (1,), "int64", literal="[4000]")
    values = (Value("input", (4, 1000), "float32"), Value("inner", (4, 1000), "float32"), shape)
    whole = Workload(
        (*values, Value("output", (4000,), "float32")),
        (WorkloadOperator("Exp", (0,), (1,)), WorkloadOperator("Reshape", (1, 2), (3,))),
        18,
    )
    alone = timed(("Exp",), 4.0)
    fused = replace(timed(("Exp",), 3.0), workload_key=whole.key, workload=whole.text, label=whole.label)
    found = make_dataset([alone, fused], {}).decisions
    assert found["apart_us"].iloc[0] == pytest.approx(4.3) and found["kernels"].iloc[0] == 1
    assert "view" in found["part_keys"].iloc[0].split(",")


def test_places_are_kept_apart_and_one_database_adds_to_another(recorder: Any, networks: Mapping[str, Path]) -> None:
    recorder.record(networks["dense16"])
    recorder.record(networks["dense32"], trusted=False)
    once = read_dataset([str(recorder.path)])
    twice = read_dataset([str(recorder.path), str(recorder.path)])
    assert len(once.rows) == len(twice.rows) and len(once.decisions) == len(twice.decisions)
    assert set(once.rows["network"]) == {"dense16", "dense32"}
    assert not once.rows[once.rows["network"] == "dense32"]["trusted"].any()
    assert set(once.rows["threads"]) == {1}
    again = make_dataset([timed(("Exp",), 4.0), timed(("Exp",), 3.0, threads=2)], {})
    assert list(again.rows["threads"]) == [1, 2] and again.rows["workload"].nunique() == 1


def test_times_are_those_of_the_law(dataset: Dataset) -> None:
    rows = dataset.rows
    assert len(rows) > 80 and len(dataset.decisions) > 80 and dataset.unfit == 0
    ratio = rows["median_us"] / rows["roofline_us"]
    assert ratio.between(0.49, 3.2).all() and (ratio > 2.9).any() and (ratio < 0.6).any()
    assert (np.log2(rows["roofline_us"]) - rows["f_log_roofline_us"]).abs().max() < 1e-9
    parts = dataset.decisions["label"].str
    good, bad = parts.contains("Softmax"), parts.contains("Conv.*Add")
    assert good.sum() >= 1 and (dataset.decisions["log_gain"][good] > 0).all()
    assert bad.sum() > 3 and (dataset.decisions["log_gain"][bad] < 0).mean() > 0.5
    assert not rows[feature_columns(rows)].isna().any().any()


def test_texts_that_are_no_workload_are_counted_not_fatal() -> None:
    rows = [timed(("Exp",), 4.0)]
    broken = [
        replace(rows[0], workload_key="a", workload='{"workload": "conv"}'),
        replace(rows[0], workload_key="b", workload="no json"),
        replace(rows[0], workload_key="c", target="{}"),
    ]
    found = make_dataset([*rows, *broken], {})
    assert (len(found.rows), found.unfit) == (1, 3)


def test_the_best_time_counts_the_trusted_first(recorder: Any, networks: Mapping[str, Path]) -> None:
    recorder.record(networks["dense16"])
    with open_database(recorder.path) as base:
        environment = recorder.environment(base, 1)
        with base.reading() as sql:
            first = timed_workloads(sql)[0]
        candidate = Candidate(first.workload_key, first.workload, first.label, '{"last_axis.rows":2}')
        faster = CandidateOutcome(
            candidate=candidate, state="ok", median_us=0.5, ci_lo_us=0.4, ci_hi_us=0.6, trusted=False
        )
        base.record_candidate(environment.setting, faster)
        failed = replace(
            faster, candidate=replace(candidate, schedule='{"last_axis.rows":4}'), state="wrong", median_us=None,
            ci_lo_us=None, ci_hi_us=None, trusted=None, failure="no",
        )  # fmt: skip
        base.record_candidate(environment.setting, failed)
        with base.reading() as sql:
            again = timed_workloads(sql)[0]
            names = networks_of_workloads(sql)
    assert again.workload_key == first.workload_key
    assert again.median_us == first.median_us and again.candidates == 2
    assert names[first.workload_key] == ("dense16",)
