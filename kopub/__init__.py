"""Reads what KoPub made, from Python: documents, pages, regions, texts, vectors and their lineage.

    import kopub

    corpus = kopub.open("data")              # a home, or a release folder
    page = corpus.page("report_3")
    page.image                               # the page as a PIL image
    [(region.label, region.text) for region in page.regions]
    print(page.markdown)

    for hit in corpus.search("where is the budget?"):
        print(hit.page.id, hit.passage)

    kopub.read("report.pdf").markdown        # one file, read at once

Nothing is read before it is needed. Importing this package loads neither Dagster nor a model library, and Arrow only
at the first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kopub.api.corpus import Corpus, open
    from kopub.api.documents import Document, Documents
    from kopub.api.pages import NoSuchPage, Page, Pages
    from kopub.api.reading import read
    from kopub.api.rows import Picture, Region, Step
    from kopub.api.search import Answer, Hit
    from kopub.errors import KopubError
    from kopub.states import State

__all__ = [
    "Answer",
    "Corpus",
    "Document",
    "Documents",
    "Hit",
    "KopubError",
    "NoSuchPage",
    "Page",
    "Pages",
    "Picture",
    "Region",
    "State",
    "Step",
    "open",
    "read",
]

_MODULES = {
    "kopub.api.documents": ("Document", "Documents"),
    "kopub.api.corpus": ("Corpus", "open"),
    "kopub.api.pages": ("NoSuchPage", "Page", "Pages"),
    "kopub.api.reading": ("read",),
    "kopub.api.rows": ("Picture", "Region", "Step"),
    "kopub.api.search": ("Answer", "Hit"),
    "kopub.errors": ("KopubError",),
    "kopub.states": ("State",),
}
_MODULE = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Return a public name from its module, when it is first used."""
    if name not in _MODULE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE[name]), name)


def __dir__() -> list[str]:
    return __all__
