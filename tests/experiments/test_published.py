"""What experiments keep in `results/` of what they measured, and how the pages show it."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from statistics import geometric_mean

import pytest

from experiments import records
from experiments.arm_proxy import run as arm_proxy
from experiments.bands import run as bands
from experiments.composition import run as composition
from experiments.database import run as database
from experiments.fault_drill import drill
from experiments.fault_drill.faults import FAULTS
from experiments.noisy_neighbour import run as noisy
from experiments.peers import published as peers
from experiments.peers import table as peers_table
from experiments.peers.limits import Demand, Rates
from experiments.peers.row import Entry, Row
from experiments.profitability import effort, tables
from experiments.scale import figures
from tests.experiments.seven_rounds import samples

FORM = bands.Row("pooled_64_224", "apart", 100.0, 1.0, 1.0, 1.0, True, 0.0, 10.0, 20.0, 0.0)


def test_a_case_of_bands_is_its_best_form_and_what_could_be_saved_at_most() -> None:
    forms = [
        FORM,
        replace(FORM, form="0", ratio=0.5, lo=0.4, hi=0.6),
        replace(FORM, form="2", ratio=0.9, lo=0.8, hi=1.0),
        replace(FORM, form="8", ratio=1.1, lo=1.0, hi=1.2, recomputed=0.05, trusted=False),
    ]
    case = bands.case_of(forms)
    assert case is not None and (case.turn, case.best, case.rows, case.most) == (0.5, 1.1, 8, pytest.approx(1.25))
    assert "| 0.50 (0.40-0.60) ? | 1.10 (1.00-1.20) ?, 8 rows | 5 % | 10 | 1.25 |" in bands.published([case])
    assert bands.case_of(forms[:2]) is None


def test_a_composition_keeps_the_whole_model_and_counts_its_regions() -> None:
    whole = composition.Row("net", -1, 9, 40, 1, 3, 110.0, 110.0, 100.0, 0.1)
    rows = [whole, replace(whole, region=0), replace(whole, region=2)]
    (kept,) = composition.whole_of(rows, 2)
    assert (kept.regions, kept.groups, kept.plans, kept.threads) == (2, 40, 3, 2)
    assert "| net | 2 | 2 | 40 | 3 | 110 | 100 | 10.00 % |" in composition.published([kept])
    assert composition.whole_of([], 1) == []


def test_contractions_are_summed_up_for_each_device_and_network() -> None:
    one = arm_proxy.Row("pi", "net", "g", "direct", "2x5", 10, 13, 1.3, 0, True, 1.0)
    (kept,) = arm_proxy.summaries([one, replace(one, ratio=1.6, cycles=None), replace(one, ratio=1.4, spills=2)])
    assert (kept.contractions, kept.ratio, kept.worst, kept.spilling, kept.in_bound) == (3, 1.4, 1.6, 1, 1)
    assert kept.cycles == 1.0 and "| 1.40 (1.60) | 1 | 1 | 1.00 |" in arm_proxy.table([kept])
    assert "| - |" in arm_proxy.table([replace(kept, cycles=None)])


def test_a_verdict_counts_the_times_that_are_not_trusted() -> None:
    row = noisy.Row("net", "said", 1.1, 1.06, 1.2, False, False, False, ("a", "b"), ("a",), 40, 90)
    text = noisy.published([noisy.verdict_of(row)])
    assert "| net | said | 1.10 (1.06–1.20) ? | 90, 40 | no | 1, 2 |" in text


def test_every_fault_has_words_and_is_counted() -> None:
    assert set(drill.WORDS) == {fault.name for fault in FAULTS}
    rows = drill.fault_rows({"full disk": 3}, {"full disk": 1, "kill -9 link": 2})
    assert [(row.fault, row.struck, row.missed) for row in rows] == [("kill -9 link", 0, 2), ("full disk", 3, 1)]
    assert "| all | 3 | 3 |" in drill.published(rows)


def test_a_step_of_the_database_is_held_against_its_limit() -> None:
    rows: list[database.Row] = []
    database.limit(rows, "nothing", 30.0, lambda: None)
    assert rows[0].met and rows[0].step == "nothing"
    broken = database.Row("merge", 31.0, 30.0, "s")
    assert not broken.met and "| merge | 31.0 s | 30 s | BROKEN |" in database.table([broken])


def test_figures_of_a_part_are_kept_where_the_page_has_words_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "here", lambda: ("znver3, avx2", "a server", "cccc"))
    with records.running("scale", tmp_path):
        figures.keep_figures("workers", {"one_s": 10.0, "two_s": 5.0, "speedup": 2.0, "other": 1.0})
        figures.keep_figures("sharing", {"workloads": 1140})
    rows = [row for record in records.read(tmp_path / "scale.json") for row in record.rows]
    assert {row["figure"] for row in rows} == {"one_s", "two_s", "speedup", "workloads"}
    text = figures.table([figures.Row(**row) for row in rows])
    assert "| workers | two workers over one | 2 | 1.8 |" in text and "| 1,140 |" in text


PEER_ROW = Row(
    "net", 2, "0" * 64, "", Demand(10**9, 10**6), Rates(100.0, 10.0),
    {
        "onnxruntime": Entry(samples(20_000.0)),
        "openvino": Entry(samples(16_000.0)),
        "ncnn": Entry(samples(10_000.0), wrong="output 0: relative error 0.3"),
        "litert": Entry(error="it cannot"),
        "autofuse": Entry(samples(12_500.0)),
        "autofuse:none": Entry(samples(15_000.0)),
    },
    measured_at="2026-01-01T00:00:00+00:00",
)  # fmt: skip


def test_a_row_of_the_peers_fills_the_tables_whose_rivals_took_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "here", lambda: ("znver3, avx2", "a server", "cccc"))
    with records.running("peers", tmp_path):
        peers.keep_row(PEER_ROW, *peers_table.best_peer(PEER_ROW))
    assert [path.name for path in tmp_path.iterdir()] == ["peers.json"]
    (record,) = records.read(tmp_path / "peers.json")
    row = peers.make(**record.rows[0])
    assert row.best == "openvino" and row.against is not None and row.against.ratio == pytest.approx(1.28, abs=0.01)
    assert row.speeds["ncnn"].problem == "wrong" and row.speeds["litert"].problem == "cannot"
    text = peers.TABLES[0].text([row])
    assert "| network | threads | OpenVINO f32 | LiteRT | ncnn | autofuse | autofuse / best peer |" in text
    assert "| **1.25 (" in text
    assert "against OpenVINO f32 | 62 %, 80 % (compute) |" in text


def test_means_of_the_peers_are_geometric_and_count_what_is_known() -> None:
    one = peers.Published("a", 1, {"tvm": peers.Speed(0.5, trusted=True), "autofuse": peers.Speed(2.0)})
    two = peers.Published("b", 1, {"autofuse": peers.Speed(3.0)})
    text = peers.TABLES[2].text([one, two])
    assert f"| geometric mean of 2 | 1 | 0.50 (of 1) | {geometric_mean([2.0, 3.0]):.2f} |" in text
    assert "| b | 1 |  | 3.00 ? |" in text and "MetaSchedule" not in text


def test_a_search_with_the_model_is_held_against_one_without() -> None:
    row = effort.Row("net", 1, 71, 34, 51, 0, 100.0, 111.0)
    kept = effort.published(row, 90.0)
    assert kept.guided_s > kept.alone_s == 90.0 and kept.end == pytest.approx(1.11)
    assert "| 71, 34 | 51, never | 1.11 |" in effort.table([kept])
    assert "| net, again |" in effort.table([replace(kept, variant="again")])


def test_judges_are_kept_and_what_nobody_knew_is_no_number() -> None:
    known = tables.summary_of(
        split="network", judge="model", cases=3, regret1_median=0.01, regret1_mean=0.02, regret1_p90=0.03,
        regret1_max=None, regret5_median=0.0, regret5_p90=0.0, decisions=None, accepted=None, harm=None, lost=None,
        missed=None, cost=None, auc=None, coverage=None, calibration=None,
    )  # fmt: skip
    assert math.isnan(known.harm) and known.decisions == 0
    text = tables.judged([known])
    assert "With networks held out:" in text and "| model | 3 | 1.0 % | 2.0 % | 3.0 % | - |" in text
    assert "decides" not in text
    assert json.dumps(asdict(known))


def test_the_summary_of_the_peers_shows_trusted_ratios_and_the_mean_of_all() -> None:
    def row(network: str, threads: int, ratio: float, trusted: bool) -> peers.Published:
        return peers.Published(network, threads, {}, "ncnn", peers.Speed(ratio, ratio - 0.1, ratio + 0.1, trusted))

    lines = peers.summary(
        [row("a", 1, 2.0, True), row("a", 2, 1.5, False), row("b", 1, 8.0, False), row("b", 2, 6.0, False)]
    ).splitlines()
    assert lines[0] == "| network | one thread | two threads |"
    assert lines[2:] == [
        "| a | 2.00 (1.90–2.10) ncnn | not trusted |", "| geometric mean of all 2, trusted or not | 4.00 | 3.00 |",
    ]  # fmt: skip
    assert peers.summary([row("a", 1, 2.0, False)]) == "", "a kind of machine without a trusted ratio has no table"
