"""Whether a release is fit for others: what it lost, how well it is found, and what its sources permit. Pure."""

from dataclasses import dataclass

from resources.release.base import ReleaseAbout
from resources.release.card.escaping import one_line
from resources.release.card.licences import refusals
from resources.release.dataset.released_files import Inventory, licences

FEW = 3
"""With fewer pages than this a share says nothing: one page of a trial corpus is not a corpus gone wrong."""


@dataclass(frozen=True, slots=True)
class Fitness:
    """What speaks against giving a release away, one line each, and the reasons to do it all the same."""

    quality: list[str]
    licences: list[str]
    override: str
    license_override: str

    @property
    def closed(self) -> list[str]:
        """What nobody gave a reason to overlook; nothing, when the way to the Hub is open."""
        return [
            *(
                f"{problem}; give gates.override a reason to publish it all the same"
                for problem in self.quality
                if not self.override
            ),
            *(
                f"{problem}; give gates.license_override a reason to publish it all the same"
                for problem in self.licences
                if not self.license_override
            ),
        ]


def fitness(inventory: Inventory, about: ReleaseAbout) -> Fitness:
    """Of the release that `inventory` lists. Counts that do not reconcile are found by `verify`."""
    gates, pages = about.gates, inventory["pages"]
    rows = sum(part.rows for part in pages)
    lost = sum(part.summary["lost"] for part in pages)
    doubtful = sum(part.summary["doubtful"] for part in pages)
    quality = [
        f"{count} of {rows} pages {what}, more than {key} ({limit:.1%})"
        for count, what, key, limit in (
            (lost, "failed or are quarantined", "gates.max_lost_share", gates.max_lost_share),
            (doubtful, "have a doubtful text", "gates.max_doubtful_share", gates.max_doubtful_share),
        )
        if count >= FEW and count > limit * rows
    ]
    if rows and lost == rows:
        quality = [f"not one of {rows} pages was made whole"]
    return Fitness(
        quality=[one_line(problem) for problem in (*quality, *about.retrieval_problems)],
        licences=[one_line(problem) for problem in refusals(licences(inventory, about.license), about.publish_under)],
        override=gates.override.strip(),
        license_override=gates.license_override.strip(),
    )
