"""Compiling: from a model and what the database knows to a library, without measuring anything."""

from autofuse.compiler.context import Context, Policy
from autofuse.compiler.job import compile_in, who_runs, who_runs_parts
from autofuse.compiler.open_sizes.job import compile_open
from autofuse.compiler.report import CompileReport, GroupReport, PlanReport

__all__ = [
    "CompileReport", "Context", "GroupReport", "PlanReport", "Policy", "compile_in", "compile_open", "who_runs",
    "who_runs_parts",
]  # fmt: skip
