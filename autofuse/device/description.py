"""What a device says of itself, taken on the device: the identity and the state that results are recorded with."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any

from autofuse.device.profile import DeviceProfile
from autofuse.device.provenance import Provenance
from autofuse.errors import DeviceError


@dataclass(frozen=True)
class DeviceDescription:
    """`host`: the CPU as a profile (see `autofuse.device.host.probe_host`).

    `provenance`: versions, and clock, governor and temperature at this moment. `instance`: changes when the
    device's server starts anew, and so with every boot.
    """

    host: DeviceProfile
    provenance: Provenance
    instance: str

    def to_json(self) -> dict[str, Any]:
        """Plain values, which `from_json` reads."""
        return {
            "host": json.loads(self.host.model_dump_json()),
            "provenance": self.provenance.as_dict(),
            "instance": self.instance,
        }

    @classmethod
    def from_json(cls, body: Any) -> DeviceDescription:
        """The inverse of `to_json`; DeviceError when a device of another version wrote something else."""
        try:
            known = {field.name for field in fields(Provenance)}
            provenance = {name: value for name, value in body["provenance"].items() if name in known}
            host = DeviceProfile.model_validate_json(json.dumps(body["host"]))
            return cls(host, Provenance(**provenance), str(body["instance"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DeviceError(
                f"the device describes itself in a way that this autofuse does not understand ({error}); "
                "install the same version of autofuse on both machines"
            ) from error
