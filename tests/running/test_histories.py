"""After any history, rows are those of their pages, and one full run repairs everything.

Hypothesis generates the histories: KOPUB_TEST_HISTORIES of them, with at most KOPUB_TEST_STEPS steps.
"""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kopub.release.files import part_path
from kopub.states import MADE, State
from kopub.tables.asset import RETRY_PARTIAL_TAG
from tests.support.histories import (
    BOMB,
    BROKEN,
    PAPERS,
    REVISIONS,
    TABLES,
    Corpus,
    CorpusHistory,
    killed_after,
    memory_is_short,
)
from tests.support.processes.stopped_writer import make_beside_stopped

IDS: tuple[str, ...] = ("a_1", "a_2", "a_3", "b_1", "b_2")
_ids: strategies.SearchStrategy[str] = strategies.sampled_from(IDS)
_pages = strategies.tuples(_ids, strategies.sampled_from([0, 0, 0, 1, BROKEN, BOMB]))
_files: strategies.SearchStrategy[list[tuple[str, int]]] = strategies.lists(_pages, min_size=2, max_size=3)
_corpora: strategies.SearchStrategy[Corpus] = strategies.lists(_files, min_size=1, max_size=2)
_assets = strategies.one_of(
    strategies.just(TABLES),
    strategies.lists(strategies.sampled_from(TABLES), min_size=1, max_size=3, unique=True),
    # Everything after a cut, or everything before it.
    strategies.integers(1, len(TABLES) - 1).map(lambda at: TABLES[at:]),
    strategies.integers(1, len(TABLES) - 1).map(lambda at: TABLES[:at]),
)


class Histories(RuleBasedStateMachine):
    """Rules change files and engines, run or die; the invariant reads all tables after each."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory(prefix="kopub-history-")
        self.history = CorpusHistory(Path(self._folder.name, "home"))

    @initialize(corpus=_corpora, made=strategies.booleans())
    def begin(self, corpus: Corpus, made: bool) -> None:
        self._change(corpus, True)
        if made:
            self.history.materialize()

    @rule(data=strategies.data(), indexed=strategies.booleans())
    def source_changes(self, data: strategies.DataObject, indexed: bool) -> None:
        self._change(self._other(data), indexed)

    @rule(data=strategies.data(), cut=strategies.integers(1, len(TABLES) - 1), upgrade=strategies.booleans())
    def source_changes_in_the_middle_of_a_run(self, data: strategies.DataObject, cut: int, upgrade: bool) -> None:
        """Run assets before and after the source changes; an upgrade makes all rows anew."""
        if upgrade:
            self._upgrade(data)
        self.history.materialize(TABLES[:cut])
        self.history.assert_sound()
        self._change(self._other(data), True)
        self.history.materialize(TABLES[cut:])

    @rule(hidden=strategies.booleans(), indexed=strategies.booleans())
    def a_file_is_hidden_or_all_are_back(self, hidden: bool, indexed: bool) -> None:
        if hidden:
            (self.history.source / "corpus" / "data-0.arrow").unlink(missing_ok=True)
        else:
            self._change(self.history.corpus, indexed)

    @rule(data=strategies.data())
    def engine_is_another(self, data: strategies.DataObject) -> None:
        self._upgrade(data)

    @rule(which=strategies.sampled_from(["", "lose", "layout", "recognition", "embedding"]), page_id=_ids)
    def engines_fail_or_are_repaired(self, which: str, page_id: str) -> None:
        """Let an engine fail on a page, or lose a region of it, until repaired."""
        if which:
            engine = "recognition" if which == "lose" else which
            getattr(self.history, engine)["lose" if which == "lose" else "fail_on"] = page_id
        else:
            self._repair()

    @rule(page_id=_ids, region=strategies.integers(0, 1), strikes=strategies.booleans())
    def a_person_corrects(self, page_id: str, region: int, strikes: bool) -> None:
        self.history.correct(page_id, region, strikes)

    @rule(page_id=_ids)
    def a_person_undoes(self, page_id: str) -> None:
        self.history.undo(page_id)

    @rule(assets=_assets, retry_partial=strategies.booleans())
    def materialize(self, assets: Sequence[str], retry_partial: bool) -> None:
        self.history.materialize(assets, retry_partial)

    @rule(assets=_assets, die_on=_ids, engine=strategies.sampled_from(["layout", "recognition", "embedding"]))
    def engine_breaks_down(self, assets: Sequence[str], die_on: str, engine: str) -> None:
        fields: dict[str, Any] = getattr(self.history, engine)
        fields["die_on"] = die_on
        try:
            self.history.materialize(assets)
        finally:
            del fields["die_on"]

    @rule(assets=_assets, writes=strategies.integers(0, 30))
    def kill(self, assets: Sequence[str], writes: int) -> None:
        with killed_after(writes):
            self.history.materialize(assets)

    @rule(assets=_assets, opened=strategies.integers(0, 6))
    def drive_drops(self, assets: Sequence[str], opened: int) -> None:
        """Let the drive drop in the middle of a run and return for the next."""
        with self.history.drive_dropped_after(opened):
            self.history.materialize(assets)

    @rule(assets=_assets, left=strategies.integers(0, 4))
    def memory_runs_short(self, assets: Sequence[str], left: int) -> None:
        with memory_is_short(left):
            self.history.materialize(assets)

    @rule(assets=_assets)
    def file_is_replaced_by_one_of_its_length(self, assets: Sequence[str]) -> None:
        """The new file is not indexed, so none of its pages may be read."""
        self.history.replace_file()
        self.history.materialize(assets)

    @rule(indexed=strategies.booleans())
    def a_shard_is_broken_and_mended(self, indexed: bool) -> None:
        """All other shards are made meanwhile, unless an engine fails on them."""
        self.history.replace_file()
        self.history.materialize()
        self.history.assert_sound()
        self._change(self.history.corpus, indexed)
        self.history.materialize()

    @rule(
        table=strategies.integers(0, 30),
        place=strategies.floats(0, 1),
        bit=strategies.integers(0, 7),
        assets=_assets,
    )
    def bit_flips(self, table: int, place: float, bit: int, assets: Sequence[str]) -> None:
        self.history.flip_bit(table, place, bit)
        self.history.materialize(assets)

    @rule(
        assets=_assets,
        checks=strategies.integers(0, 25),
        is_late=strategies.booleans(),
        others=strategies.one_of(_assets, strategies.just(())),
    )
    def a_writer_is_stopped_and_woken(
        self, assets: Sequence[str], checks: int, is_late: bool, others: Sequence[str]
    ) -> None:
        """Another one takes its locks over meanwhile, and makes some of the tables or none."""
        make_beside_stopped(self.history, assets, checks, is_late, others)

    @rule(name=strategies.sampled_from(["cpu", "mine", "다른 이름"]))
    def a_profile_is_renamed(self, name: str) -> None:
        """Nothing becomes stale by it."""
        before = self.history.stale()
        self.history.profile = name
        assert self.history.stale() == before

    @rule(most=strategies.integers(1, len(PAPERS)), made=strategies.booleans())
    def a_source_is_cut(self, most: int, made: bool) -> None:
        """Take the first pages of another source in; a whole one is taken out first."""
        if self.history.papers_left == 0:
            self.history.remove_papers()
        self.history.look_at_papers(most)
        if made:
            self.history.materialize()
        self.history.assert_told_what_is_left()

    @rule()
    def a_cut_source_is_completed(self) -> None:
        self.history.look_at_papers()
        self.history.assert_told_what_is_left()

    @rule()
    def a_source_is_taken_out(self) -> None:
        if self.history.papers_left is not None:
            self.history.remove_papers()

    @invariant()
    def every_row_is_of_its_page(self) -> None:
        self.history.assert_sound()

    def teardown(self) -> None:
        try:
            if self.history.corpus:
                self._ends_as_a_fresh_home()
        finally:
            self._folder.cleanup()

    def _ends_as_a_fresh_home(self) -> None:
        self._repair()
        self._change(self.history.corpus, True)
        if self.history.papers_left:
            self.history.look_at_papers()
        self.history.materialize(retry_partial=True)
        assert not self.history.failed
        self.history.assert_sound()
        fresh = CorpusHistory(Path(self._folder.name, "fresh"))
        for fields in ("layout", "recognition", "embedding"):
            setattr(fresh, fields, getattr(self.history, fields))
        fresh.write(self.history.corpus)
        fresh.index_as(self.history)
        fresh.correct_as(self.history)
        fresh.materialize()
        made, wanted = self.history.tables(), fresh.tables()
        assert made.keys() == wanted.keys()
        for (asset, shard), table in made.items():
            assert table.replace_schema_metadata(None).equals(wanted[asset, shard].replace_schema_metadata(None)), (
                f"{asset} {shard} is not that of a fresh home"
            )
            # A page of which a person struck every region is blank.
            assert set(table["state"].to_pylist()) <= {*MADE, State.BLANK, State.QUARANTINED} - {State.PARTIAL}
        self.history.profile = "another name"
        assert not any(self.history.materialize().values()), "a run with nothing changed computed something"

    def _change(self, corpus: Corpus, indexed: bool) -> None:
        self.history.write(corpus)
        if indexed:
            self.history.index()

    def _other(self, data: strategies.DataObject) -> Corpus:
        """Return the corpus with other order, bytes, or file count, joined, split, or another one."""
        corpus, kind = (
            self.history.corpus,
            data.draw(strategies.sampled_from(["order", "bytes", "bytes", "fewer", "front", "joined", "another"])),
        )
        pages = [page for shard in corpus for page in shard]
        if kind == "order":
            ends = iter(data.draw(strategies.permutations(pages)))
            return [[next(ends) for _ in shard] for shard in corpus]
        if kind == "bytes":
            changed = data.draw(strategies.sampled_from(pages))
            other = data.draw(strategies.sampled_from([at for at in (0, 1, 2, BROKEN, BOMB) if at != changed[1]]))
            return [[(changed[0], other) if page == changed else page for page in shard] for shard in corpus]
        if kind == "fewer" and len(corpus) > 1:
            return corpus[1:]
        if kind == "front" and len(corpus) < 3:
            return [data.draw(_files), *corpus]
        if kind == "joined":
            return [pages] if len(corpus) > 1 else [pages[:1], pages[1:]]
        return list(data.draw(_corpora))

    def _upgrade(self, data: strategies.DataObject) -> None:
        """Draw new settings for every engine, which may be those it had before."""
        self.history.layout["revision"] = data.draw(strategies.sampled_from(REVISIONS))
        self.history.recognition["prompt"] = data.draw(strategies.sampled_from(["read", "look"]))
        self.history.embedding["revision"] = data.draw(strategies.sampled_from(REVISIONS))
        self.history.embedding["dim"] = data.draw(strategies.sampled_from([64, 64, 64, 16]))

    def _repair(self) -> None:
        for fields, names in (
            (self.history.layout, ["fail_on"]),
            (self.history.recognition, ["lose", "fail_on"]),
            (self.history.embedding, ["fail_on"]),
        ):
            for name in names:
                fields.pop(name, None)


Histories.TestCase.settings = settings(
    max_examples=int(os.environ.get("KOPUB_TEST_HISTORIES", "8")),
    stateful_step_count=int(os.environ.get("KOPUB_TEST_STEPS", "10")),
    derandomize="KOPUB_TEST_HISTORIES" not in os.environ,
    database=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
TestHistories = pytest.mark.slow(pytest.mark.timeout(1800)(Histories.TestCase))


@pytest.mark.slow
def test_the_release_after_a_history_is_that_of_a_fresh_home(tmp_path: Path):
    history, fresh = CorpusHistory(tmp_path / "home"), CorpusHistory(tmp_path / "fresh")
    history.write([[("a_1", 0), ("a_2", BROKEN)], [("b_1", 0), ("b_2", 0)]])
    history.index()
    history.recognition["lose"] = "b_1"
    assert history.platform.run(last="shard_01").success
    history.assert_sound()
    history.write([[("b_2", 0), ("a_2", 0)], [("a_1", 1), ("b_1", 0)]])
    history.index()
    history.embedding["dim"] = 16
    with killed_after(9):
        history.materialize()
    history.assert_sound()
    del history.recognition["lose"]
    fresh.write(history.corpus)
    fresh.index()
    fresh.embedding = history.embedding
    assert history.platform.run(last="shard_01", tags={RETRY_PARTIAL_TAG: "true"}).success
    assert fresh.platform.run(last="shard_01").success
    for shard in ("shard_00", "shard_01"):
        released, wanted = (
            {row["path"]: row for row in each.platform.store.read("hf_release", shard).to_pylist()}
            for each in (history, fresh)
        )
        # The lineage file names the runs, so only its number of rows is compared.
        assert released.pop(part_path("lineage", shard))["rows"] == wanted.pop(part_path("lineage", shard))["rows"]
        assert released == wanted
