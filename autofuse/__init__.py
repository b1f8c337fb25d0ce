"""Searches fusion plans of ONNX models by measuring them on this machine's CPU, and compiles the best through TVM.

The functions here are those of the command line (see `autofuse.api`); each is imported when it is first used, so
that `import autofuse` stays cheap. After `import autofuse as onnxruntime` a program finds `InferenceSession`, and what
else it uses with one: see `autofuse.ort.session.NAMES`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from autofuse.values import processes

processes.switch_off_telemetry()

__version__ = "0.1.0"
__all__ = [
    "Context", "Place", "Policy", "Session", "bench", "cache_clear", "cache_info", "cflags", "compare", "compile",
    "db_check", "db_export", "db_import", "db_info", "db_merge", "db_migrate", "db_prune", "device_list",
    "device_probe", "device_show", "doctor", "explain", "inspect", "key_new", "key_show", "library_check", "load",
    "model_eval", "model_show", "model_train", "open", "package", "plan_diff", "plan_export", "plan_pareto",
    "plan_show", "quantize", "report", "run", "serve", "status", "stop", "tune", "tune_all",
]  # fmt: skip

if TYPE_CHECKING:
    from autofuse.api import (
        Context,
        Place,
        Policy,
        Session,
        bench,
        cache_clear,
        cache_info,
        cflags,
        compare,
        compile,  # noqa: A004 the verbs' names
        db_check,
        db_export,
        db_import,
        db_info,
        db_merge,
        db_migrate,
        db_prune,
        device_list,
        device_probe,
        device_show,
        doctor,
        explain,
        inspect,
        key_new,
        key_show,
        library_check,
        load,
        model_eval,
        model_show,
        model_train,
        open,  # noqa: A004
        package,
        plan_diff,
        plan_export,
        plan_pareto,
        plan_show,
        quantize,
        report,
        run,
        serve,
        status,
        stop,
        tune,
        tune_all,
    )


def __getattr__(name: str) -> object:
    if name in __all__:
        from autofuse import api

        return getattr(api, name)
    if name == "InferenceSession":
        return __getattr__("Session")
    from autofuse.ort.session import NAMES, own_name

    if name in NAMES:
        return own_name(name)
    raise AttributeError(f"module 'autofuse' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
