"""What `compile` prints: equal kernels in one line, the source of each rung, and the sum last."""

from __future__ import annotations

from rich.console import Console

from autofuse.cli.screens.compile_view import compile_text
from autofuse.compiler import CompileReport, GroupReport, PlanReport


def printed(groups: list[GroupReport], plans: int = 1) -> list[list[str]]:
    made = tuple(PlanReport({"x": (batch, 8)}, "search", "hit", "0" * 64, len(groups)) for batch in range(1, plans + 1))
    report = CompileReport(
        model="net", library="", plan="search", plan_tier="hit", plan_key="0" * 64, threads=1, device="local",
        kernels=len(groups), hits=sum(group.tier == "hit" for group in groups), size_bytes=0, elapsed_s=1.0,
        groups=tuple(groups), plans=made,
    )  # fmt: skip
    screen = Console(width=200)
    with screen.capture() as capture:
        screen.print(compile_text(report))
    return [line.split() for line in capture.get().splitlines()]


def group(label: str, tier: str, us: float | None = None, source: str = "", program: int = 0) -> GroupReport:
    return GroupReport(label, ("op",), tier, us, "{}", source, program)


def test_equal_kernels_are_one_line_and_the_tiers_are_counted() -> None:
    near = group("Conv 1x4", "nearest shape", None, "Conv 1x8, 1.0 doublings away")
    lines = printed([group("Conv 1x8", "hit", 12.5), group("Conv 1x8", "hit", 12.5), near])
    assert lines[0] == ["group", "kernels", "tier", "time", "from"]
    assert lines[1] == ["Conv", "1x8", "2", "hit", "12.5", "µs"]
    assert lines[2] == ["Conv", "1x4", "1", "nearest", "shape", "-", "Conv", "1x8,", "1.0", "doublings", "away"]
    assert ["schedules", "2", "hit,", "1", "nearest", "shape"] in lines
    assert ["library", "none:", "a", "dry", "run"] in lines
    assert not any("0" * 64 in line for line in lines)


def test_programs_for_several_shapes_are_told_apart() -> None:
    lines = printed([group("Conv 1x8", "hit", 12.5), group("Conv 2x8", "rule", program=1)], plans=2)
    assert lines[0] == ["program", "group", "tier", "time", "from"]
    assert ["1", "x", "2x8", "search", "hit", "2"] in lines


def test_it_says_what_to_do_when_nothing_was_measured() -> None:
    assert any("tune`" in word for line in printed([group("Conv 1x8", "rule")]) for word in line)
    assert not any("tune`" in word for line in printed([group("Conv 1x8", "hit", 1.0)]) for word in line)


def test_hits_on_times_that_are_not_trusted_are_marked_and_said() -> None:
    report = CompileReport(
        model="net", library="", plan="search", plan_tier="hit", plan_key="0" * 64, threads=1, device="local",
        kernels=1, hits=1, size_bytes=0, elapsed_s=1.0, warning="not trusted: the times of Conv 1x8",
        groups=(GroupReport("Conv 1x8", ("op",), "hit", 12.5, "{}", trusted=False),),
    )  # fmt: skip
    screen = Console(width=200)
    with screen.capture() as capture:
        screen.print(compile_text(report))
    lines = capture.get().splitlines()
    assert lines[0].split() == ["group", "tier", "time", "trusted", "from"] and " no" in lines[1]
    assert "Not trusted: the times of Conv 1x8." in capture.get()
