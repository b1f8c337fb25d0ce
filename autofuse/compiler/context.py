"""What several compiles share: a database, a device, its threads, and what to do where nothing was measured."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from autofuse.database.connection import locate
from autofuse.database.database import ProfilingDatabase, open_for_lookup
from autofuse.device.profile import LOCAL
from autofuse.environment.device import NamedDevice
from autofuse.environment.environment import Environment
from autofuse.environment.place import Place
from autofuse.errors import InputError
from autofuse.fusion.plan import NO_LIMITS, ScheduleLimits
from autofuse.values.arguments import check_miss_policy

if TYPE_CHECKING:
    from autofuse.learning.advice import Adviser


@dataclass(frozen=True)
class Policy:
    """`on_miss`: see `autofuse.values.arguments.check_miss_policy`.

    `strict`: stop unless every schedule was measured on this device. `require_complete`: stop unless, besides, a
    tuning job of this model ended, and everything was measured with the versions installed now. `limits`: what is
    wanted of every plan and schedule, besides what is known of the network. `model`: the trained model that predicts
    plans under `on_miss` "model" (None: the shipped one), see `learning.stored.find_model`. `every_segment`: take
    our kernels, of a model in parts its segments, though a race was won by ONNX Runtime alone.
    """

    on_miss: str = "rule"
    strict: bool = False
    require_complete: bool = False
    limits: ScheduleLimits = NO_LIMITS
    model: str | None = None
    every_segment: bool = False

    def __post_init__(self) -> None:
        check_miss_policy(self.on_miss)

    @property
    def measured_only(self) -> bool:
        """Whether only what was measured here will do."""
        return self.strict or self.require_complete or self.on_miss == "fail"

    @property
    def without(self) -> str:
        """How to compile what was not measured all the same."""
        asked = {"--require-complete": self.require_complete, "--strict": self.strict}
        names = [name for name, given in asked.items() if given]
        return f"without {' and '.join(names)}" if names else "with --on-miss rule"


class Context:
    """Compiles many models under the same circumstances; the database is opened, and the device asked, once.

    `place`, or its fields by name: the database, the device and the threads, see `Place`. `asked`: its device, where it
    was asked what it is already. Close it, or use it in a `with` statement.
    """

    def __init__(
        self,
        place: Place | None = None,
        *,
        database: str | None = None,
        device: str = LOCAL,
        threads: int | None = None,
        rpc: str | None = None,
        rpc_tracker: str | None = None,
        rpc_key: str | None = None,
        policy: Policy | None = None,
        asked: NamedDevice | None = None,
    ) -> None:
        own = Place(database, device, threads, rpc, rpc_tracker, rpc_key)
        if place is not None and own != Place():
            raise InputError("Context: give it a place, or the fields of one, not both")
        self.policy = policy or Policy()
        self.place = place or own
        self.device = asked or self.place.find(measuring=False)

    @cached_property
    def database(self) -> ProfilingDatabase:
        """The profiling database, read-only."""
        return open_for_lookup(self.place.database)

    @property
    def database_path(self) -> Path | None:
        """The database's file, whether or not it exists; None for a server, or one in memory."""
        return locate(self.place.database).path

    @cached_property
    def environment(self) -> Environment:
        """Device, target, threads and versions."""
        return self.place.environment(self.database, measuring=False, asked=self.device)

    @property
    def threads(self) -> int:
        """Threads that run the models."""
        return self.environment.setting.threads

    @cached_property
    def adviser(self) -> Adviser:
        """What a trained model says of this device; InputError where there is no model."""
        from autofuse.learning.advice import Adviser
        from autofuse.learning.stored import find_model, load_model

        path = find_model(self.policy.model)
        if path is None:
            raise InputError(
                "--on-miss model: there is no model; name one with --model FILE (`autofuse model train` makes it)"
            )
        return Adviser(
            load_model(path), self.environment.target, self.environment.device.fingerprint.facts, self.threads
        )

    def close(self) -> None:
        """Let go of the database."""
        if "database" in self.__dict__:
            self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if "database" in self.__dict__:
            self.database.__exit__(kind, error, trace)
