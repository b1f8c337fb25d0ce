"""Every error a user can meet: one base class, and what each kind exits with."""

from __future__ import annotations


class AutofuseError(Exception):
    """Base of all errors that autofuse raises on purpose; its text says what to change."""

    exit_code = 2


class InputError(AutofuseError, ValueError):
    """The model, an argument, a search space or a profile is not usable as given."""


class UncoveredError(InputError):
    """The model is sound, but kernels of ours cannot compute all of it; ONNX Runtime may run what they leave."""


class PlanError(AutofuseError, ValueError):
    """A fusion plan breaks a rule of legality, or does not belong to the graph."""

    exit_code = 6


class DatabaseError(AutofuseError, RuntimeError):
    """The profiling database cannot be read or written."""


class StrictMissError(AutofuseError, LookupError):
    """A compile under `--strict` found no measured schedule for a group."""

    exit_code = 3


class WrongResultError(AutofuseError, ArithmeticError):
    """A built library does not compute what the reference computes."""

    exit_code = 4


class DeviceError(AutofuseError, RuntimeError):
    """A device, a worker process or an artefact's target is lost or does not fit."""

    exit_code = 75
