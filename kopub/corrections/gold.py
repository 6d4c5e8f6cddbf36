"""Checked pages as known answers, by which the next reader is judged."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from kopub.corrections.log import Correction, CorrectionLog
from kopub.errors import SourceError
from kopub.evaluation.benchmark import Benchmark, PageText, Sample
from kopub.evaluation.benchmarks.texts import CORRECTIONS
from kopub.evaluation.home import KnownAnswers, read_gold
from kopub.files import replace_file
from kopub.pages.arrow import BYTES, FILE_NAME, ID, IMAGE
from kopub.release.base import page_images
from kopub.store.corpus_tables import TABLES

if TYPE_CHECKING:
    from kopub.pages.corpus import Corpus
    from kopub.store.table_store import ShardStore

_PAGES = "pages.parquet"
_SCHEMA = pa.schema(
    [(ID, pa.string()), (IMAGE, pa.struct([(BYTES, pa.binary())])), (FILE_NAME, pa.string()), ("text", pa.string())]
)


def has_known_answers(corpus: "Corpus", store: "ShardStore") -> bool:
    """Return whether any page has an answer, from gold or a person.

    Raises `StoreError`.
    """
    return corpus.gold is not None or bool(_checked(store))


def known_answers(corpus: "Corpus", store: "ShardStore") -> list[KnownAnswers]:
    """Return the known answers: gold, and the pages that people checked.

    The answer of a checked page is its text at the time of the check. Raises `SourceError` and `StoreError`.
    """
    answers = [] if corpus.gold is None else read_gold(corpus.gold)
    checked = _checked(store)
    samples: list[Sample] = []
    for shard in _stored_shards(corpus, store) if checked else ():
        for page in store.read(TABLES.pages.name, shard, ["page_id", "doc_id"]).to_pylist():
            page_id = page["page_id"]
            text = _text(checked[page_id]) if page_id in checked else ""
            # A page without a text has nothing of which a share could be right.
            if text.strip():
                samples.append(Sample(page_id, page["doc_id"] or page_id, None, {}, PageText(text)))
    if samples:
        benchmark = Benchmark(CORRECTIONS.name, "1", CORRECTIONS.licence, CORRECTIONS.source, samples)
        answers.append(KnownAnswers(benchmark, len(samples)))
    return answers


def write_checked_pages(corpus: "Corpus", store: "ShardStore", folder: Path) -> int:
    """Write every checked page's picture and text into `folder`; return the count.

    The text is the one that a person checked, even if the page was read again since. Raises `SourceError` if no page is
    checked, and `StoreError`.
    """
    checked, count = _checked(store), 0

    def write(path: Path) -> None:
        nonlocal count
        with pq.ParquetWriter(path, _SCHEMA, compression="none") as writer:
            for shard in _stored_shards(corpus, store) if checked else ():
                raw = store.read(TABLES.pages.name, shard)
                documents = dict(zip(raw["page_id"].to_pylist(), raw["doc_id"].to_pylist(), strict=True))
                with page_images(corpus, shard, raw, upright=True) as image_of:
                    for page_id, document in documents.items():
                        if page_id not in checked or (data := image_of(page_id)) is None:
                            continue
                        row = {ID: page_id, IMAGE: {BYTES: bytes(data)}, "text": _text(checked[page_id])}
                        row[FILE_NAME] = document or page_id
                        writer.write_table(pa.Table.from_pylist([row], _SCHEMA))
                        count += 1
        if not count:
            raise SourceError("no page is checked yet: `kopub browse --edit`, and mark the pages that are right")

    replace_file(folder / _PAGES, write)
    return count


def _stored_shards(corpus: "Corpus", store: "ShardStore") -> list[str]:
    """Return the shards of the corpus whose pages are in the store."""
    return [shard for shard in corpus.manifest.keys if store.has(TABLES.pages.name, shard)]


def _checked(store: "ShardStore") -> Mapping[str, Correction]:
    by_page = CorrectionLog(store).by_page()
    return {page_id: page.checked for page_id, page in by_page.items() if page.checked}


def _text(mark: Correction) -> str:
    return json.loads(mark.after).get("text", "")
