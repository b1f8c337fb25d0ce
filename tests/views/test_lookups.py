"""What a compile would find today: hit, stale hit, or a miss with its reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autofuse.database.records import ChosenGroup, content_key
from autofuse.device.target import Target
from autofuse.views.frames.analysis import Analysis, open_analysis

TARGET = Target("znver4", 16, 32, 2, 32768, 1 << 20)


def test_hits_and_misses_of_the_chosen_groups(analysis: Analysis) -> None:
    rows = {row["label"]: row for row in analysis.lookups.to_dict("records")}
    assert (rows["Conv 1x8"]["tier"], rows["Conv 1x8"]["uses"], rows["Conv 1x8"]["median_us"]) == ("exact", 2, 100.0)
    assert (rows["Pool 1x8"]["tier"], rows["Pool 1x8"]["why"]) == ("miss", "never measured here")


def test_a_group_whose_schedules_all_failed_says_so(recorder: Any, path: Path) -> None:
    run = recorder.run("bad")
    recorder.candidate(run, "Conv 1x8", 1, None)
    groups = [ChosenGroup(("conv1",), content_key("Conv 1x8"), None, None)]
    recorder.database.record_choice(run, "search", groups, median_us=None, trusted=False)
    with open_analysis(path) as opened:
        (row,) = opened.frame("lookups", run).to_dict("records")
        assert (row["tier"], row["why"]) == ("miss", "no schedule worked: 1 timeout")


def test_other_versions_make_a_hit_stale(recorder: Any, night: int, path: Path) -> None:
    newer = recorder.database.setting(
        fingerprint="f" * 64, device_name="board | lab", device_facts={}, target=TARGET,
        threads=1, versions={"tvm": "0.28"},
    )  # fmt: skip
    recorder.setting = newer
    run = recorder.run("after the update")
    best = recorder.database.lookup(newer, [content_key("Conv 1x8")])[content_key("Conv 1x8")]
    groups = [ChosenGroup(("conv1",), content_key("Conv 1x8"), best.candidate_id, 100.0)]
    recorder.database.record_choice(run, "search", groups, median_us=None, trusted=False)
    with open_analysis(path) as opened:
        assert set(opened.frame("lookups", run)["tier"]) == {"stale"}
