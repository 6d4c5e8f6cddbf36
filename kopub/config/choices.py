"""The profile sections without an engine.

Search, PDFs, figures, corpus, upgrades, reading room.
"""

from datetime import datetime, time
from typing import Any, ClassVar, Literal
from urllib.parse import quote, urlencode, urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from kopub.engine import Resource
from kopub.figures.figure import SMALLEST
from kopub.folders import store_url
from kopub.pages.corpus import UPRIGHT, UPRIGHT_FIELD
from kopub.pages.places import CACHE_GB
from kopub.search.options import FLOOR, Mode
from kopub.states import phrase


class Search(BaseModel):
    """The defaults of `kopub search`, of the pages of a browser and of the package."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")

    mode: Mode = Field(
        default=Mode.AUTO,
        description="How pages are ranked; auto is the best by retrieval_scores on the current tables, or fusion if "
        "nothing was measured.",
    )
    notes: bool = Field(
        default=False,
        description="Search the words of the notes on figures and tables too (descriptions, keywords, data). "
        "Generated text then affects what is found; `retrieval_scores` measures without it.",
    )
    floor: float = Field(
        default=FLOOR,
        ge=0,
        le=1,
        description="BM25 score of the best page, as a share of the highest possible for the question, below which "
        "nothing counts as matching well.",
    )


class Pdf(Resource):
    """The reading of PDF pages.

    Pages that come from images have no text layer, and nothing here concerns them.
    """

    text_layer: Literal["never", "check", "prefer"] = Field(
        default="prefer",
        description="prefer takes regions, texts and tables from a sound layer, as long as some lines of the page read "
        "the same; formulas and what the layer does not hold are read. check reads everything, and compares it "
        "with the layers: `kopub doubts` lists the pages that differ, as it does with prefer. never reads everything "
        "and looks at no layer, as `kopub run --ocr` does.",
    )


class Figures(Resource):
    """The figures of a page that count, and their notes and vectors.

    The section `notes` says the rest.
    """

    vectors: bool = Field(default=False, description="Make a vector for each figure, from its picture and caption.")
    embed_notes: bool = Field(
        default=False,
        description="Add the notes on a page's figures to the text from which its text vector is made. Generated text "
        "then affects what is found; `retrieval_scores` compares with the previous run, by type of query.",
    )
    tables: bool = Field(
        default=False,
        description="Make notes on tables as on images and charts, from a picture of the table, its caption and the "
        "text around it: a summary in words, and keywords.",
    )
    smallest: float = Field(
        default=SMALLEST, ge=0, le=1, description="Least share of the page that an image or chart must cover to count."
    )
    most_pixels: int = Field(
        default=786_432,
        ge=4096,
        description="Most pixels of a figure as a model sees it; at 32 by 32 per token, 768 tokens.",
    )


class Documents(Resource):
    """The profile section of what is made of whole documents, besides their pages."""

    chunks: bool = Field(
        default=False,
        description="Cut every document into pieces that fit a model; a release then has a config of them.",
    )
    chunk_tokens: int = Field(default=512, ge=16, description="Most tokens of a chunk; a token is four bytes.")


class CorpusIndex(BaseModel):
    """The shared index of the corpus, and a node's cache of fetched files."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")

    url: str = Field(
        default="",
        description="Folder or fsspec URL (s3://bucket/corpus) of the index, for nodes that share it; `$KOPUB_HOME` "
        "when left out.",
    )
    cache_gb: float = Field(
        default=CACHE_GB,
        gt=0,
        allow_inf_nan=False,
        description="Gigabytes of files of object storage that a node keeps in `$KOPUB_HOME/sources`; the least "
        "recently used are removed first.",
    )
    upright: bool = Field(default=UPRIGHT, description=UPRIGHT_FIELD)

    @field_validator("url")
    @classmethod
    def _placed(cls, url: str) -> str:
        """Return the index as an absolute path or a URL that a package opens."""
        return store_url(url).rstrip("/") if url else url


_HOUR, _DAY = 60, 24 * 60
"""Minutes."""


class Upgrades(BaseModel):
    """The hours of the night in which stale shards may be started."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = Field(default=False, description="Whether they are on when first loaded; the UI can switch them.")
    start: time = Field(default=time(2), description="Beginning of the night, HH:MM.")
    end: time = Field(default=time(6), description="End of the night, HH:MM; what runs by then goes on.")
    timezone: str = Field(default="Asia/Seoul", description="IANA time zone of `start` and `end`.")
    fresh_within_days: float | None = Field(
        default=None,
        # Dagster takes no less than a minute.
        ge=0.001,
        le=36_500,
        description="Age at which the UI shows the release and the scores as overdue; null: never.",
    )

    @field_validator("start", "end", mode="before")
    @classmethod
    def _minutes(cls, value: Any) -> Any:
        """Return the time of day that YAML may have read as a number.

        YAML 1.1 reads an unquoted 22:00 as a number in base 60.
        """
        if not isinstance(value, int):
            return value
        if not 0 <= value < _DAY:
            # As a number, it would be taken for seconds since midnight.
            raise ValueError("it is no time of day; write HH:MM, without seconds")
        return time(*divmod(value, _HOUR))

    @field_validator("timezone")
    @classmethod
    def _existing_zone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):  # a region such as Asia is a folder
            raise ValueError(phrase("{name!r} is no time zone; it is one like Asia/Seoul", name)) from None
        return name

    @model_validator(mode="after")
    def _not_empty(self) -> "Upgrades":
        if self.start == self.end:
            raise ValueError("start: it is the same as end, so there is no night")
        return self

    def __str__(self) -> str:
        return f"from {self.start:%H:%M} to {self.end:%H:%M} {self.timezone}"

    @property
    def cron(self) -> str:
        """The cron schedule for the beginning of every night."""
        return f"{self.start.minute} {self.start.hour} * * *"

    def is_night(self, now: datetime) -> bool:
        """Return whether work may be started at `now`, which knows its time zone."""
        local = now.astimezone(ZoneInfo(self.timezone)).time()
        # This is by wall clock, since a night that begins in the evening ends on the next day.
        start, end, moment = (at.hour * _HOUR + at.minute for at in (self.start, self.end, local))
        return (moment - start) % _DAY < (end - start) % _DAY


LOCAL = "http://127.0.0.1:3030"
"""The default address of `kopub browse`, beside the UI's port 3000."""
DAGSTER = "http://127.0.0.1:3000"
"""The address at which `make ui` serves."""


class ReadingRoom(BaseModel):
    """The address of `kopub browse`, and that of Dagster's UI.

    Dagster's UI links to the first.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")

    url: str | None = Field(
        default=LOCAL,
        description="Address at which browsers find the reading room; null leaves the links out. `kopub browse` "
        "listens on its port.",
    )

    dagster_url: str | None = Field(
        default=DAGSTER,
        description="Address of Dagster's UI, to which the reading room links runs; null leaves the links out.",
    )

    @field_validator("url", "dagster_url")
    @classmethod
    def _is_address(cls, url: str | None) -> str | None:
        if url is None:
            return None
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(phrase("{url!r} is no address such as {example}", url, LOCAL))
        # Reading the port of an address raises for an invalid one.
        parts.port  # noqa: B018
        return url.rstrip("/")

    @property
    def port(self) -> int:
        """The port of an address on this machine, or else the usual one."""
        parts = urlsplit(self.url or LOCAL)
        local = parts.hostname in ("127.0.0.1", "localhost", "::1")
        return (local and parts.port) or urlsplit(LOCAL).port or 0

    def of_run(self, run_id: str) -> str | None:
        """Return the address of a run in Dagster's UI."""
        return None if self.dagster_url is None else f"{self.dagster_url}/runs/{quote(run_id, safe='')}"

    def of_shard(self, shard: str) -> str | None:
        """Return the address of a shard's documents."""
        return None if self.url is None else f"{self.url}/documents?{urlencode({'shard': shard})}"
