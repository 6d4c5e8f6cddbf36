"""Where the index of the corpus lies, and how its pages are looked at: the section `corpus` of a profile."""

from pydantic import BaseModel, ConfigDict, Field, field_validator

from resources.config.places import store_url
from resources.pages.corpus import UPRIGHT, UPRIGHT_FIELD
from resources.pages.places.corpus_place import CACHE_GB


class CorpusIndex(BaseModel):
    """The index of the corpus, where nodes share it, and what a node keeps of files that it fetched."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str = Field(
        default="",
        description="Folder or fsspec URL (s3://bucket/corpus) of the index, for nodes that share it; `$KOPUB_HOME` "
        "when left out.",
    )
    cache_gb: float = Field(
        default=CACHE_GB,
        gt=0,
        description="Gigabytes of files of object storage that a node keeps in `$KOPUB_HOME/sources`; those that were "
        "not used for longest are removed for others.",
    )

    upright: bool = Field(default=UPRIGHT, description=UPRIGHT_FIELD)

    @field_validator("url")
    @classmethod
    def _placed(cls, url: str) -> str:
        """As an absolute path or a URL that a package opens."""
        return store_url(url).rstrip("/") if url else url
