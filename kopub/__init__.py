"""Reads what KoPub made, from Python: documents, pages, regions, texts, vectors and their lineage.

    corpus = kopub.open("data")                     # a Corpus: of a home, or of a release folder
    page = corpus.page("report_3")                  # a Page; corpus.documents and corpus.pages have all
    page.image                                      # as a PIL image
    [(region.label, region.text) for region in page.regions]
    page.markdown, page.pictures, page.lineage      # text, a Picture each, and the Steps that made it
    for hit in corpus.search("where is the budget?"):
        print(hit.page.id, hit.passage)             # an Answer has Hits, best first
    kopub.read("report.pdf").markdown               # one file as a Document, read at once

The `State` of a page or region says how it ended. Errors that you can mend are a `KopubError` of one line. Nothing is
read before it is needed: importing this package loads neither Dagster nor a model library, and Arrow only at first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kopub.errors import KopubError
from kopub.states import State

if TYPE_CHECKING:
    from kopub.api.corpus import Corpus, open
    from kopub.api.documents import Document, Documents
    from kopub.api.pages import NoSuchPage, Page, Pages
    from kopub.api.reading import read
    from kopub.api.rows import Picture, Step
    from kopub.api.search import Answer, Hit
    from kopub.texts.regions import Region

__all__ = ["Corpus", "Document", "Documents", "KopubError", "NoSuchPage", "Page", "Pages", "State", "open", "read"]
__all__ += ["Answer", "Hit", "Picture", "Region", "Step"]

_MODULES = {
    "api.corpus": ("Corpus", "open"),
    "api.documents": ("Document", "Documents"),
    "api.pages": ("NoSuchPage", "Page", "Pages"),
    "api.reading": ("read",),
    "api.rows": ("Picture", "Step"),
    "api.search": ("Answer", "Hit"),
    "texts.regions": ("Region",),
}


def __getattr__(name: str) -> Any:
    """Return a public name from its module, when it is first used."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"kopub.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
