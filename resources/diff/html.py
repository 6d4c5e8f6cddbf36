"""A comparison as one HTML file that needs nothing else: no script, no network."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from resources.diff.compare import PageDiff, RegionChange, ShardDiff
from resources.diff.marks import marked
from resources.printable import visible
from resources.recognition.read_regions import ReadRegion

_TEMPLATE = Path(__file__).with_name("page.html.jinja")
_STYLE = Path(__file__).with_name("style.css")
_LISTED = 200
"""Pages, or changes of a page, that are named: a reader gets no further, and the file stays small."""
_NAME, _LINE = 80, 200


@dataclass(frozen=True, slots=True)
class Picture:
    """A page for an overlay: a data URI, and the size in pixels that boxes are on."""

    uri: str
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Upgrade:
    """A table of the shard that was made again: both recipes, and what differs between them."""

    asset: str
    old: str
    new: str
    differences: Sequence[str]


def render(
    shard: str,
    names: tuple[str, str],
    diff: ShardDiff,
    upgrades: Sequence[Upgrade],
    picture: Callable[[str], Picture | None],
    most: int,
) -> str:
    """The page. The worst `most` pages have pictures with both layouts; all that the corpus says is escaped.

    `picture` is called for these alone; a page may have none.
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
    """A template of a page that needs nothing else, with the style that all of them share; every value is escaped."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"shown": partial(visible, most=_NAME), "line": partial(visible, most=_LINE)}
    style = Markup(_STYLE.read_text("utf-8"))
    return environment.from_string(template.read_text("utf-8")).render(style=style, **values)


def compared_page(page: PageDiff, picture: Picture | None = None) -> Mapping[str, Any]:
    """A page for a template: the boxes of both sides in pixels, and the changes with their texts marked."""
    return {
        "diff": page,
        "picture": picture,
        "sides": [_boxes(page.old, page.changes, "old"), _boxes(page.new, page.changes, "new")],
        "changes": [_change(change) for change in page.changes[:_LISTED]],
    }


def _boxes(regions: Sequence[ReadRegion], changes: Sequence[RegionChange], side: str) -> list[Mapping[str, Any]]:
    """Boxes in SVG's terms, those that changed last, so that they lie on top."""
    kinds = {getattr(change, side).index: change.kinds[-1] for change in changes if getattr(change, side)}
    boxes = [
        {
            "x": region.bbox[0],
            "y": region.bbox[1],
            "width": max(0.0, region.bbox[2] - region.bbox[0]),
            "height": max(0.0, region.bbox[3] - region.bbox[1]),
            "index": region.index,
            "label": region.label,
            "kind": kinds.get(region.index, "same"),
            "text": visible(region.content or "", _NAME),
        }
        for region in regions
    ]
    return sorted(boxes, key=lambda box: box["kind"] != "same")


def _change(change: RegionChange) -> Mapping[str, Any]:
    old, new = ((side.content or "") if side else "" for side in (change.old, change.new))
    texts = marked(old, new) if old != new else ([(visible(old, _NAME), False)] if old else [], [])
    return {"change": change, "texts": texts, "labels": list(_labels(change))}


def _labels(change: RegionChange) -> Iterator[str]:
    for side in (change.old, change.new):
        if side is not None:
            yield f"{side.index} {side.label}"
