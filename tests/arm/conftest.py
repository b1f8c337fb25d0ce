"""An emulated ARM device for `make test-arm`; the tests here run only when this folder is asked for by name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.arm_emulator.device import EmulatedDevice
from experiments.arm_emulator.recipe import Emulator, UnavailableError, prepared

HERE = Path(__file__).parent


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    asked = [Path(text.partition("::")[0]).resolve() for text in config.args]
    return None if any(path == HERE or HERE in path.parents for path in asked) else True


@pytest.fixture(scope="session")
def emulator() -> Emulator:
    """The emulator, made on first use; where it cannot be made the tests are skipped, and say why."""
    try:
        made = prepared()
    except UnavailableError as error:
        pytest.skip(f"ARM was NOT tested: no emulated device can be made here: {error}")
    if made.linker_folder is not None:
        os.environ["PATH"] = f"{made.linker_folder}{os.pathsep}{os.environ['PATH']}"
    return made


@pytest.fixture(scope="session")
def emulated(emulator: Emulator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatedDevice]:
    """A Cortex-A76 that most tests share."""
    with EmulatedDevice(emulator, tmp_path_factory.mktemp("device") / "serve.log", "cortex-a76") as made:
        yield made
