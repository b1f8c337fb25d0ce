"""Caches that a step updates in place: outputs that are nothing but an input with new rows behind those before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from autofuse.errors import InputError
from autofuse.graph.transform.open_sizes.attention import appends
from autofuse.graph.transform.open_sizes.lengths import OpenLengths
from autofuse.graph.transform.open_sizes.open_graph import OpenGraph
from autofuse.graph.transform.open_sizes.repeats import counts

Caches = Mapping[str, str]
"""Outputs, each with the input that it extends."""


def parse_caches(given: Caches | Iterable[str]) -> dict[str, str]:
    """Outputs and the inputs that they extend; from texts, too, such as "present.*=past.*"."""
    found: dict[str, str] = {}
    pairs = given.items() if isinstance(given, Mapping) else [text.split("=", 1) for text in given]
    for pair in pairs:
        if len(pair) < 2 or not all(pair):
            raise InputError(f"--cache: got {'='.join(pair)!r:.200}, allowed: OUTPUT=INPUT such as 'present.*=past.*'")
        output, name = pair
        if output in found:
            raise InputError(f"--cache: output {output!r} is given twice")
        found[output] = name
    return found


def paired(opened: OpenLengths, caches: Caches) -> dict[str, str]:
    """The caches of a graph by their names, `*` in both names of a pair standing for the same text.

    InputError that names the output which is no extended input, or the input that is needed as it was.
    """
    found = dict(pair for output, given in caches.items() for pair in _expanded(opened, output, given))
    for output, given in found.items():
        reason = _reason(opened.view_of([output]), output, given)
        if reason:
            raise InputError(f"--cache {output}={given}: cannot be updated in place: {reason}")
    if len(set(found.values())) < len(found):
        raise InputError("--cache: two outputs extend one input")
    if len({(place.size, place.more) for output in found if (place := opened.place(output)) is not None}) > 1:
        raise InputError("--cache: some get more new rows than others, or have another size")
    return found


def _expanded(opened: OpenLengths, output: str, given: str) -> list[tuple[str, str]]:
    names, text = opened.graph.outputs, f"--cache {output}={given}"
    if (output.count("*"), given.count("*")) not in ((0, 0), (1, 1)):
        raise InputError(f"{text}: both names have one *, or none has")
    if "*" not in output:
        return [(output, given)]
    before, after = output.split("*")
    least = len(before) + len(after)
    fitting = [name for name in names if len(name) >= least and name.startswith(before) and name.endswith(after)]
    if not fitting:
        raise InputError(f"{text}: the model has no such output; its outputs: {', '.join(names)}")
    return [(name, given.replace("*", name[len(before) : len(name) - len(after)])) for name in fitting]


def _reason(opened: OpenGraph, output: str, given: str) -> str:
    """Why an output is no cache; empty where it is one."""
    graph = opened.graph
    if output not in graph.outputs:
        return f"the model has no output {output!r}; its outputs: {', '.join(graph.outputs)}"
    inputs = [name for name in graph.inputs if name not in opened.parts]
    if given not in inputs:
        return f"the model has no input {given!r}; its inputs: {', '.join(inputs)}"
    maker = graph.producers.get(output)
    if maker is None or not appends(opened, maker) or maker.inputs[0] != given:
        return f"{output!r} is not {given!r} with new rows behind it (Concat)"
    where = opened.place(output)
    if where is None or where.factor != 1:
        return f"the size {opened.symbol} is several rows of it"
    readers = [one for one in graph.consumers.get(given, ()) if one.name != maker.name and not counts(one)]
    if readers:
        return f"{readers[0].op_type} {readers[0].name!r} needs {given!r} as it was"
    return f"{given!r} is an output, too" if given in graph.returned else ""
