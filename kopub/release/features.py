"""The features of every config, read by `datasets` and the Hub's viewer."""

from collections.abc import Mapping
from typing import Any

from datasets import Features, Image, List, Value

from kopub.release.base import PAGE_ASSETS
from kopub.store.rows import LINEAGE

_TEXT, _NUMBER = Value("string"), Value("int32")
_BOX = {"bbox": List(Value("float32"), length=4), "bbox_2d": List(_NUMBER, length=4)}
FIGURE = {
    "region_id": _TEXT,
    "page_id": _TEXT,
    "index": _NUMBER,
    "label": _TEXT,
    **_BOX,
    "caption": _TEXT,
}


def page_features(images: bool) -> Features:
    """Return the features of `pages`, with the image of the page if `images`."""
    return Features(
        {
            "page_id": _TEXT,
            "id": _TEXT,
            "doc_id": _TEXT,
            "page_no": _NUMBER,
            "width": _NUMBER,
            "height": _NUMBER,
            "upright": {
                "matrix": List(Value("float64")),
                "width": _NUMBER,
                "height": _NUMBER,
                "turns": _NUMBER,
                "skew": Value("float64"),
                "paper": Value("bool"),
                "margin": Value("float64"),
                "skew_sharpness": Value("float64"),
                "paper_levels": Value("float64"),
            },
            "sha256": _TEXT,
            "license": _TEXT,
            "source": _TEXT,
            "origin": {
                "source": _TEXT,
                "file": _TEXT,
                "sha256": _TEXT,
                "page": _NUMBER,
                "dpi": _NUMBER,
                "renderer": _TEXT,
            },
            "state": _TEXT,
            "reason": _TEXT,
            "states": dict.fromkeys(PAGE_ASSETS, _TEXT),
            "n_regions": _NUMBER,
            "n_chars": _NUMBER,
            "script": _TEXT,
            "doubt": Value("float32"),
            "doubts": List(_TEXT),
            "text_layer": _TEXT,
            "text_layer_reason": _TEXT,
            "text_layer_distance": Value("float32"),
            "text": _TEXT,
            "markdown": _TEXT,
            **({"image": Image()} if images else {}),
        }
    )


REGIONS = Features(
    {
        "region_id": _TEXT,
        "page_id": _TEXT,
        "index": _NUMBER,
        "label": _TEXT,
        "native_label": _TEXT,
        "task": _TEXT,
        "score": Value("float32"),
        **_BOX,
        "polygon": List(List(Value("float32"), length=2)),
        "content": _TEXT,
        "origin": _TEXT,
        "state": _TEXT,
        "reason": _TEXT,
    }
)

CROPS = Features(
    {
        "page_id": _TEXT,
        "index": _NUMBER,
        "label": _TEXT,
        "bbox": _BOX["bbox"],
        "path": _TEXT,
        "image": Image(),
    }
)


PAGE = {"page_id": _TEXT}
PASSAGE = {**PAGE, "start": _NUMBER, "end": _NUMBER}


def vector_features(owner: Mapping[str, Any], dim: int) -> Features:
    """Return the features of vectors with `dim` numbers, each beside those of its `owner`."""
    return Features({**owner, "vector": List(Value("float16"), length=dim)})


FIGURE_NOTES = Features(
    {
        **FIGURE,
        "kind": _TEXT,
        "description": _TEXT,
        "keywords": List(_TEXT),
        "data_html": _TEXT,
        "smiles": _TEXT,
        "language": _TEXT,
        "state": _TEXT,
        "reason": _TEXT,
    }
)

CHUNKS = Features(
    {
        "id": _TEXT,
        "text": _TEXT,
        "doc_id": _TEXT,
        "page_id": _TEXT,
        "index": _NUMBER,
        "headings": List(_TEXT),
        "kinds": List(_TEXT),
        "tokens": _NUMBER,
        "repeated": _NUMBER,
        "places": List({"page_id": _TEXT, "page": _NUMBER, "region": _NUMBER, "bbox_2d": _BOX["bbox_2d"]}),
    }
)

CORRECTIONS = Features(
    {
        "id": _TEXT,
        "page_id": _TEXT,
        "action": _TEXT,
        **_BOX,
        "label": _TEXT,
        "kind": _TEXT,
        "before": _TEXT,
        "after": _TEXT,
        "author": _TEXT,
        "at": Value("timestamp[us, tz=UTC]"),
        "reason": _TEXT,
    }
)


def query_features(dim: int) -> Features:
    return Features(
        {
            "query_id": _TEXT,
            "query": _TEXT,
            "id": _TEXT,
            "text": _TEXT,
            "type": _TEXT,
            "domain": _TEXT,
            "answer": _TEXT,
            "ground_truth": List(_TEXT),
            "vector": List(Value("float16"), length=dim),
        }
    )


QRELS = Features({"query-id": _TEXT, "corpus-id": _TEXT, "score": Value("int32")})
LINEAGE_ROWS = Features.from_arrow_schema(LINEAGE)
