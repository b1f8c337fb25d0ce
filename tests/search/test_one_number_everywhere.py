"""Every screen, DataFrame and JSON of a run shows the same times and the same ratios."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx
import pytest
from typer.testing import CliRunner

from autofuse.cli.main import app
from autofuse.cli.screens.render import cell, micros
from autofuse.database.database import open_database
from autofuse.job.outcome import _task
from autofuse.measure.timing.race import Samples
from autofuse.search.progress import TuneResult
from autofuse.views.frames.analysis import open_analysis
from autofuse.views.frames.whole import decided_share_of
from autofuse.views.report.page import page_data
from autofuse.views.report.render import render_markdown

Tune = Callable[..., TuneResult]


def printed(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def tuned(run: Tune, device: Any, convolution: Path, tmp_path: Path) -> tuple[TuneResult, Path]:
    """A run whose finalists differ by a few percent, with noise in every block and some blocks that are not good."""
    slower = {"none": 30.0, "untuned": 20.0, "tvm-partition": 7.0}
    device.whole = lambda name, us: 100.0 + slower.get(name, 0.0)
    race = device.race

    def disturbed(contenders: Any, *rest: object, **named: object) -> Any:
        from dataclasses import replace

        from autofuse.measure.networks.bench import compared

        found = race(contenders, *rest, **named)
        for number, (name, result) in enumerate(found.items()):
            slices = [
                one if number > 2 or index % 15 != number else replace(one, good=False, waited=0.5)
                for index, one in enumerate(result.samples.slices)
            ]
            samples = Samples(tuple(slices), result.samples.rounds, result.samples.us, True, "")
            found[name] = replace(result, samples=samples)
        return compared(found)

    device.race = disturbed
    return run(convolution), tmp_path / "profile.db"


def test_the_end_of_tune_status_report_page_frames_and_a_job_agree(tuned: tuple[TuneResult, Path]) -> None:
    result, path = tuned
    chosen = result.plans[result.chosen]
    assert chosen.speedup is not None and chosen.median_us is not None and chosen.ci_lo is not None
    none_us = result.plans["none"].median_us
    assert none_us is not None and chosen.speedup == pytest.approx(none_us / chosen.median_us, rel=1e-9)

    with open_analysis(path) as af:
        frame = af.plan_measurements.set_index("name")
        assert frame["blocks"].map(len).eq(15).all()
        for name, plan in result.plans.items():
            assert frame.loc[name, "median_us"] == pytest.approx(plan.median_us, rel=1e-12)
            assert frame.loc[name, "speedup"] == pytest.approx(plan.speedup, rel=1e-12)
            assert frame.loc[name, "speedup_lo"] == pytest.approx(plan.ci_lo, rel=1e-12)
            assert frame.loc[name, "verdict"] == plan.verdict
        assert af.choices["median_us"].iloc[-1] == pytest.approx(chosen.median_us, rel=1e-12)
        page = page_data(af, af.run())
        text = render_markdown(af)

    # the page and the report
    assert page["speedup"]["ratio"]["value"] == pytest.approx(chosen.speedup, rel=1e-12)  # type: ignore[index]
    assert page["speedup"]["us"] == pytest.approx(chosen.median_us, rel=1e-12)  # type: ignore[index]
    row = next(row for row in page["rivals"] if row["name"] == "none")  # type: ignore[attr-defined]
    assert row["us"] == row["ratio"]["old_us"] == pytest.approx(none_us, rel=1e-12)
    headline, table = text.splitlines()[0], next(line for line in text.splitlines() if line.startswith("| none"))
    interval = f"[{chosen.ci_lo:.3f}, {chosen.ci_hi:.3f}]"
    assert f"{chosen.speedup:.2f}x as fast as without fusion {interval}" in headline
    assert f"{chosen.speedup:.3f}x {interval}" in table and micros(none_us) in table

    # the decision: by one race against what is compiled untuned, so all of the time rests on it
    assert result.decision is not None and (result.decision.against, result.decision.trusted) == ("untuned", True)
    assert page["trust"]["decided_share"] == 1.0  # type: ignore[index]
    with open_database(path, read_only=True) as base:
        assert decided_share_of(base, result.run_id) == 1.0
    assert (
        "100 % of the time that was decided on rests on trusted decisions: the chosen plan is faster than plan untuned."
        in text
    )

    # status
    status = json.loads(printed("status", "--db", path, "--format", "json"))
    for one in status["whole_model"]:
        plan = result.plans[one["name"]]
        assert (one["median_us"], one["speedup"]) == (pytest.approx(plan.median_us), pytest.approx(plan.speedup))
    shown = printed("status", "--db", path)
    assert f"{micros(chosen.median_us)}, {chosen.speedup:.2f}x ({chosen.ci_lo:.2f}-{chosen.ci_hi:.2f})" in shown

    # the same run as a job's task, and as `report --format json`
    task = SimpleNamespace(
        result=json.loads(json.dumps(asdict(result))), model="convolution.onnx", device="local", state="done",
        measured=1, failed=0, spent_s=1.0, failure=None,
    )  # fmt: skip
    outcome = _task(task)  # type: ignore[arg-type]
    assert (outcome.median_us, outcome.speedup, outcome.ci_lo) == (chosen.median_us, chosen.speedup, chosen.ci_lo)
    body = json.loads(printed("report", "--db", path, "--format", "json"))
    for one in body["plan_measurements"]:
        assert one["speedup"] == pytest.approx(result.plans[one["name"]].speedup, rel=1e-6)


def test_how_a_plan_was_chosen_is_said_where_no_kernel_was_decided_on(
    tuned: tuple[TuneResult, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autofuse.views.report.render.trusted_decisions", lambda *_: None)
    with open_analysis(tuned[1]) as af:
        assert "\n- The chosen plan is faster than plan untuned.\n" in render_markdown(af)


def test_the_sum_of_the_kernels_is_one_number_too(tuned: tuple[TuneResult, Path], convolution: Path) -> None:
    result, path = tuned
    composed_us = result.plans[result.chosen].composed_us
    assert composed_us is not None
    with open_analysis(path) as af:
        page, text, groups = page_data(af, af.run()), render_markdown(af), af.groups
        names = af.plan_measurements.set_index("name")["plan_key"].to_dict()
        composed = af.trials.dropna().set_index("plan_key")["composed_us"].to_dict()
    assert page["trust"]["sum_us"] == pytest.approx(composed_us)  # type: ignore[index]
    assert f"The groups add up to {micros(composed_us)} (composed)" in text
    front = json.loads(printed("plan", "pareto", convolution, "--db", path, "--threads", 1, "--format", "json"))
    composed |= {key: result.plans[name].composed_us for name, key in names.items()}
    shared = [point for point in front["points"] if point["plan_key"] in composed]
    assert shared and all(point["us"] == pytest.approx(composed[point["plan_key"]]) for point in shared)

    # a kernel: what the page says, what `compile` takes, what an exported plan notes
    report = json.loads(printed("compile", convolution, "--db", path, "--threads", 1, "--dry-run", "--format", "json"))
    assert sorted(one["us"] for one in report["groups"]) == pytest.approx(sorted(groups["us"]))
    export = path.with_name("plan.onnx")
    printed("plan", "export", convolution, "--plan", "best", "--db", path, "--threads", 1, "-o", export)
    noted = {
        prop.value for node in onnx.load(export).graph.node for prop in node.metadata_props if "time_us" in prop.key
    }
    assert sorted(float(text.split()[0]) for text in noted) == pytest.approx(sorted(set(groups["us"])), abs=1e-3)


@pytest.mark.long
def test_an_edge_gains_the_same_in_explain_the_frame_and_the_page(
    tuned: tuple[TuneResult, Path], convolution: Path
) -> None:
    _, path = tuned
    with open_analysis(path) as af:
        edges, page = af.edges, page_data(af, af.run())
    said = json.loads(
        printed("explain", convolution, "--plan", "best", "--db", path, "--threads", 1, "--format", "json")
    )
    by_place = {(row["producer"], row["consumer"]): row for row in said["edges"]}
    known = edges[edges["gain_us"].notna()]
    assert len(known)
    for _, edge in known.iterrows():
        row = by_place[edge["producer"], edge["consumer"]]
        assert edge["gain_us"] == pytest.approx(row["apart_us"]["us"] - row["fused_us"]["us"])
        assert (bool(edge["fused"]), edge["reason"]) == (row["fused"], row["code"])
    gains = [row["gain_us"] for row in page["tables"]["edges"]]  # type: ignore[index]
    total = sum(gain for gain in gains if gain == gain)
    assert total == pytest.approx(known["gain_us"].sum())


def test_a_group_gains_the_same_in_its_table_its_plot_and_pandas(tuned: tuple[TuneResult, Path]) -> None:
    _, path = tuned
    with open_analysis(path) as af:
        groups, page, text = af.groups, page_data(af, af.run()), render_markdown(af)
    known = groups[groups["gain"].notna()].drop_duplicates("label").set_index("label")
    assert len(known) and known.index.is_unique
    plot = {row["label"]: row["value"] for row in page["plots"]["speedups"]}  # type: ignore[index]
    table = {row["label"]: row["gain"] for row in page["tables"]["groups"]}  # type: ignore[index]
    for label, group in known.iterrows():
        assert group["gain"] == pytest.approx(group["first_us"] / group["median_us"], rel=1e-9)
        assert plot[label] == table[label] == group["gain"]
        line = next(line for line in text.splitlines() if line.startswith(f"| {label} |"))
        assert re.search(rf"\| {group['gain']:.2f}x \[", line)


@pytest.mark.long
def test_no_screen_shows_a_ratio_of_too_few_good_blocks(
    run: Tune, device: Any, two_layers: Path, tmp_path: Path
) -> None:
    race = device.race

    def spoiled(contenders: Any, *rest: object, **named: object) -> Any:
        from dataclasses import replace

        from autofuse.measure.networks.bench import compared

        found = race(contenders, *rest, **named)
        for name, result in found.items():
            slices = tuple(
                one if index < 4 else replace(one, good=False, waited=0.5)
                for index, one in enumerate(result.samples.slices)
            )
            samples = Samples(slices, result.samples.rounds, result.samples.us, False, "4 good of 15 blocks")
            found[name] = replace(result, samples=samples)
        return compared(found)

    device.race = spoiled
    result, path = run(two_layers), tmp_path / "profile.db"
    chosen = result.plans[result.chosen]
    assert (chosen.speedup, chosen.verdict) == (None, "too few good blocks") and chosen.median_us
    with open_analysis(path) as af:
        assert af.plan_measurements["speedup"].isna().all()
        assert page_data(af, af.run())["speedup"]["ratio"]["value"] is None  # type: ignore[index]
        assert "as fast as without fusion" not in render_markdown(af)  # sums of kernels may say so
    assert "too few good blocks" in printed("status", "--db", path)
    assert cell("speedup", chosen.speedup) == "-"
