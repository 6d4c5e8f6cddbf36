"""The features of every config, read by `datasets` and the Hub's viewer."""

from functools import cache
from typing import Any

from datasets import Features, Image, List, Value

from kopub.release.base import PAGE_ASSETS
from kopub.store.rows import LINEAGE


@cache
def page_features(images: bool = False) -> Features:
    """Return the features of `pages`, with the image of the page if `images`."""
    text, number = Value("string"), Value("int32")
    return Features(
        {
            "page_id": text,
            "id": text,
            "doc_id": text,
            "page_no": number,
            "width": number,
            "height": number,
            "upright": {
                "matrix": List(Value("float64")),
                "width": number,
                "height": number,
                "turns": number,
                "skew": Value("float64"),
                "paper": Value("bool"),
                "margin": Value("float64"),
                "skew_sharpness": Value("float64"),
                "paper_levels": Value("float64"),
            },
            "sha256": text,
            "license": text,
            "source": text,
            "origin": {"source": text, "file": text, "sha256": text, "page": number, "dpi": number, "renderer": text},
            "state": text,
            "reason": text,
            "states": dict.fromkeys(PAGE_ASSETS, text),
            "n_regions": number,
            "n_chars": number,
            "script": text,
            "doubt": Value("float32"),
            "doubts": List(text),
            "text_layer": text,
            "text_layer_reason": text,
            "text_layer_distance": Value("float32"),
            "text": text,
            "markdown": text,
            **({"image": Image()} if images else {}),
        }
    )


@cache
def region_features() -> Features:
    text = Value("string")
    return Features(
        {
            "region_id": text,
            "page_id": text,
            "index": Value("int32"),
            "label": text,
            "native_label": text,
            "task": text,
            "score": Value("float32"),
            "bbox": List(Value("float32"), length=4),
            "bbox_2d": List(Value("int32"), length=4),
            "polygon": List(List(Value("float32"), length=2)),
            "content": text,
            "origin": text,
            "state": text,
            "reason": text,
        }
    )


@cache
def crop_features() -> Features:
    return Features(
        {
            "page_id": Value("string"),
            "index": Value("int32"),
            "label": Value("string"),
            "bbox": List(Value("float32"), length=4),
            "path": Value("string"),
            "image": Image(),
        }
    )


@cache
def vector_features(dim: int) -> Features:
    return Features({"page_id": Value("string"), "vector": List(Value("float16"), length=dim)})


@cache
def figure_vector_features(dim: int) -> Features:
    return Features({**_figure(), "vector": List(Value("float16"), length=dim)})


@cache
def passage_features(dim: int) -> Features:
    place = {"page_id": Value("string"), "start": Value("int32"), "end": Value("int32")}
    return Features({**place, "vector": List(Value("float16"), length=dim)})


@cache
def figure_note_features() -> Features:
    text = Value("string")
    return Features(
        {
            **_figure(),
            "kind": text,
            "description": text,
            "keywords": List(text),
            "data_html": text,
            "smiles": text,
            "language": text,
            "state": text,
            "reason": text,
        }
    )


def _figure() -> dict[str, Any]:
    return {
        "region_id": Value("string"),
        "page_id": Value("string"),
        "index": Value("int32"),
        "label": Value("string"),
        "bbox": List(Value("float32"), length=4),
        "bbox_2d": List(Value("int32"), length=4),
        "caption": Value("string"),
    }


@cache
def chunk_features() -> Features:
    text, number = Value("string"), Value("int32")
    place = {"page_id": text, "page": number, "region": number, "bbox_2d": List(number, length=4)}
    return Features(
        {
            "id": text,
            "text": text,
            "doc_id": text,
            "page_id": text,
            "index": number,
            "headings": List(text),
            "kinds": List(text),
            "tokens": number,
            "repeated": number,
            "places": List(place),
        }
    )


@cache
def correction_features() -> Features:
    text = Value("string")
    return Features(
        {
            "id": text,
            "page_id": text,
            "action": text,
            "bbox": List(Value("float32"), length=4),
            "bbox_2d": List(Value("int32"), length=4),
            "label": text,
            "kind": text,
            "before": text,
            "after": text,
            "author": text,
            "at": Value("timestamp[us, tz=UTC]"),
            "reason": text,
        }
    )


@cache
def query_features(dim: int) -> Features:
    text = Value("string")
    return Features(
        {
            "query_id": text,
            "query": text,
            "id": text,
            "text": text,
            "type": text,
            "domain": text,
            "answer": text,
            "ground_truth": List(text),
            "vector": List(Value("float16"), length=dim),
        }
    )


@cache
def qrel_features() -> Features:
    return Features({"query-id": Value("string"), "corpus-id": Value("string"), "score": Value("int32")})


@cache
def lineage_features() -> Features:
    return Features.from_arrow_schema(LINEAGE)
