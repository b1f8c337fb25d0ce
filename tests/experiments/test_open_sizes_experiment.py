"""Which sizes `experiments/open_sizes` draws, what its tables say, and that it runs from a model to its rows; and how a
decoder's steps are counted."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import pytest

from autofuse.graph.loading.given.sizes import OpenSize, open_ones, open_sizes, parse_sizes
from autofuse.measure.networks.bench import Contender, ContenderResult, compared
from experiments.open_sizes import decode, run, tuning
from experiments.open_sizes.cases import CASES, drawn, ends, spread, title
from experiments.open_sizes.plot import lines_of
from experiments.open_sizes.rows import FIXED, OWN, Calls, Row, best_peer, published, published_calls
from experiments.open_sizes.tuning import near_end
from experiments.peers.environments import MissingEnvironmentError
from experiments.tables import read_csv
from tests.compiler.open_sizes.decoders import Decoder, written
from tests.compiler.open_sizes.models import weight, write
from tests.experiments.seven_rounds import samples

IMAGES = (OpenSize("height", 64, 512, 16), OpenSize("width", 64, 512, 16))


def test_drawn_sizes_lie_between_the_ends_in_steps_and_come_again() -> None:
    points = drawn(IMAGES, 20, 3)
    assert len({*points}) == 20 and points == drawn(IMAGES, 20, 3) != drawn(IMAGES, 20, 4)
    assert all(size.has(value) for point in points for size, value in zip(IMAGES, point, strict=True))
    assert not {*points} & {*ends(IMAGES)}


def test_a_range_of_few_sizes_gives_all_of_them() -> None:
    assert sorted(drawn((OpenSize("batch", 1, 4),), 20, 0)) == [(2,), (3,)]
    assert drawn((OpenSize("batch", 1, 2),), 20, 0) == []


def test_of_each_doubling_as_many_sizes_are_drawn() -> None:
    wide = drawn((OpenSize("tokens", 1 << 10, 1 << 20),), 300, 0)
    assert 0.4 < sum(point < (1 << 15,) for point in wide) / 300 < 0.6
    past = drawn((OpenSize("past", 0, 1023),), 20, 0)
    assert sum(point < (32,) for point in past) >= 5, "short ones are drawn from a range that begins with 0, too"


def test_sizes_with_their_own_library_are_spread_from_the_smallest_to_the_largest() -> None:
    points = [(8,), (1,), (4,), (2,), (6,)]
    assert spread(points, 3) == [(1,), (4,), (8,)]
    assert spread(points, 1) == [(1,)] and len(spread(points, 9)) == 5


@pytest.mark.parametrize("name", CASES)
def test_the_ranges_of_each_network_can_be_read(name: str) -> None:
    ranges = open_ones(open_sizes(parse_sizes([CASES[name].sizes])))
    assert ranges and len(drawn(ranges, 5, 0)) == 5


def rows_at(size: str, drawn: bool, ratios: dict[str, float]) -> list[Row]:
    blank = Row("bert", 1, "tokens=1:64", size, drawn, OWN, 100.0, 1.0, 1.0, 1.0, True, 2e-7)
    return [blank, *(replace(blank, engine=name, ratio=ratio, lo=ratio, hi=ratio) for name, ratio in ratios.items())]


def test_the_mix_is_the_mean_over_drawn_sizes_of_the_faster_peer() -> None:
    rows = [
        *rows_at("1", False, {"onnxruntime": 0.5, "openvino": 0.5, FIXED: 0.97}),
        *rows_at("7", True, {"onnxruntime": 1.5, "openvino": 2.0}),
        *rows_at("20", True, {"onnxruntime": 3.0, "openvino": 1.2, FIXED: 0.91}),
    ]
    mix = geometric_mean([1.5, 1.2])
    text = published(rows)
    summary = (
        f"| bert | 1 | tokens=1:64 | {mix:.2f} (2 of 2 sizes) | 1.20 (1.20-1.20), 20 | 2e-07 | 0.91 (0.91-0.91), 20 |"
    )
    assert summary in text.splitlines()
    assert "| bert | 1 | 1 * | 100.0 | 0.50 (0.50-0.50) | 0.50 (0.50-0.50) | 0.97 (0.97-0.97) |" in text.splitlines()
    unsure = [replace(row, trusted=False) if row.engine == "openvino" else row for row in rows]
    assert f"{mix:.2f} (2 of 2 sizes) ?" in published(unsure)


def test_a_peer_that_ran_without_a_ratio_leaves_the_size_out_and_one_that_is_not_there_does_not() -> None:
    own, one, two = rows_at("7", True, {"onnxruntime": 1.5, "openvino": 2.0})
    assert best_peer([own, one, two]) == one
    assert best_peer([own, replace(one, ratio=None, problem="busy"), two]) is None
    absent = replace(one, us=None, ratio=None, problem="not installed")
    assert best_peer([own, absent, two]) == two
    assert best_peer([own, absent]) is None


def test_a_line_of_calls_has_the_memory_of_both_and_the_worst_first_call() -> None:
    own = Calls("bert", 1, OWN, 90.0, 100.0, 1.05, 1.31, "7", 1.02, 3.0)
    text = published_calls([own, replace(own, engine="onnxruntime", peak_mib=200.0, first=2.0)])
    assert (
        text.splitlines()[-1]
        == "| bert | 1 | 100, 90 | 200, 90 | 0.50 | 1.05, 1.31 at 7; 1.02; 3 | 2.00, 1.31 at 7; 1.02; 3 |"
    )


def test_a_file_is_compiled_called_and_its_rows_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = write(
        tmp_path / "small.onnx",
        "small (float[batch, 8] x) => (float[batch, 4] y) { h = MatMul (x, w) y = Relu (h) }",
        {"w": weight(8, 4)},
    )
    raced: list[list[str]] = []

    def race(graph: Any, contenders: list[Contender], *_: Any) -> dict[str, ContenderResult]:
        assert all(one.path.exists() for one in contenders)
        raced.append([f"{one.name} at {graph.tensors['x'].shape[0]}" for one in contenders if one.name != "openvino"])
        times = {OWN: 100.0, FIXED: 98.0}
        held = {one.name: samples(times.get(one.name, 150.0)) for one in contenders}
        return compared({name: ContenderResult(1.0, None, None, None, True, "", "", 0.0, "", 1.0, one, None)
                         for name, one in held.items()})  # fmt: skip

    monkeypatch.setattr(run, "race", race)
    monkeypatch.setattr(run, "PROCESSES", 1)
    arguments = [str(model), "--sizes", "batch=1:9", "--drawn", "1", "--fixed", "2", "--out", str(tmp_path / "out")]
    assert run.main(arguments) == 0
    text = capsys.readouterr().out
    assert [names[0] for names in raced][::2] == ["autofuse at 1", "autofuse at 9"]
    assert [FIXED in " ".join(names) for names in raced] == [True, False, True]
    assert "| small | 1 | batch=1:9 | 1.50 (1 of 1 sizes) | 1.50" in text
    assert "| small | 1 | 9 * | 100.3 | 1.50 (1.50-1.50) |" in text
    assert (tmp_path / "out" / "results.md").read_text(encoding="utf-8").strip() in text
    assert not list((tmp_path / "out").glob("small-1-*.so")), "libraries of single sizes are not left behind"


def test_a_name_that_is_no_network_and_no_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["nothing", "--out", str(tmp_path)]) == 1
    assert "'nothing' is none of bert_base, " in capsys.readouterr().err
    assert title((2, 128)) == "2x128"


STEPS = decode.Row("gpt2", 1, 0, 0, 0.0, 8_000_000, 0.0, 0.0, (100.0, 101.0, 101.0))


def test_steps_are_counted_in_stretches_with_the_bytes_that_they_read() -> None:
    passes = [[500.0 + number for number in range(80)], [500.0 + number for number in range(80)]]
    rates = [[20.0] * 4 + [10.0] * 4, [30.0] * 4 + [12.0] * 4]
    rows = decode.rows_of(STEPS, passes, rates, row_bytes=1000.0)
    assert [(row.first, row.last) for row in rows] == [(first, first + 9) for first in range(0, 80, 10)]
    assert rows[0].us == 504.5 and rows[0].read_bytes == 8_004_500
    assert rows[0].gbs == pytest.approx(8_004_500 / 504.5 / 1000)
    assert [row.dram_gbs for row in rows] == [25.0] * 4 + [11.0] * 4
    assert decode.rows_of(STEPS, passes, [[5.0, 7.0]], 0.0)[4].dram_gbs == 7.0
    text = decode.published(rows)
    assert "| gpt2 | 1 | 0 to 9 | 504 | 8 | 15.9 | 63% |" in text.splitlines()
    assert "a step takes 1.14 times as long and reads 1.01 times as much" in text and "100, 101, 101 MiB" in text


def test_a_decoder_is_compiled_and_called_behind_its_own_caches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = Decoder(layers=1, masks=())
    model = written(tmp_path / "decoder.onnx", form)
    network = run.Network("decoder", model, "past=0:30", 1, tmp_path)
    monkeypatch.setattr(decode, "made", lambda *_: network)

    def absent(name: str) -> Path:
        raise MissingEnvironmentError(name)

    monkeypatch.setattr(decode, "interpreter", absent)
    assert decode.main(["--steps", "16", "--passes", "2", "--out", str(tmp_path)]) == 0
    records = read_csv(tmp_path / "decode" / "results.csv")
    assert [one["last"] for one in records] == ["1", "3", "5", "7", "9", "11", "13", "15"]
    assert all(float(one["us"]) > 0 for one in records)
    sizes = [int(one["read_bytes"]) for one in records]
    row = 2 * form.heads * form.width * 4
    assert {two - one for one, two in pairwise(sizes)} == {2 * row}
    assert sizes[0] > row, "the weights are read, too"
    (points,) = lines_of(records).values()
    assert points[0][0] == 0.5 and points[0][2] == pytest.approx(
        sizes[0] / float(records[0]["dram_gbs"]) / 1e6, rel=1e-3
    )


def test_the_end_of_a_tuning_is_near_once_all_kernels_are_fast() -> None:
    """20 and 10 us a call in the end: near from the sixth candidate on, where the second kernel takes 10.2."""
    measured = [("a", 12.0), ("b", None), ("b", 30.0), ("c", 1.0), ("a", 10.0), ("b", 10.2), ("b", 10.0), ("a", 11.0)]
    assert near_end(measured, {"a": 2.0, "b": 1.0}) == 6
    assert near_end(measured, {"a": 2.0, "d": 1.0}) == 5, "one without a time is left out"
    assert near_end(measured, {"d": 1.0}) is None
    assert near_end([], {"a": 1.0}) is None


def test_a_range_is_set_against_one_size() -> None:
    one = tuning.Row("net", 1, "128", True, kernels=4, measured=40, near=20, plans=3, chosen="search")
    whole = tuning.Row("net", 1, "tokens=1:128", False, kernels=11, measured=80, near=30, plans=5, chosen="default")
    lines = tuning.published([one, whole]).splitlines()
    assert lines[-2] == "| net | 1 | 128 | 4 | 40 | 20 | 3 | search |  |"
    assert lines[-1] == "| net | 1 | tokens=1:128 | 11 | 80 | 30 | 5 | default | 1.50 |"
    assert "never" in tuning.published([tuning.Row("net", 1, "128", True)])
