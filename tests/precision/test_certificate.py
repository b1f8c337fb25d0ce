"""The certificate of a quantised model stands wherever the model goes: its file, runs, plans, libraries and reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import autofuse
from autofuse import api
from autofuse.api.results import Certificate, Quantized
from autofuse.cli.main import app
from autofuse.database.database import open_database
from autofuse.fusion.plan import FusionPlan
from autofuse.fusion.planner.baselines import default_plan
from autofuse.graph.key import graph_key
from autofuse.graph.loading.files import read_model
from autofuse.graph.loading.load import load
from autofuse.graph.model import Origin
from autofuse.graph.transform.quantize.certificate import CERTIFICATE, KEY, certificate_of, read_certificate
from autofuse.views.accuracy import front_of_contractions
from autofuse.views.frames.analysis import open_analysis
from autofuse.views.report.page import page_data
from autofuse.views.report.render import render_markdown
from tests.precision.trained import images, save, trained

WHOLE_US = {"float": 100.0, "int8": 60.0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A float model and the int8 model that was made of it, both tuned for a moment, and the library of the latter."""
    made = tmp_path_factory.mktemp("certificate")
    save(trained(), made / "float.onnx")
    for name, count in (("calibration", 20), ("acceptance", 30)):
        (made / name).mkdir()
        np.save(made / name / "images.npy", images(count, len(name))[0][:, None])
    return made


@pytest.fixture(scope="module")
def quantised(folder: Path) -> Quantized:
    return api.quantize(
        folder / "float.onnx", folder / "int8.onnx", calibration=folder / "calibration",
        acceptance=folder / "acceptance", database=str(folder / "p.db"), device="icelake",
    )  # fmt: skip


@pytest.fixture(scope="module")
def database(folder: Path, quantised: Quantized) -> str:
    """Where both models were tuned, for a moment; their times as wholes are made up."""
    for number, (name, us) in enumerate(WHOLE_US.items(), 1):
        path = folder / f"{name}.onnx"
        api.tune(path, budget="4s", database=str(folder / "p.db"), threads=1)
        plan, key = default_plan(load(path)), graph_key(load(path))
        with open_database(folder / "p.db") as base:
            base.record_plan(key, plan.key, plan.to_json(), "default")
            base.record_choice(number, plan.key, (), median_us=us, trusted=True)
    api.compile(quantised.output, folder / "int8.so", database=str(folder / "p.db"), threads=1)
    return str(folder / "p.db")


def told(*arguments: object) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.stderr
    return done.stdout


def test_a_certificate_is_read_as_it_was_written(quantised: Quantized) -> None:
    written = load(Path(quantised.output))
    assert certificate_of(written.origin) == quantised.certificate == read_certificate(quantised.certificate.to_json())


def test_one_of_an_earlier_version_has_no_front(quantised: Quantized) -> None:
    body = {name: value for name, value in quantised.certificate.to_json().items() if name != "front"}
    earlier = read_certificate(body)
    assert earlier is not None and earlier.drop == quantised.drop and "times" not in earlier.facts()
    assert front_of_contractions(earlier) == []


@pytest.mark.parametrize("text", ["", "[]", '"int8"', '{"metric": 3}', '{"drop": NaN}', "{"])
def test_what_is_no_certificate_is_left_alone(text: str) -> None:
    assert certificate_of(Origin(custom_metadata_map={KEY: text})) is None


def test_its_front_goes_from_all_in_float_to_what_was_written(quantised: Quantized) -> None:
    points = front_of_contractions(quantised.certificate)
    assert (points[0]["kind"], points[0]["drop"]) == ("float32", 0.0)
    (written,) = [point for point in points if point["kind"] == "written"]
    assert written["us"] == quantised.chosen_us < quantised.float_us == points[0]["us"]
    assert written["lo"] <= written["drop"] <= written["hi"] <= quantised.max_drop
    assert len(points) == 2 + len(quantised.front)


@pytest.mark.long
def test_the_run_of_a_quantised_model_keeps_it_in_the_database(database: str, quantised: Quantized) -> None:
    with open_database(database, read_only=True) as base:
        run, first = base.run(), base.run(number=1)
    assert run is not None and first is not None
    assert read_certificate(run.provenance[CERTIFICATE]) == quantised.certificate
    assert CERTIFICATE not in first.provenance


def test_the_file_of_a_plan_has_it_beside_the_plan(database: str, quantised: Quantized, folder: Path) -> None:
    text = told(
        "plan", "show", quantised.output, "--plan", "best", "--db", database, "--threads", 1, "--format", "json"
    )
    assert read_certificate(json.loads(text)[CERTIFICATE]) == quantised.certificate
    (folder / "plan.json").write_text(text, encoding="utf-8")
    shown: Any = api.plan_show(quantised.output, plan=str(folder / "plan.json"))
    assert shown.plan == FusionPlan.from_json(text)
    assert CERTIFICATE not in json.loads(told("plan", "show", folder / "float.onnx", "--format", "json"))


def test_an_exported_plan_keeps_it(quantised: Quantized, folder: Path) -> None:
    api.plan_export(quantised.output, folder / "plan.onnx")
    kept = {entry.key: entry.value for entry in read_model(folder / "plan.onnx").metadata_props}
    assert certificate_of(Origin(custom_metadata_map=kept)) == quantised.certificate


def test_explain_and_inspect_say_what_is_lost(database: str, quantised: Quantized) -> None:
    explained: Any = api.explain(quantised.output, plan="best", database=database, threads=1)
    summary: Any = api.inspect(quantised.output, database=database)
    assert explained.certificate == summary.certificate == quantised.certificate
    for verb in ("explain", "inspect"):
        screen = " ".join(told(verb, quantised.output, "--db", database).split())
        assert "with 95% confidence (allowed: 0.5 %)" in screen and quantised.acceptance.sha256[:16] in screen


def test_a_library_has_it(database: str, quantised: Quantized, folder: Path) -> None:
    assert database
    found = api.library_check(folder / "int8.so")
    assert found.certificate == quantised.certificate
    assert "with 95% confidence (allowed: 0.5 %)" in " ".join(told("library", "check", folder / "int8.so").split())
    metadata = autofuse.Session(str(folder / "int8.so")).get_modelmeta().custom_metadata_map
    assert certificate_of(Origin(custom_metadata_map=metadata)) == quantised.certificate


def test_the_report_has_it_and_the_front(database: str, quantised: Quantized) -> None:
    with open_analysis(database) as analysis:
        text = render_markdown(analysis)
        page = page_data(analysis, analysis.run())
        plain = page_data(analysis, analysis.run(1))
    facts = quantised.certificate.facts()
    assert "## Quantised" in text and f"| drop | {facts['drop']} |" in text
    found: Any = page["accuracy"]
    assert {row["fact"]: row["value"] for row in found["facts"]} == facts and found["allowed"] == 0.005
    assert [point["kind"] for point in found["contractions"]].count("written") == 1
    assert not any(row["fact"] == CERTIFICATE for row in page["tables"]["provenance"])  # type: ignore[index]
    own: Any = plain["accuracy"]
    assert own["facts"] == [] and own["contractions"] == []


def test_models_of_one_float_model_are_compared_as_wholes(database: str, quantised: Quantized) -> None:
    with open_analysis(database) as analysis:
        pages: list[Any] = [page_data(analysis, analysis.run(number))["accuracy"] for number in (1, 2)]
        text = render_markdown(analysis, 1)
    models = pages[0]["models"]
    assert models == pages[1]["models"] and "## Models of one float model" in text
    assert [(point["kind"], point["label"]) for point in models] == [("float32", "float"), ("written", "int8")]
    assert [point["us"] for point in models] == list(WHOLE_US.values())
    assert [(point["drop"], point["hi"]) for point in models] == [(0.0, None), (quantised.drop.mean, quantised.drop.hi)]


def test_a_certificate_is_a_value_of_the_api(quantised: Quantized) -> None:
    assert isinstance(quantised.certificate, Certificate)
