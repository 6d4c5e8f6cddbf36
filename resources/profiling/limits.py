"""What limits a stage, and the key of the profile that would move it. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from resources.profiling.timeline import Split

_TOO_SHORT = 1.0
"""Seconds of a stage below which nothing can be told."""
_MOSTLY = 0.85
"""Share from which a device is what limits; the rest is the unevenness of its work."""
_CORES = 0.7
"""The same of the cores where threads of Python share them."""
_STARTING = 0.4
"""Share of a stage's time that is worth a word when it is spent before the first work."""

_KNOBS: Mapping[tuple[str, str], Sequence[str]] = {
    ("layout", "GPU"): ("compile", "dtype", "batch_size"),
    ("layout", "cores"): ("gpu_jpeg",),
    ("layout", "requests"): ("decode_threads", "batch_size"),
    ("recognition", "GPU"): (
        "server.gpus",
        "server.replicas_per_gpu",
        "server.mps",
        "line_height",
        "server.quantization",
    ),
    ("recognition", "cores"): ("line_height",),
    ("recognition", "requests"): ("in_flight", "processes", "server.max_num_seqs", "server.api_server_count"),
    ("embedding", "GPU"): ("server.gpus", "max_pixels", "server.quantization"),
    ("embedding", "requests"): ("in_flight", "processes", "server.max_num_seqs", "server.api_server_count"),
}
"""Keys of an engine's section that move a limit, the most promising first; an engine has some of them."""


@dataclass(frozen=True, slots=True)
class Limit:
    """What limits a stage, why, and the keys of its section of the profile that move it.

    `name` is `GPU`, `cores`, `requests`, `start`, `one core`, or empty where nothing can be told.
    """

    name: str
    why: str
    keys: tuple[str, ...] = ()


def limit(
    section: str | None, seconds: float, split: Split, busy: float | None, cores: float, has: Sequence[str]
) -> Limit:
    """What limits a stage of `section`, None for one without an engine.

    `busy` is the mean busy share of the cards over the stage, None without any; `cores` is the share of all cores that
    was not free. `has` are the keys that the engine has, those of its server as `server.KEY`.
    """
    if seconds < _TOO_SHORT:
        return Limit("", "too short to tell")
    if busy is None or split.working == 0:
        return _of_cores(section, cores, has)
    if split.starting > _STARTING * seconds:
        return Limit("start", f"{split.starting:.0f} of {seconds:.0f} s pass before the first work on the GPU")
    loaded = split.working + split.waiting
    share = split.working / loaded if loaded else 0.0
    if share >= _MOSTLY:
        return _known("GPU", f"it works for {share:.0%} of the time under load", section, has)
    if cores >= _MOSTLY:
        why = (
            f"the GPU waits for {1 - share:.0%} of the time under load, and the cores are {cores:.0%} busy; more "
            "of them would help, and PNG pages cost less with kopub[fast-png]"
        )
        return _known("cores", why, section, has)
    why = f"the GPU waits for {1 - share:.0%} of the time under load, and {1 - cores:.0%} of the cores are free"
    return _known("requests", why, section, has)


def _of_cores(section: str | None, cores: float, has: Sequence[str]) -> Limit:
    if cores >= _CORES:
        return _known("cores", f"all of them are {cores:.0%} busy; more of them would help", section, has)
    return _known("one core", f"{1 - cores:.0%} of the cores are free: work of one thread, or the disk", None, has)


def _known(name: str, why: str, section: str | None, has: Sequence[str]) -> Limit:
    keys = _KNOBS.get((section or "", name), ())
    return Limit(name, why, tuple(key for key in keys if key in has))
