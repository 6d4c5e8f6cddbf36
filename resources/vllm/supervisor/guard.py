"""The leader of a server's session: it ends when the server or the supervisor does, and takes every descendant along.

`python -m resources.vllm.supervisor.guard FOLDER COMMAND...`, with a pipe as standard input that only the
supervisor holds open. Its end of file means that the supervisor is gone or wants the server
stopped; a byte means at once. Standard library only.
"""

import os
import select
import signal
import subprocess
import sys

from resources.vllm.supervisor.processes import die_with_parent, kill_session

GRACE = 15.0
"""Seconds between SIGTERM and SIGKILL; vLLM takes 1 s, 6 s with several API processes."""


def main(folder: str, command: list[str]) -> int:
    """Run `command` in `folder` until it ends or the pipe says so; its exit status, 128 + n for signal n."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # Only the pipe counts. A handler, unlike SIG_IGN, is not inherited by the server.
        signal.signal(number, lambda *_: None)
    server = subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        preexec_fn=die_with_parent(),  # noqa: PLW1509 this process has one thread
    )
    ended = os.pidfd_open(server.pid)
    readable, _, _ = select.select([sys.stdin, ended], [], [])
    if ended not in readable and not os.read(sys.stdin.fileno(), 1):
        server.terminate()
        select.select([ended], [], [], GRACE)
    gone = kill_session(os.getpid())
    status = server.wait() if gone else 1
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
