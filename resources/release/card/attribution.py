"""ATTRIBUTION.md: every document that pages of a release are of, with its source file and licence. Pure."""

from collections import Counter
from collections.abc import Iterator

from resources.release.base import ReleaseDescription
from resources.release.card.escaping import markdown
from resources.release.dataset.released_files import Inventory, documents

NAME = "ATTRIBUTION.md"


def render(inventory: Inventory, about: ReleaseDescription) -> str:
    """The whole file. A document whose pages lie in several shards is one line."""
    return "\n".join(_lines(inventory, about)) + "\n"


def _lines(inventory: Inventory, about: ReleaseDescription) -> Iterator[str]:
    yield f"# Sources of {markdown(about.title)}"
    yield ""
    yield (
        f"All pages come from {markdown(about.source)}. They were changed: text was read from them, pictures were cut "
        "out of them and vectors were computed from them, by the engines that the card names. A page, and what was "
        "made from it, stays under the licence of its document."
    )
    yield ""
    yield "| document | source file | licence | pages |"
    yield "|---|---|---|--:|"
    counted: Counter[tuple[str | None, str, str | None]] = Counter()
    for document, source, licence, pages in documents(inventory, about.license):
        counted[document, source, licence] += pages
    for (document, source, licence), pages in counted.items():
        named = (document or "not stated", source, licence or "not stated", pages)
        yield f"| {' | '.join(markdown(value) for value in named)} |"
