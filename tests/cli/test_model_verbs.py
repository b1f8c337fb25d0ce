"""`autofuse model train|eval|show` on a database whose times are made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from autofuse.cli.main import app
from autofuse.database.database import open_database
from autofuse.database.records import Candidate, CandidateOutcome, RunStart
from autofuse.environment.environment import environment_of
from autofuse.kernels.workload.workload import Value, Workload, WorkloadOperator

KINDS = ("Exp", "Sigmoid", "Relu", "Softmax")


def chain(kinds: tuple[str, ...], width: int) -> Workload:
    """A chain of operators on one tensor."""
    values = tuple(Value(kind, (16, width), "float32") for kind in ("input", *["inner"] * (len(kinds) - 1), "output"))
    steps = tuple(
        WorkloadOperator(kind, (n,), (n + 1,), (("axis", 1),) if kind == "Softmax" else ())
        for n, kind in enumerate(kinds)
    )
    return Workload(values, steps, 18)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three networks of chains; fusing saves memory traffic, and costs where a Softmax is not at the end."""
    path = tmp_path_factory.mktemp("verbs") / "profile.db"
    with open_database(path) as base:
        environment = environment_of(base, "local", 1, measuring=False)
        for number, name in enumerate(("first", "second", "third")):
            start = RunStart(name=name, model_name=name, model_sha256="0" * 64, graph_key="0" * 64, seed=0)
            run = base.start_run(environment.setting, start)
            for width in (64, 256, 1024, 4096):
                width += 8 * number
                singles = [(kind,) for kind in KINDS]
                pairs = [(first, second) for first in KINDS for second in KINDS if first != second]
                for kinds in (*singles, *pairs):
                    work = chain(kinds, width)
                    us = width * (0.01 + 0.01 * len(kinds)) * (3 if kinds[0] == "Softmax" and len(kinds) > 1 else 1)
                    outcome = CandidateOutcome(
                        candidate=Candidate(work.key, work.text, work.label, "{}"), state="ok",
                        median_us=us, ci_lo_us=us, ci_hi_us=us, trusted=True,
                    )  # fmt: skip
                    base.record_candidate(environment.setting, outcome, run)
            base.finish_run(run)
    return path


def call(*arguments: object) -> tuple[int, str, str]:
    found = CliRunner().invoke(app, [str(one) for one in arguments])
    return found.exit_code, found.stdout, found.stderr


def body_of(*arguments: object) -> Any:
    code, out, err = call(*arguments, "--format", "json")
    assert code == 0, err
    return json.loads(out)


@pytest.mark.long
def test_a_model_is_trained_shown_and_judged(database: Path, tmp_path: Path) -> None:
    file = tmp_path / "own.model"
    made = body_of("model", "train", "--db", database, "-o", file)
    assert made["networks"] == ["first", "second", "third"] and made["threads"] == [1]
    assert made["rows"] == 3 * 4 * 16 and made["decisions"] == 3 * 4 * 12 and file.exists()
    shown = body_of("model", "show", file)
    assert shown["rows"] == made["rows"] and sum(shown["importances"]["gain"].values()) == pytest.approx(1)
    code, out, _ = call("model", "show", file)
    assert code == 0 and "what the predictions look at most" in out and "first, second, third" in out
    judged = body_of("model", "eval", "--db", database)
    assert judged["decisions"] == 3 * 4 * 12 and judged["regret1"] < 0.01 and judged["auc"]["all"] > 0.95
    code, out, _ = call("model", "eval", "--db", database)
    assert code == 0 and "one-to-one > many-to-many" in out and "harm" in out


def test_what_cannot_be_done_is_said(database: Path, tmp_path: Path) -> None:
    (tmp_path / "text.model").write_text("no model")
    with open_database(tmp_path / "empty.db"):
        pass
    for arguments, message in (
        (("show", tmp_path / "text.model"), "damaged, or no model"),
        (("show", tmp_path / "missing.model"), "No such file"),
        (("train", "--db", tmp_path / "empty.db", "-o", tmp_path / "x.model"), "too little to learn from: 0 timed"),
        (("eval", "--db", tmp_path / "empty.db"), "too little to learn from"),
        (("train", "--db", database, "-o", tmp_path), "is a folder"),
        (("train", "--db", database, "-o", tmp_path / "no" / "x.model"), "cannot be written"),
        (("eval", tmp_path / "missing.model", "--db", database), "No such file"),
    ):
        code, _, err = call("model", *arguments)
        assert code == 2 and message in err and err.startswith("autofuse: ")


def test_a_model_is_not_judged_on_what_it_learned_from(database: Path, tmp_path: Path) -> None:
    file = tmp_path / "own.model"
    assert call("model", "train", "--db", database, "-o", file)[0] == 0
    code, _, err = call("model", "eval", file, "--db", database)
    assert code == 2 and "trained on every network" in err
