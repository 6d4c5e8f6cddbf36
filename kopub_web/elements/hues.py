"""Which labels of regions share a colour on a page; the colours stand in room.css."""

_TITLES = ("doc_title", "paragraph_title", "figure_title")
_TEXTS = ("text", "vertical_text", "abstract", "content", "aside_text")
_FORMULAS = ("display_formula", "inline_formula", "formula_number")
_PICTURES = ("image", "chart", "seal", "header_image", "footer_image")
_MARGINS = ("header", "footer", "number", "footnote", "vision_footnote")

_HUES = {
    **dict.fromkeys(_TEXTS, "text"),
    **dict.fromkeys(_TITLES, "title"),
    "table": "table",
    **dict.fromkeys(_FORMULAS, "formula"),
    **dict.fromkeys(_PICTURES, "picture"),
    **dict.fromkeys(_MARGINS, "margin"),
}


def hue(label: str) -> str:
    """One of text, title, table, formula, picture, margin and other."""
    return _HUES.get(label, "other")
