"""A page of a document as a pool makes it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MadePage:
    """The encoded image, and the text layer of a PDF's page as it is stored; None where there is none."""

    data: bytes
    text_layer: str | None = None
