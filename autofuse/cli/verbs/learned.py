"""Verbs of the profitability model: `model train|eval|show`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group

from autofuse.cli.options import OutputFormat, Seed
from autofuse.cli.screens.render import describe, plain, records, show
from autofuse.values.outputs import check_output, database_files

if TYPE_CHECKING:
    from autofuse.learning.judge import Judgement
    from autofuse.learning.model import ProfitabilityModel

model_verbs = typer.Typer(
    help="The learned profitability model: what fusing gains, from what was measured.", no_args_is_help=True
)

Databases = Annotated[
    list[str] | None,
    typer.Option(
        "--db", metavar="PATH-or-URL", help="A profiling database. May repeat. [default: in your data folder]"
    ),
]
SHOWN = 15


@model_verbs.command("train")
def train(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The model to write.")],
    databases: Databases = None,
    seed: Seed = 0,
    form: OutputFormat = "text",
) -> None:
    """Learn times and gains of fusing from what databases hold; measures nothing."""
    from autofuse.database.connection import locate
    from autofuse.learning.dataset import read_dataset
    from autofuse.learning.model import train as learn
    from autofuse.learning.stored import TRAINED_MODEL, save

    for place in databases if databases else (None,):
        check_output(output, TRAINED_MODEL, database_files(locate(place).path))
    started = time.monotonic()
    dataset = read_dataset(databases or [None])
    read_s = time.monotonic() - started
    made = learn(dataset, seed)
    learn_s = time.monotonic() - started - read_s
    key = save(made, output)
    body = {**_about(made), "model": str(output), "sha256": key, "read_s": read_s, "learn_s": learn_s}
    show(body, form, describe(body))


@model_verbs.command("eval")
def evaluate(
    model: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="A model, judged on networks it did not see. [default: train in turns]"),
    ] = None,
    databases: Databases = None,
    seed: Seed = 0,
    form: OutputFormat = "text",
) -> None:
    """Judge predictions on networks held out: regret, harm, ranking, calibration.

    Without a file, models are trained on some networks of the databases and judged on the others, in turn.
    """
    from autofuse.learning.dataset import read_dataset
    from autofuse.learning.judge import cross_judge, judge_model
    from autofuse.learning.stored import load

    loaded = None if model is None else load(model)
    dataset = read_dataset(databases or [None])
    found = cross_judge(dataset, seed) if loaded is None else judge_model(loaded, dataset)
    show(found, form, _judgement_text(found))


@model_verbs.command("show")
def show_model(
    model: Annotated[Path, typer.Argument(metavar="FILE", help="What `autofuse model train` wrote.")],
    form: OutputFormat = "text",
) -> None:
    """Show what a model was trained on, how wide its intervals are, and what it looks at."""
    from autofuse.learning.stored import load

    made = load(model)
    weights = {"time": importances(made, "time"), "gain": importances(made, "gain")}
    rows = [
        {"time": first[0], "share": first[1], "gain": second[0], "share of gain": second[1]}
        for first, second in list(zip(weights["time"].items(), weights["gain"].items(), strict=False))[:SHOWN]
    ]
    body = {**_about(made), "importances": weights}
    show(body, form, Group(describe(_about(made)), "", records(plain(rows), "what the predictions look at most")))


def importances(made: ProfitabilityModel, part: str) -> dict[str, float]:
    """Share that each feature has in a part ("time", "gain") of a model, the largest first."""
    learned = made.time if part == "time" else made.gain
    pairs = zip(learned.names, learned.importances, strict=True)
    return {name: float(share) for name, share in sorted(pairs, key=lambda pair: -pair[1])}


def _about(made: ProfitabilityModel) -> dict[str, object]:
    return {
        **made.about,
        "families": list(made.families),
        "time_features": len(made.time.names),
        "gain_features": len(made.gain.names),
        "time_trees": len(made.time.mean.roots),
        "gain_trees": len(made.gain.mean.roots),
        "time_factor": made.time.factor,
        "gain_factor": made.gain.factor,
    }


def _judgement_text(found: Judgement) -> Group:
    facts = {name: value for name, value in vars(found).items() if name != "auc"}
    cells = [{"relation": cell, "AUC": value} for cell, value in found.auc.items()]
    return Group(describe(facts), "", records(plain(cells), "how well gains are ranked (0.5 is chance)"))
