"""Features: the same from a plan and from a recorded row, and what they say of known groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import log2
from pathlib import Path

import pytest

from autofuse.backend.compile.host_cpu import device_named
from autofuse.database.ask.training import timed_workloads
from autofuse.database.database import open_database
from autofuse.database.records import Candidate, CandidateOutcome
from autofuse.environment.environment import environment_of
from autofuse.fusion.planner.baselines import always_plan, default_plan, none_plan
from autofuse.graph.loading.load import load
from autofuse.kernels.lowering.lower import Lowering
from autofuse.kernels.workload.as_graph import as_graph
from autofuse.kernels.workload.workload import Value, Workload, WorkloadOperator, bind_workload
from autofuse.learning.dataset import target_from
from autofuse.learning.features import Machine, cut_features, facts_of, features, roofline_us
from autofuse.learning.parts import Parts, without_layouts

MACHINE = Machine("avx2", 8, 16, 4, 32 << 10, 512 << 10, 8 << 20, 1)


def value(kind: str, *shape: int, layout: str = "plain") -> Value:
    return Value(kind, shape, "float32", layout)


def conv_relu(channels: int = 16, size: int = 8, layout: str = "plain") -> Workload:
    values = (
        value("input", 1, channels, size, size, layout=layout),
        value("constant", channels, channels, 3, 3),
        value("inner", 1, channels, size, size),
        value("output", 1, channels, size, size, layout=layout),
    )
    attributes = (
        ("dilations", (1, 1)), ("group", 1), ("kernel_shape", (3, 3)), ("pads", (1, 1, 1, 1)), ("strides", (1, 1))
    )  # fmt: skip
    conv = WorkloadOperator("Conv", (0, 1), (2,), attributes)
    return Workload(values, (conv, WorkloadOperator("Relu", (2,), (3,))), 18)


def test_a_planned_group_and_its_recorded_row_have_the_same_features(
    networks: Mapping[str, Path], tmp_path: Path
) -> None:
    """The planned form is bound from the network's graph; the other comes out of the database."""
    planned = {}
    with open_database(tmp_path / "profile.db") as base:
        environment = environment_of(base, "local", 1, measuring=False)
        machine = Machine.of(environment.target, environment.device.fingerprint.facts, 1)
        for name in ("dense32", "conv16"):
            graph = load(networks[name], {})
            lowering = Lowering(graph, environment.target)
            for plan in (none_plan(graph), default_plan(graph), always_plan(graph)):
                for bound in lowering.lower(plan).kernels:
                    work = bound.workload
                    planned[work.key] = features(work, machine)
                    base.record_candidate(
                        environment.setting,
                        CandidateOutcome(
                            candidate=Candidate(work.key, work.text, work.label, "{}"),
                            state="ok",
                            median_us=2.0,
                            ci_lo_us=1.0,
                            ci_hi_us=3.0,
                            trusted=True,
                        ),
                    )
        with base.reading() as sql:
            rows = timed_workloads(sql)
    assert len(rows) == len(planned) > 20
    for row in rows:
        there = Machine.of(target_from(row.target), row.device_facts, row.threads)
        assert there == machine
        assert features(Workload.from_text(row.workload), there) == planned[row.workload_key]


def test_every_group_has_the_same_features_in_the_same_order(networks: Mapping[str, Path]) -> None:
    target = device_named("local").target()
    names = list(features(conv_relu(), MACHINE))
    for path in networks.values():
        graph = load(path, {})
        for bound in Lowering(graph, target).lower(default_plan(graph)).kernels:
            found = features(bound.workload, MACHINE)
            assert list(found) == names
            assert all(isinstance(number, float) and number == number for number in found.values())


def test_counts_of_a_convolution_with_its_activation() -> None:
    facts = facts_of(conv_relu(16, 8))
    products, pointwise = 2 * 16 * 8 * 8 * 16 * 9, 16 * 8 * 8
    assert facts["contraction_flops"] == products and facts["flops"] == products + pointwise
    plane = 4 * 16 * 8 * 8
    assert (facts["bytes_in"], facts["bytes_out"], facts["bytes_constant"]) == (plane, plane, 4 * 16 * 16 * 9)
    assert facts["inner_bytes"] == facts["largest_inner_bytes"] == plane
    assert facts["bytes_apart"] == 4 * plane + 4 * 16 * 16 * 9
    assert (facts["rows"], facts["columns"], facts["depth"], facts["taps"]) == (64, 16, 144, 9)
    assert facts["cell_many_to_many_x_one_to_one"] == 1 and facts["edges_through"] == 1
    assert facts["nests_contraction"] == 1 and facts["own"] == 1


def test_the_place_counts_where_it_should() -> None:
    work = conv_relu(16, 32)
    here, smaller = features(work, MACHINE), features(work, replace(MACHINE, l1_bytes=MACHINE.l1_bytes // 2))
    changed = {name for name in here if here[name] != smaller[name]}
    assert changed == {"log_l1", "largest_inner_per_l1", "moved_per_l1", "constants_per_l1"}
    assert smaller["moved_per_l1"] == pytest.approx(here["moved_per_l1"] + 1)
    two = features(work, replace(MACHINE, threads=2))
    assert two["threads"] == 2 and two["log_roofline_us"] < here["log_roofline_us"]


def test_layouts_are_seen() -> None:
    plain, blocked = facts_of(conv_relu()), facts_of(conv_relu(layout="c8"))
    assert plain["blocked_inputs"] == 0 and blocked["blocked_inputs"] == blocked["blocked_outputs"] == 1
    mixed = conv_relu(layout="c8")
    values = (replace(mixed.values[0], layout="plain"), *mixed.values[1:])
    assert facts_of(replace(mixed, values=values))["converted_bytes"] == 4 * 16 * 8 * 8
    assert without_layouts(blocked_work := conv_relu(layout="c8")).key == conv_relu().key != blocked_work.key


def test_a_workload_survives_being_a_graph(networks: Mapping[str, Path]) -> None:
    target = device_named("local").target()
    for path in networks.values():
        graph = load(path, {})
        for plan in (default_plan(graph), always_plan(graph), none_plan(graph)):
            for bound in Lowering(graph, target).lower(plan).kernels:
                work = Workload.from_text(bound.workload.text)
                again = bind_workload(
                    as_graph(work),
                    [f"n{index}" for index in range(len(work.operators))],
                    {f"v{index}": one.layout for index, one in enumerate(work.values)},
                )
                assert again.workload.key == bound.workload.key


def test_single_operators_of_a_group_are_the_workloads_of_the_plan_without_fusion(
    networks: Mapping[str, Path],
) -> None:
    """Parts are made from the group alone, yet they have the keys under which a plan would measure them."""
    target = device_named("local").target()
    for name in ("dense32", "dense48"):
        graph = load(networks[name], {})
        lowering = Lowering(graph, target)
        alone = {bound.workload.key for bound in lowering.lower(none_plan(graph)).groups}
        for bound in lowering.lower(always_plan(graph)).kernels:
            parts = Parts(bound.workload)
            made = {parts.part({index}, plain=True).key for index in parts.all}
            assert made <= alone


def test_splits_run_one_after_the_other() -> None:
    """x -> a -> b -> d, a -> c -> d: no half needs what the other half makes from it."""
    values = (value("input", 4), *(value("inner", 4) for _ in range(3)), value("output", 4))
    operators = (
        WorkloadOperator("Relu", (0,), (1,)), WorkloadOperator("Exp", (1,), (2,)),
        WorkloadOperator("Neg", (1,), (3,)), WorkloadOperator("Add", (2, 3), (4,)),
    )  # fmt: skip
    parts = Parts(Workload(values, operators, 18))
    found = {(tuple(sorted(first)), tuple(sorted(rest))) for first, rest, _ in parts.splits(parts.all)}
    assert found == {((0,), (1, 2, 3)), ((0, 2), (1, 3)), ((0, 1), (2, 3)), ((0, 1, 2), (3,))}


def test_cuts_know_what_they_lay_open() -> None:
    work = conv_relu(16, 8)
    parts = Parts(work)
    facts = [facts_of(parts.part({index})) for index in (0, 1)]
    found = cut_features(facts_of(work), facts, MACHINE, 2)
    plane = 4 * 16 * 8 * 8
    assert found["cut_log_bytes"] == pytest.approx(log2(1 + 2 * plane))
    assert found["cut_parts"] == found["cut_launches"] == 2
    apart = sum(roofline_us(one, MACHINE) for one in facts) + 0.6
    assert found["cut_log_ratio"] == pytest.approx(log2(apart / (roofline_us(facts_of(work), MACHINE) + 0.3)))
    assert set(features(work, MACHINE)) < set(found)
