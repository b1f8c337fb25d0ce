"""What a compile reports: the rung of the ladder that each plan and each schedule came from."""

from __future__ import annotations

from dataclasses import dataclass, field

from autofuse.segments.report import PartReport, RestReport

READING, LOOKING_UP = "reading the model", "looking up its plan and schedules"
"""Phases of a compile before it builds anything."""
HIT = "hit"
STALE = "hit (stale versions)"
STALE_CODE = "stale code"
SIMILAR = "similar device"
NEAREST = "nearest shape"
TILE = "hit (tile)"
MODEL = "model"
RULE = "rule"
NONE = "none"
NAMED = "named"

TIERS = (HIT, TILE, STALE, STALE_CODE, SIMILAR, NEAREST, MODEL, RULE, NONE)
"""The ladder, best rung first: measured here as this very code; a tile of rows of an open size, measured here as a
kernel of its own; the same kernel, made by other versions of TVM or LLVM; measured here as other code than is built now
(plans: some of its kernels); measured on the device whose numbers are nearest; measured here for other shapes;
predicted by a trained model (plans only); the fixed rule; no fusion (plans only)."""
MEASURED_HERE = (HIT, TILE, STALE, STALE_CODE)


@dataclass(frozen=True)
class GroupReport:
    """The report of one kernel, how its schedule was found: `tier` is one of `TIERS`, `us` its time as measured.

    `source`: what the tier leaves open, such as the workload of the nearest shape; `program`: position of the
    input shapes, or of the plan for a part of a range (0 unless there are several). `trusted`: whether the time it was
    chosen by is; None without a time.
    """

    group: str
    operators: tuple[str, ...]
    tier: str
    us: float | None
    schedule: str
    source: str = ""
    program: int = 0
    trusted: bool | None = None


@dataclass(frozen=True)
class PlanReport:
    """How the fusion plan for one set of input shapes was found; `tier` "named" is a plan that was asked for.

    `trusted`: whether the whole-model time that it was chosen by is; None where it was not chosen by one. `part`: of
    several plans for the same open sizes, the calls that it is for, such as "batch x tokens up to 64".
    """

    shapes: dict[str, tuple[int, ...]]
    plan: str
    tier: str
    plan_key: str
    kernels: int
    trusted: bool | None = None
    part: str = ""


@dataclass(frozen=True)
class CompileReport:
    """What was compiled; of `kernels`, `hits` had a schedule that was measured here.

    `plan`, `plan_tier`, `plan_key`: of the first input shapes; `plans`: of all. `library` is "" and `size_bytes`
    0 after a dry run. `weights_bytes`: of the model's weights; `held_weights_bytes`: of what the kernels make of them
    (Winograd's are larger), without padding; what several kernels or input shapes share counts each time.
    `warning`: which hits rest on times that are not trusted; "" when none does. `parts`, `rest`: where ONNX Runtime
    runs a part of the model, or all of it: the parts in their order, and why operators are not in a segment.
    `header`: the C header beside a free-standing library; "" for any other. `provider`: the execution provider beside
    a model for ONNX Runtime, and `sha256` of the code in that model; "" for any other. `sizes`: those that stay open,
    by name, with the smallest and the largest, and their `steps` beyond 1; then the groups are the tiles of all
    kernels, and the shapes of the plan those at the largest size.
    `images`: those sizes are of images, whose tiles `tune` does not measure by themselves.
    """

    model: str
    library: str
    plan: str
    plan_tier: str
    plan_key: str
    threads: int
    device: str
    kernels: int
    hits: int
    size_bytes: int
    elapsed_s: float
    groups: tuple[GroupReport, ...]
    weights_bytes: int = 0
    held_weights_bytes: int = 0
    plans: tuple[PlanReport, ...] = field(default=())
    warning: str = ""
    parts: tuple[PartReport, ...] = ()
    rest: tuple[RestReport, ...] = ()
    header: str = ""
    provider: str = ""
    sha256: str = ""
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)

    @property
    def untuned(self) -> bool:
        """Whether nothing of it was measured here, and `tune` would do that."""
        return not self.hits
