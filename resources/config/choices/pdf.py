"""What is done with the text that PDFs hold: the section `pdf` of a profile."""

from typing import Literal

import dagster as dg
from pydantic import Field


class Pdf(dg.ConfigurableResource):
    """How pages of PDFs are read. Pages that come from images have no text layer, and nothing here concerns them."""

    text_layer: Literal["never", "check", "prefer"] = Field(
        default="never",
        description="check compares the text layer of a page with what was read of it: `kopub doubts` lists the pages "
        "that differ. prefer also takes the text of text regions from a sound layer; tables, formulas and what the "
        "layer does not hold are read.",
    )

    @property
    def is_compared(self) -> bool:
        """Whether a layer is held against what was read."""
        return self.text_layer != "never"

    @property
    def is_preferred(self) -> bool:
        """Whether a layer's text is taken."""
        return self.text_layer == "prefer"
