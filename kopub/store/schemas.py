"""The schemas of all tables in the store.

Each asset and shard has one Parquet file, with its rows in page order.
"""

from collections.abc import Iterable

import pyarrow as pa

BOX = pa.list_(pa.float32(), 4)
"""(x1, y1, x2, y2) in pixels of the upright page."""
BOX_2D = pa.list_(pa.int32(), 4)
"""The same box on a grid of 0 to 1000 in both directions."""


def _column(name: str, kind: pa.DataType, says: str, nullable: bool = True) -> pa.Field:
    """Return a column with a description, shown wherever its schema is shown."""
    return pa.field(name, kind, nullable, {"description": says})


STATE = [
    _column("state", pa.string(), "ok, partial, blank, failed or quarantined.", nullable=False),
    _column("reason", pa.string(), "Why the row did not end as ok."),
    _column("fingerprint", pa.string(), "Of the inputs and the recipe that made the row.", nullable=False),
]

PAGE_ID = _column("page_id", pa.string(), "Unique in the corpus.", nullable=False)
PAGE_IDX = _column("page_idx", pa.int32(), "Row of the page in its source shard, from 0.", nullable=False)

_REGION = pa.struct(
    [
        ("index", pa.int32()),
        ("label", pa.string()),
        ("task", pa.string()),
        ("score", pa.float32()),
        ("bbox", BOX),
        ("bbox_2d", BOX_2D),
        ("polygon", pa.list_(pa.list_(pa.float32(), 2))),
        ("text", pa.string()),
    ]
)
_REGION_TEXT = pa.struct(
    [
        ("index", pa.int32()),
        ("label", pa.string()),
        ("native_label", pa.string()),
        ("bbox_2d", BOX_2D),
        ("content", pa.string()),
        ("state", pa.string()),
        ("reason", pa.string()),
        ("finish_reason", pa.string()),
        ("attempts", pa.int32()),
        ("seconds", pa.float32()),
        ("scale", pa.float32()),
        ("origin", pa.string()),
    ]
)
_CROP = pa.struct([("path", pa.string()), ("bbox", BOX), ("label", pa.string())])

_TRANSFORM = pa.struct(
    [
        # Not of fixed size: PyArrow before 26 cannot read such a list in a struct that is null.
        ("matrix", pa.list_(pa.float64())),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("turns", pa.int32()),
        ("skew", pa.float64()),
        ("paper", pa.bool_()),
        ("margin", pa.float64()),
        ("skew_sharpness", pa.float64()),
        ("paper_levels", pa.float64()),
    ]
)

RAW_PAGES = pa.schema(
    [
        PAGE_ID,
        PAGE_IDX,
        _column("doc_id", pa.string(), "The document the page is of."),
        _column("page_no", pa.int32(), "Number of the page in its document, from 1."),
        _column("sha256", pa.string(), "Of the encoded image, as the source holds it."),
        _column("format", pa.string(), "PNG, JPEG, WEBP or TIFF."),
        _column("width", pa.int32(), "Pixels of the upright page."),
        _column("height", pa.int32(), "Pixels of the upright page."),
        _column("n_bytes", pa.int64(), "Size of the encoded image."),
        _column("license", pa.string(), "As the source states it."),
        _column("upright", _TRANSFORM, "How the picture was set upright; null for one that is as it came."),
        _column("text_layer_id", pa.string(), "Which text layer its PDF has; null for a page without one."),
        _column("source", pa.string(), "Name of the source file.", nullable=False),
        *STATE,
    ]
)

LAYOUT_REGIONS = pa.schema(
    [PAGE_ID, _column("regions", pa.list_(_REGION), "Regions in reading order; boxes in pixels and of 1000."), *STATE]
)

# A column that a run measures, such as a time, also goes into `_OF_A_RUN` of kopub/tables/provenance.py.
OCR_RESULTS = pa.schema(
    [
        PAGE_ID,
        PAGE_IDX,
        _column("regions", pa.list_(_REGION_TEXT), "What was read from each region, and how."),
        _column("markdown", pa.string(), "The page, with links to its crops."),
        _column("image_crops", pa.list_(_CROP), "The pictures of the page."),
        # With the page's row, so that a page and its pictures are written as one.
        _column("crop_images", pa.list_(pa.large_binary()), "The JPEG of each entry of image_crops."),
        *STATE,
    ]
)

_FIGURE = [
    ("index", pa.int32()),
    ("label", pa.string()),
    ("bbox", BOX),
    ("bbox_2d", BOX_2D),
    ("caption", pa.string()),
]
_NOTE = pa.struct(
    [
        *_FIGURE,
        ("kind", pa.string()),
        ("description", pa.string()),
        ("keywords", pa.list_(pa.string())),
        ("data_html", pa.string()),
        ("smiles", pa.string()),
        ("language", pa.string()),
        ("state", pa.string()),
        ("reason", pa.string()),
        ("attempts", pa.int32()),
        ("seconds", pa.float32()),
    ]
)
FIGURE_NOTES = pa.schema(
    [PAGE_ID, _column("notes", pa.list_(_NOTE), "What a model made up about each figure; none of it was read."), *STATE]
)

PLACE = pa.struct([("page_id", pa.string()), ("page", pa.int32()), ("region", pa.int32()), ("bbox_2d", BOX_2D)])
"""Where text stands: its page, the number of that in the document, its region and its box."""
_CHUNK = pa.struct(
    [
        ("index", pa.int32()),
        ("text", pa.string()),
        ("headings", pa.list_(pa.string())),
        ("kinds", pa.list_(pa.string())),
        ("tokens", pa.int32()),
        ("repeated", pa.int32()),
        ("places", pa.list_(PLACE)),
    ]
)
DOCUMENT_CHUNKS = pa.schema(
    [
        _column("page_id", pa.string(), "The first page of the document in the corpus.", nullable=False),
        _column("doc_id", pa.string(), "The document; the page where that is of none.", nullable=False),
        _column("n_pages", pa.int32(), "Pages of the document, in all shards.", nullable=False),
        _column("chunks", pa.list_(_CHUNK), "Its pieces in reading order; null where it could not be cut."),
        *STATE,
    ]
)

PARSED_TEXTS = pa.schema(
    [
        PAGE_ID,
        _column("text", pa.string(), "The page in reading order, without markup."),
        _column("n_chars", pa.int32(), "Length of the text."),
        _column("script", pa.string(), "Of most letters: HANGUL, LATIN, CJK, CYRILLIC ...; null without a letter."),
        _column("doubt", pa.float32(), "Whether the text looks wrong: 0 fine, 1 surely wrong."),
        _column("doubts", pa.list_(pa.string()), "What speaks against the text, the surest first."),
        _column("text_layer", pa.string(), "sound or unsound; null where the page has none, or nobody asked."),
        _column("text_layer_reason", pa.string(), "Why the text layer is unsound."),
        _column("text_layer_distance", pa.float32(), "From a sound text layer: edits to the longer text, 0 to 1."),
        *STATE,
    ]
)

CORRECTIONS = pa.schema(
    [
        PAGE_ID,
        _column("shard", pa.string(), "Where the page was when it was corrected.", nullable=False),
        _column("action", pa.string(), "text, label, order, add, strike, checked or undo.", nullable=False),
        _column("author", pa.string(), "Who did it.", nullable=False),
        _column("bbox", BOX, "Of the region, in pixels of the upright page; null of what concerns the page."),
        _column("bbox_2d", BOX_2D, "The same box on a grid of 0 to 1000."),
        _column("label", pa.string(), "Of the region as the person saw it."),
        _column("kind", pa.string(), "text, table, formula or image: what the region held as the person saw it."),
        _column("before", pa.string(), "What it was.", nullable=False),
        _column("after", pa.string(), "What it is: text, label, box to follow, id to undo.", nullable=False),
        _column("reason", pa.string(), "Why, in the person's words.", nullable=False),
        _column("id", pa.string(), "Unique.", nullable=False),
        _column("at", pa.timestamp("us", "UTC"), "When it was saved.", nullable=False),
    ]
)

HF_RELEASE = pa.schema(
    [
        _column("path", pa.string(), "Relative to the release.", nullable=False),
        _column("sha256", pa.string(), "Of the file.", nullable=False),
        _column("rows", pa.int64(), "Null for what is no table."),
        _column("bytes", pa.int64(), "Size of the file.", nullable=False),
    ]
)

RETRIEVAL_SCORES = pa.schema(
    [
        _column(
            "retriever",
            pa.string(),
            "image, text, meaning, figure, bm25, or fusion: all of them together.",
            nullable=False,
        ),
        _column("convention", pa.string(), "first: one page answers; any: each of its pages.", nullable=False),
        _column("query_type", pa.string(), "all, or a type of the corpus.", nullable=False),
        _column("metric", pa.string(), "recall@k, ndcg@10 or mrr.", nullable=False),
        _column("queries", pa.int32(), "Queries that were measured.", nullable=False),
        _column("value", pa.float64(), "The mean over the queries.", nullable=False),
        _column("low", pa.float64(), "Of the 95 % interval of the value.", nullable=False),
        _column("high", pa.float64(), "Of the 95 % interval of the value.", nullable=False),
        _column("previous", pa.float64(), "The mean of the run before, over the queries of both; null without one."),
        _column("change", pa.float64(), "Against the run before, over the queries of both."),
        _column("change_low", pa.float64(), "Of the 95 % interval of the change, paired by query."),
        _column("change_high", pa.float64(), "Of the 95 % interval of the change, paired by query."),
        _column("dropped", pa.bool_(), "The drop is significant and large enough to matter.", nullable=False),
    ]
)


def retrieval_runs(metrics: Iterable[str]) -> pa.Schema:
    """Return the schema of one run's scores by query.

    The next run is compared with them.
    """
    return pa.schema(
        [
            *(RETRIEVAL_SCORES.field(name) for name in ("retriever", "convention")),
            _column("query_id", pa.string(), "Unique in the corpus.", nullable=False),
            _column("query_type", pa.string(), "As the source has it."),
            *(_column(metric, pa.float64(), "Of this query.", nullable=False) for metric in metrics),
        ]
    )


OCR_SCORES = pa.schema(
    [
        _column("benchmark", pa.string(), "Name of the benchmark.", nullable=False),
        _column("metric", pa.string(), "What is measured; docs/evaluation.md says how.", nullable=False),
        _column("slice", pa.string(), "all, or a part of the benchmark, as in language=korean.", nullable=False),
        _column("better", pa.string(), "Whether a lower or a higher value is better.", nullable=False),
        _column("headline", pa.bool_(), "Closes the gate when it drops.", nullable=False),
        _column("samples", pa.int32(), "Samples that were scored, the lost ones among them.", nullable=False),
        _column("lost", pa.int32(), "Samples that were not read and have the worst value.", nullable=False),
        _column("value", pa.float64(), "Of all samples; null when it was skipped."),
        _column("low", pa.float64(), "Of the 95 % interval of the value, over documents."),
        _column("high", pa.float64(), "Of the 95 % interval of the value, over documents."),
        _column("value_of_read", pa.float64(), "Of the samples that are not lost."),
        _column("previous", pa.float64(), "Of the run before, over the samples of both; null without one."),
        _column("change", pa.float64(), "Against the run before, over the samples of both."),
        _column("change_low", pa.float64(), "Of the 95 % interval of the change, paired by document."),
        _column("change_high", pa.float64(), "Of the 95 % interval of the change, paired by document."),
        _column("dropped", pa.bool_(), "It got worse, significantly and enough to matter.", nullable=False),
        _column("skipped", pa.int32(), "Samples whose value could not be computed.", nullable=False),
        _column("skipped_reason", pa.string(), "Why the first of them could not be computed."),
    ]
)
OCR_RUNS = pa.schema(
    [
        *(OCR_SCORES.field(name) for name in ("benchmark", "metric")),
        _column("sample", pa.string(), "Id of the sample; null for a value of the whole benchmark."),
        _column("document", pa.string(), "Samples of one document are resampled together."),
        _column("slices", pa.map_(pa.string(), pa.string()), "The parts of the benchmark that the sample is in."),
        _column("gold", pa.string(), "Fingerprint of the sample's known answer."),
        _column("value", pa.float64(), "Null where it could not be computed."),
        _column("size", pa.float64(), "Weight of the sample in a pooled mean.", nullable=False),
        _column("lost", pa.bool_(), "The sample was not read.", nullable=False),
        _column("skipped_reason", pa.string(), "Why there is no value."),
        _column("notes", pa.list_(pa.string()), "What was wrong, one line each."),
    ]
)
"""The scores of one run, sample by sample, with which the next run is compared."""

RETRIEVAL_TOKENS = pa.schema([PAGE_ID, _column("tokens", pa.list_(pa.string()), "Content morphemes.", nullable=False)])

_VECTOR = "float16 of L2 norm 1; null unless the state is ok."


def page_embeddings(dim: int) -> pa.Schema:
    """Return the schema of the vectors of pages."""
    return pa.schema([PAGE_ID, _column("vector", pa.list_(pa.float16(), dim), _VECTOR), *STATE])


def figure_embeddings(dim: int) -> pa.Schema:
    """Return the schema of the vectors of the figures of pages."""
    figure = pa.struct(
        [*_FIGURE, ("vector", pa.list_(pa.float16(), dim)), ("state", pa.string()), ("reason", pa.string())]
    )
    says = "Images and charts that are large enough, each with a vector as of pages; none unless its state is ok."
    return pa.schema([PAGE_ID, _column("figures", pa.list_(figure), says), *STATE])


def passage_embeddings(dim: int) -> pa.Schema:
    """Return the schema of the vectors of the passages of pages."""
    passage = pa.struct([("start", pa.int32()), ("end", pa.int32()), ("vector", pa.list_(pa.float16(), dim))])
    says = "Passages of the page's text, from character `start` to `end`, each with a vector of norm 1."
    return pa.schema([PAGE_ID, _column("passages", pa.list_(passage), says), *STATE])


def chunk_embeddings(dim: int) -> pa.Schema:
    """Return the schema of the vectors of document chunks."""
    return pa.schema(
        [
            _column("id", pa.string(), "A UUID of the chunk's document, text and places.", nullable=False),
            _column("doc_id", pa.string(), "The document; the page where that is of none.", nullable=False),
            _column("places", pa.list_(PLACE), "The regions of the chunk, the first one first.", nullable=False),
            _column("headings", pa.list_(pa.string()), "Titles above it, the uppermost first.", nullable=False),
            _column("kinds", pa.list_(pa.string()), "Kinds of its blocks.", nullable=False),
            _column("text", pa.string(), "The chunk, without its headings.", nullable=False),
            _column("made_with", pa.string(), "What cut it and what made its vector, as JSON.", nullable=False),
            _column("vector", pa.list_(pa.float16(), dim), _VECTOR),
            *STATE,
        ]
    )


SEARCH_SINK = pa.schema(
    [
        _column("id", pa.string(), "Of the record in the vector store, and of its chunk.", nullable=False),
        _column("fingerprint", pa.string(), "Of everything that the record holds.", nullable=False),
    ]
)


def query_embeddings(dim: int) -> pa.Schema:
    """Return the schema of query vectors, with the query and its answering pages."""
    return pa.schema(
        [
            _column("query_id", pa.string(), "Unique in the corpus.", nullable=False),
            _column("query", pa.string(), "As the source has it.", nullable=False),
            _column("answer", pa.string(), "As the source has it."),
            _column("type", pa.string(), "Where the answer stands: text, visual or cross."),
            _column("domain", pa.string(), "As the source has it."),
            _column("ground_truth", pa.list_(pa.string()), "Pages that answer, the first one first.", nullable=False),
            _column("vector", pa.list_(pa.float16(), dim), _VECTOR),
            *STATE,
        ]
    )
