"""Decides whether a release is fit for others: its losses, its retrieval, its licences.

A release holds what was read from pages, pictures cut out of them and, by choice, the pages: copies
and adaptations. So a page may be released only when its licence lets others share adaptations, and
only under a licence that keeps its conditions. `TERMS` says both for every licence that is known;
it is a reading of the licence texts by engineers, on the safe side, and no legal advice.

- Dedicated to the public (CC0, PDDL): no condition.
- Attribution only (CC BY, ODC-By, KOGL 1, MIT, BSD, Apache): under any licence that still obliges
  the next user to name the source, so not under a public domain dedication.
- Share-alike (CC BY-SA, GFDL, GPL, ODbL, ...): under the same licence, or one that its own text or
  its steward names as compatible: CC BY-SA 3.0 section 4(b) takes later versions, Creative Commons
  lists GPL 3.0 for CC BY-SA 4.0 (one way), MPL 2.0 section 3.3 the GPL family. Creative Commons has
  named no licence that takes CC BY-SA 4.0 and drops the share-alike, so CC BY 4.0 is none.
- Not for commerce (CC BY-NC, KOGL 2): not under a licence that permits it.
- No derivatives (CC BY-ND, CC BY-NC-ND, KOGL 3 and 4): no adaptation may be shared at all.
- Anything else: nothing is known, so nothing is permitted.

An allow-list in the profile would be shorter but not sufficient: whether a licence permits a release depends on the
licence of the release, for every pair of the two. A wrong answer harms the authors of the pages and the publisher, and
no later step would notice it.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kopub.errors import counted, visible
from kopub.release.base import ReleaseDescription
from kopub.release.files import Inventory, licences, unloadable_lines
from kopub.release.gates import FEW
from kopub.states import LOST, phrase

_LINE = 400
"""Most characters of a line; licences come from the source."""


_OVERRIDE = "{reason}; give gates.override a reason to publish it all the same"


@dataclass(frozen=True, slots=True)
class Fitness:
    """The problems of a release, one line each, and the reasons to overlook them.

    `unfinished` says how many pages first looks left for later. `unjudged` says what no gate can judge, because too
    little of it was counted.
    """

    quality: list[str]
    licences: list[str]
    override: str
    license_override: str
    unjudged: list[str]
    unfinished: list[str]

    @property
    def closed(self) -> list[str]:
        """The problems without a reason to overlook them.

        If there are none, the release may go to the Hub.
        """
        lines = self.closed_by_quality
        if not self.override:
            lines += [phrase(_OVERRIDE, line) for line in self.unfinished]
        if not self.license_override:
            form = "{reason}; give gates.license_override a reason to publish it all the same"
            lines += [phrase(form, line) for line in self.licences]
        return lines

    @property
    def closed_by_quality(self) -> list[str]:
        """The part of `closed` that also matters if nothing is published."""
        return [] if self.override else [phrase(_OVERRIDE, line) for line in self.quality]


def fitness(inventory: Inventory, about: ReleaseDescription) -> Fitness:
    """Return the fitness of the release that `inventory` lists.

    Counts that do not reconcile are found by `verify`.
    """
    gates, pages = about.gates, inventory["pages"]
    rows = lost = regions = lost_regions = doubtful = 0
    for part in pages:
        rows += part.rows
        lost += sum(part.summary["ended"][state] for state in LOST)
        regions += part.summary["regions"]["to_read"]
        lost_regions += part.summary["regions"]["lost"]
        doubtful += part.summary["doubtful"]
    quality: list[str] = []
    few: list[str] = []
    for count, of, what, gate in (
        (lost, rows, "pages failed or are quarantined", "max_lost_share"),
        (lost_regions, regions, "regions could not be read", "max_lost_regions_share"),
        (doubtful, rows, "pages have a doubtful text", "max_doubtful_share"),
    ):
        if count > getattr(gates, gate) * of:
            form = "{count} of {of} {what}, more than gates.{gate} ({share:.1%})"
            line = phrase(form, count, of, what, gate, getattr(gates, gate))
            if count >= FEW:
                quality.append(line)
            else:
                few.append(phrase("{reason}: fewer than {least} close no gate", line, FEW))
    if rows and lost == rows:
        quality = [phrase("not one of {rows} pages was made whole", rows)]
    engines, retrieval, reading = about.engine_problems, about.retrieval_problems, about.reading_problems
    problems = (*quality, *unloadable_lines(inventory), *engines, *retrieval, *reading)
    form = "unfinished: {pages} of the corpus left by --max-pages; `kopub run SOURCE` makes them"
    return Fitness(
        quality=[visible(line, _LINE) for line in problems],
        licences=[visible(line, _LINE) for line in refusals(licences(inventory, about.license), about.publish_under)],
        override=gates.override.strip(),
        license_override=gates.license_override.strip(),
        unjudged=[visible(line, _LINE) for line in (*few, *about.unjudged)],
        unfinished=[phrase(form, counted(about.left, "page"))] if about.left else [],
    )


OTHER = "other"

_DEDICATED = frozenset({"cc0-1.0", "pddl"})
_ATTRIBUTION = frozenset(
    {"apache-2.0", "bsd-2-clause", "bsd-3-clause", "cc-by-2.0", "cc-by-3.0", "cc-by-4.0", "kogl-1", "mit", "odc-by"}
)
_SHARE_ALIKE = {
    "agpl-3.0": frozenset({"agpl-3.0"}),
    "cc-by-sa-3.0": frozenset({"cc-by-sa-3.0", "cc-by-sa-4.0"}),
    "cc-by-sa-4.0": frozenset({"cc-by-sa-4.0", "gpl-3.0"}),
    "gfdl": frozenset({"gfdl"}),
    "gpl-2.0": frozenset({"gpl-2.0"}),
    "gpl-3.0": frozenset({"gpl-3.0", "agpl-3.0"}),
    "lgpl-2.1": frozenset({"lgpl-2.1", "gpl-2.0", "gpl-3.0"}),
    "lgpl-3.0": frozenset({"lgpl-3.0", "gpl-3.0"}),
    "lppl-1.3c": frozenset({"lppl-1.3c"}),
    "mpl-2.0": frozenset({"mpl-2.0", "gpl-2.0", "gpl-3.0", "lgpl-2.1", "lgpl-3.0", "agpl-3.0"}),
    "odbl": frozenset({"odbl"}),
}
_NO_COMMERCE_SHARE_ALIKE = frozenset({"cc-by-nc-sa-4.0"})
_NO_COMMERCE = frozenset({"cc-by-nc-3.0", "cc-by-nc-4.0", "kogl-2"})
_NO_DERIVATIVES = frozenset({"cc-by-nd-4.0", "cc-by-nc-nd-4.0", "kogl-3", "kogl-4"})

_KEEP_ATTRIBUTION = _ATTRIBUTION | _SHARE_ALIKE.keys() | _NO_COMMERCE | _NO_COMMERCE_SHARE_ALIKE


@dataclass(frozen=True, slots=True)
class LicenceTerms:
    """The terms of a licence for a release.

    `under` are the licences under which adaptations may be shared.
    """

    kind: str
    under: frozenset[str]


TERMS: Mapping[str, LicenceTerms] = {
    **dict.fromkeys(_DEDICATED, LicenceTerms("dedicated to the public", _KEEP_ATTRIBUTION | _DEDICATED)),
    **dict.fromkeys(_ATTRIBUTION, LicenceTerms("attribution", _KEEP_ATTRIBUTION)),
    **{name: LicenceTerms("share-alike", under) for name, under in _SHARE_ALIKE.items()},
    **dict.fromkeys(_NO_COMMERCE, LicenceTerms("not for commerce", _NO_COMMERCE | _NO_COMMERCE_SHARE_ALIKE)),
    **{name: LicenceTerms("share-alike, not for commerce", frozenset({name})) for name in _NO_COMMERCE_SHARE_ALIKE},
    **dict.fromkeys(_NO_DERIVATIVES, LicenceTerms("no derivatives", frozenset())),
}

_NOT_ON_THE_HUB = frozenset({"kogl-1", "kogl-2", "kogl-3", "kogl-4"})
_SPDX = re.compile(
    r"^(?P<name>gpl|lgpl|agpl|gfdl|mpl|lppl|apache)-(?P<version>\d+(?:\.\d+)?[a-z]?)(?:\+|-only|-or-later)?$"
)
_KOGL = re.compile(r"^(?:kogl|공공누리)\D*(?P<type>[1-4])(?:유형)?$")
"""Korea Open Government Licence: "KOGL Type 1", "공공누리 제1유형"."""


def hub_licences(stated: Iterable[str | None]) -> list[str]:
    """Return the Hub's identifiers of `stated`, each once and sorted.

    `other` stands for a licence without an identifier.
    """
    identifiers = set(map(identifier, stated))
    return sorted(identifiers - _NOT_ON_THE_HUB | ({OTHER} if identifiers & _NOT_ON_THE_HUB else set()))


def identifier(stated: str | None) -> str:
    """Return the key of `TERMS` that a source's words mean, or `other`."""
    name = unicodedata.normalize("NFKC", stated or "").partition("(")[0].strip().lower().replace(" ", "-")
    if match := _KOGL.match(name):
        name = f"kogl-{match['type']}"
    elif match := _SPDX.match(name):
        family, version = match["name"], match["version"]
        name = family if family in TERMS else f"{family}-{version if '.' in version else version + '.0'}"
    return name if name in TERMS else OTHER


def refusals(stated: Mapping[str | None, int], under: str | None) -> list[str]:
    """Return the reasons why pages under these licences may not be released, one line each.

    `stated` has the number of pages of each licence. `under` is the licence of the release; None leaves every page
    under its own.
    """
    if under is not None and identifier(under) == OTHER:
        form = "release.publish_under is {licence!r}, which is none of the licences whose terms are known"
        return [phrase(form, under)]
    lines: list[str] = []
    for licence, count in sorted(stated.items(), key=lambda item: item[0] or ""):
        problem, pages = _refusal(licence, under), counted(count, "page")
        if problem and licence:
            lines.append(phrase("{pages} under {licence!r}: {reason}", pages, licence, problem))
        elif problem:
            lines.append(phrase("{pages} without a stated licence: {reason}", pages, problem))
    return lines


def _refusal(licence: str | None, under: str | None) -> str | None:
    terms = TERMS.get(identifier(licence))
    if terms is None:
        return "its terms are not known" if licence else "nobody has said what may be done with them"
    if not terms.under:
        return "it permits no derivatives, and recognised text, pictures and vectors are derivatives"
    if under is not None and identifier(under) not in terms.under:
        allowed = ", ".join(sorted(terms.under))
        form = "it is {licence} and does not permit a release under {place}; it permits {permitted}"
        return phrase(form, terms.kind, under, allowed)
    return None
