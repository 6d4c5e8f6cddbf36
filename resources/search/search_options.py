"""What a search can be asked for. Loads nothing, for the command line."""

from enum import StrEnum

MOST = 100
"""Pages that can be asked for: more than anybody looks through."""


class By(StrEnum):
    """The vectors that a query is compared with, of pages or of their figures; fusion is all there are."""

    TEXT = "text"
    IMAGE = "image"
    FIGURE = "figure"
    FUSION = "fusion"
