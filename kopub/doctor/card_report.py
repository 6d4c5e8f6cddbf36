"""The report on a GPU card: figures of the engines on sample pages, by stage.

Users can send it in, because it contains no path, host, user or key of the machine.
"""

import getpass
import importlib.metadata
import os
import platform
import re
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

import numpy as np
import psutil

from kopub.config.memory import demands_at_once, memory_demands
from kopub.config.profile_files import known_profiles
from kopub.config.settings import Settings
from kopub.doctor.checks import Finding, Level, check_gpus, need_gpus
from kopub.doctor.self_test import Engines, Samples, Step, self_test
from kopub.embedding.base import Embedder
from kopub.errors import ELLIPSIS, EngineError, without_paths
from kopub.folders import runtime_folder
from kopub.layout.base import LayoutDetector
from kopub.layout.regions import READ_TASKS, PageLayout, Task
from kopub.pages.page import Page
from kopub.parallel import ordered_map
from kopub.profiling.observer import LATE_SECONDS, Observer, ServerHistory
from kopub.profiling.report import growth
from kopub.profiling.timeline import Span
from kopub.recognition.base import Recognizer
from kopub.recognition.known_texts import PageToRead, known_texts, read_unknown
from kopub.states import LOST, State
from kopub.vllm.supervisor.server_state import ServerFolder
from kopub.weights.fetch import require_ready
from kopub.weights.hub import managed_server, server_of

_COPIES = 16
"""Copies of each sample page that are read on a GPU, 192 pages in all; elsewhere there is one copy."""
_PACKAGES = ("kopub", "torch", "vllm", "transformers", "opencv-python-headless")
_SIZES = ("dtype", "quantization", "max_num_seqs", "max_num_batched_tokens", "max_model_len", "gpu_memory_utilization")


def require_cards(settings: Settings, seen: Mapping[str, Any]) -> None:
    """Raise `EngineError` if a profile cannot be measured here.

    `seen` is what torch sees of GPUs.
    """
    if need_gpus(settings.engines):
        found = check_gpus(seen)
        if found.level is Level.PROBLEM:
            raise EngineError(f"profile {settings.profile_name} cannot be measured here: {found.says}: {found.do}")
    require_ready(settings.engines, settings.profile_name)


_Engine = LayoutDetector | Recognizer | Embedder
_STAGES = {"layout": ("layout",), "recognition": ("recognition",), "embedding": ("page vectors", "text vectors")}


@dataclass(slots=True)
class StageFigures:
    """The figures of one stage, measured with a warm server; None means unknown.

    `ready_seconds` is how long the server took to start (None if it was already running) or, without a managed server,
    the time until the engine's first result. `is_first_start` tells whether that server had never been started here,
    `starts` how often it was started. `asked_gb` is the stage's own part of the memory sums, `held_gb` the most memory
    in use on all cards meanwhile, by whatever process. `chosen` names the kernels and sizes that the engine chose,
    `problem` why it did not run.
    """

    stage: str
    engine: str
    items: int = 0
    seconds: float = 0.0
    regions: int = 0
    tokens_in: float | None = None
    tokens_out: float | None = None
    ready_seconds: float | None = None
    is_first_start: bool | None = None
    starts: int | None = None
    asked_gb: float | None = None
    held_gb: float | None = None
    watts: float | None = None
    busy: float | None = None
    chosen: str = ""
    problem: str = ""


class CardMeasurement:
    """The measurement of a profile's engines, which read the samples while cards are watched.

    Each engine is self-tested first.
    """

    def __init__(self, settings: Settings, samples: Samples, seen: Mapping[str, Any]) -> None:
        self._settings, self._samples = settings, samples
        # An answer kept from another run would take no time here.
        self._engines = Engines(settings.layout, _without_answers(settings.recognition), settings.embedding)
        self._sections: dict[str, _Engine] = dict(vars(self._engines))
        uses_gpus = need_gpus(self._sections)
        self._gpus = list(seen.get("gpus", ())) if uses_gpus else []
        self._driver = seen.get("driver") if uses_gpus else None
        self._copies = _COPIES if uses_gpus else 1
        self._asked = memory_demands(self._sections, len(self._gpus))
        names = dict.fromkeys(name for engine in self._sections.values() for name in engine.cards)
        self._observer = Observer(list(names))
        self._began_before = {section: _starts(engine) for section, engine in self._sections.items()}
        self.stages: list[StageFigures] = []
        """The measured figures; empty before `run`."""
        self._findings: list[Finding] = []
        self._layouts: dict[str, PageLayout] = {}
        self._began = 0.0
        self._first: dict[str, float] = {}

    def run(self, step: Step = lambda *_: None) -> Iterator[Finding]:
        """Judge and measure each engine, and yield the self-test's findings. Raises `StoreError`."""

        def told(what: str, done: int, total: int) -> None:
            self._first.setdefault(what, time.time())
            step(what, done, total)

        step("copying the samples", 0, 0)
        pages = list(ordered_map(_dim, [(page, copy) for copy in range(self._copies) for page in self._samples.pages]))

        def measured(section: str) -> None:
            step(f"{section}: measuring {len(pages)} pages", 0, 0)
            self._measure(section, pages)

        with self._observer:
            self._began = time.time()
            for finding in self_test(self._engines, self._samples, self._settings.home, told, measured):
                self._findings.append(finding)
                yield finding
        for section, engine in self._sections.items():
            if not any(made.stage in _STAGES[section] for made in self.stages):
                reasons = [each.says for each in self._findings if each.check == section]
                self.stages += [
                    StageFigures(name, engine.code_version.bare_name, problem="; ".join(reasons))
                    for name in _STAGES[section]
                ]

    def _measure(self, section: str, pages: Sequence[Page]) -> None:
        """Measure the stages of a section whose engine has just been judged and is warm."""
        engine = self._sections[section]
        # A server counts an answer after sending it, and is only polled at times, so pause requests until then.
        late = LATE_SECONDS if server_of(engine) else 0.0
        time.sleep(late)
        for stage in _STAGES[section]:
            made = StageFigures(stage, engine.code_version.bare_name)
            lost: list[str] = []
            start = self._observer.now()
            try:
                for state, reason, regions in self._results(stage, pages):
                    if state in LOST:
                        lost.append(reason or "no reason")
                    else:
                        made.items += 1
                        made.regions += regions
                if lost:
                    made.problem = f"{len(lost)} of {len(lost) + made.items} failed: {lost[0]}"
            except EngineError as error:
                made.problem = str(error)
            end = self._observer.now()
            time.sleep(late)
            made.seconds = round(end - start, 3)
            self._watch(made, Span(self._began, end), Span(start, end))
            self._ask(made, section, engine, Span(start - late / 2, end + late))
            self.stages.append(made)
        engine.release()
        self._began = time.time()

    def _results(self, stage: str, pages: Sequence[Page]) -> Iterator[tuple[State, str | None, int]]:
        """Yield state, reason and number of regions of each result of a stage."""
        engines = self._engines
        if stage == "layout":
            for found in engines.layout.detect(pages):
                self._layouts[found.page_id] = found
                yield found.state, found.reason, len(found.regions)
        elif stage == "recognition":
            reread = {Task(task) for task in engines.recognition.reread}
            found = [(page, self._layouts[page.page_id].regions) for page in pages if page.page_id in self._layouts]
            if not found:
                raise EngineError("no page has a layout to be read by")
            asked = (PageToRead(page, regions, known_texts(regions, reread)) for page, regions in found)
            for reading in read_unknown(engines.recognition.read, asked):
                regions = self._layouts[reading.page_id].regions
                yield reading.state, reading.reason, sum(region.task in READ_TASKS for region in regions)
        elif stage == "page vectors":
            yield from ((each.state, each.reason, 0) for each in engines.embedding.embed_images(pages))
        else:
            texts = [
                (f"{copy} {name}", f"{copy}. {text}")
                for copy in range(self._copies)
                for name, text in self._samples.texts.items()
            ]
            yield from ((each.state, each.reason, 0) for each in engines.embedding.embed_texts(texts))

    def _watch(self, made: StageFigures, whole: Span, warm: Span) -> None:
        """Add the cards' figures of a stage to `made`; `warm` is its measured part."""
        readings = self._observer.observed.readings
        if held := readings.within(whole.start, whole.end):
            made.held_gb = _gb(max(sum(card.memory for card in cards) for cards in held))
            made.busy = readings.figures(warm.start, warm.end).get("gpu_busy")
            joules = readings.joules(warm.start, warm.end)
            made.watts = round(joules / made.seconds, 1) if joules and made.seconds else None

    def _ask(self, made: StageFigures, section: str, engine: _Engine, counted: Span) -> None:
        """Add the figures of the memory sums, the engine and its server.

        The server's work is counted within `counted`.
        """
        own = [ask for ask in self._asked if section in ask.who.removesuffix(" server").split(" and ")]
        if self._gpus and own:
            made.asked_gb = _gb(sum(ask.of(self._gpus[ask.gpu]["total"]) for ask in own if ask.gpu < len(self._gpus)))
        chosen = [str(engine.report().get("fallbacks") or "")]
        if (server := managed_server(engine)) is None:
            made.ready_seconds = round(self._first[section] - self._began, 1) if section in self._first else None
            chosen += [
                f"{name} {getattr(engine, name)}"
                for name in ("dtype", "compile", "batch_size")
                if hasattr(engine, name)
            ]
        else:
            history = self._observer.observed.servers.get(server.key, ServerHistory(""))
            made.tokens_in, made.tokens_out = (
                growth(of, counted) for of in (history.prompt_tokens, history.generated_tokens)
            )
            made.ready_seconds = round(history.starts[0].seconds, 1) if history.starts else None
            before, starts = self._began_before[section], _starts(engine)
            made.starts = starts - before
            made.is_first_start = before == 0 if starts else None
            chosen += [f"{name} {value}" for name in _SIZES if (value := getattr(server, name)) is not None]
            chosen += [f"estimated: {ask.server}" for ask in own if ask.server][:1]
            chosen += _log_lines(ServerFolder(runtime_folder() / server.key))
        made.chosen = "; ".join(filter(None, chosen))

    def report(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        profile = self._settings.profile_name
        held = [sum(card.memory for card in cards) for _, cards in self._observer.observed.readings.taken]
        asked = 0
        for number, gpu in enumerate(self._gpus):
            asks = demands_at_once([ask for ask in self._asked if ask.gpu == number], gpu["total"])
            asked += sum(ask.of(gpu["total"]) for ask in asks)
        return {
            "report": 1,
            "date": date.today().isoformat(),
            "profile": profile if profile.partition("+")[0] in known_profiles() else "one of the user's own",
            "cards": [{"model": gpu["name"], "memory_gb": _gb(gpu["total"])} for gpu in self._gpus],
            "driver": self._driver,
            "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
            "cores": os.cpu_count(),
            "memory_gb": _gb(psutil.virtual_memory().total),
            "versions": _versions(),
            "gpu_memory_gb": {
                "asked_at_once": _gb(asked),
                "held_at_most": _gb(max(held, default=0)),
                "held_before": _gb(held[0] if held else 0),
            }
            if self._gpus
            else None,
            "stages": [_shown(each) for each in self.stages],
            "self_test": [f"{each.level}: {each.check}: {anonymous(each.says)}" for each in self._findings],
        }


def as_text(report: Mapping[str, Any]) -> str:
    """Return a report as Markdown."""
    cards = ", ".join(f"{card['model']} ({card['memory_gb']:g} GB)" for card in report["cards"]) or "no GPU"
    versions = ", ".join(f"{name} {release}" for name, release in report["versions"].items())
    system = report["system"]
    driver = f", driver {report['driver']}" if report["driver"] else ""
    columns = [each for each in _COLUMNS if any(stage[each[1]] is not None for stage in report["stages"])]
    head = [column for column, _ in columns]
    rows = [[_cell(stage[name]) for _, name in columns] for stage in report["stages"]]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    table = [head, ["-" * width for width in widths], *rows]
    lines = [
        f"### {cards}, profile {report['profile']}",
        "",
        f"{report['date']}; {versions}{driver}; {system}, {report['cores']} cores, {report['memory_gb']:g} GB",
        "",
        *(
            "| " + " | ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) + " |"
            for row in table
        ),
        "",
    ]
    if memory := report["gpu_memory_gb"]:
        lines.append(
            f"- memory: {memory['asked_at_once']:g} GB asked for at once by the sums; the cards held at most "
            f"{memory['held_at_most']:g}, {memory['held_before']:g} of them before"
        )
    for stage in report["stages"]:
        told = [stage["chosen"], stage["problem"] and f"problem: {stage['problem']}"]
        if stage["starts"] and stage["starts"] > 1:
            told.append(f"its server was started {stage['starts']} times")
        if any(told):
            lines.append(f"- {stage['stage']}: {'; '.join(filter(None, told))}")
    return "\n".join([*lines, *(f"- self-test: {line}" for line in report["self_test"])])


_COLUMNS = (
    ("stage", "stage"),
    ("engine", "engine"),
    ("items", "items"),
    ("s", "seconds"),
    ("items/s", "items_a_second"),
    ("regions/s", "regions_a_second"),
    ("tokens in/s", "tokens_in_a_second"),
    ("tokens out/s", "tokens_out_a_second"),
    ("ready after s", "ready_seconds"),
    ("first start", "is_first_start"),
    ("asked GB", "asked_gb"),
    ("held GB", "held_gb"),
    ("W", "watts"),
    ("busy", "busy"),
)


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _shown(made: StageFigures) -> dict[str, Any]:
    counts = {
        "items": made.items,
        "regions": made.regions or None,
        "tokens_in": made.tokens_in,
        "tokens_out": made.tokens_out,
    }
    rates = {f"{name}_a_second": _rate(count, made.seconds) for name, count in counts.items()}
    return {**asdict(made), **rates, "chosen": anonymous(made.chosen), "problem": anonymous(made.problem)}


def _rate(count: float | None, seconds: float) -> float | None:
    return round(count / seconds, 2) if count and seconds else None


def _gb(size: float) -> float:
    return round(size / 1e9, 2)


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def _without_answers(engine: Recognizer) -> Recognizer:
    return engine.model_copy(update={"reuse_folder": ""}) if "reuse_folder" in type(engine).model_fields else engine


def _dim(page_and_copy: tuple[Page, int]) -> Page:
    """Copy a page with slightly darker paper, so that the bytes of all regions differ."""
    import cv2

    page, copy = page_and_copy
    pixels = np.minimum(page.image, 254 - copy)
    done, data = cv2.imencode(".png", pixels[:, :, ::-1], [cv2.IMWRITE_PNG_COMPRESSION, 1])
    assert done
    return Page(f"{copy} {page.page_id}", data.tobytes())


def _starts(engine: _Engine) -> int:
    """Return how often an engine's server was started here, without replica restarts."""
    if (server := managed_server(engine)) is None:
        return 0
    state = ServerFolder(runtime_folder() / server.key).state
    return state.boot if state is not None else 0


_TOLD = (
    (r"Using (?:AttentionBackendEnum\.)?(\w+) (?:attention )?backend", "attention {}"),
    (
        r"Using (?:backend )?(?:AttentionBackendEnum\.)?(\w+) for (?:vit attention|MMEncoderAttention)",
        "encoder attention {}",
    ),
    (r"Model loading took ([\d.]+) GiB", "weights {} GiB"),
    (r"Available KV cache memory: ([\d.]+) GiB", "cache {} GiB"),
    (r"KV cache size: ([\d,]+) tokens", "cache {} tokens"),
    (r"Graph capturing finished in .* took (-?[\d.]+) GiB", "graphs {} GiB"),
)
"""Lines of vLLM's log, and what each says about a server; the last of each kind counts."""


def _log_lines(folder: ServerFolder) -> list[str]:
    """Return a server's kernels, memory and start times from its log."""
    try:
        log = folder.log(0).read_text("utf-8", errors="replace")
    except OSError:
        return []
    told = [form.format(found[-1]) for pattern, form in _TOLD if (found := re.findall(pattern, log))]
    return [*told, folder.stages and f"its start: {folder.stages}"]


_URL = re.compile(r"\w+://\S+|\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b")
_KEY = re.compile(r"\b(?:hf_|sk-|gh[pousr]_|github_pat_)\w{6,}")
_SECRET = re.compile("TOKEN|KEY|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)


def anonymous(said: str) -> str:
    """Return a message without paths, addresses, secrets, user and host.

    Secrets are the values of environment variables with names such as TOKEN or KEY.
    """
    secret = [value for name, value in os.environ.items() if _SECRET.search(name) and len(value) > 5]
    # A container's user may have neither a home, which then stays "~", nor a name.
    home = os.path.expanduser("~")
    for known in (*secret, home, os.getcwd()):
        said = said.replace(known, ELLIPSIS if known in secret else "~") if len(known) > 1 else said
    said = _KEY.sub(ELLIPSIS, _URL.sub(ELLIPSIS, without_paths(said)))
    host = socket.gethostname()
    names = {os.path.basename(home), host, host.partition(".")[0]}
    with suppress(KeyError, OSError):
        names.add(getpass.getuser())
    for name in sorted(names - {"", "~", "localhost"}, key=len, reverse=True):
        said = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", ELLIPSIS, said)
    return said
