"""How the text layers of PDFs are used: the section `pdf` of a profile."""

from typing import Literal

from pydantic import Field

from resources.resource import Resource


class Pdf(Resource):
    """How pages of PDFs are read. Pages that come from images have no text layer, and nothing here concerns them."""

    text_layer: Literal["never", "check", "prefer"] = Field(
        default="prefer",
        description="prefer takes the text of text regions from a sound layer, as long as some lines of the page read "
        "the same; tables, formulas and what the layer does not hold are read. check reads everything, and compares it "
        "with the layers: `kopub doubts` lists the pages that differ, as it does with prefer. never reads everything "
        "and looks at no layer, as `kopub run --ocr` does.",
    )

    @property
    def is_compared(self) -> bool:
        """Whether a layer is held against what was read."""
        return self.text_layer != "never"

    @property
    def is_preferred(self) -> bool:
        """Whether a layer's text is taken."""
        return self.text_layer == "prefer"
