"""A real S3 server: Ceph's RADOS gateway with one monitor and one in-memory store."""

import os
import shutil
import signal
import socket
import subprocess
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.doubles.s3 import variables
from tests.support.waiting import until

PROGRAMS = ("ceph", "ceph-authtool", "ceph-mon", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin")
_SECONDS = 60
_CONFIGURATION = """
[global]
fsid = {fsid}
mon_host = [v2:127.0.0.1:{mon},v1:127.0.0.1:{old_mon}]
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
auth_cluster_required = cephx
auth_service_required = cephx
auth_client_required = cephx
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 4
osd_pool_default_pg_autoscale_mode = off
mon_allow_pool_size_one = true
mon_warn_on_pool_no_redundancy = false
mon_max_pg_per_osd = 2000
mon_data_avail_crit = 1
mon_data_avail_warn = 2
osd_crush_chooseleaf_type = 0
osd_objectstore = memstore
memstore_device_bytes = 1073741824
run_dir = {folder}/run
log_file = {folder}/log/$name.log
admin_socket = {folder}/run/$name.asok
pid_file = {folder}/run/$name.pid
keyring = {folder}/admin.keyring
mon_data = {folder}/mon
osd_data = {folder}/osd
[mon]
keyring = {folder}/mon/keyring
[osd]
keyring = {folder}/osd/keyring
[client.admin]
keyring = {folder}/admin.keyring
rgw_frontends = beast endpoint=127.0.0.1:{port}
rgw_thread_pool_size = 32
"""


def lacking() -> list[str]:
    """Return the programs of Ceph that are not installed."""
    return [program for program in PROGRAMS if shutil.which(program) is None]


@contextmanager
def ceph(folder: Path) -> Iterator[dict[str, str]]:
    """Run Ceph in `folder` and yield its clients' environment."""
    mon, old_mon, port = _ports(3)
    fsid = str(uuid.uuid4())
    for name in ("run", "log", "mon", "osd"):
        (folder / name).mkdir()
    (folder / "ceph.conf").write_text(
        _CONFIGURATION.format(fsid=fsid, mon=mon, old_mon=old_mon, port=port, folder=folder)
    )
    started: list[subprocess.Popen[bytes]] = []

    def run(*command: str) -> None:
        done = subprocess.run(
            command,
            cwd=folder,
            timeout=_SECONDS,
            capture_output=True,
            check=False,
            env=os.environ | {"CEPH_CONF": f"{folder}/ceph.conf"},
        )
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.decode()[-2000:]}"

    def start(*command: str) -> None:
        with (folder / f"{command[0]}.out").open("wb") as out:
            started.append(subprocess.Popen([*command, "-c", "ceph.conf", "-f"], cwd=folder, stdout=out, stderr=out))

    caps = ("--cap", "mon", "allow *", "--cap", "osd", "allow *", "--cap", "mgr", "allow *")
    gateway = ("-c", "ceph.conf", "-n", "client.admin", "--no-mon-config")
    try:
        run("monmaptool", "--create", "--fsid", fsid, "monmap", "--clobber")
        run("monmaptool", "--addv", "a", f"[v2:127.0.0.1:{mon},v1:127.0.0.1:{old_mon}]", "monmap")
        run("ceph-authtool", "--create-keyring", "mon.keyring", "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
        run("ceph-authtool", "--create-keyring", "admin.keyring", "--gen-key", "-n", "client.admin", *caps)
        run("ceph-authtool", "mon.keyring", "--import-keyring", "admin.keyring")
        run("ceph-mon", "-c", "ceph.conf", "--mkfs", "-i", "a", "--monmap", "monmap", "--keyring", "mon.keyring")
        start("ceph-mon", "-i", "a")
        disk = str(uuid.uuid4())
        run("ceph", "-c", "ceph.conf", "osd", "new", disk)
        allowed = ("mon", "allow profile osd", "osd", "allow *", "mgr", "allow profile osd")
        run("ceph", "-c", "ceph.conf", "auth", "get-or-create", "osd.0", *allowed, "-o", "osd/keyring")
        run("ceph-osd", "-c", "ceph.conf", "-i", "0", "--mkfs", "--osd-uuid", disk)
        start("ceph-osd", "-i", "0")
        start("radosgw", "-n", "client.admin", "--no-mon-config")
        until(lambda: _answers(f"http://127.0.0.1:{port}/"), _SECONDS, 0.2, lambda: "the gateway does not answer")
        user = ("--uid=kopub", "--display-name=kopub", "--access-key=test", "--secret-key=test")
        run("radosgw-admin", *gateway, "user", "create", *user)
        yield variables(f"http://127.0.0.1:{port}")
    finally:
        for process in reversed(started):
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
            process.wait()


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except OSError:
        return False
    return True


def _ports(count: int) -> list[int]:
    """Return ports that are free at the moment."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return found
