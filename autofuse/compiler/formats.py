"""The forms in which a compiled model is written: what each refuses before the work, and what writes it in the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from autofuse.backend.compile.realise import Write, write_rest
from autofuse.backend.container.container import LIBRARY
from autofuse.backend.freestanding.build import check_freestanding, header_path, write_freestanding
from autofuse.backend.freestanding.link import is_archive
from autofuse.compiler.context import Context
from autofuse.compiler.parts.ort_model import OrtModel, check_model, provider_path, write_whole
from autofuse.compiler.parts.rest import rest_of
from autofuse.compiler.report import CompileReport
from autofuse.device.target import Target
from autofuse.environment.named_plans import plans_of_ranges
from autofuse.errors import InputError
from autofuse.graph.loading.files import weight_files
from autofuse.graph.loading.given.sizes import OpenSize
from autofuse.link.architecture import architecture_of
from autofuse.link.linking import require_linker
from autofuse.segments.choice import Choice
from autofuse.values.arguments import Given, LibraryFormat, file_title
from autofuse.values.outputs import Inputs, check_output, database_files


def read_files(context: Context, model: Path, output: Path, plan: str | None) -> Inputs:
    """What a compile reads, and so must not replace."""
    plans = [name for name, _ in plans_of_ranges(plan)] if plan else []
    named = {"the plan" if name == plan else f"the plan {name}": name for name in plans}
    named |= {"the trained model": context.policy.model} if context.policy.model else {}
    weights = weight_files(model) if output.exists() else ()  # a file that is not there is no weight of the model
    return {
        "the model": model,
        **{f"a file of the model's weights ({path.name})": path for path in weights},
        **database_files(context.database_path),
        **{name: Path(text) for name, text in named.items()},
    }


def check_form(form: LibraryFormat, output: Path, inputs: Inputs, target: Target) -> None:
    """Refuse what could not be written in the end, for want of a place, a linker or a C compiler."""
    if form == "c":
        check_freestanding(output, inputs, architecture_of(target))
    elif form == "ort":
        check_model(output, inputs, architecture_of(target))
    else:
        if is_archive(output.name):
            raise InputError(f"--output: {output.name!r} names a static archive, which --format c writes; name a .so")
        check_output(output, LIBRARY, inputs)
        require_linker(target)


def check_signed(form: LibraryFormat, signed: bool) -> None:
    """InputError where a library of this form is signed, which nobody verifies."""
    if signed and form == "c":
        raise InputError(
            "--sign: nobody verifies a free-standing library, which programs link; sign it as they are signed"
        )
    if signed and form == "ort":
        raise InputError(
            "--sign: ONNX Runtime verifies no signatures; name the SHA-256 of the model's code to its provider "
            "(its option sha256), or compile without --format ort"
        )


def writer(form: LibraryFormat, model: Path, given: Given, choice: Choice | None) -> Write | None:
    """What writes the library from the machine code of its kernels; None: the container's."""
    if form == "c":
        return partial(write_freestanding, title=file_title(model))
    return OrtModel(model, given, choice) if form == "ort" else None


def write_alone(
    form: LibraryFormat, choice: Choice, context: Context, output: Path, key: Path | None,
    sizes: Sequence[OpenSize] = (),
) -> None:  # fmt: skip
    """Write a model all of which ONNX Runtime runs; `sizes`: those that stay open."""
    if form == "ort":
        write_whole(choice, output)
    else:
        write_rest(rest_of(choice, sizes=sizes), context.environment.target, context.threads, output, key)


def with_files(report: CompileReport, form: LibraryFormat, output: Path | None, write: Write | None) -> CompileReport:
    """The report with what stands beside `output`, and which code `write` wrote."""
    if output is None:
        return report
    if isinstance(write, OrtModel) and write.sha256:
        return replace(report, provider=str(provider_path(output)), sha256=write.sha256)
    return replace(report, header=str(header_path(output))) if form == "c" else report
