"""The addresses of the reading room. Ids stand in queries, never in paths, so that an id may be anything."""

from collections.abc import Mapping
from urllib.parse import urlencode

STATIC = "/static"


class Addresses:
    """Makes the address of everything that the room shows. `versions` are the hashes of the static files by name."""

    def __init__(self, versions: Mapping[str, str]) -> None:
        self._versions = versions

    def home(self) -> str:
        return "/"

    def documents(self, **asked: object) -> str:
        return _address("/documents", asked)

    def document(self, document: str, **asked: object) -> str:
        return _address("/document", {"id": document, **asked})

    def page(self, page_id: str, **asked: object) -> str:
        """A page; `asked` are the view of it, and the way on which a person came."""
        return _address("/page", {"id": page_id, **asked})

    def pages(self, kind: str = "", **asked: object) -> str:
        """A list of pages to look at."""
        return _address("/pages", {"kind": kind, **asked})

    def figures(self, **asked: object) -> str:
        return _address("/figures", asked)

    def search(self, **asked: object) -> str:
        return _address("/search", asked)

    def evaluation(self) -> str:
        return "/evaluation"

    def versions(self, **asked: object) -> str:
        return _address("/versions", asked)

    def picture(self, page_id: str, size: str, stamp: str | None = None) -> str:
        """A page's picture; with its stamp, a browser may keep it for ever."""
        return _address("/picture", {"id": page_id, "size": size, "of": (stamp or "")[:16]})

    def figure(self, page_id: str, region: int) -> str:
        """A region that is cut out of the picture of its page."""
        return _address("/figure", {"id": page_id, "region": region})

    def markdown(self, page_id: str) -> str:
        """A page's markdown as a file."""
        return _address("/markdown", {"id": page_id})

    def static(self, name: str) -> str:
        return _address(f"{STATIC}/{name}", {"of": self._versions[name]})


def _address(path: str, asked: Mapping[str, object]) -> str:
    given = {name: value for name, value in asked.items() if value not in ("", None)}
    # Half of a surrogate pair, which an id of a hostile file may have, cannot be encoded.
    return f"{path}?{urlencode(given, errors='replace')}" if given else path
