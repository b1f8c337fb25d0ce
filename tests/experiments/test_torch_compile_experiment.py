"""The table of `experiments/torch_compile`; `tests/torch_backend` has the backend itself."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from experiments.torch_compile.run import NETWORKS, Row, published

MISSING = find_spec("torch") is None


def test_a_row_shows_the_ratio_and_the_first_calls() -> None:
    row = Row("resnet50", 1, 20_000.0, 30_000.0, 1.5, 1.4, 1.6, False, 40.0, 5.0, 12.25, 180.0)
    assert published([row]).splitlines()[-1] == (
        "| resnet50 | 1 | 20.00 | 30.00 | 1.50 (1.40-1.60) ? | 180 | 40.0 | 5.0 | 12.2 |"
    )


@pytest.mark.skipif(MISSING, reason="needs torch: run `make test-torch`")
def test_the_networks_have_the_weights_that_they_are_known_for() -> None:
    import torch

    from experiments.torch_compile.networks import build, example

    counts = {"resnet50": 25_557_032, "vit_s16": 22_050_664, "bert_base": 109_480_704}
    assert set(counts) == set(NETWORKS)
    for name, count in counts.items():
        model = build(name)
        assert sum(one.numel() for one in model.parameters()) == count, name
        with torch.no_grad():
            found = model(example(name))
        shapes = [tuple(one.shape) for one in (found if isinstance(found, tuple) else (found,))]
        assert shapes == ([(1, 128, 768), (1, 768)] if name == "bert_base" else [(1, 1000)])
