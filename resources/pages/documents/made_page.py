"""What a pool of processes makes of documents."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MadePage:
    """The encoded image, and the text layer of a PDF's page as it is stored; None where there is none.

    `damage` says what of the page could not be drawn.
    """

    data: bytes
    text_layer: str | None = None
    damage: str | None = None


@dataclass(frozen=True, slots=True)
class PageCount:
    """How many pages a document has, how many files are attached to it, and how many pages it only says it has."""

    pages: int
    attachments: int = 0
    missing: int = 0


@dataclass(frozen=True, slots=True)
class Failed:
    """A task without a result, and why; a reason that `may_pass` says nothing about the bytes."""

    reason: str
    may_pass: bool = False
