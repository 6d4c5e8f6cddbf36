"""The labels of DeepSeek-OCR, and what they are among ours. Pure."""

from collections.abc import Mapping
from types import MappingProxyType

OURS: Mapping[str, str] = MappingProxyType(
    {
        "title": "doc_title",
        "sub_title": "paragraph_title",
        "text": "text",
        "paragraph": "text",
        "list": "text",
        "table": "table",
        "table_caption": "figure_title",
        "table_footnote": "vision_footnote",
        "image": "image",
        "figure": "image",
        "image_caption": "figure_title",
        "figure_caption": "figure_title",
        "figure_title": "figure_title",
        "image_footnote": "vision_footnote",
        "figure_footnote": "vision_footnote",
        "chart": "chart",
        "chart_caption": "figure_title",
        "equation": "display_formula",
        "formula": "display_formula",
        "equation_caption": "formula_number",
        "header": "header",
        "footer": "footer",
        "page_number": "number",
        "footnote": "footnote",
    }
)
"""The first nine and the captions were seen in real answers, the others stand in parsers of others."""
UNKNOWN = "text"
"""What a label is that is not among them: its text is read on."""
TITLES = frozenset({"doc_title", "paragraph_title"})
CAPTIONS = frozenset(label for label in OURS if label.endswith(("_caption", "_footnote")) or label == "figure_title")
"""The model's own labels of what belongs to a table or a picture."""
CAPTIONED = frozenset({"table", "image", "figure", "chart"})


def ours(label: str) -> str:
    """Our label for the model's own."""
    return OURS.get(label, UNKNOWN)
