"""Pipelines of scikit-learn as skl2onnx writes them, with an open number of rows; trained on made-up numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType, StringTensorType
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import GradientBoostingClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from experiments.real_models.cases import CITIES, COLUMNS

ROWS = 2000
"""Of the table that a pipeline is trained on."""


def _numbers() -> tuple[Any, Any]:
    random = np.random.default_rng(3)
    x = random.standard_normal((ROWS, COLUMNS)).astype(np.float32)
    return x, (x[:, 0] * x[:, 1] + x[:, 2] > 0).astype(np.int64) + (x[:, 3] > 1)


def _write(path: Path, model: Any, zipmap: bool, classifies: bool = True) -> None:
    options = {id(model): {"zipmap": zipmap}} if classifies else None
    made = to_onnx(model, initial_types=[("X", FloatTensorType([None, COLUMNS]))], options=options)
    path.write_bytes(made.SerializeToString())


def logistic(path: Path, zipmap: bool = False) -> None:
    """Scaled numbers, three classes. `zipmap`: probabilities as a sequence of maps, skl2onnx's default."""
    _write(path, make_pipeline(StandardScaler(), LogisticRegression()).fit(*_numbers()), zipmap)


def boosting(path: Path) -> None:
    """Scaled numbers, boosted trees, three classes."""
    _write(path, make_pipeline(StandardScaler(), GradientBoostingClassifier(random_state=0)).fit(*_numbers()), False)


def forest(path: Path) -> None:
    """Scaled numbers, a forest that makes a number."""
    x, y = _numbers()
    model = make_pipeline(StandardScaler(), RandomForestRegressor(50, max_depth=8, random_state=0)).fit(x, y * 1.0)
    _write(path, model, False, classifies=False)


def columns(path: Path) -> None:
    """A column of numbers, scaled, and one of texts as one of several, then two classes."""
    random = np.random.default_rng(4)
    city = random.choice(CITIES, ROWS)
    amount = random.standard_normal(ROWS).astype(np.float32)
    x = np.array([amount, city], dtype=object).T
    steps = ColumnTransformer([("number", StandardScaler(), [0]), ("text", OneHotEncoder(), [1])])
    model = make_pipeline(steps, LogisticRegression()).fit(x, (amount > 0) ^ (city == "Bern"))
    types = [("amount", FloatTensorType([None, 1])), ("city", StringTensorType([None, 1]))]
    made = to_onnx(model, initial_types=types, options={id(model): {"zipmap": False}})
    path.write_bytes(made.SerializeToString())
