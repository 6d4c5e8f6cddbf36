"""The checks of a machine and its GPUs, and their findings."""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from kopub import confinement
from kopub.config.memory import MemoryDemand, demands_at_once
from kopub.config.profile_files import Card, Profile, find_profile, known_profiles
from kopub.engine import INSTALL, Engine
from kopub.errors import ConfigError
from kopub.gpu import GpuCard, largest_card
from kopub.pages.documents import conversion, fonts
from kopub.states import Reason, joined, phrase
from kopub.store.faults import require_reachable
from kopub.weights.hub import managed_server, server_of


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    """A run works, with the disadvantage that the finding names."""
    PROBLEM = "problem"
    """A run would fail, or produce rubbish."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of an examination.

    `check` names what was checked, `says` tells what was found and what it means, `do` what to do about it.
    """

    check: str
    level: Level
    says: str
    do: str = ""


def ok(check: str, says: str, /, **values: Any) -> Finding:
    """Return a finding that needs no action; `values` fill its forms."""
    return Finding(_filled(check, values), Level.OK, _filled(says, values))


def warning(check: str, says: str, do: str, /, **values: Any) -> Finding:
    """Return a finding that a run can work with; `values` fill its forms."""
    return Finding(_filled(check, values), Level.WARNING, _filled(says, values), _filled(do, values))


def problem(check: str, says: str, do: str, /, **values: Any) -> Finding:
    """Return a finding that a run cannot work with; `values` fill its forms."""
    return replace(warning(check, says, do, **values), level=Level.PROBLEM)


def _filled(form: str, values: Mapping[str, Any]) -> str:
    return Reason(form, **values) if values and not isinstance(form, Reason) else form


def parts_of(line: str) -> tuple[str, str]:
    """Return what a line with a remedy finds, and the remedy."""
    if isinstance(line, Reason) and line.form == "{finding}: {remedy}":
        return line.values["finding"], line.values["remedy"]
    finding, _, remedy = line.partition(": ")
    return finding, remedy


def is_well(findings: Iterable[Finding]) -> bool:
    """Return whether no finding is a problem."""
    return all(finding.level is not Level.PROBLEM for finding in findings)


_OLDEST, _TOO_NEW = (3, 11), (3, 15)
_TABLE_BYTES_A_PAGE = 200_000
"""Bytes of tables, journal and release for a page with two vectors of 2048 numbers, text and a few crops."""
_OPEN_FILES = 256
"""Open files of a shard, of libraries and of Dagster; each request in flight needs a connection as well."""
_SHARED_MEMORY = 4 * 2**30
"""Bytes of shared memory, where pixels of 128 pages of 22 MB, or of a thousand regions, wait for the engine."""


def check_python() -> Finding:
    """Check that the Python version is supported, and name it and the platform."""
    version = f"{platform.python_version()}, {platform.system()} {platform.machine()}"
    if _OLDEST <= sys.version_info[:2] < _TOO_NEW:
        return ok("python", version)
    do = "make setup PYTHON=python3.12, with Python 3.11 to 3.14"
    return problem("python", "{version} is not supported", do, version=version)


def check_home(folder: Path) -> Finding:
    """Check that KOPUB_HOME can be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".doctor-{os.getpid()}"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        do = "set KOPUB_HOME to a folder that can"
        return problem("home", "{folder} cannot be written ({error})", do, folder=folder, error=error.strerror)
    return ok("home", "{folder} can be written", folder=folder)


def check_store(url: str) -> Finding:
    """Check that the store answers."""
    try:
        require_reachable(url)
    except ConfigError as error:
        return problem("store", *parts_of(str(error)))
    return ok("store", "{url} answers", url=url)


def check_office_files() -> Finding:
    """Check that HWP and office files can be converted here, including their Hangul."""
    if not conversion.has_korean_font():
        says = "there is no Korean font: Hangul of HWP and office files would be lost, and reported page by page"
        return warning("office files", says, fonts.KOREAN_FONTS)
    lacking = conversion.all_lacking()
    if not lacking:
        return ok("office files", "a Korean font and the converter of each format are here")
    findings, remedies = zip(*map(parts_of, lacking), strict=True)
    return warning("office files", joined(findings), joined(remedies))


def check_pdf_fonts() -> Finding:
    """Check that Hangul in fonts that PDFs do not embed is drawn."""
    if fonts.draws_hangul():
        return ok("pdf fonts", "Hangul in a font that a PDF does not embed is drawn")
    says = "Hangul in a font that a PDF does not embed is not drawn, and its pages are partial"
    return warning("pdf fonts", says, fonts.KOREAN_FONTS)


def check_confinement() -> Finding:
    """Check that documents can be kept from files and the network."""
    why = confinement.why_open()
    if why is None:
        return ok("hostile files", "whatever opens a document sees that document alone, and no network")
    says = "office files lose their references to files and hosts, or are refused for them: {reason}"
    do = "read PDFs, pictures and old binary office files of strangers on a machine that confines whatever opens them"
    return warning("hostile files", says, do, reason=why)


def check_room_for_tables(folder: Path, pages: int, free: Callable[[Path], int]) -> Finding:
    """Check that the disk has room for the tables of the pages.

    `free` returns the free bytes on the disk of a folder.
    """
    wanted, there = pages * _TABLE_BYTES_A_PAGE, free(folder)
    form = "{free:.0f} GB free for tables; {pages:,} pages take about {size:.1f} GB"
    says = phrase(form, there / 1e9, pages, max(wanted / 1e9, 0.1))
    if there > wanted:
        return ok("disk", says)
    form = "disk"
    return problem(form, says, "free some space where {folder} lies, or set KOPUB_HOME to another disk", folder=folder)


def check_open_files(limit: int, requests: int) -> Finding:
    """Check that a process may open enough files for its `requests` in flight."""
    wanted = _OPEN_FILES + requests
    if limit >= wanted:
        return ok("open files", "a process may open {limit:,}", limit=limit)
    says, do = "a process may open {limit:,}, and needs {wanted:,}", "ulimit -n {more}, before the run"
    return problem("open files", says, do, limit=limit, wanted=wanted, more=2 * wanted)


def check_shared_memory(folder: Path = Path("/dev/shm")) -> Finding:
    """Check that pixels fit in the shared memory between vLLM's processes."""
    try:
        size = shutil.disk_usage(folder).free
    except OSError:
        do = "mount a tmpfs there, or drop torch_shm of extra_flags"
        return problem("shared memory", "there is no {folder}", do, folder=folder)
    says = phrase("{size:.1f} GB free in {folder}", size / 1e9, folder)
    if size >= _SHARED_MEMORY:
        return ok("shared memory", says)
    do = "give the container --shm-size {size}g, or drop --mm-tensor-ipc torch_shm of extra_flags"
    form = "{reason}; the server hands pixels over there"
    return problem("shared memory", form, do, reason=says, size=_SHARED_MEMORY // 2**30)


def open_file_limit() -> int:
    """Return the number of files that this process, and each that it starts, may open."""
    try:
        import resource
    except ImportError:
        return sys.maxsize
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


_COMPILERS = ("gcc", "clang")


def check_compiler() -> Finding:
    """Check for the C compiler that Triton would use: $CC, or one on the path."""
    cc = os.environ.get("CC")
    compiler = next(filter(None, map(shutil.which, (cc,) if cc else _COMPILERS)), None)
    if compiler:
        return ok("compiler", compiler)
    form = (
        "CC is {compiler}, which is not there: Triton cannot build its kernels"
        if cc
        else "there is no {compiler}: Triton cannot build its kernels"
    )
    return problem("compiler", form, "apt-get install gcc libc6-dev", compiler=cc or " / ".join(_COMPILERS))


def check_headers(folder: str | None = None) -> Finding:
    """Check that Python.h of this interpreter exists."""
    path = Path(folder or sysconfig.get_paths()["include"]) / "Python.h"
    if path.is_file():
        return ok("Python.h", str(path))
    version = sysconfig.get_python_version()
    do = "apt-get install python{version}-dev, or use a Python that includes its headers (uv, conda)"
    return problem("Python.h", "there is no {path}: Triton cannot build its kernels", do, version=version, path=path)


_PROBE = Path(__file__).with_name("gpu_probe.py")
_SECONDS = 120.0
_OLDEST_DRIVER = {"13": 580, "12": 525}
"""The oldest Linux driver for each major release of CUDA, from NVIDIA's compatibility table."""
_ROOM = 0.9
"""Least share of a card's advertised memory that a driver reports."""
_NAMESAKE = 1.5
"""From this factor of memory on, a card with the name of a profile's card is another one, like a 16 GB RTX 4060 Ti."""
_KOREAN = "paddleocr_vl"
"""The reader for Korean: docs/decisions/07-reader-for-korean.md."""


def ask_torch() -> dict[str, Any]:
    """Return what torch sees of GPUs; see `gpu_probe.probe`."""
    command = [sys.executable, str(_PROBE)]
    # Without this, torch could import the modules beside the script instead of its own.
    alone = {**os.environ, "PYTHONSAFEPATH": "1"}
    try:
        done = subprocess.run(command, env=alone, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return {"problem": phrase("torch did not answer for {seconds:.0f} s: see nvidia-smi", _SECONDS)}
    try:
        return json.loads(done.stdout)
    except ValueError:
        message = done.stderr.strip().rpartition("\n")[2] or "no message"
        return {"problem": phrase("torch ended with status {status}: {error}", done.returncode, message)}


def check_gpus(seen: Mapping[str, Any]) -> Finding:
    """Check the GPUs; without any, give torch's reason and the driver that is needed."""
    release = seen.get("driver")
    if "problem" not in seen and seen.get("gpus"):
        names = ", ".join(f"{gpu['name']} ({gpu['total'] / 1e9:.0f} GB)" for gpu in seen["gpus"])
        return ok(
            "gpu", "{gpus}; torch {torch}, driver {driver}", gpus=names, torch=seen["torch"], driver=release or "?"
        )
    reason = seen.get("problem") or "torch finds no device"
    cuda = seen.get("cuda")
    if "torch" not in seen:
        return problem("gpu", reason, INSTALL)
    if not cuda:
        says, do = "torch {torch} is built without CUDA: {error}", "{remedy}; or use the cpu profile"
        return problem("gpu", says, do, torch=seen["torch"], error=reason, remedy=INSTALL)
    oldest = _OLDEST_DRIVER.get(cuda.partition(".")[0])
    says = "torch {torch} is built for CUDA {cuda}, the driver is {driver}: {error}"
    values = {"torch": seen["torch"], "cuda": cuda, "driver": release or "?", "oldest": oldest or "?", "error": reason}
    old = "too old" in reason or (release and oldest and int(release.partition(".")[0]) < oldest)
    do = "check nvidia-smi: CUDA {cuda} needs a driver of {oldest} or newer; or use the cpu profile"
    return problem("gpu", says, "install a driver of {oldest} or newer" if old else do, **values)


def need_gpus(engines: Mapping[str, Engine]) -> bool:
    """Return whether an engine or its managed server uses a local GPU."""
    for engine in engines.values():
        server = managed_server(engine)
        if engine.gpu_memory or (server is not None and server.gpus):
            return True
    return False


def find_idle_card(engines: Mapping[str, Engine]) -> Finding | None:
    """Return a warning about the largest card, with fitting profiles, if no engine uses one."""
    if any(server_of(engine) is not None or engine.gpu_memory for engine in engines.values()):
        return None
    card = largest_card()
    return card and warning("gpu", phrase("{card} is not used by this profile", str(card)), advise(card))


def advise(card: GpuCard) -> str:
    """Return advice on the profiles that fit a card."""
    fitting = fitting_profiles(card.model, card.memory)
    if not fitting:
        return "no profile is for so little memory (docs/gpu.md)"
    names: dict[bool, str] = {}
    for profile in fitting:
        names.setdefault(profile.sections["recognition"]["engine"] == _KOREAN, profile.name)
    own = names.get(False, fitting[0].name)
    korean = names.get(True, f"{own}+{_KOREAN}")
    return phrase("--profile {korean} reads Korean with it, --profile {own} the rest (docs/gpu.md)", korean, own)


def fitting_profiles(model: str, memory: int) -> list[Profile]:
    """Return the profiles for a card, else for the largest card with no more memory.

    `model` is the driver's name for the card.
    """
    fitting: list[tuple[Profile, Card]] = []
    own: list[Profile] = []
    for profile in map(find_profile, known_profiles()):
        card = profile.card
        if card is None or memory < _ROOM * card.memory_gb * 2**30:
            continue
        fitting.append((profile, card))
        if re.search(rf"\b{re.escape(card.gpu)}\b", model) and memory < _NAMESAKE * card.memory_gb * 2**30:
            own.append(profile)
    if own or not fitting:
        return own
    _, largest = max(fitting, key=lambda pair: pair[1].memory_gb)
    return [profile for profile, card in fitting if card.gpu == largest.gpu]


def check_memory(
    asks: Sequence[MemoryDemand], gpus: Sequence[Mapping[str, Any]], warm: Sequence[str] = ()
) -> Iterator[Finding]:
    """Check the memory of each GPU that the profile asks for.

    Servers that share a GPU run side by side; others run one at a time, beside the engines. `warm` names servers that
    are already running: their memory is the profile's own, so the free memory means nothing.
    """
    by_gpu: dict[int, list[MemoryDemand]] = defaultdict(list)
    for ask in asks:
        by_gpu[ask.gpu].append(ask)
    for index, wanted in sorted(by_gpu.items()):
        check = phrase("memory of GPU {index}", index)
        if index >= len(gpus):
            says = "the profile asks for GPU {index}, and torch sees {count}"
            do = "change the server's `gpus`, CUDA_VISIBLE_DEVICES, or the profile"
            yield problem(check, says, do, index=index, count=len(gpus))
            continue
        free, total = gpus[index]["free"], gpus[index]["total"]
        at_once = demands_at_once(wanted, total)
        need = sum(ask.of(total) for ask in at_once)
        shares = (phrase("{part} {size:.1f}", ask.who, ask.of(total) / 1e9) for ask in at_once)
        parts = joined(shares, "{first}, {then}")
        form = "{free:.1f} of {total:.1f} GB are free, and {need:.1f} asked for ({parts})"
        says = phrase(form, free / 1e9, total / 1e9, need / 1e9, parts)
        if need > total:
            do = "lower gpu_memory_utilization or layout.batch_size, or choose the profile of a smaller card"
            yield problem(check, "{reason}: it can never fit", do, reason=says)
        elif need <= free:
            yield ok(check, says)
        elif warm:
            do = "`kopub serve stop`, to see what is free"
            yield warning(check, "{reason}; {models} runs there", do, reason=says, models=", ".join(warm))
        else:
            yield problem(
                check, says, "stop other programs there (nvidia-smi), or choose the profile of a smaller card"
            )
