"""After a tune pandas and the page say which groups are slow for this machine, and which fusions pay on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from autofuse.database.database import open_database
from autofuse.environment.environment import environment_of
from autofuse.environment.rates import machine_rates
from autofuse.fusion.evidence import LAUNCH_US
from autofuse.search.progress import TuneResult
from autofuse.views.frames.analysis import open_analysis
from autofuse.views.frames.groups import last_choice
from autofuse.views.report.page import page_data
from autofuse.views.report.render import render_markdown
from autofuse.views.report.tables import left_of

Tune = Callable[..., TuneResult]


def test_groups_have_their_roofline_and_shares_of_what_was_probed(run: Tune, two_layers: Path, tmp_path: Path) -> None:
    run(two_layers)
    with open_analysis(tmp_path / "profile.db") as af:
        assert af.runs["provenance"].iloc[0]["rates"]["gflops_n"] == 50.0
        groups, page, text = af.groups, page_data(af, af.run()), render_markdown(af)
    products = groups[groups["label"].str.contains("Gemm|MatMul")].iloc[0]
    assert products["flops"] >= 2 * 8 * 16 * 24  # the product alone
    assert products["bytes"] >= 4 * (8 * 16 + 16 * 24 + 8 * 24)
    assert products["gflops"] == pytest.approx(products["flops"] / products["median_us"] / 1e3)
    assert products["peak_share"] == pytest.approx(products["gflops"] / 50.0)
    assert products["bandwidth_share"] == pytest.approx(products["bytes"] / products["median_us"] / 1e3 / 10.0)
    line = next(line for line in text.splitlines() if line.startswith(f"| {products['label']} "))
    shares = [f"{100 * products[name]:.0f} %" for name in ("peak_share", "bandwidth_share")]
    assert [cell.strip() for cell in line.split("|")][11:13] == shares and "| of peak | of bandwidth |" in text
    rows = {row["label"]: row for row in page["tables"]["groups"]}  # type: ignore[index]
    assert rows[products["label"]]["peak_share"] == products["peak_share"]


def test_what_more_fusing_or_faster_code_could_save_is_told(run: Tune, two_layers: Path, tmp_path: Path) -> None:
    run(two_layers)
    with open_analysis(tmp_path / "profile.db") as af:
        groups, page, text = last_choice(af.groups), page_data(af, af.run()), render_markdown(af)
    left = left_of(groups)
    assert left is not None and left.kernels == len(groups) and left.calls_us == LAUNCH_US * len(groups)
    assert left.us == pytest.approx(groups["median_us"].sum() + left.calls_us)
    weights = groups["bytes"] - groups["handed_bytes"]
    assert weights.sum() >= 4 * 16 * 24  # those of the first layer at least
    assert left.handed_us == pytest.approx(groups["handed_bytes"].sum() / 10.0 / 1e3)  # 10 GB/s were probed
    assert left.arithmetic_us == pytest.approx(groups["flops"].sum() / 50.0 / 1e3)  # 50 GFLOP/s
    assert left.text in text and page["left"] == left.text


def test_no_kernel_computes_longer_than_it_takes() -> None:
    columns = {"median_us": [10.0, 20.0], "bytes": [100.0, 0.0], "handed_bytes": [50.0, 0.0]}
    groups = pd.DataFrame({**columns, "peak_share": [1.5, 0.5], "bandwidth_share": [0.2, 0.0]})
    left = left_of(groups)
    assert left is not None and (left.arithmetic_us, left.handed_us) == (20.0, 1.0)
    view = {"median_us": float("nan"), "bytes": 8.0, "handed_bytes": 0.0, "peak_share": float("nan")}
    assert left_of(pd.concat([groups, pd.DataFrame([view])])) == left  # no kernel: nothing is called
    assert left_of(groups.assign(peak_share=[1.5, float("nan")])) is None and left_of(groups.iloc[:0]) is None


@pytest.mark.long
def test_a_fused_edge_says_its_kernel_and_what_fusing_saves(run: Tune, two_layers: Path, tmp_path: Path) -> None:
    result = run(two_layers)
    with open_analysis(tmp_path / "profile.db") as af:
        edges, page, text = af.edges, page_data(af, af.run()), render_markdown(af)
    fused = edges[edges["fused"].astype(bool) & edges["gain_us"].notna()]
    assert result.chosen != "none" and len(fused)
    for _, edge in fused.iterrows():
        assert edge["label"] and edge["group_us"] > 0
        assert edge["gain_share"] == pytest.approx(edge["gain_us"] / (edge["group_us"] + edge["gain_us"]))
    assert edges[~edges["fused"].astype(bool)]["label"].isna().all()
    rows: Any = page["tables"]["fusions"]  # type: ignore[index]
    assert [row["gain_us"] for row in rows] == sorted(fused["gain_us"], reverse=True)
    saved = [f"| {row['producer']} | {row['consumer']} | {row['label']} |" for row in rows]
    assert [line for line in text.splitlines() if line.startswith(tuple(saved))]


@pytest.mark.long
@pytest.mark.probing
def test_the_rates_are_probed_once_and_then_taken_from_the_database(
    run: Tune, two_layers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(two_layers)
    with open_database(tmp_path / "profile.db") as base:
        monkeypatch.setattr("autofuse.environment.rates.probe_machine", lambda *_: pytest.fail("probed again"))
        rates = machine_rates(base, environment_of(base, "local", 1, measuring=True))
    assert rates is not None and rates["gflops_n"] > 0.1 and rates["dram_gbs_n"] > 0.1
