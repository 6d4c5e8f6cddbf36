"""What a profile wants of figures: vectors, notes on tables too, how large they must be, whether notes are embedded."""

from pydantic import Field

from resources.figures.figure import SMALLEST
from resources.resource import Resource


class Figures(Resource):
    """Which figures of a page count, and what is made of them besides what the section `notes` says."""

    vectors: bool = Field(default=False, description="Make a vector for each figure, from its picture and caption.")
    embed_notes: bool = Field(
        default=False,
        description="Add the notes on a page's figures to the text that its text vector is made of. What a model made "
        "up then decides what is found; `retrieval_scores` compares with the run before, by type of query.",
    )
    tables: bool = Field(
        default=False,
        description="Make notes on tables as on images and charts, from a picture of the table, its caption and the "
        "text around it: a summary in words, and keywords.",
    )
    smallest: float = Field(
        default=SMALLEST, ge=0, le=1, description="Share of the page that an image or chart covers, at least, to count."
    )
    most_pixels: int = Field(
        default=786_432, ge=4096, description="Of a figure as a model sees it; at 32 by 32 for a token, 768 tokens."
    )
