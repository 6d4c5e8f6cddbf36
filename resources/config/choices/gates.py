"""How much loss a run may bear before it stops, and how much a release before it stays off the Hub."""

from pydantic import Field, field_validator

from resources.config.places import placed
from resources.resource import ProfileOnly, Resource


class Gates(Resource):
    """Limits of the blocking checks; raise one in the Launchpad for a run that is known to be different.

    The limits of a release close the way to the Hub and no other: a folder with a lost page is still
    made, and says so, because whoever made the corpus needs it to see what was lost.
    """

    max_empty_jump: float = Field(
        default=0.25,
        ge=0,
        le=1,
        description="Share of pages without regions, over what the shard had before, that stops a run.",
    )
    expected_empty: float = Field(
        default=0.05,
        ge=0,
        le=1,
        description="Share of pages without regions that a first build may have: covers, blank versos.",
    )
    max_lost_share: float = Field(
        default=0.01,
        ge=0,
        le=1,
        # A question has one page that answers it, so a share lost is as much recall lost; 0.01 is below what 600
        # questions can tell from chance (a standard error of 0.015).
        description="Share of pages that failed or are quarantined, over the release, above which it is not pushed.",
    )
    max_lost_regions_share: float = Field(
        default=0.01,
        ge=0,
        le=1,
        description="Share of the regions that were to be read and could not be, over the release, above which it is "
        "not pushed.",
    )
    max_doubtful_share: float = Field(
        default=0.1,
        ge=0,
        le=1,
        # Scanned tables, forms and drawings are doubted even when they are read right, so a normal corpus has some.
        description="Share of pages whose text is doubtful, over the release, above which it is not pushed.",
    )
    self_test_override: str = Field(
        default="",
        max_length=200,
        description="Reason to run an engine that failed its self-test (`kopub doctor`); the card says it.",
    )
    benchmarks: ProfileOnly[dict[str, str]] = Field(
        default={},
        description="Benchmarks with known answers that guard the corpus, each with the folder of its data: an "
        "upgrade that reads them worse is not made at night, and what it reads is not pushed.",
    )
    benchmark_samples: int = Field(
        default=200,
        ge=0,
        description="Samples of each of these benchmarks that are read, the first by the hash of their ids; 0 is all.",
    )
    cdm: ProfileOnly[list[str]] = Field(
        default=[],
        description="Command that scores formulas by CDM in evaluations (docs/scorers.md); the metric is skipped when "
        "left out.",
    )
    override: str = Field(
        default="",
        max_length=200,
        description="Reason to push, and to upgrade at night, although limits are exceeded or retrieval or reading got "
        "worse; the card says it.",
    )
    license_override: str = Field(
        default="",
        max_length=200,
        description="Reason to push although a licence of the sources is unknown or forbids it; the card says it.",
    )

    @field_validator("benchmarks")
    @classmethod
    def _place(cls, folders: dict[str, str]) -> dict[str, str]:
        """A relative folder lies below the checkout, as all folders of a profile."""
        return {benchmark: str(placed(folder)) for benchmark, folder in folders.items()}
