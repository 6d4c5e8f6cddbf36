"""Test the tests with mutants, small faults in the code: `python -m tools.mutants [--only GLOB] [--tests ARGS...]`.

`mutants.yaml` lists the mutants by module, each with the promise that it breaks. Every mutant is put into a copy of the
project, where the tests of its module run until the first failure. A mutant that survives shows a promise without a
test. Tests that fail without any mutant are left out.
"""

import argparse
import ast
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
_SLOWER, _MORE_SECONDS = 3, 60.0
"""A mutant times out after so many times the seconds that its tests take without it, and this many more."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault: the text of a module that another one replaces, and the promise that it breaks.

    Lines after the first are indented like the first one, whatever its depth in the module.
    """

    module: str
    old: str
    new: str
    promise: str
    tests: tuple[str, ...]

    def places(self, source: str) -> list[re.Match[str]]:
        first, *others = map(re.escape, self.old.split("\n"))
        indent = "(?m)^( *)" if others else "()"
        return list(re.finditer(indent + r"\n\1".join([first, *others]), source))

    def put_into(self, source: str) -> str:
        """Return the source with the fault. Raises `ValueError` if it has no single place, or does not parse."""
        places = self.places(source)
        if len(places) != 1:
            raise ValueError(f"{self.module} has {len(places)} places with {self.old!r}: correct tools/mutants.yaml")
        indent = places[0][1]
        new = indent + self.new.replace("\n", f"\n{indent}")
        made = source[: places[0].start()] + new + source[places[0].end() :]
        try:
            ast.parse(made)
        except SyntaxError as error:
            raise ValueError(f"{self.module} does not parse with {self.new!r}: {error}") from None
        return made

    @property
    def address(self) -> str:
        source = (ROOT / self.module).read_text("utf-8")
        return f"{self.module}:{source.count(chr(10), 0, self.places(source)[0].start()) + 1}"


def read_mutants() -> list[Mutant]:
    return [
        Mutant(module, each["old"], each["new"], each["promise"], tuple(each.get("tests", listed["tests"])))
        for module, listed in yaml.safe_load((ROOT / "tools" / "mutants.yaml").read_text("utf-8")).items()
        for each in listed["mutants"]
    ]


def problems(mutants: Sequence[Mutant]) -> Iterator[str]:
    """Yield a line for each mutant that does not fit the code or the tests any more."""
    for mutant in mutants:
        try:
            mutant.put_into((ROOT / mutant.module).read_text("utf-8"))
        except (OSError, ValueError) as error:
            yield str(error)
        for test in mutant.tests:
            file, _, name = test.partition("[")[0].partition("::")
            if not (ROOT / file).exists() or f"def {name}(" not in (ROOT / file).read_text("utf-8") + "def (":
                yield f"{mutant.module} names {test}, which is no test"


class ProjectCopy:
    """A copy of the project in which mutants are tested.

    Its modules precede the installed ones in every process of the tests, and none is kept compiled with a mutant.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        for name in subprocess.check_output(listed, cwd=ROOT, text=True).split("\0"):
            if name and os.path.lexists(ROOT / name):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
        self._baselines: dict[tuple[str, ...], tuple[float, list[str]]] = {}

    def test(self, mutant: Mutant, tests: tuple[str, ...]) -> tuple[str, str]:
        """Return the verdict on a mutant, and the test that killed it, or why none could."""
        seconds, red = self._baseline(tests)
        module = self._folder / mutant.module
        source, before = module.read_text("utf-8"), module.stat()
        module.write_text(mutant.put_into(source), "utf-8")
        try:
            deselected = [word for test in red for word in ("--deselect", test)]
            code, failed = self._run([*tests, *deselected, "-x"], _SLOWER * seconds + _MORE_SECONDS, "1")
        finally:
            module.write_text(source, "utf-8")
            # With its former time, the module matches the compiled one again.
            os.utime(module, ns=(before.st_atime_ns, before.st_mtime_ns))
        if code is None:
            return "timed out", ""
        if code == pytest.ExitCode.NO_TESTS_COLLECTED:  # as a selection in PYTEST_ADDOPTS may leave out all
            return "survived", "none of its tests is selected"
        return ("survived", "") if code == 0 else ("killed", ", ".join(failed))

    def _baseline(self, tests: tuple[str, ...]) -> tuple[float, list[str]]:
        """Return the seconds of the tests without a mutant, and those that fail."""
        if tests not in self._baselines:
            started, (code, red) = time.monotonic(), self._run(tests, None, "")
            if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) and not red:
                raise SystemExit(f"pytest {' '.join(tests)} ends with {code} without a mutant")
            self._baselines[tests] = time.monotonic() - started, red
        return self._baselines[tests]

    def _run(self, words: Sequence[str], seconds: float | None, no_bytecode: str) -> tuple[int | None, list[str]]:
        """Run pytest, and return its exit code, None after a timeout, and the failed tests."""
        failures = self._folder / ".pytest_cache" / "v" / "cache" / "lastfailed"
        failures.unlink(missing_ok=True)
        command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-o", "cache_dir=.pytest_cache", *words]
        environment = {**os.environ, "PYTHONPATH": str(self._folder), "PYTHONDONTWRITEBYTECODE": no_bytecode}
        ran = subprocess.Popen(
            command, cwd=self._folder, env=environment, stdout=subprocess.DEVNULL, start_new_session=True
        )
        try:
            code = ran.wait(seconds)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(ran.pid, signal.SIGKILL)
            ran.wait()
            return None, []
        return code, list(json.loads(failures.read_text("utf-8"))) if failures.exists() else []


def results(mutants: Sequence[Mutant], tests: Sequence[str], workers: int) -> Iterator[dict[str, Any]]:
    """Yield the result of each mutant, in their order; each worker has a copy of the project.

    The mutants of a module go to one worker, which runs their tests once without a mutant.
    """
    copies: SimpleQueue[ProjectCopy] = SimpleQueue()

    def test(of_module: Sequence[Mutant]) -> list[dict[str, Any]]:
        copy, found = copies.get(), []
        try:
            for mutant in of_module:
                started = time.monotonic()
                verdict, by = copy.test(mutant, tuple(tests) or mutant.tests)
                seconds = round(time.monotonic() - started, 1)
                known = {"at": mutant.address, "promise": mutant.promise, "seconds": seconds}
                found.append({**known, "verdict": verdict, "by": by})
        finally:
            copies.put(copy)
        return found

    with ExitStack() as held, ThreadPoolExecutor(workers) as pool:
        for _ in range(workers):
            folder = tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True)
            copies.put(ProjectCopy(Path(held.enter_context(folder))))
        modules = [list(of_module) for _, of_module in groupby(mutants, attrgetter("module"))]
        for found in pool.map(test, modules):
            yield from found


def main() -> None:
    parser = argparse.ArgumentParser(description="Test the tests with mutants.")
    parser.add_argument("--only", default="*", metavar="GLOB", help="mutants by module and line, as `kopub/store/*`")
    parser.add_argument("--list", action="store_true", help="list the mutants, and test nothing")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the results to a file too, as JSON lines")
    parser.add_argument("--workers", type=int, default=1, choices=(1, 2))
    parser.add_argument("--tests", nargs=argparse.REMAINDER, default=[], help="tests instead of those of each mutant")
    chosen = parser.parse_args()
    mutants = read_mutants()
    if lines := list(problems(mutants)):
        sys.exit("\n".join(lines))
    mutants = [mutant for mutant in mutants if fnmatch(mutant.address, f"{chosen.only.removesuffix('*')}*")]
    if chosen.list:
        return print(*(f"{mutant.address}: {mutant.promise}" for mutant in mutants), sep="\n")
    verdicts = Counter[str]()
    for result in results(mutants, chosen.tests, chosen.workers):
        verdicts[result["verdict"]] += 1
        print(f"{result['verdict']} {result['at']} ({result['promise']}) {result['by']}", flush=True)
        if chosen.report:
            with chosen.report.open("a", encoding="utf-8") as report:
                report.write(json.dumps(result, ensure_ascii=False) + "\n")
    print(f"{verdicts.total()} mutants:", ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items()))


if __name__ == "__main__":
    main()
