"""What a job is asked to do, as one value that is stored with it and handed to its processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from autofuse.environment.place import Place
from autofuse.graph.loading.given.sizes import OpenSize, open_sizes
from autofuse.graph.loading.given.trace import Trace
from autofuse.values.arguments import Constant, named_inputs


@dataclass(frozen=True)
class WorkerSpec:
    """A worker of a job, one device that measures: `name` for people; workers of one kind of `device` share its tasks.

    `place`: what it is and how it is reached; its database and its threads are those of the job.
    """

    name: str
    device: str
    place: Place = field(default_factory=Place)


@dataclass(frozen=True)
class JobSettings:
    """The settings of a job. Seconds, bytes; None: no limit (`threads` None: the device's own number).

    `ends_at`: seconds since 1970 (`--until`). `trials`: new candidates of the whole job. `early_stopping`: a model is
    searched no further when an hour more is expected to save less than this part of its time. `memory_bytes`: of each
    worker's search process. `disk_bytes`: that the database may take.
    `trained`: the profitability model, as `--model` names it. `scheduler`: of a Dask cluster that builds for devices
    elsewhere. `given`: of the models' inputs. `sizes`: that stay open in those models that have them; `trace`: of
    these.
    """

    budget_s: float | None
    ends_at: float | None = None
    trials: int | None = None
    threads: int | None = None
    seed: int = 0
    space: str | None = None
    exact: bool = False
    trained: str | None = None
    given: Mapping[str, tuple[int, ...] | Constant] = field(default_factory=dict)
    early_stopping: float | None = None
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    scheduler: str | None = None
    sizes: tuple[OpenSize, ...] = ()
    trace: Trace | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values, which `from_json` reads."""
        plain = asdict(replace(self, given={}))
        del plain["given"]
        return {**plain, **named_inputs(self.given), "sizes": [size.typed for size in self.sizes]}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> JobSettings:
        """The inverse of `to_json`; what an older autofuse did not store has its default."""
        known = {item.name for item in fields(cls)}
        values = {name: value for name, value in body.items() if name in known}
        given: dict[str, tuple[int, ...] | Constant] = {
            name: tuple(shape) for name, shape in body.get("shapes", {}).items()
        }
        given |= {name: Constant.from_json(one) for name, one in body.get("constants", {}).items()}
        trace = body.get("trace")
        return cls(
            **{
                **values,
                "given": given,
                "sizes": open_sizes(body.get("sizes") or ()),
                "trace": None if trace is None else Trace.from_json(trace),
            }
        )
