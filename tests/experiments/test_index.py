"""The index of the experiments: complete, its page up to date, and the only way to call them."""

from __future__ import annotations

import re

import pytest

from experiments.__main__ import main
from experiments.index import EXPERIMENTS, INDEX, ROOT, Experiment, page

FOLDER = ROOT / "experiments"
CHILDREN = {
    "kernel_counts/openvino_nodes.py", "memory/child.py", "models/generate.py", "networks/one_network.py",
    "noisy_neighbour/load.py", "peers/contender.py", "peers/runtimes/job.py", "__main__.py",
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


def test_commands_in_the_pages_name_experiments_of_the_index() -> None:
    names = {experiment.name for experiment in EXPERIMENTS} | {"render", "NAME"}
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "Makefile", *FOLDER.rglob("*.md")]
    for path in pages:
        text = path.read_text(encoding="utf-8")
        assert not re.findall(r"python (?:-m )?experiments[./]\w+", text), path
        assert set(re.findall(r"-m experiments ([\w.]*\w)", text)) <= names, path


def test_a_name_that_there_is_not_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fussion"]) == 2
    assert "'fussion' is unknown" in capsys.readouterr().err


def test_the_list_has_every_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert all(experiment.name in shown and experiment.question in shown for experiment in EXPERIMENTS)
