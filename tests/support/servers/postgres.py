"""A Postgres server of a test's own, on a free local port."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

NAME = "kopub"
PASSWORD = "only/for@tests"
"""Contains characters that a URL must quote."""


def programs() -> Path | None:
    """Return the folder of `initdb` on the PATH, else Debian's newest version, or None."""
    found = shutil.which("initdb")
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return Path(found).resolve().parent if found else debian[-1].parent if debian else None


def programs_with_pgvector() -> Path | None:
    """Return the folder of `initdb` of a Postgres that has pgvector: the system's, else that of pgserver, or None."""
    system, package = programs(), find_spec("pgserver")
    if system is not None:
        shared = subprocess.run([system / "pg_config", "--sharedir"], capture_output=True, text=True, check=False)
        if Path(shared.stdout.strip(), "extension", "vector.control").exists():
            return system
    return Path(str(package.origin)).parent / "pginstall" / "bin" if package else None


@contextmanager
def postgres(binaries: Path | None = None) -> Iterator[dict[str, str]]:
    """Run a server, and yield the variables of `deploy/postgres/dagster.yaml` for it."""
    # Not a test's `tmp_path`, which the server's user may not read.
    temporary = tempfile.TemporaryDirectory(prefix="postgres-", ignore_cleanup_errors=True)
    with temporary as folder, _server(Path(folder), binaries or programs()) as variables:
        yield variables


@contextmanager
def _server(folder: Path, binaries: Path | None) -> Iterator[dict[str, str]]:
    assert binaries is not None
    owner = _other_user()
    data, password = folder / "data", folder / "password"
    password.write_text(PASSWORD)
    if owner:
        for path in (folder, password):
            shutil.chown(path, owner)
    port = free_port()

    def run(*command: str | Path) -> None:
        done = subprocess.run(
            [str(part) for part in command], user=owner, cwd="/", capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr

    run(binaries / "initdb", "-D", data, "-U", NAME, f"--pwfile={password}", "-A", "scram-sha-256", "--no-sync")
    options = f"-p {port} -h 127.0.0.1 -k {folder} -F"
    run(binaries / "pg_ctl", "-D", data, "-l", folder / "log", "-w", "-o", options, "start")
    try:
        yield {
            "DAGSTER_PG_HOST": "127.0.0.1",
            "DAGSTER_PG_PORT": str(port),
            "DAGSTER_PG_USERNAME": NAME,
            "DAGSTER_PG_PASSWORD": PASSWORD,
            "DAGSTER_PG_DB": "postgres",
        }
    finally:
        run(binaries / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")


def _other_user() -> str | None:
    """Return the user for Postgres, which refuses root, or None for the current one."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError:
        return pwd.getpwnam("nobody").pw_name


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
