"""The whole model in a run: the time of what was chosen, and everything that it is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from autofuse.values.ratios import FASTER, SAME, Ratio, Timed, compare, decided_share
from autofuse.views.frames.frames import read_frame, timed_rows
from autofuse.views.frames.groups import last_choice

if TYPE_CHECKING:
    from autofuse.database.database import ProfilingDatabase

UNCONFIRMED = "no plan was measured whole, so the plan follows from the times of its kernels"
"""Of a run whose choice was not confirmed."""


@dataclass(frozen=True)
class Beside:
    """A plan or rival that was measured whole. `ratio`: of its time to that of the chosen plan; None for a failure."""

    row: pd.Series
    ratio: Ratio | None = None

    @property
    def name(self) -> str:
        """What the reports call it."""
        return str(self.row["name"])


@dataclass(frozen=True)
class Whole:
    """The whole model in a run. `chosen`: the row of `plan_measurements` that confirmed the choice, `time`: its time or
    None.

    `beside`: what it is compared with, those of its own series first.
    """

    chosen: pd.Series | None
    time: Timed | None
    beside: tuple[Beside, ...]

    def ratio(self, name: str) -> Ratio | None:
        """The ratio of a rival's time to the chosen plan's; None where it has no time."""
        return next((one.ratio for one in self.beside if one.name == name), None)


def decided_together(choices: pd.DataFrame) -> bool:
    """Whether a race of whole networks decided the last choice with all its schedules; see `ratios.decided_share`."""
    return not choices.empty and bool(choices.iloc[-1]["details"].get("together"))


def trusted_decisions(choices: pd.DataFrame, groups: pd.DataFrame) -> float | None:
    """See `ratios.decided_share`; `groups`: of the last choice. Where a group kept the first schedule that it was
    measured with, nothing was decided, unless a race decided all together."""
    together = decided_together(choices)
    kept = (groups["gain_lo"] == 1.0) & (groups["gain_hi"] == 1.0) | groups["candidate_id"].isna()
    parts = groups if together else groups[~kept]
    return decided_share(zip(parts["us"].fillna(0.0), parts["gain_verdict"], strict=True), together)


def decided_share_of(database: ProfilingDatabase, run_id: int) -> float | None:
    """`trusted_decisions` of one run, for its result screen; its report and its page say the same."""
    choices, groups = (read_frame(database, name, run_id) for name in ("choices", "groups"))
    return None if groups.empty else trusted_decisions(choices, last_choice(groups))


def choice_words(choices: pd.DataFrame) -> str:
    """How the last choice was decided, such as "faster than plan untuned"; "" where that is not known."""
    details = {} if choices.empty else choices.iloc[-1]["details"]
    verdict, against = details.get("verdict"), details.get("against")
    if verdict == FASTER:
        return f"faster than plan {against}"
    if verdict == SAME:
        return f"no slower than plan {against}, and simpler"
    return f"undecided against plan {against}, so the simpler one" if verdict else ""


def whole_model(measurements: pd.DataFrame, choices: pd.DataFrame) -> Whole:
    """The whole-model times of a run; both frames of that run alone.

    A rival is taken from the series that confirmed the choice, else from the newest one that has it (a later `bench`),
    and compared with the chosen plan as it was measured there.
    """
    chosen = chosen_measurement(measurements, choices)
    if chosen is None:
        return Whole(None, None, tuple(Beside(row) for _, row in measurements.iterrows()))
    timed = timed_rows(measurements)
    beside = tuple(
        Beside(row, _ratio(row, chosen, measurements, timed)) for _, row in _rivals(measurements, chosen).iterrows()
    )
    return Whole(chosen, timed[_number(chosen)], beside)


def chosen_measurement(measurements: pd.DataFrame, choices: pd.DataFrame) -> pd.Series | None:
    """The newest whole-model time that a run itself took of the plan it chose last; both frames of that run alone."""
    if choices.empty:
        return None
    plan = choices.iloc[-1]["plan_key"]
    found = measurements[(measurements["plan_key"] == plan) & (measurements["state"] == "ok")]
    own = found[found["run_id"].notna()]
    if found.empty:
        return None
    rows = found if own.empty else own
    named = rows[rows["name"] == choices.iloc[-1]["details"].get("name")]  # one plan may have raced with two schedules
    newest: pd.Series = (rows if named.empty else named).iloc[-1]
    return newest


def _rivals(measurements: pd.DataFrame, chosen: pd.Series) -> pd.DataFrame:
    """What was measured in the series of the chosen plan, and the newest of what was not."""
    elsewhere_chosen = (measurements["plan_key"] == chosen["plan_key"]) & (measurements["series"] != chosen["series"])
    others = measurements[~elsewhere_chosen & (measurements["name"] != chosen["name"])]
    beside = others[others["series"] == chosen["series"]]
    together = measurements[(measurements["plan_key"] == chosen["plan_key"]) & (measurements["state"] == "ok")]
    elsewhere = others[others["series"].isin(together["series"]) & ~others["name"].isin(beside["name"])]
    missing = elsewhere.drop_duplicates("name", keep="last")
    rivals: pd.DataFrame = pd.concat([beside.drop_duplicates("name", keep="last"), missing])
    return rivals


def _ratio(row: pd.Series, chosen: pd.Series, measurements: pd.DataFrame, timed: Mapping[int, Timed]) -> Ratio | None:
    old = timed.get(_number(row))
    if old is None:
        return None
    there = measurements[
        (measurements["series"] == row["series"])
        & (measurements["plan_key"] == chosen["plan_key"])
        & (measurements["state"] == "ok")
    ]
    new = chosen if there.empty or row["series"] == chosen["series"] else there.iloc[-1]
    return compare(old, timed[_number(new)])


def _number(row: pd.Series) -> int:
    return int(row["plan_measurement_id"])
