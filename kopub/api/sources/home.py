"""A home: the tables of its store and the pages of its corpus."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from kopub.api import rows
from kopub.api.rows import Facts, Picture, Step, TableName
from kopub.api.sources import source
from kopub.api.sources.source import OpenFiles, ParquetRows, Place
from kopub.boxes import Box
from kopub.corrections.corrected import CorrectedTables, correct_page
from kopub.errors import DamagedTable, SourceError, StoreError
from kopub.fingerprints import fingerprint
from kopub.pages.manifest import Manifest, shard_source
from kopub.pages.page_reader import ImageReader, Origin, open_shard, origins
from kopub.pages.places import CorpusPlace, place_of
from kopub.pages.upright import UprightTransform
from kopub.states import Reason, State, decisive
from kopub.store import ledger
from kopub.store.corpus_tables import TABLES, VECTOR_TABLES, Table
from kopub.store.rows import lineage_rows
from kopub.store.table_source import FooterCache
from kopub.store.table_store import TableStore
from kopub.texts.markup import defuse
from kopub.texts.regions import Region, join_regions

_PAGE_TABLES = {table.name: table for table in TABLES.of_pages}
_VECTORS = {kind: VECTOR_TABLES[kind] for kind in rows.VECTORS}
_VECTOR_TABLES = {rows.VECTORS[kind]: table for kind, table in _VECTORS.items()}
_MADE = ("page_id", "state", "reason", "fingerprint")
_FACTS = ("width", "height", "sha256", "license", "source")


class HomeSource:
    """The tables in `store` of the corpus indexed at a place.

    The place is a home, or one that nodes share. Tables of another corpus are left out.
    """

    def __init__(self, where: Path | CorpusPlace, store: TableStore, before: "HomeSource | None" = None) -> None:
        self.corpus: CorpusPlace = place_of(where)
        self.store: TableStore = store
        self._manifest = Manifest.load(self.corpus)
        self._stamps: dict[str, dict[str, str]] = {}
        """The marks of this corpus's tables, by asset and shard."""
        self._other = Counter[str]()
        """The number of shards whose table is of another corpus, by asset."""
        footers, corrected = FooterCache(store), CorrectedTables(store)
        contents = {shard.key: shard_source(shard) for shard in self._manifest.shards}
        for asset in _PAGE_TABLES:
            published, entries = corrected.published(asset), footers.tables(asset)
            stamps = self._stamps[asset] = dict[str, str]()
            for shard, content in contents.items():
                if shard not in published:
                    continue
                roots = entries[shard].sources if shard in entries else None
                if roots is not None and all(of == content for root, of in roots if root == TABLES.pages.name):
                    stamps[shard] = published[shard]
                elif (asset, shard) not in footers.damaged:
                    self._other[asset] += 1
        self._damaged: dict[tuple[str, str], DamagedTable] = footers.damaged
        # Changes that are newer than the marks are noticed by the next look, older ones never.
        self._changes = corrected.changes()
        self._corrected = CorrectedTables(store, self._changes)
        self._files = OpenFiles()
        self._catalogues = before._catalogues if before else {}

    @property
    def home(self) -> Path:
        return self.corpus.home

    @property
    def location(self) -> str:
        return str(self.home)

    @property
    def shards(self) -> Sequence[str]:
        return [shard for shard in self._manifest.keys if shard in self._stamps[TABLES.pages.name]]

    @property
    def notes(self) -> Sequence[str]:
        form = "{table} of {count} shards is left out: it is of another corpus than the indexed one"
        notes = [Reason(form, table=asset, count=count) for asset, count in self._other.items()]
        if missing := len(self._manifest.keys) - len(self.shards):
            form = "{missing} of {count} shards have no pages yet: run `kopub run`"
            notes.append(Reason(form, missing=missing, count=len(self._manifest.keys)))
        return notes

    def fresh(self) -> Self:
        now = type(self)(self.corpus, self.store, self)
        return self if (now._stamps, now._manifest) == (self._stamps, self._manifest) else now

    def catalogue(self, shard: str) -> pa.Table:
        assets = self._assets(shard)
        version = fingerprint([self._stamps[asset][shard] for asset in assets])
        cached = self._catalogues.get(shard)
        if cached is None or cached[0] != version:
            pages = self._rows(TABLES.pages.name, shard).read(["page_id", "doc_id", "page_no", "state"])
            ids = pages["page_id"]
            states = {TABLES.pages.name: pages["state"].to_pylist()}
            for asset in assets:
                if asset != TABLES.pages.name:
                    states[asset] = self._in_order(asset, shard, ids, "state")
            ends: dict[tuple[str | None, ...], str] = {}
            state: list[str] = []
            for of_page in zip(*states.values(), strict=True):
                # Few combinations of states occur, so each is decided once.
                if of_page not in ends:
                    by_asset = {asset: value for asset, value in zip(states, of_page, strict=True) if value is not None}
                    ended = decisive(by_asset)
                    ends[of_page] = by_asset[ended] if ended else "ok"
                state.append(ends[of_page])
            texts = TABLES.texts.name
            doubt = self._in_order(texts, shard, ids, "doubt") if texts in assets else [None] * len(ids)
            table = pages.set_column(pages.schema.get_field_index("state"), "state", pa.array(state, pa.string()))
            cached = self._catalogues[shard] = version, table.append_column("doubt", pa.array(doubt, pa.float32()))
        return cached[1]

    def table(self, shard: str, name: TableName) -> pa.Table | None:
        if name == "pages":
            catalogue, assets = self.catalogue(shard), self._assets(shard)
            facts = self._rows(TABLES.pages.name, shard).read(["page_id", *_FACTS])
            columns: dict[str, Any] = dict(zip(catalogue.column_names, catalogue.columns, strict=True))
            columns |= zip(_FACTS, facts.select(_FACTS).columns, strict=True)
            columns["shard"] = [shard] * catalogue.num_rows
            for asset, column in ((TABLES.texts.name, "text"), (TABLES.readings.name, "markdown")):
                texts: list[str | None] = [None] * len(facts)
                if asset in assets:
                    texts = self._in_order(asset, shard, facts["page_id"], column)
                # As in a release, a page without a text gets an empty one.
                columns[column] = [defuse(text or "") if column == "markdown" else text or "" for text in texts]
            return pa.table(columns, rows.PAGES)
        if name == "regions":
            if TABLES.regions.name not in self._assets(shard):
                return None
            ids = self.catalogue(shard)["page_id"].to_pylist()
            regions = []
            for row, page_id in enumerate(ids):
                for region in self.regions(Place(shard, row, page_id)):
                    regions.append({"page_id": page_id, **region.to_dict()})
            return pa.Table.from_pylist(regions, rows.REGIONS)
        asset = _VECTOR_TABLES[name].name
        if asset not in self._assets(shard):
            return None
        return rows.vectors(self._rows(asset, shard).read(["page_id", "vector"]))

    def facts(self, place: Place) -> Facts:
        page = self._row(TABLES.pages, place, _FACTS)
        states: dict[str, str] = {}
        reasons: dict[str, str | None] = {}
        for asset in self._assets(place.shard):
            if row := self._find(_PAGE_TABLES[asset], place, ("state", "reason")):
                states[asset], reasons[asset] = row["state"], row["reason"]
        ended = decisive(states)
        reason = reasons[ended] if ended else None
        why = Reason("{asset}: {reason}", asset=ended, reason=reason) if reason else Reason("{asset}", asset=ended)
        doubts = self._find(TABLES.texts, place, ["doubts"]) or {"doubts": None}
        return source.facts(page, states, ended and why, doubts["doubts"])

    def origin(self, place: Place) -> Origin:
        return origins(self._manifest, place.shard)(self._row(TABLES.pages, place, ["page_idx"])["page_idx"])

    def texts(self, place: Place) -> tuple[str, str]:
        text = self._find(TABLES.texts, place, ["text"]) or {"text": None}
        reading = self._find(TABLES.readings, place, ["markdown"]) or {"markdown": None}
        return text["text"] or "", reading["markdown"] or ""

    def regions(self, place: Place) -> tuple[Region, ...]:
        layout = self._find(TABLES.regions, place, ["regions"])
        reading = self._find(TABLES.readings, place, ["regions", "state", "reason"])
        if layout is None:
            return ()
        joined = join_regions(place.page_id, layout["regions"], reading["regions"] if reading else None)
        ended = (State(reading["state"]), reading["reason"]) if reading else (None, None)
        # For a page that was not read, its reason applies to each of its regions.
        return tuple(
            replace(region, state=ended[0], reason=ended[1]) if region.content is None else region for region in joined
        )

    def vectors(self, place: Place) -> Mapping[str, np.ndarray]:
        vectors: dict[str, np.ndarray] = {}
        for kind, table in _VECTORS.items():
            row = self._find(table, place, ["vector"])
            if row and (vector := source.vector(row["vector"])) is not None:
                vectors[kind] = vector
        return vectors

    def pictures(self, place: Place) -> tuple[Picture, ...]:
        row = self._find(TABLES.readings, place, ["image_crops", "crop_images"])
        if not row:
            return ()
        crops = zip(row["image_crops"] or (), row["crop_images"] or (), strict=True)
        return tuple(Picture(crop["path"], crop["label"], Box._make(crop["bbox"]), data) for crop, data in crops)

    def lineage(self, place: Place) -> tuple[Step, ...]:
        tables: dict[str, pa.Table] = {}
        runs: dict[str, pa.Table] = {}
        metadata: dict[str, dict[str, str]] = {}
        for asset in self._assets(place.shard):
            if row := self._find(_PAGE_TABLES[asset], place, _MADE):
                tables[asset] = pa.Table.from_pylist([row])
                runs[asset] = ledger.read(self.store, asset, place.shard)
                metadata[asset] = self.store.metadata(asset, place.shard)
        return tuple(source.steps(lineage_rows(place.shard, tables, metadata, runs)))

    def upright(self, place: Place) -> UprightTransform | None:
        # Tables of older versions lack the column.
        has_column = "upright" in self._rows(TABLES.pages.name, place.shard).columns
        return UprightTransform.of_row(self._row(TABLES.pages, place, ["upright"])["upright"]) if has_column else None

    def image_bytes(self, place: Place) -> bytes:
        page = self._row(TABLES.pages, place, ["page_idx", "sha256"])
        if page["sha256"] is None:
            raise SourceError(f"{place.page_id} has no image")
        reader = ImageReader(open_shard(self._manifest, place.shard), place.shard)
        return bytes(reader.page(place.page_id, page["page_idx"], page["sha256"]).data)

    def _assets(self, shard: str) -> list[str]:
        """Return the tables that a shard has, in the order in which they are made.

        Raises `DamagedTable`: without a damaged one, its pages would seem to be complete.
        """
        return [asset for asset in _PAGE_TABLES if self._has(asset, shard)]

    def _has(self, asset: str, shard: str) -> bool:
        if error := self._damaged.get((asset, shard)):
            raise error
        return shard in self._stamps[asset]

    def _in_order(self, asset: str, shard: str, ids: pa.ChunkedArray, column: str) -> list[Any]:
        """Return a column of a table in the order of `ids`.

        None stands for a page that the table lacks.
        """
        if self._changes and asset in (TABLES.regions.name, TABLES.readings.name):
            table = self._corrected.read(asset, shard, ["page_id", column])
        else:
            table = self._rows(asset, shard).read(["page_id", column])
        if table["page_id"].equals(ids):
            return table[column].to_pylist()
        values = dict(zip(table["page_id"].to_pylist(), table[column].to_pylist(), strict=True))
        return [values.get(page_id) for page_id in ids.to_pylist()]

    def _row(self, table: Table, place: Place, columns: Sequence[str]) -> dict[str, Any]:
        row = self._find(table, place, columns)
        if row is None:
            raise StoreError(f"{place.page_id} is not in {table} of {place.shard} any more: open the home again")
        return row

    def _find(self, table: Table, place: Place, columns: Sequence[str]) -> dict[str, Any] | None:
        """Return a page's row of a table; None where there is none."""
        if not self._has(table.name, place.shard):
            return None
        changes = self._changes.get(place.page_id) if table in (TABLES.regions, TABLES.readings) else None
        # Only a page that is read can be corrected, and its layout and reading are corrected together.
        if changes is not None and {TABLES.regions.name, TABLES.readings.name} <= set(self._assets(place.shard)):
            # Whole rows, of the columns that the tables have: an older release may have made them.
            layouts = self._rows(TABLES.regions.name, place.shard)
            readings = self._rows(TABLES.readings.name, place.shard)
            layout = layouts.row(place.row, TABLES.regions.key, place.page_id, layouts.columns)
            reading = readings.row(place.row, TABLES.readings.key, place.page_id, readings.columns)
            if layout is not None and reading is not None:
                page = correct_page(layout, reading, changes)
                row = page.layout if table == TABLES.regions else page.reading
                return {name: row.get(name) for name in columns}
        return self._rows(table.name, place.shard).row(place.row, table.key, place.page_id, columns)

    def _rows(self, asset: str, shard: str) -> ParquetRows:
        def open_rows() -> ParquetRows:
            again = f"delete {self.store.location(asset, shard)} and run `kopub run`"
            schema = _PAGE_TABLES[asset].schema
            # The schema of vectors depends on their width.
            schema = schema if isinstance(schema, pa.Schema) else None
            return ParquetRows(self.store.open(asset, shard), f"{asset} of {shard}", again, schema)

        return self._files.get((asset, shard), open_rows)
