"""What was read, as HTML that is safe to show: no script, no link, no picture but the page's own."""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from markupsafe import Markup

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

MOST = 100_000
"""Characters that are rendered; a longer text, which no page has, is shown as it is."""
_INLINE = {"b", "br", "em", "i", "s", "strong", "sub", "sup", "u"}
_TABLE = {"caption", "col", "colgroup", "table", "tbody", "td", "tfoot", "th", "thead", "tr"}
_BLOCKS = {"blockquote", "code", "h3", "h4", "h5", "h6", "hr", "img", "li", "ol", "p", "pre", "ul"}
_SPANS = {"colspan": 100, "rowspan": 1000}
"""The most columns and rows of a cell: a browser lays out every one."""
_HEADINGS = 2
"""Levels by which the headings of a page are lowered: above them stand the name of the page and of the view."""


def is_table(content: str) -> bool:
    """Whether what was read from a region is a table in HTML."""
    return content.lstrip().startswith("<table") and len(content) <= MOST


def table(content: str) -> Markup:
    """The table with nothing but its cells, and what is raised, lowered or emphasized in them."""
    return _cleaned(content, _TABLE | _INLINE, lambda source: None)


def markdown(text: str, picture: Callable[[str], str | None]) -> Markup:
    """A page's markdown. `picture` gives the address of what an image links to; None leaves it out."""
    if len(text) > MOST:
        return Markup("<pre>{}</pre>").format(text)
    return _cleaned(_renderer().render(text), _TABLE | _INLINE | _BLOCKS, picture)


def _cleaned(html: str, tags: set[str], picture: Callable[[str], str | None]) -> Markup:
    import nh3

    def attribute(tag: str, name: str, value: str) -> str | None:
        if name == "src":
            return picture(value)
        if name in _SPANS:
            return value if value.isdecimal() and len(value) < 5 and 0 < int(value) <= _SPANS[name] else None
        return value

    attributes = {"td": set(_SPANS), "th": set(_SPANS), "img": {"src", "alt"}, "ol": {"start"}}
    cleaned = nh3.clean(
        html,
        tags=tags,
        attributes=attributes,
        attribute_filter=attribute,
        set_tag_attribute_values={"img": {"loading": "lazy"}} if "img" in tags else None,
        link_rel=None,
    )
    return Markup(cleaned)


@cache
def _renderer() -> "MarkdownIt":
    from markdown_it import MarkdownIt
    from mdit_py_plugins.dollarmath import dollarmath_plugin

    # What a page prints between two dollar signs is rather a price: formulas are blocks, as they are written.
    renderer = MarkdownIt("commonmark", {"html": True}).use(dollarmath_plugin, renderer=_formula)
    renderer.disable("math_inline")
    renderer.core.ruler.push("lower_headings", _lower_headings)
    return renderer


def _formula(content: str, options: object) -> str:
    return str(Markup("<code>{}</code>").format(content.strip()))


def _lower_headings(state: object) -> None:
    for token in state.tokens:  # type: ignore[attr-defined]
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1:]) + _HEADINGS)}"
