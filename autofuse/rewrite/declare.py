"""Declaring rules: as text, or as a function whose docstring is the text."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from autofuse.rewrite.pattern import Call, Guard, Pattern, parse
from autofuse.rewrite.rule import Default, Finder, Kind, Rule


def pattern(
    name: str,
    kind: Kind,
    text: str,
    *guards: Guard,
    exact: bool = False,
    any_type: bool = False,
    default: Default = Default.GAIN,
) -> Rule:
    """A rule written as text; see `autofuse.rewrite.pattern`."""
    before, after = parse(text)
    assert isinstance(before, Call)
    roots = frozenset(("Mul", "Pow")) if before.op_type == "Square" else frozenset((before.op_type,))
    found = Pattern(before, after, guards, any_type)
    return Rule(name, kind, text, exact, roots, found.find, ", ".join(guard.text for guard in guards), default)


def rule(
    kind: Kind, roots: Iterable[str], *, exact: bool = False, guard: str = "", default: Default = Default.GAIN
) -> Callable[[Finder], Rule]:
    """Makes a rule of a function: its name, and its docstring `before -> after` as the text."""

    def declared(find: Finder) -> Rule:
        text = " ".join((find.__doc__ or "").split())
        assert "->" in text, f"{find.__name__}: the docstring must say before -> after"
        return Rule(find.__name__, kind, text, exact, frozenset(roots), find, guard, default)

    return declared
