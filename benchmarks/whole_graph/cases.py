"""The cases of the whole graph's benchmark: assets, pages and servers. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

_PAGES = "raw_pages,layout_regions"
_ALL = f"{_PAGES},ocr_results,parsed_texts,corpus_image_embeddings,corpus_text_embeddings"
_OCR = "ocr_results"
ALONE = frozenset({"layout_regions", _OCR, "corpus_image_embeddings", "corpus_text_embeddings"})
"""Stages that are measured by themselves, too."""


@dataclass(frozen=True)
class Case:
    """One case: a command for each of `selections`, all at once.

    `before` is made first and not measured; `cold` stops all servers before; `share` is the share of the requested
    pages; `changes` are the changes of the profile by dotted key.
    """

    name: str
    base: str
    selections: tuple[str, ...] = (_ALL,)
    before: str = ""
    cold: bool = False
    share: float = 1.0
    shards: int = 0
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def stages(self) -> set[str]:
        """The assets that are made and measured."""
        return {name for selection in self.selections for name in selection.split(",")}


CASES: Mapping[str, Case] = {
    case.name: case
    for case in (
        Case("cold", "cold", cold=True, share=0.25),
        Case("warm", "warm"),
        Case("shards8", "shards8", shards=8),
        Case("two_runs", "two_runs", ("corpus_image_embeddings", _OCR), _PAGES, cold=True, share=0.25),
        Case(
            "side_by_side",
            "side_by_side",
            ("layout_regions,ocr_results,parsed_texts,corpus_text_embeddings", "corpus_image_embeddings"),
            "raw_pages",
        ),
        Case("layout", "layout", (_PAGES,)),
        Case("reading", "reading", (f"{_PAGES},{_OCR}",)),
        Case("ocr", "ocr", (_OCR,), _PAGES, changes={"recognition.server.gpus": [0]}),
        Case(
            "two_gpus",
            "two_gpus",
            (_OCR,),
            _PAGES,
            # Replicas and requests in flight follow from the number of cards.
            changes={"recognition.server.gpus": [0, 1], "recognition.processes": 8},
        ),
        Case("own", "own", ()),
    )
}


def case_of(text: str, shards: int) -> Case:
    """Return the case of `NAME` or `NAME+KEY=VALUE+...`.

    It has `shards` shards, unless it has its own number.
    """
    base, *changes = text.split("+")
    if base not in CASES:
        raise SystemExit(f"there is no case {base!r}: choose of {', '.join(CASES)}")
    case = CASES[base]
    changed = {key: yaml.safe_load(value) for key, _, value in (pair.partition("=") for pair in changes)}
    return replace(case, name=text, shards=case.shards or shards, changes={**case.changes, **changed})
