"""BatchNormalizations to fold: their text and their weights."""

from __future__ import annotations

import numpy as np

NORM = "BatchNormalization<epsilon=0.002>({}, gamma, beta, mean, var)"


def statistics(channels, seed=0, **changes):
    generator = np.random.default_rng(seed)
    made = {
        "gamma": generator.uniform(-2, 2, channels),
        "beta": generator.standard_normal(channels),
        "mean": generator.standard_normal(channels),
        "var": generator.uniform(0.05, 3, channels),
    }
    return {name: np.asarray(changes.get(name, array), np.float32) for name, array in made.items()}


def weight(*shape):
    return np.random.default_rng(9).standard_normal(shape).astype(np.float32)
