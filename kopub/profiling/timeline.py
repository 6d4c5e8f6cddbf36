"""The arithmetic of a run's time: work of devices, idle time, and limits. Pure.

All times are Unix seconds.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from statistics import median

from kopub.states import phrase

IDLE = 0.05
"""Busy share up to which a device has no work of a run, only that of the desktop or a heartbeat."""
FULL = 0.9
"""Share of a stage's usual busy share from which the device counts as fully loaded."""
SMOOTHED = 1.0
"""Seconds over which a busy share is averaged before it is compared with `FULL`."""
STEADY = (0.15, 0.85)
"""The part of a stage's answers from which its steady rate is computed."""


@dataclass(frozen=True, slots=True)
class Span:
    """A time from `start` to `end`."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Activity(Span):
    """The busy share of a device, 0 to 1, from `start` to `end`."""

    busy: float


@dataclass(frozen=True, slots=True)
class Split:
    """Seconds of a stage by activity, which add up to its wall time.

    `starting` is the time until the first work, `ramping` until full load; `working` and `waiting` split the time
    under full load according to the busy share; `draining` is from the last full load to the last work, `platform`
    after it. A stage that never used the device is all `platform`.
    """

    starting: float = 0.0
    ramping: float = 0.0
    working: float = 0.0
    waiting: float = 0.0
    draining: float = 0.0
    platform: float = 0.0

    @property
    def seconds(self) -> float:
        return sum(self)

    def __iter__(self) -> Iterator[float]:
        return (getattr(self, field.name) for field in fields(self))

    def __add__(self, other: "Split") -> "Split":
        return Split(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


def activities(samples: Iterable[tuple[float, float]]) -> list[Activity]:
    """Return samples of (time, busy share) as a step function.

    A sample stands for the time since the previous one.
    """
    steps: list[Activity] = []
    before: float | None = None
    for at, busy in samples:
        if before is not None and at > before:
            steps.append(Activity(before, at, busy))
        before = at
    return steps


def within(steps: Iterable[Activity], span: Span) -> list[Activity]:
    """Return the part of `steps` within `span`."""
    return [
        Activity(max(step.start, span.start), min(step.end, span.end), step.busy)
        for step in steps
        if step.end > span.start and step.start < span.end
    ]


def busy_share(steps: Iterable[Activity], span: Span) -> float:
    """Return the mean busy share over `span`, in which time without samples counts as idle."""
    worked = sum(step.busy * step.seconds for step in within(steps, span))
    return worked / span.seconds if span.seconds > 0 else 0.0


def split(steps: Sequence[Activity], span: Span) -> Split:
    """Return how the seconds of a stage that lasted for `span` were spent."""
    inside = within(steps, span)
    active = [at for at, step in enumerate(inside) if step.busy > IDLE]
    if not active:
        return Split(platform=span.seconds)
    first, last = active[0], active[-1]
    usual = median(inside[at].busy for at in active)
    # The end of full load would be found too late by a mean that looks back, its start too early by one that looks on.
    full = next((at for at in active if _mean(inside, at, SMOOTHED) >= FULL * usual), first)
    drained = next((at for at in reversed(active) if _mean(inside, at, -SMOOTHED) >= FULL * usual), last)
    loaded = inside[full : max(full, drained) + 1]
    working = sum(step.busy * step.seconds for step in loaded)
    begin, end = inside[first].start, inside[last].end
    return Split(
        starting=begin - span.start,
        ramping=loaded[0].start - begin,
        working=working,
        waiting=loaded[-1].end - loaded[0].start - working,
        draining=end - loaded[-1].end,
        platform=span.end - end,
    )


def gaps(steps: Sequence[Activity], span: Span, least: float = 0.3) -> list[Span]:
    """Return the spans of at least `least` seconds without work on the device."""
    spans: list[Span] = []
    begin = span.start
    for step in within(steps, span):
        if step.busy > IDLE:
            if step.start - begin >= least:
                spans.append(Span(begin, step.start))
            begin = step.end
    if span.end - begin >= least:
        spans.append(Span(begin, span.end))
    return spans


def idle_between(steps: Sequence[Activity], last: Span, following: Span) -> float:
    """Return the idle seconds from one span's last work to another's first."""
    before = [step.end for step in within(steps, last) if step.busy > IDLE] or [last.end]
    after = [step.start for step in within(steps, following) if step.busy > IDLE] or [following.start]
    return max(0.0, after[0] - before[-1])


def longest_gap_at(steps: Sequence[Activity], moment: float, inside: Span) -> float:
    """Return the seconds of the gap at `moment`, or 0 if work goes on.

    Work for the next shard may begin shortly before or after a shard is published, so a gap within two seconds counts.
    """
    near = [gap.seconds for gap in gaps(steps, inside, 0.0) if gap.start - 2 <= moment <= gap.end + 2]
    return max(near, default=0.0)


def steady_rate(counts: Sequence[tuple[float, float]]) -> float | None:
    """Return the answers per second, without the first and last, or None for too few."""
    if len(counts) < 2 or counts[-1][1] <= counts[0][1]:
        return None
    begin, rows = counts[0][1], counts[-1][1] - counts[0][1]
    times: list[float] = []
    for share in STEADY:
        # The time when the count reached this share, between two looks at it.
        value, reached = begin + share * rows, counts[-1][0]
        for (start, low), (end, high) in pairwise(counts):
            if high >= value and high > low:
                reached = start + (end - start) * max(0.0, value - low) / (high - low)
                break
        times.append(reached)
    low, high = times
    return (STEADY[1] - STEADY[0]) * rows / (high - low) if high > low else None


def _mean(steps: Sequence[Activity], at: int, seconds: float) -> float:
    """Return the mean busy share over `seconds` from the start of step `at`.

    If `seconds` is negative, the time is that before the end of the step.
    """
    step = steps[at]
    span = Span(step.start, step.start + seconds) if seconds > 0 else Span(step.end + seconds, step.end)
    near: list[Activity] = []
    order = steps[at:] if seconds > 0 else steps[at::-1]
    for neighbour in order:
        if neighbour.start >= span.end or neighbour.end <= span.start:
            break
        near.append(neighbour)
    pieces = within(near, span)
    return sum(piece.busy * piece.seconds for piece in pieces) / sum(piece.seconds for piece in pieces)


_TOO_SHORT = 1.0
"""Least seconds of a stage from which a limit can be told."""
_MOSTLY = 0.85
"""Busy share from which a device is the limit; the rest is due to uneven work."""
_CORES = 0.7
"""The same share for the cores, if threads of Python share them."""
_STARTING = 0.4
"""Least share of a stage's time before the first work that makes the start its limit."""

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
"""Keys of an engine's section that move a limit, the most promising first; each engine has some of them."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit of a stage, its reason, and the profile's keys that move it.

    `name` is `GPU`, `cores`, `requests`, `start`, `one core`, or empty if nothing can be told.
    """

    name: str
    why: str
    keys: tuple[str, ...] = ()


def limit(
    section: str | None, seconds: float, split: Split, busy: float | None, cores: float, has: Sequence[str]
) -> Limit:
    """Return the limit of a stage of `section`, which is None without an engine.

    `busy` is the mean busy share of the cards over the stage, or None without cards; `cores` is the share of all cores
    that was not free. `has` are the keys that the engine has, with those of its server as `server.KEY`.
    """
    if seconds < _TOO_SHORT:
        return Limit("", "too short to tell")
    if split.starting > _STARTING * seconds and busy is not None and split.working:
        form = "{waited:.0f} of {seconds:.0f} s pass before the first work on the GPU"
        return Limit("start", phrase(form, split.starting, seconds))

    loaded = split.working + split.waiting
    share = split.working / loaded if loaded else 0.0
    if busy is None or split.working == 0:
        if cores >= _CORES:
            name, why = "cores", phrase("all of them are {busy:.0%} busy; more of them would help", cores)
        else:
            name, section = "one core", None
            why = phrase("{free:.0%} of the cores are free: work of one thread, or the disk", 1 - cores)
    elif share >= _MOSTLY:
        name, why = "GPU", phrase("it works for {share:.0%} of the time under load", share)
    elif cores >= _MOSTLY:
        name = "cores"
        form = (
            "the GPU waits for {share:.0%} of the time under load, and the cores are {busy:.0%} busy; more of them "
            "would help, and PNG pages cost less with kopub[fast-png]"
        )
        why = phrase(form, 1 - share, cores)
    else:
        name = "requests"
        form = "the GPU waits for {share:.0%} of the time under load, and {free:.0%} of the cores are free"
        why = phrase(form, 1 - share, 1 - cores)
    return Limit(name, why, tuple(key for key in _KNOBS.get((section or "", name), ()) if key in has))
