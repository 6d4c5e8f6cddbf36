"""Checks a release: files, hashes, counts, schema, joins, and that `datasets` opens it."""

import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from datasets import Features
from datasets.info import DatasetInfosDict
from huggingface_hub import DatasetCardData, snapshot_download
from yaml import YAMLError

from kopub.errors import HubError, StoreError, counted, visible
from kopub.files import file_sha256, is_url
from kopub.release import row_counts
from kopub.release.base import VECTORS
from kopub.release.card import split_card
from kopub.release.files import (
    CARD,
    CHECKSUMS,
    CHUNKS,
    CONFIGS,
    CORRECTIONS,
    DATA_PATH,
    FIGURE_CONFIGS,
    MANIFEST,
    PASSAGES,
    Inventory,
    ReleaseManifest,
    list_parts,
    loadable_parts,
    parse_checksums,
    parse_manifest,
    part_path,
    unloadable_lines,
)
from kopub.release.hub_calls import call_hub
from kopub.release.local import TEXTS, wait_for_writers
from kopub.release.remote import PublishedRelease
from kopub.release.versions import is_temporary
from kopub.states import MADE, phrase
from kopub.store.corpus_tables import DOCUMENT_CHUNKS

Item = TypeVar("Item")
Count = Callable[[Path, Mapping[str, Sequence[str]]], row_counts.Counts]
"""Counts the rows that `datasets` returns for the named shards, by config."""

_HASHED = tuple(name for name in TEXTS if name != CHECKSUMS)
_SHOWN = 200
"""Most characters quoted from a library's message or a path."""
_LOOKS = 3
"""Most looks at a release that is being written."""


def verify(
    folder: Path, shards: Collection[str] | None = None, load: bool = True, count: Count = row_counts.count
) -> Iterator[str]:
    """Yield a line for each fault of the release in `folder`.

    `shards` are those to check, by default all: their files are read, a shard and a few columns at a time. `load` also
    counts the rows that `datasets` returns for every config, by `count`. A release that a run writes meanwhile is
    checked again, since faults may disappear when the run is done. No link that leads out of the folder is followed.
    """
    links: list[str] = []
    home = folder.resolve()
    # Links in the Hub's cache lead to its own files.
    blobs = home.parents[1] / "blobs" if home.parent.name == "snapshots" else home
    for path in (*(folder / name for name in TEXTS), folder / "data", *sorted((folder / "data").rglob("*"))):
        if path.is_symlink() and not any(path.resolve().is_relative_to(within) for within in (home, blobs)):
            links.append(path.relative_to(folder).as_posix())
    if links:
        form = "{file} is a link that leads out of the release: put the file there"
        yield from (phrase(form, visible(link, _SHOWN)) for link in links)
        return
    for _ in range(_LOOKS):
        before = _description(folder)
        problems = list(_problems(folder, shards, load, count))
        # Only a whole release may change meanwhile: the shards of one run are written by no other.
        if not problems or shards is not None or not (wait_for_writers(folder) or _description(folder) != before):
            yield from problems
            return
    yield phrase("{folder} is being written by a run: verify it when that is done", visible(str(folder), _SHOWN))


def notes_on(folder: Path) -> list[str]:
    """Return what is worth knowing about a release: unfinished pages, texts without a checksum.

    Checksums of an older version list only data files.
    """
    notes: list[str] = []
    with suppress(OSError, StoreError):
        if left := parse_manifest((folder / MANIFEST).read_bytes()).left:
            notes.append(phrase("unfinished: {pages} of the corpus left by --max-pages", counted(left, "page")))
    sums = _sums(folder) if (folder / CHECKSUMS).is_file() else {}
    if sums and sums.keys().isdisjoint(_HASHED):
        form = "{file} is of an older version and has no hash of {names}: release again to add them"
        notes.append(phrase(form, CHECKSUMS, ", ".join(_HASHED)))
    return notes


def _description(folder: Path) -> list[str]:
    return [file_sha256(folder / name) if (folder / name).is_file() else "" for name in TEXTS]


def _problems(folder: Path, shards: Collection[str] | None, load: bool, count: Count) -> Iterator[str]:
    missing = [name for name in TEXTS if not (folder / name).is_file()]
    if missing:
        form = "{names} missing: {folder} is no release, or was never finished"
        yield phrase(form, ", ".join(missing), visible(str(folder), _SHOWN))
        return
    try:
        listed = parse_manifest((folder / MANIFEST).read_bytes())
        inventory = list_parts(folder)
    except StoreError as error:
        yield visible(str(error), _SHOWN)
        return
    chosen = _ChosenShards(folder, inventory, listed, shards)
    # Joins need the columns, so those have to be right first.
    broken = [*chosen.files(), *_texts(folder, strangers=shards is None)] or list(chosen.schema())
    yield from broken
    if broken:
        return
    if shards is None:
        if absent := listed.missing:
            form = (
                "{count} of {shards} shards of the corpus are not in the release, {shard} first: run `kopub run "
                "--asset hf_release`"
            )
            yield phrase(form, len(absent), len(listed.shards), absent[0])
        yield from unloadable_lines(inventory)
    chosen_shards = chosen.shards()
    yield from joins(folder, inventory, chosen_shards, complete=not listed.missing)
    if load:
        # Every config is read as a user does, and its rows are compared with the files.
        to_load: dict[str, list[str]] = {}
        in_files: Counter[str] = Counter()
        for config, parts in inventory.items():
            for part in loadable_parts(parts):
                if part.shard in chosen_shards:
                    to_load.setdefault(config, []).append(part.shard)
                    in_files[config] += part.rows
        for config, rows in count(folder, to_load).items():
            if isinstance(rows, str):
                yield phrase("datasets cannot open {config}: {error}", config, visible(rows, _SHOWN))
            elif rows != in_files[config]:
                form = "datasets gives {rows} rows of {config}, its files hold {held}"
                yield phrase(form, rows, config, in_files[config])


def _texts(folder: Path, strangers: bool) -> Iterator[str]:
    """Yield a line for each text whose hash is missing or differs, and for `strangers`.

    Strangers are files that do not belong to a release.
    """
    sums = _sums(folder)
    # All texts are listed or, in an older release, none.
    for name in () if sums.keys().isdisjoint(_HASHED) else _HASHED:
        if name not in sums:
            yield phrase("{file} has no hash of {name}", CHECKSUMS, name)
        elif file_sha256(folder / name) != sums[name]:
            yield phrase("{name} has another SHA-256 than {file} says", name, CHECKSUMS)
    for path in sorted(folder.rglob("*")) if strangers else ():
        place = path.relative_to(folder).as_posix()
        is_file = path.is_symlink() or not path.is_dir()
        is_known = place in TEXTS or DATA_PATH.fullmatch(place) or is_temporary(path.name)
        # Git and the Hub's client keep files of their own beside a release.
        is_theirs = place == ".gitattributes" or place.startswith((".git/", ".cache/huggingface/"))
        if is_file and not is_known and not is_theirs:
            yield phrase("{file} is no file of a release: move it out", visible(place, _SHOWN))


def _sums(folder: Path) -> dict[str, str]:
    return parse_checksums((folder / CHECKSUMS).read_text("utf-8", "replace"))


@contextmanager
def fetch_release(release: str, revision: str | None) -> Iterator[Path]:
    """Yield the folder that `release` names, downloaded if necessary.

    The download from a URL is removed in the end; that from the Hub is in the Hub's cache. Raises `StoreError`.
    """
    if is_url(release):
        with tempfile.TemporaryDirectory(prefix="kopub-verify-") as folder:
            PublishedRelease.at(release).download(Path(folder))
            yield Path(folder)
    else:
        folder = Path(release)
        if not folder.is_dir():
            if release.count("/") != 1 or release.startswith((".", "/", "~")):
                form = "{name} is neither a folder, a URL nor a repository, `owner/name`"
                raise StoreError(form, visible(release, _SHOWN))
            download = partial(snapshot_download, release, repo_type="dataset", revision=revision)
            try:
                folder = Path(call_hub(download, release, lambda line: None))
            except HubError as error:
                form = "there is no folder {name} here, and as a repository: {reason}"
                raise StoreError(form, visible(release, _SHOWN), error) from None
        yield folder


@dataclass(frozen=True)
class _ChosenShards:
    """The shards of a release that are checked."""

    folder: Path
    inventory: Inventory
    listed: ReleaseManifest
    only: Collection[str] | None

    def files(self) -> Iterator[str]:
        """Check that exactly the listed files are there, with hash, size and rows.

        Other shards are ignored, since another run may be writing them.
        """
        sums = {path: sha256 for path, sha256 in _sums(self.folder).items() if path not in _HASHED}
        listed = self._chosen(self.listed.files)
        there = self._chosen({part.path: part for parts in self.inventory.values() for part in parts})
        if self._chosen(sums) != self._chosen(self.listed.hashes):
            yield phrase("{file} and {other} do not list the same files and hashes", CHECKSUMS, MANIFEST)
        for path in sorted(there.keys() - listed.keys()):
            yield phrase("{path} is not listed in {file}", path, MANIFEST)
        for path, file in sorted(listed.items()):
            if path not in there:
                yield phrase("{path} is missing", path)
            elif (there[path].rows, there[path].bytes) != (file.rows, file.bytes):
                contents = phrase("{rows} rows and {bytes} bytes", there[path].rows, there[path].bytes)
                form = "{path} has {contents}, {file} says {rows} and {bytes}"
                yield phrase(form, path, contents, MANIFEST, file.rows, file.bytes)
            elif file_sha256(self.folder / path) != file.sha256:
                yield phrase("{path} has another SHA-256 than {file} says", path, CHECKSUMS)
        for shard in self.shards():
            for config in CONFIGS:
                path = part_path(config, shard)
                if path not in there and path not in listed:
                    yield phrase("{path} is missing", path)

    def schema(self) -> Iterator[str]:
        """Check that the card, the files and their features agree for every config."""
        try:
            listed, _ = split_card((self.folder / CARD).read_text("utf-8"))
            infos = DatasetInfosDict.from_dataset_card_data(DatasetCardData(**listed))
        except (YAMLError, ValueError, TypeError, KeyError, AttributeError) as error:
            yield phrase("{file} is not that of a release ({error})", CARD, type(error).__name__)
            return
        for config, parts in self.inventory.items():
            used = loadable_parts(parts)
            if used and config not in infos:
                yield phrase("{file} does not list {config}", CARD, config)
                continue
            for part in used:
                if self.only is None or part.shard in self.only:
                    features = infos[config].features or Features()
                    stored = pq.read_schema(self.folder / part.path)
                    if not stored.remove_metadata().equals(features.arrow_schema.remove_metadata()):
                        yield phrase("{file} does not have the columns that {other} says", part.path, CARD)

    def shards(self) -> list[str]:
        released = dict.fromkeys(part.shard for parts in self.inventory.values() for part in parts)
        return [shard for shard in released if self.only is None or shard in self.only]

    def _chosen(self, by_path: Mapping[str, Item]) -> dict[str, Item]:
        if self.only is None:
            return dict(by_path)
        chosen: dict[str, Item] = {}
        for path, item in by_path.items():
            if (match := DATA_PATH.fullmatch(path)) and match["shard"] in self.only:
                chosen[path] = item
        return chosen


_NAMED, _ID_SHOWN = 3, 80
"""Ids that a line names as examples, and most characters of each."""
_JPEG = b"\xff\xd8\xff"
_PICTURES = 100
"""Crops in memory at a time."""


def joins(folder: Path, inventory: Inventory, shards: Sequence[str], complete: bool) -> Iterator[str]:
    """Yield a line for every failed join in `shards`.

    Only the ids of the other shards are read. A release that is not `complete` may have queries about pages yet to
    come.
    """
    pages: Counter[str] = Counter()
    queries: set[str] = set()
    for part in inventory["pages"]:
        pages.update(pq.read_table(folder / part.path, columns=["page_id"])["page_id"].to_pylist())
    for part in inventory["queries"]:
        queries.update(pq.read_table(folder / part.path, columns=["query_id"])["query_id"].to_pylist())
    yield from _name_ids("pages has ids twice", _twice(pages))
    for shard in shards:
        of_shard = _ShardJoins(folder, shard)
        yield from of_shard.vectors()
        yield from of_shard.regions()
        yield from of_shard.figures()
        yield from of_shard.passages()
        yield from of_shard.chunks(pages.keys() if complete else None)
        yield from of_shard.corrections()
        yield from of_shard.lineage()
        yield from of_shard.qrels(queries, pages.keys() if complete else None)


class _ShardJoins:
    """The files of one shard, and the checks of their joins."""

    def __init__(self, folder: Path, shard: str) -> None:
        self._folder = folder
        self._shard = shard
        self._pages = self._read("pages", ["page_id", "n_regions", "states"])
        self._page_ids = self._pages["page_id"].to_pylist()

    def vectors(self) -> Iterator[str]:
        """Check that exactly the pages in state ok or partial have one vector."""
        states = self._pages["states"].combine_chunks()
        for config, asset in VECTORS.items():
            ended = zip(self._page_ids, states.field(asset).to_pylist(), strict=True)
            expected = {page for page, state in ended if state in MADE}
            counts = Counter(self._read(config, ["page_id"])["page_id"].to_pylist())
            yield from self._problem(phrase("{config} has two vectors of pages", config), _twice(counts))
            unknown = phrase("{config} has vectors of pages that are not there or were not made", config)
            yield from self._problem(unknown, counts.keys() - expected)
            yield from self._problem(phrase("{config} lacks the vectors of pages", config), expected - counts.keys())

    def regions(self) -> Iterator[str]:
        """Check the number of regions of each page, and that crops belong to regions."""
        regions = self._regions()
        counts = Counter(page_id for page_id, _ in regions)
        owed = dict(zip(self._page_ids, self._pages["n_regions"].to_pylist(), strict=True))
        yield from self._problem("regions has regions of pages that are not there", counts.keys() - owed.keys())
        wrong = (page for page, count in owed.items() if (count or 0) != counts[page])
        yield from self._problem("regions has not as many as pages says", wrong)
        at_places = set(regions)
        unknown: list[str] = []
        damaged: list[str] = []
        with pq.ParquetFile(self._folder / part_path("crops", self._shard)) as file:
            for batch in file.iter_batches(batch_size=_PICTURES, columns=["page_id", "index", "path", "image"]):
                for crop in batch.to_pylist():
                    if (crop["page_id"], crop["index"]) not in at_places:
                        unknown.append(crop["path"])
                    image = crop["image"]
                    if image is None or not (image["bytes"] or b"").startswith(_JPEG):
                        damaged.append(crop["path"])
        yield from self._problem("crops has pictures of regions that are not there", unknown)
        yield from self._problem("crops has rows without a picture", damaged)

    def figures(self) -> Iterator[str]:
        """Check that each figure is a region of a known page, and occurs once."""
        for config in FIGURE_CONFIGS:
            if not (self._folder / part_path(config, self._shard)).is_file():
                continue
            counts = Counter(self._read(config, ["region_id"])["region_id"].to_pylist())
            regions = set(self._read("regions", ["region_id"])["region_id"].to_pylist())
            form = "{config} has figures that are no regions"
            yield from self._problem(phrase(form, config), counts.keys() - regions)
            yield from self._problem(phrase("{config} has figures twice", config), _twice(counts))

    def passages(self) -> Iterator[str]:
        """Check that each passage is of a known page."""
        if (self._folder / part_path(PASSAGES, self._shard)).is_file():
            of_pages = set(self._read(PASSAGES, ["page_id"])["page_id"].to_pylist())
            form = "{config} has pages that are not there"
            yield from self._problem(phrase(form, PASSAGES), of_pages - set(self._page_ids))

    def chunks(self, pages: Collection[str] | None) -> Iterator[str]:
        """Check that chunks occur once, and that their places are regions.

        Only places on pages of this shard are compared with regions. Pages are looked up in `pages`, unless it is None.
        """
        if not (self._folder / part_path(CHUNKS, self._shard)).is_file():
            return
        table = self._read(CHUNKS, ["id", "places"])
        yield from self._problem("chunks has chunks twice", _twice(Counter(table["id"].to_pylist())))
        places = {(place["page_id"], place["region"]) for of in table["places"].to_pylist() for place in of}
        if pages is not None:
            unknown = {page for page, _ in places} - set(pages)
            yield from self._problem("chunks has pages that are not there", unknown)
        of_shard = set(self._page_ids)
        here = {place for place in places if place[0] in of_shard}
        lost = (f"{page}_{index}" for page, index in here - set(self._regions()))
        yield from self._problem("chunks has places that are no regions", lost)

    def corrections(self) -> Iterator[str]:
        """Check that each correction is of a known page, and occurs once."""
        if not (self._folder / part_path(CORRECTIONS, self._shard)).is_file():
            return
        table = self._read(CORRECTIONS, ["id", "page_id"])
        unknown = set(table["page_id"].to_pylist()) - set(self._page_ids)
        yield from self._problem("corrections has pages that are not there", unknown)
        yield from self._problem("corrections has corrections twice", _twice(Counter(table["id"].to_pylist())))

    def lineage(self) -> Iterator[str]:
        """Check that lineage has a row for every page and step, and no others."""
        lineage = self._read("lineage", ["page_id", "asset"])
        of_pages = lineage.filter(pc.field("page_id").is_valid())
        pages = set(self._page_ids)
        for asset in sorted(set(of_pages["asset"].to_pylist())):
            named = set(of_pages.filter(pc.field("asset") == asset)["page_id"].to_pylist())
            # A document has a single row, under its first page.
            lacking = set() if asset == DOCUMENT_CHUNKS.name else pages - named
            yield from self._problem(phrase("lineage lacks pages of {asset}", asset), lacking)
            yield from self._problem(phrase("lineage has pages of {asset} that are not there", asset), named - pages)

    def qrels(self, queries: Collection[str], pages: Collection[str] | None) -> Iterator[str]:
        """Check that judgements are about known queries and pages.

        Pages are checked only if they are known.
        """
        qrels = self._read("qrels", ["query-id", "corpus-id"])
        query_ids, answers = (set(qrels[name].to_pylist()) for name in ("query-id", "corpus-id"))
        yield from self._problem("qrels has queries that are not there", query_ids - set(queries))
        if pages is not None:
            yield from self._problem("qrels has pages that are not there", answers - set(pages))

    def _regions(self) -> list[tuple[str, int]]:
        """Return the page and index of every region of the shard."""
        regions = self._read("regions", ["page_id", "index"])
        return list(zip(regions["page_id"].to_pylist(), regions["index"].to_pylist(), strict=True))

    def _read(self, config: str, columns: list[str]) -> pa.Table:
        return pq.read_table(self._folder / part_path(config, self._shard), columns=columns)

    def _problem(self, problem: str, ids: Iterable[str]) -> Iterator[str]:
        yield from _name_ids(f"{self._shard}: {problem}", ids)


def _twice(counts: Counter[str]) -> Iterator[str]:
    """Yield the ids that were counted more than once."""
    return (name for name, count in counts.items() if count > 1)


def _name_ids(problem: str, ids: Iterable[str]) -> Iterator[str]:
    """Yield one line with the number of ids and the first few, if any."""
    names = sorted(ids)
    if names:
        first = ", ".join(visible(name, _ID_SHOWN) for name in names[:_NAMED])
        yield f"{problem}: {len(names)} ({first}{', …' if len(names) > _NAMED else ''})"
