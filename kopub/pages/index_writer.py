"""The writer of an index: the shards, queries and left-out files of all sources."""

import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kopub.errors import SourceError, counted, quoted, spelt
from kopub.files import is_url
from kopub.pages import manifest
from kopub.pages.corpus import SHARD, Query, digest, from_table, parse_queries, read_table, to_table
from kopub.pages.documents.folder import LeftOut
from kopub.pages.documents.pool import TakenNames
from kopub.pages.documents.shards import ShardFolder, render
from kopub.pages.manifest import LEFT_OUT, CorpusSource, Manifest, QueryFile, Shard, name_of, shard_number
from kopub.pages.page import DPI, problem_with_id
from kopub.pages.page_reader import open_shard
from kopub.pages.places import CorpusPlace, SourcePath
from kopub.pages.source_files import ShardRows, SourceFiles, read_file, with_keys
from kopub.states import phrase

QUERIES = "queries.parquet"
_NAMED = 10
"""Most files named on the terminal for one reason."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A source's part of a corpus: files of pages, and files left out.

    `copies_of` are the sources that already have some of its files. `failed` counts pages that could not be made, and
    `dpi` is the resolution at which pages were drawn. `left` counts pages that a first look leaves for later.
    """

    files: Sequence[ShardRows]
    left_out: Sequence[LeftOut]
    copies_of: Collection[str]
    failed: int = 0
    dpi: int | None = None
    left: int = 0


class IndexWriter:
    """The writer of an index at `place` from the one `before`, in one process."""

    def __init__(self, place: CorpusPlace, before: Manifest | None, tell: Callable[[str], None]) -> None:
        self._place, self._before, self._tell = place, before, tell

    def write(
        self, named: str, contents: SourceFiles, dpi: int | None, replace: bool, most: int | None = None
    ) -> Manifest:
        """Write the index with the `contents` of a source, and return it.

        The source is added to the others, unless it is to `replace` them. For a first look, `most` limits the pages of
        its documents. Raises `SourceError`, `StoreError`; the previous index then stays.
        """
        before = self._before
        old = before.named(named) if before else None
        own_shards = before.shards_of(old.name) if before and old else []
        others = [other for other in before.sources if other is not old] if before else []
        replace = replace and bool(others)
        unchanged = [] if replace else others

        # A source keeps the name that it had, and a new one gets a name that no other has.
        own = named if contents.revision else name_of(self._place.location(self._place.relative(named)))
        names = {source.name for source in unchanged}
        name, number = own, 1
        while name in names:
            number += 1
            name = f"{own}-{number}"
        place = contents.name if contents.revision else self._place.relative(named)
        source = CorpusSource(name=old.name if old else name, place=place, revision=contents.revision)

        files = self._files_of(names)
        if most is not None:
            if not contents.documents:
                form = "{named} holds shards: have a first look at one of them, with --shards instead"
                raise SourceError(form, named)
            if old and not old.left:
                raise SourceError("all of {named} is indexed already: --max-pages is for a first look", named)
            # A first look shows at least as many pages as the one before.
            most = max(most, sum(shard.rows for shard in own_shards))
        if not contents.documents:
            part = self._scan(source, contents, files)
            return self._publish(source, old, own_shards, contents, part, unchanged, files, replace)
        rendered = ShardFolder(self._place)
        with rendered.exclusive():
            dpi = dpi or (old and old.dpi) or DPI
            part = self._rendered(rendered, named, source, own_shards, contents, files, dpi, most)
            result = self._publish(source, old, own_shards, contents, part, unchanged, files, replace)
            rendered.clear(_files_in(rendered, result))
        return result

    def write_without(self, source: CorpusSource) -> Manifest:
        """Write the index without one of its sources. Raises `SourceError`, `StoreError`."""
        before = self._before
        assert before is not None, "a source is of an index"
        unchanged = [other for other in before.sources if other != source]
        names = {other.name for other in unchanged}
        retired = {**before.retired, **{shard.key: shard.sha256 for shard in before.shards_of(source.name)}}
        files, queries, left_out = self._files_of(names), self._queries_of(names), self._left_out_of(names)
        result = self._write(unchanged, files, queries, retired, left_out)
        rendered = ShardFolder(self._place)
        if _files_in(rendered, before):
            with rendered.exclusive():
                rendered.clear(_files_in(rendered, result))
        return result

    def _files_of(self, unchanged: Collection[str]) -> list[ShardRows]:
        """Return the shards of sources with these names, with the ids they hold."""
        before = self._before
        files: list[ShardRows] = []
        if before is None:
            return files
        for shard in before.shards:
            if shard.source not in unchanged:
                continue
            try:
                pages = open_shard(before, shard.key)
                rows = pages.names()
                if pages.problem or len(rows) != shard.rows:
                    form = "it has {rows:,} rows and had {before:,}"
                    raise SourceError(pages.problem or phrase(form, len(rows), shard.rows))
                files.append(ShardRows(shard, rows, before.written.get(shard.key)))
            except SourceError as error:
                # If this failed, and two sources had moved, neither could be indexed before the other.
                form = "{shard} of {source} cannot be read ({reason}): index or take out that source too"
                self._tell(phrase(form, shard.key, shard.source, str(error)))
                files.append(ShardRows(shard, None, before.written.get(shard.key)))
        return files

    def _rendered(
        self,
        rendered: ShardFolder,
        named: str,
        source: CorpusSource,
        own: Sequence[Shard],
        contents: SourceFiles,
        others: Sequence[ShardRows],
        dpi: int,
        most: int | None,
    ) -> _Part:
        """Return a source's pages, making new ones of documents. Raises `SourceError`, `StoreError`."""
        taken_names: set[str] = set()
        taken_ids: set[str] = set()
        for file in others:
            for page_id, name in file.rows or ():
                if name:
                    taken_names.add(name)
                if page_id:
                    taken_ids.update((page_id, page_id.rpartition("_")[0]))
        shards = render(
            contents.documents,
            source.name,
            rendered,
            [(shard.key, self._place.location(shard.file)) for shard in own],
            {self._place.location(file.shard.file): file.shard.source for file in others},
            TakenNames(taken_names, taken_ids),
            dpi,
            most,
            self._tell,
        )
        if shards.failed and not is_url(named) and not Path(named).exists():
            raise SourceError(
                "{named} went away while it was indexed: bring it back and index again; what was indexed before stays",
                named,
            )
        files: list[ShardRows] = []
        for path, key in shards.files:
            if (file := read_file(path, self._place, source.name, key or "")) is not None:
                files.append(file)
        return _Part(files, shards.left_out, shards.copies_of, shards.failed, dpi, shards.left)

    def _scan(self, source: CorpusSource, contents: SourceFiles, others: Sequence[ShardRows]) -> _Part:
        """Return a source's files of pages that no other source has."""
        shards = {file.shard.sha256: file.shard for file in others}
        files: list[ShardRows] = []
        left_out: list[LeftOut] = []
        copies: set[str] = set()
        for at, path in enumerate(contents.pages, start=1):
            file, name = read_file(path, self._place, source.name), spelt(path.name)
            if file is None:
                left_out.append(LeftOut(path, name, "it has no rows"))
            elif same := shards.get(file.shard.sha256):
                copies.add(same.source)
                reason = f"the same file as {spelt(Path(same.file).name)} of {same.source}"
                left_out.append(LeftOut(path, name, reason))
            else:
                files.append(file)
                pages = counted(file.shard.rows, "page")
                self._tell(phrase("{name} ({at} of {count}): {pages}", name, at, len(contents.pages), pages))
        return _Part(files, left_out, copies)

    def _publish(
        self,
        source: CorpusSource,
        old: CorpusSource | None,
        own: Sequence[Shard],
        contents: SourceFiles,
        part: _Part,
        unchanged: Sequence[CorpusSource],
        others: Sequence[ShardRows],
        replace: bool,
    ) -> Manifest:
        before = self._before
        if not part.files and part.copies_of:
            form = "all of {source} is in the corpus already, of {sources}"
            raise SourceError(form, contents.name, ", ".join(sorted(part.copies_of)))
        if not part.files:
            raise SourceError("{source} has no pages", contents.name)
        names = {other.name for other in unchanged}
        queries = self._queries_of(names)
        queries[source.name] = []
        if contents.questions is not None:
            parsed = parse_queries(contents.questions, contents.annotations, contents.questions_name)
            queries[source.name] = parsed
            form = "{file} has no rows: there are no queries"
            self._tell(counted(len(parsed), "query", "queries") if parsed else phrase(form, contents.questions_name))
        elif not contents.documents:
            self._tell(phrase("{source} has no queries", contents.name))
        documents: set[str] = set()
        for file in part.files:
            for page_id, name in file.rows or ():
                documents.add(name or (page_id or "").rpartition("_")[0] or page_id or "")
        source = source.model_copy(
            update={
                "dpi": part.dpi,
                "documents": len(documents),
                "failed": part.failed,
                "left": part.left,
                "queries": len(queries[source.name]),
                "copies_of": sorted(part.copies_of),
                "indexed_at": old and old.indexed_at,
            }
        )
        if before is None or replace:
            # A new corpus numbers its keys from the start, but a file shared with the previous one keeps its key.
            same = {file.shard.sha256 for file in part.files}
            had = [shard for shard in before.shards if shard in own or shard.sha256 in same] if before else []
            files, retired = with_keys(part.files, had, others, {})[0], dict[str, str]()
        else:
            files, retired = with_keys(part.files, own, others, before.retired)
        if source != old or [file.shard for file in files] != own:
            source = source.model_copy(update={"indexed_at": datetime.now(UTC).replace(microsecond=0)})
        # A source that was there keeps its place among the others.
        sources = list(unchanged)
        sources.insert(before.sources.index(old) if before and old else len(sources), source)
        left_out = [(file.name, file.reason, source.name) for file in (*contents.left_out, *part.left_out)]
        result = self._write(sources, [*others, *files], queries, retired, [*self._left_out_of(names), *left_out])
        self._tell_left_out(left_out)
        return result

    def _write(
        self,
        sources: Sequence[CorpusSource],
        files: Sequence[ShardRows],
        queries: Mapping[str, Sequence[Query]],
        retired: Mapping[str, str],
        left_out: Sequence[tuple[str, str, str]],
    ) -> Manifest:
        """Write the index, its queries, and the list of left-out files."""
        shards: list[Shard] = []
        shard_of: dict[str, str] = {}
        repeated = unusable = 0
        for file in sorted(files, key=lambda file: shard_number(file.shard.key)):
            duplicates: set[str] = set()
            for page_id, _ in file.rows or ():
                if page_id is None or problem_with_id(page_id):
                    unusable += 1
                elif page_id not in shard_of:
                    shard_of[page_id] = file.shard.key
                else:
                    repeated += 1
                    if shard_of[page_id] != file.shard.key:
                        duplicates.add(page_id)
            is_read = file.rows is not None
            shards.append(file.shard.model_copy(update={"duplicates": sorted(duplicates)}) if is_read else file.shard)
        if repeated:
            form = "{count:,} rows repeat the id of an earlier page: they will be quarantined"
            self._tell(phrase(form, repeated))
        if unusable:
            self._tell(phrase("{count:,} rows have no usable id: they will be quarantined", unusable))
        query_file = self._write_queries(sources, queries, shard_of, [shard.key for shard in shards])
        result = Manifest(
            sources=[source.model_copy(update={"queries": len(queries.get(source.name, ()))}) for source in sources],
            shards=shards,
            queries=query_file,
            retired=dict(sorted(retired.items())),
            written={file.shard.key: file.written for file in files if file.written is not None},
        )
        self._place.write(manifest.NAME, result.to_json().encode())
        if query_file is None:
            self._place.remove(QUERIES)
        if left_out:
            self._place.write(LEFT_OUT, "".join("\t".join(file) + "\n" for file in left_out).encode())
        else:
            self._place.remove(LEFT_OUT)
        return Manifest.load(self._place)

    def _tell_left_out(self, left_out: Sequence[tuple[str, str, str]]) -> None:
        """Report each reason to leave files out, with the first files of each."""
        by_reason: dict[str, list[str]] = defaultdict(list)
        for name, reason, _ in left_out:
            by_reason[reason].append(name)
        for reason, names in by_reason.items():
            for name in names[:_NAMED]:
                self._tell(phrase("left out: {file} ({reason})", name, reason))
            if len(names) > _NAMED:
                form = "left out: {count:,} more for this reason, listed in {file}"
                self._tell(phrase(form, len(names) - _NAMED, self._place.location(LEFT_OUT)))

    def _left_out_of(self, unchanged: Collection[str]) -> list[tuple[str, str, str]]:
        """Return the files left out of sources with these names: name, reason, source."""
        before = self._before
        if before is None or not self._place.has(LEFT_OUT):
            return []
        files: list[tuple[str, str, str]] = []
        for line in self._place.read(LEFT_OUT).decode().split("\n"):
            name, *rest = line.split("\t")
            # An older release, with one source, left out the source's name.
            source = rest[1] if len(rest) > 1 else before.sources[0].name
            if rest and source in unchanged:
                files.append((name, rest[0], source))
        return files

    def _queries_of(self, unchanged: Collection[str]) -> dict[str, list[Query]]:
        """Return the queries of sources with these names, by name; none from a lost table."""
        before = self._before
        if before is None or before.queries is None or not unchanged:
            return {}
        try:
            queries = iter(from_table(self._indexed(before.queries)))
        except SourceError as error:
            for source in before.sources:
                if source.queries and source.name in unchanged:
                    form = "the queries of {source} are lost ({reason}): index it again"
                    self._tell(phrase(form, source.name, str(error)))
            return {}
        by_source: dict[str, list[Query]] = {}
        for source in before.sources:
            of_source = list(itertools.islice(queries, source.queries))
            if source.name in unchanged:
                by_source[source.name] = of_source
        return by_source

    def _indexed(self, queries: QueryFile) -> pa.Table:
        with self._place.held(queries.file) as path:
            table = read_table(path)
        if digest(table) != queries.sha256:
            raise SourceError("{file} changed since it was indexed", self._place.location(queries.file))
        return table

    def _write_queries(
        self,
        sources: Sequence[CorpusSource],
        by_source: Mapping[str, Sequence[Query]],
        shard_of: Mapping[str, str],
        keys: Sequence[str],
    ) -> QueryFile | None:
        queries: list[Query] = []
        pages: list[str] = []
        source_of: dict[str, str] = {}
        for source in sources:
            for query in by_source.get(source.name, ()):
                queries.append(query)
                pages += query.ground_truth
                if (other := source_of.setdefault(query.query_id, source.name)) != source.name:
                    form = "{other} and {source} both have a query with the id {id}: give one of them another id"
                    raise SourceError(form, other, source.name, quoted(query.query_id))
        if not queries:
            return None
        unknown = [page for page in dict.fromkeys(pages) if page not in shard_of]
        if unknown:
            form = "{count:,} ground-truth pages are not in the corpus, the first is {page}"
            self._tell(phrase(form, len(unknown), quoted(unknown[0])))
        # A query stays in the shard that it has in the previous index, if that can be read.
        shards_before: dict[str, str] = {}
        if self._before is not None and self._before.queries is not None:
            with suppress(SourceError):
                indexed = self._indexed(self._before.queries)
                there = frozenset(keys)
                for query_id, key in zip(indexed["query_id"].to_pylist(), indexed[SHARD].to_pylist(), strict=True):
                    if key in there:
                        shards_before[query_id] = key
        table = to_table(queries, shard_of, keys, shards_before)
        buffer = pa.BufferOutputStream()
        pq.write_table(table, buffer)
        self._place.write(QUERIES, buffer.getvalue().to_pybytes())
        return QueryFile(file=QUERIES, rows=len(queries), sha256=digest(table), unknown=unknown)


def _files_in(rendered: ShardFolder, index: Manifest) -> list[SourcePath]:
    """Return the rendered shards that an index names."""
    named = {index.place(shard.file) for shard in index.shards}
    return [path for path in rendered.files() if str(path) in named]
