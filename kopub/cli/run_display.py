"""The display of `kopub run`: a live table, or occasional lines."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from kopub.api.corpus import Corpus
from kopub.api.sources.home import HomeSource
from kopub.cli.console import duration, lost_line, said, say
from kopub.cli.options import corpus_check, first_look_lines, with_profile
from kopub.cli.score_lines import score_changes, scripts_not_read
from kopub.errors import counted, visible
from kopub.pages.manifest import LEFT_OUT
from kopub.search.scores import ScoreChange, change_lines, pages_by_state
from kopub.states import LOST, State, joined, phrase
from kopub.store.corpus_tables import TABLES
from kopub.tables.progress import Forecast, Stage, Watcher

if TYPE_CHECKING:
    from kopub.config.settings import Settings
    from kopub.tables.plan import Survey

_LINE_SECONDS = 15.0
"""Seconds between two lines if there is no live table."""
_BAR = 20
_REFRESH = 4.0
"""Frames per second: a table of a dozen lines costs a millisecond."""


class RunDisplay(Watcher):
    """Follows a run by its forecast. A context manager; `clock` gives monotonic seconds."""

    def __init__(self, forecast: Forecast, out: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._forecast, self._out, self._clock = forecast, out, clock
        self._lock = threading.Lock()
        self._said = clock()
        self._is_over = False
        self.closed: tuple[str, ...] = ()
        """The gates that the corpus does not pass, as far as the run has judged them."""
        self.unjudged: tuple[str, ...] = ()
        """What no gate can judge, because too little of it was counted."""
        self._live = (
            Live(get_renderable=self._shown, console=out, refresh_per_second=_REFRESH) if out.is_terminal else None
        )

    def __enter__(self) -> "RunDisplay":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            # An empty table would otherwise stay on the screen.
            self._live.transient = not self.made_anything
            self._is_over = True
            self._live.stop()

    def began(self, asset: str) -> None:
        with self._lock:
            self._forecast.stages[asset].begin(self._clock())

    def planned(self, asset: str, shard: str, rows: int) -> None:
        with self._lock:
            stage = self._forecast.stages[asset]
            stage.planned[shard] = rows

    def computed(self, asset: str, shard: str, state: State = State.OK) -> None:
        with self._lock:
            self._forecast.stages[asset].count(shard, self._clock(), state)
        now = self._clock()
        if self._live is None and now - self._said >= _LINE_SECONDS:
            self._said = now
            with self._lock:
                stage = self._forecast.stages[asset]
                left = duration(self._forecast.remaining(now))
            if stage.shards:
                rate = stage.rate(now)
                pace = "" if rate is None else phrase(", {rate:,.1f} rows/s", rate)
                form = "{asset}: {counts}{rate}; about {left} to go"
                says = phrase(form, asset, self._counts(stage), pace, left)
                say(self._out, says, "red" if stage.lost else "")

    def published(self, asset: str, shard: str) -> None:
        with self._lock:
            stage = self._forecast.stages[asset]
            stage.planned.setdefault(shard, 0)
            stage.published.add(shard)

    def judged(self, closed: Sequence[str], unjudged: Sequence[str]) -> None:
        self.closed, self.unjudged = tuple(closed), tuple(unjudged)

    @property
    def made_anything(self) -> bool:
        """Return whether a row was computed, or anything was measured."""
        return any(stage.done for stage in self._forecast.stages.values())

    def warned(self, asset: str, message: str) -> None:
        say(self._out, visible(said(phrase("{asset}: {reason}", asset, message))), "yellow")

    def ended(self, asset: str) -> None:
        with self._lock:
            stage = self._forecast.stages[asset]
            stage.ended = self._clock()
        if self._live is None and stage.done:
            took = duration(stage.elapsed(stage.ended))
            say(
                self._out,
                phrase("{asset}: {counts} in {time}", asset, self._counts(stage), took),
                "red" if stage.lost else "",
            )

    def _counts(self, stage: Stage) -> str:
        if not stage.shards:
            return phrase("measured")
        line = phrase("{count:,} of {rows:,} rows made", stage.done - stage.lost, stage.rows)
        lost = [phrase("{count:,} {state}", stage.ends[state], state) for state in LOST if stage.ends[state]]
        return joined([line, *lost], "{first}, {then}")

    def _shown(self) -> Group:
        now = self._clock()
        with self._lock:
            table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
            table.add_column(said("asset"), no_wrap=True)
            for column in ("shards", "rows", "lost", "rows/s", "time"):
                table.add_column(said(column), justify="right", no_wrap=True)
            table.add_column("")
            for stage in self._forecast.stages.values():
                if stage.shards and not stage.rows:
                    continue
                shards = f"{len(stage.published)}/{stage.shards}" if stage.shards else ""
                rows = f"{stage.done - stage.lost:,}/{stage.rows:,}" if stage.shards else ""
                if stage.began is None:
                    table.add_row(stage.asset, shards, rows)
                    continue
                lost = Text(f"{stage.lost:,}", "bold red") if stage.lost else ""
                rate = stage.rate(now) if stage.shards else None
                time = duration(stage.elapsed(now))
                bar = ProgressBar(total=max(stage.rows, 1), completed=stage.done, width=_BAR)
                ended = bar if stage.ended is None else said("done")
                table.add_row(stage.asset, shards, rows, lost, "" if rate is None else f"{rate:,.1f}", time, ended)
            share, left = self._forecast.share(now), self._forecast.remaining(now)
        if self._is_over and not round(left):
            return Group(table)
        return Group(table, Text(said(phrase("{share:.0%}, about {left} to go", share, duration(left)))))


NOT_WHOLE = 3
"""Exit status of a finished run with lost pages, pages read in part, worse scores or a closed gate."""
_NAMED = 3
"""Most lost pages named with their reasons; `kopub status` lists more."""
_LOST = (*LOST, State.PARTIAL)
_BAD = "red"


@dataclass(frozen=True)
class RunEnd:
    """The corpus at the end of a run.

    `states` counts each page once, by its worst state over the tables. `lost` has the reasons for the first pages that
    are lost or read in part. `closed` are the gates that the release does not pass, and `unjudged` says what none can
    judge.
    """

    states: Mapping[str, int]
    unfinished: int
    tried_again: bool
    """Whether the next run makes rows of current tables again."""
    doubtful: int
    lost: Sequence[str]
    left_out: int
    left_out_at: str
    reading: Sequence[ScoreChange]
    finding: Sequence[ScoreChange]
    closed: Sequence[str]
    unjudged: Sequence[str]
    is_overridden: bool
    """True if somebody gave a reason to continue with worse scores."""
    looks: Sequence[str]
    """A line for each source of which only the first pages were requested."""
    scripts: Sequence[str]
    """A line for each script of pages that the profile does not expect."""

    @classmethod
    def of(cls, settings: "Settings", scan: "Survey", closed: Sequence[str], unjudged: Sequence[str]) -> "RunEnd":
        """Return the facts from the tables of the indexed corpus.

        `scan` has the standing of the tables. Raises `StoreError`.
        """
        manifest, place = settings.corpus.manifest, settings.corpus.place
        corpus = Corpus(HomeSource(place, settings.store))
        columns = (corpus.catalogue[name].to_pylist() for name in ("page_id", "shard", "state"))
        # Shards of which a table of pages is missing or stale.
        behind: set[str] = set()
        for table in TABLES.of_pages:
            standings = scan.standings.get(table.name, {})
            behind.update(shard for shard, how in standings.items() if not how.stands)
        states, lost = Counter[str](), list[tuple[int, str]]()
        for page_id, shard, state in zip(*columns, strict=True):
            if state in _LOST:
                lost.append((_LOST.index(state), page_id))
            if state in _LOST or shard not in behind:
                states[state] += 1
        first = [corpus.page(page_id) for _, page_id in sorted(lost, key=lambda page: page[0])[:_NAMED]]
        is_of_corpus = corpus_check(settings.corpus.manifest, settings.store).look(scan.tables)
        reading, finding = score_changes(settings, is_of_corpus)
        return cls(
            states=states,
            unfinished=manifest.rows + manifest.left - states.total(),
            tried_again=any(entry.tried_again for tables in scan.tables.values() for entry in tables.values()),
            doubtful=len(corpus.pages.doubtful),
            lost=list(map(lost_line, first)),
            left_out=len(place.read(LEFT_OUT).splitlines()) if place.has(LEFT_OUT) else 0,
            left_out_at=place.location(LEFT_OUT),
            reading=reading,
            finding=finding,
            closed=closed,
            unjudged=unjudged,
            is_overridden=bool(settings.gates.override.strip()),
            scripts=[page.line for page in scripts_not_read(settings, is_of_corpus, on_objects=True)],
            looks=first_look_lines(manifest),
        )

    @property
    def status(self) -> int:
        """The exit status of the run.

        It is 0 if every page read is whole, nothing got worse and no gate is closed.
        """
        lost = any(self.states.get(state) for state in _LOST)
        worse = self._is_worse and not self.is_overridden
        return NOT_WHOLE if lost or worse or self.closed else 0

    @property
    def _is_worse(self) -> bool:
        return any(change.verdict == "worse" for change in (*self.reading, *self.finding))

    @property
    def pages(self) -> str:
        """`57 pages: 54 ok, 1 partial, 2 quarantined; 3 need review`."""
        return pages_by_state(self.states, self.unfinished, self.doubtful)

    def tell(self, out: Console, anew: bool) -> None:
        """Print the last lines of a run, or one if it made nothing `anew`."""
        if not anew:
            worse = ["reading or finding got worse"] if self._is_worse else []
            gates = [phrase("{gates} closed", counted(len(self.closed), "gate"))] if self.closed else []
            see = ["see kopub status"] if self.status else []
            line = joined(["nothing to compute", self.pages, *worse, *gates, *see])
            say(out, line, _BAD if self.status else "")
            for line in self.looks:
                say(out, line, "yellow")
            return
        # After the count of pages, each finding comes with its remedy.
        say(out, self.pages, _BAD if self.status else "green")
        for line in self.lost:
            say(out, f"- {line}", _BAD)
        if count := sum(self.states.get(state, 0) for state in _LOST):
            listed = "kopub status lists it" if count == 1 else phrase("kopub status lists all {count:,}", count)
            again = phrase("{command} tries again what failed", with_profile("kopub run"))
            say(out, joined([listed, *([again] if self.tried_again else [])]))
        if self.doubtful:
            say(out, "need review: kopub doubts lists them, worst first", "yellow")
        for line in self.scripts:
            say(out, line, "yellow")
        if self.left_out:
            files = counted(self.left_out, "file")
            say(out, phrase("{files} left out: {path} says why", files, self.left_out_at), "yellow")
        for line in change_lines(self.reading, self.finding):
            say(out, line, _BAD if "(worse)" in line else "")
        if self._is_worse:
            say(out, "worse than the run before: kopub diff shows the pages that changed")
        for line in self.closed:
            say(out, visible(said(phrase("gate closed: {reason}", line))), _BAD)
        for line in self.unjudged:
            say(out, visible(said(phrase("not judged: {reason}", line))), "yellow")
        for line in self.looks:
            say(out, line, "yellow")
        more = said(phrase("{command} for the unfinished pages", with_profile("kopub run")))
        todo = [more] if self.unfinished and not self.looks else []
        commands = ", ".join([*todo, "kopub browse", f"kopub search {said('QUESTION')}", "kopub status"])
        say(out, phrase("next: {commands}", commands))
