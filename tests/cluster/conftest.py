"""Real servers on this machine: run by `make test-cluster`, left out of `make test`."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # this folder's own module of servers

from servers import Cluster, Postgres, postgres_tools


@pytest.fixture(scope="session", autouse=True)
def everything_is_installed() -> None:
    """What is missing is said plainly, and fails: a skipped test would look like a passed one."""
    missing = [
        f"the Python package {name} (pip install 'autofuse[postgres,cluster]')"
        for name in ("psycopg", "distributed")
        if importlib.util.find_spec(name) is None
    ]
    if postgres_tools() is None:
        missing.append("PostgreSQL (Debian, Ubuntu: apt-get install postgresql)")
    if missing:
        pytest.exit("make test-cluster needs " + " and ".join(missing), returncode=1)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    # Not below pytest's own folder, which another user may not enter.
    with tempfile.TemporaryDirectory(prefix="autofuse-postgres-") as name:
        Path(name).chmod(0o755)
        server = Postgres(Path(name))
        yield server
        server.stop()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.close()
