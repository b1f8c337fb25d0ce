"""No verb writes over what autofuse did not write: models, databases, devices, folders of others."""

from __future__ import annotations

import json
import resource
import signal
import stat
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner, Result

from autofuse.cli.main import app
from autofuse.cli.screens.job_view import LOG
from autofuse.compiler.parts.ort_model import MODEL as COMPILED
from autofuse.database.database import open_database
from autofuse.errors import InputError
from autofuse.graph.transform.quantize.certificate import KEY
from autofuse.precision.report import MODEL as QUANTISED
from autofuse.values.outputs import Kind, check_output
from autofuse.values.resources import named_files
from autofuse.views.one_plan import EXPORTS
from autofuse.views.report import page
from autofuse.views.report.render import CSV_FRAMES, REPORT, REPORT_MARK


def call(*arguments: object) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def refused(words: str, *arguments: object) -> None:
    result = call(*arguments)
    assert result.exit_code == 2, (result.exit_code, result.stdout, result.stderr)
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.fixture
def model(onnx_builder: Any, tmp_path: Path) -> Path:
    """A MatMul whose weights lie in a file of their own."""
    b = onnx_builder()
    path = Path(b.save(tmp_path / "net.onnx", {"x": [4, 64]}, [b.op("MatMul", "y", "x", b.weights(64, 64))]))
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return path


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "profile.db"
    open_database(path).close()
    return path


def contents(folder: Path) -> dict[str, bytes]:
    """What stands in a folder, beside the files that reading a database makes and removes."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and "db-" not in path.name}


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("net.onnx", "is the model, which is read"),
        ("weights.bin", "is a file of the model's weights (weights.bin), which is read"),
        ("profile.db", "is the database (profile.db), which is read"),
        ("profile.db-wal", "is the database (profile.db-wal), which is read"),
        ("hard", "is the model, which is read"),
        ("soft", "is the database (profile.db), which is read"),
        ("plan.json", "is the plan, which is read"),
        ("own.model", "is the trained model, which is read"),
        ("thesis.tex", "exists and is not a library of autofuse"),
    ],
)
def test_compile_never_writes_over_its_inputs_or_foreign_files(
    output: str, words: str, model: Path, database: Path, tmp_path: Path
) -> None:
    (tmp_path / "hard").hardlink_to(model)
    (tmp_path / "soft").symlink_to(database)
    (tmp_path / "thesis.tex").write_text("ten years of work")
    (tmp_path / "own.model").write_bytes(named_files("profiles/models", ".model")["default"].read_bytes())
    (tmp_path / "plan.json").write_text(call("plan", "show", model, "--plan", "none", "--format", "json").stdout)
    before = contents(tmp_path)
    flags = ["--db", database, "--threads", 1, "--plan", tmp_path / "plan.json", "--model", tmp_path / "own.model"]
    refused(words, "compile", model, "-o", tmp_path / output, *flags)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("verb", ["compile", "export", "train", "html"])
def test_no_verb_replaces_a_device_or_a_folder(verb: str, model: Path, database: Path, tmp_path: Path) -> None:
    node, taken = tmp_path / "null.svg", tmp_path / "taken.svg"
    node.symlink_to("/dev/null")
    taken.mkdir()
    verbs: dict[str, list[object]] = {
        "compile": ["compile", model, "--db", database, "--threads", 1, "-o"],
        "export": ["plan", "export", model, "--db", database, "--threads", 1, "-o"],
        "train": ["model", "train", "--db", database, "-o"],
        "html": ["report", "--db", recorded(database), "--html"],
    }
    refused("is a device, no regular file; name a regular file", *verbs[verb], node)
    refused("is a folder; name a file in it", *verbs[verb], taken)
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def recorded(database: Path) -> Path:
    """The database, with one run in it."""
    from autofuse.database.records import RunStart, content_key
    from autofuse.device.target import Target

    with open_database(database) as opened:
        setting = opened.setting(
            fingerprint="f" * 64, device_name="lab", device_facts={"cores": 2},
            target=Target("znver4", 16, 32, 2, 32768, 1 << 20), threads=1, versions={"tvm": "0.27"},
        )  # fmt: skip
        start = RunStart(
            name="night", model_name="net", model_sha256=content_key("net"), graph_key=content_key("graph"), seed=3,
            arguments={"threads": 1}, budget={"seconds": 60}, provenance={"git": "abc"},
        )  # fmt: skip
        opened.start_run(setting, start)
    return database


@pytest.mark.parametrize("name", ["net.onnx", "net.svg"])
def test_an_export_of_a_plan_replaces_exports_only(name: str, model: Path, database: Path, tmp_path: Path) -> None:
    verb = ["plan", "export", model, "--db", database, "--threads", 1, "-o"]
    place = tmp_path / "view" / name
    place.parent.mkdir()
    assert call(*verb, place).exit_code == 0
    assert call(*verb, place).exit_code == 0
    exported = place.read_bytes()
    place.write_bytes(model.read_bytes() if name == "net.onnx" else b"<svg>mine</svg>")
    refused("exists and is not a", *verb, place)
    if name == "net.onnx":
        place.write_bytes(exported)
        refused("is the model, which is read", "plan", "export", place, "--threads", 1, "-o", place)


def test_a_report_replaces_reports_only(database: Path, tmp_path: Path) -> None:
    recorded(database)
    folder, place = tmp_path / "report", tmp_path / "page.html"
    verb = ["report", "--db", database, "--output", folder, "--html", place]
    for _ in range(2):
        assert call(*verb).exit_code == 0
    for name in ("report.md", f"{CSV_FRAMES[-1]}.csv"):
        kept = (folder / name).read_bytes()
        (folder / name).write_text("name,age\nme,30\n")
        refused("exists and is not ", "report", "--db", database, "--output", folder)
        assert (folder / name).read_text() == "name,age\nme,30\n"
        (folder / name).write_bytes(kept)
    place.write_text("<!doctype html><p>my home page")
    refused(f"exists and is not {page.PAGE.name}", "report", "--db", database, "--html", place)
    refused("is the database", "report", "--db", database, "--html", database)


def test_a_full_disk_keeps_the_old_page(database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded(database)
    place = tmp_path / "page.html"
    assert call("report", "--db", database, "--html", place).exit_code == 0
    before, limits, write = place.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE), page.write_output

    def on_a_full_disk(*arguments: Any, **named: Any) -> None:
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, limits[1]))
        try:
            write(*arguments, **named)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, handler)

    monkeypatch.setattr(page, "write_output", on_a_full_disk)
    result = call("report", "--db", database, "--html", place)
    assert result.exit_code == 2
    assert "free some space" in result.stderr
    assert place.read_bytes() == before


def test_a_trained_model_replaces_trained_models_only(database: Path, tmp_path: Path) -> None:
    archive = tmp_path / "holiday.zip"
    with closing(zipfile.ZipFile(archive, "w")) as made:
        made.writestr("photo.jpg", b"x")
    refused("exists and is not a trained model of autofuse", "model", "train", "--db", database, "-o", archive)
    refused("is the database", "model", "train", "--db", database, "-o", database)


def test_arrays_replace_arrays_only_and_never_an_input(model: Path, database: Path, tmp_path: Path) -> None:
    library, folder = tmp_path / "net.so", tmp_path / "arrays"
    assert call("compile", model, "-o", library, "--db", database, "--threads", 1).exit_code == 0
    assert call("compile", model, "-o", library, "--db", database, "--threads", 1).exit_code == 0, "one of ours"
    folder.mkdir()
    np.save(folder / "y.npy", np.ones((4, 64), np.float32))
    refused("which is read", "run", library, "--input", f"x={folder / 'y.npy'}", "-o", folder)
    assert call("run", library, "-o", folder).exit_code == 0
    (folder / "y.npy").write_text("a thesis")
    refused("exists and is not an array of NumPy", "run", library, "-o", folder)


def test_a_log_is_never_written_into_another_file(model: Path, database: Path, tmp_path: Path) -> None:
    log, older = tmp_path / "night.log", tmp_path / "night.log.2"
    for path, words in ((model, "is the model"), (database, "is the database"), (older, "is not a log of autofuse")):
        older.write_text("ten years of work\n")
        before = contents(tmp_path)
        named = log if path == older else path
        refused(words, "tune", model, "--db", database, "--threads", 1, "--trials", 1, "--log", named)
        assert contents(tmp_path) == before


LOG_OF_ANOTHER = "2026-11-24 10:00:00,123 INFO started\n"
"""As any Python program writes it that uses the standard library's format."""
LINE_OF_OURS = "2026-11-24 10:00:00,123 night running: 1 of 2 models done, 7 candidates, 0 failed, 12 s gone\n"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (QUANTISED, 'print(session.custom_metadata_map["autofuse.quantization"])\n'),
        (COMPILED, 'assert metadata["autofuse.version"]\n'),
        (EXPORTS["onnx"], 'find("autofuse.plan")\n'),
        (REPORT, f"# My notes\n{REPORT_MARK}\nten years of work\n"),
        (LOG, LOG_OF_ANOTHER),
    ],
    ids=["quantised", "compiled", "plan", "report", "log"],
)
def test_a_file_that_names_our_mark_is_not_ours(kind: Kind, text: str, tmp_path: Path) -> None:
    path = tmp_path / "thesis"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="exists and is not"):
        check_output(path, kind)


def test_a_model_that_only_holds_the_words_of_our_mark_is_not_ours(model: Path, tmp_path: Path) -> None:
    made = onnx.load(model)
    made.doc_string = "see autofuse.quantization, autofuse.version and autofuse.plan"
    made.graph.node[0].doc_string = made.doc_string
    onnx.save(made, tmp_path / "named.onnx")
    for kind in (QUANTISED, COMPILED, EXPORTS["onnx"]):
        with pytest.raises(InputError, match="exists and is not"):
            check_output(tmp_path / "named.onnx", kind)


def test_what_is_ours_is_known(tmp_path: Path) -> None:
    """Also where metadata of others stand behind it."""
    for kind, key in ((QUANTISED, KEY), (COMPILED, "autofuse.version"), (EXPORTS["onnx"], "autofuse.plan")):
        made = onnx.parser.parse_model(
            '<ir_version: 9, opset_import: ["": 18]> g (float[2] x) => (float[2] y) { y = Neg (x) }'
        )
        onnx.helper.set_model_props(made, {"author": "me", key: "{}" * 100, "zeal": "high" * 20_000})
        onnx.save(made, tmp_path / "own.onnx")
        check_output(tmp_path / "own.onnx", kind)
    for kind, text in ((REPORT, f"# net\n\n{REPORT_MARK}\n"), (LOG, LINE_OF_OURS)):
        (tmp_path / "own").write_text(text, encoding="utf-8")
        check_output(tmp_path / "own", kind)


@pytest.fixture
def exported(database: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "export"
    assert call("db", "export", folder, "--db", recorded(database)).exit_code == 0
    return folder


KILLED = """
import os, signal, sys
from autofuse.cli.main import app
from autofuse.database.files import exporting
exporting.replace_files = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
app(["db", "export", sys.argv[1], "--db", sys.argv[2]])
"""


def test_an_export_that_was_killed_leaves_nothing_in_the_way_of_the_next(database: Path, tmp_path: Path) -> None:
    folder = tmp_path / "export"
    words = [sys.executable, "-c", KILLED, str(folder), str(recorded(database))]
    assert subprocess.run(words, check=False).returncode == -9
    (left,) = folder.iterdir()
    assert (left / "manifest.json").exists()
    (left / "notes").write_text("mine")
    refused("holds something else", "db", "export", folder, "--db", database)
    assert [path.name for path in left.iterdir()] == ["notes"], "what is not of an export stays"
    (left / "notes").unlink()
    assert call("db", "export", folder, "--db", database).exit_code == 0
    assert not list(folder.glob(".autofuse*"))


def test_an_export_leaves_files_that_it_did_not_write(exported: Path, database: Path) -> None:
    (exported / "README").write_text("why we measured")
    (exported / "plots").mkdir()
    (exported / "plots" / "one.png").write_bytes(b"x")
    assert call("db", "export", exported, "--db", database, "--compress").exit_code == 0
    assert (exported / "README").read_text() == "why we measured"
    assert (exported / "plots" / "one.png").read_bytes() == b"x"
    assert not list(exported.glob("*.jsonl")), "the files of the older export went, by its manifest"
    assert call("db", "import", exported, "--db", database.with_name("copy.db")).exit_code == 0


@pytest.mark.parametrize(
    "manifest",
    [
        {"name": "my extension", "manifest_version": 3},
        {"format": "autofuse-export", "schema": "x", "autofuse": "1", "files": "all"},
        {"format": "autofuse-export", "schema": "x", "autofuse": "1",
         "files": [{"table": "thesis", "rows": 1, "bytes": 1, "sha256": ""}]},
        {"format": "autofuse-export", "schema": "x", "autofuse": "1",
         "files": [{"table": "../precious", "rows": 1, "bytes": 1, "sha256": ""}]},
    ],
    ids=["foreign", "broken", "no table", "outside"],
)  # fmt: skip
def test_a_folder_with_another_manifest_stays_as_it_is(manifest: object, database: Path, tmp_path: Path) -> None:
    folder = tmp_path / "extension"
    folder.mkdir()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    for path in (folder / "thesis.jsonl", tmp_path / "precious.jsonl", folder / "background.js"):
        path.write_text("ten years of work")
    before = contents(folder), contents(tmp_path)
    refused("name a new", "db", "export", folder, "--db", database)
    assert (contents(folder), contents(tmp_path)) == before


@pytest.mark.parametrize("kind", ["link", "folder", "unlisted"])
def test_a_name_of_an_export_that_is_something_else_stays(kind: str, exported: Path, database: Path) -> None:
    taken = exported / "af_device.jsonl"
    names: Sequence[str] = []
    if kind == "unlisted":
        body = json.loads((exported / "manifest.json").read_text())
        body["files"] = [file for file in body["files"] if file["table"] != "af_device"]
        (exported / "manifest.json").write_text(json.dumps(body))
        taken.write_text("ten years of work")
    else:
        taken.unlink()
        precious = exported.parent / "precious"
        precious.mkdir()
        (precious / "one").write_text("ten years of work")
        taken.symlink_to(precious) if kind == "link" else precious.rename(taken)
        names = [path.name for path in (exported.parent / "precious").glob("*")]
    refused("is there, but no file of an export; name a new folder", "db", "export", exported, "--db", database)
    assert taken.exists()
    assert names == [path.name for path in (exported.parent / "precious").glob("*")]


def test_a_journal_and_a_backup_are_never_written_through_a_link(database: Path, tmp_path: Path) -> None:
    link = tmp_path / "journal"
    link.symlink_to(tmp_path / "elsewhere")
    refused("leads nowhere", "db", "export", "--optuna", link, "--db", database)
    refused("it exists already; name a new file", "db", "export", "--optuna", database, "--db", database)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("end", ["-journal", "-wal", "-shm"])
def test_no_database_is_made_where_another_keeps_its_journal(end: str, database: Path, model: Path) -> None:
    beside = database.with_name(database.name + end)
    beside.unlink(missing_ok=True)
    done = CliRunner().invoke(app, ["tune", str(model), "--trials", "1", "--db", str(beside)])
    assert done.exit_code == 2
    assert f"is a name that the database {database.name} needs" in done.stderr
    assert not beside.exists()
    assert CliRunner().invoke(app, ["db", "check", "--db", str(database)]).exit_code == 0


def test_a_library_for_python_is_not_named_as_a_static_archive(model: Path, tmp_path: Path) -> None:
    refused("names a static archive, which --format c writes", "compile", model, "-o", tmp_path / "libnet.a")
