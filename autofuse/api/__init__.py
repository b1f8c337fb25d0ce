"""Every verb of the command line as a function: same names, same arguments and defaults, same results.

A verb of a group has the group's name in front: `autofuse plan show` is `plan_show`, `autofuse db merge` is `db_merge`.
`model` is the path of an ONNX file. `database`: an SQLite file or a database URL (None: one in the user's data
folder). `device`: "local", the name of a profile or the path of a .toml file. `rpc`, `rpc_tracker` (HOST:PORT) and
`rpc_key` (or `rpc_key_file`, of one line): a device elsewhere, where `autofuse serve` runs. `threads`: those that run
the model (None: the device's cores). `shapes`: sizes of each dynamic input. `constants`: values of inputs, which
become constants of the model: numbers, lists, arrays, or texts such as "[0,2]" and "@axes.npy". Durations are seconds
or texts such as "10m". Everything that is wrong with an argument is an `autofuse.errors.AutofuseError` that says what
to change.

A room holds the functions of a group of verbs; what they need is imported when they are called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from autofuse.api.databases import db_check, db_export, db_import, db_info, db_merge, db_migrate, db_prune
from autofuse.api.jobs import left_s, status, stop
from autofuse.api.learned import model_eval, model_show, model_train
from autofuse.api.libraries import cache_clear, cache_info, key_new, key_show, library_check, package
from autofuse.api.machine import cflags, device_list, device_probe, device_show, doctor, serve
from autofuse.api.models import bench, compile, inspect, load, quantize, run  # noqa: A004 the verbs' names
from autofuse.api.plans import explain, plan_diff, plan_export, plan_pareto, plan_show
from autofuse.api.reports import compare, open, report, terms  # noqa: A004
from autofuse.api.tuning import files_of_tuning, tune, tune_all

if TYPE_CHECKING:
    from autofuse.api.sessions import Session
    from autofuse.compiler.context import Context, Policy
    from autofuse.environment.place import Place
    from autofuse.job.coordinator import JobListener

__all__ = [
    "Context", "JobListener", "Place", "Policy", "Session", "bench", "cache_clear",
    "cache_info", "cflags", "compare", "compile", "db_check",
    "db_export", "db_import", "db_info", "db_merge", "db_migrate", "db_prune", "device_list", "device_probe",
    "device_show", "doctor", "explain", "files_of_tuning", "inspect", "key_new", "key_show", "left_s", "library_check",
    "load", "model_eval", "model_show", "model_train", "open", "package", "plan_diff", "plan_export", "plan_pareto",
    "plan_show", "quantize", "report", "run", "serve", "status", "stop", "terms", "tune", "tune_all",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name == "Session":
        from autofuse.api.sessions import Session

        return Session
    if name in ("Context", "Policy"):
        from autofuse.compiler import context

        return getattr(context, name)
    if name == "JobListener":
        from autofuse.job.coordinator import JobListener

        return JobListener
    if name == "Place":
        from autofuse.environment.place import Place

        return Place
    raise AttributeError(f"module 'autofuse.api' has no attribute {name!r}")
