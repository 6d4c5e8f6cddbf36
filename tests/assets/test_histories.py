"""Whatever happened to a home, no table ever holds what was not made from its page, and one full run mends it all.

Hypothesis makes the histories up. KOPUB_TEST_HISTORIES sets how many, KOPUB_TEST_STEPS how long at most.
"""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from resources.states import MADE, State
from tests.support.histories import BROKEN, TABLES, Corpus, History, killed_after

IDS = ("a_1", "a_2", "a_3", "b_1", "b_2")
_ids = strategies.sampled_from(IDS)
_pages = strategies.tuples(_ids, strategies.sampled_from([0, 0, 0, 1, BROKEN]))
_corpora = strategies.lists(strategies.lists(_pages, min_size=1, max_size=3), min_size=1, max_size=3)
_assets = strategies.one_of(
    strategies.just(TABLES),
    strategies.lists(strategies.sampled_from(TABLES), min_size=1, max_size=3, unique=True),
    # Everything below a cut, and everything above it.
    strategies.integers(1, len(TABLES) - 1).map(lambda at: TABLES[at:]),
    strategies.integers(1, len(TABLES) - 1).map(lambda at: TABLES[:at]),
)


class Histories(RuleBasedStateMachine):
    """The rules write and index files, change engines, run, die; the invariant reads every table after each."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory(prefix="kopub-history-")
        self.history = History(Path(self._folder.name, "home"))
        self.hidden = False

    @initialize(corpus=_corpora)
    def begin(self, corpus: Corpus) -> None:
        self._change(corpus, True)
        self.history.index()

    @rule(data=strategies.data(), indexed=strategies.booleans())
    def reorder(self, data: strategies.DataObject, indexed: bool) -> None:
        """The same pages in another order, in files of the same sizes."""
        pages = data.draw(strategies.permutations([page for shard in self.history.corpus for page in shard]))
        ends = iter(pages)
        self._change([[next(ends) for _ in shard] for shard in self.history.corpus], indexed)

    @rule(data=strategies.data(), indexed=strategies.booleans())
    def change_bytes(self, data: strategies.DataObject, indexed: bool) -> None:
        """Other bytes under the same id."""
        changed = data.draw(strategies.sampled_from(sorted({page for shard in self.history.corpus for page in shard})))
        other = data.draw(strategies.sampled_from([variant for variant in (0, 1, 2, BROKEN) if variant != changed[1]]))
        self._change(
            [[(changed[0], other) if page == changed else page for page in shard] for shard in self.history.corpus],
            indexed,
        )

    @rule(corpus=_corpora, indexed=strategies.booleans())
    def swap_corpus(self, corpus: Corpus, indexed: bool) -> None:
        self._change(corpus, indexed)

    @rule()
    def index_again(self) -> None:
        self.history.write(self.history.corpus)
        self.history.index()

    @precondition(lambda self: len(self.history.corpus) > 1)
    @rule()
    def drop_the_first_file(self) -> None:
        """All shards move up by one."""
        self._change(self.history.corpus[1:], True)

    @rule()
    def hide_a_file(self) -> None:
        (self.history.source / "corpus" / "data-0.arrow").unlink(missing_ok=True)

    @rule()
    def bring_files_back(self) -> None:
        self.history.write(self.history.corpus)

    @rule(revision=strategies.sampled_from(["r1", "r2"]))
    def other_layout(self, revision: str) -> None:
        self.history.layout["revision"] = revision

    @rule(prompt=strategies.sampled_from(["read", "look"]))
    def other_prompt(self, prompt: str) -> None:
        self.history.recognition["prompt"] = prompt

    @rule(revision=strategies.sampled_from(["r1", "r2"]), dim=strategies.sampled_from([16, 64]))
    def other_vectors(self, revision: str, dim: int) -> None:
        self.history.embedding |= {"revision": revision, "dim": dim}

    @rule(lose=_ids, fail_layout=_ids, fail_reading=_ids, fail_vectors=_ids, which=strategies.integers(0, 3))
    def engines_fail(self, lose: str, fail_layout: str, fail_reading: str, fail_vectors: str, which: int) -> None:
        """A page of some engine fails, or a region of one, until they are repaired."""
        place, fields = [
            (self.history.recognition, {"lose": lose}),
            (self.history.layout, {"fail_on": fail_layout}),
            (self.history.recognition, {"fail_on": fail_reading}),
            (self.history.embedding, {"fail_on": fail_vectors}),
        ][which]
        place |= fields

    @rule()
    def engines_are_repaired(self) -> None:
        self._repair()

    @rule(assets=_assets, retry_partial=strategies.booleans())
    def materialize(self, assets: Sequence[str], retry_partial: bool) -> None:
        self.history.materialize(assets, retry_partial)

    @rule(assets=_assets, die_on=_ids, engine=strategies.sampled_from(["layout", "recognition", "embedding"]))
    def engine_breaks_down(self, assets: Sequence[str], die_on: str, engine: str) -> None:
        """In the middle of a run, after some pages."""
        fields: dict[str, Any] = getattr(self.history, engine)
        fields["die_on"] = die_on
        self.history.materialize(assets)
        del fields["die_on"]

    @rule(assets=_assets, writes=strategies.integers(0, 30))
    def kill(self, assets: Sequence[str], writes: int) -> None:
        with killed_after(writes):
            self.history.materialize(assets)

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
        self.index_again()
        self.history.materialize(retry_partial=True)
        self.history.assert_sound()
        fresh = History(Path(self._folder.name, "fresh"))
        for fields in ("layout", "recognition", "embedding"):
            setattr(fresh, fields, getattr(self.history, fields))
        fresh.write(self.history.corpus)
        fresh.index()
        fresh.materialize()
        made, wanted = self.history.tables(), fresh.tables()
        assert made.keys() == wanted.keys()
        for (asset, shard), table in made.items():
            assert table.replace_schema_metadata(None).equals(wanted[asset, shard].replace_schema_metadata(None)), (
                f"{asset} {shard} is not that of a fresh home"
            )
            assert set(table["state"].to_pylist()) <= {*MADE, State.QUARANTINED} - {State.PARTIAL}
        assert not any(self.history.materialize().values()), "a run with nothing changed computed something"

    def _change(self, corpus: Corpus, indexed: bool) -> None:
        self.history.write(corpus)
        if indexed:
            self.history.index()

    def _repair(self) -> None:
        for fields, names in (
            (self.history.layout, ["fail_on"]),
            (self.history.recognition, ["lose", "fail_on"]),
            (self.history.embedding, ["fail_on"]),
        ):
            for name in names:
                fields.pop(name, None)


Histories.TestCase.settings = settings(
    max_examples=int(os.environ.get("KOPUB_TEST_HISTORIES", "12")),
    stateful_step_count=int(os.environ.get("KOPUB_TEST_STEPS", "10")),
    derandomize="KOPUB_TEST_HISTORIES" not in os.environ,
    database=None,
    deadline=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
TestHistories = pytest.mark.timeout(1800)(Histories.TestCase)
