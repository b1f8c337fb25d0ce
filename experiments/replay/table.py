"""The table of replays: one line an oracle, one column a policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log

from experiments.records import Table
from experiments.replay.policies import POLICIES
from experiments.tables import head, line

BASE = POLICIES[0].name
"""The policy that the others are compared with."""
FLOOR = "perfect knowledge"
"""What `autofuse`'s searches could reach at best, see `experiments.replay.floor`."""
NAMES = (*(policy.name for policy in POLICIES), FLOOR)


@dataclass(frozen=True)
class Row:
    """A policy on an oracle that holds `recorded` candidates, measured in `recorded_s` seconds.

    `asked`: candidates until the best plan known was within 2 % of the oracle's best (0: it never was); `strangers`: of
    these (or of all), those that the oracle does not hold, which a search on a machine would have measured. `seconds`:
    of all of them. `end`: time of the best plan known when the replay ended, over the oracle's best (None:
    no plan was known whole).
    """

    network: str
    device: str
    policy: str
    recorded: int
    recorded_s: float
    asked: int
    seconds: float
    strangers: int
    end: float | None

    def line(self) -> str:
        """It as a line of text."""
        until = f"{self.asked} asked, {self.seconds:.0f} s" if self.asked else f"never{self._ended()}"
        return f"{self.network} on {self.device}, {self.policy}: {until}, {self.strangers} of them not recorded"

    def _ended(self) -> str:
        return "" if self.end is None else f" (ends at {self.end:.3f})"


def markdown(rows: Sequence[Row]) -> str:
    """Candidates until 98 % (and seconds as recorded) of each policy on each oracle; against the first, in the mean of
    each kind of device.
    """
    found = {(row.network, row.device, row.policy): row for row in rows}
    lines = head(("network", "kind", "recorded", *NAMES))
    for network, device in dict.fromkeys((row.network, row.device) for row in rows):
        own = [found.get((network, device, name)) for name in NAMES]
        known = next(row for row in own if row is not None)
        lines.append(line([network, device, f"{known.recorded} ({known.recorded_s:.0f} s)", *map(_cell, own)]))
    for device in dict.fromkeys(row.device for row in rows):
        means = means_of([row for row in rows if row.device == device])
        shown = [f"{means[name][0]:.2f} ({means[name][1]})" if name in means else "-" for name in NAMES]
        lines.append(line([f"share of what `{BASE}` needs: geometric mean (oracles)", device, "", *shown]))
    return "\n".join(lines) + "\n"


def _cell(row: Row | None) -> str:
    if row is None:
        return "-"
    strangers = f", {row.strangers} not recorded" if row.strangers else ""
    if row.policy == FLOOR and row.asked:
        return str(row.asked)
    if row.asked:
        return f"{row.asked} ({row.seconds:.0f} s{strangers})"
    return f"never{'' if row.end is None else f', {row.end:.2f}'}{strangers}"


def means_of(rows: Sequence[Row]) -> Mapping[str, tuple[float, int]]:
    """Of each policy the geometric mean, over oracles, of its candidates over the base's, and of how many oracles.

    One that never came close counts with all that the oracle holds, and what it asked beyond that.
    """
    needs = {(row.network, row.device, row.policy): row.asked or row.recorded + row.strangers for row in rows}
    places = dict.fromkeys((row.network, row.device) for row in rows)
    found: dict[str, tuple[float, int]] = {}
    for name in NAMES:
        both = [place for place in places if (*place, name) in needs and (*place, BASE) in needs]
        if both:
            logs = [log(needs[*place, name] / needs[*place, BASE]) for place in both]
            found[name] = exp(sum(logs) / len(logs)), len(both)
    return found


TABLE = Table("replay", Row, ("network", "device", "policy"), markdown)
