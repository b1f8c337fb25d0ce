"""Kernel texts before and after: the same code is no difference, another kernel is one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.kernel_texts.run import main, read


@pytest.fixture
def dumped(onnx_builder: type, tmp_path: Path) -> Path:
    """A dump of a network of two operators."""
    made = onnx_builder()
    made.op("Sigmoid", "y", made.op("MatMul", "m", "x", made.weights(16, 24)))
    model = made.save(tmp_path / "net.onnx", {"x": (8, 16)}, ["y"])
    assert main(["dump", str(tmp_path / "before"), str(model), "--devices", "zen3"]) == 0
    return tmp_path / "before"


def test_every_kernel_of_both_plans_is_there_under_every_first_guess(dumped: Path) -> None:
    kernels = read(dumped / "net.zen3.txt")
    plans = {name.split()[0] for name in kernels}
    assert plans == {"default", "none"} and any("guess 1" in name for name in kernels)
    assert all("def n0(n1: T.Buffer(" in code for code in kernels.values())


def test_only_what_changed_is_told(dumped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    after = tmp_path / "after"
    after.mkdir()
    text = (dumped / "net.zen3.txt").read_text()
    (after / "net.zen3.txt").write_text(text)
    assert main(["compare", str(dumped), str(after)]) == 0
    assert capsys.readouterr().out.endswith("no kernel differs\n")
    last = text.rindex("T.parallel") if "T.parallel" in text else text.rindex("range(")
    (after / "net.zen3.txt").write_text(text[:last] + text[last:].replace("n7", "n8", 1))
    assert main(["compare", str(dumped), str(after)]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("net.zen3.txt: changed: ")
