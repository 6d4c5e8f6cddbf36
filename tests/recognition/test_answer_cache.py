"""The answer cache with several processes at once, as the client processes of a recognizer are."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OPENER = """
import sys, time
from pathlib import Path
from resources.recognition.vlm.answer_cache import AnswerCache
for line in sys.stdin:
    folder, moment = line.split()
    while time.time() < float(moment):
        pass
    try:
        AnswerCache(Path(folder), 10).close()
        print("opened", flush=True)
    except Exception as error:
        print(error, flush=True)
"""
PROCESSES, ROUNDS = 6, 60


@pytest.mark.services
def test_processes_that_open_a_new_cache_at_the_same_moment_all_get_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OPENER]
    openers = [
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(PROCESSES)
    ]
    try:
        said = {line for at in range(ROUNDS) for line in opened_at_once(openers, tmp_path / str(at))}
    finally:
        for opener in openers:
            opener.communicate()
    assert said == {"opened\n"}


def opened_at_once(openers: "list[subprocess.Popen[str]]", folder: Path) -> list[str]:
    moment = time.time() + 0.01
    for opener in openers:
        assert opener.stdin is not None
        opener.stdin.write(f"{folder} {moment}\n")
        opener.stdin.flush()
    return [opener.stdout.readline() for opener in openers if opener.stdout is not None]
