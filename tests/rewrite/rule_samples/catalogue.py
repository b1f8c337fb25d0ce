"""A small model for each rule: `graph_for(rule, rng)`. Rules that are functions have theirs in this room, a module for
each kind of rule; a rule that is a pattern gets one made of its own text."""

from __future__ import annotations

import numpy as np

from autofuse.graph.model import Graph
from autofuse.rewrite.rule import Rule
from tests.rewrite.rule_samples import (  # noqa: F401  (importing registers)
    activations,
    algebra,
    fissions,
    merges,
    motion,
    normalisations,
    simplifications,
    weights,
)  # fmt: skip
from tests.rewrite.rule_samples.registry import SAMPLES
from tests.rewrite.samples import Model, PatternSample


def graph_for(rule: Rule, rng: np.random.Generator) -> Graph:
    """A graph with a site of the rule."""
    model = Model(rng)
    return SAMPLES[rule.name](model) if rule.name in SAMPLES else PatternSample(rule, model).graph()
