"""Segments inside of the bodies of If, Loop and Scan, whose control flow stays in ONNX Runtime."""

from __future__ import annotations

from dataclasses import replace

from autofuse.errors import AutofuseError
from autofuse.graph.parts.bodies import Body, bodies_of
from autofuse.graph.parts.source import Infer, Node
from autofuse.segments.choice import Choice, Inside, choose
from autofuse.segments.coverage import BODIES
from autofuse.segments.worth import least_us


def with_bodies(choice: Choice, infer: Infer) -> Choice:
    """The choice with the segments of its bodies; a body that cannot be looked into stays as it is."""
    found: list[Inside] = []
    reasons = dict(choice.reasons)
    for node in (node for piece in choice.rest for node in piece.nodes if node.has_body):
        inside = [Inside(body, inner) for body in _bodies(choice, node, infer) if (inner := _parts(body, infer))]
        found += inside
        if inside:
            count = sum(len(one.choice.all_segments) for one in inside)
            known = f"{BODIES}, in which {count} segment{'s run' if count > 1 else ' runs'}"
            reasons[node.place] = reasons[node.place].replace(BODIES, known)
    return replace(choice, reasons=reasons, bodies=tuple(found))


def _bodies(choice: Choice, node: Node, infer: Infer) -> list[Body]:
    try:
        return bodies_of(choice.source, node, infer)
    except AutofuseError:
        return []


def _parts(body: Body, infer: Infer) -> Choice | None:
    """The parts of a body; None where no segment pays."""
    try:
        found = with_bodies(choose(body.source, least_us(inside=True), bare=True), infer)
    except AutofuseError:
        return None
    return found if found.all_segments else None
