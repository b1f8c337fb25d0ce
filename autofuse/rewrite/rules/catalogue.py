"""Every rule, in the order in which equal gains are tried."""

from __future__ import annotations

from collections.abc import Mapping

from autofuse.rewrite.rule import Rule
from autofuse.rewrite.rules.algebra import ALGEBRA
from autofuse.rewrite.rules.composite import COMPOSITES
from autofuse.rewrite.rules.einsum import EINSUMS
from autofuse.rewrite.rules.fission import FISSIONS
from autofuse.rewrite.rules.merge import MERGES
from autofuse.rewrite.rules.motion import MOTIONS
from autofuse.rewrite.rules.normal import NORMALIZATIONS, ONE_PASS
from autofuse.rewrite.rules.simplify import SIMPLIFICATIONS
from autofuse.rewrite.rules.transposed import TRANSPOSED
from autofuse.rewrite.rules.weights import WEIGHTS

RULES: tuple[Rule, ...] = (
    *SIMPLIFICATIONS, *NORMALIZATIONS, *COMPOSITES, *WEIGHTS, *ALGEBRA, ONE_PASS, *MOTIONS, *MERGES, *FISSIONS,
    *EINSUMS, *TRANSPOSED,
)  # fmt: skip
BY_NAME: Mapping[str, Rule] = {rule.name: rule for rule in RULES}
assert len(BY_NAME) == len(RULES), "two rules have one name"
