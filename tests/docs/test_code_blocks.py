"""Every code block of the documentation runs as it stands, page by page, in a folder that holds two small models and
the profiles of a checkout.

Only durations are shortened: `--budget 10m` and `--until 06:30` become so many candidates, so that a page takes a
minute; the seconds beside them are for a machine that is busy.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs.models import save_model, save_wide_model

pytestmark = pytest.mark.docs

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
WIDE = {"int8"}
"""Pages that go by what was measured as faster: their model is one for which that is beyond the noise of a machine."""
RUN, CHECKED, SHOWN = {"sh", "python"}, {"toml"}, {"text"}
SHORTER = (
    (re.compile(r"--budget \d+[mh]"), "--trials 8"),
    (re.compile(r"--until \d\d:\d\d"), "--trials 8"),
)


def blocks(page: Path) -> list[tuple[str, str]]:
    return BLOCK.findall(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_is_of_a_kind_that_is_run_checked_or_only_shown(page: Path) -> None:
    assert {kind for kind, _ in blocks(page)} <= RUN | CHECKED | SHOWN
    for kind, text in blocks(page):
        if kind == "toml":
            assert tomllib.loads(text)


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any(kind in RUN for kind, _ in blocks(page))],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_the_blocks_of_a_page_run_in_their_order(page: Path, tmp_path: Path) -> None:
    if any("import torch" in text for _, text in blocks(page)) and find_spec("torch") is None:
        pytest.skip("the page uses torch, which is not installed: run `make test-torch`")
    (save_wide_model if page.stem in WIDE else save_model)(tmp_path / "model.onnx", 16)
    save_model(tmp_path / "second.onnx", 8)
    shutil.copytree(ROOT / "profiles", tmp_path / "profiles")
    commands = [_command(kind, text, tmp_path, number) for number, (kind, text) in enumerate(_runnable(page))]
    (tmp_path / "page.sh").write_text("\n".join(["set -euo pipefail", *commands]), encoding="utf-8")
    done = subprocess.run(
        ["bash", "page.sh"], cwd=tmp_path, env=_environment(tmp_path), capture_output=True, text=True, timeout=3600
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def _runnable(page: Path) -> Iterator[tuple[str, str]]:
    """Blocks that run; a Python block begins with those before it on the page, as in a notebook."""
    before = ""
    for kind, text in blocks(page):
        if kind == "python":
            before += text
        if kind in RUN:
            yield kind, before if kind == "python" else text


def _command(kind: str, text: str, folder: Path, number: int) -> str:
    if kind == "sh":
        for pattern, shorter in SHORTER:
            text = pattern.sub(shorter, text)
        return text
    path = folder / f"block{number}.py"
    path.write_text(text, encoding="utf-8")
    return f"{sys.executable} {path.name}"


def _environment(folder: Path) -> dict[str, str]:
    home = folder / "home"
    home.mkdir()
    own = Path(sys.executable).parent
    paths = os.pathsep.join([str(own), os.environ["PATH"]])
    return {**os.environ, "PATH": paths, "HOME": str(home), "XDG_DATA_HOME": str(home), "PYTHONPATH": str(ROOT)}
