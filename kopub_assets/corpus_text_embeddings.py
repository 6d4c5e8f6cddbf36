"""A vector for every page, from its text."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from kopub_assets.figures.figure_notes import FigureNotes
from kopub_assets.materialize.asset import ShardAsset
from kopub_assets.materialize.rows import RowSpec
from kopub_assets.materialize.vectors import VectorTable
from kopub_assets.parsed_texts import ParsedTexts
from resources.code_version import CodeVersion
from resources.embedding.embeddings import Embedding
from resources.figures.notes import notes_text
from resources.states import State
from resources.store.corpus_tables import TABLES, Table


class CorpusTextEmbeddings(VectorTable):
    """The vector of every page's text: float16 of L2 norm 1, compared with query vectors by dot product.

    The text is what is printed; where `figures.embed_notes` says so, what a model says of the figures follows it.
    """

    table: ClassVar[Table] = TABLES.text_vectors
    kinds: ClassVar[frozenset[str]] = frozenset({"text"})
    code_version: ClassVar[CodeVersion] = CodeVersion("corpus_text_embeddings", {1: "the first release"})
    parents = (ParsedTexts, FigureNotes)
    needs: ClassVar[tuple[str, ...]] = ("figures", "notes")

    @property
    def reads(self) -> tuple[type[ShardAsset], ...]:
        return super().reads if self.resources["figures"].embed_notes else (ParsedTexts,)

    def prepare(self) -> None:
        self.engine.prepare_texts()

    def rows(self, shard: str) -> Iterator[RowSpec]:
        notes = self._notes(shard)
        for row in self.store.read(ParsedTexts.table.name, shard).to_pylist():
            known, said = {"page_id": row["page_id"]}, notes.get(row["page_id"])
            if said and row["state"] in (State.OK, State.PARTIAL, State.BLANK):
                # A page on which nothing is printed but a figure is found by the note on it.
                text = f"{row['text']}\n\n{said}" if row["text"] else said
                partial = row["reason"] if row["state"] == State.PARTIAL else None
                yield RowSpec(row["page_id"], [self.own_recipe, text], known, text, partial=partial)
            else:
                yield RowSpec.after(row, [self.own_recipe, row["text"]], known, row["text"])

    def _notes(self, shard: str) -> dict[str, str]:
        """The notes on each page's figures as one text, where they are to be embedded."""
        if FigureNotes not in self.reads:
            return {}
        pages = self.store.read(FigureNotes.table.name, shard, ["page_id", "notes"]).to_pylist()
        return {page["page_id"]: notes_text(page["notes"]) for page in pages}

    def inputs(self, shard: str, todo: Sequence[RowSpec]) -> Iterator[tuple[str, str]]:
        return ((row.id, row.given) for row in todo)

    def results(self, inputs: Iterator[tuple[str, str]]) -> Iterator[Embedding]:
        return self.engine.embed_texts(inputs)
