"""What a search can be asked for. Loads nothing, for the command line."""

from enum import StrEnum

MOST = 100
"""Pages that can be asked for: more than anybody looks through."""


class By(StrEnum):
    """The vectors of pages that a query is compared with; fusion is both."""

    TEXT = "text"
    IMAGE = "image"
    FUSION = "fusion"
