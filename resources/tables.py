"""The schema of every table in the store: one Parquet file per asset and shard, rows in page order."""

import pyarrow as pa

BOX = pa.list_(pa.float32(), 4)
"""(x1, y1, x2, y2) in pixels of the upright page."""
BOX_2D = pa.list_(pa.int32(), 4)
"""The same box on a grid of 0 to 1000 in both directions."""

STATE = [
    pa.field("state", pa.string(), nullable=False),
    pa.field("reason", pa.string()),
    pa.field("fingerprint", pa.string(), nullable=False),
]
"""How the row ended, why, and the fingerprint of the inputs and the recipe that made it."""

PAGE_ID = pa.field("page_id", pa.string(), nullable=False)
PAGE_IDX = pa.field("page_idx", pa.int32(), nullable=False)
"""Row of the page in its source shard, from 0."""

RAW_PAGES = pa.schema(
    [
        PAGE_ID,
        PAGE_IDX,
        pa.field("doc_id", pa.string()),
        pa.field("page_no", pa.int32()),
        pa.field("sha256", pa.string()),
        pa.field("format", pa.string()),
        pa.field("width", pa.int32()),
        pa.field("height", pa.int32()),
        pa.field("n_bytes", pa.int64()),
        pa.field("license", pa.string()),
        pa.field("source", pa.string(), nullable=False),
        *STATE,
    ]
)

LAYOUT_REGIONS = pa.schema(
    [
        PAGE_ID,
        pa.field(
            "regions",
            pa.list_(
                pa.struct(
                    [
                        ("index", pa.int32()),
                        ("label", pa.string()),
                        ("task", pa.string()),
                        ("score", pa.float32()),
                        ("bbox", BOX),
                        ("bbox_2d", BOX_2D),
                        ("polygon", pa.list_(pa.list_(pa.float32(), 2))),
                    ]
                )
            ),
        ),
        *STATE,
    ]
)

OCR_RESULTS = pa.schema(
    [
        PAGE_ID,
        PAGE_IDX,
        pa.field(
            "regions",
            pa.list_(
                pa.struct(
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
                    ]
                )
            ),
        ),
        pa.field("markdown", pa.string()),
        pa.field("image_crops", pa.list_(pa.struct([("path", pa.string()), ("bbox", BOX), ("label", pa.string())]))),
        pa.field("crop_images", pa.list_(pa.large_binary())),
        *STATE,
    ]
)
"""`crop_images` holds the JPEG of each entry of `image_crops`, so that a page and its pictures are written as one."""

PARSED_TEXTS = pa.schema([PAGE_ID, pa.field("text", pa.string()), pa.field("n_chars", pa.int32()), *STATE])

HF_RELEASE = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("sha256", pa.string(), nullable=False),
        pa.field("rows", pa.int64()),
        pa.field("bytes", pa.int64(), nullable=False),
    ]
)


def page_embeddings(dim: int) -> pa.Schema:
    """Vectors of pages: float16 of L2 norm 1, null unless the state is `ok`."""
    return pa.schema([PAGE_ID, pa.field("vector", pa.list_(pa.float16(), dim)), *STATE])


def query_embeddings(dim: int) -> pa.Schema:
    """Vectors of queries, with the query and the pages that answer it (ground truth, first one first)."""
    return pa.schema(
        [
            pa.field("query_id", pa.string(), nullable=False),
            pa.field("query", pa.string(), nullable=False),
            pa.field("answer", pa.string()),
            pa.field("type", pa.string()),
            pa.field("domain", pa.string()),
            pa.field("ground_truth", pa.list_(pa.string()), nullable=False),
            pa.field("vector", pa.list_(pa.float16(), dim)),
            *STATE,
        ]
    )
