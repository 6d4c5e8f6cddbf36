"""Checks of the GPUs: whether torch can use them and their memory suffices."""

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from resources.config.memory import MemoryDemand, demands_at_once
from resources.config.profile_files import Card, Profile, find_profile, known_profiles
from resources.doctor.checks import Finding, ok, problem, warning
from resources.engine import INSTALL, Engine
from resources.gpu import GpuCard, largest_card
from resources.weights.hub import server_of

_PROBE = Path(__file__).with_name("gpu_probe.py")
_SECONDS = 120.0
_OLDEST_DRIVER = {"13": 580, "12": 525}
"""NVIDIA's oldest driver for Linux by the major release of CUDA, from its compatibility table."""
_ROOM = 0.9
"""Least share of the memory that a card is sold with that a driver lists."""
_NAMESAKE = 1.5
"""Times the memory of a profile's card at which a card of its name is another one, as an RTX 4060 Ti of 16 GB."""
_KOREAN = "paddleocr_vl"
"""The reader for Korean: docs/decisions/07-reader-for-korean.md."""


def ask_torch() -> dict[str, Any]:
    """Return what torch sees; see `gpu_probe.probe`."""
    command = [sys.executable, str(_PROBE)]
    # The modules beside the script are no modules of torch's.
    alone = {**os.environ, "PYTHONSAFEPATH": "1"}
    try:
        done = subprocess.run(command, env=alone, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return {"problem": f"torch did not answer for {_SECONDS:.0f} s: see nvidia-smi"}
    try:
        return json.loads(done.stdout)
    except ValueError:
        said = done.stderr.strip().rpartition("\n")[2] or "no message"
        return {"problem": f"torch ended with status {done.returncode}: {said}"}


def check_gpus(seen: Mapping[str, Any]) -> Finding:
    """Return the GPUs, or torch's reason for none and what the driver needs."""
    release = seen.get("driver")
    if "problem" not in seen and seen.get("gpus"):
        names = ", ".join(f"{gpu['name']} ({gpu['total'] / 1e9:.0f} GB)" for gpu in seen["gpus"])
        return ok("gpu", f"{names}; torch {seen['torch']}, driver {release or 'not told'}")
    reason = seen.get("problem") or "torch finds no device"
    cuda = seen.get("cuda")
    if "torch" not in seen:
        return problem("gpu", reason, INSTALL)
    if not cuda:
        do = f"{INSTALL}; or use the cpu profile"
        return problem("gpu", f"torch {seen['torch']} is built without CUDA: {reason}", do)
    oldest = _OLDEST_DRIVER.get(cuda.partition(".")[0])
    needed = f"a driver of {oldest} or newer" if oldest else "a newer driver"
    running = f", the driver is {release}" if release else ""
    says = f"torch {seen['torch']} is built for CUDA {cuda}{running}: {reason}"
    old = "too old" in reason or (release and oldest and int(release.partition(".")[0]) < oldest)
    do = f"install {needed}" if old else f"check nvidia-smi: CUDA {cuda} needs {needed}; or use the cpu profile"
    return problem("gpu", says, do)


def need_gpus(engines: Mapping[str, Engine]) -> bool:
    """Return whether an engine or its managed server works on a local GPU."""
    servers = (server_of(engine) for engine in engines.values())
    of_servers = any(server is not None and server.mode == "managed" and server.gpus for server in servers)
    return of_servers or any(engine.gpu_memory for engine in engines.values())


def find_idle_card(engines: Mapping[str, Engine]) -> Finding | None:
    """Return the largest card that no engine works on, and the profile that fits it."""
    if any(server_of(engine) is not None or engine.gpu_memory for engine in engines.values()):
        return None
    card = largest_card()
    return card and warning("gpu", f"{card} is not used by this profile", advise(card))


def advise(card: GpuCard) -> str:
    """Return the profiles that fit a card, in words."""
    fitting = fitting_profiles(card.model, card.memory)
    if not fitting:
        return "no profile is for so little memory (docs/gpu.md)"
    own = next((each.name for each in fitting if not _reads_korean(each)), fitting[0].name)
    korean = next((each.name for each in fitting if _reads_korean(each)), f"{own}+{_KOREAN}")
    return f"--profile {korean} reads Korean with it, --profile {own} the rest (docs/gpu.md)"


def fitting_profiles(model: str, memory: int) -> list[Profile]:
    """Return the profiles of a card, else of the largest one with no more memory.

    `model` is the driver's name for it.
    """

    def holds(card: Card) -> bool:
        return memory >= _ROOM * card.memory_gb * 2**30

    def is_named(card: Card) -> bool:
        return bool(re.search(rf"\b{re.escape(card.gpu)}\b", model)) and memory < _NAMESAKE * card.memory_gb * 2**30

    profiles = [(each, each.card) for each in map(find_profile, known_profiles()) if each.card and holds(each.card)]
    own = [each for each, card in profiles if is_named(card)]
    most = max((card.memory_gb for _, card in profiles), default=0.0)
    gpu = next((card.gpu for _, card in profiles if card.memory_gb == most), "")
    return own or [each for each, card in profiles if card.gpu == gpu]


def _reads_korean(profile: Profile) -> bool:
    return profile.sections["recognition"]["engine"] == _KOREAN


def check_memory(
    asks: Sequence[MemoryDemand], gpus: Sequence[Mapping[str, Any]], warm: Sequence[str] = ()
) -> Iterator[Finding]:
    """Check the memory of each GPU that is asked for.

    Servers that share a GPU run side by side; of those that do not, one at a time, beside the engines. `warm` names
    servers that run: their memory is the profile's own, so what is free says nothing.
    """
    by_gpu: dict[int, list[MemoryDemand]] = defaultdict(list)
    for ask in asks:
        by_gpu[ask.gpu].append(ask)
    for index, wanted in sorted(by_gpu.items()):
        check = f"memory of GPU {index}"
        if index >= len(gpus):
            do = "change the server's `gpus`, CUDA_VISIBLE_DEVICES, or the profile"
            yield problem(check, f"the profile asks for GPU {index}, and torch sees {len(gpus)}", do)
            continue
        free, total = gpus[index]["free"], gpus[index]["total"]
        at_once = demands_at_once(wanted, total)
        need = sum(ask.of(total) for ask in at_once)
        parts = ", ".join(f"{ask.who} {ask.of(total) / 1e9:.1f}" for ask in at_once)
        says = f"{free / 1e9:.1f} of {total / 1e9:.1f} GB are free, and {need / 1e9:.1f} asked for ({parts})"
        if need > total:
            do = "lower gpu_memory_utilization or layout.batch_size, or choose the profile of a smaller card"
            yield problem(check, f"{says}: it can never fit", do)
        elif need <= free:
            yield ok(check, says)
        elif warm:
            yield warning(check, f"{says}; {', '.join(warm)} runs there", "`kopub serve stop`, to see what is free")
        else:
            yield problem(check, says, "end what else runs there (nvidia-smi), or choose the profile of a smaller card")
