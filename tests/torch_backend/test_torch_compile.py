"""`torch.compile(model, backend="autofuse")` computes what eager computes, compiled; see `test_torch_limits.py` for the
graphs that it leaves to eager.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import autofuse
from autofuse.torch_backend import graph, library
from autofuse.torch_backend.cache import LIBRARY, default_cache

if TYPE_CHECKING:
    import torch

Compiled = Callable[..., Any]
pytestmark = pytest.mark.usefixtures("no_warning")


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Grows with each run of a compiled graph, the check at its first call included."""
    counted: list[object] = []
    original = graph.Form.run

    def run(form: Any, args: Any) -> Any:
        counted.append(form)
        return original(form, args)

    monkeypatch.setattr(graph.Form, "run", run)
    return counted


def convolutions() -> torch.nn.Module:
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 4),
    ).eval()


def agree(found: Any, wanted: Any) -> None:
    import torch

    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_a_network_of_convolutions_runs_compiled(compiled: Compiled, runs: list[object]) -> None:
    import torch

    model = convolutions()
    fast = compiled(model)
    with torch.no_grad():
        for seed in range(3):
            x = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(seed))
            agree(fast(x), model(x))
    assert len(runs) == 3  # one checks the first call, which eager answers


def test_results_belong_to_the_caller(compiled: Compiled) -> None:
    import torch

    fast = compiled(convolutions())
    x = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        fast(x)
        first = fast(x)
        kept = first.clone()
        fast(torch.randn(2, 3, 16, 16)).add_(1)
        agree(first, kept)
        first.add_(1)


def test_a_transformer_with_token_ids_and_a_mask(compiled: Compiled, runs: list[object]) -> None:
    import torch
    from torch import nn

    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.norm, self.out = nn.Embedding(50, 16), nn.LayerNorm(16), nn.Linear(16, 16)

        def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            x = self.norm(self.table(ids)).unflatten(-1, (2, 8)).transpose(1, 2)
            y = nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask[:, None, None, :])
            z = nn.functional.gelu(self.out(y.transpose(1, 2).flatten(2)))
            return z, z.mean(1)

    model = Tokens().eval()
    fast = compiled(model)
    mask = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    with torch.inference_mode():
        for seed in range(2):
            ids = torch.randint(0, 50, (2, 6), generator=torch.Generator().manual_seed(seed))
            agree(fast(ids, mask), model(ids, mask))
    assert len(runs) == 2


def test_a_break_of_the_graph_makes_two_graphs(compiled: Compiled, runs: list[object]) -> None:
    import torch
    from torch import nn

    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.relu(self.one(x))
            torch._dynamo.graph_break()
            return torch.relu(self.two(x))

    model = Broken().eval()
    fast = compiled(model)
    x = torch.randn(4, 8)
    with torch.no_grad():
        fast(x)
        runs.clear()
        agree(fast(x), model(x))
    assert len(set(map(id, runs))) == 2


def test_inputs_that_are_strided_booleans_and_numbers(compiled: Compiled, runs: list[object]) -> None:
    import torch

    def choose(x: torch.Tensor, where: torch.Tensor, factor: int) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.where(where, x * factor, x.exp())
        return y, y > 1

    fast = compiled(choose)
    for seed in range(2):
        x = torch.randn(6, 4, generator=torch.Generator().manual_seed(seed)).t()[:, ::2]
        assert not x.is_contiguous()
        agree(fast(x, x > 0, 3), choose(x, x > 0, 3))
    assert len(runs) == 2


def test_results_that_are_numbers_or_one_tensor_twice(compiled: Compiled, runs: list[object]) -> None:
    import torch

    def twice(x: torch.Tensor) -> tuple[Any, ...]:
        y = torch.relu(x) * 2
        return y, y.shape[0], y, None

    fast = compiled(twice)
    for rows in (3, 4, 4, 5):
        x = torch.randn(rows, 5)
        found = fast(x)
        assert found[1] == rows and found[3] is None and found[0] is found[2]
        agree(found[0], twice(x)[0])
    assert len(runs) >= 3


def test_each_size_has_its_library(compiled: Compiled, runs: list[object]) -> None:
    import torch

    model = convolutions()
    fast = compiled(model, sizes="fixed")
    with torch.no_grad():
        for rows in (2, 3, 4, 3, 4):
            x = torch.randn(rows, 3, 16, 16)
            agree(fast(x), model(x))
    assert len(set(map(id, runs))) == 3


def test_changed_weights_are_seen(compiled: Compiled) -> None:
    import torch

    model = convolutions()
    fast = compiled(model)
    x = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        fast(x)
        before = fast(x)
        model[5].bias.add_(1)  # in place
        agree(fast(x), before + 1)
        agree(fast(x), before + 1)
        model[5].bias.data = model[5].bias.data + 1  # other memory
        agree(fast(x), before + 2)
        model.load_state_dict({name: value.clone() for name, value in model.state_dict().items()}, assign=True)
        agree(fast(x), before + 2)


def test_forgetting_gradients_inside_of_the_model_is_enough(compiled: Compiled, runs: list[object]) -> None:
    import torch

    model = convolutions()

    @torch.no_grad()
    def predict(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = model(x)
        return result

    fast = compiled(predict)
    x = torch.randn(2, 3, 16, 16)
    agree(fast(x), predict(x))
    agree(fast(x), predict(x))
    assert len(runs) == 2


def test_the_disk_cache_spares_the_second_process_its_compile(
    compiled: Compiled, runs: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    x = torch.randn(2, 3, 16, 16)
    model = convolutions()
    with torch.no_grad():
        compiled(model)(x)
        torch._dynamo.reset()  # as a new process
        monkeypatch.delattr(library, "compile_in")
        fast = compiled(model)
        fast(x)
        agree(fast(x), model(x))
    assert len(runs) == 3
    assert default_cache().report().libraries == 1


def test_other_weights_are_another_entry(compiled: Compiled) -> None:
    import torch

    x = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        for _ in range(2):
            model = convolutions()
            compiled(model)(x)
            agree(compiled(model)(x), model(x))
            torch._dynamo.reset()
    assert default_cache().report().libraries == 2


def test_a_damaged_entry_is_built_again(compiled: Compiled, runs: list[object]) -> None:
    import torch

    x = torch.randn(2, 3, 16, 16)
    model = convolutions()
    with torch.no_grad():
        compiled(model)(x)
        torch._dynamo.reset()
        for path in default_cache().folder.glob(f"*/{LIBRARY}"):
            path.write_bytes(path.read_bytes()[:-100])
        fast = compiled(model)
        fast(x)
        agree(fast(x), model(x))
    assert len(runs) == 3


def test_captured_graphs_can_be_tuned_and_are_then_known(
    compiled: Compiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    x = torch.randn(2, 3, 16, 16)
    model = convolutions()
    reports = []
    original = library.compile_in

    def compile_in(*given: Any) -> Any:
        reports.append(original(*given))
        return reports[-1]

    monkeypatch.setattr(library, "compile_in", compile_in)
    with torch.no_grad():
        compiled(model, capture=tmp_path / "graphs")(x)
        (captured,) = (tmp_path / "graphs").glob("*.onnx")
        tuned = autofuse.tune(captured, database=str(tmp_path / "p.db"), trials=1, threads=1)
        torch._dynamo.reset()
        compiled(model)(x)
    assert reports[0].hits == 0
    assert tuned.kernels and reports[-1].hits == reports[-1].kernels > 0


def test_the_name_is_found_through_the_entry_point(tmp_path: Path) -> None:
    """In a process of its own, for which autofuse is installed from its metadata alone."""
    import os
    import subprocess
    import sys
    import tomllib

    root = Path(__file__).resolve().parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    points = project["entry-points"]["torch_dynamo_backends"]
    folder = tmp_path / f"autofuse-{autofuse.__version__}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: autofuse\nVersion: {autofuse.__version__}\n")
    lines = "\n".join(f"{name} = {value}" for name, value in points.items())
    (folder / "entry_points.txt").write_text(f"[torch_dynamo_backends]\n{lines}\n")
    program = (
        "import torch; f = torch.compile(lambda x: torch.relu(x) + 1, backend='autofuse', "
        f"options={{'database': {str(tmp_path / 'p.db')!r}, 'threads': 1}})\n"
        "x = torch.randn(4, 4); f(x); print(torch.equal(f(x), torch.relu(x) + 1))"
    )
    paths = os.pathsep.join([str(tmp_path), str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": paths, "XDG_CACHE_HOME": str(tmp_path / "home")},
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "True", "")
