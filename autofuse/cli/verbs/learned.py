"""Verbs of the profitability model: `model train|eval|show`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group

from autofuse.cli.options import OutputFormat, Seed
from autofuse.cli.screens.next_steps import after_training
from autofuse.cli.screens.render import describe, plain, records, show

if TYPE_CHECKING:
    from autofuse.api.results import Judgement

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
    from autofuse import api

    made = api.model_train(output, databases=databases or (), seed=seed)
    times = {"read_s": made.read_s, "learn_s": made.learn_s}
    body = {**made.facts, "model": made.model, "sha256": made.sha256, **times}
    show(body, form, describe(body), after_training(str(output)))


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
    from autofuse import api

    found = api.model_eval(model, databases=databases or (), seed=seed)
    show(found, form, _judgement_text(found))


@model_verbs.command("show")
def show_model(
    model: Annotated[Path, typer.Argument(metavar="FILE", help="What `autofuse model train` wrote.")],
    form: OutputFormat = "text",
) -> None:
    """Show what a model was trained on, how wide its intervals are, and what it looks at."""
    from autofuse import api

    found = api.model_show(model)
    weights = found.importances
    rows = [
        {"time": first[0], "share": first[1], "gain": second[0], "share of gain": second[1]}
        for first, second in list(zip(weights["time"].items(), weights["gain"].items(), strict=False))[:SHOWN]
    ]
    body = {**found.facts, "importances": weights}
    show(body, form, Group(describe(found.facts), "", records(plain(rows), "what the predictions look at most")))


def _judgement_text(found: Judgement) -> Group:
    facts = {name: value for name, value in vars(found).items() if name != "auc"}
    cells = [{"relation": cell, "AUC": value} for cell, value in found.auc.items()]
    return Group(describe(facts), "", records(plain(cells), "how well gains are ranked (0.5 is chance)"))
