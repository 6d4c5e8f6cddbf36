"""How a search ranks pages that asks for nothing: the section `search` of a profile."""

from pydantic import BaseModel, ConfigDict, Field

from resources.search.options import FLOOR, Mode


class Search(BaseModel):
    """What `kopub search`, the pages of a browser and the package take where nothing is asked for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: Mode = Field(
        default=Mode.AUTO,
        description="How pages are ranked; auto is what retrieval_scores measured best on the tables as they are, and "
        "a fusion where nothing was measured.",
    )
    notes: bool = Field(
        default=False,
        description="Search the words of the notes on figures and tables too (descriptions, keywords, data), where "
        "there are some. What a model made up then decides what is found; `retrieval_scores` measures without them.",
    )
    floor: float = Field(
        default=FLOOR,
        ge=0,
        le=1,
        description="BM25 score of the best page, as a share of what a page could have at most for the question, under "
        "which nothing is said to match well.",
    )
