"""Hot loops in LLVM's assembly for AArch64: their instructions, their multiply-adds, their spills."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

LANES = 4
_LABEL = re.compile(r"(\.L\w+):")
_BRANCH = re.compile(r"\s+(?:b(?:\.\w+)?|cbn?z|tbn?z)\s.*?(\.L\w+)$")
_INSTRUCTION = re.compile(r"\s+[a-z][a-z0-9.]*(\s|$)")
_VECTOR_MULTIPLY = re.compile(
    r"\s+(fml[as]|fml[as]l2?|[us]dot|usdot|sudot|[us]mmla|usmmla|bfdot|bfmmla|[us]mlal2?)\s+v\d+\.4s"
)
_FLOAT16_MULTIPLY = re.compile(r"\s+(fml[as]\s+v\d+\.8h)")
_SCALAR_FMLA = re.compile(r"\s+f(n?madd|n?msub)\s")
_SPILL = re.compile(r"\s+(?:ld|st)[rp]\s+[qd]\d+.*\[sp")


@dataclass(frozen=True)
class Loop:
    """An innermost loop. `fmla`: multiply-adds of full vectors, of floats or of narrow numbers; `ideal`: as many as its
    multiplications would fill.

    `spills`: vector loads and stores of the stack. `names`: the instructions that multiply vectors.
    """

    lines: tuple[str, ...]
    fmla: int
    scalar: int
    spills: int
    names: tuple[str, ...] = ()

    @property
    def instructions(self) -> int:
        """All instructions of one turn."""
        return len(self.lines)

    @property
    def ideal(self) -> float:
        """Vector multiply-adds that the loop's arithmetic needs at least."""
        return self.fmla + self.scalar / LANES

    @property
    def ratio(self) -> float:
        """Instructions an ideal multiply-add."""
        return self.instructions / self.ideal


def innermost_loops(assembly: str) -> list[Loop]:
    """Loops that hold no other and multiply, those with the most multiply-adds first."""
    lines = [line.split("//")[0].rstrip() for line in assembly.splitlines()]
    spans = list(_spans(lines))
    inner = [a for a in spans if not any(b != a and b[0] >= a[0] and b[1] <= a[1] for b in spans)]
    found = [_loop(lines[first : last + 1]) for first, last in inner]
    return sorted((loop for loop in found if loop.ideal), key=lambda loop: -loop.ideal)


def summed_in_stretches(assembly: str, multiplies: int) -> Loop | None:
    """The loop of stretches with the most multiply-adds, of which one stretch makes so many: all turns of the loop
    inside of it, and what stands around that. The inner loop alone where a stretch is no loop of its own. Only what the
    inner one spills counts: the sums in float32 wait on the stack while it runs."""
    lines = [line.split("//")[0].rstrip() for line in assembly.splitlines()]
    spans = list(_spans(lines))
    inner = [a for a in spans if not any(b != a and b[0] >= a[0] and b[1] <= a[1] for b in spans)]
    made = {span: _loop(lines[span[0] : span[1] + 1]) for span in inner}
    float16 = [span for span, loop in made.items() if any(name.endswith(".8h") for name in loop.names)]
    if not float16:
        return None
    first, last = span = max(float16, key=lambda one: made[one].fmla)
    around = [a for a in spans if a != span and a[0] <= first and a[1] >= last]
    turns, rest = divmod(multiplies, made[span].fmla)
    if not around or rest:
        return made[span]
    begin, end = min(around, key=lambda one: one[1] - one[0])
    whole = _loop([*lines[begin:first], *lines[first : last + 1] * turns, *lines[last + 1 : end + 1]])
    return replace(whole, spills=made[span].spills)


def hot_loop(assembly: str, tile: int) -> tuple[Loop, bool]:
    """(the loop of full tiles, whether there is one) of a contraction with `tile` accumulators.

    Loops at the padding and of narrower tiles at the edge have other numbers of multiply-adds. Where a layer is so
    small that every tile touches its padding there is no loop of full tiles, and the largest one counts.
    """
    loops = innermost_loops(assembly)
    full = [loop for loop in loops if loop.fmla and loop.fmla % tile == 0]
    if full:
        return min(full, key=lambda loop: loop.ratio), True
    return loops[0], False


def _spans(lines: list[str]) -> Iterator[tuple[int, int]]:
    labels: dict[str, int] = {}
    for number, line in enumerate(lines):
        label = _LABEL.match(line)
        if label:
            labels[label[1]] = number
    for number, line in enumerate(lines):
        branch = _BRANCH.match(line)
        if branch and labels.get(branch[1], number) < number:
            yield labels[branch[1]], number


def _loop(lines: list[str]) -> Loop:
    body = tuple(line for line in lines if _INSTRUCTION.match(line))
    found = [_VECTOR_MULTIPLY.match(line) or _FLOAT16_MULTIPLY.match(line) for line in body]
    names = [re.sub(r"\s+v\d+", " ", match[1]) for match in found if match]
    return Loop(
        body,
        len(names),
        sum(bool(_SCALAR_FMLA.match(line)) for line in body),
        sum(bool(_SPILL.match(line)) for line in body),
        tuple(sorted(set(names))),
    )
