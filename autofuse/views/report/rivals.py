"""What a chosen plan is compared with."""

from __future__ import annotations

import pandas as pd


def rivals_of(measurements: pd.DataFrame, chosen: pd.Series) -> pd.DataFrame:
    """What was measured in the series of the chosen plan, and the newest of what was not."""
    others = measurements[measurements["plan_measurement_id"] != chosen["plan_measurement_id"]]
    others = others[others["name"] != chosen["name"]]
    beside = others[others["series"] == chosen["series"]]
    missing = others[~others["name"].isin(beside["name"])].drop_duplicates("name", keep="last")
    rivals: pd.DataFrame = pd.concat([beside.drop_duplicates("name", keep="last"), missing])
    return rivals
