"""The index of the experiments: complete, its page up to date, and the only way to call them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.__main__ import main
from experiments.index import EXPERIMENTS, INDEX, ROOT, Experiment, find, page
from experiments.options import new_parser

FOLDER = ROOT / "experiments"
CHILDREN = {
    "kernel_counts/openvino_nodes.py", "memory/child.py", "models/generate.py", "networks/one_network.py",
    "noisy_neighbour/load.py", "overlap/builder.py", "peers/contender.py", "peers/runtimes/job.py",
    "torch_compile/contender.py", "provider/contender.py", "real_models/generate.py", "open_sizes/calls.py",
    "open_sizes/exports.py", "open_sizes/steps.py", "__main__.py",
}  # fmt: skip
"""Programs that experiments start themselves."""


def test_the_page_of_the_index_is_what_render_writes() -> None:
    assert INDEX.read_text(encoding="utf-8") == page(), "run python -m experiments render"


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.name)
def test_every_experiment_has_its_page_and_explains_its_arguments(
    experiment: Experiment, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not experiment.table or (ROOT / experiment.table).is_file()
    with pytest.raises(SystemExit) as ended:
        main([experiment.name, "--help"])
    assert ended.value.code == 0
    assert experiment.name in capsys.readouterr().out


def test_every_folder_that_can_be_run_is_in_the_index() -> None:
    runnable = {path.parent.name for path in FOLDER.glob("*/run.py")}
    assert runnable <= {experiment.name.partition(".")[0] for experiment in EXPERIMENTS}


def test_there_is_one_way_to_call_an_experiment() -> None:
    programs = {
        str(path.relative_to(FOLDER))
        for path in FOLDER.rglob("*.py")
        if re.search(r"^if __name__ == .__main__.|^sys\.path\.", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert programs <= CHILDREN


OPTIONS = {"threads", "budget", "bench", "seed", "processes", "time", "out"}
"""What `options.py` spells for all of them."""
FORMER = {"seconds", "minutes", "networks", "folder"}
"""Names that some of them had for the same."""


def test_common_options_have_one_spelling_type_and_explanation() -> None:
    assert set(inspect.signature(new_parser).parameters) - {"description"} == OPTIONS
    for path in FOLDER.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if path.name != "options.py":
            assert "ArgumentParser(" not in text, f"{path}: use experiments.options.new_parser"
            own = set(re.findall(r"""add(?:_argument)?\(\s*"--([\w-]+)\"""", text))
            assert not own & (OPTIONS | FORMER), f"{path}: {own & (OPTIONS | FORMER)}"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--threads", "0"], "0 is not above zero"), (["--threads", "1,2"], "more than one number"),
        (["--budget", "soon"], "allowed: a duration"), (["--bench", "-1s"], "expected one argument"),
        (["--processes", "many"], "no list of numbers"),
    ],
)  # fmt: skip
def test_a_wrong_value_of_a_common_option_is_said(
    given: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = new_parser("x", threads=1, budget="1m", bench="1s", processes=1)
    with pytest.raises(SystemExit):
        parser.parse_args(given)
    assert said in capsys.readouterr().err


def test_durations_are_seconds_and_lists_are_lists() -> None:
    options = new_parser("x", threads="1,2", budget="", bench="1m", time="2m", out="out/x", seed=3).parse_args([])
    assert (options.threads, options.budget, options.bench, options.time) == ([1, 2], 0.0, 60.0, 120.0)
    assert (options.out, options.seed) == (Path("out/x"), 3)


def test_commands_in_the_pages_name_experiments_of_the_index() -> None:
    names = {experiment.name for experiment in EXPERIMENTS} | {"render", "NAME"}
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "Makefile", *FOLDER.rglob("*.md")]
    for path in pages:
        text = path.read_text(encoding="utf-8")
        assert not re.findall(r"python (?:-m )?experiments[./]\w+", text), path
        assert set(re.findall(r"-m experiments ([\w.]*\w)", text)) <= names, path


def _shown_commands() -> Iterator[tuple[Path, str, list[str]]]:
    """Every command that a page or a docstring shows, but those that results were once measured by: its options."""
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *FOLDER.rglob("*.md"), *FOLDER.rglob("*.py")):
        text = re.sub(r"(?s)<!-- (results|table): .*?<!-- end", "", path.read_text(encoding="utf-8"))
        for name, rest in re.findall(r"-m experiments ([\w.]*\w)([^`\n#]*)", text):
            if find(name):
                yield path, name, re.findall(r"--[a-z][\w-]*", rest)


def test_commands_in_the_pages_have_options_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    helps: dict[str, str] = {}
    for path, name, options in _shown_commands():
        if name not in helps:
            with pytest.raises(SystemExit):
                main([name, "--help"])
            helps[name] = capsys.readouterr().out
        if name != "kernel_texts":  # its options are those of its verbs
            assert not [option for option in options if option not in helps[name]], f"{path}: {name}"
    assert len(helps) > 20


def test_a_name_that_there_is_not_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fussion"]) == 2
    assert "'fussion' is unknown" in capsys.readouterr().err


def test_the_list_has_every_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert all(experiment.name in shown and experiment.question in shown for experiment in EXPERIMENTS)
