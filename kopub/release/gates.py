"""The limits that a release and an upgrade must keep."""

from pydantic import Field, field_validator

from kopub.engine import ProfileOnly, Resource
from kopub.folders import placed

FEW = 3
"""The fewest pages for which a share counts: one page of a trial corpus does not make a bad corpus."""


class Gates(Resource):
    """Limits of the blocking checks; raise one in the Launchpad for an unusual run.

    The limits of a release only close the way to the Hub: a folder with a lost page is still made, and says so, because
    the makers of the corpus need it to see what was lost.
    """

    # Each limit is also a field of `GatesResource`, for the Launchpad.
    max_empty_jump: float = Field(
        default=0.25,
        ge=0,
        le=1,
        description="Increase in the share of a shard's pages without regions that stops a run.",
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
        # Each question has one page that answers it, so a lost share costs as much recall; 0.01 is less than 600
        # questions can tell from chance (a standard error of 0.015).
        description="Share of pages that failed or are quarantined, over the release, above which it is not pushed; "
        f"fewer than {FEW} such pages close no gate.",
    )
    max_lost_regions_share: float = Field(
        default=0.01,
        ge=0,
        le=1,
        description="Share of the regions that were to be read and could not be, over the release, above which it is "
        f"not pushed; fewer than {FEW} close no gate.",
    )
    max_doubtful_share: float = Field(
        default=0.1,
        ge=0,
        le=1,
        # Scanned tables, forms and drawings are doubted even if read correctly, so a normal corpus has some.
        description="Share of pages whose text is doubtful, over the release, above which it is not pushed; fewer than "
        f"{FEW} such pages close no gate.",
    )
    self_test_override: str = Field(
        default="",
        max_length=200,
        description="Reason to run an engine that failed its self-test (`kopub doctor`); the card states it.",
    )
    benchmarks: ProfileOnly[dict[str, str]] = Field(
        default={},
        description="Benchmarks with known answers that guard the corpus, each with the folder of its data: a profile "
        "that reads them worse than the last accepted one, whatever its name, makes no layouts or readings, and is not "
        "pushed. Fewer than six documents cannot prove a fall.",
    )
    benchmark_samples: int = Field(
        default=200,
        ge=0,
        description="Samples of each of these benchmarks that are read, the first by the hash of their ids; 0 is all.",
    )
    cdm: ProfileOnly[list[str]] = Field(
        default=[],
        description="Command that scores formulas by CDM in evaluations (docs/scorers.md); without it, the metric is "
        "skipped.",
    )
    override: str = Field(
        default="",
        max_length=200,
        description="Reason to push, and to upgrade at night, although limits are exceeded or retrieval or reading got "
        "worse; the card states it.",
    )
    license_override: str = Field(
        default="",
        max_length=200,
        description="Reason to push although a licence of the sources is unknown or forbids it; the card states it.",
    )

    @field_validator("benchmarks")
    @classmethod
    def _place(cls, folders: dict[str, str]) -> dict[str, str]:
        """Return the folders as absolute paths; in a profile they are already."""
        return {benchmark: str(placed(folder)) for benchmark, folder in folders.items()}
