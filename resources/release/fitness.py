"""Decides whether a release is fit for others: its losses, its retrieval, its licences."""

from dataclasses import dataclass

from resources.errors import visible
from resources.release.base import ReleaseDescription
from resources.release.files import Inventory, licences, unloadable_lines
from resources.release.licences import refusals
from resources.states import LOST

FEW = 3
"""The fewest pages for which a share counts: one page of a trial corpus is not a corpus gone wrong."""
_LINE = 400
"""Characters of a line; licences come from the source."""


@dataclass(frozen=True, slots=True)
class Fitness:
    """The problems of a release, one line each, and the reasons to overlook them."""

    quality: list[str]
    licences: list[str]
    override: str
    license_override: str

    @property
    def closed(self) -> list[str]:
        """The problems without a reason to overlook them.

        Empty when the way to the Hub is open.
        """
        return [
            *self.closed_by_quality,
            *(
                f"{problem}; give gates.license_override a reason to publish it all the same"
                for problem in self.licences
                if not self.license_override
            ),
        ]

    @property
    def closed_by_quality(self) -> list[str]:
        """The part of `closed` that also matters to those who never publish."""
        return [
            f"{problem}; give gates.override a reason to publish it all the same"
            for problem in self.quality
            if not self.override
        ]


def fitness(inventory: Inventory, about: ReleaseDescription) -> Fitness:
    """Return the fitness of the release that `inventory` lists.

    Counts that do not reconcile are found by `verify`.
    """
    gates, pages = about.gates, inventory["pages"]
    rows = sum(part.rows for part in pages)
    lost = sum(part.summary["ended"][state] for part in pages for state in LOST)
    regions = sum(part.summary["regions"]["to_read"] for part in pages)
    lost_regions = sum(part.summary["regions"]["lost"] for part in pages)
    doubtful = sum(part.summary["doubtful"] for part in pages)
    quality = [
        f"{count} of {of} {what}, more than gates.{gate} ({getattr(gates, gate):.1%})"
        for count, of, what, gate in (
            (lost, rows, "pages failed or are quarantined", "max_lost_share"),
            (lost_regions, regions, "regions could not be read", "max_lost_regions_share"),
            (doubtful, rows, "pages have a doubtful text", "max_doubtful_share"),
        )
        if count >= FEW and count > getattr(gates, gate) * of
    ]
    if rows and lost == rows:
        quality = [f"not one of {rows} pages was made whole"]
    engines, retrieval, reading = about.engine_problems, about.retrieval_problems, about.reading_problems
    problems = (*quality, *unloadable_lines(inventory), *engines, *retrieval, *reading)
    return Fitness(
        quality=[visible(line, _LINE) for line in problems],
        licences=[visible(line, _LINE) for line in refusals(licences(inventory, about.license), about.publish_under)],
        override=gates.override.strip(),
        license_override=gates.license_override.strip(),
    )
