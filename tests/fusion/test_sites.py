"""The texts of sites, copies and rewrites, as plan files, databases and screens hold them."""

from __future__ import annotations

import pytest

from autofuse.fusion.planner.sites import (
    CopySite,
    EdgeSite,
    FoldSite,
    JoinSite,
    RewriteSite,
    SeedSite,
    SiblingSite,
    Site,
)
from autofuse.graph.transform.copies import Copy
from autofuse.rewrite.rule import Step


@pytest.mark.parametrize(
    ("site", "text", "operators"),
    [
        (SeedSite(), "", ()),
        (FoldSite("bn"), "bn", ("bn",)),
        (JoinSite("add"), "add", ("add",)),
        (CopySite("relu"), "relu", ("relu",)),
        (RewriteSite("sum"), "sum", ("sum",)),
        (EdgeSite("conv", "relu"), "conv -> relu", ("conv", "relu")),
        (SiblingSite(("q", "k", "v")), "q = k = v", ("q", "k", "v")),
    ],
)
def test_a_site_has_the_text_that_screens_always_showed(site: Site, text: str, operators: tuple[str, ...]) -> None:
    assert (site.text, site.operators) == (text, operators)


def test_sites_of_one_operator_are_not_taken_for_one_another() -> None:
    """As tuples they were told apart by "" and "@", which an operator may be called too."""
    assert (
        len({FoldSite("a"), JoinSite("a"), CopySite("a"), RewriteSite("a"), EdgeSite("a", ""), EdgeSite("a", "@")}) == 6
    )


def test_a_copy_is_called_as_in_plans_of_older_versions() -> None:
    assert Copy("relu", "add").name == "relu@add"
    assert Copy("relu", "relu@add").name == "relu@relu@add"
    assert Copy("relu", "add").of("relu_out") == "relu_out@add"


@pytest.mark.parametrize(("rule", "root"), [("sum_of_one", "sum"), ("sum_of_one", "relu@add"), ("sum_of_one", "")])
def test_a_step_is_read_as_it_was_written(rule: str, root: str) -> None:
    assert Step(rule, root).text == f"{rule}@{root}"
    assert Step.of(f"{rule}@{root}") == Step(rule, root)


def test_a_text_without_a_rule_is_a_step_of_no_operator() -> None:
    assert Step.of("nonsense") == Step("nonsense", "")
