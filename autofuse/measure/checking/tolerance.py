"""Is a result right: dtype-aware comparison with a reference, and outputs that show unwritten elements."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autofuse.kernels.workload.levels import rounds_to_bytes, rounds_to_float16
from autofuse.measure.measurement import MeasureRequest

LIMITS = {"float16": 5e-3, "float32": 1e-4, "float64": 1e-7}
"""Largest error allowed, as a part of the output's range; integers and bools must be equal."""

BYTES_LIMIT = 1e-2
"""That of a kernel which rounds the blocks of rows to bytes: against the exact product, as everything is held to. A
rounding is off by 1/254 of the largest number of its block at most, and the products of a row hardly add up."""

ROUNDINGS = 16
"""Errors below this many units in the last place of the largest value never count as wrong."""


FLUSHED = ("float32", "float64")
"""Types of which an error below the normal numbers never counts: kernels for x86 write 0 there, see
`autofuse.kernels.tir.llvm_text`."""

RARE, LEVEL = 0.01, 0.01
"""Part of the elements that may be off where a number between two levels is rounded to the other one, and how far, as a
part of the range; integers by one."""

BFLOAT16_LEVEL, MANY = 2.0**-7, 0.1
"""How far two neighbours among the bfloat16 lie apart at most, as a part of the number itself, and the part of the
elements that may be off where none is by more: between levels that fine lies many a sum that Winograd's transforms
make."""


@dataclass(frozen=True)
class Verdict:
    """`max_rel_error`: largest |actual - expected| over the reference's range (inf: not comparable)."""

    max_rel_error: float
    ok: bool
    reason: str = ""


def limit_of(request: MeasureRequest) -> float | None:
    """The limit of a request, or where it has none that of float16 for a kernel that computes in it, and a wider one
    for a kernel that rounds rows to bytes (None: the default of the dtype)."""
    if request.limit is None and rounds_to_bytes(request.schedule):
        return BYTES_LIMIT
    rounds = request.limit is None and rounds_to_float16(request.workload, request.schedule)
    return LIMITS["float16"] if rounds else request.limit


def compare(
    actual: NDArray[np.generic], expected: NDArray[np.generic], limit: float | None = None, ambiguous: bool = False
) -> Verdict:
    """Whether `actual` is `expected` up to rounding; `limit` replaces the default of the dtype.

    `ambiguous`: the result stands behind a rounding to levels whose operand has no one right value, see
    `autofuse.kernels.workload.levels`; then few elements may be one level off.

    The scale is the reference's range (max - min of its finite values); where that is so small against the
    values that rounding alone would fail, it is the range at which `ROUNDINGS` units in the last place are
    just allowed. NaN must stand where NaN stands, an infinity where the same infinity stands.
    """
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        got, want = f"{actual.dtype}{list(actual.shape)}", f"{expected.dtype}{list(expected.shape)}"
        return Verdict(float("inf"), False, f"result is {got}, the reference {want}")
    if expected.size == 0:
        return Verdict(0.0, True)
    if expected.dtype.kind == "c":
        return compare(_halves(actual), _halves(expected), limit)
    allowed = LIMITS.get(expected.dtype.name, LIMITS["float32"]) if limit is None else limit
    real = expected.dtype.kind == "f"
    verdict = _compare_float(actual, expected, allowed) if real else _compare_exact(actual, expected)
    return _by_levels(actual, expected, allowed, verdict) if ambiguous and not verdict.ok else verdict


def poisoned(expected: NDArray[np.generic]) -> NDArray[np.generic]:
    """An array that differs from `expected` in every element: NaN for floats, another value for the rest.

    A kernel that leaves an element unwritten therefore always compares as wrong.
    """
    if expected.dtype.kind in "fc":
        fill = np.where(np.isnan(expected), 0, np.nan)
        return fill.astype(expected.dtype)
    if expected.dtype.kind == "b":
        return np.asarray(np.logical_not(expected))
    return np.asarray(np.bitwise_xor(expected, np.array(0x55, expected.dtype)))


def _compare_exact(actual: NDArray[np.generic], expected: NDArray[np.generic]) -> Verdict:
    different = actual != expected
    count = int(np.count_nonzero(different))
    if not count:
        return Verdict(0.0, True)
    where = _first(different)
    reason = f"{count} of {expected.size} elements differ, first at {where}: {actual[where]}, not {expected[where]}"
    return Verdict(float("inf"), False, reason)


def _compare_float(actual: NDArray[np.generic], expected: NDArray[np.generic], limit: float) -> Verdict:
    wanted = expected.astype(np.float64).ravel()
    with np.errstate(invalid="ignore"):
        error = np.abs(actual.astype(np.float64).ravel() - wanted)
        if expected.dtype.name in FLUSHED:
            error[error < np.finfo(expected.dtype.name).tiny] = 0.0
    worst = float(error.max())
    if not np.isfinite(worst):
        misplaced = _misplaced(actual, expected)
        if misplaced.any():
            where = _first(misplaced)
            count = int(np.count_nonzero(misplaced))
            reason = f"{count} of {expected.size} elements not finite as expected: {actual[where]} at {where}"
            return Verdict(float("inf"), False, f"{reason}, the reference has {expected[where]}")
        finite = np.isfinite(wanted)
        if not finite.any():
            return Verdict(0.0, True)
        error = np.where(finite, error, 0.0)
        wanted, worst = wanted[finite], float(error.max())
    relative = worst / _scale(wanted, float(np.finfo(expected.dtype.name).eps), limit)
    if relative <= limit:
        return Verdict(relative, True)
    where = _index(int(error.argmax()), expected.shape)
    reason = f"relative error {relative:.2e} of the range exceeds {limit:.0e}: {actual[where]} at {where}"
    return Verdict(relative, False, f"{reason}, the reference has {expected[where]}")


def _by_levels(actual: NDArray[np.generic], expected: NDArray[np.generic], limit: float, strict: Verdict) -> Verdict:
    """The verdict where few elements may be one level off; `strict`: the one without."""
    wanted = expected.astype(np.float64).ravel()
    error = np.abs(actual.astype(np.float64).ravel() - wanted)
    if expected.dtype.kind not in "iuf" or not np.isfinite(wanted).all() or not np.isfinite(error).all():
        return strict
    off, worst = error > 0, float(error.max())
    reach = float(wanted.max() - wanted.min()) or 1.0
    if expected.dtype.kind == "f":
        scale = _scale(wanted, float(np.finfo(expected.dtype.name).eps), limit)
        off, within = error > limit * scale, worst <= LEVEL * scale
        if (error <= BFLOAT16_LEVEL * np.abs(wanted) + limit * scale).all():
            return Verdict(worst / reach, True) if np.count_nonzero(off) <= MANY * expected.size else strict
    else:
        within = worst <= 1
    few = np.count_nonzero(off) <= max(1, RARE * expected.size)
    return Verdict(worst / reach, True) if few and within else strict


def _halves(array: NDArray[np.generic]) -> NDArray[np.generic]:
    return np.stack([np.real(array), np.imag(array)])


def _misplaced(actual: NDArray[np.generic], expected: NDArray[np.generic]) -> NDArray[np.bool_]:
    same = np.where(np.isnan(expected), np.isnan(actual), actual == expected)
    return np.asarray(np.where(np.isfinite(expected), ~np.isfinite(actual), ~same))


def _scale(wanted: NDArray[np.float64], epsilon: float, limit: float) -> float:
    largest = float(np.abs(wanted).max())
    reach = float(wanted.max() - wanted.min())
    if not reach:
        return largest or 1.0
    rounding = ROUNDINGS * epsilon * largest / limit if limit > 0 else 0.0
    return max(reach, min(rounding, largest))


def _first(mask: NDArray[np.bool_]) -> tuple[int, ...]:
    return _index(int(np.argmax(mask)), mask.shape)


def _index(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(index) for index in np.unravel_index(flat, shape))
