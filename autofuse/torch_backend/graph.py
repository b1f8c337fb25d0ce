"""A graph of dynamo as torch calls it: compiled at its first call, for each size of its inputs, or in eager."""

from __future__ import annotations

import logging
import threading
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from autofuse.backend.library.library import installed_versions
from autofuse.backend.library.session import Session
from autofuse.backend.library.threads import usable_threads
from autofuse.device.host import host_features
from autofuse.errors import AutofuseError
from autofuse.graph.loading.given.sizes import OpenSize
from autofuse.graph.transform.open_sizes.open_graph import ADVICE
from autofuse.measure.checking.tolerance import compare
from autofuse.torch_backend import refusals
from autofuse.torch_backend.digest import UnknownGraphError, digest, graph_text
from autofuse.torch_backend.export import export_onnx, input_name
from autofuse.torch_backend.library import is_kept, open_session
from autofuse.torch_backend.open_sizes import Opened, Symbol, masked, range_of
from autofuse.torch_backend.options import Options
from autofuse.torch_backend.refusals import EagerWarning, RefusedError
from autofuse.torch_backend.tensors import (
    array_of,
    bytes_of,
    described,
    facts_of,
    sizes_of,
    tensor_of,
    version_of,
)
from autofuse.values.outputs import output_folder

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Weights:
    """The weights that a library holds, and how it is seen that they are other ones now.

    `held`: the place of each among the arguments of a graph, a weak reference to it, its version and its address.
    """

    held: tuple[tuple[int, Any, int | None, int], ...]

    @classmethod
    def of(cls, args: Sequence[Any], places: Sequence[int]) -> Weights:
        """Those of these arguments that stand at `places`."""
        return cls(
            tuple(
                (place, weakref.ref(args[place]), version_of(args[place]), args[place].data_ptr()) for place in places
            )
        )

    def are_in(self, args: Sequence[Any]) -> bool:
        """Whether these arguments hold the same weights."""
        for place, known, version, address in self.held:
            given = args[place]
            if known() is not given or given.data_ptr() != address:
                return False
            if version is not None and given._version != version:
                return False
        return True


@dataclass(frozen=True)
class Form:
    """A graph at one size of its inputs, or at any of some ranges (`opened`): its library. `feeds`: name and place of
    each input.

    `results`: of each output of the graph, the number among the library's outputs, or None for one of `plain`.
    `masked`: all sizes but the open ones.
    """

    session: Session
    weights: Weights
    feeds: tuple[tuple[str, int], ...]
    results: tuple[int | None, ...]
    plain: tuple[Any, ...]
    opened: Sequence[Opened] = ()
    masked: Any = None

    def run(self, args: Sequence[Any]) -> list[Any]:
        """The outputs of the graph, in memory of their own."""
        made = self.session.run(None, {name: array_of(args[place]) for name, place in self.feeds})
        tensors = [tensor_of(array) for array in made]
        found = [
            value if number is None else tensors[number] for number, value in zip(self.results, self.plain, strict=True)
        ]
        for one in self.opened:
            for place, more in one.symbol.results:
                found[place] = one.symbol.value(args) + more
        return found

    def takes(self, args: Sequence[Any]) -> bool:
        """Whether these arguments have sizes of its ranges, and are otherwise those that it was compiled for."""
        opened = self.opened
        return bool(opened) and all(one.takes(args) for one in opened) and masked(opened, sizes_of(args)) == self.masked


@dataclass(frozen=True)
class _Shape:
    """Which arguments of a graph are inputs of its library, by their places, and which `results` are its outputs, each
    once; `numbers`: of each result of the graph, the number of that output."""

    inputs: Sequence[int]
    results: Sequence[int]
    numbers: tuple[int | None, ...]


@dataclass
class Graph:
    """A graph that dynamo has found, called with its arguments in their order; a tuple of results.

    `module`: torch's, which is also what runs in eager. `weights`: places of arguments that are parameters or buffers.
    `open_sizes`: whether sizes of its inputs may differ from call to call; `symbols`: those of which a library may take
    a range. `forms`: by such sizes; None for those that run in eager, `eager`: all do. `replaced`: forms whose weights
    had changed. `full`: there are as many as may be. `numbers`: places of tensors for which the module takes a number;
    the same numbers, and the sizes, are what forms are told apart by. `apart`: pairs of symbols that cannot stay open
    together.
    """

    module: Any
    weights: tuple[int, ...]
    open_sizes: bool
    options: Options
    symbols: tuple[Symbol, ...] = ()
    numbers: tuple[int, ...] = ()
    forms: dict[Any, Form | None] = field(default_factory=dict)
    eager: bool = False
    replaced: int = 0
    full: bool = False
    apart: set[tuple[Symbol, Symbol]] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, *args: Any) -> Sequence[Any]:
        """Dynamo's call."""
        if self.numbers:
            args = tuple(value.item() if place in self.numbers else value for place, value in enumerate(args))
        if self.eager:
            return self._in_eager(args)
        key = self._key(args)
        form = self.forms.get(key)
        if form is not None and form.weights.are_in(args):
            return form.run(args)
        if form is None and key in self.forms:
            return self._in_eager(args)
        with self._lock:
            return self._prepared(key, args)

    def _key(self, args: Sequence[Any]) -> Any:
        """What forms are told apart by: only sizes that dynamo does not guard itself."""
        if not self.open_sizes:
            return None
        free = [value for place, value in enumerate(args) if place not in self.weights]
        return sizes_of(free)

    def _in_eager(self, args: Sequence[Any]) -> Sequence[Any]:
        found: Sequence[Any] = self.module(*args)
        return found

    def _prepared(self, key: Any, args: Sequence[Any]) -> Sequence[Any]:
        """The results of a first call, which eager computes; further ones with this key run compiled where they can."""
        form = self.forms.get(key) or next((one for one in self.forms.values() if one and one.takes(args)), None)
        if form is not None:
            if form.weights.are_in(args):  # another thread was first, or it is another size of its range
                self.forms[key] = form
                return form.run(args)
            self.replaced += 1
            self.forms = {size: one for size, one in self.forms.items() if one is not form}
        if self.replaced > refusals.MOST_WEIGHTS:
            self.refuse(refusals.too_many_weights())
            return self._in_eager(args)
        if self._count() >= refusals.MOST_SIZES and key not in self.forms:
            if not self.full:
                self.full = True
                self._warn(refusals.too_many_sizes())
            return self._in_eager(args)
        before = [facts_of(value) for value in args if _is_tensor(value)]
        results = self._in_eager(args)
        try:
            self.forms[key] = self._compiled(args, before, results)
        except RefusedError as error:
            self.forms[key] = None
            self._warn(error)
        except AutofuseError as error:
            self.forms[key] = None
            self._warn(RefusedError(f"it cannot be compiled: {error}"))
        except Exception as error:  # noqa: BLE001  # a defect of ours must not end a program that eager can run
            self.forms[key] = None
            self._warn(RefusedError(f"a defect of autofuse, to be reported ({type(error).__name__}: {error})"))
        return results

    def _count(self) -> int:
        """Libraries, and sizes that run in eager."""
        return len({id(one) for one in self.forms.values() if one}) + sum(one is None for one in self.forms.values())

    def _compiled(self, args: Sequence[Any], before: Sequence[refusals.TensorFacts], results: Sequence[Any]) -> Form:
        """The form for such arguments, checked against what eager made of them."""
        import torch

        refusals.check_inputs(before)
        after = [facts_of(value) for value in args if _is_tensor(value)]
        refusals.check_changes(before, after)
        tensors: dict[int, int] = {}
        for place, value in enumerate(results):
            if _is_tensor(value):
                tensors.setdefault(id(value), place)
            else:
                refusals.check_plain(value)
        places = list(tensors.values())
        refusals.check_outputs(after, [facts_of(results[place]) for place in places])
        numbers = {known: number for number, known in enumerate(tensors)}
        inputs = [place for place, value in enumerate(args) if _is_tensor(value) and place not in self.weights]
        threads = self.options.threads or min(torch.get_num_threads(), usable_threads())
        shape = _Shape(inputs, places, tuple(numbers[id(value)] if _is_tensor(value) else None for value in results))
        if not is_kept(self._digest(args, shape, threads, ()), self.options):
            for opened in self._ranges(args):
                try:
                    return self._form(args, shape, results, threads, opened)
                except Exception as error:  # noqa: BLE001  # torch and a defect of ours raise anything; fixed sizes may do
                    self._give_up(opened, error)
        return self._form(args, shape, results, threads, ())

    def _ranges(self, args: Sequence[Any]) -> list[tuple[Opened, ...]]:
        """The sizes that a library may leave open: two together, or else one."""
        found = [range_of(symbol, args, self.options.range) for symbol in self.symbols]
        known = [one for one in found if one is not None]
        pairs = [pair for pair in combinations(known, 2) if (pair[0].symbol, pair[1].symbol) not in self.apart]
        return [*pairs, *((one,) for one in known)]

    def _give_up(self, opened: tuple[Opened, ...], error: Exception) -> None:
        """Notes sizes that cannot stay open, so that nobody tries again."""
        places = [one.symbol.axes[0][:2] for one in opened]
        if len(opened) > 1:
            self.apart.add((opened[0].symbol, opened[1].symbol))
            _LOG.info(
                "autofuse: sizes of a graph (argument %d, axis %d, and argument %d, axis %d) cannot stay open together"
                ": %s", *places[0], *places[1], _reason(error),
            )  # fmt: skip
            return
        self.symbols = tuple(one for one in self.symbols if one is not opened[0].symbol)
        _LOG.warning(
            "autofuse: a graph is compiled for each size of argument %d, axis %d: no range of sizes can stay open: %s",
            *places[0], _reason(error),
        )  # fmt: skip

    def _form(
        self, args: Sequence[Any], shape: _Shape, results: Sequence[Any], threads: int, opened: tuple[Opened, ...]
    ) -> Form:
        key = self._digest(args, shape, threads, opened)

        def export(path: Path) -> None:
            export_onnx(self.module, args, shape.inputs, shape.results, path, opened)

        def sizes_in(path: Path) -> tuple[OpenSize, ...]:
            names = {place: input_name(place) for place in shape.inputs}
            return tuple(one.in_file(path, names) for one in opened)

        if self.options.capture is not None:
            self._capture(export, key)
        session = open_session(key, export, self.options, threads, sizes_in if opened else None)
        known = {node.name for node in session.get_inputs()}
        form = Form(
            session,
            Weights.of(args, self.weights),
            tuple((input_name(place), place) for place in shape.inputs if input_name(place) in known),
            shape.numbers,
            tuple(None if _is_tensor(value) else value for value in results),
            opened,
            masked(opened, sizes_of(args)),
        )
        _check(form.run(args), results)
        return form

    def _digest(self, args: Sequence[Any], shape: _Shape, threads: int, opened: Sequence[Opened]) -> str | None:
        """What the library is kept under; None where the graph does not say what it computes."""
        try:
            text = graph_text(self.module)
        except UnknownGraphError:
            return None
        arguments = [
            described(place, value) if _is_tensor(value) else f"{type(value).__name__} {value!r}"
            for place, value in enumerate(args)
        ]
        if opened:
            shapes = [f"{value.dtype if _is_tensor(value) else type(value).__name__}" for value in args]
            free = [size for place, size in enumerate(masked(opened, sizes_of(args))) if place not in self.weights]
            arguments = [*shapes, f"{free}", *(f"from {one.low} to {one.high}" for one in opened)]
        circumstances = {
            "arguments": arguments, "sizes": self.options.sizes,
            "inputs": list(shape.inputs), "results": list(shape.results), "threads": threads, **_versions(), **_modes(),
            "database": self.options.database, "device": self.options.device, "on_miss": self.options.on_miss,
            "exact": self.options.exact, "host": _host(),
        }  # fmt: skip
        weights = [(f"argument {place}", args[place]) for place in self.weights]
        weights += [*self.module.named_parameters(), *self.module.named_buffers()]
        weights += [(name, value) for name, value in vars(self.module).items() if _is_tensor(value)]
        return digest(text, circumstances, [(described(name, value), bytes_of(value)) for name, value in weights])

    def _capture(self, export: Callable[[Path], None], key: str | None) -> None:
        assert self.options.capture is not None
        folder = output_folder(self.options.capture, option="options: capture")
        number = len(list(folder.glob("graph-*.onnx")))
        name = f"graph-{key[:12]}.onnx" if key else f"graph-{number}.onnx"
        if not (folder / name).exists():
            export(folder / name)

    def refuse(self, error: RefusedError) -> None:
        """Run in eager from now on, and say why once."""
        self.eager = True
        self._warn(error)

    def _warn(self, error: RefusedError) -> None:
        operators = sum(node.op.startswith("call_") for node in self.module.graph.nodes)
        warnings.warn(f"autofuse: a graph of {operators} operators runs in eager: {error}", EagerWarning, stacklevel=4)


def _check(made: Sequence[Any], wanted: Sequence[Any]) -> None:
    """RefusedError unless a library computes what eager does."""
    for number, (one, other) in enumerate(zip(made, wanted, strict=True)):
        if _is_tensor(other):
            verdict = compare(array_of(one), array_of(other))
            if not verdict.ok:
                raise RefusedError(
                    f"the compiled graph differs from eager in output {number} ({verdict.reason}); "
                    "report it with the ONNX file that options={'capture': FOLDER} writes"
                )


def _reason(error: Exception) -> str:
    """Why no range of sizes can stay open, without what the command line would do instead."""
    return str(error).removeprefix("--sizes: ").removesuffix(f"; {ADVICE}")


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _versions() -> Mapping[str, str]:
    """Of all that has a part in the code."""
    from importlib.metadata import version

    import torch

    return {**installed_versions(), "torch": torch.__version__, "onnxscript": version("onnxscript")}


def _modes() -> dict[str, object]:
    """What decides a graph's meaning besides the graph."""
    import torch

    autocast = str(torch.get_autocast_dtype("cpu")) if torch.is_autocast_enabled("cpu") else ""
    return {"default type": str(torch.get_default_dtype()), "autocast": autocast}


def _host() -> list[str]:
    """This machine's CPU features: a cache in a home that machines share holds libraries of each."""
    return sorted(host_features())
