"""The rendering of a comparison as one HTML file without script or network."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from rapidfuzz.distance import Levenshtein, Prefix

from kopub.diff.compare import Change, Differences, ShardDiff
from kopub.errors import visible
from kopub.texts.markup import printable_value
from kopub.texts.regions import Region

_TEMPLATE = Path(__file__).with_name("page.html.jinja")
_STYLE = Path(__file__).with_name("style.css")
_LISTED = 200
"""Most pages, or changes of a page, that are listed: nobody reads further, and the file stays small."""
_NAME, _LINE = 80, 200


@dataclass(frozen=True, slots=True)
class EmbeddedPicture:
    """The picture of a page: a data URI, and its size in the boxes' pixels."""

    uri: str
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Upgrade:
    """A table of the shard that was recomputed: both recipes, and their differences."""

    asset: str
    old: str
    new: str
    differences: Sequence[str]


def render(
    shard: str,
    names: tuple[str, str],
    diff: ShardDiff,
    upgrades: Sequence[Upgrade],
    picture: Callable[[str], EmbeddedPicture | None],
    most: int,
) -> str:
    """Return the page.

    The worst `most` pages have pictures with both layouts; all text from the corpus is escaped. `picture` is called
    only for these pages, and may return None.
    """
    return rendered(
        _TEMPLATE,
        shard=shard,
        names=names,
        diff=diff,
        upgrades=upgrades,
        ended=[page for page in diff.changed if page.states],
        listed=diff.changed[:_LISTED],
        worst=[compared_page(page, picture(page.page_id)) for page in diff.changed[:most]],
    )


def rendered(template: Path, **values: Any) -> str:
    """Render a template as a self-contained page in the common style, with values escaped."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=printable_value
    )
    environment.filters |= {"shown": partial(visible, most=_NAME), "line": partial(visible, most=_LINE)}
    style = Markup(_STYLE.read_text("utf-8"))
    return environment.from_string(template.read_text("utf-8")).render(style=style, **values)


def compared_page(page: Differences, picture: EmbeddedPicture | None = None) -> Mapping[str, Any]:
    """Return a page as values for a template.

    The boxes of both sides are in pixels, and the changes contain texts with marked differences. If no region changed
    but the text did, as a person corrected it, the only change is that of the whole page.
    """
    changes: list[Mapping[str, Any]] = []
    for change in page.changes[:_LISTED]:
        old = (change.old.content or "") if change.old else ""
        new = (change.new.content or "") if change.new else ""
        # If only the box or label changed, the text is shown once.
        texts = mark_differences(old, new) if old != new else ([(visible(old, _NAME), False)] if old else [], [])
        labels = [f"{side.index} {side.label}" for side in (change.old, change.new) if side is not None]
        changes.append({"change": change, "texts": texts, "labels": labels})
    if not changes and page.damage.score:
        whole = Change(("text",), 0.0, None, None, page.damage)
        changes = [{"change": whole, "texts": mark_differences(*page.texts), "labels": ["page"]}]
    return {
        "diff": page,
        "picture": picture,
        "sides": [_boxes(page.old, page.changes, "old"), _boxes(page.new, page.changes, "new")],
        "changes": changes,
    }


def _boxes(regions: Sequence[Region], changes: Sequence[Change], side: str) -> list[Mapping[str, Any]]:
    """Return boxes in SVG's terms, changed ones last so that they are drawn on top."""
    kinds: dict[int, str] = {}
    for change in changes:
        if (changed := change.old if side == "old" else change.new) is not None:
            kinds[changed.index] = change.kinds[-1]
    boxes: list[Mapping[str, Any]] = []
    for region in regions:
        boxes.append(
            {
                "x": region.box.x1,
                "y": region.box.y1,
                "width": max(0.0, region.box.width),
                "height": max(0.0, region.box.height),
                "index": region.index,
                "label": region.label,
                "kind": kinds.get(region.index, "same"),
                "text": visible(region.content or "", _NAME),
            }
        )
    return sorted(boxes, key=lambda box: box["kind"] != "same")


Marked = list[tuple[str, bool]]
"""A text in pieces, each with True if the other text does not have it."""

_SHOWN = 400
"""Most characters shown of a text, so that the page of a whole shard can still be opened."""
_BEFORE = 40
"""Characters shown before the first difference, to help find the place."""
_ISLAND = 2
"""Most equal characters between two differences that count as chance."""


def mark_differences(old: str, new: str, most: int = _SHOWN) -> tuple[Marked, Marked]:
    """Return `most` characters of both texts, with their differences marked.

    The excerpts begin shortly before the first difference.
    """
    old, new = " ".join(old.split()), " ".join(new.split())
    start = max(0, Prefix.similarity(old, new) - _BEFORE)
    a, b = visible(old[start : start + most]), visible(new[start : start + most])
    sides: tuple[Marked, Marked] = ([], [])
    for code in Levenshtein.opcodes(a, b):
        pieces = a[code.src_start : code.src_end], b[code.dest_start : code.dest_end]
        for side, piece in zip(sides, pieces, strict=True):
            if piece:
                side.append((piece, code.tag != "equal"))
    cut: Marked = [("…", False)]
    excerpts: list[Marked] = []
    for side, text in zip(sides, (old, new), strict=True):
        before, after = cut if start > 0 else [], cut if len(text) > start + most else []
        # Small gaps are marked too: a word with three marked letters is harder to read than a marked one.
        joined: Marked = []
        for at, (piece, other) in enumerate(side):
            island = not other and len(piece) <= _ISLAND and 0 < at < len(side) - 1
            kind = other or island
            if joined and joined[-1][1] == kind:
                joined[-1] = joined[-1][0] + piece, kind
            else:
                joined.append((piece, kind))
        excerpts.append([*before, *joined, *after])
    return excerpts[0], excerpts[1]
