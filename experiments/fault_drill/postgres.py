"""A PostgreSQL server of one's own, on a port of this machine."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import time
from pathlib import Path


def postgres_tools() -> Path | None:
    """Folder of initdb and pg_ctl, the newest that is installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return Path(on_path).parent if on_path else None


class Postgres:
    """A server in `folder`, started at once; as another user when this one is root, whom it refuses."""

    def __init__(self, folder: Path) -> None:
        tools = postgres_tools()
        if tools is None:
            raise SystemExit("PostgreSQL is not installed (Debian, Ubuntu: apt-get install postgresql)")
        self.tools, self.folder, self.port = tools, folder, _free_port()
        self._as: list[str] = []
        if os.geteuid() == 0:
            user = next(name for name in ("postgres", "nobody") if _exists(name))
            shutil.chown(folder, user)
            self._as = ["setpriv", f"--reuid={user}", f"--regid={pwd.getpwnam(user).pw_gid}", "--clear-groups"]
        self._run("initdb", "-D", str(folder / "data"), "-U", "autofuse", "--auth=trust", "-E", "UTF8", "--no-sync")
        self.start()
        self.url = self.database("autofuse")
        """For `--db`."""

    def database(self, name: str) -> str:
        """Makes an empty database; its URL."""
        self._run("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "autofuse", name)
        return f"postgresql+psycopg://autofuse@127.0.0.1:{self.port}/{name}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        self._control("-l", str(self.folder / "log"), "-o", options, "start")

    def stop(self, how: str = "immediate") -> None:
        """ "immediate" is what a power cut would be to its clients."""
        self._control("-m", how, "stop")

    def restart(self, after_s: float = 0.0) -> None:
        """Stop as by a power cut; start after so many seconds."""
        self.stop()
        time.sleep(after_s)
        self.start()

    def _control(self, *arguments: str) -> None:
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", *arguments)

    def _run(self, tool: str, *arguments: str) -> None:
        command = [*self._as, str(self.tools / tool), *arguments]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            cwd=self.folder, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True
