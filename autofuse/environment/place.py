"""A place: where a model runs and where its times are kept, as one value that most verbs are told first."""

from __future__ import annotations

from dataclasses import dataclass, field

from autofuse.database.database import ProfilingDatabase
from autofuse.device.profile import LOCAL
from autofuse.environment.device import NamedDevice, find_device, thread_count
from autofuse.environment.environment import Environment, environment_of


@dataclass(frozen=True)
class Place:
    """A database, a device, and the threads that run the model there.

    `database`: an SQLite file or a database URL (None: the one in the user's data folder). `device`: "local", the name
    of a profile or the path of a .toml file. `threads`: None for the device's own number. `rpc`, `rpc_tracker`
    (HOST:PORT) and `rpc_key`: how a device elsewhere is reached.
    """

    database: str | None = None
    device: str = LOCAL
    threads: int | None = None
    rpc: str | None = None
    rpc_tracker: str | None = None
    rpc_key: str | None = field(default=None, repr=False)

    def find(self, *, measuring: bool) -> NamedDevice:
        """The device, asked what it is when it is elsewhere; see `find_device` for `measuring` and the errors."""
        return find_device(self.device, self.rpc, self.rpc_tracker, self.rpc_key, measuring=measuring)

    def environment(
        self, database: ProfilingDatabase, *, measuring: bool, asked: NamedDevice | None = None
    ) -> Environment:
        """What times of this place are kept under in `database`, which was opened already; InputError, DeviceError.

        `asked`: its device, where it was asked what it is already.
        """
        named = asked or self.find(measuring=measuring)
        return environment_of(database, named, thread_count(self.threads, named), measuring=measuring)
