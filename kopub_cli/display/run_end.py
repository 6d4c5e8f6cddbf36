"""How a run ended: every page in one state, what was lost, what got worse, and what to do next."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console

from kopub_cli.display.console import plain_reason, say
from kopub_cli.display.score_lines import score_changes
from kopub_cli.indexed_corpus import corpus_check
from kopub_cli.profile_option import with_profile
from resources.printable import counted, visible
from resources.search.scores import ScoreChange, change_lines, pages_by_state
from resources.states import LOST, State

if TYPE_CHECKING:
    from kopub_assets.upgrades.stale_scan import Survey
    from resources.config.settings import Settings

NOT_WHOLE = 3
"""Exit status of a run that ended, and left lost pages, pages read in part, worse scores or a closed gate."""
_NAMED = 3
"""Lost pages that are named with the reason; `kopub status` lists more."""
_LOST = (*LOST, State.PARTIAL)
_BAD = "red"


@dataclass(frozen=True)
class RunEnd:
    """The corpus as a run leaves it.

    `states` counts each page once, by its worst state over the tables. `lost` says why of the first pages that are
    lost or read in part. `closed` are the gates that the release does not pass.
    """

    states: Mapping[str, int]
    unfinished: int
    doubtful: int
    lost: Sequence[str]
    left_out: int
    left_out_at: str
    reading: Sequence[ScoreChange]
    finding: Sequence[ScoreChange]
    closed: Sequence[str]
    is_overridden: bool
    """Whether somebody gave a reason to go on with worse scores."""
    looks: Sequence[str]
    """A line for each source of which only the first pages were wanted."""

    @classmethod
    def of(cls, settings: "Settings", scan: "Survey", closed: Sequence[str]) -> "RunEnd":
        """Look into the tables of the indexed corpus, of which `scan` tells the standing. Raises `StoreError`."""
        from kopub.corpus import Corpus
        from kopub.sources.home import HomeSource
        from resources.pages.index_writer import LEFT_OUT

        manifest, place = settings.corpus.manifest, settings.corpus.place
        corpus = Corpus(HomeSource(place, settings.store))
        columns = (corpus.catalogue[name].to_pylist() for name in ("page_id", "shard", "state"))
        behind, states, lost = _behind(scan), Counter[str](), list[tuple[int, str]]()
        for page_id, shard, state in zip(*columns, strict=True):
            if state in _LOST:
                lost.append((_LOST.index(state), page_id))
            if state in _LOST or shard not in behind:
                states[state] += 1
        first = [corpus.page(page_id) for _, page_id in sorted(lost, key=lambda each: each[0])[:_NAMED]]
        is_of_corpus = corpus_check(settings.corpus.manifest, settings.store).look(scan.tables)
        reading, finding = score_changes(settings, is_of_corpus)
        return cls(
            states=states,
            unfinished=settings.corpus.manifest.rows - states.total(),
            doubtful=len(corpus.pages.doubtful),
            lost=[visible(f"{page.id} is {page.state}: {plain_reason(page.id, page.reason)}") for page in first],
            left_out=len(place.read(LEFT_OUT).splitlines()) if place.has(LEFT_OUT) else 0,
            left_out_at=place.location(LEFT_OUT),
            reading=reading,
            finding=finding,
            closed=closed,
            is_overridden=bool(settings.gates.override.strip()),
            looks=[
                f"a first look: {counted(each.left, 'page')} left; "
                f"{with_profile(f'kopub run {manifest.location_of(each)}')} makes them"
                for each in manifest.sources
                if each.left
            ],
        )

    @property
    def status(self) -> int:
        """The exit status: 0 where every page that was read is whole, nothing got worse and no gate is closed."""
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
        """Print the last lines of a run; one line where it made nothing `anew`."""
        if not anew:
            worse = ["reading or finding got worse"] if self._is_worse else []
            gates = [f"{counted(len(self.closed), 'gate')} closed"] if self.closed else []
            more = "".join(f"; {each}" for each in (*worse, *gates))
            see = "; see kopub status" if self.status else ""
            return say(out, f"nothing to compute; {self.pages}{more}{see}", _BAD if self.status else "")
        say(out, self.pages, _BAD if self.status else "green")
        for line, style in self._lines():
            say(out, line, style)

    def _lines(self) -> Iterator[tuple[str, str]]:
        """What follows the count of pages: each finding with what to do about it."""
        for line in self.lost:
            yield f"- {line}", _BAD
        count = sum(self.states.get(state, 0) for state in _LOST)
        if count:
            again = (
                f"; {with_profile('kopub run')} tries the failed ones again" if self.states.get(State.FAILED) else ""
            )
            yield f"kopub status lists {'it' if count == 1 else f'all {count:,}'}{again}", ""
        if self.doubtful:
            yield "need review: kopub doubts lists them, worst first", "yellow"
        if self.left_out:
            yield f"{counted(self.left_out, 'file')} left out: {self.left_out_at} says why", "yellow"
        yield from ((line, _BAD if "(worse)" in line else "") for line in change_lines(self.reading, self.finding))
        if self._is_worse:
            yield "worse than the run before: kopub diff shows the pages that changed", ""
        yield from ((visible(f"gate closed: {line}"), _BAD) for line in self.closed)
        yield from ((line, "") for line in self.looks)
        todo = [f"{with_profile('kopub run')} for the unfinished pages"] if self.unfinished else []
        yield f"next: {', '.join([*todo, 'kopub browse', 'kopub search QUESTION', 'kopub status'])}", ""


def _behind(scan: "Survey") -> set[str]:
    """The shards of which a table of pages is missing or stale."""
    from resources.store.corpus_tables import TABLES

    standings = [scan.standings[table.name] for table in TABLES.of_pages if table.name in scan.standings]
    return {shard for each in standings for shard, how in each.items() if not how.stands}
